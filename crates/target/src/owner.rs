//! Changes of a unit's shared state, and fences: what the owner of the unit decides
//! (`engine::agree`) is carried to every core, and done there.

use std::iter;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use engine::Ticket;
use engine::agree::{FenceNumber, Order, ToCore, ToOwner, UnitOwner, Update};
use iscsi::pdu::TaskManagementResponse;
use scsi::{
    Change, Input, Nexus, NexusSlot, Outcome, Reply, Sense, SenseCode, SenseKey, Shared, Status,
    Step, Who,
};
use store::{HelperAnswer, HelperOperation, IoFailure, RingOperation};

use crate::core::{Core, request_key};
use crate::letter::Letter;
use crate::plan::UnitIndex;
use crate::running::{Request, RequestKey, Stage, TaskKey, Then};
use crate::token::Purpose;
use crate::watcher::Happening;

/// How many stores are looked at per tick, so that many units cost no more than few.
const PROBES_PER_TICK: usize = 8;

/// A change that happened, but tasks it had to end are still in the store.
const NOT_ENDED: Sense = Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);

impl Core {
    /// Asks the owner of a unit for something, or tells it something.
    pub(crate) fn ask_owner(&mut self, unit: UnitIndex, message: ToOwner) {
        let owner = self.owner_of(unit);
        self.post(owner, Letter::ToOwner { unit, message });
    }

    /// Asks the owner of a unit for a change; the answer comes with the ticket.
    pub(crate) fn ask_change(&mut self, unit: UnitIndex, ticket: Ticket, change: Change) {
        self.ask_owner(unit, ToOwner::Change { ticket, change });
    }

    // ---- the owner's side --------------------------------------------------------------------

    pub(crate) fn handle_to_owner(&mut self, unit: UnitIndex, message: ToOwner) {
        let now = self.reactor.now();
        if let Some(owned) = self.owned[unit].as_mut() {
            owned.unit.handle(message, now);
            self.carry_orders_out(unit);
        } else if let Some((core, message)) = message.answer_of_the_gone() {
            self.post(core, Letter::FromOwner { unit, message });
        }
    }

    fn carry_orders_out(&mut self, unit: UnitIndex) {
        while let Some(order) = self.owned[unit]
            .as_mut()
            .and_then(|it| it.unit.poll_order())
        {
            match order {
                Order::Post { core, message } => {
                    self.post(core, Letter::FromOwner { unit, message });
                }
                Order::PostToAll(message) => self.post_to_all(|| Letter::FromOwner {
                    unit,
                    message: message.clone(),
                }),
                Order::Keep(state) => self.keep(unit, state),
                Order::TellNotKept => {
                    let unit = &self.units[unit].name;
                    self.watcher.hear(&Happening::StateNotKept { unit });
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

    /// The state of a unit is on stable storage, or could not be put there.
    pub(crate) fn handle_kept(&mut self, unit: UnitIndex, is_safe: bool) {
        let now = self.reactor.now();
        if let Some(owned) = self.owned[unit].as_mut() {
            owned.unit.handle_kept(is_safe, now);
            self.carry_orders_out(unit);
        }
    }

    /// Answers changes that have waited too long. Called once a tick.
    pub(crate) fn end_overdue_changes(&mut self, now: Duration) {
        for unit in self.units.units() {
            let owner = self.owned[unit].as_mut().map(|owned| &mut owned.unit);
            let is_due = |owner: &&mut UnitOwner| owner.poll_timeout().is_some_and(|at| at <= now);
            if let Some(owner) = owner.filter(is_due) {
                owner.handle_timeout(now);
                self.carry_orders_out(unit);
            }
        }
    }

    // ---- every core's side -------------------------------------------------------------------

    pub(crate) fn handle_from_owner(&mut self, unit: UnitIndex, message: ToCore) {
        match message {
            ToCore::Changed {
                ticket,
                reply,
                is_complete,
            } => self.handle_changed(ticket, reply, is_complete),
            ToCore::Install { shared, update } => self.handle_install(unit, &shared, &update),
            ToCore::SetAccessRefused { refuse, round } => {
                self.handle_set_access_refused(unit, refuse, round);
            }
            ToCore::AccessRefused { ticket } => self.handle_access_refused(ticket),
            ToCore::FenceRaise {
                fence,
                holder,
                blocks,
            } => self.handle_fence_raise(unit, fence, holder, blocks),
            ToCore::FenceGranted { ticket } => self.handle_fence_granted(ticket),
            ToCore::FenceLower { fence } => self.handle_fence_lower(unit, fence),
        }
    }

    // ---- changes -----------------------------------------------------------------------------

    fn handle_install(&mut self, unit: UnitIndex, shared: &Arc<Shared>, update: &Update) {
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
    fn handle_changed(&mut self, ticket: Ticket, reply: Reply, is_complete: bool) {
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
        self.fence_deadlines.set(request_key(ticket), deadline);
        let running = &mut self.tasks[key];
        running.enter(Stage::Fence, since);
        running.fence = Some(ticket);
        let unit = running.unit;
        self.ask_owner(unit, ToOwner::FenceWanted { ticket, blocks });
    }

    /// A task that asked for a fence, or held one, is over.
    pub(crate) fn release_fence(&mut self, unit: UnitIndex, ticket: Ticket) {
        self.close_request(ticket);
        self.ask_owner(unit, ToOwner::FenceDone { ticket });
    }

    fn handle_fence_granted(&mut self, ticket: Ticket) {
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

    fn handle_fence_raise(
        &mut self,
        unit: UnitIndex,
        number: FenceNumber,
        holder: Ticket,
        blocks: Range<u64>,
    ) {
        let at_work = self.tasks.iter().filter_map(|(key, running)| {
            let is_meant = running.unit == unit && running.is_in_store();
            let task = running.task.as_ref().filter(|_| is_meant)?;
            Some((key, task.blocks()?, running.fence))
        });
        let side = &mut self.units[unit].side;
        if let Some(confirmation) = side.raise(number, holder, blocks, at_work) {
            self.ask_owner(unit, confirmation);
        }
    }

    /// A task is over: fences that were waiting for it may be up.
    pub(crate) fn leave_fences(&mut self, unit: UnitIndex, key: TaskKey) {
        for confirmation in self.units[unit].side.end_task(key) {
            self.ask_owner(unit, confirmation);
        }
    }

    fn handle_fence_lower(&mut self, unit: UnitIndex, number: FenceNumber) {
        self.units[unit].side.lower(number);
        // Those that still meet a fence park again.
        for key in std::mem::take(&mut self.units[unit].parked) {
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
