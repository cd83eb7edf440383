//! One core: its sessions, its view of every unit, its tasks.
//!
//! Events and the time go in by the `handle_` methods; what leaves the core goes to the
//! [`Carrier`] at once; what its owner has to do next about sessions is taken with the `poll_`
//! methods, after every event. Nothing here waits, reads a clock or knows a thread.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use memory::Pool;
use scsi::{Change, ChangeKind, LogicalUnit, StoreFailures};
use store::{Capabilities, Flushes};

use crate::agree::{ToOwner, UnitOwner};
use crate::carrier::{Carrier, Letter};
use crate::deadlines::Deadlines;
use crate::keys::{
    ErrandKey, OfLeaving, OfNarrowing, OfRequest, OfSession, OfTask, OfViewChange, OfWait,
    RequestKey, SessionKey, TaskKey, WaitKey,
};
use crate::pieces::Pieces;
use crate::port::Port;
use crate::report::Report;
use crate::session::Session;
use crate::stores::Stores;
use crate::table::{ByUnit, Table};
use crate::task::{Leaving, Orphan, QuestionPatience, Request, Running, Wait};
use crate::unit::Unit;
use crate::view_change::ViewChange;
use crate::{RequestNumber, Ticket, UnitIndex};

/// A reset is several aborts, one after the other on each unit; it is answered after this many
/// times what one may take.
const RESET_PATIENCE: u32 = 2;

/// Where the core stands, and what its waits are bounded by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which of the cores it is.
    pub core: usize,
    /// How many there are.
    pub cores: usize,
    /// Commands of one session under way.
    pub queue_depth: u32,
    /// How long an abort, a reset or the end of a session waits for the store.
    pub abort_timeout: Duration,
    /// How long a command waits for others on the same blocks to end, when it must be atomic.
    pub fence_timeout: Duration,
    /// How much work on the medium that no initiator sends or gets a turn begins, in bytes; its last piece may go
    /// beyond.
    pub turn_bytes: usize,
}

/// What of [`Settings`] can change while the core serves.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// See there.
    pub queue_depth: u32,
    /// See there.
    pub abort_timeout: Duration,
    /// See there.
    pub fence_timeout: Duration,
}

/// One core.
#[derive(Debug)]
pub struct Engine<C: Carrier> {
    /// Carries out what leaves the core.
    pub carrier: C,
    pub(crate) settings: Settings,
    pub(crate) now: Duration,
    pub(crate) pool: Pool,
    pub(crate) units: ByUnit<Unit>,
    pub(crate) sessions: Table<Session<C::Port>, OfSession>,
    pub(crate) tasks: Table<Running<C>, OfTask>,
    /// Of tasks in queues.
    pub(crate) task_deadlines: Deadlines<TaskKey>,
    pub(crate) waits: Table<Wait<C>, OfWait>,
    pub(crate) wait_deadlines: Deadlines<WaitKey>,
    /// Questions to other cores.
    pub(crate) requests: Table<Request<C>, OfRequest>,
    pub(crate) request_deadlines: Deadlines<RequestKey>,
    /// Of changes at units that this core owns.
    pub(crate) owner_deadlines: BTreeSet<(Duration, UnitIndex)>,
    /// Nexuses on their way out of a unit.
    pub(crate) leaving: Table<Leaving<C>, OfLeaving>,
    /// Changes that take from a nexus the right to write.
    pub(crate) narrowing: Table<C::Receipt, OfNarrowing>,
    /// What sessions see is being changed.
    pub(crate) view_changes: Table<ViewChange<C::Receipt>, OfViewChange>,
    /// Tasks that older ones of their nexus let start now.
    pub(crate) startable: VecDeque<TaskKey>,
    /// Work that a turn may do only so much of.
    pub(crate) pieces: Pieces,
    /// Tasks that wait for memory, first come first.
    pub(crate) starved: VecDeque<TaskKey>,
    /// Sessions that wait for memory for Data-Out.
    pub(crate) starved_sessions: VecDeque<SessionKey>,
    /// The same of sessions that have their share.
    pub(crate) sharing_sessions: VecDeque<SessionKey>,
    /// Those stand before the tasks that wait for memory.
    pub(crate) sessions_first: bool,
    /// Sessions with tasks that wait because they have their share.
    pub(crate) sharing: VecDeque<SessionKey>,
    /// The sessions' windows are kept small because memory is short.
    pub(crate) is_short_of_memory: bool,
    pub(crate) flushes: Flushes<UnitIndex, ErrandKey>,
    /// What stores have, and what is done for them.
    pub(crate) stores: Stores<C::Operation>,
    /// The next unit whose store is looked at.
    pub(crate) next_probe: UnitIndex,
    /// Sessions in which something happened while one of their tasks was carried on.
    eventful: Vec<SessionKey>,
    /// Connections that have something to send.
    pub(crate) ready: Vec<Ready<C>>,
    pub(crate) reports: VecDeque<Report<C::Port>>,
}

