//! Whether calls that were refused together come back apart (CLI-03).
//!
//! Arrivals are never earlier than what was drawn, but they may be later, and after a standstill ([`super::still`]) many come at
//! once. So a sample that looks bunched is read once more in the client's favour: a call that arrived right after a standstill may
//! have been due at any time in it. What still looks bunched then is; what does not shows nothing.

use std::time::{Duration, Instant};

use super::judge::{CallView, ms};
use super::spec::Spread;
use crate::still::Stills;
use crate::verdict::Findings;

/// The time in which no more than a fifth of the calls that were held together may leave.
const SLOT: Duration = Duration::from_millis(10);
/// Fewer calls are no sample.
const SAMPLE: usize = 30;

/// How many of the lengths lie in the fullest slice.
fn fullest(lengths: &[Duration], slice: Duration) -> usize {
    let within = |from: &Duration| {
        lengths
            .iter()
            .filter(|at| (*from..*from + slice).contains(at))
            .count()
    };
    lengths.iter().map(within).max().unwrap_or(0)
}

/// The sample's range is more than half of the window, and no tenth of it holds more than a third.
pub(crate) fn judge_spread(
    findings: &mut Findings,
    name: &str,
    spread: Spread,
    calls: &[CallView<'_>],
    stills: &Stills,
) {
    let Spread { k, lo_ms, hi_ms } = spread;
    let window = Duration::from_millis(hi_ms.saturating_sub(lo_ms));
    let slice = window / 10;
    let mut gaps = Vec::new();
    // What no standstill touched, and the least that each may have been drawn as.
    let (mut sure, mut least_drawn) = (Vec::new(), Vec::new());
    for call in calls {
        let (Some(gap), Some(request)) = (call.gap(k), call.requests.get(k)) else {
            continue;
        };
        gaps.push(gap);
        match stills.before(request.arrived) {
            None => {
                sure.push(gap);
                least_drawn.push(gap);
            }
            Some(from) => {
                let held = request.arrived.saturating_duration_since(from);
                let least = gap.saturating_sub(held).max(Duration::from_millis(lo_ms));
                least_drawn.push(least.min(gap));
            }
        }
    }
    let ends = |all: &[Duration]| {
        let least = all.iter().min().copied().unwrap_or_default();
        (least, all.iter().max().copied().unwrap_or_default())
    };
    let (least, most) = ends(&gaps);
    let range = most.saturating_sub(least);
    let could_range = most.saturating_sub(ends(&least_drawn).0);
    findings.check_unless(
        gaps.len() >= SAMPLE && could_range > window / 2,
        format!("{name}: gap[{k}] is spread"),
        gaps.len() >= SAMPLE && range > window / 2,
        format!(
            "a range of more than {} over {SAMPLE} or more calls",
            ms(window / 2)
        ),
        format!(
            "{} over {} calls, {} to {}",
            ms(range),
            gaps.len(),
            ms(least),
            ms(most)
        ),
    );
    let seen = fullest(&gaps, slice);
    findings.check_unless(
        !gaps.is_empty() && fullest(&sure, slice) * 3 <= gaps.len(),
        format!("{name}: gap[{k}] is not bunched"),
        !gaps.is_empty() && seen * 3 <= gaps.len(),
        format!("no {} slice of the window holds more than a third", ms(slice)),
        format!("{seen} of {} in one slice", gaps.len()),
    );
}

/// Calls that were held together must not leave together: no [`SLOT`] holds more than a fifth of them.
pub(crate) fn judge_slots(findings: &mut Findings, name: &str, calls: &[CallView<'_>], stills: &Stills) {
    let arrivals = || {
        calls
            .iter()
            .filter_map(|call| call.requests.first())
            .map(|request| request.arrived)
    };
    let Some(first) = arrivals().min() else {
        return findings.check(
            format!("{name}: first requests are not bunched"),
            false,
            "requests",
            "none",
        );
    };
    let since = |at: Instant| at.saturating_duration_since(first);
    let all: Vec<Duration> = arrivals().map(since).collect();
    let sure: Vec<Duration> = arrivals()
        .filter(|at| stills.before(*at).is_none())
        .map(since)
        .collect();
    let seen = fullest(&all, SLOT);
    findings.check_unless(
        all.len() >= SAMPLE && fullest(&sure, SLOT) * 5 <= all.len(),
        format!("{name}: first requests are not bunched"),
        all.len() >= SAMPLE && seen * 5 <= all.len(),
        format!("no {} hold more than a fifth of {SAMPLE} or more", ms(SLOT)),
        format!("{seen} of {} in one slot", all.len()),
    );
}
