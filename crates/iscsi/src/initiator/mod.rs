//! The initiator role in full-feature phase, sans-I/O.
//!
//! [`Session`] numbers commands, keeps within the target's command window, sends immediate,
//! unsolicited and solicited data, puts Data-In together, and checks everything the target says:
//! a target is trusted no more than an initiator is. It knows nothing of SCSI beyond CDB bytes
//! and status codes. ErrorRecoveryLevel is 0.
//!
//! An owner runs this loop for each connection:
//!
//! 1. pass received bytes to [`Session::handle_bytes`];
//! 2. take events until [`Session::poll_event`] has none, submit more;
//! 3. send what [`Session::transmit`] writes.
//!
//! Nothing is allocated for a command in steady state: buffers come with it and go back with its
//! completion, write data is shared, and the table of tasks is reused.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod receive;
mod request;
mod response;
mod task;
mod transmit;
mod violation;

use std::collections::VecDeque;
use std::sync::Arc;

pub use transmit::Output;
pub use violation::TargetViolation;

use crate::limits::INITIATOR_TASKS_MAX;
use crate::login::EstablishedInitiator;
use crate::negotiate::{ConnectionParameters, SessionParameters};
use crate::pdu::{
    AsyncEvent, Cid, InitiatorTaskTag, LogoutResponseCode, TaskAttribute, TaskManagementFunction,
    TaskManagementResponse,
};
use crate::serial::SerialNumber;
use receive::Receiver;
use task::{Entries, Entry, Task};
use transmit::Transmitter;

/// Where the data of a read goes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum ReadBuffer {
    /// The command reads nothing.
    #[default]
    None,
    /// Into this buffer; its length is what is expected.
    Into(Vec<u8>),
    /// Nowhere: counted and checked, not kept.
    Discard {
        /// What is expected.
        length_bytes: u32,
    },
}

/// A SCSI command to be sent.
#[derive(Clone, Debug)]
pub struct Command {
    /// Comes back with the completion; means nothing here.
    pub tag: u64,
    /// The eight bytes of the LUN field, in network order.
    pub lun: u64,
    /// The CDB, or its first 16 bytes, padded with zeroes.
    pub cdb: [u8; 16],
    /// The rest of a longer CDB.
    pub extended_cdb: Vec<u8>,
    /// How it is ordered among the others.
    pub attribute: TaskAttribute,
    /// Data to write, if any.
    pub write: Option<Arc<[u8]>>,
    /// Room for data to read, if any.
    pub read: ReadBuffer,
}

/// Why a command or request was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many are under way; try again after a completion.
    #[error("{limit} tasks are under way")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// There is no such connection, or it is gone.
    #[error("no connection {connection}")]
    NoConnection {
        /// The index given.
        connection: usize,
    },
    /// A length does not fit its header field.
    #[error("data or CDB longer than a header can state")]
    TooLong,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// With this SCSI status.
    Status(u8),
    /// The target failed outside SCSI.
    TargetFailure,
    /// A task management function has ended it.
    Aborted,
    /// The target rejected the PDU for this reason.
    Rejected(u8),
    /// Its connection was lost; whether it was executed is not known.
    ConnectionLost,
}

/// How the amount of data differs from what was expected.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Residual {
    /// Not at all.
    #[default]
    None,
    /// So many bytes less were moved.
    Underflow(u32),
    /// So many bytes more could have been moved.
    Overflow(u32),
}

/// A command that is done.
#[derive(Debug)]
pub struct Completion {
    /// As submitted.
    pub tag: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes of Data-In that came.
    pub received_bytes: u32,
    /// Residual of the command, of its write part when it is bidirectional.
    pub residual: Residual,
    /// Residual of the read part of a bidirectional command.
    pub read_residual: Residual,
    /// Sense data; empty when there is none.
    pub sense: Vec<u8>,
    /// As submitted.
    pub write: Option<Arc<[u8]>>,
    /// As submitted, filled.
    pub read: ReadBuffer,
}

/// A task management function to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Management {
    /// The function.
    pub function: TaskManagementFunction,
    /// The eight bytes of the LUN field; ignored by the functions on the whole target.
    pub lun: u64,
    /// The task that ABORT TASK is about.
    pub task: Option<InitiatorTaskTag>,
}

