//! Data to the target: unsolicited, or asked for by R2T.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::time::Duration;

use memory::{Need, NoRoom, Payload, Pool};

use super::receive::Header;
use super::session::Session;
use super::task::{Phase, Progress, Task};
use super::{DataFault, Event, Incoming, TaskId, Verdict, Violation};
use crate::limits;
use crate::pdu::{Bhs, DataOutBhs, Opcode, R2tBhs, RESERVED_TAG, ScsiCommandBhs};

impl Session {
    pub(super) fn begin_data_out(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        pool: &Pool,
    ) -> Result<Incoming, Violation> {
        let bhs = DataOutBhs::view(header.bhs);
        let tag = bhs.initiator_task_tag.get();
        let transfer = transfer_tag(bhs);
        let unknown = Violation::DataOutForUnknownTask {
            initiator_task_tag: tag,
        };
        let Some(id) = self.find_tag(tag) else {
            // Data for a burst that was asked for before its task was aborted.
            let was_asked = transfer.is_some_and(|t| self.was_issued(t));
            return if was_asked {
                Ok(Incoming::Dropped)
            } else {
                Err(unknown)
            };
        };
        let first_burst = self.config.parameters.first_burst_length_bytes;
        let length = u32::try_from(header.data_bytes()).unwrap_or(u32::MAX);
        let was_asked = transfer.is_some_and(|t| self.was_issued(t));
        let Some(task) = self.task_mut(id) else {
            return Err(unknown);
        };
        if task.connection != connection {
            return Err(unknown);
        }
        if !task.data_out.is_open_for(transfer) {
            return if was_asked && task.data_out.is_dropping() {
                Ok(Incoming::Dropped)
            } else {
                Err(unknown)
            };
        }
        let limit = first_burst.min(task.write_length);
        let offset = bhs.buffer_offset.get();
        let check = check(task, bhs, transfer, length, limit);
        if task.data_out.is_dropping() {
            // What comes after the end, or after a fault, is only counted.
        } else if let Err(violation) = check {
            if let Verdict::FailTask(fault) = violation.verdict() {
                self.fail_data(id, fault);
            }
            self.dispose(connection, None, violation)?;
        } else {
            // The whole of it at once, so that unsolicited data is not copied from buffer to
            // buffer: up to what the command takes, or what may come unasked.
            let wanted = task.data_out.wanted.unwrap_or(limit);
            let room = wanted.max(offset.saturating_add(length));
            let is_held = task.phase == Phase::Held;
            if task
                .data_out
                .ensure_room(room, Need::Arrived, pool)
                .is_err()
            {
                self.fail_data(id, DataFault::NoMemory);
            } else if is_held {
                self.charge_held_data(id);
            }
        }
        Ok(Incoming::Data {
            task: id,
            offset: offset as usize,
            header: header.kept(),
        })
    }

    /// True when a tag like this was given out not too long ago.
    pub(super) const fn was_issued(&self, target_transfer_tag: u32) -> bool {
        let age = self.next_transfer.wrapping_sub(target_transfer_tag);
        age != 0 && age <= limits::TRANSFER_TAGS_REMEMBERED
    }

