//! What there is to say of a key.

use std::fmt;

/// A section of the file and the keys it may have.
#[derive(Clone, Copy, Debug)]
pub struct SectionKeys {
    /// As it is written in the file, or what it is an entry of.
    pub heading: &'static str,
    /// What the section is about, one sentence.
    pub meaning: &'static str,
    /// How one is written as a value, shown where something else stands: `%s` is what was written, `%n` its position.
    pub example: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key of the configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key as it is written.
    pub name: &'static str,
    /// What it takes.
    pub form: Form,
    /// What holds when it is left out.
    pub default: Fallback,
    /// What it does.
    pub meaning: &'static str,
    /// When or what for to set it; completes "Set it ...".
    pub set_it: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A string.
    Text {
        /// What it must look like, in words.
        words: &'static str,
        /// The same as a regular expression of ECMA-262, as far as one can say it.
        pattern: &'static str,
    },
    /// A STORE.
    Store,
    /// `true` or `false`.
    Flag,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// A list.
    List {
        /// What is in it, in words.
        words: &'static str,
        /// The forms an entry may have.
        entries: &'static [Self],
    },
    /// A table.
    Table {
        /// How it is written, in words.
        words: &'static str,
        /// Its keys.
        keys: &'static SectionKeys,
    },
    /// A number with its range.
    Number {
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
    /// A number of bytes, or a size such as `"64M"`, with its range.
    Bytes {
        /// Smallest legal value.
        min: u64,
        /// Largest legal value.
        max: u64,
    },
}

impl Form {
    /// The keys of the tables that a list may have.
    pub fn table(entries: &[Self]) -> Option<&'static SectionKeys> {
        entries.iter().find_map(|form| {
            let Self::Table { keys, .. } = form else {
                return None;
            };
            Some(*keys)
        })
    }
}

/// What holds when a key is left out.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// It cannot be left out.
    Required,
    /// What these words describe.
    Words(&'static str),
    /// This value, as TOML writes it, and JSON too.
    Value(&'static str),
    /// This number.
    Number(u64),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { words, .. } | Self::List { words, .. } | Self::Table { words, .. } => {
                f.write_str(words)
            }
            Self::Store => f.write_str("STORE, such as `mem:1G` or `file:disk.img?size=10G`"),
            Self::Flag => f.write_str("`true` or `false`"),
            Self::OneOf(words) => {
                for (position, word) in words.iter().enumerate() {
                    let joint = match position {
                        0 => "",
                        _ if position + 1 == words.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{joint}`\"{word}\"`")?;
                }
                Ok(())
            }
            Self::Number { min, max } => write!(f, "number, {min} to {max}"),
            Self::Bytes { min, max } => {
                write!(
                    f,
                    "bytes or size, {} to {}",
                    size_text(*min),
                    size_text(*max)
                )
            }
        }
    }
}

impl Key {
    /// What holds when the key is left out, in words.
    pub fn default_text(&self) -> String {
        match (self.default, self.form) {
            (Fallback::Required, _) => "required".to_owned(),
            (Fallback::Words(words), _) => words.to_owned(),
            (Fallback::Value(value), _) => format!("`{value}`"),
            (Fallback::Number(number), Form::Bytes { .. }) => {
                format!("`\"{}\"`", size_text(number))
            }
            (Fallback::Number(number), _) => format!("`{number}`"),
        }
    }
}

/// A number of bytes with the largest suffix that leaves no rest.
pub fn size_text(bytes: u64) -> String {
    [("T", 40), ("G", 30), ("M", 20), ("k", 10)]
        .into_iter()
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(
            || bytes.to_string(),
            |(suffix, shift)| format!("{}{suffix}", bytes >> shift),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_size;

    #[test]
    fn a_size_text_reads_back_as_the_same_number() {
        for (bytes, text) in [
            (1, "1"),
            (512, "512"),
            (1024, "1k"),
            (1536, "1536"),
            (1 << 20, "1M"),
            (3 << 29, "1536M"),
            (1 << 50, "1024T"),
        ] {
            assert_eq!(size_text(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
    }
}
