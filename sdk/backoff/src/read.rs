//! From a response to what the policy is told.

use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use holdoff_policy::Outcome;
use http::{HeaderMap, StatusCode};

use crate::clock;

/// What a response means, for [`crate::PacedCall::told`]: a 2xx, a refusal with its hint, a 502 or unmarked 504, or any
/// other answer, which is final. The fields of others count as hints too (CONTRACT section 8).
///
/// `body` is the whole body where it is at hand, else `None`: then a hint that stands in the body alone is not seen.
/// Only 64 KiB of it are looked at. A failure without a response is [`Outcome::NotConnected`] where no connection was
/// made, else [`Outcome::Broken`].
pub fn outcome_of(status: StatusCode, headers: &HeaderMap, body: Option<&[u8]>) -> Outcome {
    match status {
        status if status.is_success() => Outcome::Success,
        StatusCode::BAD_GATEWAY => Outcome::BadGateway,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            let options = ReadOptions {
                now: clock::wall(),
                compat: Compat::On,
            };
            match Head::read(status, headers, &options).finish(body) {
                Reading::Overload(overload, _) => Outcome::Overload(overload),
                Reading::NotOverload if status == StatusCode::GATEWAY_TIMEOUT => Outcome::BadGateway,
                Reading::NotOverload => Outcome::Answered,
            }
        }
        _ => Outcome::Answered,
    }
}
