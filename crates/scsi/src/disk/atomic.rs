//! COMPARE AND WRITE and ORWRITE: read, decide and write behind a fence.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use memory::Payload;
use store::IoRequest;

use super::transfer::{miscompare, wrong_data_length};
use super::work::{self, Rare, Work};
use super::{Asked, Disk, Job};
use crate::sam::command::Step;
use crate::sam::failure::Purpose;
use crate::sam::sense::Sense;

impl Disk {
    /// The data is twice the blocks: what must be there, then what comes instead.
    ///
    /// Spec: SBC-4, COMPARE AND WRITE.
    pub(super) fn start_compare_and_write(
        &self,
        job: &mut Job,
        asked: &Asked<'_>,
    ) -> Result<Step, Sense> {
        let (lba, blocks) = self.extent(asked)?;
        // The field has eight bits: data for none at all is data for more blocks than it holds.
        let overflows = blocks == 0 && asked.data_out_length > 0;
        if overflows || blocks > u32::from(self.limits.compare_and_write_blocks_max) {
            return Err(asked.wrong_length());
        }
        let length = blocks
            .saturating_mul(2)
            .saturating_mul(self.capabilities.block_bytes);
        job.transfer_length = u64::from(length);
        if asked.data_out_length != length {
            return Err(wrong_data_length());
        }
        job.lba = lba;
        job.blocks = u64::from(blocks);
        if length == 0 {
            return Ok(Self::good(job));
        }
        job.work = Rare::CompareData.into();
        Ok(Step::DataOut { length })
    }

    /// Has the store do all of it, where it can. Else the comparison and the write happen behind a fence.
    pub(super) fn compare_data(&self, job: &mut Job, data: Payload) -> Step {
        if self.compares_by_itself(job) {
            job.work = Work::Last {
                purpose: Purpose::Write,
            };
            return Step::Io(IoRequest::CompareAndWrite {
                offset: job.lba.saturating_mul(self.block_bytes()),
                data,
                durable: Self::note_write(job, self.durable(job)),
            });
        }
        let data = data.into_shareable();
        job.work = Rare::CompareFence { data }.into();
        Self::fence(job)
    }

    /// Whether the blocks lie between two of the boundaries that the store cannot compare across.
    fn compares_by_itself(&self, job: &Job) -> bool {
        let unit = u64::from(self.capabilities.compare_and_write_bytes);
        let first = job.lba.saturating_mul(self.block_bytes());
        let last = job.blocks.saturating_mul(self.block_bytes());
        let last = first.saturating_add(last).saturating_sub(1);
        first.checked_div(unit).is_some() && first.checked_div(unit) == last.checked_div(unit)
    }

    fn fence(job: &Job) -> Step {
        Step::Fence(job.lba..job.lba.saturating_add(job.blocks))
    }

    /// What the medium holds decides. On a difference INFORMATION is its offset in the data.
    pub(super) fn compare_and_write(
        &self,
        job: &mut Job,
        data: Payload,
        old: &Payload,
    ) -> Result<Step, Sense> {
        if let Some(at) = work::difference(&data, 0, old) {
            return Err(miscompare(u64::try_from(at).unwrap_or(u64::MAX)));
        }
        let new = data.part(old.len(), data.len().saturating_sub(old.len()));
        drop(data);
        Ok(self.write_last(job, new))
    }

    fn write_last(&self, job: &mut Job, data: Payload) -> Step {
        let durable = self.durable(job);
        job.work = Work::Last {
            purpose: Purpose::Write,
        };
        self.write_request(job, job.lba, data, durable)
    }

    /// Spec: SBC-4, ORWRITE (16).
    pub(super) fn start_or_write(&self, job: &mut Job, asked: &Asked<'_>) -> Result<Step, Sense> {
        let extent = self.limited_extent(asked)?;
        let length = self.take_whole_blocks(job, extent, asked)?;
        if length == 0 {
            return Ok(Self::good(job));
        }
        job.work = Rare::OrData.into();
        Ok(Step::DataOut { length })
    }

    pub(super) fn or_fence(job: &mut Job, data: Payload) -> Step {
        job.work = Rare::OrFence { data }.into();
        Self::fence(job)
    }

    pub(super) fn or_write(&self, job: &mut Job, data: Payload, old: &Payload) -> Step {
        let result = match data {
            Payload::Pool(mut buffer) => {
                or_into(&mut buffer, old);
                Payload::Pool(buffer)
            }
            // Others hold these bytes too.
            Payload::Empty | Payload::Received { .. } | Payload::Mapped(_) | Payload::Heap(_) => {
                let mut bytes = data.to_vec();
                or_into(&mut bytes, old);
                Payload::Heap(bytes)
            }
        };
        self.write_last(job, result)
    }
}

fn or_into(bytes: &mut [u8], old: &Payload) {
    const STEP: usize = 4096;
    let mut scratch = [0; STEP];
    let mut at = 0_usize;
    for piece in bytes.chunks_mut(STEP) {
        let len = piece.len().min(old.len().saturating_sub(at));
        if let Some(scratch) = scratch.get_mut(..len) {
            old.copy_to(at, scratch);
            piece
                .iter_mut()
                .zip(scratch)
                .for_each(|(new, old)| *new |= *old);
        }
        at = at.saturating_add(piece.len());
    }
}
