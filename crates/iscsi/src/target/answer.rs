//! Outcomes of tasks: Data-In, status, sense, residual.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use memory::Payload;

use super::session::Session;
use super::task::{NO_SERIAL, Phase};
use super::transmit::{COPY_MAX_BYTES, Segment, Transmitter};
use super::{Response, TaskId};
use crate::SerialNumber;
use crate::limits;
use crate::pdu::{DataInBhs, IscsiResponse, RESERVED_TAG, ScsiResponseBhs, flags};

impl Session {
    /// Answers a task: Data-In, status, sense and residual.
    ///
    /// Data that others may write ([`Payload::Mapped`]) must not be given when
    /// [`Session::needs_stable_data`] is true for the task.
    ///
    /// Gives the connection that has something to send now.
    #[inline]
    pub fn respond(&mut self, id: TaskId, response: Response<'_>) -> Option<usize> {
        let Ended {
            connection,
            lun,
            tag,
            write_length,
            read_length,
        } = self.end_task(id)?;
        let is_bidirectional = write_length > 0 && read_length > 0;
        let expected = if write_length > 0 {
            write_length
        } else {
            read_length
        };
        let residual = Residual::of(response.transfer_length, u64::from(expected));
        self.open_window();
        let (exp, max) = self.window();
        let transmitter = &mut self.connections.get_mut(connection)?.as_mut()?.transmitter;
        let data_length = response.data.len();
        let length = data_length.min(read_length as usize);
        let burst_max = self.config.parameters.max_burst_length_bytes as usize;
        // Data-In has no fields for the second residual of a bidirectional command.
        let with_status =
            response.status == 0 && response.sense.is_empty() && length > 0 && !is_bidirectional;
        let mut data_sn: u32 = 0;
        if length > 0 {
            let mut sending = DataIn {
                transmitter: &mut *transmitter,
                lun,
                initiator_task_tag: tag,
                data_sn: 0,
                exp,
                max,
            };
            let last = with_status.then_some((response.status, residual));
            sending.send(response.data, length, burst_max, last);
            data_sn = sending.data_sn;
        }
        if with_status {
            return Some(connection);
        }
        let stat_sn = transmitter.next_stat_sn();
        let fill = |header: &mut ScsiResponseBhs| {
            header.flags |= residual.flags();
            if is_bidirectional {
                let read_residual = Residual::of(data_length as u64, u64::from(read_length));
                header.flags |= read_residual.read_flags();
                header.bidirectional_read_residual_count = read_residual.count.into();
            }
            header.response = IscsiResponse::CommandCompleted.code();
            header.status = response.status;
            header.initiator_task_tag = tag.into();
            header.exp_data_sn = data_sn.into();
            header.residual_count = residual.count.into();
            header.stamp(stat_sn, exp, max);
        };
        if response.sense.is_empty() {
            transmitter.push_filled(fill);
            return Some(connection);
        }
        // Spec: RFC 7143 section 11.4.7.2; the length comes before the sense data.
        let mut segment = Vec::with_capacity(response.sense.len().saturating_add(2));
        let length = u16::try_from(response.sense.len()).unwrap_or(u16::MAX);
        segment.extend_from_slice(&length.to_be_bytes());
        segment.extend_from_slice(response.sense);
        transmitter.push_filled_with_data(Segment::Bytes(&segment), fill);
        Some(connection)
    }

    /// True when data for this task is digested, so that it must not change under way.
    #[must_use]
    #[inline]
    pub fn needs_stable_data(&self, id: TaskId) -> bool {
        self.has_data_digests && self.is_digested(id)
    }

    fn is_digested(&self, id: TaskId) -> bool {
        let connection = self
            .tasks
            .get(id.index as usize)
            .map(|task| task.connection);
        connection
            .and_then(|index| self.connections.get(index))
            .and_then(Option::as_ref)
            .is_some_and(|state| state.transmitter.data_digest())
    }

    /// Ends a task without an answer: it was aborted, or its connection is gone. Something may be to be sent then.
    pub fn abandon(&mut self, id: TaskId) {
        self.end_task(id);
        self.open_and_notify();
    }

    /// Ends a task that its owner knows; `None` for any other.
    fn end_task(&mut self, id: TaskId) -> Option<Ended> {
        if !self.starving.is_empty() {
            self.starving.retain(|other| *other != id);
        }
        let task = self
            .task_mut(id)
            .filter(|task| task.phase == Phase::Running)?;
        let mut ended = Ended {
            connection: task.connection,
            lun: task.lun,
            tag: RESERVED_TAG,
            write_length: task.write_length,
            read_length: task.read_length,
        };
        task.phase = Phase::Draining;
        task.data_out.drop_data();
        let (immediate, unsolicited) = (task.immediate, task.data_out.is_unsolicited_open());
        if !unsolicited {
            task.serial = NO_SERIAL;
        }
        if immediate {
            self.immediate = self.immediate.saturating_sub(1);
        } else {
            self.running = self.running.saturating_sub(1);
        }
        ended.tag = if unsolicited {
            self.drain(id)
        } else {
            self.free_place(id.index)
        };
        Some(ended)
    }

