//! The `Overload-Signal` line (section 2).

use sfv::{DictSerializer, Dictionary, FieldType, KeyRef, Parser, TokenRef, key_ref};

use super::values::Values;
use super::{Advice, Audience};
use crate::Overload;
use crate::limits::{MAX_EXTENSIONS, MAX_SIGNAL_BYTES};
use crate::read::KNOWN_KEYS;

/// What must not pass a trust border under any name of its own (section 6.7, INT-15).
pub(super) const PRIVATE_NAMES: [&str; 5] = ["tenant", "origin", "state", "predicted_wait_ms", "instance"];

/// The signal of a refusal: the keys of version 1, then those that others added, as far as they fit.
pub(crate) fn refusal(values: &Values, overload: &Overload, audience: Audience) -> String {
    let mut dictionary = begin();
    token(&mut dictionary, key_ref("code"), values.code.as_str());
    token(&mut dictionary, key_ref("retry"), values.retry.as_str());
    token(&mut dictionary, key_ref("applied"), values.applied.as_str());
    for (key, ms) in [(key_ref("after"), values.after), (key_ref("max"), values.max)] {
        if let Some(ms) = ms {
            let _ = dictionary.bare_item(key, ms);
        }
    }
    if let Some(scope) = values.scope {
        token(&mut dictionary, key_ref("scope"), scope.as_str());
    }
    if let Some(state) = values.state {
        token(&mut dictionary, key_ref("state"), state.as_str());
    }
    if let Some(tier) = values.tier {
        token(&mut dictionary, key_ref("tier"), tier.as_str());
    }
    if values.hop > 0 {
        let _ = dictionary.bare_item(key_ref("hop"), values.hop);
    }
    let mut signal = dictionary.finish().unwrap_or_default();
    for text in extensions(overload, audience) {
        if signal.len() + 2 + text.len() <= MAX_SIGNAL_BYTES {
            signal.push_str(", ");
            signal.push_str(&text);
        }
    }
    signal
}

/// The signal of a success.
pub(super) fn advice(advice: Advice) -> String {
    let mut dictionary = begin();
    if advice.deferred {
        token(&mut dictionary, key_ref("outcome"), "defer");
    }
    if advice.degraded {
        let _ = dictionary.bare_item(key_ref("degraded"), true);
    }
    if let Some(state) = advice.state {
        token(&mut dictionary, key_ref("state"), state.as_str());
    }
    if let Some(tier) = advice.tier {
        token(&mut dictionary, key_ref("tier"), tier.as_str());
    }
    dictionary.finish().unwrap_or_default()
}

fn begin() -> DictSerializer<String> {
    let mut dictionary = DictSerializer::new();
    let _ = dictionary.bare_item(key_ref("v"), 1);
    dictionary
}

/// Every word of the contract and every code is a Token.
fn token(dictionary: &mut DictSerializer<String>, key: &KeyRef, word: &str) {
    if let Ok(word) = TokenRef::from_str(word) {
        let _ = dictionary.bare_item(key, word);
    }
}

/// The unknown keys, parsed and serialized anew: what is no single member is not sent.
fn extensions(overload: &Overload, audience: Audience) -> impl Iterator<Item = String> {
    let private = move |key: &str| audience == Audience::Stranger && PRIVATE_NAMES.contains(&key);
    let mut seen: Vec<&str> = Vec::new();
    overload
        .extensions
        .iter()
        .take(MAX_EXTENSIONS)
        .filter_map(move |extension| {
            let key = extension.key.as_str();
            if KNOWN_KEYS.contains(&key) || private(key) || seen.contains(&key) {
                return None;
            }
            let parsed = Parser::new(&format!("{key}={}", extension.member))
                .parse::<Dictionary>()
                .ok()?;
            if parsed.len() != 1 || !parsed.contains_key(KeyRef::from_str(key).ok()?) {
                return None;
            }
            seen.push(key);
            parsed.serialize()
        })
}
