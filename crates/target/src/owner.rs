//! Changes of a unit's shared state, and fences: the owner's side and every core's.
//!
//! A change is applied by the owner, made safe if it must survive, sent to every core, and
//! answered when every core has it and the tasks that had to end have ended. Changes of one unit
//! happen one after the other.

use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::TaskManagementResponse;
use scsi::{
    Change, ChangeKind, Input, Nexus, NexusSlot, Outcome, Reply, Sense, SenseCode, SenseKey,
    Shared, Status, Step, Who,
};
use store::{HelperAnswer, HelperOperation, IoFailure, RingOperation};

use crate::core::Core;
use crate::letter::{FenceNumber, Letter, Ticket, Update};
use crate::plan::UnitIndex;
use crate::running::{Request, RequestKey, Stage, TaskKey, Then};
use crate::token::Purpose;
use crate::unit::{Current, Fence, OwnedFence, Queued, overlap};
use crate::watcher::Happening;

/// How many stores are looked at per tick, so that many units cost no more than few.
const PROBES_PER_TICK: usize = 8;

/// A change whose new state could not be kept safely; it has not happened.
const NOT_KEPT: Sense = Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);

/// A change that has not begun, because one before it takes too long.
const BUSY: Reply = Reply {
    status: Status::Busy,
    sense: None,
    transfer_length: 0,
};

/// A change may wait this many times what an abort may take, and so may the keeping of its state.
const CHANGE_PATIENCE: u32 = 3;

/// A change that happened, but tasks it had to end are still in the store.
const NOT_ENDED: Sense = Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);

impl Core {
    // ---- the owner's side of changes ---------------------------------------------------------

    pub(crate) fn handle_change(&mut self, unit: UnitIndex, ticket: Ticket, change: Change) {
        let index = unit;
        let Some(owned) = self.owned[index].as_mut() else {
            // The unit has gone meanwhile, and with it what was to change.
            let reply = Reply::check(NOT_KEPT);
            self.post(
                ticket.core,
                Letter::Changed {
                    ticket,
                    reply,
                    is_complete: true,
                },
            );
            return;
        };
        owned.queue.push_back(Queued {
            ticket,
            change,
            since: self.reactor.now(),
        });
        self.next_change(index);
    }

    fn next_change(&mut self, unit: UnitIndex) {
        let now = self.reactor.now();
        while let Some(owned) = self.owned[unit].as_mut()
            && owned.current.is_none()
            && let Some(Queued { ticket, change, .. }) = owned.queue.pop_front()
        {
            let before = Arc::clone(owned.owner.shared());
            let applied = owned.owner.apply(&change);
            let update = Arc::new(Update {
                ticket,
                changes_state: applied.shared.is_some(),
                notices: applied.notices,
                abort: applied.abort,
            });
            let mut current = Current {
                ticket,
                reply: applied.reply,
                update,
                acknowledgements_left: 0,
                is_complete: true,
                before: None,
                since: now,
                is_given_up: false,
            };
            match applied.persist {
                Some(state) => {
                    current.before = Some(before);
                    owned.current = Some(current);
                    self.keep(unit, state);
                }
                None => {
                    owned.current = Some(current);
                    self.announce(unit);
                }
            }
        }
    }

    fn keep(&mut self, unit: UnitIndex, state: Vec<u8>) {
        let Some(owned) = self.owned[unit].as_ref() else {
            return;
        };
        let keeper = Arc::clone(&owned.keeper);
        let name = Arc::clone(&self.units[unit].name);
        let work = move || match keeper.save(&state) {
            Ok(()) => Ok(HelperAnswer::Done),
            Err(error) => {
                tracing::error!(%error, unit = %name, "the state of a unit cannot be kept");
                Err(IoFailure::Hardware {
                    errno: error.raw_os_error().unwrap_or(0),
                })
            }
        };
        let operation = HelperOperation {
            name: "keep unit state",
            work: Box::new(work),
        };
        self.reactor
            .submit_keeper(Purpose::Keep(unit).token(), operation);
    }

