"""httpx with httpx-retries, as its README shows: Client(transport=RetryTransport())."""
from common import Base, serve, version
import httpx
from httpx_retries import Retry, RetryTransport

class Client(Base):
    name, version = "httpx-retries", version("httpx-retries", "httpx")
    configuration = ("httpx.Client(transport=RetryTransport(HTTPTransport(verify=False), retry=Retry(total=5, backoff_factor=0.5))); "
                     "no setting for a whole call's time")

    def setup(self):
        # Without certificates to load: five clients are made for some behaviours, and none speaks TLS.
        retrying = RetryTransport(httpx.HTTPTransport(verify=False), retry=Retry(total=5, backoff_factor=0.5))
        self.client = httpx.Client(transport=retrying, verify=False)

    def send(self, method, url, headers, body, deadline):
        return self.client.request(method, url, headers=headers, content=body).status_code

serve(Client)
