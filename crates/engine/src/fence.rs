//! Fences on this core: blocks that belong to one task alone until it is over.
//!
//! The owner of the unit raises fences, and all cores get them in the same order. Two that have a block in common
//! are never there together: the later one waits at the owner. What meets a fence on a core:
//!
//! * A task *parks* with its request where a fence has a block of its command, unless the fence is its own or lets it
//!   pass. It stays parked until no fence stops it, or until its deadline, which counts from when it parked first: a
//!   request that waits for memory or for room in its store in between does not get more time. A flush passes.
//! * A fence lets pass, and waits for, the tasks on its blocks that have a request in the store or are parked when it
//!   is raised. It waits for this request and not for the task: when that is back, or waits for anything else, the
//!   task has left the fence, and parks with its next one like any other.
//!
//! So a command in pieces holds a fence up for one piece. And nobody starves: a parked task waits only for fences that
//! were there before it, a fence only for tasks that were there before it. A fence waits for an older one by way of a
//! parked task, and never the other way round on any core, because the order is the same on all; and the holder of a
//! fence works on no blocks but those of the fence, so that it is never parked. So there is no circle. A fence whose
//! holder hangs keeps those that park because of it until their deadline, and these keep younger fences until then:
//! the tasks that wait for those came later and have as much time.

use std::ops::Range;

use marks::sometimes;
use scsi::{Input, WHOLE_MEDIUM};

use crate::agree::{FenceNumber, ToOwner};
use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::TaskKey;
use crate::task::{Fencing, Request, Stage};
use crate::{Ticket, UnitIndex};

impl<C: Carrier> Engine<C> {
    /// A task asks for blocks of its own.
    pub(crate) fn ask_fence(&mut self, key: TaskKey, blocks: Range<u64>) {
        if self.refuse_blocks(key, Some(blocks.clone())) {
            return;
        }
        let ticket = self.open_request(Request::Fence {
            task: key,
            granted: false,
            since: self.now,
        });
        self.enter(key, Stage::Fence);
        let running = &mut self.tasks[key];
        debug_assert!(
            running
                .blocks()
                .is_none_or(|own| blocks.start <= own.start && own.end <= blocks.end),
            "{key:?} would be stopped by the fences of others"
        );
        running.fencing = Fencing::Own(ticket);
        let unit = running.unit;
        self.ask_owner(unit, ToOwner::FenceWanted { ticket, blocks });
    }

    /// A task that asked for a fence, or held one, is over.
    pub(crate) fn release_fence(&mut self, unit: UnitIndex, ticket: Ticket) {
        self.close_request(ticket);
        self.ask_owner(unit, ToOwner::FenceDone { ticket });
    }

    pub(crate) fn handle_fence_granted(&mut self, ticket: Ticket) {
        let (task, granted) = match self.request_mut(ticket) {
            Some(Request::Fence { task, granted, .. }) => (task, granted),
            Some(Request::Medium { .. }) => return self.handle_medium_fenced(ticket),
            // The task may have been aborted meanwhile; its letter is on the way to the owner.
            Some(
                Request::Task(_)
                | Request::Refusal { .. }
                | Request::Management { .. }
                | Request::Administrator { .. },
            )
            | None => return,
        };
        *granted = true;
        let key = *task;
        let is_waiting = self.tasks.get(key).is_some_and(|running| {
            matches!(running.stage, Stage::Fence) && running.fence() == Some(ticket)
        });
        if is_waiting {
            let step = self.resume(key, Input::FenceGranted);
            self.drive(key, step);
        }
    }

    pub(crate) fn handle_fence_raise(
        &mut self,
        unit: UnitIndex,
        number: FenceNumber,
        holder: Ticket,
        blocks: Range<u64>,
    ) {
        let before = self.tasks.iter().filter_map(|(key, running)| {
            let is_at_work = running.is_in_store() && !running.is_idle_orphan();
            let is_meant = running.unit == unit && (is_at_work || running.is_parked());
            let blocks = running.blocks().filter(|_| is_meant)?;
            Some((key, blocks, running.fence()))
        });
        let side = &mut self.units[unit].side;
        let confirmation = side.raise(number, holder, blocks, before);
        self.confirm(unit, confirmation);
    }

    /// The store has no request of a task any more, and none is parked: fences that were waiting for it may be up.
    pub(crate) fn leave_fences(&mut self, unit: UnitIndex, key: TaskKey) {
        debug_assert!(
            self.tasks
                .get(key)
                .is_none_or(|one| !one.is_in_store() || one.is_idle_orphan()),
            "{key:?} may still act, and no fence waits for it"
        );
        for confirmation in self.units[unit].side.leave(key) {
            self.ask_owner(unit, confirmation);
        }
    }

    pub(crate) fn handle_fence_lower(&mut self, unit: UnitIndex, number: FenceNumber) {
        self.units[unit].side.lower(number);
        for key in std::mem::take(&mut self.units[unit].parked) {
            // The end of one before it may have ended this one.
            let Some(running) = self.tasks.get(key) else {
                continue;
            };
            let unit = &mut self.units[unit];
            let blocks = running.blocks().unwrap_or(WHOLE_MEDIUM);
            if unit.side.is_fenced(&blocks, key, running.fence()) {
                sometimes!("a parked command meets a second fence");
                unit.parked.push(key);
            } else if unit.is_leaving {
                sometimes!("a parked command goes on where its unit leaves");
                // Another unit may have its place by now, with another medium. The initiator asks again.
                self.end_parked(key);
            } else {
                sometimes!("a parked command goes on");
                self.retry(key);
            }
        }
    }
}
