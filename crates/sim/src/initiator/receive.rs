//! PDUs from the target, checked against the rules.

use iscsi::SerialNumber;
use iscsi::framing::Pdu;
use iscsi::pdu::{
    AsyncMessageBhs, Bhs, DataInBhs, LogoutResponseBhs, LogoutResponseCode, NopInBhs, NopOutBhs,
    Opcode, R2tBhs, RESERVED_TAG, RejectBhs, RejectReason, ResponseBhs, ScsiResponseBhs,
    TaskManagementFunction, TaskManagementResponse, TaskManagementResponseBhs, flags, opcode,
};

use super::{Answer, Breach, Burst, Heard, Other, Session, Task, mischief};

/// Checks a rule.
fn must(holds: bool, rule: &'static str, detail: impl FnOnce() -> String) -> Result<(), Breach> {
    if holds {
        Ok(())
    } else {
        Err(Breach::new(rule, detail()))
    }
}

impl Session {
    /// Takes bytes from the target, and gives all that they say.
    pub fn handle_bytes(&mut self, connection: usize, bytes: &[u8]) -> Result<Vec<Heard>, Breach> {
        self.take_bytes(connection, bytes);
        std::iter::from_fn(|| self.next_heard(connection).transpose()).collect()
    }

    /// Takes bytes from the target, for [`Self::next_heard`].
    pub fn take_bytes(&mut self, connection: usize, bytes: &[u8]) {
        if let Some(state) = self.connection(connection).filter(|it| !it.is_ruined) {
            state.inbound.push(bytes);
        }
    }

    /// What the bytes say that were taken, one after the other.
    pub fn next_heard(&mut self, connection: usize) -> Result<Option<Heard>, Breach> {
        while let Some(state) = self.connection(connection).filter(|it| !it.is_ruined) {
            let parameters = state.parameters;
            let cut = state.inbound.next_pdu(
                parameters.max_recv_data_segment_length_bytes as usize,
                parameters.header_digest,
                parameters.data_digest,
            );
            match cut {
                Ok(Some(pdu)) => {
                    if let Some(heard) = self.handle_pdu(connection, &pdu)? {
                        return Ok(Some(heard));
                    }
                }
                Ok(None) => break,
                Err(error) => return Err(Breach::new("framing", error.to_string())),
            }
        }
        Ok(None)
    }

    fn handle_pdu(&mut self, connection: usize, pdu: &Pdu) -> Result<Option<Heard>, Breach> {
        self.check_window(connection, ResponseBhs::view(&pdu.header))?;
        let header = &pdu.header;
        let common = ResponseBhs::view(header);
        if self.is_suspect && mischief::may_be_answered(common.itt().0) {
            // What the target says about a command that should not have been sent.
            let uses_number = match opcode(header) {
                Some(Opcode::DataIn) => DataInBhs::view(header).has_status(),
                other => other != Some(Opcode::R2t),
            };
            if uses_number {
                self.use_stat_sn(connection, common.stat_sn())?;
            }
            return Ok(None);
        }
        match opcode(header) {
            Some(Opcode::ScsiResponse) => {
                self.use_stat_sn(connection, ScsiResponseBhs::view(header).stat_sn())?;
                self.handle_response(ScsiResponseBhs::view(header), &pdu.data)
            }
            Some(Opcode::DataIn) => self.handle_data_in(connection, pdu),
            Some(Opcode::R2t) => {
                let r2t = R2tBhs::view(header);
                self.see_stat_sn(connection, r2t.stat_sn())?;
                self.handle_r2t(r2t).map(|()| None)
            }
            Some(Opcode::NopIn) => self.handle_nop_in(connection, NopInBhs::view(header)),
            Some(Opcode::TaskManagementResponse) => {
                let response = TaskManagementResponseBhs::view(header);
                self.use_stat_sn(connection, response.stat_sn())?;
                self.handle_managed(response).map(Some)
            }
            Some(Opcode::LogoutResponse) => {
                let response = LogoutResponseBhs::view(header);
                self.use_stat_sn(connection, response.stat_sn())?;
                let code = LogoutResponseCode::from_code(response.response);
                let heard = match self.others.remove(&response.itt().0) {
                    Some(Other::Logout) => Heard::LoggedOut { code },
                    Some(Other::ConnectionLogout) => Heard::ConnectionClosed { code },
                    Some(Other::Ping | Other::Management { .. }) | None => {
                        return Err(Breach::new("answers-are-asked-for", "logout".to_owned()));
                    }
                };
                Ok(Some(heard))
            }
            Some(Opcode::AsyncMessage) => {
                let message = AsyncMessageBhs::view(header);
                self.use_stat_sn(connection, message.stat_sn())?;
                let event = message.async_event;
                Ok(Some(Heard::Asynchronous { event }))
            }
            Some(Opcode::Reject) => {
                let reject = RejectBhs::view(header);
                self.use_stat_sn(connection, reject.stat_sn())?;
                let reason = reject.reason;
                if reason == RejectReason::TaskInProgress.code()
                    && let Some(rejected) = pdu.data.first_chunk()
                {
                    self.taken_tags.remove(&ResponseBhs::view(rejected).itt().0);
                }
                let is_explained = self.is_suspect || self.take_rejected_ping(reason, &pdu.data);
                must(is_explained, "legal-requests-are-not-rejected", || {
                    format!("reason {reason:#04x}: {:02x?}", pdu.data)
                })?;
                Ok(Some(Heard::Rejected { reason }))
            }
            other => Err(Breach::new("opcode", format!("{other:?} in this phase"))),
        }
    }

