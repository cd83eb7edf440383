//! The target's session in full-feature phase, with an owner that answers in arbitrary ways.
//!
//! The input is a script: what arrives on which connection and in what pieces, and what the owner
//! does in between. See [`Play::act`] for its verbs, [`crate::seeds`] for scripts that make sense.

use std::rc::Rc;
use std::time::Duration;

use iscsi::SerialNumber;
use iscsi::discovery::{TargetRecord, TextRecords};
use iscsi::framing::{Pdu, PduBuffer};
use iscsi::limits::{GAP_TIMEOUT_DEFAULT, IMMEDIATE_COMMANDS_MAX};
use iscsi::negotiate::{
    ConnectionParameters, Negotiation, OperationalPreferences, Phase, Role, SessionType,
};
use iscsi::pdu::{
    Bhs, Cid, DataInBhs, DataOutBhs, LogoutResponseCode, Opcode, R2tBhs, RESERVED_TAG, RequestBhs,
    ResponseBhs, TaskManagementResponse, flags, opcode,
};
use iscsi::target::{
    ConnectionConfig, Event, HoldLimits, ManagementId, Receive, Response, Session, SessionConfig,
    TaskId,
};
use memory::{Buffer, Message, PIECE_BYTES, Payload, Pool};

use crate::input::Input;

const SEGMENT_MAX_BYTES: u32 = 64 * 1024;
const STEPS: [usize; 8] = [usize::MAX, usize::MAX, 1, 7, 47, 48, 100, 5000];

/// One connection, as its initiator sees it.
struct Wire {
    digests: (bool, bool),
    segment_max: u32,
    stat_sn: u32,
    /// ExpCmdSN and MaxCmdSN as last sent.
    told: (SerialNumber, SerialNumber),
    r2ts: Vec<R2tBhs>,
}

/// A task that the owner owes an outcome.
struct Running {
    id: TaskId,
    write_length: u32,
    asked: Option<u32>,
    has_failed: bool,
}

/// What came of a script: how many of each event.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Told {
    commands: u32,
    data: u32,
    faults: u32,
    management: u32,
    logouts: u32,
    silent: u32,
    violations: u32,
}

/// Nothing came.
#[cfg(test)]
const NOTHING: Told = Told {
    commands: 0,
    data: 0,
    faults: 0,
    management: 0,
    logouts: 0,
    silent: 0,
    violations: 0,
};

struct Play {
    session: Session,
    pool: Pool,
    wires: Vec<Option<Wire>>,
    running: Vec<Running>,
    management: Vec<ManagementId>,
    logouts: Vec<ManagementId>,
    hoard: Vec<Buffer>,
    told: Told,
    /// Immediate commands, which the window does not count, may have been sent.
    has_immediate: bool,
    depth: u32,
    now: Duration,
    next_cid: u16,
}

thread_local! {
    static POOL: Pool = Pool::new(0).unwrap_or_else(|error| panic!("no address space: {error}"));
}

/// However the script goes: windows and tasks stay in their bounds, each command is reported once and
/// in the end every buffer is back.
pub(crate) fn run(bytes: &[u8]) {
    play(bytes);
}

fn play(bytes: &[u8]) -> Told {
    let pool = POOL.with(Pool::clone);
    assert_eq!(pool.free_bytes(), pool.capacity_bytes());
    let mut input = Input::new(bytes);
    let mut play = Play::new(&mut input, pool.clone());
    while !input.is_over() {
        play.act(&mut input);
        play.check();
    }
    let told = play.told;
    play.end();
    assert_eq!(
        pool.free_bytes(),
        pool.capacity_bytes(),
        "a buffer was lost"
    );
    told
}

