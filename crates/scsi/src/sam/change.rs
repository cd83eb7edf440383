//! What changes the state that all cores share, on its way between a core and the owner.

use super::attention::UnitAttention;
use super::cdb::Cdb;
use super::nexus::{Nexus, NexusId, PortName};
use super::sense::Sense;
use super::status::Status;

/// Something that changes shared state, on its way to the owner core.
#[derive(Clone, Debug)]
pub struct Change {
    /// Who asks, if it is a nexus.
    pub from: Option<Nexus>,
    /// What is asked.
    pub kind: ChangeKind,
}

/// What is to change.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// A command of the table that the owner executes.
    Command {
        /// The CDB.
        cdb: Cdb,
        /// What the initiator sent.
        parameters: Vec<u8>,
    },
    /// With the write cache off, the medium was flushed: the end of a MODE SELECT.
    Flushed {
        /// The epoch of the write cache when the flush began.
        epoch: u64,
    },
    /// The task management function LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// A target reset reached this unit.
    TargetReset,
    /// A session is there; its name is needed where PERSISTENT RESERVE OUT names a device.
    NexusAttached,
    /// The session of `from` is no more; its tasks have ended, or what they may write is refused.
    NexusLost,
    /// An administrator takes the medium out. It is flushed, and nobody is at work on it.
    Eject {
        /// Although a nexus prevents that.
        force: bool,
    },
    /// An administrator puts the medium in again.
    Load,
    /// An administrator has put another medium in the place of the one that was there, which was out.
    LoadAnother {
        /// Its capacity. Nothing is said of that beside the medium.
        blocks: u64,
    },
    /// An administrator wants the medium, and a nexus prevents its removal.
    EjectWish,
    /// An administrator ends all reservations and registrations.
    ClearReservations,
    /// Little is left of the space that the unit may take.
    SpaceLow,
    /// An administrator has the store write through from now on. Writes are durable before they are answered, and the
    /// cache is shown as on until [`ChangeKind::Flushed`].
    WriteThrough,
    /// [`ChangeKind::WriteThrough`] is taken back: the store has its cache again, as it was.
    NotWrittenThrough,
    /// An administrator lets the store keep writes in its cache, which is on.
    WriteBack,
    /// The store grew or shrank.
    CapacityChanged {
        /// The new capacity.
        blocks: u64,
    },
}

/// Whom something concerns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Who {
    /// Every nexus.
    All,
    /// Every nexus but one.
    AllExcept(NexusId),
    /// The nexus between these ports, if it is there.
    Port(PortName),
}

impl Who {
    /// Whether a nexus between these ports is meant that is not there any more.
    pub fn is_port(&self, port: &PortName) -> bool {
        match self {
            Self::All | Self::AllExcept(_) => true,
            Self::Port(meant) => meant.admits(port),
        }
    }

    /// Whether the nexus is meant.
    pub fn is(&self, nexus: &Nexus) -> bool {
        match self {
            Self::All => true,
            Self::AllExcept(id) => nexus.id != *id,
            Self::Port(port) => port.admits(&nexus.port),
        }
    }
}

/// A unit attention and the nexuses that get it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    /// Who.
    pub who: Who,
    /// What.
    pub attention: UnitAttention,
}

/// The outcome of a change, for the core that asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Status.
    pub status: Status,
    /// Sense data, exactly with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Set by the core that asked.
    pub transfer_length: u64,
}

impl Reply {
    /// GOOD.
    pub(crate) const fn good() -> Self {
        Self {
            status: Status::Good,
            sense: None,
            transfer_length: 0,
        }
    }

    /// CHECK CONDITION; also for a caller that could not keep the state it was given.
    pub const fn check(sense: Sense) -> Self {
        Self {
            status: Status::CheckCondition,
            sense: Some(sense),
            transfer_length: 0,
        }
    }
}
