//! Where the state of a unit is kept over a restart, and who of several writers may replace it.
//!
//! A save names the version that it replaces. Nobody waits for another writer: the later one has a conflict. After that
//! the owner of the unit ([`UnitOwner`](crate::agree::UnitOwner)) saves nothing more until the unit starts again.
//!
//! * Another writer saves before a save of this one: that is a conflict, its change has failed, what the other saved
//!   stays.
//! * Changes wait when a conflict comes: each gets its turn at once, and is refused where it must be saved.
//! * The other writer is slow, hangs or is gone: its state is there or is not, and a save of this one waits for
//!   nothing. What is there is loaded when the unit starts again.
//! * There are several others: every version but the one that this owner knows is foreign.
//! * A save hangs: its change is answered as failed when the patience for changes is over, those behind it as busy.
//!   READ and WRITE go on. When the save comes back, the state in force replaces it.
//! * A conflict comes after such an answer, or while the state in force is put back: nobody is answered twice, and
//!   nothing is put back.
//! * A save fails and changes nothing: its change is answered as failed.
//! * A save fails, and may be done all the same ([`SaveError::Uncertain`]): the state in force is saved at once,
//!   before the change is answered as failed. Where that fails too, it is tried again every 30 s, and each change whose
//!   answer says what is kept is saved, also one that changes nothing. An authority knows all that it may have left
//!   itself: that is no conflict.
//! * Two units of one name are two writers. Before that the configuration refuses them; so does the lock of the files.

use std::fmt;
use std::io;

/// Names one saved state of a unit. Each save gives a higher one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.0)
    }
}

/// A state as it was saved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SavedState {
    /// What it is replaced by.
    pub version: Version,
    /// In the form of the device server.
    pub state: Vec<u8>,
}

/// A state that is to be saved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Save {
    /// In the form of the device server.
    pub state: Vec<u8>,
    /// The version that the new state was computed from; `None` if nothing was saved before.
    pub replaces: Option<Version>,
}

/// Why a state was not saved.
#[derive(Debug)]
pub enum SaveError {
    /// Somebody else has saved meanwhile, and that stays. The state in force here is not the last one any more.
    Conflict {
        /// What is saved there.
        found: Version,
        /// Where, and what to do.
        advice: String,
    },
    /// It could not be written. What was there before is there still.
    Failed(io::Error),
    /// It could not be finished, and may be there all the same, now or after a crash. The next save replaces it.
    Uncertain(io::Error),
}

impl fmt::Display for SaveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { advice, .. } => f.write_str(advice),
            Self::Failed(error) | Self::Uncertain(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SaveError {}

/// Keeps the state of one unit for all who may change it: the files of one machine, or later a cluster of gateways.
/// Loading and saving may block, so they belong on helper threads. One call of this process is under way at a time.
pub trait StateAuthority: Send + Sync + fmt::Debug {
    /// What was saved last, if anything was.
    ///
    /// # Errors
    ///
    /// It cannot be read. [`io::ErrorKind::InvalidData`] if it is damaged or gone: then the next save replaces
    /// nothing.
    fn load(&self) -> io::Result<Option<SavedState>>;

    /// Replaces what was saved. The state is on stable storage when this returns its version.
    ///
    /// # Errors
    ///
    /// It was not saved, or may not be. A version other than the one to be replaced is a conflict, and is left alone,
    /// unless an uncertain save of this process has left it.
    fn save(&self, save: &Save) -> Result<Version, SaveError>;
}
