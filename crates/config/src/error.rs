//! A rule that was broken, and where. Here are the rules that any section can break; the others are with what they are
//! about.

use std::error::Error;

use crate::Place;

/// A broken rule and the place where it is broken.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {rule}")]
pub struct ConfigError {
    /// Where it stands.
    pub place: Place,
    /// What is wrong with it.
    pub rule: Box<dyn Error + Send + Sync>,
}

impl ConfigError {
    /// That this rule is broken at `place`.
    pub fn new(rule: impl Error + Send + Sync + 'static, place: Place) -> Self {
        let rule = Box::new(rule);
        Self { place, rule }
    }

    /// The broken rule, if it is one of these.
    pub fn broken<R: Error + 'static>(&self) -> Option<&R> {
        self.rule.downcast_ref()
    }
}

/// A rule that any section can break, with what was found and what would be right.
///
/// Rules know no place: the functions that check single words return a rule, and
/// the reader of the file or of the command line adds the place.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rule {
    /// The file is not TOML.
    #[error("not valid TOML: {message}")]
    Syntax {
        /// The parser's words, one line.
        message: String,
    },
    /// A key that nothing reads; most often a slip of the finger.
    #[error("unknown key {}; {hint}", shown_key(key))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The nearest known key, or all of them.
        hint: String,
    },
    /// A key that must be there.
    #[error("key {key:?} is missing; {section} needs it")]
    MissingKey {
        /// The missing key.
        key: &'static str,
        /// The section that lacks it.
        section: &'static str,
    },
    /// A value of another type than the key takes.
    #[error("{got} found where {wanted} is needed")]
    WrongType {
        /// What the key takes.
        wanted: &'static str,
        /// What is there, with its value if that is short.
        got: String,
    },
    /// Something else where a table has to be.
    #[error("{got} found where a table is needed; write {example}")]
    NoTable {
        /// What is there.
        got: String,
        /// A table that may be there.
        example: String,
    },
    /// One section where any number of them may be.
    #[error("a table found where a list is needed; write [[{list}]] above it, with two brackets")]
    OneOfList {
        /// The list.
        list: String,
    },
    /// A number outside its range.
    #[error("{got} is outside {min}..={max}; choose a number in that range")]
    OutOfRange {
        /// The number as written.
        got: String,
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
    /// A word that is not one of a fixed list.
    #[error("{got:?} is not known; use {wanted}")]
    NotOneOf {
        /// The word as written.
        got: String,
        /// The words that are known.
        wanted: &'static str,
    },
    /// A list that must have at least one entry.
    #[error("the list is empty; {remedy}")]
    EmptyList {
        /// What to write instead.
        remedy: &'static str,
    },
    /// A name that is too long for the wire or for a file name.
    #[error("{what} of {got_bytes} bytes is too long; the limit is {max_bytes} bytes")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its length.
        got_bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// A name of nothing.
    #[error("{what} is empty; give it at least one character")]
    EmptyName {
        /// What is empty.
        what: &'static str,
    },
    /// A name that paths and URLs take for a directory.
    #[error("{what} {text:?} means a directory in paths and URLs; use another")]
    DotName {
        /// What is called so.
        what: &'static str,
        /// The name as written.
        text: String,
    },
    /// A character that the name cannot carry.
    #[error("{what} {text:?} has the character {character:?}; use {allowed}")]
    Character {
        /// What has it.
        what: &'static str,
        /// The text as written.
        text: String,
        /// The offender.
        character: char,
        /// The characters that are allowed.
        allowed: &'static str,
    },
    /// Two keys that say the same in two ways.
    #[error("this does not go with {other:?}; give one of them")]
    NotBoth {
        /// The key that is there, too.
        other: &'static str,
    },
    /// One half of a certificate.
    #[error("this needs {missing:?} beside it; give both, or neither to have them made")]
    NotWithout {
        /// The key that is missing.
        missing: &'static str,
    },
    /// A key that says more of another one, which is not there.
    #[error("this needs {missing:?} beside it; give that too, or remove this")]
    NotAlone {
        /// The key that is missing.
        missing: &'static str,
    },
    /// Two things of one kind with one name.
    #[error("{what} {name:?} is already used at {first}; give each its own")]
    Twice {
        /// What the name belongs to.
        what: &'static str,
        /// The name.
        name: String,
        /// Where it was used first.
        first: Place,
    },
    /// A name that leads nowhere.
    #[error("{what} {name:?} does not exist; {hint}")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// The name as written.
        name: String,
        /// The nearest name that exists, or how to make one.
        hint: String,
    },
}

/// What `at` makes an error of.
pub(crate) trait Broken {
    /// The error that this rule is broken at `place`.
    fn at(self, place: Place) -> ConfigError;
}

impl<R: Error + Send + Sync + 'static> Broken for R {
    fn at(self, place: Place) -> ConfigError {
        ConfigError::new(self, place)
    }
}

/// Adds the place to the outcome of a check that knows none.
pub(crate) trait At<T> {
    /// Maps the broken rule to an error at the place that `place` gives.
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, ConfigError>;
}

impl<T, R: Broken> At<T> for Result<T, R> {
    fn at(self, place: impl FnOnce() -> Place) -> Result<T, ConfigError> {
        self.map_err(|rule| rule.at(place()))
    }
}

/// The hint for a name that is not in `known`: the nearest one, or `otherwise`.
pub(crate) fn nearest_hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    let nearest = known
        .into_iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .min();
    match nearest {
        // Half of the letters wrong is still a slip (two that changed places count twice); more
        // is another word.
        Some((distance, candidate)) if distance * 2 <= candidate.chars().count().max(3) => {
            format!("did you mean {candidate:?}?")
        }
        Some(_) | None => otherwise(),
    }
}

/// How many single letters must be added, dropped or changed to make one word the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, to) in row.iter_mut().skip(1).zip(&b) {
            let above = *cell;
            let changed = diagonal + usize::from(from != *to);
            diagonal = above;
            left = changed.min(above + 1).min(left + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// A key as those may see it who may not read secrets. Keys have no digits and no capitals.
fn shown_key(key: &str) -> String {
    match key
        .chars()
        .all(|one| one.is_ascii_lowercase() || matches!(one, '_' | '-'))
    {
        true => format!("{key:?}"),
        false => "that is not shown, as it may be a secret".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_letter_slips() {
        for (a, b, expected) in [
            ("", "", 0),
            ("store", "store", 0),
            ("", "lun", 3),
            ("lun", "", 3),
            ("stroe", "store", 2),
            ("stor", "store", 1),
            ("sttore", "store", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a:?} to {b:?}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let hint = |name| nearest_hint(name, ["store", "serial"], || "no".to_owned());
        assert_eq!(hint("stor"), "did you mean \"store\"?");
        assert_eq!(hint("stroe"), "did you mean \"store\"?");
        assert_eq!(hint("admin"), "no");
        assert_eq!(nearest_hint("x", [], || "none".to_owned()), "none");
    }
}
