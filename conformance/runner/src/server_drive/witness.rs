//! Checks on the metrics pages, and on whether they tell the same story as the wire.

use std::collections::BTreeSet;

use super::look::of;
use super::page::Page;
use super::play::Evidence;
use super::reject::Reading;
use super::spec::{Agree, Labels, Metric, Moved, PageSilent, Series};
use crate::verdict::Findings;
use crate::words::or_none;

/// The admission counter and its decision label.
const ADMISSIONS: &str = "agent_admission_total";
/// Differences below this are rounding.
const EPSILON: f64 = 1e-6;

/// The page of a name, or a check that does not hold.
fn page<'a>(name: &str, evidence: &'a Evidence, findings: &mut Findings) -> Option<&'a Page> {
    let why = match evidence.pages.get(name) {
        Some(Ok(page)) => return Some(page),
        Some(Err(why)) => why.clone(),
        None => "it was never read".to_owned(),
    };
    findings.check(
        format!("metrics page {name}"),
        false,
        "the second witness can be read",
        why,
    );
    None
}

fn within(value: f64, min: Option<f64>, max: Option<f64>) -> bool {
    min.is_none_or(|min| value >= min - EPSILON) && max.is_none_or(|max| value <= max + EPSILON)
}

fn bounds(min: Option<f64>, max: Option<f64>) -> String {
    match (min, max) {
        (Some(min), Some(max)) if (min - max).abs() < EPSILON => format!("{min}"),
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "there".to_owned(),
    }
}

/// See [`Metric`].
pub(super) fn metric(check: &Metric, evidence: &Evidence, findings: &mut Findings) {
    let Some(page) = page(&check.scrape, evidence, findings) else {
        return;
    };
    let sum = page.sum(&check.name, &check.labels);
    let ok = match sum {
        Some(sum) => within(sum, check.min, check.max),
        None => !check.present && within(0.0, check.min, check.max),
    };
    findings.check(
        format!("{} {:?} in {}", check.name, check.labels, check.scrape),
        ok,
        bounds(check.min, check.max),
        sum.map_or_else(|| "no such series".to_owned(), |sum| sum.to_string()),
    );
}

/// See [`Moved`]. A counter that is not there yet counts as zero.
pub(super) fn moved(check: &Moved, evidence: &Evidence, findings: &mut Findings) {
    let Some(before) = page(&check.from, evidence, findings) else {
        return;
    };
    let Some(after) = page(&check.to, evidence, findings) else {
        return;
    };
    let (from, to) = (
        before.sum(&check.name, &check.labels),
        after.sum(&check.name, &check.labels),
    );
    let delta = to.unwrap_or(0.0) - from.unwrap_or(0.0);
    findings.check(
        format!(
            "{} {:?} from {} to {}",
            check.name, check.labels, check.from, check.to
        ),
        within(delta, check.min, check.max) && (to.is_some() || check.min.is_none_or(|min| min <= 0.0)),
        bounds(check.min, check.max),
        format!("{delta} ({} to {})", or_none(from), or_none(to)),
    );
}

/// Whether a decision takes the work on; every other word is a refusal.
fn taken(decision: &str) -> bool {
    matches!(decision, "accept" | "accepted" | "defer" | "deferred")
}

/// See [`Agree`]: accepts and rejects on the wire are the accepts and the rest in the counter.
#[expect(clippy::cast_precision_loss, reason = "counts of one case are small")]
pub(super) fn agree(check: &Agree, evidence: &Evidence, findings: &mut Findings) {
    let Some(before) = page(&check.from, evidence, findings) else {
        return;
    };
    let Some(after) = page(&check.to, evidence, findings) else {
        return;
    };
    let counted = |wanted: fn(&str) -> bool| {
        let sum = |page: &Page| {
            page.sum_where(ADMISSIONS, |labels| {
                labels.get("decision").is_some_and(|word| wanted(word))
            })
        };
        sum(after) - sum(before)
    };
    let accepted = counted(taken);
    let refused = counted(|word| !taken(word));
    let (mut on_wire, mut refused_on_wire) = (0_usize, 0_usize);
    for seen in of(evidence, &check.of).filter_map(|exchange| exchange.answer.as_ref().ok()) {
        if (200..300).contains(&seen.status) {
            on_wire += 1;
        } else if Reading::of(seen).is_reject(seen.status) {
            refused_on_wire += 1;
        }
    }
    findings.check(
        "accepts on both witnesses",
        (accepted - on_wire as f64).abs() < EPSILON,
        format!("{on_wire} 2xx answers on the wire"),
        format!("{accepted} accepts or defers in {ADMISSIONS}"),
    );
    findings.check(
        "rejects on both witnesses",
        (refused - refused_on_wire as f64).abs() < EPSILON,
        format!("{refused_on_wire} rejects on the wire"),
        format!("{refused} rejects in {ADMISSIONS}"),
    );
}

/// See [`Labels`].
pub(super) fn labels(check: &Labels, evidence: &Evidence, findings: &mut Findings) {
    let Some(page) = page(&check.scrape, evidence, findings) else {
        return;
    };
    let series = page.series.iter().filter(|sample| sample.name == check.name);
    let names: BTreeSet<&String> = series.flat_map(|sample| sample.labels.keys()).collect();
    let there = page.series.iter().any(|sample| sample.name == check.name);
    let extra: Vec<_> = names
        .iter()
        .filter(|name| !check.allowed.contains(name))
        .collect();
    findings.check(
        format!("labels of {}", check.name),
        there && extra.is_empty(),
        format!("only {:?}", check.allowed),
        if there {
            format!("{names:?}")
        } else {
            "no such series".to_owned()
        },
    );
}

/// See [`PageSilent`].
pub(super) fn page_silent(check: &PageSilent, evidence: &Evidence, findings: &mut Findings) {
    let Some(page) = page(&check.scrape, evidence, findings) else {
        return;
    };
    let told: Vec<&String> = check
        .words
        .iter()
        .filter(|word| page.text.contains(word.as_str()))
        .collect();
    findings.check(
        format!("words in page {}", check.scrape),
        told.is_empty() && !page.series.is_empty(),
        format!("none of {:?} in a page with series", check.words),
        format!("{told:?} in {} series", page.series.len()),
    );
}

/// See [`Series`].
pub(super) fn series(check: &Series, evidence: &Evidence, findings: &mut Findings) {
    let Some(before) = page(&check.from, evidence, findings) else {
        return;
    };
    let Some(after) = page(&check.to, evidence, findings) else {
        return;
    };
    let (from, to) = (before.series.len(), after.series.len());
    findings.check(
        format!("series from {} to {}", check.from, check.to),
        from > 0 && to <= from + check.grows_by,
        format!("at most {} more, and some at all", check.grows_by),
        format!("{from}, then {to}"),
    );
}
