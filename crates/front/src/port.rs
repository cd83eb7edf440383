//! A session of any transport, as the engine keeps it.
//!
//! The set of transports is closed. The engine is built for [`Port`]; each of its calls chooses the transport
//! once, by a `match`, and all behind that is static.

use std::time::Duration;

use ::iscsi::target::{self, LogoutEvent};
use engine::{LunMap, ManagementOutcome, Response};
use memory::{NoRoom, Payload, Pool};
use scsi::TaskAttribute;

use crate::iscsi::SessionPort;
use crate::names::{CommandId, ManagementId};

/// A session.
#[derive(Debug)]
pub enum Port {
    /// Of iSCSI.
    Iscsi(SessionPort),
}

impl Port {
    /// The session, as iSCSI has it.
    #[inline]
    pub const fn iscsi(&self) -> &SessionPort {
        match self {
            Self::Iscsi(port) => port,
        }
    }

    /// The session, as iSCSI has it.
    #[inline]
    pub const fn iscsi_mut(&mut self) -> &mut SessionPort {
        match self {
            Self::Iscsi(port) => port,
        }
    }
}

/// A command as its transport gives it.
#[derive(Debug)]
pub enum Command {
    /// Of iSCSI.
    Iscsi(target::Command),
}

/// What ends when some tasks of a session have ended.
#[derive(Clone, Copy, Debug)]
pub enum Farewell {
    /// A logout of iSCSI.
    Iscsi(LogoutEvent),
}

impl engine::Port for Port {
    type CommandId = CommandId;
    type Command = Command;
    type ManagementId = ManagementId;
    type Farewell = Farewell;
    /// Its index in the session.
    type Connection = usize;

    #[inline]
    fn lun_of(command: &Command) -> u64 {
        match command {
            Command::Iscsi(command) => SessionPort::lun_of(command),
        }
    }

    #[inline]
    fn attribute_of(command: &Command) -> Option<TaskAttribute> {
        match command {
            Command::Iscsi(command) => SessionPort::attribute_of(command),
        }
    }

    #[inline]
    fn scsi_command<'a>(
        command: &'a Command,
        luns: &'a LunMap,
        long: &'a mut Vec<u8>,
    ) -> scsi::Command<'a> {
        match command {
            Command::Iscsi(command) => SessionPort::scsi_command(command, luns, long),
        }
    }

    #[inline]
    fn place_of(id: CommandId) -> usize {
        id.place as usize
    }

    #[inline]
    fn arrival_of(&self, id: CommandId) -> Duration {
        match self {
            Self::Iscsi(port) => port.arrival_of(id.into()),
        }
    }

    #[inline]
    fn request_data(&mut self, id: CommandId, length: u32, pool: &Pool) -> Option<Payload> {
        match self {
            Self::Iscsi(port) => port.request_data(id.into(), length, pool),
        }
    }

    #[inline]
    fn leave_chunk(&mut self, id: CommandId, pool: &Pool) {
        match self {
            Self::Iscsi(port) => port.leave_chunk(id.into(), pool),
        }
    }

    #[inline]
    fn needs_stable_data(&self, id: CommandId) -> bool {
        match self {
            Self::Iscsi(port) => port.needs_stable_data(id.into()),
        }
    }

    #[inline]
    fn respond(&mut self, id: CommandId, response: Response<'_>) -> Option<usize> {
        match self {
            Self::Iscsi(port) => port.respond(id.into(), response),
        }
    }

    fn abandon(&mut self, id: CommandId) {
        match self {
            Self::Iscsi(port) => port.abandon(id.into()),
        }
    }

    fn respond_management(
        &mut self,
        id: ManagementId,
        outcome: ManagementOutcome,
    ) -> Option<usize> {
        match self {
            Self::Iscsi(port) => port.respond_management(id.into(), outcome),
        }
    }

    #[inline]
    fn has_event(&self) -> bool {
        match self {
            Self::Iscsi(port) => port.has_event(),
        }
    }

    #[inline]
    fn starves_for(&self) -> Option<NoRoom> {
        match self {
            Self::Iscsi(port) => port.starves_for(),
        }
    }

    fn handle_memory(&mut self, pool: &Pool) {
        match self {
            Self::Iscsi(port) => port.handle_memory(pool),
        }
    }

    fn set_queue_limit(&mut self, commands: u32) {
        match self {
            Self::Iscsi(port) => port.set_queue_limit(commands),
        }
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        match self {
            Self::Iscsi(port) => port.unsent_bytes(),
        }
    }
}
