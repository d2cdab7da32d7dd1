//! Broken relays: our relay, set up otherwise than it was told, or with somebody at its edge who changes what goes
//! through.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use clap::ValueEnum;
use holdoff::axum::Inbound;
use holdoff::tower::Error;
use holdoff_contract::field_name;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::relay::{Edge, Identity, RelayConfigure};

/// Bytes of an answer that are read to be changed.
const MOST: usize = 1024 * 1024;

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RelayMutant {
    /// Answers a dependency's overload with 500 (INT-01).
    Status500,
    /// Answers a dependency's overload with 200 and an error inside (INT-01).
    ErrorInside,
    /// Passes the hop up as it was received (INT-02).
    KeepsHop,
    /// Passes up half of what is left of the hint (INT-03).
    HalvesHint,
    /// Passes up a window where none was received (INT-03).
    MakesMax,
    /// Invites its caller back after retries of its own (INT-04).
    InvitesBack,
    /// Retries whatever its caller does (INT-05).
    DeafToAttempt,
    /// Retries although it was not opted in (INT-06).
    AlwaysRetries,
    /// Promises that nothing was done, and a retry (INT-07).
    Widens,
    /// Forgets what it did before (INT-08).
    ForgetsSideEffect,
    /// Passes the scope up (INT-09).
    KeepsScope,
    /// Passes a 429 of its own identity to its caller (INT-10).
    BlamesCaller,
    /// Takes a 429 of its caller's for its own (INT-10).
    SparesTenant,
    /// Says its caller's whole deadline to its dependencies (INT-11).
    WholeDeadline,
    /// Calls on for callers whose time is over (INT-12).
    DeafToDeadline,
    /// Calls everything critical (INT-13).
    RaisesTier,
    /// Calls every attempt the first (INT-14).
    FirstAttempt,
    /// Trusts every caller, and tells it everything (INT-15).
    NoBorder,
    /// Drops Retry-After from what it passes on (INT-16).
    DropsRetryAfter,
    /// Drops what it does not know (INT-17).
    DropsUnknown,
    /// Adds a signal to the one that is there (INT-17).
    AppendsSignal,
    /// Tells its caller of the first failure only (INT-18).
    FirstFailure,
    /// Knows one replica (INT-19).
    OneReplica,
    /// Says that a dependency decided what it decided itself (INT-20).
    OwnHop,
}

impl RelayMutant {
    /// The requirement it breaks: a case of this one must fail.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::Status500 | Self::ErrorInside => "INT-01",
            Self::KeepsHop => "INT-02",
            Self::HalvesHint | Self::MakesMax => "INT-03",
            Self::InvitesBack => "INT-04",
            Self::DeafToAttempt => "INT-05",
            Self::AlwaysRetries => "INT-06",
            Self::Widens => "INT-07",
            Self::ForgetsSideEffect => "INT-08",
            Self::KeepsScope => "INT-09",
            Self::BlamesCaller | Self::SparesTenant => "INT-10",
            Self::WholeDeadline => "INT-11",
            Self::DeafToDeadline => "INT-12",
            Self::RaisesTier => "INT-13",
            Self::FirstAttempt => "INT-14",
            Self::NoBorder => "INT-15",
            Self::DropsRetryAfter => "INT-16",
            Self::DropsUnknown | Self::AppendsSignal => "INT-17",
            Self::FirstFailure => "INT-18",
            Self::OneReplica => "INT-19",
            Self::OwnHop => "INT-20",
        }
    }

    /// What comes in, changed.
    fn inbound(self, headers: &mut HeaderMap) {
        match self {
            Self::DeafToAttempt => drop(headers.remove(field_name::OVERLOAD_ATTEMPT)),
            Self::DeafToDeadline => drop(headers.remove(field_name::OVERLOAD_DEADLINE_MS)),
            _ => {}
        }
    }

    /// What goes out, changed.
    fn answer(self, answer: &mut Answer) {
        if !answer.is_refusal() {
            if self == Self::DropsRetryAfter {
                answer.headers.remove(header::RETRY_AFTER);
            }
            return;
        }
        match self {
            Self::Status500 => answer.status = StatusCode::INTERNAL_SERVER_ERROR,
            Self::ErrorInside => {
                answer.status = StatusCode::OK;
                answer.headers = HeaderMap::new();
            }
            Self::KeepsHop => {
                let hop = answer.number("hop").unwrap_or(0).saturating_sub(1);
                answer.set("hop", "hop", json!(hop));
            }
            Self::HalvesHint => answer.set_after(answer.after() / 2),
            Self::MakesMax if answer.number("max").is_none() => {
                let max = json!(answer.after() + 500);
                answer.set("max", "retry_after_max_ms", max);
            }
            Self::InvitesBack => answer.set("retry", "retry", json!("after")),
            Self::Widens => {
                answer.set("retry", "retry", json!("after"));
                answer.set("applied", "applied", json!("no"));
                answer.set_after(answer.after().max(1));
            }
            Self::ForgetsSideEffect => {
                answer.set("applied", "applied", json!("no"));
                answer.set_after(answer.after().max(1));
            }
            Self::KeepsScope => answer.set("scope", "scope", json!("service")),
            Self::DropsUnknown => answer.drop_unknown(),
            Self::AppendsSignal => {
                let again =
                    HeaderValue::from_static("v=1, code=queue_full, retry=after, applied=no, after=900");
                answer.headers.append(field_name::OVERLOAD_SIGNAL, again);
            }
            Self::OwnHop if answer.number("hop").is_none() => answer.set("hop", "hop", json!(1)),
            _ => {}
        }
    }
}

