//! What came to the server, and when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdoff_contract::{Overload, RequestFields, field_name};
use http::{HeaderMap, Method, StatusCode};
use wiremock::Request;

use crate::Answer;

/// Requests that a record keeps; what comes later is counted only, and every check then fails with that reason.
pub const MAX_REQUESTS: usize = 100_000;
/// Bytes of a request's body that a record keeps. A longer one is kept by its length and this beginning.
pub const MAX_BODY: usize = 64 * 1024;

/// How the requests of one call are told from those of another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallKey {
    /// By `Idempotency-Key` where there is one, else by method, path and query: the default. Tests with several calls
    /// at a time give each a path, a query or a key of its own.
    #[default]
    KeyOrTarget,
    /// By method, path and query.
    Target,
    /// By this field, which every request of a test then has.
    Field(http::HeaderName),
}

/// One request as it came, and what it was answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sent {
    /// Whose request it was: see [`CallKey`].
    pub call: String,
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub target: String,
    /// Its fields.
    pub headers: HeaderMap,
    /// What it said about itself: deadline, tier, attempt, key, .. (CONTRACT section 3).
    pub fields: RequestFields,
    /// The first [`MAX_BODY`] bytes of its body.
    pub body: Vec<u8>,
    /// All bytes of its body.
    pub body_length: usize,
    /// When all of it had been read.
    pub arrived: Instant,
    /// When its answer was given to the connection: before the caller can have had it, so no gap that is measured from
    /// here is shorter than what the caller waited.
    pub answered: Instant,
    /// The status it was answered with.
    pub status: StatusCode,
    /// What a caller that keeps to the contract reads in that answer; `None` where it is no refusal.
    pub refusal: Option<Overload>,
}

/// The requests of a script, in the order they came. Clones see the same.
#[derive(Clone, Debug, Default)]
pub struct Record(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    sent: Vec<Sent>,
    dropped: usize,
}

impl CallKey {
    pub(crate) fn of(&self, request: &Request) -> String {
        let field = match self {
            Self::KeyOrTarget => Some(&field_name::IDEMPOTENCY_KEY),
            Self::Target => None,
            Self::Field(name) => Some(name),
        };
        match field.and_then(|name| request.headers.get(name)) {
            Some(value) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
            None => format!("{} {}", request.method, target(request)),
        }
    }
}

fn target(request: &Request) -> String {
    match request.url.query() {
        Some(query) => format!("{}?{query}", request.url.path()),
        None => request.url.path().to_owned(),
    }
}

impl Sent {
    pub(crate) fn new(
        call: String,
        request: &Request,
        arrived: Instant,
        answer: &Answer,
        answered: Instant,
    ) -> Self {
        Self {
            call,
            method: request.method.clone(),
            target: target(request),
            fields: RequestFields::read(&request.headers),
            headers: request.headers.clone(),
            body: request.body.iter().copied().take(MAX_BODY).collect(),
            body_length: request.body.len(),
            arrived,
            answered,
            status: answer.status(),
            refusal: answer.read(),
        }
    }

    /// The D of its answer: zero where the answer gave none.
    pub fn delay(&self) -> Duration {
        self.refusal
            .as_ref()
            .map_or(Duration::ZERO, |refusal| refusal.hint.delay_or_zero())
    }
}