/// An Asynchronous Message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AsyncNotice {
    /// What happened.
    pub event: AsyncEvent,
    /// The logical unit, for a SCSI event.
    pub lun: u64,
    /// Vendor's code.
    pub vendor_code: u8,
    /// Parameter1 to Parameter3.
    pub parameters: [u16; 3],
    /// Sense data of a SCSI event.
    pub sense: Vec<u8>,
}

/// What happened in a session.
#[derive(Debug)]
pub enum Event {
    /// A command is done.
    Completed(Completion),
    /// A task management function is done. Tasks that it ended were completed before.
    ManagementDone {
        /// As given.
        tag: u64,
        /// `None` for a code that the standard does not know.
        response: Option<TaskManagementResponse>,
    },
    /// The target has answered a ping.
    Pong {
        /// As given.
        tag: u64,
        /// The ping's data, come back.
        data: Vec<u8>,
    },
    /// The target has answered a text request, completely.
    Text {
        /// As given.
        tag: u64,
        /// The whole answer.
        text: Vec<u8>,
    },
    /// The target has answered a logout. On success close what was logged out.
    LoggedOut {
        /// As given.
        tag: u64,
        /// `None` for a code that the standard does not know.
        response: Option<LogoutResponseCode>,
    },
    /// The target has something to say.
    Async {
        /// Index in the session.
        connection: usize,
        /// The message.
        notice: AsyncNotice,
    },
    /// The target has rejected a PDU that is not a SCSI command under way.
    Rejected {
        /// Index in the session.
        connection: usize,
        /// See `RejectReason`.
        reason: u8,
        /// Tag of the request concerned, if there is one.
        tag: Option<u64>,
    },
    /// The target broke a rule. Close the connection; its tasks were completed before.
    Failed {
        /// Index in the session.
        connection: usize,
        /// The rule.
        violation: TargetViolation,
    },
    /// A request other than a command ended because its connection was lost.
    RequestLost {
        /// As given.
        tag: u64,
    },
}

/// Where the data of the PDU under way goes.
#[derive(Debug)]
enum Sink {
    /// Gathered, for everything but Data-In.
    Gather(Vec<u8>),
    /// Into the buffer of a task, beginning at this byte.
    Task {
        itt: InitiatorTaskTag,
        offset: usize,
    },
}

#[derive(Debug)]
struct Connection {
    cid: Cid,
    parameters: ConnectionParameters,
    exp_stat_sn: SerialNumber,
    receiver: Receiver,
    transmitter: Transmitter,
    sink: Sink,
}

/// One session with its connections.
#[derive(Debug)]
pub struct Session {
    parameters: SessionParameters,
    /// A lost connection leaves its place empty, so that the others keep their index.
    connections: Vec<Option<Connection>>,
    entries: Entries,
    /// Commands that the window has no room for yet.
    waiting: VecDeque<InitiatorTaskTag>,
    cmd_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    next_connection: usize,
    events: VecDeque<Event>,
}

impl Session {
    /// A session with its first connection, as the login left it.
    ///
    /// `tasks_max` is held to [`INITIATOR_TASKS_MAX`].
    #[must_use]
    pub fn new(login: &EstablishedInitiator, cid: Cid, tasks_max: usize) -> Self {
        let mut session = Self {
            parameters: login.session.clone(),
            connections: Vec::new(),
            entries: Entries::new(tasks_max.clamp(1, INITIATOR_TASKS_MAX)),
            waiting: VecDeque::new(),
            cmd_sn: login.cmd_sn,
            exp_cmd_sn: login.cmd_sn,
            max_cmd_sn: login.cmd_sn.previous(),
            next_connection: 0,
            events: VecDeque::new(),
        };
        session.add_connection(login, cid);
        session
    }

    /// Adds a connection whose login joined this session; gives its index.
    pub fn add_connection(&mut self, login: &EstablishedInitiator, cid: Cid) -> usize {
        self.take_window(login.exp_cmd_sn, login.max_cmd_sn);
        self.connections.push(Some(Connection {
            cid,
            parameters: login.connection,
            exp_stat_sn: login.exp_stat_sn,
            receiver: Receiver::default(),
            transmitter: Transmitter::default(),
            sink: Sink::Gather(Vec::new()),
        }));
        self.connections.len().saturating_sub(1)
    }

