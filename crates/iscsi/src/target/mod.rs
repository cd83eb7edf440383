//! The target role in full-feature phase, sans-I/O.
//!
//! [`Session`] owns the order of commands (CmdSN), the numbers of answers (StatSN), the transfer
//! of data in both directions, residuals, task management requests, pings, text and logout. It
//! knows nothing of SCSI beyond the fields of its PDUs: who executes a command, and which logical
//! unit it belongs to, is the business of its owner.
//!
//! An owner runs this loop for each connection:
//!
//! 1. receive as [`Session::poll_receive`] says, and pass the bytes to [`Session::handle_chunk`]
//!    or [`Session::handle_exact`];
//! 2. take events until [`Session::poll_event`] has none, and answer what they ask;
//! 3. send what [`Session::take_message`] gives, one message at a time.
//!
//! ErrorRecoveryLevel is 0: an error from `handle_chunk`, or a connection lost without logout,
//! ends the session. Levels 1 and 2 would keep answers until ExpStatSN acknowledges them
//! (in the transmitter) and let a task change its connection (a field of the task).

mod answer;
mod budget;
mod command;
mod data_out;
mod receive;
mod request;
mod session;
mod tags;
mod task;
mod transmit;
mod violation;
mod window;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use memory::{Buffer, Payload};

use crate::SerialNumber;
use crate::discovery::TextRecords;
use crate::negotiate::{ConnectionParameters, SessionParameters};
use crate::pdu::{Cid, TaskAttribute, TaskManagementFunction};

pub use budget::{Budget, HoldLimits, Share};
pub use session::Session;
pub use task::TaskId;
pub use violation::{DataFault, Verdict, Violation};

/// What a session is made with.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Only text requests and logout are served.
    pub is_discovery: bool,
    /// As negotiated.
    pub parameters: SessionParameters,
    /// The CmdSN of the first command, as the login left it.
    pub exp_cmd_sn: SerialNumber,
    /// How many commands may be under way at a time.
    pub queue_depth: u32,
    /// What SendTargets answers.
    pub text: TextRecords,
    /// A connection that was silent for so long is pinged; `None`: never.
    pub nop_interval: Option<Duration>,
    /// A ping unanswered for so long means that the peer is gone.
    pub nop_timeout: Duration,
    /// What may wait in the session.
    pub hold: HoldLimits,
}

/// What a connection is added with.
#[derive(Clone, Debug)]
pub struct ConnectionConfig {
    /// Chosen by the initiator.
    pub cid: Cid,
    /// As negotiated.
    pub parameters: ConnectionParameters,
    /// The number of the next status on this connection, as the login left it.
    pub stat_sn: SerialNumber,
}

/// What happened in a session.
#[derive(Debug)]
pub enum Event {
    /// A command, in the order the initiator numbered them. Answer it once.
    Command(TaskId, Command),
    /// The data that [`Session::request_data`] asked for.
    DataOut(TaskId, Payload),
    /// The data of a task will not come. Answer the task with the fault's status; the command may
    /// not have been given out before.
    DataFault(TaskId, DataFault),
    /// A task management request. Answer it with [`Session::respond_management`].
    TaskManagement(ManagementEvent),
    /// The initiator says goodbye. End the tasks concerned, answer with
    /// [`Session::respond_logout`], then close.
    Logout(LogoutEvent),
    /// A connection did not answer its ping in time. Close it.
    PeerSilent {
        /// Index in the session.
        connection: usize,
    },
    /// A rule was broken by what did not come. Close the connection.
    Broken {
        /// Index in the session.
        connection: usize,
    },
    /// A rule was broken; what the table says has been done. For logs and counters.
    Violation {
        /// Index in the session.
        connection: usize,
        /// The rule.
        violation: Violation,
    },
}

/// A SCSI command as it came.
#[derive(Clone, Debug)]
pub struct Command {
    /// The eight bytes of the LUN field, in network order.
    pub lun: u64,
    /// The first 16 bytes of the CDB.
    pub cdb: [u8; 16],
    /// The rest of a longer CDB; almost always empty.
    pub extended_cdb: Vec<u8>,
    /// As sent; `None` for a reserved value.
    pub attribute: Option<TaskAttribute>,
    /// How much data the initiator will send, in bytes.
    pub data_out_length: u32,
    /// How much data the initiator has room for, in bytes.
    pub data_in_length: u32,
}

/// Names a request that is not a SCSI command, to answer it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct ManagementId {
    /// Index in the session of the connection it came on.
    pub connection: usize,
    /// As sent.
    pub initiator_task_tag: u32,
}

/// A task management request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManagementEvent {
    /// To answer it.
    pub id: ManagementId,
    /// One of ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET WARM RESET
    /// and TARGET COLD RESET; the others are answered by the session.
    pub function: TaskManagementFunction,
    /// The eight bytes of the LUN field.
    pub lun: u64,
    /// For ABORT TASK: the task, which exists and has been given out.
    pub task: Option<TaskId>,
    /// It acts on commands numbered before this.
    pub cmd_sn: SerialNumber,
}

/// A logout request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogoutEvent {
    /// To answer it.
    pub id: ManagementId,
    /// The connection to close; `None` for the whole session.
    pub closing: Option<usize>,
}

/// The outcome of a task.
#[derive(Debug)]
pub struct Response<'a> {
    /// SCSI status code.
    pub status: u8,
    /// Sense data as SPC lays it out; empty when there is none.
    pub sense: &'a [u8],
    /// Data for the initiator. More than it has room for is cut off and counted.
    pub data: Payload,
    /// What the command as such moves, in its direction, in bytes; the residual count is the
    /// difference to what the initiator expected. Of a bidirectional command: the part it writes.
    pub transfer_length: u64,
}

/// How the next bytes of a connection are best received.
#[derive(Debug)]
pub enum Receive {
    /// Into a chunk, but no more than this: what follows may go straight to its place.
    Chunk {
        /// In bytes; `usize::MAX` for as much as there is.
        limit_bytes: usize,
    },
    /// Straight into the buffer of a task; give it back with [`Session::handle_exact`].
    Exact {
        /// The buffer.
        buffer: Buffer,
        /// Which part of it is to be filled.
        range: Range<usize>,
    },
}

/// A PDU whose data segment has not ended.
#[derive(Debug)]
enum Incoming {
    /// Data of a task, `offset` being where its next byte goes.
    Data {
        task: TaskId,
        offset: usize,
        header: receive::KeptHeader,
    },
    /// Any other request, with its data so far.
    Request {
        header: receive::KeptHeader,
        data: Vec<u8>,
        /// For all of the data.
        charge: budget::Charge,
    },
    /// Passed over.
    Dropped,
}
