//! One core with its handshakes, sessions and a unit, and clients that are those of the crate `nbd`.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::pdu::LoginStatus;
use ::iscsi::target::Receive;
use ::nbd::{
    Client, Completion, Handshake as ClientHandshake, Piece, Progress, ReadBuffer, Request, Work,
};
use engine::testing::bench::profile;
use engine::testing::disk::{Disk, capabilities};
use engine::testing::outside;
use engine::{Engine, UnitIndex, VisibleLun};
use memory::Pool;
use scsi::Owner;
use store::Capabilities;

use super::super::sessions::nbd_port;
use super::super::{
    Front, FrontSettings, LineKey, SessionPort, SessionSettings, Sessions, TlsConfig,
};
use crate::iscsi::{self, FrontSettings as LoginSettings, Holding};
use crate::testing::{LineKey as AnyKey, Mail, NoHooks, Noted, TestLine, UnderWay};
use crate::{
    Asker, Authorization, ExportAsker, OtherSessions, Others as _, Policy, SendEnd, VisibleExport,
    VisibleTarget, hyperscsi,
};

pub(super) const BEGIN: Duration = Duration::from_secs(100);
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
pub(super) const DEPTH: u32 = 4;
pub(super) const UNIT: UnitIndex = UnitIndex(0);
/// More steps than a test takes.
const STEPS_MAX: u32 = 10_000_000;

type Outside = outside::Outside<NoHooks>;

/// A client and its connection.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) is_gone: bool,
    /// It takes nothing of what is sent to it.
    pub(super) is_silent: bool,
    pub(super) outbound: VecDeque<u8>,
    pub(super) heard: Vec<u8>,
}

/// How a line is received from.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Wants {
    Nothing,
    /// What is there, up to so many bytes.
    Chunk(usize),
    /// Exactly this range of a buffer.
    Exact(Range<usize>),
}

#[derive(Debug)]
pub(super) struct Everybody {
    exports: Vec<VisibleExport>,
    tls: Option<TlsConfig>,
}

/// A unit as an export.
pub(super) fn export(name: &str, unit: UnitIndex, read_only: bool) -> VisibleExport {
    let lun = VisibleLun {
        lun: 0,
        unit,
        read_only,
    };
    let name = name.to_owned();
    VisibleExport { name, lun }
}

impl Policy for Everybody {
    fn authorize(&self, _: &Asker<'_>, _: Option<&str>) -> Result<Authorization, LoginStatus> {
        Err(LoginStatus::NotFound)
    }

    fn luns(&self, _: &Asker<'_>, _: engine::TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Err(LoginStatus::NotFound)
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        false
    }

    fn targets(&self, _: &Asker<'_>, _: Option<engine::TargetIndex>) -> Vec<VisibleTarget> {
        Vec::new()
    }

    fn exports(&self, _: &ExportAsker<'_>) -> Vec<VisibleExport> {
        self.exports.clone()
    }

    fn tls(&self, _: &str) -> Option<TlsConfig> {
        self.tls.clone()
    }
}

