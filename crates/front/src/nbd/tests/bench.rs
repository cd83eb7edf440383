//! One core with its handshakes, sessions and a unit, and clients that are those of the crate `nbd`.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::framing::Pdu;
use ::iscsi::names::IscsiName;
use ::iscsi::negotiate::ConnectionParameters;
use ::iscsi::pdu::LoginStatus;
use ::nbd::{
    Client, Completion, Handshake as ClientHandshake, Piece, Progress, ReadBuffer, Request, Work,
};
use engine::testing::bench::profile;
use engine::testing::disk::{Disk, capabilities};
use engine::{
    Carrier, Ending, Engine, Life, News, PartKey, Save, StoreWork, UnitIndex, VisibleLun,
};
use memory::{Buffer, Message, Pool};
use scsi::{Owner, Status};
use store::{Capabilities, Descriptor, SocketTag, Waker};

use super::super::*;
use crate::iscsi::{self, FrontSettings as LoginSettings, Holding};
use crate::{
    Asker, Authorization, CommandId, ExportAsker, Others as _, Policy, Port, SendEnd,
    VisibleExport, VisibleTarget,
};

pub(super) const BEGIN: Duration = Duration::from_secs(100);
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);
pub(super) const DEPTH: u32 = 4;
pub(super) const UNIT: UnitIndex = UnitIndex(0);
/// More steps than a test takes.
const STEPS_MAX: u32 = 10_000_000;

#[derive(Debug)]
pub(super) struct TestLine(usize);

impl Line for TestLine {
    fn peer(&self) -> SocketAddr {
        SocketAddr::from(([10, 0, 1, 1], u16::try_from(self.0).unwrap()))
    }

    fn portal(&self) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], 10_809))
    }

    fn has_had_all(&self) -> bool {
        true
    }
}

/// No initiator comes.
#[derive(Debug)]
pub(super) struct NoLine;

impl iscsi::Line for NoLine {
    type Context = ();

    fn peer(&self) -> SocketAddr {
        unreachable!("no initiator comes")
    }

    fn portal(&self) -> SocketAddr {
        unreachable!("no initiator comes")
    }

    fn has_had_all(&self) -> bool {
        false
    }

    fn note_login(&mut self, _: &Pdu, _: Option<&IscsiName>, (): &()) {}
    fn enter(&mut self, _: &iscsi::Detail, _: &ConnectionParameters, (): &()) {}
    fn note_received(&mut self, _: &[u8]) {}
    fn note_sent(&mut self, _: &Message) {}
}

/// A client and its connection.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) receiving: Option<(LineKey, Receive)>,
    pub(super) sending: Option<(LineKey, Message)>,
    /// Whether somebody waits for the end of the last send.
    pub(super) last_end: Option<SendEnd>,
    pub(super) is_shut: bool,
    pub(super) is_gone: bool,
    /// It takes nothing of what is sent to it.
    pub(super) is_silent: bool,
    pub(super) outbound: VecDeque<u8>,
    pub(super) heard: Vec<u8>,
}

impl End {
    /// Something is on its way to the client.
    const fn is_sent_to(&self) -> bool {
        self.sending.is_some() && (!self.is_silent || self.is_shut || self.is_gone)
    }
}

#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) letters: VecDeque<(UnitIndex, engine::Letter)>,
    pub(super) mail: VecDeque<Letter<TestLine>>,
    pub(super) ends: Vec<End>,
    pub(super) ended: Vec<&'static str>,
    /// What the last one of these left: requests under way, and bytes that were not sent.
    pub(super) left: (u32, usize),
    pub(super) failed: Vec<String>,
}

impl Carrier for Outside {
    type Port = Port;
    type Operation = Infallible;
    type Receipt = Rc<()>;
    type Account = ();

    fn post(&mut self, _: usize, unit: UnitIndex, letter: engine::Letter) {
        self.letters.push_back((unit, letter));
    }

    fn begin(&mut self, _: PartKey, _: StoreWork) -> Infallible {
        unreachable!("the disk orders nothing")
    }

    fn waker(&self, _: UnitIndex) -> Waker {
        Waker::new(|| {})
    }

