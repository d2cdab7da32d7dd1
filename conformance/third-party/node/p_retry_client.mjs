// p-retry around fetch, as its README shows, with an error for every status that is not 2xx.
import pRetry from "p-retry";
import { run, version } from "./common.mjs";

const configuration = "pRetry(() => fetch(url) or throw when !response.ok, {retries: 5}); a call's time by maxRetryTime and signal";
const about = { name: "p-retry + fetch", version: version("p-retry"), configuration };
run(about, () => async (method, url, { headers, body, deadline }) => {
  const signal = deadline ? AbortSignal.timeout(deadline) : undefined;
  const once = async () => {
    const response = await fetch(url, { method, headers, body, signal });
    await response.text();
    if (!response.ok) throw new Error(`status ${response.status}`);
    return response.status;
  };
  return pRetry(once, { retries: 5, signal, ...(deadline && { maxRetryTime: deadline }) });
}, ["call_time"]);
