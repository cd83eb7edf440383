//! One simulated core: engine and sessions that ship, and its turns.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{Engine, MediumFailure, SessionKey, TaskKey, Version};
use front::Sent;
use front::hyperscsi;
use front::iscsi::{Beyond, LineKey, LoginRandom, Sessions};
use iscsi::pdu::Tsih;
use iscsi::target::Receive;
use memory::{Buffer, Message, Pool};
use scsi::Owner;
use store::Backstore;

use super::carrier::Outside;
use super::line::{Link, Sending};
use crate::hyperscsi::carry::Beside;
use crate::letter::{Letter, Order};
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::{self, Sabotage};
use crate::setup::{self, Settings};

/// One core.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Engine<Outside>,
    pub(crate) sessions: Sessions<Outside>,
    pub(crate) hyperscsi: hyperscsi::Sessions<Outside>,
    /// What is received into.
    pub(crate) chunks: Pool,
    /// Tasks that sessions have left behind, and whose they were.
    pub(crate) left: BTreeSet<(TaskKey, Tsih)>,
    /// What has come of orders of an administrator to move the medium.
    pub(super) moved: Vec<Result<(), MediumFailure>>,
    /// It never has time to lose more than one connection in a turn.
    is_busy: bool,
    prng: Prng,
    _ballast: Vec<Buffer>,
}

impl Core {
    pub(super) fn new(
        index: usize,
        settings: &Settings,
        (owner, saved, store): (Owner, Option<Version>, Box<dyn Backstore>),
        prng: Prng,
    ) -> Self {
        let (pool, _ballast) = settings.pool();
        let outside = Outside::new(index, settings, pool.clone(), &prng);
        let mut engine = Engine::new(settings.of_engine(index), pool, outside);
        engine.add_unit(owner, saved, store);
        let front = (index == 0).then(|| settings.front());
        let chunks = setup::smallest_pool();
        chunks.set_base();
        Self {
            engine,
            sessions: Sessions::new(settings.of_sessions(), Arc::default(), front),
            hyperscsi: settings.hyperscsi(index, &prng),
            chunks,
            left: BTreeSet::new(),
            moved: Vec::new(),
            is_busy: settings.is_busy,
            prng,
            _ballast,
        }
    }

    /// The session of this number, if it lives here.
    pub(crate) fn session_of(&self, tsih: Tsih) -> Option<SessionKey> {
        let mut sessions = self.engine.sessions();
        let found = sessions.find(|(_, entry)| {
            let port = entry.port.iscsi();
            port.is_some_and(|port| port.detail.tsih == tsih)
        });
        found.map(|(key, _)| key)
    }

    // ---- the turn ----------------------------------------------------------------------------

    /// Something happens; then everything that can go on goes on, and what became ready is given to
    /// the links.
    pub(crate) fn turn<T>(&mut self, now: Duration, happen: impl FnOnce(&mut Self) -> T) -> T {
        self.engine.begin_turn(now);
        self.end_unwatched();
        let outcome = happen(self);
        self.settle();
        sabotage::forget_answers(&mut self.engine);
        loop {
            while let Some(letter) = self.engine.carrier.own_letters.pop_front() {
                self.handle_letter(letter);
                self.settle();
            }
            self.sessions.lose_some(&mut self.engine, self.is_busy);
            self.sessions.carry_on_grants(&mut self.engine);
            self.engine.handle_memory();
            self.settle();
            let mut beside = Beside(&mut self.hyperscsi);
            self.sessions.flush(&mut self.engine, &mut beside);
            self.settle();
            self.hyperscsi.flush(&mut self.engine);
            self.settle();
            let has_letters = !self.engine.carrier.own_letters.is_empty();
            let has_lost = self.sessions.has_more() && !self.is_busy;
            let has_more = self.engine.has_more() || self.hyperscsi.has_more();
            if !has_letters && !has_lost && !has_more {
                return outcome;
            }
        }
    }

    /// Carries on what engine and sessions let go on, until there is nothing.
    fn settle(&mut self) {
        loop {
            let mut beside = Beside(&mut self.hyperscsi);
            match self.sessions.settle(&mut self.engine, &mut beside) {
                Some(Beyond::SessionOver { session, left }) => {
                    let left = left.into_iter().map(|task| (task, session.tsih));
                    self.left.extend(left);
                }
                // For those who look on.
                Some(Beyond::StateChanged { .. }) => {}
                Some(Beyond::MediumMoved { unit, outcome }) => {
                    if let Some(lost) = outcome.as_ref().err().and_then(MediumFailure::loss) {
                        self.engine.note_loss_delivered(unit, lost);
                    }
                    self.moved.push(outcome);
                }
                // No target is reset cold here, and nothing stops.
                Some(beyond @ (Beyond::TargetReset(_) | Beyond::Flushed { .. })) => {
                    debug_assert!(false, "{beyond:?}");
                }
                None if self.end_shut() => {}
                None => return,
            }
        }
    }

    pub(super) fn handle_letter(&mut self, letter: Letter) {
        match letter {
            Letter::Unit(unit, letter) => self.engine.handle_letter(unit, *letter),
            Letter::Front(letter) => self.sessions.handle_letter(&mut self.engine, letter),
            Letter::Hyperscsi(letter) => {
                let (clock, front) = (self.clock(), self.sessions.front.as_mut());
                self.hyperscsi
                    .handle_letter(&mut self.engine, letter, front, clock);
            }
            Letter::Order(Order(act)) => act(&mut self.sessions, &mut self.engine),
        }
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Duration> {
        let engine = self.engine.poll_timeout();
        let sessions = self.sessions.poll_timeout(&self.engine);
        let has_more = self.sessions.has_more() || self.engine.has_pieces();
        let more = has_more.then(|| self.engine.now());
        let hyperscsi = self.hyperscsi.poll_timeout(&self.engine);
        let all = [engine, sessions, hyperscsi, more];
        all.into_iter().flatten().min()
    }

    pub(super) fn handle_time(&mut self) {
        self.engine.handle_timeout(self.engine.now());
        self.settle();
        let clock = self.clock();
        self.sessions.handle_timeout(&mut self.engine, || clock);
        self.settle();
        self.hyperscsi.handle_timeout(&mut self.engine);
    }

    fn clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.engine.now()
    }

