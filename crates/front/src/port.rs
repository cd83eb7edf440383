//! A session of any transport, as the engine keeps it.
//!
//! The set of transports is closed. The engine is built for [`Port`]; each of its calls chooses the transport
//! once, by a `match`, and all behind that is static.

use std::time::Duration;

use ::iscsi::target::{self, LogoutEvent};
use engine::{LunMap, ManagementOutcome, Response};
use memory::{NoRoom, Payload, Pool};
use scsi::TaskAttribute;

use crate::identity::SessionId;
use crate::iscsi::{SessionPort, Who};
use crate::names::{CommandId, ManagementId};
use crate::{hyperscsi, nbd};

/// A session.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all sessions are of iSCSI, and behind a pointer their commands would take longer"
)]
pub enum Port {
    /// Of iSCSI.
    Iscsi(SessionPort),
    /// Of NBD.
    Nbd(nbd::SessionPort),
    /// Of HyperSCSI. Behind a pointer, as it is the largest.
    Hyperscsi(Box<hyperscsi::SessionPort>),
}

impl Port {
    /// The session, if it is one of iSCSI.
    #[inline]
    pub const fn iscsi(&self) -> Option<&SessionPort> {
        match self {
            Self::Iscsi(port) => Some(port),
            Self::Nbd(_) | Self::Hyperscsi(_) => None,
        }
    }

    /// The session, if it is one of iSCSI.
    #[inline]
    pub const fn iscsi_mut(&mut self) -> Option<&mut SessionPort> {
        match self {
            Self::Iscsi(port) => Some(port),
            Self::Nbd(_) | Self::Hyperscsi(_) => None,
        }
    }

    /// The session, if it is one of NBD.
    #[inline]
    pub fn nbd(&self) -> Option<&nbd::SessionPort> {
        match self {
            Self::Nbd(port) => Some(port),
            Self::Iscsi(_) | Self::Hyperscsi(_) => None,
        }
    }

    /// The session, if it is one of NBD.
    #[inline]
    pub fn nbd_mut(&mut self) -> Option<&mut nbd::SessionPort> {
        match self {
            Self::Nbd(port) => Some(port),
            Self::Iscsi(_) | Self::Hyperscsi(_) => None,
        }
    }

    /// The session, if it is one of HyperSCSI.
    #[inline]
    pub fn hyperscsi(&self) -> Option<&hyperscsi::SessionPort> {
        match self {
            Self::Hyperscsi(port) => Some(port),
            Self::Iscsi(_) | Self::Nbd(_) => None,
        }
    }

    /// The session, if it is one of HyperSCSI.
    #[inline]
    pub fn hyperscsi_mut(&mut self) -> Option<&mut hyperscsi::SessionPort> {
        match self {
            Self::Hyperscsi(port) => Some(port),
            Self::Iscsi(_) | Self::Nbd(_) => None,
        }
    }

    /// Names the session for administrators.
    #[inline]
    pub fn id(&self) -> SessionId {
        match self {
            Self::Iscsi(port) => port.detail.id,
            Self::Nbd(port) => port.detail.id,
            Self::Hyperscsi(port) => port.detail.id,
        }
    }

    /// Who is behind it, for those who are notified.
    pub fn who(&self) -> Who<'_> {
        match self {
            Self::Iscsi(port) => port.detail.who(),
            Self::Nbd(port) => port.detail.who(),
            Self::Hyperscsi(port) => port.detail.who(),
        }
    }
}

