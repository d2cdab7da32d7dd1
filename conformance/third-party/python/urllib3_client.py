"""urllib3 with the retries of its user guide: Retry(total, backoff_factor, status_forcelist)."""
from common import Base, serve, version
import urllib3

class Client(Base):
    name, version = "urllib3", version("urllib3")
    configuration = ("PoolManager(maxsize=100, retries=Retry(total=3, backoff_factor=0.5, "
                     "status_forcelist=[429, 500, 502, 503, 504])); no setting for a whole call's time")

    def setup(self):
        retry = urllib3.Retry(total=3, backoff_factor=0.5, status_forcelist=[429, 500, 502, 503, 504])
        self.pool = urllib3.PoolManager(maxsize=100, retries=retry)

    def send(self, method, url, headers, body, deadline):
        return self.pool.request(method, url, headers=headers, body=body).status

serve(Client)
