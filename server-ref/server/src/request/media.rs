//! What kind of bytes a body is: JSON in UTF-8, as it is.
//!
//! A body that says it is something else must not be read as if it had not: gzip is no JSON, and UTF-16 that happens to parse
//! means something else.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, StatusCode};

use crate::problem::Problem;

pub(super) fn check(headers: &HeaderMap) -> Result<(), Problem> {
    let fields = headers.get_all(CONTENT_TYPE).iter().count();
    if fields > 1 {
        let limit = "sent once";
        let value = format!("sent {fields} times");
        return Err(Problem::field(
            StatusCode::BAD_REQUEST,
            "Content-Type",
            &value,
            limit,
        ));
    }
    let media = text(headers, &CONTENT_TYPE).next().unwrap_or_default();
    let mut parts = media.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    if !essence.eq_ignore_ascii_case("application/json") || !parts.all(is_utf8_or_no_charset) {
        let limit = "application/json, in UTF-8";
        return Err(match fields {
            0 => Problem::field(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Content-Type",
                "absent",
                limit,
            ),
            _ => unsupported("Content-Type", media, limit),
        });
    }
    for coding in text(headers, &CONTENT_ENCODING).flat_map(|value| value.split(',')) {
        let coding = coding.trim();
        if !coding.is_empty() && !coding.eq_ignore_ascii_case("identity") {
            return Err(unsupported(
                "Content-Encoding",
                coding,
                "absent or identity: the body is read as it is",
            ));
        }
    }
    Ok(())
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or("(not text)"))
}

/// JSON has no parameters of its own; `charset` is common, and only one value of it is true.
fn is_utf8_or_no_charset(parameter: &str) -> bool {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let value = value.trim().trim_matches('"');
    !name.trim().eq_ignore_ascii_case("charset")
        || value.eq_ignore_ascii_case("utf-8")
        || value.eq_ignore_ascii_case("utf8")
}

fn unsupported(field: &str, value: &str, limit: &str) -> Problem {
    Problem::field(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        field,
        &format!("{value:?}"),
        limit,
    )
}
