//! Broken clients: our client, hearing something else than was said, or saying something else than it meant.

use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use holdoff::tower::OverloadLayerBuilder;
use holdoff_contract::read::{Compat, Head, ReadOptions, Reading};
use holdoff_contract::write::{self, Audience};
use holdoff_contract::{Applied, Granularity, Hint, Overload, Retry, Scope, Tier, field_name};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use serde_json::{Value, json};

use crate::command::{BudgetKnobs, PolicyKnobs};

/// A rule to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientMutant {
    /// Waits half of what it was told (CLI-01).
    Early,
    /// Takes retry=no for retry=after (CLI-06).
    IgnoresRetryNo,
    /// Clamps a hint over the cap to 100 ms and retries early (CLI-04).
    ClampsOverCap,
    /// Sends a POST again after applied=maybe (CLI-11).
    ReplaysMaybe,
    /// Comes back at the least wait, each time (CLI-03).
    NoJitter,
    /// Hears no hint at all (CLI-01, HNT-01).
    Deaf,
    /// Waits ten windows too long (CLI-02).
    Late,
    /// Says the first attempt's deadline on every attempt (REQ-02).
    StaleDeadline,
    /// Says attempt 1 on every attempt (REQ-04).
    AttemptStuck,
    /// Makes a new Idempotency-Key for each attempt (REQ-08).
    NewKeyEachAttempt,
    /// Shows its caller a plain error in place of the overload (CLI-14).
    GenericError,
    /// Tries twelve times whatever was said (CLI-08).
    Persistent,
    /// Has no retry budget (CLI-09).
    NoBudget,
    /// Takes a 200 with a signal for an error (CLI-19).
    AdviceIsError,
    /// Believes Retry-After on a 500 (HNT-15).
    HintOnAnyStatus,
    /// Sends its tenant to everybody (REQ-07).
    TenantToAll,
    /// Hears every refusal as one for its own request only (CLI-15).
    IgnoresHoldOff,
    /// Holds everybody back for half as long as it was told (CLI-15).
    HalvesHoldOff,
    /// Lets go of all held calls in the same instant (CLI-15).
    ReleasesAtOnce,
    /// Lets a deferrable reject hold critical work: takes all work for deferrable (CLI-16).
    HoldsEveryTier,
    /// Reads only the contract's words, whatever was declared (CLI-26).
    IgnoresVocabulary,
    /// Takes x-ratelimit-reset for seconds without being told so (CMP-05).
    GuessesReset,
    /// Says the same parent on every attempt (REQ-09).
    OneParent,
    /// Sends another task class in place of one outside the grammar (REQ-10).
    MendsFields,
    /// Lets any number of calls wait (CLI-24).
    EndlessWaitingRoom,
    /// Takes elsewhere for after, and comes back to the same instance (CLI-07).
    StaysHere,
    /// Goes on when the call is cancelled (CLI-17).
    Uncancellable,
    /// Counts nothing (CLI-22).
    CountsNothing,
    /// Sends a body again that can be sent once only (CLI-13).
    CopiesStreams,
    /// Lets no connection be used twice (CLI-25).
    HangsUp,
    /// Knows no deadline (REQ-03).
    Timeless,
    /// Takes a redirect that carries a hint for a refusal (SEC-06).
    HintOnRedirect,
    /// Reads the whole body of a refusal before it does anything else (SEC-08).
    SwallowsBodies,
    /// Takes all authorities for one: what one of them says holds the calls to the others (SEC-01).
    OneAuthority,
}

/// Where a request of [`ClientMutant::OneAuthority`] is really to go, while everything believes it goes to [`THE_ONE`].
const AIM: &str = "x-aim";
/// What that mutant takes every authority for.
const THE_ONE: &str = "one.invalid:80";

