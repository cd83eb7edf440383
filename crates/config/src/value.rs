//! Values as TOML, each in one form.

use std::path::Path;

use crate::keys::size_text;

/// A key of a thing and how to read its value.
#[derive(Debug)]
pub(crate) struct KeyOf<T: 'static> {
    /// The key as the file has it.
    pub(crate) name: &'static str,
    /// The value as TOML; `None` where there is none.
    pub(crate) value: fn(&T) -> Option<String>,
}

/// The same of such a thing.
pub(crate) fn values<T>(keys: &[KeyOf<T>], thing: &T) -> Keyed {
    let value = |key: &KeyOf<T>| (key.name, (key.value)(thing));
    keys.iter().map(value).collect()
}

pub(crate) const fn key<T>(name: &'static str, value: fn(&T) -> Option<String>) -> KeyOf<T> {
    KeyOf { name, value }
}

/// All keys of a kind of thing, in the order of the table of keys, with the values of one of them as TOML.
pub(crate) type Keyed = Vec<(&'static str, Option<String>)>;

/// A path as a TOML string. One that is not UTF-8 cannot be said in TOML; it is shown as near as
/// may be.
pub(crate) fn path(path: &Path) -> String {
    quoted(&path.display().to_string())
}

/// A number of bytes as a size.
pub(crate) fn size(bytes: u64) -> String {
    quoted(&size_text(bytes))
}

pub(crate) fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Whether a character is no sign of its own but changes how others are shown: control characters, line and paragraph
/// separators, and what turns the direction of writing. A name with one could pass for another, or break a line.
#[must_use]
pub fn is_invisible(character: char) -> bool {
    // Spec: Unicode, general category Cc, U+2028 and U+2029, property Bidi_Control.
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// A text as a basic string of TOML, always on one line.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            hidden if is_invisible(hidden) => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(hidden)));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_is_one_line_of_toml_and_reads_back() {
        for text in [
            "",
            "a",
            "a\"b\\c",
            "a\nb\u{7f}\u{85}\t\u{202e}",
            "\u{e9}\u{1f600}",
        ] {
            let line = format!("x = {}", quoted(text));
            assert_eq!(line.lines().count(), 1, "{line}");
            let table: toml::Table = line.parse().unwrap();
            assert_eq!(table["x"].as_str(), Some(text));
        }
    }
}
