//! One session: the order of commands, its connections, its tasks.
//!
//! Bytes go in per connection ([`Session::handle_chunk`]), events come out
//! ([`Session::poll_event`]), messages to send are taken per connection
//! ([`Session::take_message`]). The owner answers each [`Event::Command`] once, by
//! [`Session::respond`] or [`Session::abandon`].

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::panic)]

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use memory::{Buffer, Message, Payload, Pool};

use super::receive::{Header, Received, Receiver};
use super::task::{DataOut, Phase, Progress, Task};
use super::transmit::{COPY_MAX_BYTES, Segment, Transmitter};
use super::{
    Command, ConnectionConfig, DataFault, Event, Incoming, LogoutEvent, ManagementEvent,
    ManagementId, Receive, Response, SessionConfig, TaskId, Verdict, Violation,
};
use crate::SerialNumber;
use crate::discovery::TextReply;
use crate::limits;
use crate::pdu::{
    AdditionalHeaders, AsyncEvent, AsyncMessageBhs, Bhs, Cid, DataInBhs, DataOutBhs, IscsiResponse,
    LogoutReason, LogoutRequestBhs, LogoutResponseBhs, LogoutResponseCode, NopInBhs, NopOutBhs,
    Opcode, R2tBhs, RESERVED_TAG, RejectBhs, RejectReason, ScsiCommandBhs, ScsiResponseBhs,
    TaskAttribute, TaskManagementFunction, TaskManagementRequestBhs, TaskManagementResponse,
    TaskManagementResponseBhs, TextRequestBhs, TextResponseBhs, flags,
};

/// Receives that would take less than this straight into a buffer are not worth an operation of
/// their own.
const EXACT_MIN_BYTES: usize = 16 * 1024;

/// A connection of a session.
#[derive(Debug)]
struct Connection {
    cid: Cid,
    receiver: Receiver,
    transmitter: Transmitter,
    incoming: Option<Incoming>,
    text: crate::discovery::TextExchange,
    last_received: Duration,
    /// The tag of the ping that waits for its answer, and since when.
    ping: Option<(u32, Duration)>,
}

/// A request that came before its turn.
#[derive(Debug)]
struct Held {
    cmd_sn: SerialNumber,
    connection: usize,
    header: Header,
    data: Vec<u8>,
    task: Option<TaskId>,
}

/// The target's side of a session in full-feature phase.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    connections: Vec<Option<Connection>>,
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    /// How many commands may be under way, at most; lowered while memory is short.
    queue_limit: u32,
    /// In the order of CmdSN.
    held: VecDeque<Held>,
    /// Task management requests that act on commands which have not all arrived.
    held_management: Vec<ManagementEvent>,
    tasks: Vec<Task>,
    /// Initiator task tag of each place in `tasks`, [`RESERVED_TAG`] where none is.
    tags: Vec<u32>,
    free: Vec<u32>,
    running: u32,
    immediate: usize,
    next_serial: u32,
    next_transfer: u32,
    /// Tasks that wait for a buffer before they ask for their data.
    starving: VecDeque<TaskId>,
    events: VecDeque<Event>,
}

