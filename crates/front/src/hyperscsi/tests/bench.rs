//! One core with two places and a unit, and clients that are those of the crate `hyperscsi`.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use ::hyperscsi::testing::{UnstretchedClient, record};
use ::hyperscsi::{
    Attribute, ClientEvent, ClientSession, Command, Entropy, FragmentHeader, Function, Level,
    Login, LoginError, LoginProgress, OpaqueTarget, Opening, Outcome, Profile, Retransmit,
    Settings, Wish, read_unknown_session,
};
use ::iscsi::pdu::LoginStatus;
use engine::testing::bench::profile;
use engine::testing::disk::{Disk, capabilities};
use engine::testing::outside::{self, Receipt};
use engine::{Engine, TargetIndex, UnitIndex, VisibleLun};
use memory::Pool;
use scsi::Owner;
use store::Capabilities;

use super::super::{
    ChangedPlaces, FrameSizes, Group, GroupDevice, Place, PlaceKey, Places, Server,
    SessionSettings, Sessions,
};
use crate::iscsi::{self, FrontSettings, Holding};
use crate::testing::{Lines, Mail, NoHooks, TestLine};
use crate::{
    Asker, Authorization, OtherSessions, Others as _, Policy, Station, VisibleTarget, nbd,
};

pub(super) const BEGIN: Duration = Duration::from_secs(100);
pub(super) const DEPTH: u32 = 4;
pub(super) const UNIT: UnitIndex = UnitIndex(0);
pub(super) const GROUP: &str = "ABC";
pub(super) const DEVICE: u16 = 1;
pub(super) const PASSWORD: &[u8] = b"open sesame";
/// More steps than a test takes.
const STEPS_MAX: u32 = 1_000_000;

type Outside = outside::Outside<NoHooks>;

/// What initiators of iSCSI may: nothing.
#[derive(Debug)]
struct Nobody;

impl Policy for Nobody {
    fn authorize(&self, _: &Asker<'_>, _: Option<&str>) -> Result<Authorization, LoginStatus> {
        Err(LoginStatus::NotFound)
    }

    fn luns(&self, _: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        Err(LoginStatus::NotFound)
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        false
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        Vec::new()
    }
}

/// A server's keys, and the record of the password. Making them takes longer than most tests.
fn keys() -> &'static (Arc<OpaqueTarget>, Vec<u8>) {
    static KEYS: OnceLock<(Arc<OpaqueTarget>, Vec<u8>)> = OnceLock::new();
    KEYS.get_or_init(|| {
        let mut entropy = Entropy::new(&[7; 32]);
        let target = OpaqueTarget::new(&mut entropy);
        let name = Group::credential(GROUP, None);
        let record = record(&target, &name, PASSWORD, &mut entropy);
        (Arc::new(target), record.unwrap())
    })
}

pub(super) fn server() -> Server {
    Server {
        id: [5; 16],
        name: "bench".to_owned(),
        keys: Arc::clone(&keys().0),
    }
}

/// The same server with other keys.
pub(super) fn other_server() -> Server {
    Server {
        keys: Arc::new(OpaqueTarget::new(&mut Entropy::new(&[8; 32]))),
        ..server()
    }
}

pub(super) fn place(number: u8) -> Place {
    Place::Interface(format!("eth{number}").into())
}

pub(super) fn device(handle: u16) -> GroupDevice {
    GroupDevice {
        handle,
        name: format!("disk{handle}"),
        unit: UNIT,
        level: Level::Crc,
        read_only: false,
        is_removable: false,
        peripheral_type: 0,
        designator: [9; 16],
    }
}

/// The group at the first place.
pub(super) fn group() -> Group {
    Group {
        name: GROUP.to_owned(),
        user: None,
        place: place(0),
        profile: Profile::WIRED,
        retransmit: Retransmit::Selective,
        is_open: false,
        record: keys().1.clone(),
        devices: vec![device(DEVICE)],
    }
}

pub(super) const SIZES: FrameSizes = FrameSizes {
    base: 1500,
    most: 1500,
};

