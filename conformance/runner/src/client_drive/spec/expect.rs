//! What must be seen of a group of calls: on the wire, and in what the client says.

use serde::Deserialize;

use crate::case::Range;

/// What must be seen of each call of a group. `requests` and one of `result` and `results` are needed, because a
/// pass needs both witnesses.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Requests of each call.
    pub requests: Range,
    /// Requests of all calls of the group together.
    #[serde(default)]
    pub total: Option<Range>,
    /// Requests of each call that reach the second port.
    #[serde(default)]
    pub at_second: Option<Range>,
    /// The gaps between a reject's head and the next request.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// How one gap is spread over the calls.
    #[serde(default)]
    pub spread: Vec<Spread>,
    /// The mean of a later gap over the calls is larger than that of an earlier one.
    #[serde(default)]
    pub grows: Option<Grows>,
    /// When the first request arrives, counted from the first answer of another group.
    #[serde(default)]
    pub first_request: Option<First>,
    /// What every call's reply says.
    #[serde(default)]
    pub result: Option<ResultExpect>,
    /// What some of the replies say.
    #[serde(default)]
    pub results: Vec<Share>,
    /// What the requests carry.
    #[serde(default)]
    pub fields: FieldExpect,
}

/// Bounds of one gap, or of every gap.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Which gap, from 1; absent: every one.
    #[serde(default)]
    pub k: Option<usize>,
    /// Never earlier (2 ms tolerance).
    pub min_ms: u64,
    /// Never later, plus the run's slack.
    pub max_ms: u64,
    /// A call that has no such gap passes; for cases that count the calls that have it.
    #[serde(default)]
    pub optional: bool,
}

/// The window over which a gap must be spread.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Which gap, from 1.
    pub k: usize,
    /// The window's start, D.
    pub lo_ms: u64,
    /// The window's end, M.
    pub hi_ms: u64,
}

/// Two gaps whose means are compared.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grows {
    /// The earlier gap.
    pub from: usize,
    /// The later one, whose mean must be larger.
    pub to: usize,
}

/// When a group's first requests may arrive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct First {
    /// Counted from the head of this group's first answer.
    pub after: String,
    /// Never earlier.
    pub min_ms: u64,
    /// Never later, plus slack.
    pub max_ms: u64,
    /// The group's first requests come spread: no 10 ms hold more than a fifth of them.
    #[serde(default)]
    pub spread: bool,
}

/// What a reply must say; only what is named is looked at.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultExpect {
    /// `response`, `overloaded` or `error`; one of these.
    pub kind: OneOrMore,
    /// The status.
    pub status: Option<u16>,
    /// The code; `none` for null.
    pub code: Option<String>,
    /// The permission.
    pub retry: Option<String>,
    /// Whether it may have been applied.
    pub applied: Option<String>,
    /// The hops.
    pub hop: Option<u64>,
    /// The reason for stopping; one of these.
    pub why: Option<OneOrMore>,
    /// The attempts that the client counts; absent: as many as requests were seen.
    pub attempts: Option<Range>,
    /// What is left of the hint.
    pub retry_in_ms: Option<Left>,
    /// How long the call took, by both witnesses; the upper bound gets slack.
    pub elapsed_ms: Option<Range>,
    /// How long from the head of the last answer to the reply; the upper bound gets slack.
    pub after_answer_ms: Option<Range>,
    /// How long from `cancel` to the reply; the upper bound gets slack.
    pub after_cancel_ms: Option<Range>,
}

/// One word or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// Exactly this.
    One(String),
    /// Any of these.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        OneOrMore::More(Vec::new())
    }
}

/// What a reply may say in `why` (ADAPTER.md); a word that is none of them would never be seen.
const WHYS: [&str; 14] = [
    "retry_forbidden",
    "not_safe",
    "not_replayable",
    "attempts_exhausted",
    "upstream_retries",
    "hint_too_long",
    "deadline_before_hint",
    "budget_exhausted",
    "held_off",
    "too_many_waiting",
    "deadline_exceeded",
    "cancelled",
    "transport",
    "request",
];
/// What a reply may say in `kind`.
const KINDS: [&str; 3] = ["response", "overloaded", "error"];
/// What it may say in `retry`, and in `applied`.
const RETRIES: [&str; 3] = ["after", "elsewhere", "no"];
const APPLIED: [&str; 2] = ["no", "maybe"];

