//! Whom a call talks to: the key of what calls share, and of whom to trust.
//!
//! `http://A.example:80` and `http://a.example` are one destination; if they were two, a storm could be split over
//! spellings, and a tenant's name could go astray.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::Uri;

/// Scheme, host and port of a destination, in one spelling: lower case, without the scheme's own port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: Box<str>,
    authority: Box<str>,
}

/// A text that is no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "origin {value:?} is not allowed: it must be http:// or https:// with a host and at most a port, such as \
     https://api.example:8443"
)]
pub struct InvalidOrigin {
    /// What was given, cut to 128 characters, without what may be a secret: credentials and query.
    pub value: String,
}

impl Origin {
    /// The origin of this URI; `None` where it has no scheme or host, or is neither http nor https.
    pub fn of(uri: &Uri) -> Option<Self> {
        let (scheme, authority) = key(uri);
        let known = (scheme == "http" || scheme == "https") && !authority.is_empty();
        known.then(|| Self {
            scheme: scheme.into(),
            authority: authority.into(),
        })
    }

    /// Scheme and authority, spelled as in the table of destinations.
    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.scheme, &self.authority)
    }

    /// Is this the origin of that URI?
    pub fn is_of(&self, uri: &Uri) -> bool {
        let (scheme, authority) = key(uri);
        *self.scheme == *scheme && *self.authority == *authority
    }
}

impl FromStr for Origin {
    type Err = InvalidOrigin;

    /// Reads `scheme://host[:port]`, also with the one slash that some write behind it. Credentials, a path, a query or
    /// a fragment are refused: whoever writes them thinks that they count. [`Self::of`] takes the origin out of a URI.
    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let whole = |uri: &Uri| {
            let bare = uri.path() == "/" && uri.query().is_none() && !text.contains(['@', '#']);
            if bare { Self::of(uri) } else { None }
        };
        text.parse::<Uri>()
            .ok()
            .as_ref()
            .and_then(whole)
            .ok_or_else(|| InvalidOrigin {
                value: shown_url(text).chars().take(128).collect(),
            })
    }
}

/// A URL, or what was given for one, without what may be a secret: the credentials before its host, and its query and
/// fragment. For errors and logs.
#[doc(hidden)]
pub fn shown_url(text: &str) -> Cow<'_, str> {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let text = &text[..end];
    let host = text.find("://").map_or(0, |at| at + 3);
    match text.rfind('@') {
        Some(at) if at >= host => Cow::Owned(format!("{}***{}", &text[..host], &text[at..])),
        _ => Cow::Borrowed(text),
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// Scheme and authority as the table of destinations wants them. Empty where the URI is relative: then all calls
/// of a client are one destination. Allocates only where the spelling must change.
pub(crate) fn key(uri: &Uri) -> (&str, Cow<'_, str>) {
    let scheme = uri.scheme_str().unwrap_or("");
    let Some(authority) = uri.authority() else {
        return (scheme, Cow::Borrowed(""));
    };
    let whole = authority.as_str();
    // Credentials are no part of whom we talk to, and must not show up in logs.
    let mut spelled = match whole.bytes().rposition(|byte| byte == b'@') {
        Some(at) => &whole[at + 1..],
        None => whole,
    };
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    if !own_port.is_empty() {
        spelled = spelled.strip_suffix(own_port).unwrap_or(spelled);
    }
    if spelled.bytes().any(|b| b.is_ascii_uppercase()) {
        (scheme, Cow::Owned(spelled.to_ascii_lowercase()))
    } else {
        (scheme, Cow::Borrowed(spelled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_destination_has_one_spelling() {
        for (text, same) in [
            ("http://A.example", "http://a.example"),
            ("http://a.example:80/", "http://a.example"),
            ("https://a.example:443", "https://a.example"),
            ("http://a.example:8080", "http://a.example:8080"),
            ("http://[::1]:80/", "http://[::1]"),
        ] {
            assert_eq!(text.parse::<Origin>().unwrap().to_string(), same, "{text}");
        }
    }

    #[test]
    fn ports_and_schemes_are_kept_apart() {
        let origin: Origin = "http://a.example:443".parse().unwrap();
        assert!(!origin.is_of(&"https://a.example".parse().unwrap()));
        assert!(!origin.is_of(&"http://a.example".parse().unwrap()));
        assert!(origin.is_of(&"http://A.EXAMPLE:443/path".parse().unwrap()));
    }

    #[test]
    fn what_is_no_origin_is_named_in_the_error() {
        for text in [
            "",
            "a.example",
            "/x",
            "ftp://a.example",
            "http://",
            "http://a/b",
            "http://a//",
        ] {
            let error = text.parse::<Origin>().unwrap_err();
            assert_eq!(error.value, text);
        }
    }

    #[test]
    fn an_error_does_not_show_what_may_be_a_secret() {
        for (text, shown) in [
            ("https://user:secret@a.example", "https://***@a.example"),
            ("user:se://cret@a.example", "user:se://***@a.example"),
            ("user:secret@a.example/x", "***@a.example/x"),
            ("http://a.example/?key=secret", "http://a.example/"),
            ("http://a.example#secret", "http://a.example"),
        ] {
            let error = text.parse::<Origin>().unwrap_err();
            assert_eq!(error.value, shown);
        }
        let uri = "https://user:secret@A.example:443/x?y".parse().unwrap();
        assert_eq!(Origin::of(&uri).unwrap().to_string(), "https://a.example");
    }
}
