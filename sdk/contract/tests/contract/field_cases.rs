//! Faults that others shipped, and what this crate reads instead. The names are those of the field cases.

use holdoff_contract::{Code, Granularity, Hint, Retry};

use crate::wire::{ms, refused};

fn retry_after(value: &str) -> Hint {
    let (overload, _) = refused(503, &[("retry-after", value)], None);
    assert_eq!(overload.retry, Retry::After, "{value:?}");
    overload.hint
}

fn seconds(delay: u64) -> Hint {
    Hint::After {
        delay: ms(delay),
        granularity: Granularity::Seconds,
    }
}

#[test]
fn fc_par_01_words_signs_and_units_are_ignored_and_counted_and_whitespace_is_not_part_of_a_value() {
    for value in ["inf", "Infinity", "nan", "1e400", "+5", "0x10", "5 seconds", ""] {
        let (overload, malformed) = refused(503, &[("retry-after", value)], None);
        assert_eq!(overload.hint, Hint::Absent, "{value:?}");
        assert_eq!(overload.retry, Retry::After, "{value:?}");
        assert_eq!(malformed.sources, 1, "{value:?}");
    }
    assert_eq!(retry_after(" 5 "), seconds(5000));
}

#[test]
fn fc_par_03_a_fraction_is_never_rounded_down() {
    assert_eq!(retry_after("1.5"), seconds(1500));
    assert_eq!(retry_after("0.2"), seconds(200));
}

#[test]
fn fc_par_04_all_three_date_spellings_count_and_nothing_like_them() {
    for date in [
        "Mon, 03 Mar 2025 12:00:30 GMT",
        "Monday, 03-Mar-25 12:00:30 GMT",
        "Mon Mar  3 12:00:30 2025",
    ] {
        assert_eq!(retry_after(date), seconds(30_000), "{date}");
    }
    for date in ["Mon, 03 Mar 2025 12:00:30 UTC", "03 Mar 2025"] {
        assert_eq!(retry_after(date), Hint::Absent, "{date}");
    }
}

const RATE_LIMITED: &str = r#"{"type":"urn:overload:v1:rate_limited","title":"overloaded","status":429,
    "contract_version":1,"code":"rate_limited","retry":"after","applied":"no","retry_after_ms":2000}"#;

#[test]
fn fc_par_05_a_zero_header_does_not_hide_the_wait_in_the_body() {
    let fields = [("retry-after", "0"), ("content-type", "application/problem+json")];
    let (overload, _) = refused(429, &fields, Some(RATE_LIMITED));
    assert_eq!(
        overload.hint,
        Hint::After {
            delay: ms(2000),
            granularity: Granularity::Milliseconds
        }
    );
    assert_eq!(overload.code, Some(Code::RateLimited));
}

#[test]
fn fc_par_06_a_coarse_spelling_does_not_hide_the_precise_one() {
    let fields = [
        ("retry-after", "1"),
        ("overload-signal", "v=1, code=queue_full, retry=after, after=250"),
    ];
    let (overload, _) = refused(503, &fields, None);
    assert_eq!(
        overload.hint,
        Hint::After {
            delay: ms(250),
            granularity: Granularity::Milliseconds
        }
    );
}

#[test]
fn fc_par_07_no_header_is_no_hint_and_not_a_hint_of_zero() {
    assert_eq!(refused(429, &[], None).0.hint, Hint::Absent);
    assert_eq!(retry_after("0"), seconds(0));
}

#[test]
fn fc_sec_04_age_matters_for_dates_and_not_for_seconds() {
    let age = ("age", "50");
    let date = ("date", "Mon, 03 Mar 2025 11:59:10 GMT");
    let until = ("retry-after", "Mon, 03 Mar 2025 12:00:10 GMT");
    let hint = |fields: &[(&str, &str)]| refused(429, fields, None).0.hint;
    assert_eq!(hint(&[age, ("retry-after", "60")]), seconds(60_000));
    assert_eq!(hint(&[age, date, until]), seconds(10_000));
    assert_eq!(hint(&[date, until]), seconds(60_000));
}
