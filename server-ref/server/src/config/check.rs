//! A tree against the schema: what is wrong is named with key, value, limit and place, all of it at once.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use holdoff_admission::ProfileError;
use serde_json::{Map, Number, Value as Json};

use super::ConfigError;
use super::schema::{self, Kind, Names, TIERS};
use super::tree::{At, Node, Style, Value};
use crate::shown::{MAX_SHOWN, short};

/// Most mistakes that are named, the rest is counted: whoever made more has another file in hand.
const MAX_MISTAKES: usize = 16;

/// One thing that is wrong with a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it stands; JSON has no positions.
    pub at: Option<At>,
    /// What it is.
    pub what: Fault,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A value of the wrong type, or outside its range.
    Value(ProfileError),
    /// A key that there is not: a misspelt bound is no bound.
    Unknown {
        /// Dotted path.
        key: String,
        /// The key that was probably meant, as a dotted path.
        meant: Option<String>,
        /// What may stand there.
        known: Vec<&'static str>,
    },
    /// A key that is there twice, so that nobody knows which one holds.
    Twice {
        /// Dotted path.
        key: String,
        /// Where it stands first.
        first: Option<At>,
    },
    /// A file that is named and cannot be used.
    File {
        /// Dotted path of the key that names it.
        key: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = self.at {
            write!(f, "{at}: ")?;
        }
        match &self.what {
            Fault::Value(error) => error.fmt(f),
            Fault::Unknown { key, meant, known } => {
                write!(f, "{key} is no key of a profile; ")?;
                match meant {
                    Some(meant) => write!(f, "did you mean {meant}?"),
                    None => write!(f, "here it must be one of {}", known.join(", ")),
                }
            }
            Fault::File { key, path, why } => {
                write!(f, "{key} {}: {why}", crate::shown::path(path))
            }
            Fault::Twice { key, first } => {
                write!(f, "{key} is written twice; ")?;
                match first {
                    Some(at) => write!(f, "the first is on line {}", at.line),
                    None => f.write_str("it must be there once"),
                }
            }
        }
    }
}

/// The tree as JSON with the schema's types, or what is wrong with it.
pub(super) fn check(root: &Node) -> Result<Map<String, Json>, ConfigError> {
    let mut walk = Walk::default();
    match walk.value(root, "", "") {
        Some(Json::Object(map)) if walk.mistakes.is_empty() => Ok(map),
        _ => Err(ConfigError::Mistakes {
            named: walk.mistakes,
            more: walk.more,
        }),
    }
}

/// A fault of a whole configuration, with its place; a value that nobody wrote is said to be the default.
pub(super) fn located(root: &Node, mut error: ProfileError) -> Mistake {
    let written = root.find(&error.key).filter(|node| node.value != Value::Nothing);
    // Some faults are of no single key, such as a number of entries.
    if written.is_none() && !error.key.contains([' ', '[']) {
        error.value.push_str(" (the default)");
    }
    let mut at = written.and_then(|node| node.at);
    let mut section = error.key.as_str();
    while let (None, Some((above, _))) = (at, section.rsplit_once('.')) {
        at = root.find(above).and_then(|node| node.at);
        section = above;
    }
    let what = Fault::Value(error);
    Mistake { at, what }
}

/// The mistakes in the order of the text, as many as are told; `Ok` where there is none.
pub(super) fn all(mut mistakes: Vec<Mistake>) -> Result<(), ConfigError> {
    if mistakes.is_empty() {
        return Ok(());
    }
    mistakes.sort_by_key(|mistake| mistake.at.map_or((usize::MAX, 0), |at| (at.line, at.column)));
    let more = mistakes.len().saturating_sub(MAX_MISTAKES);
    mistakes.truncate(MAX_MISTAKES);
    Err(ConfigError::Mistakes {
        named: mistakes,
        more,
    })
}

#[derive(Default)]
struct Walk {
    mistakes: Vec<Mistake>,
    /// Beyond [`MAX_MISTAKES`].
    more: usize,
}