impl Session {
    /// A session that has just entered full-feature phase and has no connection yet.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        let exp_cmd_sn = config.exp_cmd_sn;
        let queue_limit = config.queue_depth;
        let max_cmd_sn = exp_cmd_sn.plus(queue_limit).previous();
        Self {
            config,
            connections: Vec::new(),
            exp_cmd_sn,
            max_cmd_sn,
            queue_limit,
            held: VecDeque::new(),
            held_management: Vec::new(),
            tasks: Vec::new(),
            tags: Vec::new(),
            free: Vec::new(),
            running: 0,
            immediate: 0,
            next_serial: 0,
            next_transfer: 0,
            starving: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// What the session was made with.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// ExpCmdSN and MaxCmdSN, as a Login Response to a joining connection carries them.
    #[must_use]
    pub const fn window(&self) -> (SerialNumber, SerialNumber) {
        (self.exp_cmd_sn, self.max_cmd_sn)
    }

    /// Takes in a connection that has finished its login and gives its index in this session.
    pub fn add_connection(&mut self, config: &ConnectionConfig, now: Duration) -> usize {
        let parameters = &config.parameters;
        let connection = Connection {
            cid: config.cid,
            receiver: Receiver::new(
                parameters.header_digest,
                parameters.data_digest,
                parameters.local_max_recv_data_segment_length as usize,
            ),
            transmitter: Transmitter::new(
                parameters.header_digest,
                parameters.data_digest,
                parameters.remote_max_recv_data_segment_length as usize,
                config.stat_sn,
            ),
            incoming: None,
            text: crate::discovery::TextExchange::new(),
            last_received: now,
            ping: None,
        };
        let place = self.connections.iter().position(Option::is_none);
        let index = place.unwrap_or(self.connections.len());
        match self.connections.get_mut(index) {
            Some(slot) => *slot = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        index
    }

    /// The connection with this CID.
    #[must_use]
    pub fn connection_by_cid(&self, cid: Cid) -> Option<usize> {
        self.connections.iter().position(|slot| slot.as_ref().is_some_and(|c| c.cid == cid))
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// Forgets a connection whose socket is closed. Its tasks are to be ended by the owner first
    /// ([`Session::tasks_of_connection`]).
    pub fn remove_connection(&mut self, connection: usize) {
        if let Some(slot) = self.connections.get_mut(connection) {
            *slot = None;
        }
        self.held.retain(|held| held.connection != connection);
    }

    /// The tasks whose outcome the owner owes.
    #[must_use]
    pub fn tasks(&self) -> Vec<TaskId> {
        self.task_ids(|task| task.phase == Phase::Running)
    }

    /// Those of one connection.
    #[must_use]
    pub fn tasks_of_connection(&self, connection: usize) -> Vec<TaskId> {
        self.task_ids(|task| task.phase == Phase::Running && task.connection == connection)
    }

    /// Those for one logical unit that a task management function with this CmdSN acts on.
    #[must_use]
    pub fn tasks_of_unit(&self, lun: u64, before: Option<SerialNumber>) -> Vec<TaskId> {
        self.task_ids(|task| {
            task.phase == Phase::Running
                && task.lun == lun
                && before.is_none_or(|end| SerialNumber(task.cmd_sn).is_before(end))
        })
    }

    fn task_ids(&self, wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        let places = (0u32..).zip(self.tasks.iter().zip(&self.tags));
        places
            .filter(|(_, (task, tag))| **tag != RESERVED_TAG && wanted(task))
            .map(|(index, (task, _))| TaskId { index, serial: task.serial })
            .collect()
    }

    /// True when nothing but draining data is left of the session's work.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.immediate == 0
    }

    /// How many commands the session may have under way; at least one. The window shrinks as
    /// answers go out, never by moving MaxCmdSN back.
    pub fn set_queue_limit(&mut self, commands: u32) {
        self.queue_limit = commands.clamp(1, self.config.queue_depth);
        self.open_window();
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes that arrived on a connection: `chunk` holds nothing else.
    ///
    /// An error means that the connection is to be closed.
    pub fn handle_chunk(
        &mut self,
        connection: usize,
        chunk: &Rc<Buffer>,
        pool: &Pool,
        now: Duration,
    ) -> Result<(), Violation> {
        let mut at = 0;
        loop {
            let Some(Some(state)) = self.connections.get_mut(connection) else { return Ok(()) };
            state.last_received = now;
            let outcome = match state.receiver.next(chunk, &mut at)? {
                Received::Starved => return Ok(()),
                Received::Whole { header, data, intact } => {
                    self.handle_whole(connection, &header, chunk, data, intact, pool)
                }
                Received::Begin { header } => {
                    let begun = self.begin(connection, header, pool);
                    begun.map(|incoming| self.set_incoming(connection, Some(incoming)))
                }
                Received::Piece(range) => {
                    self.handle_piece(connection, chunk.get(range).unwrap_or(&[]));
                    Ok(())
                }
                Received::End { intact } => self.handle_end(connection, intact, pool),
            };
            if let Err(violation) = outcome {
                self.dispose(connection, None, violation)?;
            }
        }
    }

    /// How the next bytes of a connection are best received.
    pub fn poll_receive(&mut self, connection: usize) -> Receive {
        let Some(Some(state)) = self.connections.get_mut(connection) else { return Receive::Chunk };
        let left = state.receiver.data_left();
        if left < EXACT_MIN_BYTES {
            return Receive::Chunk;
        }
        let Some(Incoming::Data { task, offset, .. }) = state.incoming else {
            return Receive::Chunk;
        };
        let lent = self.task_mut(task).and_then(|task| task.data_out.lend());
        match lent {
            Some(buffer) if offset.saturating_add(left) <= buffer.len() => {
                Receive::Exact { buffer, range: offset..offset.saturating_add(left) }
            }
            Some(buffer) => {
                if let Some(task) = self.task_mut(task) {
                    task.data_out.give_back(buffer);
                }
                Receive::Chunk
            }
            None => Receive::Chunk,
        }
    }

    /// The buffer of [`Receive::Exact`] comes back with `received` bytes in its range.
    pub fn handle_exact(
        &mut self,
        connection: usize,
        buffer: Buffer,
        received: usize,
        now: Duration,
    ) {
        let Some(Some(state)) = self.connections.get_mut(connection) else { return };
        state.last_received = now;
        let Some(Incoming::Data { task, offset, .. }) = &mut state.incoming else { return };
        let end = offset.saturating_add(received);
        state.receiver.take_direct(buffer.get(*offset..end).unwrap_or(&[]));
        *offset = end;
        let task = *task;
        if let Some(task) = self.task_mut(task)
            && !task.data_out.is_dropping()
        {
            task.data_out.give_back(buffer);
        }
    }

    /// Tries again what waited for memory. Call it when buffers came back to the pool.
    pub fn handle_memory(&mut self, pool: &Pool) {
        for _ in 0..self.starving.len() {
            let Some(id) = self.starving.pop_front() else { return };
            if !self.ask_for_data(id, pool) {
                self.starving.push_front(id);
                return;
            }
        }
    }

    /// True while some task waits for [`Session::handle_memory`].
    #[must_use]
    pub fn is_starving(&self) -> bool {
        !self.starving.is_empty()
    }

    fn set_incoming(&mut self, connection: usize, incoming: Option<Incoming>) {
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.incoming = incoming;
        }
    }

    /// Does what the table of violations says. The offending header, if there is one, goes back
    /// in the Reject.
    fn dispose(
        &mut self,
        connection: usize,
        header: Option<&Header>,
        violation: Violation,
    ) -> Result<(), Violation> {
        self.events.push_back(Event::Violation { connection, violation });
        match violation.verdict() {
            Verdict::Ignore => Ok(()),
            Verdict::Reject(reason) => {
                self.reject(connection, header, reason);
                Ok(())
            }
            Verdict::DropConnection => Err(violation),
        }
    }

    fn handle_whole(
        &mut self,
        connection: usize,
        header: &Header,
        chunk: &Rc<Buffer>,
        data: std::ops::Range<usize>,
        intact: bool,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let is_plain = header.opcode_bits() == Opcode::ScsiCommand.code() && intact;
        let outcome = if is_plain {
            self.handle_command(connection, header, Some((chunk, data)), pool)
        } else {
            let begun = self.begin(connection, header.clone(), pool)?;
            self.set_incoming(connection, Some(begun));
            self.handle_piece(connection, chunk.get(data).unwrap_or(&[]));
            self.handle_end(connection, intact, pool)
        };
        outcome.or_else(|violation| self.dispose(connection, Some(header), violation))
    }

    /// A header is there and its data is to come: where the data goes.
    fn begin(
        &mut self,
        connection: usize,
        header: Header,
        pool: &Pool,
    ) -> Result<Incoming, Violation> {
        let begun = match Opcode::from_code(header.opcode_bits()) {
            Some(Opcode::ScsiCommand) => self.begin_command(connection, &header, pool),
            Some(Opcode::DataOut) => self.begin_data_out(connection, &header, pool),
            Some(
                Opcode::NopOut
                | Opcode::TextRequest
                | Opcode::TaskManagementRequest
                | Opcode::LogoutRequest
                | Opcode::Snack,
            ) => Ok(Incoming::Request { header: header.clone(), data: Vec::new() }),
            Some(
                Opcode::LoginRequest
                | Opcode::NopIn
                | Opcode::ScsiResponse
                | Opcode::TaskManagementResponse
                | Opcode::LoginResponse
                | Opcode::TextResponse
                | Opcode::DataIn
                | Opcode::LogoutResponse
                | Opcode::R2t
                | Opcode::AsyncMessage
                | Opcode::Reject,
            )
            | None => Err(Violation::OpcodeNotSupported { opcode: header.opcode_bits() }),
        };
        // A PDU that is refused still has a data segment, which must be passed over.
        begun.or_else(|violation| {
            self.dispose(connection, Some(&header), violation)?;
            Ok(Incoming::Dropped)
        })
    }

    fn handle_piece(&mut self, connection: usize, bytes: &[u8]) {
        let Some(Some(state)) = self.connections.get_mut(connection) else { return };
        match &mut state.incoming {
            Some(Incoming::Request { data, .. }) => data.extend_from_slice(bytes),
            Some(Incoming::Data { task, offset, .. }) => {
                let (task, start) = (*task, *offset);
                *offset = start.saturating_add(bytes.len());
                if let Some(task) = self.task_mut(task)
                    && !task.data_out.is_dropping()
                {
                    task.data_out.place(start, bytes);
                }
            }
            Some(Incoming::Dropped) | None => {}
        }
    }

    fn handle_end(
        &mut self,
        connection: usize,
        intact: bool,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let Some(Some(state)) = self.connections.get_mut(connection) else { return Ok(()) };
        match state.incoming.take() {
            Some(Incoming::Request { header, data }) => {
                let outcome = if intact {
                    self.handle_request(connection, &header, data, pool)
                } else {
                    Err(Violation::DataDigest { opcode: header.opcode_bits() })
                };
                outcome.or_else(|violation| self.dispose(connection, Some(&header), violation))
            }
            Some(Incoming::Data { task, header, .. }) => {
                self.end_data(connection, task, &header, intact, pool);
                Ok(())
            }
            Some(Incoming::Dropped) | None => Ok(()),
        }
    }

    // ---- order of commands -------------------------------------------------------------------

    /// Whether a numbered request may come in now. `Ok(true)`: it is its turn.
    fn check_cmd_sn(&self, cmd_sn: SerialNumber, immediate: bool) -> Result<bool, Violation> {
        if immediate {
            return Ok(true);
        }
        if !cmd_sn.is_within(self.exp_cmd_sn, self.max_cmd_sn) {
            return Err(Violation::CmdSnOutsideWindow {
                got: cmd_sn.0,
                first: self.exp_cmd_sn.0,
                last: self.max_cmd_sn.0,
            });
        }
        if self.held.iter().any(|held| held.cmd_sn == cmd_sn) {
            return Err(Violation::CmdSnRepeated { got: cmd_sn.0 });
        }
        Ok(cmd_sn == self.exp_cmd_sn)
    }

    /// A numbered request has had its turn.
    fn count_cmd_sn(&mut self, immediate: bool) {
        if !immediate {
            self.exp_cmd_sn = self.exp_cmd_sn.next();
            self.open_window();
        }
    }

    fn open_window(&mut self) {
        let room = self.queue_limit.saturating_sub(self.running);
        let last = self.exp_cmd_sn.plus(room).previous();
        if self.max_cmd_sn.is_before(last) {
            self.max_cmd_sn = last;
        }
    }

    fn hold(&mut self, held: Held) {
        let place = self.held.partition_point(|other| other.cmd_sn.is_before(held.cmd_sn));
        self.held.insert(place, held);
    }

    /// Gives out what waited for the number that is due now.
    fn release_held(&mut self, pool: &Pool) {
        while self.held.front().is_some_and(|held| held.cmd_sn == self.exp_cmd_sn) {
            let Some(held) = self.held.pop_front() else { return };
            let outcome = match held.task {
                Some(task) => {
                    self.count_cmd_sn(false);
                    self.deliver(task, &held.header)
                }
                None => self.handle_request(held.connection, &held.header, held.data, pool),
            };
            if let Err(violation) = outcome {
                // A held request cannot break the stream any more: what could was checked before.
                let disposed = self.dispose(held.connection, Some(&held.header), violation);
                debug_assert!(disposed.is_ok(), "{disposed:?}");
            }
        }
        if !self.held_management.is_empty() {
            let due = |event: &ManagementEvent| !self.exp_cmd_sn.is_before(event.cmd_sn);
            let (ready, waiting) =
                std::mem::take(&mut self.held_management).into_iter().partition(due);
            self.held_management = waiting;
            self.events.extend(
                Vec::<ManagementEvent>::from_iter(Vec::into_iter(ready))
                    .into_iter()
                    .map(Event::TaskManagement),
            );
        }
    }

    // ---- SCSI commands -----------------------------------------------------------------------

    fn handle_command(
        &mut self,
        connection: usize,
        header: &Header,
        data: Option<(&Rc<Buffer>, std::ops::Range<usize>)>,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let id = self.open_task(connection, header)?;
        let is_due = self.is_due(header);
        if let Some((chunk, range)) = data
            && !range.is_empty()
        {
            self.take_immediate(id, chunk, range, is_due, pool);
        }
        self.admit(connection, id, header, is_due, pool)
    }

    fn is_due(&self, header: &Header) -> bool {
        let bhs = ScsiCommandBhs::view(&header.bhs);
        bhs.is_immediate() || bhs.cmd_sn() == self.exp_cmd_sn
    }

    /// Immediate data that lies whole in a chunk stays there, unless the command must wait for
    /// others: then it would keep the chunk from being received into.
    fn take_immediate(
        &mut self,
        id: TaskId,
        chunk: &Rc<Buffer>,
        range: std::ops::Range<usize>,
        is_due: bool,
        pool: &Pool,
    ) {
        let len = range.len();
        let Some(task) = self.task_mut(id) else { return };
        if task.data_out.fault.is_some() {
            return;
        }
        let length = u32::try_from(len).unwrap_or(u32::MAX);
        if is_due && !task.data_out.is_unsolicited_open() {
            let payload =
                Payload::Received { chunk: Rc::clone(chunk), offset: range.start, len };
            task.data_out.set_immediate(payload);
        } else if task.data_out.ensure_room(length, pool).is_ok() {
            task.data_out.place(0, chunk.get(range).unwrap_or(&[]));
            task.data_out.received = length;
        } else {
            task.data_out.fault = Some(DataFault::NoMemory);
        }
    }

    fn begin_command(
        &mut self,
        connection: usize,
        header: &Header,
        pool: &Pool,
    ) -> Result<Incoming, Violation> {
        let id = self.open_task(connection, header)?;
        let len = header.data_bytes();
        if len > 0
            && let Some(task) = self.task_mut(id)
            && task.data_out.fault.is_none()
            && task.data_out.ensure_room(u32::try_from(len).unwrap_or(u32::MAX), pool).is_err()
        {
            task.data_out.fault = Some(DataFault::NoMemory);
        }
        Ok(Incoming::Data { task: id, offset: 0, header: header.clone() })
    }

    /// Checks a SCSI Command PDU and makes its task, which nobody knows yet.
    fn open_task(&mut self, connection: usize, header: &Header) -> Result<TaskId, Violation> {
        let bhs = ScsiCommandBhs::view(&header.bhs);
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
            return Err(Violation::TooManyImmediate { limit: limits::IMMEDIATE_COMMANDS_MAX });
        }
        let additional = if header.ahs.is_empty() {
            AdditionalHeaders::default()
        } else {
            AdditionalHeaders::parse(&header.ahs).map_err(Violation::AdditionalHeaders)?
        };
        match self.find_tag(tag.0) {
            Some(old) if self.task_mut(old).is_some_and(|task| task.phase == Phase::Draining) => {
                self.close_task(old);
            }
            Some(_) => return Err(Violation::TaskTagInUse { initiator_task_tag: tag.0 }),
            None => {}
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
        let id = self.new_task(tag.0, unsolicited);
        if let Some(task) = self.task_mut(id) {
            task.connection = connection;
            task.lun = bhs.lun.get();
            task.cmd_sn = bhs.cmd_sn.get();
            task.immediate = immediate;
            task.write_length = write_length;
            task.read_length = read_length;
            task.transfer_length = 0;
            task.phase = Phase::Held;
            task.data_out.fault = fault;
        }
        Ok(id)
    }

    /// Immediate data that was not negotiated fails the command, not the connection.
    fn immediate_fault(
        &self,
        bhs: &ScsiCommandBhs,
        len: usize,
        write_length: u32,
    ) -> Option<DataFault> {
        let parameters = &self.config.parameters;
        if len == 0 && (flags::FINAL & bhs.flags != 0 || !bhs.is_write()) {
            return None;
        }
        let limit = parameters.first_burst_length.min(write_length) as usize;
        let is_allowed = if len > 0 { parameters.immediate_data && len <= limit } else { true };
        let more_announced = flags::FINAL & bhs.flags == 0;
        if !is_allowed || (more_announced && parameters.initial_r2t) {
            return Some(DataFault::UnexpectedUnsolicited);
        }
        None
    }

    fn new_task(&mut self, tag: u32, unsolicited: bool) -> TaskId {
        self.next_serial = self.next_serial.wrapping_add(1);
        let serial = self.next_serial;
        if let Some(index) = self.free.pop()
            && let (Some(task), Some(slot)) =
                (self.tasks.get_mut(index as usize), self.tags.get_mut(index as usize))
        {
            task.serial = serial;
            task.data_out.reset(unsolicited);
            *slot = tag;
            return TaskId { index, serial };
        }
        let index = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.tasks.push(Task {
            serial,
            connection: 0,
            lun: 0,
            cmd_sn: 0,
            immediate: false,
            write_length: 0,
            read_length: 0,
            transfer_length: 0,
            phase: Phase::Held,
            data_out: DataOut::new(unsolicited),
        });
        self.tags.push(tag);
        TaskId { index, serial }
    }

    fn find_tag(&self, tag: u32) -> Option<TaskId> {
        let index = self.tags.iter().position(|&other| other == tag)?;
        let serial = self.tasks.get(index)?.serial;
        Some(TaskId { index: u32::try_from(index).ok()?, serial })
    }

    fn task_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        let is_used = self.tags.get(id.index as usize).is_some_and(|&tag| tag != RESERVED_TAG);
        self.tasks.get_mut(id.index as usize).filter(|task| is_used && task.serial == id.serial)
    }

    /// Frees the place of a task.
    fn close_task(&mut self, id: TaskId) {
        if let Some(task) = self.task_mut(id) {
            task.data_out.drop_data();
            if let Some(tag) = self.tags.get_mut(id.index as usize) {
                *tag = RESERVED_TAG;
                self.free.push(id.index);
            }
        }
    }

    /// A command is there with its immediate data: now, or when its turn comes, it is delivered.
    fn admit(
        &mut self,
        connection: usize,
        id: TaskId,
        header: &Header,
        is_due: bool,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let bhs = ScsiCommandBhs::view(&header.bhs);
        if !is_due {
            self.hold(Held {
                cmd_sn: bhs.cmd_sn(),
                connection,
                header: header.clone(),
                data: Vec::new(),
                task: Some(id),
            });
            return Ok(());
        }
        self.count_cmd_sn(bhs.is_immediate());
        self.deliver(id, header)?;
        if !self.held.is_empty() || !self.held_management.is_empty() {
            self.release_held(pool);
        }
        Ok(())
    }

    fn deliver(&mut self, id: TaskId, header: &Header) -> Result<(), Violation> {
        let bhs = ScsiCommandBhs::view(&header.bhs);
        let Some(task) = self.task_mut(id) else { return Ok(()) };
        task.phase = Phase::Running;
        let (immediate, fault) = (task.immediate, task.data_out.fault);
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
            AdditionalHeaders::parse(&header.ahs)
                .map_err(Violation::AdditionalHeaders)?
                .extended_cdb
                .to_vec()
        };
        // A reserved attribute is treated as SIMPLE, the weakest promise.
        let attribute = TaskAttribute::from_code(bhs.flags & flags::ATTRIBUTE_MASK)
            .unwrap_or(TaskAttribute::Simple);
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

    // ---- data to the target ------------------------------------------------------------------

    fn begin_data_out(
        &mut self,
        connection: usize,
        header: &Header,
        pool: &Pool,
    ) -> Result<Incoming, Violation> {
        let bhs = DataOutBhs::view(&header.bhs);
        let tag = bhs.initiator_task_tag.get();
        let transfer = transfer_tag(bhs);
        let unknown = Violation::DataOutForUnknownTask { initiator_task_tag: tag };
        let Some(id) = self.find_tag(tag) else {
            // Data for a burst that was asked for before its task was aborted.
            let was_asked = transfer.is_some_and(|t| self.was_issued(t));
            return if was_asked { Ok(Incoming::Dropped) } else { Err(unknown) };
        };
        let first_burst = self.config.parameters.first_burst_length;
        let length = u32::try_from(header.data_bytes()).unwrap_or(u32::MAX);
        let was_asked = transfer.is_some_and(|t| self.was_issued(t));
        let Some(task) = self.task_mut(id) else { return Err(unknown) };
        if task.connection != connection {
            return Err(unknown);
        }
        match transfer {
            None if !task.data_out.is_unsolicited_open() => return Err(unknown),
            Some(t) if task.data_out.r2ts.front().map(|r2t| r2t.target_transfer_tag) != Some(t) => {
                return if was_asked && task.data_out.is_dropping() {
                    Ok(Incoming::Dropped)
                } else {
                    Err(unknown)
                };
            }
            None | Some(_) => {}
        }
        let limit = first_burst.min(task.write_length);
        let offset = bhs.buffer_offset.get();
        task.data_out.check(transfer, bhs.data_sn.get(), offset, length, limit)?;
        if !task.data_out.is_dropping() {
            // The whole of it at once, so that unsolicited data is not copied from buffer to
            // buffer: up to what the command takes, or what may come unasked.
            let room = task.data_out.wanted.unwrap_or(limit).max(offset.saturating_add(length));
            if task.data_out.ensure_room(room, pool).is_err() {
                self.fail_data(id, DataFault::NoMemory);
            }
        }
        Ok(Incoming::Data { task: id, offset: offset as usize, header: header.clone() })
    }

    /// True when a tag like this was given out not too long ago.
    const fn was_issued(&self, target_transfer_tag: u32) -> bool {
        let age = self.next_transfer.wrapping_sub(target_transfer_tag);
        age != 0 && age <= limits::TRANSFER_TAGS_REMEMBERED
    }

    fn end_data(
        &mut self,
        connection: usize,
        id: TaskId,
        header: &Header,
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
            let bhs = ScsiCommandBhs::view(&header.bhs);
            let outcome = match self.check_cmd_sn(bhs.cmd_sn(), bhs.is_immediate()) {
                Ok(_) => self.admit(connection, id, header, is_due, pool),
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
        let bhs = DataOutBhs::view(&header.bhs);
        let length = u32::try_from(header.data_bytes()).unwrap_or(u32::MAX);
        let Some(task) = self.task_mut(id) else { return };
        task.data_out.advance(transfer_tag(bhs), length, bhs.is_final());
        if task.phase == Phase::Draining {
            if !task.data_out.is_unsolicited_open() {
                self.close_task(id);
            }
            return;
        }
        let fault = if intact { task.data_out.fault } else { Some(DataFault::DigestError) };
        match fault {
            Some(fault) => self.fail_data(id, fault),
            None => self.continue_data(id, pool),
        }
    }

    /// Tells the owner, once, that a task's data will not be complete.
    fn fail_data(&mut self, id: TaskId, fault: DataFault) {
        let Some(task) = self.task_mut(id) else { return };
        let is_new = !task.data_out.is_dropping() || task.data_out.fault == Some(fault);
        task.data_out.fault = Some(fault);
        let is_known = task.phase == Phase::Running && is_new;
        let unsolicited = task.data_out.is_unsolicited_open();
        task.data_out.drop_data();
        if !unsolicited {
            task.data_out.close_unsolicited();
        }
        if is_known {
            self.events.push_back(Event::DataFault(id, fault));
        }
    }

    fn continue_data(&mut self, id: TaskId, pool: &Pool) {
        let Some(task) = self.task_mut(id) else { return };
        match task.data_out.progress() {
            Progress::Waiting => {}
            Progress::Complete => {
                let payload = task.data_out.collect();
                self.events.push_back(Event::DataOut(id, payload));
            }
            Progress::AskMore => {
                if !self.ask_for_data(id, pool) {
                    self.starving.push_back(id);
                }
            }
        }
    }

    /// The command takes `length` bytes of Data-Out (more than the initiator will send is fine:
    /// it is counted as residual). Gives them at once if they are there; else
    /// [`Event::DataOut`] comes.
    pub fn request_data(&mut self, id: TaskId, length: u32, pool: &Pool) -> Option<Payload> {
        let task = self.task_mut(id)?;
        task.transfer_length = u64::from(length);
        let wanted = length.min(task.write_length);
        task.data_out.wanted = Some(wanted);
        if wanted == 0 {
            return Some(task.data_out.collect());
        }
        match task.data_out.progress() {
            Progress::Complete => Some(task.data_out.collect()),
            Progress::Waiting | Progress::AskMore => {
                self.continue_data(id, pool);
                None
            }
        }
    }

    /// Sends as many R2Ts as may be outstanding. False when there is no memory for the data.
    fn ask_for_data(&mut self, id: TaskId, pool: &Pool) -> bool {
        let outstanding_max = usize::from(self.config.parameters.max_outstanding_r2t)
            .min(limits::R2T_OUTSTANDING_MAX);
        let burst_max = self.config.parameters.max_burst_length;
        loop {
            let transfer = self.next_transfer;
            let Some(task) = self.task_mut(id) else { return true };
            let Some(wanted) = task.data_out.wanted else { return true };
            if task.data_out.is_dropping() || task.data_out.r2ts.len() >= outstanding_max {
                return true;
            }
            if task.data_out.ensure_room(wanted, pool).is_err() {
                return false;
            }
            let Some((offset, length)) = task.data_out.ask(burst_max, transfer) else {
                return true;
            };
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

    fn tag_of(&self, id: TaskId) -> u32 {
        self.tags.get(id.index as usize).copied().unwrap_or(RESERVED_TAG)
    }

    // ---- outcomes ----------------------------------------------------------------------------

    /// Answers a task: Data-In, status, sense and residual.
    ///
    /// Data that others may write ([`Payload::Mapped`]) must not be given when
    /// [`Session::needs_stable_data`] is true for the task.
    pub fn respond(&mut self, id: TaskId, response: Response<'_>) {
        let tag = self.tag_of(id);
        let Some(task) = self.task_mut(id) else { return };
        let (connection, read_length) = (task.connection, task.read_length);
        let (lun, write_length) = (task.lun, task.write_length);
        let moved = if write_length > 0 || response.data.is_empty() {
            task.transfer_length
        } else {
            response.data.len() as u64
        };
        let residual = Residual::of(moved, u64::from(write_length.max(read_length)));
        self.end_task(id);
        self.open_window();
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else { return };
        let transmitter = &mut state.transmitter;
        let length = response.data.len().min(read_length as usize);
        let burst_max = self.config.parameters.max_burst_length as usize;
        let with_status = response.status == 0 && response.sense.is_empty() && length > 0;
        let mut data_sn: u32 = 0;
        if length > 0 {
            let mut header = DataInBhs::new();
            header.lun = lun.into();
            header.initiator_task_tag = tag.into();
            header.target_transfer_tag = RESERVED_TAG.into();
            let mut sending = DataIn { transmitter, header, data_sn: 0, exp, max };
            let last = with_status.then_some((response.status, residual));
            sending.send(response.data, length, burst_max, last);
            data_sn = sending.data_sn;
        }
        if with_status {
            return;
        }
        let mut header = ScsiResponseBhs::new();
        header.flags |= residual.flags();
        header.response = IscsiResponse::CommandCompleted.code();
        header.status = response.status;
        header.initiator_task_tag = tag.into();
        header.exp_data_sn = data_sn.into();
        header.residual_count = residual.count.into();
        let Some(Some(state)) = self.connections.get_mut(connection) else { return };
        let transmitter = &mut state.transmitter;
        header.stamp(transmitter.next_stat_sn(), exp, max);
        if response.sense.is_empty() {
            transmitter.push(&header);
            return;
        }
        // Spec: RFC 7143 section 11.4.7.2; the length comes before the sense data.
        let mut segment = Vec::with_capacity(response.sense.len().saturating_add(2));
        let length = u16::try_from(response.sense.len()).unwrap_or(u16::MAX);
        segment.extend_from_slice(&length.to_be_bytes());
        segment.extend_from_slice(response.sense);
        transmitter.push_with_data(&header, Segment::Bytes(&segment));
    }

    /// True when data for this task is digested, so that it must not change under way.
    #[must_use]
    pub fn needs_stable_data(&self, id: TaskId) -> bool {
        let connection = self.tasks.get(id.index as usize).map(|task| task.connection);
        connection
            .and_then(|index| self.connections.get(index))
            .and_then(Option::as_ref)
            .is_some_and(|state| state.transmitter.data_digest())
    }

    /// Ends a task without an answer: it was aborted, or its connection is gone.
    pub fn abandon(&mut self, id: TaskId) {
        self.end_task(id);
        self.open_window();
    }

    fn end_task(&mut self, id: TaskId) {
        let Some(task) = self.task_mut(id) else { return };
        if task.phase == Phase::Running {
            task.phase = Phase::Draining;
            let (immediate, unsolicited) =
                (task.immediate, task.data_out.is_unsolicited_open());
            task.data_out.drop_data();
            if immediate {
                self.immediate = self.immediate.saturating_sub(1);
            } else {
                self.running = self.running.saturating_sub(1);
            }
            if !unsolicited {
                self.close_task(id);
            }
        }
        self.starving.retain(|other| *other != id);
    }

    // ---- other requests ----------------------------------------------------------------------

    fn handle_request(
        &mut self,
        connection: usize,
        header: &Header,
        data: Vec<u8>,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let opcode = header.opcode_bits();
        if opcode == Opcode::Snack.code() {
            return Err(Violation::Snack);
        }
        let common = header.common();
        let (cmd_sn, immediate) = (common.cmd_sn(), common.is_immediate());
        if !self.check_cmd_sn(cmd_sn, immediate)? {
            self.hold(Held { cmd_sn, connection, header: header.clone(), data, task: None });
            return Ok(());
        }
        self.count_cmd_sn(immediate);
        let outcome = match Opcode::from_code(opcode) {
            Some(Opcode::NopOut) => self.handle_nop_out(connection, header, &data),
            Some(Opcode::TaskManagementRequest) => self.handle_management(connection, header),
            Some(Opcode::TextRequest) => self.handle_text(connection, header, &data),
            Some(Opcode::LogoutRequest) => self.handle_logout(connection, header),
            _ => Err(Violation::OpcodeNotSupported { opcode }),
        };
        if !self.held.is_empty() || !self.held_management.is_empty() {
            self.release_held(pool);
        }
        outcome
    }

    fn handle_nop_out(
        &mut self,
        connection: usize,
        header: &Header,
        data: &[u8],
    ) -> Result<(), Violation> {
        let bhs = NopOutBhs::view(&header.bhs);
        let transfer = bhs.target_transfer_tag.get();
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else { return Ok(()) };
        if transfer != RESERVED_TAG {
            return match state.ping {
                Some((tag, _)) if tag == transfer => {
                    state.ping = None;
                    Ok(())
                }
                Some(_) | None => Err(Violation::UnknownPing { target_transfer_tag: transfer }),
            };
        }
        if bhs.itt().is_reserved() {
            // Spec: RFC 7143 section 11.18; it only confirms ExpStatSN.
            return Ok(());
        }
        let mut answer = NopInBhs::new();
        answer.initiator_task_tag = bhs.initiator_task_tag;
        answer.target_transfer_tag = RESERVED_TAG.into();
        let transmitter = &mut state.transmitter;
        answer.stamp(transmitter.next_stat_sn(), exp, max);
        let length = data.len().min(transmitter.data_segment_max_bytes);
        transmitter.push_with_data(&answer, Segment::Bytes(data.get(..length).unwrap_or(&[])));
        Ok(())
    }

    fn handle_management(&mut self, connection: usize, header: &Header) -> Result<(), Violation> {
        let bhs = TaskManagementRequestBhs::view(&header.bhs);
        let opcode = header.opcode_bits();
        if self.config.is_discovery {
            return Err(Violation::NotInDiscovery { opcode });
        }
        let id = ManagementId { connection, initiator_task_tag: bhs.initiator_task_tag.get() };
        let Some(function) = TaskManagementFunction::from_code(bhs.function_bits()) else {
            self.respond_management(id, TaskManagementResponse::NotSupported);
            return Ok(());
        };
        let referenced = bhs.referenced_task_tag.get();
        let task = match function {
            TaskManagementFunction::AbortTask => {
                match self.find_tag(referenced) {
                    // The task set of a task is that of its unit.
                    Some(task) if self.is_running_on(task, bhs.lun.get()) => Some(task),
                    Some(task) if self.cancel_held(task) => {
                        self.respond_management(id, TaskManagementResponse::Complete);
                        return Ok(());
                    }
                    Some(_) | None => {
                        self.respond_management(id, self.judge_missing(bhs));
                        return Ok(());
                    }
                }
            }
            TaskManagementFunction::TaskReassign => {
                let response = TaskManagementResponse::ReassignmentNotSupported;
                self.respond_management(id, response);
                return Ok(());
            }
            TaskManagementFunction::AbortTaskSet
            | TaskManagementFunction::ClearTaskSet
            | TaskManagementFunction::LogicalUnitReset
            | TaskManagementFunction::TargetWarmReset
            | TaskManagementFunction::TargetColdReset => None,
            // ACA is not supported, and the rest needs iSCSIProtocolLevel 2.
            TaskManagementFunction::ClearAca
            | TaskManagementFunction::QueryTask
            | TaskManagementFunction::QueryTaskSet
            | TaskManagementFunction::ItNexusReset
            | TaskManagementFunction::QueryAsynchronousEvent => {
                self.respond_management(id, TaskManagementResponse::NotSupported);
                return Ok(());
            }
        };
        let cmd_sn = bhs.cmd_sn();
        let event = ManagementEvent { id, function, lun: bhs.lun.get(), task, cmd_sn };
        // Spec: RFC 7143 section 4.2.3.3; it acts on all commands numbered before it, so they
        // must have come.
        if task.is_none() && self.exp_cmd_sn.is_before(cmd_sn) {
            if self.held_management.len() >= limits::IMMEDIATE_MANAGEMENT_MAX {
                let limit = limits::IMMEDIATE_MANAGEMENT_MAX;
                return Err(Violation::TooManyImmediate { limit });
            }
            self.held_management.push(event);
        } else {
            self.events.push_back(Event::TaskManagement(event));
        }
        Ok(())
    }

    fn is_running_on(&mut self, id: TaskId, lun: u64) -> bool {
        self.task_mut(id).is_some_and(|task| task.phase == Phase::Running && task.lun == lun)
    }

    /// Ends a command that waits for its turn; its number still counts.
    fn cancel_held(&mut self, id: TaskId) -> bool {
        let Some(task) = self.task_mut(id) else { return false };
        if task.phase != Phase::Held {
            return false;
        }
        self.close_task(id);
        true
    }

    /// What ABORT TASK says of a task that is not there.
    ///
    /// Spec: RFC 7143 section 11.6.1: if its number was within the window and came before the
    /// request, the task counts as received and ended.
    fn judge_missing(&self, bhs: &TaskManagementRequestBhs) -> TaskManagementResponse {
        let referenced = SerialNumber(bhs.ref_cmd_sn.get());
        let is_due = !referenced.is_before(self.exp_cmd_sn);
        let is_in_window = referenced.is_within(self.exp_cmd_sn, self.max_cmd_sn);
        if is_due && is_in_window && referenced.is_before(bhs.cmd_sn()) {
            TaskManagementResponse::Complete
        } else {
            TaskManagementResponse::TaskDoesNotExist
        }
    }

    /// Answers a task management request.
    pub fn respond_management(&mut self, id: ManagementId, response: TaskManagementResponse) {
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(id.connection) else { return };
        let mut header = TaskManagementResponseBhs::new();
        header.response = response.code();
        header.initiator_task_tag = id.initiator_task_tag.into();
        header.stamp(state.transmitter.next_stat_sn(), exp, max);
        state.transmitter.push(&header);
    }

    fn handle_text(
        &mut self,
        connection: usize,
        header: &Header,
        data: &[u8],
    ) -> Result<(), Violation> {
        let bhs = TextRequestBhs::view(&header.bhs);
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else { return Ok(()) };
        let limit = state.transmitter.data_segment_max_bytes;
        let mut exchange = std::mem::take(&mut state.text);
        let reply = exchange.handle_request(bhs, data, &self.config.text, limit);
        state.text = exchange;
        let TextReply { header: mut answer, data, remote_max_recv_data_segment_length } =
            reply.map_err(|_| Violation::Text)?;
        if let Some(bytes) = remote_max_recv_data_segment_length {
            state.transmitter.data_segment_max_bytes = bytes as usize;
        }
        TextResponseBhs::stamp(&mut answer, state.transmitter.next_stat_sn(), exp, max);
        state.transmitter.push_with_data(&answer, Segment::Bytes(&data));
        Ok(())
    }

    fn handle_logout(&mut self, connection: usize, header: &Header) -> Result<(), Violation> {
        let bhs = LogoutRequestBhs::view(&header.bhs);
        let opcode = header.opcode_bits();
        let Some(reason) = LogoutReason::from_code(bhs.reason_bits()) else {
            return Err(Violation::InvalidField { opcode, byte: 1 });
        };
        if self.config.is_discovery && reason != LogoutReason::CloseSession {
            return Err(Violation::NotInDiscovery { opcode });
        }
        let id = ManagementId { connection, initiator_task_tag: bhs.initiator_task_tag.get() };
        let cid = Cid(bhs.cid.get());
        let event = match reason {
            LogoutReason::CloseSession => LogoutEvent { id, closing: None },
            LogoutReason::CloseConnection => match self.connection_by_cid(cid) {
                Some(closing) => LogoutEvent { id, closing: Some(closing) },
                None => {
                    self.respond_logout(id, LogoutResponseCode::CidNotFound);
                    return Ok(());
                }
            },
            LogoutReason::RemoveConnectionForRecovery => {
                let code = if self.connection_by_cid(cid).is_some() {
                    LogoutResponseCode::RecoveryNotSupported
                } else {
                    LogoutResponseCode::CidNotFound
                };
                self.respond_logout(id, code);
                return Ok(());
            }
        };
        self.events.push_back(Event::Logout(event));
        Ok(())
    }

    /// Answers a logout request, after the tasks it concerns have ended.
    pub fn respond_logout(&mut self, id: ManagementId, code: LogoutResponseCode) {
        let (exp, max) = self.window();
        let parameters = &self.config.parameters;
        let (wait, retain) = (parameters.default_time2wait, parameters.default_time2retain);
        let Some(Some(state)) = self.connections.get_mut(id.connection) else { return };
        let mut header = LogoutResponseBhs::new();
        header.response = code.code();
        header.initiator_task_tag = id.initiator_task_tag.into();
        header.time2wait_s = wait.into();
        header.time2retain_s = retain.into();
        header.stamp(state.transmitter.next_stat_sn(), exp, max);
        state.transmitter.push(&header);
    }

    fn reject(&mut self, connection: usize, bad: Option<&Header>, reason: RejectReason) {
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else { return };
        let mut header = RejectBhs::new();
        header.reason = reason.code();
        header.initiator_task_tag = RESERVED_TAG.into();
        header.stamp(state.transmitter.next_stat_sn(), exp, max);
        let mut copy = Vec::new();
        if let Some(bad) = bad {
            copy.extend_from_slice(&bad.bhs);
            copy.extend_from_slice(&bad.ahs);
        }
        state.transmitter.push_with_data(&header, Segment::Bytes(&copy));
    }

    /// Asks the initiator to log out within `seconds`, on every connection.
    pub fn request_logout(&mut self, seconds: u16) {
        self.push_async(AsyncEvent::LogoutRequest, seconds);
    }

    fn push_async(&mut self, event: AsyncEvent, parameter3: u16) {
        let (exp, max) = self.window();
        for state in self.connections.iter_mut().flatten() {
            let mut header = AsyncMessageBhs::new();
            header.initiator_task_tag = RESERVED_TAG.into();
            header.async_event = event.code();
            header.parameter3 = parameter3.into();
            header.stamp(state.transmitter.next_stat_sn(), exp, max);
            state.transmitter.push(&header);
        }
    }

    // ---- time --------------------------------------------------------------------------------

    /// When [`Session::handle_timeout`] is due, if ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let interval = self.config.nop_interval?;
        let due = |state: &Connection| match state.ping {
            Some((_, since)) => since.saturating_add(self.config.nop_timeout),
            None => state.last_received.saturating_add(interval),
        };
        self.connections.iter().flatten().map(due).min()
    }

    /// Pings connections that have been silent, and tells of those that did not answer.
    pub fn handle_timeout(&mut self, now: Duration) {
        let Some(interval) = self.config.nop_interval else { return };
        let (exp, max) = self.window();
        let timeout = self.config.nop_timeout;
        for (index, state) in self.connections.iter_mut().enumerate() {
            let Some(state) = state else { continue };
            match state.ping {
                // Any sign of life will do: a busy peer may answer late.
                Some((_, since)) if state.last_received > since => state.ping = None,
                Some((_, since)) if now >= since.saturating_add(timeout) => {
                    self.events.push_back(Event::PeerSilent { connection: index });
                }
                Some(_) => {}
                None if now >= state.last_received.saturating_add(interval) => {
                    let tag = self.next_transfer;
                    self.next_transfer = match tag.wrapping_add(1) {
                        RESERVED_TAG => 0,
                        next => next,
                    };
                    state.ping = Some((tag, now));
                    let mut ping = NopInBhs::new();
                    ping.initiator_task_tag = RESERVED_TAG.into();
                    ping.target_transfer_tag = tag.into();
                    // Carries the number of the next status without using it.
                    ping.stamp(state.transmitter.stat_sn, exp, max);
                    state.transmitter.push(&ping);
                }
                None => {}
            }
        }
    }

    // ---- sending -----------------------------------------------------------------------------

    /// True when there is something to send on a connection.
    #[must_use]
    pub fn has_output(&self, connection: usize) -> bool {
        let state = self.connections.get(connection).and_then(Option::as_ref);
        state.is_some_and(|state| !state.transmitter.is_empty())
    }

    /// How many bytes wait to be sent on a connection.
    #[must_use]
    pub fn output_bytes(&self, connection: usize) -> usize {
        let state = self.connections.get(connection).and_then(Option::as_ref);
        state.map_or(0, |state| state.transmitter.queued_bytes())
    }

    /// Takes all that waits to be sent on a connection; `empty` is filled from now on.
    pub fn take_message(&mut self, connection: usize, empty: Message) -> Message {
        match self.connections.get_mut(connection) {
            Some(Some(state)) => state.transmitter.take(empty),
            Some(None) | None => empty,
        }
    }
}

/// The transfer a Data-Out belongs to; none for unsolicited data.
fn transfer_tag(bhs: &DataOutBhs) -> Option<u32> {
    let tag = bhs.target_transfer_tag.get();
    (tag != RESERVED_TAG).then_some(tag)
}

/// How much more or less than expected a command moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Residual {
    overflow: bool,
    count: u32,
}

impl Residual {
    fn of(moved: u64, expected: u64) -> Self {
        let count = u32::try_from(moved.abs_diff(expected)).unwrap_or(u32::MAX);
        Self { overflow: moved > expected, count }
    }

    const fn flags(self) -> u8 {
        match (self.count, self.overflow) {
            (0, _) => 0,
            (_, true) => flags::RESIDUAL_OVERFLOW,
            (_, false) => flags::RESIDUAL_UNDERFLOW,
        }
    }
}

/// A read on its way out.
struct DataIn<'a> {
    transmitter: &'a mut Transmitter,
    header: DataInBhs,
    data_sn: u32,
    exp: SerialNumber,
    max: SerialNumber,
}

impl DataIn<'_> {
    /// Sends `length` bytes as Data-In PDUs; the last one carries the status if `last` says so.
    fn send(
        &mut self,
        data: Payload,
        length: usize,
        burst_max: usize,
        last: Option<(u8, Residual)>,
    ) {
        if length <= COPY_MAX_BYTES.min(self.transmitter.data_segment_max_bytes) {
            let header = self.next_header(0, true, last);
            self.transmitter.push_with_data(&header, Segment::Copy { payload: &data, len: length });
            return;
        }
        let index = self.transmitter.keep(data);
        let mut offset: usize = 0;
        let mut burst_left = burst_max;
        while offset < length {
            let left = length.saturating_sub(offset);
            let len = left.min(self.transmitter.data_segment_max_bytes).min(burst_left);
            burst_left = burst_left.saturating_sub(len);
            let is_last = len == left;
            let header = self.next_header(offset, is_last || burst_left == 0, last.filter(|_| is_last));
            self.transmitter.push_with_data(&header, Segment::Part { index, start: offset, len });
            offset = offset.saturating_add(len);
            if burst_left == 0 {
                burst_left = burst_max;
            }
        }
    }

    fn next_header(
        &mut self,
        offset: usize,
        is_final: bool,
        last: Option<(u8, Residual)>,
    ) -> DataInBhs {
        let mut header = self.header;
        header.data_sn = self.data_sn.into();
        self.data_sn = self.data_sn.wrapping_add(1);
        header.buffer_offset = u32::try_from(offset).unwrap_or(u32::MAX).into();
        if is_final {
            header.flags |= flags::FINAL;
        }
        let stat_sn = match last {
            Some((status, residual)) => {
                header.flags |= flags::STATUS | residual.flags();
                header.status = status;
                header.residual_count = residual.count.into();
                self.transmitter.next_stat_sn()
            }
            // Reserved without status; zero by convention.
            None => SerialNumber(0),
        };
        header.stamp(stat_sn, self.exp, self.max);
        header
    }
}

#[cfg(test)]
mod tests;
