//! An initiator: the other end of the protocol, and its judge.
//!
//! A [`Session`] sends what is legal, at any moment and in any order that is legal, and holds the
//! target to the rules: numbers, windows, tags, bursts, residuals, one answer to each command.
//! What breaks a rule is a [`Breach`]. It shares the layout of PDUs with the target under test,
//! and nothing else. [`Mischief`] is what it does wrong on demand.

mod mischief;
mod operation;
mod receive;
mod send;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iscsi::SerialNumber;
use iscsi::framing::PduBuffer;
use iscsi::negotiate::{ConnectionParameters, SessionParameters};
use iscsi::pdu::{Cid, LogoutResponseCode, TaskManagementFunction};

use crate::ledger::Handle;

pub use mischief::Mischief;
pub use operation::Operation;

/// A rule that the target broke.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Breach {
    /// Which rule.
    pub rule: &'static str,
    /// What happened.
    pub detail: String,
}

impl Breach {
    /// A breach of `rule`.
    pub const fn new(rule: &'static str, detail: String) -> Self {
        Self { rule, detail }
    }
}

/// Whether a command was refused before it began, so that nothing may have changed.
pub fn is_refused(status: u8, sense: Option<(u8, u8, u8)>) -> bool {
    match (status, sense) {
        (0x08 | 0x18 | 0x28, _) => true,
        // A store that could not be reached may have done it.
        (_, Some((2, 0x04, 0x01))) => false,
        (_, Some((key, ..))) => matches!(key, 2 | 5 | 6 | 7 | 0x0e),
        (_, None) => false,
    }
}

/// How a command ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    /// SCSI status.
    pub status: u8,
    /// Sense key, ASC and ASCQ of fixed or descriptor sense data.
    pub sense: Option<(u8, u8, u8)>,
    /// What was read.
    pub data: Vec<u8>,
}

/// What a session has received.
#[derive(Debug)]
pub enum Heard {
    /// A command is over.
    Ended {
        /// The command.
        task: Task,
        /// How.
        answer: Answer,
    },
    /// A task management request is over; `vanished` are the tasks that ended with it.
    Managed {
        /// The tag of the request.
        tag: u32,
        /// What was asked.
        function: TaskManagementFunction,
        /// The response code.
        response: u8,
        /// The tasks that will not be answered any more.
        vanished: Vec<Task>,
    },
    /// The target has taken leave; the connections will be closed.
    LoggedOut {
        /// What it says of the tasks.
        code: Option<LogoutResponseCode>,
    },
    /// The same for this connection alone; the session goes on with the others.
    ConnectionClosed {
        /// What it says of the tasks.
        code: Option<LogoutResponseCode>,
    },
    /// A PDU was rejected.
    Rejected {
        /// The reason code.
        reason: u8,
    },
    /// A ping of ours came back.
    Pong,
    /// The target said something unasked, with this event code.
    Asynchronous {
        /// The code.
        event: u8,
    },
}

/// A command under way.
#[derive(Debug)]
pub struct Task {
    /// What was asked.
    pub operation: Operation,
    /// The name of it in the ledger.
    pub handle: Handle,
    tag: u32,
    lun: u16,
    /// Index of its connection.
    pub connection: usize,
    /// It may end without an answer, because of a reset by somebody.
    pub may_vanish: bool,
    cmd_sn: SerialNumber,
    data_out: Vec<u8>,
    /// Up to where data was sent without being asked for, or asked for.
    asked: usize,
    r2t_sn: u32,
    /// Bursts that were asked for and not sent yet, in order.
    bursts: VecDeque<Burst>,
    received: Vec<u8>,
    data_sn: u32,
    /// How much of the current Data-In sequence has come.
    burst_received: usize,
}

#[derive(Debug)]
struct Burst {
    target_transfer_tag: u32,
    offset: usize,
    length: usize,
}

/// A request that is not a SCSI command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Other {
    Ping,
    Management {
        function: TaskManagementFunction,
        referenced: Option<u32>,
        lun: u16,
        /// It acts on commands before this.
        cmd_sn: SerialNumber,
    },
    Logout,
    ConnectionLogout,
}

/// A connection in full-feature phase.
#[derive(Debug)]
pub struct Connection {
    /// Which link it runs over.
    pub link: usize,
    /// Its CID.
    pub cid: Cid,
    /// It is logging out while the session goes on.
    is_closing: bool,
    parameters: ConnectionParameters,
    inbound: PduBuffer,
    /// Bytes that wait for room in the network.
    pub outbound: VecDeque<u8>,
    exp_stat_sn: SerialNumber,
    /// The window as this connection last reported it.
    window: (SerialNumber, SerialNumber),
    /// It reads nothing for now.
    pub is_deaf: bool,
    /// What was sent on it makes no sense, so that nothing can be made of the answers.
    is_ruined: bool,
}