    fn open_socket(&mut self, _: UnitIndex, _: SocketTag, _: Descriptor) -> bool {
        unreachable!("the disk orders nothing")
    }

    fn close_socket(&mut self, _: UnitIndex, _: SocketTag) {}

    fn cancel(&mut self, operation: Infallible) {
        match operation {}
    }

    fn save(&mut self, _: UnitIndex, _: Save) {
        unreachable!("no test changes what is kept")
    }

    fn lend_chunk(&mut self, _: &Rc<Buffer>) -> bool {
        true
    }

    fn notify(&mut self, news: News) {
        assert!(!matches!(news, News::Broken(_)), "{news:?}");
    }

    fn series(&mut self, _: UnitIndex, _: &Port) -> u32 {
        0
    }

    fn account(_: u32, _: &Port, _: CommandId, _: &crate::Command) {}
    fn note_answer(&mut self, (): (), _: Status) {}
    fn note_wait(&mut self, (): ()) {}
    fn note_end(&mut self, (): (), _: Ending, _: Life) {}
    fn note_starved(&mut self) {}
}

impl Wire for Outside {
    type NbdLine = TestLine;

    fn receive(&mut self, line: &TestLine, key: LineKey, how: Receive) {
        let before = self.ends[line.0].receiving.replace((key, how));
        assert!(before.is_none(), "two receives on {line:?}");
    }

    fn send(&mut self, line: &TestLine, key: LineKey, message: Message, end: SendEnd) {
        self.ends[line.0].last_end = Some(end);
        let before = self.ends[line.0].sending.replace((key, message));
        assert!(before.is_none(), "two sends on {line:?}");
    }

    fn shut(&mut self, line: &TestLine) {
        self.ends[line.0].is_shut = true;
    }

    fn post_letter(&mut self, _: usize, letter: Letter<TestLine>) {
        self.mail.push_back(letter);
    }

    fn report(&mut self, notice: Notice<'_>) {
        match notice {
            Notice::SessionEnds {
                reason,
                under_way,
                unsent_bytes,
                ..
            } => {
                self.ended.push(reason);
                self.left = (under_way, unsent_bytes);
            }
            Notice::HandshakeFailed { failure, .. } => self.failed.push(failure.to_string()),
            Notice::SessionBegins { .. } | Notice::ConnectionIsGone => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Everybody(pub(super) UnitIndex);

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
        let lun = VisibleLun {
            lun: 0,
            unit: self.0,
            read_only: false,
        };
        vec![VisibleExport {
            name: "disk".to_owned(),
            lun,
        }]
    }
}

#[derive(Debug)]
pub(super) struct Bench {
    pub(super) engine: Engine<Outside>,
    pub(super) nbd: Sessions<Outside>,
    pub(super) logins: iscsi::Front<NoLine>,
    pub(super) disk: Disk,
    pub(super) chunks: Pool,
    /// The most bytes that one receive into a chunk brings.
    pub(super) piece_len: usize,
    steps: u32,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(8)
    }

    /// So many handshakes may be of one address, and so many sessions in all.
    pub(super) fn with(many: usize) -> Self {
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
        let disk = Disk::new(&capabilities());
        let owner = Owner::new(profile(capabilities()), None).unwrap();
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
        let policy: Arc<dyn Policy> = Arc::new(Everybody(UNIT));
        let front = Front::new(&settings, Arc::clone(&policy));
        let settings = SessionSettings { queue_depth: DEPTH };
        Self {
            engine,
            nbd: Sessions::new(settings, Some(front)),
            logins: iscsi::Front::new(&logins, policy, Arc::default()),
            disk,
            chunks: Pool::new(0).unwrap(),
            piece_len: usize::MAX,
            steps: 0,
        }
    }

    /// From now on the export is another unit, with other blocks.
    pub(super) fn replace_unit(&mut self) {
        let other = Capabilities {
            block_bytes: 4096,
            ..capabilities()
        };
        let owner = Owner::new(profile(other.clone()), None).unwrap();
        let unit = self.engine.add_unit(owner, None, Disk::new(&other).store());
        let front = self.nbd.front.as_mut().unwrap();
        front.set_policy(Arc::new(Everybody(unit)));
    }