impl Walk {
    fn mistake(&mut self, at: Option<At>, what: Fault) {
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(Mistake { at, what });
        } else {
            self.more += 1;
        }
    }

    fn wrong(&mut self, node: &Node, key: &str, limit: String) {
        let key = if key.is_empty() { "the profile" } else { key }.to_owned();
        let value = shown(&node.value);
        self.mistake(node.at, Fault::Value(ProfileError { key, value, limit }));
    }

    /// `pattern` is how the schema writes the path, `path` how the file does. Depth is bounded by the schema.
    fn value(&mut self, node: &Node, pattern: &str, path: &str) -> Option<Json> {
        let Some(key) = schema::key_of(pattern) else {
            return self.section(node, pattern, path);
        };
        let value = match (&node.value, key.kind) {
            (Value::Scalar(text, style), kind) => scalar(text, *style, kind),
            (Value::List(items), Kind::Tiers) => tiers(items),
            (Value::List(items), Kind::Classes) => classes(items),
            _ => None,
        };
        if value.is_none() {
            let mut limit = key.must_be();
            if matches!(&node.value, Value::Scalar(text, Style::Open) if has_leading_zero(text)) {
                limit.push_str(", without a leading zero, which others read as octal");
            }
            if matches!((&node.value, key.kind), (Value::Scalar(text, Style::Open), Kind::Tenant | Kind::Path) if is_no_text(text))
            {
                limit.push_str(", in quotes where it looks like a number or a switch");
            }
            self.wrong(node, path, limit);
        }
        value
    }

    fn section(&mut self, node: &Node, pattern: &str, path: &str) -> Option<Json> {
        let names = schema::names_under(pattern);
        let entries = match &node.value {
            Value::Map(entries) => entries,
            // `classes:` with everything below it commented out.
            Value::Nothing if !pattern.is_empty() => return Some(Json::Object(Map::new())),
            _ => {
                let what = match names {
                    Some(names) => format!("a map of {}", names.plural),
                    None => format!("a map of {}", schema::children(pattern).join(", ")),
                };
                self.wrong(node, path, what);
                return None;
            }
        };
        if let Some(names) = names
            && entries.len() > names.most
        {
            let error = ProfileError {
                key: path.to_owned(),
                value: format!("a map of {} entries", entries.len()),
                limit: format!("a map of at most {}", names.most),
            };
            self.mistake(node.at, Fault::Value(error));
            return None;
        }
        let mut map = Map::new();
        let mut firsts: HashMap<&str, Option<At>> = HashMap::new();
        for (index, (key, value)) in entries.iter().enumerate() {
            let secret = names.is_some_and(|names| names.secret);
            let name = if secret {
                format!("[{index}]")
            } else {
                short(&key.name)
            };
            let dot = if path.is_empty() || secret { "" } else { "." };
            let path = format!("{path}{dot}{name}");
            if let Some(first) = firsts.get(key.name.as_str()).copied() {
                self.mistake(key.at, Fault::Twice { key: path, first });
                continue;
            }
            firsts.insert(&key.name, key.at);
            let child = match names {
                Some(names) => self.name(&key.name, key.at, &path, names),
                None => self.known(&key.name, key.at, pattern, &path),
            };
            let Some(child) = child else { continue };
            let pattern = if pattern.is_empty() {
                child.to_owned()
            } else {
                format!("{pattern}.{child}")
            };
            // Nothing written for a key without a fixed default is the same as the key left out.
            if value.value == Value::Nothing && schema::key_of(&pattern).is_some_and(optional) {
                continue;
            }
            if let Some(value) = self.value(value, &pattern, &path) {
                map.insert(key.name.clone(), value);
            }
        }
        Some(Json::Object(map))
    }

    fn name(
        &mut self,
        name: &str,
        at: Option<At>,
        path: &str,
        names: &'static Names,
    ) -> Option<&'static str> {
        if (names.fits)(name) {
            return Some(names.stands_as);
        }
        if names.stands_as == "<tier>" {
            self.unknown(name, at, path, TIERS.to_vec());
            return None;
        }
        let value = if names.secret {
            "(token)".to_owned()
        } else {
            format!("{:?}", name.chars().take(MAX_SHOWN).collect::<String>())
        };
        let error = ProfileError {
            key: format!("the name of {path}"),
            value,
            limit: names.must_be.to_owned(),
        };
        self.mistake(at, Fault::Value(error));
        None
    }

    fn known(&mut self, name: &str, at: Option<At>, pattern: &str, path: &str) -> Option<&'static str> {
        let known = schema::children(pattern);
        if let Some(child) = known.iter().find(|child| **child == name) {
            return Some(child);
        }
        self.unknown(name, at, path, known);
        None
    }

    fn unknown(&mut self, name: &str, at: Option<At>, path: &str, known: Vec<&'static str>) {
        if self.mistakes.len() == MAX_MISTAKES {
            // Not worth a look for what was meant.
            self.more += 1;
            return;
        }
        let section = path
            .rsplit_once('.')
            .map_or(String::new(), |(section, _)| format!("{section}."));
        let meant = nearest(name, &known).map(|meant| format!("{section}{meant}"));
        let key = path.to_owned();
        self.mistake(at, Fault::Unknown { key, meant, known });
    }
}

/// Its default is no number that could be written in its place.
fn optional(key: &schema::Key) -> bool {
    // An empty list of tiers could mean none of them as well as the default.
    key.default.parse::<f64>().is_err() && !matches!(key.kind, Kind::Switch | Kind::Tiers | Kind::Classes)
}

