//! The judge: wire log and replies in, findings out. No clock, no I/O, so every rule has a test on a made-up log.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::seen::CallSeen;
use super::spec::{ClientCase, Expect, First, Gap, Group, Grows, Port};
use super::spread;
use super::wire::{Exchange, WireLog};
use super::{judge_fields, judge_result, timeline};
use crate::still::Stills;
use crate::verdict::Findings;

/// How much before D a request may seem to arrive. Covers the rounding of clocks, nothing else.
pub(crate) const EARLY_TOLERANCE: Duration = Duration::from_millis(2);
/// How many offending calls one check names.
const MAX_NAMED: usize = 3;

/// Everything that a played case left behind.
#[derive(Debug, Clone)]
pub(crate) struct Played {
    /// The calls of each group, in the order of the case.
    pub(crate) groups: Vec<Vec<CallSeen>>,
    pub(crate) log: WireLog,
    pub(crate) started: Instant,
    pub(crate) slack: Duration,
    /// When the program stood still.
    pub(crate) stills: Stills,
    /// What `metrics` said, when it was asked.
    pub(crate) metrics: Option<Value>,
}

/// One call with its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallView<'a> {
    pub(crate) seen: &'a CallSeen,
    pub(crate) requests: &'a [&'a Exchange],
}

impl CallView<'_> {
    /// The time from the head of answer `k` (from 1) to the request after it.
    pub(crate) fn gap(&self, k: usize) -> Option<Duration> {
        let head = self.requests.get(k.checked_sub(1)?)?.head_at?;
        Some(self.requests.get(k)?.arrived.saturating_duration_since(head))
    }
}

/// Judges a played case.
pub(crate) fn judge(case: &ClientCase, played: &Played) -> Findings {
    let mut findings = Findings::default();
    let mut by_path: HashMap<&str, Vec<&Exchange>> = HashMap::new();
    for exchange in &played.log.exchanges {
        by_path.entry(exchange.path.as_str()).or_default().push(exchange);
    }
    let empty: Vec<&Exchange> = Vec::new();
    let mut first_heads: HashMap<&str, Instant> = HashMap::new();
    for (group, calls) in case.calls.iter().zip(&played.groups) {
        let views: Vec<CallView<'_>> = calls
            .iter()
            .map(|seen| CallView {
                seen,
                requests: by_path.get(seen.path.as_str()).unwrap_or(&empty),
            })
            .collect();
        timeline::show(&mut findings, group, &views, played.started);
        timeline::measure(&mut findings, &views);
        judge_group(&mut findings, group, &views, played, &first_heads);
        let heads = views
            .iter()
            .flat_map(|view| view.requests)
            .filter_map(|request| request.head_at);
        if let Some(first) = heads.min() {
            first_heads.insert(&group.name, first);
        }
    }
    judge_wire(&mut findings, case, played);
    findings
}