    pub(super) fn connect(&mut self) -> usize {
        let line = self.engine.carrier.ends.len();
        self.engine.carrier.ends.push(End::default());
        let front = self.nbd.front.as_mut().unwrap();
        front.accept(&mut self.engine, TestLine(line), "service".into());
        self.settle();
        line
    }

    pub(super) fn end(&mut self, line: usize) -> &mut End {
        &mut self.engine.carrier.ends[line]
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
            for line in 0..self.engine.carrier.ends.len() {
                is_carried |= self.carry_in(line) | self.carry_out(line);
            }
            self.engine.handle_memory();
            self.carry_engine();
            while let Some((session, _)) = self.engine.poll_ready() {
                self.nbd.note_ready(&self.engine, session);
            }
            self.nbd.flush(&mut self.engine);
            let is_quiet = self.engine.carrier.letters.is_empty()
                && self.engine.carrier.mail.is_empty()
                && !self.engine.has_more()
                && !self.nbd.has_more()
                && self.nbd.dirty.is_empty()
                && !self.engine.carrier.ends.iter().any(End::is_sent_to);
            if is_quiet && !is_carried {
                return;
            }
        }
    }

    pub(super) fn carry_engine(&mut self) {
        loop {
            self.engine.start_waiting();
            if let Some(report) = self.engine.poll_report() {
                let engine::Report::SessionOver { session, .. } = report else {
                    panic!("{report:?}");
                };
                self.nbd.handle_over(&mut self.engine, session.port);
            } else if let Some(session) = self.engine.poll_eventful() {
                self.nbd.handle_events(&mut self.engine, session);
            } else {
                return;
            }
        }
    }

    pub(super) fn carry_letter(&mut self) -> bool {
        if let Some((unit, letter)) = self.engine.carrier.letters.pop_front() {
            self.engine.handle_letter(unit, letter);
        } else if let Some(letter) = self.engine.carrier.mail.pop_front() {
            let logins = Some(&mut self.logins);
            self.nbd.handle_letter(&mut self.engine, letter, logins);
        } else {
            return false;
        }
        true
    }

    pub(super) fn carry_in(&mut self, line: usize) -> bool {
        let piece_len = self.piece_len;
        let end = self.end(line);
        let is_over = end.is_shut || end.is_gone;
        if end.outbound.is_empty() && !is_over {
            return false;
        }
        let Some((key, how)) = end.receiving.take() else {
            return false;
        };
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        let outbound = &mut engine.carrier.ends[line].outbound;
        if is_over {
            outbound.clear();
        }
        match (key, how) {
            (LineKey::Connection(key), Receive::Exact { mut buffer, range }) => {
                if outbound.len() < range.len() && !is_over {
                    let how = Receive::Exact { buffer, range };
                    let key = LineKey::Connection(key);
                    engine.carrier.ends[line].receiving = Some((key, how));
                    return false;
                }
                let received = outbound.len().min(range.len());
                for (place, byte) in buffer[range].iter_mut().zip(outbound.drain(..received)) {
                    *place = byte;
                }
                nbd.handle_received_exact(engine, key, buffer, received);
            }
            (key, how) => {
                let Receive::Chunk { limit_bytes } = how else {
                    panic!("a handshake receives into a chunk");
                };
                let count = outbound.len().min(limit_bytes).min(piece_len);
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
        }
        true
    }

    pub(super) fn carry_out(&mut self, line: usize) -> bool {
        let end = self.end(line);
        let is_over = end.is_shut || end.is_gone;
        if end.is_silent && !is_over {
            return false;
        }
        let Some((key, message)) = end.sending.take() else {
            return false;
        };
        if !is_over {
            end.heard.extend(message.to_vec());
        }
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        match key {
            LineKey::Handshake(key) => {
                let means = (Some(&mut self.logins), SystemTime::UNIX_EPOCH);
                nbd.handle_handshake_sent(engine, key, !is_over, means);
            }
            LineKey::Connection(key) => nbd.handle_sent(engine, key, message, !is_over),
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
