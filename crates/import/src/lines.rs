//! Lines and words, as most of the formats have them.

use crate::{Place, ReadError};

/// A line that goes on where it ends in a backslash, with the numbers of its first line and of the others.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
    /// Lines that were joined to it, as they stand in the text.
    pub(crate) joined: Vec<String>,
}

/// The lines of a text, joined where a backslash ends one, without blanks at either end, and without empty ones and
/// comments. A comment ends with its line, whatever it ends in.
pub(crate) fn joined(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut is_open = false;
    for (number, text) in (1..).zip(text.lines()) {
        if !is_open && text.trim_start().starts_with('#') {
            continue;
        }
        let (part, goes_on) = match text.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (text, false),
        };
        match lines.last_mut().filter(|_| is_open) {
            Some(line) => {
                line.text.push_str(part);
                line.joined.push(part.to_owned());
            }
            None => lines.push(Line {
                number,
                text: part.to_owned(),
                joined: Vec::new(),
            }),
        }
        is_open = goes_on;
    }
    lines.retain_mut(|line| {
        line.text = line.text.trim().to_owned();
        !line.text.is_empty()
    });
    lines
}

pub(crate) fn unclosed(place: Place) -> ReadError {
    ReadError::syntax(place, "a quote is not closed")
}

/// The first word and the rest of a line.
pub(crate) fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    match text.split_once(char::is_whitespace) {
        Some((first, rest)) => (first, rest.trim()),
        None => (text, ""),
    }
}

/// The last part of a path, for names.
pub(crate) fn base_name(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or(path)
}

/// What the programs take for yes.
pub(crate) fn is_yes(text: &str) -> bool {
    ["1", "yes", "on", "true", "enable", "enabled"]
        .iter()
        .any(|yes| text.eq_ignore_ascii_case(yes))
}

/// What the programs take for no. Where a flag restricts, everything else is yes.
pub(crate) fn is_no(text: &str) -> bool {
    ["0", "no", "off", "false", "disable", "disabled"]
        .iter()
        .any(|no| text.eq_ignore_ascii_case(no))
}

/// A number of bytes, or of `k`, `M`, `G`, `T` (powers of 1024), with or without `B` or `iB`.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    config::parse_size(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_numbered_by_their_first() {
        let lines = joined("# no \\\n\n  a \\\n  b\nc\n d \\\n# e\n");
        let got: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.text.as_str()))
            .collect();
        assert_eq!(got, [(3, "a   b"), (5, "c"), (6, "d # e")]);
        assert_eq!(lines.first().unwrap().joined, ["  b"]);
    }
}
