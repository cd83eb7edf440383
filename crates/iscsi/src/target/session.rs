//! One session: the order of commands, its connections, its tasks.
//!
//! Bytes go in per connection ([`Session::handle_chunk`]), events come out
//! ([`Session::poll_event`]), messages to send are taken per connection
//! ([`Session::take_message`]). The owner answers each [`Event::Command`] once, by
//! [`Session::respond`] or [`Session::abandon`].

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use memory::{Buffer, Message, NoRoom, Pool};

use super::budget::{Account, Charge};
use super::receive::{Header, KeptHeader, Received, Receiver};
use super::tags::Tags;
use super::task::{Phase, Task, unit_of};
use super::transmit::Transmitter;
use super::{
    ConnectionConfig, Event, Incoming, ManagementEvent, ManagementId, Receive, SessionConfig,
    TaskId, Verdict, Violation,
};
use crate::SerialNumber;
use crate::excerpt::Standing;
use crate::limits;
use crate::pdu::{Bhs, Cid, NopInBhs, Opcode, RESERVED_TAG};

/// Receives that would take less than this straight into a buffer are not worth an operation of
/// their own.
const EXACT_MIN_BYTES: usize = 16 * 1024;

/// A connection of a session.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) cid: Cid,
    pub(super) receiver: Receiver,
    pub(super) transmitter: Transmitter,
    pub(super) incoming: Option<Incoming>,
    pub(super) text: crate::discovery::TextExchange,
    /// For what the text exchange holds.
    pub(super) text_charge: Option<Charge>,
    /// The answer to a text request has not been taken to be sent.
    pub(super) is_text_unsent: bool,
    pub(super) last_received: Duration,
    /// The tag of the ping that waits for its answer, and since when.
    pub(super) ping: Option<(u32, Duration)>,
}

/// A number that was received before its turn.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) cmd_sn: SerialNumber,
    pub(super) connection: usize,
    pub(super) what: Waiting,
}

/// What came with a number.
#[derive(Debug)]
pub(super) enum Waiting {
    Command {
        task: TaskId,
        header: KeptHeader,
        charge: Charge,
    },
    Request {
        header: KeptHeader,
        data: Vec<u8>,
        charge: Charge,
    },
    /// Nothing, and nothing will: ABORT TASK declared it received.
    Aborted,
}

/// The target's side of a session in full-feature phase.
#[derive(Debug)]
pub struct Session {
    pub(super) config: SessionConfig,
    pub(super) connections: Vec<Option<Connection>>,
    /// A connection digests data, or did.
    pub(super) has_data_digests: bool,
    pub(super) exp_cmd_sn: SerialNumber,
    pub(super) max_cmd_sn: SerialNumber,
    /// How many commands may be under way, at most; lowered while memory is short.
    pub(super) queue_limit: u32,
    /// In the order of CmdSN.
    pub(super) held: VecDeque<Held>,
    /// What pays for that.
    pub(super) account: Rc<Account>,
    /// The number that others wait for, and since when.
    pub(super) gap: Option<(SerialNumber, Duration)>,
    /// Task management requests that act on commands which have not all arrived.
    pub(super) held_management: Vec<ManagementEvent>,
    pub(super) tasks: Vec<Task>,
    /// Of each place in `tasks`.
    pub(super) tags: Tags,
    pub(super) free: Vec<u32>,
    pub(super) running: u32,
    pub(super) immediate: usize,
    pub(super) next_serial: u32,
    pub(super) next_transfer: u32,
    /// Tasks that have ended while data was owed to them, oldest first. Some are over by now.
    pub(super) draining: VecDeque<TaskId>,
    /// Tasks that wait for a buffer before they ask for their data.
    pub(super) starving: VecDeque<TaskId>,
    /// What the first of them waits for.
    pub(super) starves_for: Option<NoRoom>,
    /// Task management requests that the owner has not answered.
    pub(super) managing: Vec<ManagementId>,
    /// As of the last call that brought it.
    pub(super) now: Duration,
    pub(super) events: VecDeque<Event>,
}

