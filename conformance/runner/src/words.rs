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
}
