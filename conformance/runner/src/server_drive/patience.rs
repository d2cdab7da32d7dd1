//! What the runner does when the server refuses the runner itself.
//!
//! A probe asks one question ("is an odd tier served?"). The answer may speak about something else: about what this caller did
//! before (429) or about the load that earlier cases, or somebody else, left behind (a reject with retry=after). A server has
//! the right to both. So such an answer is set aside, its window is waited for, as the contract asks of any caller, and the
//! same probe is sent again. It is still a reject, and must be a whole one.
//!
//! Waiting has an end ([`ROUNDS`], [`PATIENCE`]). Then ordinary requests of the same caller decide what the refusals
//! spoke about. If every one of them is served, the server refuses this probe and nothing else, and that is its answer. If not,
//! nothing was shown: the case is inconclusive, neither a pass nor a failure.

use std::collections::BTreeSet;
use std::time::Duration;

use super::check::EDGE;
use super::look::{brief, of, tally};
use super::message::{Exchange, Seen};
use super::play::Evidence;
use super::reject::Reading;
use super::rules;
use super::spec::{Check, ServerCase};
use crate::verdict::{Findings, NotRun};

/// How often one probe is sent at most; and how many ordinary requests decide when all of that was refused.
pub(super) const ROUNDS: usize = 5;
/// How long one case waits in all.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The wait where the server named none.
const BLIND: Duration = Duration::from_secs(1);
/// Rules that say how kind a reject is, not whether it is whole.
const KIND: &[&str] = &["SRV-23", "SRV-27", "SEC-07"];

/// The window in which to ask again, where an answer speaks about the caller or about the load.
pub(super) fn come_again(seen: &Seen) -> Option<(Duration, Duration)> {
    let reading = Reading::of(seen);
    let about_the_load = seen.status == 503 && reading.retry() == Some("after");
    if seen.status != 429 && !about_the_load {
        return None;
    }
    let length = |ms: Option<i64>| {
        ms.and_then(|ms| u64::try_from(ms).ok())
            .map(Duration::from_millis)
    };
    let seconds = || {
        let line = seen.lines("retry-after").into_iter().next()?;
        Some(Duration::from_secs(line.trim().parse().ok()?))
    };
    let after = length(reading.after()).or_else(seconds).unwrap_or(BLIND);
    let max = length(reading.max()).unwrap_or_default();
    Some((after, max.max(after + Duration::from_millis(50))))
}

/// Nothing was shown, and why.
pub(super) fn inconclusive(why: &str) -> NotRun {
    NotRun::NotApplicable(format!("inconclusive: {why}"))
}

/// The answers that were set aside are rejects like any other.
pub(super) fn whole(evidence: &Evidence, findings: &mut Findings) {
    let aside = &evidence.aside;
    if aside.is_empty() {
        return;
    }
    let mut blamed = BTreeSet::new();
    let mut broken: Vec<String> = Vec::new();
    for exchange in aside {
        for rule in rules::broken(exchange) {
            if !KIND.contains(&rule.rule) {
                blamed.insert(rule.rule.to_owned());
                broken.push(format!("{}: {} [{}]", rule.rule, rule.why, brief(exchange)));
            }
        }
    }
    let seen = match broken.first() {
        None => format!(
            "kept by {} rejects, waited out: {}",
            aside.len(),
            tally(aside.iter())
        ),
        Some(first) => format!("{} broken; the first: {first}", broken.len()),
    };
    findings.check(
        "answers set aside",
        broken.is_empty(),
        "a reject that speaks about the caller or the load is a whole one",
        seen,
    );
    findings.blame(blamed);
}

/// Hints that differ from caller to caller can only be seen where the server saw callers: one that took all of the crowd for
/// one caller, and throttled that, has not shown what it says to several.
///
/// # Errors
/// Inconclusive, where throttling left too few hints to compare.
pub(super) fn saw_a_crowd(case: &ServerCase, evidence: &Evidence) -> Result<(), NotRun> {
    for check in &case.checks {
        let Check::Windows(windows) = check else { continue };
        let throttled = |exchange: &&Exchange| {
            let answer = exchange.answer.as_ref();
            answer.is_ok_and(|seen| Reading::of(seen).code() == Some(EDGE))
        };
        let throttled = of(evidence, &windows.of).filter(throttled).count();
        let hints = super::check::hints(evidence, &windows.of).len();
        if throttled > 0 && hints < windows.per {
            return Err(inconclusive(&format!(
                "the server throttled its callers before it had refused {} of them: {}",
                windows.per,
                tally(of(evidence, &windows.of))
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: u16, signal: &str, retry_after: Option<&str>) -> Seen {
        let line = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        let mut headers = vec![line("Overload-Signal", signal)];
        headers.extend(retry_after.map(|value| line("Retry-After", value)));
        Seen {
            status,
            headers,
            ..Seen::default()
        }
    }

    #[test]
    fn an_answer_about_the_caller_or_the_load_is_waited_out_and_one_about_the_request_is_not() {
        let ms = Duration::from_millis;
        let window = |status, signal, after| come_again(&seen(status, signal, after));
        let throttled = "v=1, code=retry_throttled, retry=after, applied=no, after=300, max=900";
        assert_eq!(window(429, throttled, None), Some((ms(300), ms(900))));
        // A deadline of 0 cannot hold the hint, but the hint still says when this caller may ask anew.
        let short = "v=1, code=retry_throttled, retry=no, applied=no, after=300";
        assert_eq!(window(429, short, None), Some((ms(300), ms(350))));
        let full = "v=1, code=queue_full, retry=after, applied=no, after=60, max=200";
        assert_eq!(window(503, full, None), Some((ms(60), ms(200))));
        assert_eq!(window(429, "", Some("2")), Some((ms(2000), ms(2050))));
        assert_eq!(window(429, "", None), Some((BLIND, BLIND + ms(50))));
        assert_eq!(
            window(
                503,
                "v=1, code=deadline_expired, retry=no, applied=no, after=50",
                None
            ),
            None
        );
        assert_eq!(window(422, full, None), None);
        assert_eq!(window(200, "v=1, degraded", None), None);
    }
}
