//! Bad input: a typed answer that names field, value and limit, and never carries a code of the contract (SRV-18).

use axum::body::Body;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use serde::Serialize;

/// Most characters of a foreign value that are given back.
const MAX_SHOWN: usize = 64;

/// A validation problem (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    fault: Option<Fault>,
}

/// What is wrong with which value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Fault {
    field: String,
    value: String,
    limit: String,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: &'a str,
    #[serde(flatten)]
    fault: Option<&'a Fault>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
            fault: None,
        }
    }

    /// `field` is `value`, which breaks `limit`.
    pub(crate) fn field(status: StatusCode, field: &str, value: &str, limit: impl Into<String>) -> Self {
        let value = shown(value);
        let limit = limit.into();
        let detail = format!("{field} is {value}; it must be {limit}");
        Self {
            status,
            detail,
            fault: Some(Fault {
                field: shown(field),
                value,
                limit,
            }),
        }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let document = Document {
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            fault: self.fault.as_ref(),
        };
        let mut response = json(self.status, &document);
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }
}

fn shown(value: &str) -> String {
    value.chars().take(MAX_SHOWN).collect()
}

/// An answer with a JSON body.
pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Response<Body> {
    // Our own documents have string keys and no foreign serializers, so they always serialize.
    let body = serde_json::to_vec(document).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
