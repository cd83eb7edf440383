//! Requests that are not SCSI commands: ping, task management, text, logout; and what the target
//! says unasked.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::rc::Rc;

use super::budget::{Account, Charge};
use super::receive::Header;
use super::session::{Connection, Held, Session, Waiting};
use super::task::{Phase, unit_of};
use super::transmit::Segment;
use super::{Event, LogoutEvent, ManagementEvent, ManagementId, TaskId, Verdict, Violation};
use crate::SerialNumber;
use crate::discovery::{TextExchange, TextReply};
use crate::limits;
use crate::pdu::{
    AsyncEvent, AsyncMessageBhs, Bhs, Cid, LogoutReason, LogoutRequestBhs, LogoutResponseBhs,
    LogoutResponseCode, NopInBhs, NopOutBhs, Opcode, RESERVED_TAG, RejectBhs, RejectReason,
    TaskManagementFunction, TaskManagementRequestBhs, TaskManagementResponse,
    TaskManagementResponseBhs, TextRequestBhs, TextResponseBhs,
};

impl Session {
    pub(super) fn handle_request(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        data: Vec<u8>,
        mut charge: Charge,
    ) -> Result<(), Violation> {
        let opcode = header.opcode_bits();
        if opcode == Opcode::Snack.code() {
            return Err(Violation::Snack);
        }
        let common = header.common();
        let (cmd_sn, immediate) = (common.cmd_sn(), common.is_immediate());
        if !self.check_cmd_sn(cmd_sn, immediate)? {
            charge.resize(header.header_bytes().saturating_add(data.len()))?;
            let what = Waiting::Request {
                header: header.kept(),
                data,
                charge,
            };
            self.hold(Held {
                cmd_sn,
                connection,
                what,
            });
            return Ok(());
        }
        let outcome = self.serve_request(connection, header, &data);
        if !self.held.is_empty() || !self.held_management.is_empty() {
            self.release_held();
        }
        outcome
    }

    /// Serves a request whose turn it is.
    pub(super) fn serve_request(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        data: &[u8],
    ) -> Result<(), Violation> {
        let opcode = header.opcode_bits();
        let before = self.window();
        self.count_cmd_sn(header.common().is_immediate());
        let outcome = match Opcode::from_code(opcode) {
            Some(Opcode::NopOut) => self.handle_nop_out(connection, header, data),
            Some(Opcode::TaskManagementRequest) => self.handle_management(connection, header),
            Some(Opcode::TextRequest) => self.handle_text(connection, header, data),
            Some(Opcode::LogoutRequest) => self.handle_logout(connection, header),
            _ => Err(Violation::OpcodeNotSupported { opcode }),
        };
        if let Err(violation) = outcome
            && matches!(violation.verdict(), Verdict::Reject(_))
        {
            // Spec: RFC 7143 section 11.17; the number of a rejected request was not received,
            // and the initiator must fill the gap.
            (self.exp_cmd_sn, self.max_cmd_sn) = before;
        }
        outcome
    }