/// A connection that has something to send; all of a session where none is named.
type Ready<C> = (
    SessionKey,
    Option<<<C as Carrier>::Port as Port>::Connection>,
);

/// A question as others name it.
const fn request_number(key: RequestKey) -> RequestNumber {
    RequestNumber(key.to_bits())
}

/// The question that a ticket of this core stands for.
pub(crate) const fn request_key(ticket: Ticket) -> RequestKey {
    RequestKey::from_bits(ticket.request.0)
}

impl<C: Carrier> Engine<C> {
    /// A core without units and sessions, with its own pool of memory for data.
    pub fn new(settings: Settings, pool: Pool, carrier: C) -> Self {
        debug_assert!(settings.core < settings.cores, "{settings:?}");
        debug_assert!(settings.turn_bytes > 0, "a turn may begin nothing");
        Self {
            carrier,
            settings,
            now: Duration::ZERO,
            pool,
            units: ByUnit::default(),
            sessions: Table::default(),
            tasks: Table::default(),
            task_deadlines: Deadlines::default(),
            waits: Table::default(),
            wait_deadlines: Deadlines::default(),
            requests: Table::default(),
            request_deadlines: Deadlines::default(),
            owner_deadlines: BTreeSet::new(),
            leaving: Table::default(),
            narrowing: Table::default(),
            view_changes: Table::default(),
            startable: VecDeque::new(),
            pieces: Pieces::default(),
            starved: VecDeque::new(),
            starved_sessions: VecDeque::new(),
            sharing_sessions: VecDeque::new(),
            sessions_first: false,
            sharing: VecDeque::new(),
            is_short_of_memory: false,
            flushes: Flushes::default(),
            stores: Stores::default(),
            next_probe: UnitIndex(0),
            eventful: Vec::new(),
            ready: Vec::new(),
            reports: VecDeque::new(),
        }
    }

    /// Which of the cores it is.
    pub const fn core(&self) -> usize {
        self.settings.core
    }

    /// The memory for data in flight.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    // ---- units -------------------------------------------------------------------------------

    /// The number of the next unit.
    pub fn next_unit(&self) -> UnitIndex {
        self.units.next()
    }

    /// This core's view of a unit.
    pub fn view(&self, unit: UnitIndex) -> Option<&LogicalUnit> {
        let unit = self.units.get(unit)?;
        Some(&unit.view)
    }

    /// What the owner of a unit keeps, where this core is that.
    pub fn owner(&self, unit: UnitIndex) -> Option<&UnitOwner> {
        self.units.get(unit)?.owner.as_ref()
    }

    /// What the store of a unit is and can do.
    pub fn capabilities(&self, unit: UnitIndex) -> Option<&Capabilities> {
        let unit = self.units.get(unit)?;
        Some(unit.store.capabilities())
    }

    /// A request of the past may still land on some unit.
    pub fn has_orphans(&self) -> bool {
        self.units.values().any(|unit| unit.side.orphans() > 0)
    }

