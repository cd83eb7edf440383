//! Why not: the text for a person, and the error number for a program.

use std::error::Error as _;
use std::sync::Arc;

use api::problem::ProblemKind;
use client::ClientError;

/// Bytes of what is written at once: a group of a thousand initiators has room.
pub(crate) const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Files and directories that may be open at once.
pub(crate) const OPEN_MAX: usize = 256;

/// Why a request of the kernel is not done. One variant per rule.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The daemon says why not, or does not answer.
    #[error(transparent)]
    Daemon(#[from] Arc<ClientError>),

    // What is asked for.
    /// There is nothing of that name, or not any more.
    #[error("there is nothing of that name")]
    Absent,
    /// A file that no verb changes.
    #[error(
        "this is for reading; only some files can be written, docs/reference/tree.md lists them"
    )]
    ReadOnly,
    /// To make, remove or rename what is in the tree.
    #[error(
        "only snapshots can be made and removed in the tree; for other items use tarn lun, store, target, group, user, \
         nbd, quota, hyperscsi and session"
    )]
    Structure,
    /// Another mode, owner or time for a file.
    #[error("modes, owners and times in the tree are fixed")]
    Fixed,
    /// More open files than there may be.
    #[error("{OPEN_MAX} files of the tree are open already; close some")]
    TooManyOpen,

    // What is written.
    /// A part of a value.
    #[error("a value is written whole, from its beginning; use > and not >>")]
    NotWhole,
    /// More than a value may have.
    #[error("a value has at most {VALUE_BYTES_MAX} bytes, got {got}")]
    TooLong {
        /// Bytes.
        got: usize,
    },
    /// No text.
    #[error("a value is text in UTF-8")]
    NotText,
    /// Another value than the one that does something.
    #[error("write 1 to {deed}, got {got:?}")]
    NotOne {
        /// What it would do.
        deed: &'static str,
        /// What was written.
        got: String,
    },
    /// No number where one is asked for.
    #[error("write a number of percent, 1 to 99, or an empty line for the default, got {got:?}")]
    NotPercent {
        /// What was written.
        got: String,
    },
    /// Another number of files than TLS has.
    #[error(
        "write the certificate and its key, and perhaps the ca for clients, a line each, or nothing; got {got} lines"
    )]
    NotTls {
        /// How many lines were written.
        got: usize,
    },
    /// No place where a medium can be.
    #[error("write out to eject the medium or in to load it, got {got:?}")]
    NotInOrOut {
        /// What was written.
        got: String,
    },
    /// More than one line where one is asked for.
    #[error("write one line, got {got}")]
    NotOneLine {
        /// How many lines were written.
        got: usize,
    },
    /// No size.
    #[error(transparent)]
    Size(#[from] config::SizeRule),
}

/// The answer to a program. One for each error number that is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Number {
    /// ENOENT
    NoEntry,
    /// EINVAL
    Invalid,
    /// EACCES
    Access,
    /// EPERM
    NotPermitted,
    /// EBUSY
    Busy,
    /// EAGAIN
    Again,
    /// EFBIG
    TooBig,
    /// ENFILE
    TooManyFiles,
    /// EIO
    Failed,
}

impl Refusal {
    /// The one table from a refusal to its error number.
    pub(crate) fn number(&self) -> Number {
        match self {
            Self::Daemon(error) => of_client(error),
            Self::Absent => Number::NoEntry,
            Self::ReadOnly => Number::Access,
            Self::Structure | Self::Fixed => Number::NotPermitted,
            Self::TooManyOpen => Number::TooManyFiles,
            Self::TooLong { .. } => Number::TooBig,
            Self::NotWhole
            | Self::NotText
            | Self::NotOne { .. }
            | Self::NotInOrOut { .. }
            | Self::NotPercent { .. }
            | Self::NotTls { .. }
            | Self::NotOneLine { .. }
            | Self::Size(_) => Number::Invalid,
        }
    }

    /// What happened at this path, in one line, with its causes.
    pub(crate) fn line(&self, path: &str) -> String {
        let mut line = if path.is_empty() {
            self.to_string()
        } else {
            format!("{path}: {self}")
        };
        let mut cause = self.source();
        while let Some(error) = cause {
            line.push_str(": ");
            line.push_str(&error.to_string());
            cause = error.source();
        }
        line.replace(char::is_control, " ")
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all others are troubles between here and the daemon"
)]
fn of_client(error: &ClientError) -> Number {
    match error {
        ClientError::Problem(problem) => of_problem(problem.kind),
        ClientError::SocketDenied { .. } => Number::Access,
        _ => Number::Failed,
    }
}

fn of_problem(kind: ProblemKind) -> Number {
    match kind {
        ProblemKind::BadRequest
        | ProblemKind::InvalidConfig
        | ProblemKind::UnsupportedMediaType => Number::Invalid,
        ProblemKind::Unauthorized | ProblemKind::Forbidden => Number::Access,
        ProblemKind::NotFound => Number::NoEntry,
        ProblemKind::MethodNotAllowed => Number::NotPermitted,
        ProblemKind::Refused | ProblemKind::Conflict => Number::Busy,
        ProblemKind::RevisionMismatch | ProblemKind::TooManyRequests => Number::Again,
        ProblemKind::TooLarge => Number::TooBig,
        ProblemKind::ApplyFailed
        | ProblemKind::StorageFull
        | ProblemKind::Failed
        | ProblemKind::Unavailable => Number::Failed,
    }
}

#[cfg(test)]
mod tests {
    use api::problem::Problem;

    use super::*;

    fn daemon(error: ClientError) -> Refusal {
        Refusal::Daemon(Arc::new(error))
    }

    #[test]
    fn a_line_has_place_reason_and_causes() {
        let mut problem = Problem::new(ProblemKind::InvalidConfig, "too long;\nshorten it");
        problem.place = Some("target[0].alias".to_owned());
        let refusal = daemon(ClientError::Problem(Box::new(problem)));
        assert_eq!(
            refusal.line("targets/iqn.x/alias"),
            "targets/iqn.x/alias: target[0].alias: too long; shorten it"
        );
        assert_eq!(refusal.number(), Number::Invalid);

        let broken = daemon(ClientError::Broken {
            peer: "s".to_owned(),
            source: "reset".into(),
        });
        let line = broken.line("");
        assert!(line.ends_with(": reset"), "{line}");
        assert_eq!(broken.number(), Number::Failed);
    }
}
