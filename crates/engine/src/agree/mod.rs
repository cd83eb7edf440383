//! One unit for all cores.
//!
//! Each core has a view of the unit; one of them, its owner, has [`UnitOwner`] as well. A core that wants
//! something of all cores sends the owner a [`ToOwner`]; what the owner wants of them it sends as
//! [`ToCore`], to all or to the one that asked. Messages between two cores do not overtake each
//! other, and none is lost; all else may take as long as it likes.

mod blocks;
mod core_side;
mod owner;
mod refusal;

use std::ops::Range;
use std::sync::Arc;

use scsi::{Change, Notice, Reply, Shared, Who};

use crate::Ticket;

pub use blocks::{BlockSet, RANGES_MAX, overlap};
pub use core_side::{CoreSide, ORPHANS_MAX};
pub use owner::{Order, Patience, UnitOwner};

/// Names a fence of one unit; given by its owner, never twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FenceNumber(u64);

/// Counts the instructions to the cores which blocks of a unit to refuse access to, so that it is known which of
/// them a core has confirmed.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Round(u64);

/// What a change means for every core.
#[derive(Debug)]
pub struct Update {
    /// Of the question behind it, whose task is not to be aborted by it.
    pub ticket: Ticket,
    /// The state of the unit is another from now on, or unit attentions come with it.
    pub changes_state: bool,
    /// Unit attentions for nexuses.
    pub notices: Vec<Notice>,
    /// Whose tasks must have ended before the core confirms.
    pub abort: Vec<Who>,
}

/// To the owner of a unit.
#[derive(Debug)]
pub enum ToOwner {
    /// Change its state. Answered with [`ToCore::Changed`].
    Change {
        /// Whose answer it is.
        ticket: Ticket,
        /// What is to change.
        change: Change,
    },
    /// An update is installed.
    Installed {
        /// No task that had to end is left.
        is_complete: bool,
    },
    /// What requests of the past may still write from a core; nothing new may touch it. Replaces what that core
    /// has said before.
    RefuseAccess {
        /// Which core.
        core: usize,
        /// No block, when all requests have come back.
        blocks: BlockSet,
        /// A question, where blocks were added; answered with [`ToCore::AccessRefused`].
        ticket: Option<Ticket>,
    },
    /// A core refuses access as instructed.
    RefusalConfirmed {
        /// Which core.
        core: usize,
        /// Since the instruction with this number.
        round: Round,
    },
    /// These blocks for one task alone. Answered with [`ToCore::FenceGranted`].
    FenceWanted {
        /// Whose answer it is; names the holder.
        ticket: Ticket,
        /// Which.
        blocks: Range<u64>,
    },
    /// Nobody but the holder is at work on the blocks of a fence here.
    FenceRaised {
        /// Which fence.
        fence: FenceNumber,
    },
    /// A fence is no longer needed, granted or not.
    FenceDone {
        /// The holder.
        ticket: Ticket,
    },
}

impl ToOwner {
    /// The answer where there is no owner any more: the unit has gone, and with it what was to
    /// change and what could land on it.
    pub fn answer_of_the_gone(self) -> Option<(usize, ToCore)> {
        match self {
            Self::Change { ticket, .. } => ToCore::of_the_gone(ticket),
            Self::RefuseAccess { core, ticket, .. } => {
                ticket.map(|ticket| (core, ToCore::AccessRefused { ticket }))
            }
            Self::Installed { .. }
            | Self::RefusalConfirmed { .. }
            | Self::FenceWanted { .. }
            | Self::FenceRaised { .. }
            | Self::FenceDone { .. } => None,
        }
    }
}

impl ToCore {
    /// The answer to a change of a unit that has gone, and the core that asked for it.
    fn of_the_gone(ticket: Ticket) -> Option<(usize, Self)> {
        let answer = || Self::Changed {
            ticket,
            reply: Reply::check(owner::NOT_KEPT),
            is_complete: true,
        };
        (ticket != Ticket::NOBODY).then(|| (ticket.core, answer()))
    }
}

/// The owner of a unit to a core.
#[derive(Clone, Debug)]
pub enum ToCore {
    /// The change that this core asked for is done everywhere, or was not made.
    Changed {
        /// Whose answer it is.
        ticket: Ticket,
        /// For the command.
        reply: Reply,
        /// No task that had to end is left anywhere.
        is_complete: bool,
    },
    /// To every core: this is the state of the unit. Confirmed with [`ToOwner::Installed`].
    Install {
        /// The latest state.
        shared: Arc<Shared>,
        /// What comes with it.
        update: Arc<Update>,
    },
    /// To every core: refuse access to these blocks and to no others. Confirmed with
    /// [`ToOwner::RefusalConfirmed`].
    SetAccessRefused {
        /// What requests of the past may still write.
        blocks: Arc<BlockSet>,
        /// How often that has been said.
        round: Round,
    },
    /// To the core that asked: every core refuses access to what it has named.
    AccessRefused {
        /// Whose answer it is.
        ticket: Ticket,
    },
    /// To every core: nobody but the holder starts on these blocks. Confirmed with
    /// [`ToOwner::FenceRaised`] when nobody else is at work on them.
    FenceRaise {
        /// Its number.
        fence: FenceNumber,
        /// The ticket of the holder.
        holder: Ticket,
        /// Which.
        blocks: Range<u64>,
    },
    /// To the holder: the fence is up everywhere.
    FenceGranted {
        /// Whose answer it is.
        ticket: Ticket,
    },
    /// To every core: the fence is gone.
    FenceLower {
        /// Its number.
        fence: FenceNumber,
    },
}
