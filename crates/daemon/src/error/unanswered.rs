//! Why a call that touches a file has no outcome.

use std::path::PathBuf;

/// Why a call that touches a file has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The time is over.
    #[error("{} does not answer within {seconds} s, and what was asked for may still be done; see the kernel log, and \
        check the server that has it, if it is on a network", path.display())]
    Late {
        /// What was asked.
        path: PathBuf,
        /// How long.
        seconds: u64,
    },
    /// An earlier call has not come back.
    #[error("{} has not answered an earlier change yet, and is not tried again until it has", path.display())]
    StillHangs {
        /// What was asked.
        path: PathBuf,
    },
    /// It was not come to.
    #[error("there was no time left to look at {}", path.display())]
    NoTime {
        /// What was to be asked.
        path: PathBuf,
    },
    /// There are as many threads as there may be.
    #[error("{many} paths do not answer; {} is not tried until some of them have", path.display())]
    TooMany {
        /// What was to be asked.
        path: PathBuf,
        /// How many do not answer.
        many: usize,
    },
    /// There is no thread, or it failed.
    #[error("{} cannot be opened: no thread could be started, or the call failed", path.display())]
    NoThread {
        /// What was to be asked.
        path: PathBuf,
    },
}
