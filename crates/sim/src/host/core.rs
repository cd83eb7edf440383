//! One simulated core: engine and sessions that ship, and the end of its turn.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use engine::{Engine, SessionKey, TaskKey, UnitIndex};
use front::CommandId;
use front::iscsi::{Beyond, Coalescing, Holding, LineKey, LoginRandom, SessionSettings, Sessions};
use iscsi::pdu::Tsih;
use iscsi::target::{Budget, Receive};
use memory::{Buffer, Pool};
use scsi::Owner;
use store::Backstore;

use super::carrier::Outside;
use super::line::{Link, Sending};
use super::{LeftBehind, Letter, Settings, login};
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// What a session may hold of requests before their turn, in bytes: so little that it is often
/// reached.
const HELD_MAX_BYTES: usize = 8 * 1024;

/// The one unit.
pub(super) const UNIT: UnitIndex = UnitIndex(0);

/// One core.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) now: Duration,
    pub(super) engine: Engine<Outside>,
    /// Takes the room that the settings do not give.
    ballast: Vec<Buffer>,
    pub(super) chunks: Pool,
    pub(super) sessions: Sessions<Outside>,
    /// Tasks that sessions have left behind, and whose they were.
    left: BTreeSet<(TaskKey, Tsih)>,
    pub(super) kept: Option<Vec<u8>>,
    /// What was last kept is of a change that did not happen, and could not be replaced.
    pub(super) is_kept_state_old: bool,
    prng: Prng,
}

impl Core {
    pub(super) fn new(
        index: usize,
        settings: &Settings,
        owner: Owner,
        store: Box<dyn Backstore>,
        prng: Prng,
    ) -> Self {
        let pool = new_pool();
        let ballast = fill(&pool, settings.pool_bytes);
        let outside = Outside::new(index, settings.sabotage, pool.clone(), prng.clone());
        let own = engine::Settings {
            core: index,
            cores: settings.cores,
            queue_depth: settings.queue_depth,
            abort_timeout: settings.abort_timeout,
            fence_timeout: settings.fence_timeout,
        };
        let mut engine = Engine::new(own, pool, outside);
        engine.add_unit(owner, store);
        let front = (index == 0).then(|| login::front(settings));
        let sessions = Sessions::new(session_settings(settings), Arc::default(), front);
        Self {
            settings: settings.clone(),
            now: Duration::ZERO,
            engine,
            ballast,
            chunks: new_pool(),
            sessions,
            left: BTreeSet::new(),
            kept: None,
            is_kept_state_old: false,
            prng,
        }
    }

    pub(super) const fn index(&self) -> usize {
        self.engine.core()
    }

    pub(super) const fn begin(&mut self, now: Duration) {
        self.now = now;
        self.engine.begin_turn(now);
    }

    // ---- letters -----------------------------------------------------------------------------

    pub(super) fn receive_letter(&mut self, letter: Letter, now: Duration) {
        self.begin(now);
        match letter {
            Letter::Unit(unit, letter) => self.engine.handle_letter(unit, *letter),
            Letter::Front(letter) => self.sessions.handle_letter(&mut self.engine, letter),
        }
        self.settle();
    }

    /// Carries on what engine and sessions let go on, until there is nothing.
    fn settle(&mut self) {
        loop {
            if let Some(beyond) = self.sessions.settle(&mut self.engine) {
                match beyond {
                    Beyond::SessionOver { session, left } => {
                        let left = left.into_iter().map(|task| (task, session.tsih));
                        self.left.extend(left);
                    }
                    // For those who look on.
                    Beyond::MediumChanged { .. } => {}
                    // No target is reset cold here, no administrator moves a medium, nothing stops.
                    Beyond::TargetReset(_)
                    | Beyond::Flushed { .. }
                    | Beyond::MediumMoved { .. } => {
                        debug_assert!(false, "{beyond:?}");
                    }
                }
            } else if !self.end_shut() {
                break;
            }
        }
    }

    // ---- links -------------------------------------------------------------------------------

    pub(super) fn accept(&mut self, link: usize, now: Duration) {
        self.begin(now);
        let random = LoginRandom {
            challenges: std::array::from_fn(|_| self.prng.next_u64().to_be_bytes()[0]),
            tsih: u16::from_be_bytes(std::array::from_fn(|_| {
                self.prng.next_u64().to_be_bytes()[0]
            })),
        };
        if let Some(front) = &mut self.sessions.front {
            front.accept(Link(link), random, now);
        }
        self.settle();
    }

