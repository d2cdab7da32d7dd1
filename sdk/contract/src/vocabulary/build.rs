//! From what was declared to what is known to be right: each fault names its entry, field, value and limit.

use http::{HeaderName, HeaderValue, StatusCode};

use super::pointer::Pointer;
use super::{Declaration, Delay, Entry, Literal, MAX_REFUSALS, Refusal, Source, Unit, Vocabulary};
use crate::limits::MAX_NAME_BYTES;

/// Bytes of a text in a body, and of a header's value, that a refusal may be known by.
const MAX_VALUE_BYTES: usize = 256;
/// Statuses of one refusal.
const MAX_STATUSES: usize = 16;

/// A declaration that is not right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vocabulary, {entry}: {field} is {value:?}; it must be {limit}")]
pub struct VocabularyError {
    /// Which entry: `refusals[2] (queue_full)`, counted from 0, or `the declaration`.
    pub entry: String,
    /// Which field of it.
    pub field: &'static str,
    /// What was given, cut to 64 characters.
    pub value: String,
    /// What is allowed.
    pub limit: &'static str,
}

/// A fault in a field; its entry is added by who knows it.
struct Fault {
    field: &'static str,
    value: String,
    limit: &'static str,
}

impl Fault {
    fn new(field: &'static str, value: impl ToString, limit: &'static str) -> Self {
        let value = value.to_string().chars().take(64).collect();
        Self { field, value, limit }
    }

    fn of(self, entry: String) -> VocabularyError {
        VocabularyError {
            entry,
            field: self.field,
            value: self.value,
            limit: self.limit,
        }
    }
}

impl Declaration {
    /// Checks all of it.
    ///
    /// # Errors
    /// Names the first fault: the entry, its field, the value and what is allowed.
    pub fn build(self) -> Result<Vocabulary, VocabularyError> {
        let whole = |fault: Fault| fault.of("the declaration".to_owned());
        if self.refusals.len() > MAX_REFUSALS {
            return Err(whole(Fault::new(
                "refusals",
                self.refusals.len(),
                "at most 64 entries",
            )));
        }
        let reset = self.x_ratelimit_reset.as_deref().map(reset_unit).transpose();
        let entries = self.refusals.into_iter().enumerate().map(|(index, refusal)| {
            let entry = format!(
                "refusals[{index}] ({})",
                refusal.code.chars().take(64).collect::<String>()
            );
            refusal.build().map_err(|fault| fault.of(entry))
        });
        Ok(Vocabulary {
            reset: reset.map_err(whole)?,
            entries: entries.collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<Declaration> for Vocabulary {
    type Error = VocabularyError;

    fn try_from(declaration: Declaration) -> Result<Self, VocabularyError> {
        declaration.build()
    }
}

impl Refusal {
    fn build(self) -> Result<Entry, Fault> {
        let code: crate::Code = self
            .code
            .parse()
            .map_err(|_| Fault::new("code", &self.code, "[a-z][a-z0-9_]{1,62}"))?;
        let retry = word("retry", self.retry.as_deref(), "after, elsewhere or no")?;
        let header = match self.header {
            None => None,
            Some(given) => Some((
                header_name("header.name", &given.name)?,
                given.value.as_deref().map(header_value).transpose()?,
            )),
        };
        let body = match self.body {
            None => None,
            Some(given) => Some((
                pointer("body.pointer", &given.pointer)?,
                given.value.map(literal).transpose()?,
            )),
        };
        Ok(Entry {
            retry: retry.unwrap_or_else(|| code.default_retry()),
            code,
            statuses: statuses(&self.status)?,
            header,
            body,
            delay: self.delay.map(Delay::build).transpose()?,
            applied: word("applied", self.applied.as_deref(), "no or maybe")?,
            scope: word("scope", self.scope.as_deref(), "request, tenant or service")?,
        })
    }
}

impl Delay {
    fn build(self) -> Result<(Source, Unit), Fault> {
        let unit = Unit::parse(&self.unit)
            .ok_or_else(|| Fault::new("delay.unit", &self.unit, "s, ms, epoch_s, epoch_ms or date"))?;
        let source = match (self.header, self.pointer) {
            (Some(name), None) => Source::Header(header_name("delay.header", &name)?),
            (None, Some(text)) => Source::Body(pointer("delay.pointer", &text)?),
            (header, _) => {
                let given = if header.is_some() { "both" } else { "neither" };
                return Err(Fault::new("delay", given, "either a header or a pointer"));
            }
        };
        Ok((source, unit))
    }
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "s" => Some(Self::Seconds),
            "ms" => Some(Self::Milliseconds),
            "epoch_s" => Some(Self::EpochSeconds),
            "epoch_ms" => Some(Self::EpochMilliseconds),
            "date" => Some(Self::Date),
            _ => None,
        }
    }
}

fn reset_unit(text: &str) -> Result<Unit, Fault> {
    Unit::parse(text)
        .filter(|unit| *unit != Unit::Date)
        .ok_or_else(|| Fault::new("x_ratelimit_reset", text, "s, ms, epoch_s or epoch_ms"))
}

fn statuses(given: &[u16]) -> Result<Vec<StatusCode>, Fault> {
    if given.is_empty() || given.len() > MAX_STATUSES {
        return Err(Fault::new("status", format!("{given:?}"), "1 to 16 statuses"));
    }
    let parse = |status: &u16| {
        let known = StatusCode::from_u16(*status).ok();
        known
            .filter(|status| status.is_client_error() || status.is_server_error())
            .ok_or_else(|| Fault::new("status", status, "400 to 599"))
    };
    given.iter().map(parse).collect()
}

fn word<T: std::str::FromStr>(
    field: &'static str,
    text: Option<&str>,
    limit: &'static str,
) -> Result<Option<T>, Fault> {
    text.map(|text| text.parse().map_err(|_| Fault::new(field, text, limit)))
        .transpose()
}

fn header_name(field: &'static str, text: &str) -> Result<HeaderName, Fault> {
    let name = text.parse().ok().filter(|_| text.len() <= MAX_NAME_BYTES);
    name.ok_or_else(|| Fault::new(field, text, "a header name of at most 64 bytes"))
}

fn header_value(text: &str) -> Result<HeaderValue, Fault> {
    let fits = text.len() <= MAX_VALUE_BYTES && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    let value = HeaderValue::from_str(text.trim()).ok().filter(|_| fits);
    value.ok_or_else(|| Fault::new("header.value", text, "at most 256 printable ASCII characters"))
}

fn pointer(field: &'static str, text: &str) -> Result<Pointer, Fault> {
    Pointer::parse(text).ok_or_else(|| {
        Fault::new(
            field,
            text,
            "a JSON pointer such as /error/code, at most 8 steps and 256 bytes",
        )
    })
}

fn literal(value: Literal) -> Result<Literal, Fault> {
    match value {
        Literal::Text(text) if text.len() > MAX_VALUE_BYTES => {
            Err(Fault::new("body.value", text, "at most 256 bytes"))
        }
        value => Ok(value),
    }
}
