//! A bench for sessions: one core with its front, lines that record what is asked of them, and initiators
//! that do what a test says. Time is a number that the test moves.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::SerialNumber;
use ::iscsi::chap::{ChapAccount, ChapAlgorithm, Credentials, Secret};
use ::iscsi::framing::{Pdu, PduBuffer};
use ::iscsi::login::{
    InitiatorAuth, InitiatorLoginAction, InitiatorLoginConfig, LoginInitiator, TargetAuth,
};
use ::iscsi::pdu::{
    Bhs, Cid, InitiatorTaskTag, Isid, LogoutReason, LogoutRequestBhs, NopOutBhs, Opcode,
    RESERVED_TAG, ScsiCommandBhs, TextRequestBhs, Tsih, flags, opcode,
};
use ::iscsi::target::Receive;
use engine::testing::bench::profile;
use engine::testing::disk::{Disk, capabilities};
use engine::testing::outside;
use engine::{Engine, SessionKey, UnitIndex};
use memory::Pool;
use scsi::Owner;

use super::super::{
    Coalescing, Front, FrontSettings, Holding, LineKey, LoginRandom, SessionSettings, Sessions,
};
pub(super) use super::rules::Rules;
use super::rules::{TARGET_NAME, plan, preferences};
use crate::testing::{LineKey as AnyKey, Mail, NoHooks, Noted, TestLine, UnderWay};
use crate::{Others, Policy, Port, SendEnd, Sent, SessionId, SessionReport};

/// When every test begins: in the middle of a second.
pub(super) const BEGIN: Duration = Duration::from_millis(100_250);
/// Silence after which an initiator is pinged here.
pub(super) const NOP_INTERVAL: Duration = Duration::from_secs(5);
/// How long a ping may stay unanswered here.
pub(super) const NOP_TIMEOUT: Duration = Duration::from_secs(7);
/// How long an abort waits for the store here.
pub(super) const ABORT: Duration = Duration::from_secs(3);
/// The data of a ping, in bytes.
pub(super) const PING_BYTES: usize = 8 * 1024;

/// The user of initiators that prove something.
pub(super) const USER: &str = "fox";
const MANY: usize = 1000;
/// More steps than a test takes.
const STEPS_MAX: u32 = 10_000_000;

/// Status; sense key, ASC and ASCQ.
pub(super) type Answer = (u8, Option<(u8, u8, u8)>);
pub(super) const GOOD: Answer = (0, None);
/// What the first command to a unit is answered.
pub(super) const NEW_HERE: Answer = (2, Some((6, 0x29, 0)));

pub(super) use outside::Receipt;

/// Whether what was asked for with a receipt is done.
pub(super) fn is_done(receipt: &Receipt) -> bool {
    Rc::strong_count(receipt) == 1
}

/// So many hosts have one address; a host has the address of those whose number is at most this less.
pub(super) const HOSTS_OF_ADDRESS: u8 = 64;

type Outside = outside::Outside<NoHooks>;

/// There are no sessions of other transports.
struct NoOthers;

impl Others<Outside> for NoOthers {
    fn handle_events(&mut self, _: &mut Engine<Outside>, _: SessionKey) {}

    fn note_ready(&mut self, _: &Engine<Outside>, _: SessionKey) {}

    fn handle_over(&mut self, _: &mut Engine<Outside>, _: Port) {}
}

/// The initiator at the other end of a connection.
#[derive(Debug, Default)]
struct End {
    login: Option<LoginInitiator>,
    inbound: PduBuffer,
    outbound: VecDeque<Vec<u8>>,
    heard: Vec<Pdu>,
    tsih: Tsih,
    /// Why its login has failed.
    refused: Option<String>,
    cmd_sn: u32,
    next_tag: u32,
    /// It takes nothing of what is sent to it.
    is_silent: bool,
    /// It has closed its end.
    is_gone: bool,
}