    pub(super) fn appetite(&self, link: usize) -> usize {
        let links = &self.engine.carrier.links;
        links.get(&link).map_or(0, |it| it.appetite())
    }

    pub(super) fn arrive(&mut self, link: usize, arrival: Arrival, now: Duration) {
        self.begin(now);
        let under_way = self.engine.carrier.links.get_mut(&link);
        let Some((key, how)) = under_way.and_then(|it| it.receiving.take()) else {
            return;
        };
        let bytes = match arrival {
            Arrival::Bytes(bytes) if !self.is_time_for(Sabotage::HangUp, key) => Some(bytes),
            Arrival::Bytes(_) | Arrival::End | Arrival::Reset => None,
        };
        self.handle_received(key, how, bytes.as_deref());
        self.settle();
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

    pub(super) fn take_output(&mut self, link: usize, len: usize, now: Duration) -> Vec<u8> {
        self.begin(now);
        let under_way = self.engine.carrier.links.get_mut(&link);
        let Some(under_way) = under_way else {
            return Vec::new();
        };
        let Some(sending) = &mut under_way.sending else {
            return Vec::new();
        };
        let taken = sending.take(len);
        if let Some(sending) = under_way.sending.take_if(|sending| sending.is_over()) {
            self.handle_sent(sending, true);
            self.settle();
        }
        taken
    }

    fn handle_sent(&mut self, sending: Sending, is_sent: bool) {
        let clock = self.clock();
        let (sessions, engine) = (&mut self.sessions, &mut self.engine);
        let Sending { key, message, .. } = sending;
        match key {
            LineKey::Login(key) => sessions.handle_login_sent(engine, key, is_sent, clock),
            LineKey::Connection(key) => sessions.handle_sent(engine, key, message, is_sent),
        }
    }

    pub(super) fn links_with_output(&self) -> impl Iterator<Item = usize> + '_ {
        let links = self.engine.carrier.links.iter();
        links.filter_map(|(link, under_way)| under_way.sending.as_ref().map(|_| *link))
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
        if let Some(sending) = under_way.sending {
            self.handle_sent(sending, false);
        }
        true
    }

