//! iSCSI: one session is a port of the engine.

use std::time::Duration;

use ::iscsi::limits::DISCOVERY_QUEUE_DEPTH;
use ::iscsi::pdu::{
    TaskAttribute as SentAttribute, TaskManagementFunction, TaskManagementResponse,
};
use ::iscsi::target::{
    Command, DataFault, LogoutEvent, ManagementEvent, ManagementId, Response as IscsiResponse,
    Session, TaskId,
};
use engine::{LunMap, Management, ManagementOutcome, Port, Response};
use memory::{NoRoom, Payload, Pool};
use scsi::{Outcome, Sense, SenseCode, SenseKey, Status, TaskAttribute};

use super::session::Detail;
use crate::names::CommandId;

/// A session, and what is kept beside it.
#[derive(Debug)]
pub struct SessionPort {
    /// The protocol.
    pub session: Session,
    /// What the sockets of the session have not taken yet, in bytes.
    pub sending_bytes: usize,
    /// What is kept beside the protocol.
    pub detail: Detail,
}

impl SessionPort {
    /// A session that sends nothing yet.
    pub const fn new(session: Session, detail: Detail) -> Self {
        Self {
            session,
            sending_bytes: 0,
            detail,
        }
    }
}

impl Port for SessionPort {
    type CommandId = TaskId;
    type Command = Command;
    type ManagementId = ManagementId;
    type Farewell = LogoutEvent;
    /// Its index in the session.
    type Connection = usize;

    #[inline]
    fn lun_of(command: &Command) -> u64 {
        command.lun
    }

    #[inline]
    fn attribute_of(command: &Command) -> Option<TaskAttribute> {
        match command.attribute {
            Some(SentAttribute::Untagged | SentAttribute::Simple) => Some(TaskAttribute::Simple),
            Some(SentAttribute::Ordered) => Some(TaskAttribute::Ordered),
            Some(SentAttribute::HeadOfQueue) => Some(TaskAttribute::HeadOfQueue),
            // There is never an ACA condition.
            Some(SentAttribute::Aca) | None => None,
        }
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
        let cdb = if command.extended_cdb.is_empty() {
            &command.cdb[..]
        } else {
            long.extend_from_slice(&command.cdb);
            long.extend_from_slice(&command.extended_cdb);
            long
        };
        scsi::Command {
            cdb,
            data_out_length: command.data_out_length,
            data_in_length: command.data_in_length,
            luns,
        }
    }

    #[inline]
    fn place_of(id: TaskId) -> usize {
        id.index as usize
    }

    #[inline]
    fn arrival_of(&self, id: TaskId) -> Duration {
        self.session.arrival_of(id)
    }

    #[inline]
    fn request_data(&mut self, id: TaskId, length: u32, pool: &Pool) -> Option<Payload> {
        self.session.request_data(id, length, pool)
    }

    #[inline]
    fn leave_chunk(&mut self, id: TaskId, pool: &Pool) {
        self.session.leave_chunk(id, pool);
    }

    #[inline]
    fn needs_stable_data(&self, id: TaskId) -> bool {
        self.session.needs_stable_data(id)
    }

    #[inline]
    fn respond(&mut self, id: TaskId, response: Response<'_>) -> Option<usize> {
        let response = IscsiResponse {
            status: response.status as u8,
            sense: response.sense,
            data: response.data,
            transfer_length: response.transfer_length,
        };
        self.session.respond(id, response)
    }

    /// Its initiator gives the command again, with the data.
    fn return_data(&mut self, _: TaskId, data: Payload) {
        drop(data);
    }

    fn abandon(&mut self, id: TaskId) {
        self.session.abandon(id);
    }

    fn respond_management(
        &mut self,
        id: ManagementId,
        outcome: ManagementOutcome,
    ) -> Option<usize> {
        let response = match outcome {
            ManagementOutcome::Complete => TaskManagementResponse::Complete,
            ManagementOutcome::Rejected => TaskManagementResponse::Rejected,
            ManagementOutcome::NoSuchUnit => TaskManagementResponse::LunDoesNotExist,
            ManagementOutcome::NotAllowed => TaskManagementResponse::AuthorizationFailed,
        };
        self.session.respond_management(id, response);
        Some(id.connection)
    }

    fn has_event(&self) -> bool {
        self.session.has_event()
    }

    fn starves_for(&self) -> Option<NoRoom> {
        self.session.starves_for()
    }

    fn handle_memory(&mut self, pool: &Pool) {
        self.session.handle_memory(pool);
    }

    fn set_queue_depth(&mut self, commands: u32) {
        let most = match self.session.config().is_discovery {
            true => DISCOVERY_QUEUE_DEPTH,
            false => u32::MAX,
        };
        self.session.set_queue_depth(commands.min(most));
    }

    fn set_queue_limit(&mut self, commands: u32) -> bool {
        self.session.set_queue_limit(commands)
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        self.sending_bytes
            .saturating_add(self.session.unsent_bytes())
    }
}