    /// The state is on stable storage, or could not be put there: then it is as if the change had
    /// never been asked for.
    pub(crate) fn handle_kept(&mut self, unit: UnitIndex, is_safe: bool) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let Some(current) = owned.current.as_mut() else {
            return;
        };
        let before = current.before.take();
        if !is_safe {
            let unit = &self.units[unit].name;
            self.watcher.hear(&Happening::StateNotKept { unit });
        }
        if current.is_given_up {
            self.take_back(unit, before, is_safe);
            return;
        }
        if is_safe {
            self.announce(unit);
        } else if let Some(before) = before {
            owned.owner.put_back(before);
            current.update = Arc::new(Update {
                ticket: current.ticket,
                changes_state: false,
                notices: Vec::new(),
                abort: Vec::new(),
            });
            current.reply = Reply::check(NOT_KEPT);
            self.announce(unit);
        }
        self.next_change(unit);
    }

    /// A change that was answered as failed is undone; what was kept of it after all is replaced.
    fn take_back(&mut self, unit: UnitIndex, before: Option<Arc<Shared>>, is_kept: bool) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        if let Some(before) = before {
            owned.owner.put_back(before);
            if is_kept {
                let state = owned.owner.kept_state();
                self.keep(unit, state);
                return;
            }
        }
        owned.current = None;
        self.next_change(unit);
    }

    /// Answers changes that have waited too long: one that has not begun is taken out of the queue,
    /// one whose state is still being kept has failed. Called once a tick.
    pub(crate) fn end_overdue_changes(&mut self, now: Duration) {
        let patience = self.settings.abort_timeout * CHANGE_PATIENCE;
        let is_overdue = |since: Duration| now.saturating_sub(since) >= patience;
        let mut answers = Vec::new();
        for owned in self.owned.values_mut().flatten() {
            if let Some(current) = &mut owned.current
                && current.before.is_some()
                && !current.is_given_up
                && is_overdue(current.since)
            {
                current.is_given_up = true;
                answers.push((current.ticket, Reply::check(NOT_KEPT)));
            }
            // What says who is there must reach the owner in any case.
            let is_late = |queued: &Queued| {
                matches!(queued.change.kind, ChangeKind::Command { .. }) && is_overdue(queued.since)
            };
            if owned.queue.iter().any(is_late) {
                for queued in std::mem::take(&mut owned.queue) {
                    if is_late(&queued) {
                        answers.push((queued.ticket, BUSY));
                    } else {
                        owned.queue.push_back(queued);
                    }
                }
            }
        }
        for (ticket, reply) in answers {
            self.post(
                ticket.core,
                Letter::Changed {
                    ticket,
                    reply,
                    is_complete: true,
                },
            );
        }
    }

    /// Sends the current change to every core, or answers it when it concerns none.
    fn announce(&mut self, unit: UnitIndex) {
        let cores = self.posts.len();
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let Some(current) = owned.current.as_mut() else {
            return;
        };
        let update = Arc::clone(&current.update);
        if !update.changes_state && update.notices.is_empty() && update.abort.is_empty() {
            self.answer_change(unit);
            return;
        }
        current.acknowledgements_left = cores;
        let latest = Arc::clone(owned.owner.shared());
        self.post_to_all(|| Letter::Install {
            unit,
            shared: Arc::clone(&latest),
            update: Arc::clone(&update),
        });
    }

    pub(crate) fn handle_installed(&mut self, unit: UnitIndex, is_complete: bool) {
        let index = unit;
        let Some(owned) = self.owned[index].as_mut() else {
            return;
        };
        let Some(current) = owned.current.as_mut() else {
            return;
        };
        current.is_complete &= is_complete;
        current.acknowledgements_left -= 1;
        if current.acknowledgements_left == 0 {
            self.answer_change(index);
            self.next_change(index);
        }
    }

    fn answer_change(&mut self, unit: UnitIndex) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let Some(Current {
            ticket,
            reply,
            is_complete,
            ..
        }) = owned.current.take()
        else {
            return;
        };
        if ticket == Ticket::NOBODY {
            return;
        }
        self.post(
            ticket.core,
            Letter::Changed {
                ticket,
                reply,
                is_complete,
            },
        );
    }

    // ---- every core's side of changes --------------------------------------------------------

    pub(crate) fn handle_install(
        &mut self,
        unit: UnitIndex,
        shared: &Arc<Shared>,
        update: &Update,
    ) {
        let index = unit;
        let unit = &mut self.units[index];
        if update.changes_state {
            unit.view.install(shared, &update.notices);
            // The size of the store is part of what every core must know.
            unit.store.refresh_size();
        }
        let mut keys = Vec::new();
        if !update.abort.is_empty() {
            // What a session that is gone has left in the store counts as well.
            let orphans = self.tasks.iter().filter(|(_, running)| {
                let orphan = running.orphan.as_ref();
                let is_meant = |port| update.abort.iter().any(|who| who.is_port(port));
                running.unit == index && orphan.is_some_and(is_meant)
            });
            keys.extend(orphans.map(|(key, _)| key));
            let is_meant = |nexus: &Nexus| update.abort.iter().any(|who: &Who| who.is(nexus));
            let nexuses = unit.view.nexuses().filter(|(_, nexus)| is_meant(nexus));
            let slots: Vec<NexusSlot> = nexuses.map(|(slot, _)| slot).collect();
            let is_own = update.ticket.core == self.index;
            let own = match self.request_mut(update.ticket) {
                Some(Request::Task(key)) if is_own => Some(*key),
                Some(_) | None => None,
            };
            for (key, running) in self.tasks.iter_mut() {
                if running.unit != index
                    || running.session.is_none()
                    || running.orphan.is_some()
                    || !slots.contains(&running.nexus)
                    || Some(key) == own
                {
                    continue;
                }
                if matches!(running.stage, Stage::Owner) {
                    // It waits behind this change, so this change cannot wait for it. It ends
                    // with its answer, which nobody will hear.
                    running.is_aborted = true;
                } else {
                    keys.push(key);
                }
            }
        }
        self.abort_tasks(&keys, Then::Installed { unit: index });
    }

    /// The owner has answered a request of this core.
    pub(crate) fn handle_changed(&mut self, ticket: Ticket, reply: Reply, is_complete: bool) {
        match self.request_mut(ticket) {
            Some(Request::Task(key)) => {
                let key = *key;
                self.close_request(ticket);
                self.answer_task(key, reply, is_complete);
            }
            Some(Request::Management {
                session,
                id,
                left,
                is_complete: all,
                cold,
                ..
            }) => {
                *left -= 1;
                *all &= is_complete;
                if *left == 0 {
                    let (session, id, all, cold) = (*session, *id, *all, *cold);
                    self.close_request(ticket);
                    let response = if all {
                        TaskManagementResponse::Complete
                    } else {
                        TaskManagementResponse::Rejected
                    };
                    if let Some(session) = session {
                        self.respond_management(session, id, response);
                    }
                    if let Some(target) = cold {
                        self.post_to_all(|| Letter::EndTarget { target });
                    }
                }
            }
            Some(Request::Nobody | Request::Administrator { .. }) => {
                self.close_request(ticket);
            }
            Some(Request::Fence { .. } | Request::Refusal { .. }) | None => {
                debug_assert!(false, "an answer nobody asked for");
            }
        }
    }

    fn answer_task(&mut self, key: TaskKey, reply: Reply, is_complete: bool) {
        let now = self.reactor.now();
        let Some(running) = self.tasks.get_mut(key) else {
            return;
        };
        // A stale answer cannot be: the task keeps its place until the owner has answered.
        debug_assert!(matches!(running.stage, Stage::Owner), "{:?}", running.stage);
        running.enter(Stage::Active, now);
        if running.is_aborted {
            self.close_task(key);
            return;
        }
        let reply = if is_complete {
            reply
        } else {
            Reply::check(NOT_ENDED)
        };
        let unit = running.unit;
        let step = match &mut running.task {
            Some(task) => self.units[unit].view.resume(task, Input::Owner(reply)),
            None => return,
        };
        self.drive(key, step);
    }

    // ---- fences ------------------------------------------------------------------------------

    /// A task asks for blocks of its own.
    pub(crate) fn ask_fence(&mut self, key: TaskKey, blocks: Range<u64>) {
        let since = self.reactor.now();
        let ticket = self.open_request(Request::Fence {
            task: key,
            granted: false,
            since,
        });
        let deadline = since + self.settings.fence_timeout;
        self.fence_deadlines.set(ticket.request, deadline);
        let running = &mut self.tasks[key];
        running.enter(Stage::Fence, since);
        running.fence = Some(ticket);
        let unit = running.unit;
        let owner = self.owner_of(unit);
        self.post(
            owner,
            Letter::FenceWanted {
                unit,
                ticket,
                blocks,
            },
        );
    }

    /// A task that asked for a fence, or held one, is over.
    pub(crate) fn release_fence(&mut self, unit: UnitIndex, ticket: Ticket) {
        self.close_request(ticket);
        let owner = self.owner_of(unit);
        self.post(owner, Letter::FenceDone { unit, ticket });
    }

    pub(crate) fn handle_fence_granted(&mut self, ticket: Ticket) {
        let now = self.reactor.now();
        // The task may have been aborted meanwhile; its letter is on the way to the owner.
        let Some(Request::Fence { task, granted, .. }) = self.request_mut(ticket) else {
            return;
        };
        *granted = true;
        let key = *task;
        let Some(running) = self.tasks.get_mut(key) else {
            return;
        };
        if !matches!(running.stage, Stage::Fence) || running.fence != Some(ticket) {
            return;
        }
        running.enter(Stage::Active, now);
        let unit = running.unit;
        if let Some(task) = &mut running.task {
            let step = self.units[unit].view.resume(task, Input::FenceGranted);
            self.drive(key, step);
        }
    }

    /// Ends those BUSY that have waited too long for their fence.
    pub(crate) fn handle_fence_timeouts(&mut self, now: Duration) {
        let (requests, patience) = (&self.requests, self.settings.fence_timeout);
        let of = |key| Some(requests.get(key)?.fence_wanted_since()? + patience);
        let due: Vec<RequestKey> = iter::from_fn(|| self.fence_deadlines.due(now, of)).collect();
        for request in due {
            if let Some(&Request::Fence { task, .. }) = self.requests.get(request)
                && let Some(running) = self.tasks.get_mut(task)
                && matches!(running.stage, Stage::Fence)
            {
                running.enter(Stage::Active, now);
                self.drive(task, Step::Done(Outcome::status(Status::Busy)));
            }
        }
    }

    pub(crate) fn handle_fence_wanted(
        &mut self,
        unit: UnitIndex,
        holder: Ticket,
        blocks: Range<u64>,
    ) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let number = FenceNumber(owned.next_fence);
        owned.next_fence += 1;
        owned.fences.push(OwnedFence {
            number,
            holder,
            blocks,
            raising: None,
        });
        self.raise_fences(unit);
    }

    /// Raises every fence that no earlier one is in the way of.
    fn raise_fences(&mut self, unit: UnitIndex) {
        let cores = self.posts.len();
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let mut raised = Vec::new();
        for at in 0..owned.fences.len() {
            let (earlier, rest) = owned.fences.split_at_mut(at);
            let Some(fence) = rest.first_mut() else { break };
            let is_free = !earlier
                .iter()
                .any(|other| overlap(&other.blocks, &fence.blocks));
            if fence.raising.is_none() && is_free {
                fence.raising = Some(cores);
                raised.push((fence.number, fence.holder, fence.blocks.clone()));
            }
        }
        for (fence, holder, blocks) in raised {
            self.post_to_all(|| {
                let blocks = blocks.clone();
                Letter::FenceRaise {
                    unit,
                    fence,
                    holder,
                    blocks,
                }
            });
        }
    }

    pub(crate) fn handle_fence_raised(&mut self, unit: UnitIndex, number: FenceNumber) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let Some(fence) = owned.fences.iter_mut().find(|fence| fence.number == number) else {
            return;
        };
        if let Some(left) = &mut fence.raising {
            *left -= 1;
            if *left == 0 {
                let ticket = fence.holder;
                self.post(ticket.core, Letter::FenceGranted { ticket });
            }
        }
    }

    pub(crate) fn handle_fence_done(&mut self, unit: UnitIndex, holder: Ticket) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let Some(at) = owned.fences.iter().position(|fence| fence.holder == holder) else {
            return;
        };
        let fence = owned.fences.remove(at);
        if fence.raising.is_some() {
            self.post_to_all(|| Letter::FenceLower {
                unit,
                fence: fence.number,
            });
        }
        self.raise_fences(unit);
    }

    pub(crate) fn handle_fence_raise(
        &mut self,
        unit: UnitIndex,
        number: FenceNumber,
        holder: Ticket,
        blocks: Range<u64>,
    ) {
        let index = unit;
        let at_work = |running: &crate::running::Running| {
            let range = running.task.as_ref().and_then(scsi::Task::blocks);
            running.unit == index
                && running.is_in_store()
                && running.fence != Some(holder)
                && range.is_some_and(|range| overlap(&range, &blocks))
        };
        let waiting_for: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, running)| at_work(running))
            .map(|(key, _)| key)
            .collect();
        let is_clear = waiting_for.is_empty();
        self.units[index].fences.push(Fence {
            number,
            holder,
            blocks,
            waiting_for,
        });
        if is_clear {
            let owner = self.owner_of(index);
            self.post(
                owner,
                Letter::FenceRaised {
                    unit,
                    fence: number,
                },
            );
        }
    }

    /// A task is over: fences that were waiting for it may be up.
    pub(crate) fn leave_fences(&mut self, unit: UnitIndex, key: TaskKey) {
        let mut up = Vec::new();
        for fence in &mut self.units[unit].fences {
            let before = fence.waiting_for.len();
            fence.waiting_for.retain(|&other| other != key);
            if before > 0 && fence.waiting_for.is_empty() {
                up.push(fence.number);
            }
        }
        let owner = self.owner_of(unit);
        for fence in up {
            self.post(owner, Letter::FenceRaised { unit, fence });
        }
    }

    pub(crate) fn handle_fence_lower(&mut self, unit: UnitIndex, number: FenceNumber) {
        let index = unit;
        self.units[index]
            .fences
            .retain(|fence| fence.number != number);
        // Those that still meet a fence park again.
        for key in std::mem::take(&mut self.units[index].parked) {
            self.retry(key);
        }
    }

    // ---- size --------------------------------------------------------------------------------

    /// Looks at the size of a few stores. Each has one question under way at most, on its own lane, so that a
    /// stuck file system stops neither the core nor the questions to others.
    pub(crate) fn probe_some(&mut self) {
        for _ in 0..PROBES_PER_TICK.min(self.owned.len()) {
            let unit = self.next_probe;
            let next = UnitIndex(unit.0 + 1);
            self.next_probe = if next == self.owned.next() {
                UnitIndex(0)
            } else {
                next
            };
            let Some(owned) = self.owned[unit].as_mut() else {
                continue;
            };
            if owned.is_probing {
                continue;
            }
            match self.units[unit].store.probe() {
                Some(operation) => {
                    owned.is_probing = true;
                    self.reactor
                        .submit_store(Purpose::Probe(unit).token(), operation);
                }
                None => self.take_size(unit, Request::Nobody),
            }
        }
    }

    pub(crate) fn handle_probed(&mut self, unit: UnitIndex, operation: RingOperation, result: i32) {
        self.units[unit].store.handle_probed(operation, result);
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        owned.is_probing = false;
        self.take_size(unit, Request::Nobody);
    }
}
