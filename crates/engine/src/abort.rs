//! Tasks that end without an answer, and those who wait for that.
//!
//! What has not reached the store ends at once. A request in the store gets a cancel and ends
//! with its completion. Who waits for it gets an answer at a deadline at the latest; what a request that is still in
//! the store then may write is refused to all others until it has come back, because a write that
//! "is aborted" must not reach the medium after newer data.

use std::collections::{BTreeMap, HashSet};
use std::iter;

use marks::sometimes;
use scsi::{Outcome, Status};
use store::IoRequest;

use crate::UnitIndex;
use crate::agree::ToOwner;
use crate::carrier::{Carrier, News};
use crate::engine::Engine;
use crate::keys::{SessionKey, TaskKey, WaitKey};
use crate::owed::Owed;
use crate::port::{ManagementOutcome, Port as _};
use crate::report::Report;
use crate::task::{CommandId, Farewell, ManagementId, Stage, Then, Wait};

impl<C: Carrier> Engine<C> {
    /// Ends commands of a session that nobody waits for.
    pub fn abort_commands(&mut self, session: SessionKey, ids: Vec<CommandId<C>>) {
        let keys = self.keys_of(session, ids);
        self.abort_tasks(&keys, Then::Nothing);
    }

    /// Ends commands of a session before a part of it ends, which
    /// [`Report::Farewell`] reports.
    pub fn abort_before(
        &mut self,
        session: SessionKey,
        ids: Vec<CommandId<C>>,
        farewell: Farewell<C>,
    ) {
        let keys = self.keys_of(session, ids);
        self.abort_tasks(&keys, Then::Farewell { session, farewell });
    }

    /// The tasks behind commands of a session, as far as they are there.
    pub(crate) fn keys_of(&self, session: SessionKey, ids: Vec<CommandId<C>>) -> Vec<TaskKey> {
        let session = self.sessions.get(session);
        session.map_or_else(Vec::new, |session| session.task_keys(ids))
    }

    /// Something waits for so many tasks, until [`Self::end_asking`].
    fn open_wait(&mut self, tasks: usize, then: Then<C>) -> WaitKey {
        let deadline = self.now + self.settings.abort_timeout;
        self.waits.insert(Wait {
            // One more than there are tasks, so that nothing follows before all have been asked.
            tasks_left: tasks + 1,
            deadline,
            is_late: false,
            then: Owed::new(then),
        })
    }

    /// All that it waits for has been asked. Most waits are over then, and have no deadline.
    fn end_asking(&mut self, wait: WaitKey) {
        self.count_down(wait);
        if let Some(waiting) = self.waits.get(wait) {
            self.wait_deadlines.set(wait, waiting.deadline);
        }
    }

    /// Ends tasks; `then` happens when all have ended, or at the deadline.
    pub(crate) fn abort_tasks(&mut self, keys: &[TaskKey], then: Then<C>) {
        let wait = self.open_wait(keys.len(), then);
        // All first: the end of one must not let another begin that is to end as well.
        for &key in keys {
            if let Some(running) = self.tasks.get_mut(key) {
                running.is_aborted = true;
            }
        }
        let is_queued = |key: &&TaskKey| {
            self.tasks
                .get(**key)
                .is_some_and(|task| task.stage.is_queued())
        };
        let queued: Vec<TaskKey> = keys.iter().filter(is_queued).copied().collect();
        if !queued.is_empty() {
            sometimes!("a command is aborted in a queue");
            self.leave_queues(&queued);
        }
        for &key in keys {
            self.abort_task(key, wait);
        }
        self.end_asking(wait);
    }

    fn abort_task(&mut self, key: TaskKey, wait: WaitKey) {
        let Some(running) = self.tasks.get_mut(key) else {
            self.count_down(wait);
            return;
        };
        running.waiters.push(wait);
        match &running.stage {
            Stage::Store(errand) => {
                sometimes!("a command is aborted that its store has");
                let errand = *errand;
                self.cancel_errand(errand);
                return;
            }
            // The owner has it in its queue; its answer ends the task.
            Stage::Owner => return,
            // Those have left their queues.
            Stage::Parked(_)
            | Stage::StoreFull(_)
            | Stage::Memory(_)
            | Stage::AnswerMemory(_)
            | Stage::Turn { .. } => {}
            Stage::Active | Stage::Dormant(_) | Stage::DataOut | Stage::Fence => {}
        }
        self.close_task(key);
    }

