//! The texts that are read, and what makes one unreadable.

use crate::{Note, Place};

/// Largest file in bytes.
pub const FILE_BYTES_MAX: usize = 16 << 20;

/// Most bytes in all files together.
pub const TOTAL_BYTES_MAX: usize = 32 << 20;

/// Most entries of lists that are multiplied out: one list may be that of many targets.
pub(crate) const ENTRIES_MAX: usize = 1_000_000;

/// Deepest nesting of sections.
pub(crate) const DEPTH_MAX: usize = 16;

/// A file of the other program.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// What is in it.
    pub text: &'a str,
}

impl Source<'_> {
    /// A line of it, counted from one.
    pub(crate) fn at(&self, line: usize) -> Place {
        Place {
            file: self.name.into(),
            line,
        }
    }
}

/// A file, or a pattern for several, that another file includes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Include {
    /// Where it says so.
    pub place: Place,
    /// What it says. A relative path is taken from the directory of the including file.
    pub pattern: String,
}

/// Why a text cannot be read as a configuration of that program.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The text breaks the syntax of the format.
    #[error("{place}: {problem}; correct the file, or name its format if it is of another one")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// Sections in sections in sections.
    #[error("{place}: sections nest deeper than {DEPTH_MAX}; that is no configuration of a target")]
    TooDeep {
        /// Where.
        place: Place,
    },
    /// A file, or all together, beyond the limit.
    #[error("{name}: {got_bytes} bytes are too much, the limit is {max_bytes}; split the file")]
    TooLarge {
        /// The file, or `all files`.
        name: String,
        /// How much it is.
        got_bytes: usize,
        /// How much it may be.
        max_bytes: usize,
    },
    /// Lists that many targets refer to, and that are too long for so many.
    #[error(
        "{place}: with this, lists have more than {ENTRIES_MAX} entries over all targets; split the files"
    )]
    TooMuch {
        /// The target, or the list, that was one too many.
        place: Place,
    },
    /// Nothing in the files looks like any of the formats.
    #[error(
        "{name}: the format cannot be recognised from the text; name it: tgt, tgt-show, lio, scst, iet, istgt or ctl"
    )]
    FormatUnknown {
        /// The first file.
        name: String,
    },
    /// The other syntax of `ctl.conf`.
    #[error(
        "{place}: this is a ctl.conf in UCL, which ctld -u reads; only the syntax without -u can be imported, so write \
         the file in that (ctl.conf(5))"
    )]
    Ucl {
        /// Where that shows.
        place: Place,
    },
    /// An included file that is no configuration. What is in it is not shown, as it may be any file.
    #[error(
        "{place}: this included file is not a configuration of that program: {problem}; correct it, or the include"
    )]
    Included {
        /// The line that cannot be read.
        place: Place,
        /// What is wrong with it.
        problem: String,
    },
    /// No disk, or none that Tarn could serve.
    #[error(
        "{name}: nothing was found that could be imported; {}",
        remedy_of_nothing(notes)
    )]
    Nothing {
        /// The first file.
        name: String,
        /// Why.
        notes: Vec<Note>,
    },
}

fn remedy_of_nothing(notes: &[Note]) -> &'static str {
    if notes.is_empty() {
        "check that it is the right file"
    } else {
        "the list has the reasons"
    }
}

impl ReadError {
    pub(crate) fn syntax(place: Place, problem: impl Into<String>) -> Self {
        Self::Syntax {
            place,
            problem: problem.into(),
        }
    }
}

pub(crate) fn first_name(sources: &[Source<'_>]) -> String {
    sources
        .first()
        .map_or_else(|| "no file".to_owned(), |source| source.name.to_owned())
}

pub(crate) fn check_sizes(sources: &[Source<'_>]) -> Result<(), ReadError> {
    let too_large = |name: &str, got_bytes, max_bytes| ReadError::TooLarge {
        name: name.to_owned(),
        got_bytes,
        max_bytes,
    };
    let mut total_bytes = 0_usize;
    for source in sources {
        let bytes = source.text.len();
        if bytes > FILE_BYTES_MAX {
            return Err(too_large(source.name, bytes, FILE_BYTES_MAX));
        }
        total_bytes = total_bytes.saturating_add(bytes);
    }
    if total_bytes > TOTAL_BYTES_MAX {
        return Err(too_large("all files", total_bytes, TOTAL_BYTES_MAX));
    }
    Ok(())
}
