//! COMPARE AND WRITE and ORWRITE: read, decide and write behind a fence.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use memory::Payload;

use super::transfer::{miscompare, wrong_data_length};
use super::work::{self, Work};
use crate::sam::failure::Purpose;
use crate::sam::sense::Sense;
use crate::table::row::CommandSpec;
use crate::task::{Command, Step, Task};
use crate::unit::LogicalUnit;

impl LogicalUnit {
    /// The data is twice the blocks: what must be there, then what comes instead.
    ///
    /// Spec: SBC-4, COMPARE AND WRITE.
    pub(crate) fn start_compare_and_write(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let (lba, blocks) = self.extent(task, spec)?;
        // The field has eight bits: data for none at all is data for more blocks than it holds.
        let overflows = blocks == 0 && command.data_out_length > 0;
        if overflows || blocks > u32::from(self.profile.limits.compare_and_write_blocks_max) {
            return Err(Sense::invalid_byte_in_cdb(spec.layout.length_at()));
        }
        let length = blocks
            .saturating_mul(2)
            .saturating_mul(self.profile.capabilities.block_bytes);
        task.transfer_length = u64::from(length);
        if command.data_out_length != length {
            return Err(wrong_data_length());
        }
        task.lba = lba;
        task.blocks = u64::from(blocks);
        if length == 0 {
            return Ok(Self::good(task));
        }
        task.work = Work::CompareData;
        Ok(Step::DataOut { length })
    }

    pub(crate) fn compare_fence(task: &mut Task, data: Payload) -> Step {
        let data = work::shareable(data);
        task.work = Work::CompareFence { data };
        Self::fence(task)
    }

    fn fence(task: &Task) -> Step {
        Step::Fence(task.lba..task.lba.saturating_add(task.blocks))
    }

    /// What the medium holds decides. On a difference INFORMATION is its offset in the data.
    pub(crate) fn compare_and_write(
        &self,
        task: &mut Task,
        data: Payload,
        old: &Payload,
    ) -> Result<Step, Sense> {
        if let Some(at) = work::difference(&data, 0, old) {
            return Err(miscompare(u64::try_from(at).unwrap_or(u64::MAX)));
        }
        let new = work::part(&data, old.len(), data.len().saturating_sub(old.len()));
        drop(data);
        Ok(self.write_last(task, new))
    }

    fn write_last(&self, task: &mut Task, data: Payload) -> Step {
        let durable = task.spec.is_none_or(|spec| self.durable(task, spec));
        task.work = Work::Last {
            purpose: Purpose::Write,
        };
        self.write_request(task.lba, data, durable)
    }

    /// Spec: SBC-4, ORWRITE (16).
    pub(crate) fn start_or_write(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let extent = self.limited_extent(task, spec)?;
        let length = self.take_whole_blocks(task, extent, command)?;
        if length == 0 {
            return Ok(Self::good(task));
        }
        task.work = Work::OrData;
        Ok(Step::DataOut { length })
    }

    pub(crate) fn or_fence(task: &mut Task, data: Payload) -> Step {
        task.work = Work::OrFence { data };
        Self::fence(task)
    }

    pub(crate) fn or_write(&self, task: &mut Task, data: Payload, old: &Payload) -> Step {
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
        self.write_last(task, result)
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
