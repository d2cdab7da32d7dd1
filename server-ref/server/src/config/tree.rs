//! A profile as it was written: keys, values, and where each stands.
//!
//! An error that says "invalid type" helps nobody at three in the morning. To say which key, what was written there, on
//! which line, and what is allowed, the text is first read into this tree, which knows nothing of a profile, and then held
//! against the schema, which knows nothing of YAML.

use std::fmt;

use granit_parser::{Event, Options, Parser, ScalarStyle};
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// Deepest nesting that is read. A profile has four levels.
const MAX_DEPTH: usize = 16;

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A value and where it stands; JSON has no positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) at: Option<At>,
    pub(super) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A scalar as it was written, without quotes.
    Scalar(String, Style),
    /// Nothing was written, or `null`.
    Nothing,
    List(Vec<Node>),
    /// In the order of the text; a key may be there twice.
    Map(Vec<(Key, Node)>),
}

/// What a scalar's form says about its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// YAML without quotes: the schema says what it is.
    Open,
    /// In quotes: text, and nothing else.
    Text,
    /// TOML or JSON without quotes: a number, a boolean, a date, and never text.
    Bare,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) at: Option<At>,
    pub(super) name: String,
}

impl Node {
    /// Nothing is declared.
    pub(super) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Nothing => true,
            Value::Map(entries) => entries.is_empty(),
            Value::Scalar(..) | Value::List(_) => false,
        }
    }

    /// The value under this dotted path.
    pub(super) fn find(&self, path: &str) -> Option<&Self> {
        if path.is_empty() {
            return Some(self);
        }
        let Value::Map(entries) = &self.value else {
            return None;
        };
        // A name may have dots of its own, so the key is what the path begins with.
        entries.iter().find_map(|(key, node)| {
            let rest = path.strip_prefix(key.name.as_str())?;
            match rest.strip_prefix('.') {
                Some(rest) => node.find(rest),
                None if rest.is_empty() => Some(node),
                None => None,
            }
        })
    }
}

fn syntax(at: Option<At>, why: impl Into<String>) -> ConfigError {
    // Parsers quote what they found.
    let why = crate::shown::escaped(&why.into().replace('\n', ", "));
    ConfigError::Syntax { at, why }
}

/// Reads one YAML document without anchors and tags.
pub(super) fn yaml(text: &str) -> Result<Node, ConfigError> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut reader = Yaml {
        text,
        events: Parser::new_from_str_with_options(text, options),
    };
    reader.document()
}

struct Yaml<'t> {
    text: &'t str,
    events: Parser<'t, granit_parser::StrInput<'t>>,
}

impl<'t> Yaml<'t> {
    fn next(&mut self) -> Result<(Event<'t>, At), ConfigError> {
        match self.events.next() {
            Some(Ok((event, span))) => Ok((
                event,
                At {
                    line: span.start.line(),
                    column: span.start.col() + 1,
                },
            )),
            Some(Err(error)) => {
                let marker = error.marker();
                let at = At {
                    line: marker.line(),
                    column: marker.col() + 1,
                };
                Err(syntax(Some(at), self.explain(at, &error.info())))
            }
            None => Err(syntax(None, "the text breaks off")),
        }
    }

    /// A tab is invisible, so the parser's word alone would leave the user staring at a line that looks right.
    fn explain(&self, at: At, said: &str) -> String {
        let line = self
            .text
            .lines()
            .nth(at.line.saturating_sub(1))
            .unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        if line[..indent].contains('\t') {
            return "a tab indents this line; YAML is indented with spaces".to_owned();
        }
        format!("not YAML: {said}")
    }