/// Tasks, as the engine names them.
pub(super) fn names_of(tasks: Vec<TaskId>) -> Vec<CommandId> {
    tasks.into_iter().map(CommandId::from).collect()
}

/// What a task management request asks of the engine, with the target that is reset cold where one
/// is. `None`: a function that is not done here.
pub(super) fn management_of(
    session: &Session,
    event: &ManagementEvent,
    target: Option<engine::TargetIndex>,
) -> Option<Management<CommandId>> {
    let lun = event.lun;
    match event.function {
        TaskManagementFunction::AbortTask => {
            Some(Management::AbortTask(event.task.map(CommandId::from)))
        }
        TaskManagementFunction::AbortTaskSet | TaskManagementFunction::ClearTaskSet => {
            let commands = names_of(session.tasks_of_unit(lun, Some(event.cmd_sn)));
            Some(Management::AbortTaskSet { lun, commands })
        }
        TaskManagementFunction::LogicalUnitReset => Some(Management::LogicalUnitReset { lun }),
        TaskManagementFunction::TargetWarmReset => Some(Management::TargetReset { cold: None }),
        TaskManagementFunction::TargetColdReset => Some(Management::TargetReset { cold: target }),
        TaskManagementFunction::ClearAca
        | TaskManagementFunction::TaskReassign
        | TaskManagementFunction::QueryTask
        | TaskManagementFunction::QueryTaskSet
        | TaskManagementFunction::ItNexusReset
        | TaskManagementFunction::QueryAsynchronousEvent => None,
    }
}

/// The answer of a command whose data will not be complete.
///
/// Spec: RFC 7143 section 11.4.7.2.
pub(super) const fn outcome_of(fault: DataFault) -> Outcome {
    let code = match fault {
        DataFault::UnexpectedUnsolicited => SenseCode::UNEXPECTED_UNSOLICITED_DATA,
        DataFault::IncorrectAmount => SenseCode::NOT_ENOUGH_UNSOLICITED_DATA,
        DataFault::DigestError => SenseCode::PROTOCOL_SERVICE_CRC_ERROR,
        DataFault::NoMemory => return Outcome::status(Status::TaskSetFull),
    };
    Outcome::check(Sense::new(SenseKey::AbortedCommand, code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(attribute: Option<SentAttribute>, extended_cdb: Vec<u8>) -> Command {
        Command {
            lun: 1 << 48,
            cdb: [7; 16],
            extended_cdb,
            attribute,
            data_out_length: 1,
            data_in_length: 2,
        }
    }

    /// Spec: RFC 7143 section 11.3.1.
    #[test]
    fn each_attribute_is_that_of_the_task() {
        for (sent, expected) in [
            (Some(SentAttribute::Untagged), Some(TaskAttribute::Simple)),
            (Some(SentAttribute::Simple), Some(TaskAttribute::Simple)),
            (Some(SentAttribute::Ordered), Some(TaskAttribute::Ordered)),
            (
                Some(SentAttribute::HeadOfQueue),
                Some(TaskAttribute::HeadOfQueue),
            ),
            (Some(SentAttribute::Aca), None),
            (None, None),
        ] {
            let command = command(sent, Vec::new());
            assert_eq!(SessionPort::attribute_of(&command), expected, "{sent:?}");
        }
    }

    #[test]
    fn a_long_cdb_is_put_together() {
        let luns = LunMap::default();
        for (extended, cdb) in [
            (vec![], vec![7; 16]),
            (vec![8, 9], [&[7; 16][..], &[8, 9]].concat()),
        ] {
            let command = command(None, extended);
            let mut long = Vec::new();
            let scsi = SessionPort::scsi_command(&command, &luns, &mut long);
            assert_eq!(scsi.cdb, cdb);
            assert_eq!((scsi.data_out_length, scsi.data_in_length), (1, 2));
            assert_eq!(SessionPort::lun_of(&command), 1 << 48);
        }
    }

    /// Spec: RFC 7143 section 11.4.7.2.
    #[test]
    fn each_fault_of_data_has_its_sense() {
        for (fault, code) in [
            (DataFault::UnexpectedUnsolicited, (0x0c, 0x0c)),
            (DataFault::IncorrectAmount, (0x0c, 0x0d)),
            (DataFault::DigestError, (0x47, 0x05)),
        ] {
            let code = SenseCode {
                asc: code.0,
                ascq: code.1,
            };
            let sense = Sense::new(SenseKey::AbortedCommand, code);
            let expected = format!("{:?}", Outcome::check(sense));
            assert_eq!(format!("{:?}", outcome_of(fault)), expected, "{fault:?}");
        }
        let full = format!("{:?}", Outcome::status(Status::TaskSetFull));
        assert_eq!(format!("{:?}", outcome_of(DataFault::NoMemory)), full);
    }
}
