//! What can be judged of a server that shows no metrics page.
//!
//! The page is the second witness of many cases, and no server has to have one: neither `--metrics-url` nor `metrics_url` in the
//! answer to `start` is required. So the same server must come out the same whichever way it is reached. Where ordinary traffic
//! is judged, the wire alone is judged, and the report says so. A case that sets up a situation needs its second witness.

use super::spec::{Check, ServerCase, Step};
use crate::case::Case;
use crate::verdict::NotRun;

/// Whether there is a metrics page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    There,
    MissingFromStart,
    MissingFromUrl,
}

/// The checks of a case that can be made.
///
/// # Errors
/// Without the page the case says nothing: not applicable, and untestable for a server that admits by the rules of ADM, which
/// has figures to show (ADM-23).
pub(super) fn checks<'a>(page: Page, case: &Case, body: &'a ServerCase) -> Result<Vec<&'a Check>, NotRun> {
    let missing = match page {
        Page::There => return Ok(body.checks.iter().collect()),
        Page::MissingFromStart => "the answer to `start` has no metrics_url",
        Page::MissingFromUrl => "no --metrics-url was given",
    };
    let checks: Vec<&Check> = body
        .checks
        .iter()
        .filter(|check| !check.needs_metrics())
        .collect();
    let left_out = checks.len() < body.checks.len();
    let only_there = checks.is_empty() || body.steps.iter().any(asks_the_page);
    if !only_there && (body.plain || !left_out) {
        return Ok(checks);
    }
    let why = format!("needs the metrics page; {missing}");
    if !body.plain && case.requirements.iter().any(|id| id.starts_with("ADM-")) {
        return Err(NotRun::Untestable(why));
    }
    Err(NotRun::NotApplicable(why))
}

fn asks_the_page(step: &Step) -> bool {
    match step {
        Step::Load(sends) | Step::Probe(sends) | Step::Background(sends) => {
            sends.iter().any(|send| send.to_metrics)
        }
        Step::AwaitMetric(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Body, load_embedded};

    #[test]
    fn a_server_without_a_metrics_page_is_judged_alike_by_its_url_and_behind_its_adapter() {
        let set = load_embedded().expect("the cases are whole");
        let mut left_out = Vec::new();
        for case in &set.cases {
            let Body::Server(body) = &case.body else { continue };
            assert!(checks(Page::There, case, body).is_ok_and(|all| all.len() == body.checks.len()));
            if !body.plain {
                continue;
            }
            let by_url = checks(Page::MissingFromUrl, case, body).map(|all| all.len());
            let by_adapter = checks(Page::MissingFromStart, case, body).map(|all| all.len());
            match (by_url, by_adapter) {
                (Ok(url), Ok(adapter)) => {
                    assert_eq!(url, adapter, "{}", case.id);
                    if url < body.checks.len() {
                        left_out.push(case.id.as_str());
                    }
                }
                (Err(url), Err(adapter)) => assert_eq!(url.verdict(), adapter.verdict(), "{}", case.id),
                differs => panic!("{}: {differs:?}", case.id),
            }
        }
        left_out.sort_unstable();
        assert_eq!(
            left_out,
            ["SRQ-02-deadline-zero", "SRQ-07-class-labels-stay-bounded"]
        );
    }

    #[test]
    fn a_case_that_needs_its_second_witness_says_what_is_missing() {
        let set = load_embedded().expect("the cases are whole");
        let asked = |id: &str| {
            let case = set.cases.iter().find(|case| case.id == id).expect(id);
            let Body::Server(body) = &case.body else {
                panic!("{id} is a server case")
            };
            checks(Page::MissingFromStart, case, body).expect_err(id)
        };
        let core = asked("SRQ-10-nobody-waits-nothing-runs");
        assert!(
            matches!(&core, NotRun::NotApplicable(why) if why.contains("no metrics_url")),
            "{core:?}"
        );
        let admission = asked("ADM-15-every-ending-releases");
        assert!(matches!(admission, NotRun::Untestable(_)), "{admission:?}");
    }

    #[test]
    fn whoever_declares_nothing_is_asked_for_nothing_that_takes_more_than_a_url() {
        let set = load_embedded().expect("the cases are whole");
        let asked: Vec<&str> = set
            .cases
            .iter()
            .filter(|case| case.excluded.is_none() && case.needs.is_empty())
            .filter(|case| match &case.body {
                Body::Server(body) => !body.plain && body.fixtures().is_empty(),
                _ => false,
            })
            .map(|case| case.id.as_str())
            .collect();
        assert!(
            asked.is_empty(),
            "neither plain nor behind a capability: {asked:?}"
        );
    }
}
