// undici: request() with the retry interceptor composed onto an Agent, all at its defaults.
import { Agent, interceptors, request } from "undici";
import { run, version } from "./common.mjs";

const configuration = "request(url, {dispatcher: new Agent().compose(interceptors.retry())}), defaults (5 retries); a call's time by signal: AbortSignal.timeout()";
run({ name: "undici interceptors.retry", version: version("undici"), configuration }, () => {
  const dispatcher = new Agent().compose(interceptors.retry());
  return async (method, url, { headers, body, deadline }) => {
    const signal = deadline ? AbortSignal.timeout(deadline) : undefined;
    const response = await request(url, { method, headers, body, dispatcher, signal });
    await response.body.text();
    return response.statusCode;
  };
}, ["call_time"]);