impl ClientMutant {
    /// The requirement it breaks: a case of this one must fail.
    pub fn breaks(self) -> &'static str {
        match self {
            Self::Early | Self::Deaf => "CLI-01",
            Self::IgnoresRetryNo => "CLI-06",
            Self::ClampsOverCap => "CLI-04",
            Self::ReplaysMaybe => "CLI-11",
            Self::NoJitter => "CLI-03",
            Self::Late => "CLI-02",
            Self::StaleDeadline => "REQ-02",
            Self::AttemptStuck => "REQ-04",
            Self::NewKeyEachAttempt => "REQ-08",
            Self::GenericError => "CLI-14",
            Self::Persistent => "CLI-08",
            Self::NoBudget => "CLI-09",
            Self::AdviceIsError => "CLI-19",
            Self::HintOnAnyStatus => "HNT-15",
            Self::TenantToAll => "REQ-07",
            Self::IgnoresHoldOff | Self::HalvesHoldOff | Self::ReleasesAtOnce => "CLI-15",
            Self::HoldsEveryTier => "CLI-16",
            Self::IgnoresVocabulary => "CLI-26",
            Self::GuessesReset => "CMP-05",
            Self::OneParent => "REQ-09",
            Self::MendsFields => "REQ-10",
            Self::EndlessWaitingRoom => "CLI-24",
            Self::StaysHere => "CLI-07",
            Self::Uncancellable => "CLI-17",
            Self::CountsNothing => "CLI-22",
            Self::CopiesStreams => "CLI-13",
            Self::HangsUp => "CLI-25",
            Self::Timeless => "REQ-03",
            Self::HintOnRedirect => "SEC-06",
            Self::SwallowsBodies => "SEC-08",
            Self::OneAuthority => "SEC-01",
        }
    }

    /// Where a call goes, changed, before the client that is broken sees it.
    ///
    /// # Errors
    /// The authority cannot be kept in a field.
    pub fn aim<B>(self, request: &mut Request<B>) -> anyhow::Result<()> {
        if self == Self::OneAuthority
            && let Some(authority) = request.uri().authority()
        {
            let aim = HeaderValue::from_str(authority.as_str())?;
            *request.uri_mut() = at(request.uri(), THE_ONE)?;
            request.headers_mut().insert(AIM, aim);
        }
        Ok(())
    }

    /// Undoes [`ClientMutant::aim`] behind the client.
    pub fn restore<B>(self, request: &mut Request<B>) {
        if let Some(aim) = request.headers_mut().remove(AIM)
            && let Ok(uri) = at(request.uri(), aim.to_str().unwrap_or(THE_ONE))
        {
            *request.uri_mut() = uri;
        }
    }

    /// What goes out, changed. `first_deadline` is the Overload-Deadline-Ms of the call's first attempt.
    pub fn request(self, headers: &mut HeaderMap, first_deadline: Option<&HeaderValue>, number: u64) {
        match self {
            Self::StaleDeadline => {
                if let Some(first) = first_deadline {
                    headers.insert(field_name::OVERLOAD_DEADLINE_MS, first.clone());
                }
            }
            Self::AttemptStuck => {
                headers.insert(field_name::OVERLOAD_ATTEMPT, HeaderValue::from_static("1"));
            }
            Self::NewKeyEachAttempt if headers.contains_key(field_name::IDEMPOTENCY_KEY) => {
                let key = format!("\"fresh-{number}\"");
                if let Ok(value) = HeaderValue::from_str(&key) {
                    headers.insert(field_name::IDEMPOTENCY_KEY, value);
                }
            }
            Self::OneParent => {
                let first = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
                headers.insert("traceparent", HeaderValue::from_static(first));
            }
            Self::HangsUp => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Self::TenantToAll => {
                headers.insert(field_name::OVERLOAD_TENANT, HeaderValue::from_static("\"t1\""));
            }
            _ => {}
        }
    }

    /// What comes in, changed.
    pub fn response(
        self,
        status: &mut StatusCode,
        headers: &mut HeaderMap,
        hint_cap: Duration,
        now: SystemTime,
    ) {
        match self {
            Self::AdviceIsError
                if status.is_success() && headers.contains_key(field_name::OVERLOAD_SIGNAL) =>
            {
                *status = StatusCode::SERVICE_UNAVAILABLE;
            }
            Self::HintOnRedirect
                if status.is_redirection() && headers.contains_key(field_name::OVERLOAD_SIGNAL) =>
            {
                *status = StatusCode::SERVICE_UNAVAILABLE;
            }
            Self::HintOnAnyStatus
                if status.is_server_error() && headers.contains_key(header::RETRY_AFTER) =>
            {
                *status = StatusCode::SERVICE_UNAVAILABLE;
            }
            Self::GuessesReset => {
                if let Some(reset) = headers.get("x-ratelimit-reset").cloned() {
                    headers.entry(header::RETRY_AFTER).or_insert(reset);
                }
            }
            Self::Deaf => {
                for name in [
                    header::RETRY_AFTER,
                    field_name::RETRY_AFTER_MS,
                    field_name::OVERLOAD_SIGNAL,
                ] {
                    headers.remove(name);
                }
                headers.remove(header::CONTENT_TYPE);
            }
            _ => {
                let options = ReadOptions {
                    now,
                    compat: Compat::On,
                };
                if let Reading::Overload(mut overload, _) =
                    Head::read(*status, headers, &options).finish(None)
                    && self.overload(&mut overload, hint_cap)
                {
                    rewrite(headers, &overload);
                }
            }
        }
    }

    /// Changes what was said; false where this mutant hears it as it is.
    fn overload(self, overload: &mut Overload, hint_cap: Duration) -> bool {
        let delay = overload.hint.delay_or_zero();
        let plain = |delay| Hint::After {
            delay,
            granularity: Granularity::Milliseconds,
        };
        match self {
            Self::Early => {
                overload.hint = match overload.hint {
                    Hint::Window { delay, max } => Hint::Window {
                        delay: delay / 2,
                        max: max / 2,
                    },
                    Hint::After { delay, granularity } => Hint::After {
                        delay: delay / 2,
                        granularity,
                    },
                    Hint::Absent => return false,
                };
            }
            Self::Late if !delay.is_zero() => {
                let late = delay * 10 + Duration::from_secs(1);
                overload.hint = Hint::Window {
                    delay: late,
                    max: late + Duration::from_millis(50),
                };
            }
            Self::IgnoresRetryNo if overload.retry == Retry::No => {
                overload.retry = Retry::After;
                overload.applied = Applied::No;
                overload.hint = plain(Duration::from_millis(50));
            }
            Self::ClampsOverCap if delay > hint_cap => overload.hint = plain(Duration::from_millis(100)),
            Self::ReplaysMaybe if overload.applied == Applied::Maybe => overload.applied = Applied::No,
            Self::IgnoresHoldOff => overload.scope = Scope::Request,
            Self::HalvesHoldOff if overload.scope != Scope::Request => {
                overload.hint = Hint::Window {
                    delay: delay / 2,
                    max: delay / 2 + Duration::from_millis(50),
                };
            }
            Self::StaysHere if overload.retry == Retry::Elsewhere => overload.retry = Retry::After,
            Self::NoJitter if !delay.is_zero() => overload.hint = Hint::Window { delay, max: delay },
            _ => return false,
        }
        true
    }

    /// The result, changed.
    pub fn result(self, result: &mut Value) {
        if self == Self::GenericError && result["kind"] == "overloaded" {
            *result = json!({"kind": "error", "why": "transport", "message": "500 Internal Server Error",
                "attempts": result["attempts"], "elapsed_ms": result["elapsed_ms"]});
        }
        if self == Self::CountsNothing && result.get("attempts_total").is_some() {
            *result = json!({});
        }
    }
}