    /// `then` happens when these tasks have ended by themselves, or at the deadline of an abort.
    pub(crate) fn await_tasks(&mut self, tasks: &[TaskKey], then: Then<C>) {
        let wait = self.open_wait(tasks.len(), then);
        for &key in tasks {
            self.tasks[key].waiters.push(wait);
        }
        self.end_asking(wait);
    }

    /// One thing less that a wait waits for.
    pub(crate) fn count_down(&mut self, wait: WaitKey) {
        let Some(waiting) = self.waits.get_mut(wait) else {
            return;
        };
        debug_assert!(waiting.tasks_left > 0, "a wait has ended and is there");
        waiting.tasks_left -= 1;
        if waiting.tasks_left == 0
            && let Some(Wait { then, is_late, .. }) = self.waits.remove(wait)
        {
            self.follow(then, !is_late);
        }
    }

    /// Waits whose deadline has come.
    pub(crate) fn end_waits(&mut self) {
        let (now, waits) = (self.now, &self.waits);
        let of = |key| Some(waits.get(key)?.deadline);
        let due: Vec<WaitKey> = iter::from_fn(|| self.wait_deadlines.due(now, of)).collect();
        for wait in due {
            self.give_up_waiting(wait);
        }
    }

    /// The deadline of a wait has come. What is still in the store is an orphan from now on, and the
    /// wait goes on until every core refuses access to what orphans may write.
    fn give_up_waiting(&mut self, wait: WaitKey) {
        let deadline = self.now + self.settings.abort_timeout;
        let Some(waiting) = self.waits.get_mut(wait) else {
            return;
        };
        waiting.deadline = deadline;
        self.wait_deadlines.set(wait, deadline);
        if std::mem::replace(&mut waiting.is_late, true) {
            sometimes!("a core does not confirm in time that it refuses blocks");
            self.give_up_refusing(wait);
            return;
        }
        // One, so that nothing follows before all have been asked.
        waiting.tasks_left = 1;
        let left: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, running)| running.waiters.contains(&wait))
            .map(|(key, _)| key)
            .collect();
        // Units with orphans, each with whether one is new that may write, and whether any may.
        let mut units: BTreeMap<UnitIndex, (bool, bool)> = BTreeMap::new();
        for key in left {
            let running = &mut self.tasks[key];
            running.waiters.retain(|&other| other != wait);
            if !running.is_in_store() {
                continue;
            }
            let may_write = !running.blocks_to_write().is_empty();
            let is_new = running.orphan.is_none();
            let (asks, awaits) = units.entry(running.unit).or_default();
            *asks |= is_new && may_write;
            *awaits |= may_write;
            if is_new {
                self.make_orphan(key);
            }
            self.spare_fences(key);
        }
        for (unit, (asks, awaits)) in units {
            self.name_orphans(unit, asks);
            if awaits {
                sometimes!("the end of a wait needs the refusal of all cores");
                self.await_refusal(unit, wait);
            }
        }
        self.count_down(wait);
    }

    /// A core does not confirm that it refuses access. An initiator gets its answer, which is no
    /// success; a session does not end, nor a change, before it is safe.
    fn give_up_refusing(&mut self, wait: WaitKey) {
        let may_follow = self.waits.get(wait).is_some_and(|waiting| {
            waiting.then.is(|then| match then {
                Then::Management { .. } | Then::Farewell { .. } | Then::Nothing => true,
                Then::Installed { .. }
                | Then::SessionEnd { .. }
                | Then::Drained { .. }
                | Then::Narrowed { .. }
                | Then::Left { .. } => false,
            })
        });
        if !may_follow {
            sometimes!("a session or a change waits on for a refusal");
            self.carrier.notify(News::RefusalUnconfirmed);
        } else if let Some(waiting) = self.waits.remove(wait) {
            sometimes!("an abort is answered before a refusal is confirmed");
            self.leave_refusals(wait);
            self.follow(waiting.then, false);
        }
    }

    fn follow(&mut self, then: Owed<Then<C>>, is_complete: bool) {
        match then.spend() {
            Then::Management { session, id } => {
                let outcome = if is_complete {
                    ManagementOutcome::Complete
                } else {
                    ManagementOutcome::Rejected
                };
                self.respond_management(session, id, outcome);
            }
            Then::Installed { unit } => {
                self.ask_owner(unit, ToOwner::Installed { is_complete });
            }
            Then::Farewell { session, farewell } => self.reports.push_back(Report::Farewell {
                session,
                farewell,
                is_complete,
            }),
            Then::SessionEnd { session } => self.remove_session(session),
            Then::Drained { leaving } => self.handle_drained(leaving),
            Then::Left { leaving } => self.handle_left(leaving),
            Then::Narrowed { narrowing } => drop(self.narrowing.remove(narrowing)),
            Then::Nothing => {}
        }
    }

    pub(crate) fn respond_management(
        &mut self,
        session: SessionKey,
        id: ManagementId<C>,
        outcome: ManagementOutcome,
    ) {
        if let Some(entry) = self.sessions.get_mut(session)
            && let Some(connection) = entry.port.respond_management(id, outcome)
        {
            self.note_ready(session, Some(connection));
        }
    }

    // ---- queues ------------------------------------------------------------------------------

    /// Ends tasks that have waited too long in a queue, each with the status of [`Stage::patience`].
    pub(crate) fn end_overdue_tasks(&mut self) {
        let (now, tasks) = (self.now, &self.tasks);
        let fence = self.settings.fence_timeout;
        let of = |key| Some(tasks.get(key)?.deadline(fence)?.0);
        let due: Vec<TaskKey> = iter::from_fn(|| self.task_deadlines.due(now, of)).collect();
        if due.is_empty() {
            return;
        }
        self.leave_queues(&due);
        for key in due {
            let deadline = self.tasks.get(key).and_then(|task| task.deadline(fence));
            if let Some((_, status)) = deadline {
                let stage = self.enter(key, Stage::Active);
                self.return_data(key, stage);
                sometimes!("a command gives up waiting in a queue");
                self.turn_down(key, Outcome::status(status));
            }
        }
    }

    /// Ends a task that was parked, and has left the list of those.
    pub(crate) fn end_parked(&mut self, key: TaskKey) {
        let stage = self.enter(key, Stage::Active);
        self.return_data(key, stage);
        self.turn_down(key, Outcome::status(Status::Busy));
    }

    /// The data of a write that left this queue goes back to its transport.
    fn return_data(&mut self, key: TaskKey, stage: Stage<C>) {
        if let Stage::Memory(request) | Stage::StoreFull(request) | Stage::Parked(request) = stage
            && let IoRequest::Write { data, .. } = request
            && let Some(running) = self.tasks.get(key)
            && let Some(session) = running.session
            && let Some(entry) = self.sessions.get_mut(session)
        {
            sometimes!("data of a write that gives up goes back to its transport");
            entry.port.return_data(running.id, data);
        }
    }

    /// These tasks wait in no queue of their core any more. Looks at each queue once, however many
    /// they are.
    fn leave_queues(&mut self, keys: &[TaskKey]) {
        let gone: HashSet<TaskKey> = keys.iter().copied().collect();
        let tasks = keys.iter().filter_map(|&key| self.tasks.get(key));
        let (units, sessions): (HashSet<UnitIndex>, HashSet<Option<SessionKey>>) =
            tasks.map(|task| (task.unit, task.session)).unzip();
        for unit in units {
            let unit = &mut self.units[unit];
            unit.parked.retain(|key| !gone.contains(key));
            unit.full.retain(|key| !gone.contains(key));
        }
        for &key in keys {
            if let Some(running) = self.tasks.get(key)
                && running.is_parked()
            {
                self.leave_fences(running.unit, key);
            }
        }
        for session in sessions.into_iter().flatten() {
            if let Some(entry) = self.sessions.get_mut(session) {
                entry.waiting.retain(|key| !gone.contains(key));
            }
        }
        if !self.starved.is_empty() {
            self.starved.retain(|key| !gone.contains(key));
        }
        self.pieces.remove(&gone);
    }

    /// A BUSY answer for tasks that have waited too long for their fence.
    pub(crate) fn end_fence_wait(&mut self, key: TaskKey) {
        if let Some(running) = self.tasks.get(key)
            && matches!(running.stage, Stage::Fence)
        {
            sometimes!("a command gives up waiting for its own fence");
            self.enter(key, Stage::Active);
            self.turn_down(key, Outcome::status(Status::Busy));
        }
    }
}