impl Session {
    /// A session that has just entered full-feature phase and has no connection yet.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        let exp_cmd_sn = config.exp_cmd_sn;
        let queue_limit = config.queue_depth;
        let max_cmd_sn = exp_cmd_sn.plus(queue_limit).previous();
        Self {
            account: Account::new(&config.hold),
            gap: None,
            config,
            connections: Vec::new(),
            has_data_digests: false,
            exp_cmd_sn,
            max_cmd_sn,
            queue_limit,
            held: VecDeque::new(),
            held_management: Vec::new(),
            tasks: Vec::new(),
            tags: Tags::default(),
            free: Vec::new(),
            running: 0,
            immediate: 0,
            next_serial: 0,
            next_transfer: 0,
            draining: VecDeque::new(),
            managing: Vec::new(),
            now: Duration::ZERO,
            starving: VecDeque::new(),
            starves_for: None,
            events: VecDeque::new(),
        }
    }

    /// What the session was made with.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// What SendTargets reports from now on.
    pub fn set_text(&mut self, text: crate::discovery::TextRecords) {
        self.config.text = text;
    }

    /// Takes in a connection that has finished its login and gives its index in this session.
    pub fn add_connection(&mut self, config: &ConnectionConfig, now: Duration) -> usize {
        let parameters = &config.parameters;
        self.has_data_digests |= parameters.data_digest;
        let connection = Connection {
            cid: config.cid,
            receiver: Receiver::new(
                parameters.header_digest,
                parameters.data_digest,
                parameters.max_recv_data_segment_length_bytes as usize,
            ),
            transmitter: Transmitter::new(
                parameters.header_digest,
                parameters.data_digest,
                parameters.peer_max_recv_data_segment_length_bytes as usize,
                config.stat_sn,
            ),
            incoming: None,
            text: crate::discovery::TextExchange::new(),
            text_charge: None,
            is_text_unsent: false,
            last_received: now,
            ping: None,
        };
        let place = self.connections.iter().position(Option::is_none);
        let index = place.unwrap_or(self.connections.len());
        match self.connections.get_mut(index) {
            Some(slot) => *slot = Some(connection),
            None => self.connections.push(Some(connection)),
        }
        self.account.set_connections(self.connection_count());
        index
    }

    /// Where a connection is in what it receives, for a trace that begins. What it sends
    /// always begins with a PDU.
    #[must_use]
    pub fn standing(&self, connection: usize) -> Standing<'_> {
        match self.connections.get(connection) {
            Some(Some(state)) => state.receiver.standing(),
            Some(None) | None => Standing::default(),
        }
    }

    /// Queues the last answer of a connection's login, which is sent as it is.
    pub fn push_login_answer(&mut self, connection: usize, bytes: &[u8]) {
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.transmitter.push_raw(bytes);
        }
    }

    /// The connection with this CID.
    #[must_use]
    pub fn connection_by_cid(&self, cid: Cid) -> Option<usize> {
        self.connections
            .iter()
            .position(|slot| slot.as_ref().is_some_and(|c| c.cid == cid))
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// Removes a connection whose socket is closed, with all that came on it and has not had its
    /// turn: those numbers are due again. Its tasks are to be ended by the owner first
    /// ([`Session::tasks_of_connection`]).
    pub fn remove_connection(&mut self, connection: usize) {
        if let Some(slot) = self.connections.get_mut(connection) {
            *slot = None;
        }
        self.account.set_connections(self.connection_count());
        let stays =
            |held: &Held| held.connection != connection || matches!(held.what, Waiting::Aborted);
        self.held.retain(stays);
        self.held_management
            .retain(|event| event.id.connection != connection);
        self.note_gap();
        let unknown_to_owner =
            |task: &Task| task.connection == connection && task.phase != Phase::Running;
        for task in self.task_ids(unknown_to_owner) {
            self.close_task(task);
        }
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
                && unit_of(task.lun) == unit_of(lun)
                && before.is_none_or(|end| SerialNumber(task.cmd_sn).is_before(end))
        })
    }

    pub(super) fn task_ids(&self, wanted: impl Fn(&Task) -> bool) -> Vec<TaskId> {
        let places = (0u32..).zip(self.tasks.iter().zip(self.tags.iter()));
        places
            .filter(|(_, (task, tag))| *tag != RESERVED_TAG && wanted(task))
            .map(|(index, (task, _))| TaskId {
                index,
                serial: task.serial,
            })
            .collect()
    }

    /// True when nothing but draining data is left of the session's work.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.immediate == 0
    }

    /// When the header of a task that is not over came: before its immediate data, and before its
    /// turn in the order of CmdSN.
    #[must_use]
    pub fn arrival_of(&self, id: TaskId) -> Duration {
        let task = self.tasks.get(id.index as usize);
        task.map_or(self.now, |task| task.arrived)
    }

    /// Something has happened that [`Session::poll_event`] was not asked for yet.
    pub fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// What happened, oldest first.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes that arrived on a connection: `chunk` holds nothing else.
    ///
    /// An error means that the connection is to be closed.
    #[inline]
    pub fn handle_chunk(
        &mut self,
        connection: usize,
        chunk: &Rc<Buffer>,
        pool: &Pool,
        now: Duration,
    ) -> Result<(), Violation> {
        self.now = now;
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.last_received = now;
        }
        self.handle_bytes(connection, Some(chunk), pool)
    }

    /// Takes all PDUs that end within the bytes; none means that a data segment may have ended
    /// with what was received before.
    fn handle_bytes(
        &mut self,
        connection: usize,
        chunk: Option<&Rc<Buffer>>,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let bytes: &[u8] = chunk.map_or(&[], |chunk| chunk);
        let mut at = 0;
        loop {
            let Some(Some(state)) = self.connections.get_mut(connection) else {
                return Ok(());
            };
            let outcome = match state.receiver.next(bytes, &mut at)? {
                Received::Starved => return Ok(()),
                Received::Whole {
                    header,
                    data,
                    intact,
                } => self.handle_whole(connection, &header.view(), chunk, data, intact, pool),
                Received::Begin { header } => {
                    let begun = self.begin(connection, &header.view(), pool);
                    begun.map(|incoming| self.set_incoming(connection, Some(incoming)))
                }
                Received::Piece(range) => {
                    self.handle_piece(connection, bytes.get(range).unwrap_or(&[]));
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
    #[inline]
    pub fn poll_receive(&mut self, connection: usize) -> Receive {
        let anything = Receive::Chunk {
            limit_bytes: if self.config.is_discovery {
                limits::DISCOVERY_RECEIVE_BYTES
            } else {
                usize::MAX
            },
        };
        if self.config.is_discovery {
            return anything;
        }
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return anything;
        };
        let left = state.receiver.data_left();
        if left < EXACT_MIN_BYTES {
            return Receive::Chunk {
                limit_bytes: state.receiver.appetite_bytes(),
            };
        }
        let Some(Incoming::Data { task, offset, .. }) = state.incoming else {
            return anything;
        };
        let lent = self.task_mut(task).and_then(|task| task.data_out.lend());
        match lent {
            Some(buffer) if offset.saturating_add(left) <= buffer.len() => Receive::Exact {
                buffer,
                range: offset..offset.saturating_add(left),
            },
            Some(buffer) => {
                if let Some(task) = self.task_mut(task) {
                    task.data_out.give_back(buffer);
                }
                anything
            }
            None => anything,
        }
    }

    /// The buffer of [`Receive::Exact`] comes back with `received` bytes in its range.
    pub fn handle_exact(
        &mut self,
        connection: usize,
        buffer: Buffer,
        received: usize,
        pool: &Pool,
        now: Duration,
    ) -> Result<(), Violation> {
        self.now = now;
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return Ok(());
        };
        state.last_received = now;
        let Some(Incoming::Data { task, offset, .. }) = &mut state.incoming else {
            return Ok(());
        };
        let end = offset.saturating_add(received);
        state
            .receiver
            .take_direct(buffer.get(*offset..end).unwrap_or(&[]));
        *offset = end;
        let task = *task;
        if let Some(task) = self.task_mut(task)
            && !task.data_out.is_dropping()
        {
            task.data_out.give_back(buffer);
        }
        self.handle_bytes(connection, None, pool)
    }

    /// Where in its buffer [`Receive::Exact`] had the next bytes go, while it is not back.
    #[must_use]
    pub fn exact_offset(&self, connection: usize) -> usize {
        match self.connections.get(connection) {
            Some(Some(Connection {
                incoming: Some(Incoming::Data { offset, .. }),
                ..
            })) => *offset,
            Some(_) | None => 0,
        }
    }

    /// Tries again what waited for memory. Call it when buffers came back to the pool.
    pub fn handle_memory(&mut self, pool: &Pool) {
        for _ in 0..self.starving.len() {
            let Some(id) = self.starving.pop_front() else {
                return;
            };
            if let Err(why) = self.ask_for_data(id, pool) {
                self.starves_for = Some(why);
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

    /// What must come back before the first of those tasks gets on.
    #[must_use]
    pub fn starves_for(&self) -> Option<NoRoom> {
        self.starves_for.filter(|_| self.is_starving())
    }

    pub(super) fn set_incoming(&mut self, connection: usize, incoming: Option<Incoming>) {
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.incoming = incoming;
        }
    }

    /// Does what the table of violations says. The offending header, if there is one, goes back
    /// in the Reject.
    pub(super) fn dispose(
        &mut self,
        connection: usize,
        header: Option<&Header<'_>>,
        violation: Violation,
    ) -> Result<(), Violation> {
        self.events.push_back(Event::Violation {
            connection,
            violation,
        });
        match violation.verdict() {
            Verdict::Ignore => Ok(()),
            Verdict::Reject(reason) => {
                self.reject(connection, header, reason);
                Ok(())
            }
            // Its task has been ended where it was found.
            Verdict::FailTask(_) => Ok(()),
            Verdict::DropConnection => Err(violation),
        }
    }

    pub(super) fn handle_whole(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        chunk: Option<&Rc<Buffer>>,
        data: std::ops::Range<usize>,
        intact: bool,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let is_plain = header.opcode_bits() == Opcode::ScsiCommand.code() && intact;
        let outcome = if is_plain {
            self.handle_command(connection, header, chunk.map(|chunk| (chunk, data)), pool)
        } else {
            let begun = self.begin(connection, header, pool)?;
            self.set_incoming(connection, Some(begun));
            let bytes: &[u8] = chunk.map_or(&[], |chunk| chunk);
            self.handle_piece(connection, bytes.get(data).unwrap_or(&[]));
            self.handle_end(connection, intact, pool)
        };
        outcome.or_else(|violation| self.dispose(connection, Some(header), violation))
    }

    /// A header is there and its data is to come: where the data goes.
    pub(super) fn begin(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        pool: &Pool,
    ) -> Result<Incoming, Violation> {
        let begun = match Opcode::from_code(header.opcode_bits()) {
            Some(Opcode::ScsiCommand) => self.begin_command(connection, header, pool),
            Some(Opcode::DataOut) => self.begin_data_out(connection, header, pool),
            Some(
                Opcode::NopOut
                | Opcode::TextRequest
                | Opcode::TaskManagementRequest
                | Opcode::LogoutRequest
                | Opcode::Snack,
            ) => self
                .account
                .charge(header.data_bytes())
                .map(|charge| Incoming::Request {
                    header: header.kept(),
                    data: Vec::new(),
                    charge,
                }),
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
            | None => Err(Violation::OpcodeNotSupported {
                opcode: header.opcode_bits(),
            }),
        };
        // A PDU that is refused still has a data segment, which must be passed over.
        begun.or_else(|violation| {
            self.dispose(connection, Some(header), violation)?;
            Ok(Incoming::Dropped)
        })
    }

    pub(super) fn handle_piece(&mut self, connection: usize, bytes: &[u8]) {
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return;
        };
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

    pub(super) fn handle_end(
        &mut self,
        connection: usize,
        intact: bool,
        pool: &Pool,
    ) -> Result<(), Violation> {
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return Ok(());
        };
        match state.incoming.take() {
            Some(Incoming::Request {
                header,
                data,
                charge,
            }) => {
                let header = &header.view();
                let outcome = if intact {
                    self.handle_request(connection, header, data, charge)
                } else {
                    Err(Violation::DataDigest {
                        opcode: header.opcode_bits(),
                    })
                };
                outcome.or_else(|violation| self.dispose(connection, Some(header), violation))
            }
            Some(Incoming::Data { task, header, .. }) => {
                self.end_data(connection, task, &header.view(), intact, pool);
                Ok(())
            }
            Some(Incoming::Dropped) | None => Ok(()),
        }
    }

    /// Whether a numbered request may come in now. `Ok(true)`: it is its turn.
    pub(super) fn check_cmd_sn(
        &self,
        cmd_sn: SerialNumber,
        immediate: bool,
    ) -> Result<bool, Violation> {
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
        if !self.held.is_empty() && self.held.iter().any(|held| held.cmd_sn == cmd_sn) {
            return Err(Violation::CmdSnRepeated { got: cmd_sn.0 });
        }
        Ok(cmd_sn == self.exp_cmd_sn)
    }

    /// A numbered request has had its turn.
    pub(super) fn count_cmd_sn(&mut self, immediate: bool) {
        if !immediate {
            self.exp_cmd_sn = self.exp_cmd_sn.next();
            self.open_window();
        }
    }

    pub(super) fn hold(&mut self, held: Held) {
        let place = self
            .held
            .partition_point(|other| other.cmd_sn.is_before(held.cmd_sn));
        self.held.insert(place, held);
        self.note_gap();
    }

    /// Notes since when the number that is due is waited for, if it is.
    pub(super) fn note_gap(&mut self) {
        let is_waited_for = !self.held.is_empty() || !self.held_management.is_empty();
        self.gap = match self.gap {
            _ if !is_waited_for => None,
            Some((number, since)) if number == self.exp_cmd_sn => Some((number, since)),
            Some(_) | None => Some((self.exp_cmd_sn, self.now)),
        };
    }

    fn gap_deadline(&self) -> Option<Duration> {
        self.gap
            .map(|(_, since)| since.saturating_add(self.config.hold.gap_timeout))
    }

    /// Gives out what waited for the number that is due now.
    pub(super) fn release_held(&mut self) {
        while self
            .held
            .front()
            .is_some_and(|held| held.cmd_sn == self.exp_cmd_sn)
        {
            let Some(held) = self.held.pop_front() else {
                return;
            };
            let (header, outcome) = match held.what {
                Waiting::Command {
                    task,
                    header,
                    charge,
                } => {
                    drop(charge);
                    let outcome = self.deliver(task, &header.view());
                    (header, outcome)
                }
                Waiting::Request {
                    header,
                    data,
                    charge,
                } => {
                    drop(charge);
                    let outcome = self.serve_request(held.connection, &header.view(), &data);
                    (header, outcome)
                }
                Waiting::Aborted => {
                    self.count_cmd_sn(false);
                    continue;
                }
            };
            if let Err(violation) = outcome {
                // A held request cannot break the stream any more: what could was checked before.
                let disposed = self.dispose(held.connection, Some(&header.view()), violation);
                debug_assert!(disposed.is_ok(), "{disposed:?}");
            }
        }
        if !self.held_management.is_empty() {
            let due = |event: &ManagementEvent| !self.exp_cmd_sn.is_before(event.cmd_sn);
            let (ready, waiting) = std::mem::take(&mut self.held_management)
                .into_iter()
                .partition(due);
            self.held_management = waiting;
            let ready: Vec<ManagementEvent> = ready;
            for event in ready {
                self.managing.push(event.id);
                self.events.push_back(Event::TaskManagement(event));
            }
        }
        self.note_gap();
    }

    /// When [`Session::handle_timeout`] is due, if ever.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Duration> {
        let tasks = self.tasks.iter().zip(self.tags.iter());
        let data = tasks
            .filter(|(task, tag)| *tag != RESERVED_TAG && task.data_out.is_waiting())
            .map(|(task, _)| {
                task.data_out
                    .last_progress
                    .saturating_add(limits::DATA_TIMEOUT)
            });
        data.chain(self.next_ping())
            .chain(self.gap_deadline())
            .chain(self.starving_deadline())
            .min()
    }

    fn next_ping(&self) -> Option<Duration> {
        let interval = self.config.nop_interval?;
        let due = |state: &Connection| match state.ping {
            Some((_, since)) => since.saturating_add(self.config.nop_timeout),
            None => state.last_received.saturating_add(interval),
        };
        self.connections.iter().flatten().map(due).min()
    }

    /// A number that others wait for does not come: what waits would wait for ever.
    fn drop_at_gap(&mut self) {
        if self
            .gap_deadline()
            .is_none_or(|deadline| self.now < deadline)
        {
            return;
        }
        self.gap = None;
        let violation = Violation::CmdSnMissing {
            expected: self.exp_cmd_sn.0,
            limit: self.config.hold.gap_timeout,
        };
        let holder = self.held.front().map(|held| held.connection);
        let manager = self.held_management.first();
        let connection = holder.or_else(|| manager.map(|event| event.id.connection));
        let connection = connection.unwrap_or_default();
        if self.dispose(connection, None, violation).is_err() {
            self.events.push_back(Event::Broken { connection });
        }
    }

    /// Pings connections that have been silent, and reports those that did not answer and those
    /// that keep others waiting.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.now = now;
        self.drop_stalled();
        self.fail_starving();
        self.drop_at_gap();
        let Some(interval) = self.config.nop_interval else {
            return;
        };
        let (exp, max) = self.window();
        let timeout = self.config.nop_timeout;
        for (index, state) in self.connections.iter_mut().enumerate() {
            let Some(state) = state else { continue };
            match state.ping {
                // Any sign of life will do: a busy peer may answer late.
                Some((_, since)) if state.last_received > since => state.ping = None,
                Some((_, since)) if now >= since.saturating_add(timeout) => {
                    self.events
                        .push_back(Event::PeerSilent { connection: index });
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

    /// A peer that announced data and does not send it holds memory of everyone: it loses the
    /// connection.
    fn drop_stalled(&mut self) {
        let Some(since) = self.now.checked_sub(limits::DATA_TIMEOUT) else {
            return;
        };
        let stalled = self.task_ids(|task| task.data_out.is_stalled_since(since));
        for id in stalled {
            if let Some(task) = self.task_mut(id) {
                let connection = task.connection;
                self.events.push_back(Event::PeerSilent { connection });
            }
        }
    }

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

    /// How many bytes wait to be sent on all connections.
    #[must_use]
    pub fn unsent_bytes(&self) -> usize {
        let states = self.connections.iter().flatten();
        states
            .map(|state| state.transmitter.queued_bytes())
            .fold(0, usize::saturating_add)
    }

    /// How much of it is on the heap and in no account: headers, echoed pings, answers that are made.
    #[must_use]
    pub fn output_heap_bytes(&self, connection: usize) -> usize {
        let state = self.connections.get(connection).and_then(Option::as_ref);
        state.map_or(0, |state| state.transmitter.heap_bytes())
    }

    /// Takes all that waits to be sent on a connection; `empty` is filled from now on.
    #[inline]
    pub fn take_message(&mut self, connection: usize, empty: Message) -> Message {
        match self.connections.get_mut(connection) {
            Some(Some(state)) => {
                state.is_text_unsent = false;
                state.transmitter.take(empty)
            }
            Some(None) | None => empty,
        }
    }
}