    pub(super) fn handle_nop_out(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        data: &[u8],
    ) -> Result<(), Violation> {
        let bhs = NopOutBhs::view(header.bhs);
        let transfer = bhs.target_transfer_tag.get();
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return Ok(());
        };
        if transfer != RESERVED_TAG {
            return match state.ping {
                Some((tag, _)) if tag == transfer => {
                    state.ping = None;
                    Ok(())
                }
                Some(_) | None => Err(Violation::UnknownPing {
                    target_transfer_tag: transfer,
                }),
            };
        }
        if bhs.itt().is_reserved() {
            // Spec: RFC 7143 section 11.18; it only confirms ExpStatSN.
            return Ok(());
        }
        let mut answer = NopInBhs::new();
        answer.initiator_task_tag = bhs.initiator_task_tag;
        answer.target_transfer_tag = RESERVED_TAG.into();
        let transmitter = &mut state.transmitter;
        answer.stamp(transmitter.next_stat_sn(), exp, max);
        let length = data.len().min(transmitter.data_segment_max_bytes);
        transmitter.push_with_data(&answer, Segment::Bytes(data.get(..length).unwrap_or(&[])));
        Ok(())
    }

    pub(super) fn handle_management(
        &mut self,
        connection: usize,
        header: &Header<'_>,
    ) -> Result<(), Violation> {
        let bhs = TaskManagementRequestBhs::view(header.bhs);
        let opcode = header.opcode_bits();
        if self.config.is_discovery {
            return Err(Violation::NotInDiscovery { opcode });
        }
        let id = ManagementId {
            connection,
            initiator_task_tag: bhs.initiator_task_tag.get(),
        };
        let Some(function) = TaskManagementFunction::from_code(bhs.function_bits()) else {
            self.respond_management(id, TaskManagementResponse::NotSupported);
            return Ok(());
        };
        let task = match self.task_of_management(connection, bhs, function) {
            Ok(task) => task,
            Err(response) => {
                self.respond_management(id, response);
                return Ok(());
            }
        };
        let cmd_sn = bhs.cmd_sn();
        let event = ManagementEvent {
            id,
            function,
            lun: bhs.lun.get(),
            task,
            cmd_sn,
        };
        // Spec: RFC 7143 section 4.2.3.3; it acts on all commands numbered before it, so they
        // must have come.
        let limit = limits::IMMEDIATE_MANAGEMENT_MAX;
        if self
            .held_management
            .len()
            .saturating_add(self.managing.len())
            >= limit
        {
            return Err(Violation::TooManyImmediate { limit });
        }
        if task.is_none() && self.exp_cmd_sn.is_before(cmd_sn) {
            self.held_management.push(event);
            self.note_gap();
        } else {
            self.managing.push(id);
            self.events.push_back(Event::TaskManagement(event));
        }
        Ok(())
    }

    /// The task that a function acts on, if it acts on a single one; `Err`: the response that can be sent at once.
    fn task_of_management(
        &mut self,
        connection: usize,
        bhs: &TaskManagementRequestBhs,
        function: TaskManagementFunction,
    ) -> Result<Option<TaskId>, TaskManagementResponse> {
        match function {
            TaskManagementFunction::AbortTask => self.task_to_abort(connection, bhs).map(Some),
            TaskManagementFunction::TaskReassign => {
                Err(TaskManagementResponse::ReassignmentNotSupported)
            }
            TaskManagementFunction::AbortTaskSet
            | TaskManagementFunction::ClearTaskSet
            | TaskManagementFunction::LogicalUnitReset
            | TaskManagementFunction::TargetWarmReset
            | TaskManagementFunction::TargetColdReset => Ok(None),
            // ACA is not supported, and the rest needs iSCSIProtocolLevel 2.
            TaskManagementFunction::ClearAca
            | TaskManagementFunction::QueryTask
            | TaskManagementFunction::QueryTaskSet
            | TaskManagementFunction::ItNexusReset
            | TaskManagementFunction::QueryAsynchronousEvent => {
                Err(TaskManagementResponse::NotSupported)
            }
        }
    }

    /// The task that ABORT TASK names, if it runs; `Err`: the response that can be sent at once. One that waits for its
    /// turn ends here; its number still counts.
    fn task_to_abort(
        &mut self,
        connection: usize,
        bhs: &TaskManagementRequestBhs,
    ) -> Result<TaskId, TaskManagementResponse> {
        let unit = unit_of(bhs.lun.get());
        let id = self.find_tag(bhs.referenced_task_tag.get());
        let named = id.and_then(|id| {
            let task = self.task_mut(id)?;
            Some((id, task.phase, unit_of(task.lun) == unit))
        });
        match named {
            Some((id, Phase::Running, true)) => Ok(id),
            Some((id, Phase::Held, true)) => {
                self.close_task(id);
                Err(TaskManagementResponse::Complete)
            }
            // The task set of this unit has no such task; the task is there and goes on.
            Some((_, Phase::Running | Phase::Held, false)) => {
                Err(TaskManagementResponse::TaskDoesNotExist)
            }
            Some((_, Phase::Draining, _)) | None => {
                let response = self.judge_missing(bhs);
                if response == TaskManagementResponse::Complete {
                    self.declare_received(connection, SerialNumber(bhs.ref_cmd_sn.get()));
                }
                Err(response)
            }
        }
    }

    /// A number of the window counts as received, although nothing came with it. If its command
    /// comes after all, it is dropped.
    pub(super) fn declare_received(&mut self, connection: usize, cmd_sn: SerialNumber) {
        if cmd_sn == self.exp_cmd_sn {
            self.count_cmd_sn(false);
        } else if !self.held.iter().any(|held| held.cmd_sn == cmd_sn) {
            self.hold(Held {
                cmd_sn,
                connection,
                what: Waiting::Aborted,
            });
        }
    }

    /// What ABORT TASK says of a task that is not there.
    ///
    /// Spec: RFC 7143 section 11.6.1: if its number was within the window and came before the
    /// request, the number counts as received and the task as ended.
    pub(super) fn judge_missing(&self, bhs: &TaskManagementRequestBhs) -> TaskManagementResponse {
        let referenced = SerialNumber(bhs.ref_cmd_sn.get());
        let is_due = !referenced.is_before(self.exp_cmd_sn);
        let is_in_window = referenced.is_within(self.exp_cmd_sn, self.max_cmd_sn);
        if is_due && is_in_window && referenced.is_before(bhs.cmd_sn()) {
            TaskManagementResponse::Complete
        } else {
            TaskManagementResponse::TaskDoesNotExist
        }
    }

    /// Answers a task management request.
    pub fn respond_management(&mut self, id: ManagementId, response: TaskManagementResponse) {
        if let Some(at) = self.managing.iter().position(|other| *other == id) {
            self.managing.swap_remove(at);
        }
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(id.connection) else {
            return;
        };
        let mut header = TaskManagementResponseBhs::new();
        header.response = response.code();
        header.initiator_task_tag = id.initiator_task_tag.into();
        header.stamp(state.transmitter.next_stat_sn(), exp, max);
        state.transmitter.push(&header);
    }

    pub(super) fn handle_text(
        &mut self,
        connection: usize,
        header: &Header<'_>,
        data: &[u8],
    ) -> Result<(), Violation> {
        let bhs = TextRequestBhs::view(header.bhs);
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return Ok(());
        };
        if state.is_text_unsent {
            return Err(Violation::TextOutstanding);
        }
        let limit = state.transmitter.data_segment_max_bytes;
        let limit = limit.min(limits::TEXT_SEGMENT_MAX_BYTES);
        let reply = state
            .text
            .handle_request(bhs, data, &self.config.text, limit);
        let kept = pay_for_text(&self.account, state);
        if let Err(violation) = kept {
            state.text = TextExchange::new();
            state.text_charge = None;
            return Err(violation);
        }
        let TextReply {
            header: mut answer,
            data,
            remote_max_recv_data_segment_length,
        } = reply.map_err(|_| Violation::Text)?;
        if let Some(bytes) = remote_max_recv_data_segment_length {
            state.transmitter.data_segment_max_bytes = bytes as usize;
        }
        state.is_text_unsent = true;
        TextResponseBhs::stamp(&mut answer, state.transmitter.next_stat_sn(), exp, max);
        state
            .transmitter
            .push_with_data(&answer, Segment::Bytes(&data));
        Ok(())
    }

    pub(super) fn handle_logout(
        &mut self,
        connection: usize,
        header: &Header<'_>,
    ) -> Result<(), Violation> {
        let bhs = LogoutRequestBhs::view(header.bhs);
        let opcode = header.opcode_bits();
        let Some(reason) = LogoutReason::from_code(bhs.reason_bits()) else {
            return Err(Violation::InvalidField { opcode, byte: 1 });
        };
        if self.config.is_discovery && reason != LogoutReason::CloseSession {
            return Err(Violation::NotInDiscovery { opcode });
        }
        let id = ManagementId {
            connection,
            initiator_task_tag: bhs.initiator_task_tag.get(),
        };
        let cid = Cid(bhs.cid.get());
        let event = match reason {
            LogoutReason::CloseSession => LogoutEvent { id, closing: None },
            LogoutReason::CloseConnection => match self.connection_by_cid(cid) {
                Some(closing) => LogoutEvent {
                    id,
                    closing: Some(closing),
                },
                None => {
                    self.respond_logout(id, LogoutResponseCode::CidNotFound);
                    return Ok(());
                }
            },
            LogoutReason::RemoveConnectionForRecovery => {
                let code = if self.connection_by_cid(cid).is_some() {
                    LogoutResponseCode::RecoveryNotSupported
                } else {
                    LogoutResponseCode::CidNotFound
                };
                self.respond_logout(id, code);
                return Ok(());
            }
        };
        self.events.push_back(Event::Logout(event));
        Ok(())
    }

    /// Answers a logout request, after the tasks it concerns have ended.
    pub fn respond_logout(&mut self, id: ManagementId, code: LogoutResponseCode) {
        let (exp, max) = self.window();
        let parameters = &self.config.parameters;
        let (wait, retain) = (
            parameters.default_time2wait_s,
            parameters.default_time2retain_s,
        );
        let Some(Some(state)) = self.connections.get_mut(id.connection) else {
            return;
        };
        let mut header = LogoutResponseBhs::new();
        header.response = code.code();
        header.initiator_task_tag = id.initiator_task_tag.into();
        header.time2wait_s = wait.into();
        header.time2retain_s = retain.into();
        header.stamp(state.transmitter.next_stat_sn(), exp, max);
        state.transmitter.push(&header);
    }

    pub(super) fn reject(
        &mut self,
        connection: usize,
        bad: Option<&Header<'_>>,
        reason: RejectReason,
    ) {
        let (exp, max) = self.window();
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return;
        };
        let mut header = RejectBhs::new();
        header.reason = reason.code();
        header.initiator_task_tag = RESERVED_TAG.into();
        header.stamp(state.transmitter.next_stat_sn(), exp, max);
        let mut copy = Vec::new();
        if let Some(bad) = bad {
            copy.extend_from_slice(bad.bhs);
            copy.extend_from_slice(bad.ahs);
        }
        state
            .transmitter
            .push_with_data(&header, Segment::Bytes(&copy));
    }

    /// Asks the initiator to log out within `seconds`, on every connection.
    pub fn request_logout(&mut self, seconds: u16) {
        self.push_async(AsyncEvent::LogoutRequest, seconds);
    }

    /// Says on every connection that all of them are about to be closed.
    pub fn announce_end(&mut self) {
        self.push_async(AsyncEvent::SessionDrop, 0);
    }

    pub(super) fn push_async(&mut self, event: AsyncEvent, parameter3: u16) {
        let (exp, max) = self.window();
        for state in self.connections.iter_mut().flatten() {
            let mut header = AsyncMessageBhs::new();
            header.initiator_task_tag = RESERVED_TAG.into();
            header.async_event = event.code();
            header.parameter3 = parameter3.into();
            header.stamp(state.transmitter.next_stat_sn(), exp, max);
            state.transmitter.push(&header);
        }
    }
}

/// Pays for what the text exchange of a connection holds now.
fn pay_for_text(account: &Rc<Account>, state: &mut Connection) -> Result<(), Violation> {
    let bytes = state.text.held_bytes();
    match &mut state.text_charge {
        Some(charge) => charge.resize(bytes),
        None if bytes == 0 => Ok(()),
        None => {
            state.text_charge = Some(account.charge(bytes)?);
            Ok(())
        }
    }
}
