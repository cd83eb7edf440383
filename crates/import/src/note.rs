//! What became of a thing of the other configuration, and where it stands there.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A line of a file.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The file, which many places share.
    pub file: Arc<str>,
    /// The line, counted from one; 0 for the file as a whole.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.file)
        } else {
            write!(f, "{}:{}", self.file, self.line)
        }
    }
}

/// What became of one thing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Note {
    /// How it went.
    pub severity: Severity,
    /// Where the thing stands, `FILE:LINE`.
    #[serde(serialize_with = "as_text")]
    pub place: Place,
    /// The thing, as `disk "data"` or `target iqn.x`.
    pub subject: String,
    /// What became of it, and why.
    pub message: String,
    /// What to do about it; empty if nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

/// How it went. The worst comes first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It, or a part of it that the message names, is not in the result.
    LeftOut,
    /// It is in the result in another form, or initiators may see a difference.
    Changed,
    /// It is in the result, and initiators see no difference.
    Carried,
}

impl Severity {
    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LeftOut => "left out",
            Self::Changed => "changed",
            Self::Carried => "carried",
        }
    }
}

fn as_text<S: serde::Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(place)
}
