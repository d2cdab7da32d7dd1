//! What a caller of a relay gets: the rules that hold for every answer, and what a case says of one.

use std::time::Duration;

use serde_json::Value;
use sfv::{BareItem, Dictionary, ListEntry, Parser};

use super::judge::{View, with_slack};
use super::spec::AnswerExpect;
use crate::case::Range;
use crate::client_drive::script::Reject;
use crate::client_drive::wire::Exchange;
use crate::server_drive::message::{self, Seen};
use crate::server_drive::reject::{Reading, SIGNAL};
use crate::server_drive::rules;
use crate::verdict::Findings;
use crate::words::{each_of, or_none};

/// How much smaller than exact a passed-up delay may be: the tolerance of "never early" (ADAPTER.md).
const TOLERANCE: Duration = Duration::from_millis(2);
/// The rules of a server's rejects that a relay's do not have: 504 is a relay's own status (SRV-02), and it publishes no
/// quota that it was not told (SRV-23).
const NOT_A_RELAYS: [&str; 2] = ["SRV-02", "SRV-23"];

/// What holds for the answer of every call: it comes; if it is an overload, it is well-formed; and if dependencies
/// refused, it is no wider than what they said.
pub(super) fn always(view: &View<'_>, findings: &mut Findings) {
    let name = |what: &str| format!("{}: {what}", view.name());
    let seen = match &view.call.answer {
        Ok(seen) => seen,
        Err(error) => {
            return findings.check(name("answer"), false, "a complete HTTP answer", error.to_string());
        }
    };
    let reading = Reading::of(seen);
    let rejects = view.rejects().unwrap_or_default();
    if !reading.is_reject(seen.status) {
        // Where every dependency's own word is known and one of them refused, the relay may not swallow it.
        if !rejects.is_empty() && !view.case.replicas {
            findings.check(
                name("answer"),
                false,
                "an overload, as a dependency's made it fail",
                line(seen),
            );
        }
        return;
    }
    let broken: Vec<String> = rules::broken(&exchange(view, seen))
        .into_iter()
        .filter(|broken| !NOT_A_RELAYS.contains(&broken.rule))
        .filter(|broken| !(view.case.setup.trusted_callers && broken.rule == "SEC-02"))
        .map(|broken| format!("{}: {}", broken.rule, broken.why))
        .collect();
    let told = if broken.is_empty() {
        "it is".to_owned()
    } else {
        broken.join("; ")
    };
    findings.check(
        name("overload"),
        broken.is_empty(),
        "a well-formed contract response",
        told,
    );
    if hop(&reading) > 0 && !rejects.is_empty() {
        no_wider(view, &reading, &rejects, findings);
    }
}

/// INT-02, INT-03, INT-07 and INT-09 for refusals whose every word is known.
fn no_wider(view: &View<'_>, reading: &Reading, rejects: &[(&Reject, &Exchange)], findings: &mut Findings) {
    let name = |what: &str| format!("{}: {what}", view.name());
    // Of several, the contract does not say whose hop it is.
    let hops = rejects.iter().map(|(reject, _)| reject.hop.unwrap_or(0));
    let next = |hop: Option<u64>| (hop.unwrap_or(0) + 1).min(16);
    let wanted = Range {
        lo: next(hops.clone().min()),
        hi: next(hops.max()),
    };
    findings.check(
        name("hop"),
        wanted.holds(hop(reading)),
        format!("received hop + 1 = {wanted}"),
        hop(reading).to_string(),
    );
    let scope = reading
        .signal
        .signal()
        .and_then(|signal| signal.scope.clone())
        .unwrap_or_else(|| "request".to_owned());
    findings.check(name("scope"), scope == "request", "request", scope);
    let words = [
        ("retry", reading.retry(), &["after", "elsewhere", "no"][..]),
        ("applied", reading.applied(), &["no", "maybe"][..]),
    ];
    for (key, seen, order) in words {
        let strictness = |word: &str| order.iter().position(|known| *known == word);
        let said = |reject: &Reject| match key {
            "retry" => strictness(&reject.retry),
            _ => strictness(&reject.applied),
        };
        let strictest = rejects.iter().filter_map(|(reject, _)| said(reject)).max();
        let held = seen.and_then(strictness) >= strictest;
        let wanted = strictest.and_then(|at| order.get(at)).unwrap_or(&"any");
        findings.check(
            name(key),
            held,
            format!("{wanted} or stricter"),
            seen.unwrap_or("absent").to_owned(),
        );
    }
    never_early(view, reading, rejects, findings);
}

/// The delay that goes out is at least what was left of the largest one when the answer's head was there: the relay
/// cannot have had it for longer than from its writing to then.
fn never_early(
    view: &View<'_>,
    reading: &Reading,
    rejects: &[(&Reject, &Exchange)],
    findings: &mut Findings,
) {
    let Some(head) = view.call.times.head else { return };
    let left = rejects.iter().filter_map(|(reject, exchange)| {
        let age = head.saturating_duration_since(exchange.head_at?);
        Some(Duration::from_millis(reject.after?).saturating_sub(age))
    });
    let Some(least) = left.max() else { return };
    let seen = reading.after().and_then(|ms| u64::try_from(ms).ok());
    findings.check(
        format!("{}: after", view.name()),
        seen.is_some_and(|ms| ms >= 1 && Duration::from_millis(ms) + TOLERANCE >= least),
        format!(
            "at least {} ms, which are left of what was received, and 1",
            least.as_millis()
        ),
        super::judge::text(seen),
    );
}

