//! Turns what was seen into checks with an expectation and a sighting. Everything here is a function of recorded
//! evidence, so that recorded answers, good and bad, can be judged in a test without a server.
//!
//! A check that found nothing to look at does not hold: silence is no conformance.

use std::collections::BTreeSet;
use std::time::Duration;

use super::compare;
use super::look::{brief, fitting, of, tally};
use super::message::{Exchange, NoAnswer, Seen};
use super::play::Evidence;
use super::reject::Reading;
use super::rules;
use super::spec::{
    Check, Count, Ended, Growth, RulesCheck, SameHead, SameHeader, Silent, Time, Turn, Where, Windows,
};
use super::witness;
use crate::verdict::Findings;
use crate::words::{counted, each_of, or_none};

/// Broken rules listed by one check at most; the rest is counted.
const MAX_LISTED: usize = 6;
/// Fields that differ from answer to answer by right.
const OWN_FIELDS: &[&str] = &[
    "date",
    "content-length",
    "transfer-encoding",
    "connection",
    "x-request-id",
];
/// Codes of the edge: answers to the caller's own behaviour, not a place in the line.
pub(super) const EDGE: &str = "retry_throttled";

/// Judges one check.
pub fn judge(check: &Check, evidence: &Evidence, slack: Duration, findings: &mut Findings) {
    match check {
        Check::Rules(check) => all_rules(check, evidence, findings),
        Check::Count(check) => count(check, evidence, findings),
        Check::Forced(check) => forced(&check.of, evidence, findings),
        Check::Time(check) => time(check, evidence, slack, findings),
        Check::Windows(check) => windows(check, evidence, findings),
        Check::Growth(check) => growth(check, evidence, findings),
        Check::SameHead(check) => same_head(check, evidence, findings),
        Check::SameHeader(check) => same_header(check, evidence, findings),
        Check::Silent(check) => silent(check, evidence, findings),
        Check::Told(check) => compare::told(check, evidence, findings),
        Check::Shares(check) => compare::shares(check, evidence, findings),
        Check::Described(check) => compare::described(check, evidence, findings),
        Check::Turn(check) => turn(check, evidence, findings),
        Check::Ended(check) => ended(check, evidence, findings),
        Check::Metric(check) => witness::metric(check, evidence, findings),
        Check::Moved(check) => witness::moved(check, evidence, findings),
        Check::Agree(check) => witness::agree(check, evidence, findings),
        Check::Labels(check) => witness::labels(check, evidence, findings),
        Check::PageSilent(check) => witness::page_silent(check, evidence, findings),
        Check::Series(check) => witness::series(check, evidence, findings),
    }
}

fn all_rules(check: &RulesCheck, evidence: &Evidence, findings: &mut Findings) {
    let reject = Where {
        reject: Some(true),
        ..Where::default()
    };
    let rejects = fitting(evidence, &check.of, &reject).len();
    findings.check(
        format!("rejects of {}", check.of),
        rejects >= check.at_least as usize,
        format!("at least {} rejects to look at", check.at_least),
        tally(of(evidence, &check.of)),
    );
    let mut broken: Vec<String> = Vec::new();
    let mut blamed = BTreeSet::new();
    let mut others = 0_usize;
    for exchange in of(evidence, &check.of) {
        for rule in rules::broken(exchange)
            .into_iter()
            .filter(|broken| check.wants(broken.rule))
        {
            blamed.insert(rule.rule.to_owned());
            let line = format!("{}: {} [{}]", rule.rule, rule.why, brief(exchange));
            if broken.len() < MAX_LISTED {
                broken.push(line);
            } else {
                others += 1;
            }
        }
    }
    if others > 0 {
        broken.push(format!("and {others} more"));
    }
    let name = match &check.only {
        Some(only) => only.join(", "),
        None => "every rule of single rejects".to_owned(),
    };
    let seen = if broken.is_empty() {
        format!("kept by {rejects} rejects")
    } else {
        broken.join("; ")
    };
    findings.check(format!("rules of {}", check.of), broken.is_empty(), name, seen);
    findings.blame(blamed);
}

