//! PDUs from the initiator, cut in every legal way.

use iscsi::SerialNumber;
use iscsi::framing::Pdu;
use iscsi::pdu::{
    Bhs, DataOutBhs, LogoutReason, LogoutRequestBhs, NopInBhs, NopOutBhs, RESERVED_TAG,
    ScsiCommandBhs, TaskManagementFunction, TaskManagementRequestBhs, flags,
};

use super::{Operation, Other, Session, Task};
use crate::ledger::Handle;
use crate::prng::Prng;

impl Session {
    /// Sends a command and gives its tag. Look at [`Session::may_send`] first.
    pub fn command(
        &mut self,
        connection: usize,
        operation: Operation,
        handle: Handle,
        prng: &mut Prng,
    ) -> u32 {
        let tag = self.new_tag();
        let data_out = operation.data_out();
        let mut header = ScsiCommandBhs::new();
        header.initiator_task_tag = tag.into();
        header.cdb = operation.cdb();
        header.lun = lun_field(self.lun).into();
        // SIMPLE mostly, now and then ORDERED or HEAD OF QUEUE.
        header.flags |= prng.pick(&[1, 1, 1, 1, 1, 1, 2, 3]).unwrap_or(1);
        let room = operation.room_bytes();
        header.flags |= if room > 0 { flags::READ } else { 0 };
        header.flags |= if data_out.is_empty() { 0 } else { flags::WRITE };
        let expected = room.max(data_out.len());
        header.expected_data_transfer_length = u32::try_from(expected).unwrap_or(0).into();
        let first_burst = self.first_burst(data_out.len());
        let immediate = self.draw_immediate(connection, first_burst, prng);
        // More follows unasked only if that was agreed on and there is more.
        let unsolicited = if self.parameters.initial_r2t || prng.chance(300) {
            immediate
        } else {
            prng.size(immediate, first_burst)
        };
        if unsolicited > immediate {
            header.flags &= !flags::FINAL;
        }
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        header.cmd_sn = cmd_sn.into();
        header.exp_stat_sn = self.exp_stat_sn(connection).into();
        let pdu = Pdu::new(header.as_bhs_bytes(), data_out[..immediate].to_vec());
        self.transmit(connection, &pdu);
        let task = Task {
            operation,
            handle,
            tag,
            lun: self.lun,
            connection,
            may_vanish: false,
            cmd_sn,
            data_out,
            asked: unsolicited,
            r2t_sn: 0,
            bursts: std::collections::VecDeque::new(),
            received: Vec::new(),
            data_sn: 0,
            burst_received: 0,
        };
        if unsolicited > immediate {
            self.data_out(tag, &task, immediate, unsolicited, RESERVED_TAG, prng);
        }
        self.tasks.insert(tag, task);
        tag
    }

    fn first_burst(&self, len: usize) -> usize {
        len.min(self.parameters.first_burst_length_bytes as usize)
    }

    fn draw_immediate(&self, connection: usize, first_burst: usize, prng: &mut Prng) -> usize {
        if !self.parameters.immediate_data || prng.chance(300) {
            return 0;
        }
        let limit = first_burst.min(self.segment_limit(connection));
        if prng.chance(700) {
            limit
        } else {
            prng.size(0, limit)
        }
    }

    /// Sends the bursts that were asked for, of one task, or none if nothing was.
    pub fn send_bursts(&mut self, tag: u32, prng: &mut Prng) {
        let Some(mut task) = self.tasks.remove(&tag) else {
            return;
        };
        while let Some(burst) = task.bursts.pop_front() {
            let end = burst.offset + burst.length;
            let transfer = burst.target_transfer_tag;
            self.data_out(tag, &task, burst.offset, end, transfer, prng);
        }
        self.tasks.insert(tag, task);
    }

    /// Tags of tasks that were asked for data and have not sent it.
    pub fn owing(&self) -> Vec<u32> {
        let owes = |(tag, task): (&u32, &Task)| (!task.bursts.is_empty()).then_some(*tag);
        self.tasks.iter().filter_map(owes).collect()
    }

    /// One sequence of Data-Out PDUs.
    fn data_out(
        &mut self,
        tag: u32,
        task: &Task,
        start: usize,
        end: usize,
        transfer: u32,
        prng: &mut Prng,
    ) {
        let limit = self.segment_limit(task.connection);
        let mut at = start;
        let mut data_sn: u32 = 0;
        while at < end {
            let left = (end - at).min(limit);
            let len = if prng.chance(700) {
                left
            } else {
                prng.size(1, left)
            };
            let mut header = DataOutBhs::new();
            header.initiator_task_tag = tag.into();
            header.lun = lun_field(task.lun).into();
            header.target_transfer_tag = transfer.into();
            header.data_sn = data_sn.into();
            header.buffer_offset = u32::try_from(at).unwrap_or(0).into();
            header.exp_stat_sn = self.exp_stat_sn(task.connection).into();
            if at + len == end {
                header.flags |= flags::FINAL;
            }
            let data = task.data_out[at..at + len].to_vec();
            self.transmit(task.connection, &Pdu::new(header.as_bhs_bytes(), data));
            at += len;
            data_sn += 1;
        }
    }

