//! Which case shows which requirement, and which broken peer shows that the case can fail.
//!
//! A requirement without a case is a wish; a case that nothing has ever failed is a decoration. The page
//! `docs/TRACEABILITY.md` lays all of it out, is generated from the same data that the runner runs on, and a test
//! fails when it is stale or when a row has neither what it needs nor a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;

use crate::case::CaseSet;
use crate::peers::Peers;
use crate::report::markdown::cell;
use crate::required::Required;
use crate::requirement::Requirement;
use crate::vector::Vectors;

/// Reasons and controls that the other data does not hold.
pub const COVERAGE: &str = include_str!("../../coverage.toml");

/// The test that shows each vector to fail on any other reading.
pub const OTHER_READING: &str =
    "conformance/runner/src/vector.rs: a_result_that_differs_in_one_member_fails_and_the_expected_one_passes";

/// `conformance/coverage.toml`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// Requirement id -> why no case speaks for it.
    pub without_case: BTreeMap<String, String>,
    /// Negative controls that are tests of the runner instead of mutants.
    #[serde(default, rename = "control")]
    pub controls: Vec<Control>,
}

/// A test in which a case (or the rule in it) is shown to fail.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// The requirements that are broken.
    pub breaks: Vec<String>,
    /// `file: name of the test`.
    pub test: String,
    /// What is wrong in it.
    pub about: String,
}

/// One requirement with everything that speaks for it.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// The requirement.
    pub requirement: &'a Requirement,
    /// Cases that are played, and vectors.
    pub cases: Vec<String>,
    /// Mutants that break it: program and name.
    pub mutants: Vec<String>,
    /// Tests that break it.
    pub controls: Vec<&'a Control>,
    /// Vectors among the cases.
    pub vectors: usize,
    /// Why it has no case.
    pub excluded: Option<&'a str>,
}

/// All requirements, in the order of their ids.
#[derive(Debug)]
pub struct Trace<'a> {
    /// The rows.
    pub rows: Vec<Row<'a>>,
    /// Entries that name what does not exist.
    dangling: Vec<String>,
    required: &'a Required,
}

impl<'a> Trace<'a> {
    /// Lays everything out.
    pub fn new(
        set: &'a CaseSet,
        vectors: &Vectors,
        peers: &Peers,
        coverage: &'a Coverage,
        required: &'a Required,
    ) -> Self {
        let rows = set.requirements.iter().map(|requirement| {
            let id = &requirement.id;
            let played = set.cases.iter().filter(|case| case.excluded.is_none());
            let mut cases: Vec<String> = played
                .filter(|case| case.requirements.contains(id))
                .map(|case| case.id.clone())
                .collect();
            let parsed = vectors.vectors.iter().filter(|vector| vector.req.contains(id));
            let parsed: Vec<String> = parsed.map(|vector| format!("vector/{}", vector.id)).collect();
            let vectors = parsed.len();
            cases.extend(parsed);
            let breaking = peers.mutants.iter().filter(|mutant| mutant.breaks.contains(id));
            Row {
                requirement,
                cases,
                mutants: breaking
                    .map(|mutant| format!("{} {}", mutant.program, mutant.name))
                    .collect(),
                controls: coverage
                    .controls
                    .iter()
                    .filter(|control| control.breaks.contains(id))
                    .collect(),
                vectors,
                excluded: coverage.without_case.get(id).map(String::as_str),
            }
        });
        let named: BTreeSet<&str> = coverage
            .without_case
            .keys()
            .chain(coverage.controls.iter().flat_map(|control| &control.breaks))
            .chain(peers.mutants.iter().flat_map(|mutant| &mutant.breaks))
            .map(String::as_str)
            .collect();
        let dangling = named
            .into_iter()
            .filter(|id| set.requirements.get(id).is_none())
            .map(|id| format!("{id} is named, and is no requirement"))
            .collect();
        Self {
            rows: rows.collect(),
            dangling,
            required,
        }
    }

