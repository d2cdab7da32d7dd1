"""requests with the retries of its "Advanced Usage": an HTTPAdapter with urllib3's Retry, mounted on a Session."""
from common import Base, serve, version
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

class Client(Base):
    name, version = "requests", version("requests", "urllib3")
    configuration = ("Session.mount(HTTPAdapter(max_retries=Retry(total=3, backoff_factor=0.1, "
                     "status_forcelist=[502, 503, 504], allowed_methods={'GET', 'POST'}))): the example of its docs with GET added; "
                     "no setting for a whole call's time")

    def setup(self):
        self.session = requests.Session()
        retries = Retry(total=3, backoff_factor=0.1, status_forcelist=[502, 503, 504], allowed_methods={"GET", "POST"})
        self.session.mount("http://", HTTPAdapter(max_retries=retries, pool_maxsize=100))

    def send(self, method, url, headers, body, deadline):
        return self.session.request(method, url, headers=headers, data=body).status_code

serve(Client)