impl ResultExpect {
    /// Checks what the types cannot say: a word that no reply may carry.
    pub(crate) fn validate(&self) -> Result<(), String> {
        let words = |key: &str, wanted: &[String], allowed: &[&str]| match wanted
            .iter()
            .find(|word| !allowed.contains(&word.as_str()))
        {
            None => Ok(()),
            Some(word) => Err(format!(
                "expect: result: {key} is {word:?}; allowed are {}",
                allowed.join(", ")
            )),
        };
        words("kind", self.kind.all(), &KINDS)?;
        words("why", self.why.as_ref().map_or(&[], OneOrMore::all), &WHYS)?;
        words("retry", self.retry.as_slice(), &RETRIES)?;
        words("applied", self.applied.as_slice(), &APPLIED)
    }
}

impl OneOrMore {
    /// Every word that is among them.
    fn all(&self) -> &[String] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(more) => more,
        }
    }

    /// True when the word is among them.
    pub fn holds(&self, word: &str) -> bool {
        match self {
            OneOrMore::One(one) => one == word,
            OneOrMore::More(more) => more.iter().any(|one| one == word),
        }
    }
}

impl std::fmt::Display for OneOrMore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OneOrMore::One(one) => f.write_str(one),
            OneOrMore::More(more) => f.write_str(&more.join(" or ")),
        }
    }
}

/// What is left of a hint: a range, the word `none` (no hint), or `any` range that may also be none.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub enum Left {
    /// A wait within this range.
    Within(Range),
    /// No hint at all.
    Word(LeftWord),
}

/// The word that stands for the absence of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftWord {
    /// `retry_in_ms` is null.
    None,
}

/// A reply that so many calls of the group must give.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// How many calls.
    pub calls: Range,
    /// Only the last so many calls of the group are looked at; absent: all.
    #[serde(default)]
    pub of_last: Option<usize>,
    /// What their reply says.
    pub result: ResultExpect,
}

/// What the requests of a call carry.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldExpect {
    /// Overload-Deadline-Ms is on every request, the first at most this, and falls by at least the wait.
    pub deadline_ms: Option<u64>,
    /// Overload-Attempt counts up from this.
    pub attempt_from: Option<u64>,
    /// Overload-Tier is this on every request.
    pub tier: Option<String>,
    /// Idempotency-Key is this (a String or bare) on every request.
    pub key: Option<String>,
    /// Every request has exactly this body, and its length in Content-Length where that is sent.
    pub body: Option<String>,
    /// `traceparent` is on every request with this trace-id, and with a parent-id of its own on each.
    pub trace_id: Option<String>,
    /// Fields that every request carries.
    #[serde(default)]
    pub present: Vec<String>,
    /// Fields that no request carries.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Fields that no request to the second port carries.
    #[serde(default)]
    pub absent_at_second: Vec<String>,
}

impl Expect {
    /// Checks what the types cannot say. `before` are the groups that come earlier in the case.
    pub(crate) fn validate(&self, count: usize, before: &[&str]) -> Result<(), String> {
        if self.result.is_none() && self.results.is_empty() {
            return Err("expect: `result` or `results` is needed; a pass needs both witnesses".to_owned());
        }
        for result in self
            .result
            .iter()
            .chain(self.results.iter().map(|share| &share.result))
        {
            result.validate()?;
        }
        if self.requests.hi == 0 && self.result.as_ref().is_none_or(|result| result.why.is_none()) {
            return Err("expect: zero requests need a `why` in `result`".to_owned());
        }
        if let Some(gap) = self
            .gaps
            .iter()
            .find(|gap| gap.k == Some(0) || gap.min_ms > gap.max_ms)
        {
            return Err(format!(
                "expect: gap {gap:?} must have k >= 1 and min_ms <= max_ms"
            ));
        }
        if !self.spread.is_empty() && count < 30 {
            return Err(format!(
                "expect: spread is judged over 30 calls or more, count is {count}"
            ));
        }
        match &self.first_request {
            Some(first) if first.spread && count < 30 => Err(format!(
                "expect: spread is judged over 30 calls or more, count is {count}"
            )),
            Some(first) if !before.contains(&first.after.as_str()) => Err(format!(
                "expect: first_request after {:?}, which is no earlier group",
                first.after
            )),
            _ => Ok(()),
        }
    }
}
