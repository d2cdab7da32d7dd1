//! What must be seen, as data.

use std::collections::BTreeMap;

use serde::Deserialize;

fn one() -> u32 {
    1
}

/// Which answers a check looks at. What is left out is not looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Where {
    /// One of these statuses.
    #[serde(default)]
    pub status: Option<Vec<u16>>,
    /// One of these codes.
    #[serde(default)]
    pub code: Option<Vec<String>>,
    /// None of these codes.
    #[serde(default)]
    pub not_code: Option<Vec<String>>,
    /// This permission.
    #[serde(default)]
    pub retry: Option<String>,
    /// This about side effects.
    #[serde(default)]
    pub applied: Option<String>,
    /// This tier in Overload-Signal.
    #[serde(default)]
    pub tier: Option<String>,
    /// A reject (429, 503, or any answer with a code), or none.
    #[serde(default)]
    pub reject: Option<bool>,
    /// `degraded` in Overload-Signal, or not.
    #[serde(default)]
    pub degraded: Option<bool>,
    /// `outcome` in Overload-Signal.
    #[serde(default)]
    pub outcome: Option<String>,
    /// A header field that is there.
    #[serde(default)]
    pub with_header: Option<String>,
    /// A hint of at most this many ms.
    #[serde(default)]
    pub after_up_to: Option<i64>,
}

/// One thing that must be seen. `of` is a label, or `*` for every answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// Every reject keeps the rules of single rejects.
    Rules(RulesCheck),
    /// How many answers are of a kind.
    Count(Count),
    /// Each forced reject is the one that was asked for.
    Forced(Of),
    /// How long answers took, from send to head.
    Time(Time),
    /// Hints differ from caller to caller.
    Windows(Windows),
    /// The largest `after` of `large` is at least `factor` times that of `small`.
    Growth(Growth),
    /// Two answers have the same head (but for Date and per-decision values).
    SameHead(SameHead),
    /// Answers have one and the same value of a header field.
    SameHeader(SameHeader),
    /// No answer holds one of these words.
    Silent(Silent),
    /// Some answers hold all of these words.
    Told(Told),
    /// Several labels fare alike.
    Shares(Shares),
    /// An API description lists the refusals of a route.
    Described(Described),
    /// A metric on one page.
    Metric(Metric),
    /// How far a metric moved between two pages.
    Moved(Moved),
    /// The metrics tell the same story as the wire.
    Agree(Agree),
    /// A metric has no other labels than these.
    Labels(Labels),
    /// A page holds none of these words.
    PageSilent(PageSilent),
    /// The number of series grows by no more than this.
    Series(Series),
    /// How many of one label's tasks are done before another's.
    Turn(Turn),
    /// How the tasks behind 202s ended.
    Ended(Ended),
}

/// Answers of a label.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Of {
    /// Label or `*`.
    pub of: String,
}

/// See [`Check::Rules`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RulesCheck {
    /// Label or `*`.
    pub of: String,
    /// Only these rules; absent: all.
    #[serde(default)]
    pub only: Option<Vec<String>>,
    /// All but these rules.
    #[serde(default)]
    pub but: Vec<String>,
    /// At least this many rejects must be there to look at.
    #[serde(default = "one")]
    pub at_least: u32,
}

impl RulesCheck {
    /// True when the check looks for this rule.
    pub fn wants(&self, rule: &str) -> bool {
        let one_of = |ids: &[String]| ids.iter().any(|id| id == rule);
        self.only.as_deref().is_none_or(one_of) && !one_of(&self.but)
    }
}

/// See [`Check::Count`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// At least.
    #[serde(default)]
    pub min: Option<usize>,
    /// At most.
    #[serde(default)]
    pub max: Option<usize>,
    /// Every one.
    #[serde(default)]
    pub all: bool,
}

/// See [`Check::Time`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Time {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// Not before; exact.
    #[serde(default)]
    pub min_ms: u64,
    /// Not after this + slack.
    pub max_ms: u64,
}

/// See [`Check::Windows`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// Label or `*`.
    pub of: String,
    /// At least this many different `[after, max]`.
    pub distinct: usize,
    /// In each run of this many rejects.
    pub per: usize,
}