impl Edge for RelayMutant {
    fn configure(&self, configure: &mut RelayConfigure) {
        match self {
            Self::AlwaysRetries => configure.retry = true,
            Self::BlamesCaller => configure.identity = Identity::Tenant,
            Self::SparesTenant => configure.identity = Identity::Service,
            Self::NoBorder => configure.trusted_callers = true,
            Self::OneReplica => configure.common.instances.truncate(1),
            _ => {}
        }
        // One replica is a dependency like any other.
        if *self == Self::OneReplica && configure.common.instances.len() == 1 {
            configure.dependencies = std::mem::take(&mut configure.common.instances);
        }
    }

    fn wrap(&self, relay: Router) -> Router {
        relay.layer(from_fn_with_state(*self, between))
    }

    fn outbound(&self, headers: &mut HeaderMap) {
        match self {
            Self::WholeDeadline => {
                let deadline = Inbound::current().and_then(|inbound| inbound.fields().deadline);
                if let Some(deadline) = deadline
                    && let Ok(value) = HeaderValue::try_from(deadline.as_millis().to_string())
                {
                    headers.insert(field_name::OVERLOAD_DEADLINE_MS, value);
                }
            }
            Self::RaisesTier => {
                headers.insert(field_name::OVERLOAD_TIER, HeaderValue::from_static("critical"));
            }
            Self::FirstAttempt => {
                headers.insert(field_name::OVERLOAD_ATTEMPT, HeaderValue::from_static("1"));
            }
            _ => {}
        }
    }

    fn failures(&self, failed: &mut Vec<Error>) {
        if *self == Self::FirstFailure {
            failed.truncate(1);
        }
    }
}

/// Between the caller and the relay.
async fn between(State(mutant): State<RelayMutant>, mut request: Request, next: Next) -> Response {
    mutant.inbound(request.headers_mut());
    let (mut parts, body) = next.run(request).await.into_parts();
    let mut answer = Answer {
        status: parts.status,
        headers: parts.headers,
        body: to_bytes(body, MOST).await.map(Vec::from).unwrap_or_default(),
    };
    mutant.answer(&mut answer);
    answer.headers.remove(header::CONTENT_LENGTH);
    (parts.status, parts.headers) = (answer.status, answer.headers);
    Response::from_parts(parts, Body::from(answer.body))
}

/// An answer, to be changed: header and body alike, so that only the value is wrong.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn is_refusal(&self) -> bool {
        matches!(self.status.as_u16(), 429 | 503 | 504)
    }

    fn signal(&self) -> Vec<(String, String)> {
        let line = self
            .headers
            .get(field_name::OVERLOAD_SIGNAL)
            .and_then(|value| value.to_str().ok());
        line.unwrap_or_default()
            .split(", ")
            .filter_map(|member| member.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn number(&self, key: &str) -> Option<u64> {
        let member = self.signal().into_iter().find(|(name, _)| name == key);
        member?.1.parse().ok()
    }

    fn after(&self) -> u64 {
        self.number("after").unwrap_or(0)
    }

    fn put_signal(&mut self, members: &[(String, String)]) {
        let members: Vec<String> = members
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if let Ok(value) = HeaderValue::try_from(members.join(", ")) {
            self.headers.insert(field_name::OVERLOAD_SIGNAL, value);
        }
    }

    fn edit_body(&mut self, edit: impl FnOnce(&mut Map<String, Value>)) {
        let Ok(Value::Object(mut members)) = serde_json::from_slice(&self.body) else {
            return;
        };
        edit(&mut members);
        self.body = Value::Object(members).to_string().into_bytes();
    }

    /// Sets a key of the signal and the member of the body that mirrors it.
    fn set(&mut self, key: &str, member: &str, value: Value) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut signal = self.signal();
        signal.retain(|(name, _)| name != key);
        signal.push((key.to_owned(), text));
        self.put_signal(&signal);
        self.edit_body(|members| drop(members.insert(member.to_owned(), value)));
    }

    fn set_after(&mut self, after: u64) {
        self.set("after", "retry_after_ms", json!(after));
        self.headers
            .insert(header::RETRY_AFTER, HeaderValue::from(after.div_ceil(1000)));
        self.headers
            .insert(field_name::RETRY_AFTER_MS, HeaderValue::from(after));
    }

    fn drop_unknown(&mut self) {
        const KEYS: [&str; 7] = ["v", "code", "retry", "applied", "after", "max", "hop"];
        const MEMBERS: [&str; 10] = [
            "type",
            "title",
            "status",
            "contract_version",
            "code",
            "retry",
            "applied",
            "retry_after_ms",
            "retry_after_max_ms",
            "hop",
        ];
        let mut signal = self.signal();
        signal.retain(|(name, _)| KEYS.contains(&name.as_str()));
        self.put_signal(&signal);
        self.edit_body(|members| members.retain(|name, _| MEMBERS.contains(&name.as_str())));
    }
}
