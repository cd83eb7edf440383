//! What this side asks: commands as the window allows, pings, task management, text, logout.

use super::task::{Entry, Issued, Request, RequestKind};
use super::transmit::{Run, Segment};
use super::{Command, Connection, Management, Session, SubmitError};
use crate::pdu::{
    Bhs, BhsBytes, Cid, InitiatorTaskTag, LogoutReason, LogoutRequestBhs, NopOutBhs, RESERVED_TAG,
    RequestBhs, ScsiCommandBhs, TaskManagementFunction, TaskManagementRequestBhs, TextRequestBhs,
    extended_cdb_ahs, flags, read_length_ahs,
};
use crate::serial::SerialNumber;

impl Session {
    /// Sends waiting commands as long as the window is open.
    pub(super) fn issue_waiting(&mut self) {
        while !self.cmd_sn.is_after(self.max_cmd_sn)
            && let Some(&itt) = self.waiting.front()
            && let Some(connection) = self.choose_connection()
        {
            self.waiting.pop_front();
            // A command that was aborted while it waited is no longer there.
            if self.entries.task_mut(itt).is_some() {
                self.issue(itt, connection);
            }
        }
    }

    /// Takes connections in turn.
    fn choose_connection(&mut self) -> Option<usize> {
        let count = self.connections.len();
        for _ in 0..count {
            let index = self.next_connection.checked_rem(count).unwrap_or_default();
            self.next_connection = index.saturating_add(1);
            if matches!(self.connections.get(index), Some(Some(_))) {
                return Some(index);
            }
        }
        None
    }

    fn issue(&mut self, itt: InitiatorTaskTag, connection: usize) {
        let cmd_sn = self.cmd_sn;
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return;
        };
        let Some(task) = self.entries.task_mut(itt) else {
            return;
        };
        self.cmd_sn = cmd_sn.next();
        task.issued = Some(Issued { connection, cmd_sn });

        let (write_length, read_length) = (task.write_length(), task.read_length());
        let parameters = &self.parameters;
        let first_burst = parameters.first_burst_length_bytes.min(write_length);
        let immediate = if parameters.immediate_data {
            first_burst.min(state.parameters.peer_max_recv_data_segment_length_bytes)
        } else {
            0
        };
        let unsolicited = if parameters.initial_r2t {
            immediate
        } else {
            first_burst
        };
        task.next_solicited = unsolicited;

        let mut header = command_header(&task.command, write_length, read_length);
        if unsolicited == immediate {
            header.flags |= flags::FINAL;
        }
        header.initiator_task_tag = itt.0.into();
        header.cmd_sn = cmd_sn.into();