/// One core.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) engine: Engine<Outside>,
    pub(super) sessions: Sessions<Outside>,
    pub(super) disk: Disk,
    ends: Vec<End>,
    /// How initiators prove who they are.
    auth: InitiatorAuth,
    chunks: Pool,
    /// Sockets hold further bytes behind what is received.
    pub(super) has_more: bool,
    /// They acknowledge all at once.
    pub(super) has_had_all: bool,
    steps: u32,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other sizes and times of the front.
    pub(super) fn with(change: impl FnOnce(&mut FrontSettings)) -> Self {
        Self::on(Disk::new(&capabilities()), change)
    }

    /// With a store that may lose what it has answered.
    pub(super) fn forgetful() -> Self {
        let disk = Disk::new(&capabilities());
        disk.set_lost(0);
        Self::on(disk, |_| {})
    }

    fn on(disk: Disk, change: impl FnOnce(&mut FrontSettings)) -> Self {
        let settings = engine::Settings {
            core: 0,
            cores: 1,
            queue_depth: 8,
            abort_timeout: ABORT,
            fence_timeout: ABORT,
            turn_bytes: 1024 * 1024,
        };
        let mut engine = Engine::new(settings, Pool::new(0).unwrap(), Outside::default());
        engine.begin_turn(BEGIN);
        let owner = Owner::new(profile(capabilities()), None).unwrap();
        engine.add_unit(owner, None, disk.store());
        let settings = SessionSettings {
            queue_depth: 8,
            nop_interval: Some(NOP_INTERVAL),
            nop_timeout: NOP_TIMEOUT,
            discovery_lifetime: Duration::MAX,
            gap_timeout: Duration::from_secs(1),
            coalescing: Coalescing::Off,
        };
        Self {
            engine,
            sessions: Sessions::new(settings, Arc::default(), Some(front(change))),
            disk,
            ends: Vec::new(),
            auth: InitiatorAuth::None { skip_stage: true },
            chunks: Pool::new(0).unwrap(),
            has_more: false,
            has_had_all: true,
            steps: 0,
        }
    }

    // ---- initiators --------------------------------------------------------------------------

    /// An initiator logs in as this host. Gives its line, whether it is let in by now or not.
    pub(super) fn log_in(&mut self, host: u8) -> usize {
        self.begin_login(host, Tsih::NONE, 1)
    }

    /// The same; it has had the unit attention of a new session.
    pub(super) fn ready(&mut self, host: u8) -> usize {
        let line = self.log_in(host);
        self.read(line);
        assert_eq!(self.answer(line), NEW_HERE);
        line
    }

    /// The same where it may have been here before.
    pub(super) fn enter(&mut self, host: u8) -> usize {
        let line = self.log_in(host);
        self.read(line);
        assert_ne!(self.answer(line), GOOD);
        line
    }

    /// One more connection of the session of a line, with this CID.
    pub(super) fn join(&mut self, host: u8, line: usize, cid: u16) -> usize {
        let tsih = self.end(line).tsih;
        self.begin_login(host, tsih, cid)
    }

    /// An initiator logs in, to the session with this number if there is one.
    pub(super) fn begin_login(&mut self, host: u8, tsih: Tsih, cid: u16) -> usize {
        let number = self.prepare_login(host, Some(TARGET_NAME), tsih, cid);
        self.accept(number, host);
        number
    }

    /// An initiator begins a discovery session.
    pub(super) fn discover(&mut self, host: u8) -> usize {
        let number = self.prepare_login(host, None, Tsih::NONE, 1);
        self.accept(number, host);
        number
    }

    /// An initiator logs in, and sends a ping behind its only request at once.
    pub(super) fn log_in_with_ping(&mut self, host: u8) -> usize {
        let number = self.prepare_login(host, Some(TARGET_NAME), Tsih::NONE, 1);
        let mut header = NopOutBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.target_transfer_tag = RESERVED_TAG.into();
        let mut ping = Pdu::new(header.as_bhs_bytes(), vec![7; PING_BYTES]);
        ping.header[24..28].copy_from_slice(&1_u32.to_be_bytes());
        let request = self.end(number).outbound.back_mut().unwrap();
        request.extend(ping.to_bytes(false, false));
        self.accept(number, host);
        number
    }

    fn prepare_login(&mut self, host: u8, target: Option<&str>, tsih: Tsih, cid: u16) -> usize {
        let config = InitiatorLoginConfig {
            initiator_name: format!("iqn.2026-11.example:host{host}"),
            initiator_alias: None,
            target_name: target.map(str::to_owned),
            isid: Isid([0x80, 0, 0, 0, 0, host]),
            tsih,
            cid: Cid(cid),
            cmd_sn: SerialNumber(1),
            initiator_task_tag: InitiatorTaskTag(0),
            auth: self.auth.clone(),
            preferences: preferences(),
        };
        let now = self.engine.now();
        let login = LoginInitiator::new(config, now, Duration::from_secs(60), [0; _]);
        let number = self.ends.len();
        self.ends.push(End {
            login: Some(login.unwrap()),
            inbound: PduBuffer::new(),
            outbound: VecDeque::new(),
            heard: Vec::new(),
            tsih,
            refused: None,
            cmd_sn: 1,
            next_tag: 1,
            is_silent: false,
            is_gone: false,
        });
        self.follow_login(number);
        number
    }

    /// A host that has connected begins its login.
    pub(super) fn log_in_on(&mut self, line: usize, host: u8) {
        let number = self.prepare_login(host, Some(TARGET_NAME), Tsih::NONE, 1);
        let login = self.ends.pop().unwrap();
        assert_eq!(number, self.ends.len());
        let is_silent = self.end(line).is_silent;
        self.ends[line] = End { is_silent, ..login };
        self.settle();
    }

    /// Other limits of the front, for what begins from now on.
    pub(super) fn set_front(&mut self, change: impl FnOnce(&mut FrontSettings)) {
        let mut settings = front_settings();
        change(&mut settings);
        let own = self.sessions.settings.clone();
        self.sessions.set_limits(own, &settings);
    }

    /// A host connects, and says nothing.
    pub(super) fn connect(&mut self, host: u8) -> usize {
        let number = self.ends.len();
        self.ends.push(End::default());
        self.accept(number, host);
        number
    }

    fn accept(&mut self, number: usize, host: u8) {
        let now = self.engine.now();
        let random = LoginRandom {
            challenges: [0; _],
            tsih: u16::try_from(number).unwrap(),
        };
        let address = [10, 0, 1, host / HOSTS_OF_ADDRESS];
        let line = TestLine {
            number,
            peer: SocketAddr::from((address, u16::try_from(number).unwrap())),
            portal: SocketAddr::from(([10, 0, 0, 2], 3260)),
            has_had_all: self.has_had_all,
            noted: Noted::default(),
        };
        let front = self.sessions.front.as_mut().unwrap();
        front.accept(line, random, now);
        self.settle();
    }

    fn end(&mut self, line: usize) -> &mut End {
        &mut self.ends[line]
    }

    /// What the target has under way on a line.
    fn under_way(&mut self, line: usize) -> &mut UnderWay {
        self.engine.carrier.lines.of(line)
    }

    fn is_over(&mut self, line: usize) -> bool {
        self.ends[line].is_gone || self.is_shut(line)
    }

    fn follow_login(&mut self, line: usize) {
        let end = self.end(line);
        while let Some(action) = end.login.as_mut().and_then(LoginInitiator::poll_action) {
            match action {
                InitiatorLoginAction::Send(pdu) => {
                    end.outbound.push_back(pdu.to_bytes(false, false));
                }
                InitiatorLoginAction::Complete(done) => {
                    end.tsih = done.tsih;
                    end.login = None;
                }
                InitiatorLoginAction::Failed(error) => {
                    end.refused = Some(error.to_string());
                    end.login = None;
                }
            }
        }
    }

    /// Whether an initiator is in full-feature phase.
    pub(super) fn is_in(&mut self, line: usize) -> bool {
        let end = self.end(line);
        end.login.is_none() && end.refused.is_none()
    }

    /// Why an initiator is not let in.
    pub(super) fn refused(&mut self, line: usize) -> Option<&str> {
        self.end(line).refused.as_deref()
    }

    /// What initiators may from now on.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        let plan = plan(rules.tag);
        let front = self.sessions.front.as_mut().unwrap();
        front.set_access(Arc::new(rules), [plan].into_iter());
    }

    /// From now on initiators have to prove that they know a secret; they try this one.
    pub(super) fn require_chap(&mut self, secret: &[u8], tried: &[u8]) {
        let credentials = |secret: &[u8]| Credentials {
            name: USER.to_owned(),
            secret: Secret::new(secret.to_vec()),
        };
        let auth = TargetAuth::Chap {
            is_required: true,
            algorithms: vec![ChapAlgorithm::Sha256],
            accounts: Arc::new([ChapAccount {
                initiator: credentials(secret),
                target: None,
            }]),
        };
        self.set_rules(Rules {
            auth,
            ..Rules::new()
        });
        self.auth = InitiatorAuth::Chap {
            own: credentials(tried),
            target: None,
            algorithms: vec![ChapAlgorithm::Sha256],
            or_none: false,
        };
    }

    /// Sends a request; its tag is given.
    fn request(&mut self, line: usize, mut pdu: Pdu, is_numbered: bool) -> u32 {
        let end = self.end(line);
        let tag = end.next_tag;
        end.next_tag += 1;
        pdu.header[16..20].copy_from_slice(&tag.to_be_bytes());
        pdu.header[24..28].copy_from_slice(&end.cmd_sn.to_be_bytes());
        end.cmd_sn += u32::from(is_numbered);
        end.outbound.push_back(pdu.to_bytes(false, false));
        self.settle();
        tag
    }

    /// READ (10) or WRITE (10) of one block of a LUN; the data come with the command.
    pub(super) fn command(&mut self, line: usize, lun: u8, is_write: bool) -> u32 {
        let mut header = ScsiCommandBhs::new();
        header.cdb[0] = if is_write { 0x2a } else { 0x28 };
        header.cdb[8] = 1;
        header.flags |= 1 | if is_write { flags::WRITE } else { flags::READ };
        header.lun = (u64::from(lun) << 48).into();
        header.expected_data_transfer_length = 512.into();
        let data = if is_write { vec![7; 512] } else { Vec::new() };
        self.request(line, Pdu::new(header.as_bhs_bytes(), data), true)
    }

    /// An immediate task management request for a LUN. Gives the code that it is answered with.
    pub(super) fn manage(&mut self, line: usize, function: u8, lun: u8) -> u8 {
        let mut header = [0; 48];
        header[0] = 0x42;
        header[1] = 0x80 | function;
        header[9] = lun;
        header[20..24].copy_from_slice(&RESERVED_TAG.to_be_bytes());
        self.request(line, Pdu::new(&header, Vec::new()), false);
        let heard = std::mem::take(&mut self.end(line).heard);
        let [answer] = &heard[..] else {
            panic!("{heard:?}");
        };
        assert_eq!(opcode(&answer.header), Some(Opcode::TaskManagementResponse));
        answer.header[2]
    }

    /// SYNCHRONIZE CACHE (10).
    pub(super) fn synchronize(&mut self, line: usize) -> u32 {
        let mut header = ScsiCommandBhs::new();
        header.cdb[0] = 0x35;
        header.flags |= 1;
        self.request(line, Pdu::new(header.as_bhs_bytes(), Vec::new()), true)
    }

    /// A READ (10) of so many blocks.
    pub(super) fn read_blocks(&mut self, line: usize, blocks: u8) -> u32 {
        let mut header = ScsiCommandBhs::new();
        (header.cdb[0], header.cdb[8]) = (0x28, blocks);
        header.flags |= 1 | flags::READ;
        header.expected_data_transfer_length = (u32::from(blocks) * 512).into();
        self.request(line, Pdu::new(header.as_bhs_bytes(), Vec::new()), true)
    }

    /// Asks for targets. Nothing is answered yet if the initiator takes nothing.
    pub(super) fn ask_targets(&mut self, line: usize) -> Vec<u8> {
        let mut header = TextRequestBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.target_transfer_tag = RESERVED_TAG.into();
        let text = b"SendTargets=All\0".to_vec();
        self.request(line, Pdu::new(header.as_bhs_bytes(), text), false);
        let heard = std::mem::take(&mut self.end(line).heard);
        heard.into_iter().flat_map(|pdu| pdu.data).collect()
    }

    /// Sends bytes as they are.
    pub(super) fn send(&mut self, line: usize, bytes: &[u8]) {
        self.end(line).outbound.push_back(bytes.to_vec());
        self.settle();
    }

    /// The next request has a number that is this much too large.
    pub(super) fn skip(&mut self, line: usize, numbers: u32) {
        self.end(line).cmd_sn += numbers;
    }

    pub(super) fn read(&mut self, line: usize) -> u32 {
        self.command(line, 0, false)
    }

    pub(super) fn write(&mut self, line: usize) -> u32 {
        self.command(line, 0, true)
    }

    /// A ping that wants its data back.
    pub(super) fn ping(&mut self, line: usize) -> u32 {
        self.ping_with(line, PING_BYTES)
    }

    pub(super) fn ping_with(&mut self, line: usize, bytes: usize) -> u32 {
        let mut header = NopOutBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.target_transfer_tag = RESERVED_TAG.into();
        let data = vec![7; bytes];
        self.request(line, Pdu::new(header.as_bhs_bytes(), data), false)
    }

    /// A request of [`PING_BYTES`] whose turn does not come: the number before it is missing.
    pub(super) fn ping_behind_gap(&mut self, line: usize) {
        self.end(line).cmd_sn += 1;
        let mut header = NopOutBhs::new();
        header.target_transfer_tag = RESERVED_TAG.into();
        let data = vec![7; PING_BYTES];
        self.request(line, Pdu::new(header.as_bhs_bytes(), data), false);
    }

    /// Logs out: the whole session, or the connection with this CID.
    pub(super) fn log_out(&mut self, line: usize, cid: Option<u16>) -> u32 {
        let reason = cid.map_or(LogoutReason::CloseSession, |_| {
            LogoutReason::CloseConnection
        });
        let mut header = LogoutRequestBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.flags |= reason.code();
        header.cid = cid.unwrap_or(0).into();
        self.request(line, Pdu::new(header.as_bhs_bytes(), Vec::new()), false)
    }

    /// The receive of a login brings these bytes, wherever that login stands.
    pub(super) fn end_login_receive(&mut self, line: usize, bytes: &[u8]) {
        let receiving = self.under_way(line).receiving.take();
        let Some((AnyKey::Iscsi(LineKey::Login(key)), _)) = receiving else {
            panic!("{receiving:?}");
        };
        let clock = SystemTime::UNIX_EPOCH;
        self.sessions
            .handle_login_received(&self.engine, key, Some(bytes), clock);
    }

    /// The send of a login ends well, wherever that login stands.
    pub(super) fn end_login_send(&mut self, line: usize) {
        let sending = self.under_way(line).sending.take().unwrap();
        let AnyKey::Iscsi(LineKey::Login(key)) = sending.key else {
            panic!("{sending:?}");
        };
        let clock = SystemTime::UNIX_EPOCH;
        self.sessions
            .handle_login_sent(&self.engine, key, true, clock);
    }

    /// From now on an initiator takes nothing of what is sent to it, or does again.
    pub(super) fn set_silent(&mut self, line: usize, is_silent: bool) {
        self.end(line).is_silent = is_silent;
        self.settle();
    }

    /// An initiator ends a connection in an orderly way.
    pub(super) fn close(&mut self, line: usize) {
        self.end(line).is_gone = true;
        let receiving = self.under_way(line).receiving.take();
        let Some((AnyKey::Iscsi(LineKey::Connection(key)), _)) = receiving else {
            panic!("{receiving:?}");
        };
        self.sessions.handle_close(&mut self.engine, key, "closed");
        self.settle();
    }

    /// An initiator is gone, as the target finds when it next looks.
    pub(super) fn vanish(&mut self, line: usize) {
        self.end(line).is_gone = true;
        self.settle();
    }

    /// An initiator closes its end of a connection; nothing follows yet.
    pub(super) fn hang_up(&mut self, line: usize) {
        self.end(line).is_gone = true;
        let receiving = self.under_way(line).receiving.take();
        if let Some((AnyKey::Iscsi(LineKey::Connection(key)), _)) = receiving {
            self.sessions
                .handle_end(&mut self.engine, key, "closed by the initiator");
        }
    }

    /// What has come since the last call, by opcode and tag.
    pub(super) fn heard(&mut self, line: usize) -> Vec<(Opcode, u32)> {
        let heard = std::mem::take(&mut self.end(line).heard);
        let tag = |pdu: &Pdu| u32::from_be_bytes(*pdu.header[16..].first_chunk().unwrap());
        heard
            .iter()
            .map(|pdu| (opcode(&pdu.header).unwrap(), tag(pdu)))
            .collect()
    }

    /// The one answer to a command since the last call.
    #[track_caller]
    pub(super) fn answer(&mut self, line: usize) -> Answer {
        let pdus = std::mem::take(&mut self.end(line).heard);
        let [pdu] = &pdus[..] else {
            panic!("{pdus:?}");
        };
        // The sense data stand behind their length of two bytes.
        let sense = pdu.data.get(2..16).filter(|_| pdu.header[3] != 0);
        let sense = sense.map(|sense| (sense[2] & 0xf, sense[12], sense[13]));
        (pdu.header[3], sense)
    }

    /// The target receives on a line.
    pub(super) fn is_receiving(&mut self, line: usize) -> bool {
        self.under_way(line).receiving.is_some()
    }

    /// The target has closed a line.
    pub(super) fn last_end(&mut self, line: usize) -> Option<SendEnd> {
        self.under_way(line).last_end
    }

    pub(super) fn is_shut(&mut self, line: usize) -> bool {
        self.under_way(line).is_shut
    }

    // ---- the administrator -------------------------------------------------------------------

    /// All sessions, oldest first.
    pub(super) fn report(&self) -> Vec<SessionReport> {
        let mut report = self.sessions.report(&self.engine);
        report.sort_by_key(|session| session.id);
        report
    }

    /// The name of the session of a line.
    pub(super) fn id_of(&mut self, line: usize) -> SessionId {
        let tsih = self.end(line).tsih;
        let key = self.sessions.by_tsih[&tsih];
        self.engine.session(key).unwrap().port.id()
    }

    /// What a login was answered when its line was closed for it.
    pub(super) fn last_words(&mut self, line: usize) -> &[u8] {
        &self.under_way(line).last_words
    }

    /// What the line of a session has been told.
    pub(super) fn noted(&mut self, line: usize) -> Noted {
        let mut all = self.sessions.connections_mut();
        let found = all.find(|connection| connection.line.number == line);
        found.unwrap().line.noted
    }

    /// The receive of a connection brings these bytes, wherever it stands.
    pub(super) fn end_receive(&mut self, line: usize, bytes: &[u8]) {
        let receiving = self.under_way(line).receiving.take();
        let Some((AnyKey::Iscsi(LineKey::Connection(key)), _)) = receiving else {
            panic!("{receiving:?}");
        };
        let mut chunk = self.chunks.allocate(bytes.len()).unwrap();
        chunk.copy_from_slice(bytes);
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        sessions.handle_received(engine, key, &Rc::new(chunk), false);
    }

    /// The send of a connection ends well, wherever it stands.
    pub(super) fn end_send(&mut self, line: usize) {
        let sending = self.under_way(line).sending.take().unwrap();
        let AnyKey::Iscsi(LineKey::Connection(key)) = sending.key else {
            panic!("{sending:?}");
        };
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        sessions.handle_sent(engine, key, sending.message, Sent::Now);
    }

    /// How often something was reported.
    pub(super) fn noticed(&self, what: &str) -> u32 {
        let notices = &self.engine.carrier.lines.notices;
        notices.get(what).copied().unwrap_or_default()
    }

    /// Why logins have failed since the last call.
    pub(super) fn failed(&mut self) -> Vec<String> {
        std::mem::take(&mut self.engine.carrier.lines.failed)
    }

    /// Why sessions have ended since the last call.
    pub(super) fn ended(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.engine.carrier.lines.ended)
    }

    pub(super) fn dismiss(&mut self, line: usize) -> Receipt {
        let (id, receipt) = (self.id_of(line), Receipt::default());
        let copy = Rc::clone(&receipt);
        self.sessions
            .dismiss(&mut self.engine, id, "dismissed", copy);
        self.settle();
        receipt
    }

    // ---- the turn ----------------------------------------------------------------------------

    /// Turns, until nothing happens any more.
    pub(super) fn settle(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "there is no end to it");
            while self
                .sessions
                .settle(&mut self.engine, &mut NoOthers)
                .is_some()
            {}
            let is_carried = self.carry_letter() || self.carry_lines();
            self.sessions.lose_some(&mut self.engine, false);
            self.sessions.carry_on_grants(&mut self.engine);
            self.engine.handle_memory();
            while self
                .sessions
                .settle(&mut self.engine, &mut NoOthers)
                .is_some()
            {}
            self.sessions.flush(&mut self.engine, &mut NoOthers);
            let is_over = self.engine.carrier.posted.is_empty() && !self.sessions.has_more();
            if is_over && !is_carried && !self.carry_lines() {
                return;
            }
        }
    }

    fn carry_letter(&mut self) -> bool {
        match self.engine.carrier.posted.pop_front() {
            Some((0, Mail::Unit(unit, letter))) => self.engine.handle_letter(unit, *letter),
            Some((0, Mail::Iscsi(letter))) => {
                self.sessions.handle_letter(&mut self.engine, letter);
            }
            Some((core, mail)) => panic!("to core {core}: {mail:?}"),
            None => return false,
        }
        true
    }

    fn carry_lines(&mut self) -> bool {
        let lines = 0..self.ends.len();
        let carried = lines.map(|line| self.carry_in(line) | self.carry_out(line));
        carried.fold(false, |all, one| all | one)
    }

    /// What an initiator has sent reaches the target, one PDU at a time.
    fn carry_in(&mut self, line: usize) -> bool {
        let (clock, is_over) = (SystemTime::UNIX_EPOCH, self.is_over(line));
        if !is_over && self.ends[line].outbound.is_empty() {
            return false;
        }
        let Some((key, how)) = self.under_way(line).receiving.take() else {
            return false;
        };
        let outbound = &mut self.ends[line].outbound;
        let bytes = if is_over { None } else { outbound.pop_front() };
        let AnyKey::Iscsi(key) = key else {
            panic!("{key:?} receives");
        };
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        match (key, how, bytes) {
            (LineKey::Login(key), _, bytes) => {
                sessions.handle_login_received(engine, key, bytes.as_deref(), clock);
            }
            (LineKey::Connection(key), Receive::Exact { mut buffer, range }, bytes) => {
                let mut bytes = bytes.unwrap_or_default();
                let rest = bytes.split_off(bytes.len().min(range.len()));
                buffer[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
                if !rest.is_empty() {
                    outbound.push_front(rest);
                }
                sessions.handle_received_exact(engine, key, buffer, bytes.len());
            }
            (LineKey::Connection(key), Receive::Chunk { limit_bytes }, Some(mut bytes)) => {
                let rest = bytes.split_off(bytes.len().min(limit_bytes));
                if !rest.is_empty() {
                    outbound.push_front(rest);
                }
                let mut chunk = self.chunks.allocate(bytes.len()).unwrap();
                chunk.copy_from_slice(&bytes);
                sessions.handle_received(engine, key, &Rc::new(chunk), self.has_more);
            }
            (LineKey::Connection(key), Receive::Chunk { .. }, None) => {
                sessions.handle_end(engine, key, "closed by the initiator");
            }
        }
        true
    }

    /// What the target sends reaches the initiator, where that takes it.
    fn carry_out(&mut self, line: usize) -> bool {
        let (clock, is_over) = (SystemTime::UNIX_EPOCH, self.is_over(line));
        if self.ends[line].is_silent && !is_over {
            return false;
        }
        let Some(sending) = self.under_way(line).sending.take() else {
            return false;
        };
        if !is_over {
            self.ends[line].inbound.push(&sending.message.to_vec());
        }
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        match sending.key {
            AnyKey::Iscsi(LineKey::Login(key)) => {
                sessions.handle_login_sent(engine, key, !is_over, clock);
            }
            AnyKey::Iscsi(LineKey::Connection(key)) => {
                let sent = if is_over { Sent::Not } else { Sent::Now };
                sessions.handle_sent(engine, key, sending.message, sent);
            }
            AnyKey::Nbd(key) => panic!("{key:?} sends"),
        }
        self.listen(line);
        true
    }

    fn listen(&mut self, line: usize) {
        while let Ok(Some(pdu)) = self.end(line).inbound.next_pdu(1 << 20, false, false) {
            let end = self.end(line);
            match &mut end.login {
                Some(login) => login.handle_pdu(&pdu.header, &pdu.data),
                None => end.heard.push(pdu),
            }
            self.follow_login(line);
        }
    }

    // ---- time --------------------------------------------------------------------------------

    /// It is this time now; what is due happens. Gives when something is due next.
    pub(super) fn pass_to(&mut self, now: Duration) -> Option<Duration> {
        self.engine.begin_turn(now);
        self.engine.handle_timeout(now);
        self.settle();
        self.sessions
            .handle_timeout(&mut self.engine, || SystemTime::UNIX_EPOCH);
        self.settle();
        self.sessions.poll_timeout(&self.engine)
    }

    /// A request that the disk has kept to itself ends.
    pub(super) fn finish_pending(&mut self) {
        self.disk.finish_pending();
        self.engine.handle_store_wake(UnitIndex(0));
        self.settle();
    }

    /// All sessions end, and nothing is left of them.
    #[track_caller]
    pub(super) fn end_all(mut self) {
        self.sessions.end_all(&mut self.engine, "the test is over");
        self.settle();
        assert_eq!(self.sessions.leftovers(), [""; 0]);
        assert_eq!(self.engine.leftovers(), [""; 0]);
        assert!(self.sessions.is_quiet());
        assert_eq!(
            self.engine.pool().free_bytes(),
            self.engine.pool().capacity_bytes()
        );
    }
}

fn front_settings() -> FrontSettings {
    FrontSettings {
        cores: 1,
        sessions_max: MANY,
        logins_max: MANY,
        discovery_max: MANY,
        unproved_per_address_max: MANY,
        connections_max: MANY,
        holding: Holding::new(usize::MAX),
        login_timeout: Duration::from_secs(60),
    }
}

fn front(change: impl FnOnce(&mut FrontSettings)) -> Front<TestLine> {
    let mut settings = front_settings();
    change(&mut settings);
    let policy: Arc<dyn Policy> = Arc::new(Rules::new());
    let mut front = Front::new(&settings, Arc::clone(&policy), Arc::default());
    front.set_access(policy, [plan(1)].into_iter());
    front
}
