//! What a program is known not to do yet.
//!
//! A suite that is red for a known reason is soon not looked at. A baseline names the cases that do not hold, each
//! with a reason and a date, and from then on only news is red: another case that fails, one of these that holds
//! again (the entry is stale and must go), and a date that is past. An id that no case has is refused, so that an
//! entry cannot outlive its case.
//!
//! ```toml
//! schema = "overload-baseline/1"
//!
//! [[known]]
//! case = "stop-over-cap"
//! kind = "fail"          # or "flaky": may hold or not
//! reason = "we clamp to 60 s; tracked as #123"
//! expires = 2027-01-31   # the last day on which this counts; at most 366 days ahead
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use crate::report::CaseReport;
use crate::verdict::Verdict;

const SCHEMA: &str = "overload-baseline/1";
/// How far ahead an entry may expire: a baseline is a debt with a date, not a decision.
pub const MAX_DAYS_AHEAD: i64 = 366;
/// The most entries of a baseline.
pub const MAX_ENTRIES: usize = 1000;
/// The shortest reason, in characters.
const MIN_REASON: usize = 10;

/// Whether a case always fails or comes and goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It does not hold; once it does, the entry is stale.
    Fail,
    /// It holds or not.
    Flaky,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(default)]
    known: Vec<RawEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    case: String,
    kind: Kind,
    reason: String,
    expires: toml::value::Datetime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: Kind,
    reason: String,
    expires: Day,
}

/// A day, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Day(i64);

impl Day {
    fn of(now: SystemTime) -> Self {
        let seconds = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs() / 86_400);
        Self(i64::try_from(seconds).unwrap_or(i64::MAX))
    }

    /// From a civil date (the proleptic Gregorian calendar; the arithmetic is that of days in a 400-year era).
    fn civil(year: i64, month: i64, day: i64) -> Self {
        let year = if month <= 2 { year - 1 } else { year };
        let era = year.div_euclid(400);
        let of_era = year.rem_euclid(400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        Self(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
    }
}

/// Why a baseline was refused. Ends the runner with exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// Not TOML, a key that is not known, a value of the wrong type.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// Another schema.
    #[error("schema is {0:?}; this runner reads {SCHEMA:?}")]
    Schema(String),
    /// Over [`MAX_ENTRIES`].
    #[error("{0} entries; at most {MAX_ENTRIES} are allowed")]
    TooMany(usize),
    /// An entry says something that is not allowed.
    #[error("case {case}: {what}")]
    Entry {
        /// The case of the entry.
        case: String,
        /// Which value, and what is allowed.
        what: String,
    },
}

/// A baseline, checked against the cases that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Baseline {
    entries: BTreeMap<String, Entry>,
    today: Day,
}

impl Baseline {
    /// Reads a baseline. `known_cases` are the ids of all cases and vectors, `now` decides what has expired.
    ///
    /// # Errors
    /// See [`BaselineError`].
    pub fn parse(text: &str, known_cases: &BTreeSet<String>, now: SystemTime) -> Result<Self, BaselineError> {
        let file: File = toml::from_str(text)?;
        if file.schema != SCHEMA {
            return Err(BaselineError::Schema(file.schema));
        }
        if file.known.len() > MAX_ENTRIES {
            return Err(BaselineError::TooMany(file.known.len()));
        }
        let today = Day::of(now);
        let mut entries = BTreeMap::new();
        for raw in file.known {
            let case = raw.case.clone();
            let fail = |what: String| BaselineError::Entry {
                case: case.clone(),
                what,
            };
            if !known_cases.contains(&case) {
                return Err(fail("there is no case of this id".to_owned()));
            }
            if raw.reason.trim().chars().count() < MIN_REASON {
                return Err(fail(format!(
                    "reason is {:?}; at least {MIN_REASON} characters say why",
                    raw.reason
                )));
            }
            let date = match (raw.expires.date, raw.expires.time) {
                (Some(date), None) => Day::civil(date.year.into(), date.month.into(), date.day.into()),
                _ => return Err(fail(format!("expires is {}; it is a date", raw.expires))),
            };
            if date.0 > today.0 + MAX_DAYS_AHEAD {
                return Err(fail(format!(
                    "expires is {}; at most {MAX_DAYS_AHEAD} days ahead are allowed",
                    raw.expires
                )));
            }
            let entry = Entry {
                kind: raw.kind,
                reason: raw.reason.trim().to_owned(),
                expires: date,
            };
            if entries.insert(case.clone(), entry).is_some() {
                return Err(fail("it is there twice".to_owned()));
            }
        }
        Ok(Self { entries, today })
    }

    /// Says of a case that ran what the baseline makes of it. What is not in the baseline stays as it is; so do
    /// `harness_error`, `info` and `not_applicable`, which say nothing about the program.
    pub fn apply(&self, report: &mut CaseReport) {
        let Some(entry) = self.entries.get(&report.id) else {
            return;
        };
        let failed = report.verdict.fails() || report.verdict == Verdict::Warn;
        if !failed && report.verdict != Verdict::Pass {
            return;
        }
        let (verdict, why) = if entry.expires < self.today {
            (
                Verdict::StaleBaseline,
                "the date of its baseline entry is past; mend it, or give a new date and reason",
            )
        } else {
            match (failed, entry.kind) {
                (true, Kind::Fail) => (Verdict::KnownFail, "known not to hold"),
                (true, Kind::Flaky) => (Verdict::KnownFlaky, "known to come and go"),
                (false, Kind::Fail) => (
                    Verdict::StaleBaseline,
                    "it holds again; take it out of the baseline",
                ),
                (false, Kind::Flaky) => return,
            }
        };
        let own = report
            .reason
            .take()
            .map_or(String::new(), |own| format!(" ({own})"));
        report.reason = Some(format!("{why}: {}{own}", entry.reason));
        report.verdict = verdict;
    }
}

#[cfg(test)]
mod tests;