pub(super) const fn station(last: u8) -> Station {
    Station::Link([2, 0, 0, 0, 0, last])
}

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) station: Station,
    /// Where its frames come in.
    pub(super) place: u8,
    login: Option<Login<UnstretchedClient>>,
    pub(super) session: Option<Box<ClientSession<Vec<u8>>>>,
    pub(super) failed: Option<LoginError>,
    events: VecDeque<ClientEvent>,
    next_token: u64,
}

#[derive(Debug)]
pub(super) struct Bench {
    pub(super) engine: Engine<Outside>,
    pub(super) hyperscsi: Sessions<Outside>,
    pub(super) logins: iscsi::Front<TestLine>,
    pub(super) clients: Vec<Client>,
    pub(super) disk: Disk,
    pub(super) now: Duration,
    /// The system sends nothing: frames stay where they are.
    pub(super) is_stuck: bool,
    /// Where clients log in from now on.
    pub(super) next_place: u8,
    nbd: nbd::Sessions<Outside>,
    entropy: Entropy,
    steps: u32,
}

impl Bench {
    /// The group is served at the first place.
    pub(super) fn new() -> Self {
        Self::with(8, 8)
    }

    /// So many sessions may be there, and so many of one host.
    pub(super) fn with(sessions_max: usize, per_host_max: usize) -> Self {
        let mut bench = Self::bare(1, (sessions_max, per_host_max), &capabilities());
        bench.serve(&[group()]);
        bench
    }

    /// The first of so many cores, which serves nothing yet.
    pub(super) fn bare(cores: usize, most: (usize, usize), capabilities: &Capabilities) -> Self {
        Self::on(Disk::new(capabilities), cores, most, capabilities)
    }

    /// With a store that may lose what it has answered.
    pub(super) fn forgetful() -> Self {
        let disk = Disk::new(&capabilities());
        disk.set_lost(0);
        let mut bench = Self::on(disk, 1, (8, 8), &capabilities());
        bench.serve(&[group()]);
        bench
    }

