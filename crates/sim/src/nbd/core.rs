//! One simulated core with the sessions of NBD that ship, and what leaves it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::iscsi::framing::Pdu;
use ::iscsi::names::IscsiName;
use ::iscsi::negotiate::ConnectionParameters;
use ::iscsi::pdu::LoginStatus;
use ::iscsi::target::Budget;
use engine::{
    Carrier, Ending, Engine, Life, News, PartKey, Report, Save, StoreWork, UnitIndex, VisibleLun,
};
use front::iscsi::{self, FrontSettings as LoginSettings, Holding};
use front::nbd::{
    Front, FrontSettings, Letter, Line, LineKey, Notice, Receive, SessionSettings, Sessions, Wire,
};
use front::{
    Asker, Authorization, Command, CommandId, ExportAsker, Others as _, Policy, Port, SendEnd,
    VisibleExport, VisibleTarget,
};
use memory::{Buffer, Message, Pool};
use scsi::{Owner, Status};
use store::{Backstore, Descriptor, SocketTag, Waker};

use crate::setup::{self, LUN, UNIT};

/// The name of the only export.
pub(super) const EXPORT: &str = "disk";
/// More than any world has.
const MANY: usize = 10_000;
/// No handshake takes so long.
const HANDSHAKE_MAX: Duration = Duration::from_secs(100_000);
const ABORT_MAX: Duration = Duration::from_secs(3);

/// A connection, by its number.
#[derive(Debug)]
pub(super) struct Link(pub(super) usize);

/// Where the client of a connection comes from.
pub(super) fn peer(link: usize) -> SocketAddr {
    let port = u16::try_from(link % 60_000).unwrap_or_default();
    SocketAddr::from(([10, 0, 1, 1], port + 1))
}

impl Line for Link {
    fn peer(&self) -> SocketAddr {
        peer(self.0)
    }

    fn portal(&self) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], 10_809))
    }

    fn has_had_all(&self) -> bool {
        false
    }
}

/// No initiator comes by a socket.
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

/// Mail from one core to another, or to itself.
#[derive(Debug)]
pub(super) enum Mail {
    Unit(Box<engine::Letter>),
    Front(Letter<Link>),
}

/// What a core asks for on a connection.
#[derive(Debug)]
pub(super) enum OnLink {
    Receive(LineKey, Receive),
    Send(LineKey, Message, SendEnd),
    Shut,
}

/// What one core has put down for the world.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) posted: Vec<(usize, Mail)>,
    pub(super) on_links: Vec<(usize, OnLink)>,
    pub(super) broken: Option<&'static str>,
}

impl Carrier for Outside {
    type Port = Port;
    type Operation = Infallible;
    type Receipt = Rc<()>;
    type Account = ();

    fn post(&mut self, core: usize, _: UnitIndex, letter: engine::Letter) {
        self.posted.push((core, Mail::Unit(Box::new(letter))));
    }

    fn begin(&mut self, part: PartKey, work: StoreWork) -> Infallible {
        unreachable!("{part:?} asks for {work:?}")
    }

    /// The world wakes cores by itself.
    fn waker(&self, _: UnitIndex) -> Waker {
        Waker::new(|| {})
    }

    fn open_socket(&mut self, _: UnitIndex, socket: SocketTag, _: Descriptor) -> bool {
        unreachable!("the disk opens {socket:?}")
    }

    fn close_socket(&mut self, _: UnitIndex, socket: SocketTag) {
        unreachable!("the disk closes {socket:?}")
    }

    fn cancel(&mut self, operation: Infallible) {
        match operation {}
    }

    fn save(&mut self, _: UnitIndex, _: Save) {
        self.broken
            .get_or_insert("nothing here has to survive a restart");
    }

    fn lend_chunk(&mut self, _: &Rc<Buffer>) -> bool {
        true
    }

    fn notify(&mut self, news: News) {
        if let News::Broken(what) = news {
            self.broken.get_or_insert(what);
        }
    }

    fn series(&mut self, _: UnitIndex, _: &Port) -> u32 {
        0
    }