/// See [`Check::Growth`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Label of the light load.
    pub small: String,
    /// Label of the heavy load.
    pub large: String,
    /// How many times.
    pub factor: f64,
}

/// See [`Check::SameHead`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameHead {
    /// Label of the HEAD request.
    pub of: String,
    /// Label of the other one.
    #[serde(rename = "as")]
    pub like: String,
}

/// See [`Check::SameHeader`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameHeader {
    /// Labels whose answers are compared.
    pub of: Vec<String>,
    /// The field.
    pub header: String,
}

/// See [`Check::Silent`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Silent {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// Words that must not be there, in head or body.
    pub words: Vec<String>,
}

/// See [`Check::Told`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Told {
    /// Label or `*`.
    pub of: String,
    /// Which.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// Words that must be there, in head or body of one answer.
    pub words: Vec<String>,
    /// In at least this many answers.
    #[serde(default = "one_answer")]
    pub min: usize,
    /// In at most this many.
    #[serde(default)]
    pub max: Option<usize>,
}

fn one_answer() -> usize {
    1
}

/// See [`Check::Shares`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    /// Labels.
    pub of: Vec<String>,
    /// What counts as faring well.
    #[serde(rename = "where", default)]
    pub filter: Where,
    /// The least share of answers of this kind is at least this part of the greatest.
    pub least_to_greatest: f64,
    /// Both of at least this many answers, so that a ratio means something.
    pub at_least: usize,
}

/// See [`Check::Described`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// Label of the request for the description (OpenAPI, JSON).
    pub of: String,
    /// `METHOD /path` of the routes that can refuse.
    pub routes: Vec<String>,
    /// Statuses that each of them lists, beside each other.
    pub statuses: Vec<u16>,
    /// Header fields that each of these responses lists.
    pub headers: Vec<String>,
    /// Members of the body's schema.
    pub members: Vec<String>,
}

/// See [`Check::Metric`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Name of the page.
    pub scrape: String,
    /// Metric.
    pub name: String,
    /// Labels that a series must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The sum over the series is at least.
    #[serde(default)]
    pub min: Option<f64>,
    /// The sum over the series is at most.
    #[serde(default)]
    pub max: Option<f64>,
    /// At least one series must be there; default true.
    #[serde(default = "yes")]
    pub present: bool,
}

fn yes() -> bool {
    true
}

/// See [`Check::Moved`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moved {
    /// Page before.
    pub from: String,
    /// Page after.
    pub to: String,
    /// Metric.
    pub name: String,
    /// Labels that a series must have.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// By at least.
    #[serde(default)]
    pub min: Option<f64>,
    /// By at most.
    #[serde(default)]
    pub max: Option<f64>,
}

/// See [`Check::Agree`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agree {
    /// Page before.
    pub from: String,
    /// Page after.
    pub to: String,
    /// Label or `*`: everything that was sent to admission between the two pages.
    pub of: String,
}

/// See [`Check::Labels`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labels {
    /// Name of the page.
    pub scrape: String,
    /// Metric.
    pub name: String,
    /// Label names that are allowed.
    pub allowed: Vec<String>,
}

/// See [`Check::PageSilent`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSilent {
    /// Name of the page.
    pub scrape: String,
    /// Words that must not be there.
    pub words: Vec<String>,
}

/// See [`Check::Series`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Page before.
    pub from: String,
    /// Page after.
    pub to: String,
    /// By at most this many.
    pub grows_by: usize,
}

/// See [`Check::Turn`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Label of the light tenant's task.
    pub of: String,
    /// Label of the heavy tenant's tasks.
    pub by: String,
    /// So many of the heavy tenant's may be done between the light one's send and its end.
    pub at_most: usize,
}

/// See [`Check::Ended`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Label of the sends that were polled.
    pub of: String,
    /// At least this many 202s must be there.
    pub at_least: usize,
    /// None may have ended in one of these states.
    #[serde(default)]
    pub not: Vec<String>,
}

impl Check {
    /// Whether it needs the metrics page.
    pub fn needs_metrics(&self) -> bool {
        matches!(
            self,
            Self::Metric(_)
                | Self::Moved(_)
                | Self::Agree(_)
                | Self::Labels(_)
                | Self::PageSilent(_)
                | Self::Series(_)
        )
    }
}
