//! A server's answers one after the other, and the record of what came.
//!
//! Whether a caller obeys shows only over several requests, and only to who knows when each came and what the one
//! before was told. So the responder that gives the answers keeps the record as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use wiremock::{Request, Respond, ResponseTemplate};

use crate::record::{CallKey, Record, Sent};
use crate::{Answer, clock};

/// Calls whose place in a script of their own is kept; later ones start at its end.
const MAX_CALLS: usize = 100_000;

/// A wiremock responder that gives its answers in order and the last one for ever.
///
/// By default the order is that of the requests, whoever sends them. See [`Script::each_call`] for many callers.
#[derive(Debug)]
#[must_use]
pub struct Script {
    answers: Vec<Answer>,
    turns: Turns,
    key: CallKey,
    record: Record,
    places: Mutex<HashMap<String, usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turns {
    /// One place in the script for all requests.
    Requests,
    /// One for each call.
    Calls,
}

impl Script {
    /// A script of these answers; an empty one serves.
    pub fn new<A: Into<Answer>>(answers: impl IntoIterator<Item = A>) -> Self {
        Self {
            answers: answers.into_iter().map(Into::into).collect(),
            turns: Turns::Requests,
            key: CallKey::default(),
            record: Record::default(),
            places: Mutex::default(),
        }
    }

    /// Adds an answer.
    pub fn then(mut self, answer: impl Into<Answer>) -> Self {
        self.answers.push(answer.into());
        self
    }

    /// Each call has the script for itself: the first request of every call gets the first answer.
    pub fn each_call(mut self) -> Self {
        self.turns = Turns::Calls;
        self
    }

    /// How the requests of one call are told from those of another. Default: [`CallKey::KeyOrTarget`].
    pub fn calls_by(mut self, key: CallKey) -> Self {
        self.key = key;
        self
    }

    /// The record that this script keeps; clones see the same. Take it before the script is mounted.
    pub fn record(&self) -> Record {
        self.record.clone()
    }

    fn answer(&self, call: &str) -> Answer {
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            let key = match self.turns {
                Turns::Requests => "",
                Turns::Calls => call,
            };
            let full = places.len() >= MAX_CALLS;
            match places.get_mut(key) {
                Some(place) => {
                    *place = place.saturating_add(1);
                    *place
                }
                None if full => usize::MAX,
                None => {
                    places.insert(key.to_owned(), 0);
                    0
                }
            }
        };
        self.answers
            .get(place)
            .or(self.answers.last())
            .cloned()
            .unwrap_or_else(crate::served)
    }
}

impl Respond for Script {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let arrived = clock::now();
        let call = self.key.of(request);
        let answer = self.answer(&call).at(clock::wall());
        let template = answer.template(&request.method);
        self.record
            .keep(|| Sent::new(call, request, arrived, &answer, clock::now() + answer.delay()));
        template
    }
}

/// Lets one script serve several mocks.
#[derive(Clone, Debug)]
pub struct SharedScript(Arc<Script>);

impl Script {
    /// The same script for several mocks.
    pub fn shared(self) -> SharedScript {
        SharedScript(Arc::new(self))
    }
}

impl Respond for SharedScript {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        self.0.respond(request)
    }
}
