//! The answers that the runner plays to a gRPC client.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use super::proto::{Any, ErrorInfo, RetryInfo, Span, Status, frame};
use crate::client_drive::script::Repeat;

/// One answer, or one way of not answering. Exactly one of `reply`, `status`, `http` and `fault` is there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrpcStep {
    /// A message with this text, and `grpc-status: 0`.
    pub reply: Option<String>,
    /// `grpc-status`, Trailers-Only unless `after_head`.
    pub status: Option<u32>,
    /// The head comes first, and the status in trailers after it.
    #[serde(default)]
    pub after_head: bool,
    /// An HTTP status without any `grpc-status`, as a proxy answers.
    pub http: Option<u16>,
    /// No answer, but this.
    pub fault: Option<GrpcFault>,
    /// Metadata lines, `name: value`, as they stand.
    #[serde(default)]
    pub metadata: Vec<String>,
    /// A `google.rpc.RetryInfo` with this delay; may be negative.
    pub retry_info_ms: Option<i64>,
    /// A `google.rpc.ErrorInfo`.
    pub error_info: Option<Info>,
    /// `grpc-status-details-bin` as it stands, in place of those.
    pub details_raw: Option<String>,
    /// How many requests are answered so.
    #[serde(default)]
    pub repeat: Repeat,
}

/// A way of not answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrpcFault {
    /// The request is read and never answered.
    Hang,
    /// The stream is reset with REFUSED_STREAM: never looked at.
    Refuse,
    /// The stream is reset with INTERNAL_ERROR.
    Reset,
}

/// An ErrorInfo as it is written in a case.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Info {
    /// The reason.
    pub reason: String,
    /// The domain.
    #[serde(default)]
    pub domain: String,
    /// The metadata.
    #[serde(default)]
    pub metadata: std::collections::BTreeMap<String, String>,
}

/// An answer, ready to be sent.
#[derive(Debug, Clone)]
pub(super) struct Rendered {
    pub(super) http: u16,
    pub(super) head: HeaderMap,
    pub(super) data: Option<Bytes>,
    pub(super) trailers: Option<HeaderMap>,
    /// In one line, for the report.
    pub(super) shown: String,
}

impl GrpcStep {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub fn validate(&self) -> Result<(), String> {
        let ways = [
            self.reply.is_some(),
            self.status.is_some(),
            self.http.is_some(),
            self.fault.is_some(),
        ];
        if ways.into_iter().filter(|there| *there).count() != 1 {
            return Err("exactly one of `reply`, `status`, `http` and `fault` must be there".to_owned());
        }
        if self.http.is_some_and(|status| !(200..=599).contains(&status)) {
            return Err("http must be 200 to 599".to_owned());
        }
        self.lines().map(drop)
    }

    fn lines(&self) -> Result<HeaderMap, String> {
        let mut lines = HeaderMap::new();
        for line in &self.metadata {
            let wrong = || format!("metadata {line:?} is not `name: value`");
            let (name, value) = line.split_once(':').ok_or_else(wrong)?;
            let value = value.strip_prefix(' ').unwrap_or(value);
            lines.append(
                name.parse::<HeaderName>().map_err(|_| wrong())?,
                HeaderValue::from_str(value).map_err(|_| wrong())?,
            );
        }
        Ok(lines)
    }

    /// What goes on the wire; a fault has nothing.
    pub(super) fn render(&self) -> Option<Rendered> {
        // A step was validated when its case was loaded.
        let lines = self.lines().unwrap_or_default();
        let mut head = HeaderMap::new();
        if let Some(http) = self.http {
            head.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            head.extend(lines);
            return Some(Rendered::new(http, head, None, None));
        }
        head.insert(
            http::header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        if let Some(reply) = &self.reply {
            let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from(0))]);
            head.extend(lines);
            return Some(Rendered::new(200, head, Some(frame(reply)), Some(trailers)));
        }
        let mut end = HeaderMap::from_iter([(STATUS, HeaderValue::from(self.status?))]);
        end.extend(lines);
        if let Some(details) = self.details()
            && let Ok(details) = HeaderValue::try_from(details)
        {
            end.insert(DETAILS, details);
        }
        if self.after_head {
            return Some(Rendered::new(200, head, None, Some(end)));
        }
        head.extend(end);
        Some(Rendered::new(200, head, None, None))
    }

    fn details(&self) -> Option<String> {
        if self.details_raw.is_some() {
            return self.details_raw.clone();
        }
        let info = self.error_info.as_ref().map(|info| {
            let Info {
                reason,
                domain,
                metadata,
            } = info.clone();
            let metadata = metadata.into_iter().collect();
            Any::of(
                "ErrorInfo",
                &ErrorInfo {
                    reason,
                    domain,
                    metadata,
                },
            )
        });
        let retry = self.retry_info_ms.map(|ms| {
            let retry_delay = Some(Span::of_ms(ms));
            Any::of("RetryInfo", &RetryInfo { retry_delay })
        });
        let details: Vec<Any> = info.into_iter().chain(retry).collect();
        let code = self.status.and_then(|code| i32::try_from(code).ok())?;
        let message = String::new();
        (!details.is_empty()).then(|| {
            Status {
                code,
                message,
                details,
            }
            .to_base64()
        })
    }
}

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

impl Rendered {
    fn new(http: u16, head: HeaderMap, data: Option<Bytes>, trailers: Option<HeaderMap>) -> Self {
        let show = |map: &HeaderMap| {
            let lines = map
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap_or("?")));
            lines.collect::<Vec<_>>().join("; ")
        };
        let mut shown = format!("{http} {}", show(&head));
        if let Some(trailers) = &trailers {
            shown.push_str(&format!("; then {}", show(trailers)));
        }
        Self {
            http,
            head,
            data,
            trailers,
            shown,
        }
    }
}
