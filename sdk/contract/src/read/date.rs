//! HTTP-dates in their three forms (RFC 9110 section 5.6.7).
//!
//! `httpdate` knows the calendar, but refuses second 60 and years before 1970 and fixes the century of two-digit
//! years. So every form is first rewritten to the one form that it reads as we need it.

/// Days of the week as RFC 850 spells them; the other forms use the first three letters.
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
/// The Gregorian calendar repeats, days of the week included, after this many years.
const CYCLE_YEARS: u16 = 400;
/// Seconds in [`CYCLE_YEARS`].
const CYCLE_SECONDS: i64 = 146_097 * 86_400;
/// Seconds of a Gregorian year on average, good enough to tell which year it is.
const YEAR_SECONDS: i64 = 31_556_952;

/// The parts of a date, each as it stood there.
struct Parts<'a> {
    weekday: &'a str,
    day: &'a str,
    month: &'a str,
    year: u16,
    time: &'a str,
}

/// True for what stands before the comma inside a date, so that a list of dates can be cut at the right commas.
pub(super) fn is_weekday(text: &str) -> bool {
    DAYS.iter().any(|day| text == *day || text == &day[..3])
}

/// Seconds since 1970 (negative before) of an HTTP-date; `now`, in the same unit, settles two-digit years.
pub(super) fn parse(text: &str, now: i64) -> Option<i64> {
    if !text.is_ascii() {
        return None;
    }
    let parts = imf(text)
        .or_else(|| asctime(text))
        .or_else(|| rfc850(text, now))?;
    let (minutes, second) = parts.time.split_at_checked(6)?;
    let (second, leap) = if second == "60" { ("59", 1) } else { (second, 0) };
    let cycles = 1970_u16.saturating_sub(parts.year).div_ceil(CYCLE_YEARS);
    let year = parts.year + cycles * CYCLE_YEARS;
    let day = parts.day.replace(' ', "0");
    let (weekday, month) = (parts.weekday, parts.month);
    let date = httpdate::parse_http_date(&format!(
        "{weekday}, {day} {month} {year:04} {minutes}{second} GMT"
    ))
    .ok()?;
    let seconds = date.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    Some(i64::try_from(seconds).ok()? + leap - i64::from(cycles) * CYCLE_SECONDS)
}

fn digits(text: &str) -> Option<u16> {
    // `parse` alone would take a sign.
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`. ASCII was checked, so every index is a character boundary.
fn imf(text: &str) -> Option<Parts<'_>> {
    let fits = text.len() == 29 && &text[3..5] == ", " && &text[7..8] == " " && &text[11..12] == " ";
    (fits && &text[16..17] == " " && text.ends_with(" GMT") && &text[5..6] != " ").then_some(())?;
    Some(Parts {
        weekday: &text[..3],
        day: &text[5..7],
        month: &text[8..11],
        year: digits(&text[12..16])?,
        time: &text[17..25],
    })
}

/// `Sun Nov  6 08:49:37 1994`.
fn asctime(text: &str) -> Option<Parts<'_>> {
    let fits = text.len() == 24 && &text[3..4] == " " && &text[7..8] == " " && &text[10..11] == " ";
    (fits && &text[19..20] == " ").then_some(())?;
    Some(Parts {
        weekday: &text[..3],
        day: &text[8..10],
        month: &text[4..7],
        year: digits(&text[20..24])?,
        time: &text[11..19],
    })
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`.
fn rfc850(text: &str, now: i64) -> Option<Parts<'_>> {
    let (weekday, rest) = text.split_once(", ")?;
    let fits = DAYS.contains(&weekday) && rest.len() == 22 && &rest[2..3] == "-" && &rest[6..7] == "-";
    (fits && &rest[9..10] == " " && rest.ends_with(" GMT") && !rest.starts_with(' ')).then_some(())?;
    Some(Parts {
        weekday: &weekday[..3],
        day: &rest[..2],
        month: &rest[3..6],
        year: full_year(digits(&rest[7..9])?, now),
        time: &rest[10..18],
    })
}

/// The year with these last two digits that is at most 50 years ahead, and less than 50 behind (RFC 9110).
fn full_year(two_digits: u16, now: i64) -> u16 {
    let this_year = u16::try_from((1970 + now / YEAR_SECONDS).clamp(1970, 9900)).unwrap_or(1970);
    let latest = this_year + 50;
    latest - (latest - two_digits) % 100
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fri, 15 Jan 2027 08:00:00 GMT.
    const NOW: i64 = 1_800_000_000;

    #[test]
    fn the_three_forms_mean_the_same_second() {
        for text in [
            "Fri, 15 Jan 2027 08:00:30 GMT",
            "Friday, 15-Jan-27 08:00:30 GMT",
            "Fri Jan 15 08:00:30 2027",
        ] {
            assert_eq!(parse(text, NOW), Some(NOW + 30), "{text}");
        }
        assert_eq!(parse("Sun Nov  6 08:49:37 1994", NOW), Some(784_111_777));
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT", NOW), Some(784_111_777));
    }

    #[test]
    fn second_60_is_the_second_after_59() {
        assert_eq!(parse("Sat, 31 Dec 2016 23:59:60 GMT", NOW), Some(1_483_228_800));
        assert_eq!(parse("Sat, 31 Dec 2016 23:59:61 GMT", NOW), None);
    }

    #[test]
    fn a_two_digit_year_is_at_most_fifty_years_ahead() {
        assert_eq!(full_year(77, NOW), 2077);
        assert_eq!(full_year(78, NOW), 1978);
        assert_eq!(full_year(27, NOW), 2027);
        assert_eq!(full_year(26, NOW), 2026);
        assert_eq!(full_year(99, i64::MAX), 9899);
        assert_eq!(full_year(0, i64::MIN), 2000);
    }

    #[test]
    fn years_before_1970_and_up_to_9999_are_dates() {
        assert_eq!(parse("Thu, 01 Jan 1970 00:00:00 GMT", NOW), Some(0));
        assert_eq!(parse("Wed, 31 Dec 1969 23:59:59 GMT", NOW), Some(-1));
        assert_eq!(parse("Mon, 01 Jan 0001 00:00:00 GMT", NOW), Some(-62_135_596_800));
        assert_eq!(parse("Fri, 31 Dec 9999 23:59:59 GMT", NOW), Some(253_402_300_799));
    }

    #[test]
    fn what_is_no_http_date_is_refused() {
        for bad in [
            "fri, 15 jan 2027 08:00:30 gmt",
            "Tue, 30 Feb 2027 00:00:00 GMT",
            "Sat, 15 Jan 2027 08:00:30 GMT",
            "Fri, 15 Jan 2027 24:00:00 GMT",
            "Fri, 15 Jan +027 08:00:30 GMT",
            "Fri,  5 Jan 2027 08:00:30 GMT",
            "Mon, 03 Mar 2025 12:00:30 UTC",
            "03 Mar 2025",
            "2027-01-15T08:00:30Z",
            "Fri, 15 Jan 2027 08:00:30",
            "Friday, 15-Jan-2027 08:00:30 GMT",
            "Fri, 15-Jan-27 08:00:30 GMT",
            "Fri, 15 Jän 2027 08:00:30 GMT",
        ] {
            assert_eq!(parse(bad, NOW), None, "{bad}");
        }
    }
}
