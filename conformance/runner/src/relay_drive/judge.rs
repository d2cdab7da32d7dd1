//! Compares what the dependencies saw and said with what the callers got. A pure function over both.

use std::time::Duration;

use super::answer;
use super::spec::{AnswerExpect, Group, RelayCase, Seen};
use super::{CallSeen, Played};
use crate::case::Range;
use crate::client_drive::script::{Reject, Repeat, Step};
use crate::client_drive::wire::Exchange;
use crate::still::Stills;
use crate::verdict::Findings;
use crate::words::{each_of, each_or_none};

/// Calls of a group that are shown in the timeline.
const MAX_SHOWN: usize = 5;

/// One call from both ends.
pub(super) struct View<'a> {
    pub(super) case: &'a RelayCase,
    pub(super) group: &'a Group,
    pub(super) call: &'a CallSeen,
    /// Its requests at each dependency, in order.
    pub(super) requests: Vec<Vec<&'a Exchange>>,
    pub(super) slack: Duration,
    pub(super) stills: &'a Stills,
}

/// What a dependency said last to a call, and when.
pub(super) struct Said<'a> {
    pub(super) step: &'a Step,
    pub(super) exchange: &'a Exchange,
}

impl View<'_> {
    /// The last answer of each dependency that was asked.
    pub(super) fn said(&self) -> Vec<Said<'_>> {
        let mut said = Vec::new();
        for (requests, script) in self.requests.iter().zip(self.group.scripts()) {
            if let Some(exchange) = requests.last().copied()
                && let Some(step) = played(script, requests.len())
            {
                said.push(Said { step, exchange });
            }
        }
        said
    }

    /// The refusals among them; `None` where one was given in another way, of which a case says itself what follows.
    pub(super) fn rejects(&self) -> Option<Vec<(&Reject, &Exchange)>> {
        let mut rejects = Vec::new();
        for said in self.said() {
            match (&said.step.reject, said.step.status) {
                (Some(reject), _) => rejects.push((reject, said.exchange)),
                (None, Some(200..=299)) => {}
                _ => return None,
            }
        }
        Some(rejects)
    }

    pub(super) fn name(&self) -> &str {
        self.call.path.rsplit('/').next().unwrap_or(&self.call.path)
    }
}

/// The step that the n-th request was answered by; `None` past the end of the script.
pub(super) fn played(script: &[Step], n: usize) -> Option<&Step> {
    let mut left = n;
    for step in script {
        match step.repeat {
            Repeat::Word(_) => return Some(step),
            Repeat::Times(times) if left <= times => return Some(step),
            Repeat::Times(times) => left -= times,
        }
    }
    None
}

/// Judges a case.
pub(super) fn judge(case: &RelayCase, played: &Played) -> Findings {
    let mut findings = Findings::default();
    for (group, calls) in case.calls.iter().zip(&played.groups) {
        let views: Vec<View<'_>> = calls.iter().map(|call| view(case, group, call, played)).collect();
        for view in &views {
            dependencies(view, &mut findings);
            answer::always(view, &mut findings);
            if let Some(expect) = &group.expect.answer {
                answer::expected(view, expect, &mut findings);
            }
        }
        shares(group, &views, &mut findings);
        show(&mut findings, &views, played);
    }
    for (index, (range, log)) in case.requests_in_all.iter().zip(&played.logs).enumerate() {
        let seen = log.exchanges.len() as u64;
        let wanted = format!("{range} requests of all calls");
        findings.check(
            format!("dependency {index}"),
            range.holds(seen),
            wanted,
            seen.to_string(),
        );
    }
    for (index, log) in played.logs.iter().enumerate() {
        findings.check(
            format!("dependency {index}: strays"),
            log.strays.is_empty() && log.dropped == 0,
            "only requests that a call explains",
            log.told_strays(),
        );
    }
    findings
}

fn view<'a>(case: &'a RelayCase, group: &'a Group, call: &'a CallSeen, played: &'a Played) -> View<'a> {
    let of = |exchange: &&Exchange| exchange.path == call.path;
    View {
        case,
        group,
        call,
        requests: played
            .logs
            .iter()
            .map(|log| log.exchanges.iter().filter(of).collect())
            .collect(),
        slack: played.slack,
        stills: &played.stills,
    }
}

/// How many calls got which of several answers.
fn shares(group: &Group, views: &[View<'_>], findings: &mut Findings) {
    for share in &group.expect.answers {
        let fits = |view: &&View<'_>| {
            let mut probe = Findings::default();
            answer::expected(view, &share.answer, &mut probe);
            probe.failed().next().is_none()
        };
        let seen = views.iter().filter(fits).count() as u64;
        let wanted = format!("{} calls get {}", share.calls, shown(&share.answer));
        let name = format!("{}: answers", group.name);
        findings.check(name, share.calls.holds(seen), wanted, seen.to_string());
    }
}

fn shown(answer: &AnswerExpect) -> String {
    let any = |told: String| if told == "none" { "any".to_owned() } else { told };
    let (status, code) = (each_of(&answer.status), each_of(&answer.code));
    format!("status {}, code {}", any(status), any(code))
}

/// What each dependency saw: what the case says, and what holds for every relay.
fn dependencies(view: &View<'_>, findings: &mut Findings) {
    for (index, (expect, requests)) in view
        .group
        .expect
        .dependencies
        .iter()
        .zip(&view.requests)
        .enumerate()
    {
        let name = |what: &str| format!("{}: dependency {index}: {what}", view.name());
        if let Some(range) = expect.requests {
            let seen = requests.len() as u64;
            findings.check(
                name("requests"),
                range.holds(seen),
                range.to_string(),
                seen.to_string(),
            );
        }
        for (k, request) in (1..).zip(requests) {
            carried(view, &name(&format!("request {k}")), k, request, findings);
            fields(expect, &name(&format!("request {k}")), request, findings);
        }
        if !expect.attempts.is_empty() {
            let seen: Vec<_> = requests
                .iter()
                .map(|request| request.number("overload-attempt"))
                .collect();
            let wanted: Vec<_> = expect.attempts.iter().copied().map(Some).collect();
            findings.check(
                name("Overload-Attempt"),
                seen == wanted,
                each_or_none(wanted),
                each_or_none(seen),
            );
        }
    }
}

