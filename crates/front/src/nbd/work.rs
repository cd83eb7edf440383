//! A request as the commands it becomes, one after the other.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::time::Duration;

use ::iscsi::pdu::TaskAttribute;
use ::iscsi::target::Command;
use memory::Payload;
use nbd::server::{Command as Asked, Request};

/// Most data that one command moves, in bytes. Every unit takes as much.
pub(super) const PART_BYTES_MAX: u32 = 2 * 1024 * 1024;
/// Most blocks of one WRITE SAME: below the 65,535 that units take.
const ZERO_BLOCKS_MAX: u32 = 0x8000;
/// Most blocks of one UNMAP: as many as units take.
const UNMAP_BLOCKS_MAX: u32 = 1024 * 1024;
/// Most extents in one answer.
const EXTENTS_MAX: u32 = 128;
/// How often a command that had no effect is given again.
const AGAIN_MAX: u8 = 16;
/// The parameter list of an UNMAP of one range, in bytes.
const UNMAP_LIST_BYTES: u8 = 24;

/// A request under way.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) request: Request,
    /// How much of its range is done, in bytes.
    pub(super) done: u32,
    /// The range is done; what was written is being made durable.
    is_flushing: bool,
    /// What the command under way takes.
    pub(super) data: Payload,
    /// When its header came.
    pub(super) arrival: Duration,
    /// How often the command under way was given again.
    again: u8,
}

impl Task {
    #[inline]
    pub(super) const fn new(request: Request, arrival: Duration) -> Self {
        Self {
            request,
            done: 0,
            is_flushing: false,
            data: Payload::Empty,
            arrival,
            again: 0,
        }
    }

    /// What the next command is about, in bytes.
    #[inline]
    pub(super) fn part_bytes(&self, block_bytes: u32) -> u32 {
        let most = match self.request.command {
            Asked::Read | Asked::Write => PART_BYTES_MAX,
            Asked::Trim => UNMAP_BLOCKS_MAX.saturating_mul(block_bytes),
            Asked::WriteZeroes { .. } => ZERO_BLOCKS_MAX.saturating_mul(block_bytes),
            Asked::Flush | Asked::BlockStatus { .. } | Asked::Disconnect | Asked::Unknown(_) => {
                u32::MAX
            }
        };
        self.request.length.saturating_sub(self.done).min(most)
    }

    /// Where the next command begins, in bytes.
    #[inline]
    pub(super) const fn position(&self) -> u64 {
        self.request.offset.saturating_add(self.done as u64)
    }

    /// A command of it may write.
    pub(super) const fn changes(&self) -> bool {
        matches!(
            self.request.command,
            Asked::Write | Asked::Trim | Asked::WriteZeroes { .. }
        )
    }

    /// Whether a command that had no effect may be given once more. What it takes must still be here.
    pub(super) fn may_try_again(&mut self) -> bool {
        let is_write = matches!(self.request.command, Asked::Write);
        let has_data = !is_write || !self.data.is_empty();
        self.again = self.again.saturating_add(1);
        has_data && self.again <= AGAIN_MAX
    }

    /// Its last command is a flush, as no command of its kind has FUA.
    pub(super) const fn is_flushing(&self) -> bool {
        self.is_flushing
    }

    /// The command under way has ended well. True when there is another one.
    #[inline]
    pub(super) fn advance(&mut self, block_bytes: u32) -> bool {
        if self.is_flushing {
            return false;
        }
        self.again = 0;
        self.done = self.done.saturating_add(self.part_bytes(block_bytes));
        if self.done < self.request.length {
            return true;
        }
        // A WRITE has it in its command.
        let is_apart = matches!(
            self.request.command,
            Asked::Trim | Asked::WriteZeroes { .. }
        );
        self.is_flushing = self.request.fua && is_apart;
        self.is_flushing
    }

