//! The part of the judge that listens to the second witness: the client's own reply about each call.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::judge::{CallView, each, each_unless, ms};
use super::seen::Reply;
use super::spec::{Group, Left, ResultExpect};
use crate::case::Range;
use crate::still::Stills;
use crate::verdict::Findings;

/// Judges the replies of a group. Whatever else is expected, each reply must be there, and the attempts that it
/// counts must be the requests that were seen.
pub(crate) fn judge_results(
    findings: &mut Findings,
    group: &Group,
    calls: &[CallView<'_>],
    slack: Duration,
    stills: &Stills,
) {
    let name = &group.name;
    each(
        findings,
        &format!("{name}: reply"),
        "a result for every call",
        calls,
        |call| match &call.seen.reply {
            Reply::Said(result) if result.get("kind").is_some_and(Value::is_string) => (true, kind(result)),
            Reply::Said(result) => (
                false,
                format!("a result without `kind`: {}", Value::Object(result.clone())),
            ),
            Reply::Broke(what) => (false, what.clone()),
        },
    );
    if let Some(expect) = &group.expect.result {
        judge_one(findings, name, expect, calls, slack, stills);
    }
    for share in &group.expect.results {
        let looked = &calls[calls.len().saturating_sub(share.of_last.unwrap_or(calls.len()))..];
        let fits = |call: &&CallView<'_>| {
            let mut one = Findings::default();
            judge_one(&mut one, name, &share.result, &[**call], slack, stills);
            one.failed().next().is_none()
        };
        let fit = looked.iter().filter(fits).count();
        // A call that ended otherwise right after a standstill may have been held up until its time was over.
        let held = |call: &&CallView<'_>| !fits(call) && stills.before(call.seen.returned).is_some();
        let could = looked.iter().filter(held).count() as u64 + fit as u64;
        findings.check_unless(
            (fit as u64) < share.calls.lo && could >= share.calls.lo,
            format!("{name}: calls that end with {}", describe(&share.result)),
            share.calls.holds(fit as u64),
            format!("{} of {}", share.calls, looked.len()),
            fit.to_string(),
        );
    }
}

fn describe(expect: &ResultExpect) -> String {
    let why = expect
        .why
        .as_ref()
        .map_or(String::new(), |why| format!(", why {why}"));
    let status = expect
        .status
        .map_or(String::new(), |status| format!(", status {status}"));
    format!("kind {}{why}{status}", expect.kind)
}

fn kind(result: &Map<String, Value>) -> String {
    let word = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
    format!("kind {}, why {}", word("kind"), word("why"))
}

