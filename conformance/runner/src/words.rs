//! What was seen, in words for people: a report is read by whoever wrote the program under test, in whatever language.

use std::fmt::Display;

use sfv::BareItem;

/// A value that may be missing.
pub(crate) fn or_none(value: Option<impl Display>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// Several values in their order.
pub(crate) fn each_of<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}

/// Several values in their order, each of which may be missing.
pub(crate) fn each_or_none<T: Display>(values: impl IntoIterator<Item = Option<T>>) -> String {
    each_of(values.into_iter().map(or_none))
}

/// A bare item of a structured field, as it is written in one.
pub(crate) fn item(item: &BareItem) -> String {
    match item {
        BareItem::Decimal(number) => number.to_string(),
        BareItem::Integer(number) => number.to_string(),
        BareItem::String(text) => format!("\"{}\"", text.as_str()),
        BareItem::Token(token) => token.as_str().to_owned(),
        BareItem::Boolean(true) => "?1".to_owned(),
        BareItem::Boolean(false) => "?0".to_owned(),
        BareItem::ByteSequence(bytes) => format!("{} bytes", bytes.len()),
        BareItem::Date(date) => format!("the date {date}"),
        BareItem::DisplayString(text) => format!("%\"{}\"", text.as_str()),
    }
}

/// The most different values that [`counted`] names.
const MAX_COUNTED: usize = 6;

/// Values of which many may be the same: each once, with how often it came.
pub(crate) fn counted(values: &[String]) -> String {
    let mut kinds: Vec<(&String, usize)> = Vec::new();
    for value in values {
        match kinds.iter_mut().find(|(known, _)| *known == value) {
            Some((_, n)) => *n += 1,
            None => kinds.push((value, 1)),
        }
    }
    let mut shown: Vec<String> = kinds
        .iter()
        .take(MAX_COUNTED)
        .map(|(value, n)| match n {
            1 => (*value).clone(),
            n => format!("{n} x {value}"),
        })
        .collect();
    if kinds.len() > MAX_COUNTED {
        shown.push(format!("and {} more", kinds.len() - MAX_COUNTED));
    }
    shown.join("; ")
}

/// The first `most` characters, with a mark where there were more.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut out: String = text.chars().take(most).collect();
    if out.len() < text.len() {
        out.push_str(" ...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_none_and_a_list_has_no_brackets() {
        assert_eq!(or_none(Some(3)), "3");
        assert_eq!(or_none(None::<u64>), "none");
        assert_eq!(each_or_none([Some(1), None, Some(2)]), "1, none, 2");
        assert_eq!(each_of(Vec::<u64>::new()), "none");
    }

    #[test]
    fn an_item_is_told_as_it_is_written() {
        let told = |line: &str| {
            let read: sfv::Item = sfv::Parser::new(line).parse().expect("an item");
            item(&read.bare_item)
        };
        for line in ["12", "1.5", "?0", "queue_full", "\"a b\""] {
            assert_eq!(told(line), line);
        }
        assert_eq!(told(":aGk=:"), "2 bytes");
    }

    #[test]
    fn what_came_fifty_times_is_said_once() {
        let mut values = vec!["Connection refused (os error 111)".to_owned(); 50];
        values.push("200".to_owned());
        assert_eq!(counted(&values), "50 x Connection refused (os error 111); 200");
        let many: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        assert_eq!(counted(&many), "0; 1; 2; 3; 4; 5; and 3 more");
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        assert_eq!(short("\u{e4}\u{f6}\u{fc}", 2), "\u{e4}\u{f6} ...");
        assert_eq!(short("abc", 3), "abc");
    }
}