    fn clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now
    }

    // ---- sabotage ----------------------------------------------------------------------------

    /// Whether to do something wrong now. Logins are left in peace.
    fn is_time_for(&mut self, sabotage: Sabotage, key: LineKey) -> bool {
        matches!(key, LineKey::Connection(_))
            && self.settings.sabotage == Some(sabotage)
            && self.prng.chance(30)
    }

    /// Forgets a command that waits, if that is what is to go wrong.
    fn forget_now_and_then(&mut self) {
        if self.settings.sabotage != Some(Sabotage::ForgetAnswers) || !self.prng.chance(30) {
            return;
        }
        let sessions = self.engine.sessions();
        let waiting = sessions.map(|(key, entry)| (key, entry.port.iscsi().session.tasks()));
        let waiting: Vec<_> = waiting.filter(|(_, tasks)| !tasks.is_empty()).collect();
        for (session, tasks) in waiting {
            let commands = tasks.into_iter().map(CommandId::from).collect();
            self.engine.abort_commands(session, commands);
        }
    }

    // ---- the turn ----------------------------------------------------------------------------

    /// The store has answers.
    pub(super) fn wake_for_store(&mut self, now: Duration) {
        self.begin(now);
        self.engine.handle_store_wake(UNIT);
        self.settle();
    }

    /// A state of the unit is safe, or could not be made so.
    pub(super) fn handle_kept(&mut self, state: Vec<u8>, is_safe: bool, now: Duration) {
        self.begin(now);
        let in_force = self.engine.owner(UNIT).map(|owner| owner.kept_state());
        let was_in_force = Some(&state) == in_force.as_ref();
        self.is_kept_state_old = !is_safe && (was_in_force || self.is_kept_state_old);
        if is_safe {
            self.kept = Some(state);
        }
        self.engine.handle_kept(UNIT, is_safe);
        self.settle();
    }

    /// Everything that can go on goes on, and what became ready is given to the links.
    pub(super) fn end_turn(&mut self, now: Duration) {
        self.begin(now);
        self.forget_now_and_then();
        loop {
            while let Some(letter) = self.engine.carrier.own_letters.pop_front() {
                self.receive_letter(letter, now);
            }
            self.sessions.lose_some(&mut self.engine, false);
            self.engine.handle_memory();
            self.settle();
            self.sessions.flush(&mut self.engine);
            self.settle();
            let has_letters = !self.engine.carrier.own_letters.is_empty();
            if !has_letters && !self.sessions.has_more() && !self.engine.has_more() {
                break;
            }
        }
    }

    // ---- time --------------------------------------------------------------------------------

    pub(super) fn poll_timeout(&mut self) -> Option<Duration> {
        let engine = self.engine.poll_timeout();
        let sessions = self.sessions.poll_timeout(&self.engine);
        engine.into_iter().chain(sessions).min()
    }

    pub(super) fn handle_time(&mut self, now: Duration) {
        self.begin(now);
        self.engine.handle_timeout(now);
        self.settle();
        let clock = self.clock();
        self.sessions.handle_timeout(&mut self.engine, || clock);
        self.settle();
    }

    // ---- for the checkers --------------------------------------------------------------------

    pub(super) fn has_tasks_of(&self, tsih: Tsih) -> bool {
        let mut left = self.left.iter().filter(|(_, whose)| *whose == tsih);
        self.session_of(tsih).is_some() || left.any(|(task, _)| self.engine.has_task(*task))
    }

    /// The session of this number, if it lives here.
    pub(super) fn session_of(&self, tsih: Tsih) -> Option<SessionKey> {
        let mut sessions = self.engine.sessions();
        let found = sessions.find(|(_, entry)| entry.port.iscsi().detail.tsih == tsih);
        found.map(|(key, _)| key)
    }

    /// Requests of tasks that nobody waits for, and that the store works for; and whose they are.
    pub(super) fn left_behind(&self) -> impl Iterator<Item = (u64, LeftBehind)> {
        self.engine.orphans().map(|orphan| {
            let session = orphan
                .session
                .and_then(|session| self.engine.session(session));
            let of_session = session.map(|session| session.port.iscsi().detail.tsih);
            let left = || self.left.iter().find(|(task, _)| *task == orphan.task);
            let whose = of_session.or_else(|| left().map(|(_, tsih)| *tsih));
            (orphan.request.0, whose)
        })
    }

    /// What should not be there when all sessions are over.
    pub(super) fn leftovers(&self) -> Option<String> {
        let pool = self.engine.pool();
        let ballast: usize = self.ballast.iter().map(Buffer::capacity).sum();
        let lent = pool.capacity_bytes() - pool.free_bytes() - ballast;
        let chunks = self.chunks.capacity_bytes() - self.chunks.free_bytes();
        let counts = [
            ("links", self.engine.carrier.links.len()),
            ("bytes of the pool", lent),
            ("bytes of chunks", chunks),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let mut left: Vec<String> = left
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        left.extend(self.engine.leftovers());
        left.extend(self.sessions.leftovers());
        let index = self.index();
        (!left.is_empty()).then(|| format!("core {index}: {}", left.join(", ")))
    }
}

fn session_settings(settings: &Settings) -> SessionSettings {
    let budget = || Arc::new(Budget::new(HELD_MAX_BYTES));
    SessionSettings {
        queue_depth: settings.queue_depth,
        nop_interval: Some(settings.nop_interval),
        nop_timeout: settings.nop_timeout,
        discovery_lifetime: Duration::MAX,
        holding: Holding {
            proved: budget(),
            unproved: budget(),
            gap_timeout: settings.login_timeout,
        },
        coalescing: Coalescing::Adaptive,
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

/// Takes all room of a pool but so much, beside what sessions never give to Data-Out.
fn fill(pool: &Pool, bytes: usize) -> Vec<Buffer> {
    let mut ballast = Vec::new();
    let mut piece = memory::BUFFER_BYTES_MAX / 2;
    let left = bytes + pool.capacity_bytes() / 8;
    while pool.free_bytes() > left && piece >= memory::PIECE_BYTES {
        if pool.free_bytes() - piece >= left
            && let Ok(buffer) = pool.allocate(piece)
        {
            ballast.push(buffer);
        } else {
            piece /= 2;
        }
    }
    pool.set_base();
    ballast
}

/// The smallest pool there is.
fn new_pool() -> Pool {
    #[expect(
        clippy::expect_used,
        reason = "a simulation without memory has nothing to tell"
    )]
    Pool::new(0).expect("address space for a pool")
}
