//! JSON pointers (RFC 6901) into text that is not built first: a foreign body may hold anything.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Steps of a pointer: each step reads its part of the body once more.
pub(super) const MAX_STEPS: usize = 8;
/// Bytes of a pointer's text.
pub(super) const MAX_BYTES: usize = 256;

/// A place in a JSON document, 1 to [`MAX_STEPS`] steps from its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer(Vec<String>);

impl Pointer {
    /// `None` where the text is no pointer, or one over the limits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let steps: Option<Vec<String>> = text.strip_prefix('/')?.split('/').map(unescape).collect();
        steps.filter(|steps| steps.len() <= MAX_STEPS).map(Self)
    }

    /// The text of the value there; `None` where there is none.
    pub(super) fn find<'a>(&self, root: &'a RawValue) -> Option<&'a RawValue> {
        self.0.iter().try_fold(root, |at, step| {
            let text = at.get();
            if text.starts_with('{') {
                let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
                members.remove(step)
            } else {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                items.get(step.parse::<usize>().ok()?).copied()
            }
        })
    }

    /// The member of the root that it leads into.
    pub(super) fn first(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// Puts a value there, making what leads to it. False where something else stands in the way.
    pub(super) fn put(&self, root: &mut Map<String, Value>, value: Value) -> bool {
        let Some((last, path)) = self.0.split_last() else {
            return false;
        };
        let mut at = root;
        for step in path {
            let next = at
                .entry(step.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(next) = next else {
                return false;
            };
            at = next;
        }
        at.insert(last.clone(), value);
        true
    }

    /// True where a step is a number: it may lead into a list, which writing does not make up.
    pub(super) fn may_lead_into_a_list(&self) -> bool {
        self.0.iter().any(|step| step.parse::<usize>().is_ok())
    }
}

fn unescape(step: &str) -> Option<String> {
    let mut out = String::with_capacity(step.len());
    let mut rest = step.chars();
    while let Some(c) = rest.next() {
        out.push(match c {
            '~' => match rest.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            c => c,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_finds_members_and_items_and_nothing_where_nothing_is() {
        let body = r#"{"a": {"b/c": [10, {"d~": "x"}]}, "n": null}"#;
        let root: &RawValue = serde_json::from_str(body).unwrap();
        let find = |text: &str| Pointer::parse(text).unwrap().find(root).map(RawValue::get);
        assert_eq!(find("/a/b~1c/0"), Some("10"));
        assert_eq!(find("/a/b~1c/1/d~0"), Some("\"x\""));
        assert_eq!(find("/n"), Some("null"));
        for nowhere in ["/b", "/a/b", "/a/b~1c/2", "/a/b~1c/x", "/n/x", "/a/b~1c/0/0"] {
            assert_eq!(find(nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn what_is_no_pointer_or_too_long_is_refused() {
        for bad in [
            "",
            "a",
            "/a~2",
            "/a~",
            "/1/2/3/4/5/6/7/8/9",
            &format!("/{}", "a".repeat(256)),
        ] {
            assert_eq!(Pointer::parse(bad), None, "{bad}");
        }
    }
}
