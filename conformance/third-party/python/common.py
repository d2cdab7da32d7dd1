"""What every Python client under test shares: the protocol loop of the kit, and how an answer or error is told."""
import importlib.metadata, pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "kits" / "python"))
from adapter import serve  # noqa: E402, F401  (the loop that everybody's adapter starts from)

def version(*packages):
    """The installed versions, as the report shows them."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" if n else importlib.metadata.version(name)
                     for n, name in enumerate(packages))

def answered(status):
    return {"kind": "response", "status": status}

def failed(error):
    """What the client raised, with its own words."""
    return {"kind": "error", "why": "transport", "message": f"{type(error).__name__}: {error}"[:300]}

class Base:
    """A client under test: `setup` makes it, `send` makes one call and returns a status."""
    capabilities = []

    def __init__(self, configure):
        self.setup()

    def setup(self):
        """Makes the client once per `configure`; calls share it."""

    def call(self, request):
        headers = dict(request.get("headers") or {})
        if request.get("idempotency_key"):
            headers["Idempotency-Key"] = '"%s"' % request["idempotency_key"]
        deadline_ms = request.get("deadline_ms")
        try:
            return answered(self.send(request["method"], request["url"], headers, request.get("body"),
                                      deadline_ms / 1000 if deadline_ms else None))
        except Exception as error:  # noqa: BLE001  whatever it raises is what its caller gets
            return failed(error)
