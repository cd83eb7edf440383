//! What has come to an end in an engine, for the owner of its sessions.

use std::fmt;

use store::FlushFailure;

use crate::TargetIndex;
use crate::keys::{SessionKey, TaskKey};
use crate::port::Port;
use crate::session::Session;

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
    /// A medium was ejected or loaded for an administrator, or is held, or was not.
    MediumMoved {
        /// Of which unit.
        unit: crate::UnitIndex,
        /// Why not.
        outcome: Result<(), MediumFailure>,
    },
    /// Of a unit that this core owns the medium is in or out now, others prevent its removal, or the reservations are
    /// other ones.
    StateChanged {
        /// Which.
        unit: crate::UnitIndex,
    },
    /// The last flush of a unit is over.
    Flushed {
        /// Which.
        unit: crate::UnitIndex,
        /// Why its data may not be on stable storage, if that is so.
        failure: Option<FlushFailure>,
    },
}

/// Why a medium was not moved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MediumFailure {
    /// A nexus prevents the removal.
    Prevented,
    /// Commands that were at work on the medium did not end in time, a request of one that was given up may
    /// still land, or it is being moved already.
    Busy,
    /// It could not be flushed.
    Unflushed(FlushFailure),
    /// The medium is fixed.
    Fixed,
    /// The unit is gone, or its new state could not be kept.
    Gone,
}

impl MediumFailure {
    /// The loss that it reports: see [`FlushFailure::CacheLost`].
    pub const fn loss(&self) -> Option<u64> {
        match self {
            Self::Unflushed(FlushFailure::CacheLost { lost }) => Some(*lost),
            Self::Unflushed(_) | Self::Prevented | Self::Busy | Self::Fixed | Self::Gone => None,
        }
    }
}

impl fmt::Display for MediumFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prevented => f.write_str("an initiator prevents the removal of the medium"),
            Self::Busy => f.write_str("commands are at work on the medium"),
            Self::Unflushed(failure) => write!(f, "the medium cannot be flushed: {failure}"),
            Self::Fixed => f.write_str("the medium is not removable"),
            Self::Gone => f.write_str("the unit is gone, or its state cannot be kept"),
        }
    }
}
