//! Commands about what takes space: WRITE SAME, UNMAP, GET LBA STATUS.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;

use memory::Payload;
use store::{Extent, IoAnswer};

use super::piece::turn_over;
use super::transfer::wrong_data_length;
use super::work::{Rare, Room};
use super::{Asked, Disk, Job};
use crate::sam::command::{Outcome, Step};
use crate::sam::sense::{Sense, SenseCode};

/// How much WRITE SAME writes at once, in bytes.
const SAME_PIECE_BYTES: u64 = 64 * 1024;

/// How much of the medium GET LBA STATUS looks at, in bytes: a store may have to look at a bit for each page.
const STATUS_BYTES: u64 = 16 * 1024 * 1024 * 1024;

const UNMAP: u8 = 0x08;
/// NDOB: no data, the block is zeros. The 10-byte command has no such bit.
const NO_DATA: u8 = 0x01;

impl Disk {
    /// Spec: SBC-4, WRITE SAME (10), (16).
    pub(super) fn start_write_same(&self, job: &mut Job, asked: &Asked<'_>) -> Result<Step, Sense> {
        let (lba, named) = self.extent(asked)?;
        // Without WSNZ zero stands for the rest of the medium.
        let blocks = match named {
            0 => self.blocks.saturating_sub(lba),
            some => u64::from(some),
        };
        if blocks > u64::from(self.limits.write_same_blocks_max) {
            return Err(asked.wrong_length());
        }
        job.lba = lba;
        job.blocks = blocks;
        let unmap = asked.has(1, UNMAP);
        if asked.has(1, NO_DATA) {
            return Ok(self.zero_or_unmap(job, unmap));
        }
        let block_bytes = self.capabilities.block_bytes;
        job.transfer_length = self.block_bytes();
        if asked.data_out_length != block_bytes {
            return Err(wrong_data_length());
        }
        job.work = Rare::SameData {
            unmap,
            is_rest: named == 0,
        }
        .into();
        Ok(Step::DataOut {
            length: block_bytes,
        })
    }

    pub(super) fn write_same(
        &self,
        job: &mut Job,
        block: &Payload,
        unmap: bool,
        is_rest: bool,
    ) -> Step {
        let bytes = block.to_vec();
        if bytes.iter().all(|&byte| byte == 0) {
            return self.zero_or_unmap(job, unmap);
        }
        // An unmapped block would read zeros, not this, so UNMAP makes no difference. But to unmap
        // the rest of the medium is a discard, whatever block comes with it: so test suites have
        // it, and so do other targets.
        if unmap && is_rest {
            return self.zero_or_unmap(job, unmap);
        }
        self.write_same_next(job, bytes, 0)
    }

    /// The next piece, of which there is no more than its block before its turn comes.
    pub(super) fn write_same_next(&self, job: &mut Job, block: Vec<u8>, done: u64) -> Step {
        let most = SAME_PIECE_BYTES.checked_div(self.block_bytes());
        let piece = job
            .blocks
            .saturating_sub(done)
            .min(most.unwrap_or(1).max(1));
        if piece == 0 {
            return self.written(job);
        }
        self.await_turn(job, Rare::Same { block, done, piece }, piece)
    }

    /// All zeros: as a hole if UNMAP allows it, else as zeros that take space.
    fn zero_or_unmap(&self, job: &mut Job, unmap: bool) -> Step {
        let range = self.byte_range(job.lba, job.blocks);
        if unmap {
            return self.unmap_next(job, vec![range]);
        }
        job.work = Rare::Zero.into();
        turn_over(&range)
    }

    pub(super) fn byte_range(&self, lba: u64, blocks: u64) -> Range<u64> {
        let end = lba.saturating_add(blocks);
        lba.saturating_mul(self.block_bytes())..end.saturating_mul(self.block_bytes())
    }

