//! A unit refuses access while a request of the past may still reach its medium.
//!
//! A request that was to be aborted and is still in the store when its time is over (an orphan)
//! could land after newer data. So its core refuses commands for the unit at once, and asks the
//! owner of the unit to have every core refuse them. Only when all have confirmed may the end of a
//! session, the answer to a task management request or a PREEMPT AND ABORT follow; until then the
//! wait goes on. What is decided about that is in [`crate::agree`].

use crate::agree::Round;
use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::WaitKey;
use crate::task::Request;
use crate::{Ticket, UnitIndex};

impl<C: Carrier> Engine<C> {
    /// One more orphan of a unit: nothing new starts here from this moment on.
    pub(crate) fn add_orphan(&mut self, unit: UnitIndex) {
        // The first one asks the owner.
        let is_first = self.units[unit].side.orphans() == 0;
        let ticket = is_first.then(|| self.open_request(Request::Refusal { unit }));
        let question = self.units[unit].side.add_orphan(ticket);
        self.settle_access(unit);
        self.confirm(unit, question);
    }

    /// An orphan has come back.
    pub(crate) fn end_orphan(&mut self, unit: UnitIndex) {
        let core = self.settings.core;
        let Some((message, waits)) = self.units[unit].side.end_orphan(core) else {
            return;
        };
        self.settle_access(unit);
        self.ask_owner(unit, message);
        for wait in waits {
            self.count_down(wait);
        }
    }

    /// A wait goes on until every core refuses access to the unit. One thing more that it waits
    /// for, unless that is so already.
    pub(crate) fn await_refusal(&mut self, unit: UnitIndex, wait: WaitKey) {
        if self.units[unit].side.await_refusal(wait)
            && let Some(waiting) = self.waits.get_mut(wait)
        {
            waiting.tasks_left += 1;
        }
    }

    /// A wait ends before that.
    pub(crate) fn leave_refusals(&mut self, wait: WaitKey) {
        for unit in self.units.values_mut() {
            unit.side.leave_refusal(wait);
        }
    }

    fn settle_access(&mut self, unit: UnitIndex) {
        let unit = &mut self.units[unit];
        unit.view.refuse_access(unit.side.refuses_access());
    }

    pub(crate) fn handle_set_access_refused(
        &mut self,
        unit: UnitIndex,
        refuse: bool,
        round: Round,
    ) {
        let confirmation = self.units[unit].side.set_refused(refuse, round);
        self.settle_access(unit);
        self.confirm(unit, confirmation);
    }

    /// The owner's answer: every core refuses access to the unit.
    pub(crate) fn handle_access_refused(&mut self, ticket: Ticket) {
        let Some(Request::Refusal { unit }) = self.request_mut(ticket) else {
            debug_assert!(false, "an answer nobody asked for");
            return;
        };
        let unit = *unit;
        self.close_request(ticket);
        for wait in self.units[unit].side.handle_access_refused(ticket) {
            self.count_down(wait);
        }
    }
}
