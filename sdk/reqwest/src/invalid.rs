//! What a caller can set wrong, told by name.
//!
//! reqwest tells of a bad value when the request is sent, and then without the value; a contract field with a value
//! outside its grammar would not be told of at all, since it counts as absent. So both are looked at where they are set.
//! The values of other fields are never shown: they may be secrets.

use holdoff_contract::{InvalidField, RequestFields, field_name as field};
use holdoff_tower::{BoxError, CallOptions, Error, shown_url};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What a URL must be. Longer ones are no `http::Uri`.
const URL: &str = "it must be an http:// or https:// URL with a host, at most 65534 bytes";

/// The beginning of what was given for a URL, kept until it is known whether it is one: without an allocation, since it
/// nearly always is.
pub(crate) struct Given {
    text: [u8; Self::LEN],
    kept: usize,
    whole: bool,
}

impl Given {
    const LEN: usize = 128;

    pub(crate) fn new(url: &str) -> Self {
        let mut text = [0; Self::LEN];
        let kept = url.floor_char_boundary(Self::LEN);
        text[..kept].copy_from_slice(&url.as_bytes()[..kept]);
        Self {
            text,
            kept,
            whole: kept == url.len(),
        }
    }

    pub(crate) fn refused(&self) -> InvalidField {
        let text = std::str::from_utf8(&self.text[..self.kept]).unwrap_or_default();
        let host = text.find("://").map_or(0, |at| at + 3);
        // Credentials end at an `@`, which may be in what was not kept.
        let shown = if self.whole || text[host..].contains(['/', '?', '#', '@']) {
            shown_url(text)
        } else {
            text[..host].into()
        };
        url(&shown)
    }
}

/// A URL that cannot be sent to.
pub(crate) fn url(shown: &str) -> InvalidField {
    InvalidField {
        field: "url",
        value: shown.chars().take(Given::LEN).collect(),
        limit: URL,
    }
}

/// A header of this name with a value that is none.
pub(crate) fn value(name: &HeaderName) -> InvalidField {
    let limit = "its value must be visible ASCII characters, spaces and tabs, without a line break";
    header(name.as_str(), limit)
}

fn header(name: &str, limit: &'static str) -> InvalidField {
    InvalidField {
        field: "header",
        value: name.chars().take(64).collect(),
        limit,
    }
}

/// A header name that is none. What was given cannot be shown: its type need not be text.
#[derive(Debug, thiserror::Error)]
#[error("a header name is not allowed: it must be 1 to 65535 letters, digits and !#$%&'*+-.^_`|~")]
pub(crate) struct InvalidName;

/// What reqwest could not build. Without the URL, whose query may be a secret.
pub(crate) fn unbuilt(error: reqwest::Error) -> Error {
    Error::request(error.without_url())
}

/// What reqwest says of an attempt: where it does not take the URL, which one and what it takes.
pub fn told(error: reqwest::Error) -> BoxError {
    match error.url() {
        Some(refused) if error.is_builder() => url(&shown_url(refused.as_str())).into(),
        _ => error.into(),
    }
}

/// A header that is set by hand.
pub(crate) enum ByHand {
    /// It goes out as it stands.
    Header,
    /// It is a field of the contract, and says this.
    Field(Box<RequestFields>),
}

