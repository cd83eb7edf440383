//! Why not.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every answer that is not a success, as `application/problem+json`.
///
/// Spec: RFC 9457.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Problem {
    /// As `conflict`, `refused`, `invalid-config`, `not-found`; stable, for scripts.
    #[serde(rename = "type")]
    pub kind: ProblemKind,
    /// The kind in words.
    pub title: String,
    /// The status code of HTTP.
    pub status: u16,
    /// What is wrong here, and the remedy; one line.
    pub detail: String,
    /// Where: a line of the document (`tarn.toml:12: lun[2].store`), or a field of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The revision that runs, when the request was for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// All that is wrong, where it is more than what `detail` and `place` say; the first of it is that.
    #[serde(default, skip_serializing_if = "<[Mistake]>::is_empty")]
    #[schema(value_type = Vec<Mistake>)]
    pub mistakes: Box<[Mistake]>,
}

/// One thing that keeps a configuration from being applied.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Mistake {
    /// Where: a line of the document (`tarn.toml:12: lun[2].store`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What is wrong, and the remedy; one line.
    pub detail: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.detail)
    }
}

/// What kind of problem it is.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The request makes no sense.
    BadRequest,
    /// No token, or one that is not known.
    Unauthorized,
    /// The role of the token does not allow it.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// It is known, but not with this method.
    MethodNotAllowed,
    /// The document breaks a rule of the configuration.
    InvalidConfig,
    /// A step cannot be done while Tarn runs.
    Refused,
    /// Something else uses it: it cannot be removed, or not be made again.
    Conflict,
    /// If-Match names another revision than the one that runs.
    RevisionMismatch,
    /// The body is too large.
    TooLarge,
    /// The body is not JSON.
    UnsupportedMediaType,
    /// Too many attempts; wait.
    TooManyRequests,
    /// A step failed and all before it were taken back: all is as before.
    ApplyFailed,
    /// There is no room on the file system for what the request has to keep.
    StorageFull,
    /// Something failed within Tarn or the system.
    Failed,
    /// The data plane did not answer in time or is stopping.
    Unavailable,
}

impl ProblemKind {
    /// Its status code and title.
    pub const fn status(self) -> (u16, &'static str) {
        match self {
            Self::BadRequest => (400, "The request makes no sense"),
            Self::Unauthorized => (401, "A valid token is needed"),
            Self::Forbidden => (403, "The role does not allow this"),
            Self::NotFound => (404, "There is no such thing"),
            Self::MethodNotAllowed => (405, "Not with this method"),
            Self::InvalidConfig => (422, "The configuration breaks a rule"),
            Self::Refused => (409, "This cannot be done while Tarn runs"),
            Self::Conflict => (409, "Something else is in the way"),
            Self::RevisionMismatch => (412, "The configuration has changed meanwhile"),
            Self::TooLarge => (413, "The request is too large"),
            Self::UnsupportedMediaType => (415, "This content type is not understood"),
            Self::TooManyRequests => (429, "Too many attempts"),
            Self::ApplyFailed => (409, "The change failed and was undone"),
            Self::StorageFull => (507, "There is no room to keep this"),
            Self::Failed => (500, "The system failed at this"),
            Self::Unavailable => (503, "The data plane does not answer"),
        }
    }
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        let (status, title) = kind.status();
        Self {
            kind,
            title: title.to_owned(),
            status,
            detail: detail.into(),
            place: None,
            revision: None,
            mistakes: Box::default(),
        }
    }

    /// A problem of this kind, for all of these reasons; without any it says nothing.
    pub fn of_mistakes(kind: ProblemKind, mistakes: Vec<Mistake>) -> Self {
        let first = mistakes.first().cloned();
        let detail = first.as_ref().map(|first| first.detail.clone());
        Self {
            place: first.and_then(|first| first.place),
            mistakes: match mistakes.len() {
                0 | 1 => Box::default(),
                _ => mistakes.into(),
            },
            ..Self::new(kind, detail.unwrap_or_default())
        }
    }
}

impl Problem {
    /// What a failed write is: no room, for which there is one remedy, or a failure of the system.
    pub fn of_write(detail: impl Into<String>, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};

        const REMEDY: &str = "make room";
        let is_full = matches!(error.kind(), StorageFull | QuotaExceeded);
        let mut detail: String = detail.into();
        if is_full && !detail.contains(REMEDY) {
            detail = format!("{detail}; {REMEDY} there");
        }
        let kind = if is_full {
            ProblemKind::StorageFull
        } else {
            ProblemKind::Failed
        };
        Self::new(kind, detail)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Problem {}
