//! What has to be reached, and whether it is.
//!
//! The table is that of the project's design notes. A gate is judged by the median over the seeds; the worst seed is shown
//! beside it. Some gates are about other callers or another scenario than the table's ten; they are listed with the
//! setup that they need.

use crate::Setup;
use crate::caller::ClientKind;
use crate::metrics::{FIGURES, Report, median};
use crate::scenario::{GATED, Scenario};

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// At least the limit.
    AtLeast,
    /// At most the limit.
    AtMost,
}

/// One gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The runs that it looks at.
    pub case: Case,
    /// Name of the figure, as in [`FIGURES`].
    pub figure: &'static str,
    /// Which side.
    pub side: Side,
    /// The limit.
    pub limit: f64,
    /// It is one of the table of the ten scenarios.
    pub of_table: bool,
}

/// A scenario with the callers of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// Callers other than those that are judged; `None` = those.
    pub clients: Option<ClientKind>,
}

/// A gate with what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The gate.
    pub gate: Gate,
    /// Median over the seeds.
    pub median: f64,
    /// The worst seed.
    pub worst: f64,
}

impl Verdict {
    /// Does the median hold?
    pub fn passes(&self) -> bool {
        self.gate.side.holds(self.median, self.gate.limit)
    }
}

impl Side {
    /// Is the figure on the good side of the limit?
    pub fn holds(self, figure: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => figure >= limit,
            Self::AtMost => figure <= limit,
        }
    }

    /// As it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => ">=",
            Self::AtMost => "<=",
        }
    }
}

use Side::{AtLeast, AtMost};

/// DESIGN section 5: a row for each figure, a column for each scenario of [`GATED`].
const TABLE: [(&str, Side, [f64; 10]); 8] = [
    (
        "goodput",
        AtLeast,
        [0.87, 0.91, 0.89, 0.98, 0.95, 0.89, 0.80, 0.90, 0.91, 0.79],
    ),
    (
        "avoidable_loss",
        AtMost,
        [0.01, 0.01, 0.01, 0.005, 0.01, 0.01, 0.01, 0.02, 0.01, 0.01],
    ),
    (
        "attempts",
        AtMost,
        [1.4, 1.5, 1.35, 1.05, 1.4, 1.3, 1.5, 1.2, 1.6, 1.8],
    ),
    (
        "wasted",
        AtMost,
        [0.01, 0.015, 0.02, 0.005, 0.01, 0.005, 0.025, 0.005, 0.02, 0.10],
    ),
    (
        "false_accepts",
        AtMost,
        [0.005, 0.01, 0.01, 0.002, 0.02, 0.002, 0.01, 0.002, 0.005, 0.01],
    ),
    (
        "recovery_s",
        AtMost,
        [1.0, 2.0, 3.0, 1.0, 1.0, 1.0, 7.0, 1.0, 1.0, 3.0],
    ),
    (
        "spike",
        AtMost,
        [3.0, 4.5, 4.5, 2.5, 5.0, 2.2, 9.0, 2.2, 3.2, 6.0],
    ),
    (
        "critical",
        AtLeast,
        [0.995, 0.99, 0.78, 0.99, 0.90, 0.995, 0.39, 0.995, 0.995, 0.98],
    ),
];

/// The gates below the table.
const MORE: [(&str, Option<ClientKind>, &str, Side, f64); 10] = [
    ("e", None, "victims", AtLeast, 0.995),
    ("e-critical", None, "victims", AtLeast, 0.95),
    ("base", None, "success", AtLeast, 0.999),
    ("chain", None, "attempts", AtMost, 1.3),
    ("b", None, "late_success", AtLeast, 0.99),
    ("b10", None, "late_success", AtLeast, 0.99),
    ("f5", None, "late_success", AtLeast, 0.99),
    ("b", Some(ClientKind::Legacy), "late_success", AtLeast, 0.99),
    ("b10", Some(ClientKind::Legacy), "late_success", AtLeast, 0.99),
    ("f5", Some(ClientKind::Legacy), "late_success", AtLeast, 0.99),
];

