//! What is declared, as it stands in a file or in code, not checked yet.

use serde::Deserialize;

/// The vocabulary of one service. Turned into a [`super::Vocabulary`] by [`Self::build`].
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Declaration {
    /// The unit of `x-ratelimit-reset` at this destination: `s` (from now), `ms`, `epoch_s` or `epoch_ms`. Services
    /// differ and a guess is wrong by years, so without it the field is not read (CMP-05).
    pub x_ratelimit_reset: Option<String>,
    /// The refusals, at most [`super::MAX_REFUSALS`]. Reading takes the first that fits, writing the first with the code.
    pub refusals: Vec<Refusal>,
}

/// One refusal: how it is known, and what it means.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Refusal {
    /// What it means: a code of the contract or a private one, `[a-z][a-z0-9_]{1,62}`. Required.
    pub code: String,
    /// The statuses it comes with, 400 to 599, at least one. Success and redirects stay what they are.
    pub status: Vec<u16>,
    /// A header that must be there too.
    pub header: Option<HeaderMatch>,
    /// A member of the JSON body that must be there too.
    pub body: Option<BodyMatch>,
    /// Where the delay stands. Default: nowhere; `Retry-After` and the other known fields count in any case.
    pub delay: Option<Delay>,
    /// `after`, `elsewhere` or `no`. Default: what the code says by itself. Other sources can only tighten it.
    pub retry: Option<String>,
    /// `no` where the service promises that nothing was done, or `maybe`. Default: not said, which counts as maybe.
    pub applied: Option<String>,
    /// `request`, `tenant` or `service`. Default: request.
    pub scope: Option<String>,
}

/// A header, by name and value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    /// Its name.
    pub name: String,
    /// Its whole value, upper and lower case alike. Default: any; `1` is then written.
    #[serde(default)]
    pub value: Option<String>,
}

/// A member of a JSON body, by pointer and value.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BodyMatch {
    /// Where it stands: a JSON pointer (RFC 6901) of 1 to 8 steps, such as `/error/code`.
    pub pointer: String,
    /// Its value. Default: any but null; `true` is then written.
    #[serde(default)]
    pub value: Option<Literal>,
}

/// A value in a JSON body.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Literal {
    /// true or false.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

/// Where a delay stands and how it is counted: a header or a pointer, one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// In this header.
    #[serde(default)]
    pub header: Option<String>,
    /// At this place in the JSON body, as a number or as text.
    #[serde(default)]
    pub pointer: Option<String>,
    /// `s` or `ms` from now, `epoch_s` or `epoch_ms` (since 1970), or `date` (an HTTP-date).
    pub unit: String,
}
