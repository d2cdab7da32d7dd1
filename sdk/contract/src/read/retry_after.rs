//! `Retry-After` in whole seconds, in fractions that it should not have, and as a date (section 4).

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, header};

use super::merge::Tally;
use super::number::{self, Unit};
use super::{date, lines};

/// The largest valid value of all lines and members in milliseconds (HNT-06); `None` where none is valid.
pub(super) fn read(headers: &HeaderMap, now: SystemTime, tally: &mut Tally) -> Option<u64> {
    let mut largest = None;
    let mut found = lines(headers, &header::RETRY_AFTER);
    let clock = Clock::new(headers, now);
    for line in &mut found {
        let Ok(text) = line.to_str() else {
            tally.malformed();
            continue;
        };
        for member in members(text) {
            let value = tally.keep(number::decimal(member, Unit::Seconds).or_else(|| clock.until(member)));
            largest = largest.max(value);
        }
    }
    if found.cut {
        tally.malformed();
    }
    largest
}

/// Cuts a line at its commas, but not at the one inside a date. Empty members of a list count for nothing; a line
/// that is empty as a whole is one empty member.
fn members(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(line);
    let empty = line.trim_matches([' ', '\t', ',']).is_empty().then_some("");
    let cut = std::iter::from_fn(move || {
        let text = rest?;
        let first = text.find(',').unwrap_or(text.len());
        let end = if date::is_weekday(trim(&text[..first])) {
            text[first..]
                .match_indices(',')
                .nth(1)
                .map_or(text.len(), |(at, _)| first + at)
        } else {
            first
        };
        rest = text.get(end + 1..);
        Some(trim(&text[..end]))
    });
    cut.filter(|member| !member.is_empty()).chain(empty)
}

fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// What a date is measured against: the response's own `Date`, or the wall clock at receipt (rule 5, HNT-04).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Milliseconds since 1970.
    base: i128,
    /// Seconds since 1970 on the wall clock.
    now: i64,
}

impl Clock {
    pub(crate) fn new(headers: &HeaderMap, now: SystemTime) -> Self {
        let now_ms = match now.duration_since(UNIX_EPOCH) {
            Ok(after) => i128::try_from(after.as_millis()).unwrap_or(i128::MAX / 2),
            Err(before) => i128::try_from(before.duration().as_millis()).map_or(i128::MIN / 2, |ms| -ms),
        };
        let now = i64::try_from(now_ms / 1000).unwrap_or(if now_ms < 0 { i64::MIN } else { i64::MAX });
        let mut dates = headers.get_all(header::DATE).iter();
        let date = match (dates.next(), dates.next()) {
            (Some(only), None) if !headers.contains_key(header::AGE) => {
                only.to_str().ok().and_then(|text| date::parse(trim(text), now))
            }
            _ => None,
        };
        Self {
            base: date.map_or(now_ms, |seconds| i128::from(seconds) * 1000),
            now,
        }
    }

    /// Milliseconds until an instant that is given in milliseconds since 1970, zero for one that is past.
    pub(crate) fn until_ms(&self, at: u64) -> u64 {
        u64::try_from((i128::from(at) - self.base).max(0)).unwrap_or(u64::MAX)
    }

    /// Milliseconds until a date, zero for one that is past.
    pub(crate) fn until(&self, text: &str) -> Option<u64> {
        let date = i128::from(date::parse(text, self.now)?) * 1000;
        Some(u64::try_from((date - self.base).max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_at_the_commas_between_its_members() {
        let cut = |line| members(line).collect::<Vec<_>>();
        assert_eq!(cut("1, 4"), ["1", "4"]);
        assert_eq!(
            cut("Fri, 15 Jan 2027 08:00:30 GMT, 4,Friday, 15-Jan-27 08:00:30 GMT"),
            [
                "Fri, 15 Jan 2027 08:00:30 GMT",
                "4",
                "Friday, 15-Jan-27 08:00:30 GMT"
            ]
        );
        assert_eq!(cut("Fri"), ["Fri"]);
        assert_eq!(cut("1,, 2,"), ["1", "2"]);
        assert_eq!(cut(" , "), [""]);
        assert_eq!(cut(""), [""]);
    }
}
