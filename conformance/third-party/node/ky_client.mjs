// ky at its defaults.
import ky, { HTTPError } from "ky";
import { run, version } from "./common.mjs";

const configuration = "ky(url), defaults (retry.limit 2); a call's time by signal: AbortSignal.timeout()";
run({ name: "ky", version: version("ky"), configuration }, () => async (method, url, { headers, body, deadline }) => {
  const signal = deadline ? AbortSignal.timeout(deadline) : undefined;
  try {
    const response = await ky(url, { method, headers, body, signal });
    await response.text();
    return response.status;
  } catch (error) {
    if (error instanceof HTTPError) return error.response.status;
    throw error;
  }
}, ["call_time"]);
