//! Writing a refusal in a service's own words, beside the contract's and never in their place.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Map, Value};

use super::pointer::Pointer;
use super::{Entry, Literal, Source, Unit, Vocabulary};
use crate::limits::MAX_BODY_WRITTEN;
use crate::read::KNOWN_MEMBERS;
use crate::write::Encoded;
use crate::{Overload, field_name};

impl Vocabulary {
    /// Says a refusal in the words of the first entry with its code, beside what [`crate::write::overload`] wrote:
    /// header, body member and delay, in the service's own unit. `now` is the wall clock, for units that count from
    /// 1970. Returns false, and changes nothing, where no entry has the code.
    ///
    /// Nothing of the contract is replaced: the status stays, fields and members that stand there already stay, a
    /// pointer into a list is not followed, and where the body would grow over 4096 bytes it stays as it was. For
    /// its own callers to know the refusal again, an entry names the contract's status among its own.
    pub fn write(&self, overload: &Overload, encoded: &mut Encoded, now: SystemTime) -> bool {
        let code = overload.code.as_ref();
        let Some(entry) = self.entries.iter().find(|entry| Some(&entry.code) == code) else {
            return false;
        };
        let after = encoded
            .headers
            .get(field_name::RETRY_AFTER_MS)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        entry.write_headers(encoded, after, now);
        if let Some(body) = entry.body(&encoded.body, after, now) {
            encoded.body = body;
        }
        true
    }
}

impl Entry {
    fn write_headers(&self, encoded: &mut Encoded, after: Option<u64>, now: SystemTime) {
        if let Some((name, value)) = &self.header {
            let value = value.clone().unwrap_or(HeaderValue::from_static("1"));
            encoded.headers.entry(name).or_insert(value);
        }
        if let (Some((Source::Header(name), unit)), Some(after)) = (&self.delay, after)
            && let Ok(value) = HeaderValue::try_from(unit.text(after, now))
        {
            encoded.headers.entry(name).or_insert(value);
        }
    }

    /// The body with the own members in it; `None` where there are none to add or they do not fit.
    fn body(&self, body: &[u8], after: Option<u64>, now: SystemTime) -> Option<Bytes> {
        let mut root: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let mut changed = false;
        let mut put = |pointer: &Pointer, value: Value| {
            let contract = KNOWN_MEMBERS.contains(&pointer.first());
            changed |= !contract && !pointer.may_lead_into_a_list() && pointer.put(&mut root, value);
        };
        if let Some((pointer, value)) = &self.body {
            let value = match value {
                None => Value::Bool(true),
                Some(Literal::Flag(flag)) => Value::Bool(*flag),
                Some(Literal::Number(number)) => Value::from(*number),
                Some(Literal::Text(text)) => Value::from(text.as_str()),
            };
            put(pointer, value);
        }
        if let (Some((Source::Body(pointer), unit)), Some(after)) = (&self.delay, after) {
            let value = match unit {
                Unit::Date => Value::from(unit.text(after, now)),
                unit => Value::from(unit.number(after, now)),
            };
            put(pointer, value);
        }
        let text = serde_json::to_vec(&root)
            .ok()
            .filter(|text| changed && text.len() <= MAX_BODY_WRITTEN)?;
        Some(Bytes::from(text))
    }
}

impl Unit {
    /// So many milliseconds from now, in this unit, never earlier.
    fn number(self, after: u64, now: SystemTime) -> u64 {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        // Rounded up like everything that somebody waits for.
        let now_ms = u64::try_from(now.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let at = now_ms.saturating_add(after);
        match self {
            Self::Milliseconds => after,
            Self::Seconds => after.div_ceil(1000),
            Self::EpochMilliseconds => at,
            Self::EpochSeconds | Self::Date => at.div_ceil(1000),
        }
    }

    fn text(self, after: u64, now: SystemTime) -> String {
        let number = self.number(after, now);
        if self != Self::Date {
            return number.to_string();
        }
        // The last second that the format can say: httpdate panics past the year 9999.
        const LAST: u64 = 253_402_300_799;
        let date = UNIX_EPOCH.checked_add(Duration::from_secs(number.min(LAST)));
        date.map(httpdate::fmt_http_date).unwrap_or_default()
    }
}
