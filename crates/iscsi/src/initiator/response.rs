//! What the target says, checked and turned into events.

use super::task::{Entry, RequestKind};
use super::transmit::Run;
use super::{
    AsyncNotice, Event, Outcome, ReadBuffer, Residual, Session, Sink, TargetViolation, receive,
};
use crate::limits::{PINGS_PENDING_MAX, TEXT_ANSWER_MAX_BYTES};
use crate::pdu::{
    AsyncEvent, AsyncMessageBhs, Bhs, BhsBytes, DataInBhs, InitiatorTaskTag, IscsiResponse,
    LogoutResponseBhs, LogoutResponseCode, NopInBhs, Opcode, R2tBhs, RejectBhs, RequestBhs,
    ResponseBhs, ScsiResponseBhs, TaskManagementResponse, TaskManagementResponseBhs,
    TextResponseBhs, flags, opcode, opcode_bits,
};
use crate::serial::SerialNumber;
use receive::Step;

impl Session {
    /// Takes received bytes, any number of them.
    ///
    /// A violation ends the connection: its tasks complete, [`Event::Failed`] follows, and the
    /// owner has to close it.
    pub fn handle_bytes(&mut self, connection: usize, bytes: &[u8]) {
        if let Err(violation) = self.follow(connection, bytes) {
            self.connection_lost(connection);
            self.events.push_back(Event::Failed {
                connection,
                violation,
            });
        }
        self.issue_waiting();
    }

    fn follow(&mut self, connection: usize, mut bytes: &[u8]) -> Result<(), TargetViolation> {
        loop {
            let Some(Some(state)) = self.connections.get_mut(connection) else {
                return Ok(());
            };
            let header = state.receiver.header();
            match state.receiver.step(&mut bytes, &state.parameters)? {
                Step::More => return Ok(()),
                Step::Header => {
                    let header = state.receiver.header();
                    self.begin(connection, &header)?;
                }
                Step::Piece(piece) => self.take_piece(connection, piece),
                Step::Complete => self.finish(connection, &header)?,
            }
        }
    }

