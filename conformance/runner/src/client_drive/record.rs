//! The wire log of a case as lines of JSON: written by `--record`, and read back so that a judgement can be made
//! again without a clock, a socket or the program.
//!
//! A verdict is only worth what somebody else can check. The judge is a pure function over what is in these lines:
//! each call with what the client said, each request with the times and what it was answered, and the counters of the
//! ports. Times are microseconds from the start of the case.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::judge::Played;
use super::seen::{CallSeen, Reply};
use super::spec::Port;
use super::wire::{Connections, Exchange, WireLog};
use crate::still::Stills;

/// The schema of a record, in its first line.
pub(crate) const SCHEMA: &str = "overload-wire/1";

/// The most lines that are read.
const MAX_LINES: usize = 100_000;
/// The most groups of calls.
const MAX_GROUPS: usize = 1000;

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The first line.
    Case {
        schema: String,
        case: String,
        slack_us: u64,
    },
    /// What the client said about one call.
    Call {
        group: usize,
        path: String,
        sent_us: u64,
        returned_us: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cancelled_us: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<Map<String, Value>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        broke: Option<String>,
    },
    /// One request on the wire.
    Request {
        port: Port,
        connection: usize,
        arrived_us: u64,
        method: String,
        path: String,
        fields: Vec<(String, String)>,
        body: Vec<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head_us: Option<u64>,
        answered: String,
        body_written: u64,
    },
    /// The program stood still.
    Still { from_us: u64, to_us: u64 },
    /// The last line.
    End {
        main: Connections,
        second: Connections,
        strays: Vec<String>,
        dropped: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metrics: Option<Value>,
    },
}

impl Line {
    fn at(&self) -> u64 {
        match self {
            Line::Case { .. } => 0,
            Line::Call { sent_us, .. } => *sent_us,
            Line::Request { arrived_us, .. } => *arrived_us,
            Line::Still { from_us, .. } => *from_us,
            Line::End { .. } => u64::MAX,
        }
    }
}

