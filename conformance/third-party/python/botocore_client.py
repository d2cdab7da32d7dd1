"""botocore: an S3 client against an endpoint of the runner's, in the standard retry mode."""
from common import Base, serve, version
import threading
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from urllib.parse import urlsplit

class Client(Base):
    name, version = "botocore", version("botocore")
    configuration = ("S3 client, Config(retries={'mode': 'standard'}) (3 attempts); GET is get_object, POST is "
                     "create_multipart_upload; no setting for a whole call's time")

    session, lock = botocore.session.Session(), threading.Lock()

    def setup(self):
        self.clients = {}

    def open(self, base):
        config = Config(signature_version=UNSIGNED, retries={"mode": "standard"}, max_pool_connections=100,
                        s3={"addressing_style": "path"})
        return self.session.create_client("s3", region_name="us-east-1", endpoint_url=base, config=config)

    def send(self, method, url, headers, body, deadline):
        at = urlsplit(url)
        base = f"{at.scheme}://{at.netloc}"
        with self.lock:
            if base not in self.clients:
                self.clients[base] = self.open(base)
        bucket, key = at.path.lstrip("/").split("/", 1)
        act = self.clients[base].get_object if method == "GET" else self.clients[base].create_multipart_upload
        try:
            return act(Bucket=bucket, Key=key)["ResponseMetadata"]["HTTPStatusCode"]
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]

Client.open(Client, "http://127.0.0.1:9")  # reads the service's description, which takes long, before the first call
serve(Client)
