//! Reading a refusal from gRPC (GRP-07, GRP-08, GRP-10): the same merge as for HTTP, with more sources.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::{Info, PUSHBACK_MS};
use crate::limits::MAX_HOP;
use crate::read::{Head, ReadOptions, Reading, Said, Tally, decimal_ms};
use crate::{Code, OverloadStatus, Retry};

/// UNAVAILABLE: what 503 is to HTTP.
const UNAVAILABLE: u32 = 14;
/// RESOURCE_EXHAUSTED: what 429 is to HTTP.
const RESOURCE_EXHAUSTED: u32 = 8;
/// DEADLINE_EXCEEDED: an overload only where the contract's own fields say so, as with 504.
const DEADLINE_EXCEEDED: u32 = 4;

/// The end of a call, as it stood in trailers or in a head that is all there is.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// `grpc-status`.
    pub code: u32,
    /// Trailers, or the head; of a call that had both, the two together.
    pub metadata: &'a HeaderMap,
    /// The `google.rpc.ErrorInfo` in the details. Of several, one that names a contract version ([`Info::is_ours`]).
    pub info: Option<&'a Info>,
    /// The `google.rpc.RetryInfo` in the details.
    pub retry_delay: RetryDelay,
}

/// A `google.rpc.RetryInfo`: absent, malformed and a delay are three different things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryDelay {
    /// No RetryInfo.
    #[default]
    Absent,
    /// One that says nothing usable, such as a negative delay.
    Malformed,
    /// A delay. Zero sets no minimum (HNT-05).
    Of(Duration),
}

/// Reads the end of a call. UNAVAILABLE and RESOURCE_EXHAUSTED are refusals, DEADLINE_EXCEEDED where a valid signal
/// or an ErrorInfo of ours says so, nothing else.
///
/// Sources are merged by section 4: the largest delay of signal, RetryInfo, pushback and the fields of others, the
/// smallest permission. A pushback that is negative, cannot be parsed or comes twice means no (GRP-07).
/// RESOURCE_EXHAUSTED without RetryInfo, pushback or signal means no as well: most servers mean a quota that does
/// not come back (GRP-08).
pub fn read(answer: &Answer<'_>, options: &ReadOptions) -> Reading {
    let status = match answer.code {
        UNAVAILABLE | DEADLINE_EXCEEDED => StatusCode::SERVICE_UNAVAILABLE,
        RESOURCE_EXHAUSTED => StatusCode::TOO_MANY_REQUESTS,
        _ => return Reading::NotOverload,
    };
    let mut head = Head::read(status, answer.metadata, options);
    let marked = head.has_signal();
    let tally = head.tally();
    let details = answer.info.and_then(|info| read_info(info, tally));
    let speaks_the_contract = marked || details.is_some();
    if answer.code == DEADLINE_EXCEEDED && !speaks_the_contract {
        return Reading::NotOverload;
    }
    let pushback = Pushback::read(answer.metadata);
    let delay = match answer.retry_delay {
        RetryDelay::Absent => None,
        RetryDelay::Malformed => tally.keep(None),
        RetryDelay::Of(delay) => Some(whole_ms(delay)),
    };
    let mut said = details.unwrap_or_default();
    let invited = delay.map(|_| Retry::After);
    said.retry = said.retry.max(invited).max(pushback.retry(tally));
    said.after = delay.max(pushback.ms());
    // What is no invitation is a no.
    let silent = match answer.code {
        RESOURCE_EXHAUSTED => !marked && delay.is_none() && pushback == Pushback::Absent,
        DEADLINE_EXCEEDED => said.retry.is_none() && !head.says_retry(),
        _ => false,
    };
    if answer.code == UNAVAILABLE && head.code().or(said.code.as_ref()) == Some(&Code::DependencyTimeout) {
        head.set_status(OverloadStatus::GatewayTimeout);
    }
    head.finish_grpc(said, silent)
}

/// Reads an HTTP answer without `grpc-status` that stands for UNAVAILABLE: 429, 502, 503 and 504, mostly from a proxy
/// (GRP-10). Signal, `Retry-After` and the fields of others count, and on 502 and 504 make it a refusal; a 502 or
/// 504 without any is a failed transport and no refusal (section 5).
pub fn read_http(status: StatusCode, headers: &HeaderMap, options: &ReadOptions) -> Reading {
    let as_status = match status.as_u16() {
        429 | 503 => status,
        502 | 504 => StatusCode::SERVICE_UNAVAILABLE,
        _ => return Reading::NotOverload,
    };
    let head = Head::read(as_status, headers, options);
    if as_status != status && !head.says_anything() {
        return Reading::NotOverload;
    }
    head.finish_grpc(Said::default(), false)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pushback {
    Absent,
    No { malformed: bool },
    Ms(u64),
}

impl Pushback {
    fn read(metadata: &HeaderMap) -> Self {
        let mut lines = metadata.get_all(PUSHBACK_MS).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Self::Absent,
            (Some(_), Some(_)) => Self::No { malformed: true },
            (Some(only), None) => {
                let text = only.to_str().unwrap_or_default().trim_matches([' ', '\t']);
                match decimal_ms(text) {
                    Some(ms) => Self::Ms(ms),
                    None => Self::No {
                        malformed: text.strip_prefix('-').and_then(decimal_ms).is_none(),
                    },
                }
            }
        }
    }

    fn retry(self, tally: &mut Tally) -> Option<Retry> {
        match self {
            Self::Absent => None,
            Self::Ms(_) => Some(Retry::After),
            Self::No { malformed } => {
                if malformed {
                    tally.malformed();
                }
                Some(Retry::No)
            }
        }
    }

    fn ms(self) -> Option<u64> {
        match self {
            Self::Ms(ms) => Some(ms),
            Self::Absent | Self::No { .. } => None,
        }
    }
}

/// What an ErrorInfo says; `None` where it is not ours, of another version, or its reason is no code. Its metadata
/// is read by the rules of the problem body.
fn read_info(info: &Info, tally: &mut Tally) -> Option<Said> {
    if !info.is_ours() {
        return None;
    }
    let text = |key: &str| info.metadata.get(key).map(|text| text.trim_matches([' ', '\t']));
    let code = info.reason.to_ascii_lowercase().parse::<Code>().ok();
    let (Some(code), Some("1")) = (code, text("contract_version")) else {
        tally.malformed();
        return None;
    };
    fn word<T: std::str::FromStr>(text: Option<&str>, tally: &mut Tally) -> Option<T> {
        tally.keep(text?.parse().ok())
    }
    let hop = text("hop").and_then(|text| tally.keep(decimal_ms(text)));
    Some(Said {
        code: Some(code),
        // Unknown means no (HNT-09).
        retry: text("retry").map(|text| word(Some(text), tally).unwrap_or(Retry::No)),
        applied: word(text("applied"), tally),
        scope: word(text("scope"), tally),
        state: word(text("state"), tally),
        hop: hop.map(|hop| u8::try_from(hop).unwrap_or(MAX_HOP).min(MAX_HOP)),
        ..Said::default()
    })
}

/// Rounded up, saturating.
fn whole_ms(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