impl ByHand {
    /// A field of the contract counts where its value fits, and is refused where it would be dropped. An idempotency key
    /// goes out as it stands, since many servers want it bare.
    pub(crate) fn read(name: &HeaderName, value: &HeaderValue) -> Result<Self, InvalidField> {
        let ours = name.as_str().starts_with("overload-") || *name == field::IDEMPOTENCY_KEY;
        if !ours {
            return Ok(Self::Header);
        }
        if *name == field::OVERLOAD_ATTEMPT {
            let limit =
                "the client counts the attempts; those of a request that is answered come with `incoming`";
            return Err(header(name.as_str(), limit));
        }
        let said = RequestFields::read(&HeaderMap::from_iter([(name.clone(), value.clone())]));
        let (fits, field, limit) = if *name == field::OVERLOAD_DEADLINE_MS {
            let limit = "it must be a whole number of milliseconds; `deadline` sets it";
            (said.deadline.is_some(), "Overload-Deadline-Ms", limit)
        } else if *name == field::OVERLOAD_TIER {
            let limit = "it must be one of critical, non-sheddable, deferrable; `tier` sets it";
            (said.tier.is_some(), "Overload-Tier", limit)
        } else if *name == field::OVERLOAD_TASK_CLASS {
            let limit = "it must fit [a-z][a-z0-9._-]* and be at most 64 bytes; `task_class` sets it";
            (said.task_class.is_some(), "Overload-Task-Class", limit)
        } else if *name == field::OVERLOAD_TENANT {
            let limit = "it must be 1 to 128 printable ASCII characters in double quotes; `tenant` sets it";
            (said.tenant.is_some(), "Overload-Tenant", limit)
        } else if *name == field::OVERLOAD_COST_MS {
            let limit = "it must be a whole number of milliseconds; `cost` sets it";
            (said.cost.is_some(), "Overload-Cost-Ms", limit)
        } else if *name == field::IDEMPOTENCY_KEY {
            let limit = "it must be one key of 1 to 255 printable ASCII characters, in double quotes where it has a \
                         comma; `idempotency_key` sets it";
            (said.idempotency_key.is_some(), "Idempotency-Key", limit)
        } else {
            return Ok(Self::Header);
        };
        match fits {
            true if *name == field::IDEMPOTENCY_KEY => Ok(Self::Header),
            true => Ok(Self::Field(Box::new(said))),
            false => Err(InvalidField {
                field,
                value: String::from_utf8_lossy(value.as_bytes())
                    .chars()
                    .take(64)
                    .collect(),
                limit,
            }),
        }
    }
}

/// Sets what a field says as its own method does.
pub(crate) fn take_over(said: RequestFields, options: &mut CallOptions) {
    options.deadline = said.deadline.or(options.deadline);
    options.tier = said.tier.or(options.tier);
    options.task_class = said.task_class.or_else(|| options.task_class.take());
    options.tenant = said.tenant.or_else(|| options.tenant.take());
    options.cost = said.cost.or(options.cost);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_credentials_and_query_however_long_they_are() {
        let long = "x".repeat(200);
        for (given, shown) in [
            ("no url", "no url"),
            ("/relative?key=secret", "/relative"),
            ("http://user:secret@", "http://***@"),
            (&*format!("http://user:{long}@a"), "http://"),
            (&*format!("user:{long}"), ""),
            (
                &*format!("mailto://a/{long}"),
                &*format!("mailto://a/{}", "x".repeat(117)),
            ),
            (&*format!("{}ä", "x".repeat(127)), ""),
        ] {
            assert_eq!(Given::new(given).refused().value, shown, "{given}");
        }
    }

    #[test]
    fn every_request_field_is_taken_where_its_value_fits_and_refused_by_name_where_not() {
        let refused = |name: &str, value: &str| {
            ByHand::read(&name.parse().unwrap(), &HeaderValue::from_str(value).unwrap()).err()
        };
        for (name, fits, does_not) in [
            ("overload-deadline-ms", "500", "5s"),
            ("overload-tier", "critical", "king"),
            ("overload-task-class", "lint", "Not a class"),
            ("overload-tenant", "\"t-a\"", "t a"),
            ("overload-cost-ms", "0", "-1"),
            ("idempotency-key", "job-1", ""),
        ] {
            assert_eq!(refused(name, fits), None);
            let error = refused(name, does_not).unwrap();
            assert_eq!((&*error.field.to_lowercase(), &*error.value), (name, does_not));
        }
        assert_eq!(refused("x-overload-tier", "king"), None);
        assert_eq!(refused("overload-other", "king"), None);
        assert!(refused("overload-attempt", "2").is_some());
    }
}
