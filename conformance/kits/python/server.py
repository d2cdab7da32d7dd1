#!/usr/bin/env python3
"""Puts an HTTP server under test. Copy this file, put your server in the place of `App`, and run it by
`holdoff-conformance server --adapter "python3 server.py"`. Standard library only; README.md has the steps."""
import http.server, json, sys, threading, time, uuid

class App:
    """REPLACE ME. One object per `start`. This one runs so many tasks at a time, lets so many wait, and refuses the rest
    with a whole reject: status, Retry-After, Overload-Signal and body that agree (CONTRACT section 2)."""
    capabilities = []  # fixtures that you offer (hold_workers, drain, ...); cases that need others are not applicable

    def __init__(self, profile):
        self.workers = threading.Semaphore(profile.get("workers", 2))
        self.room, self.lock = profile.get("workers", 2) + profile.get("queue", 16), threading.Lock()
        classes = profile.get("classes") or {}
        self.mean_ms = next(iter(classes.values()), {}).get("mean_ms", 50)
        self.inside = self.refused = 0

    def work(self, path, body):
        """One request: status, fields, body."""
        try:
            task = json.loads(body)
            known = isinstance(task, dict) and isinstance(task.get("class"), str)
        except ValueError:
            known = False
        if not known:  # a validation error never carries a code
            return 400, {}, {"title": "not a task", "status": 400}
        with self.lock:
            if self.inside >= self.room:
                self.refused += 1
                return self.reject()
            self.inside += 1
        try:
            with self.workers:
                time.sleep(min(task.get("duration_ms", self.mean_ms), 60_000) / 1000)
            return 200, {}, {"done": True}
        finally:
            with self.lock:
                self.inside -= 1

    def reject(self):
        # Each caller gets a place in the line of its own, so that they do not come back together.
        after = max(50, self.mean_ms * (self.inside + self.refused % 32))
        most = after + 2 * self.mean_ms + 50
        signal = f"v=1, code=queue_full, retry=after, applied=no, after={after}, max={most}"
        head = {"Retry-After": str(-(-after // 1000)), "retry-after-ms": str(after), "Overload-Signal": signal,
                "Cache-Control": "no-store"}
        return 503, head, {
            "type": "urn:overload:v1:queue_full", "title": "Queue is full", "status": 503, "contract_version": 1,
            "code": "queue_full", "retry": "after", "applied": "no", "retry_after_ms": after,
            "retry_after_max_ms": most, "instance": f"urn:uuid:{uuid.uuid4()}"}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version, app = "HTTP/1.1", None

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 65_536))
        self.answer(*self.app.work(self.path, body))

    def do_GET(self):
        self.answer(404, {}, {"title": "not found", "status": 404})

    def answer(self, status, head, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        kind = "application/json" if status == 200 else "application/problem+json"
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **head}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass  # stdout is the protocol's

class Listener(http.server.ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 1024

def serve(app):
    """The protocol: one JSON object a line on stdin, one for each on stdout. Nothing below needs a change."""
    for command in map(json.loads, sys.stdin):
        match command["cmd"]:
            case "hello":
                answer = {"protocol": 1, "role": "server", "contract_versions": [1], "capabilities": app.capabilities,
                          "implementation": {"name": "python-server-kit", "version": "1"}}
            case "start":
                handler = type("Bound", (Handler,), {"app": app(command.get("profile") or {})})
                listener = Listener(("127.0.0.1", 0), handler)
                threading.Thread(target=listener.serve_forever, daemon=True).start()
                # A metrics page of your server: add "metrics_url": "http://127.0.0.1:PORT/metrics" to this answer.
                answer = {"url": f"http://127.0.0.1:{listener.server_port}"}
            case "stop":
                answer = {"ok": True}
            case _:
                answer = {"error": "unknown_command"}
        print(json.dumps({"id": command["id"], **answer}), flush=True)
        if command["cmd"] == "stop":
            return

if __name__ == "__main__":
    serve(App)