/// A command as every transport gives it: the form of iSCSI, which has all that others need. Choosing by the transport
/// once more would cost each command of iSCSI some fifty instructions.
pub type Command = target::Command;

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
        SessionPort::lun_of(command)
    }

    #[inline]
    fn attribute_of(command: &Command) -> Option<TaskAttribute> {
        SessionPort::attribute_of(command)
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the way of all commands: a call costs as much as what it does"
    )]
    fn scsi_command<'a>(
        command: &'a Command,
        luns: &'a LunMap,
        long: &'a mut Vec<u8>,
    ) -> scsi::Command<'a> {
        SessionPort::scsi_command(command, luns, long)
    }

    #[inline]
    fn place_of(id: CommandId) -> usize {
        id.place as usize
    }

    #[inline]
    fn arrival_of(&self, id: CommandId) -> Duration {
        match self {
            Self::Iscsi(port) => port.arrival_of(id.into()),
            Self::Nbd(port) => port.arrival_of(id),
            Self::Hyperscsi(port) => port.arrival_of(id),
        }
    }

    #[inline]
    fn request_data(&mut self, id: CommandId, length: u32, pool: &Pool) -> Option<Payload> {
        match self {
            Self::Iscsi(port) => port.request_data(id.into(), length, pool),
            Self::Nbd(port) => port.request_data(id, length),
            Self::Hyperscsi(port) => port.request_data(id, length),
        }
    }

    #[inline]
    fn leave_chunk(&mut self, id: CommandId, pool: &Pool) {
        match self {
            Self::Iscsi(port) => port.leave_chunk(id.into(), pool),
            Self::Nbd(port) => port.leave_chunk(id, pool),
            // Its data are in the pool.
            Self::Hyperscsi(_) => {}
        }
    }

    #[inline]
    fn needs_stable_data(&self, id: CommandId) -> bool {
        match self {
            Self::Iscsi(port) => port.needs_stable_data(id.into()),
            Self::Nbd(_) => false,
            // A reply is protected once, and may be sent several times.
            Self::Hyperscsi(_) => true,
        }
    }

    #[inline]
    fn respond(&mut self, id: CommandId, response: Response<'_>) -> Option<usize> {
        match self {
            Self::Iscsi(port) => port.respond(id.into(), response),
            Self::Nbd(port) => {
                port.respond(id, response);
                // There is one connection.
                Some(0)
            }
            Self::Hyperscsi(port) => {
                port.respond(id, response);
                Some(0)
            }
        }
    }

    fn return_data(&mut self, id: CommandId, data: Payload) {
        match self {
            Self::Iscsi(port) => port.return_data(id.into(), data),
            Self::Nbd(port) => port.return_data(id, data),
            // Its client gives the command again, with the data.
            Self::Hyperscsi(_) => drop(data),
        }
    }

    fn abandon(&mut self, id: CommandId) {
        match self {
            Self::Iscsi(port) => port.abandon(id.into()),
            Self::Nbd(port) => port.handle_abort(id),
            Self::Hyperscsi(port) => port.abandon(id),
        }
    }

    fn respond_management(
        &mut self,
        id: ManagementId,
        outcome: ManagementOutcome,
    ) -> Option<usize> {
        match self {
            Self::Iscsi(port) => port.respond_management(id.into(), outcome),
            Self::Nbd(_) => None,
            Self::Hyperscsi(port) => {
                port.respond_management(id, outcome);
                Some(0)
            }
        }
    }

    #[inline]
    fn has_event(&self) -> bool {
        match self {
            Self::Iscsi(port) => port.has_event(),
            Self::Nbd(port) => port.has_event(),
            Self::Hyperscsi(port) => port.has_event(),
        }
    }

    #[inline]
    fn starves_for(&self) -> Option<NoRoom> {
        match self {
            Self::Iscsi(port) => port.starves_for(),
            Self::Nbd(port) => port.starves_for(),
            Self::Hyperscsi(port) => port.starves_for(),
        }
    }

    fn handle_memory(&mut self, pool: &Pool) {
        match self {
            Self::Iscsi(port) => port.handle_memory(pool),
            Self::Nbd(port) => port.handle_memory(pool),
            Self::Hyperscsi(port) => port.handle_memory(pool),
        }
    }

    fn set_queue_depth(&mut self, commands: u32) {
        match self {
            Self::Iscsi(port) => port.set_queue_depth(commands),
            // They take every limit; a client of HyperSCSI keeps the slots of its login.
            Self::Nbd(_) | Self::Hyperscsi(_) => {}
        }
    }

    fn set_queue_limit(&mut self, commands: u32) -> bool {
        match self {
            Self::Iscsi(port) => port.set_queue_limit(commands),
            Self::Nbd(port) => port.set_limit(commands),
            Self::Hyperscsi(port) => port.set_limit(commands),
        }
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        match self {
            Self::Iscsi(port) => port.unsent_bytes(),
            Self::Nbd(port) => port.unsent_bytes(),
            Self::Hyperscsi(port) => port.unsent_bytes(),
        }
    }
}
