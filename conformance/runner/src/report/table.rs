//! Several implementations side by side: who honours what, with measured delays.
//!
//! One report says whether a program conforms. Somebody who chooses between programs asks another question: which of
//! them does what, and by how much. So the reports are laid beside each other, requirement by requirement and case by
//! case, and nothing is added up to a mark.

mod html;
mod text;

use std::collections::BTreeMap;

pub use html::render as html;
pub use text::render as markdown;

use super::{CaseReport, RequirementState, RunReport};
use crate::verdict::Verdict;

/// The most reports that a table takes.
pub const MAX_REPORTS: usize = 50;

/// What one implementation showed in one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// What came out.
    pub verdict: Verdict,
    /// The gaps between a reject and the next request, where there were any.
    pub delays: Option<Delays>,
    /// Requests on the wire, over all calls that were measured.
    pub requests: usize,
    /// Why it did not pass, in one line; empty where it did.
    pub why: String,
}

/// Measured delays, in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delays {
    /// How many gaps.
    pub n: usize,
    /// The shortest.
    pub least: f64,
    /// The one in the middle.
    pub median: f64,
    /// The longest.
    pub most: f64,
}

impl std::fmt::Display for Delays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.n == 1 {
            write!(f, "{:.0} ms", self.median)
        } else {
            write!(
                f,
                "{:.0} ms ({:.0} to {:.0}, n={})",
                self.median, self.least, self.most, self.n
            )
        }
    }
}

/// One line of the table of requirements.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleRow {
    /// Id, level and text.
    pub rule: String,
    /// What each report says; `None` where it does not name the requirement.
    pub states: Vec<Option<RequirementState>>,
}

/// One line of the table of cases.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseRow {
    /// The case.
    pub id: String,
    /// What must be true in it.
    pub title: String,
    /// The requirements that it speaks for.
    pub requirements: Vec<String>,
    /// What each report says; `None` where the case did not run.
    pub cells: Vec<Option<Cell>>,
}

/// Several reports, laid beside each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Table<'a> {
    /// The reports, in the order in which they were given.
    pub reports: Vec<&'a RunReport>,
    /// Requirements, by id.
    pub rules: Vec<RuleRow>,
    /// Cases, by id.
    pub cases: Vec<CaseRow>,
}

impl<'a> Table<'a> {
    /// Lays reports beside each other.
    pub fn new(reports: &'a [RunReport]) -> Self {
        let mut rules: BTreeMap<&str, RuleRow> = BTreeMap::new();
        let mut cases: BTreeMap<&str, CaseRow> = BTreeMap::new();
        for (column, report) in reports.iter().enumerate() {
            for line in &report.requirements {
                let row = rules.entry(&line.id).or_insert_with(|| RuleRow {
                    rule: format!("{} {}: {}", line.id, line.level, line.text),
                    states: vec![None; reports.len()],
                });
                row.states[column] = Some(line.state);
            }
            for case in &report.cases {
                let row = cases.entry(&case.id).or_insert_with(|| CaseRow {
                    id: case.id.clone(),
                    title: case.title.clone(),
                    requirements: case.requirements.clone(),
                    cells: vec![None; reports.len()],
                });
                row.cells[column] = Some(Cell::of(case));
            }
        }
        Self {
            reports: reports.iter().collect(),
            rules: rules.into_values().collect(),
            cases: cases.into_values().collect(),
        }
    }
}

impl Cell {
    fn of(case: &CaseReport) -> Self {
        let gaps = case.measured.iter().flat_map(|call| call.gaps_ms.iter().copied());
        Self {
            verdict: case.verdict,
            delays: Delays::of(gaps.collect()),
            requests: case.measured.iter().map(|call| call.requests).sum(),
            why: if case.verdict == Verdict::Pass {
                String::new()
            } else {
                case.in_short()
            },
        }
    }
}

impl Delays {
    /// Over all gaps; `None` where there is none.
    pub fn of(mut gaps: Vec<f64>) -> Option<Self> {
        gaps.sort_by(f64::total_cmp);
        Some(Self {
            n: gaps.len(),
            least: *gaps.first()?,
            median: *gaps.get(gaps.len() / 2)?,
            most: *gaps.last()?,
        })
    }
}

#[cfg(test)]
mod tests;
