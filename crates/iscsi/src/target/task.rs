//! One SCSI task as the transport sees it: who asked, and how its Data-Out comes in.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::time::Duration;

use memory::{Need, NoRoom, Payload, Pool};

use super::violation::{DataFault, Violation};
use crate::limits;

/// Names a task of one session. `index` is small and reused, so that an owner may keep its own
/// state in a table beside the session's; `serial` distinguishes one use of it from the next.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct TaskId {
    /// Place in the table of tasks.
    pub index: u32,
    /// Differs between two tasks in the same place.
    pub serial: u32,
}

/// What a LUN field means, so that two spellings of one number are the same: the number for the
/// peripheral and the flat form, the field itself for the others.
///
/// Spec: SAM-5, Single level LUN structure.
pub(super) const fn unit_of(lun: u64) -> u64 {
    let (form, rest) = (lun >> 62, lun & 0xffff_ffff_ffff);
    match (form, rest) {
        (0, 0) if lun >> 56 == 0 => (lun >> 48) & 0xff,
        (1, 0) => (lun >> 48) & 0x3fff,
        _ => lun,
    }
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// It waits for its turn in the order of CmdSN.
    Held,
    /// The owner of the session knows it and owes an outcome.
    Running,
    /// It has ended; what the initiator still sends unsolicited is taken and dropped.
    Draining,
}

/// A burst that was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct R2t {
    pub(super) target_transfer_tag: u32,
    pub(super) end: u32,
    next_data_sn: u32,
}

/// Data-Out of one task. Offsets count from the start of the task's data, in bytes.
#[derive(Debug)]
pub(super) struct DataOut {
    /// What has come, and room for what will.
    data: Payload,
    /// How much is in place, without gaps.
    pub(super) received: u32,
    /// Unsolicited data may still come, with this DataSN next.
    unsolicited: Option<u32>,
    /// How much the command takes, once it is known.
    pub(super) wanted: Option<u32>,
    /// The buffer is away, to be received into.
    is_lent: bool,
    /// When data last came or was first asked for; earlier, if it came in drips.
    pub(super) last_progress: Duration,
    /// The data has been handed on; what still comes is dropped.
    collected: bool,
    pub(super) fault: Option<DataFault>,
    /// The owner has been notified of it.
    pub(super) is_fault_told: bool,
    /// Asked for and not complete, in order.
    pub(super) r2ts: VecDeque<R2t>,
    /// Up to where data was asked for.
    pub(super) asked: u32,
    pub(super) r2t_sn: u32,
}

/// The serial of a place without a task: no task has it.
pub(super) const NO_SERIAL: u32 = 0;

/// One task.
#[derive(Debug)]
pub(super) struct Task {
    /// [`NO_SERIAL`] when it is over.
    pub(super) serial: u32,
    /// When its header came.
    pub(super) arrived: Duration,
    pub(super) connection: usize,
    pub(super) lun: u64,
    pub(super) cmd_sn: u32,
    pub(super) immediate: bool,
    /// Expected Data Transfer Length for data to the target, in bytes.
    pub(super) write_length: u32,
    /// The same for data to the initiator.
    pub(super) read_length: u32,
    pub(super) phase: Phase,
    pub(super) data_out: DataOut,
}

impl Task {
    /// A place for tasks.
    pub(super) const fn new() -> Self {
        Self {
            serial: NO_SERIAL,
            arrived: Duration::ZERO,
            connection: 0,
            lun: 0,
            cmd_sn: 0,
            immediate: false,
            write_length: 0,
            read_length: 0,
            phase: Phase::Held,
            data_out: DataOut::new(),
        }
    }
}

/// What to do about a task's data after a PDU of it is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Progress {
    /// More is to come by itself.
    Waiting,
    /// All that the command takes is there.
    Complete,
    /// Ask for more.
    AskMore,
}

impl DataOut {
    /// Of no task yet.
    pub(super) const fn new() -> Self {
        Self {
            data: Payload::Empty,
            received: 0,
            unsolicited: None,
            wanted: None,
            is_lent: false,
            last_progress: Duration::ZERO,
            collected: false,
            fault: None,
            is_fault_told: false,
            r2ts: VecDeque::new(),
            asked: 0,
            r2t_sn: 0,
        }
    }

