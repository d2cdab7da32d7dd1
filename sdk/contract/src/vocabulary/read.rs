//! Reading a service's own words, beside whatever it says in the contract's.

use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::value::RawValue;

use super::{Entry, Literal, Source, Unit, Vocabulary};
use crate::limits::MAX_BODY_READ;
use crate::read::{
    Clock, Foreign, Head, ReadOptions, Reading, Tally, decimal_ms, decimal_seconds, fits, lines,
};
use crate::{Granularity, OverloadStatus};

/// What a head alone says, in the contract's words and the service's own. As [`Head`], whose rules apply: of several
/// sources the strictest permission and the longest delay count.
#[derive(Debug)]
#[must_use]
pub struct MappedHead<'v> {
    head: Head,
    /// The entries that status and header allow, in their order.
    candidates: Vec<&'v Entry>,
    /// What each candidate's delay header said, where it has one.
    delays: Vec<Option<u64>>,
    clock: Clock,
    wants_body: bool,
    /// The status is one of the contract's, so that this may be a refusal without any of the candidates.
    is_overload_status: bool,
}

impl Vocabulary {
    /// Reads status and header fields.
    pub fn head(&self, status: StatusCode, headers: &HeaderMap, options: &ReadOptions) -> MappedHead<'_> {
        let clock = Clock::new(headers, options.now);
        let candidates: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.statuses.contains(&status) && entry.header_fits(headers))
            .collect();
        let own = OverloadStatus::from_u16(status.as_u16());
        let mut head = match candidates.first() {
            // Declared to be an overload: then the other fields on it count too.
            Some(first) if own.is_none() => Head::read_as(first.code.status(), status, headers, options),
            _ => Head::read(status, headers, options),
        };
        if let Some(unit) = self.reset.filter(|_| status == StatusCode::TOO_MANY_REQUESTS) {
            head.add_quota_reset(headers, |text| unit.ms(text, &clock));
        }
        let delays = candidates
            .iter()
            .map(|entry| entry.header_delay(headers, &clock, head.tally()))
            .collect();
        let wants_body = candidates.iter().any(|entry| entry.wants_body()) && fits(headers);
        MappedHead {
            head,
            candidates,
            delays,
            clock,
            wants_body,
            is_overload_status: own.is_some(),
        }
    }
}

impl MappedHead<'_> {
    /// True when a body could change the reading: read it, within [`crate::limits`], before [`Self::finish`].
    pub fn wants_body(&self) -> bool {
        self.wants_body || self.head.wants_body()
    }

    /// The result. `body` is the whole body, or `None` where it was not wanted, too large, truncated or too late.
    pub fn finish(mut self, body: Option<&[u8]>) -> Reading {
        let json = body
            .filter(|body| self.wants_body && body.len() <= MAX_BODY_READ)
            .and_then(|body| serde_json::from_slice::<&RawValue>(body).ok());
        let found = self.candidates.iter().zip(&self.delays);
        let found = found
            .filter(|(entry, _)| entry.body_fits(json))
            .map(|(entry, delay)| (*entry, *delay))
            .next();
        let Some((entry, header_delay)) = found else {
            return if self.is_overload_status {
                self.head.finish(body)
            } else {
                Reading::NotOverload
            };
        };
        let delay = match &entry.delay {
            Some((Source::Body(pointer), unit)) => {
                let said = json.and_then(|json| pointer.find(json));
                said.and_then(|said| {
                    let ms = json_text(said).and_then(|text| unit.ms(&text, &self.clock));
                    self.head.tally().keep(ms)
                })
            }
            _ => header_delay,
        };
        let granularity = entry
            .delay
            .as_ref()
            .map_or(Granularity::Milliseconds, |(_, unit)| unit.granularity());
        let foreign = Foreign {
            code: entry.code.clone(),
            retry: entry.retry,
            applied: entry.applied,
            scope: entry.scope,
            delay: delay.map(|ms| (ms, granularity)),
        };
        if !self.is_overload_status {
            self.head.set_status(entry.code.status());
        }
        self.head.finish_with(body, Some(foreign))
    }
}

impl Entry {
    fn header_fits(&self, headers: &HeaderMap) -> bool {
        let Some((name, value)) = &self.header else {
            return true;
        };
        let same = |line: &HeaderValue| {
            value.as_ref().is_none_or(|value| {
                line.as_bytes()
                    .trim_ascii()
                    .eq_ignore_ascii_case(value.as_bytes())
            })
        };
        lines(headers, name).any(same)
    }

    fn body_fits(&self, body: Option<&RawValue>) -> bool {
        let Some((pointer, value)) = &self.body else {
            return true;
        };
        let Some(found) = body.and_then(|body| pointer.find(body)) else {
            return false;
        };
        match value {
            None => found.get() != "null",
            Some(Literal::Flag(flag)) => found.get() == if *flag { "true" } else { "false" },
            Some(Literal::Number(number)) => found.get() == number.to_string(),
            Some(Literal::Text(text)) => {
                serde_json::from_str::<String>(found.get()).is_ok_and(|found| found == *text)
            }
        }
    }

    fn wants_body(&self) -> bool {
        self.body.is_some() || matches!(self.delay, Some((Source::Body(_), _)))
    }

    /// The largest valid delay of its header.
    fn header_delay(&self, headers: &HeaderMap, clock: &Clock, tally: &mut Tally) -> Option<u64> {
        let Some((Source::Header(name), unit)) = &self.delay else {
            return None;
        };
        let mut largest = None;
        for line in lines(headers, name) {
            let ms = line.to_str().ok().and_then(|text| unit.ms(text.trim(), clock));
            largest = largest.max(tally.keep(ms));
        }
        largest
    }
}

impl Unit {
    /// Milliseconds from now, rounded up and saturating; zero for what is past; `None` for what is none.
    fn ms(self, text: &str, clock: &Clock) -> Option<u64> {
        match self {
            Self::Seconds => decimal_seconds(text),
            Self::Milliseconds => decimal_ms(text),
            Self::EpochSeconds => decimal_seconds(text).map(|at| clock.until_ms(at)),
            Self::EpochMilliseconds => decimal_ms(text).map(|at| clock.until_ms(at)),
            Self::Date => clock.until(text),
        }
    }

    /// A unit in whole seconds lines callers up on the second.
    const fn granularity(self) -> Granularity {
        match self {
            Self::Milliseconds | Self::EpochMilliseconds => Granularity::Milliseconds,
            Self::Seconds | Self::EpochSeconds | Self::Date => Granularity::Seconds,
        }
    }
}

/// A JSON number or string as the text of a number or date; a number with an exponent is written out.
fn json_text(value: &RawValue) -> Option<String> {
    let text = value.get();
    if text.starts_with('"') {
        let text: String = serde_json::from_str(text).ok()?;
        return Some(text.trim().to_owned());
    }
    if !text.contains(['e', 'E']) {
        return Some(text.to_owned());
    }
    let number: f64 = text.parse().ok()?;
    // Beyond what a float holds: as large as can be said, and never "no hint" (HNT-02).
    Some(format!("{:.6}", number.min(f64::MAX)))
}
