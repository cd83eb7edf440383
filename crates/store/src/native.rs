//! Snapshots that are made where the data is, by those who have it: a store of an image asks its cluster for them.
//!
//! As with those of files a snapshot is taken under a name that none can have, a dot in front, and gets its own when it
//! is kept: so what a crash leaves is found by its name, and is no snapshot.
//!
//! Every call may wait for as long as those hang, so no core makes one.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::snapshots::{SNAPSHOTS_MAX, SnapshotName};

/// A snapshot that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NativeSnapshot {
    /// Its name.
    pub name: SnapshotName,
    /// Where it is, as a place of a STORE.
    pub place: String,
    /// When it was taken.
    pub taken: SystemTime,
    /// The size of the store then.
    pub size_bytes: u64,
}

/// Where a clone is to be: a pool, a namespace of it or the empty one, and a name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClonePlace {
    /// The pool.
    pub pool: String,
    /// The namespace.
    pub namespace: String,
    /// The name there.
    pub name: String,
}

/// How far something has come that may take long.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Progress {
    /// It is done.
    Done,
    /// It goes on.
    UnderWay {
        /// How much of it is done.
        percent: u8,
    },
}

/// Why something is not done with a snapshot.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NativeError {
    /// It is only read here.
    #[error("it is only read here: take the snapshot where it is written")]
    ReadOnly,
    /// The name is taken.
    #[error("there is a snapshot {name} already: choose another name, or remove that one")]
    Exists {
        /// The name.
        name: SnapshotName,
    },
    /// Nothing has the name.
    #[error("there is no snapshot {name}: see tarn snapshot list")]
    Missing {
        /// The name.
        name: SnapshotName,
    },
    /// A unit serves it.
    #[error("snapshot {name} is in use: remove the lun that serves it")]
    InUse {
        /// The name.
        name: SnapshotName,
    },
    /// Others have its data.
    #[error(
        "snapshot {name} has clones ({}): remove them, or give them its data (tarn snapshot flatten LUN, rbd flatten)",
        clones.join(", ")
    )]
    HasClones {
        /// The name.
        name: SnapshotName,
        /// Some of them.
        clones: Vec<String>,
    },
    /// Somebody wants to keep it.
    #[error("snapshot {name} is protected: see who needs it, and use rbd snap unprotect")]
    Protected {
        /// The name.
        name: SnapshotName,
    },
    /// One more is too many.
    #[error("it has {SNAPSHOTS_MAX} snapshots, which is the most: remove some")]
    TooMany,
    /// Something has the name of a clone.
    #[error("there is {place} already: choose another name, or remove it")]
    CloneExists {
        /// Where.
        place: String,
    },
    /// It shares no data.
    #[error("it is no clone, so there is nothing to flatten")]
    NoClone,
    /// Something that takes long is under way.
    #[error("{what} is under way: wait until it is over")]
    Busy {
        /// What.
        what: &'static str,
    },
    /// Nobody can be asked.
    #[error("{0}")]
    Unreached(String),
    /// The call fails.
    #[error("cannot {action}: {reason}")]
    Call {
        /// What was tried.
        action: &'static str,
        /// In words, with what helps.
        reason: String,
    },
}

/// Called once by what takes long, when it has ended by itself, whether somebody waits for it then or not. It is
/// dropped without that where it was not begun, or ends because the store is not served any more.
pub type Ended = Box<dyn FnOnce(&Result<(), NativeError>) + Send>;

/// The snapshots of one store. All may be called from several threads at once.
pub trait NativeSnapshots: fmt::Debug + Send + Sync {
    /// All of them, the oldest first.
    ///
    /// # Errors
    ///
    /// They are not known.
    fn list(&self) -> Result<Vec<NativeSnapshot>, NativeError>;

    /// Whether there can be one more, of this name. Removes what crashes have left.
    ///
    /// # Errors
    ///
    /// Why there can be none.
    fn begin(&self, name: &SnapshotName) -> Result<(), NativeError>;

    /// Takes a snapshot, under the name of one that is not kept yet.
    ///
    /// # Errors
    ///
    /// There is none.
    fn take(&self, name: &SnapshotName) -> Result<(), NativeError>;

    /// Gives one that was taken its name.
    ///
    /// # Errors
    ///
    /// It is as before.
    fn keep(&self, name: &SnapshotName) -> Result<NativeSnapshot, NativeError>;

    /// Removes one that is not kept, or is still being taken.
    fn discard(&self, name: &SnapshotName);

    /// Removes one that nobody uses.
    ///
    /// # Errors
    ///
    /// It is there, or there is none.
    fn remove(&self, name: &SnapshotName) -> Result<(), NativeError>;

    /// Refuses all requests from now on, as the data is to be that of this snapshot.
    ///
    /// # Errors
    ///
    /// There is none, or something keeps it from that; requests go on.
    fn close_for_rollback(&self, name: &SnapshotName) -> Result<(), NativeError>;

    /// Serves requests again, where the rollback was not begun.
    fn open_again(&self);

    /// Begins the rollback, or goes on waiting for it, no longer than this. Requests are served again when it is done.
    /// What is not done when the process ends is done before the data is served the next time.
    ///
    /// # Errors
    ///
    /// It was not begun, or has failed; while it is not known which data there is, requests are refused.
    fn roll_back(&self, limit: Duration, ended: Ended) -> Result<Progress, NativeError>;

    /// A rollback that was begun by somebody who has ended since, and that was ended, or has failed to be, before the
    /// data was served: the name of the snapshot, and how it ended. Each is given once.
    fn take_resumed(&self) -> Option<(String, Result<(), NativeError>)>;

    /// Makes something of its own that begins with the data of a snapshot.
    ///
    /// # Errors
    ///
    /// It is not there.
    fn clone_to(&self, name: &SnapshotName, place: &ClonePlace) -> Result<(), NativeError>;

    /// Removes what [`NativeSnapshots::clone_to`] has made.
    ///
    /// # Errors
    ///
    /// It is left over.
    fn remove_clone(&self, place: &ClonePlace) -> Result<(), NativeError>;

    /// Begins to give the store all data of the snapshot that it is a clone of, or goes on waiting for that, no longer
    /// than this. Requests are served meanwhile. What is not done when the process ends can be begun again.
    ///
    /// # Errors
    ///
    /// It is no clone, or the flatten has failed.
    fn flatten(&self, limit: Duration, ended: Ended) -> Result<Progress, NativeError>;
}

/// A snapshot that was taken and is not kept yet. It is removed when it is dropped.
#[derive(Debug)]
pub struct TakenNative {
    of: Arc<dyn NativeSnapshots>,
    name: SnapshotName,
    is_kept: bool,
}

impl TakenNative {
    /// Takes one.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn take(of: Arc<dyn NativeSnapshots>, name: SnapshotName) -> Result<Self, NativeError> {
        // Where the call fails and has an effect nevertheless, that is removed, too.
        let taken = Self {
            of,
            name,
            is_kept: false,
        };
        taken.of.take(&taken.name)?;
        Ok(taken)
    }

    /// Gives it its name.
    ///
    /// # Errors
    ///
    /// It is removed.
    pub fn keep(mut self) -> Result<NativeSnapshot, NativeError> {
        let kept = self.of.keep(&self.name)?;
        self.is_kept = true;
        Ok(kept)
    }
}

impl Drop for TakenNative {
    fn drop(&mut self) {
        if !mem::replace(&mut self.is_kept, true) {
            self.of.discard(&self.name);
        }
    }
}
