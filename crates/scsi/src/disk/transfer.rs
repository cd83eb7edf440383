//! Commands that move blocks: READ, WRITE, VERIFY and their kin; and where each task goes on.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use memory::Payload;
use store::{IoAnswer, IoRequest};

use super::work::{self, Compare, FlushAfter, Work};
use crate::sam::failure::{Purpose, sense_of};
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::table::row::{CommandSpec, Layout};
use crate::task::{Command, Input, Outcome, Step, Task};
use crate::unit::LogicalUnit;

/// How much VERIFY reads at once, in bytes.
const VERIFY_PIECE_BYTES: u32 = 1024 * 1024;

impl LogicalUnit {
    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.profile.capabilities.block_bytes)
    }

    /// LBA and length of the command, inside the medium.
    ///
    /// The address is checked also when no block is to be transferred.
    pub(crate) fn extent(&self, task: &Task, spec: &CommandSpec) -> Result<(u64, u32), Sense> {
        let (lba, blocks) = spec.layout.extent(task.cdb);
        let fits = lba < self.blocks
            && lba
                .checked_add(u64::from(blocks))
                .is_some_and(|end| end <= self.blocks);
        if fits {
            Ok((lba, blocks))
        } else {
            Err(Sense::illegal_request(SenseCode::LBA_OUT_OF_RANGE))
        }
    }

    /// The same for a command that moves each block over the wire.
    pub(crate) fn limited_extent(
        &self,
        task: &Task,
        spec: &CommandSpec,
    ) -> Result<(u64, u32), Sense> {
        let (lba, blocks) = self.extent(task, spec)?;
        if blocks > self.profile.transfer_blocks_max() {
            return Err(Sense::invalid_byte_in_cdb(spec.layout.length_at()));
        }
        Ok((lba, blocks))
    }

    /// Notes the extent of a command that takes blocks; returns how many bytes of them come, which
    /// are whole blocks. An expected length that ends inside a block before the last one ends the
    /// command, and so does data that would go the other way.
    ///
    /// Spec: SPC-5, INVALID FIELD IN COMMAND INFORMATION UNIT; RFC 7143 section 11.4.5.
    pub(crate) fn take_whole_blocks(
        &self,
        task: &mut Task,
        (lba, blocks): (u64, u32),
        command: &Command<'_>,
    ) -> Result<u32, Sense> {
        let announced = command.data_out_length;
        let block_bytes = self.profile.capabilities.block_bytes;
        let whole = announced.checked_div(block_bytes).unwrap_or(0).min(blocks);
        // At most the announced 32 bits.
        let length = whole.saturating_mul(block_bytes);
        task.transfer_length = u64::from(blocks).saturating_mul(self.block_bytes());
        if whole < blocks && is_wrong_way(command) {
            task.transfer_length = 0;
            return Err(wrong_data_length());
        }
        if whole < blocks && length != announced {
            return Err(wrong_data_length());
        }
        task.lba = lba;
        task.blocks = u64::from(whole);
        Ok(length)
    }

    fn fua(task: &Task, spec: &CommandSpec) -> bool {
        // In READ (6) and WRITE (6) these bits belong to the LBA.
        spec.layout != Layout::Six && task.cdb.has(1, 0x08)
    }

    /// Whether a write must be durable before it is answered.
    pub(crate) fn durable(&self, task: &Task, spec: &CommandSpec) -> bool {
        !self.is_cached || Self::fua(task, spec)
    }

    pub(crate) fn read_request(&self, lba: u64, blocks: u64) -> Step {
        let len = blocks.saturating_mul(self.block_bytes());
        Step::Io(IoRequest::Read {
            offset: lba.saturating_mul(self.block_bytes()),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            buffer: None,
        })
    }

    pub(crate) fn write_request(&self, lba: u64, data: Payload, durable: bool) -> Step {
        Step::Io(IoRequest::Write {
            offset: lba.saturating_mul(self.block_bytes()),
            data,
            durable,
        })
    }

    /// GOOD for a task that has nothing, or nothing more, to do.
    pub(crate) fn good(task: &Task) -> Step {
        Step::Done(Outcome::good().transferring(task.transfer_length))
    }

    #[inline]
    pub(crate) fn start_read(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let (lba, blocks) = self.limited_extent(task, spec)?;
        let room = u64::from(command.data_in_length).div_ceil(self.block_bytes().max(1));
        task.lba = lba;
        task.blocks = u64::from(blocks).min(room);
        task.transfer_length = u64::from(blocks).saturating_mul(self.block_bytes());
        if task.blocks == 0 {
            if blocks > 0 && command.data_out_length > 0 {
                // It announces data, not room: nothing moves, and the residual says so.
                task.transfer_length = 0;
                // libiscsi's residual tests want this of READ (10) to end well.
                if spec.layout != Layout::Ten {
                    return Err(wrong_data_length());
                }
            }
            return Ok(Self::good(task));
        }
        if self.is_cached && Self::fua(task, spec) {
            // FUA asks for what the medium holds: write back first, then the cache is the medium.
            task.work = Work::FlushBeforeRead;
            return Ok(Step::Io(IoRequest::Flush));
        }
        task.work = Work::Read;
        Ok(self.read_request(lba, task.blocks))
    }

    #[inline]
    pub(crate) fn start_write(
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
        let durable = self.durable(task, spec);
        task.work = Work::WriteData { durable };
        Ok(Step::DataOut { length })
    }

    pub(crate) fn start_write_and_verify(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        const BYTCHK: u8 = 0x02;
        let extent = self.limited_extent(task, spec)?;
        let length = self.take_whole_blocks(task, extent, command)?;
        if length == 0 {
            return Ok(Self::good(task));
        }
        let compare = task.cdb.has(1, BYTCHK);
        task.work = Work::WriteAndVerifyData { compare };
        Ok(Step::DataOut { length })
    }

    pub(crate) fn start_verify(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let block_bytes = self.profile.capabilities.block_bytes;
        let (lba, blocks) = self.extent(task, spec)?;
        match task.cdb.u8(1) >> 1 & 0x03 {
            0b00 => {
                task.lba = lba;
                task.blocks = u64::from(blocks);
                Ok(self.flush_then_verify(task, Compare::Nothing))
            }
            0b01 => {
                let extent = self.limited_extent(task, spec)?;
                let length = self.take_whole_blocks(task, extent, command)?;
                if u64::from(length) < task.transfer_length {
                    // What is not there cannot be compared.
                    return Err(wrong_data_length());
                }
                if length == 0 {
                    return Ok(Self::good(task));
                }
                task.work = Work::VerifyData { repeat: false };
                Ok(Step::DataOut { length })
            }
            0b11 => {
                task.lba = lba;
                task.blocks = u64::from(blocks);
                if blocks == 0 {
                    return Ok(Self::good(task));
                }
                task.transfer_length = self.block_bytes();
                if command.data_out_length < block_bytes {
                    return Err(wrong_data_length());
                }
                task.work = Work::VerifyData { repeat: true };
                Ok(Step::DataOut {
                    length: block_bytes,
                })
            }
            // 10b is reserved.
            _ => Err(Sense::invalid_field_in_cdb(1, 2)),
        }
    }

    /// Reads ahead what the page cache of the store may hold. GOOD, never CONDITION MET: whether
    /// it stays there nobody promises.
    ///
    /// Spec: SBC-4, PRE-FETCH (10), (16).
    pub(crate) fn start_pre_fetch(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
    ) -> Result<Step, Sense> {
        const IMMED: u8 = 0x02;
        let (lba, blocks) = self.extent(task, spec)?;
        if task.cdb.has(1, IMMED) || self.profile.capabilities.reads_in_place {
            return Ok(Self::good(task));
        }
        // Length zero means up to the end of the medium.
        let wanted = match blocks {
            0 => self.blocks.saturating_sub(lba),
            blocks => u64::from(blocks),
        };
        let limit = u64::from(self.profile.transfer_blocks_max()).max(1);
        task.lba = lba;
        task.blocks = wanted.min(limit);
        task.work = Work::Last {
            purpose: Purpose::Read,
        };
        Ok(self.read_request(lba, task.blocks))
    }

    /// The whole cache, whatever the range, and before the answer, also with IMMED: that
    /// promises less than it gets.
    ///
    /// Spec: SBC-4, SYNCHRONIZE CACHE (10), (16).
    pub(crate) fn start_synchronize(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
    ) -> Result<Step, Sense> {
        self.extent(task, spec)?;
        task.work = Work::Last {
            purpose: Purpose::Flush,
        };
        Ok(Step::Io(IoRequest::Flush))
    }

    /// The end of a write. When the write cache was switched off while it was under way, the flush
    /// that came with that did not cover it.
    pub(crate) fn written(&self, task: &mut Task) -> Step {
        if !task.began_cached || self.is_cached {
            return Self::good(task);
        }
        task.work = Work::Last {
            purpose: Purpose::Flush,
        };
        Step::Io(IoRequest::Flush)
    }

    /// What is dirty goes to the medium before the medium is verified.
    fn flush_then_verify(&self, task: &mut Task, compare: Compare) -> Step {
        if task.blocks == 0 {
            return Self::good(task);
        }
        if self.is_cached {
            task.work = Work::FlushBeforeVerify { compare };
            return Step::Io(IoRequest::Flush);
        }
        self.verify_piece(task, compare, 0)
    }

    fn verify_piece(&self, task: &mut Task, compare: Compare, done: u64) -> Step {
        let left = task.blocks.saturating_sub(done);
        if left == 0 {
            return Self::good(task);
        }
        let most = VERIFY_PIECE_BYTES.min(self.profile.limits.transfer_bytes_max);
        let most = u64::from(most).checked_div(self.block_bytes()).unwrap_or(0);
        let piece = left.min(most.max(1));
        let lba = task.lba.saturating_add(done);
        task.work = Work::Verify {
            compare,
            done,
            piece,
        };
        self.read_request(lba, piece)
    }

    fn check_piece(
        &self,
        task: &Task,
        compare: &Compare,
        done: u64,
        got: &Payload,
    ) -> Result<(), Sense> {
        let block_bytes = usize::try_from(self.block_bytes()).unwrap_or(usize::MAX);
        let base = usize::try_from(done.saturating_mul(self.block_bytes())).unwrap_or(usize::MAX);
        let differs_at = match compare {
            Compare::Nothing => None,
            Compare::With(data) => {
                work::difference(data, base, got).map(|at| at.saturating_sub(base))
            }
            Compare::WithOne(block) => {
                let expected = block.to_vec();
                (0..got.len())
                    .step_by(block_bytes.max(1))
                    .find_map(|at| got.first_difference(at, &expected))
            }
        };
        let Some(at) = differs_at else {
            return Ok(());
        };
        let within = u64::try_from(at.checked_div(block_bytes).unwrap_or(0)).unwrap_or(0);
        let lba = task.lba.saturating_add(done).saturating_add(within);
        Err(miscompare(lba))
    }

    /// The one place where a task goes on. What each state waits for is in [`Work`].
    pub(crate) fn advance(
        &mut self,
        task: &mut Task,
        work: Work,
        input: Input,
    ) -> Result<Step, Sense> {
        match (work, input) {
            (Work::Read, Input::Io(result)) => {
                let data = data_of(self.answer(result, Purpose::Read)?);
                let transfer_length = task.transfer_length;
                Ok(Step::Done(Outcome {
                    data,
                    ..Outcome::good().transferring(transfer_length)
                }))
            }
            (Work::WriteData { durable }, Input::DataOut(data)) => {
                task.work = Work::Last {
                    purpose: Purpose::Write,
                };
                Ok(self.write_request(task.lba, data, durable))
            }
            (
                Work::Last {
                    purpose: Purpose::Write,
                },
                Input::Io(result),
            ) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.written(task))
            }
            (Work::Last { purpose }, Input::Io(result)) => {
                self.answer(result, purpose)?;
                Ok(Self::good(task))
            }
            (Work::FlushBeforeRead, Input::Io(result)) => {
                self.answer(result, Purpose::Flush)?;
                task.work = Work::Read;
                Ok(self.read_request(task.lba, task.blocks))
            }
            (Work::WriteAndVerifyData { compare }, Input::DataOut(data)) => {
                let data = work::shareable(data);
                let compare = if compare {
                    Compare::With(work::part(&data, 0, data.len()))
                } else {
                    Compare::Nothing
                };
                task.work = Work::WriteBeforeVerify { compare };
                Ok(self.write_request(task.lba, data, true))
            }
            (Work::WriteBeforeVerify { compare }, Input::Io(result)) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.verify_piece(task, compare, 0))
            }
            (Work::VerifyData { repeat: false }, Input::DataOut(data)) => {
                Ok(self.flush_then_verify(task, Compare::With(data)))
            }
            (Work::VerifyData { repeat: true }, Input::DataOut(data)) => {
                Ok(self.flush_then_verify(task, Compare::WithOne(data)))
            }
            (Work::FlushBeforeVerify { compare }, Input::Io(result)) => {
                self.answer(result, Purpose::Flush)?;
                Ok(self.verify_piece(task, compare, 0))
            }
            (
                Work::Verify {
                    compare,
                    done,
                    piece,
                },
                Input::Io(result),
            ) => {
                let got = data_of(self.answer(result, Purpose::Read)?);
                self.check_piece(task, &compare, done, &got)?;
                drop(got);
                Ok(self.verify_piece(task, compare, done.saturating_add(piece)))
            }
            (work, input) => self.advance_rare(task, work, input),
        }
    }

    fn advance_rare(&mut self, task: &mut Task, work: Work, input: Input) -> Result<Step, Sense> {
        match (work, input) {
            (Work::CompareData, Input::DataOut(data)) => Ok(Self::compare_fence(task, data)),
            (Work::CompareFence { data }, Input::FenceGranted) => {
                task.work = Work::CompareRead { data };
                Ok(self.read_request(task.lba, task.blocks))
            }
            (Work::CompareRead { data }, Input::Io(result)) => {
                let old = data_of(self.answer(result, Purpose::Read)?);
                self.compare_and_write(task, data, &old)
            }
            (Work::OrData, Input::DataOut(data)) => Ok(Self::or_fence(task, data)),
            (Work::OrFence { data }, Input::FenceGranted) => {
                task.work = Work::OrRead { data };
                Ok(self.read_request(task.lba, task.blocks))
            }
            (Work::OrRead { data }, Input::Io(result)) => {
                let old = data_of(self.answer(result, Purpose::Read)?);
                Ok(self.or_write(task, data, &old))
            }
            (Work::SameData, Input::DataOut(block)) => Ok(self.write_same(task, &block)),
            (
                Work::Same {
                    pattern,
                    done,
                    piece,
                },
                Input::Io(result),
            ) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.write_same_piece(task, pattern, done.saturating_add(piece)))
            }
            (Work::UnmapBeforeFlush, Input::Io(result)) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.after_unmap(task))
            }
            (Work::UnmapList, Input::DataOut(list)) => self.unmap_list(task, &list.to_vec()),
            (Work::Unmap { left }, Input::Io(result)) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.unmap_next(task, left))
            }
            (Work::LbaStatus { count_max }, Input::Io(result)) => {
                let answer = self.answer(result, Purpose::Read)?;
                Ok(self.lba_status(task, answer, count_max))
            }
            (work, input) => self.advance_owned(task, work, input),
        }
    }

    fn advance_owned(&mut self, task: &mut Task, work: Work, input: Input) -> Result<Step, Sense> {
        match (work, input) {
            (Work::OwnerParameters, Input::DataOut(list)) => {
                Ok(self.hand_to_owner(task, list.to_vec()))
            }
            (Work::Owner { flush }, Input::Owner(mut reply)) => {
                let was_made = reply.status == Status::Good;
                let must_flush = match flush {
                    FlushAfter::Never => false,
                    FlushAfter::Always => was_made,
                    FlushAfter::CacheOff => was_made && !self.is_cached,
                };
                if was_made {
                    reply.transfer_length = task.transfer_length;
                }
                if !must_flush {
                    return Ok(Step::Done(reply.into()));
                }
                let transfer_length = reply.transfer_length;
                task.work = Work::FlushAfterOwner { transfer_length };
                Ok(Step::Io(IoRequest::Flush))
            }
            (Work::FlushAfterOwner { transfer_length }, Input::Io(result)) => {
                self.answer(result, Purpose::Flush)?;
                Ok(Step::Done(Outcome::good().transferring(transfer_length)))
            }
            (work, input) => {
                debug_assert!(false, "{work:?} does not wait for {input:?}");
                let code = SenseCode::INTERNAL_TARGET_FAILURE;
                Err(Sense::new(SenseKey::HardwareError, code))
            }
        }
    }

    pub(crate) fn answer(
        &self,
        result: store::IoResult,
        purpose: Purpose,
    ) -> Result<IoAnswer, Sense> {
        let block_bytes = self.profile.capabilities.block_bytes;
        result.map_err(|failure| sense_of(&failure, purpose, block_bytes))
    }
}

fn data_of(answer: IoAnswer) -> Payload {
    match answer {
        IoAnswer::Data(data) => data,
        IoAnswer::Done | IoAnswer::Extents(_) => Payload::Empty,
    }
}

/// The initiator announces data, and none that the command could take or give.
const fn is_wrong_way(command: &Command<'_>) -> bool {
    command.data_out_length == 0 && command.data_in_length > 0
}

/// The initiator announces another amount of data than the command needs whole. The residual of
/// the answer is that of the whole command: see [`Task::refused`].
///
/// Spec: SPC-5, INVALID FIELD IN COMMAND INFORMATION UNIT.
pub(crate) const fn wrong_data_length() -> Sense {
    Sense::illegal_request(SenseCode::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)
}

/// INFORMATION is an LBA, or for COMPARE AND WRITE an offset into the data in bytes.
pub(crate) const fn miscompare(information: u64) -> Sense {
    Sense::new(
        SenseKey::Miscompare,
        SenseCode::MISCOMPARE_DURING_VERIFY_OPERATION,
    )
    .with_information(information)
}
