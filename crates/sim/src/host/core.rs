//! One simulated core: its tables, its letters, its end of a turn.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::agree::CoreSide;
use engine::{RequestNumber, Ticket};
use iscsi::pdu::Tsih;
use iscsi::target::TaskId;
use memory::{Buffer, Message, Pool};
use scsi::{LogicalUnit, NexusId, NexusSlot, Owner, Profile, Shared, Task};
use store::{Backstore, IoRequest};

use super::change::Owned;
use super::login::Front;
use super::session::{Connection, SessionEntry};
use super::{Letter, Outgoing, Settings};
use crate::network::Arrival;
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// What a task waits for.
#[derive(Debug)]
pub(super) enum Stage {
    Active,
    Dormant(Box<iscsi::target::Command>),
    DataOut,
    Store,
    StoreFull(IoRequest),
    Parked(IoRequest),
    Memory(IoRequest),
    Owner(Ticket),
    Fence,
}

/// A task under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) tsih: Tsih,
    pub(super) id: TaskId,
    pub(super) slot: NexusSlot,
    pub(super) nexus: NexusId,
    pub(super) task: Option<Task>,
    pub(super) stage: Stage,
    pub(super) fence: Option<Ticket>,
    pub(super) is_aborted: bool,
    pub(super) waits: Vec<u64>,
    pub(super) is_orphan: bool,
    /// Its session has been buried.
    pub(super) is_forgotten: bool,
}

/// Something that waits for tasks to end.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) left: usize,
    pub(super) deadline: Duration,
    /// The deadline has come once: what is left is that every core refuses access.
    pub(super) is_late: bool,
    pub(super) then: Then,
}

/// What follows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then {
    Management(Tsih, iscsi::target::ManagementId),
    Logout(Tsih, iscsi::target::LogoutEvent),
    SessionEnd(Tsih),
    Installed,
}

/// A question to the owner.
#[derive(Debug)]
pub(super) enum Request {
    Task(u64),
    Fence {
        task: u64,
        is_granted: bool,
        since: Duration,
    },
    Management(Tsih, iscsi::target::ManagementId),
    Refusal,
    Nobody,
}

/// One core.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) index: usize,
    pub(super) settings: Settings,
    pub(super) now: Duration,
    pub(super) pool: Pool,
    /// Takes the room that the settings do not give.
    ballast: Vec<Buffer>,
    /// What [`Sabotage::LeakBuffers`] leaves behind.
    leaked: Vec<Buffer>,
    pub(super) chunks: Pool,
    pub(super) view: LogicalUnit,
    pub(super) store: Box<dyn Backstore>,
    pub(super) tasks: BTreeMap<u64, Running>,
    pub(super) waits: BTreeMap<u64, Wait>,
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) next_key: u64,
    pub(super) sessions: BTreeMap<u16, SessionEntry>,
    pub(super) connections: BTreeMap<usize, Connection>,
    pub(super) outgoing: BTreeMap<usize, Outgoing>,
    /// Fences and refusals, as they ship.
    pub(super) side: CoreSide<u64, u64>,
    pub(super) parked: Vec<u64>,
    pub(super) full: VecDeque<u64>,
    pub(super) starved: VecDeque<u64>,
    /// A state of the unit that is to be made safe.
    pub(super) to_keep: Option<Vec<u8>>,
    pub(super) front: Option<Front>,
    pub(super) owned: Option<Owned>,
    pub(super) kept: Option<Vec<u8>>,
    pub(super) posted: Vec<(usize, Letter)>,
    own_letters: VecDeque<Letter>,
    pub(super) closed: Vec<usize>,
    pub(super) prng: Prng,
}

impl Core {
    pub(super) fn new(
        index: usize,
        settings: &Settings,
        profile: &Arc<Profile>,
        shared: &Arc<Shared>,
        store: Box<dyn Backstore>,
        prng: Prng,
    ) -> Self {
        let pool = new_pool();
        let mut ballast = Vec::new();
        let mut piece = memory::BUFFER_BYTES_MAX / 2;
        // Beside what the session never gives to Data-Out.
        let left = settings.pool_bytes + pool.capacity_bytes() / 8;
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
        Self {
            index,
            settings: settings.clone(),
            now: Duration::ZERO,
            pool,
            ballast,
            leaked: Vec::new(),
            chunks: new_pool(),
            view: LogicalUnit::new(Arc::clone(profile), Arc::clone(shared)),
            store,
            tasks: BTreeMap::new(),
            waits: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_key: 1,
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            side: CoreSide::default(),
            parked: Vec::new(),
            full: VecDeque::new(),
            starved: VecDeque::new(),
            to_keep: None,
            front: None,
            owned: None,
            kept: None,
            posted: Vec::new(),
            own_letters: VecDeque::new(),
            closed: Vec::new(),
            prng,
        }
    }