/// The rules of single rejects that a case looks for and that no answer of it could keep or break. A case that looks in other
/// ways as well has none: those ways may have seen the rule.
pub(super) fn unseen(checks: &[&Check], evidence: &Evidence) -> BTreeSet<&'static str> {
    let mut looks = Vec::new();
    for check in checks {
        match check {
            Check::Rules(check) => looks.push(check),
            Check::Count(_) => {}
            _ => return BTreeSet::new(),
        }
    }
    let reached = |rule: &str| {
        let of_check = |check: &&&RulesCheck| {
            check.wants(rule) && of(evidence, &check.of).any(|exchange| rules::reaches(rule, exchange))
        };
        looks.iter().any(|check| of_check(&check))
    };
    rules::RULES
        .iter()
        .copied()
        .filter(|rule| looks.iter().any(|check| check.wants(rule)) && !reached(rule))
        .collect()
}

fn count(check: &Count, evidence: &Evidence, findings: &mut Findings) {
    // A caller that left on purpose has no answer to count.
    let stayed = |exchange: &&Exchange| exchange.answer != Err(NoAnswer::Left);
    let total = of(evidence, &check.of).filter(stayed).count();
    let n = fitting(evidence, &check.of, &check.filter).len();
    let least = check.min.unwrap_or(0);
    let most = check.max.unwrap_or(usize::MAX);
    let ok = total > 0 && n >= least && n <= most && (!check.all || n == total);
    let bound = match (check.all, check.min, check.max) {
        (true, _, _) if total == 0 => "some answers, and all of them".to_owned(),
        (true, _, _) => format!("all of {total}"),
        (_, Some(min), Some(max)) => format!("{min} to {max}"),
        (_, Some(min), None) => format!("at least {min}"),
        (_, None, Some(max)) => format!("at most {max}"),
        (_, None, None) => "any number".to_owned(),
    };
    findings.check(
        format!("answers to {}", check.of),
        ok,
        format!("{bound} with {}", check.filter.words()),
        match total {
            0 => format!("no answer at all: {}", tally(of(evidence, &check.of))),
            _ => format!("{n} of {total}: {}", tally(of(evidence, &check.of))),
        },
    );
}

fn forced(label: &str, evidence: &Evidence, findings: &mut Findings) {
    let mut wrong = Vec::new();
    let mut n = 0_usize;
    for exchange in of(evidence, label) {
        let Some(wanted) = &exchange.forced else { continue };
        n += 1;
        let Ok(seen) = &exchange.answer else {
            wrong.push(format!("{}: {}", wanted.code, brief(exchange)));
            continue;
        };
        let reading = Reading::of(seen);
        let window = (reading.after(), reading.max());
        let asked = (
            i64::try_from(wanted.after_ms).ok(),
            i64::try_from(wanted.max_ms).ok(),
        );
        // The reset of an exhausted quota may lie later than the hint, and then counts (SRV-23).
        let later = wanted.code == "rate_limited" && window >= asked;
        let same_window = reading.retry() != Some("after") || window == asked || later;
        if reading.code() != Some(wanted.code.as_str()) || !same_window {
            wrong.push(format!(
                "asked {} {}..{}, got {}",
                wanted.code,
                wanted.after_ms,
                wanted.max_ms,
                brief(exchange)
            ));
        }
    }
    wrong.truncate(MAX_LISTED);
    let ok = n > 0 && wrong.is_empty();
    let seen = if wrong.is_empty() {
        format!("{n} as asked")
    } else {
        counted(&wrong)
    };
    findings.check(
        format!("forced rejects of {label}"),
        ok,
        "each has the code and window that was forced",
        seen,
    );
}