    /// Makes the value fit for another task, whose header came `now`, and keeps its room.
    #[inline]
    pub(super) fn reset(&mut self, unsolicited: bool, fault: Option<DataFault>, now: Duration) {
        self.drop_data();
        self.received = 0;
        self.unsolicited = unsolicited.then_some(0);
        self.wanted = None;
        self.is_lent = false;
        self.last_progress = now;
        self.collected = false;
        self.fault = fault;
        self.is_fault_told = false;
        self.asked = 0;
        self.r2t_sn = 0;
    }

    pub(super) const fn is_unsolicited_open(&self) -> bool {
        self.unsolicited.is_some()
    }

    /// Whether data of this burst is due: unsolicited data, or that of the first R2T.
    #[inline]
    pub(super) fn is_open_for(&self, target_transfer_tag: Option<u32>) -> bool {
        let Some(tag) = target_transfer_tag else {
            return self.is_unsolicited_open();
        };
        let first = self.r2ts.front();
        first.is_some_and(|r2t| r2t.target_transfer_tag == tag)
    }

    /// Takes immediate data that lies whole in a chunk, without copying it.
    pub(super) fn set_immediate(&mut self, data: Payload) {
        self.received = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.data = data;
    }

    /// Checks a Data-Out header against what is due. `limit` is FirstBurstLength for unsolicited
    /// data. Nothing changes yet.
    pub(super) fn check(
        &self,
        target_transfer_tag: Option<u32>,
        data_sn: u32,
        offset: u32,
        length: u32,
        limit: u32,
    ) -> Result<(), Violation> {
        let (expected_sn, end) = match target_transfer_tag {
            None => (self.unsolicited.unwrap_or(0), limit),
            Some(_) => self
                .r2ts
                .front()
                .map_or((0, 0), |r2t| (r2t.next_data_sn, r2t.end)),
        };
        if data_sn != expected_sn {
            return Err(Violation::DataSnOutOfOrder {
                got: data_sn,
                expected: expected_sn,
            });
        }
        if offset != self.received {
            return Err(Violation::DataOutOfOrder {
                got: offset,
                expected: self.received,
            });
        }
        let got = offset.saturating_add(length);
        if got > end {
            return Err(Violation::BurstTooLong { got, limit: end });
        }
        Ok(())
    }

    /// Sees to it that `len` bytes from the start have room in a buffer of the pool, and keeps
    /// what is there already.
    pub(super) fn ensure_room(&mut self, len: u32, need: Need, pool: &Pool) -> Result<(), NoRoom> {
        let len = len as usize;
        if let Payload::Pool(buffer) = &mut self.data
            && buffer.capacity() >= len
        {
            if buffer.len() < len {
                buffer.set_len(len);
            }
            return Ok(());
        }
        let mut buffer = pool.allocate_for(need, len)?;
        let have = (self.received as usize).min(self.data.len()).min(len);
        if let Some(head) = buffer.get_mut(..have) {
            self.data.copy_to(0, head);
        }
        self.data = Payload::Pool(buffer);
        Ok(())
    }