#[derive(Debug)]
pub(super) struct Bench {
    pub(super) engine: Engine<Outside>,
    pub(super) nbd: Sessions<Outside>,
    pub(super) logins: iscsi::Front<TestLine>,
    ends: Vec<End>,
    pub(super) disk: Disk,
    pub(super) chunks: Pool,
    /// The most bytes that one receive into a chunk brings.
    pub(super) piece_len: usize,
    /// Where clients come from.
    pub(super) address: IpAddr,
    /// They acknowledge all at once.
    pub(super) has_had_all: bool,
    hyperscsi: hyperscsi::Sessions<Outside>,
    steps: u32,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(8)
    }

    /// So many handshakes may be of one address, and so many sessions in all.
    pub(super) fn with(many: usize) -> Self {
        Self::of(&capabilities(), many)
    }

    /// With a store that can this.
    pub(super) fn of(capabilities: &Capabilities, many: usize) -> Self {
        Self::on(Disk::new(capabilities), capabilities, many)
    }

    /// With a store that may lose what it has answered.
    pub(super) fn forgetful() -> Self {
        let disk = Disk::new(&capabilities());
        disk.set_lost(0);
        Self::on(disk, &capabilities(), 8)
    }

    fn on(disk: Disk, capabilities: &Capabilities, many: usize) -> Self {
        let settings = engine::Settings {
            core: 0,
            cores: 1,
            queue_depth: DEPTH,
            abort_timeout: Duration::from_secs(3),
            fence_timeout: Duration::from_secs(3),
            turn_bytes: 1024 * 1024,
        };
        let pool = Pool::new(64 << 20).unwrap();
        let mut engine = Engine::new(settings, pool, Outside::default());
        engine.begin_turn(BEGIN);
        let owner = Owner::new(profile(capabilities.clone()), None).unwrap();
        engine.add_unit(owner, None, disk.store());
        let holding = Holding::new(usize::MAX);
        let settings = FrontSettings {
            handshakes_max: 8,
            per_address_max: many,
            timeout: TIMEOUT,
            memory: Arc::clone(&holding.logins),
        };
        let logins = LoginSettings {
            cores: 1,
            sessions_max: many,
            logins_max: 8,
            discovery_max: 8,
            unproved_per_address_max: 8,
            connections_max: 100,
            holding,
            login_timeout: TIMEOUT,
        };
        let policy: Arc<dyn Policy> = Arc::new(Everybody {
            exports: vec![export("disk", UNIT, false)],
            tls: None,
        });
        let front = Front::new(&settings, Arc::clone(&policy));
        let settings = SessionSettings { queue_depth: DEPTH };
        let of_hyperscsi = hyperscsi::SessionSettings {
            core: 0,
            cores: 1,
            queue_depth: DEPTH,
            sessions_max: many,
            per_host_max: many,
        };
        Self {
            engine,
            nbd: Sessions::new(settings, Some(front)),
            logins: iscsi::Front::new(&logins, policy, Arc::default()),
            ends: Vec::new(),
            disk,
            chunks: Pool::new(0).unwrap(),
            piece_len: usize::MAX,
            address: [10, 0, 1, 1].into(),
            has_had_all: true,
            hyperscsi: hyperscsi::Sessions::new(of_hyperscsi, &[0; 32], None),
            steps: 0,
        }
    }

    /// One more unit, with a store that can this.
    pub(super) fn add_unit(&mut self, other: &Capabilities) -> UnitIndex {
        let owner = Owner::new(profile(other.clone()), None).unwrap();
        self.engine.add_unit(owner, None, Disk::new(other).store())
    }

    /// From now on the export is another unit.
    pub(super) fn replace_unit(&mut self, other: &Capabilities) {
        let unit = self.add_unit(other);
        self.set_policy(unit, None);
    }

    /// From now on these are the exports.
    pub(super) fn set_exports(&mut self, exports: Vec<VisibleExport>) {
        let front = self.nbd.front.as_mut().unwrap();
        front.set_policy(Arc::new(Everybody { exports, tls: None }));
    }

    /// From now on this is the unit, and clients have to begin TLS where there is any.
    pub(super) fn set_policy(&mut self, unit: UnitIndex, tls: Option<TlsConfig>) {
        let exports = vec![export("disk", unit, false)];
        let front = self.nbd.front.as_mut().unwrap();
        front.set_policy(Arc::new(Everybody { exports, tls }));
    }

    pub(super) fn connect(&mut self) -> usize {
        let number = self.ends.len();
        self.ends.push(End::default());
        let front = self.nbd.front.as_mut().unwrap();
        let line = TestLine {
            number,
            peer: SocketAddr::from((self.address, u16::try_from(number).unwrap())),
            portal: SocketAddr::from(([10, 0, 0, 2], 10_809)),
            has_had_all: self.has_had_all,
            noted: Noted::default(),
        };
        front.accept(&mut self.engine, line, "service".into());
        self.settle();
        number
    }

    pub(super) fn end(&mut self, line: usize) -> &mut End {
        &mut self.ends[line]
    }

    pub(super) fn under_way(&mut self, line: usize) -> &mut UnderWay {
        self.engine.carrier.lines.of(line)
    }

    pub(super) fn is_shut(&mut self, line: usize) -> bool {
        self.under_way(line).is_shut
    }

    /// Whether somebody waits for the end of the last send.
    pub(super) fn last_end(&mut self, line: usize) -> Option<SendEnd> {
        self.under_way(line).last_end
    }

    /// Why sessions have ended.
    pub(super) fn ended(&self) -> &[&'static str] {
        &self.engine.carrier.lines.ended
    }

    fn is_over(&mut self, line: usize) -> bool {
        self.ends[line].is_gone || self.is_shut(line)
    }

    /// Something is on its way to a client.
    fn is_sent_to(&mut self, line: usize) -> bool {
        let is_sending = self.under_way(line).sending.is_some();
        is_sending && (!self.ends[line].is_silent || self.is_over(line))
    }

    pub(super) fn send(&mut self, line: usize, bytes: &[u8]) {
        self.end(line).outbound.extend(bytes);
        self.settle();
    }

    pub(super) fn heard(&mut self, line: usize) -> Vec<u8> {
        std::mem::take(&mut self.end(line).heard)
    }

    /// A client that has the export.
    pub(super) fn ready(&mut self) -> (usize, Client) {
        let line = self.connect();
        let mut handshake = ClientHandshake::new("").unwrap().with_block_status();
        loop {
            let heard = self.heard(line);
            if let Progress::Done(export) = handshake.handle_bytes(&heard).unwrap() {
                return (line, Client::new(export, 64));
            }
            let output = handshake.take_output();
            self.send(line, &output);
        }
    }

    /// A client that writes its bytes itself has the export. It asks for structured replies or not, and this comes
    /// with its last option.
    pub(super) fn raw(&mut self, is_structured: bool, behind: &[u8]) -> usize {
        const ALLOCATION: &[u8] = b"\0\0\0\x04disk\0\0\0\x01\0\0\0\x0fbase:allocation";
        let line = self.connect();
        let mut bytes = vec![0, 0, 0, 3];
        if is_structured {
            bytes.extend([option(8, b""), option(10, ALLOCATION)].concat());
        }
        bytes.extend(option(7, b"\0\0\0\x04disk\0\0"));
        bytes.extend(behind);
        self.heard(line);
        self.send(line, &bytes);
        line
    }

    /// The one session that there is.
    pub(super) fn port(&mut self) -> &mut SessionPort {
        let key = self.engine.sessions().next().unwrap().0;
        nbd_port(&mut self.engine, key).unwrap()
    }

    pub(super) fn wants(&mut self, line: usize) -> Wants {
        match &self.under_way(line).receiving {
            None => Wants::Nothing,
            Some((_, Receive::Chunk { limit_bytes })) => Wants::Chunk(*limit_bytes),
            Some((_, Receive::Exact { range, .. })) => Wants::Exact(range.clone()),
        }
    }

    pub(super) fn transmit(&mut self, line: usize, client: &mut Client) {
        let mut bytes = Vec::new();
        client.transmit(usize::MAX, |piece| match piece {
            Piece::Header(header) => bytes.extend_from_slice(header),
            Piece::Data(data) => bytes.extend_from_slice(data),
        });
        self.send(line, &bytes);
    }

    /// The completions of everything submitted.
    pub(super) fn completions(&mut self, line: usize, client: &mut Client) -> Vec<Completion> {
        self.transmit(line, client);
        let heard = self.heard(line);
        client.handle_bytes(&heard).unwrap();
        std::iter::from_fn(|| client.poll_completion()).collect()
    }

    pub(super) fn settle(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "there is no end to it");
            self.carry_engine();
            let mut is_carried = self.carry_letter();
            for line in 0..self.ends.len() {
                is_carried |= self.carry_in(line) | self.carry_out(line);
            }
            self.engine.handle_memory();
            self.carry_engine();
            while let Some((session, _)) = self.engine.poll_ready() {
                let (mut sessions, engine) = self.sessions();
                sessions.note_ready(engine, session);
            }
            self.nbd.flush(&mut self.engine);
            let is_quiet = self.engine.carrier.posted.is_empty()
                && !self.engine.has_more()
                && !self.nbd.has_more()
                && self.nbd.dirty.is_empty()
                && !(0..self.ends.len()).any(|line| self.is_sent_to(line));
            if is_quiet && !is_carried {
                return;
            }
        }
    }

    /// Takes what the engine has, as a core does that has sessions of all transports.
    const fn sessions(&mut self) -> (OtherSessions<'_, Outside>, &mut Engine<Outside>) {
        let sessions = OtherSessions {
            nbd: &mut self.nbd,
            hyperscsi: &mut self.hyperscsi,
        };
        (sessions, &mut self.engine)
    }

    pub(super) fn carry_engine(&mut self) {
        loop {
            self.engine.start_waiting();
            if let Some(report) = self.engine.poll_report() {
                let engine::Report::SessionOver { session, .. } = report else {
                    panic!("{report:?}");
                };
                let (mut sessions, engine) = self.sessions();
                sessions.handle_over(engine, session.port);
            } else if let Some(session) = self.engine.poll_eventful() {
                let (mut sessions, engine) = self.sessions();
                sessions.handle_events(engine, session);
            } else {
                return;
            }
        }
    }

    pub(super) fn carry_letter(&mut self) -> bool {
        match self.engine.carrier.posted.pop_front() {
            Some((_, Mail::Unit(unit, letter))) => self.engine.handle_letter(unit, *letter),
            Some((_, Mail::Nbd(letter))) => {
                let logins = Some(&mut self.logins);
                self.nbd.handle_letter(&mut self.engine, letter, logins);
            }
            Some((_, mail)) => panic!("{mail:?}"),
            None => return false,
        }
        true
    }

    pub(super) fn carry_in(&mut self, line: usize) -> bool {
        let (piece_len, is_over) = (self.piece_len, self.is_over(line));
        let there = match is_over {
            true => 0,
            false => self.ends[line].outbound.len(),
        };
        if there == 0 && !is_over {
            return false;
        }
        let receiving = &mut self.engine.carrier.lines.of(line).receiving;
        let is_enough =
            |how: &Receive| !matches!(how, Receive::Exact { range, .. } if there < range.len());
        let Some((key, how)) = receiving.take_if(|(_, how)| is_over || is_enough(how)) else {
            return false;
        };
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        let outbound = &mut self.ends[line].outbound;
        match (key, how) {
            (AnyKey::Nbd(LineKey::Connection(key)), Receive::Exact { mut buffer, range }) => {
                let received = there.min(range.len());
                for (place, byte) in buffer[range].iter_mut().zip(outbound.drain(..received)) {
                    *place = byte;
                }
                nbd.handle_received_exact(engine, key, buffer, received);
            }
            (AnyKey::Nbd(key), Receive::Chunk { limit_bytes }) => {
                let count = there.min(limit_bytes).min(piece_len);
                let bytes: Vec<u8> = outbound.drain(..count).collect();
                match key {
                    LineKey::Handshake(key) => {
                        let bytes = (!bytes.is_empty()).then_some(&bytes[..]);
                        nbd.handle_handshake_received(engine, key, bytes);
                    }
                    LineKey::Connection(key) if bytes.is_empty() => {
                        nbd.handle_end(engine, key, "closed by the client");
                    }
                    LineKey::Connection(key) => {
                        let mut chunk = self.chunks.allocate(bytes.len()).unwrap();
                        chunk.copy_from_slice(&bytes);
                        nbd.handle_received(engine, key, &Rc::new(chunk));
                    }
                }
            }
            (key, how) => panic!("{key:?} receives {how:?}"),
        }
        true
    }

    pub(super) fn carry_out(&mut self, line: usize) -> bool {
        let is_over = self.is_over(line);
        if self.ends[line].is_silent && !is_over {
            return false;
        }
        let Some(sending) = self.under_way(line).sending.take() else {
            return false;
        };
        if !is_over {
            self.ends[line].heard.extend(sending.message.to_vec());
        }
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        match sending.key {
            AnyKey::Nbd(LineKey::Handshake(key)) => {
                let means = (Some(&mut self.logins), SystemTime::UNIX_EPOCH);
                nbd.handle_handshake_sent(engine, key, !is_over, means);
            }
            AnyKey::Nbd(LineKey::Connection(key)) => {
                nbd.handle_sent(engine, key, sending.message, !is_over);
            }
            AnyKey::Iscsi(key) => panic!("{key:?} sends"),
        }
        true
    }

    pub(super) fn pass_to(&mut self, now: Duration) {
        self.engine.begin_turn(now);
        self.engine.handle_timeout(now);
        self.nbd.handle_timeout(&mut self.engine);
        self.nbd.look(&mut self.engine);
        self.settle();
    }

    pub(super) fn finish_pending(&mut self) {
        self.disk.finish_pending();
        self.engine.handle_store_wake(UNIT);
        self.settle();
    }

    /// All sessions end, and nothing is left of them.
    #[track_caller]
    pub(super) fn end_all(mut self) {
        self.nbd.end_all(&mut self.engine, "the test is over");
        let front = self.nbd.front.as_mut().unwrap();
        front.close_all(&mut self.engine);
        self.settle();
        assert_eq!(self.nbd.leftovers(), [""; 0]);
        assert_eq!(self.engine.leftovers(), [""; 0]);
        assert!(self.nbd.is_quiet() && self.logins.is_idle());
        let pool = self.engine.pool();
        assert_eq!(pool.free_bytes(), pool.capacity_bytes());
    }
}

/// An option of a handshake.
pub(super) fn option(number: u8, data: &[u8]) -> Vec<u8> {
    let length = u8::try_from(data.len()).unwrap();
    let head = [0, 0, 0, number, 0, 0, 0, length];
    [b"IHAVEOPT", &head[..], data].concat()
}

/// The header of a request as it is on the wire.
pub(super) fn header(flags: u16, kind: u16, cookie: u64, (offset, length): (u64, u32)) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

pub(super) fn write(tag: u64, offset: u64, bytes: Vec<u8>) -> Request {
    let work = Work::Write {
        length: u32::try_from(bytes.len()).unwrap(),
        data: bytes.into(),
        fua: false,
    };
    Request { tag, offset, work }
}

pub(super) fn read(tag: u64, offset: u64, length: u32) -> Request {
    let buffer = ReadBuffer::Into(vec![0xee; length as usize]);
    let work = Work::Read { length, buffer };
    Request { tag, offset, work }
}

pub(super) fn data_of(completion: &Completion) -> &[u8] {
    assert_eq!(completion.result, Ok(()));
    let Work::Read {
        buffer: ReadBuffer::Into(buffer),
        ..
    } = &completion.work
    else {
        panic!("{:?}", completion.work);
    };
    buffer
}
