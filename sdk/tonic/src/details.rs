//! `grpc-status-details-bin`: from base64 and protobuf to plain data, and never a panic on foreign input.
//!
//! A library that takes for granted that these bytes are valid base64 hands every server a way to stop its callers.
//! So they are checked here before anybody else looks: what cannot be decoded is ignored, and taken out of the answer
//! ([`scrub`]).

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use holdoff_contract::grpc::{Info, RetryDelay, STATUS_DETAILS};
use holdoff_contract::limits::MAX_FIELD_BYTES;
use http::{HeaderMap, HeaderValue};
use prost::Message as _;
use std::time::Duration;
use tonic_types::pb;

/// With or without padding, as the protocol allows.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Details looked at in one status: ours come first, others may add some.
const MAX_DETAILS: usize = 32;

/// What the details say about overload.
#[derive(Debug, Default)]
pub(crate) struct Details {
    pub(crate) info: Option<Info>,
    pub(crate) retry_delay: RetryDelay,
}

impl Details {
    /// Out of the field; nothing where it is absent, too long or broken.
    pub(crate) fn of_headers(headers: &HeaderMap) -> Self {
        headers
            .get(STATUS_DETAILS)
            .and_then(decode)
            .map_or_else(Self::default, |bytes| Self::of_bytes(&bytes))
    }

    /// Out of a `google.rpc.Status`.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        if bytes.len() > MAX_FIELD_BYTES {
            return found;
        }
        let Ok(status) = pb::Status::decode(bytes) else {
            return found;
        };
        for detail in status.details.iter().take(MAX_DETAILS) {
            match detail.type_url.rsplit('/').next() {
                Some("google.rpc.ErrorInfo") => found.add_info(&detail.value),
                Some("google.rpc.RetryInfo") => found.add_retry(&detail.value),
                _ => {}
            }
        }
        found
    }

    /// Of several, the first that speaks of this contract counts.
    fn add_info(&mut self, bytes: &[u8]) {
        if self.info.as_ref().is_some_and(Info::is_ours) {
            return;
        }
        if let Ok(info) = pb::ErrorInfo::decode(bytes) {
            self.info = Some(Info {
                reason: info.reason,
                domain: info.domain,
                metadata: info.metadata.into_iter().collect(),
            });
        }
    }

    /// Of several, the largest delay counts.
    fn add_retry(&mut self, bytes: &[u8]) {
        let delay = pb::RetryInfo::decode(bytes).ok().and_then(|retry| {
            let delay = retry.retry_delay.unwrap_or_default();
            let (seconds, nanos) = (
                u64::try_from(delay.seconds).ok()?,
                u32::try_from(delay.nanos).ok()?,
            );
            (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
        });
        self.retry_delay = match (self.retry_delay, delay) {
            (RetryDelay::Of(before), Some(delay)) => RetryDelay::Of(before.max(delay)),
            (_, Some(delay)) => RetryDelay::Of(delay),
            (RetryDelay::Of(before), None) => RetryDelay::Of(before),
            (RetryDelay::Absent | RetryDelay::Malformed, None) => RetryDelay::Malformed,
        };
    }
}

fn decode(value: &HeaderValue) -> Option<Vec<u8>> {
    if value.len() > MAX_FIELD_BYTES {
        return None;
    }
    BASE64.decode(value.as_bytes()).ok()
}

/// Takes details out that cannot be decoded.
pub(crate) fn scrub(headers: &mut HeaderMap) {
    if headers
        .get(STATUS_DETAILS)
        .is_some_and(|value| decode(value).is_none())
    {
        headers.remove(STATUS_DETAILS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(name: &str, value: Vec<u8>) -> tonic_types::pb::Status {
        let mut status = pb::Status::default();
        status.details.push(Default::default());
        status.details[0].type_url = format!("type.googleapis.com/google.rpc.{name}");
        status.details[0].value = value;
        status
    }

    fn retry(seconds: i64, nanos: i32) -> Vec<u8> {
        let mut info = pb::RetryInfo {
            retry_delay: Some(Default::default()),
        };
        if let Some(delay) = &mut info.retry_delay {
            (delay.seconds, delay.nanos) = (seconds, nanos);
        }
        info.encode_to_vec()
    }

    fn read(statuses: &[pb::Status]) -> Details {
        let all = pb::Status {
            details: statuses
                .iter()
                .flat_map(|status| status.details.clone())
                .collect(),
            ..Default::default()
        };
        Details::of_bytes(&all.encode_to_vec())
    }

    #[test]
    fn a_retry_delay_is_absent_malformed_or_a_wait() {
        assert_eq!(read(&[]).retry_delay, RetryDelay::Absent);
        let of = |seconds, nanos| read(&[any("RetryInfo", retry(seconds, nanos))]).retry_delay;
        assert_eq!(of(1, 500_000_000), RetryDelay::Of(Duration::from_millis(1500)));
        assert_eq!(of(0, 0), RetryDelay::Of(Duration::ZERO));
        for (seconds, nanos) in [(-1, 0), (0, -1), (1, i32::MAX), (i64::MIN, i32::MIN)] {
            assert_eq!(of(seconds, nanos), RetryDelay::Malformed, "{seconds} {nanos}");
        }
        assert_eq!(
            read(&[any("RetryInfo", vec![0xff])]).retry_delay,
            RetryDelay::Malformed
        );
        let several = [(1, 0), (3, 0), (-1, 0), (2, 0)].map(|(s, n)| any("RetryInfo", retry(s, n)));
        assert_eq!(read(&several).retry_delay, RetryDelay::Of(Duration::from_secs(3)));
    }

    #[test]
    fn of_several_infos_the_one_that_speaks_of_the_contract_counts() {
        let info = |reason: &str, ours: bool| {
            let mut info = pb::ErrorInfo {
                reason: reason.to_owned(),
                ..pb::ErrorInfo::default()
            };
            if ours {
                info.metadata
                    .insert("contract_version".to_owned(), "1".to_owned());
            }
            any("ErrorInfo", info.encode_to_vec())
        };
        let found = read(&[info("THEIRS", false), info("OURS", true), info("LATE", true)])
            .info
            .unwrap();
        assert_eq!(found.reason, "OURS");
        let found = read(&[any("Other", Vec::new()), info("THEIRS", false)])
            .info
            .unwrap();
        assert_eq!(found.reason, "THEIRS");
    }

    #[test]
    fn no_bytes_stop_the_reader() {
        for length in 0..300_u16 {
            let bytes: Vec<u8> = (0..length)
                .map(|n| (n.wrapping_mul(37) ^ (n >> 3)) as u8)
                .collect();
            let _ = Details::of_bytes(&bytes);
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let mut headers = HeaderMap::from_iter([(STATUS_DETAILS, value)]);
                assert_eq!(Details::of_headers(&headers).info, None);
                scrub(&mut headers);
                let left = headers.get(STATUS_DETAILS);
                assert!(left.is_none_or(|value| BASE64.decode(value.as_bytes()).is_ok()));
            }
        }
    }
}
