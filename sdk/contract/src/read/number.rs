//! Numbers as they stand in fields and bodies: plain decimals of any length, rounded up, never wrapped around.

use std::time::Duration;

use crate::limits::MAX_HINT;

/// The unit of a number in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    Seconds,
}

/// Reads `1*DIGIT [ "." 1*DIGIT ]` as milliseconds, rounded up (HNT-03b) and saturating (HNT-02). Everything else
/// (signs, exponents, units, quotes, other digits) is `None` (HNT-03).
pub(super) fn decimal(text: &str, unit: Unit) -> Option<u64> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (text, ""),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let places = match unit {
        Unit::Milliseconds => 0,
        Unit::Seconds => 3,
    };
    let push = |value: u64, digit: u8| value.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    let value = whole.bytes().fold(0, push);
    let value = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(places)
        .fold(value, push);
    let rest = fraction.bytes().skip(places).any(|digit| digit != b'0');
    Some(value.saturating_add(u64::from(rest)))
}

/// [`decimal`] of a number of seconds, in milliseconds.
pub(crate) fn decimal_seconds(text: &str) -> Option<u64> {
    decimal(text, Unit::Seconds)
}

/// [`decimal`] of a number of milliseconds.
pub(crate) fn decimal_ms(text: &str) -> Option<u64> {
    decimal(text, Unit::Milliseconds)
}

/// A JSON number that is not negative, as whole milliseconds: rounded up, saturating (HNT-10). `text` is the text of
/// one valid JSON value.
pub(super) fn json(text: &str) -> Option<u64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if !text.contains(['e', 'E']) {
        return decimal(text, Unit::Milliseconds);
    }
    // A float's cast saturates, infinity included. Its rounding is far below a millisecond in the range that counts.
    text.parse::<f64>().ok().map(|value| value.ceil() as u64)
}

/// Milliseconds as a delay that saturates at the largest hint (HNT-02).
pub(super) fn hint(ms: u64) -> Duration {
    Duration::from_millis(ms).min(MAX_HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_round_up_to_the_next_millisecond() {
        assert_eq!(decimal("007", Unit::Seconds), Some(7000));
        assert_eq!(decimal("1.5", Unit::Seconds), Some(1500));
        assert_eq!(decimal("0.2", Unit::Seconds), Some(200));
        assert_eq!(decimal("0.0000001", Unit::Seconds), Some(1));
        assert_eq!(decimal("0.000", Unit::Seconds), Some(0));
        assert_eq!(decimal("1500.5", Unit::Milliseconds), Some(1501));
        assert_eq!(decimal("1500.000", Unit::Milliseconds), Some(1500));
    }

    #[test]
    fn any_number_of_digits_saturates() {
        assert_eq!(decimal(&"9".repeat(400), Unit::Seconds), Some(u64::MAX));
        assert_eq!(
            decimal(&format!("{}1", "0".repeat(400)), Unit::Seconds),
            Some(1000)
        );
        assert_eq!(hint(u64::MAX), MAX_HINT);
        assert_eq!(json(&"9".repeat(400)), Some(u64::MAX));
        assert_eq!(json("1e400"), Some(u64::MAX));
    }

    #[test]
    fn everything_else_is_no_number() {
        for bad in [
            "", ".", "1.", ".5", "-5", "+5", "1e3", "0x10", "5s", "NaN", "inf", "\"5\"", "٥", "1.2.3", "1 2",
        ] {
            assert_eq!(decimal(bad, Unit::Seconds), None, "{bad:?}");
        }
        for bad in ["-1", "\"1\"", "null", "true", "[1]", "{}"] {
            assert_eq!(json(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_json_number_may_have_an_exponent() {
        assert_eq!(json("1.5e3"), Some(1500));
        assert_eq!(json("1e-9"), Some(1));
    }
}
