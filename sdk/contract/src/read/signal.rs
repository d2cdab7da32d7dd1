//! `Overload-Signal`: an RFC 9651 Dictionary that may come in several lines (sections 2 and 4).

use std::str::FromStr;

use http::HeaderMap;
use sfv::{BareItem, Dictionary, FieldType, KeyRef, ListEntry, Parser, key_ref};

use super::merge::{Said, Tally};
use super::{Advice, lines};
use crate::limits::{MAX_EXTENSIONS, MAX_HOP};
use crate::{Code, Extension, Retry, field_name};

/// The keys of version 1 (section 2). Everything else is an extension.
pub(crate) const KNOWN_KEYS: [&str; 12] = [
    "v", "code", "retry", "applied", "after", "max", "scope", "state", "tier", "hop", "outcome", "degraded",
];

const V: &KeyRef = key_ref("v");

/// What the field says; `None` where it is absent, does not parse, or is of another version (HNT-08, HNT-09).
pub(super) fn read(headers: &HeaderMap, tally: &mut Tally) -> Option<Said> {
    let dictionary = dictionary(headers, tally)?;
    let get = |key: &'static str| dictionary.get(key_ref(key));
    let hop = number(get("hop"), tally);
    Some(Said {
        code: word::<Code>(get("code"), tally),
        retry: get("retry").map(|entry| {
            // Unknown or wrongly typed means no (HNT-09).
            word::<Retry>(Some(entry), tally).unwrap_or(Retry::No)
        }),
        applied: word(get("applied"), tally),
        after: number(get("after"), tally),
        max: number(get("max"), tally),
        scope: word(get("scope"), tally),
        state: word(get("state"), tally),
        tier: word(get("tier"), tally),
        hop: hop.map(|hop| u8::try_from(hop).unwrap_or(MAX_HOP).min(MAX_HOP)),
        extensions: extensions(&dictionary),
        ..Said::default()
    })
}

/// The advice on a success.
pub(super) fn advice(headers: &HeaderMap) -> Advice {
    let mut tally = Tally::default();
    let Some(dictionary) = dictionary(headers, &mut tally) else {
        return Advice::default();
    };
    let outcome = token(dictionary.get(key_ref("outcome")));
    let degraded = dictionary.get(key_ref("degraded")).and_then(bare);
    Advice {
        deferred: outcome == Some("defer"),
        degraded: degraded.and_then(BareItem::as_boolean) == Some(true),
        state: word(dictionary.get(key_ref("state")), &mut tally),
    }
}

fn dictionary(headers: &HeaderMap, tally: &mut Tally) -> Option<Dictionary> {
    let mut all = Vec::new();
    let mut found = lines(headers, &field_name::OVERLOAD_SIGNAL);
    for line in &mut found {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(line.as_bytes());
    }
    if found.cut {
        tally.malformed();
        return None;
    }
    headers.get(field_name::OVERLOAD_SIGNAL)?;
    let parsed = Parser::new(&all).parse::<Dictionary>().ok();
    let version = |d: &Dictionary| d.get(V).and_then(bare).and_then(BareItem::as_integer) == Some(1.into());
    let usable = parsed.filter(version);
    if usable.is_none() {
        tally.malformed();
    }
    usable
}

fn bare(entry: &ListEntry) -> Option<&BareItem> {
    match entry {
        ListEntry::Item(item) => Some(&item.bare_item),
        ListEntry::InnerList(_) => None,
    }
}

fn token(entry: Option<&ListEntry>) -> Option<&str> {
    entry
        .and_then(bare)
        .and_then(BareItem::as_token)
        .map(sfv::TokenRef::as_str)
}

/// A token out of a closed set; anything else is ignored and counted.
fn word<T: FromStr>(entry: Option<&ListEntry>, tally: &mut Tally) -> Option<T> {
    let entry = entry?;
    tally.keep(token(Some(entry)).and_then(|word| word.parse().ok()))
}

/// A non-negative Integer, or a Decimal rounded up (HNT-03b); anything else is ignored and counted.
fn number(entry: Option<&ListEntry>, tally: &mut Tally) -> Option<u64> {
    let entry = entry?;
    tally.keep(bare(entry).and_then(non_negative))
}

/// An Integer, or a Decimal rounded up, that is not negative.
pub(super) fn non_negative(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(whole) => u64::try_from(i64::from(*whole)).ok(),
        BareItem::Decimal(decimal) => u64::try_from(i64::from(decimal.as_integer_scaled_1000()))
            .ok()
            .map(|scaled| scaled.div_ceil(1000)),
        _ => None,
    }
}

fn extensions(dictionary: &Dictionary) -> Vec<Extension> {
    let unknown = dictionary
        .iter()
        .filter(|(key, _)| !KNOWN_KEYS.contains(&key.as_str()));
    unknown
        .take(MAX_EXTENSIONS)
        .filter_map(|(key, entry)| {
            let member = vec![entry.clone()].serialize()?;
            Some(Extension {
                key: key.as_str().to_owned(),
                member,
            })
        })
        .collect()
}
