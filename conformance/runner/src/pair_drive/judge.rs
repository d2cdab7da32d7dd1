//! Holds the two to each other: what the server said is what the client must have done. A pure function over both
//! witnesses.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use super::spec::{PairCase, PairGroup};
use crate::client_drive::judge::{CallView, EARLY_TOLERANCE, Played, each, ms};
use crate::client_drive::seen::Reply;
use crate::client_drive::spec::{Expect, Group, Port, Start, Who};
use crate::client_drive::wire::Exchange;
use crate::client_drive::{judge_result, timeline};
use crate::server_drive::message::Seen;
use crate::server_drive::reject::Reading;
use crate::verdict::{Findings, NotRun};
use crate::words::or_none;

/// The widest window that a client may make up for itself above D (CONTRACT section 5).
const OWN_WINDOW: Duration = Duration::from_secs(5);
/// The least width of a window.
const LEAST_WIDTH: Duration = Duration::from_millis(50);
/// The longest first waits without a hint: two growths of the backoff, 1 s and 2 s, and room for a third.
const BLIND: Duration = Duration::from_secs(20);

/// Judges a case. `answers` are the server's, index by index of the wire log.
pub(super) fn judge(case: &PairCase, played: &Played, answers: &[Option<Seen>]) -> Result<Findings, NotRun> {
    let mut findings = Findings::default();
    let mut by_path: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, exchange) in played.log.exchanges.iter().enumerate() {
        by_path.entry(&exchange.path).or_default().push(index);
    }
    let mut rejects = 0_u64;
    for (group, calls) in case.calls.iter().zip(&played.groups) {
        let empty = Vec::new();
        let indices: Vec<&Vec<usize>> = calls
            .iter()
            .map(|seen| by_path.get(seen.path.as_str()).unwrap_or(&empty))
            .collect();
        let requests: Vec<Vec<&Exchange>> = indices
            .iter()
            .map(|of| of.iter().map(|index| &played.log.exchanges[*index]).collect())
            .collect();
        let said: Vec<Vec<Option<Said>>> = indices
            .iter()
            .map(|of| {
                of.iter()
                    .map(|index| answers.get(*index)?.as_ref().and_then(Said::of))
                    .collect()
            })
            .collect();
        rejects += said.iter().flatten().flatten().count() as u64;
        let views: Vec<CallView<'_>> = calls
            .iter()
            .zip(&requests)
            .map(|(seen, requests)| CallView { seen, requests })
            .collect();
        let as_group = group.as_client_group();
        timeline::show(&mut findings, &as_group, &views, played.started);
        timeline::measure(&mut findings, &views);
        obeyed(&mut findings, group, &views, &said, played.slack);
        judge_result::judge_results(&mut findings, &as_group, &views, played.slack, &played.stills);
        truthful(&mut findings, group, &views, &said);
        if let Some(range) = group.requests {
            let title = format!("{}: requests", group.name);
            each(&mut findings, &title, &range.to_string(), &views, |call| {
                let seen = call.requests.len();
                (range.holds(seen as u64), seen.to_string())
            });
        }
    }
    findings.check(
        "wire: nothing else was asked for",
        played.log.strays.is_empty() && played.log.dropped == 0,
        "no request outside the calls of the case",
        played.log.told_strays(),
    );
    if rejects < case.rejects {
        return Err(NotRun::Untestable(format!(
            "{rejects} rejects crossed the wire; at least {} are needed to show anything: this traffic does not overload \
             this server",
            case.rejects
        )));
    }
    Ok(findings)
}

impl PairGroup {
    /// The same group for the parts of the judge that clients are judged by.
    fn as_client_group(&self) -> Group {
        Group {
            name: self.name.clone(),
            count: self.count,
            start: Start::Together,
            at_ms: None,
            after: None,
            client: Who::Shared,
            port: Port::Main,
            request: self.request.clone(),
            incoming: None,
            cancel_at_ms: None,
            script: Vec::new(),
            expect: Expect {
                result: self.result.clone(),
                ..Expect::default()
            },
        }
    }
}

/// What a reject really said.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Said {
    status: u16,
    code: Option<String>,
    retry: Option<String>,
    after: Duration,
    max: Option<Duration>,
}

impl Said {
    fn of(seen: &Seen) -> Option<Self> {
        let reading = Reading::of(seen);
        if !reading.is_reject(seen.status) {
            return None;
        }
        let length = |ms: i64| u64::try_from(ms).ok().map(Duration::from_millis);
        let seconds = seen
            .lines("retry-after")
            .first()
            .and_then(|text| text.parse().ok());
        let after = reading
            .after()
            .and_then(length)
            .or(seconds.map(Duration::from_secs));
        Some(Self {
            status: seen.status,
            code: reading.code().map(str::to_owned),
            retry: reading.retry().map(str::to_owned),
            after: after.unwrap_or_default(),
            max: reading.max().and_then(length),
        })
    }

