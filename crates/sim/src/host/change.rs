//! Changes of the unit's shared state, and fences: what the owner decides (`engine::agree`, as it
//! ships) is carried to every core, and done there.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use engine::Ticket;
use engine::agree::{FenceNumber, Order, Patience, ToCore, ToOwner, UnitOwner, Update};
use scsi::{Input, Nexus, Outcome, Owner, Reply, Sense, SenseCode, SenseKey, Shared, Status, Step};

use super::core::{Core, Request, Stage, Then};
use super::{Letter, Settings};

/// Changes wait and are kept for this many times what an abort may take.
const CHANGE_PATIENCE: u32 = 3;

/// A change that happened, but tasks it had to end are still in the store.
const NOT_ENDED: Sense = Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);

/// What the owner has.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) unit: UnitOwner,
    /// What was last kept is of a change that did not happen, and could not be replaced.
    pub(super) is_kept_state_old: bool,
}

impl Owned {
    pub(super) fn new(owner: Owner, settings: &Settings) -> Self {
        let patience = Patience {
            change: settings.abort_timeout * CHANGE_PATIENCE,
        };
        Self {
            unit: UnitOwner::new(owner, settings.cores, patience),
            is_kept_state_old: false,
        }
    }
}

impl Core {
    /// To the owner of the unit, which is core 0.
    pub(super) fn ask_owner(&mut self, message: ToOwner) {
        self.post(0, Letter::ToOwner(Box::new(message)));
    }

    pub(super) fn handle_to_owner(&mut self, message: ToOwner) {
        let now = self.now;
        if let Some(owned) = &mut self.owned {
            owned.unit.handle(message, now);
            self.carry_orders_out();
        }
    }

    fn carry_orders_out(&mut self) {
        while let Some(order) = self.owned.as_mut().and_then(|it| it.unit.poll_order()) {
            match order {
                Order::Post { core, message } => self.post(core, Letter::FromOwner(message)),
                Order::PostToAll(message) => {
                    self.post_to_all(|| Letter::FromOwner(message.clone()));
                }
                Order::Keep(state) => {
                    debug_assert!(self.to_keep.is_none(), "one state at a time is made safe");
                    self.to_keep = Some(state);
                }
                Order::TellNotKept => {}
            }
        }
    }

    pub(super) fn handle_kept(&mut self, state: Vec<u8>, is_safe: bool, now: Duration) {
        self.now = now;
        if let Some(owned) = &mut self.owned {
            let was_in_force = state == owned.unit.kept_state();
            owned.is_kept_state_old = !is_safe && (was_in_force || owned.is_kept_state_old);
            if is_safe {
                self.kept = Some(state);
            }
            owned.unit.handle_kept(is_safe, now);
            self.carry_orders_out();
        }
    }

    pub(super) fn time_out_changes(&mut self) {
        let now = self.now;
        if let Some(owned) = &mut self.owned {
            owned.unit.handle_timeout(now);
            self.carry_orders_out();
        }
    }

    pub(super) fn handle_from_owner(&mut self, message: ToCore) {
        match message {
            ToCore::Changed {
                ticket,
                reply,
                is_complete,
            } => self.handle_changed(ticket, reply, is_complete),
            ToCore::Install { shared, update } => self.install(&shared, &update),
            ToCore::SetAccessRefused { refuse, round } => {
                let confirmation = self.side.set_refused(refuse, round);
                self.settle_access();
                if let Some(confirmation) = confirmation {
                    self.ask_owner(confirmation);
                }
            }
            ToCore::AccessRefused { ticket } => self.handle_access_refused(ticket),
            ToCore::FenceRaise {
                fence,
                holder,
                blocks,
            } => self.raise_fence(fence, holder, blocks),
            ToCore::FenceGranted { ticket } => self.handle_fence_granted(ticket),
            ToCore::FenceLower { fence } => self.lower_fence(fence),
        }
    }

