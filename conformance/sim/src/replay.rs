//! What a server decided, judged afterwards: false accepts, ghosts, avoidable loss, regret.
//!
//! A recorded trace knows the service time of what ran and not of what was refused, so a refused call is taken to need
//! the mean of its class. A *ghost* is a refused call that would have started in time had it needed no work at all: the
//! next task of its tier that was accepted started soon enough for it. That is an upper bound of the false rejects, since a real
//! task would have held up others. *Avoidable loss* and *regret* are those of [`crate::metrics`].

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, Read as _};

use serde::Serialize;

use crate::bound::{Job, Supply, fluid_edf};
use crate::metrics::idle;
use crate::time::{MS, Nanos};
use crate::trace::{Decided, Line, TierName};

/// Longest line that is read.
pub const MAX_LINE_BYTES: u64 = 64 << 10;
/// Most lines that are read.
pub const MAX_LINES: usize = 10_000_000;
/// Greatest number of milliseconds in a trace: a year.
const MAX_MS: f64 = 366.0 * 86_400_000.0;

/// A trace that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line is no decision.
    #[error("line {number}: {reason}")]
    Line {
        /// Its number, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// It cannot be read.
    #[error("line {number}: cannot be read: {source}")]
    Read {
        /// The line that was to be read.
        number: usize,
        /// Why.
        source: std::io::Error,
    },
    /// It has no line.
    #[error("the trace has no decision")]
    Empty,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// Lines.
    pub decisions: u64,
    /// Calls; the same as decisions where the trace does not tell calls apart.
    pub calls: u64,
    /// Accepted attempts.
    pub accepted: u64,
    /// Refused attempts by code.
    pub refused: BTreeMap<String, u64>,
    /// Accepted and not finished in time, over the accepted.
    pub false_accepts: f64,
    /// Refused calls that would have started in time without any work of their own, over the calls.
    pub ghosts: f64,
    /// Failed work that would have fitted into idle worker time, over the bound.
    pub avoidable_loss: f64,
    /// What of the bound was not reached.
    pub regret: f64,
    /// Workers that were assumed: as told, else the most that ran at once.
    pub workers: u32,
    /// Mean absolute error of the predicted wait of what started, ms.
    pub wait_error_ms: f64,
    /// Failed calls of classes of which nothing ever ran: left out of loss and regret.
    pub unknown_need: u64,
}

/// Reads a trace, line by line; empty lines are skipped.
///
/// # Errors
/// For the first line that cannot be read or is no decision: its number and the reason.
pub fn read(mut from: impl BufRead) -> Result<Vec<Line>, ReplayError> {
    let mut lines = Vec::new();
    let mut number = 0;
    let mut text = String::new();
    loop {
        number += 1;
        text.clear();
        let wrong = |reason: String| ReplayError::Line { number, reason };
        let read = from.by_ref().take(MAX_LINE_BYTES + 1).read_line(&mut text);
        let bytes = match read {
            Ok(bytes) => bytes as u64,
            Err(source) if source.kind() == std::io::ErrorKind::InvalidData => {
                return Err(wrong("is not UTF-8".to_owned()));
            }
            Err(source) => return Err(ReplayError::Read { number, source }),
        };
        if bytes == 0 {
            break;
        }
        if bytes > MAX_LINE_BYTES {
            return Err(wrong(format!("is longer than {MAX_LINE_BYTES} bytes")));
        }
        if text.trim().is_empty() {
            continue;
        }
        if lines.len() >= MAX_LINES {
            return Err(wrong(format!("is one more than {MAX_LINES} decisions")));
        }
        let line: Line = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        check(&line).map_err(wrong)?;
        lines.push(line);
    }
    if lines.is_empty() {
        Err(ReplayError::Empty)
    } else {
        Ok(lines)
    }
}

fn check(line: &Line) -> Result<(), String> {
    let numbers = [
        ("t_ms", Some(line.t_ms)),
        ("deadline_ms", Some(line.deadline_ms)),
        ("predicted_wait_ms", line.predicted_wait_ms),
        ("started_ms", line.started_ms),
        ("finished_ms", line.finished_ms),
    ];
    for (name, number) in numbers {
        if let Some(n) = number.filter(|n| !(0.0..=MAX_MS).contains(n)) {
            return Err(format!("{name} is {n}; it must be 0 to {MAX_MS}"));
        }
    }
    let in_order = |name: &str, first: f64, then: Option<f64>| match then {
        Some(then) if then < first => Err(format!("{name} is {then}, which is before {first}")),
        _ => Ok(()),
    };
    in_order("started_ms", line.t_ms, line.started_ms)?;
    in_order(
        "finished_ms",
        line.started_ms.unwrap_or(line.t_ms),
        line.finished_ms,
    )?;
    if line.finished_ms.is_some() && line.started_ms.is_none() {
        return Err("finished_ms without started_ms".to_owned());
    }
    if line.decision == Decided::Reject && line.started_ms.is_some() {
        return Err("a rejected task has no started_ms".to_owned());
    }
    Ok(())
}