    /// Spec: SBC-4, UNMAP.
    pub(super) fn start_unmap(&self, job: &mut Job, asked: &Asked<'_>) -> Result<Step, Sense> {
        let length = asked.parameter_list_length();
        if length == 0 {
            return Ok(Self::good(job));
        }
        if length < 8 || length > asked.data_out_length {
            return Err(length_error());
        }
        job.transfer_length = u64::from(length);
        job.work = Rare::UnmapList.into();
        Ok(Step::DataOut { length })
    }

    /// Checks the whole list before anything is unmapped.
    pub(super) fn unmap_list(&self, job: &mut Job, list: &[u8]) -> Result<Step, Sense> {
        let [_, _, high, low, _, _, _, _, descriptors @ ..] = list else {
            return Err(length_error());
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let descriptors = descriptors.get(..length).ok_or_else(length_error)?;
        // An incomplete descriptor at the end is ignored.
        let (descriptors, _) = descriptors.as_chunks::<16>();
        let limits = &self.limits;
        if descriptors.len() > usize::from(limits.unmap_descriptors_max) {
            return Err(Sense::invalid_byte_in_parameters(2));
        }
        let mut total = 0_u64;
        // From the first block to the last, whatever is between.
        let (mut first, mut last) = (u64::MAX, 0_u64);
        let mut ranges = Vec::with_capacity(descriptors.len());
        for descriptor in descriptors {
            let [l0, l1, l2, l3, l4, l5, l6, l7, b0, b1, b2, b3, _, _, _, _] = *descriptor;
            let lba = u64::from_be_bytes([l0, l1, l2, l3, l4, l5, l6, l7]);
            let blocks = u64::from(u32::from_be_bytes([b0, b1, b2, b3]));
            if lba.checked_add(blocks).is_none_or(|end| end > self.blocks) {
                return Err(Sense::illegal_request(SenseCode::LBA_OUT_OF_RANGE));
            }
            total = total.saturating_add(blocks);
            if blocks > 0 {
                first = first.min(lba);
                last = last.max(lba.saturating_add(blocks));
                ranges.push(self.byte_range(lba, blocks));
            }
        }
        if total > u64::from(limits.unmap_blocks_max) {
            return Err(Sense::illegal_request(
                SenseCode::INVALID_FIELD_IN_PARAMETER_LIST,
            ));
        }
        if ranges.is_empty() {
            return Ok(Self::good(job));
        }
        (job.lba, job.blocks) = (first, last.saturating_sub(first));
        ranges.reverse();
        Ok(self.unmap_next(job, ranges))
    }

    pub(super) fn unmap_next(&self, job: &mut Job, left: Vec<Range<u64>>) -> Step {
        let Some(next) = left.last() else {
            return self.written(job);
        };
        let step = turn_over(next);
        // It has no durable form.
        Self::note_write(job, !self.capabilities.volatile_cache);
        job.work = Rare::Unmap { left }.into();
        step
    }

    /// What GET LBA STATUS looks at.
    pub(super) fn status_range(&self, lba: u64) -> Range<u64> {
        let range = self.byte_range(lba, self.blocks.saturating_sub(lba));
        range.start..range.end.min(range.start.saturating_add(STATUS_BYTES))
    }

    /// Spec: SBC-4, GET LBA STATUS.
    pub(super) fn start_lba_status(&self, job: &mut Job, asked: &Asked<'_>) -> Result<Step, Sense> {
        let lba = asked.lba();
        if lba >= self.blocks {
            return Err(Sense::illegal_request(SenseCode::LBA_OUT_OF_RANGE));
        }
        let allocation_length = asked.allocation_length();
        let wanted = allocation_length.saturating_sub(8) / 16;
        let limit = u32::from(self.limits.lba_status_descriptors_max);
        let count_max = usize::try_from(wanted.clamp(1, limit.max(1))).unwrap_or(1);
        let room = Room {
            descriptors: count_max,
            allocation_length,
        };
        job.lba = lba;
        let range = self.status_range(lba);
        if !self.capabilities.thin {
            let mapped = IoAnswer::Extents(vec![Extent {
                range,
                mapped: true,
            }]);
            return Ok(self.lba_status(job, mapped, room));
        }
        job.work = Rare::LbaStatus { room }.into();
        Ok(turn_over(&range))
    }

    pub(super) fn lba_status(&self, job: &Job, answer: IoAnswer, room: Room) -> Step {
        let extents = match answer {
            IoAnswer::Extents(extents) => extents,
            IoAnswer::Done | IoAnswer::Data(_) | IoAnswer::Device(_) => Vec::new(),
        };
        let runs = runs_of(&extents, job.lba, self.blocks, self.block_bytes());
        let mut body = vec![0; 4];
        for run in runs.iter().take(room.descriptors) {
            body.extend_from_slice(&run.lba.to_be_bytes());
            body.extend_from_slice(&run.blocks.to_be_bytes());
            // PROVISIONING STATUS: 0 is mapped, 1 is deallocated.
            body.extend_from_slice(&[u8::from(!run.mapped), 0, 0, 0]);
        }
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let data = [length.to_be_bytes().as_slice(), &body].concat();
        Step::Done(Outcome::data(data, room.allocation_length))
    }
}

/// Adjacent blocks of one provisioning status.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Run {
    lba: u64,
    blocks: u32,
    mapped: bool,
}