    /// Takes a rejection of a ping whose data the target has no room to hold: no answer comes then. False for others.
    fn take_rejected_ping(&mut self, reason: u8, rejected: &[u8]) -> bool {
        let header = rejected
            .first_chunk()
            .filter(|header| opcode(header) == Some(Opcode::NopOut));
        let Some(ping) = header.map(NopOutBhs::view) else {
            return false;
        };
        let tag = ping.initiator_task_tag.get();
        let is_ours = self.others.get(&tag) == Some(&Other::Ping);
        let has_data = ping.data_segment_length.get() > 0;
        let is_explained = reason == RejectReason::LongOperationReject.code() && has_data;
        is_ours && is_explained && self.others.remove(&tag).is_some()
    }

    /// ExpCmdSN and MaxCmdSN of one connection never go back, and no number that was not sent is
    /// acknowledged.
    fn check_window(&mut self, connection: usize, header: &ResponseBhs) -> Result<(), Breach> {
        let (exp, max) = (header.exp_cmd_sn(), header.max_cmd_sn());
        let cmd_sn = self.cmd_sn;
        let Some(state) = self.connection(connection) else {
            return Ok(());
        };
        let (last_exp, last_max) = std::mem::replace(&mut state.window, (exp, max));
        must(!max.is_before(last_max), "window-never-shrinks", || {
            format!("MaxCmdSN {} after {}", max.0, last_max.0)
        })?;
        must(
            !exp.is_before(last_exp),
            "exp-cmd-sn-never-goes-back",
            || format!("ExpCmdSN {} after {}", exp.0, last_exp.0),
        )?;
        must(
            !cmd_sn.is_before(exp),
            "only-what-was-sent-is-expected",
            || format!("ExpCmdSN {} and {} is next", exp.0, cmd_sn.0),
        )?;
        must(
            !max.is_before(exp.previous()),
            "window-is-not-negative",
            || format!("MaxCmdSN {} with ExpCmdSN {}", max.0, exp.0),
        )?;
        if self.exp_cmd_sn.is_before(exp) {
            self.exp_cmd_sn = exp;
        }
        if self.max_cmd_sn.is_before(max) {
            self.max_cmd_sn = max;
        }
        Ok(())
    }

    /// A PDU that uses up a StatSN.
    fn use_stat_sn(&mut self, connection: usize, got: SerialNumber) -> Result<(), Breach> {
        self.see_stat_sn(connection, got)?;
        if let Some(state) = self.connection(connection) {
            state.exp_stat_sn = got.next();
        }
        Ok(())
    }

    /// A PDU that shows which StatSN is next.
    fn see_stat_sn(&mut self, connection: usize, got: SerialNumber) -> Result<(), Breach> {
        let expected = self.exp_stat_sn(connection);
        must(got == expected, "stat-sn-without-gap", || {
            format!("StatSN {} where {} was due", got.0, expected.0)
        })
    }