fn nanos(ms: f64) -> Nanos {
    (ms * MS as f64) as Nanos
}

/// A call as the trace shows it.
struct Seen {
    release: Nanos,
    deadline: Nanos,
    /// Service time of the attempt that was in time.
    served: Option<Nanos>,
    class: usize,
    ghost: bool,
}

/// Judges a trace. `workers`: how many there were; `None` = the most that ran at once.
pub fn judge(mut lines: Vec<Line>, workers: Option<u32>) -> Replay {
    lines.sort_by(|a, b| a.t_ms.total_cmp(&b.t_ms));
    let spans: Vec<(Nanos, Nanos)> = lines.iter().filter_map(span).collect();
    let workers = workers.unwrap_or_else(|| most_at_once(&spans)).max(1);
    let (classes, means) = means(&lines);
    let calls = calls(&lines, &classes);

    let start = lines.first().map_or(0, |line| nanos(line.t_ms));
    let supply = [Supply {
        from: start,
        workers: f64::from(workers),
    }];
    let need = |call: &Seen| call.served.or(means[call.class]);
    let job = |call: &Seen| {
        Some(Job {
            release: call.release,
            deadline: call.deadline,
            need: need(call)?,
        })
    };
    let all: Vec<Job> = calls.iter().filter_map(job).collect();
    let failed: Vec<&Seen> = calls.iter().filter(|call| call.served.is_none()).collect();
    let lost: Vec<Job> = failed.iter().filter_map(|call| job(call)).collect();
    let bound = fluid_edf(&all, &supply).max(1.0);
    let good: f64 = calls
        .iter()
        .filter_map(|call| call.served)
        .map(|t| t as f64)
        .sum();

    let accepted: Vec<&Line> = lines.iter().filter(|l| l.decision != Decided::Reject).collect();
    let missed = accepted.iter().filter(|line| !in_time(line)).count();
    let mut refused = BTreeMap::new();
    for line in lines.iter().filter(|line| line.decision == Decided::Reject) {
        let code = line.code.clone().unwrap_or_else(|| "none".to_owned());
        *refused.entry(code).or_insert(0) += 1;
    }
    let errors: Vec<f64> = accepted
        .iter()
        .filter_map(|line| Some((line.started_ms? - line.t_ms - line.predicted_wait_ms?).abs()))
        .collect();
    let over = |part: usize, all: usize| part as f64 / (all as f64).max(1.0);
    Replay {
        decisions: lines.len() as u64,
        calls: calls.len() as u64,
        accepted: accepted.len() as u64,
        refused,
        false_accepts: over(missed, accepted.len()),
        ghosts: over(failed.iter().filter(|call| call.ghost).count(), calls.len()),
        avoidable_loss: fluid_edf(&lost, &idle(&supply, &spans)) / bound,
        regret: (1.0 - good / bound).max(0.0),
        workers,
        wait_error_ms: errors.iter().sum::<f64>() / (errors.len() as f64).max(1.0),
        unknown_need: (failed.len() - lost.len()) as u64,
    }
}

fn span(line: &Line) -> Option<(Nanos, Nanos)> {
    Some((nanos(line.started_ms?), nanos(line.finished_ms?)))
}

fn in_time(line: &Line) -> bool {
    line.finished_ms
        .is_some_and(|finished| finished <= line.t_ms + line.deadline_ms)
}

fn most_at_once(spans: &[(Nanos, Nanos)]) -> u32 {
    // At equal times an end comes before a start.
    let mut changes: Vec<(Nanos, i32)> = spans
        .iter()
        .flat_map(|(from, to)| [(*from, 1), (*to, -1)])
        .collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    most.unsigned_abs()
}

/// The classes by number, and the mean service time of each of which anything ran.
fn means(lines: &[Line]) -> (HashMap<&str, usize>, Vec<Option<Nanos>>) {
    let mut classes = HashMap::new();
    let mut sums: Vec<(Nanos, u64)> = Vec::new();
    for line in lines {
        let class = *classes.entry(line.class.as_str()).or_insert(sums.len());
        if class == sums.len() {
            sums.push((0, 0));
        }
        if let Some((from, to)) = span(line) {
            sums[class].0 += to - from;
            sums[class].1 += 1;
        }
    }
    let means = sums.into_iter().map(|(sum, n)| sum.checked_div(n)).collect();
    (classes, means)
}

