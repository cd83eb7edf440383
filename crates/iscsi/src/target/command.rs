//! SCSI Command PDUs: from a header to a task that its owner knows.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;
use std::rc::Rc;

use memory::{BUFFER_BYTES_MAX, Buffer, Need, Payload, Pool};

use super::receive::Header;
use super::session::{Held, Session, Waiting};
use super::task::{NO_SERIAL, Phase, Task};
use super::{Command, DataFault, Event, Incoming, TaskId, Violation};
use crate::limits;
use crate::pdu::{AdditionalHeaders, Bhs, ScsiCommandBhs, TaskAttribute, flags};

impl Session {
    pub(super) fn handle_command(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        data: Option<(&Rc<Buffer>, Range<usize>)>,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let id = self.open_task(connection, header)?;
        let is_due = self.is_due(header);
        if let Some((chunk, range)) = data
            && !range.is_empty()
        {
            self.take_immediate(id, chunk, range, is_due, pool);
        }
        self.admit(connection, id, header, is_due)
    }

    pub(super) fn is_due(&self, header: &Header<'_>) -> bool {
        let bhs = ScsiCommandBhs::view(header.bhs);
        bhs.is_immediate() || bhs.cmd_sn() == self.exp_cmd_sn
    }

    /// Immediate data that lies whole in a chunk stays there, unless the command must wait for
    /// others: then it would keep the chunk from being received into.
    pub(super) fn take_immediate(
        &mut self,
        id: TaskId,
        chunk: &Rc<Buffer>,
        range: Range<usize>,
        is_due: bool,
        pool: &Pool,
    ) {
        let len = range.len();
        let Some(task) = self.task_mut(id) else {
            return;
        };
        if task.data_out.fault.is_some() {
            return;
        }
        let length = u32::try_from(len).unwrap_or(u32::MAX);
        if is_due && !task.data_out.is_unsolicited_open() {
            let payload = Payload::Received {
                chunk: Rc::clone(chunk),
                offset: range.start,
                len,
            };
            task.data_out.set_immediate(payload);
        } else if task
            .data_out
            .ensure_room(length, Need::Arrived, pool)
            .is_ok()
        {
            task.data_out.place(0, chunk.get(range).unwrap_or(&[]));
            task.data_out.received = length;
        } else {
            task.data_out.fault = Some(DataFault::NoMemory);
        }
    }

    pub(super) fn begin_command(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        pool: &Pool,
    ) -> Result<Incoming, Violation> {
        let id = self.open_task(connection, header)?;
        let len = header.data_bytes();
        // What must wait for its turn takes no more room than it needs.
        let room = if self.is_due(header) {
            self.room_for_all(id, len, pool)
        } else {
            u32::try_from(len).unwrap_or(u32::MAX)
        };
        if len > 0
            && let Some(task) = self.task_mut(id)
            && task.data_out.fault.is_none()
            && task
                .data_out
                .ensure_room(room, Need::Arrived, pool)
                .is_err()
        {
            task.data_out.fault = Some(DataFault::NoMemory);
        }
        Ok(Incoming::Data {
            task: id,
            offset: 0,
            header: header.kept(),
        })
    }

    /// How much room immediate data of `len` bytes is given: as much as the whole command
    /// announces, so that it needs not be copied when the rest comes, if the session's share of the
    /// pool allows it.
    fn room_for_all(&mut self, id: TaskId, len: usize, pool: &Pool) -> u32 {
        let announced = self
            .task_mut(id)
            .map_or(0, |task| task.write_length as usize);
        let is_fine = announced <= BUFFER_BYTES_MAX && pool.permit(Need::Begin, announced).is_ok();
        let room = if is_fine { len.max(announced) } else { len };
        u32::try_from(room).unwrap_or(u32::MAX)
    }