    fn account(_: u32, _: &Port, _: CommandId, _: &Command) {}
    fn note_answer(&mut self, (): (), _: Status) {}
    fn note_wait(&mut self, (): ()) {}
    fn note_end(&mut self, (): (), _: Ending, _: Life) {}
    fn note_starved(&mut self) {}
}

impl Wire for Outside {
    type NbdLine = Link;

    fn receive(&mut self, line: &Link, key: LineKey, how: Receive) {
        self.on_links.push((line.0, OnLink::Receive(key, how)));
    }

    fn send(&mut self, line: &Link, key: LineKey, message: Message, end: SendEnd) {
        self.on_links
            .push((line.0, OnLink::Send(key, message, end)));
    }

    fn shut(&mut self, line: &Link) {
        self.on_links.push((line.0, OnLink::Shut));
    }

    fn post_letter(&mut self, core: usize, letter: Letter<Link>) {
        self.posted.push((core, Mail::Front(letter)));
    }

    fn report(&mut self, _: Notice<'_>) {}
}

/// Everybody may have the export.
#[derive(Debug)]
struct Everybody;

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
        let name = EXPORT.to_owned();
        vec![VisibleExport { name, lun: LUN }]
    }
}

/// How much memory a core has, and how many requests a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) cores: usize,
    pub(super) queue_depth: u32,
}

/// One core.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) engine: Engine<Outside>,
    pub(super) nbd: Sessions<Outside>,
    /// The places of all sessions; of core 0.
    logins: Option<iscsi::Front<NoLine>>,
    chunks: Pool,
    /// Where the clients of sessions came from that are over.
    pub(super) over: Vec<SocketAddr>,
}

impl Core {
    pub(super) fn new(index: usize, sizes: Sizes, owner: Owner, store: Box<dyn Backstore>) -> Self {
        let settings = engine::Settings {
            core: index,
            cores: sizes.cores,
            queue_depth: sizes.queue_depth,
            abort_timeout: ABORT_MAX,
            fence_timeout: ABORT_MAX,
            turn_bytes: 1 << 20,
        };
        let mut engine = Engine::new(settings, setup::smallest_pool(), Outside::default());
        engine.add_unit(owner, None, store);
        let holding = Holding {
            logins: Arc::new(Budget::new(usize::MAX)),
            unproved: Arc::new(Budget::new(usize::MAX)),
            proved: Arc::new(Budget::new(usize::MAX)),
            unproved_luns: Arc::new(Budget::new(usize::MAX)),
            proved_luns: Arc::new(Budget::new(usize::MAX)),
        };
        let settings = FrontSettings {
            handshakes_max: MANY,
            per_address_max: MANY,
            timeout: HANDSHAKE_MAX,
            memory: Arc::clone(&holding.logins),
        };
        let logins = LoginSettings {
            cores: sizes.cores,
            sessions_max: MANY,
            logins_max: MANY,
            discovery_max: MANY,
            unproved_per_address_max: MANY,
            connections_max: MANY,
            holding,
            login_timeout: HANDSHAKE_MAX,
        };
        let policy: Arc<dyn Policy> = Arc::new(Everybody);
        let is_first = index == 0;
        let front = is_first.then(|| Front::new(&settings, Arc::clone(&policy)));
        let queue_depth = sizes.queue_depth;
        let chunks = setup::smallest_pool();
        chunks.set_base();
        engine.pool().set_base();
        Self {
            engine,
            nbd: Sessions::new(SessionSettings { queue_depth }, front),
            logins: is_first.then(|| iscsi::Front::new(&logins, policy, Arc::default())),
            chunks,
            over: Vec::new(),
        }
    }

    /// Something happens; then all goes on that can.
    pub(super) fn turn(&mut self, now: Duration, happen: impl FnOnce(&mut Self)) {
        self.engine.begin_turn(now);
        happen(self);
        loop {
            self.carry_engine();
            self.engine.handle_memory();
            let mut is_carried = self.carry_engine();
            while let Some((session, _)) = self.engine.poll_ready() {
                self.nbd.note_ready(&self.engine, session);
                is_carried = true;
            }
            self.nbd.flush(&mut self.engine);
            is_carried |= self.carry_engine();
            if !is_carried && !self.engine.has_more() && !self.nbd.has_more() {
                return;
            }
        }
    }

