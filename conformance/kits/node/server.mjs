#!/usr/bin/env node
// Puts an HTTP server under test. Copy this file, put your server in the place of `App`, and run it by
// `holdoff-conformance server --adapter "node server.mjs"`. Node 18 or later, no packages; README.md has the steps.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";

// REPLACE ME. One object per `start`. This one runs so many tasks at a time, lets so many wait, and refuses the rest with a
// whole reject: status, Retry-After, Overload-Signal and body that agree (CONTRACT section 2).
class App {
  static capabilities = []; // fixtures that you offer (hold_workers, drain, ...); cases that need others are not applicable
  waiting = [];
  running = 0;
  refused = 0;

  constructor({ workers = 2, queue = 16, classes = {} }) {
    this.workers = workers;
    this.queue = queue;
    this.mean = Object.values(classes)[0]?.mean_ms ?? 50;
  }

  // One request: status, fields, body.
  async work(text) {
    let task;
    try {
      task = JSON.parse(text);
    } catch {}
    // A validation error never carries a code.
    if (typeof task?.class !== "string") return [400, {}, { title: "not a task", status: 400 }];
    if (this.running >= this.workers) {
      if (this.waiting.length >= this.queue) return this.reject();
      await new Promise((turn) => this.waiting.push(turn)); // whoever ends hands its place on
    } else this.running++;
    await new Promise((done) => setTimeout(done, Math.min(task.duration_ms ?? this.mean, 60_000)));
    const next = this.waiting.shift();
    if (next) next();
    else this.running--;
    return [200, {}, { done: true }];
  }

  reject() {
    // Each caller gets a place in the line of its own, so that they do not come back together.
    const place = this.running + this.waiting.length + (this.refused++ % 32);
    const after = Math.max(50, this.mean * place);
    const max = after + 2 * this.mean + 50;
    const head = {
      "Retry-After": Math.ceil(after / 1000), "retry-after-ms": after, "Cache-Control": "no-store",
      "Overload-Signal": `v=1, code=queue_full, retry=after, applied=no, after=${after}, max=${max}`,
    };
    return [503, head, {
      type: "urn:overload:v1:queue_full", title: "Queue is full", status: 503, contract_version: 1, code: "queue_full",
      retry: "after", applied: "no", retry_after_ms: after, retry_after_max_ms: max, instance: `urn:uuid:${randomUUID()}`,
    }];
  }
}

// Starts one server on a free port and hands back its URL.
function start(app) {
  const server = createServer(async (request, response) => {
    const parts = [];
    let size = 0;
    for await (const part of request) if ((size += part.length) <= 65_536) parts.push(part);
    const notFound = [404, {}, { title: "not found", status: 404 }];
    const [status, head, body] = request.method === "POST" ? await app.work(Buffer.concat(parts).toString()) : notFound;
    const type = status === 200 ? "application/json" : "application/problem+json";
    response.writeHead(status, { "Content-Type": type, ...head }).end(JSON.stringify(body));
  });
  const url = () => `http://127.0.0.1:${server.address().port}`;
  return new Promise((listening) => server.listen(0, "127.0.0.1", 1024, () => listening(url())));
}

// The protocol: one JSON object a line on stdin, one for each on stdout. Nothing below needs a change.
for await (const line of createInterface({ input: process.stdin })) {
  const { id, cmd, profile } = JSON.parse(line);
  const about = { role: "server", implementation: { name: "node-server-kit", version: "1" } };
  const hello = { protocol: 1, contract_versions: [1], capabilities: App.capabilities, ...about };
  const answer = cmd === "hello" ? hello
    // A metrics page of your server: add metrics_url: "http://127.0.0.1:PORT/metrics" beside url.
    : cmd === "start" ? { url: await start(new App(profile ?? {})) }
    : cmd === "stop" ? { ok: true } : { error: "unknown_command" };
  process.stdout.write(JSON.stringify({ id, ...answer }) + "\n", () => cmd === "stop" && process.exit(0));
}
