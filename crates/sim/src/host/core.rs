//! One simulated core: the engine that ships, its letters, its links, its end of a turn.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use engine::{Engine, SessionKey, TaskKey, UnitIndex};
use front::iscsi::{Front, LoginKey};
use iscsi::pdu::Tsih;
use memory::{Buffer, Message, Pool};
use scsi::Owner;
use store::{Backstore, IoResult, IoTag};

use super::carrier::Outside;
use super::login::LoginLine;
use super::session::Connection;
use super::{Letter, Outgoing, Settings, login};
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// How much of a login is received at a time, in bytes.
const LOGIN_RECEIVE_BYTES: usize = 4096;

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
    pub(super) by_tsih: BTreeMap<u16, SessionKey>,
    /// Tasks that sessions have left behind, and whose they were.
    left: BTreeSet<(TaskKey, Tsih)>,
    pub(super) connections: BTreeMap<usize, Connection>,
    pub(super) outgoing: BTreeMap<usize, Outgoing>,
    /// On core 0.
    pub(super) desk: Option<Front<LoginLine>>,
    /// Links that the front has, and whether it wants to receive on them.
    pub(super) logins: BTreeMap<usize, (LoginKey, bool)>,
    pub(super) kept: Option<Vec<u8>>,
    /// What was last kept is of a change that did not happen, and could not be replaced.
    pub(super) is_kept_state_old: bool,
    own_letters: VecDeque<Letter>,
    pub(super) posted: Vec<(usize, Letter)>,
    pub(super) closed: Vec<usize>,
    pub(super) prng: Prng,
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
        Self {
            settings: settings.clone(),
            now: Duration::ZERO,
            engine,
            ballast,
            chunks: new_pool(),
            by_tsih: BTreeMap::new(),
            left: BTreeSet::new(),
            connections: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            desk: None,
            logins: BTreeMap::new(),
            kept: None,
            is_kept_state_old: false,
            own_letters: VecDeque::new(),
            posted: Vec::new(),
            closed: Vec::new(),
            prng,
        }
    }

    /// This core has the front. What it keeps of the unit, which it owns, is this.
    pub(super) fn lead(&mut self, kept: Option<Vec<u8>>) {
        self.desk = Some(login::desk(&self.settings));
        self.kept = kept;
    }

    pub(super) const fn index(&self) -> usize {
        self.engine.core()
    }

    /// Whether to do something wrong now.
    pub(super) fn is_time_for(&mut self, sabotage: Sabotage) -> bool {
        self.settings.sabotage == Some(sabotage) && self.prng.chance(30)
    }

    pub(super) const fn begin(&mut self, now: Duration) {
        self.now = now;
        self.engine.begin_turn(now);
    }

    // ---- letters -----------------------------------------------------------------------------

    pub(super) fn post(&mut self, core: usize, letter: Letter) {
        if core == self.index() {
            self.own_letters.push_back(letter);
        } else {
            self.posted.push((core, letter));
        }
    }

    pub(super) fn receive_letter(&mut self, letter: Letter, now: Duration) {
        self.begin(now);
        match letter {
            Letter::Unit(unit, letter) => self.engine.handle_letter(unit, *letter),
            Letter::Adopt(adoption) => self.adopt(*adoption),
            Letter::EndSession(tsih) => self.end_session_or_say_so(tsih),
            Letter::SessionEnded(tsih) => {
                if let Some(desk) = &mut self.desk {
                    desk.handle_session_ended(tsih);
                }
            }
        }
        self.settle();
    }

    /// Takes what the engine has put down: letters, and what has come to an end.
    pub(super) fn settle(&mut self) {
        loop {
            self.engine.start_waiting();
            for (core, unit, letter) in self.engine.carrier.take_letters() {
                self.post(core, Letter::Unit(unit, Box::new(letter)));
            }
            if let Some(report) = self.engine.poll_report() {
                self.handle_report(report);
            } else if let Some(session) = self.engine.poll_eventful() {
                self.handle_session_events(session);
            } else if !self.carry_front() {
                break;
            }
        }
    }

    // ---- links -------------------------------------------------------------------------------

    pub(super) fn appetite(&mut self, link: usize) -> usize {
        match self.logins.get(&link) {
            Some((_, true)) => LOGIN_RECEIVE_BYTES,
            Some((_, false)) => 0,
            None => self.session_appetite(link),
        }
    }

    pub(super) fn arrive(&mut self, link: usize, arrival: Arrival, now: Duration) {
        self.begin(now);
        match self.logins.get(&link) {
            Some(&(key, _)) => self.arrive_at_front(link, key, arrival),
            None => self.arrive_at_session(link, arrival),
        }
        self.settle();
    }

    pub(super) fn take_output(&mut self, link: usize, len: usize) -> Vec<u8> {
        let Some(outgoing) = self.outgoing.get_mut(&link) else {
            return Vec::new();
        };
        let taken = outgoing.take(len);
        if let Some(connection) = self.connections.get(&link)
            && let Some(session) = self.engine.session_mut(connection.session)
        {
            let sending = &mut session.port.sending_bytes;
            *sending = sending.saturating_sub(taken.len());
        }
        let is_sent = !taken.is_empty() && outgoing.is_empty();
        if let Some(&(key, _)) = self.logins.get(&link).filter(|_| is_sent) {
            self.note_login_sent(key);
            self.settle();
        }
        taken
    }

    pub(super) fn links_with_output(&self) -> impl Iterator<Item = usize> + '_ {
        let full = |(link, outgoing): (&usize, &Outgoing)| (!outgoing.is_empty()).then_some(*link);
        self.outgoing.iter().filter_map(full)
    }

    /// The link is closed for good.
    pub(super) fn close_link(&mut self, link: usize) {
        self.outgoing.remove(&link);
        self.closed.push(link);
    }

    /// A received chunk of memory.
    pub(super) fn chunk(&self, bytes: &[u8]) -> Option<Rc<Buffer>> {
        let mut buffer = self.chunks.allocate(bytes.len()).ok()?;
        buffer.copy_from_slice(bytes);
        Some(Rc::new(buffer))
    }

    // ---- the turn ----------------------------------------------------------------------------

    /// The store has finished a request.
    pub(super) fn complete(&mut self, tag: IoTag, result: IoResult, now: Duration) {
        self.begin(now);
        let task = engine::Purpose::Task(TaskKey::from_bits(tag.0));
        self.engine.handle_store_result(task, result);
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
        loop {
            while let Some(letter) = self.own_letters.pop_front() {
                self.receive_letter(letter, now);
            }
            self.engine.handle_memory();
            self.settle();
            self.collect_output();
            if self.own_letters.is_empty() {
                break;
            }
        }
    }

    fn collect_output(&mut self) {
        while self.engine.poll_ready().is_some() {}
        let mut finished = Vec::new();
        for (&link, connection) in &self.connections {
            let Some(session) = self.engine.session_mut(connection.session) else {
                continue;
            };
            let port = &mut session.port;
            if port.session.has_output(connection.index) {
                let empty = Message::default();
                let message = port.session.take_message(connection.index, empty);
                port.sending_bytes += message.len();
                self.outgoing.entry(link).or_default().push(message);
            }
            let is_sent = self.outgoing.get(&link).is_none_or(Outgoing::is_empty);
            if connection.close_when_sent && is_sent {
                finished.push(link);
            }
        }
        for link in finished {
            self.close_connection(link);
        }
        self.settle();
    }

    // ---- time --------------------------------------------------------------------------------

    pub(super) fn poll_timeout(&mut self) -> Option<Duration> {
        let engine = self.engine.poll_timeout();
        let sessions = self.engine.sessions();
        let sessions = sessions.filter_map(|(_, session)| session.port.session.poll_timeout());
        let logins = self.desk.as_mut().and_then(Front::poll_timeout);
        sessions.chain(engine).chain(logins).min()
    }

    pub(super) fn handle_time(&mut self, now: Duration) {
        self.begin(now);
        self.engine.handle_timeout(now);
        self.settle();
        let times = self.times();
        if let Some(desk) = &mut self.desk {
            desk.handle_timeout(times);
        }
        self.settle();
        let sessions: Vec<SessionKey> = self.engine.sessions().map(|(key, _)| key).collect();
        for key in sessions {
            if let Some(session) = self.engine.session_mut(key)
                && session
                    .port
                    .session
                    .poll_timeout()
                    .is_some_and(|due| due <= now)
            {
                session.port.session.handle_timeout(now);
                self.handle_session_events(key);
            }
        }
        self.settle();
    }

    // ---- for the checkers --------------------------------------------------------------------

    /// A session has left these behind.
    pub(super) fn note_left(&mut self, tsih: Tsih, tasks: Vec<TaskKey>) {
        let tasks = tasks.into_iter().map(|task| (task, tsih));
        self.left.extend(tasks);
    }

    pub(super) fn has_tasks_of(&self, tsih: Tsih) -> bool {
        let mut left = self.left.iter().filter(|(_, whose)| *whose == tsih);
        self.by_tsih.contains_key(&tsih.0) || left.any(|(task, _)| self.engine.has_task(*task))
    }

    /// Tasks that nobody waits for, and that the store works for.
    pub(super) fn left_behind(&self) -> impl Iterator<Item = u64> {
        self.engine.orphans().map(TaskKey::to_bits)
    }

    /// What should not be there when all sessions are over.
    pub(super) fn leftovers(&self) -> Option<String> {
        let pool = self.engine.pool();
        let ballast: usize = self.ballast.iter().map(Buffer::capacity).sum();
        let lent = pool.capacity_bytes() - pool.free_bytes() - ballast;
        let chunks = self.chunks.capacity_bytes() - self.chunks.free_bytes();
        let counts = [
            ("names of sessions", self.by_tsih.len()),
            ("connections", self.connections.len()),
            ("links", self.outgoing.len()),
            ("bytes of the pool", lent),
            ("bytes of chunks", chunks),
            ("logins", self.logins.len()),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let mut left: Vec<String> = left
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        left.extend(self.engine.leftovers());
        if self.desk.as_ref().is_some_and(|desk| !desk.is_idle()) {
            left.push("the front is not idle".to_owned());
        }
        let index = self.index();
        (!left.is_empty()).then(|| format!("core {index}: {}", left.join(", ")))
    }
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
