//! What every byte a peer can send must leave true.
//!
//! A parser of foreign text is wrong in places nobody thought of. So these checks take any bytes: `cargo fuzz` looks for
//! those that break them (README.md), and `sdk/contract/tests/corpus.rs` replays what it has found so far on stable Rust,
//! through the same functions. Each is a text as it stands on the wire, so that a person can read and write the corpus.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdoff_contract::read::{Advice, Compat, Head, Malformed, ReadOptions, Reading};
use holdoff_contract::write::{self, Audience, Encoded};
use holdoff_contract::{CalledAs, Code, Hint, Overload, Relay, RequestFields, Retry, Scope, Tier, limits};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

/// Fields that are taken from an input; a head with more is one that an HTTP library refuses.
const MAX_LINES: usize = 100;

/// A head: the status in the first line, then `name: value` lines.
pub fn header(data: &[u8]) {
    let (status, headers, _) = response(data);
    let _ = Advice::read(&headers);
    let fields = RequestFields::read(&headers);
    assert!(
        fields
            .deadline
            .is_none_or(|deadline| deadline <= limits::MAX_DEADLINE)
    );
    let mut again = HeaderMap::new();
    fields.write(&mut again);
    assert_eq!(
        RequestFields::read(&again),
        fields,
        "what we send is what we read"
    );
    let _ = fields.tier.map(Tier::index);
    for status in [
        status,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
    ] {
        for compat in [Compat::On, Compat::Off] {
            judge(read(status, &headers, None, compat));
        }
    }
}

/// The body of a problem document.
pub fn body(data: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert(
        "content-type",
        HeaderValue::from_static("application/problem+json"),
    );
    let statuses = [
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::GATEWAY_TIMEOUT,
        StatusCode::OK,
    ];
    for status in statuses {
        judge(read(status, &headers, Some(data), Compat::On));
    }
}

/// The value of an `Overload-Signal`.
pub fn signal(data: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(data) else {
        return;
    };
    let mut headers = HeaderMap::new();
    headers.insert("overload-signal", value);
    let _ = Advice::read(&headers);
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT] {
        judge(read(status, &headers, None, Compat::On));
    }
}

/// A whole response, as [`header`] has it and after an empty line its body: what is read of it can be written, read back
/// and passed on, and nothing gets wider on the way.
pub fn round_trip(data: &[u8]) {
    let (status, headers, body) = response(data);
    let Some((received, _)) = judge(read(status, &headers, body, Compat::On)) else {
        return;
    };
    for audience in [Audience::Stranger, Audience::Trusted] {
        let sent = resent(&received, audience);
        not_wider(&sent, &received);
        // What went over the wire once is stable. (Quotas of rate_limited are whole seconds and can lengthen the hint.)
        if sent.code != Some(Code::RateLimited) {
            assert_eq!(resent(&sent, audience), sent);
        }
    }
    for retried in [false, true] {
        let relay = Relay {
            elapsed: Duration::from_millis(data.len() as u64),
            called_as: CalledAs::OwnService,
            retried,
            idempotent: true,
            side_effect: false,
        };
        let up = received.for_caller(&relay);
        assert!(up.retry >= received.retry && up.applied >= received.applied);
        assert!(!retried || up.retry == Retry::No);
        assert_eq!(up.hop, (received.hop + 1).min(limits::MAX_HOP));
        assert_eq!(up.scope, Scope::Request);
        resent(&up, Audience::Stranger);
        let both = [received.clone(), up];
        let most = both.iter().map(|one| one.hint.delay_or_zero()).max();
        let combined = Overload::combine(both).map(|all| all.hint.delay_or_zero());
        assert_eq!(combined, most);
    }
}

/// Mon, 03 Mar 2025 12:00:00 GMT.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_741_003_200)
}

fn read(status: StatusCode, headers: &HeaderMap, body: Option<&[u8]>, compat: Compat) -> Reading {
    let options = ReadOptions { now: now(), compat };
    let head = Head::read(status, headers, &options);
    let body = body.filter(|_| head.wants_body());
    head.finish(body)
}

/// Whatever was read is inside the limits, and safe to log.
fn judge(reading: Reading) -> Option<(Overload, Malformed)> {
    let Reading::Overload(read, malformed) = reading else {
        return None;
    };
    assert!(read.hint.delay_or_zero() <= limits::MAX_HINT);
    if let Hint::Window { delay, max } = read.hint {
        assert!(!delay.is_zero() && delay <= max && max <= delay + limits::MAX_WINDOW);
    }
    assert!(read.hop <= limits::MAX_HOP);
    assert!(read.extensions.len() <= limits::MAX_EXTENSIONS);
    assert!(read.members.len() <= limits::MAX_EXTENSIONS);
    assert!(read.quotas.len() <= limits::MAX_QUOTAS);
    for time in [read.min_deadline, read.predicted_wait].into_iter().flatten() {
        assert!(time <= limits::MAX_HINT);
    }
    assert!(read.to_string().bytes().all(|byte| (b' '..=b'~').contains(&byte)));
    Some((*read, malformed))
}

/// Writes it, checks the limits of what is written, and reads it back.
fn resent(overload: &Overload, audience: Audience) -> Overload {
    let Encoded {
        status,
        headers,
        body,
    } = write::overload(overload, audience);
    assert!(
        headers
            .get("overload-signal")
            .is_some_and(|signal| signal.len() <= limits::MAX_SIGNAL_BYTES)
    );
    assert!(body.len() <= limits::MAX_BODY_WRITTEN);
    assert!(headers.values().all(|value| value.to_str().is_ok()));
    let back = judge(read(status, &headers, Some(&body), Compat::On));
    let (back, malformed) = back.unwrap_or_else(|| panic!("we wrote {status}, which is no overload"));
    assert_eq!(malformed.sources, 0, "we wrote what we cannot read: {headers:?}");
    back
}

/// Section 6 rule 8.
fn not_wider(sent: &Overload, received: &Overload) {
    assert!(sent.retry >= received.retry && sent.applied >= received.applied);
    assert!(sent.hint.delay_or_zero() >= received.hint.delay_or_zero());
}

/// Status, fields and what follows an empty line. What is no status is 503; what is no field is left out.
fn response(data: &[u8]) -> (StatusCode, HeaderMap, Option<&[u8]>) {
    let (head, body) = match find(data, b"\n\n") {
        Some(at) => (&data[..at], Some(&data[at + 2..])),
        None => (data, None),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = lines.next().unwrap_or_default();
    let status = StatusCode::from_bytes(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let mut headers = HeaderMap::new();
    for line in lines.take(MAX_LINES) {
        let Some(at) = find(line, b": ") else { continue };
        let name = HeaderName::from_bytes(&line[..at]);
        let value = HeaderValue::from_bytes(&line[at + 2..]);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (status, headers, body)
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}
