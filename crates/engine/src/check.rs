//! What must hold between two events, whatever has happened. Looked at once a turn where debug assertions
//! are on: in unit tests, in the simulated world, in fuzzing. Each line is a bug of ours where it fails.

use std::collections::{BTreeSet, HashMap};

use memory::Payload;
use scsi::WHOLE_MEDIUM;
use store::IoRequest;

use crate::UnitIndex;
use crate::carrier::Carrier;
use crate::engine::{Engine, request_key};
use crate::keys::{SessionKey, TaskKey, WaitKey};
use crate::space::Space;
use crate::stores::Client;
use crate::task::{Request, Running, Stage, Then};

/// The queue in which a task of this stage stands, if it stands in one.
const fn queue_of<C: Carrier>(stage: &Stage<C>) -> Option<Queue> {
    match stage {
        Stage::Parked(_) => Some(Queue::Parked),
        Stage::StoreFull(_) => Some(Queue::Full),
        Stage::Memory(_) | Stage::AnswerMemory(_) => Some(Queue::Memory),
        Stage::Turn { .. } => Some(Queue::Turn),
        Stage::Active
        | Stage::Dormant(_)
        | Stage::DataOut
        | Stage::Store(_)
        | Stage::Owner
        | Stage::Fence => None,
    }
}

/// The queues of a core in which tasks wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Queue {
    /// For a fence to be lowered.
    Parked,
    /// For room in a store.
    Full,
    /// For a buffer: of the core, or of the session's share.
    Memory,
    /// For a turn that may begin a piece.
    Turn,
}

impl<C: Carrier> Engine<C> {
    /// Panics where something does not hold that must.
    pub(crate) fn check(&self) {
        self.check_queues();
        self.check_pieces();
        for (key, running) in self.tasks.iter() {
            self.check_task(key, running);
        }
        for (key, wait) in self.waits.iter() {
            let left = if wait.is_late {
                let units = self.units.values();
                units.filter(|unit| unit.side.awaits_refusal(key)).count()
            } else {
                self.waiters(key)
            };
            assert!(left > 0, "{key:?} waits for nothing");
            assert_eq!(wait.tasks_left, left, "{:?} waits for others", wait.then);
        }
        for unit in self.units.units() {
            self.check_unit(unit);
        }
        for (key, session) in self.sessions.iter() {
            let is_queued = self.sharing.contains(&key);
            assert_eq!(session.is_sharing, is_queued, "{key:?} and its share");
            assert!(
                is_queued || session.waiting.is_empty(),
                "{key:?} is skipped"
            );
            let queues = [&self.starved_sessions, &self.sharing_sessions];
            let places = queues.map(|queue| queue.iter().filter(|one| **one == key).count());
            let is_starved = usize::from(session.is_starved);
            assert_eq!(places[0] + places[1], is_starved, "{key:?} and memory");
            self.check_places(key);
        }
        self.check_requests();
        self.check_changes();
        self.check_owners();
        self.stores.check();
        self.pieces.check();
    }

    /// Every task stands in the queue that its stage names, once, and nobody else stands there.
    fn check_queues(&self) {
        let mut found: HashMap<TaskKey, Queue> = HashMap::new();
        let mut note = |key: &TaskKey, queue| {
            let before = found.insert(*key, queue);
            assert_eq!(before, None, "{key:?} stands in {queue:?} and elsewhere");
        };
        for unit in self.units.values() {
            unit.parked.iter().for_each(|key| note(key, Queue::Parked));
            unit.full.iter().for_each(|key| note(key, Queue::Full));
        }
        self.starved.iter().for_each(|key| note(key, Queue::Memory));
        for (_, session) in self.sessions.iter() {
            let waiting = session.waiting.iter();
            waiting.for_each(|key| note(key, Queue::Memory));
        }
        self.pieces.tasks().for_each(|key| note(key, Queue::Turn));
        for (key, running) in self.tasks.iter() {
            let (expected, found) = (queue_of(&running.stage), found.remove(&key));
            assert_eq!(found, expected, "{key:?} in {:?}", running.stage);
            assert_eq!(expected.is_some(), running.stage.is_queued(), "{key:?}");
        }
        assert!(found.is_empty(), "tasks that are over wait: {found:?}");
    }

    /// A turn begins no more than it may, and nobody waits before that.
    fn check_pieces(&self) {
        let (begun, most) = (self.begun_bytes(), self.settings.turn_bytes);
        let before = self.pieces.before_last_bytes();
        assert!(before < most, "a piece begins after {before} bytes");
        assert!(
            begun >= most || !self.has_pieces(),
            "tasks wait for a turn that has begun {begun} bytes"
        );
    }

