//! The messages on the wire, and their frames.

use std::collections::HashMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{BufMut as _, Bytes, BytesMut};
use prost::Message;

/// Bytes before a message: a flag and a length.
const PREFIX: usize = 5;

/// Padding is optional.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The message of the test service.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Text {
    #[prost(string, tag = "1")]
    pub(super) value: String,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ErrorInfo {
    #[prost(string, tag = "1")]
    pub(super) reason: String,
    #[prost(string, tag = "2")]
    pub(super) domain: String,
    #[prost(map = "string, string", tag = "3")]
    pub(super) metadata: HashMap<String, String>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) retry_delay: Option<Span>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Span {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

impl Span {
    pub(super) fn of_ms(ms: i64) -> Self {
        Self {
            seconds: ms / 1000,
            nanos: i32::try_from(ms % 1000 * 1_000_000).unwrap_or_default(),
        }
    }

    /// Whole milliseconds; `None` where it is not whole.
    pub(super) fn as_ms(self) -> Option<i64> {
        let (ms, rest) = (self.nanos / 1_000_000, self.nanos % 1_000_000);
        (rest == 0).then(|| self.seconds.saturating_mul(1000).saturating_add(i64::from(ms)))
    }
}

impl Any {
    pub(super) fn of(name: &str, message: &impl Message) -> Self {
        Self {
            type_url: format!("type.googleapis.com/google.rpc.{name}"),
            value: message.encode_to_vec(),
        }
    }

    /// The message, where this is one of that name that can be decoded.
    pub(super) fn as_of<M: Message + Default>(&self, name: &str) -> Option<M> {
        let named = self.type_url.rsplit('/').next()?.strip_prefix("google.rpc.")?;
        (named == name).then(|| M::decode(self.value.as_slice()).ok())?
    }
}

impl Status {
    pub(super) fn to_base64(&self) -> String {
        BASE64.encode(self.encode_to_vec())
    }

    pub(super) fn from_base64(text: &[u8]) -> Option<Self> {
        Self::decode(BASE64.decode(text).ok()?.as_slice()).ok()
    }
}

/// A message in its frame.
pub(super) fn frame(value: &str) -> Bytes {
    let message = Text {
        value: value.to_owned(),
    }
    .encode_to_vec();
    let mut out = BytesMut::with_capacity(PREFIX + message.len());
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    out.put_slice(&message);
    out.freeze()
}

/// The text of exactly one whole message; `None` for anything else.
pub(super) fn unframe(bytes: &[u8]) -> Option<String> {
    let (prefix, message) = bytes.split_at_checked(PREFIX)?;
    let [0, length @ ..] = prefix else { return None };
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let whole = usize::try_from(length) == Ok(message.len());
    whole
        .then(|| Text::decode(message).ok())
        .flatten()
        .map(|text| text.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_out_of_its_frame_and_half_of_one_does_not() {
        let framed = frame("hello");
        assert_eq!(unframe(&framed), Some("hello".to_owned()));
        assert_eq!(unframe(&framed[..framed.len() - 1]), None);
        assert_eq!(unframe(&[framed.clone(), framed].concat()), None);
        assert_eq!(unframe(b""), None);
    }

    #[test]
    fn details_come_out_of_base64_with_or_without_padding() {
        let info = ErrorInfo {
            reason: "QUEUE_FULL".to_owned(),
            ..ErrorInfo::default()
        };
        let status = Status {
            code: 14,
            message: String::new(),
            details: vec![Any::of("ErrorInfo", &info)],
        };
        let text = status.to_base64();
        let padded = format!("{text}{}", "=".repeat((4 - text.len() % 4) % 4));
        for text in [text, padded] {
            let back = Status::from_base64(text.as_bytes()).unwrap();
            assert_eq!(
                back.details[0].as_of::<ErrorInfo>("ErrorInfo"),
                Some(info.clone())
            );
            assert_eq!(back.details[0].as_of::<RetryInfo>("RetryInfo"), None);
        }
        assert_eq!(Status::from_base64(b"!"), None);
    }

    #[test]
    fn a_span_in_ms_is_what_it_was() {
        assert_eq!(Span::of_ms(1740).as_ms(), Some(1740));
        assert_eq!(Span { seconds: 0, nanos: 1 }.as_ms(), None);
    }
}
