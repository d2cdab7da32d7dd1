"""azure-core: a PipelineClient with its RetryPolicy at its defaults."""
from common import Base, serve, version
from azure.core import PipelineClient
from azure.core.pipeline.policies import RetryPolicy
from azure.core.rest import HttpRequest

class Client(Base):
    name, version = "azure-core", version("azure-core", "requests")
    configuration = "PipelineClient(policies=[RetryPolicy()]), defaults; a call's time by send_request(timeout=)"
    capabilities = ["call_time"]

    def setup(self):
        self.client = PipelineClient(base_url="http://127.0.0.1", policies=[RetryPolicy()])

    def send(self, method, url, headers, body, deadline):
        more = {"timeout": deadline} if deadline else {}
        request = HttpRequest(method, url, headers=headers, content=body)
        return self.client.send_request(request, **more).status_code

serve(Client)