/// Blocks of which a byte is mapped are mapped. Neighbours of one status are one run, as long as
/// its length fits.
fn runs_of(extents: &[Extent], start: u64, end: u64, block_bytes: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::with_capacity(extents.len());
    let mut next = start;
    for extent in extents {
        let until = if extent.mapped {
            extent.range.end.div_ceil(block_bytes.max(1))
        } else {
            extent.range.end.checked_div(block_bytes).unwrap_or(0)
        };
        let until = until.min(end);
        let mut left = until.saturating_sub(next);
        while left > 0 {
            let merged = runs.last_mut().filter(|last| last.mapped == extent.mapped);
            let room = merged
                .as_ref()
                .map_or(u32::MAX, |last| u32::MAX.saturating_sub(last.blocks));
            let taken = u32::try_from(left).unwrap_or(u32::MAX).min(room);
            match merged {
                Some(last) if taken > 0 => last.blocks = last.blocks.saturating_add(taken),
                Some(_) | None => {
                    let blocks = u32::try_from(left).unwrap_or(u32::MAX);
                    runs.push(Run {
                        lba: next,
                        blocks,
                        mapped: extent.mapped,
                    });
                    next = next.saturating_add(u64::from(blocks));
                    left = left.saturating_sub(u64::from(blocks));
                    continue;
                }
            }
            next = next.saturating_add(u64::from(taken));
            left = left.saturating_sub(u64::from(taken));
        }
    }
    runs
}

const fn length_error() -> Sense {
    Sense::illegal_request(SenseCode::PARAMETER_LIST_LENGTH_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(range: Range<u64>, mapped: bool) -> Extent {
        Extent { range, mapped }
    }

    fn run(lba: u64, blocks: u32, mapped: bool) -> Run {
        Run {
            lba,
            blocks,
            mapped,
        }
    }

    #[test]
    fn a_block_is_mapped_if_any_byte_of_it_is() {
        let extents = [
            extent(0..700, false),
            extent(700..1100, true),
            extent(1100..4096, false),
        ];
        assert_eq!(
            runs_of(&extents, 0, 8, 512),
            [run(0, 1, false), run(1, 2, true), run(3, 5, false)]
        );
    }

    #[test]
    fn neighbours_of_one_status_are_one_run() {
        let extents = [
            extent(512..1024, true),
            extent(1024..2048, true),
            extent(2048..2100, false),
            extent(2100..4096, true),
        ];
        assert_eq!(runs_of(&extents, 1, 8, 512), [run(1, 7, true)]);
    }

    #[test]
    fn a_run_ends_where_its_length_would_not_fit() {
        let blocks = 0x1_0000_0001;
        let extents = [extent(0..blocks * 512, false)];
        assert_eq!(
            runs_of(&extents, 0, blocks, 512),
            [run(0, u32::MAX, false), run(0xffff_ffff, 2, false)]
        );
    }
}