fn time(check: &Time, evidence: &Evidence, slack: Duration, findings: &mut Findings) {
    let answers: Vec<&Exchange> = fitting(evidence, &check.of, &check.filter)
        .into_iter()
        .map(|(exchange, _)| exchange)
        .collect();
    let took = || answers.iter().map(|exchange| exchange.head_after);
    let least = Duration::from_millis(check.min_ms);
    let most = Duration::from_millis(check.max_ms) + slack;
    let (Some(first), Some(last)) = (took().min(), took().max()) else {
        findings.check(
            format!("time of {}", check.of),
            false,
            format!("an answer with {}", check.filter.words()),
            tally(of(evidence, &check.of)),
        );
        return;
    };
    // Too late only, and each in time but for what the machine stood still meanwhile.
    let in_time = |exchange: &&Exchange| {
        let stood = evidence.stood_in(exchange.sent_at, exchange.head_after);
        exchange.head_after.saturating_sub(stood) <= most
    };
    findings.check_unless(
        first >= least && answers.iter().all(in_time),
        format!("time of {}", check.of),
        first >= least && last <= most,
        format!(
            "{} to {} ms + {} ms slack",
            check.min_ms,
            check.max_ms,
            slack.as_millis()
        ),
        format!(
            "{} to {} ms over {} answers",
            first.as_millis(),
            last.as_millis(),
            answers.len()
        ),
    );
}

/// The windows of rejects that are a place in the line, in the order in which they came.
pub(super) fn hints(evidence: &Evidence, label: &str) -> Vec<(i64, Option<i64>)> {
    let filter = Where {
        reject: Some(true),
        not_code: Some(vec![EDGE.to_owned()]),
        ..Where::default()
    };
    fitting(evidence, label, &filter)
        .into_iter()
        .filter_map(|(_, seen)| {
            let reading = Reading::of(seen);
            (reading.retry() == Some("after")).then_some(())?;
            Some((reading.after()?, reading.max()))
        })
        .collect()
}

fn windows(check: &Windows, evidence: &Evidence, findings: &mut Findings) {
    let hints = hints(evidence, &check.of);
    let least = hints
        .chunks_exact(check.per.max(1))
        .map(|run| run.iter().collect::<BTreeSet<_>>().len())
        .min();
    findings.check(
        format!("windows of {}", check.of),
        least.is_some_and(|least| least >= check.distinct),
        format!(
            "at least {} different windows in each {} rejects",
            check.distinct, check.per
        ),
        match least {
            Some(least) => format!("{least} in the poorest run; {} rejects with a hint", hints.len()),
            None => format!(
                "only {} rejects with a hint: {}",
                hints.len(),
                tally(of(evidence, &check.of))
            ),
        },
    );
}

#[expect(clippy::cast_precision_loss, reason = "hints are under 2^27 ms")]
fn growth(check: &Growth, evidence: &Evidence, findings: &mut Findings) {
    let largest = |label: &str| hints(evidence, label).into_iter().map(|(after, _)| after).max();
    let (small, large) = (largest(&check.small), largest(&check.large));
    let ok =
        matches!((small, large), (Some(small), Some(large)) if large as f64 >= check.factor * small as f64);
    findings.check(
        format!("hints of {} against {}", check.large, check.small),
        ok,
        format!("the largest after is at least {} x as far", check.factor),
        format!(
            "{}: {} ms, {}: {} ms",
            check.small,
            or_none(small),
            check.large,
            or_none(large)
        ),
    );
}

fn same_head(check: &SameHead, evidence: &Evidence, findings: &mut Findings) {
    let answer = |label: &str| of(evidence, label).find_map(|exchange| exchange.answer.clone().ok());
    let (Some(head), Some(like)) = (answer(&check.of), answer(&check.like)) else {
        findings.check(
            "same head",
            false,
            "an answer to both",
            tally(evidence.exchanges.iter()),
        );
        return;
    };
    let fields = |seen: &Seen| -> BTreeSet<(String, String)> {
        let lines = seen.headers.iter().map(|(name, value)| {
            (
                name.to_ascii_lowercase(),
                String::from_utf8_lossy(value).into_owned(),
            )
        });
        lines
            .filter(|(name, _)| !OWN_FIELDS.contains(&name.as_str()))
            .collect()
    };
    let (ours, theirs) = (fields(&head), fields(&like));
    let differ: Vec<String> = ours
        .symmetric_difference(&theirs)
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    findings.check(
        "same head",
        differ.is_empty() && head.status == like.status,
        format!("the head of {} is that of {}", check.of, check.like),
        if differ.is_empty() {
            format!("{} fields alike", ours.len())
        } else {
            differ.join("; ")
        },
    );
    findings.check(
        "no body",
        head.body.is_empty(),
        "an answer to HEAD has no body",
        format!("{} bytes", head.body.len()),
    );
}