    fn handle_data_in(&mut self, connection: usize, pdu: &Pdu) -> Result<Option<Heard>, Breach> {
        let header = DataInBhs::view(&pdu.header);
        if header.has_status() {
            self.use_stat_sn(connection, header.stat_sn())?;
        }
        let max_burst = self.parameters.max_burst_length_bytes as usize;
        let tag = header.itt().0;
        let Some(task) = self.tasks.get_mut(&tag) else {
            return Err(Breach::new("one-outcome", format!("data for task {tag}")));
        };
        must(
            task.connection == connection,
            "connection-allegiance",
            || format!("data for task {tag} on connection {connection}"),
        )?;
        must(
            header.data_sn.get() == task.data_sn,
            "data-sn-in-order",
            || format!("DataSN {} where {} was due", header.data_sn, task.data_sn),
        )?;
        task.data_sn += 1;
        let (offset, len) = (header.buffer_offset.get() as usize, pdu.data.len());
        must(offset == task.received.len(), "data-in-order", || {
            format!("offset {offset} where {} was due", task.received.len())
        })?;
        let room = task.operation.room_bytes();
        must(offset + len <= room, "data-fits-the-room", || {
            format!("{len} bytes at {offset}, room for {room}")
        })?;
        task.received.extend_from_slice(&pdu.data);
        task.burst_received += len;
        let burst = task.burst_received;
        must(burst <= max_burst, "burst-within-max-burst", || {
            format!("{burst} bytes, MaxBurstLength {max_burst}")
        })?;
        if header.is_final() {
            task.burst_received = 0;
        }
        if !header.has_status() {
            return Ok(None);
        }
        must(header.is_final(), "status-ends-a-sequence", String::new)?;
        let residual = (header.flags, header.residual_count.get());
        self.end_task(tag, header.status, None, residual).map(Some)
    }

    fn handle_response(
        &mut self,
        header: &ScsiResponseBhs,
        data: &[u8],
    ) -> Result<Option<Heard>, Breach> {
        let tag = header.itt().0;
        must(header.response == 0, "target-failure", || {
            format!("response {:#04x}", header.response)
        })?;
        let sense = sense_of(data);
        if self.is_suspect && sense == Some(mischief::NO_OPCODE_SENSE) {
            return Ok(None);
        }
        // Before the code of a command counts whether there is a unit, and what its initiator has to learn first.
        let is_of_none = header.status != 0 && !self.tasks.contains_key(&tag);
        if is_of_none && self.taken_tags.remove(&tag) {
            return Ok(None);
        }
        let wants_sense = header.status == 0x02;
        must(
            sense.is_some() == wants_sense,
            "sense-with-check-condition",
            || format!("status {:#04x} with {} bytes", header.status, data.len()),
        )?;
        if let Some(task) = self.tasks.get(&tag) {
            let (got, sent) = (header.exp_data_sn.get(), task.data_sn);
            must(got == sent, "exp-data-sn-counts-data-in", || {
                format!("ExpDataSN {got} after {sent} PDUs")
            })?;
        }
        let residual = (header.flags, header.residual_count.get());
        self.end_task(tag, header.status, sense, residual).map(Some)
    }

    fn end_task(
        &mut self,
        tag: u32,
        status: u8,
        sense: Option<(u8, u8, u8)>,
        residual: (u8, u32),
    ) -> Result<Heard, Breach> {
        let Some(mut task) = self.tasks.remove(&tag) else {
            return Err(Breach::new(
                "one-outcome",
                format!("an answer for task {tag}"),
            ));
        };
        let data = std::mem::take(&mut task.received);
        if status == 0 {
            check_residual(&task, &data, residual)?;
        }
        let answer = Answer {
            status,
            sense,
            data,
        };
        Ok(Heard::Ended { task, answer })
    }

