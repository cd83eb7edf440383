//! A command in execution.

use std::ops::Range;

use crate::device::Job;
use crate::foreign::Pass;
use crate::sam::cdb::Cdb;
use crate::sam::command::FlushScope;
use crate::sam::nexus::NexusSlot;
use crate::table::row::{CommandSpec, Traits};

/// A command in execution. Dropping it is how a task is aborted; a request of it that the store
/// has must be waited for by the caller.
#[derive(Debug)]
pub struct Task {
    pub(crate) slot: NexusSlot,
    pub(crate) spec: Option<&'static CommandSpec>,
    /// Of a command for the owner or for a device of others. All others have no use for their CDB once they have begun.
    pub(crate) owned: Option<Box<Owned>>,
    pub(crate) work: Work,
    pub(crate) job: Job,
    /// [`Shared::generation`](crate::Shared) when it began.
    pub(crate) generation: u64,
}

/// What a command for the owner, or for a device of others, takes along.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) cdb: Cdb,
    /// PARAMETER LIST LENGTH, in bytes.
    pub(crate) parameters: u32,
    /// The parameter list, while it waits for a turn.
    pub(crate) list: Vec<u8>,
    /// The epoch of the write cache when its flush began.
    pub(crate) cache_epoch: u64,
    /// What is passed to a device of others.
    pub(crate) pass: Option<Pass>,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// Nothing.
    Over,
    /// What the device waits for.
    Device,
    /// The parameter list of a command for the owner.
    OwnerParameters,
    /// A turn for a long parameter list.
    OwnerTurn,
    /// The medium for itself, to eject it.
    EjectFence,
    /// The flush before an eject.
    EjectFlush,
    /// The owner's answer.
    Owner { flush: FlushAfter },
    /// The flush of what the write cache held before it was switched off.
    OffFlush,
    /// A device of others, or those who have to learn what was done there.
    Pass,
}

/// When a change by the owner is followed by a flush.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FlushAfter {
    Never,
    /// When the change was made.
    Always,
    /// When the write cache is off then, or writing inhibited.
    ModeSelect,
}

impl Task {
    #[inline]
    pub(crate) const fn new(slot: NexusSlot, job: Job, generation: u64) -> Self {
        Self {
            slot,
            spec: None,
            owned: None,
            work: Work::Over,
            job,
            generation,
        }
    }

    /// The blocks that it reads or writes, for fences. `None` when it touches none.
    pub fn blocks(&self) -> Option<Range<u64>> {
        self.job.blocks()
    }

    /// It waits for data that it hands to the store at once and does not look at.
    pub const fn is_plain_write(&self) -> bool {
        self.job.is_plain_write()
    }

    /// It holds data that is to be compared or combined with what the store reads for it.
    pub fn holds_data(&self) -> bool {
        self.job.holds_data()
    }

    /// What its flush is for, while that is in the store.
    pub fn flush_scope(&self) -> FlushScope {
        match self.work {
            Work::Device => self.job.flush_scope(),
            Work::Over
            | Work::OwnerParameters
            | Work::OwnerTurn
            | Work::EjectFence
            | Work::EjectFlush
            | Work::Owner { .. }
            | Work::OffFlush
            | Work::Pass => FlushScope::Earlier,
        }
    }

    /// Whether it changes blocks.
    pub fn writes(&self) -> bool {
        self.spec
            .is_some_and(|spec| spec.traits.has(Traits::WRITES))
    }

    /// Whether a nexus that may only read may not have it.
    pub fn needs_right_to_write(&self) -> bool {
        let needs = Traits::WRITES.with(Traits::ALTERS);
        self.spec.is_some_and(|spec| spec.traits.has_any(needs))
    }

    /// The nexus it came through.
    pub const fn nexus(&self) -> NexusSlot {
        self.slot
    }

    /// The name of the command, for logs.
    pub fn name(&self) -> &'static str {
        self.spec.map_or("unknown command", |spec| spec.name)
    }
}
