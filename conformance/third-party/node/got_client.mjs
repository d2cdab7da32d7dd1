// got at its defaults.
import got, { HTTPError } from "got";
import { run, version } from "./common.mjs";

const configuration = "got(url), defaults (retry.limit 2); a call's time by signal: AbortSignal.timeout()";
run({ name: "got", version: version("got"), configuration }, () => async (method, url, { headers, body, deadline }) => {
  const signal = deadline ? AbortSignal.timeout(deadline) : undefined;
  try {
    return (await got(url, { method, headers, body, signal })).statusCode;
  } catch (error) {
    if (error instanceof HTTPError) return error.response.statusCode;
    throw error;
  }
}, ["call_time"]);
