//! Values that several sections have: paths, ids, texts.

use std::path::{Path, PathBuf};

use crate::error::{At as _, Broken as _};
use crate::reader::Field;
use crate::{ConfigError, Rule, is_invisible};

/// Longest `id` of a unit or group in bytes.
const ID_BYTES_MAX: usize = 64;

/// Longest text value of the protocol in bytes.
///
/// Spec: RFC 7143 section 6.1.
const TEXT_BYTES_MAX: usize = 255;

/// A path; a relative one is taken from `directory`.
pub(crate) fn read_path(
    what: &'static str,
    field: &Field<'_>,
    directory: &Path,
) -> Result<PathBuf, ConfigError> {
    let path = field.text()?;
    if path.is_empty() {
        return Err(Rule::EmptyName { what }.at(field.place()));
    }
    Ok(directory.join(path))
}

pub(crate) fn read_u16(field: &Field<'_>, min: u16, max: u16) -> Result<u16, ConfigError> {
    let number = field.number(u64::from(min), u64::from(max))?;
    // The range has just been checked.
    Ok(u16::try_from(number).unwrap_or(max))
}

/// A name that is also used in file names and in other programs' output.
pub(crate) fn read_id(field: &Field<'_>) -> Result<String, ConfigError> {
    let text = field.text()?;
    let is_allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let rule = if text.is_empty() {
        Rule::EmptyName { what: "id" }
    } else if is_dots(text) {
        dot_name("id", text)
    } else if text.len() > ID_BYTES_MAX {
        Rule::TooLong {
            what: "id",
            got_bytes: text.len(),
            max_bytes: ID_BYTES_MAX,
        }
    } else if let Some(character) = text.chars().find(|c| !is_allowed(c)) {
        Rule::Character {
            what: "id",
            text: text.to_owned(),
            character,
            allowed: "letters, digits, - _ and .",
        }
    } else {
        return Ok(text.to_owned());
    };
    Err(rule.at(field.place()))
}

/// Many programs normalise a URL before they send it: the API could not be asked for such a name.
pub(crate) fn is_dots(text: &str) -> bool {
    matches!(text, "." | "..")
}

pub(crate) fn dot_name(what: &'static str, text: &str) -> Rule {
    Rule::DotName {
        what,
        text: text.to_owned(),
    }
}

/// A text that goes over the wire as the value of a key.
pub(crate) fn read_text(what: &'static str, field: &Field<'_>) -> Result<String, ConfigError> {
    read_text_of(what, TEXT_BYTES_MAX, field)
}

/// The same with this many bytes at most.
pub(crate) fn read_text_of(
    what: &'static str,
    max_bytes: usize,
    field: &Field<'_>,
) -> Result<String, ConfigError> {
    let text = field.text()?;
    check_text(what, max_bytes, text).at(|| field.place())?;
    Ok(text.to_owned())
}

/// Whether a text can go over the wire.
pub(crate) fn check_text(what: &'static str, max_bytes: usize, text: &str) -> Result<(), Rule> {
    if text.is_empty() {
        return Err(Rule::EmptyName { what });
    }
    if text.len() > max_bytes {
        return Err(Rule::TooLong {
            what,
            got_bytes: text.len(),
            max_bytes,
        });
    }
    match text.chars().find(|&c| is_invisible(c)) {
        Some(character) => Err(Rule::Character {
            what,
            text: text.to_owned(),
            character,
            allowed: "characters that can be printed",
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_or_turns_other_characters_is_in_no_name() {
        for hidden in [
            "a\u{202e}b",
            "a\u{2028}b",
            "a\u{2066}b",
            "a\u{85}b",
            "a\u{1b}[31m",
        ] {
            assert!(check_text("a name", 64, hidden).is_err(), "{hidden:?}");
        }
        for plain in ["a b", "\u{e9}\u{301}", "\u{5e9}\u{5dc}", "\u{1f600}"] {
            assert!(check_text("a name", 64, plain).is_ok(), "{plain:?}");
        }
    }
}
