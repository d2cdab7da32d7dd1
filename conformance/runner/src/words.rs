//! Values in the words of a report: what was not there is "none", whatever the language of the runner calls it.

use std::fmt::Display;

/// A value, or `none`.
pub(crate) fn or_none<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// Values with commas between them, or `nothing` where there is none.
pub(crate) fn list<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    }
}

/// The same where some may be missing.
pub(crate) fn gappy<T: Display>(values: impl IntoIterator<Item = Option<T>>) -> String {
    list(values.into_iter().map(or_none))
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
    fn values_are_told_without_the_words_of_a_language() {
        assert_eq!(gappy([Some(1), None, Some(2)]), "1, none, 2");
        assert_eq!(gappy::<u64>([]), "nothing");
        assert_eq!(or_none(None::<u64>), "none");
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