    pub(super) fn end_data(
        &mut self,
        connection: usize,
        id: TaskId,
        header: &Header<'_>,
        intact: bool,
        pool: &Pool,
    ) {
        let opcode = header.opcode_bits();
        if !intact {
            let violation = Violation::DataDigest { opcode };
            // Never drops the connection: see the table.
            let disposed = self.dispose(connection, Some(header), violation);
            debug_assert!(disposed.is_ok(), "{disposed:?}");
        }
        if opcode == Opcode::ScsiCommand.code() {
            if !intact {
                // The command is discarded as if it had never come.
                self.close_task(id);
                return;
            }
            let is_due = self.is_due(header);
            if let Some(task) = self.task_mut(id)
                && task.data_out.fault.is_none()
            {
                task.data_out.received = u32::try_from(header.data_bytes()).unwrap_or(u32::MAX);
            }
            // Another connection may have used the number up meanwhile.
            let bhs = ScsiCommandBhs::view(header.bhs);
            let outcome = match self.check_cmd_sn(bhs.cmd_sn(), bhs.is_immediate()) {
                Ok(_) => self.admit(connection, id, header, is_due),
                Err(violation) => {
                    self.close_task(id);
                    Err(violation)
                }
            };
            if let Err(violation) = outcome {
                let disposed = self.dispose(connection, Some(header), violation);
                debug_assert!(disposed.is_ok(), "{disposed:?}");
            }
            return;
        }
        let bhs = DataOutBhs::view(header.bhs);
        let length = u32::try_from(header.data_bytes()).unwrap_or(u32::MAX);
        let now = self.now;
        let Some(task) = self.task_mut(id) else {
            return;
        };
        task.data_out.note_progress(length, now);
        task.data_out
            .advance(transfer_tag(bhs), length, bhs.is_final());
        if task.phase == Phase::Draining {
            if !task.data_out.is_unsolicited_open() {
                self.close_task(id);
            }
            return;
        }
        let fault = if intact {
            task.data_out.fault
        } else {
            Some(DataFault::DigestError)
        };
        match fault {
            Some(fault) => self.fail_data(id, fault),
            None => self.continue_data(id, pool),
        }
    }