    /// How much data it holds, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.data.len()
    }

    /// Puts what came with the command into a buffer of its own size: the chunk it lies in is to be
    /// received into while the task waits.
    pub(super) fn leave_chunk(&mut self, pool: &Pool) -> Result<(), NoRoom> {
        match self.data {
            Payload::Received { .. } => self.ensure_room(self.received, Need::Arrived, pool),
            Payload::Empty | Payload::Pool(_) | Payload::Mapped(_) | Payload::Heap(_) => Ok(()),
        }
    }

    /// Data is announced or asked for.
    pub(super) fn is_waiting(&self) -> bool {
        (self.unsolicited.is_some() || !self.r2ts.is_empty()) && !self.is_dropping()
    }

    /// So many bytes have come `now`.
    #[inline]
    pub(super) fn note_progress(&mut self, length: u32, now: Duration) {
        let earned = limits::DATA_TIME_PER_BYTE.saturating_mul(length);
        self.last_progress = self.last_progress.saturating_add(earned).min(now);
    }

    /// It has not come since `since`.
    pub(super) fn is_stalled_since(&self, since: Duration) -> bool {
        self.is_waiting() && self.last_progress <= since
    }

    /// The data was handed on whole.
    pub(super) const fn is_handed_on(&self) -> bool {
        self.collected && self.fault.is_none()
    }

    /// True when arriving data has no place: the task has ended or failed, or its data is
    /// complete.
    pub(super) const fn is_dropping(&self) -> bool {
        self.collected || self.fault.is_some()
    }

    /// Puts bytes in their place, which [`DataOut::ensure_room`] made.
    pub(super) fn place(&mut self, offset: usize, bytes: &[u8]) {
        if let Payload::Pool(buffer) = &mut self.data
            && let Some(to) = offset
                .checked_add(bytes.len())
                .and_then(|end| buffer.get_mut(offset..end))
        {
            to.copy_from_slice(bytes);
        }
    }

    /// Lends the buffer out to be received into.
    pub(super) fn lend(&mut self) -> Option<memory::Buffer> {
        match std::mem::replace(&mut self.data, Payload::Empty) {
            Payload::Pool(buffer) => {
                self.is_lent = true;
                Some(buffer)
            }
            other @ (Payload::Empty
            | Payload::Received { .. }
            | Payload::Mapped(_)
            | Payload::Heap(_)) => {
                self.data = other;
                None
            }
        }
    }

    /// Takes the buffer back.
    pub(super) fn give_back(&mut self, buffer: memory::Buffer) {
        self.data = Payload::Pool(buffer);
        self.is_lent = false;
    }

    /// A data PDU is over: `length` more bytes are in place.
    pub(super) fn advance(
        &mut self,
        target_transfer_tag: Option<u32>,
        length: u32,
        is_final: bool,
    ) {
        self.received = self.received.saturating_add(length);
        match target_transfer_tag {
            None => {
                self.unsolicited = match self.unsolicited {
                    Some(data_sn) if !is_final => Some(data_sn.wrapping_add(1)),
                    Some(_) | None => None,
                };
            }
            Some(_) => {
                if let Some(r2t) = self.r2ts.front_mut() {
                    r2t.next_data_sn = r2t.next_data_sn.wrapping_add(1);
                    let is_complete = self.received >= r2t.end;
                    if is_complete || is_final {
                        self.r2ts.pop_front();
                    }
                    if is_complete != is_final {
                        self.fault.get_or_insert(DataFault::IncorrectAmount);
                    }
                }
            }
        }
    }

    /// What is next, given that the command is known.
    pub(super) fn progress(&self) -> Progress {
        match self.wanted {
            // What is there cannot be handed on while the buffer is away.
            Some(_) if self.is_lent => Progress::Waiting,
            // Nor while more of it is announced, though the command needs no more: the owner that has
            // the data must not learn afterwards that some of it was damaged.
            Some(_) if self.collected || self.unsolicited.is_some() => Progress::Waiting,
            Some(wanted) if self.received >= wanted => Progress::Complete,
            Some(wanted) if self.asked < wanted => Progress::AskMore,
            Some(_) | None => Progress::Waiting,
        }
    }

    /// Notes a burst that is asked for now, of at most `burst_max` bytes, and gives its place.
    pub(super) fn ask(&mut self, burst_max: u32, target_transfer_tag: u32) -> Option<(u32, u32)> {
        let wanted = self.wanted?;
        let start = self.asked.max(self.received);
        let length = wanted.saturating_sub(start).min(burst_max);
        if length == 0 {
            return None;
        }
        self.asked = start.saturating_add(length);
        self.r2ts.push_back(R2t {
            target_transfer_tag,
            end: self.asked,
            next_data_sn: 0,
        });
        Some((start, length))
    }

    /// Hands the data on, cut to what the command takes.
    #[inline]
    pub(super) fn collect(&mut self) -> Payload {
        self.collected = true;
        let wanted = self.wanted.unwrap_or(0) as usize;
        let mut data = std::mem::replace(&mut self.data, Payload::Empty);
        match &mut data {
            Payload::Pool(buffer) if buffer.len() > wanted => buffer.set_len(wanted),
            Payload::Received { len, .. } => *len = (*len).min(wanted),
            Payload::Heap(bytes) => bytes.truncate(wanted),
            Payload::Empty | Payload::Pool(_) | Payload::Mapped(_) => {}
        }
        data
    }

    /// Gives up on the data.
    #[inline]
    pub(super) fn drop_data(&mut self) {
        // Nearly always there is none, and the drop of a payload is a call.
        if !matches!(self.data, Payload::Empty) {
            self.data = Payload::Empty;
        }
        self.collected = true;
        self.r2ts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_out(unsolicited: bool) -> DataOut {
        let mut data = DataOut::new();
        data.reset(unsolicited, None, Duration::ZERO);
        data
    }

    #[test]
    fn both_forms_of_a_number_are_one_unit() {
        assert_eq!(unit_of(5 << 48), unit_of(0x4005 << 48));
        assert_ne!(unit_of(5 << 48), unit_of(0x4006 << 48));
        assert_ne!(unit_of(0x0105 << 48), unit_of(0x4105 << 48));
    }

    #[test]
    fn data_sn_offset_and_length_are_held_to_what_is_due() {
        let mut data = data_out(true);
        assert_eq!(data.check(None, 0, 0, 512, 1024), Ok(()));
        assert_eq!(
            data.check(None, 1, 0, 512, 1024),
            Err(Violation::DataSnOutOfOrder {
                got: 1,
                expected: 0
            })
        );
        assert_eq!(
            data.check(None, 0, 512, 512, 1024),
            Err(Violation::DataOutOfOrder {
                got: 512,
                expected: 0
            })
        );
        data.advance(None, 512, false);
        assert_eq!(data.check(None, 1, 512, 512, 1024), Ok(()));
        assert_eq!(
            data.check(None, 1, 512, 513, 1024),
            Err(Violation::BurstTooLong {
                got: 1025,
                limit: 1024
            })
        );
        data.advance(None, 512, true);
        assert!(!data.is_unsolicited_open());
    }

    #[test]
    fn bursts_follow_one_another_until_all_is_there() {
        let mut data = data_out(false);
        data.wanted = Some(2500);
        assert_eq!(data.progress(), Progress::AskMore);
        assert_eq!(data.ask(1000, 1), Some((0, 1000)));
        assert_eq!(data.ask(1000, 2), Some((1000, 1000)));
        data.advance(Some(1), 600, false);
        assert_eq!(data.check(Some(1), 1, 600, 400, 0), Ok(()));
        data.advance(Some(1), 400, true);
        assert_eq!(data.ask(1000, 3), Some((2000, 500)));
        assert_eq!(data.ask(1000, 4), None);
        assert_eq!(data.progress(), Progress::Waiting);
        data.advance(Some(2), 1000, true);
        data.advance(Some(3), 500, true);
        assert_eq!(data.progress(), Progress::Complete);
        assert_eq!(data.fault, None);
    }

    #[test]
    fn a_burst_that_ends_early_or_goes_on_too_long_is_a_fault() {
        for (length, is_final) in [(600, true), (1000, false)] {
            let mut data = data_out(false);
            data.wanted = Some(1000);
            data.ask(1000, 1);
            data.advance(Some(1), length, is_final);
            assert_eq!(
                data.fault,
                Some(DataFault::IncorrectAmount),
                "{length} {is_final}"
            );
        }
    }

    #[test]
    fn room_is_made_without_losing_what_came() {
        let pool = Pool::new(0).unwrap();
        let mut data = data_out(true);
        data.set_immediate(Payload::Heap(b"abc".to_vec()));
        data.ensure_room(6000, Need::Begin, &pool).unwrap();
        data.place(3, b"def");
        data.advance(None, 3, true);
        data.ensure_room(100_000, Need::GoOn, &pool).unwrap();
        data.wanted = Some(6);
        assert_eq!(data.collect().to_vec(), b"abcdef");
        assert!(data.is_dropping());
    }
}