fn judge_one(
    findings: &mut Findings,
    name: &str,
    expect: &ResultExpect,
    calls: &[CallView<'_>],
    slack: Duration,
    stills: &Stills,
) {
    let mut word = |key: &str, expected: String, ok: &dyn Fn(&Value) -> bool| {
        each(
            findings,
            &format!("{name}: result.{key}"),
            &expected,
            calls,
            |call| match &call.seen.reply {
                Reply::Said(result) => {
                    let value = result.get(key).unwrap_or(&Value::Null);
                    (ok(value), value.to_string())
                }
                Reply::Broke(_) => (false, "no reply".to_owned()),
            },
        );
    };
    word("kind", expect.kind.to_string(), &|v| {
        v.as_str().is_some_and(|v| expect.kind.holds(v))
    });
    if let Some(why) = &expect.why {
        word("why", why.to_string(), &|v| {
            v.as_str().is_some_and(|v| why.holds(v))
        });
    }
    if let Some(status) = expect.status {
        word("status", status.to_string(), &|v| {
            v.as_u64() == Some(u64::from(status))
        });
    }
    if let Some(code) = &expect.code {
        let wanted = (code != "none").then_some(code.as_str());
        word("code", code.clone(), &|v| {
            v.as_str() == wanted && (v.is_null() || v.is_string())
        });
    }
    for (key, wanted) in [("retry", &expect.retry), ("applied", &expect.applied)] {
        if let Some(wanted) = wanted {
            word(key, wanted.clone(), &|v| v.as_str() == Some(wanted));
        }
    }
    if let Some(hop) = expect.hop {
        word("hop", hop.to_string(), &|v| v.as_u64().unwrap_or(0) == hop);
    }
    match expect.retry_in_ms {
        None => {}
        Some(Left::Word(_)) => word("retry_in_ms", "null".to_owned(), &Value::is_null),
        Some(Left::Within(range)) => {
            word("retry_in_ms", range.to_string(), &|v| {
                v.as_u64().is_some_and(|v| range.holds(v))
            });
        }
    }
    judge_attempts(findings, name, expect.attempts, calls);
    judge_times(findings, name, expect, calls, slack, stills);
}

fn judge_attempts(findings: &mut Findings, name: &str, attempts: Option<Range>, calls: &[CallView<'_>]) {
    let expected = attempts.map_or("as many as requests were seen".to_owned(), |range| {
        range.to_string()
    });
    each(
        findings,
        &format!("{name}: result.attempts"),
        &expected,
        calls,
        |call| {
            let said = match &call.seen.reply {
                Reply::Said(result) => result.get("attempts").and_then(Value::as_u64),
                Reply::Broke(_) => None,
            };
            let seen = call.requests.len() as u64;
            let ok = match said {
                Some(said) => attempts.map_or(said == seen, |range| range.holds(said)),
                None => was_cancelled(call),
            };
            let said = said.map_or("no number".to_owned(), |said| said.to_string());
            (ok, format!("{said} said, {seen} requests seen"))
        },
    );
}

/// A call that is cancelled by dropping it is not there any more to say how often it was sent.
fn was_cancelled(call: &CallView<'_>) -> bool {
    match &call.seen.reply {
        Reply::Said(result) => {
            call.seen.cancelled.is_some() && result.get("why").is_some_and(|why| why == "cancelled")
        }
        Reply::Broke(_) => false,
    }
}

/// Bounds on time: measured by the runner, and for the call's length also as the client says it.
fn judge_times(
    findings: &mut Findings,
    name: &str,
    expect: &ResultExpect,
    calls: &[CallView<'_>],
    slack: Duration,
    stills: &Stills,
) {
    let fits = |range: Range, seen: Duration| {
        seen >= Duration::from_millis(range.lo) && seen <= Duration::from_millis(range.hi) + slack
    };
    // Too late, and in time but for what was stood still since `from`.
    let held = |range: Range, from: Option<Instant>, call: &CallView<'_>| {
        let most = Duration::from_millis(range.hi) + slack;
        from.is_some_and(|from| {
            let seen = call.seen.returned.saturating_duration_since(from);
            seen > most && seen.saturating_sub(stills.within(from, call.seen.returned)) <= most
        })
    };
    let with_slack = |range: Range| format!("{range} ms (+ {} ms slack)", slack.as_millis());
    if let Some(range) = expect.elapsed_ms {
        each_unless(
            findings,
            &format!("{name}: length of the call"),
            &with_slack(range),
            calls,
            |call| held(range, Some(call.seen.sent), call),
            |call| {
                let seen = call.seen.returned.saturating_duration_since(call.seen.sent);
                let said = match &call.seen.reply {
                    Reply::Said(result) => result.get("elapsed_ms").and_then(Value::as_u64),
                    Reply::Broke(_) => None,
                };
                let ok = fits(range, seen)
                    && said.is_some_and(|said| fits(range, Duration::from_millis(said + 1)));
                let said = said.map_or_else(|| "none".to_owned(), |said| format!("{said} ms"));
                (ok, format!("{} measured, {said} said", ms(seen)))
            },
        );
    }
    if let Some(range) = expect.after_answer_ms {
        let answered = |call: &CallView<'_>| call.requests.last().and_then(|request| request.head_at);
        each_unless(
            findings,
            &format!("{name}: from the last answer to the reply"),
            &with_slack(range),
            calls,
            |call| held(range, answered(call), call),
            |call| match answered(call) {
                Some(head) => {
                    let seen = call.seen.returned.saturating_duration_since(head);
                    (fits(range, seen), ms(seen))
                }
                None => (false, "no answer was given".to_owned()),
            },
        );
    }
    if let Some(range) = expect.after_cancel_ms {
        each_unless(
            findings,
            &format!("{name}: from cancel to the reply"),
            &with_slack(range),
            calls,
            |call| held(range, call.seen.cancelled, call),
            |call| {
                match call.seen.cancelled {
                    // A call that had ended before it was cancelled shows nothing about cancelling.
                    Some(at) if call.seen.returned > at => {
                        let seen = call.seen.returned.saturating_duration_since(at);
                        (fits(range, seen), ms(seen))
                    }
                    Some(_) => (false, "it had ended before".to_owned()),
                    None => (false, "it was never cancelled".to_owned()),
                }
            },
        );
    }
}
