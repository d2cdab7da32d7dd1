//! The members of a JSON object, each once.
//!
//! A map forgets a member that is there twice, and then the caller and whoever looked at the body before us may have read
//! another one than we did (RFC 8259 section 4).

use std::fmt;

use http::StatusCode;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

use super::invalid;
use crate::problem::Problem;

/// Reads an object that may have these members, at most.
pub(super) fn read(
    body: &[u8],
    known: &'static [&'static str],
) -> Result<Vec<(&'static str, Value)>, Problem> {
    let not_json = |error: serde_json::Error| {
        let value = format!("not JSON ({error})");
        Problem::field(StatusCode::BAD_REQUEST, "body", &value, "one JSON object")
    };
    let is_object = body.trim_ascii_start().first() == Some(&b'{');
    if !is_object {
        let value: Value = serde_json::from_slice(body).map_err(not_json)?;
        return Err(invalid("body", kind(&value), "a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = reader.deserialize_map(Members { known });
    // What is not JSON at all is said first, wherever in the body it stands.
    let read = read
        .and_then(|read| reader.end().map(|()| read))
        .map_err(not_json)?;
    read.map_err(|fault| match fault {
        Fault::Unknown(name) => {
            let limit = format!("one of {}", known.join(", "));
            invalid("member", &format!("{name:?}"), limit)
        }
        Fault::Twice(name) => invalid(name, "there twice", "there once"),
    })
}

enum Fault {
    Unknown(String),
    Twice(&'static str),
}

struct Members {
    known: &'static [&'static str],
}

impl<'de> Visitor<'de> for Members {
    type Value = Result<Vec<(&'static str, Value)>, Fault>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        // No longer than `known`: what is there twice or unknown is not kept, and the first of them is told.
        let mut members: Vec<(&'static str, Value)> = Vec::new();
        let mut fault = None;
        while let Some(name) = map.next_key::<String>()? {
            let Some(known) = self.known.iter().find(|known| **known == name) else {
                map.next_value::<IgnoredAny>()?;
                fault.get_or_insert(Fault::Unknown(name));
                continue;
            };
            if members.iter().any(|(name, _)| name == known) {
                map.next_value::<IgnoredAny>()?;
                fault.get_or_insert(Fault::Twice(known));
                continue;
            }
            members.push((known, map.next_value()?));
        }
        Ok(fault.map_or(Ok(members), Err))
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