    /// The window in which the next request may come.
    fn window(&self) -> (Duration, Duration) {
        let hi = match self.max {
            Some(max) => max.max(self.after + LEAST_WIDTH),
            None if self.after.is_zero() => BLIND,
            None => self.after + OWN_WINDOW,
        };
        (self.after, hi)
    }
}

/// Every reject was obeyed: no request after a no, and every other one inside the window that was really given.
fn obeyed(
    findings: &mut Findings,
    group: &PairGroup,
    calls: &[CallView<'_>],
    said: &[Vec<Option<Said>>],
    slack: Duration,
) {
    let mut obeyed = 0_usize;
    let mut bad = Vec::new();
    for (call, said) in calls.iter().zip(said) {
        for (k, said) in said
            .iter()
            .enumerate()
            .filter_map(|(k, said)| Some((k, said.as_ref()?)))
        {
            let Some(gap) = call.gap(k + 1) else { continue };
            let (lo, hi) = said.window();
            if said.retry.as_deref() == Some("no") {
                bad.push(format!("{} came back after retry=no", call.seen.name()));
            } else if gap + EARLY_TOLERANCE < lo || gap > hi + slack {
                bad.push(format!(
                    "{} came back after {}, asked for {} to {}",
                    call.seen.name(),
                    ms(gap),
                    ms(lo),
                    ms(hi)
                ));
            } else {
                obeyed += 1;
            }
        }
    }
    let seen = match bad.first() {
        None => format!("{obeyed} retries, each inside its window"),
        Some(first) => format!("{} were not; the first: {first}", bad.len()),
    };
    findings.check(
        format!("{}: every reject is obeyed", group.name),
        bad.is_empty(),
        "the next request inside the window that the reject gave, and none after retry=no",
        seen,
    );
}

/// What the client says at the end is what the server said last.
fn truthful(findings: &mut Findings, group: &PairGroup, calls: &[CallView<'_>], said: &[Vec<Option<Said>>]) {
    let by_name: HashMap<&str, &[Option<Said>]> = calls
        .iter()
        .zip(said)
        .map(|(call, said)| (call.seen.name(), said.as_slice()))
        .collect();
    let title = format!("{}: the reply is what crossed the wire", group.name);
    let expected = "the requests that were seen, and the last reject's status and code";
    each(findings, &title, expected, calls, |call| {
        let Reply::Said(result) = &call.seen.reply else {
            return (false, "no proper reply".to_owned());
        };
        let attempts = result.get("attempts").and_then(Value::as_u64);
        if attempts != Some(call.requests.len() as u64) {
            return (
                false,
                format!(
                    "{} attempts said, {} requests seen",
                    or_none(attempts),
                    call.requests.len()
                ),
            );
        }
        let overloaded = result.get("kind").and_then(Value::as_str) == Some("overloaded");
        let said = by_name.get(call.seen.name()).copied().unwrap_or_default();
        let last = said.last().and_then(Option::as_ref);
        match (overloaded, last) {
            (true, _) if ran_out(result) || last.is_some() => {
                let status = result.get("status").and_then(Value::as_u64);
                let code = result.get("code").and_then(Value::as_str);
                let same =
                    |said: &&Said| status == Some(u64::from(said.status)) && code == said.code.as_deref();
                // A call that ran out of time while an attempt was under way never heard that attempt's answer.
                let heard = if ran_out(result) {
                    said.iter().flatten().any(|said| same(&said)) || said.iter().flatten().next().is_none()
                } else {
                    last.as_ref().is_some_and(same)
                };
                let words = |status: Option<u64>, code: Option<&str>| {
                    format!("status {}, code {}", or_none(status), or_none(code))
                };
                let sent = last.map(|last| words(Some(u64::from(last.status)), last.code.as_deref()));
                (
                    heard,
                    format!("{} said; sent was {}", words(status, code), or_none(sent)),
                )
            }
            // Held back by a reject to another call: then nothing of its own was on the wire.
            (true, _) => (
                call.requests.is_empty(),
                "overloaded, but no reject crossed the wire".to_owned(),
            ),
            (false, Some(last)) => (
                false,
                format!("no overload, but the last answer was {}", last.status),
            ),
            (false, None) => (true, "so".to_owned()),
        }
    });
}

fn ran_out(result: &serde_json::Map<String, Value>) -> bool {
    result.get("why").and_then(Value::as_str) == Some("deadline_exceeded")
}