    fn on(
        disk: Disk,
        cores: usize,
        (sessions_max, per_host_max): (usize, usize),
        capabilities: &Capabilities,
    ) -> Self {
        let settings = engine::Settings {
            core: 0,
            cores,
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
        let logins = FrontSettings {
            cores,
            sessions_max: 100,
            logins_max: 8,
            discovery_max: 8,
            unproved_per_address_max: 8,
            connections_max: 100,
            holding: Holding::new(usize::MAX),
            login_timeout: Duration::from_secs(15),
        };
        let settings = SessionSettings {
            core: 0,
            cores,
            queue_depth: DEPTH,
            sessions_max,
            per_host_max,
        };
        Self {
            engine,
            hyperscsi: Sessions::new(settings, &[3; 32], Some(Places::default())),
            logins: iscsi::Front::new(&logins, Arc::new(Nobody), Arc::default()),
            clients: Vec::new(),
            disk,
            now: BEGIN,
            is_stuck: false,
            next_place: 0,
            nbd: nbd::Sessions::new(nbd::SessionSettings { queue_depth: DEPTH }, None),
            entropy: Entropy::new(&[4; 32]),
            steps: 0,
        }
    }

    // ---- what is served ----------------------------------------------------------------------

    /// Serves these groups, with a socket at each place that they need.
    pub(super) fn serve(&mut self, groups: &[Group]) -> (ChangedPlaces, Receipt) {
        self.serve_as(server(), groups, true)
    }

    pub(super) fn serve_as(
        &mut self,
        server: Server,
        groups: &[Group],
        has_sockets: bool,
    ) -> (ChangedPlaces, Receipt) {
        let places = groups.iter().map(|group| (group.place.clone(), (), SIZES));
        let sockets = places.filter(|_| has_sockets).collect();
        let receipt = Receipt::default();
        let what = (server, Arc::from(groups));
        let changed = self
            .hyperscsi
            .set_groups(&mut self.engine, what, sockets, &receipt);
        self.settle();
        (changed, receipt)
    }

    /// The key of a place, by its number.
    pub(super) fn key(&self, number: u8) -> PlaceKey {
        let wanted = place(number);
        let mut keys = self.hyperscsi.place_keys().into_iter();
        let is_it = |key: &PlaceKey| self.hyperscsi.place(*key) == Some(&wanted);
        keys.find(is_it).expect("a place")
    }

    pub(super) fn lines(&mut self) -> &mut Lines {
        &mut self.engine.carrier.lines
    }

    // ---- clients -----------------------------------------------------------------------------

    /// A client at a station begins its login.
    pub(super) fn log_in(&mut self, station: Station, number: u8) -> usize {
        self.log_in_with(station, number, (GROUP, PASSWORD, 64))
    }

    pub(super) fn log_in_with(
        &mut self,
        station: Station,
        number: u8,
        (group, password, slots): (&str, &[u8], u16),
    ) -> usize {
        let settings = Settings::default();
        let mut entropy = Entropy::new(&self.entropy.bytes());
        let exchange = UnstretchedClient::new(password, &mut entropy).unwrap();
        let wish = Wish {
            client: [number; 16],
            group: group.to_owned(),
            user: None,
            slots,
            window: settings.window,
            begun_bytes: settings.begun_bytes,
            frame_bytes_max: settings.frame_bytes_max,
            bundles: true,
        };
        let until = self.now + Duration::from_secs(60);
        let cookie = [0; 16];
        let login = Login::new(self.now, until, wish, settings, cookie, exchange, entropy);
        self.clients.push(Client {
            station,
            place: self.next_place,
            login: Some(login),
            session: None,
            failed: None,
            events: VecDeque::new(),
            next_token: 1,
        });
        self.settle();
        self.clients.len() - 1
    }

    /// A client that has the device open.
    pub(super) fn ready(&mut self, last: u8) -> usize {
        let client = self.log_in(station(last), last);
        self.open(client, DEVICE, Level::Crc);
        client
    }

    #[track_caller]
    pub(super) fn open(&mut self, client: usize, device: u16, level: Level) {
        let opening = self.try_open(client, device, level);
        assert_eq!(opening, Opening::Open(level));
        // What a nexus is told at first.
        let token = self.submit(client, vec![0; 6], 0, Vec::new());
        let (status, _) = self.answer(client, token);
        assert_eq!(status, Outcome::Status(2), "it begins");
    }

    #[track_caller]
    pub(super) fn try_open(&mut self, client: usize, device: u16, level: Level) -> Opening {
        let now = self.now;
        self.in_session(client).open(now, device, level);
        self.settle();
        let events = &mut self.clients[client].events;
        let is_it = |event: &ClientEvent| matches!(event, ClientEvent::Opening { device: of, .. } if *of == device);
        let at = events.iter().position(is_it).expect("an answer");
        match events.remove(at) {
            Some(ClientEvent::Opening { opening, .. }) => opening,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn in_session(&mut self, client: usize) -> &mut ClientSession<Vec<u8>> {
        self.clients[client].session.as_mut().expect("a session")
    }

    fn token(&mut self, client: usize) -> u64 {
        let next = &mut self.clients[client].next_token;
        *next += 1;
        *next - 1
    }

    /// A command of the first device.
    #[track_caller]
    pub(super) fn submit(&mut self, client: usize, cdb: Vec<u8>, room: u32, data: Vec<u8>) -> u64 {
        let (token, now) = (self.token(client), self.now);
        let command = Command {
            attribute: Attribute::Simple,
            cdb,
            data_in_bytes: room,
            data_out_bytes: u32::try_from(data.len()).unwrap(),
        };
        let session = self.in_session(client);
        session.submit(now, token, DEVICE, command, data).unwrap();
        self.settle();
        token
    }

    #[track_caller]
    pub(super) fn manage(&mut self, client: usize, function: Function) -> u64 {
        let (token, now) = (self.token(client), self.now);
        let session = self.in_session(client);
        session.manage(now, token, DEVICE, function).unwrap();
        self.settle();
        token
    }

    pub(super) fn write(&mut self, client: usize, block: u32, data: Vec<u8>) -> u64 {
        self.submit(client, blocks_cdb(0x2a, block, data.len()), 0, data)
    }

    pub(super) fn read(&mut self, client: usize, block: u32, bytes: usize) -> u64 {
        let room = u32::try_from(bytes).unwrap();
        self.submit(client, blocks_cdb(0x28, block, bytes), room, Vec::new())
    }

    /// The answers that have come, each with its outcome, residual and data.
    pub(super) fn answers(&mut self, client: usize) -> Vec<(u64, Outcome, i32, Vec<u8>)> {
        let mut answers = Vec::new();
        self.clients[client].events.retain(|event| {
            let ClientEvent::Answer { token, reply, data } = event else {
                return true;
            };
            let bytes: &[u8] = data;
            answers.push((*token, reply.outcome, reply.residual, bytes.to_vec()));
            false
        });
        answers.sort_unstable_by_key(|(token, ..)| *token);
        answers
    }

    /// The only answer that has come.
    #[track_caller]
    pub(super) fn answer(&mut self, client: usize, token: u64) -> (Outcome, Vec<u8>) {
        let mut answers = self.answers(client);
        assert_eq!(answers.len(), 1, "{answers:?}");
        let (of, outcome, _, data) = answers.remove(0);
        assert_eq!(of, token);
        (outcome, data)
    }

    /// What else has happened to a client.
    pub(super) fn events(&mut self, client: usize) -> Vec<ClientEvent> {
        self.clients[client].events.drain(..).collect()
    }

    // ---- steps -------------------------------------------------------------------------------

    pub(super) fn frame(&mut self, from: Station, number: u8, frame: &[u8]) {
        let key = self.key(number);
        self.hyperscsi
            .handle_frame(&mut self.engine, key, from, frame);
    }

    /// All that can go on at this time goes on.
    pub(super) fn settle(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "there is no end to it");
            let mut is_carried = self.carry_in();
            self.carry_engine();
            is_carried |= self.carry_letter();
            self.engine.handle_memory();
            self.carry_engine();
            while let Some((session, _)) = self.engine.poll_ready() {
                let (mut sessions, engine) = self.sessions();
                sessions.note_ready(engine, session);
            }
            self.hyperscsi.flush(&mut self.engine);
            is_carried |= !self.is_stuck && self.carry_out();
            if !is_carried && !self.engine.has_more() && !self.hyperscsi.has_more() {
                return;
            }
        }
    }

    fn carry_in(&mut self) -> bool {
        let (now, mut room) = (self.now, vec![0; 9000]);
        let mut frames = Vec::new();
        for client in &mut self.clients {
            let at = (client.station, client.place);
            if let Some(login) = &mut client.login {
                frames.extend(login.poll_frame(now).map(|frame| (at, frame)));
            }
            if let Some(session) = &mut client.session {
                while let Some(length) = session.poll_frame(now, &mut room) {
                    frames.push((at, room[..length].to_vec()));
                }
            }
        }
        let is_carried = !frames.is_empty();
        for ((from, number), frame) in frames {
            self.frame(from, number, &frame);
        }
        is_carried
    }

    /// Takes what the engine has, as a core does that has sessions of all transports.
    const fn sessions(&mut self) -> (OtherSessions<'_, Outside>, &mut Engine<Outside>) {
        let sessions = OtherSessions {
            nbd: &mut self.nbd,
            hyperscsi: &mut self.hyperscsi,
        };
        (sessions, &mut self.engine)
    }

    fn carry_engine(&mut self) {
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

    fn carry_letter(&mut self) -> bool {
        match self.engine.carrier.posted.pop_front() {
            Some((_, Mail::Unit(unit, letter))) => self.engine.handle_letter(unit, *letter),
            Some((_, Mail::Hyperscsi(letter))) => {
                let (engine, front) = (&mut self.engine, Some(&mut self.logins));
                let clock = SystemTime::UNIX_EPOCH;
                self.hyperscsi.handle_letter(engine, letter, front, clock);
            }
            Some((_, mail)) => panic!("{mail:?}"),
            None => return false,
        }
        true
    }

    /// The system sends frames, and they arrive.
    pub(super) fn carry_out(&mut self) -> bool {
        let frames = std::mem::take(&mut self.engine.carrier.lines.frames);
        let is_carried = !frames.is_empty();
        for (place, to, frame) in frames {
            self.hyperscsi.handle_sent(place, 1, 0);
            self.arrive(to, &frame);
        }
        is_carried
    }

    fn arrive(&mut self, to: Station, frame: &[u8]) {
        let now = self.now;
        let tag = FragmentHeader::decode(*frame.first_chunk().unwrap()).tag;
        for client in &mut self.clients {
            if client.station != to {
                continue;
            }
            if let Some(login) = client.login.as_mut().filter(|_| tag == 0) {
                match login.handle_frame(now, frame) {
                    LoginProgress::Going => {}
                    LoginProgress::Failed(error) => {
                        client.failed = Some(error);
                        client.login = None;
                    }
                    LoginProgress::Done(session) => {
                        client.session = Some(session);
                        client.login = None;
                    }
                }
            }
            if let Some(session) = &mut client.session {
                match read_unknown_session(frame) {
                    Some(unknown) if tag == 0 => session.handle_unknown(unknown),
                    _ if session.has_tag(tag) => session.handle_frame(now, frame),
                    _ => {}
                }
                client
                    .events
                    .extend(std::iter::from_fn(|| session.poll_event()));
            }
        }
    }

    /// So much time passes, in steps in which clients and target do what is due.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let due = self.hyperscsi.poll_timeout(&self.engine);
            let clients = self.clients.iter().filter_map(|client| {
                let session = client.session.as_ref().and_then(|one| one.deadline());
                let login = client.login.as_ref().map(Login::deadline);
                session.into_iter().chain(login).min()
            });
            let next = clients.chain(due).min().unwrap_or(end);
            self.pass_to(next.clamp(self.now + Duration::from_micros(100), end));
        }
    }

