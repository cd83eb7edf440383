//! Words of source texts.

use std::collections::BTreeSet;

/// The words of a text that begin small, as variables do.
pub(crate) fn of(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words
        .filter(|word| word.starts_with(|letter: char| letter.is_lowercase() || letter == '_'))
        .collect()
}

/// The first word of a text.
pub(crate) fn first_word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}