    /// What is wrong: rows that are neither covered nor explained, and explanations that are not needed.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = self.dangling.clone();
        for row in &self.rows {
            let id = &row.requirement.id;
            let caught = !row.mutants.is_empty() || !row.controls.is_empty() || row.vectors > 0;
            match (row.cases.is_empty(), row.excluded) {
                (true, None) => gaps.push(format!(
                    "{id} has no case: write one, or say why in coverage.toml"
                )),
                (false, Some(_)) => gaps.push(format!("{id} has a case: take it out of coverage.toml")),
                _ => {}
            }
            match (row.cases.is_empty(), caught) {
                (false, false) => gaps.push(format!(
                    "{id} has no mutant and no control: its cases have not been shown to fail"
                )),
                (true, true) => {
                    gaps.push(format!("{id} has a mutant or control, and no case to catch it"));
                }
                _ => {}
            }
            if row.excluded.is_some_and(|reason| reason.trim().len() < 10) {
                gaps.push(format!("{id}: that is no reason"));
            }
            if !self.required.requirements().any(|frozen| frozen == id) {
                gaps.push(format!(
                    "{id} is not in requirements/v1: before the first release it belongs there"
                ));
            }
        }
        gaps
    }

    /// The page.
    pub fn page(&self) -> String {
        let count = |wanted: fn(&Row<'_>) -> bool| self.rows.iter().filter(|row| wanted(row)).count();
        let excluded = count(|row| row.cases.is_empty());
        let mut out = format!(
            "# Traceability\n\nGenerated by `holdoff-conformance trace > docs/TRACEABILITY.md` from \
             `conformance/contract/requirements.toml`,\n`conformance/cases`, `conformance/peers/peers.toml` and \
             `conformance/coverage.toml`; a test fails when it is stale.\n\n{} requirements: {} tested, {excluded} \
             excluded with a reason. Of the tested ones {} are broken by a mutant that their\ncases must catch \
             (`holdoff-conformance self`), {} by a control among the runner's tests, and {} by every other reading of \
             their\nvectors. A peer that does nothing fails every case (`real_time_idle.rs`).\n",
            self.rows.len(),
            self.rows.len() - excluded,
            count(|row| !row.mutants.is_empty()),
            count(|row| row.mutants.is_empty() && !row.controls.is_empty()),
            count(|row| row.mutants.is_empty() && row.controls.is_empty() && row.vectors > 0),
        );
        let mut family = "";
        for row in &self.rows {
            let own = row.requirement.id.split('-').next().unwrap_or_default();
            if own != family {
                family = own;
                let _ = write!(
                    out,
                    "\n## {family}\n\n| requirement | shown by | caught |\n|---|---|---|\n"
                );
            }
            let _ = writeln!(
                out,
                "| **{}** {} {} | {} | {} |",
                row.requirement.id,
                row.requirement.level,
                cell(&row.requirement.text),
                row.shown(),
                row.caught()
            );
        }
        out
    }
}

/// The most cases that one cell names.
const MAX_NAMED: usize = 12;

impl Row<'_> {
    fn shown(&self) -> String {
        if let Some(reason) = self.excluded {
            return format!("excluded: {}", cell(reason));
        }
        let mut named: Vec<String> = self
            .cases
            .iter()
            .take(MAX_NAMED)
            .map(|case| format!("`{case}`"))
            .collect();
        if self.cases.len() > MAX_NAMED {
            named.push(format!("and {} more", self.cases.len() - MAX_NAMED));
        }
        named.join(", ")
    }

    fn caught(&self) -> String {
        if self.cases.is_empty() {
            return "-".to_owned();
        }
        let mut caught: Vec<String> = self.mutants.iter().map(|mutant| format!("`{mutant}`")).collect();
        caught.extend(self.controls.iter().map(|control| cell(&control.about)));
        if self.vectors > 0 {
            caught.push("any other reading".to_owned());
        }
        caught.join(", ")
    }
}