    fn pass_to(&mut self, now: Duration) {
        self.now = now;
        self.engine.begin_turn(now);
        self.engine.handle_timeout(now);
        self.hyperscsi.handle_timeout(&mut self.engine);
        for client in &mut self.clients {
            if let Some(session) = &mut client.session {
                session.handle_deadline(now);
                client
                    .events
                    .extend(std::iter::from_fn(|| session.poll_event()));
            }
            if let Some(login) = &mut client.login
                && let LoginProgress::Failed(error) = login.handle_deadline::<Vec<u8>>(now)
            {
                client.failed = Some(error);
                client.login = None;
            }
        }
        self.settle();
    }

    /// So many commands of a session may be under way from now on.
    pub(super) fn limit(&mut self, queue_depth: u32) {
        self.engine.set_limits(&engine::Limits {
            queue_depth,
            abort_timeout: Duration::from_secs(3),
            fence_timeout: Duration::from_secs(3),
        });
        self.settle();
    }

    pub(super) fn finish_pending(&mut self) {
        self.disk.finish_pending();
        self.engine.handle_store_wake(UNIT);
        self.settle();
    }

    /// Acknowledgements leave.
    pub(super) fn rest(&mut self) {
        self.pass(Duration::from_millis(20));
    }

    /// All sessions end, and nothing is left of them.
    #[track_caller]
    pub(super) fn end_all(mut self) {
        self.hyperscsi.end_all(&mut self.engine, "the test is over");
        self.settle();
        assert_eq!(self.hyperscsi.leftovers(), [""; 0]);
        assert_eq!(self.engine.leftovers(), [""; 0]);
        assert!(self.hyperscsi.is_quiet() && self.logins.is_idle());
        let pool = self.engine.pool();
        assert_eq!(pool.free_bytes(), pool.capacity_bytes());
    }
}

/// READ (10) or WRITE (10).
fn blocks_cdb(opcode: u8, block: u32, bytes: usize) -> Vec<u8> {
    let count = u16::try_from(bytes / 512).unwrap().to_be_bytes();
    let [a, b, c, d] = block.to_be_bytes();
    vec![opcode, 0, a, b, c, d, 0, count[0], count[1], 0]
}

/// Whether somebody still waits.
pub(super) fn is_kept(receipt: &Receipt) -> bool {
    Rc::strong_count(receipt) > 1
}