/// The initiator's side of a session.
#[derive(Debug)]
pub struct Session {
    parameters: SessionParameters,
    connections: Vec<Option<Connection>>,
    /// The number of the next command.
    cmd_sn: SerialNumber,
    exp_cmd_sn: SerialNumber,
    max_cmd_sn: SerialNumber,
    tasks: BTreeMap<u32, Task>,
    others: BTreeMap<u32, Other>,
    /// Tags of tasks that wrong commands have taken. Where the task had ended at the target, it answers the command.
    taken_tags: BTreeSet<u32>,
    next_tag: u32,
    /// The LUN of commands and task management from now on.
    pub lun: u16,
    /// It has done something that allows the target to reject, or to hang up.
    pub is_suspect: bool,
    /// It has asked to end the session.
    pub is_leaving: bool,
}

impl Session {
    /// A session that has just logged in, without connections.
    pub const fn new(
        parameters: SessionParameters,
        cmd_sn: SerialNumber,
        window: (SerialNumber, SerialNumber),
    ) -> Self {
        Self {
            parameters,
            connections: Vec::new(),
            cmd_sn,
            exp_cmd_sn: window.0,
            max_cmd_sn: window.1,
            tasks: BTreeMap::new(),
            others: BTreeMap::new(),
            taken_tags: BTreeSet::new(),
            next_tag: 1,
            lun: 0,
            is_suspect: false,
            is_leaving: false,
        }
    }

    /// A connection has logged in. `unread` is what came behind its login.
    pub fn add_connection(
        &mut self,
        link: usize,
        cid: Cid,
        parameters: ConnectionParameters,
        exp_stat_sn: SerialNumber,
        unread: &[u8],
    ) -> usize {
        let mut inbound = PduBuffer::new();
        inbound.push(unread);
        self.connections.push(Some(Connection {
            link,
            cid,
            is_closing: false,
            parameters,
            inbound,
            outbound: VecDeque::new(),
            exp_stat_sn,
            window: (self.exp_cmd_sn, self.max_cmd_sn),
            is_deaf: false,
            is_ruined: false,
        }));
        self.connections.len() - 1
    }

    /// The connection with this index, if it is still there.
    pub fn connection(&mut self, index: usize) -> Option<&mut Connection> {
        self.connections.get_mut(index)?.as_mut()
    }

    /// Indices of the connections that are still there.
    pub fn live_connections(&self) -> Vec<usize> {
        let slots = self.connections.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.is_some())
            .map(|(index, _)| index)
            .collect()
    }

    /// Those of them that are not on their way out.
    pub fn open_connections(&self) -> Vec<usize> {
        let slots = self.connections.iter().enumerate();
        let is_open = |slot: &Connection| !slot.is_closing;
        slots
            .filter(|(_, slot)| slot.as_ref().is_some_and(is_open))
            .map(|(index, _)| index)
            .collect()
    }

    /// The link of a connection is gone.
    pub fn lose_connection(&mut self, index: usize) {
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = None;
        }
    }

    /// Takes all commands out: nobody will answer them.
    pub fn take_tasks(&mut self) -> Vec<Task> {
        self.others.clear();
        std::mem::take(&mut self.tasks).into_values().collect()
    }

    /// Takes out the commands that `is_meant` picks by tag.
    pub fn take_tasks_where(&mut self, is_meant: impl Fn(u32, &Task) -> bool) -> Vec<Task> {
        let (meant, others): (BTreeMap<_, _>, _) = std::mem::take(&mut self.tasks)
            .into_iter()
            .partition(|(tag, task)| is_meant(*tag, task));
        self.tasks = others;
        meant.into_values().collect()
    }

    /// Tags and commands under way.
    pub fn tasks(&self) -> impl Iterator<Item = (u32, &Task)> {
        self.tasks.iter().map(|(&tag, task)| (tag, task))
    }

    /// From now on commands under way may end without an answer: somebody resets the unit.
    pub fn allow_vanishing(&mut self) {
        self.allow_vanishing_where(|_| true);
    }

    /// The same of those that are meant.
    pub fn allow_vanishing_where(&mut self, is_meant: impl Fn(Handle) -> bool) {
        for task in self.tasks.values_mut() {
            task.may_vanish |= is_meant(task.handle);
        }
    }

    /// A command whose answer may still be on its way is looked for again.
    pub fn take_back(&mut self, mut task: Task) {
        task.may_vanish = true;
        self.tasks.insert(task.tag, task);
    }

    /// Whether a LOGICAL UNIT RESET is under way.
    pub fn awaits_reset(&self) -> bool {
        let is_reset = |other: &Other| {
            let function = TaskManagementFunction::LogicalUnitReset;
            matches!(other, Other::Management { function: f, .. } if *f == function)
        };
        self.others.values().any(is_reset)
    }

    /// Whether one more connection was agreed on.
    pub fn may_join(&self) -> bool {
        let count = self.connections.iter().flatten().count();
        count < usize::from(self.parameters.max_connections) && !self.is_leaving
    }

    /// The number of the next command.
    pub const fn next_cmd_sn(&self) -> SerialNumber {
        self.cmd_sn
    }

    /// Whether another command fits the window.
    pub const fn may_send(&self) -> bool {
        !self.max_cmd_sn.is_before(self.cmd_sn) && !self.is_leaving
    }

    /// Whether every request has been answered.
    pub fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.others.is_empty()
    }

    fn new_tag(&mut self) -> u32 {
        let tag = self.next_tag;
        self.next_tag = self.next_tag.wrapping_add(1) & 0x3fff_ffff;
        tag
    }
}
