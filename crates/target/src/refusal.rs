//! A unit refuses access while a request of the past may still reach its medium.
//!
//! A request that was to be aborted and is still in the store when its time is over (an orphan)
//! could land after newer data. So its core refuses commands for the unit at once, and asks the
//! owner of the unit to have every core refuse them. Only when all have confirmed may the end of a
//! session, the answer to a task management request or a PREEMPT AND ABORT follow; until then the
//! wait goes on. The owner's side of it is in `engine::agree`.

use engine::Ticket;
use engine::agree::{Round, ToOwner};

use crate::core::Core;
use crate::plan::UnitIndex;
use crate::running::{Request, WaitKey};

/// One core's side, for one unit.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    /// Requests that nobody waits for any longer, but which may still take effect.
    pub(crate) count: usize,
    /// Another core, or this one, has some: said by the owner.
    is_refused: bool,
    /// What was asked of the owner, until that has answered.
    asked: Option<Ticket>,
    /// Every core refuses access.
    stands: bool,
    /// Who goes on when that is so, or when there are no orphans any more.
    waits: Vec<WaitKey>,
}

impl Core {
    /// One more orphan of a unit: nothing new starts here from this moment on.
    pub(crate) fn add_orphan(&mut self, unit: UnitIndex) {
        self.units[unit].orphans.count += 1;
        if self.units[unit].orphans.count > 1 {
            return;
        }
        self.settle_access(unit);
        let ticket = self.open_request(Request::Refusal { unit });
        let orphans = &mut self.units[unit].orphans;
        (orphans.asked, orphans.stands) = (Some(ticket), false);
        self.ask_owner(unit, ToOwner::RefuseAccess { ticket });
    }

    /// An orphan has come back.
    pub(crate) fn end_orphan(&mut self, unit: UnitIndex) {
        let orphans = &mut self.units[unit].orphans;
        debug_assert!(
            orphans.count > 0,
            "an orphan more comes back than there are"
        );
        orphans.count = orphans.count.saturating_sub(1);
        if orphans.count > 0 {
            return;
        }
        (orphans.asked, orphans.stands) = (None, false);
        let waits = std::mem::take(&mut orphans.waits);
        self.settle_access(unit);
        let core = self.index;
        self.ask_owner(unit, ToOwner::AllowAccess { core });
        // Nothing may land any more, so there is nothing to be confirmed.
        for wait in waits {
            self.count_down(wait);
        }
    }

    /// A wait goes on until every core refuses access to the unit. One thing more that it waits
    /// for, unless that is so already.
    pub(crate) fn await_refusal(&mut self, unit: UnitIndex, wait: WaitKey) {
        let orphans = &mut self.units[unit].orphans;
        if orphans.stands || orphans.waits.contains(&wait) {
            return;
        }
        orphans.waits.push(wait);
        if let Some(waiting) = self.waits.get_mut(wait) {
            waiting.tasks_left += 1;
        }
    }

    /// A wait ends before that.
    pub(crate) fn leave_refusals(&mut self, wait: WaitKey) {
        for unit in self.units.values_mut() {
            unit.orphans.waits.retain(|&other| other != wait);
        }
    }

    fn settle_access(&mut self, unit: UnitIndex) {
        let unit = &mut self.units[unit];
        let refuses = unit.orphans.is_refused || unit.orphans.count > 0;
        unit.view.refuse_access(refuses);
    }

    pub(crate) fn handle_set_access_refused(
        &mut self,
        unit: UnitIndex,
        refuse: bool,
        round: Round,
    ) {
        self.units[unit].orphans.is_refused = refuse;
        self.settle_access(unit);
        if refuse {
            self.ask_owner(unit, ToOwner::RefusalConfirmed { round });
        }
    }

    /// The owner's answer: every core refuses access to the unit.
    pub(crate) fn handle_access_refused(&mut self, ticket: Ticket) {
        let Some(Request::Refusal { unit }) = self.request_mut(ticket) else {
            debug_assert!(false, "an answer nobody asked for");
            return;
        };
        let unit = *unit;
        self.close_request(ticket);
        let orphans = &mut self.units[unit].orphans;
        if orphans.asked != Some(ticket) {
            // They have come back since, and others may have been left.
            return;
        }
        (orphans.asked, orphans.stands) = (None, true);
        for wait in std::mem::take(&mut orphans.waits) {
            self.count_down(wait);
        }
    }
}