    // ---- links -------------------------------------------------------------------------------

    pub(super) fn accept(&mut self, link: usize) {
        let mut byte = || self.prng.next_u64().to_be_bytes()[0];
        let random = LoginRandom {
            challenges: std::array::from_fn(|_| byte()),
            tsih: u16::from_be_bytes(std::array::from_fn(|_| byte())),
        };
        if let Some(front) = &mut self.sessions.front {
            front.accept(Link(link), random, self.engine.now());
        }
    }

    pub(super) fn appetite(&self, link: usize) -> usize {
        let links = &self.engine.carrier.links;
        links.get(&link).map_or(0, |it| it.appetite())
    }

    pub(super) fn arrive(&mut self, link: usize, arrival: Arrival) {
        let outside = &mut self.engine.carrier;
        let under_way = outside.links.get_mut(&link);
        let Some((key, how)) = under_way.and_then(|it| it.receiving.take()) else {
            return;
        };
        // Logins are left in peace.
        let hangs_up =
            matches!(key, LineKey::Connection(_)) && outside.saboteur.strikes(Sabotage::HangUp);
        let bytes = match arrival {
            Arrival::Bytes(bytes) if !hangs_up => Some(bytes),
            Arrival::Bytes(_) | Arrival::End | Arrival::Reset => None,
        };
        self.handle_received(key, how, bytes.as_deref());
    }

    /// A receive has ended; `None`: with the end of the connection.
    fn handle_received(&mut self, key: LineKey, how: Receive, bytes: Option<&[u8]>) {
        let clock = self.clock();
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        match (key, how, bytes) {
            (LineKey::Login(key), ..) => sessions.handle_login_received(engine, key, bytes, clock),
            (LineKey::Connection(key), Receive::Exact { mut buffer, range }, _) => {
                let bytes = bytes.unwrap_or_default();
                buffer[range.start..range.start + bytes.len()].copy_from_slice(bytes);
                sessions.handle_received_exact(engine, key, buffer, bytes.len());
            }
            (LineKey::Connection(key), Receive::Chunk { .. }, Some(bytes)) => {
                let chunk = chunk(&self.chunks, bytes);
                let more = self.prng.chance(300);
                sessions.handle_received(engine, key, &chunk, more);
            }
            (LineKey::Connection(key), Receive::Chunk { .. }, None) => {
                sessions.handle_end(engine, key, "the link has ended");
            }
        }
    }

    pub(super) fn take_output(&mut self, link: usize, len: usize) -> Vec<u8> {
        let under_way = self.engine.carrier.links.get_mut(&link);
        let Some(sending) = under_way.map(|under_way| &mut under_way.sending) else {
            return Vec::new();
        };
        let taken = sending.as_mut().map(|sending| sending.take(len));
        if let Some(sending) = sending.take_if(|sending| sending.is_over()) {
            self.handle_sent(sending.key, sending.message, Sent::Now);
        }
        taken.unwrap_or_default()
    }

    /// Bytes that a link holds already; the core does not notice.
    pub(super) fn take_buffered(&mut self, link: usize, len: usize) -> Vec<u8> {
        let under_way = self.engine.carrier.links.get_mut(&link);
        under_way.map_or_else(Vec::new, |way| {
            let len = len.min(way.buffered.len());
            way.buffered.drain(..len).collect()
        })
    }

    /// Sends that nobody waited for have ended.
    fn end_unwatched(&mut self) {
        let links = self.engine.carrier.links.values_mut();
        let over: Vec<_> = links.filter_map(|way| way.unwatched.take()).collect();
        for (key, message) in over {
            self.handle_sent(key, message, Sent::AtOnce);
        }
    }

    fn handle_sent(&mut self, key: LineKey, message: Message, sent: Sent) {
        let clock = self.clock();
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        match key {
            LineKey::Login(key) => {
                sessions.handle_login_sent(engine, key, sent != Sent::Not, clock);
            }
            LineKey::Connection(key) => sessions.handle_sent(engine, key, message, sent),
        }
    }

    /// What was under way on a link that was shut ends. False when there is none.
    fn end_shut(&mut self) -> bool {
        let links = &mut self.engine.carrier.links;
        let shut = links.iter().find(|(_, under_way)| under_way.is_shut);
        let Some(link) = shut.map(|(link, _)| *link) else {
            return false;
        };
        let under_way = links.remove(&link).unwrap_or_default();
        if let Some((key, how)) = under_way.receiving {
            self.handle_received(key, how, None);
        }
        if let Some(Sending { key, message, .. }) = under_way.sending {
            self.handle_sent(key, message, Sent::Not);
        }
        if let Some((key, message)) = under_way.unwatched {
            self.handle_sent(key, message, Sent::AtOnce);
        }
        true
    }
}

/// A chunk that was received.
fn chunk(chunks: &Pool, bytes: &[u8]) -> Rc<Buffer> {
    #[expect(
        clippy::expect_used,
        reason = "the world receives no more than it has room for"
    )]
    let mut buffer = chunks.allocate(bytes.len()).expect("room for a chunk");
    buffer.copy_from_slice(bytes);
    Rc::new(buffer)
}
