//! gRPC for the loop of `holdoff-tower`: where a refusal stands, and how an attempt speaks.

use holdoff_contract::RequestFields;
use holdoff_contract::grpc::{self, Answer, STATUS};
use holdoff_contract::read::ReadOptions;
use holdoff_policy::Outcome;
use holdoff_tower::{Dialect, Verdict};
use http::{HeaderMap, StatusCode};

use crate::details::Details;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grpc;

impl Dialect for Grpc {
    fn request_fields(&self, headers: &HeaderMap) -> RequestFields {
        grpc::read_request(headers)
    }

    fn write(&self, fields: &RequestFields, headers: &mut HeaderMap) {
        grpc::write_request(fields, headers);
    }

    fn head(&self, status: StatusCode, headers: &HeaderMap, options: &ReadOptions) -> Verdict {
        if headers.contains_key(STATUS) {
            return end(headers, options);
        }
        if status == StatusCode::OK {
            return Verdict::Undecided;
        }
        let otherwise = match status {
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => Outcome::BadGateway,
            _ => Outcome::Answered,
        };
        Verdict::of(grpc::read_http(status, headers, options), otherwise)
    }

    fn trailers(&self, head: &HeaderMap, trailers: &HeaderMap, options: &ReadOptions) -> Verdict {
        if !trailers.contains_key(STATUS) {
            return Verdict::plain(Outcome::Answered);
        }
        let mut all = trailers.clone();
        for (name, value) in head {
            all.append(name, value.clone());
        }
        end(&all, options)
    }
}

/// The end of a call: everything that its metadata says.
fn end(headers: &HeaderMap, options: &ReadOptions) -> Verdict {
    let code = headers
        .get(STATUS)
        .and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    match code {
        Some(0) => Verdict::plain(Outcome::Success),
        // No number is no status that anybody knows.
        None => Verdict::plain(Outcome::Answered),
        Some(code) => {
            let Details { info, retry_delay } = Details::of_headers(headers);
            let answer = Answer {
                code,
                metadata: headers,
                info: info.as_ref(),
                retry_delay,
            };
            Verdict::of(grpc::read(&answer, options), Outcome::Answered)
        }
    }
}
