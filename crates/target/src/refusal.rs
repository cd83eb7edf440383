//! A unit refuses access while a request of the past may still reach its medium.
//!
//! A request that was to be aborted and is still in the store when its time is over (an orphan)
//! could land after newer data. So its core refuses commands for the unit at once, and asks the
//! owner of the unit to have every core refuse them. Only when all have confirmed may the end of a
//! session, the answer to a task management request or a PREEMPT AND ABORT follow; until then the
//! wait goes on. This is no part of the unit's shared state: it is neither kept nor taken back with
//! a change that could not be kept.

use crate::core::Core;
use crate::letter::{Letter, Ticket};
use crate::plan::UnitIndex;
use crate::running::{Request, WaitKey};

/// The owner's side, pure: which cores have orphans, and who has confirmed.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// Cores with orphans.
    asking: Vec<usize>,
    /// Counts the changes between refusing and not, so that a late confirmation is known as one.
    round: u64,
    /// How many cores have not confirmed this round.
    unconfirmed: usize,
    /// Who is to be answered when all have.
    waiting: Vec<Ticket>,
}

/// What the owner has to do.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// Nothing now.
    Nothing,
    /// Every core refuses access, or allows it, from now on.
    Announce { refuse: bool, round: u64 },
    /// These have their answer: every core refuses access.
    Answer(Vec<Ticket>),
}

impl Refusal {
    /// A core has an orphan.
    pub(crate) fn ask(&mut self, ticket: Ticket, cores: usize) -> Order {
        let is_first = self.asking.is_empty();
        if !self.asking.contains(&ticket.core) {
            self.asking.push(ticket.core);
        }
        if is_first {
            self.round += 1;
            self.unconfirmed = cores;
        }
        if !is_first && self.unconfirmed == 0 {
            return Order::Answer(vec![ticket]);
        }
        self.waiting.push(ticket);
        if is_first {
            let round = self.round;
            Order::Announce {
                refuse: true,
                round,
            }
        } else {
            Order::Nothing
        }
    }

    /// A core has none any more.
    pub(crate) fn withdraw(&mut self, core: usize) -> Order {
        let before = self.asking.len();
        self.asking.retain(|&other| other != core);
        if before == 0 || !self.asking.is_empty() {
            return Order::Nothing;
        }
        self.round += 1;
        self.unconfirmed = 0;
        Order::Announce {
            refuse: false,
            round: self.round,
        }
    }

    /// A core refuses access since this round.
    pub(crate) fn confirm(&mut self, round: u64) -> Order {
        if round != self.round || self.unconfirmed == 0 {
            return Order::Nothing;
        }
        self.unconfirmed -= 1;
        if self.unconfirmed > 0 {
            return Order::Nothing;
        }
        Order::Answer(std::mem::take(&mut self.waiting))
    }

