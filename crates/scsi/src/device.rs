//! The device servers there are. Names the rooms below; each new device type is a variant here.

use std::ops::Range;

use crate::disk::{self, Disk};
use crate::sam::cdb::Cdb;
use crate::sam::command::{Command, FlushScope, Input, Outcome, Step};
use crate::sam::failures::StoreFailures;
use crate::sam::profile::Profile;
use crate::sam::sense::Sense;
use crate::spc::parameters::{Modes, PageCode};
use crate::spc::peripheral::Peripheral;
use crate::spc::shared::Shared;
use crate::table::row::{CommandSpec, DiskOperation, Features};

/// What a logical unit holds: the part of it that its device type decides.
#[derive(Debug)]
pub(crate) enum Device {
    /// SBC.
    Disk(Disk),
}

/// A command of a device in execution.
#[derive(Debug)]
pub(crate) enum Job {
    /// Of a disk.
    Disk(disk::Job),
}

impl Job {
    /// The answer to a command that was not begun.
    pub(crate) fn refused(&self, sense: Sense) -> Outcome {
        match self {
            Self::Disk(job) => job.refused(sense),
        }
    }

    /// The blocks that it reads or writes, for fences. `None` when it touches none.
    pub(crate) fn blocks(&self) -> Option<Range<u64>> {
        match self {
            Self::Disk(job) => job.blocks(),
        }
    }

    /// It waits for data that it hands to the store at once and does not look at.
    pub(crate) const fn is_plain_write(&self) -> bool {
        match self {
            Self::Disk(job) => job.is_plain_write(),
        }
    }

    /// What its flush is for, when it has one done.
    pub(crate) fn flush_scope(&self) -> FlushScope {
        match self {
            Self::Disk(job) => job.flush_scope(),
        }
    }

    /// It holds data that is to be compared or combined with what the store reads for it.
    pub(crate) fn holds_data(&self) -> bool {
        match self {
            Self::Disk(job) => job.holds_data(),
        }
    }
}

impl Device {
    /// The device server of a unit.
    pub(crate) fn new(profile: &Profile) -> Self {
        Self::Disk(Disk::new(profile))
    }

    /// Takes over what of the shared state every command needs.
    pub(crate) fn install(&mut self, shared: &Shared) {
        match self {
            Self::Disk(disk) => disk.install(shared),
        }
    }

    /// A write is durable only if it is asked to be.
    pub(crate) const fn is_cached(&self) -> bool {
        match self {
            Self::Disk(disk) => disk.is_cached(),
        }
    }

    /// The place of a command that is to begin.
    #[inline]
    pub(crate) const fn job(&self) -> Job {
        match self {
            Self::Disk(_) => Job::Disk(disk::Job::new()),
        }
    }

    /// Begins a block command.
    #[inline]
    pub(crate) fn start_disk(
        &self,
        job: &mut Job,
        operation: DiskOperation,
        row: &'static CommandSpec,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Step {
        match (self, job) {
            (Self::Disk(disk), Job::Disk(job)) => disk.start(job, operation, row, cdb, command),
        }
    }

    /// Goes on with a command when what its last step asked for is there.
    #[inline]
    pub(crate) fn resume(&self, job: &mut Job, input: Input) -> Step {
        match (self, job) {
            (Self::Disk(disk), Job::Disk(job)) => disk.resume(job, input),
        }
    }

    /// What failed in its store since the last time this was asked.
    pub(crate) fn take_failures(&self) -> Vec<StoreFailures> {
        match self {
            Self::Disk(disk) => disk.failures.take(),
        }
    }

    /// The default self-test of SEND DIAGNOSTIC.
    pub(crate) fn start_self_test(&self, job: &mut Job) -> Step {
        match (self, job) {
            (Self::Disk(disk), Job::Disk(job)) => disk.start_self_test(job),
        }
    }

    /// The flush that follows a change by the owner, of a command with so many bytes of parameters.
    pub(crate) fn start_flush(&self, job: &mut Job, transfer_length: u64) -> Step {
        match (self, job) {
            (Self::Disk(_), Job::Disk(job)) => Disk::start_flush(job, transfer_length),
        }
    }
}

impl Peripheral for Device {
    #[inline]
    fn features(&self) -> Features {
        match self {
            Self::Disk(disk) => disk.features(),
        }
    }

    fn version_descriptor(&self) -> u16 {
        match self {
            Self::Disk(disk) => disk.version_descriptor(),
        }
    }

    fn has_volatile_cache(&self) -> bool {
        match self {
            Self::Disk(disk) => disk.has_volatile_cache(),
        }
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        match self {
            Self::Disk(disk) => disk.is_read_only(),
        }
    }

    fn vpd_pages(&self) -> &'static [u8] {
        match self {
            Self::Disk(disk) => disk.vpd_pages(),
        }
    }

    fn vpd_page(&self, code: u8) -> Option<Vec<u8>> {
        match self {
            Self::Disk(disk) => disk.vpd_page(code),
        }
    }

    fn mode_pages(&self) -> &'static [PageCode] {
        match self {
            Self::Disk(disk) => disk.mode_pages(),
        }
    }

    fn mode_page(&self, page: PageCode, modes: Modes) -> Vec<u8> {
        match self {
            Self::Disk(disk) => disk.mode_page(page, modes),
        }
    }

    fn select_mode_page(&self, page: PageCode, bytes: &[u8], modes: &mut Modes) {
        match self {
            Self::Disk(disk) => disk.select_mode_page(page, bytes, modes),
        }
    }

    fn changeable_modes(&self) -> Modes {
        match self {
            Self::Disk(disk) => disk.changeable_modes(),
        }
    }

    fn default_modes(&self) -> Modes {
        match self {
            Self::Disk(disk) => disk.default_modes(),
        }
    }

    fn device_specific_parameter(&self) -> u8 {
        match self {
            Self::Disk(disk) => disk.device_specific_parameter(),
        }
    }

    fn block_descriptor(&self, is_long: bool, blocks: u64) -> Vec<u8> {
        match self {
            Self::Disk(disk) => disk.block_descriptor(is_long, blocks),
        }
    }

    fn check_block_descriptor(
        &self,
        descriptor: &[u8],
        at: usize,
        blocks: u64,
    ) -> Result<(), Sense> {
        match self {
            Self::Disk(disk) => disk.check_block_descriptor(descriptor, at, blocks),
        }
    }
}
