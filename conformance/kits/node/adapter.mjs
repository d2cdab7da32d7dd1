#!/usr/bin/env node
// Puts an HTTP client under test. Copy this file, put your client in the place of `Client`, and run it by
// `holdoff-conformance client --adapter "node adapter.mjs"`. Node 18 or later, no packages; README.md has the steps.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// REPLACE ME. One object per `configure`, for many calls at a time. This one obeys Retry-After and Overload-Signal,
// waits between the start and the end of the window, and stops where waiting makes no sense.
export class Client {
  static about = { name: "node-kit", version: "1", configuration: "the example client of the kit" };
  static capabilities = ["deadline"]; // what you do not declare is not judged; ADAPTER.md has the list

  constructor({ policy }) {
    this.policy = { max_attempts: 3, hint_cap_ms: 120_000, backoff_base_ms: 1000, ...policy };
  }

  // Makes one call and says how it ended: `kind` is response, overloaded or error (ADAPTER.md).
  async call(request) {
    const start = performance.now();
    const left = () => (request.deadline_ms ?? 3_600_000) - (performance.now() - start);
    const safe = !["POST", "PATCH"].includes(request.method) || request.idempotency_key;
    let over = null;
    for (let attempt = 1; ; attempt++) {
      let response, received;
      try {
        response = await this.send(request, Math.max(attempt, request.incoming?.attempt ?? 1), left());
        received = performance.now();
        await response.arrayBuffer(); // so that the connection can be used again
      } catch (error) {
        const why = error.name === "TimeoutError" ? "deadline_exceeded" : "transport";
        return { ...(over ?? { kind: "error", message: String(error.cause ?? error) }), why, attempts: attempt };
      }
      const { status } = response;
      if (status !== 429 && status !== 503) return { kind: "response", status, attempts: attempt };
      const hint = this.read(response.headers);
      over = { kind: "overloaded", status, code: hint.code, retry: hint.retry, applied: hint.applied, hop: 0,
               retry_in_ms: hint.delay, attempts: attempt };
      const growth = 2 ** (attempt - 1);
      const backoff = Math.min(20_000, this.policy.backoff_base_ms * growth);
      const low = Math.max(hint.delay || backoff / 2, 50);
      const own = low + Math.min(5000, Math.max(hint.rounded ? 1000 : 50, (hint.delay / 2) * growth)); // see CONTRACT 5
      const high = hint.delay ? (hint.most ? Math.max(hint.most, low + 50) : own) : Math.max(backoff, low);
      const stop = hint.retry === "no" ? "retry_forbidden"
        : !safe && hint.applied !== "no" ? "not_safe"
        : attempt >= this.policy.max_attempts ? "attempts_exhausted"
        : request.incoming && !request.incoming.retry ? "upstream_retries"
        : hint.delay > this.policy.hint_cap_ms ? "hint_too_long"
        : low + 10 >= left() ? "deadline_before_hint" : null;
      if (stop) return { ...over, why: stop };
      const wait = low + Math.random() * (Math.min(high, left() - 10) - low) + 2; // a timer may fire 1 ms early
      await new Promise((done) => setTimeout(done, received + wait - performance.now()));
    }
  }

  // One attempt.
  send(request, attempt, left) {
    const headers = { ...request.headers, "Overload-Attempt": String(attempt) };
    if (request.deadline_ms) headers["Overload-Deadline-Ms"] = String(Math.max(0, Math.trunc(left)));
    if (request.idempotency_key) headers["Idempotency-Key"] = `"${request.idempotency_key}"`;
    const signal = AbortSignal.timeout(Math.max(1, Math.min(Math.trunc(left), 60_000)));
    return fetch(request.url, { method: request.method, headers, body: request.body ?? undefined, signal });
  }

  // The hint: delay and the end of its window in ms, permission, applied, code (CONTRACT section 4).
  read(headers) {
    const pairs = (headers.get("overload-signal") ?? "").matchAll(/([a-z]+)=([a-z0-9_]+)/g);
    const signal = Object.fromEntries([...pairs].map(([, key, value]) => [key, value]));
    const number = (text) => (/^[0-9]{1,15}$/.test(text ?? "") ? Number(text) : 0);
    const all = (name) => (headers.get(name) ?? "").split(",").map((text) => number(text.trim()));
    const fine = Math.max(number(signal.after), ...all("retry-after-ms"));
    const coarse = Math.max(...all("retry-after")) * 1000;
    const rounded = !fine || coarse >= fine + 1000;
    const delay = Math.min(86_400_000, rounded ? coarse : fine);
    const most = number(signal.max) >= delay ? number(signal.max) : 0;
    return { delay, most, rounded, retry: signal.retry ?? "after", applied: signal.applied ?? "maybe", code: signal.code };
  }
}

// The protocol: one JSON object a line on stdin, one for each on stdout. Nothing below needs a change: `parse` (static),
// `metrics` and `cancel` are handed to methods of `Client` of these names, where it has them (README.md, step 6).
export async function serve(Kind) {
  const [clients, calls] = [new Map(), new Map()];
  const reply = (id, answer) => process.stdout.write(JSON.stringify({ id, ...answer }) + "\n");
  const call = async ({ id, client, request, incoming }) => {
    calls.set(id, clients.get(client));
    const begun = performance.now();
    const failed = (error) => ({ kind: "error", why: "transport", message: String(error?.stack ?? error) });
    const result = await clients.get(client).call({ ...request, incoming, id }).catch(failed);
    reply(id, { result: { ...result, elapsed_ms: Math.round(performance.now() - begun) } });
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    if (command.cmd === "hello") {
      reply(command.id, { protocol: 1, role: "client", implementation: Kind.about, contract_versions: [1],
                          capabilities: Kind.capabilities ?? [] });
    } else if (command.cmd === "configure") {
      clients.set(command.client, new Kind(command));
      reply(command.id, { ok: true });
    } else if (command.cmd === "call") call(command);
    else if (["parse", "metrics", "cancel"].includes(command.cmd)) {
      const whose = { parse: Kind, metrics: clients.get(command.client), cancel: calls.get(command.call) }[command.cmd];
      const answer = (it) => ({ ok: true, result: it[command.cmd](command) });
      reply(command.id, whose?.[command.cmd] ? answer(whose) : { error: "unknown_command" });
    } else if (command.cmd === "stop") return reply(command.id, { ok: true });
    else reply(command.id, { error: "unknown_command" });
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await serve(Client);
