//! Units that are configured and not served: the others are served all the same.

use crate::StartError;
use crate::error::{MediumError, chain};

/// What a unit that is opened again may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Acceptance {
    /// What was served.
    AsServed,
    /// Whatever is there: an administrator has said so. Not what its log has for another store.
    Anything,
    /// Whatever is there, and its log is that of it.
    AnythingForLog,
}

/// Why a unit is not served.
#[derive(Clone, Debug)]
pub(crate) struct Withheld {
    /// The reason, with the remedy.
    pub(crate) why: String,
    pub(crate) cause: Cause,
}

/// What keeps a unit from being served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cause {
    /// Its log is lost, or may have what the store has not.
    Log {
        /// To do without what the log may have is a way out.
        may_discard: bool,
        /// To write to the store what the log has is one, too.
        may_replay: bool,
    },
    /// What is at the place of its store is not what was served. It ends when that is back, or is accepted.
    Medium,
    /// Its store cannot be opened. It ends when it can.
    Store,
    /// Its store is at an interface of which only the start takes frames. It ends with a restart, or when another store
    /// gives up its socket of that interface.
    Frames,
}

impl Withheld {
    /// What keeps a store from being opened as it was served.
    pub(super) fn of(error: &StartError) -> Self {
        let is_medium = matches!(
            error,
            StartError::Medium(
                MediumError::Changed { .. }
                    | MediumError::Missing { .. }
                    | MediumError::Unknown { .. }
            )
        );
        let cause = match is_medium {
            true => Cause::Medium,
            false if error.needs_restart() => Cause::Frames,
            false => Cause::Store,
        };
        let why = chain(error);
        Self { why, cause }
    }

    /// The code of the finding.
    pub(crate) const fn code(&self) -> &'static str {
        match self.cause {
            Cause::Log { .. } => "log-lost",
            Cause::Medium => "medium-changed",
            Cause::Store | Cause::Frames => "store-unopened",
        }
    }

    /// What helps, beside what the reason says.
    pub(crate) const fn remedy(&self) -> &'static str {
        match self.cause {
            Cause::Log { .. } => "put right what the message names, and start Tarn again",
            Cause::Medium => {
                "mount or put back what was served: Tarn looks every 10 s, but not below a root of [confine] that was \
                 mounted since, which needs a restart; or accept what is there (tarn lun adopt ID)"
            }
            Cause::Store => {
                "put right what the message names: Tarn tries every 10 s; where only the rights of the start suffice \
                 ([confine]), restart Tarn"
            }
            Cause::Frames => "restart Tarn when its initiators can wait some seconds",
        }
    }

    /// Whether it may end by itself.
    pub(crate) const fn is_tried_again(&self) -> bool {
        match self.cause {
            Cause::Log { .. } => false,
            Cause::Medium | Cause::Store | Cause::Frames => true,
        }
    }

    /// Whether a restart is all that it takes.
    pub(crate) fn waits_for_restart(&self) -> bool {
        self.cause == Cause::Frames
    }
}