    /// Units that this core owns.
    pub fn owned_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        let all = self.units.units();
        all.filter(|unit| self.units[*unit].owner.is_some())
    }

    /// The core that owns a unit.
    pub(crate) const fn owner_of(&self, unit: UnitIndex) -> usize {
        unit.owner(self.settings.cores)
    }

    // ---- sessions ----------------------------------------------------------------------------

    /// A session, unless it is gone.
    pub fn session(&self, key: SessionKey) -> Option<&Session<C::Port>> {
        self.sessions.get(key)
    }

    /// A session and the carrier, both to be changed.
    #[inline]
    pub fn session_and_carrier(
        &mut self,
        key: SessionKey,
    ) -> Option<(&mut Session<C::Port>, &mut C)> {
        let session = self.sessions.get_mut(key)?;
        Some((session, &mut self.carrier))
    }

    /// The same, to be changed.
    pub fn session_mut(&mut self, key: SessionKey) -> Option<&mut Session<C::Port>> {
        self.sessions.get_mut(key)
    }

    /// The sessions that live here.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionKey, &Session<C::Port>)> {
        self.sessions.iter()
    }

    /// How many sessions live here.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Nothing new starts in a session.
    pub fn close_to_commands(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.is_ending = true;
        }
    }

    /// Something has happened in a session that its owner has to look at.
    pub(crate) fn note_event(&mut self, key: SessionKey) {
        self.eventful.push(key);
    }

    /// A session in which something happened since it was last looked at.
    pub fn poll_eventful(&mut self) -> Option<SessionKey> {
        self.eventful.pop()
    }

    /// What has come to an end.
    pub fn poll_report(&mut self) -> Option<Report<C::Port>> {
        self.reports.pop_front()
    }

    /// A connection has something to send, or all of a session have.
    #[inline]
    pub fn note_ready(
        &mut self,
        session: SessionKey,
        connection: Option<<C::Port as Port>::Connection>,
    ) {
        // The answers of a turn are mostly for one connection.
        if self.ready.last() != Some(&(session, connection)) {
            self.push_ready((session, connection));
        }
    }

    #[inline(never)]
    fn push_ready(&mut self, ready: Ready<C>) {
        self.ready.push(ready);
    }

    /// Something is left to be taken with the `poll_` methods, or to be started.
    pub fn has_more(&self) -> bool {
        !self.is_settled() || !self.ready.is_empty()
    }

    /// Nothing is left to be started, and nothing to be taken with [`Self::poll_report`] or [`Self::poll_eventful`].
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.reports.is_empty()
            && self.eventful.is_empty()
            && self.startable.is_empty()
            && !self.stores.has_answers()
    }

    /// A connection that has something to send, with its session.
    pub fn poll_ready(&mut self) -> Option<Ready<C>> {
        self.ready.pop()
    }

    // ---- mail --------------------------------------------------------------------------------

    /// Other limits from now on. What waits already is given up at the later of both times, and commands that are
    /// under way end as they would.
    pub fn set_limits(&mut self, limits: &Limits) {
        let Limits {
            queue_depth,
            abort_timeout,
            fence_timeout,
        } = *limits;
        self.settings.abort_timeout = abort_timeout;
        self.settings.fence_timeout = fence_timeout;
        let patience = self.owner_patience();
        for unit in self.units.values_mut() {
            if let Some(owner) = &mut unit.owner {
                owner.set_patience(patience);
            }
        }
        self.settings.queue_depth = queue_depth;
        let limit = self.queue_limit();
        for (_, session) in self.sessions.iter_mut() {
            session.port.set_queue_depth(queue_depth);
        }
        self.set_queue_limits(limit);
    }

    /// How many commands each session may have under way now.
    pub(crate) fn set_queue_limits(&mut self, limit: u32) {
        for (key, session) in self.sessions.iter_mut() {
            if session.port.set_queue_limit(limit) {
                self.ready.push((key, None));
            }
        }
    }

    /// How many commands a session may have under way now.
    pub(crate) const fn queue_limit(&self) -> u32 {
        if self.is_short_of_memory {
            1
        } else {
            self.settings.queue_depth
        }
    }

    /// Sends a message to the owner of a unit.
    pub(crate) fn ask_owner(&mut self, unit: UnitIndex, message: ToOwner) {
        let owner = self.owner_of(unit);
        self.carrier.post(owner, unit, Letter::ToOwner(message));
    }

    /// Asks the owner of a unit for a change; the answer comes with the ticket.
    pub(crate) fn ask_change(&mut self, unit: UnitIndex, ticket: Ticket, change: Change) {
        let is_answered = ticket != Ticket::NOBODY;
        debug_assert!(
            is_answered
                || matches!(
                    change.kind,
                    ChangeKind::NexusAttached
                        | ChangeKind::NexusLost
                        | ChangeKind::CapacityChanged { .. }
                        | ChangeKind::SpaceLow
                        | ChangeKind::EjectWish
                ),
            "an answer goes nowhere: {change:?}"
        );
        self.ask_owner(unit, ToOwner::Change { ticket, change });
    }

    /// Notes a question; the answer comes with the ticket.
    pub(crate) fn open_request(&mut self, request: Request<C>) -> Ticket {
        let deadline = request.deadline(self.question_patience());
        let key = self.requests.insert(request);
        if let Some(at) = deadline {
            self.request_deadlines.set(key, at);
        }
        self.ticket_of(key)
    }

    pub(crate) const fn ticket_of(&self, key: RequestKey) -> Ticket {
        Ticket {
            core: self.settings.core,
            request: request_number(key),
        }
    }

    pub(crate) fn request_mut(&mut self, ticket: Ticket) -> Option<&mut Request<C>> {
        self.requests.get_mut(request_key(ticket))
    }

    pub(crate) fn close_request(&mut self, ticket: Ticket) -> Option<Request<C>> {
        let request = self.requests.remove(request_key(ticket));
        debug_assert!(request.is_some(), "{ticket:?} was closed before");
        request
    }

    pub(crate) fn question_patience(&self) -> QuestionPatience {
        QuestionPatience {
            fence: self.settings.fence_timeout,
            reset: self.settings.abort_timeout * RESET_PATIENCE,
            flush: self.settings.abort_timeout,
        }
    }

    // ---- time --------------------------------------------------------------------------------

    /// The time of this turn.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// A turn begins: everything until the next call happens now. What waited for it goes on.
    pub fn begin_turn(&mut self, now: Duration) {
        debug_assert!(
            now >= self.now,
            "time goes back from {:?} to {now:?}",
            self.now
        );
        self.now = now;
        if self.begun_bytes() > 0 {
            self.begin_pieces();
        }
    }

    // ---- for those who look on ---------------------------------------------------------------

    /// How many places the table of tasks has.
    pub fn task_places(&self) -> usize {
        self.tasks.places()
    }

    /// The task in a place, where it hangs: it has been there for so long and was not reported.
    pub fn hanging_task(&self, place: usize, patience: Duration) -> Option<TaskKey> {
        let key = self.tasks.in_place(place)?;
        let running = &self.tasks[key];
        running.hangs(self.now, patience).then_some(key)
    }

    /// What failed in the store of a unit since the last time this was asked, where an initiator was answered so. Noted
    /// where a failure becomes sense data; to be asked after a command that was not answered GOOD.
    pub fn take_store_failures(&self, unit: UnitIndex) -> Vec<StoreFailures> {
        let unit = self.units.get(unit);
        unit.map_or_else(Vec::new, |unit| unit.view.take_failures())
    }

    /// How many tasks wait for something.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// Whether a task is not over.
    pub fn has_task(&self, key: TaskKey) -> bool {
        self.tasks.get(key).is_some()
    }

    /// Tasks that nobody waits for any longer, but which may still take effect.
    pub fn orphans(&self) -> impl Iterator<Item = Orphan> {
        self.tasks.iter().filter_map(|(task, running)| {
            let request = running.orphan.as_ref().and_then(|_| running.request())?;
            Some(Orphan {
                task,
                request,
                session: running.session,
            })
        })
    }

    /// Whether access to all of these blocks of a unit is refused here.
    pub fn refuses(&self, unit: UnitIndex, blocks: &Range<u64>) -> bool {
        let refused = self.units.get(unit).map(|unit| unit.side.refused());
        refused.is_some_and(|refused| refused.has_all(blocks))
    }

    /// What is left although nothing should be under way, in words.
    pub fn leftovers(&self) -> Vec<String> {
        let units = self.units.values();
        let of_units = units.map(|unit| {
            [
                unit.side.fences(),
                unit.side.orphans(),
                unit.parked.len(),
                unit.full.len(),
                unit.held_bytes.get(),
                unit.view.nexuses().count(),
            ]
        });
        let [fences, orphans, parked, full, held, nexuses] = of_units.fold([0; 6], |sum, one| {
            std::array::from_fn(|at| sum[at] + one[at])
        });
        let counts = [
            ("tasks", self.tasks.len()),
            ("waits", self.waits.len()),
            ("requests", self.requests.len()),
            ("sessions", self.sessions.len()),
            ("nexuses that leave", self.leaving.len()),
            ("rights that are taken", self.narrowing.len()),
            ("changes of views", self.view_changes.len()),
            ("startable tasks", self.startable.len()),
            ("tasks that wait for a turn", self.pieces.tasks().count()),
            ("starved tasks", self.starved.len()),
            ("starved sessions", self.starved_sessions.len()),
            ("sessions with their share", self.sharing_sessions.len()),
            ("sharing sessions", self.sharing.len()),
            ("events", self.eventful.len()),
            ("reports", self.reports.len()),
            ("requests in stores", self.stores.errands()),
            ("fences", fences),
            ("orphans", orphans),
            ("parked tasks", parked),
            ("tasks before a full store", full),
            ("bytes in stores", held),
            ("nexuses", nexuses),
        ];
        let left = counts.iter().filter(|(_, count)| *count > 0);
        left.map(|(what, count)| format!("{count} {what}"))
            .collect()
    }

    /// Gives back room beyond need.
    pub fn shrink(&mut self) {
        self.sessions.shrink_to_fit();
        self.waits.shrink_to_fit();
        self.requests.shrink_to_fit();
        self.leaving.shrink_to_fit();
        self.ready.shrink_to_fit();
        self.reports.shrink_to_fit();
    }
}

impl<C: Carrier> Drop for Engine<C> {
    /// The core ends: nobody is left to whom anything could be owed.
    fn drop(&mut self) {
        for (_, running) in self.tasks.iter_mut() {
            if let Some(answer) = running.answer.take() {
                answer.forgive();
            }
        }
        let waits: Vec<WaitKey> = self.waits.keys().collect();
        for wait in waits {
            if let Some(wait) = self.waits.remove(wait) {
                wait.then.forgive();
            }
        }
    }
}
