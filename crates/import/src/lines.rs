//! Lines and words, as most of the formats have them.

use crate::{Place, ReadError, Source};

/// A line that goes on where it ends in a backslash, with the number of its first line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Line {
    pub(crate) number: usize,
    pub(crate) text: String,
}

/// The lines of a text, joined where a backslash ends one, without blanks at either end, and
/// without empty ones and comments.
pub(crate) fn joined(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open: Option<Line> = None;
    for (number, text) in (1..).zip(text.lines()) {
        let (part, goes_on) = match text.trim_end().strip_suffix('\\') {
            Some(part) => (part, true),
            None => (text, false),
        };
        let line = open.get_or_insert_with(|| Line {
            number,
            text: String::new(),
        });
        line.text.push_str(part);
        line.text.push(' ');
        if !goes_on {
            lines.extend(open.take());
        }
    }
    lines.extend(open);
    lines.retain_mut(|line| {
        line.text = line.text.trim().to_owned();
        !line.text.is_empty() && !line.text.starts_with('#')
    });
    lines
}

/// The words of a line, up to a comment. Quotes, single or double, hold blanks together; inside them
/// a backslash takes the next character as it is.
pub(crate) fn words(source: &Source<'_>, line: &Line) -> Result<Vec<String>, ReadError> {
    split(&line.text).ok_or_else(|| unclosed(source.at(line.number)))
}

pub(crate) fn unclosed(place: Place) -> ReadError {
    ReadError::syntax(place, "a quote is not closed")
}

fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' | '\'' => {
                let word = word.get_or_insert_default();
                quoted(&mut characters, character, word)?;
            }
            '#' if word.is_none() => break,
            character if character.is_whitespace() => words.extend(word.take()),
            character => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    Some(words)
}

/// Reads up to the closing quote; `None` if there is none.
fn quoted(characters: &mut std::str::Chars<'_>, quote: char, word: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '\\' => word.push(characters.next()?),
            character if character == quote => return Some(()),
            character => word.push(character),
        }
    }
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

/// A number of bytes, or of `k`, `M`, `G`, `T` (powers of 1024), with or without `B` or `iB`.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    config::parse_size(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_numbered_by_their_first() {
        let lines = joined("# no\n\n  a \\\n  b\nc\n d \\");
        let got: Vec<_> = lines
            .iter()
            .map(|line| (line.number, line.text.as_str()))
            .collect();
        assert_eq!(got, [(3, "a    b"), (5, "c"), (6, "d")]);
    }

    #[test]
    fn quotes_hold_words_together() {
        for (text, words) in [
            ("a  b", Some(vec!["a", "b"])),
            ("a \"b c\" d", Some(vec!["a", "b c", "d"])),
            ("a 'b \"c' # no", Some(vec!["a", "b \"c"])),
            ("a\"b\\\"c\" x#y", Some(vec!["ab\"c", "x#y"])),
            ("\"\"", Some(vec![""])),
            ("\"a", None),
            ("\"a\\", None),
        ] {
            let words = words.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(split(text), words, "{text}");
        }
    }
}
