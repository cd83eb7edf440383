//! Commands that move blocks: READ, WRITE, VERIFY and their kin; and where each job goes on.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::fmt::Debug;

use memory::Payload;
use store::{IoAnswer, IoFailure, IoRequest, IoResult};

use super::work::{self, Compare, Rare, Work};
use super::{Asked, Disk, Job};
use crate::sam::command::{Input, Outcome, PIECE_BYTES_MAX, Step};
use crate::sam::failure::{Purpose, sense_of};
use crate::sam::sense::{Sense, SenseCode, SenseKey};

impl Disk {
    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.capabilities.block_bytes)
    }

    /// LBA and length of the command, inside the medium.
    ///
    /// The address is checked also when no block is to be transferred.
    #[inline]
    pub(super) fn extent(&self, asked: &Asked<'_>) -> Result<(u64, u32), Sense> {
        let (lba, blocks) = (asked.lba(), asked.blocks());
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
    #[inline]
    pub(super) fn limited_extent(&self, asked: &Asked<'_>) -> Result<(u64, u32), Sense> {
        let (lba, blocks) = self.extent(asked)?;
        if blocks > self.transfer_blocks_max {
            return Err(asked.wrong_length());
        }
        Ok((lba, blocks))
    }

    /// Notes the extent of a command that takes blocks; returns how many bytes of them come, which
    /// are whole blocks. An expected length that ends inside a block before the last one ends the
    /// command, and so does data that would go the other way.
    ///
    /// Spec: SPC-5, INVALID FIELD IN COMMAND INFORMATION UNIT; RFC 7143 section 11.4.5.
    pub(super) fn take_whole_blocks(
        &self,
        job: &mut Job,
        (lba, blocks): (u64, u32),
        asked: &Asked<'_>,
    ) -> Result<u32, Sense> {
        let announced = asked.data_out_length;
        let block_bytes = self.capabilities.block_bytes;
        let whole = announced.checked_div(block_bytes).unwrap_or(0).min(blocks);
        // At most the announced 32 bits.
        let length = whole.saturating_mul(block_bytes);
        job.transfer_length = u64::from(blocks).saturating_mul(self.block_bytes());
        if whole < blocks && is_wrong_way(asked) {
            job.transfer_length = 0;
            return Err(wrong_data_length());
        }
        if whole < blocks && length != announced {
            return Err(wrong_data_length());
        }
        job.lba = lba;
        job.blocks = u64::from(whole);
        Ok(length)
    }

    /// Whether a write must be durable before it is answered.
    #[inline]
    pub(super) fn durable(&self, job: &Job) -> bool {
        !self.is_cached || job.fua
    }

    pub(super) fn read_request(&self, lba: u64, blocks: u64) -> Step {
        let len = blocks.saturating_mul(self.block_bytes());
        Step::Io(IoRequest::Read {
            offset: lba.saturating_mul(self.block_bytes()),
            len: usize::try_from(len).unwrap_or(usize::MAX),
            buffer: None,
        })
    }

    /// A write is requested. Returns `durable`.
    pub(super) const fn note_write(job: &mut Job, durable: bool) -> bool {
        job.has_cached_write |= !durable;
        durable
    }

    pub(super) fn write_request(
        &self,
        job: &mut Job,
        lba: u64,
        data: Payload,
        durable: bool,
    ) -> Step {
        let durable = Self::note_write(job, durable);
        Step::Io(IoRequest::Write {
            offset: lba.saturating_mul(self.block_bytes()),
            data,
            durable,
        })
    }

    /// GOOD for a job that has nothing, or nothing more, to do.
    pub(super) fn good(job: &Job) -> Step {
        Step::Done(Outcome::good().transferring(job.transfer_length))
    }

    #[inline]
    pub(super) fn start_read(&self, job: &mut Job, asked: &Asked<'_>) -> Step {
        let (lba, blocks) = match self.limited_extent(asked) {
            Ok(extent) => extent,
            Err(sense) => return Step::Done(job.refused(sense)),
        };
        let room = u64::from(asked.data_in_length).div_ceil(self.block_bytes().max(1));
        job.lba = lba;
        job.blocks = u64::from(blocks).min(room);
        job.transfer_length = u64::from(blocks).saturating_mul(self.block_bytes());
        if job.blocks == 0 {
            return Self::read_nothing(job, blocks, asked);
        }
        if self.is_cached && job.fua {
            // FUA asks for what the medium holds: write back first, then the cache is the medium.
            job.work = Work::FlushBeforeRead;
            return Step::Io(IoRequest::Flush);
        }
        job.work = Work::Read;
        self.read_request(lba, job.blocks)
    }

    /// Reads blocks that the CDB names in a form of its own.
    pub(crate) fn start_read_at(
        &self,
        job: &mut Job,
        (lba, blocks): (u64, u32),
        data_in_length: u32,
    ) -> Step {
        let end = lba.saturating_add(u64::from(blocks));
        if lba >= self.blocks || end > self.blocks {
            let sense = Sense::illegal_request(SenseCode::LBA_OUT_OF_RANGE);
            return Step::Done(job.refused(sense));
        }
        if blocks > self.transfer_blocks_max {
            return Step::Done(job.refused(Sense::invalid_byte_in_cdb(6)));
        }
        let room = u64::from(data_in_length).div_ceil(self.block_bytes().max(1));
        job.lba = lba;
        job.blocks = u64::from(blocks).min(room);
        job.transfer_length = u64::from(blocks).saturating_mul(self.block_bytes());
        if job.blocks == 0 {
            return Self::good(job);
        }
        job.work = Work::Read;
        self.read_request(lba, job.blocks)
    }

    /// A read of no blocks, or for which the initiator has no room.
    #[cold]
    fn read_nothing(job: &mut Job, blocks: u32, asked: &Asked<'_>) -> Step {
        if blocks > 0 && asked.data_out_length > 0 {
            // It announces data, not room: nothing moves, and the residual says so.
            job.transfer_length = 0;
            // libiscsi's residual tests want this of READ (10) to end well.
            if asked.cdb_length() != 10 {
                return Step::Done(job.refused(wrong_data_length()));
            }
        }
        Self::good(job)
    }

    #[inline]
    pub(super) fn start_write(&self, job: &mut Job, asked: &Asked<'_>) -> Step {
        let extent = self.limited_extent(asked);
        let length = match extent.and_then(|extent| self.take_whole_blocks(job, extent, asked)) {
            Ok(0) => return Self::good(job),
            Ok(length) => length,
            Err(sense) => return Step::Done(job.refused(sense)),
        };
        let durable = self.durable(job);
        job.work = Work::WriteData { durable };
        Step::DataOut { length }
    }

    pub(super) fn start_write_and_verify(
        &self,
        job: &mut Job,
        asked: &Asked<'_>,
    ) -> Result<Step, Sense> {
        const BYTCHK: u8 = 0x02;
        let extent = self.limited_extent(asked)?;
        let length = self.take_whole_blocks(job, extent, asked)?;
        if length == 0 {
            return Ok(Self::good(job));
        }
        let compare = asked.has(1, BYTCHK);
        job.work = Rare::WriteAndVerifyData { compare }.into();
        Ok(Step::DataOut { length })
    }

    pub(super) fn start_verify(&self, job: &mut Job, asked: &Asked<'_>) -> Result<Step, Sense> {
        let block_bytes = self.capabilities.block_bytes;
        let (lba, blocks) = self.extent(asked)?;
        match asked.byte_1() >> 1 & 0x03 {
            0b00 => {
                job.lba = lba;
                job.blocks = u64::from(blocks);
                Ok(self.flush_then_verify(job, Compare::Nothing))
            }
            0b01 => {
                let extent = self.limited_extent(asked)?;
                let length = self.take_whole_blocks(job, extent, asked)?;
                if u64::from(length) < job.transfer_length {
                    // What is not there cannot be compared.
                    return Err(wrong_data_length());
                }
                if length == 0 {
                    return Ok(Self::good(job));
                }
                job.work = Rare::VerifyData { repeat: false }.into();
                Ok(Step::DataOut { length })
            }
            0b11 => {
                job.lba = lba;
                job.blocks = u64::from(blocks);
                if blocks == 0 {
                    return Ok(Self::good(job));
                }
                job.transfer_length = self.block_bytes();
                if asked.data_out_length < block_bytes {
                    return Err(wrong_data_length());
                }
                job.work = Rare::VerifyData { repeat: true }.into();
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
    pub(super) fn start_pre_fetch(&self, job: &mut Job, asked: &Asked<'_>) -> Result<Step, Sense> {
        const IMMED: u8 = 0x02;
        let (lba, blocks) = self.extent(asked)?;
        if asked.has(1, IMMED) || self.capabilities.reads_in_place {
            return Ok(Self::good(job));
        }
        // Length zero means up to the end of the medium.
        let wanted = match blocks {
            0 => self.blocks.saturating_sub(lba),
            blocks => u64::from(blocks),
        };
        let limit = u64::from(self.transfer_blocks_max).max(1);
        job.lba = lba;
        job.blocks = wanted.min(limit);
        Ok(self.verify_next(job, Compare::Nothing, 0))
    }

    /// The whole cache, whatever the range, and before the answer, also with IMMED: that
    /// promises less than it gets.
    ///
    /// Spec: SBC-4, SYNCHRONIZE CACHE (10), (16).
    pub(super) fn start_synchronize(
        &self,
        job: &mut Job,
        asked: &Asked<'_>,
    ) -> Result<Step, Sense> {
        self.extent(asked)?;
        job.work = Work::Last {
            purpose: Purpose::Flush,
        };
        Ok(Step::Io(IoRequest::Flush))
    }

    /// The end of a write. When the write cache was switched off while it was under way, the flush
    /// that came with that did not cover it.
    #[inline]
    pub(super) fn written(&self, job: &mut Job) -> Step {
        if !job.has_cached_write || self.is_cached {
            return Self::good(job);
        }
        job.work = Work::Last {
            purpose: Purpose::FlushOwn,
        };
        Step::Io(IoRequest::Flush)
    }

    /// What is dirty goes to the medium before the medium is verified.
    fn flush_then_verify(&self, job: &mut Job, compare: Compare) -> Step {
        if job.blocks == 0 {
            return Self::good(job);
        }
        if self.is_cached {
            job.work = Rare::FlushBeforeVerify { compare }.into();
            return Step::Io(IoRequest::Flush);
        }
        self.verify_next(job, compare, 0)
    }

    /// The next piece of the medium to be read, and compared where that is asked for.
    fn verify_next(&self, job: &mut Job, compare: Compare, done: u64) -> Step {
        let left = job.blocks.saturating_sub(done);
        if left == 0 {
            return Self::good(job);
        }
        let most = PIECE_BYTES_MAX.min(self.limits.transfer_bytes_max);
        let most = u64::from(most).checked_div(self.block_bytes()).unwrap_or(0);
        let piece = left.min(most.max(1));
        let work = Rare::Verify {
            compare,
            done,
            piece,
        };
        self.await_turn(job, work, piece)
    }

    fn check_piece(
        &self,
        job: &Job,
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
        let lba = job.lba.saturating_add(done).saturating_add(within);
        Err(miscompare(lba))
    }

    /// What the store read is the answer.
    #[inline]
    pub(super) fn end_read(&self, job: &Job, result: IoResult) -> Step {
        match result {
            Ok(answer) => Step::Done(Outcome::moved(data_of(answer), job.transfer_length)),
            Err(failure) => self.failed(&failure, Purpose::Read),
        }
    }

    /// The data to write is there.
    #[inline]
    pub(super) fn write(&self, job: &mut Job, data: Payload, durable: bool) -> Step {
        job.work = Work::Last {
            purpose: Purpose::Write,
        };
        self.write_request(job, job.lba, data, durable)
    }

    /// The store has done the last thing.
    #[inline]
    pub(super) fn end_last(&self, job: &mut Job, purpose: Purpose, result: IoResult) -> Step {
        match result {
            Ok(_) if purpose == Purpose::Write => self.written(job),
            Ok(_) => Self::good(job),
            Err(failure) => self.failed(&failure, purpose),
        }
    }

    #[cold]
    fn failed(&self, failure: &IoFailure, purpose: Purpose) -> Step {
        self.failures.note(failure);
        let sense = sense_of(failure, purpose, self.capabilities.block_bytes);
        Step::Done(Outcome::check(sense))
    }

    /// What was dirty is on the medium, to be read from there.
    pub(super) fn read_flushed(&self, job: &mut Job, result: IoResult) -> Result<Step, Sense> {
        self.answer(result, Purpose::Flush)?;
        job.work = Work::Read;
        Ok(self.read_request(job.lba, job.blocks))
    }

    /// Goes on with a command that is no plain read or write. What each state waits for is in
    /// [`Rare`].
    pub(super) fn advance(&self, job: &mut Job, work: Rare, input: Input) -> Result<Step, Sense> {
        match (work, input) {
            (Rare::WriteAndVerifyData { compare }, Input::DataOut(data)) => {
                let data = data.into_shareable();
                let compare = if compare {
                    Compare::With(data.part(0, data.len()))
                } else {
                    Compare::Nothing
                };
                job.work = Rare::WriteBeforeVerify { compare }.into();
                Ok(self.write_request(job, job.lba, data, true))
            }
            (Rare::WriteBeforeVerify { compare }, Input::Io(result)) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.verify_next(job, compare, 0))
            }
            (Rare::VerifyData { repeat: false }, Input::DataOut(data)) => {
                Ok(self.flush_then_verify(job, Compare::With(data)))
            }
            (Rare::VerifyData { repeat: true }, Input::DataOut(data)) => {
                Ok(self.flush_then_verify(job, Compare::WithOne(data)))
            }
            (Rare::FlushBeforeVerify { compare }, Input::Io(result)) => {
                self.answer(result, Purpose::Flush)?;
                Ok(self.verify_next(job, compare, 0))
            }
            (
                Rare::Verify {
                    compare,
                    done,
                    piece,
                },
                Input::Io(result),
            ) => {
                let got = data_of(self.answer(result, Purpose::Read)?);
                self.check_piece(job, &compare, done, &got)?;
                drop(got);
                Ok(self.verify_next(job, compare, done.saturating_add(piece)))
            }
            (work, Input::Turn) => self.begin_piece(job, work),
            (work, input) => self.advance_further(job, work, input),
        }
    }

    fn advance_further(&self, job: &mut Job, work: Rare, input: Input) -> Result<Step, Sense> {
        match (work, input) {
            (Rare::CompareData, Input::DataOut(data)) => Ok(self.compare_data(job, data)),
            (Rare::CompareFence { data }, Input::FenceGranted) => {
                job.work = Rare::CompareRead { data }.into();
                Ok(self.read_request(job.lba, job.blocks))
            }
            (Rare::CompareRead { data }, Input::Io(result)) => {
                let old = data_of(self.answer(result, Purpose::Read)?);
                self.compare_and_write(job, data, &old)
            }
            (Rare::OrData, Input::DataOut(data)) => Ok(Self::or_fence(job, data)),
            (Rare::OrFence { data }, Input::FenceGranted) => {
                job.work = Rare::OrRead { data }.into();
                Ok(self.read_request(job.lba, job.blocks))
            }
            (Rare::OrRead { data }, Input::Io(result)) => {
                let old = data_of(self.answer(result, Purpose::Read)?);
                Ok(self.or_write(job, data, &old))
            }
            (Rare::SameData { unmap, is_rest }, Input::DataOut(block)) => {
                Ok(self.write_same(job, &block, unmap, is_rest))
            }
            (Rare::Same { block, done, piece }, Input::Io(result)) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.write_same_next(job, block, done.saturating_add(piece)))
            }
            (Rare::UnmapList, Input::DataOut(list)) => self.unmap_list(job, &list.to_vec()),
            (Rare::Unmap { left }, Input::Io(result)) => {
                self.answer(result, Purpose::Write)?;
                Ok(self.unmap_next(job, left))
            }
            (Rare::LbaStatus { room }, Input::Io(result)) => {
                let answer = self.answer(result, Purpose::Read)?;
                Ok(self.lba_status(job, answer, room))
            }
            (work, input) => Err(unexpected(&work, &input)),
        }
    }

    pub(super) fn answer(&self, result: IoResult, purpose: Purpose) -> Result<IoAnswer, Sense> {
        let block_bytes = self.capabilities.block_bytes;
        result.map_err(|failure| {
            self.failures.note(&failure);
            sense_of(&failure, purpose, block_bytes)
        })
    }
}

