// What every Node client under test shares: the protocol loop of the kit, and how an answer or error is told.
import { readFileSync } from "node:fs";
import { serve } from "../../kits/node/adapter.mjs";

// The installed version of a package, as the report shows it.
export const version = (name) =>
  JSON.parse(readFileSync(new URL(`./node_modules/${name}/package.json`, import.meta.url))).version;

// Serves a client that is one function: (method, url, {headers, body, deadline in ms}) -> status.
export function run(about, make, capabilities = []) {
  return serve(class {
    static about = about;
    static capabilities = capabilities;
    send = make();
    async call({ method, url, headers, body, idempotency_key, deadline_ms }) {
      const fields = { ...headers, ...(idempotency_key && { "Idempotency-Key": `"${idempotency_key}"` }) };
      try {
        const options = { headers: fields, body: body ?? undefined, deadline: deadline_ms ?? undefined };
        return { kind: "response", status: await this.send(method, url, options) };
      } catch (error) {
        const message = `${error.name}: ${error.message}`.slice(0, 300);
        return { kind: "error", why: "transport", message };
      }
    }
  });
}