impl Play {
    fn new(input: &mut Input<'_>, pool: Pool) -> Self {
        let (bits, sizes) = (input.byte(), input.byte());
        let own = OperationalPreferences::default();
        let negotiation =
            Negotiation::new(Role::Target, Phase::LeadingLogin, SessionType::Normal, own);
        let mut parameters = negotiation.session_parameters();
        parameters.initial_r2t = bits & 0x01 != 0;
        parameters.immediate_data = bits & 0x02 != 0;
        parameters.first_burst_length_bytes = [512, 1500, 8192, 65_536][usize::from(sizes & 3)];
        parameters.max_burst_length_bytes =
            [512, 4096, 65_536, 262_144][usize::from(sizes >> 2 & 3)];
        parameters.max_outstanding_r2t = [1, 2, 4, 100][usize::from(sizes >> 4 & 3)];
        let record = TargetRecord {
            name: "iqn.2026-11.example.tarn:demo".to_owned(),
            addresses: vec!["192.0.2.1:3260,1".to_owned()],
        };
        let is_discovery = bits & 0x04 != 0;
        let depth = [1, 4, 16, 64][usize::from(sizes >> 6)];
        let config = SessionConfig {
            is_discovery,
            parameters,
            // Close to the wrap.
            exp_cmd_sn: SerialNumber(0xffff_fffe),
            queue_depth: depth,
            text: if is_discovery {
                TextRecords::for_discovery(vec![record])
            } else {
                TextRecords::for_target(record)
            },
            nop_interval: Some(Duration::from_secs(10)),
            nop_timeout: Duration::from_secs(5),
            // Little, so that it is met.
            hold: HoldLimits::alone(8 * 1024, GAP_TIMEOUT_DEFAULT),
        };
        let session = Session::new(config);
        let mut play = Self {
            session,
            pool,
            wires: Vec::new(),
            running: Vec::new(),
            management: Vec::new(),
            logouts: Vec::new(),
            hoard: Vec::new(),
            told: Told::default(),
            has_immediate: false,
            depth,
            now: Duration::ZERO,
            next_cid: 0,
        };
        play.connect(bits >> 3);
        if bits & 0x80 != 0 {
            play.connect(bits >> 5);
        }
        play
    }

    fn connect(&mut self, bits: u8) {
        let parameters = ConnectionParameters {
            header_digest: bits & 1 != 0,
            data_digest: bits & 2 != 0,
            max_recv_data_segment_length_bytes: SEGMENT_MAX_BYTES,
            peer_max_recv_data_segment_length_bytes: if bits & 4 != 0 { 512 } else { 8192 },
        };
        self.next_cid = self.next_cid.wrapping_add(1);
        let config = ConnectionConfig {
            cid: Cid(self.next_cid),
            parameters,
            stat_sn: SerialNumber(0xffff_fff0),
        };
        let index = self.session.add_connection(&config, self.now);
        if index == self.wires.len() {
            self.wires.push(None);
        }
        let before = self.wires[index].replace(Wire {
            digests: (parameters.header_digest, parameters.data_digest),
            segment_max: parameters.peer_max_recv_data_segment_length_bytes,
            stat_sn: 0xffff_fff0,
            told: self.session.window(),
            r2ts: Vec::new(),
        });
        assert!(before.is_none(), "two connections at index {index}");
    }