    /// Sends a ping that wants an answer.
    pub fn ping(&mut self, connection: usize, prng: &mut Prng) {
        let tag = self.new_tag();
        let mut header = NopOutBhs::new();
        header.initiator_task_tag = tag.into();
        header.target_transfer_tag = RESERVED_TAG.into();
        header.cmd_sn = self.number(&mut header.opcode, prng.chance(500)).into();
        header.exp_stat_sn = self.exp_stat_sn(connection).into();
        let len = prng.size(0, 20);
        self.transmit(connection, &Pdu::new(header.as_bhs_bytes(), vec![7; len]));
        self.others.insert(tag, Other::Ping);
    }

    /// Answers a ping of the target.
    pub(super) fn pong(&mut self, connection: usize, ping: &NopInBhs) {
        let mut header = NopOutBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.lun = ping.lun;
        header.initiator_task_tag = RESERVED_TAG.into();
        header.target_transfer_tag = ping.target_transfer_tag;
        header.cmd_sn = self.cmd_sn.into();
        header.exp_stat_sn = self.exp_stat_sn(connection).into();
        self.transmit(connection, &Pdu::new(header.as_bhs_bytes(), Vec::new()));
    }

    /// Sends a task management request and gives its tag. `referenced` is the tag that ABORT TASK is for.
    pub fn manage(
        &mut self,
        connection: usize,
        function: TaskManagementFunction,
        referenced: Option<u32>,
    ) -> u32 {
        let tag = self.new_tag();
        let mut header = TaskManagementRequestBhs::new();
        header.flags = flags::FINAL | function.code();
        header.initiator_task_tag = tag.into();
        header.referenced_task_tag = referenced.unwrap_or(RESERVED_TAG).into();
        let task = referenced.and_then(|tag| self.tasks.get(&tag));
        let lun = task.map_or(self.lun, |task| task.lun);
        header.lun = lun_field(lun).into();
        header.ref_cmd_sn = task.map_or(SerialNumber(0), |task| task.cmd_sn).into();
        let cmd_sn = self.number(&mut header.opcode, true);
        header.cmd_sn = cmd_sn.into();
        header.exp_stat_sn = self.exp_stat_sn(connection).into();
        self.transmit(connection, &Pdu::new(header.as_bhs_bytes(), Vec::new()));
        let request = Other::Management {
            function,
            referenced,
            lun,
            cmd_sn,
        };
        self.others.insert(tag, request);
        tag
    }

    /// Asks to end the session.
    pub fn log_out(&mut self, connection: usize) {
        let tag = self.new_tag();
        let mut header = LogoutRequestBhs::new();
        header.flags = flags::FINAL | LogoutReason::CloseSession.code();
        header.initiator_task_tag = tag.into();
        header.cmd_sn = self.number(&mut header.opcode, true).into();
        header.exp_stat_sn = self.exp_stat_sn(connection).into();
        self.transmit(connection, &Pdu::new(header.as_bhs_bytes(), Vec::new()));
        self.others.insert(tag, Other::Logout);
        self.is_leaving = true;
    }

    /// Asks to end one connection of several. False if it has commands under way or is the only
    /// one: a legal initiator waits for them, as their answers would be lost with it.
    pub fn log_out_connection(&mut self, connection: usize) -> bool {
        let is_busy = self
            .tasks
            .values()
            .any(|task| task.connection == connection);
        let is_busy = is_busy || !self.others.is_empty();
        if is_busy || self.open_connections().len() < 2 || self.is_leaving {
            return false;
        }
        let tag = self.new_tag();
        let mut header = LogoutRequestBhs::new();
        header.flags = flags::FINAL | LogoutReason::CloseConnection.code();
        header.initiator_task_tag = tag.into();
        header.cmd_sn = self.number(&mut header.opcode, true).into();
        header.exp_stat_sn = self.exp_stat_sn(connection).into();
        let Some(state) = self.connection(connection) else {
            return false;
        };
        header.cid = state.cid.0.into();
        state.is_closing = true;
        self.transmit(connection, &Pdu::new(header.as_bhs_bytes(), Vec::new()));
        self.others.insert(tag, Other::ConnectionLogout);
        true
    }

    /// The CmdSN for a request. An immediate one carries the number without using it up.
    fn number(&mut self, opcode: &mut u8, immediate: bool) -> SerialNumber {
        let number = self.cmd_sn;
        if immediate || !self.may_send() {
            *opcode |= flags::IMMEDIATE;
        } else {
            self.cmd_sn = number.next();
        }
        number
    }

    pub(super) fn exp_stat_sn(&self, connection: usize) -> SerialNumber {
        let state = self.connections.get(connection).and_then(Option::as_ref);
        state.map_or(SerialNumber(0), |state| state.exp_stat_sn)
    }

    /// The target's MaxRecvDataSegmentLength.
    pub(super) fn segment_limit(&self, connection: usize) -> usize {
        let state = self.connections.get(connection).and_then(Option::as_ref);
        let limit = state.map_or(512, |state| {
            state.parameters.peer_max_recv_data_segment_length_bytes
        });
        limit as usize
    }

    pub(super) fn transmit(&mut self, connection: usize, pdu: &Pdu) {
        if let Some(Some(state)) = self.connections.get_mut(connection)
            && !state.is_ruined
        {
            let parameters = &state.parameters;
            let bytes = pdu.to_bytes(parameters.header_digest, parameters.data_digest);
            state.outbound.extend(bytes);
        }
    }
}

/// The LUN field of a number below 256.
fn lun_field(lun: u16) -> u64 {
    u64::from(lun) << 48
}