/// A bug of ours: a command is given what it does not wait for.
#[cold]
pub(super) fn unexpected(work: &dyn Debug, input: &dyn Debug) -> Sense {
    debug_assert!(false, "{work:?} does not wait for {input:?}");
    Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE)
}

fn data_of(answer: IoAnswer) -> Payload {
    match answer {
        IoAnswer::Data(data) => data,
        IoAnswer::Done | IoAnswer::Extents(_) => Payload::Empty,
    }
}

/// The initiator announces data, and none that the command could take or give.
const fn is_wrong_way(asked: &Asked<'_>) -> bool {
    asked.data_out_length == 0 && asked.data_in_length > 0
}

/// The initiator announces another amount of data than the command needs whole. The residual of
/// the answer is that of the whole command: see [`Job::refused`].
///
/// Spec: SPC-5, INVALID FIELD IN COMMAND INFORMATION UNIT.
pub(super) const fn wrong_data_length() -> Sense {
    Sense::illegal_request(SenseCode::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)
}

/// INFORMATION is an LBA, or for COMPARE AND WRITE an offset into the data in bytes.
pub(super) const fn miscompare(information: u64) -> Sense {
    Sense::new(
        SenseKey::Miscompare,
        SenseCode::MISCOMPARE_DURING_VERIFY_OPERATION,
    )
    .with_information(information)
}
