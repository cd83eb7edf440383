//! What a transport must do for the engine.

use std::fmt::Debug;
use std::time::Duration;

use memory::{NoRoom, Payload, Pool};
use scsi::{Command, Status, TaskAttribute};

use crate::luns::LunMap;

/// How a command ended, for its initiator.
#[derive(Debug)]
pub struct Response<'a> {
    /// Status.
    pub status: Status,
    /// Sense data as SPC lays it out; empty when there is none.
    pub sense: &'a [u8],
    /// Data for the initiator. More than it has room for is cut off and counted.
    pub data: Payload,
    /// What the command as such moves, in its direction, in bytes.
    pub transfer_length: u64,
}

/// How a task management request ended.
///
/// Spec: SAM-6, task management functions, service responses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ManagementOutcome {
    /// FUNCTION COMPLETE.
    Complete,
    /// FUNCTION REJECTED: what was to end has not ended.
    Rejected,
    /// INCORRECT LOGICAL UNIT NUMBER.
    NoSuchUnit,
    /// The initiator may not change the unit, so that it may not reset it for others either.
    NotAllowed,
}

/// One session of a transport: the way to one initiator.
///
/// The engine asks it for the data of commands and gives it answers; which bytes that is on which
/// connection is the port's own business. Nothing here waits.
pub trait Port: Debug {
    /// Names a command of the session.
    type CommandId: Copy + Eq + Debug;
    /// A command as it came.
    type Command: Debug;
    /// Names a task management request, to answer it.
    type ManagementId: Copy + Debug;
    /// What ends when some of its tasks have ended: a logout, say.
    type Farewell: Copy + Debug;
    /// Names a connection of the session.
    type Connection: Copy + Eq + Debug;

    /// The eight bytes of the LUN field, in network order.
    fn lun_of(command: &Self::Command) -> u64;

    /// The task attribute; `None` for one that no command may have here: a reserved one, or ACA
    /// without an ACA condition.
    ///
    /// Spec: SAM-6, task attributes.
    fn attribute_of(command: &Self::Command) -> Option<TaskAttribute>;

    /// The command as the device server takes it. `long` is room for a CDB that is not in one piece.
    fn scsi_command<'a>(
        command: &'a Self::Command,
        luns: &'a LunMap,
        long: &'a mut Vec<u8>,
    ) -> Command<'a>;

    /// The place of a command in the session's own table of commands: small numbers, used again.
    fn place_of(id: Self::CommandId) -> usize;

    /// When the header of a command came.
    fn arrival_of(&self, id: Self::CommandId) -> Duration;

    /// Asks for this much data of a command. Gives it where it has come with the command already;
    /// otherwise [`Engine::handle_data_out`](crate::Engine::handle_data_out) brings it.
    fn request_data(&mut self, id: Self::CommandId, length: u32, pool: &Pool) -> Option<Payload>;

    /// A command has to wait: its data leaves the chunk that it was received in.
    fn leave_chunk(&mut self, id: Self::CommandId, pool: &Pool);

    /// Data that others may change must not be given to [`Port::respond`] for this command.
    fn needs_stable_data(&self, id: Self::CommandId) -> bool;

    /// Answers a command. Gives the connection that has something to send now.
    fn respond(&mut self, id: Self::CommandId, response: Response<'_>) -> Option<Self::Connection>;

    /// The data of a write whose store has had nothing of it. Its answer comes next, and says that it waited too long.
    fn return_data(&mut self, id: Self::CommandId, data: Payload);

    /// A command ends without an answer. The session may have something to send then.
    fn abandon(&mut self, id: Self::CommandId);

    /// Answers a task management request. Gives the connection that has something to send now.
    fn respond_management(
        &mut self,
        id: Self::ManagementId,
        outcome: ManagementOutcome,
    ) -> Option<Self::Connection>;

    /// Something has happened that the session's owner has to look at.
    fn has_event(&self) -> bool;

    /// What must come back to the pool before data can be asked for; `None` while nothing waits for
    /// that.
    fn starves_for(&self) -> Option<NoRoom>;

    /// Memory came back: what waits for it is tried again.
    fn handle_memory(&mut self, pool: &Pool);

    /// The most that [`Port::set_queue_limit`] may allow from now on. A transport whose sessions have agreed on their
    /// number of commands keeps that.
    fn set_queue_depth(&mut self, commands: u32);

    /// How many commands may be under way from now on. True where the session has something to send, or to take,
    /// because of it.
    fn set_queue_limit(&mut self, commands: u32) -> bool;

    /// How much output its initiator has not taken yet, in bytes.
    fn unsent_bytes(&self) -> usize;
}