    /// What was negotiated.
    #[must_use]
    pub const fn parameters(&self) -> &SessionParameters {
        &self.parameters
    }

    /// CmdSN of the next command, for the login of a further connection.
    #[must_use]
    pub const fn next_cmd_sn(&self) -> SerialNumber {
        self.cmd_sn
    }

    /// Commands and requests under way.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.entries.len()
    }

    /// True while a connection is left.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.connections.iter().any(Option::is_some)
    }

    /// What happened since the last call.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes a command over, to be sent as soon as the target's window allows. The tag given
    /// back names it for ABORT TASK.
    ///
    /// # Errors
    ///
    /// The command comes back with the reason.
    pub fn submit(
        &mut self,
        command: Command,
    ) -> Result<InitiatorTaskTag, (SubmitError, Box<Command>)> {
        if !self.is_alive() {
            let error = SubmitError::NoConnection { connection: 0 };
            return Err((error, Box::new(command)));
        }
        if !fits_header(&command) {
            return Err((SubmitError::TooLong, Box::new(command)));
        }
        let full = SubmitError::Full {
            limit: self.entries.len(),
        };
        if self.entries.is_full() {
            return Err((full, Box::new(command)));
        }
        let tag = command.tag;
        let Some(itt) = self.entries.insert(Entry::Task(Task::new(command))) else {
            unreachable!("a table that is not full has no place for command {tag}");
        };
        self.waiting.push_back(itt);
        self.issue_waiting();
        Ok(itt)
    }

    /// Appends whole PDUs to `out` until it holds `budget_bytes` or nothing is left to send.
    pub fn transmit(&mut self, connection: usize, out: &mut impl Output, budget_bytes: usize) {
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.transmitter.write(
                out,
                budget_bytes,
                state.exp_stat_sn,
                &state.parameters,
                &mut self.entries,
            );
        }
    }

    /// True when [`Session::transmit`] has something to write.
    #[must_use]
    pub fn has_output(&self, connection: usize) -> bool {
        matches!(
            self.connections.get(connection),
            Some(Some(state)) if !state.transmitter.is_empty()
        )
    }

    /// The owner has closed a connection, or found it closed: everything on it ends.
    pub fn connection_lost(&mut self, connection: usize) {
        let Some(state) = self.connections.get_mut(connection) else {
            return;
        };
        *state = None;
        let is_last = !self.is_alive();
        let lost = self.entries.select(|entry| match entry.connection() {
            Some(own) => own == connection,
            None => is_last,
        });
        for itt in lost {
            match self.entries.remove(itt) {
                Some(Entry::Task(task)) => {
                    let done = task.abandon(Outcome::ConnectionLost);
                    self.events.push_back(Event::Completed(done));
                }
                Some(Entry::Request(request)) => {
                    self.events
                        .push_back(Event::RequestLost { tag: request.tag });
                }
                None => {}
            }
        }
        if is_last {
            self.waiting.clear();
        }
    }

    /// Takes ExpCmdSN and MaxCmdSN of a PDU.
    ///
    /// Spec: RFC 7143 section 4.2.2.1: a MaxCmdSN that contradicts ExpCmdSN makes both invalid,
    /// and neither ever goes back.
    fn take_window(&mut self, exp_cmd_sn: SerialNumber, max_cmd_sn: SerialNumber) {
        if max_cmd_sn.is_before(exp_cmd_sn.previous()) {
            return;
        }
        if max_cmd_sn.is_after(self.max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
        // The target cannot have received what was not sent.
        if exp_cmd_sn.is_after(self.exp_cmd_sn) && !exp_cmd_sn.is_after(self.cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
    }
}

fn fits_header(command: &Command) -> bool {
    let write = command.write.as_ref().map_or(0, |data| data.len());
    let read = match &command.read {
        ReadBuffer::Into(buffer) => buffer.len(),
        ReadBuffer::None | ReadBuffer::Discard { .. } => 0,
    };
    u32::try_from(write).is_ok()
        && u32::try_from(read).is_ok()
        && command.extended_cdb.len() <= crate::pdu::EXTENDED_CDB_MAX_BYTES
}

#[cfg(test)]
mod tests;
