// The AWS SDK for JavaScript: an S3 client against an endpoint of the runner's, retries at their default.
import { CreateMultipartUploadCommand, GetObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { run, version } from "./common.mjs";

const configuration = "S3Client, default (standard) retries; GET is GetObject, POST is CreateMultipartUpload; a call's time by abortSignal: AbortSignal.timeout()";
run({ name: "AWS SDK for JavaScript", version: version("@aws-sdk/client-s3"), configuration }, () => {
  const clients = new Map();
  return async (method, url, { deadline }) => {
    const { origin, pathname } = new URL(url);
    if (!clients.has(origin)) {
      const credentials = { accessKeyId: "none", secretAccessKey: "none" };
      clients.set(origin, new S3Client({ region: "us-east-1", endpoint: origin, forcePathStyle: true, credentials }));
    }
    const [, Bucket, ...rest] = pathname.split("/");
    const where = { Bucket, Key: rest.join("/") };
    const command = method === "GET" ? new GetObjectCommand(where) : new CreateMultipartUploadCommand(where);
    const abortSignal = deadline ? AbortSignal.timeout(deadline) : undefined;
    try {
      return (await clients.get(origin).send(command, { abortSignal })).$metadata.httpStatusCode;
    } catch (error) {
      if (error.$metadata?.httpStatusCode) return error.$metadata.httpStatusCode;
      throw error;
    }
  };
}, ["call_time"]);
