//! What a request says about its time: `grpc-timeout` beside `overload-deadline-ms` (GRP-09).

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::TIMEOUT;
use crate::RequestFields;
use crate::limits::MAX_DEADLINE;

/// The most digits of a `grpc-timeout`.
const MAX_DIGITS: usize = 8;
/// The first number that has more.
const TOO_LARGE: u128 = 100_000_000;

/// A text that is no timeout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("grpc-timeout {value:?} is not allowed: it must be 1 to 8 digits and one of H M S m u n")]
pub struct InvalidTimeout {
    /// What was given, cut to 64 characters.
    pub value: String,
}

/// `grpc-timeout` for what is left of a call's time: microseconds, or milliseconds where those would need more than 8
/// digits; rounded down, since a deadline must not grow.
pub fn write_timeout(left: Duration) -> HeaderValue {
    let left = left.min(MAX_DEADLINE);
    let text = if left.as_micros() < TOO_LARGE {
        format!("{}u", left.as_micros())
    } else {
        // At most 24 h: 86400000.
        format!("{}m", left.as_millis())
    };
    // Digits and a letter.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("0u"))
}

/// Reads the text of a `grpc-timeout`, at most 24 h.
///
/// # Errors
/// When it is not 1 to 8 digits and a unit.
pub fn read_timeout(text: &str) -> Result<Duration, InvalidTimeout> {
    let invalid = || InvalidTimeout {
        value: text.chars().take(64).collect(),
    };
    let unit = text.chars().last().ok_or_else(invalid)?;
    let digits = text.strip_suffix(unit).unwrap_or_default();
    if !(1..=MAX_DIGITS).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid());
    }
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    let length = match unit {
        'H' => Duration::from_secs(number * 3600),
        'M' => Duration::from_secs(number * 60),
        'S' => Duration::from_secs(number),
        'm' => Duration::from_millis(number),
        'u' => Duration::from_micros(number),
        'n' => Duration::from_nanos(number),
        _ => return Err(invalid()),
    };
    Ok(length.min(MAX_DEADLINE))
}

/// Reads what a gRPC request says about its work. Its deadline is the lesser of `grpc-timeout` and
/// `overload-deadline-ms`; a malformed one, or one that comes twice, is absent.
pub fn read_request(headers: &HeaderMap) -> RequestFields {
    let mut fields = RequestFields::read(headers);
    let mut lines = headers.get_all(TIMEOUT).iter();
    let timeout = match (lines.next(), lines.next()) {
        (Some(only), None) => only.to_str().ok().and_then(|text| read_timeout(text).ok()),
        _ => None,
    };
    fields.deadline = match (fields.deadline, timeout) {
        (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
        (ours, theirs) => ours.or(theirs),
    };
    fields
}

/// Writes the fields as ASCII metadata, the deadline as `grpc-timeout` too (GRP-09).
pub fn write_request(fields: &RequestFields, headers: &mut HeaderMap) {
    fields.write(headers);
    match fields.deadline {
        Some(left) => drop(headers.insert(TIMEOUT, write_timeout(left))),
        None => drop(headers.remove(TIMEOUT)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_at_most_eight_digits_and_never_grows() {
        for (left, text) in [
            (Duration::ZERO, "0u"),
            (Duration::from_nanos(1_999), "1u"),
            (Duration::from_millis(1500), "1500000u"),
            (Duration::from_micros(99_999_999), "99999999u"),
            (Duration::from_micros(100_000_999), "100000m"),
            (Duration::from_secs(86_400), "86400000m"),
            (Duration::MAX, "86400000m"),
        ] {
            let written = write_timeout(left);
            assert_eq!(written, text);
            assert!(read_timeout(written.to_str().unwrap()).unwrap() <= left);
        }
    }

    #[test]
    fn every_unit_is_read_and_anything_else_names_the_value() {
        for (text, length) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
            ("99999999H", MAX_DEADLINE),
        ] {
            assert_eq!(read_timeout(text), Ok(length), "{text}");
        }
        for text in [
            "",
            "S",
            "1",
            "1s",
            "123456789S",
            "-1S",
            "1.5S",
            " 1S",
            "1S ",
            "٥S",
            "1é",
        ] {
            assert_eq!(read_timeout(text).unwrap_err().value, text);
        }
    }
}