    /// A task has ended while data was owed to it. Gives its tag.
    fn drain(&mut self, id: TaskId) -> u32 {
        let tag = self.tag_of(id);
        self.draining.push_back(id);
        if self.draining.len() > limits::DRAINING_TASKS_MAX
            && let Some(oldest) = self.draining.pop_front()
        {
            self.close_task(oldest);
        }
        tag
    }
}

/// What the answer of a task that has ended needs.
#[derive(Clone, Copy, Debug)]
struct Ended {
    connection: usize,
    lun: u64,
    tag: u32,
    write_length: u32,
    read_length: u32,
}

/// How much more or less than expected a command moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Residual {
    overflow: bool,
    count: u32,
}

impl Residual {
    pub(super) fn of(moved: u64, expected: u64) -> Self {
        let count = u32::try_from(moved.abs_diff(expected)).unwrap_or(u32::MAX);
        Self {
            overflow: moved > expected,
            count,
        }
    }

    pub(super) const fn flags(self) -> u8 {
        match (self.count, self.overflow) {
            (0, _) => 0,
            (_, true) => flags::RESIDUAL_OVERFLOW,
            (_, false) => flags::RESIDUAL_UNDERFLOW,
        }
    }

    /// For the read part of a bidirectional command.
    const fn read_flags(self) -> u8 {
        match (self.count, self.overflow) {
            (0, _) => 0,
            (_, true) => flags::BIDIRECTIONAL_READ_OVERFLOW,
            (_, false) => flags::BIDIRECTIONAL_READ_UNDERFLOW,
        }
    }
}

/// A read on its way out.
struct DataIn<'a> {
    transmitter: &'a mut Transmitter,
    lun: u64,
    initiator_task_tag: u32,
    data_sn: u32,
    exp: SerialNumber,
    max: SerialNumber,
}

impl DataIn<'_> {
    /// Sends `length` bytes as Data-In PDUs; the last one carries the status if `last` says so.
    #[inline]
    pub(super) fn send(
        &mut self,
        data: Payload,
        length: usize,
        burst_max: usize,
        last: Option<(u8, Residual)>,
    ) {
        let in_one_pdu = self.transmitter.data_segment_max_bytes.min(burst_max);
        if length <= COPY_MAX_BYTES.min(in_one_pdu) {
            let segment = Segment::Copy {
                payload: &data,
                len: length,
            };
            self.push(segment, 0, true, last);
            return;
        }
        let index = self.transmitter.keep(data);
        let mut offset: usize = 0;
        let mut burst_left = burst_max;
        while offset < length {
            let left = length.saturating_sub(offset);
            let len = left
                .min(self.transmitter.data_segment_max_bytes)
                .min(burst_left);
            burst_left = burst_left.saturating_sub(len);
            let is_last = len == left;
            let segment = Segment::Part {
                index,
                start: offset,
                len,
            };
            let is_final = is_last || burst_left == 0;
            self.push(segment, offset, is_final, last.filter(|_| is_last));
            offset = offset.saturating_add(len);
            if burst_left == 0 {
                burst_left = burst_max;
            }
        }
    }

    #[inline]
    fn push(
        &mut self,
        segment: Segment<'_>,
        offset: usize,
        is_final: bool,
        last: Option<(u8, Residual)>,
    ) {
        let data_sn = self.data_sn;
        self.data_sn = data_sn.wrapping_add(1);
        let stat_sn = match last {
            Some(_) => self.transmitter.next_stat_sn(),
            // Reserved without status; zero by convention.
            None => SerialNumber(0),
        };
        let (exp, max) = (self.exp, self.max);
        let (lun, tag) = (self.lun, self.initiator_task_tag);
        let fill = |header: &mut DataInBhs| {
            header.lun = lun.into();
            header.initiator_task_tag = tag.into();
            header.target_transfer_tag = RESERVED_TAG.into();
            header.data_sn = data_sn.into();
            header.buffer_offset = u32::try_from(offset).unwrap_or(u32::MAX).into();
            if is_final {
                header.flags |= flags::FINAL;
            }
            if let Some((status, residual)) = last {
                header.flags |= flags::STATUS | residual.flags();
                header.status = status;
                header.residual_count = residual.count.into();
            }
            header.stamp(stat_sn, exp, max);
        };
        self.transmitter.push_filled_with_data(segment, fill);
    }
}