    fn check_task(&self, key: TaskKey, running: &Running<C>) {
        let stage = &running.stage;
        let is_dormant = matches!(stage, Stage::Dormant(_));
        assert!(
            !matches!(stage, Stage::Active),
            "{key:?} was left where it stood"
        );
        assert!(
            running.answer.is_some() || running.session.is_none(),
            "{key:?} was answered and is there"
        );
        assert_eq!(
            running.task.is_none(),
            is_dormant,
            "{key:?} has begun, or not"
        );
        assert!(
            !(is_dormant && running.has_altered),
            "{key:?} has not begun and has altered something"
        );
        assert!(
            running.lien.is_none() || running.is_in_store(),
            "{key:?} counts for a store that does not work for it"
        );
        if let Stage::Store(errand) = stage {
            let client = self.stores.client(*errand);
            assert_eq!(
                client,
                Some(Client::Task(key)),
                "{key:?} waits for no request"
            );
        }
        if let Stage::Memory(request) | Stage::StoreFull(request) | Stage::Parked(request) = stage {
            let has_chunk = matches!(
                request,
                IoRequest::Write {
                    data: Payload::Received { .. },
                    ..
                }
            );
            assert!(!has_chunk, "{key:?} keeps a chunk while it waits");
        }
        assert!(
            running.orphan.is_none() || running.is_in_store(),
            "{key:?} can end, so that nobody has to be refused"
        );
        assert!(
            !running.is_aborted || stage.is_elsewhere(),
            "{key:?} is aborted and waits in {stage:?}"
        );
        for wait in &running.waiters {
            assert!(self.waits.get(*wait).is_some(), "{key:?} ends for nobody");
        }
        if let Some(session) = running.session {
            let entry = self.sessions.get(session);
            let known = entry.and_then(|entry| entry.task_key(running.id));
            assert_eq!(known, Some(key), "its session knows another one");
        }
        match running.fence() {
            Some(ticket) => {
                let request = self.requests.get(request_key(ticket));
                assert!(
                    matches!(request, Some(Request::Fence { task, .. }) if *task == key),
                    "the fence of {key:?} is {request:?}"
                );
            }
            None => assert!(!matches!(stage, Stage::Fence), "{key:?} waits for no fence"),
        }
    }

    /// How many times tasks say that they are waited for.
    fn waiters(&self, wait: WaitKey) -> usize {
        let waiters = self.tasks.iter().flat_map(|(_, one)| &one.waiters);
        waiters.filter(|other| **other == wait).count()
    }

    fn check_unit(&self, index: UnitIndex) {
        let unit = &self.units[index];
        let tasks = self.tasks.iter().filter(|(_, one)| one.unit == index);
        let tasks: Vec<&Running<C>> = tasks.map(|(_, running)| running).collect();
        let liens = tasks.iter().filter_map(|one| one.lien.as_ref());
        let held: usize = liens.map(crate::unit::Lien::bytes).sum();
        assert_eq!(unit.held_bytes.get(), held, "what the store works on");
        let orphans = || tasks.iter().filter(|one| one.orphan.is_some());
        assert_eq!(
            unit.side.orphans(),
            orphans().count(),
            "requests of the past"
        );
        let refused = unit.side.refused();
        for blocks in orphans().map(|one| one.blocks_to_write()) {
            let is_refused = refused.overlaps(&blocks) || blocks.is_empty();
            assert!(is_refused, "{blocks:?} of {index:?} may be written");
        }
        assert_eq!(
            unit.view.refuses_access(),
            refused.is_whole(),
            "access to {index:?}"
        );
        assert!(
            !unit.side.has_news(),
            "the owner of {index:?} does not know that"
        );
        assert!(unit.outlet.is_empty(), "orders of {index:?} were left");
        assert!(
            unit.space != Space::Full || !unit.side.is_open(),
            "{index:?} is full, and nobody looks"
        );
        for key in unit.full.iter().chain(&unit.parked) {
            let whose = self.tasks[*key].unit;
            assert_eq!(whose, index, "{key:?} waits at another unit");
        }
        for key in &unit.parked {
            let running = &self.tasks[*key];
            let blocks = running.blocks().unwrap_or(WHOLE_MEDIUM);
            let is_stopped = unit.side.is_fenced(&blocks, *key, running.fence());
            assert!(is_stopped, "{key:?} is parked and no fence stops it");
        }
        for key in unit.side.waited_for() {
            let stage = self.tasks.get(key).map(|running| &running.stage);
            let holds_up = matches!(stage, Some(Stage::Store(_) | Stage::Parked(_)));
            assert!(holds_up, "a fence waits for {key:?} in {stage:?}");
        }
        assert!(
            unit.owner.is_none() || self.owner_of(index) == self.settings.core,
            "{index:?} is owned by another core"
        );
    }

