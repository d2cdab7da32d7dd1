//! Broken servers: our server behind an edge that changes what it says or hears.

use std::time::Duration;

use clap::ValueEnum;
use holdoff_contract::field_name;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// Token of the trusted identity that a server which trusts anybody takes everybody for.
pub(super) const ANYBODY: &str = "anybody";

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServerMutant {
    /// Retry-After as an HTTP-date (SRV-09).
    Date,
    /// Overload as 500 (SRV-03).
    Status500,
    /// One hint for everybody (SRV-11).
    OneHint,
    /// Rejects that may be cached (SRV-12).
    Cacheable,
    /// Body and header say different delays (SRV-06).
    BodyDiffers,
    /// No Overload-Signal (SRV-04).
    NoSignal,
    /// An overload code on validation failures (SRV-18).
    CodeOnValidation,
    /// Retry-After rounded down (SRV-08).
    RoundsDown,
    /// Says who else is there (SEC-02).
    LeaksTenant,
    /// Two Retry-After lines (SRV-08).
    TwoRetryAfter,
    /// A window wider than a minute (SRV-25).
    WideWindow,
    /// Body status is not the status sent (SRV-07).
    BodyStatus,
    /// Malformed tiers count as critical (SRQ-05).
    AnyTierIsCritical,
    /// Deadlines are not heard (SRQ-02, ADM-02).
    DeafToDeadline,
    /// Queues a hundred times their declared depth (ADM-01).
    DeepQueue,
    /// Anybody may name a tenant (SRQ-08).
    TrustsAnybody,
    /// Keeps what it acknowledged in memory only (ADM-06).
    Forgets,
    /// Runs each request, whatever its key (ADM-20).
    DeafToKeys,
    /// Does not know a retry by its key (ADM-13).
    ForgetsKeys,
    /// Callers that send fields are served worse (ADM-14).
    PunishesFields,
    /// A wait bound so wide that a class with long deadlines books everything (ADM-16).
    WideWait,
    /// No admin page (ADM-23).
    HidesAdmin,
    /// Tenants have no budget (ADM-24).
    NoBudgets,
    /// As much of a class that nobody measured as of any other (ADM-28).
    NoSlowStart,
    /// Deadlines of other stacks are not heard where they are switched on (SRQ-04).
    DeafToOthers,
    /// An API description without refusals (SRV-29).
    SilentSpec,
    /// Only keys that every reader knows, in a test build too (VER-05).
    NoGrease,
    /// Does not notice that its controller's data is old (ADM-07).
    TrustsItsData,
    /// Stays in its state whatever happens (ADM-09).
    StateStuck,
    /// Answers 400 to a malformed attempt or cost (SRQ-09).
    StrictFields,
    /// Goes on with work whose caller has left (SRQ-10).
    Detached,
    /// Does not say that an answer is cut down (SRV-20).
    SilentDegraded,
    /// Says nothing of the quota with rate_limited (SRV-23).
    SilentQuota,
    /// Names the tier that was asked for in place of the one that was used (SRQ-06).
    FlattersTier,
    /// Keeps no worker for critical work (ADM-22).
    Unreserved,
    /// Refuses its health check as well (ADM-18).
    SickWhenBusy,
    /// Is normal again at once, without hold and ramp (ADM-08).
    Hasty,
    /// Bounds no wait in its queue (ADM-12).
    Patient,
    /// Charges a call for as much as its caller says (ADM-10).
    BelievesCosts,
    /// Refuses everything once it has refused anything (ADM-11, ADM-19).
    StaysShut,
    /// What panics keeps its worker (ADM-15).
    KeepsWorkers,
    /// Takes all tenants for one (ADM-27).
    OneTenant,
    /// Names every task class that it is told, on its metrics page (SRQ-07, SEC-03).
    LabelsAnyClass,
    /// Thinks for a second before it refuses (SEC-05).
    SlowToRefuse,
    /// Speaks a version that nobody has agreed on (VER-01).
    NextVersion,
}

