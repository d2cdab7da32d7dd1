// axios with axios-retry, as its README shows with exponential backoff.
import axios from "axios";
import axiosRetry from "axios-retry";
import { run, version } from "./common.mjs";

const configuration = "axiosRetry(axios.create(), {retries: 3, retryDelay: axiosRetry.exponentialDelay}); a call's time by timeout, which retries share";
const about = { name: "axios-retry", version: `${version("axios-retry")}, axios ${version("axios")}`, configuration };
run(about, () => {
  const client = axios.create();
  axiosRetry(client, { retries: 3, retryDelay: axiosRetry.exponentialDelay });
  return async (method, url, { headers, body, deadline }) => {
    try {
      return (await client.request({ method, url, headers, data: body, timeout: deadline ?? 0 })).status;
    } catch (error) {
      if (error.response) return error.response.status;
      throw error;
    }
  };
}, ["call_time"]);
