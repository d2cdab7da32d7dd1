// undici: request() with a RetryAgent around an Agent, all at their defaults.
import { Agent, RetryAgent, request } from "undici";
import { run, version } from "./common.mjs";

const configuration = "request(url, {dispatcher: new RetryAgent(new Agent())}), defaults (5 retries); a call's time by signal: AbortSignal.timeout()";
run({ name: "undici RetryAgent", version: version("undici"), configuration }, () => {
  const dispatcher = new RetryAgent(new Agent());
  return async (method, url, { headers, body, deadline }) => {
    const signal = deadline ? AbortSignal.timeout(deadline) : undefined;
    const response = await request(url, { method, headers, body, dispatcher, signal });
    await response.body.text();
    return response.statusCode;
  };
}, ["call_time"]);
