//! From a wire log to numbers. Nothing is judged here, and nothing rounded away.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::client_drive::judge::Played;
use crate::client_drive::seen::{CallSeen, Reply};
use crate::client_drive::wire::{Exchange, WireLog};

/// What was seen of one behaviour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The calls of each group, in the order of the behaviour.
    pub groups: Vec<Vec<Call>>,
}

/// What was seen of one call. All lengths are ms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// How many requests it made.
    pub requests: usize,
    /// From the call being made to its first request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<f64>,
    /// From the head of each answer to the next request.
    pub waits_ms: Vec<f64>,
    /// When its second request arrived, counted from the start of the play.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_at_ms: Option<f64>,
    /// When its last request arrived, counted from the start of the play.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_at_ms: Option<f64>,
    /// How it ended; absent when it had not ended at the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ending>,
}

/// How a call ended, in the words of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// From the call being made to its end, by the runner's clock.
    pub after_ms: f64,
    /// `response`, `overloaded` or `error`.
    pub kind: String,
    /// The status, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u64>,
    /// The reason or message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Measured {
    /// Reads the wire log and the replies of a play whose open calls were given up after `limit`.
    ///
    /// # Errors
    /// The program broke the protocol before that: what it would have done cannot be known.
    pub(super) fn from_played(played: &Played, limit: Duration) -> Result<Self, String> {
        let given_up = played.started + limit;
        let of_group =
            |calls: &Vec<CallSeen>| calls.iter().map(|seen| call(seen, played, given_up)).collect();
        let groups = played
            .groups
            .iter()
            .map(of_group)
            .collect::<Result<_, String>>()?;
        Ok(Self { groups })
    }
}

fn call(seen: &CallSeen, played: &Played, given_up: Instant) -> Result<Call, String> {
    let requests = of_path(&played.log, &seen.path);
    let waits = requests.iter().zip(requests.iter().skip(1));
    let waits_ms = waits.filter_map(|(answered, next)| Some(between(answered.head_at?, next.arrived)));
    let at = |request: Option<&&Exchange>| request.map(|request| between(played.started, request.arrived));
    let ended = match &seen.reply {
        // At the limit the process is ended, and every call that it still had open breaks.
        Reply::Broke(_) if seen.returned >= given_up => None,
        Reply::Broke(what) => return Err(what.clone()),
        Reply::Said(result) => {
            let text = |key: &str| result.get(key).and_then(Value::as_str).map(str::to_owned);
            let kind = text("kind").unwrap_or_default();
            Some(Ending {
                after_ms: between(seen.sent, seen.returned),
                status: result.get("status").and_then(Value::as_u64),
                why: text("message").or(text("why")).filter(|_| kind != "response"),
                kind,
            })
        }
    };
    Ok(Call {
        requests: requests.len(),
        first_ms: requests
            .first()
            .map(|request| between(seen.sent, request.arrived)),
        waits_ms: waits_ms.collect(),
        second_at_ms: at(requests.get(1)),
        last_at_ms: at(requests.last()),
        ended,
    })
}

fn of_path<'a>(log: &'a WireLog, path: &str) -> Vec<&'a Exchange> {
    log.exchanges
        .iter()
        .filter(|exchange| exchange.path == path)
        .collect()
}

/// Ms from one instant to a later one, to a tenth.
fn between(from: Instant, to: Instant) -> f64 {
    tenth(to.saturating_duration_since(from))
}

fn tenth(length: Duration) -> f64 {
    (length.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_drive::spec::Port;
    use crate::clock;
    use crate::still::Stills;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    fn exchange(start: Instant, path: &str, arrived: u64, head: u64) -> Exchange {
        Exchange {
            port: Port::Main,
            connection: 0,
            arrived: at(start, arrived),
            method: "GET".to_owned(),
            path: path.to_owned(),
            fields: Vec::new(),
            body: Vec::new(),
            head_at: Some(at(start, head)),
            answered: String::new(),
            body_written: 0,
        }
    }

    fn played(reply: Reply, returned: u64) -> Played {
        let started = clock::now();
        let log = WireLog {
            exchanges: vec![
                exchange(started, "/a", 20, 21),
                exchange(started, "/b", 30, 31),
                exchange(started, "/a", 1030, 1031),
            ],
            ..WireLog::default()
        };
        let seen = CallSeen::new(
            "/a".to_owned(),
            at(started, 10),
            at(started, returned),
            None,
            reply,
        );
        Played {
            groups: vec![vec![seen]],
            log,
            started,
            slack: Duration::ZERO,
            stills: Stills::default(),
            metrics: None,
        }
    }

    #[test]
    fn waits_go_from_the_head_of_an_answer_to_the_next_request_of_the_same_call() {
        let said = serde_json::json!({"kind": "response", "status": 200});
        let said = Reply::Said(said.as_object().unwrap().clone());
        let measured = Measured::from_played(&played(said, 1040), Duration::from_secs(5)).unwrap();
        let call = &measured.groups[0][0];
        assert_eq!(call.requests, 2);
        assert_eq!(call.first_ms, Some(10.0));
        assert_eq!(call.waits_ms, [1009.0]);
        assert_eq!((call.second_at_ms, call.last_at_ms), (Some(1030.0), Some(1030.0)));
        assert_eq!(call.ended.as_ref().map(|it| it.after_ms), Some(1030.0));
    }

    #[test]
    fn a_call_that_is_open_at_the_limit_has_no_end_and_a_program_that_broke_before_is_not_measured() {
        let broke = || Reply::Broke("boom".to_owned());
        let limit = Duration::from_secs(5);
        let cut = Measured::from_played(&played(broke(), 5000), limit).unwrap();
        assert_eq!(cut.groups[0][0].ended, None);
        assert_eq!(
            Measured::from_played(&played(broke(), 4000), limit),
            Err("boom".to_owned())
        );
    }
}