/// INT-11, INT-13 and INT-14, for every request of every case.
fn carried(view: &View<'_>, name: &str, k: u64, request: &Exchange, findings: &mut Findings) {
    let ask = &view.group.request;
    if let Some(deadline) = ask.deadline_ms {
        let most = deadline.saturating_sub(view.case.setup.delay_ms);
        let seen = request.number("overload-deadline-ms");
        findings.check(
            format!("{name}: Overload-Deadline-Ms"),
            seen.is_some_and(|ms| ms > 0 && ms <= most),
            format!("1 to {most}: what was received less what has passed"),
            text(seen),
        );
    }
    // Without a tier, the incoming one is the default: deferrable.
    let effective = rank(ask.tier.as_deref().unwrap_or("deferrable"));
    let seen = request.one_field("overload-tier");
    findings.check(
        format!("{name}: Overload-Tier"),
        seen.is_none_or(|tier| rank(tier) <= effective),
        format!(
            "none above {}",
            ask.tier.as_deref().unwrap_or("deferrable (the default)")
        ),
        seen.unwrap_or("absent").to_owned(),
    );
    if !view.case.replicas {
        let attempt = ask.attempt.unwrap_or(1).max(k);
        let seen = request.number("overload-attempt");
        findings.check(
            format!("{name}: Overload-Attempt"),
            seen == Some(attempt),
            format!("max(incoming, own) = {attempt}"),
            text(seen),
        );
    }
}

/// What the case says of every request.
fn fields(expect: &Seen, name: &str, request: &Exchange, findings: &mut Findings) {
    let one = |field: &str| request.one_field(field).unwrap_or("absent").to_owned();
    if let Some(range) = expect.deadline_ms {
        let seen = request.number("overload-deadline-ms");
        let held = seen.is_some_and(|ms| range.holds(ms));
        findings.check(
            format!("{name}: Overload-Deadline-Ms"),
            held,
            range.to_string(),
            text(seen),
        );
    }
    if !expect.tier.is_empty() {
        let seen = request.one_field("overload-tier").unwrap_or("none").to_owned();
        findings.check(
            format!("{name}: Overload-Tier"),
            expect.tier.contains(&seen),
            expect.tier.join(" or "),
            seen,
        );
    }
    let texts = [
        ("overload-tenant", &expect.tenant),
        ("idempotency-key", &expect.key),
    ];
    for (field, wanted) in texts {
        if let Some(wanted) = wanted {
            let seen = one(field);
            let bare = seen.trim_matches('"') == wanted;
            findings.check(format!("{name}: {field}"), bare, wanted.clone(), seen);
        }
    }
    for field in &expect.absent {
        let seen: Vec<&str> = request.field(field).collect();
        findings.check(
            format!("{name}: {field}"),
            seen.is_empty(),
            "absent",
            each_of(seen),
        );
    }
    if let Some(body) = &expect.body {
        let seen = String::from_utf8_lossy(&request.body).into_owned();
        findings.check(format!("{name}: body"), seen == *body, body.clone(), seen);
    }
}

pub(super) fn text(seen: Option<u64>) -> String {
    seen.map_or("absent or no number".to_owned(), |n| n.to_string())
}

/// Importance: critical is the highest, and what is no tier is the lowest.
fn rank(tier: &str) -> u8 {
    match tier {
        "critical" => 3,
        "non-sheddable" => 2,
        "deferrable" => 1,
        _ => 0,
    }
}

/// The upper bound of a range, with the run's slack.
pub(super) fn with_slack(range: Range, slack: Duration) -> Range {
    let slack = u64::try_from(slack.as_millis()).unwrap_or(u64::MAX);
    Range {
        lo: range.lo,
        hi: range.hi.saturating_add(slack),
    }
}

fn show(findings: &mut Findings, views: &[View<'_>], played: &Played) {
    let at = |instant: std::time::Instant| instant.saturating_duration_since(played.started).as_millis();
    for view in views.iter().take(MAX_SHOWN) {
        let call = view.call;
        findings.saw(format!(
            "{:>7} ms  {} asked: {} {:?}",
            at(call.times.sent),
            view.name(),
            call.ask.method,
            call.ask.headers
        ));
        for (index, requests) in view.requests.iter().enumerate() {
            for request in requests {
                let own: Vec<String> = request
                    .fields
                    .iter()
                    .filter(|(name, _)| name.starts_with("overload-") || name == "idempotency-key")
                    .map(|(name, value)| format!("{name}: {value}"))
                    .collect();
                let line = format!("dependency {index} asked [{}]", own.join("; "));
                findings.saw(format!("{:>7} ms    {line}", at(request.arrived)));
                let when = request
                    .head_at
                    .map_or("-".to_owned(), |head| at(head).to_string());
                findings.saw(format!("{when:>7} ms    it answered {}", request.answered));
            }
        }
        let said = match &call.answer {
            Ok(seen) => answer::line(seen),
            Err(error) => error.to_string(),
        };
        findings.saw(format!("{:>7} ms  answered {said}", at(call.times.done)));
    }
    if views.len() > MAX_SHOWN {
        findings.saw(format!(
            "            ... and {} calls more",
            views.len() - MAX_SHOWN
        ));
    }
}