impl Record {
    pub(crate) fn keep(&self, sent: impl FnOnce() -> Sent) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.sent.len() < MAX_REQUESTS {
            kept.sent.push(sent());
        } else {
            kept.dropped = kept.dropped.saturating_add(1);
        }
    }

    /// Every request, in the order they came.
    pub fn all(&self) -> Vec<Sent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sent.clone()
    }

    /// Requests that came.
    pub fn attempts(&self) -> usize {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.sent.len().saturating_add(kept.dropped)
    }

    /// Requests that came after the record was full.
    pub(crate) fn dropped(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).dropped
    }

    /// The requests of each call, in the order they came.
    pub fn calls(&self) -> BTreeMap<String, Vec<Sent>> {
        let mut calls: BTreeMap<String, Vec<Sent>> = BTreeMap::new();
        for sent in self.all() {
            calls.entry(sent.call.clone()).or_default().push(sent);
        }
        calls
    }

    /// Each request that followed another of its call: the one before, and itself.
    pub fn returns(&self) -> Vec<(Sent, Sent)> {
        let calls = self.calls().into_values();
        calls
            .flat_map(|sends| {
                let next: Vec<Sent> = sends.iter().skip(1).cloned().collect();
                sends.into_iter().zip(next).collect::<Vec<_>>()
            })
            .collect()
    }

    /// How many requests came back before the D of the answer before them had passed.
    pub fn early(&self) -> usize {
        self.returns()
            .iter()
            .filter(|(before, after)| {
                after.arrived.saturating_duration_since(before.answered) < before.delay()
            })
            .count()
    }

    /// Of the requests that came back, how many the fullest slot of this length holds: what a server sees of callers
    /// that were refused together. Slots are laid at every arrival.
    pub fn fullest_slot(&self, slot: Duration) -> usize {
        let mut arrivals: Vec<_> = self.returns().iter().map(|(_, after)| after.arrived).collect();
        arrivals.sort_unstable();
        let in_slot = |(at, first): (usize, &Instant)| {
            let later = arrivals[at..].iter();
            later
                .take_while(|later| later.saturating_duration_since(*first) < slot)
                .count()
        };
        arrivals.iter().enumerate().map(in_slot).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock, plain};

    fn request(target: &str) -> Request {
        Request {
            url: format!("http://a.example{target}").parse().unwrap(),
            method: Method::POST,
            headers: HeaderMap::new(),
            body: vec![b'x'; MAX_BODY + 1],
        }
    }

    fn sent(target: &str, after: Duration) -> Sent {
        let (request, now) = (request(target), clock::now());
        let call = CallKey::default().of(&request);
        Sent {
            body: Vec::new(),
            arrived: now + after,
            ..Sent::new(call, &request, now, &plain(503), now)
        }
    }

    #[test]
    fn a_record_that_is_full_says_so_in_every_check_and_does_not_grow() {
        let record = Record::default();
        let one = sent("/a", Duration::ZERO);
        for _ in 0..=MAX_REQUESTS {
            record.keep(|| one.clone());
        }
        assert_eq!(record.attempts(), MAX_REQUESTS + 1);
        assert_eq!(record.all().len(), MAX_REQUESTS);
        for check in [
            record.check_never_early(),
            record.check_attempts(MAX_REQUESTS + 1),
            record.check_same_key(),
        ] {
            let violation = check.unwrap_err();
            assert_eq!(violation.count, 1);
            assert!(violation.found[0].contains("full at 100000"), "{violation}");
        }
    }

    #[test]
    fn a_long_body_is_kept_by_its_beginning_and_its_length() {
        let now = clock::now();
        let sent = Sent::new(String::new(), &request("/a"), now, &plain(200), now);
        assert_eq!((sent.body.len(), sent.body_length), (MAX_BODY, MAX_BODY + 1));
    }

    #[test]
    fn the_fullest_slot_is_found_wherever_it_begins() {
        let record = Record::default();
        let ms = Duration::from_millis;
        // Each call's first request does not count: it did not come back.
        for (call, at) in [("/a", 100), ("/b", 106), ("/c", 109), ("/d", 117), ("/e", 300)] {
            record.keep(|| sent(call, Duration::ZERO));
            record.keep(|| sent(call, ms(at)));
        }
        assert_eq!(record.fullest_slot(ms(3)), 1);
        assert_eq!(record.fullest_slot(ms(100)), 4);
        assert_eq!(record.fullest_slot(Duration::from_secs(9)), 5);
        assert_eq!(Record::default().fullest_slot(ms(10)), 0);
    }
}