fn judge_group(
    findings: &mut Findings,
    group: &Group,
    calls: &[CallView<'_>],
    played: &Played,
    first_heads: &HashMap<&str, Instant>,
) {
    let (slack, stills) = (played.slack, &played.stills);
    let Group { name, expect, .. } = group;
    let Expect {
        requests,
        total,
        at_second,
        gaps,
        spread,
        grows,
        first_request,
        fields,
        ..
    } = expect;
    each(
        findings,
        &format!("{name}: requests"),
        &requests.to_string(),
        calls,
        |call| {
            let seen = call.requests.len();
            (requests.holds(seen as u64), seen.to_string())
        },
    );
    if let Some(total) = total {
        let seen: usize = calls.iter().map(|call| call.requests.len()).sum();
        findings.check(
            format!("{name}: requests in all"),
            total.holds(seen as u64),
            total.to_string(),
            seen.to_string(),
        );
    }
    if let Some(range) = at_second {
        each(
            findings,
            &format!("{name}: requests at the second port"),
            &range.to_string(),
            calls,
            |call| {
                let seen = call
                    .requests
                    .iter()
                    .filter(|request| request.port == Port::Second)
                    .count();
                (range.holds(seen as u64), seen.to_string())
            },
        );
    }
    for gap in gaps {
        judge_gap(findings, name, *gap, calls, slack, stills);
    }
    for spread in spread {
        spread::judge_spread(findings, name, *spread, calls, stills);
    }
    if let Some(grows) = grows {
        judge_growth(findings, name, *grows, calls);
    }
    if let Some(first) = first_request {
        judge_first(findings, name, first, calls, played, first_heads);
    }
    judge_fields::judge_fields(findings, name, fields, gaps, calls);
    judge_result::judge_results(findings, group, calls, slack, stills);
}

/// Makes one check out of the same check on every call: it holds when it holds for each.
pub(crate) fn each(
    findings: &mut Findings,
    name: &str,
    expected: &str,
    calls: &[CallView<'_>],
    look: impl Fn(&CallView<'_>) -> (bool, String),
) {
    let looked: Vec<(bool, String)> = calls.iter().map(look).collect();
    let bad: Vec<String> = calls
        .iter()
        .zip(&looked)
        .filter(|(_, (ok, _))| !ok)
        .take(MAX_NAMED)
        .map(|(call, (_, seen))| {
            if calls.len() == 1 {
                seen.clone()
            } else {
                format!("{seen} ({})", call.seen.name())
            }
        })
        .collect();
    if bad.is_empty() {
        let seen = match looked.as_slice() {
            [(_, one)] => one.clone(),
            many => format!("so for each of {} calls", many.len()),
        };
        return findings.check(name, !calls.is_empty(), expected, seen);
    }
    let count = looked.iter().filter(|(ok, _)| !ok).count();
    let seen = if calls.len() == 1 {
        bad.join(", ")
    } else {
        format!(
            "otherwise for {count} of {} calls: {}",
            calls.len(),
            bad.join(", ")
        )
    };
    findings.check(name, false, expected, seen);
}

/// As [`each`], where a standstill may explain what does not hold: `held` says so of one call.
pub(crate) fn each_unless(
    findings: &mut Findings,
    name: &str,
    expected: &str,
    calls: &[CallView<'_>],
    held: impl Fn(&CallView<'_>) -> bool,
    look: impl Fn(&CallView<'_>) -> (bool, String),
) {
    let before = findings.failed().count();
    each(findings, name, expected, calls, &look);
    if findings.failed().count() > before && calls.iter().all(|call| look(call).0 || held(call)) {
        findings.excused += 1;
    }
}

/// Never early: exact but for [`EARLY_TOLERANCE`]. Late: M and the slack of the machine.
fn judge_gap(
    findings: &mut Findings,
    name: &str,
    gap: Gap,
    calls: &[CallView<'_>],
    slack: Duration,
    stills: &Stills,
) {
    let lo = Duration::from_millis(gap.min_ms);
    let hi = Duration::from_millis(gap.max_ms) + slack;
    let expected = format!(
        "{} to {} ms (+ {} ms slack)",
        gap.min_ms,
        gap.max_ms,
        slack.as_millis()
    );
    let fits = |seen: Duration| seen + EARLY_TOLERANCE >= lo && seen <= hi;
    // Too late only, and each time right after a standstill.
    let held = |call: &CallView<'_>| {
        let ks = gap.k.map_or(1..call.requests.len(), |k| k..k + 1);
        ks.into_iter().all(|k| match (call.gap(k), call.requests.get(k)) {
            (Some(seen), Some(request)) => {
                // The standstill began while there was still time: one of 20 ms does not explain being five seconds late.
                let held = stills.before(request.arrived).is_some_and(|from| {
                    let stood = request.arrived.saturating_duration_since(from);
                    seen.saturating_sub(stood) <= hi
                });
                fits(seen) || (seen > hi && held)
            }
            _ => gap.optional,
        })
    };
    let one = |call: &CallView<'_>, k: usize| match call.gap(k) {
        Some(seen) => (fits(seen), ms(seen)),
        None => (gap.optional, "no such gap".to_owned()),
    };
    let every = |call: &CallView<'_>| {
        let gaps: Vec<Duration> = (1..call.requests.len()).filter_map(|k| call.gap(k)).collect();
        let shown = gaps.iter().map(|gap| ms(*gap)).collect::<Vec<_>>().join(", ");
        match gaps.is_empty() {
            true => (false, "no gap".to_owned()),
            false => (gaps.iter().all(|gap| fits(*gap)), shown),
        }
    };
    let title = match gap.k {
        Some(k) => format!("{name}: gap[{k}]"),
        None => format!("{name}: every gap"),
    };
    each_unless(findings, &title, &expected, calls, held, |call| match gap.k {
        Some(k) => one(call, k),
        None => every(call),
    });
}

fn judge_growth(findings: &mut Findings, name: &str, grows: Grows, calls: &[CallView<'_>]) {
    let mean = |k: usize| {
        let gaps: Vec<Duration> = calls.iter().filter_map(|call| call.gap(k)).collect();
        u32::try_from(gaps.len())
            .ok()
            .filter(|n| *n > 0)
            .map(|n| gaps.iter().sum::<Duration>() / n)
    };
    let (from, to) = (mean(grows.from), mean(grows.to));
    findings.check(
        format!("{name}: the mean gap grows"),
        from.is_some() && from < to,
        format!("gap[{}] longer than gap[{}] on average", grows.to, grows.from),
        format!(
            "{} against {}",
            to.map_or("none".to_owned(), ms),
            from.map_or("none".to_owned(), ms)
        ),
    );
}

fn judge_first(
    findings: &mut Findings,
    name: &str,
    first: &First,
    calls: &[CallView<'_>],
    played: &Played,
    first_heads: &HashMap<&str, Instant>,
) {
    let slack = played.slack;
    let lo = Duration::from_millis(first.min_ms);
    let hi = Duration::from_millis(first.max_ms) + slack;
    let title = format!("{name}: first request after {}'s first answer", first.after);
    let expected = format!(
        "{} to {} ms (+ {} ms slack)",
        first.min_ms,
        first.max_ms,
        slack.as_millis()
    );
    let head = first_heads.get(first.after.as_str()).copied();
    let held = |call: &CallView<'_>| match (head, call.requests.first()) {
        (Some(head), Some(request)) => {
            let seen = request.arrived.saturating_duration_since(head);
            seen > hi && seen.saturating_sub(played.stills.within(head, request.arrived)) <= hi
        }
        _ => false,
    };
    each_unless(findings, &title, &expected, calls, held, |call| {
        match (head, call.requests.first()) {
            (Some(head), Some(request)) => {
                let seen = request.arrived.saturating_duration_since(head);
                (seen + EARLY_TOLERANCE >= lo && seen <= hi, ms(seen))
            }
            _ => (false, "no request".to_owned()),
        }
    });
    if first.spread {
        spread::judge_slots(findings, name, calls, &played.stills);
    }
}

fn judge_wire(findings: &mut Findings, case: &ClientCase, played: &Played) {
    let log = &played.log;
    findings.check(
        "wire: nothing else was asked for",
        log.strays.is_empty() && log.dropped == 0,
        "no request outside the calls of the case",
        log.told_strays(),
    );
    let mut count = |name: &str, range: Option<crate::case::Range>, seen: u64| {
        if let Some(range) = range {
            findings.check(name, range.holds(seen), range.to_string(), seen.to_string());
        }
    };
    count(
        "wire: connections to the main port",
        case.connections,
        log.main.accepted,
    );
    count(
        "wire: connections open at once",
        case.connections_open,
        log.main.most_open,
    );
    count(
        "wire: connections to the second port",
        case.second_connections,
        log.second.accepted,
    );
    if let Some(most) = case.body_bytes_max {
        let seen = log
            .exchanges
            .iter()
            .map(|exchange| exchange.body_written)
            .max()
            .unwrap_or(0);
        findings.check(
            "wire: bytes taken of one body",
            seen <= most,
            format!("at most {most}"),
            seen.to_string(),
        );
    }
    for (path, range) in &case.metrics {
        let value = played
            .metrics
            .as_ref()
            .and_then(|all| path.split('.').try_fold(all, |at, key| at.get(key)));
        let seen = value.and_then(Value::as_u64);
        findings.check(
            format!("metrics: {path}"),
            seen.is_some_and(|seen| range.holds(seen)),
            range.to_string(),
            value.map_or("absent".to_owned(), Value::to_string),
        );
    }
}

/// A length with a tenth of a ms.
pub(crate) fn ms(length: Duration) -> String {
    format!("{:.1} ms", length.as_secs_f64() * 1000.0)
}