    fn document(&mut self) -> Result<Node, ConfigError> {
        let mut root = None;
        loop {
            let (event, at) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => return root.ok_or(ConfigError::Empty),
                Event::DocumentStart(..) if root.is_none() => {
                    let (event, at) = self.next()?;
                    root = Some(self.node(event, at, 0)?);
                }
                _ => {
                    return Err(syntax(
                        Some(at),
                        "a second document begins here; a profile is one",
                    ));
                }
            }
        }
    }

    fn node(&mut self, event: Event<'t>, at: At, depth: usize) -> Result<Node, ConfigError> {
        if depth > MAX_DEPTH {
            let why = format!("nested more than {MAX_DEPTH} deep; a profile has four levels");
            return Err(syntax(Some(at), why));
        }
        let value = match event {
            Event::Scalar(.., anchor, tag) if anchor != 0 || tag.is_some() => return Err(decorated(at)),
            Event::SequenceStart(_, anchor, tag) if anchor != 0 || tag.is_some() => {
                return Err(decorated(at));
            }
            Event::MappingStart(_, anchor, tag) if anchor != 0 || tag.is_some() => return Err(decorated(at)),
            Event::Scalar(text, style, ..) => scalar(&text, style),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Value::List(items),
                        (event, at) => items.push(self.node(event, at, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                loop {
                    let key = match self.next()? {
                        (Event::MappingEnd, _) => break Value::Map(entries),
                        (Event::Scalar(name, _, 0, None), at) => Key {
                            at: Some(at),
                            name: name.into_owned(),
                        },
                        (_, at) => return Err(syntax(Some(at), "a key must be plain text")),
                    };
                    let (event, at) = self.next()?;
                    entries.push((key, self.node(event, at, depth + 1)?));
                }
            }
            _ => return Err(decorated(at)),
        };
        Ok(Node { at: Some(at), value })
    }
}

fn decorated(at: At) -> ConfigError {
    syntax(
        Some(at),
        "a profile has no anchors (&), aliases (*) and tags (!); write the value out",
    )
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    match (style, text) {
        (ScalarStyle::Plain, "" | "~" | "null" | "Null" | "NULL") => Value::Nothing,
        (ScalarStyle::Plain, _) => Value::Scalar(text.to_owned(), Style::Open),
        _ => Value::Scalar(text.to_owned(), Style::Text),
    }
}

/// Reads TOML.
pub(super) fn toml(text: &str) -> Result<Node, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span();
        let what = span
            .clone()
            .and_then(|span| text.get(span))
            .unwrap_or_default()
            .trim();
        let why = if what.is_empty() || what.contains('\n') {
            format!("not TOML: {}", error.message())
        } else {
            format!(
                "not TOML: {} at `{}`",
                error.message(),
                what.chars().take(64).collect::<String>()
            )
        };
        syntax(span.map(|span| position(text, span.start)), why)
    })?;
    Ok(Node {
        at: Some(At { line: 1, column: 1 }),
        value: toml_table(text, table.get_ref()),
    })
}

fn toml_table(text: &str, table: &DeTable<'_>) -> Value {
    let entries = table.iter().map(|(key, value)| {
        let key = Key {
            at: Some(position(text, key.span().start)),
            name: key.get_ref().to_string(),
        };
        (key, toml_node(text, value))
    });
    Value::Map(entries.collect())
}

// Nesting is bounded by the parser of TOML itself.
fn toml_node(text: &str, node: &toml::Spanned<DeValue<'_>>) -> Node {
    let value = match node.get_ref() {
        DeValue::String(value) => Value::Scalar(value.to_string(), Style::Text),
        DeValue::Array(items) => Value::List(items.iter().map(|item| toml_node(text, item)).collect()),
        DeValue::Table(table) => toml_table(text, table),
        _ => {
            let written = text.get(node.span()).unwrap_or_default();
            Value::Scalar(written.to_owned(), Style::Bare)
        }
    };
    Node {
        at: Some(position(text, node.span().start)),
        value,
    }
}

pub(super) fn position(text: &str, offset: usize) -> At {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    At {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

/// Takes a JSON value apart; its nesting is bounded by whoever parsed it.
pub(super) fn json(value: &serde_json::Value) -> Node {
    use serde_json::Value as Json;
    let value = match value {
        Json::Null => Value::Nothing,
        Json::Bool(_) | Json::Number(_) => Value::Scalar(value.to_string(), Style::Bare),
        Json::String(text) => Value::Scalar(text.clone(), Style::Text),
        Json::Array(items) => Value::List(items.iter().map(json).collect()),
        Json::Object(members) => {
            let entry = |(name, value): (&String, &Json)| {
                let name = name.clone();
                (Key { at: None, name }, json(value))
            };
            Value::Map(members.iter().map(entry).collect())
        }
    };
    Node { at: None, value }
}