fn same_header(check: &SameHeader, evidence: &Evidence, findings: &mut Findings) {
    let answers: Vec<&Seen> = check
        .of
        .iter()
        .flat_map(|label| of(evidence, label))
        .filter_map(|exchange| exchange.answer.as_ref().ok())
        .collect();
    let values: BTreeSet<String> = answers
        .iter()
        .map(|seen| seen.lines(&check.header).join(", "))
        .collect();
    findings.check(
        format!("{} of {}", check.header, check.of.join(" and ")),
        answers.len() > 1 && values.len() == 1 && !values.contains(""),
        "two answers or more, all with the same value",
        format!("{} answers with {values:?}", answers.len()),
    );
}

fn silent(check: &Silent, evidence: &Evidence, findings: &mut Findings) {
    let answers = fitting(evidence, &check.of, &check.filter);
    let mut told = BTreeSet::new();
    for (_, seen) in &answers {
        let text = seen.words();
        told.extend(
            check
                .words
                .iter()
                .filter(|word| text.contains(&word.to_lowercase())),
        );
    }
    findings.check(
        format!("words in {}", check.of),
        !answers.is_empty() && told.is_empty(),
        format!(
            "none of {:?} in an answer with {}",
            check.words,
            check.filter.words()
        ),
        if answers.is_empty() {
            tally(of(evidence, &check.of))
        } else {
            format!("{told:?} in {} answers", answers.len())
        },
    );
}

fn turn(check: &Turn, evidence: &Evidence, findings: &mut Findings) {
    let served = |exchange: &&Exchange| {
        exchange
            .answer
            .as_ref()
            .is_ok_and(|seen| (200..300).contains(&seen.status))
    };
    let end = |exchange: &Exchange| exchange.sent_at + exchange.done_after;
    let heavy: Vec<Duration> = of(evidence, &check.by).filter(served).map(end).collect();
    let overtaken = of(evidence, &check.of)
        .filter(served)
        .map(|light| {
            heavy
                .iter()
                .filter(|done| **done > light.sent_at && **done < end(light))
                .count()
        })
        .max();
    // Without a backlog behind the light one there was no line to be overtaken in.
    let behind = of(evidence, &check.of).filter(served).map(end).max();
    let behind = behind.map_or(0, |end| heavy.iter().filter(|done| **done > end).count());
    findings.check(
        format!("turn of {}", check.of),
        overtaken.is_some_and(|n| n <= check.at_most) && behind > check.at_most,
        format!(
            "at most {} of {} done before it, and more than that behind it",
            check.at_most, check.by
        ),
        format!("{} before, {behind} behind", or_none(overtaken)),
    );
}

fn ended(check: &Ended, evidence: &Evidence, findings: &mut Findings) {
    let ends = evidence
        .ended
        .get(&check.of)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut wrong: Vec<String> = Vec::new();
    for end in ends {
        match end {
            Ok(state) if check.not.contains(state) => wrong.push(state.clone()),
            Ok(_) => {}
            Err(why) => wrong.push(why.clone()),
        }
    }
    let n = ends.len();
    let failed = wrong.len();
    findings.check(
        format!("ends of {}", check.of),
        n >= check.at_least && failed == 0,
        format!(
            "at least {} tasks behind 202, each with a terminal state, none in {}",
            check.at_least,
            each_of(&check.not)
        ),
        format!(
            "{n} tasks, {failed} without or with a wrong one: {}",
            counted(&wrong)
        ),
    );
}
