//! A disk: the commands of SBC, and what a disk says of itself where SPC asks. Names
//! [`crate::sam`], [`crate::table`] and [`crate::spc`].

mod atomic;
mod capacity;
mod pages;
mod piece;
mod provision;
mod transfer;
mod work;

use std::mem;
use std::ops::Range;

use store::{Capabilities, IoRequest};

use crate::sam::cdb::Cdb;
use crate::sam::command::{Command, FlushScope, Input, Outcome, Step};
use crate::sam::failure::Purpose;
use crate::sam::failures::Failures;
use crate::sam::profile::{Limits, Profile};
use crate::sam::sense::{Sense, SenseCode};
use crate::spc::shared::Shared;
use crate::table::row::{CommandSpec, DiskOperation};
use transfer::unexpected;
use work::{Rare, Work};

/// A disk as one core sees it.
#[derive(Debug)]
pub(crate) struct Disk {
    capabilities: Capabilities,
    limits: Limits,
    /// How many blocks one transfer may have.
    transfer_blocks_max: u32,
    removable: bool,
    /// Capacity.
    blocks: u64,
    /// Initiators can switch the write cache.
    has_cache: bool,
    /// A write is durable only if it is asked to be.
    is_cached: bool,
    /// What failed in the store.
    pub(crate) failures: Failures,
}

/// A block command in execution.
#[derive(Debug)]
pub(crate) struct Job {
    /// The first block, when the command has one.
    lba: u64,
    /// How many blocks it touches; what a short transfer leaves out does not count.
    blocks: u64,
    /// What the CDB says, in bytes.
    transfer_length: u64,
    /// FUA.
    fua: bool,
    /// A write or an unmap of it was requested that need not be durable when it is over.
    has_cached_write: bool,
    work: Work,
}

impl Job {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            lba: 0,
            blocks: 0,
            transfer_length: 0,
            fua: false,
            has_cached_write: false,
            work: Work::Over,
        }
    }

    /// What its flush is for, when it has one done.
    pub(crate) fn flush_scope(&self) -> FlushScope {
        match &self.work {
            Work::FlushBeforeRead => FlushScope::Read,
            Work::Rare(rare) if matches!(**rare, Rare::FlushBeforeVerify { .. }) => {
                FlushScope::Read
            }
            Work::Last {
                purpose: Purpose::FlushOwn,
            } => FlushScope::Own,
            Work::Over
            | Work::Read
            | Work::WriteData { .. }
            | Work::Last { .. }
            | Work::Rare(_) => FlushScope::Earlier,
        }
    }

    /// The answer to a command that was not begun. For a wrong length it counts what the command as
    /// such transfers, so that the residual says how much is missing.
    pub(crate) fn refused(&self, sense: Sense) -> Outcome {
        let is_length = sense.code == SenseCode::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT;
        let transfer_length = if is_length { self.transfer_length } else { 0 };
        Outcome::check(sense).transferring(transfer_length)
    }

    /// The blocks that it reads or writes, for fences. `None` when it touches none.
    pub(crate) fn blocks(&self) -> Option<Range<u64>> {
        (self.blocks > 0).then(|| self.lba..self.lba.saturating_add(self.blocks))
    }

    /// It waits for data that it hands to the store at once and does not look at.
    pub(crate) const fn is_plain_write(&self) -> bool {
        matches!(self.work, Work::WriteData { .. })
    }

    /// It holds data that is to be compared or combined with what the store reads for it.
    pub(crate) fn holds_data(&self) -> bool {
        matches!(&self.work, Work::Rare(rare) if rare.holds_data())
    }
}

/// What a command asks for.
struct Asked<'a> {
    row: &'static CommandSpec,
    cdb: &'a Cdb,
    data_out_length: u32,
    data_in_length: u32,
}

impl Asked<'_> {
    #[inline]
    fn lba(&self) -> u64 {
        self.row.fields.lba(self.cdb)
    }

    #[inline]
    fn blocks(&self) -> u32 {
        self.row.fields.blocks(self.cdb)
    }

    fn allocation_length(&self) -> u32 {
        self.row.fields.allocation_length(self.cdb)
    }

    fn parameter_list_length(&self) -> u32 {
        self.row.fields.parameter_list_length(self.cdb)
    }

    fn has(&self, at: usize, mask: u8) -> bool {
        self.cdb.has(at, mask)
    }

    fn byte_1(&self) -> u8 {
        self.cdb.u8(1)
    }

    const fn cdb_length(&self) -> usize {
        self.row.usage.len()
    }

    #[inline]
    fn fua(&self) -> bool {
        self.row.fields.has_flags() && self.cdb.has(1, 0x08)
    }

    /// INVALID FIELD IN CDB at the length.
    fn wrong_length(&self) -> Sense {
        Sense::invalid_byte_in_cdb(self.row.fields.length_at())
    }
}

