#!/usr/bin/env python3
"""Puts an HTTP client under test. Copy this file, put your client in the place of `Client`, and run it by
`holdoff-conformance client --adapter "python3 adapter.py"`. Standard library only; README.md has the steps."""
import http.client, json, random, re, sys, threading, time, urllib.parse

class Client:
    """REPLACE ME. One object per `configure`, used by many threads. This one obeys hints, and stops where waiting is in vain."""
    name, version, configuration = "python-kit", "1", "the example client of the kit"
    capabilities = ["deadline"]  # what you do not declare is not judged; ADAPTER.md has the list

    def __init__(self, configure):
        self.policy = {"max_attempts": 3, "hint_cap_ms": 120_000, "backoff_base_ms": 1000, **(configure.get("policy") or {})}

    def call(self, request):
        """Makes one call and says how it ended: `kind` is response, overloaded or error (ADAPTER.md)."""
        start, over, attempt, incoming = time.monotonic(), None, 0, request.get("incoming") or {}
        deadline_ms = request.get("deadline_ms") or 3_600_000
        safe = request["method"] not in ("POST", "PATCH") or request.get("idempotency_key")
        left = lambda: deadline_ms - (time.monotonic() - start) * 1000
        while True:
            attempt += 1
            try:
                status, head, received = self.send(request, max(attempt, incoming.get("attempt", 1)), left())
            except OSError as error:
                why = "deadline_exceeded" if isinstance(error, TimeoutError) else "transport"
                return {**(over or {"kind": "error", "message": str(error)}), "why": why, "attempts": attempt}
            if status not in (429, 503):
                return {"kind": "response", "status": status, "attempts": attempt}
            delay, most, retry, applied, code, coarse = self.read(head)
            over = {"kind": "overloaded", "status": status, "code": code, "retry": retry, "applied": applied,
                    "hop": 0, "retry_in_ms": delay, "attempts": attempt}
            backoff = min(20_000, self.policy["backoff_base_ms"] * 2 ** (attempt - 1))
            low = max(delay, 50) if delay else max(backoff // 2, 50)
            width = min(max(delay // 2 * 2 ** (attempt - 1), 1000 if coarse else 50), 5000)  # whole seconds: rounding
            high = (max(most, low + 50) if most else low + width) if delay else max(backoff, low)
            for stop, why in ((retry == "no", "retry_forbidden"), (not safe and applied != "no", "not_safe"),
                              (attempt >= self.policy["max_attempts"], "attempts_exhausted"),
                              (incoming and not incoming.get("retry"), "upstream_retries"),
                              (delay > self.policy["hint_cap_ms"], "hint_too_long"), (low + 10 >= left(), "deadline_before_hint")):
                if stop:
                    return {**over, "why": why}
            wait = random.uniform(low, min(high, left() - 10)) / 1000 + 0.001
            time.sleep(max(0, received + wait - time.monotonic()))

    def send(self, request, attempt, left_ms):
        """One attempt: status, fields, and when they were there."""
        url = urllib.parse.urlsplit(request["url"])
        head = dict(request.get("headers") or {}, **{"Overload-Attempt": str(attempt)})
        if request.get("deadline_ms"):
            head["Overload-Deadline-Ms"] = str(int(left_ms))
        if request.get("idempotency_key"):
            head["Idempotency-Key"] = '"%s"' % request["idempotency_key"]
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=max(0.001, min(left_ms / 1000, 60)))
        try:
            connection.request(request["method"], url.path, request.get("body"), head)
            response = connection.getresponse()
            return response.status, response.headers, time.monotonic()
        except http.client.HTTPException as error:
            raise OSError(f"not an answer: {error!r}") from error
        finally:
            connection.close()

    def read(self, head):
        """The hint: delay and end of its window in ms, permission, applied, code, whether in seconds (CONTRACT section 4)."""
        signal = dict(re.findall(r"([a-z]+)=([a-z0-9_]+)", ", ".join(head.get_all("Overload-Signal", []))))
        number = lambda text: int(text) if re.fullmatch(r"[0-9]{1,15}", text or "", re.ASCII) else 0
        fine = max([number(signal.get("after"))] + [number(v) for v in head.get_all("retry-after-ms", [])])
        coarse = max([0] + [number(v.strip()) * 1000 for v in head.get_all("Retry-After", [])])
        rounded = coarse >= fine + 1000 or not fine
        delay, most = coarse if rounded else fine, number(signal.get("max"))
        return (min(delay, 86_400_000), most if most >= delay else 0, signal.get("retry", "after"),
                signal.get("applied", "maybe"), signal.get("code"), rounded)

def serve(kind):
    """The protocol: one JSON object a line on stdin, one for each on stdout. Nothing below needs a change: `parse`, `metrics`
    and `cancel` are handed to methods of `Client` of these names, where it has them (README.md, step 6)."""
    clients, calls, lock = {}, {}, threading.Lock()
    def reply(command, answer):
        with lock:
            print(json.dumps({"id": command["id"], **answer}), flush=True)
    def call(command):
        begun = time.monotonic()
        try:
            extra = {"incoming": command.get("incoming"), "id": command["id"]}
            result = clients[command["client"]].call({**command["request"], **extra})
        except Exception as error:  # whatever your client raises is an answer too
            result = {"kind": "error", "why": "transport", "message": f"{type(error).__name__}: {error}"}
        reply(command, {"result": {**result, "elapsed_ms": round((time.monotonic() - begun) * 1000)}})
    for command in map(json.loads, sys.stdin):
        match command["cmd"]:
            case "hello":
                about = {"name": kind.name, "version": kind.version, "configuration": kind.configuration}
                reply(command, {"protocol": 1, "role": "client", "implementation": about,
                                "contract_versions": [1], "capabilities": kind.capabilities})
            case "configure":
                clients[command["client"]] = kind(command)
                reply(command, {"ok": True})
            case "call":
                calls[command["id"]] = clients[command["client"]]
                threading.Thread(target=call, args=[command], daemon=True).start()
            case "parse" | "metrics" | "cancel" as ask if hasattr(kind, ask):
                whose = {"parse": kind, "metrics": clients.get(command.get("client")), "cancel": calls.get(command.get("call"))}
                reply(command, {"ok": True, "result": getattr(whose[ask], ask)(command)})
            case "stop":
                return reply(command, {"ok": True})
            case _:
                reply(command, {"error": "unknown_command"})

if __name__ == "__main__":
    serve(Client)