    /// One line of the script.
    fn act(&mut self, input: &mut Input<'_>) {
        let verb = input.byte();
        match verb % 16 {
            0 => {
                self.has_immediate = true;
                let how = input.byte();
                let len = usize::from(input.u16());
                self.arrive(how, input.bytes(len));
            }
            1 | 2 => self.send(input),
            3 => self.answer(input),
            4 => self.request(input.byte(), input.u32()),
            5 => {
                if let Some(task) = self.take_task(input.byte()) {
                    self.session.abandon(task.id);
                }
            }
            6 => {
                if let Some(id) = self.management.pop() {
                    self.session
                        .respond_management(id, TaskManagementResponse::Complete);
                }
            }
            7 => {
                if let Some(id) = self.logouts.pop() {
                    self.session.respond_logout(id, LogoutResponseCode::Success);
                }
            }
            8 => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.session.handle_timeout(self.now);
            }
            9 => self.squeeze(input.byte()),
            10 | 15 => self.take_output(usize::from(input.byte())),
            11 => {
                self.session.set_queue_limit(u32::from(input.byte()));
            }
            12 => self.fill_burst(input.byte(), input.byte()),
            13 if self.wires.len() < 4 => self.connect(input.byte()),
            13 => self.close(usize::from(input.byte())),
            _ => self.session.request_logout(u16::from(input.byte())),
        }
        self.take_events();
    }

    /// A PDU whose lengths and digests are right. With the high bit of `how` its CmdSN is due.
    fn send(&mut self, input: &mut Input<'_>) {
        let how = input.byte();
        let mut header = input.array();
        let ahs = input.bytes(usize::from(header[4] % 8) * 4).to_vec();
        let ahs = [&ahs[..], &vec![0; ahs.len().wrapping_neg() % 4]].concat();
        header[4] = u8::try_from(ahs.len() / 4).unwrap_or(0);
        let len = usize::from(input.u16());
        let data = input.bytes(len).to_vec();
        if how & 0x80 != 0 {
            let common = RequestBhs::view_mut(&mut header);
            let ahead = common.cmd_sn.get() % 4;
            common.cmd_sn = self.session.window().0.plus(ahead).into();
        }
        self.has_immediate |= header[0] & 0x7f == flags::IMMEDIATE | Opcode::ScsiCommand.code();
        let mut pdu = Pdu::new(&header, data);
        pdu.ahs = ahs;
        self.send_pdu(how, &pdu);
    }

    fn send_pdu(&mut self, how: u8, pdu: &Pdu) {
        let Some(Some(wire)) = self.wires.get(usize::from(how & 1)) else {
            return;
        };
        let bytes = pdu.to_bytes(wire.digests.0, wire.digests.1);
        self.arrive(how, &bytes);
    }

    /// Bytes on the connection and in the pieces that `how` says.
    fn arrive(&mut self, how: u8, bytes: &[u8]) {
        let index = usize::from(how & 1);
        let step = STEPS[usize::from(how >> 1 & 7)];
        let mut left = bytes;
        while !left.is_empty() {
            if self.wires.get(index).is_none_or(Option::is_none) {
                return;
            }
            let len;
            let outcome = match self.session.poll_receive(index) {
                Receive::Exact { mut buffer, range } => {
                    len = range.len().min(left.len()).min(step);
                    buffer[range.start..range.start + len].copy_from_slice(&left[..len]);
                    self.session
                        .handle_exact(index, buffer, len, &self.pool, self.now)
                }
                Receive::Chunk { limit_bytes } => {
                    len = left.len().min(step).min(limit_bytes);
                    let Ok(mut chunk) = self.pool.allocate(len) else {
                        return;
                    };
                    chunk.copy_from_slice(&left[..len]);
                    self.session
                        .handle_chunk(index, &Rc::new(chunk), &self.pool, self.now)
                }
            };
            left = &left[len..];
            self.take_events();
            if outcome.is_err() {
                self.close(index);
            } else if self.session.output_bytes(index) > 1 << 20 {
                self.take_output(index);
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Command(id, command) => {
                    assert!(command.extended_cdb.len() <= 244);
                    self.told.commands += 1;
                    self.begin(id, command.data_out_length);
                }
                Event::DataOut(id, payload) => {
                    self.told.data += 1;
                    let task = self.find(id);
                    let asked = task.asked.take();
                    assert!(!task.has_failed, "data after a fault");
                    let wanted = asked.map(|asked| asked.min(task.write_length));
                    assert_eq!(wanted.map(|len| len as usize), Some(payload.len()));
                }
                Event::DataFault(id, _) => {
                    self.told.faults += 1;
                    if self.running.iter().all(|task| task.id != id) {
                        self.begin(id, 0);
                    }
                    let task = self.find(id);
                    assert!(!task.has_failed, "a fault reported twice");
                    task.has_failed = true;
                }
                Event::TaskManagement(event) => {
                    self.told.management += 1;
                    if let Some(id) = event.task {
                        self.find(id);
                    }
                    self.management.push(event.id);
                }
                Event::Logout(event) => {
                    self.told.logouts += 1;
                    self.logouts.push(event.id);
                }
                Event::PeerSilent { .. } | Event::Broken { .. } => self.told.silent += 1,
                Event::Violation { .. } => self.told.violations += 1,
            }
        }
        self.management.truncate(64);
        self.logouts.truncate(64);
    }

    fn begin(&mut self, id: TaskId, write_length: u32) {
        assert!(
            self.running.iter().all(|task| task.id != id),
            "a command reported twice"
        );
        self.running.push(Running {
            id,
            write_length,
            asked: None,
            has_failed: false,
        });
    }

    #[track_caller]
    fn find(&mut self, id: TaskId) -> &mut Running {
        match self.running.iter_mut().find(|task| task.id == id) {
            Some(task) => task,
            None => panic!("{id:?} is not the owner's"),
        }
    }

    fn take_task(&mut self, number: u8) -> Option<Running> {
        let at = usize::from(number).checked_rem(self.running.len())?;
        Some(self.running.swap_remove(at))
    }

    fn answer(&mut self, input: &mut Input<'_>) {
        let (number, status, len) = (input.byte(), input.byte(), usize::from(input.u16()));
        let Some(task) = self.take_task(number) else {
            return;
        };
        let data = match status >> 6 {
            0 => Payload::Empty,
            1 => Payload::Heap(vec![status; len]),
            _ => self
                .pool
                .allocate(len)
                .map_or(Payload::Empty, Payload::Pool),
        };
        let response = Response {
            status: status & 0x0a,
            sense: if status & 0x0a == 2 {
                &[0x70, 0, 5]
            } else {
                &[]
            },
            transfer_length: data.len() as u64 + u64::from(status & 1),
            data,
        };
        assert!(self.session.respond(task.id, response).is_some());
    }

    fn request(&mut self, number: u8, length: u32) {
        let Some(at) = usize::from(number).checked_rem(self.running.len()) else {
            return;
        };
        let task = &mut self.running[at];
        if task.asked.is_some() || task.has_failed {
            return;
        }
        // What limits of the device allow.
        let length = length % (1 << 18);
        task.asked = Some(length);
        if let Some(data) = self.session.request_data(task.id, length, &self.pool) {
            assert_eq!(data.len(), length.min(task.write_length) as usize);
            // A command asks once.
            task.has_failed = true;
        }
    }

    /// Takes memory away, or gives it back.
    fn squeeze(&mut self, amount: u8) {
        if amount & 1 == 0 {
            self.hoard.clear();
            self.session.handle_memory(&self.pool);
        } else {
            let leave = usize::from(amount) * PIECE_BYTES;
            let others = self.pool.account();
            while self.pool.free_bytes() > leave {
                let len = (self.pool.free_bytes() - leave).next_power_of_two() / 2;
                let Ok(buffer) = others.allocate(len.clamp(1, memory::BUFFER_BYTES_MAX)) else {
                    return;
                };
                self.hoard.push(buffer);
            }
        }
    }

    /// Sends what an R2T asked for, in order.
    fn fill_burst(&mut self, how: u8, segments: u8) {
        let Some(Some(wire)) = self.wires.get_mut(usize::from(how & 1)) else {
            return;
        };
        if wire.r2ts.is_empty() {
            return;
        }
        let r2t = wire.r2ts.remove(0);
        let length = r2t.desired_data_transfer_length.get();
        let segment = (length / (u32::from(segments % 8) + 1)).clamp(1, SEGMENT_MAX_BYTES);
        let mut done = 0;
        for data_sn in 0.. {
            let len = segment.min(length - done);
            let mut header = DataOutBhs::new();
            header.initiator_task_tag = r2t.initiator_task_tag;
            header.target_transfer_tag = r2t.target_transfer_tag;
            header.data_sn = data_sn.into();
            header.buffer_offset = (r2t.buffer_offset.get() + done).into();
            done += len;
            if done == length {
                header.flags |= flags::FINAL;
            }
            let pdu = Pdu::new(header.as_bhs_bytes(), vec![how; len as usize]);
            self.send_pdu(how, &pdu);
            if done == length {
                return;
            }
        }
    }

    /// The answers of a connection, checked and thrown away.
    fn take_output(&mut self, index: usize) {
        let index = index % self.wires.len();
        let message = self.session.take_message(index, Message::default());
        let Some(wire) = &mut self.wires[index] else {
            assert!(message.is_empty());
            return;
        };
        let mut stream = PduBuffer::new();
        stream.push(&message.to_vec());
        let (header_digest, data_digest) = wire.digests;
        // The initiator may have declared another length, but none larger than this.
        while let Ok(Some(pdu)) = stream.next_pdu(1 << 24, header_digest, data_digest) {
            wire.check(&pdu);
        }
        assert!(stream.into_unread().is_empty(), "half a PDU");
    }

    fn close(&mut self, index: usize) {
        let index = index % self.wires.len();
        for id in self.session.tasks_of_connection(index) {
            self.find(id);
            self.running.retain(|task| task.id != id);
            self.session.abandon(id);
        }
        self.session.remove_connection(index);
        self.wires[index] = None;
        self.management.retain(|id| id.connection != index);
        self.logouts.retain(|id| id.connection != index);
    }

    fn check(&self) {
        let (exp, max) = self.session.window();
        let open = max.distance_from(exp).wrapping_add(1);
        assert!(open <= self.depth, "a window of {open}");
        let tasks = self.session.tasks();
        assert_eq!(tasks.len(), self.running.len());
        let beside = if self.has_immediate {
            IMMEDIATE_COMMANDS_MAX
        } else {
            0
        };
        let limit = self.depth as usize + beside;
        assert!(
            tasks.len() + open as usize <= limit,
            "{} tasks and a window of {open}",
            tasks.len()
        );
        assert_eq!(self.session.is_idle(), tasks.is_empty());
    }

    fn end(mut self) {
        for index in 0..self.wires.len() {
            self.take_output(index);
            self.close(index);
        }
        self.check();
        assert!(self.running.is_empty());
        assert!(!self.session.is_starving());
    }
}