    fn carry_engine(&mut self) -> bool {
        let mut is_carried = false;
        loop {
            self.engine.start_waiting();
            if let Some(report) = self.engine.poll_report() {
                match report {
                    Report::SessionOver { session, .. } => {
                        let over = session.port.nbd().map(|port| port.detail.peer);
                        self.over.extend(over);
                        self.nbd.handle_over(&mut self.engine, session.port);
                    }
                    // A RESERVE, which nobody shows here.
                    Report::StateChanged { .. } => {}
                    report @ (Report::Farewell { .. }
                    | Report::TargetReset(_)
                    | Report::MediumMoved { .. }
                    | Report::Flushed { .. }) => debug_assert!(false, "{report:?}"),
                }
            } else if let Some(session) = self.engine.poll_eventful() {
                self.nbd.handle_events(&mut self.engine, session);
            } else {
                return is_carried;
            }
            is_carried = true;
        }
    }

    pub(super) fn accept(&mut self, link: usize) {
        if let Some(front) = &mut self.nbd.front {
            front.accept(&mut self.engine, Link(link), "nbd".into());
        }
    }

    pub(super) fn handle_mail(&mut self, mail: Mail) {
        match mail {
            Mail::Unit(letter) => self.engine.handle_letter(UNIT, *letter),
            Mail::Front(letter) => {
                let logins = self.logins.as_mut();
                self.nbd.handle_letter(&mut self.engine, letter, logins);
            }
        }
    }

    /// A receive has ended; without bytes: with the end of the connection.
    pub(super) fn handle_received(&mut self, key: LineKey, how: Receive, bytes: &[u8]) {
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        match (key, how) {
            (LineKey::Handshake(key), _) => {
                let bytes = (!bytes.is_empty()).then_some(bytes);
                nbd.handle_handshake_received(engine, key, bytes);
            }
            (LineKey::Connection(key), Receive::Exact { mut buffer, range }) => {
                let len = bytes.len();
                buffer[range.start..range.start + len].copy_from_slice(bytes);
                nbd.handle_received_exact(engine, key, buffer, len);
            }
            (LineKey::Connection(key), Receive::Chunk { .. }) if bytes.is_empty() => {
                nbd.handle_end(engine, key, "the link has ended");
            }
            (LineKey::Connection(key), Receive::Chunk { .. }) => {
                #[expect(clippy::expect_used, reason = "no piece is larger than the pool")]
                let mut chunk = self.chunks.allocate(bytes.len()).expect("room for a chunk");
                chunk.copy_from_slice(bytes);
                nbd.handle_received(engine, key, &Rc::new(chunk));
            }
        }
    }

    pub(super) fn handle_sent(&mut self, key: LineKey, message: Message, is_sent: bool) {
        let (nbd, engine) = (&mut self.nbd, &mut self.engine);
        match key {
            LineKey::Handshake(key) => {
                let means = (self.logins.as_mut(), SystemTime::UNIX_EPOCH);
                nbd.handle_handshake_sent(engine, key, is_sent, means);
            }
            LineKey::Connection(key) => nbd.handle_sent(engine, key, message, is_sent),
        }
    }

    pub(super) fn handle_time(&mut self) {
        let now = self.engine.now();
        self.engine.handle_timeout(now);
        self.nbd.handle_timeout(&mut self.engine);
        self.nbd.look(&mut self.engine);
    }

    pub(super) fn end_all(&mut self) {
        self.nbd.end_all(&mut self.engine, "the life is over");
        if let Some(front) = &mut self.nbd.front {
            front.close_all(&mut self.engine);
        }
    }

    /// What is there and should not be.
    pub(super) fn leftovers(&self) -> Vec<String> {
        let mut left = self.nbd.leftovers();
        left.extend(
            self.engine
                .leftovers()
                .into_iter()
                .map(|one| format!("{one:?}")),
        );
        for (pool, name) in [(self.engine.pool(), "data"), (&self.chunks, "chunks")] {
            if pool.free_bytes() != pool.capacity_bytes() {
                left.push(format!("memory for {name}"));
            }
        }
        left
    }
}