    fn handle_r2t(&mut self, header: &R2tBhs) -> Result<(), Breach> {
        let tag = header.itt().0;
        let parameters = &self.parameters;
        let Some(task) = self.tasks.get_mut(&tag) else {
            return Err(Breach::new("one-outcome", format!("R2T for task {tag}")));
        };
        must(
            header.r2t_sn.get() == task.r2t_sn,
            "r2t-sn-in-order",
            || format!("R2TSN {} where {} was due", header.r2t_sn, task.r2t_sn),
        )?;
        task.r2t_sn += 1;
        let offset = header.buffer_offset.get() as usize;
        let length = header.desired_data_transfer_length.get() as usize;
        must(offset == task.asked, "r2t-in-order", || {
            format!("R2T at {offset} where {} was due", task.asked)
        })?;
        let (end, all) = (offset + length, task.data_out.len());
        must(length > 0 && end <= all, "r2t-within-the-command", || {
            format!("R2T for {length} bytes at {offset} of {all}")
        })?;
        let max_burst = parameters.max_burst_length_bytes as usize;
        must(length <= max_burst, "r2t-within-max-burst", || {
            format!("R2T for {length} bytes, MaxBurstLength {max_burst}")
        })?;
        task.asked = end;
        task.bursts.push_back(Burst {
            target_transfer_tag: header.target_transfer_tag.get(),
            offset,
            length,
        });
        let outstanding = task.bursts.len();
        let limit = usize::from(parameters.max_outstanding_r2t);
        must(outstanding <= limit, "outstanding-r2ts", || {
            format!("{outstanding} R2Ts, MaxOutstandingR2T {limit}")
        })
    }

    fn handle_nop_in(
        &mut self,
        connection: usize,
        header: &NopInBhs,
    ) -> Result<Option<Heard>, Breach> {
        let tag = header.itt().0;
        if tag == RESERVED_TAG {
            self.see_stat_sn(connection, header.stat_sn())?;
            if header.target_transfer_tag.get() != RESERVED_TAG {
                self.pong(connection, header);
            }
            return Ok(None);
        }
        self.use_stat_sn(connection, header.stat_sn())?;
        let asked = self.others.remove(&tag) == Some(Other::Ping);
        must(asked, "answers-are-asked-for", || format!("ping {tag}"))?;
        Ok(Some(Heard::Pong))
    }

    fn handle_managed(&mut self, header: &TaskManagementResponseBhs) -> Result<Heard, Breach> {
        let tag = header.itt().0;
        let Some(Other::Management {
            function,
            referenced,
            lun,
            cmd_sn,
        }) = self.others.remove(&tag)
        else {
            let detail = format!("task management {tag}");
            return Err(Breach::new("answers-are-asked-for", detail));
        };
        let response = header.response;
        let is_complete = response == TaskManagementResponse::Complete.code();
        // A target reset leaves units alone that the initiator may only read.
        let is_of_all = matches!(
            function,
            TaskManagementFunction::TargetWarmReset | TaskManagementFunction::TargetColdReset
        );
        let vanished = if is_complete && !is_of_all {
            self.take_tasks_where(|tag, task| match referenced {
                Some(referenced) => referenced == tag,
                None => task.lun == lun && task.cmd_sn.is_before(cmd_sn),
            })
        } else {
            Vec::new()
        };
        Ok(Heard::Managed {
            tag,
            function,
            response,
            vanished,
        })
    }
}

/// Flags and count must say by how much the command moved more or less than announced.
fn check_residual(task: &Task, data: &[u8], residual: (u8, u32)) -> Result<(), Breach> {
    let (bits, count) = residual;
    let (room, whole) = (task.operation.room_bytes(), task.operation.answer_bytes());
    must(data.len() == room.min(whole), "all-data-came", || {
        let got = data.len();
        format!(
            "{got} bytes of {whole}, room for {room}: {:?}",
            task.operation
        )
    })?;
    let expected = match room.cmp(&whole) {
        std::cmp::Ordering::Less => flags::RESIDUAL_OVERFLOW,
        std::cmp::Ordering::Equal => 0,
        std::cmp::Ordering::Greater => flags::RESIDUAL_UNDERFLOW,
    };
    let got = bits & (flags::RESIDUAL_OVERFLOW | flags::RESIDUAL_UNDERFLOW);
    let difference = room.abs_diff(whole);
    must(
        got == expected && count as usize == difference,
        "residual",
        || format!("flags {got:#04x} count {count}, not {expected:#04x} {difference}"),
    )
}

/// Sense key, ASC and ASCQ of the data segment of a response.
fn sense_of(data: &[u8]) -> Option<(u8, u8, u8)> {
    let sense = data.get(2..)?;
    match sense.first()? & 0x7f {
        0x70 | 0x71 => Some((sense.get(2)? & 0x0f, *sense.get(12)?, *sense.get(13)?)),
        0x72 | 0x73 => Some((sense.get(1)? & 0x0f, *sense.get(2)?, *sense.get(3)?)),
        _ => None,
    }
}
