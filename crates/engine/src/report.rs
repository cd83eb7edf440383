//! What has come to an end in an engine, for the owner of its sessions.

use crate::TargetIndex;
use crate::port::Port;
use crate::session::{Session, SessionKey};
use crate::task::TaskKey;

/// Something has come to an end.
#[derive(Debug)]
pub enum Report<P: Port> {
    /// The tasks of a farewell have ended, or are given up.
    Farewell {
        /// Whose.
        session: SessionKey,
        /// Which.
        farewell: P::Farewell,
        /// No task is left.
        is_complete: bool,
    },
    /// A session and all its tasks are gone. Nothing in the engine knows it any more.
    SessionOver {
        /// As it was called.
        key: SessionKey,
        /// What is left of it.
        session: Box<Session<P>>,
        /// Tasks of it that the store has not given back. Their units refuse access until it does.
        left: Vec<TaskKey>,
    },
    /// A target was reset cold: its sessions end.
    TargetReset(TargetIndex),
    /// The last flush of a unit is over.
    Flushed {
        /// Which.
        unit: crate::UnitIndex,
        /// Why its data may not be on stable storage, if that is so.
        failure: Option<crate::flush::FlushFailure>,
    },
}
