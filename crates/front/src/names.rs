//! Names within a session, the same for all transports.

use ::iscsi::target::{self, TaskId};

/// Names a command of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CommandId {
    /// Its place in the session's table of commands; small, and used again.
    pub place: u32,
    /// Differs between two commands in the same place.
    pub serial: u32,
}

impl From<TaskId> for CommandId {
    #[inline]
    fn from(TaskId { index, serial }: TaskId) -> Self {
        Self {
            place: index,
            serial,
        }
    }
}

impl From<CommandId> for TaskId {
    #[inline]
    fn from(CommandId { place, serial }: CommandId) -> Self {
        Self {
            index: place,
            serial,
        }
    }
}

/// Names a task management request of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ManagementId {
    /// Index in the session of the connection it came on.
    pub connection: usize,
    /// As its initiator named it.
    pub tag: u32,
}

impl From<target::ManagementId> for ManagementId {
    fn from(id: target::ManagementId) -> Self {
        Self {
            connection: id.connection,
            tag: id.initiator_task_tag,
        }
    }
}

impl From<ManagementId> for target::ManagementId {
    fn from(id: ManagementId) -> Self {
        Self {
            connection: id.connection,
            initiator_task_tag: id.tag,
        }
    }
}
