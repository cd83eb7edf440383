//! No core touches blocks that a request of the past may still write.
//!
//! A request that was to be aborted and is still in the store when its time is over (an orphan)
//! could land after newer data. So its core refuses commands on those blocks at once, and asks the
//! owner of the unit to have every core refuse them. Only when all have confirmed may the end of a
//! session, the answer to a task management request or a PREEMPT AND ABORT follow. This is no part
//! of the unit's shared state: it is neither kept nor taken back with a change that could not be
//! kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{BlockSet, Round};
use crate::Ticket;

/// What each core has said, and who has confirmed what.
#[derive(Debug)]
pub(super) struct Refusal {
    /// What cores with orphans have named.
    named: BTreeMap<usize, BlockSet>,
    /// All of that, as it was announced last.
    announced: Arc<BlockSet>,
    round: Round,
    /// The last round that each core has confirmed.
    confirmed: Vec<Round>,
    /// Who is to be answered when all have confirmed the round, in order.
    waiting: VecDeque<(Round, Ticket)>,
}

/// What the owner has to do.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Verdict {
    /// Every core refuses access to these blocks, and to no others, from now on.
    pub(super) announce: Option<(Arc<BlockSet>, Round)>,
    /// These have their answer: every core refuses access to what they have named.
    pub(super) answer: Vec<Ticket>,
}

impl Refusal {
    /// Of a unit that so many cores have a view of.
    pub(super) fn new(cores: usize) -> Self {
        Self {
            named: BTreeMap::new(),
            announced: Arc::default(),
            round: Round::default(),
            confirmed: vec![Round::default(); cores],
            waiting: VecDeque::new(),
        }
    }

    /// A core names what its orphans may still write, instead of what it has named before.
    pub(super) fn name(
        &mut self,
        core: usize,
        blocks: BlockSet,
        ticket: Option<Ticket>,
    ) -> Verdict {
        debug_assert!(
            ticket.is_none() || !blocks.is_empty(),
            "{ticket:?} asks for nothing to be refused"
        );
        if blocks.is_empty() {
            self.named.remove(&core);
        } else {
            self.named.insert(core, blocks);
        }
        let named = self.named.values().flat_map(BlockSet::ranges);
        let all: BlockSet = named.cloned().collect();
        let mut announce = None;
        if all != *self.announced {
            self.round.0 += 1;
            self.announced = Arc::new(all);
            announce = Some((Arc::clone(&self.announced), self.round));
        }
        let round = self.round;
        self.waiting.extend(ticket.map(|ticket| (round, ticket)));
        Verdict {
            announce,
            answer: self.take_confirmed(),
        }
    }

    /// A core refuses what was announced in this round.
    pub(super) fn confirm(&mut self, core: usize, round: Round) -> Verdict {
        debug_assert!(
            round <= self.round,
            "core {core} confirms {round:?}, which was not announced"
        );
        if let Some(last) = self.confirmed.get_mut(core) {
            debug_assert!(*last < round, "core {core} confirms {round:?} twice");
            *last = round;
        }
        Verdict {
            announce: None,
            answer: self.take_confirmed(),
        }
    }

    /// Questions that every core has confirmed.
    fn take_confirmed(&mut self) -> Vec<Ticket> {
        let least = self.confirmed.iter().min().copied().unwrap_or_default();
        let open = self.waiting.iter().position(|(round, _)| *round > least);
        let confirmed = self.waiting.drain(..open.unwrap_or(self.waiting.len()));
        confirmed.map(|(_, ticket)| ticket).collect()
    }