impl Wire {
    fn check(&mut self, pdu: &Pdu) {
        let common = ResponseBhs::view(&pdu.header);
        let uses_number = match opcode(&pdu.header) {
            Some(Opcode::DataIn) => {
                assert!(!pdu.data.is_empty());
                DataInBhs::view(&pdu.header).has_status()
            }
            Some(Opcode::R2t) => {
                let r2t = R2tBhs::view(&pdu.header);
                assert!(r2t.desired_data_transfer_length.get() > 0);
                self.r2ts.push(*r2t);
                false
            }
            // One that answers nothing, as where the window opens, does not take a number (RFC 7143 section 11.19).
            Some(Opcode::NopIn) => common.initiator_task_tag.get() != RESERVED_TAG,
            Some(other) => {
                assert!(!other.is_request(), "{other:?}");
                true
            }
            None => panic!("opcode {:#x}", pdu.header[0]),
        };
        if uses_number {
            assert_eq!(common.stat_sn.get(), self.stat_sn, "a gap in StatSN");
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        if opcode(&pdu.header) != Some(Opcode::TextResponse) && pdu.data.len() > 1100 {
            assert!(pdu.data.len() <= self.segment_max.max(1 << 16) as usize);
        }
        let (exp, max) = (common.exp_cmd_sn(), common.max_cmd_sn());
        assert!(!exp.is_before(self.told.0), "ExpCmdSN went back");
        assert!(!max.is_before(self.told.1), "MaxCmdSN went back");
        self.told = (exp, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each seed makes the session report.
    #[rustfmt::skip]
    const REPORTS: &[(&str, Told)] = &[
        ("read", Told { commands: 1, ..NOTHING }),
        ("read-with-digests", Told { commands: 1, ..NOTHING }),
        ("write-solicited", Told { commands: 1, data: 1, ..NOTHING }),
        ("write-first-burst", Told { commands: 1, data: 1, ..NOTHING }),
        ("write-answered-early", Told { commands: 1, ..NOTHING }),
        ("short-of-memory", Told { commands: 1, data: 1, ..NOTHING }),
        ("two-connections", Told { commands: 2, management: 1, ..NOTHING }),
        ("aborts", Told { commands: 1, management: 1, ..NOTHING }),
        ("other-requests", Told { logouts: 1, silent: 1, violations: 1, ..NOTHING }),
        ("discovery", Told { logouts: 1, violations: 1, ..NOTHING }),
        ("raw-stream", NOTHING),
    ];

    /// Scripts that no longer get anywhere would fuzz nothing.
    #[test]
    fn the_seeds_reach_what_they_are_for() {
        let seeds = crate::seeds::of("session");
        for ((name, script), expected) in seeds.iter().zip(REPORTS) {
            assert_eq!((&name[..], play(script)), *expected);
        }
        assert_eq!(seeds.len(), REPORTS.len());
    }
}
