//! One map, two readers: the keys of the server and those of the profile.
//!
//! `serde(flatten)` loses the refusal of unknown keys and the position of an error. So the text is read twice, each
//! time as a whole: once for the server's keys, skipping the others, and once for the profile, skipping the server's.

use std::collections::BTreeMap;
use std::fmt;

use holdoff_admission::Profile;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::{ConfigError, Limits, Rights, Token};

/// The keys that are not the profile's.
const OWN_KEYS: [&str; 4] = ["server", "observe", "anonymous", "identities"];

/// The server's own keys; all others belong to the profile, which refuses what it does not know.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Own {
    pub(super) server: Limits,
    pub(super) observe: crate::Observe,
    pub(super) anonymous: Rights,
    pub(super) identities: BTreeMap<Token, Rights>,
}

pub(super) fn yaml(text: &str) -> Result<(Own, Profile), ConfigError> {
    let syntax = |error: serde_saphyr::Error| ConfigError::Syntax(error.to_string());
    if text
        .lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with('#'))
    {
        return Ok((Own::default(), Profile::default()));
    }
    let own = serde_saphyr::from_str(text).map_err(syntax)?;
    let profile = serde_saphyr::with_deserializer_from_str(text, |map| Profile::deserialize(Without(map)));
    Ok((own, profile.map_err(syntax)?))
}

pub(super) fn json(value: &serde_json::Value) -> Result<(Own, Profile), ConfigError> {
    let syntax = |error: serde_json::Error| ConfigError::Syntax(error.to_string());
    let own = Own::deserialize(value).map_err(syntax)?;
    Ok((own, Profile::deserialize(Without(value)).map_err(syntax)?))
}

/// A map without [`OWN_KEYS`].
struct Without<D>(D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Without<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Without(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Without<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Without(map))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Without<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        // Bounded by the map itself: every turn takes one entry.
        while let Some(key) = self.0.next_key::<String>()? {
            if !OWN_KEYS.contains(&key.as_str()) {
                return seed.deserialize(key.as_str().into_deserializer()).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use crate::ServerConfig;

    #[test]
    fn the_keys_of_both_sides_are_read_from_one_map() {
        let text = "workers: 3\nserver:\n  drain_ms: 7\nclasses:\n  a: {mean_ms: 5}\n\
                    identities:\n  tok: {tenant: t, tiers: [critical]}\n";
        let config = ServerConfig::from_yaml(text).unwrap();
        assert_eq!(config.profile.workers, 3);
        assert_eq!(config.limits.drain_ms, 7);
        assert_eq!(config.identities["tok"].tenant.as_deref(), Some("t"));
        let value =
            serde_json::json!({"workers": 3, "server": {"drain_ms": 7}, "classes": {"a": {"mean_ms": 5}}});
        assert_eq!(ServerConfig::from_json(&value).unwrap().profile, config.profile);
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        for (text, line, word) in [
            ("workers: 3\nworker: 4\n", "2", "worker"),
            ("workers: 3\nserver:\n  drain: 4\n", "3", "drain"),
            ("workers: many\n", "1", "many"),
            ("workers: 3\nclasses:\n  a: {mean: 5}\n", "3", "mean"),
            ("workers: [\n", "1", "unclosed"),
        ] {
            let error = ServerConfig::from_yaml(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_value_outside_its_range_is_named_with_key_value_and_limit() {
        for (text, key, value) in [
            ("workers: 0", "workers", "0"),
            ("server: {body_ms: 0}", "server.body_ms", "0"),
            ("anonymous: {tenant: \"\"}", "anonymous.tenant", "\"\""),
        ] {
            let error = ServerConfig::from_yaml(text).unwrap_err().to_string();
            assert!(
                error.contains(key) && error.contains(value) && error.contains("must be"),
                "{text:?}: {error}"
            );
        }
    }

    #[test]
    fn nothing_said_is_the_default_profile() {
        assert_eq!(
            ServerConfig::from_yaml("").unwrap().profile,
            holdoff_admission::Profile::default()
        );
        assert_eq!(ServerConfig::from_yaml("# nothing\n").unwrap().profile.workers, 4);
    }
}
