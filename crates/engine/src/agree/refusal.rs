//! A unit refuses access while a request of the past may still reach its medium.
//!
//! A request that was to be aborted and is still in the store when its time is over (an orphan)
//! could land after newer data. So its core refuses commands for the unit at once, and asks the
//! owner of the unit to have every core refuse them. Only when all have confirmed may the end of a
//! session, the answer to a task management request or a PREEMPT AND ABORT follow. This is no part
//! of the unit's shared state: it is neither kept nor taken back with a change that could not be
//! kept.

use super::Round;
use crate::Ticket;

/// Which cores have orphans, and who has confirmed.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// Cores with orphans.
    asking: Vec<usize>,
    round: Round,
    /// How many cores have not confirmed this round.
    unconfirmed: usize,
    /// Who is to be answered when all have.
    waiting: Vec<Ticket>,
}

/// What the owner has to do.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// Nothing now.
    Nothing,
    /// Every core refuses access, or allows it, from now on.
    Announce { refuse: bool, round: Round },
    /// These have their answer: every core refuses access.
    Answer(Vec<Ticket>),
}

impl Refusal {
    /// A core has an orphan.
    pub(super) fn ask(&mut self, ticket: Ticket, cores: usize) -> Verdict {
        let is_first = self.asking.is_empty();
        if !self.asking.contains(&ticket.core) {
            self.asking.push(ticket.core);
        }
        if is_first {
            self.round.0 += 1;
            self.unconfirmed = cores;
        }
        if !is_first && self.unconfirmed == 0 {
            return Verdict::Answer(vec![ticket]);
        }
        self.waiting.push(ticket);
        if is_first {
            let round = self.round;
            Verdict::Announce {
                refuse: true,
                round,
            }
        } else {
            Verdict::Nothing
        }
    }

    /// A core has none any more.
    pub(super) fn withdraw(&mut self, core: usize) -> Verdict {
        let before = self.asking.len();
        self.asking.retain(|&other| other != core);
        if before == 0 || !self.asking.is_empty() {
            return Verdict::Nothing;
        }
        self.round.0 += 1;
        self.unconfirmed = 0;
        Verdict::Announce {
            refuse: false,
            round: self.round,
        }
    }

    /// A core refuses access since this round.
    pub(super) fn confirm(&mut self, round: Round) -> Verdict {
        if round != self.round || self.unconfirmed == 0 {
            return Verdict::Nothing;
        }
        self.unconfirmed -= 1;
        if self.unconfirmed > 0 {
            return Verdict::Nothing;
        }
        Verdict::Answer(std::mem::take(&mut self.waiting))
    }

    /// Tickets whose core has no orphan any more: they are answered, too, to be closed.
    pub(super) fn take_withdrawn(&mut self) -> Vec<Ticket> {
        let asking = &self.asking;
        let is_over = |ticket: &mut Ticket| !asking.contains(&ticket.core);
        self.waiting.extract_if(.., is_over).collect()
    }

    /// No core has one.
    pub(super) const fn is_idle(&self) -> bool {
        self.asking.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestNumber;

    const fn ticket(core: usize, request: u64) -> Ticket {
        Ticket {
            core,
            request: RequestNumber(request),
        }
    }

    const fn announce(refuse: bool, round: u64) -> Verdict {
        let round = Round(round);
        Verdict::Announce { refuse, round }
    }

    #[test]
    fn an_asker_is_answered_when_every_core_has_confirmed_and_not_before() {
        let mut refusal = Refusal::default();
        assert_eq!(refusal.ask(ticket(1, 7), 3), announce(true, 1));
        assert_eq!(refusal.confirm(Round(1)), Verdict::Nothing);
        assert_eq!(refusal.confirm(Round(1)), Verdict::Nothing);
        assert_eq!(
            refusal.confirm(Round(1)),
            Verdict::Answer(vec![ticket(1, 7)])
        );
        assert_eq!(refusal.confirm(Round(1)), Verdict::Nothing);
    }

    #[test]
    fn a_second_core_waits_for_the_same_round_or_is_answered_at_once() {
        let mut refusal = Refusal::default();
        assert_eq!(refusal.ask(ticket(0, 1), 2), announce(true, 1));
        assert_eq!(refusal.ask(ticket(1, 2), 2), Verdict::Nothing);
        assert_eq!(refusal.confirm(Round(1)), Verdict::Nothing);
        let both = vec![ticket(0, 1), ticket(1, 2)];
        assert_eq!(refusal.confirm(Round(1)), Verdict::Answer(both));
        assert_eq!(refusal.withdraw(0), Verdict::Nothing);
        assert_eq!(
            refusal.ask(ticket(0, 3), 2),
            Verdict::Answer(vec![ticket(0, 3)])
        );
    }

    #[test]
    fn access_is_allowed_again_when_the_last_core_has_no_orphan() {
        let mut refusal = Refusal::default();
        refusal.ask(ticket(0, 1), 2);
        refusal.ask(ticket(1, 2), 2);
        assert_eq!(refusal.withdraw(0), Verdict::Nothing);
        assert_eq!(refusal.take_withdrawn(), [ticket(0, 1)]);
        assert!(!refusal.is_idle());
        assert_eq!(refusal.withdraw(1), announce(false, 2));
        assert_eq!(refusal.take_withdrawn(), [ticket(1, 2)]);
        assert!(refusal.is_idle());
        assert_eq!(refusal.withdraw(1), Verdict::Nothing);
    }

    #[test]
    fn every_refusal_is_followed_by_its_own_permission() {
        let mut refusal = Refusal::default();
        for time in 0..3 {
            let round = 2 * time + 1;
            assert_eq!(refusal.ask(ticket(1, time), 1), announce(true, round));
            let answer = Verdict::Answer(vec![ticket(1, time)]);
            assert_eq!(refusal.confirm(Round(round)), answer);
            assert_eq!(refusal.withdraw(1), announce(false, round + 1));
            assert!(refusal.take_withdrawn().is_empty() && refusal.is_idle());
        }
    }

    #[test]
    fn a_confirmation_of_an_earlier_round_counts_for_nothing() {
        let mut refusal = Refusal::default();
        refusal.ask(ticket(0, 1), 2);
        assert_eq!(refusal.confirm(Round(1)), Verdict::Nothing);
        assert_eq!(refusal.withdraw(0), announce(false, 2));
        refusal.take_withdrawn();
        assert_eq!(refusal.ask(ticket(0, 2), 2), announce(true, 3));
        assert_eq!(refusal.confirm(Round(1)), Verdict::Nothing);
        assert_eq!(refusal.confirm(Round(3)), Verdict::Nothing);
        assert_eq!(
            refusal.confirm(Round(3)),
            Verdict::Answer(vec![ticket(0, 2)])
        );
    }
}