    /// No core has orphans that may write.
    pub(super) fn is_idle(&self) -> bool {
        self.named.is_empty()
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

    fn blocks(ranges: &[(u64, u64)]) -> BlockSet {
        ranges.iter().map(|&(start, end)| start..end).collect()
    }

    fn announce(ranges: &[(u64, u64)], round: u64) -> Verdict {
        Verdict {
            announce: Some((Arc::new(blocks(ranges)), Round(round))),
            answer: Vec::new(),
        }
    }

    fn answer(tickets: &[Ticket]) -> Verdict {
        Verdict {
            announce: None,
            answer: tickets.to_vec(),
        }
    }

    #[test]
    fn an_asker_is_answered_when_every_core_has_confirmed_and_not_before() {
        let mut refusal = Refusal::new(3);
        let asked = refusal.name(1, blocks(&[(0, 8)]), Some(ticket(1, 7)));
        assert_eq!(asked, announce(&[(0, 8)], 1));
        assert_eq!(refusal.confirm(1, Round(1)), Verdict::default());
        assert_eq!(refusal.confirm(2, Round(1)), Verdict::default());
        assert_eq!(refusal.confirm(0, Round(1)), answer(&[ticket(1, 7)]));
        assert!(!refusal.is_idle());
    }

    #[test]
    fn every_core_is_told_the_blocks_of_all() {
        let mut refusal = Refusal::new(2);
        refusal.name(0, blocks(&[(0, 8)]), Some(ticket(0, 1)));
        let both = refusal.name(1, blocks(&[(20, 21), (8, 9)]), Some(ticket(1, 1)));
        assert_eq!(both, announce(&[(0, 9), (20, 21)], 2));
        // One request of core 1 has come back.
        let less = refusal.name(1, blocks(&[(20, 21)]), None);
        assert_eq!(less, announce(&[(0, 8), (20, 21)], 3));
        let less = refusal.name(0, BlockSet::default(), None);
        assert_eq!(less, announce(&[(20, 21)], 4));
        assert!(!refusal.is_idle());
        let none = refusal.name(1, BlockSet::default(), None);
        assert_eq!(none, announce(&[], 5));
        assert!(refusal.is_idle());
    }

    #[test]
    fn a_second_question_waits_for_its_own_round_and_the_first_for_no_later_one() {
        let mut refusal = Refusal::new(2);
        refusal.name(0, blocks(&[(0, 8)]), Some(ticket(0, 1)));
        refusal.name(1, blocks(&[(8, 16)]), Some(ticket(1, 2)));
        assert_eq!(refusal.confirm(0, Round(1)), Verdict::default());
        assert_eq!(refusal.confirm(1, Round(1)), answer(&[ticket(0, 1)]));
        assert_eq!(refusal.confirm(1, Round(2)), Verdict::default());
        assert_eq!(refusal.confirm(0, Round(2)), answer(&[ticket(1, 2)]));
    }

    #[test]
    fn what_every_core_refuses_already_is_answered_at_once_and_announced_to_nobody() {
        let mut refusal = Refusal::new(2);
        refusal.name(0, blocks(&[(0, 8)]), Some(ticket(0, 1)));
        let again = refusal.name(1, blocks(&[(2, 4)]), Some(ticket(1, 2)));
        assert_eq!(again, Verdict::default(), "core 1 has not confirmed");
        refusal.confirm(0, Round(1));
        let both = answer(&[ticket(0, 1), ticket(1, 2)]);
        assert_eq!(refusal.confirm(1, Round(1)), both);
        let again = refusal.name(1, blocks(&[(2, 5)]), Some(ticket(1, 3)));
        assert_eq!(again, answer(&[ticket(1, 3)]));
    }

    #[test]
    fn a_confirmation_of_an_earlier_round_counts_for_nothing() {
        let mut refusal = Refusal::new(2);
        refusal.name(0, blocks(&[(0, 1)]), Some(ticket(0, 1)));
        refusal.name(0, BlockSet::default(), None);
        refusal.name(0, blocks(&[(0, 2)]), Some(ticket(0, 2)));
        assert_eq!(refusal.confirm(0, Round(3)), Verdict::default());
        // The first question has come back; its answer closes it.
        assert_eq!(refusal.confirm(1, Round(1)), answer(&[ticket(0, 1)]));
        assert_eq!(refusal.confirm(1, Round(2)), Verdict::default());
        assert_eq!(refusal.confirm(1, Round(3)), answer(&[ticket(0, 2)]));
    }

    #[test]
    fn every_refusal_is_followed_by_its_own_permission() {
        let mut refusal = Refusal::new(1);
        for time in 0..3 {
            let round = 2 * time + 1;
            let asked = refusal.name(0, blocks(&[(5, 6)]), Some(ticket(0, time)));
            assert_eq!(asked, announce(&[(5, 6)], round));
            let confirmed = refusal.confirm(0, Round(round));
            assert_eq!(confirmed, answer(&[ticket(0, time)]));
            let back = refusal.name(0, BlockSet::default(), None);
            assert_eq!(back, announce(&[], round + 1));
            assert_eq!(refusal.confirm(0, Round(round + 1)), Verdict::default());
            assert!(refusal.is_idle());
        }
    }
}
