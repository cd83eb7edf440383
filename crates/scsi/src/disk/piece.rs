//! Pieces of commands that work on more of the medium than their initiators send or get: VERIFY, WRITE SAME, UNMAP and
//! their kin. Each piece waits for its turn ([`Step::Turn`]) and then becomes one request for the store.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;

use memory::Payload;
use store::IoRequest;

use super::transfer::unexpected;
use super::work::{Rare, Work};
use super::{Disk, Job};
use crate::sam::command::{Input, PIECE_BYTES_MAX, Step};
use crate::sam::failure::Purpose;
use crate::sam::sense::Sense;

/// Of how much of the medium one byte of a store's books is, where it keeps a bit for each page.
const BOOKED_BYTES: u64 = 32 * 1024;

impl Disk {
    /// A piece of so many blocks waits for its turn.
    pub(super) fn await_turn(&self, job: &mut Job, work: Rare, blocks: u64) -> Step {
        job.work = work.into();
        turn(blocks.saturating_mul(self.block_bytes()))
    }

    /// The turn of a piece has come.
    pub(super) fn begin_piece(&self, job: &mut Job, work: Rare) -> Result<Step, Sense> {
        let request = match work {
            Rare::Verify { done, piece, .. } => {
                job.work = work.into();
                return Ok(self.read_request(job.lba.saturating_add(done), piece));
            }
            Rare::Same { block, done, piece } => {
                let data = block.repeat(usize::try_from(piece).unwrap_or(1));
                job.work = Rare::Same { block, done, piece }.into();
                let lba = job.lba.saturating_add(done);
                let durable = !self.is_cached();
                return Ok(self.write_request(job, lba, Payload::Heap(data), durable));
            }
            Rare::Zero => {
                job.work = Work::Last {
                    purpose: Purpose::Write,
                };
                IoRequest::WriteZeros {
                    range: self.byte_range(job.lba, job.blocks),
                    durable: Self::note_write(job, !self.is_cached()),
                }
            }
            Rare::Unmap { mut left } => {
                let range = left.pop().unwrap_or_default();
                job.work = Rare::Unmap { left }.into();
                IoRequest::Unmap { range }
            }
            Rare::LbaStatus { room } => {
                job.work = Rare::LbaStatus { room }.into();
                IoRequest::Extents {
                    range: self.status_range(job.lba),
                    count_max: room.descriptors,
                }
            }
            Rare::WriteAndVerifyData { .. }
            | Rare::VerifyData { .. }
            | Rare::WriteBeforeVerify { .. }
            | Rare::FlushBeforeVerify { .. }
            | Rare::CompareData
            | Rare::CompareFence { .. }
            | Rare::CompareRead { .. }
            | Rare::OrData
            | Rare::OrFence { .. }
            | Rare::OrRead { .. }
            | Rare::SameData { .. }
            | Rare::UnmapList => return Err(unexpected(&work, &Input::Turn)),
        };
        Ok(Step::Io(request))
    }
}

/// The turn of a piece that a store only has to keep books of.
pub(super) fn turn_over(range: &Range<u64>) -> Step {
    let len = range.end.saturating_sub(range.start);
    turn(len.checked_div(BOOKED_BYTES).unwrap_or(0))
}

fn turn(bytes: u64) -> Step {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Step::Turn {
        bytes: bytes.min(PIECE_BYTES_MAX),
    }
}