/// What the case says of this answer.
pub(super) fn expected(view: &View<'_>, expect: &AnswerExpect, findings: &mut Findings) {
    let name = |what: &str| format!("{}: {what}", view.name());
    let Ok(seen) = &view.call.answer else { return }; // `always` has said so
    let reading = Reading::of(seen);
    let mut check = |what: &str, ok: bool, wanted: String, got: String| {
        findings.check(name(what), ok, wanted, got);
    };
    if !expect.status.is_empty() {
        let held = expect.status.contains(&seen.status);
        check("status", held, each_of(&expect.status), line(seen));
    }
    if !expect.code.is_empty() {
        let code = reading.code().unwrap_or("absent").to_owned();
        check(
            "code",
            expect.code.contains(&code),
            expect.code.join(" or "),
            code,
        );
    }
    let words = [
        ("retry", &expect.retry, reading.retry()),
        ("applied", &expect.applied, reading.applied()),
    ];
    for (key, wanted, got) in words {
        if let Some(wanted) = wanted {
            let held = got == Some(wanted.as_str());
            check(
                key,
                held,
                wanted.clone(),
                got.map_or("absent".to_owned(), str::to_owned),
            );
        }
    }
    if let Some(range) = expect.hop {
        let got = hop(&reading);
        check("hop", range.holds(got), range.to_string(), got.to_string());
    }
    let times = [
        ("after", expect.after_ms, reading.after()),
        ("max", expect.max_ms, reading.max()),
    ];
    for (key, range, got) in times {
        if let Some(range) = range {
            let got = got.and_then(|ms| u64::try_from(ms).ok());
            check(
                key,
                got.is_some_and(|ms| range.holds(ms)),
                range.to_string(),
                super::judge::text(got),
            );
        }
    }
    if expect.no_max {
        let got = reading.max();
        check("max", got.is_none(), "absent".to_owned(), or_none(got));
    }
    contents(seen, &reading, expect, &mut check);
    if let (Some(range), Some(head)) = (expect.elapsed_ms, view.call.times.head) {
        let sent = view.call.times.sent;
        let got = head.saturating_duration_since(sent);
        let stood = view.stills.within(sent, head);
        let whole = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let range = with_slack(range, view.slack);
        findings.check_unless(
            whole(got) > range.hi && whole(got.saturating_sub(stood)) <= range.hi,
            name("time to the head"),
            range.holds(whole(got)),
            format!("{range} ms"),
            format!("{} ms", whole(got)),
        );
    }
}

/// Keys, members, fields and text.
fn contents(
    seen: &Seen,
    reading: &Reading,
    expect: &AnswerExpect,
    check: &mut impl FnMut(&str, bool, String, String),
) {
    let signal = seen.lines(SIGNAL).into_iter().next().unwrap_or_default();
    for (key, value) in &expect.keys {
        let wanted = member(&format!("{key}={value}"), key);
        let got = member(&signal, key);
        check(
            &format!("key {key}"),
            got.is_some() && got == wanted,
            value.clone(),
            signal.clone(),
        );
    }
    for (name, value) in &expect.members {
        let got = reading.body.member(name).cloned().unwrap_or(Value::Null);
        check(
            &format!("member {name}"),
            got == *value,
            value.to_string(),
            got.to_string(),
        );
    }
    for name in &expect.absent {
        let there = member(&signal, name).is_some() || reading.body.member(name).is_some();
        let body = String::from_utf8_lossy(&seen.body);
        check(name, !there, "absent".to_owned(), format!("{signal}; {body}"));
    }
    for (name, value) in &expect.headers {
        let got = seen.lines(name);
        check(name, got == [value.clone()], value.clone(), each_of(&got));
    }
    if expect.plain {
        let fields = [SIGNAL, "retry-after", "retry-after-ms"];
        let there: Vec<&str> = fields
            .into_iter()
            .filter(|name| !seen.lines(name).is_empty())
            .collect();
        let code = reading.body.text("code");
        let held = there.is_empty() && code.is_none();
        check(
            "contract fields",
            held,
            "none".to_owned(),
            format!("fields {}, code {}", each_of(there), or_none(code)),
        );
    }
    if let Some(body) = &expect.body {
        let got = String::from_utf8_lossy(&seen.body).into_owned();
        check("body", got == *body, body.clone(), got);
    }
}

/// The member of a dictionary, with its parameters.
fn member(line: &str, key: &str) -> Option<(BareItem, String)> {
    let dictionary: Dictionary = Parser::new(line).parse().ok()?;
    match dictionary.get(key)? {
        ListEntry::Item(item) => Some((item.bare_item.clone(), format!("{:?}", item.params))),
        ListEntry::InnerList(_) => None,
    }
}

fn hop(reading: &Reading) -> u64 {
    let hop = reading.signal.signal().and_then(|signal| signal.hop);
    let hop = hop.or_else(|| reading.body.integer("hop")).unwrap_or(0);
    u64::try_from(hop).unwrap_or(0)
}

/// The exchange as the rules for rejects want it.
fn exchange(view: &View<'_>, seen: &Seen) -> message::Exchange {
    message::Exchange {
        label: view.name().to_owned(),
        ask: view.call.ask.clone(),
        sent_at: Duration::ZERO,
        head_after: Duration::ZERO,
        done_after: Duration::ZERO,
        answer: Ok(seen.clone()),
        forced: None,
    }
}

/// An answer in one line.
pub(super) fn line(seen: &Seen) -> String {
    let fields = ["retry-after", SIGNAL];
    let lines: Vec<String> = fields
        .into_iter()
        .flat_map(|name| {
            seen.lines(name)
                .into_iter()
                .map(move |line| format!("{name}: {line}"))
        })
        .collect();
    format!("{} [{}]", seen.status, lines.join("; "))
}
