//! What a server says.
//!
//! A refusal that a test wrote by hand is what the test's author took the contract for, and drifts from what servers
//! send. So a refusal is written by [`holdoff_contract::write`], as our own server writes it, and what a stranger sends
//! ([`plain`]) is read back by [`holdoff_contract::read`], so that the record knows what each answer asked for.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use holdoff_contract::read::{Compat, Head, ReadOptions};
use holdoff_contract::write::{self, Audience};
use holdoff_contract::{Applied, Code, Granularity, Hint, Overload, Retry, Scope, ServiceState, Tier};
use http::header::{DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use wiremock::{Request, Respond, ResponseTemplate};

use crate::clock;

/// One answer of the server under a caller's test; also a wiremock responder that gives it each time.
#[derive(Clone, Debug)]
#[must_use]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    slow: Duration,
    /// An HTTP-date that far ahead of the moment of the answer.
    date: Option<Duration>,
}

/// A refusal by the contract, made by [`overloaded`]. Give it to a script, or mount it as it is.
#[derive(Clone, Debug)]
#[must_use]
pub struct Refusal {
    overload: Overload,
    audience: Audience,
    slow: Duration,
}

/// A refusal with what this code says by default: its status, permission and promise. Without [`Refusal::after`] a
/// code that must have a hint goes out with 1000 ms (SRV-25).
pub fn overloaded(code: Code) -> Refusal {
    Refusal {
        overload: Overload::new(code),
        audience: Audience::Stranger,
        slow: Duration::ZERO,
    }
}

/// A refusal with any value, for what the other methods do not reach.
impl From<Overload> for Refusal {
    fn from(overload: Overload) -> Self {
        Self {
            overload,
            audience: Audience::Stranger,
            slow: Duration::ZERO,
        }
    }
}

/// The instance goes away: `draining`, retry=elsewhere, applied=no.
pub fn draining() -> Refusal {
    overloaded(Code::Draining)
}

/// 200 with a small body.
pub fn served() -> Answer {
    plain(200).body("served")
}

/// 202 that defers: `outcome=defer`, a `Location` to poll, and `Retry-After` of a second.
pub fn deferred(location: &str) -> Answer {
    let mut answer = plain(202).header(LOCATION.as_str(), location).retry_after(1);
    write::advice(&mut answer.headers, true, false, None);
    answer
}

/// An answer of a server that does not know the contract: a bare status, to which the methods of [`Answer`] add what
/// others send.
///
/// # Panics
/// For a status outside 100 to 999.
#[track_caller]
#[expect(
    clippy::expect_used,
    reason = "a test's own constant; the panic is documented"
)]
pub fn plain(status: u16) -> Answer {
    Answer {
        status: StatusCode::from_u16(status).expect("a status is 100 to 999"),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        slow: Duration::ZERO,
        date: None,
    }
}

impl Refusal {
    /// The least wait D. It goes out in milliseconds and, rounded up, in seconds.
    pub fn after(mut self, delay: Duration) -> Self {
        self.overload.hint = match self.overload.hint {
            Hint::Window { max, .. } => Hint::Window { delay, max },
            Hint::Absent | Hint::After { .. } => Hint::After {
                delay,
                granularity: Granularity::Milliseconds,
            },
        };
        self
    }

    /// The end M of the window this caller is asked to come back in. It goes out within D and D + 60 s.
    pub fn max(mut self, max: Duration) -> Self {
        let delay = self.overload.hint.delay_or_zero();
        self.overload.hint = Hint::Window { delay, max };
        self
    }

    /// May the caller come back?
    pub fn retry(mut self, retry: Retry) -> Self {
        self.overload.retry = retry;
        self
    }

    /// retry=no.
    pub fn no_retry(self) -> Self {
        self.retry(Retry::No)
    }

    /// Can anything have been done? Default: what the code says.
    pub fn applied(mut self, applied: Applied) -> Self {
        self.overload.applied = applied;
        self
    }

    /// What else the hint speaks for. Default: what the code says.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.overload.scope = scope;
        self
    }

    /// The tier used.
    pub fn tier(mut self, tier: Tier) -> Self {
        self.overload.tier = Some(tier);
        self
    }

    /// The state of the service; makes the reader a trusted one, since strangers are not told.
    pub fn state(mut self, state: ServiceState) -> Self {
        self.overload.state = Some(state);
        self.trusted()
    }

    /// Hops to the dependency that decided: 0 to 16.
    pub fn hop(mut self, hop: u8) -> Self {
        self.overload.hop = hop;
        self
    }

    /// Writes for a caller inside the trust domain. Default: for a stranger.
    pub fn trusted(mut self) -> Self {
        self.audience = Audience::Trusted;
        self
    }

    /// Waits so long before answering.
    pub fn slow(mut self, time: Duration) -> Self {
        self.slow = time;
        self
    }

    /// What it says.
    pub fn overload(&self) -> &Overload {
        &self.overload
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        let encoded = write::overload(&refusal.overload, refusal.audience);
        Self {
            status: encoded.status,
            headers: encoded.headers,
            body: encoded.body,
            slow: refusal.slow,
            date: None,
        }
    }
}