    /// Checks a SCSI Command PDU and makes its task, which nobody knows yet.
    pub(super) fn open_task(
        &mut self,
        connection: usize,
        header: &Header<'_>,
    ) -> Result<TaskId, Violation> {
        let bhs = ScsiCommandBhs::view(header.bhs);
        let opcode = header.opcode_bits();
        if self.config.is_discovery {
            return Err(Violation::NotInDiscovery { opcode });
        }
        let immediate = bhs.is_immediate();
        self.check_cmd_sn(bhs.cmd_sn(), immediate)?;
        let tag = bhs.itt();
        if tag.is_reserved() {
            return Err(Violation::InvalidField { opcode, byte: 16 });
        }
        if immediate && self.immediate >= limits::IMMEDIATE_COMMANDS_MAX {
            return Err(Violation::TooManyImmediate {
                limit: limits::IMMEDIATE_COMMANDS_MAX,
            });
        }
        let additional = if header.ahs.is_empty() {
            AdditionalHeaders::default()
        } else {
            AdditionalHeaders::parse(header.ahs).map_err(Violation::AdditionalHeaders)?
        };
        if let Some(old) = self.find_tag(tag.0) {
            self.take_tag(old, tag.0)?;
        }
        let expected = bhs.expected_data_transfer_length.get();
        let (write_length, read_length) = match (bhs.is_write(), bhs.is_read()) {
            (true, true) => (expected, additional.expected_read_length.unwrap_or(0)),
            (true, false) => (expected, 0),
            (false, true) => (0, expected),
            (false, false) => (0, 0),
        };
        let fault = self.immediate_fault(bhs, header.data_bytes(), write_length);
        let unsolicited = write_length > 0
            && flags::FINAL & bhs.flags == 0
            && !self.config.parameters.initial_r2t;
        let now = self.now;
        self.next_serial = self.next_serial.wrapping_add(1).max(1);
        let serial = self.next_serial;
        let index = self.vacant_place();
        self.tags.set(index, tag.0);
        if let Some(task) = self.tasks.get_mut(index as usize) {
            task.serial = serial;
            task.arrived = now;
            task.connection = connection;
            task.lun = bhs.lun.get();
            task.cmd_sn = bhs.cmd_sn.get();
            task.immediate = immediate;
            task.write_length = write_length;
            task.read_length = read_length;
            task.phase = Phase::Held;
            task.data_out.reset(unsolicited, fault, now);
        }
        Ok(TaskId { index, serial })
    }

    /// A new command has the tag of a task: one that has ended, and only drains, gives it up.
    #[cold]
    fn take_tag(&mut self, old: TaskId, initiator_task_tag: u32) -> Result<(), Violation> {
        let task = self.task_mut(old);
        if !task.is_some_and(|task| task.phase == Phase::Draining) {
            return Err(Violation::TaskTagInUse { initiator_task_tag });
        }
        self.close_task(old);
        Ok(())
    }

    /// Immediate data that was not negotiated fails the command, not the connection.
    pub(super) fn immediate_fault(
        &self,
        bhs: &ScsiCommandBhs,
        len: usize,
        write_length: u32,
    ) -> Option<DataFault> {
        let parameters = &self.config.parameters;
        if len == 0 && (flags::FINAL & bhs.flags != 0 || !bhs.is_write()) {
            return None;
        }
        let limit = parameters.first_burst_length_bytes.min(write_length) as usize;
        let is_allowed = if len > 0 {
            parameters.immediate_data && len <= limit
        } else {
            true
        };
        let more_announced = flags::FINAL & bhs.flags == 0;
        if !is_allowed || (more_announced && parameters.initial_r2t) {
            return Some(DataFault::UnexpectedUnsolicited);
        }
        None
    }

    /// A place in the table of tasks that no tag has.
    fn vacant_place(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return index;
        }
        self.tasks.push(Task::new());
        u32::try_from(self.tasks.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The task that a peer calls so. The reserved tag is what free places have: they are no tasks.
    #[inline]
    pub(super) fn find_tag(&self, tag: u32) -> Option<TaskId> {
        let index = self.tags.find(tag)?;
        let serial = self.tasks.get(index as usize)?.serial;
        (serial != NO_SERIAL).then_some(TaskId { index, serial })
    }

    #[inline]
    pub(super) fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        debug_assert_ne!(id.serial, NO_SERIAL, "nobody is given such a task");
        self.tasks
            .get_mut(id.index as usize)
            .filter(|task| task.serial == id.serial)
    }

    /// Frees the place of a task.
    pub(super) fn close_task(&mut self, id: TaskId) {
        if let Some(task) = self.task_mut(id) {
            task.data_out.drop_data();
            task.serial = NO_SERIAL;
            self.free_place(id.index);
        }
    }

