//! The problem+json body (sections 2 and 4).
//!
//! Members are kept as the text they came in and read one by one: a number of 400 digits is a number, a wrong type
//! costs only its own member, and what we do not know is neither built nor lost. A number is any that JSON has, so `1e3` is
//! 1000 here, while a header field that says it is malformed.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::value::RawValue;

use super::merge::{Said, Tally};
use super::number;
use crate::limits::{MAX_BODY_READ, MAX_DETAIL_BYTES, MAX_EXTENSIONS, MAX_HOP, MAX_NAME_BYTES};
use crate::{BodyMember, Code, Retry};

/// The members of version 1 and of RFC 9457 (section 2). Everything else is kept for relays.
pub(crate) const KNOWN_MEMBERS: [&str; 19] = [
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "contract_version",
    "code",
    "retry",
    "applied",
    "retry_after_ms",
    "retry_after_max_ms",
    "scope",
    "state",
    "tier",
    "outcome",
    "hop",
    "min_deadline_ms",
    "predicted_wait_ms",
    "origin",
];

/// What the body says; `None` where it is no object, of another version, or without a code (section 4, HNT-11).
pub(super) fn read(body: &[u8], tally: &mut Tally) -> Option<Said> {
    let members = Members::parse(body).filter(Members::is_version_1);
    let code = members
        .as_ref()
        .and_then(|members| members.text("code")?.parse::<Code>().ok());
    let (Some(members), Some(code)) = (members, code) else {
        tally.malformed();
        return None;
    };
    let hop = members.number("hop", tally);
    Some(Said {
        code: Some(code),
        // Unknown or wrongly typed means no (HNT-09).
        retry: members
            .0
            .contains_key("retry")
            .then(|| members.word("retry", tally).unwrap_or(Retry::No)),
        applied: members.word("applied", tally),
        after: members.number("retry_after_ms", tally),
        max: members.number("retry_after_max_ms", tally),
        scope: members.word("scope", tally),
        state: members.word("state", tally),
        tier: members.word("tier", tally),
        hop: hop.map(|hop| u8::try_from(hop).unwrap_or(MAX_HOP).min(MAX_HOP)),
        detail: members.text("detail").map(|text| cut(text, MAX_DETAIL_BYTES)),
        origin: members.text("origin").map(|text| cut(text, MAX_NAME_BYTES)),
        instance: members
            .text("instance")
            .and_then(|text| text.strip_prefix("urn:uuid:")?.parse().ok()),
        min_deadline: members.number("min_deadline_ms", tally).map(number::hint),
        predicted_wait: members.number("predicted_wait_ms", tally).map(number::hint),
        members: members.unknown(),
        ..Said::default()
    })
}

/// The text, cut at a character boundary to at most so many bytes.
pub(crate) fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}

/// The members by name. Of a name that comes twice the last counts.
struct Members<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Members<'a> {
    fn parse(body: &'a [u8]) -> Option<Self> {
        if body.len() > MAX_BODY_READ {
            return None;
        }
        serde_json::from_slice(body).ok().map(Self)
    }

    /// `1`, or `1.0` from a writer that knows only floats.
    fn is_version_1(&self) -> bool {
        let version = self
            .0
            .get("contract_version")
            .and_then(|version| version.get().parse::<f64>().ok());
        version == Some(1.0)
    }

    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    fn word<T: FromStr>(&self, name: &str, tally: &mut Tally) -> Option<T> {
        self.0.get(name)?;
        tally.keep(self.text(name).and_then(|word| word.parse().ok()))
    }

    fn number(&self, name: &str, tally: &mut Tally) -> Option<u64> {
        let value = self.0.get(name)?;
        tally.keep(number::json(value.get()))
    }

    fn unknown(&self) -> Vec<BodyMember> {
        let unknown = self
            .0
            .iter()
            .filter(|(name, _)| !KNOWN_MEMBERS.contains(&name.as_str()));
        unknown
            .filter(|(name, value)| name.len() <= MAX_NAME_BYTES && value.get().len() <= MAX_DETAIL_BYTES)
            .take(MAX_EXTENSIONS)
            .map(|(name, value)| BodyMember {
                name: name.clone(),
                json: value.get().to_owned(),
            })
            .collect()
    }
}