/// The same URI at another authority.
fn at(uri: &Uri, authority: &str) -> anyhow::Result<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.authority = Some(authority.parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// Puts a changed refusal in place of the one that was sent; the body's content type goes, so that the body is not
/// read beside it.
fn rewrite(headers: &mut HeaderMap, overload: &Overload) {
    let encoded = write::overload(overload, Audience::Trusted);
    headers.remove(header::CONTENT_TYPE);
    for name in [
        header::RETRY_AFTER,
        field_name::RETRY_AFTER_MS,
        field_name::OVERLOAD_SIGNAL,
    ] {
        match encoded.headers.get(&name) {
            Some(value) => headers.insert(name, value.clone()),
            None => headers.remove(name),
        };
    }
}

impl ClientMutant {
    /// The tier of a call, changed.
    pub fn tier(self, tier: Tier) -> Tier {
        match self {
            Self::HoldsEveryTier => Tier::Deferrable,
            _ => tier,
        }
    }

    /// The task class of a call, changed.
    pub fn class(self, class: &str) -> &str {
        match self {
            Self::MendsFields => "mended",
            _ => class,
        }
    }

    /// Where jitter comes from, changed.
    pub fn entropy(self, layer: OverloadLayerBuilder) -> OverloadLayerBuilder {
        match self {
            Self::ReleasesAtOnce => layer.rng(NoEntropy),
            _ => layer,
        }
    }

    /// The policy's knobs, changed.
    pub fn knobs(self, mut knobs: PolicyKnobs) -> PolicyKnobs {
        match self {
            Self::Persistent => knobs.max_attempts = Some(12),
            Self::EndlessWaitingRoom => knobs.max_waiting = Some(1_000_000),
            Self::NoBudget => {
                knobs.budget = Some(BudgetKnobs {
                    capacity: Some(1_000_000),
                });
            }
            _ => {}
        }
        knobs
    }
}

/// Draws the least of every range.
struct NoEntropy;

impl rand::TryRng for NoEntropy {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok(0)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(0)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        bytes.fill(0);
        Ok(())
    }
}