    /// Frees the place of a task that is over: its data was handed on or dropped, and it has no serial any more. Gives
    /// the tag that it had.
    #[inline]
    pub(super) fn free_place(&mut self, index: u32) -> u32 {
        self.free.push(index);
        self.tags.take(index)
    }

    /// A command is there with its immediate data: now, or when its turn comes, it is delivered.
    #[inline]
    pub(super) fn admit(
        &mut self,
        connection: usize,
        id: TaskId,
        header: &Header<'_>,
        is_due: bool,
    ) -> Result<(), Violation> {
        if !is_due {
            self.hold_command(connection, id, header);
            return Ok(());
        }
        self.deliver(id, header)?;
        if !self.held.is_empty() || !self.held_management.is_empty() {
            self.release_held();
        }
        Ok(())
    }

    /// A command waits for its turn. Without room for itself or its data it will end with TASK SET FULL then;
    /// until then it keeps its place in the window, of which there are as many as the queue is deep.
    fn hold_command(&mut self, connection: usize, task: TaskId, header: &Header<'_>) {
        let (kept, charge) = match self.account.charge(header.header_bytes()) {
            Ok(charge) => (header.kept(), charge),
            Err(_) => {
                self.fail_data(task, DataFault::NoMemory);
                let bare = Header {
                    ahs: &[],
                    ..*header
                };
                (bare.kept(), self.account.charge_nothing())
            }
        };
        self.hold(Held {
            cmd_sn: header.common().cmd_sn(),
            connection,
            what: Waiting::Command {
                task,
                header: kept,
                charge,
            },
        });
        self.charge_held_data(task);
    }

    /// Pays for the data of a command that waits for its turn. If it cannot, the data is dropped.
    pub(super) fn charge_held_data(&mut self, id: TaskId) {
        let Some(task) = self.task_mut(id) else {
            return;
        };
        let data_bytes = task.data_out.held_bytes();
        let charge = self.held.iter_mut().find_map(|held| match &mut held.what {
            Waiting::Command {
                task,
                header,
                charge,
            } if *task == id => Some((header.view().header_bytes(), charge)),
            Waiting::Command { .. } | Waiting::Request { .. } | Waiting::Aborted => None,
        });
        if let Some((header_bytes, charge)) = charge
            && charge
                .resize(header_bytes.saturating_add(data_bytes))
                .is_err()
        {
            self.fail_data(id, DataFault::NoMemory);
        }
    }

    /// A command has its turn. Its number counts also when it was aborted meanwhile.
    pub(super) fn deliver(&mut self, id: TaskId, header: &Header<'_>) -> Result<(), Violation> {
        if !ScsiCommandBhs::view(header.bhs).is_immediate() {
            self.exp_cmd_sn = self.exp_cmd_sn.next();
        }
        let outcome = self.give_out(id, header);
        // Not before: the command itself takes a place in the window.
        self.open_window();
        outcome
    }

    fn give_out(&mut self, id: TaskId, header: &Header<'_>) -> Result<(), Violation> {
        let bhs = ScsiCommandBhs::view(header.bhs);
        let Some(task) = self.task_mut(id) else {
            return Ok(());
        };
        task.phase = Phase::Running;
        let (immediate, fault) = (task.immediate, task.data_out.fault);
        task.data_out.is_fault_told = fault.is_some();
        let (data_out_length, data_in_length) = (task.write_length, task.read_length);
        if immediate {
            self.immediate = self.immediate.saturating_add(1);
        } else {
            self.running = self.running.saturating_add(1);
        }
        if let Some(fault) = fault {
            self.events.push_back(Event::DataFault(id, fault));
            return Ok(());
        }
        let extended_cdb = if header.ahs.is_empty() {
            Vec::new()
        } else {
            AdditionalHeaders::parse(header.ahs)
                .map_err(Violation::AdditionalHeaders)?
                .extended_cdb
                .to_vec()
        };
        let attribute = TaskAttribute::from_code(bhs.flags & flags::ATTRIBUTE_MASK);
        self.events.push_back(Event::Command(
            id,
            Command {
                lun: bhs.lun.get(),
                cdb: bhs.cdb,
                extended_cdb,
                attribute,
                data_out_length,
                data_in_length,
            },
        ));
        Ok(())
    }
}