impl Answer {
    /// Adds a field line with any text, malformed values included.
    ///
    /// # Panics
    /// Where HTTP cannot carry the name or the value.
    #[track_caller]
    #[expect(
        clippy::expect_used,
        reason = "a test's own constant; the panic is documented"
    )]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a field name");
        self.headers
            .append(name, HeaderValue::try_from(value).expect("a field value"));
        self
    }

    /// `Retry-After` in seconds.
    #[track_caller]
    pub fn retry_after(self, seconds: u64) -> Self {
        self.header(RETRY_AFTER.as_str(), &seconds.to_string())
    }

    /// `Retry-After` as an HTTP-date that lies this far ahead of the answer, rounded up to the second that a date can
    /// say; a `Date` field goes with it.
    pub fn retry_after_date(mut self, ahead: Duration) -> Self {
        self.date = Some(ahead);
        self
    }

    /// `retry-after-ms` (OpenAI and others).
    #[track_caller]
    pub fn retry_after_ms(self, ms: u64) -> Self {
        self.header("retry-after-ms", &ms.to_string())
    }

    /// `x-ms-retry-after-ms` (Azure).
    #[track_caller]
    pub fn x_ms_retry_after_ms(self, ms: u64) -> Self {
        self.header("x-ms-retry-after-ms", &ms.to_string())
    }

    /// `x-amz-retry-after`, milliseconds (AWS).
    #[track_caller]
    pub fn x_amz_retry_after(self, ms: u64) -> Self {
        self.header("x-amz-retry-after", &ms.to_string())
    }

    /// `ratelimit-reset`, seconds: a quota reset, which counts only on 429 where nothing else gives a delay.
    #[track_caller]
    pub fn ratelimit_reset(self, seconds: u64) -> Self {
        self.header("ratelimit-reset", &seconds.to_string())
    }

    /// `x-should-retry: false`: the same as retry=no.
    #[track_caller]
    pub fn should_not_retry(self) -> Self {
        self.header("x-should-retry", "false")
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Waits so long before answering.
    pub fn slow(mut self, time: Duration) -> Self {
        self.slow = time;
        self
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// How long it waits before it answers.
    pub(crate) fn delay(&self) -> Duration {
        self.slow
    }

    /// Fixes what depends on the moment of the answer.
    pub(crate) fn at(mut self, wall: SystemTime) -> Self {
        if let Some(ahead) = self.date.take() {
            let whole = Duration::from_secs(1) - Duration::from_nanos(1);
            // A year 9999 that cannot be written is left out: there is no such answer.
            if let Some(until) = wall.checked_add(ahead).and_then(|at| at.checked_add(whole)) {
                for (name, at) in [(DATE, wall), (RETRY_AFTER, until)] {
                    if let Ok(value) = HeaderValue::try_from(httpdate::fmt_http_date(at)) {
                        self.headers.insert(name, value);
                    }
                }
            }
        }
        self
    }

    /// What a caller that keeps to the contract reads in it; `None` where it is no refusal.
    pub fn overload(&self) -> Option<Overload> {
        let answer = self.clone().at(clock::wall());
        answer.read()
    }

    pub(crate) fn read(&self) -> Option<Overload> {
        let options = ReadOptions {
            now: clock::wall(),
            compat: Compat::On,
        };
        let head = Head::read(self.status, &self.headers, &options);
        let body = head.wants_body().then_some(&*self.body);
        head.finish(body).into_overload()
    }

    /// As wiremock takes it.
    pub(crate) fn template(&self, method: &Method) -> ResponseTemplate {
        let mut template = ResponseTemplate::new(self.status.as_u16());
        for (name, value) in &self.headers {
            template = template.append_header(name, value);
        }
        if *method != Method::HEAD {
            template = template.set_body_bytes(self.body.to_vec());
        }
        if self.slow.is_zero() {
            template
        } else {
            template.set_delay(self.slow)
        }
    }
}

impl Respond for Answer {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        self.clone().at(clock::wall()).template(&request.method)
    }
}

impl Respond for Refusal {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        Answer::from(self.clone()).respond(request)
    }
}