fn calls(lines: &[Line], classes: &HashMap<&str, usize>) -> Vec<Seen> {
    let mut calls: Vec<Seen> = Vec::new();
    let mut known: HashMap<u64, usize> = HashMap::new();
    // The next wait of each tier, from the end: what a refused task of that tier would have met.
    let mut waits = vec![None; lines.len()];
    let mut next: [Option<f64>; 3] = [None; 3];
    for (n, line) in lines.iter().enumerate().rev() {
        let tier = match line.tier {
            TierName::Critical => 0,
            TierName::NonSheddable => 1,
            TierName::Deferrable => 2,
        };
        if let Some(started) = line.started_ms {
            next[tier] = Some(started);
        }
        waits[n] = next[tier];
    }
    for (line, starts) in lines.iter().zip(waits) {
        let release = nanos(line.t_ms);
        let deadline = nanos(line.t_ms + line.deadline_ms);
        let new = calls.len();
        let at = line.call.map_or(new, |call| *known.entry(call).or_insert(new));
        if at == new {
            calls.push(Seen {
                release,
                deadline,
                served: None,
                class: classes.get(line.class.as_str()).copied().unwrap_or(0),
                ghost: false,
            });
        }
        let call = &mut calls[at];
        if let Some((from, to)) = span(line).filter(|_| in_time(line)) {
            call.served = Some(to - from);
        }
        let in_time = starts.is_some_and(|starts| nanos(starts) < call.deadline);
        call.ghost |= line.decision == Decided::Reject && in_time;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<Line>, String> {
        read(text.as_bytes()).map_err(|error| error.to_string())
    }

    const GOOD: &str = r#"{"t_ms":0,"class":"a","tier":"critical","deadline_ms":1000,"decision":"accept","started_ms":0,"finished_ms":500}
{"t_ms":0,"class":"a","tier":"critical","deadline_ms":100,"decision":"accept","started_ms":0,"finished_ms":500}

{"t_ms":100,"class":"a","tier":"deferrable","deadline_ms":900,"decision":"reject","code":"queue_full","other":1}
{"t_ms":200,"class":"a","tier":"deferrable","deadline_ms":2000,"decision":"accept","predicted_wait_ms":200,"started_ms":500,"finished_ms":1000}
"#;

    #[test]
    fn a_trace_is_judged_by_hand_computed_figures() {
        let got = judge(read_text(GOOD).unwrap(), None);
        assert_eq!(
            (got.decisions, got.calls, got.accepted, got.workers),
            (4, 4, 3, 2)
        );
        assert_eq!(got.refused, BTreeMap::from([("queue_full".to_owned(), 1)]));
        assert_eq!(got.false_accepts, 1.0 / 3.0);
        // The refused one could have started at 500 of its 1000 ms.
        assert_eq!(got.ghosts, 0.25);
        assert_eq!(got.wait_error_ms, 100.0);
        // Bound: 500 of the first, nothing of the second (500 in 100 ms is not possible), 500 of the third, 500 of the
        // fourth. Done in time: the first and the fourth.
        assert!((got.regret - 1.0 / 3.0).abs() < 1e-9, "{got:?}");
        // Idle: one worker from 500 to 1000 ms, which holds the 500 ms of the refused one.
        assert!((got.avoidable_loss - 1.0 / 3.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn attempts_of_one_call_count_as_one_call() {
        let text = r#"{"t_ms":0,"class":"a","tier":"critical","deadline_ms":1000,"decision":"reject","call":7}
{"t_ms":300,"class":"a","tier":"critical","deadline_ms":700,"decision":"accept","started_ms":300,"finished_ms":400,"call":7}"#;
        let got = judge(read_text(text).unwrap(), Some(4));
        assert_eq!((got.calls, got.ghosts, got.regret, got.workers), (1, 0.0, 0.0, 4));
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_and_its_reason() {
        let line = |text: &str| read_text(&format!("{GOOD}{text}")).unwrap_err();
        for (text, reason) in [
            ("{", "line 6: EOF while parsing"),
            (r#"{"t_ms":1}"#, "line 6: missing field `class`"),
            (
                r#"{"t_ms":-1,"class":"a","tier":"critical","deadline_ms":1,"decision":"reject"}"#,
                "line 6: t_ms is -1; it must be 0 to",
            ),
            (
                r#"{"t_ms":1,"class":"a","tier":"first","deadline_ms":1,"decision":"reject"}"#,
                "line 6: unknown variant `first`",
            ),
            (
                r#"{"t_ms":9,"class":"a","tier":"critical","deadline_ms":1,"decision":"accept","started_ms":3}"#,
                "line 6: started_ms is 3, which is before 9",
            ),
            (
                r#"{"t_ms":9,"class":"a","tier":"critical","deadline_ms":1,"decision":"accept","finished_ms":10}"#,
                "line 6: finished_ms without started_ms",
            ),
            (
                r#"{"t_ms":9,"class":"a","tier":"critical","deadline_ms":1,"decision":"reject","started_ms":10}"#,
                "line 6: a rejected task has no started_ms",
            ),
        ] {
            let got = line(text);
            assert!(got.starts_with(reason), "{got}");
        }
        let got = line(&"x".repeat(70_000));
        assert!(got.starts_with("line 6: is longer than 65536 bytes"), "{got}");
        assert_eq!(read_text("\n\n").unwrap_err(), "the trace has no decision");
        let error = read(&b"\xff\n"[..]).unwrap_err().to_string();
        assert_eq!(error, "line 1: is not UTF-8");
    }
}