        let mut ahs = Vec::new();
        if !task.command.extended_cdb.is_empty() {
            let whole = [&task.command.cdb[..], &task.command.extended_cdb].concat();
            ahs = extended_cdb_ahs(&whole).unwrap_or_default();
        }
        if write_length > 0 && read_length > 0 {
            ahs.extend_from_slice(&read_length_ahs(read_length));
        }
        let Some(data) = task.write_data() else {
            state
                .transmitter
                .push(header.as_bhs_bytes(), ahs, Segment::EMPTY);
            return;
        };
        let end = usize::try_from(immediate).unwrap_or(usize::MAX);
        let segment = Segment::Shared(data.clone(), 0..end);
        state.transmitter.push(header.as_bhs_bytes(), ahs, segment);
        if unsolicited > immediate {
            state.transmitter.push_run(Run {
                itt,
                lun: task.command.lun,
                target_transfer_tag: RESERVED_TAG,
                data,
                next: immediate,
                end: unsolicited,
                data_sn: 0,
            });
        }
    }

    fn alive(&mut self, connection: usize) -> Result<&mut Connection, SubmitError> {
        match self.connections.get_mut(connection) {
            Some(Some(state)) => Ok(state),
            Some(None) | None => Err(SubmitError::NoConnection { connection }),
        }
    }

    /// Registers a request and queues its header, for immediate delivery.
    fn push_request(
        &mut self,
        connection: usize,
        tag: u64,
        kind: RequestKind,
        mut header: BhsBytes,
        data: Vec<u8>,
    ) -> Result<(), SubmitError> {
        let cmd_sn = self.cmd_sn;
        self.alive(connection)?;
        let entry = Entry::Request(Request {
            tag,
            connection,
            kind,
        });
        let limit = self.entries.len();
        let itt = self
            .entries
            .insert(entry)
            .ok_or(SubmitError::Full { limit })?;
        let common = RequestBhs::view_mut(&mut header);
        common.opcode |= flags::IMMEDIATE;
        common.initiator_task_tag = itt.0.into();
        common.cmd_sn = cmd_sn.into();
        let state = self.alive(connection)?;
        state
            .transmitter
            .push(&header, Vec::new(), Segment::Owned(data));
        Ok(())
    }

    /// Pings the target; [`super::Event::Pong`] follows.
    ///
    /// # Errors
    ///
    /// Nothing was sent; see [`SubmitError`].
    pub fn ping(&mut self, connection: usize, tag: u64, data: Vec<u8>) -> Result<(), SubmitError> {
        let limit = self
            .alive(connection)?
            .parameters
            .peer_max_recv_data_segment_length_bytes;
        if u32::try_from(data.len()).map_or(true, |length| length > limit) {
            return Err(SubmitError::TooLong);
        }
        let mut header = NopOutBhs::new();
        header.target_transfer_tag = RESERVED_TAG.into();
        self.push_request(
            connection,
            tag,
            RequestKind::Ping,
            *header.as_bhs_bytes(),
            data,
        )
    }

    /// Answers a ping of the target.
    pub(super) fn answer_ping(&mut self, connection: usize, lun: u64, target_transfer_tag: u32) {
        let cmd_sn = self.cmd_sn;
        if let Ok(state) = self.alive(connection) {
            let mut header = NopOutBhs::new();
            header.opcode |= flags::IMMEDIATE;
            header.lun = lun.into();
            header.initiator_task_tag = RESERVED_TAG.into();
            header.target_transfer_tag = target_transfer_tag.into();
            header.cmd_sn = cmd_sn.into();
            state
                .transmitter
                .push(header.as_bhs_bytes(), Vec::new(), Segment::EMPTY);
        }
    }

    /// Sends a task management function; [`super::Event::ManagementDone`] follows.
    ///
    /// ABORT TASK of a command that is not sent yet ends it here, without a word to the target.
    ///
    /// # Errors
    ///
    /// Nothing was sent; see [`SubmitError`].
    pub fn manage(
        &mut self,
        connection: usize,
        tag: u64,
        management: Management,
    ) -> Result<(), SubmitError> {
        let mut header = TaskManagementRequestBhs::new();
        header.flags |= management.function.code();
        header.lun = management.lun.into();
        header.referenced_task_tag = RESERVED_TAG.into();
        let mut connection = connection;
        if management.function == TaskManagementFunction::AbortTask
            && let Some(itt) = management.task
        {
            header.referenced_task_tag = itt.0.into();
            match self
                .entries
                .task_mut(itt)
                .map(|task| (task.issued, task.command.lun))
            {
                Some((Some(issued), lun)) => {
                    // The function has to follow its task on the same connection.
                    connection = issued.connection;
                    header.ref_cmd_sn = issued.cmd_sn.into();
                    header.lun = lun.into();
                }
                Some((None, _)) => {
                    // The window may stay shut for ever.
                    self.waiting.retain(|waiting| *waiting != itt);
                    self.end_task(itt, super::Outcome::Aborted);
                    self.events.push_back(super::Event::ManagementDone {
                        tag,
                        response: Some(crate::pdu::TaskManagementResponse::Complete),
                    });
                    return Ok(());
                }
                // It is done already: let the target say so.
                None => header.ref_cmd_sn = self.cmd_sn.previous().into(),
            }
        }
        let kind = RequestKind::Management(management, self.cmd_sn);
        self.push_request(connection, tag, kind, *header.as_bhs_bytes(), Vec::new())
    }

    /// Sends a text request; [`super::Event::Text`] follows with the whole answer.
    ///
    /// # Errors
    ///
    /// Nothing was sent; see [`SubmitError`].
    pub fn text(&mut self, connection: usize, tag: u64, text: Vec<u8>) -> Result<(), SubmitError> {
        let limit = self
            .alive(connection)?
            .parameters
            .peer_max_recv_data_segment_length_bytes;
        if u32::try_from(text.len()).map_or(true, |length| length > limit) {
            return Err(SubmitError::TooLong);
        }
        let mut header = TextRequestBhs::new();
        header.target_transfer_tag = RESERVED_TAG.into();
        let kind = RequestKind::Text { answer: Vec::new() };
        self.push_request(connection, tag, kind, *header.as_bhs_bytes(), text)
    }

    /// Asks for the next piece of a text answer.
    pub(super) fn continue_text(
        &mut self,
        connection: usize,
        itt: InitiatorTaskTag,
        lun: u64,
        target_transfer_tag: u32,
    ) {
        let cmd_sn = self.cmd_sn;
        if let Ok(state) = self.alive(connection) {
            let mut header = TextRequestBhs::new();
            header.opcode |= flags::IMMEDIATE;
            header.lun = lun.into();
            header.initiator_task_tag = itt.0.into();
            header.target_transfer_tag = target_transfer_tag.into();
            header.cmd_sn = cmd_sn.into();
            state
                .transmitter
                .push(header.as_bhs_bytes(), Vec::new(), Segment::EMPTY);
        }
    }

    /// Says goodbye on `connection`; [`super::Event::LoggedOut`] follows. `closing` names the
    /// connection to close, where the reason is not to close the session.
    ///
    /// # Errors
    ///
    /// Nothing was sent; see [`SubmitError`].
    pub fn logout(
        &mut self,
        connection: usize,
        tag: u64,
        reason: LogoutReason,
        closing: usize,
    ) -> Result<(), SubmitError> {
        let cid = match reason {
            LogoutReason::CloseSession => Cid(0),
            LogoutReason::CloseConnection | LogoutReason::RemoveConnectionForRecovery => {
                self.alive(closing)?.cid
            }
        };
        let mut header = LogoutRequestBhs::new();
        header.flags |= reason.code();
        header.cid = cid.0.into();
        self.push_request(
            connection,
            tag,
            RequestKind::Logout,
            *header.as_bhs_bytes(),
            Vec::new(),
        )
    }

    /// Ends the tasks that a completed function has ended: those on its logical unit, or all,
    /// that were sent before it.
    pub(super) fn end_managed(&mut self, management: Management, before: SerialNumber) {
        let is_affected = |lun: u64, cmd_sn: SerialNumber| {
            cmd_sn.is_before(before)
                && match management.function {
                    TaskManagementFunction::AbortTaskSet
                    | TaskManagementFunction::ClearTaskSet
                    | TaskManagementFunction::LogicalUnitReset => lun == management.lun,
                    TaskManagementFunction::TargetWarmReset
                    | TaskManagementFunction::TargetColdReset
                    | TaskManagementFunction::ItNexusReset => true,
                    TaskManagementFunction::AbortTask
                    | TaskManagementFunction::ClearAca
                    | TaskManagementFunction::TaskReassign
                    | TaskManagementFunction::QueryTask
                    | TaskManagementFunction::QueryTaskSet
                    | TaskManagementFunction::QueryAsynchronousEvent => false,
                }
        };
        let mut ended = self.entries.select(|entry| match entry {
            Entry::Task(task) => task
                .issued
                .is_some_and(|issued| is_affected(task.command.lun, issued.cmd_sn)),
            Entry::Request(_) => false,
        });
        if management.function == TaskManagementFunction::AbortTask {
            ended.extend(management.task);
        }
        for itt in ended {
            self.end_task(itt, super::Outcome::Aborted);
        }
    }
}

/// The header of a command, but for what its session and its data add.
#[inline]
fn command_header(command: &Command, write_length: u32, read_length: u32) -> ScsiCommandBhs {
    let mut header = ScsiCommandBhs::new();
    header.flags = command.attribute.code();
    if write_length > 0 {
        header.flags |= flags::WRITE;
    }
    if read_length > 0 {
        header.flags |= flags::READ;
    }
    header.lun = command.lun.into();
    header.cdb = command.cdb;
    let expected = if write_length > 0 {
        write_length
    } else {
        read_length
    };
    header.expected_data_transfer_length = expected.into();
    header
}