    /// A header is there: find out where its data goes.
    fn begin(&mut self, connection: usize, header: &BhsBytes) -> Result<(), TargetViolation> {
        let sink = if opcode(header) == Some(Opcode::DataIn) {
            self.begin_data_in(connection, DataInBhs::view(header))?
        } else {
            Sink::Gather(Vec::new())
        };
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.sink = sink;
        }
        Ok(())
    }

    fn take_piece(&mut self, connection: usize, piece: &[u8]) {
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return;
        };
        match &mut state.sink {
            Sink::Gather(data) => data.extend_from_slice(piece),
            Sink::Task { itt, offset } => {
                let end = offset.saturating_add(piece.len());
                // The range was checked with the header.
                if let Some(task) = self.entries.task_mut(*itt)
                    && let ReadBuffer::Into(buffer) = &mut task.command.read
                    && let Some(place) = buffer.get_mut(*offset..end)
                {
                    place.copy_from_slice(piece);
                }
                *offset = end;
            }
        }
    }

    /// A PDU is whole.
    fn finish(&mut self, connection: usize, header: &BhsBytes) -> Result<(), TargetViolation> {
        let opcode_number = opcode_bits(header);
        let opcode = opcode(header).filter(|opcode| !opcode.is_request());
        let Some(opcode) = opcode.filter(|opcode| *opcode != Opcode::LoginResponse) else {
            return Err(TargetViolation::UnexpectedOpcode {
                opcode: opcode_number,
            });
        };
        self.take_numbers(connection, header, opcode)?;
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return Ok(());
        };
        let data = match &mut state.sink {
            Sink::Gather(data) => std::mem::take(data),
            Sink::Task { .. } => Vec::new(),
        };
        match opcode {
            Opcode::DataIn => self.finish_data_in(DataInBhs::view(header)),
            Opcode::ScsiResponse => {
                self.handle_response(connection, ScsiResponseBhs::view(header), &data)
            }
            Opcode::R2t => self.handle_r2t(connection, R2tBhs::view(header)),
            Opcode::NopIn => self.handle_nop_in(connection, NopInBhs::view(header), data),
            Opcode::TaskManagementResponse => {
                self.handle_management(connection, TaskManagementResponseBhs::view(header))
            }
            Opcode::TextResponse => {
                self.handle_text(connection, TextResponseBhs::view(header), &data)
            }
            Opcode::LogoutResponse => {
                self.handle_logout(connection, LogoutResponseBhs::view(header))
            }
            Opcode::AsyncMessage => {
                self.handle_async(connection, AsyncMessageBhs::view(header), &data)
            }
            Opcode::Reject => self.handle_reject(connection, RejectBhs::view(header), &data),
            Opcode::NopOut
            | Opcode::ScsiCommand
            | Opcode::TaskManagementRequest
            | Opcode::LoginRequest
            | Opcode::TextRequest
            | Opcode::DataOut
            | Opcode::LogoutRequest
            | Opcode::Snack
            | Opcode::LoginResponse => Err(TargetViolation::UnexpectedOpcode {
                opcode: opcode_number,
            }),
        }
    }

    /// Takes the window, and StatSN where the PDU uses one up.
    fn take_numbers(
        &mut self,
        connection: usize,
        header: &BhsBytes,
        opcode: Opcode,
    ) -> Result<(), TargetViolation> {
        let common = ResponseBhs::view(header);
        self.take_window(common.exp_cmd_sn(), common.max_cmd_sn());
        let has_status = if opcode == Opcode::DataIn {
            DataInBhs::view(header).has_status()
        } else if opcode == Opcode::NopIn {
            // The target's own ping shows StatSN and does not use it up.
            !NopInBhs::view(header).itt().is_reserved()
        } else {
            opcode != Opcode::R2t
        };
        let Some(Some(state)) = self.connections.get_mut(connection) else {
            return Ok(());
        };
        if has_status {
            let expected = state.exp_stat_sn;
            if common.stat_sn() != expected {
                return Err(TargetViolation::StatSn {
                    got: common.stat_sn().0,
                    expected: expected.0,
                });
            }
            state.exp_stat_sn = expected.next();
        }
        Ok(())
    }

    /// Makes sure that a tag names a task on this connection.
    fn check_task(
        &mut self,
        connection: usize,
        opcode: Opcode,
        itt: InitiatorTaskTag,
    ) -> Result<&mut super::Task, TargetViolation> {
        self.entries
            .task_mut(itt)
            .filter(|task| {
                task.issued
                    .is_some_and(|issued| issued.connection == connection)
            })
            .ok_or_else(|| TargetViolation::UnknownTask {
                opcode: opcode.code(),
                initiator_task_tag: itt.0,
            })
    }

    fn begin_data_in(
        &mut self,
        connection: usize,
        header: &DataInBhs,
    ) -> Result<Sink, TargetViolation> {
        let is_in_order =
            self.parameters.data_pdu_in_order && self.parameters.data_sequence_in_order;
        let itt = header.itt();
        let task = self.check_task(connection, Opcode::DataIn, itt)?;
        let (got, expected) = (header.data_sn.get(), task.data_sn);
        if got != expected {
            return Err(TargetViolation::DataSn { got, expected });
        }
        task.data_sn = expected.wrapping_add(1);

        let (offset, length) = (header.buffer_offset.get(), header.data_segment_length.get());
        let (received, room) = (task.received, task.read_length());
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= room)
            && received.checked_add(length).is_some_and(|sum| sum <= room);
        if !is_inside || (is_in_order && offset != received) {
            return Err(TargetViolation::DataInOutside {
                offset,
                length,
                received,
                expected: room,
            });
        }
        task.received = received.saturating_add(length);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(Sink::Task { itt, offset })
    }

    fn finish_data_in(&mut self, header: &DataInBhs) -> Result<(), TargetViolation> {
        if !header.has_status() {
            return Ok(());
        }
        let residual = residual(
            header.flags,
            flags::RESIDUAL_OVERFLOW,
            flags::RESIDUAL_UNDERFLOW,
            header.residual_count.get(),
        );
        let outcome = Outcome::Status(header.status);
        self.complete(header.itt(), outcome, residual, Residual::None, Vec::new())
    }

    fn handle_response(
        &mut self,
        connection: usize,
        header: &ScsiResponseBhs,
        data: &[u8],
    ) -> Result<(), TargetViolation> {
        let malformed = TargetViolation::Malformed {
            opcode: Opcode::ScsiResponse.code(),
        };
        let task = self.check_task(connection, Opcode::ScsiResponse, header.itt())?;
        let (got, expected) = (task.data_sn, header.exp_data_sn.get());
        let outcome = match IscsiResponse::from_code(header.response) {
            Some(IscsiResponse::CommandCompleted) => Outcome::Status(header.status),
            Some(IscsiResponse::TargetFailure) => Outcome::TargetFailure,
            // Values from 0x80 on are the vendor's.
            None if header.response >= 0x80 => Outcome::TargetFailure,
            None => return Err(malformed),
        };
        // More was sent than has arrived.
        if SerialNumber(got).is_before(SerialNumber(expected)) {
            return Err(TargetViolation::DataSn { got, expected });
        }
        let sense = read_sense(data).ok_or(malformed)?;
        let own = residual(
            header.flags,
            flags::RESIDUAL_OVERFLOW,
            flags::RESIDUAL_UNDERFLOW,
            header.residual_count.get(),
        );
        let read = residual(
            header.flags,
            flags::BIDIRECTIONAL_READ_OVERFLOW,
            flags::BIDIRECTIONAL_READ_UNDERFLOW,
            header.bidirectional_read_residual_count.get(),
        );
        self.complete(header.itt(), outcome, own, read, sense)
    }

    /// Completes a task, unless GOOD hides that data is missing, or was never taken.
    fn complete(
        &mut self,
        itt: InitiatorTaskTag,
        outcome: Outcome,
        residual: Residual,
        read_residual: Residual,
        sense: Vec<u8>,
    ) -> Result<(), TargetViolation> {
        let Some(task) = self.entries.task_mut(itt) else {
            return Ok(());
        };
        let expected = task.read_length();
        let of_read = if task.write_length() > 0 {
            read_residual
        } else {
            residual
        };
        let underflow = |residual| match residual {
            Residual::Underflow(bytes) => bytes,
            Residual::None | Residual::Overflow(_) => 0,
        };
        let missing = underflow(of_read);
        let (sent, untaken) = (task.sent, underflow(residual));
        // A target may have been sent more than it says that it took.
        if outcome == Outcome::Status(0) && sent.saturating_add(untaken) < task.write_length() {
            return Err(TargetViolation::DataNotTaken {
                sent,
                residual: untaken,
                expected: task.write_length(),
            });
        }
        if outcome == Outcome::Status(0) && task.received.checked_add(missing) != Some(expected) {
            return Err(TargetViolation::DataMissing {
                received: task.received,
                residual: missing,
                expected,
            });
        }
        if let Some(Entry::Task(task)) = self.entries.remove(itt) {
            let done = task.complete(outcome, residual, read_residual, sense);
            self.events.push_back(Event::Completed(done));
        }
        Ok(())
    }

    /// Ends a task without an answer of its own.
    pub(super) fn end_task(&mut self, itt: InitiatorTaskTag, outcome: Outcome) {
        if self.entries.task_mut(itt).is_some()
            && let Some(Entry::Task(task)) = self.entries.remove(itt)
        {
            self.events
                .push_back(Event::Completed(task.abandon(outcome)));
        }
    }

    fn handle_r2t(&mut self, connection: usize, header: &R2tBhs) -> Result<(), TargetViolation> {
        let limit = self.parameters.max_outstanding_r2t;
        let max_burst = self.parameters.max_burst_length_bytes;
        let is_in_order = self.parameters.data_sequence_in_order;
        let itt = header.itt();
        let task = self.check_task(connection, Opcode::R2t, itt)?;
        let (got, expected) = (header.r2t_sn.get(), task.data_sn);
        if got != expected {
            return Err(TargetViolation::DataSn { got, expected });
        }
        task.data_sn = expected.wrapping_add(1);

        let (offset, length) = (
            header.buffer_offset.get(),
            header.desired_data_transfer_length.get(),
        );
        let (next, total) = (task.next_solicited, task.write_length());
        let end = offset.checked_add(length).filter(|&end| end <= total);
        let asked = next.checked_add(length).filter(|&sum| sum <= total);
        let (Some(end), Some(asked), Some(data)) = (end, asked, task.write_data()) else {
            return Err(TargetViolation::R2tOutside {
                offset,
                length,
                next,
                expected: total,
            });
        };
        let tag = header.target_transfer_tag.get();
        if length == 0
            || length > max_burst
            || tag == crate::pdu::RESERVED_TAG
            || (is_in_order && offset != next)
        {
            return Err(TargetViolation::R2tOutside {
                offset,
                length,
                next,
                expected: total,
            });
        }
        if task.open_r2t >= limit {
            return Err(TargetViolation::TooManyR2t { limit });
        }
        // Out of order, this counts how much was asked for: each byte at most once on average.
        task.next_solicited = asked;
        task.open_r2t = task.open_r2t.saturating_add(1);
        if let Some(Some(state)) = self.connections.get_mut(connection) {
            state.transmitter.push_run(Run {
                itt,
                lun: header.lun.get(),
                target_transfer_tag: tag,
                data,
                next: offset,
                end,
                data_sn: 0,
            });
        }
        Ok(())
    }

    fn handle_nop_in(
        &mut self,
        connection: usize,
        header: &NopInBhs,
        data: Vec<u8>,
    ) -> Result<(), TargetViolation> {
        if !header.itt().is_reserved() {
            let (tag, _) = self.take_request(connection, Opcode::NopIn, header.itt(), |kind| {
                matches!(kind, RequestKind::Ping)
            })?;
            self.events.push_back(Event::Pong { tag, data });
            return Ok(());
        }
        let target_transfer_tag = header.target_transfer_tag.get();
        if target_transfer_tag == crate::pdu::RESERVED_TAG {
            // Only reports the window.
            return Ok(());
        }
        if let Some(Some(state)) = self.connections.get(connection)
            && state.transmitter.pending_requests()
                >= PINGS_PENDING_MAX.saturating_add(self.tasks())
        {
            return Err(TargetViolation::TooManyPings {
                limit: PINGS_PENDING_MAX,
            });
        }
        self.answer_ping(connection, header.lun.get(), target_transfer_tag);
        Ok(())
    }

    /// Takes a request out of the table that this PDU answers.
    fn take_request(
        &mut self,
        connection: usize,
        opcode: Opcode,
        itt: InitiatorTaskTag,
        is_kind: impl Fn(&RequestKind) -> bool,
    ) -> Result<(u64, RequestKind), TargetViolation> {
        let is_answer = match self.entries.get_mut(itt) {
            Some(Entry::Request(request)) => {
                request.connection == connection && is_kind(&request.kind)
            }
            Some(Entry::Task(_)) | None => false,
        };
        if is_answer && let Some(Entry::Request(request)) = self.entries.remove(itt) {
            return Ok((request.tag, request.kind));
        }
        Err(TargetViolation::UnknownTask {
            opcode: opcode.code(),
            initiator_task_tag: itt.0,
        })
    }

    fn handle_management(
        &mut self,
        connection: usize,
        header: &TaskManagementResponseBhs,
    ) -> Result<(), TargetViolation> {
        let opcode = Opcode::TaskManagementResponse;
        let (tag, kind) = self.take_request(connection, opcode, header.itt(), |kind| {
            matches!(kind, RequestKind::Management(..))
        })?;
        let response = TaskManagementResponse::from_code(header.response);
        if response == Some(TaskManagementResponse::Complete)
            && let RequestKind::Management(management, before) = kind
        {
            self.end_managed(management, before);
        }
        self.events
            .push_back(Event::ManagementDone { tag, response });
        Ok(())
    }

    fn handle_text(
        &mut self,
        connection: usize,
        header: &TextResponseBhs,
        data: &[u8],
    ) -> Result<(), TargetViolation> {
        let itt = header.itt();
        let opcode = Opcode::TextResponse;
        let Some(Entry::Request(request)) = self.entries.get_mut(itt) else {
            return Err(TargetViolation::UnknownTask {
                opcode: opcode.code(),
                initiator_task_tag: itt.0,
            });
        };
        if let RequestKind::Text { answer } = &mut request.kind {
            if answer.len().saturating_add(data.len()) > TEXT_ANSWER_MAX_BYTES {
                return Err(TargetViolation::AnswerTooLong {
                    limit_bytes: TEXT_ANSWER_MAX_BYTES,
                });
            }
            answer.extend_from_slice(data);
        }
        if !header.is_final() {
            let target_transfer_tag = header.target_transfer_tag.get();
            // Without a tag there is no way to go on; and an exchange of nothing would never end.
            if target_transfer_tag == crate::pdu::RESERVED_TAG
                || (data.is_empty() && !header.is_continued())
                || request.connection != connection
            {
                return Err(TargetViolation::Malformed {
                    opcode: opcode.code(),
                });
            }
            self.continue_text(connection, itt, header.lun.get(), target_transfer_tag);
            return Ok(());
        }
        let (tag, kind) = self.take_request(connection, opcode, itt, |kind| {
            matches!(kind, RequestKind::Text { .. })
        })?;
        if let RequestKind::Text { answer: text } = kind {
            self.events.push_back(Event::Text { tag, text });
        }
        Ok(())
    }

    fn handle_logout(
        &mut self,
        connection: usize,
        header: &LogoutResponseBhs,
    ) -> Result<(), TargetViolation> {
        let opcode = Opcode::LogoutResponse;
        let (tag, _) = self.take_request(connection, opcode, header.itt(), |kind| {
            matches!(kind, RequestKind::Logout)
        })?;
        let response = LogoutResponseCode::from_code(header.response);
        self.events.push_back(Event::LoggedOut { tag, response });
        Ok(())
    }

    fn handle_async(
        &mut self,
        connection: usize,
        header: &AsyncMessageBhs,
        data: &[u8],
    ) -> Result<(), TargetViolation> {
        let malformed = TargetViolation::Malformed {
            opcode: Opcode::AsyncMessage.code(),
        };
        let event = AsyncEvent::from_code(header.async_event).ok_or(malformed)?;
        let sense = if event == AsyncEvent::ScsiEvent {
            read_sense(data).ok_or(malformed)?
        } else {
            Vec::new()
        };
        let notice = AsyncNotice {
            event,
            lun: header.lun.get(),
            vendor_code: header.async_vendor_code,
            parameters: [
                header.parameter1.get(),
                header.parameter2.get(),
                header.parameter3.get(),
            ],
            sense,
        };
        self.events.push_back(Event::Async { connection, notice });
        Ok(())
    }

    fn handle_reject(
        &mut self,
        connection: usize,
        header: &RejectBhs,
        data: &[u8],
    ) -> Result<(), TargetViolation> {
        let malformed = TargetViolation::Malformed {
            opcode: Opcode::Reject.code(),
        };
        let rejected: &BhsBytes = data.first_chunk().ok_or(malformed)?;
        let itt = RequestBhs::view(rejected).itt();
        let reason = header.reason;
        let is_own = match self.entries.get_mut(itt) {
            Some(entry) => entry.connection() == Some(connection),
            None => false,
        };
        let is_command = opcode(rejected) == Some(Opcode::ScsiCommand);
        let is_task = self.entries.task_mut(itt).is_some();
        let mut tag = None;
        if is_own && is_task && is_command {
            self.end_task(itt, Outcome::Rejected(reason));
            return Ok(());
        }
        if is_own
            && !is_task
            && let Some(Entry::Request(request)) = self.entries.remove(itt)
        {
            tag = Some(request.tag);
        }
        self.events.push_back(Event::Rejected {
            connection,
            reason,
            tag,
        });
        Ok(())
    }
}

fn residual(header_flags: u8, overflow: u8, underflow: u8, count: u32) -> Residual {
    if header_flags & overflow != 0 {
        Residual::Overflow(count)
    } else if header_flags & underflow != 0 {
        Residual::Underflow(count)
    } else {
        Residual::None
    }
}

/// Sense data behind its two-byte length; empty data is no sense.
fn read_sense(data: &[u8]) -> Option<Vec<u8>> {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return data.is_empty().then(Vec::new);
    };
    let length = usize::from(u16::from_be_bytes(*length));
    rest.get(..length).map(<[u8]>::to_vec)
}
