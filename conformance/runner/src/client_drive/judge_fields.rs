//! The part of the judge that looks at what the requests carry.

use super::judge::{CallView, each};
use super::spec::{FieldExpect, Gap, Port};
use super::wire::Exchange;
use crate::verdict::Findings;
use crate::words::{each_of, each_or_none};

/// Judges the fields and bodies of a group's requests.
pub(crate) fn judge_fields(
    findings: &mut Findings,
    name: &str,
    fields: &FieldExpect,
    gaps: &[Gap],
    calls: &[CallView<'_>],
) {
    let check =
        |findings: &mut Findings, what: &str, expected: &str, ok: &dyn Fn(&Exchange) -> bool, field: &str| {
            each(findings, &format!("{name}: {what}"), expected, calls, |call| {
                let bad = call.requests.iter().position(|request| !ok(request));
                let seen = bad.map(|index| {
                    let values: Vec<&str> = call.requests[index].field(field).collect();
                    format!("{values:?} on request {}", index + 1)
                });
                (
                    !call.requests.is_empty() && bad.is_none(),
                    seen.unwrap_or_else(|| format!("{} requests", call.requests.len())),
                )
            });
        };
    for field in &fields.present {
        let there = |request: &Exchange| request.field(field).next().is_some();
        check(
            findings,
            &format!("{field} is sent"),
            "on every request",
            &there,
            field,
        );
    }
    for field in &fields.absent {
        let absent = |request: &Exchange| request.field(field).next().is_none();
        check(
            findings,
            &format!("{field} is not sent"),
            "on no request",
            &absent,
            field,
        );
    }
    for field in &fields.absent_at_second {
        let absent = |request: &Exchange| request.port == Port::Main || request.field(field).next().is_none();
        check(
            findings,
            &format!("{field} stays at home"),
            "on no request to the second port",
            &absent,
            field,
        );
    }
    if let Some(tier) = &fields.tier {
        let same = |request: &Exchange| request.one_field("overload-tier") == Some(tier);
        check(
            findings,
            "Overload-Tier",
            &format!("{tier} on every request"),
            &same,
            "overload-tier",
        );
    }
    if let Some(key) = &fields.key {
        let quoted = format!("\"{key}\"");
        let same = |request: &Exchange| {
            request
                .one_field("idempotency-key")
                .is_some_and(|have| have == key || have == quoted)
        };
        check(
            findings,
            "Idempotency-Key",
            &format!("{key} on every request"),
            &same,
            "idempotency-key",
        );
    }
    if let Some(body) = &fields.body {
        let same = |request: &Exchange| {
            let length = request.one_field("content-length");
            request.body == body.as_bytes() && length.is_none_or(|have| have.parse() == Ok(body.len()))
        };
        check(
            findings,
            "body",
            &format!("the same {} bytes on every request", body.len()),
            &same,
            "content-length",
        );
    }
    if let Some(from) = fields.attempt_from {
        each(
            findings,
            &format!("{name}: Overload-Attempt"),
            &format!("{from}, then one more each time"),
            calls,
            |call| {
                let seen: Vec<Option<u64>> = call
                    .requests
                    .iter()
                    .map(|r| r.number("overload-attempt"))
                    .collect();
                let wanted = (from..).take(seen.len());
                (
                    !seen.is_empty() && seen.iter().copied().eq(wanted.map(Some)),
                    each_or_none(seen),
                )
            },
        );
    }
    if let Some(trace_id) = &fields.trace_id {
        judge_trace(findings, name, trace_id, calls);
    }
    if let Some(deadline) = fields.deadline_ms {
        judge_deadline(findings, name, deadline, gaps, calls);
    }
}

/// REQ-09: one trace, and each attempt a parent of its own.
fn judge_trace(findings: &mut Findings, name: &str, trace_id: &str, calls: &[CallView<'_>]) {
    let expected = format!("trace-id {trace_id}, and another parent-id on each request");
    each(
        findings,
        &format!("{name}: traceparent"),
        &expected,
        calls,
        |call| {
            let seen: Vec<&str> = call
                .requests
                .iter()
                .map(|request| request.one_field("traceparent").unwrap_or("none"))
                .collect();
            let mut parents: Vec<&str> = seen
                .iter()
                .filter_map(|value| match value.split('-').collect::<Vec<_>>()[..] {
                    ["00", trace, parent, _] if trace == trace_id && parent.len() == 16 => Some(parent),
                    _ => None,
                })
                .collect();
            parents.sort_unstable();
            parents.dedup();
            (!seen.is_empty() && parents.len() == seen.len(), each_of(seen))
        },
    );
}

/// REQ-02: on every request, the first within the call's deadline, each later one less by at least the least wait
/// that the case asks for at that gap (two roundings to whole ms are allowed for).
fn judge_deadline(findings: &mut Findings, name: &str, deadline: u64, gaps: &[Gap], calls: &[CallView<'_>]) {
    let least_wait = |k: usize| {
        gaps.iter()
            .filter(|g| g.k.is_none_or(|at| at == k))
            .map(|g| g.min_ms)
            .max()
            .unwrap_or(0)
    };
    let expected = format!("1 to {deadline} ms at first, then less by at least each wait");
    each(
        findings,
        &format!("{name}: Overload-Deadline-Ms"),
        &expected,
        calls,
        |call| {
            let seen: Vec<Option<u64>> = call
                .requests
                .iter()
                .map(|r| r.number("overload-deadline-ms"))
                .collect();
            let first = seen
                .first()
                .copied()
                .flatten()
                .is_some_and(|ms| (1..=deadline).contains(&ms));
            let falls = seen.windows(2).enumerate().all(|(index, pair)| match pair {
                [Some(before), Some(after)] => after + least_wait(index + 1) <= before + 2,
                _ => false,
            });
            (first && falls, each_or_none(seen))
        },
    );
}