    /// Tickets whose core has no orphan any more: they are answered, too, to be closed.
    pub(crate) fn take_withdrawn(&mut self) -> Vec<Ticket> {
        let asking = &self.asking;
        let is_over = |ticket: &mut Ticket| !asking.contains(&ticket.core);
        self.waiting.extract_if(.., is_over).collect()
    }
}

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
        let owner = self.owner_of(unit);
        self.post(owner, Letter::RefuseAccess { unit, ticket });
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
        let (owner, core) = (self.owner_of(unit), self.index);
        self.post(owner, Letter::AllowAccess { unit, core });
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

    // ---- the owner's side --------------------------------------------------------------------

    pub(crate) fn handle_refuse_access(&mut self, unit: UnitIndex, ticket: Ticket) {
        let cores = self.posts.len();
        match self.owned[unit].as_mut() {
            Some(owned) => {
                let order = owned.refusal.ask(ticket, cores);
                self.carry_refusal_out(unit, order);
            }
            // The unit has gone meanwhile, and with it what could land on it.
            None => self.post(ticket.core, Letter::AccessRefused { ticket }),
        }
    }

    pub(crate) fn handle_allow_access(&mut self, unit: UnitIndex, core: usize) {
        let Some(owned) = self.owned[unit].as_mut() else {
            return;
        };
        let order = owned.refusal.withdraw(core);
        let withdrawn = owned.refusal.take_withdrawn();
        self.carry_refusal_out(unit, order);
        self.carry_refusal_out(unit, Order::Answer(withdrawn));
    }

    pub(crate) fn handle_refusal_confirmed(&mut self, unit: UnitIndex, round: u64) {
        if let Some(owned) = self.owned[unit].as_mut() {
            let order = owned.refusal.confirm(round);
            self.carry_refusal_out(unit, order);
        }
    }

    fn carry_refusal_out(&mut self, unit: UnitIndex, order: Order) {
        match order {
            Order::Nothing => {}
            Order::Announce { refuse, round } => {
                self.post_to_all(|| Letter::SetAccessRefused {
                    unit,
                    refuse,
                    round,
                });
            }
            Order::Answer(tickets) => {
                for ticket in tickets {
                    self.post(ticket.core, Letter::AccessRefused { ticket });
                }
            }
        }
    }

    // ---- every core's side -------------------------------------------------------------------

    pub(crate) fn handle_set_access_refused(&mut self, unit: UnitIndex, refuse: bool, round: u64) {
        let index = unit;
        self.units[index].orphans.is_refused = refuse;
        self.settle_access(index);
        if refuse {
            let owner = self.owner_of(index);
            self.post(owner, Letter::RefusalConfirmed { unit, round });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::RequestKey;

    const fn ticket(core: usize, request: u64) -> Ticket {
        Ticket {
            core,
            request: RequestKey::from_bits(request),
        }
    }

    const fn announce(refuse: bool, round: u64) -> Order {
        Order::Announce { refuse, round }
    }

    #[test]
    fn an_asker_is_answered_when_every_core_has_confirmed_and_not_before() {
        let mut refusal = Refusal::default();
        assert_eq!(refusal.ask(ticket(1, 7), 3), announce(true, 1));
        assert_eq!(refusal.confirm(1), Order::Nothing);
        assert_eq!(refusal.confirm(1), Order::Nothing);
        assert_eq!(refusal.confirm(1), Order::Answer(vec![ticket(1, 7)]));
        assert_eq!(refusal.confirm(1), Order::Nothing);
    }

    #[test]
    fn a_second_core_waits_for_the_same_round_or_is_answered_at_once() {
        let mut refusal = Refusal::default();
        assert_eq!(refusal.ask(ticket(0, 1), 2), announce(true, 1));
        assert_eq!(refusal.ask(ticket(1, 2), 2), Order::Nothing);
        assert_eq!(refusal.confirm(1), Order::Nothing);
        let both = vec![ticket(0, 1), ticket(1, 2)];
        assert_eq!(refusal.confirm(1), Order::Answer(both));
        assert_eq!(refusal.withdraw(0), Order::Nothing);
        assert_eq!(
            refusal.ask(ticket(0, 3), 2),
            Order::Answer(vec![ticket(0, 3)])
        );
    }

    #[test]
    fn access_is_allowed_again_when_the_last_core_has_no_orphan() {
        let mut refusal = Refusal::default();
        refusal.ask(ticket(0, 1), 2);
        refusal.ask(ticket(1, 2), 2);
        assert_eq!(refusal.withdraw(0), Order::Nothing);
        assert_eq!(refusal.take_withdrawn(), [ticket(0, 1)]);
        assert_eq!(refusal.withdraw(1), announce(false, 2));
        assert_eq!(refusal.take_withdrawn(), [ticket(1, 2)]);
        assert_eq!(refusal.withdraw(1), Order::Nothing);
    }

    #[test]
    fn a_confirmation_of_an_earlier_round_counts_for_nothing() {
        let mut refusal = Refusal::default();
        refusal.ask(ticket(0, 1), 2);
        assert_eq!(refusal.confirm(1), Order::Nothing);
        assert_eq!(refusal.withdraw(0), announce(false, 2));
        refusal.take_withdrawn();
        assert_eq!(refusal.ask(ticket(0, 2), 2), announce(true, 3));
        assert_eq!(refusal.confirm(1), Order::Nothing);
        assert_eq!(refusal.confirm(3), Order::Nothing);
        assert_eq!(refusal.confirm(3), Order::Answer(vec![ticket(0, 2)]));
    }
}
