"""openai: its client against a base URL of the runner's, retries at their default."""
from common import Base, serve, version
import httpx
import openai
from urllib.parse import urlsplit

class Client(Base):
    name, version = "openai", version("openai")
    configuration = "OpenAI(base_url=..., http_client=httpx.Client(verify=False)), defaults (max_retries=2); .get(path) and .post(path); no setting for a whole call's time"

    def setup(self):
        self.clients, self.http = {}, httpx.Client(verify=False)  # no certificates to load: none speaks TLS

    def send(self, method, url, headers, body, deadline):
        at = urlsplit(url)
        base = f"{at.scheme}://{at.netloc}"
        client = self.clients.setdefault(base, openai.OpenAI(api_key="none", base_url=base, http_client=self.http))
        send = client.get if method == "GET" else client.post
        more = {} if body is None else {"content": body.encode()}
        return send(at.path, cast_to=httpx.Response, options={"headers": headers}, **more).status_code

serve(Client)