fn scalar(text: &str, style: Style, kind: Kind) -> Option<Json> {
    match kind {
        Kind::Whole { least, most } => {
            let digits = number(text, style)?;
            if !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            let value = digits
                .parse()
                .ok()
                .filter(|value| (least..=most).contains(value))?;
            Some(Json::Number(Number::from(value)))
        }
        Kind::Real { least, most } => {
            let digits = number(text, style)?;
            if !digits
                .bytes()
                .all(|b| b.is_ascii_digit() || b".eE+-".contains(&b))
            {
                return None;
            }
            let value: f64 = digits
                .parse()
                .ok()
                .filter(|value| (least..=most).contains(value))?;
            Number::from_f64(value).map(Json::Number)
        }
        Kind::Switch => match (text, style) {
            ("true", Style::Open | Style::Bare) => Some(Json::Bool(true)),
            ("false", Style::Open | Style::Bare) => Some(Json::Bool(false)),
            _ => None,
        },
        Kind::Tenant => {
            (is_text(text, style) && holdoff_contract::Tenant::new(text).is_ok()).then(|| Json::from(text))
        }
        Kind::Path => (is_text(text, style) && !text.is_empty()).then(|| Json::from(text)),
        Kind::Tiers | Kind::Classes => None,
    }
}

fn is_text(text: &str, style: Style) -> bool {
    match style {
        Style::Text => true,
        Style::Open => !is_no_text(text),
        Style::Bare => false,
    }
}

/// Without quotes, YAML reads this as a number or a switch; what looks so at the first look is taken for one.
fn is_no_text(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    let number = |text: &str| {
        text.starts_with(|first: char| first == '.' || first.is_ascii_digit())
            && text.replace('_', "").parse::<f64>().is_ok()
    };
    let based = |(mark, radix)| {
        let rest = digits.strip_prefix(mark).unwrap_or_default();
        !rest.is_empty() && rest.chars().all(|letter| letter == '_' || letter.is_digit(radix))
    };
    number(digits)
        || [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().any(based)
        || ["true", "false", "yes", "no", "on", "off", ".inf", ".nan"]
            .iter()
            .any(|word| digits.eq_ignore_ascii_case(word))
}

/// The digits of what may be a number: TOML allows underscores between them.
fn number(text: &str, style: Style) -> Option<String> {
    match style {
        Style::Text => None,
        Style::Open if has_leading_zero(text) => None,
        Style::Open => Some(text.to_owned()),
        Style::Bare => Some(text.replace('_', "")),
    }
}

/// `010` is eight to some readers of YAML and ten to others.
fn has_leading_zero(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']).as_bytes();
    digits.first() == Some(&b'0') && digits.get(1).is_some_and(u8::is_ascii_digit)
}

/// Some tiers, each once.
fn tiers(items: &[Node]) -> Option<Json> {
    words(items, TIERS.len(), |word| TIERS.contains(&word)).filter(|_| !items.is_empty())
}

/// Names of classes, each once; whether there are such classes is seen where the others are known.
fn classes(items: &[Node]) -> Option<Json> {
    words(items, holdoff_admission::profile::MAX_CLASSES, |word| {
        holdoff_contract::TaskClass::new(word).is_ok()
    })
}

/// At most so many words that fit, each once.
fn words(items: &[Node], most: usize, fits: impl Fn(&str) -> bool) -> Option<Json> {
    if items.len() > most {
        return None;
    }
    let word = |node: &Node| match &node.value {
        Value::Scalar(text, Style::Open | Style::Text) if fits(text) => Some(Json::from(text.as_str())),
        _ => None,
    };
    let words: Vec<Json> = items.iter().map(word).collect::<Option<_>>()?;
    let again = (1..words.len()).any(|at| words[..at].contains(&words[at]));
    (!again).then_some(Json::Array(words))
}

/// A value as it was written.
fn shown(value: &Value) -> String {
    match value {
        Value::Nothing => "empty".to_owned(),
        Value::Scalar(text, Style::Text) => {
            format!("{:?}", text.chars().take(MAX_SHOWN).collect::<String>())
        }
        Value::Scalar(text, _) => short(text),
        Value::Map(_) => "a map".to_owned(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().take(8).map(|item| shown(&item.value)).collect();
            // Its items are escaped already.
            format!("[{}]", items.join(", "))
                .chars()
                .take(MAX_SHOWN)
                .collect()
        }
    }
}

/// The known name that is nearest, where one is near.
fn nearest(name: &str, known: &[&'static str]) -> Option<&'static str> {
    if name.len() > MAX_SHOWN {
        return None;
    }
    let (away, meant) = known.iter().map(|other| (distance(name, other), *other)).min()?;
    (away <= 1 + meant.len() / 4).then_some(meant)
}

/// Letters to insert, delete or change (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let change = diagonal + usize::from(letter != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
