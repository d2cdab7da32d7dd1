//! Foreign text on its way to a terminal or a log.
//!
//! Names in a profile, paths and what other programs say may hold anything: a newline that forges a line of the log, an escape
//! that colours, hides or retitles the reader's terminal, a mark that turns text around. Shown is what can be seen; the rest
//! is shown as `\n`, `\u{1b}`.

use std::path::Path;

/// Most characters of a foreign name or value that are shown.
pub(crate) const MAX_SHOWN: usize = 64;

/// The text with everything escaped that cannot be seen. Quotes and backslashes stay as they are.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '\'' | '\\' => seen.push(letter),
            _ => seen.extend(letter.escape_debug()),
        }
    }
    seen
}

/// The first [`MAX_SHOWN`] characters, escaped.
pub(crate) fn short(text: &str) -> String {
    escaped(&text.chars().take(MAX_SHOWN).collect::<String>())
}

/// A whole path, escaped: half of one names another file.
#[must_use]
pub fn path(path: &Path) -> String {
    escaped(&path.to_string_lossy())
}

/// The last place before a terminal: lines stay lines, and what else cannot be seen is escaped. Whoever puts foreign text into a
/// message has escaped its newlines before.
#[must_use]
pub fn lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(escaped).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped_and_everything_else_stays_as_it_is() {
        for (text, seen) in [
            ("plain \"text\" it's C:\\x", "plain \"text\" it's C:\\x"),
            ("caf\u{e9} \u{4f60}\u{597d}", "caf\u{e9} \u{4f60}\u{597d}"),
            ("\u{1b}[31mred\n", "\\u{1b}[31mred\\n"),
            ("\u{9b}31m\u{7}\r\0", "\\u{9b}31m\\u{7}\\r\\0"),
            ("\u{202e}gnp\u{2028}", "\\u{202e}gnp\\u{2028}"),
        ] {
            assert_eq!(escaped(text), seen);
        }
        assert_eq!(short(&"\u{1b}".repeat(100)).matches("u{1b}").count(), MAX_SHOWN);
        assert_eq!(lines("one\ntwo\u{1b}"), "one\ntwo\\u{1b}");
    }
}