impl ServerMutant {
    /// The requirement it breaks: a case of this one must fail.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::Date => "SRV-09",
            Self::Status500 => "SRV-03",
            Self::OneHint => "SRV-11",
            Self::Cacheable => "SRV-12",
            Self::BodyDiffers => "SRV-06",
            Self::NoSignal => "SRV-04",
            Self::CodeOnValidation => "SRV-18",
            Self::RoundsDown | Self::TwoRetryAfter => "SRV-08",
            Self::LeaksTenant => "SEC-02",
            Self::WideWindow => "SRV-25",
            Self::BodyStatus => "SRV-07",
            Self::AnyTierIsCritical => "SRQ-05",
            Self::DeafToDeadline => "SRQ-02",
            Self::DeepQueue => "ADM-01",
            Self::TrustsAnybody => "SRQ-08",
            Self::Forgets => "ADM-06",
            Self::DeafToKeys => "ADM-20",
            Self::ForgetsKeys => "ADM-13",
            Self::PunishesFields => "ADM-14",
            Self::WideWait => "ADM-16",
            Self::HidesAdmin => "ADM-23",
            Self::NoBudgets => "ADM-24",
            Self::NoSlowStart => "ADM-28",
            Self::DeafToOthers => "SRQ-04",
            Self::SilentSpec => "SRV-29",
            Self::NoGrease => "VER-05",
            Self::TrustsItsData => "ADM-07",
            Self::StateStuck => "ADM-09",
            Self::StrictFields => "SRQ-09",
            Self::Detached => "SRQ-10",
            Self::SilentDegraded => "SRV-20",
            Self::SilentQuota => "SRV-23",
            Self::FlattersTier => "SRQ-06",
            Self::Unreserved => "ADM-22",
            Self::SickWhenBusy => "ADM-18",
            Self::Hasty => "ADM-08",
            Self::Patient => "ADM-12",
            Self::BelievesCosts => "ADM-10",
            Self::StaysShut => "ADM-11",
            Self::KeepsWorkers => "ADM-15",
            Self::OneTenant => "ADM-27",
            Self::LabelsAnyClass => "SRQ-07",
            Self::SlowToRefuse => "SEC-05",
            Self::NextVersion => "VER-01",
        }
    }

    /// What comes in, changed.
    pub fn request(self, headers: &mut HeaderMap) {
        match self {
            Self::AnyTierIsCritical if headers.contains_key(field_name::OVERLOAD_TIER) => {
                headers.insert(field_name::OVERLOAD_TIER, HeaderValue::from_static("critical"));
            }
            Self::DeafToDeadline => {
                headers.remove(field_name::OVERLOAD_DEADLINE_MS);
            }
            Self::DeafToKeys => {
                headers.remove(field_name::IDEMPOTENCY_KEY);
            }
            Self::ForgetsKeys => {
                headers.remove(field_name::IDEMPOTENCY_KEY);
            }
            Self::PunishesFields if headers.contains_key(field_name::OVERLOAD_DEADLINE_MS) => {
                headers.insert(field_name::OVERLOAD_DEADLINE_MS, HeaderValue::from_static("60"));
            }
            Self::DeafToOthers => {
                for name in [
                    "grpc-timeout",
                    "connect-timeout-ms",
                    "x-envoy-expected-rq-timeout-ms",
                ] {
                    headers.remove(name);
                }
            }
            Self::TrustsAnybody if headers.contains_key(field_name::OVERLOAD_TENANT) => {
                let token = format!("Bearer {ANYBODY}");
                if let Ok(value) = HeaderValue::from_str(&token) {
                    headers.insert(header::AUTHORIZATION, value);
                }
            }
            _ => {}
        }
    }

    /// Whether a request is refused before the server sees it, and with which status.
    pub fn refuses(self, path: &str, headers: &HeaderMap) -> Option<StatusCode> {
        let malformed = |name: &str| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.is_some_and(|text| text.parse::<u64>().is_err())
        };
        match self {
            Self::StrictFields if malformed("overload-attempt") || malformed("overload-cost-ms") => {
                Some(StatusCode::BAD_REQUEST)
            }
            Self::SickWhenBusy if path == "/healthz" => Some(StatusCode::SERVICE_UNAVAILABLE),
            _ => None,
        }
    }

    /// How long it waits before it refuses.
    pub fn hesitates(self) -> Duration {
        match self {
            Self::SlowToRefuse => Duration::from_secs(1),
            _ => Duration::ZERO,
        }
    }

    /// What goes out, changed: status, head and the whole body.
    pub fn response(self, status: &mut StatusCode, headers: &mut HeaderMap, body: &mut Vec<u8>) {
        if matches!(status.as_u16(), 400 | 404 | 409 | 413 | 415 | 422) {
            if self == Self::CodeOnValidation {
                let signal = "v=1, code=queue_full, retry=after, applied=no, after=1000";
                headers.insert(field_name::OVERLOAD_SIGNAL, HeaderValue::from_static(signal));
            }
            return;
        }
        if !matches!(status.as_u16(), 429 | 503) {
            return;
        }
        match self {
            Self::Date => {
                let date = HeaderValue::from_static("Fri, 31 Dec 2027 23:59:59 GMT");
                headers.insert(header::RETRY_AFTER, date);
            }
            Self::Status500 => *status = StatusCode::INTERNAL_SERVER_ERROR,
            Self::OneHint => {
                set_signal(headers, &[("after", 1000), ("max", 1200)]);
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                headers.insert(field_name::RETRY_AFTER_MS, HeaderValue::from_static("1000"));
                change(
                    body,
                    &[
                        ("retry_after_ms", json!(1000)),
                        ("retry_after_max_ms", json!(1200)),
                    ],
                );
            }
            Self::Cacheable => {
                headers.remove(header::CACHE_CONTROL);
            }
            Self::BodyDiffers => change(body, &[("retry_after_ms", json!(77_777))]),
            Self::NoSignal => {
                headers.remove(field_name::OVERLOAD_SIGNAL);
            }
            Self::RoundsDown => {
                if let Some(ms) = number(headers, &field_name::RETRY_AFTER_MS) {
                    headers.insert(header::RETRY_AFTER, HeaderValue::from(ms / 1000));
                }
            }
            Self::LeaksTenant => {
                change(
                    body,
                    &[(
                        "detail",
                        json!("tenants queued before you: acme (12), globex (7)"),
                    )],
                );
                change(body, &[("queue_depth", json!(19))]);
            }
            Self::NoGrease => ungrease(headers),
            Self::NextVersion => set_signal(headers, &[("v", 2)]),
            Self::TwoRetryAfter => {
                headers.append(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::WideWindow => {
                let after = number(headers, &field_name::RETRY_AFTER_MS).unwrap_or(1000);
                set_signal(headers, &[("max", after + 120_000)]);
                change(body, &[("retry_after_max_ms", json!(after + 120_000))]);
            }
            Self::BodyStatus => change(body, &[("status", json!(500))]),
            Self::SilentQuota => {
                headers.remove("ratelimit");
                headers.remove("ratelimit-policy");
            }
            Self::FlattersTier => {
                let signal = headers.get(field_name::OVERLOAD_SIGNAL);
                let flattering = signal
                    .and_then(|value| value.to_str().ok())
                    .map(|signal| signal.replace("tier=deferrable", "tier=critical"));
                if let Some(value) = flattering.and_then(|signal| HeaderValue::from_str(&signal).ok()) {
                    headers.insert(field_name::OVERLOAD_SIGNAL, value);
                }
                change(body, &[("tier", json!("critical"))]);
            }
            _ => {}
        }
        if headers.contains_key(header::CONTENT_LENGTH) {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
    }
}

fn number(headers: &HeaderMap, name: &http::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn ungrease(headers: &mut HeaderMap) {
    let signal = headers
        .get(field_name::OVERLOAD_SIGNAL)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let kept: Vec<&str> = signal
        .split(", ")
        .filter(|member| !member.starts_with("grease-"))
        .collect();
    if let Ok(value) = HeaderValue::from_str(&kept.join(", ")) {
        headers.insert(field_name::OVERLOAD_SIGNAL, value);
    }
}

/// Sets integer keys of the signal, as text: a mutant need not be careful.
fn set_signal(headers: &mut HeaderMap, changes: &[(&str, u64)]) {
    let Some(signal) = headers
        .get(field_name::OVERLOAD_SIGNAL)
        .and_then(|value| value.to_str().ok())
    else {
        return;
    };
    let kept = signal.split(", ").filter(|member| {
        let key = member.split('=').next().unwrap_or("");
        !changes.iter().any(|(name, _)| *name == key)
    });
    let mut members: Vec<String> = kept.map(str::to_owned).collect();
    members.extend(changes.iter().map(|(name, value)| format!("{name}={value}")));
    if let Ok(value) = HeaderValue::from_str(&members.join(", ")) {
        headers.insert(field_name::OVERLOAD_SIGNAL, value);
    }
}

/// Sets members of a JSON object body.
fn change(body: &mut Vec<u8>, changes: &[(&str, Value)]) {
    let Ok(Value::Object(mut members)) = serde_json::from_slice(body) else {
        return;
    };
    for (name, value) in changes {
        members.insert((*name).to_owned(), value.clone());
    }
    if let Ok(bytes) = serde_json::to_vec(&Value::Object(members)) {
        *body = bytes;
    }
}
