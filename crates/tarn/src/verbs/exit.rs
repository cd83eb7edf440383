//! Exit codes: the one table of them, which the documents and the manual pages repeat.

use std::process::ExitCode;

use api::problem::ProblemKind;

/// How a command ended, for scripts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// It is done.
    Done = 0,
    /// It failed, and no other code says how.
    Failed = 1,
    /// The command line or a configuration is wrong.
    Wrong = 2,
    /// The daemon does not answer.
    Unreachable = 3,
    /// The caller may not.
    NotAllowed = 4,
    /// What was named does not exist.
    NotFound = 5,
    /// It exists already, is in use, or has changed.
    Conflict = 6,
    /// It cannot be done while Tarn runs.
    Refused = 7,
    /// There is a difference, and --exit-code was given.
    Differs = 10,
}

/// A row of the table: code, what it means.
pub type Row = (Exit, &'static str);

/// All exit codes.
#[rustfmt::skip]
pub const TABLE: &[Row] = &[
    (Exit::Done, "done; or there was nothing to do"),
    (Exit::Failed, "failed, as the message says; or the answer to a question was no, or nobody could be asked and `--yes` was missing; or the last flush of a LUN failed when `tarn serve` ended"),
    (Exit::Wrong, "the command line, a file or the configuration in it is wrong"),
    (Exit::Unreachable, "the daemon does not answer: it does not run, or has another address"),
    (Exit::NotAllowed, "not allowed: wrong user, no token, or the role is too low"),
    (Exit::NotFound, "what was named does not exist"),
    (Exit::Conflict, "conflict: it exists already, is in use, or the configuration has changed meanwhile"),
    (Exit::Refused, "this cannot be done while Tarn runs; the message says why"),
    (Exit::Differs, "there is a difference, and --exit-code was given"),
];

impl Exit {
    /// The exit of this number, if there is one.
    pub(super) fn of_code(code: u8) -> Option<Self> {
        let row = TABLE.iter().find(|(exit, _)| exit.code() == code);
        row.map(|(exit, _)| *exit)
    }

    /// What is wrong, for programs, where the daemon has no word for it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Done | Self::Differs | Self::Failed => "failed",
            Self::Wrong => "wrong",
            Self::Unreachable => "unreachable",
            Self::NotAllowed => "forbidden",
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
        }
    }

    /// The number.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The one table from what the daemon says to the exit code.
    pub(super) const fn of_problem(kind: ProblemKind) -> Self {
        match kind {
            ProblemKind::BadRequest
            | ProblemKind::InvalidConfig
            | ProblemKind::TooLarge
            | ProblemKind::UnsupportedMediaType => Self::Wrong,
            ProblemKind::Unavailable => Self::Unreachable,
            ProblemKind::Unauthorized | ProblemKind::Forbidden | ProblemKind::TooManyRequests => {
                Self::NotAllowed
            }
            ProblemKind::NotFound => Self::NotFound,
            ProblemKind::Conflict | ProblemKind::RevisionMismatch => Self::Conflict,
            ProblemKind::Refused => Self::Refused,
            ProblemKind::ApplyFailed
            | ProblemKind::StorageFull
            | ProblemKind::Failed
            | ProblemKind::MethodNotAllowed => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_in_the_table_once_and_in_the_document() {
        let codes: Vec<_> = TABLE.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 7, 10]);
        let document = include_str!("../../../../docs/reference/cli.md");
        for (exit, meaning) in TABLE {
            let row = format!("| {} | {meaning} |", exit.code());
            assert!(
                document.contains(&row),
                "docs/reference/cli.md has no {row}"
            );
        }
    }

    #[test]
    fn what_the_daemon_says_has_its_code_and_each_code_its_word() {
        use ProblemKind::{ApplyFailed, BadRequest, Conflict, Failed, Forbidden, InvalidConfig};
        use ProblemKind::{MethodNotAllowed, NotFound, Refused, RevisionMismatch, StorageFull};
        use ProblemKind::{
            TooLarge, TooManyRequests, Unauthorized, Unavailable, UnsupportedMediaType,
        };
        for (kinds, code, word) in [
            (
                &[ApplyFailed, StorageFull, Failed, MethodNotAllowed][..],
                1,
                "failed",
            ),
            (
                &[BadRequest, InvalidConfig, TooLarge, UnsupportedMediaType],
                2,
                "wrong",
            ),
            (&[Unavailable], 3, "unreachable"),
            (&[Unauthorized, Forbidden, TooManyRequests], 4, "forbidden"),
            (&[NotFound], 5, "not-found"),
            (&[Conflict, RevisionMismatch], 6, "conflict"),
            (&[Refused], 7, "refused"),
        ] {
            for kind in kinds {
                let exit = Exit::of_problem(*kind);
                assert_eq!((exit.code(), exit.word()), (code, word), "{kind:?}");
            }
        }
        let words = [Exit::Done, Exit::Differs].map(Exit::word);
        assert_eq!(words, ["failed"; 2]);
        for (exit, _) in TABLE {
            assert_eq!(Exit::of_code(exit.code()), Some(*exit));
        }
        assert_eq!([8, 9, 11].map(Exit::of_code), [None; 3]);
    }
}