/// The lines of a played case, in the order of their times.
pub(crate) fn lines(case: &str, played: &Played) -> Vec<Value> {
    let us = |at: Instant| {
        let since = at.saturating_duration_since(played.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    };
    let mut lines = vec![Line::Case {
        schema: SCHEMA.to_owned(),
        case: case.to_owned(),
        slack_us: u64::try_from(played.slack.as_micros()).unwrap_or(u64::MAX),
    }];
    for (group, calls) in played.groups.iter().enumerate() {
        lines.extend(calls.iter().map(|call| {
            let (said, broke) = match &call.reply {
                Reply::Said(said) => (Some(said.clone()), None),
                Reply::Broke(what) => (None, Some(what.clone())),
            };
            Line::Call {
                group,
                path: call.path.clone(),
                sent_us: us(call.sent),
                returned_us: us(call.returned),
                cancelled_us: call.cancelled.map(us),
                said,
                broke,
            }
        }));
    }
    lines.extend(played.log.exchanges.iter().map(|exchange| Line::Request {
        port: exchange.port,
        connection: exchange.connection,
        arrived_us: us(exchange.arrived),
        method: exchange.method.clone(),
        path: exchange.path.clone(),
        fields: exchange.fields.clone(),
        body: exchange.body.clone(),
        head_us: exchange.head_at.map(us),
        answered: exchange.answered.clone(),
        body_written: exchange.body_written,
    }));
    lines.extend(played.stills.0.iter().map(|(from, to)| Line::Still {
        from_us: us(*from),
        to_us: us(*to),
    }));
    lines.push(Line::End {
        main: played.log.main,
        second: played.log.second,
        strays: played.log.strays.clone(),
        dropped: played.log.dropped,
        metrics: played.metrics.clone(),
    });
    lines.sort_by_key(Line::at);
    // A line holds only what JSON can say, so that none is lost here.
    lines
        .iter()
        .filter_map(|line| serde_json::to_value(line).ok())
        .collect()
}

/// Reads a record back. `started` is any instant; the times of the lines are counted from it.
///
/// # Errors
/// A line is not one of a record of a client case, names a group beyond [`MAX_GROUPS`], or there are more than
/// [`MAX_LINES`] lines; the first line does not say which case it is, or the last is not the end of the record. A log that was
/// cut is no evidence against the program: what it lacks may have been there.
pub(crate) fn read(text: &str, started: Instant) -> Result<(String, Played), String> {
    let at = |us: u64| started + Duration::from_micros(us);
    let mut played = Played {
        groups: Vec::new(),
        log: WireLog::default(),
        started,
        slack: Duration::ZERO,
        stills: Stills::default(),
        metrics: None,
    };
    let mut case = None;
    let (mut ended, mut count) = (false, 0);
    for (number, text) in text.lines().enumerate() {
        if number >= MAX_LINES {
            return Err(format!("more than {MAX_LINES} lines"));
        }
        count = number + 1;
        let line = line(text).map_err(|error| format!("line {count}: {error}"))?;
        if ended {
            return Err(format!(
                "line {count} comes after the line with event `end`, which is the last"
            ));
        }
        if case.is_none() != matches!(line, Line::Case { .. }) {
            return Err(format!(
                "line {count}: the first line, and no other, has event `case` and says which case this is"
            ));
        }
        match line {
            Line::Case {
                schema,
                case: id,
                slack_us,
            } => {
                if schema != SCHEMA {
                    return Err(format!("schema is {schema:?}; this runner reads {SCHEMA:?}"));
                }
                played.slack = Duration::from_micros(slack_us);
                case = Some(id);
            }
            Line::Call {
                group,
                path,
                sent_us,
                returned_us,
                cancelled_us,
                said,
                broke,
            } => {
                if group >= MAX_GROUPS {
                    return Err(format!("group {group}; at most {MAX_GROUPS} are read"));
                }
                let reply = said.map_or_else(|| Reply::Broke(broke.unwrap_or_default()), Reply::Said);
                played
                    .groups
                    .resize_with(played.groups.len().max(group + 1), Vec::new);
                let call = CallSeen::new(path, at(sent_us), at(returned_us), cancelled_us.map(at), reply);
                played.groups[group].push(call);
            }
            Line::Request {
                port,
                connection,
                arrived_us,
                method,
                path,
                fields,
                body,
                head_us,
                answered,
                body_written,
            } => {
                played.log.exchanges.push(Exchange {
                    port,
                    connection,
                    arrived: at(arrived_us),
                    method,
                    path,
                    fields,
                    body,
                    head_at: head_us.map(at),
                    answered,
                    body_written,
                });
            }
            Line::Still { from_us, to_us } => played.stills.0.push((at(from_us), at(to_us))),
            Line::End {
                main,
                second,
                strays,
                dropped,
                metrics,
            } => {
                ended = true;
                played.log.main = main;
                played.log.second = second;
                played.log.strays = strays;
                played.log.dropped = dropped;
                played.metrics = metrics;
            }
        }
    }
    match case {
        None => Err("it is empty: no line says which case this is".to_owned()),
        Some(case) if !ended => Err(format!(
            "the log of case {case} is cut: after line {count} the last line is missing, which has event `end`"
        )),
        Some(case) => Ok((case, played)),
    }
}

/// Reads one line. The head of a log that is not a client's is told apart from a broken line.
fn line(text: &str) -> Result<Line, String> {
    serde_json::from_str(text).map_err(|error| {
        let head: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        let of_ours = head.get("event").is_some_and(|event| event == "case")
            && head.get("schema").is_some_and(|schema| schema == SCHEMA);
        // A server's log does not name the case, and a relay's has no slack: nothing that is in them is judged from a file.
        if of_ours && !(head.contains_key("case") && head.contains_key("slack_us")) {
            return "this is the log of a server or a relay; only a client's can be judged again".to_owned();
        }
        error.to_string()
    })
}