    /// The next command, for a unit with blocks of this size.
    #[inline]
    pub(super) fn command(&mut self, block_bytes: u32) -> Command {
        const READ_16: u8 = 0x88;
        const WRITE_16: u8 = 0x8a;
        const FUA: u8 = 0x08;
        const WRITE_SAME_16: u8 = 0x93;
        const UNMAP_BIT: u8 = 0x08;
        const NO_DATA: u8 = 0x01;
        const SYNCHRONIZE_CACHE_16: u8 = 0x91;
        if self.is_flushing {
            return on_blocks(SYNCHRONIZE_CACHE_16, 0, 0, 0);
        }
        let shift = block_bytes.trailing_zeros();
        let bytes = self.part_bytes(block_bytes);
        let (lba, blocks) = (self.position() >> shift, bytes >> shift);
        match self.request.command {
            Asked::Read => Command {
                data_in_length: bytes,
                ..on_blocks(READ_16, 0, lba, blocks)
            },
            Asked::Write => Command {
                data_out_length: bytes,
                ..on_blocks(
                    WRITE_16,
                    if self.request.fua { FUA } else { 0 },
                    lba,
                    blocks,
                )
            },
            Asked::WriteZeroes { no_hole, .. } => {
                let unmap = if no_hole { 0 } else { UNMAP_BIT };
                on_blocks(WRITE_SAME_16, unmap | NO_DATA, lba, blocks)
            }
            Asked::Trim => {
                self.data = Payload::Heap(unmap_list(lba, blocks));
                unmap()
            }
            Asked::BlockStatus { one } => lba_status(lba, if one { 1 } else { EXTENTS_MAX }),
            // The others never become a task.
            Asked::Flush | Asked::Disconnect | Asked::Unknown(_) => {
                on_blocks(SYNCHRONIZE_CACHE_16, 0, 0, 0)
            }
        }
    }
}

/// The data that a request has under way, of which so much is done: what a read is to bring, and one command of a
/// write.
pub(super) fn moving_bytes(request: &Request, done: u32) -> usize {
    let bytes = match request.command {
        Asked::Read => request.length.saturating_sub(done),
        Asked::Write => request.length.min(PART_BYTES_MAX),
        Asked::Flush
        | Asked::Trim
        | Asked::WriteZeroes { .. }
        | Asked::BlockStatus { .. }
        | Asked::Disconnect
        | Asked::Unknown(_) => 0,
    };
    bytes as usize
}

/// A command of 16 bytes that names blocks.
#[inline]
fn on_blocks(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Command {
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lba.to_be_bytes();
    let [b0, b1, b2, b3] = blocks.to_be_bytes();
    with_cdb([
        opcode, flags, l0, l1, l2, l3, l4, l5, l6, l7, b0, b1, b2, b3, 0, 0,
    ])
}

/// A command that moves no data.
#[inline]
const fn with_cdb(cdb: [u8; 16]) -> Command {
    Command {
        lun: 0,
        cdb,
        extended_cdb: Vec::new(),
        attribute: Some(TaskAttribute::Simple),
        data_out_length: 0,
        data_in_length: 0,
    }
}

fn unmap() -> Command {
    const UNMAP: u8 = 0x42;
    let mut cdb = [0; 16];
    [cdb[0], cdb[8]] = [UNMAP, UNMAP_LIST_BYTES];
    Command {
        data_out_length: u32::from(UNMAP_LIST_BYTES),
        ..with_cdb(cdb)
    }
}

fn unmap_list(lba: u64, blocks: u32) -> Vec<u8> {
    let head = [0, 22, 0, 16, 0, 0, 0, 0];
    [
        &head,
        &lba.to_be_bytes()[..],
        &blocks.to_be_bytes(),
        &[0; 4],
    ]
    .concat()
}

fn lba_status(lba: u64, extents: u32) -> Command {
    const SERVICE_ACTION_IN_16: u8 = 0x9e;
    const GET_LBA_STATUS: u8 = 0x12;
    let length = extents.saturating_mul(16).saturating_add(8);
    Command {
        data_in_length: length,
        ..on_blocks(SERVICE_ACTION_IN_16, GET_LBA_STATUS, lba, length)
    }
}

/// The extents of an answer to GET LBA STATUS, up to the end of the range: each its length in bytes, and whether it is
/// a hole.
pub(super) fn extents(answer: &[u8], block_bytes: u32, length: u32) -> Vec<(u32, bool)> {
    let (descriptors, _) = answer.get(8..).unwrap_or_default().as_chunks::<16>();
    let mut left = length;
    let mut extents = Vec::new();
    for descriptor in descriptors {
        let [_, _, _, _, _, _, _, _, b0, b1, b2, b3, status, _, _, _] = *descriptor;
        let bytes = u32::from_be_bytes([b0, b1, b2, b3]).saturating_mul(block_bytes);
        let bytes = bytes.min(left);
        if bytes > 0 {
            extents.push((bytes, status & 0x0f != 0));
        }
        left = left.saturating_sub(bytes);
    }
    extents
}