    fn install(&mut self, shared: &Arc<Shared>, update: &Update) {
        if update.changes_state {
            self.view.install(shared, &update.notices);
        }
        let nexuses: Vec<Nexus> = self
            .view
            .nexuses()
            .map(|(_, nexus)| nexus.clone())
            .collect();
        let is_meant = |id| {
            let nexus = nexuses.iter().find(|nexus| nexus.id == id);
            nexus.is_some_and(|nexus| update.abort.iter().any(|who| who.is(nexus)))
        };
        let mut keys = Vec::new();
        for (&key, running) in &mut self.tasks {
            if !is_meant(running.nexus) {
                continue;
            }
            match running.stage {
                // The change itself, which goes on, and those behind it in the queue of the owner:
                // it cannot wait for them, but they will not be answered.
                Stage::Owner(ticket) => running.is_aborted |= ticket != update.ticket,
                Stage::Active
                | Stage::Dormant(_)
                | Stage::DataOut
                | Stage::Store
                | Stage::StoreFull(_)
                | Stage::Parked(_)
                | Stage::Memory(_)
                | Stage::Fence => keys.push(key),
            }
        }
        self.abort_tasks(&keys, Then::Installed);
    }

    pub(super) fn handle_changed(&mut self, ticket: Ticket, reply: Reply, is_complete: bool) {
        match self.requests.remove(&ticket.request.0) {
            Some(Request::Task(key)) => {
                let is_aborted = self.tasks.get(&key).is_some_and(|task| task.is_aborted);
                if is_aborted {
                    self.close_task(key);
                } else if self.tasks.contains_key(&key) {
                    let step = if is_complete {
                        self.resume(key, Input::Owner(reply))
                    } else {
                        self.resume(key, Input::Owner(Reply::check(NOT_ENDED)))
                    };
                    self.drive(key, step);
                }
            }
            Some(Request::Management(tsih, id)) => self.answer_management(tsih, id, is_complete),
            Some(Request::Nobody | Request::Fence { .. } | Request::Refusal) | None => {}
        }
    }

    // ---- fences ------------------------------------------------------------------------------

    pub(super) fn ask_fence(&mut self, key: u64, blocks: Range<u64>) {
        let request = Request::Fence {
            task: key,
            is_granted: false,
            since: self.now,
        };
        let ticket = self.open_request(request);
        self.set_stage(key, Stage::Fence);
        if let Some(running) = self.tasks.get_mut(&key) {
            running.fence = Some(ticket);
        }
        self.ask_owner(ToOwner::FenceWanted { ticket, blocks });
    }

    fn raise_fence(&mut self, number: FenceNumber, holder: Ticket, blocks: Range<u64>) {
        let at_work = self.tasks.iter().filter_map(|(&key, running)| {
            let is_meant = matches!(running.stage, Stage::Store);
            let task = running.task.as_ref().filter(|_| is_meant)?;
            Some((key, task.blocks()?, running.fence))
        });
        if let Some(confirmation) = self.side.raise(number, holder, blocks, at_work) {
            self.ask_owner(confirmation);
        }
    }

    pub(super) fn handle_fence_granted(&mut self, ticket: Ticket) {
        if let Some(Request::Fence {
            task, is_granted, ..
        }) = self.requests.get_mut(&ticket.request.0)
        {
            *is_granted = true;
            let key = *task;
            let step = self.resume(key, Input::FenceGranted);
            self.drive(key, step);
        }
    }

    fn lower_fence(&mut self, number: FenceNumber) {
        self.side.lower(number);
        for key in std::mem::take(&mut self.parked) {
            self.retry(key);
        }
    }

    /// Whether a task may not start on its blocks now.
    pub(super) fn is_fenced(&self, key: u64) -> bool {
        let Some(running) = self.tasks.get(&key) else {
            return false;
        };
        let Some(blocks) = running.task.as_ref().and_then(scsi::Task::blocks) else {
            return false;
        };
        self.side.is_fenced(&blocks, key, running.fence)
    }

    /// A task is over: fences that waited for it may be up.
    pub(super) fn leave_fences(&mut self, key: u64) {
        for confirmation in self.side.end_task(key) {
            self.ask_owner(confirmation);
        }
    }

    pub(super) fn time_out_fences(&mut self) {
        let (now, timeout) = (self.now, self.settings.fence_timeout);
        let late = self.requests.values().filter_map(|request| match request {
            Request::Fence {
                task,
                is_granted: false,
                since,
            } if now >= *since + timeout => Some(*task),
            Request::Fence { .. }
            | Request::Task(_)
            | Request::Management(..)
            | Request::Refusal
            | Request::Nobody => None,
        });
        let late: Vec<u64> = late.collect();
        for key in late {
            self.drive(key, Step::Done(Outcome::status(Status::Busy)));
        }
    }
}