    /// The places of a session lead to tasks of its own, and so does its queue.
    fn check_places(&self, key: SessionKey) {
        for task in &self.sessions[key].waiting {
            let whose = self.tasks[*task].session;
            assert_eq!(whose, Some(key), "{task:?} waits for the share of another");
        }
        for task in self.sessions[key].all_tasks() {
            let whose = self.tasks.get(task).map(|running| running.session);
            assert_eq!(
                whose,
                Some(Some(key)),
                "a place of {key:?} leads to {task:?}"
            );
        }
    }

    /// Every question has somebody who waits for its answer.
    fn check_requests(&self) {
        let mut at_owner = 0;
        for (key, request) in self.requests.iter() {
            match request {
                Request::Task(task) => {
                    let stage = self.tasks.get(*task).map(|one| &one.stage);
                    assert!(matches!(stage, Some(Stage::Owner)), "{task:?} in {stage:?}");
                    at_owner += 1;
                }
                Request::Fence { task, .. } => {
                    let fence = self.tasks.get(*task).and_then(Running::fence);
                    assert_eq!(fence.map(request_key), Some(key), "the fence of {task:?}");
                }
                Request::Management { left, rest, .. } => {
                    let is_begun = rest.as_ref().is_some_and(Vec::is_empty);
                    assert!(*left > 0 || !is_begun, "a reset of no unit is under way");
                }
                Request::Refusal { unit } => {
                    assert!(unit.as_usize() < self.units.len(), "{unit:?} is not there");
                }
                Request::Administrator { .. } => {}
                Request::Medium { unit, .. } => {
                    let same = |other: &Request<C>| matches!(other, Request::Medium { unit: of, .. } if of == unit);
                    let moves = self.requests.iter().filter(|(_, one)| same(one)).count();
                    assert_eq!(moves, 1, "the medium of {unit:?} is moved twice at once");
                    assert!(self.units[*unit].owner.is_some(), "{unit:?} is closed");
                }
            }
        }
        let stages = self.tasks.iter().map(|(_, running)| &running.stage);
        let waiting = stages.filter(|stage| matches!(stage, Stage::Owner)).count();
        assert_eq!(
            waiting, at_owner,
            "tasks that wait for owners, and questions"
        );
    }

    /// Each nexus that leaves, and each right that is taken, has one wait that carries it on.
    fn check_changes(&self) {
        let thens = || self.waits.iter().map(|(_, wait)| &wait.then);
        let count = |test: fn(&Then<C>) -> bool| thens().filter(|then| then.is(test)).count();
        let leaving = count(|then| matches!(then, Then::Drained { .. } | Then::Left { .. }));
        assert_eq!(self.leaving.len(), leaving, "nexuses that leave");
        let narrowing = count(|then| matches!(then, Then::Narrowed { .. }));
        assert_eq!(self.narrowing.len(), narrowing, "rights that are taken");
        for (key, leaving) in self.leaving.iter() {
            let view = &self.units[leaving.unit].view;
            let is_there = view.port_of(leaving.slot).is_some();
            assert!(is_there, "{key:?} is gone before it leaves");
        }
        assert!(
            self.view_changes.is_empty() || self.has_pieces(),
            "changes of what sessions see wait for no turn"
        );
    }

    /// Every change that may take too long at its owner has a deadline there, on the core of the owner.
    fn check_owners(&self) {
        let deadlines = self.owner_deadlines.iter().map(|(_, unit)| *unit);
        let timed: BTreeSet<UnitIndex> = deadlines.collect();
        for index in &timed {
            let owner = self.owner_of(*index);
            assert_eq!(owner, self.settings.core, "who looks after {index:?}");
        }
        for index in self.units.units() {
            let owner = self.units[index].owner.as_ref();
            let is_due = owner.is_some_and(|owner| owner.poll_timeout().is_some());
            assert!(
                !is_due || timed.contains(&index),
                "a change of {index:?} has no deadline"
            );
        }
        let is_there = self.next_probe < self.units.next() || self.units.is_empty();
        assert!(is_there, "the next unit to be looked at is not there");
    }
}
