//! The problem+json body (section 2, RFC 9457).

use serde::Serialize;
use serde_json::value::RawValue;

use super::Audience;
use super::signal::PRIVATE_NAMES;
use super::values::{Values, coarse};
use crate::limits::{MAX_BODY_WRITTEN, MAX_DETAIL_BYTES, MAX_EXTENSIONS, MAX_NAME_BYTES};
use crate::read::{KNOWN_MEMBERS, cut};
use crate::{Code, Overload};

/// The body: the members of version 1, then those that others added, as far as they fit.
pub(super) fn problem(values: &Values, overload: &Overload, audience: Audience) -> Vec<u8> {
    let trusted = audience == Audience::Trusted;
    let mut object = Object::new();
    object.put("type", format_args!("urn:overload:v1:{}", values.code));
    object.put("title", values.code.title());
    object.put("status", values.status.as_u16());
    if let Some(detail) = &overload.detail {
        object.put("detail", cut_escaped(detail));
    }
    // The decision's id is of use to whoever can see its log: ourselves, or anybody inside.
    if let Some(instance) = overload.instance.filter(|_| trusted || values.hop == 0) {
        object.put("instance", format_args!("{}", instance.urn()));
    }
    object.put("contract_version", 1);
    object.put("code", values.code.as_str());
    object.put("retry", values.retry.as_str());
    object.put("applied", values.applied.as_str());
    object.put_some("retry_after_ms", values.after);
    object.put_some("retry_after_max_ms", values.max);
    object.put_some("scope", values.scope.map(crate::Scope::as_str));
    object.put_some("state", values.state.map(crate::ServiceState::as_str));
    object.put_some("tier", values.tier.map(crate::Tier::as_str));
    object.put_some("hop", Some(values.hop).filter(|hop| *hop > 0));
    let min_deadline = overload
        .min_deadline
        .filter(|_| values.code == Code::DeadlineUnattainable);
    object.put_some("min_deadline_ms", min_deadline.map(coarse));
    object.put_some(
        "predicted_wait_ms",
        overload.predicted_wait.filter(|_| trusted).map(coarse),
    );
    let origin = overload.origin.as_ref().filter(|_| trusted && values.hop > 0);
    object.put_some(
        "origin",
        origin.map(|origin| cut(cut_escaped(origin).to_owned(), MAX_NAME_BYTES)),
    );
    let mut seen: Vec<&str> = Vec::new();
    for member in overload.members.iter().take(MAX_EXTENSIONS) {
        let name = member.name.as_str();
        let private = !trusted && PRIVATE_NAMES.contains(&name);
        if private || KNOWN_MEMBERS.contains(&name) || seen.contains(&name) || name.len() > MAX_NAME_BYTES {
            continue;
        }
        if let Ok(value) = serde_json::from_str::<&RawValue>(&member.json) {
            object.put(name, value);
            seen.push(name);
        }
    }
    object.finish()
}

/// Cuts a text so that it takes at most [`MAX_DETAIL_BYTES`] as JSON.
fn cut_escaped(text: &str) -> &str {
    let mut bytes = 0;
    let end = text.char_indices().find(|(_, c)| {
        // The longest escape of JSON is \u00XX.
        bytes += if *c < ' ' {
            6
        } else {
            c.len_utf8() + usize::from(matches!(c, '"' | '\\'))
        };
        bytes > MAX_DETAIL_BYTES
    });
    &text[..end.map_or(text.len(), |(at, _)| at)]
}

/// A JSON object that is written member by member and never grows over [`MAX_BODY_WRITTEN`].
struct Object(Vec<u8>);

impl Object {
    fn new() -> Self {
        Self(Vec::with_capacity(512))
    }

    /// Adds a member; one that does not fit is left out.
    fn put(&mut self, name: &str, value: impl Serialize) {
        let before = self.0.len();
        self.0.push(if before == 0 { b'{' } else { b',' });
        let named = serde_json::to_writer(&mut self.0, name);
        self.0.push(b':');
        let written = named.and_then(|()| serde_json::to_writer(&mut self.0, &value));
        // One for the closing brace.
        if written.is_err() || self.0.len() + 1 > MAX_BODY_WRITTEN {
            self.0.truncate(before);
        }
    }

    fn put_some(&mut self, name: &str, value: Option<impl Serialize>) {
        if let Some(value) = value {
            self.put(name, value);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_counts_as_it_is_escaped() {
        assert_eq!(cut_escaped(&"é".repeat(1000)).len(), MAX_DETAIL_BYTES);
        assert_eq!(cut_escaped(&"\u{1}".repeat(1000)).len(), MAX_DETAIL_BYTES / 6);
        assert_eq!(cut_escaped(&"\"".repeat(1000)).len(), MAX_DETAIL_BYTES / 2);
        assert_eq!(cut_escaped("short"), "short");
    }
}