    /// This core owns the unit, and has the front desk.
    pub(super) fn become_owner(&mut self, owner: Owner, kept: Option<Vec<u8>>) {
        self.owned = Some(Owned::new(owner, &self.settings));
        self.front = Some(Front::default());
        self.kept = kept;
    }

    pub(super) const fn new_key(&mut self) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        key
    }

    pub(super) fn open_request(&mut self, request: Request) -> Ticket {
        let key = self.new_key();
        self.requests.insert(key, request);
        Ticket {
            core: self.index,
            request: RequestNumber(key),
        }
    }

    /// Whether to do something wrong now.
    pub(super) fn is_time_for(&mut self, sabotage: Sabotage) -> bool {
        self.settings.sabotage == Some(sabotage) && self.prng.chance(30)
    }

    /// Loses a buffer, if that is what is to go wrong.
    pub(super) fn leak_now_and_then(&mut self) {
        if self.is_time_for(Sabotage::LeakBuffers)
            && let Ok(buffer) = self.pool.allocate(1)
        {
            self.leaked.push(buffer);
        }
    }

    // ---- letters -----------------------------------------------------------------------------

    pub(super) fn post(&mut self, core: usize, letter: Letter) {
        if core == self.index {
            self.own_letters.push_back(letter);
        } else {
            self.posted.push((core, letter));
        }
    }

    pub(super) fn post_to_all(&mut self, letter: impl Fn() -> Letter) {
        for core in 0..self.settings.cores {
            self.post(core, letter());
        }
    }

    pub(super) fn receive_letter(&mut self, letter: Letter, now: Duration) {
        self.now = now;
        match letter {
            Letter::ToOwner(message) => self.handle_to_owner(*message),
            Letter::FromOwner(message) => self.handle_from_owner(message),
            Letter::Adopt(adoption) => self.adopt(*adoption),
            Letter::EndSession(tsih) => self.end_session_or_say_so(tsih),
            Letter::SessionEnded(tsih) => self.handle_session_ended(tsih),
        }
    }

    // ---- links -------------------------------------------------------------------------------

    pub(super) fn accept(&mut self, link: usize, now: Duration) {
        self.now = now;
        self.outgoing.insert(link, Outgoing::default());
        let random = std::array::from_fn(|_| self.prng.next_u64().to_be_bytes()[0]);
        let timeout = self.settings.login_timeout;
        if let Some(front) = &mut self.front {
            front.accept(link, now, timeout, random);
        }
    }

    pub(super) fn appetite(&mut self, link: usize) -> usize {
        if self.front.as_ref().is_some_and(|front| front.wants(link)) {
            return 4096;
        }
        self.session_appetite(link)
    }

    pub(super) fn arrive(&mut self, link: usize, arrival: Arrival, now: Duration) {
        self.now = now;
        if self.front.as_ref().is_some_and(|front| front.has(link)) {
            self.arrive_at_front(link, arrival);
        } else {
            self.arrive_at_session(link, arrival);
        }
    }

    pub(super) fn take_output(&mut self, link: usize, len: usize) -> Vec<u8> {
        match self.outgoing.get_mut(&link) {
            Some(outgoing) => outgoing.take(len),
            None => Vec::new(),
        }
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

    /// Everything that can go on goes on, and what became ready is given to the links.
    pub(super) fn end_turn(&mut self, now: Duration) {
        self.now = now;
        loop {
            while let Some(letter) = self.own_letters.pop_front() {
                self.receive_letter(letter, now);
            }
            self.handle_memory();
            self.collect_output();
            if self.own_letters.is_empty() {
                break;
            }
        }
    }

    fn collect_output(&mut self) {
        let mut finished = Vec::new();
        for (&link, connection) in &self.connections {
            let Some(entry) = self.sessions.get_mut(&connection.tsih.0) else {
                continue;
            };
            if entry.session.has_output(connection.index) {
                let message = entry
                    .session
                    .take_message(connection.index, Message::default());
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
    }

    fn handle_memory(&mut self) {
        for _ in 0..self.starved.len() {
            let Some(key) = self.starved.pop_front() else {
                break;
            };
            self.retry(key);
        }
        let free = self.pool.free_bytes();
        let reserve = self.pool.capacity_bytes() / 8;
        let limit = if free < reserve + self.settings.pool_bytes / 4 {
            1
        } else {
            self.settings.queue_depth
        };
        let sessions: Vec<u16> = self.sessions.keys().copied().collect();
        for tsih in sessions {
            let Some(entry) = self.sessions.get_mut(&tsih) else {
                continue;
            };
            entry.session.set_queue_limit(limit);
            if entry.session.is_starving() {
                entry.session.handle_memory(&entry.pool);
                self.handle_session_events(Tsih(tsih));
            }
        }
    }

    // ---- time --------------------------------------------------------------------------------

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let sessions = self.sessions.values();
        let waits = self.waits.values().map(|wait| wait.deadline);
        let fences = self.requests.values().filter_map(|request| match request {
            Request::Fence {
                is_granted: false,
                since,
                ..
            } => Some(*since + self.settings.fence_timeout),
            Request::Fence { .. }
            | Request::Task(_)
            | Request::Management(..)
            | Request::Refusal
            | Request::Nobody => None,
        });
        let logins = self.front.as_ref().and_then(Front::poll_timeout);
        let owned = self.owned.as_ref();
        let changes = owned.and_then(|owned| owned.unit.poll_timeout());
        sessions
            .filter_map(|entry| entry.session.poll_timeout())
            .chain(waits)
            .chain(fences)
            .chain(logins)
            .chain(changes)
            .min()
    }

    pub(super) fn handle_time(&mut self, now: Duration) {
        self.now = now;
        self.time_out_waits();
        self.time_out_fences();
        self.time_out_changes();
        self.time_out_logins();
        let sessions: Vec<u16> = self.sessions.keys().copied().collect();
        for tsih in sessions {
            if let Some(entry) = self.sessions.get_mut(&tsih)
                && entry.session.poll_timeout().is_some_and(|due| due <= now)
            {
                entry.session.handle_timeout(now);
                self.handle_session_events(Tsih(tsih));
            }
        }
    }

    // ---- for the checkers --------------------------------------------------------------------

    pub(super) fn has_tasks_of(&self, tsih: Tsih) -> bool {
        self.sessions.contains_key(&tsih.0)
            || self.tasks.values().any(|running| running.tsih == tsih)
    }

    /// Tasks that nobody waits for, and that the store works for.
    pub(super) fn left_behind(&self) -> impl Iterator<Item = u64> {
        let left = self.tasks.iter().filter(|(_, running)| running.is_orphan);
        left.map(|(&key, _)| key)
    }

    /// What should not be there when all sessions are over.
    pub(super) fn leftovers(&self) -> Option<String> {
        let ballast: usize = self.ballast.iter().map(Buffer::capacity).sum();
        let lent = self.pool.capacity_bytes() - self.pool.free_bytes() - ballast;
        let chunks = self.chunks.capacity_bytes() - self.chunks.free_bytes();
        let counts = [
            ("tasks", self.tasks.len()),
            ("waits", self.waits.len()),
            ("requests", self.requests.len()),
            ("sessions", self.sessions.len()),
            ("connections", self.connections.len()),
            ("links", self.outgoing.len()),
            ("fences", self.side.fences()),
            ("parked tasks", self.parked.len()),
            ("starved tasks", self.starved.len()),
            ("orphans", self.side.orphans()),
            ("bytes of the pool", lent),
            ("bytes of chunks", chunks),
            ("nexuses", self.view.nexuses().count()),
            ("logins", self.front.as_ref().map_or(0, Front::len)),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        let left: Vec<String> = left
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        (!left.is_empty()).then(|| format!("core {}: {}", self.index, left.join(", ")))
    }
}

/// The smallest pool there is.
fn new_pool() -> Pool {
    #[expect(
        clippy::expect_used,
        reason = "a simulation without memory has nothing to tell"
    )]
    Pool::new(0).expect("address space for a pool")
}
