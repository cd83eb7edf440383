//! What goes in and comes out while a command is executed.

use std::fmt;
use std::ops::Range;

use memory::Payload;
use store::{IoRequest, IoResult};

use super::change::{Change, Reply};
use super::lun::LunInventory;
use super::sense::Sense;
use super::status::Status;

/// A command as it arrives.
#[derive(Clone, Copy)]
pub struct Command<'a> {
    /// The CDB, of any length.
    pub cdb: &'a [u8],
    /// How much the initiator will send at most, in bytes.
    pub data_out_length: u32,
    /// How much the initiator has room for, in bytes.
    pub data_in_length: u32,
    /// The units its nexus may see.
    pub luns: &'a dyn LunInventory,
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("cdb", &self.cdb)
            .field("data_out_length", &self.data_out_length)
            .field("data_in_length", &self.data_in_length)
            .finish_non_exhaustive()
    }
}

/// What the caller brings back for a [`Step`].
#[derive(Debug)]
pub enum Input {
    /// For [`Step::DataOut`]: exactly as much as was asked for, contiguous.
    DataOut(Payload),
    /// For [`Step::Io`].
    Io(IoResult),
    /// For [`Step::Owner`]. The new state is installed on every core, this one too.
    Owner(Reply),
    /// For [`Step::Fence`].
    FenceGranted,
    /// For [`Step::Turn`].
    Turn,
}

/// What the caller must do next for a task.
#[derive(Debug)]
#[must_use = "every task ends in an outcome or in an abort"]
pub enum Step {
    /// Collect this much from the initiator; never zero, never more than it announced.
    DataOut {
        /// In bytes.
        length: u32,
    },
    /// One request for the store. A read has no buffer yet; the caller puts one in if the store
    /// wants one.
    Io(IoRequest),
    /// The owner core applies the change and answers when every core has it.
    Owner(Change),
    /// From now on until the task is over nothing else may touch these blocks, on any core.
    Fence(Range<u64>),
    /// The next piece of a command that works on more of the medium than its initiator sends or gets: to be begun
    /// when the core has time for it beside the commands of others.
    Turn {
        /// What the piece costs: the bytes of the medium that are read or written, or of the books that the
        /// store keeps of it. At most [`PIECE_BYTES_MAX`].
        bytes: u32,
    },
    /// It is over.
    Done(Outcome),
}

/// What the flush of a command is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FlushScope {
    /// GOOD says that what was written before is durable.
    Earlier,
    /// GOOD says that what the command has written is durable.
    Own,
    /// The command reads what the medium holds, and GOOD says nothing of what was written before.
    Read,
}

/// The largest piece of a command that works on more of the medium than its initiator sends or gets, in bytes.
pub const PIECE_BYTES_MAX: u32 = 1024 * 1024;

/// Whose sense data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SenseBytes {
    /// Of a unit of Tarn, in the format that is in force.
    Own(Sense),
    /// Of a device of others, as it gave them; at most 252 bytes.
    OfDevice(Box<[u8]>),
}

/// How a command ended.
#[derive(Debug)]
pub struct Outcome {
    /// Status.
    pub status: Status,
    /// Sense data, exactly with CHECK CONDITION.
    pub sense: Option<SenseBytes>,
    /// Data-In, already cut to the allocation length, not yet to the initiator's room.
    pub data: Payload,
    /// How many bytes the command as such transfers, in its direction: the residual is the
    /// difference between this and what the initiator announced.
    pub transfer_length: u64,
}

impl Outcome {
    /// GOOD, no data.
    pub const fn good() -> Self {
        Self::status(Status::Good)
    }

    /// A status without sense data and data.
    pub const fn status(status: Status) -> Self {
        Self {
            status,
            sense: None,
            data: Payload::Empty,
            transfer_length: 0,
        }
    }

    /// CHECK CONDITION.
    pub const fn check(sense: Sense) -> Self {
        Self {
            status: Status::CheckCondition,
            sense: Some(SenseBytes::Own(sense)),
            data: Payload::Empty,
            transfer_length: 0,
        }
    }

    /// GOOD with parameter data, of which the initiator wants the first part.
    pub fn data(mut bytes: Vec<u8>, allocation_length: u32) -> Self {
        bytes.truncate(usize::try_from(allocation_length).unwrap_or(usize::MAX));
        Self {
            transfer_length: bytes.len() as u64,
            data: Payload::Heap(bytes),
            ..Self::good()
        }
    }

    /// GOOD with data that was read, of a command that transfers so many bytes.
    pub(crate) const fn moved(data: Payload, transfer_length: u64) -> Self {
        Self {
            status: Status::Good,
            sense: None,
            data,
            transfer_length,
        }
    }

    /// What Tarn itself says is the matter.
    pub fn own_sense(&self) -> Option<Sense> {
        match self.sense {
            Some(SenseBytes::Own(sense)) => Some(sense),
            Some(SenseBytes::OfDevice(_)) | None => None,
        }
    }

    pub(crate) const fn transferring(mut self, bytes: u64) -> Self {
        self.transfer_length = bytes;
        self
    }
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self {
            status: reply.status,
            sense: reply.sense.map(SenseBytes::Own),
            data: Payload::Empty,
            transfer_length: reply.transfer_length,
        }
    }
}