    /// Notes that a task's data will not be complete. The owner is notified once, and only of a task
    /// for which it has asked for data: any other may be at work in a store, and a command that
    /// takes no data ends as if none had come.
    pub(super) fn fail_data(&mut self, id: TaskId, fault: DataFault) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        if task.data_out.is_handed_on() {
            return;
        }
        task.data_out.fault.get_or_insert(fault);
        task.data_out.drop_data();
        let is_told = task.phase == Phase::Running
            && task.data_out.wanted.is_some()
            && !std::mem::replace(&mut task.data_out.is_fault_told, true);
        if is_told {
            self.events.push_back(Event::DataFault(id, fault));
        }
    }

    pub(super) fn continue_data(&mut self, id: TaskId, pool: &Pool) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        match task.data_out.progress() {
            Progress::Waiting => {}
            Progress::Complete => {
                let payload = task.data_out.collect();
                self.events.push_back(Event::DataOut(id, payload));
            }
            Progress::AskMore => {
                if let Err(why) = self.ask_for_data(id, pool) {
                    self.note_starving(id, why);
                    self.leave_chunk(id, pool);
                }
            }
        }
    }

    /// A task waits for room from now on.
    fn note_starving(&mut self, id: TaskId, why: NoRoom) {
        let now = self.now;
        if let Some(task) = self.task_mut(id) {
            task.data_out.last_progress = now;
        }
        self.starves_for = Some(why);
        self.starving.push_back(id);
    }

    /// When the task that waits for room longest has waited for long enough.
    pub(super) fn starving_deadline(&self) -> Option<Duration> {
        let first = self.tasks.get(self.starving.front()?.index as usize)?;
        let since = first.data_out.last_progress;
        Some(since.saturating_add(limits::DATA_ROOM_TIMEOUT))
    }

    /// Fails tasks that have waited for room for long enough.
    pub(super) fn fail_starving(&mut self) {
        while self.starving_deadline().is_some_and(|at| at <= self.now)
            && let Some(id) = self.starving.pop_front()
        {
            self.fail_data(id, DataFault::NoMemory);
        }
    }

    /// The command takes `length` bytes of Data-Out (more than the initiator will send is fine:
    /// it is counted as residual). Gives them at once if they are there; else
    /// [`Event::DataOut`] or [`Event::DataFault`] comes, perhaps before this returns.
    #[inline]
    pub fn request_data(&mut self, id: TaskId, length: u32, pool: &Pool) -> Option<Payload> {
        let task = self.task_mut(id)?;
        let wanted = length.min(task.write_length);
        task.data_out.wanted = Some(wanted);
        let progress = if wanted == 0 {
            Progress::Complete
        } else if let Some(fault) = task.data_out.fault {
            // It went wrong before anybody asked.
            self.fail_data(id, fault);
            return None;
        } else {
            task.data_out.progress()
        };
        match progress {
            Progress::Complete => Some(task.data_out.collect()),
            Progress::Waiting | Progress::AskMore => {
                self.continue_data(id, pool);
                None
            }
        }
    }

    /// A task waits for others: what came with its command must not keep a chunk from being received
    /// into. When there is no room for it elsewhere, [`Event::DataFault`] comes.
    pub fn leave_chunk(&mut self, id: TaskId, pool: &Pool) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        if task.data_out.leave_chunk(pool).is_err() {
            self.fail_data(id, DataFault::NoMemory);
        }
    }

    /// Sends as many R2Ts as may be outstanding, if there is memory for the data.
    pub(super) fn ask_for_data(&mut self, id: TaskId, pool: &Pool) -> Result<(), NoRoom> {
        let outstanding_max = usize::from(self.config.parameters.max_outstanding_r2t)
            .min(limits::R2T_OUTSTANDING_MAX);
        let burst_max = self.config.parameters.max_burst_length_bytes;
        loop {
            let transfer = self.next_transfer;
            let Some(task) = self.task_mut(id) else {
                return Ok(());
            };
            let Some(wanted) = task.data_out.wanted else {
                return Ok(());
            };
            if task.data_out.is_dropping() || task.data_out.r2ts.len() >= outstanding_max {
                return Ok(());
            }
            let now = self.now;
            let Some(task) = self.task_mut(id) else {
                return Ok(());
            };
            task.data_out.ensure_room(wanted, Need::Begin, pool)?;
            let Some((offset, length)) = task.data_out.ask(burst_max, transfer) else {
                return Ok(());
            };
            if task.data_out.r2t_sn == 0 {
                // Further bursts are asked for as soon as one is there, and do not restart what it is given.
                task.data_out.last_progress = now;
            }
            let mut r2t = R2tBhs::new();
            r2t.lun = task.lun.into();
            r2t.target_transfer_tag = transfer.into();
            r2t.r2t_sn = task.data_out.r2t_sn.into();
            r2t.buffer_offset = offset.into();
            r2t.desired_data_transfer_length = length.into();
            task.data_out.r2t_sn = task.data_out.r2t_sn.wrapping_add(1);
            let connection = task.connection;
            r2t.initiator_task_tag = self.tag_of(id).into();
            self.next_transfer = match transfer.wrapping_add(1) {
                RESERVED_TAG => 0,
                next => next,
            };
            let (exp, max) = self.window();
            if let Some(Some(state)) = self.connections.get_mut(connection) {
                // Carries the number of the next status without using it.
                r2t.stamp(state.transmitter.stat_sn, exp, max);
                state.transmitter.push(&r2t);
            }
        }
    }

    /// The Initiator Task Tag of a task that is not over.
    #[must_use]
    pub fn tag_of(&self, id: TaskId) -> u32 {
        self.tags.get(id.index)
    }
}

/// Checks a Data-Out against what is due to its task; see `DataOut::check`.
#[inline]
fn check(
    task: &Task,
    bhs: &DataOutBhs,
    transfer: Option<u32>,
    length: u32,
    limit: u32,
) -> Result<(), Violation> {
    let (sn, offset) = (bhs.data_sn.get(), bhs.buffer_offset.get());
    let (got, expected) = (bhs.lun.get(), task.lun);
    task.data_out.check(transfer, sn, offset, length, limit)?;
    // Without a transfer tag the field is reserved.
    if transfer.is_some() && got != expected {
        return Err(Violation::DataOutForOtherLun { got, expected });
    }
    Ok(())
}

/// The transfer a Data-Out belongs to; none for unsolicited data.
fn transfer_tag(bhs: &DataOutBhs) -> Option<u32> {
    let tag = bhs.target_transfer_tag.get();
    (tag != RESERVED_TAG).then_some(tag)
}