/// Gates that do not hold yet, with what was tried in docs/SIMULATION.md. `gates` fails on them all the same; the smoke test
/// lets them be open and nothing else.
pub const OPEN: [(&str, &str); 14] = [
    // Holds over seeds 1 to 5 (1.38 for 1.4) and 6 to 10; within a hundredth of its gate.
    ("a2", "attempts"),
    ("a5", "goodput"),
    ("a5", "recovery_s"),
    ("a5", "critical"),
    ("b", "attempts"),
    ("b10", "avoidable_loss"),
    ("b10", "critical"),
    ("c", "avoidable_loss"),
    ("c", "wasted"),
    ("e", "attempts"),
    // Holds by the median of five seeds (0.0197 for 0.02); on the one seed of the smoke test it has 0.0224.
    ("e", "avoidable_loss"),
    ("f5", "avoidable_loss"),
    ("f5", "recovery_s"),
    ("chain", "attempts"),
];

/// Every gate.
pub fn all() -> Vec<Gate> {
    let table = GATED.iter().enumerate().flat_map(|(column, scenario)| {
        TABLE.iter().map(move |(figure, side, limits)| Gate {
            case: Case {
                scenario,
                clients: None,
            },
            figure,
            side: *side,
            limit: limits[column],
            of_table: true,
        })
    });
    let more = MORE.iter().map(|(scenario, clients, figure, side, limit)| Gate {
        case: Case {
            scenario,
            clients: *clients,
        },
        figure,
        side: *side,
        limit: *limit,
        of_table: false,
    });
    table.chain(more).collect()
}

impl Case {
    /// The setup of this case for what `judged` judges; `None` where there is no such scenario.
    pub fn setup(self, judged: &Setup, seed: u64) -> Option<Setup> {
        Some(Setup {
            scenario: Scenario::named(self.scenario)?,
            seed,
            clients: self.clients.unwrap_or(judged.clients),
            ..judged.clone()
        })
    }
}

/// The cases of these gates, each once, in their order.
pub fn cases(gates: &[Gate]) -> Vec<Case> {
    let mut cases = Vec::new();
    for gate in gates {
        if !cases.contains(&gate.case) {
            cases.push(gate.case);
        }
    }
    cases
}

/// Judges the gates of one case by the reports of its seeds.
pub fn judge(gates: &[Gate], case: Case, reports: &[Report]) -> Vec<Verdict> {
    let of_case = gates.iter().filter(|gate| gate.case == case);
    let verdict = |gate: &Gate| {
        let (_, figure) = FIGURES.iter().find(|(name, _)| *name == gate.figure)?;
        let measured: Vec<f64> = reports.iter().map(figure).collect();
        let worst = match gate.side {
            AtLeast => measured.iter().copied().fold(f64::INFINITY, f64::min),
            AtMost => measured.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        Some(Verdict {
            gate: gate.clone(),
            median: median(measured),
            worst,
        })
    };
    of_case.filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gate_names_a_figure_and_a_scenario_that_exist() {
        for gate in all() {
            assert!(FIGURES.iter().any(|(name, _)| *name == gate.figure), "{gate:?}");
            assert!(Scenario::named(gate.case.scenario).is_some(), "{gate:?}");
        }
        assert_eq!(all().len(), 90);
    }

    #[test]
    fn a_gate_is_judged_by_the_median_and_shows_the_worst_seed() {
        let gates = all();
        let case = Case {
            scenario: "a2",
            clients: None,
        };
        let setup = case
            .setup(&Setup::product(crate::scenario::all().remove(0), 1), 1)
            .unwrap();
        let mut small = setup;
        small.scenario.workers = 1;
        small.scenario.disturbed /= 10;
        let report = crate::run(&small, crate::clock::now()).unwrap().report();
        let of = |attempts| Report {
            attempts,
            ..report.clone()
        };
        let verdicts = judge(&gates, case, &[of(1.0), of(9.0), of(1.3)]);
        let attempts = verdicts.iter().find(|v| v.gate.figure == "attempts").unwrap();
        assert_eq!((attempts.median, attempts.worst), (1.3, 9.0));
        assert!(attempts.passes());
        assert_eq!(verdicts.len(), 8);
    }
}
