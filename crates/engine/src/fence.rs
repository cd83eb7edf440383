//! Fences on this core: blocks that belong to one task alone until it is over.

use std::ops::Range;

use scsi::Input;

use crate::agree::{FenceNumber, ToOwner};
use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::TaskKey;
use crate::task::{Request, Stage};
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
        debug_assert!(running.fence.is_none(), "{key:?} has a fence already");
        debug_assert!(!blocks.is_empty(), "{key:?} wants no blocks");
        running.fence = Some(ticket);
        let unit = running.unit;
        self.ask_owner(unit, ToOwner::FenceWanted { ticket, blocks });
    }

    /// A task that asked for a fence, or held one, is over.
    pub(crate) fn release_fence(&mut self, unit: UnitIndex, ticket: Ticket) {
        let request = self.close_request(ticket);
        debug_assert!(
            matches!(request, Some(Request::Fence { .. })),
            "{request:?}"
        );
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
        debug_assert!(!*granted, "a fence is granted twice");
        *granted = true;
        let key = *task;
        let is_waiting = self.tasks.get(key).is_some_and(|running| {
            matches!(running.stage, Stage::Fence) && running.fence == Some(ticket)
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
        let at_work = self.tasks.iter().filter_map(|(key, running)| {
            let is_at_work = running.is_in_store() && !running.is_idle_orphan();
            let is_meant = running.unit == unit && is_at_work;
            let blocks = running.blocks().filter(|_| is_meant)?;
            Some((key, blocks, running.fence))
        });
        let side = &mut self.units[unit].side;
        let confirmation = side.raise(number, holder, blocks, at_work);
        self.confirm(unit, confirmation);
    }

    /// A task is over: fences that were waiting for it may be up.
    pub(crate) fn leave_fences(&mut self, unit: UnitIndex, key: TaskKey) {
        for confirmation in self.units[unit].side.end_task(key) {
            self.ask_owner(unit, confirmation);
        }
    }

    pub(crate) fn handle_fence_lower(&mut self, unit: UnitIndex, number: FenceNumber) {
        self.units[unit].side.lower(number);
        // Those that still meet a fence park again.
        for key in std::mem::take(&mut self.units[unit].parked) {
            self.retry(key);
        }
    }
}