impl Disk {
    /// Before the first [`Disk::install`] there are no blocks.
    pub(crate) fn new(profile: &Profile) -> Self {
        let (capabilities, limits) = (profile.capabilities.clone(), profile.limits.clone());
        Self {
            transfer_blocks_max: limits.transfer_bytes_max / capabilities.block_bytes,
            capabilities,
            limits,
            removable: profile.identity.removable,
            blocks: 0,
            has_cache: profile.capabilities.has_cache(),
            is_cached: false,
            failures: Failures::default(),
        }
    }

    /// Takes over what of the shared state every command needs.
    pub(crate) fn install(&mut self, shared: &Shared) {
        self.blocks = shared.blocks;
        self.has_cache = shared.cache.is_there();
        self.is_cached = shared.cache.is_on();
    }

    /// A write is durable only if it is asked to be.
    pub(crate) const fn is_cached(&self) -> bool {
        self.is_cached
    }

    /// Begins a command.
    #[inline]
    pub(crate) fn start(
        &self,
        job: &mut Job,
        operation: DiskOperation,
        row: &'static CommandSpec,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Step {
        let asked = Asked {
            row,
            cdb,
            data_out_length: command.data_out_length,
            data_in_length: command.data_in_length,
        };
        job.fua = asked.fua();
        let asked = &asked;
        let started = match operation {
            DiskOperation::Read => return self.start_read(job, asked),
            DiskOperation::Write => return self.start_write(job, asked),
            DiskOperation::WriteAndVerify => self.start_write_and_verify(job, asked),
            DiskOperation::Verify => self.start_verify(job, asked),
            DiskOperation::PreFetch => self.start_pre_fetch(job, asked),
            DiskOperation::SynchronizeCache => self.start_synchronize(job, asked),
            DiskOperation::CompareAndWrite => self.start_compare_and_write(job, asked),
            DiskOperation::OrWrite => self.start_or_write(job, asked),
            DiskOperation::WriteSame => self.start_write_same(job, asked),
            DiskOperation::Unmap => self.start_unmap(job, asked),
            DiskOperation::GetLbaStatus => self.start_lba_status(job, asked),
            DiskOperation::ReadCapacity10 => Ok(report(self.capacity_10(), asked)),
            DiskOperation::ReadCapacity16 => Ok(report(self.capacity_16(), asked)),
            DiskOperation::ReadDefectData10 => Ok(report(capacity::defects_10(cdb), asked)),
            DiskOperation::ReadDefectData12 => Ok(report(capacity::defects_12(cdb), asked)),
        };
        started.unwrap_or_else(|sense| Step::Done(job.refused(sense)))
    }

    /// Goes on with a command when what its last step asked for is there.
    #[inline]
    pub(crate) fn resume(&self, job: &mut Job, input: Input) -> Step {
        // The plain states keep nothing that would have to be taken out and dropped.
        let next = match input {
            Input::Io(result) => match job.work {
                Work::Read => return self.end_read(job, result),
                Work::Last { purpose } => return self.end_last(job, purpose, result),
                Work::FlushBeforeRead => self.read_flushed(job, result),
                Work::Over | Work::WriteData { .. } | Work::Rare(_) => {
                    self.resume_rare(job, Input::Io(result))
                }
            },
            Input::DataOut(data) => match job.work {
                Work::WriteData { durable } => return self.write(job, data, durable),
                Work::Over
                | Work::Read
                | Work::FlushBeforeRead
                | Work::Last { .. }
                | Work::Rare(_) => self.resume_rare(job, Input::DataOut(data)),
            },
            input @ (Input::FenceGranted | Input::Owner(_) | Input::Turn) => {
                self.resume_rare(job, input)
            }
        };
        next.unwrap_or_else(|sense| Step::Done(Outcome::check(sense)))
    }

    #[inline(never)]
    fn resume_rare(&self, job: &mut Job, input: Input) -> Result<Step, Sense> {
        match mem::replace(&mut job.work, Work::Over) {
            Work::Rare(rare) => self.advance(job, *rare, input),
            work @ (Work::Over
            | Work::Read
            | Work::FlushBeforeRead
            | Work::WriteData { .. }
            | Work::Last { .. }) => Err(unexpected(&work, &input)),
        }
    }

    /// The default self-test: the first block can be read.
    pub(crate) fn start_self_test(&self, job: &mut Job) -> Step {
        if self.blocks == 0 {
            return Step::Done(Outcome::good());
        }
        job.work = Work::Last {
            purpose: Purpose::Read,
        };
        self.read_request(0, 1)
    }

    /// The flush that follows a change by the owner, of a command with so many bytes of parameters.
    pub(crate) fn start_flush(job: &mut Job, transfer_length: u64) -> Step {
        job.transfer_length = transfer_length;
        job.work = Work::Last {
            purpose: Purpose::Flush,
        };
        Step::Io(IoRequest::Flush)
    }
}

/// Parameter data, as much as is wanted.
fn report(data: Vec<u8>, asked: &Asked<'_>) -> Step {
    Step::Done(Outcome::data(data, asked.allocation_length()))
}
