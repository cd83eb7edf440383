//! One core's side of a unit: which blocks are fenced here, and whether access is refused.
//!
//! `T` names a task of the core, `W` something of it that waits for tasks to end. What a method gives
//! is to be sent to the owner, or goes on.

use std::fmt::Debug;
use std::ops::Range;

use super::{FenceNumber, Round, ToOwner, overlap};
use crate::Ticket;

/// Blocks that belong to one task alone until it is over.
#[derive(Debug)]
struct Fence<T> {
    number: FenceNumber,
    holder: Ticket,
    blocks: Range<u64>,
    /// Tasks of this core that were at work on the blocks when the fence was raised.
    waiting_for: Vec<T>,
}

/// One core's side of one unit.
#[derive(Debug)]
pub struct CoreSide<T, W> {
    /// Almost always empty; the plain path looks only at that.
    fences: Vec<Fence<T>>,
    orphans: Orphans<W>,
}

/// Requests that nobody waits for any longer, but which may still take effect.
#[derive(Debug)]
struct Orphans<W> {
    count: usize,
    /// Another core, or this one, has some: said by the owner.
    is_refused: bool,
    /// What was asked of the owner, until that has answered.
    asked: Option<Ticket>,
    /// Every core refuses access.
    stands: bool,
    /// What goes on when that is so, or when there are no orphans any more.
    waits: Vec<W>,
}

impl<T, W> Default for CoreSide<T, W> {
    fn default() -> Self {
        Self {
            fences: Vec::new(),
            orphans: Orphans {
                count: 0,
                is_refused: false,
                asked: None,
                stands: false,
                waits: Vec::new(),
            },
        }
    }
}

impl<T: Copy + Debug + Eq, W: Copy + Debug + Eq> CoreSide<T, W> {
    // ---- fences ------------------------------------------------------------------------------

    /// No blocks are fenced.
    #[inline]
    pub const fn is_open(&self) -> bool {
        self.fences.is_empty()
    }

    /// How many fences are up, or are being raised.
    pub const fn fences(&self) -> usize {
        self.fences.len()
    }

    /// Whether a task must wait before it touches these blocks. A fence does not stop the task
    /// that holds it (`own`), nor one that it waits for itself.
    pub fn is_fenced(&self, blocks: &Range<u64>, task: T, own: Option<Ticket>) -> bool {
        self.fences.iter().any(|fence| {
            Some(fence.holder) != own
                && !fence.waiting_for.contains(&task)
                && overlap(&fence.blocks, blocks)
        })
    }

    /// The owner raises a fence. `at_work` are the tasks that the store works for, each with its
    /// blocks and the fence that it holds itself.
    pub fn raise(
        &mut self,
        number: FenceNumber,
        holder: Ticket,
        blocks: Range<u64>,
        at_work: impl Iterator<Item = (T, Range<u64>, Option<Ticket>)>,
    ) -> Option<ToOwner> {
        let waiting_for: Vec<T> = at_work
            .filter(|(_, range, own)| *own != Some(holder) && overlap(range, &blocks))
            .map(|(task, ..)| task)
            .collect();
        let is_up = waiting_for.is_empty();
        self.fences.push(Fence {
            number,
            holder,
            blocks,
            waiting_for,
        });
        is_up.then_some(ToOwner::FenceRaised { fence: number })
    }

    /// A task is over: fences that waited for it may be up.
    pub fn end_task(&mut self, task: T) -> Vec<ToOwner> {
        let mut up = Vec::new();
        for fence in &mut self.fences {
            let before = fence.waiting_for.len();
            fence.waiting_for.retain(|&other| other != task);
            if before > 0 && fence.waiting_for.is_empty() {
                let fence = fence.number;
                up.push(ToOwner::FenceRaised { fence });
            }
        }
        up
    }

    /// The owner takes a fence away. Tasks that waited for that try again.
    pub fn lower(&mut self, number: FenceNumber) {
        let before = self.fences.len();
        self.fences.retain(|fence| fence.number != number);
        debug_assert!(
            self.fences.len() < before,
            "a fence is lowered that was not raised"
        );
    }

    // ---- access ------------------------------------------------------------------------------

    /// Commands for the unit are refused: a request of the past may still land.
    pub const fn refuses_access(&self) -> bool {
        self.orphans.is_refused || self.orphans.count > 0
    }

    /// How many requests of this core may still land although nobody waits for them.
    pub const fn orphans(&self) -> usize {
        self.orphans.count
    }

    /// One more orphan: nothing new starts here from this moment on. `ticket` names the question to
    /// the owner, which the first one asks and no other.
    pub fn add_orphan(&mut self, ticket: Option<Ticket>) -> Option<ToOwner> {
        let orphans = &mut self.orphans;
        debug_assert_eq!(ticket.is_some(), orphans.count == 0, "the first one asks");
        orphans.count += 1;
        let ticket = ticket?;
        (orphans.asked, orphans.stands) = (Some(ticket), false);
        Some(ToOwner::RefuseAccess { ticket })
    }

    /// An orphan has come back. After the last one nothing may land any more, so there is nothing
    /// to be confirmed: these waits go on.
    pub fn end_orphan(&mut self, core: usize) -> Option<(ToOwner, Vec<W>)> {
        let orphans = &mut self.orphans;
        debug_assert!(
            orphans.count > 0,
            "an orphan more comes back than there are"
        );
        orphans.count = orphans.count.saturating_sub(1);
        if orphans.count > 0 {
            return None;
        }
        (orphans.asked, orphans.stands) = (None, false);
        let waits = std::mem::take(&mut orphans.waits);
        Some((ToOwner::AllowAccess { core }, waits))
    }

    /// A wait is to go on until every core refuses access. True when that is one thing more that it
    /// waits for.
    #[must_use]
    pub fn await_refusal(&mut self, wait: W) -> bool {
        let orphans = &mut self.orphans;
        debug_assert!(orphans.count > 0, "nothing is to be refused");
        if orphans.stands || orphans.waits.contains(&wait) {
            return false;
        }
        orphans.waits.push(wait);
        true
    }

    /// Whether this wait goes on until every core refuses access.
    pub fn awaits_refusal(&self, wait: W) -> bool {
        self.orphans.waits.contains(&wait)
    }

    /// A wait ends before that.
    pub fn leave_refusal(&mut self, wait: W) {
        self.orphans.waits.retain(|&other| other != wait);
    }

    /// The owner says whether access is refused.
    pub const fn set_refused(&mut self, refuse: bool, round: Round) -> Option<ToOwner> {
        self.orphans.is_refused = refuse;
        if refuse {
            Some(ToOwner::RefusalConfirmed { round })
        } else {
            None
        }
    }

    /// The owner's answer: every core refuses access. These waits go on.
    pub fn handle_access_refused(&mut self, ticket: Ticket) -> Vec<W> {
        let orphans = &mut self.orphans;
        if orphans.asked != Some(ticket) {
            // They have come back since, and others may have been left.
            return Vec::new();
        }
        (orphans.asked, orphans.stands) = (None, true);
        std::mem::take(&mut orphans.waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestNumber;

    type Side = CoreSide<u32, char>;

    const fn ticket(request: u64) -> Ticket {
        Ticket {
            core: 1,
            request: RequestNumber(request),
        }
    }

    fn raised(message: Option<ToOwner>, number: u64) -> bool {
        matches!(message, Some(ToOwner::FenceRaised { fence }) if fence == FenceNumber(number))
    }

    #[test]
    fn a_fence_waits_for_those_at_work_and_stops_all_others_but_its_holder() {
        let mut side = Side::default();
        assert!(side.is_open());
        let (holder, blocks) = (ticket(1), 10..20);
        let at_work = [
            (1, 0..10, None),
            (2, 19..30, None),
            (3, 12..13, Some(holder)),
        ];
        let up = side.raise(FenceNumber(0), holder, blocks, at_work.into_iter());
        assert!(up.is_none(), "task 2 is at work on block 19");
        assert!(!side.is_open());
        for (range, task, own, expected) in [
            (19..20, 7, None, true),
            (20..21, 7, None, false),
            (15..16, 7, Some(holder), false),
            (15..16, 7, Some(ticket(2)), true),
            (15..16, 2, None, false),
        ] {
            let found = side.is_fenced(&range, task, own);
            assert_eq!(found, expected, "{range:?} of {task}");
        }
        assert!(side.end_task(1).is_empty());
        let up = side.end_task(2);
        assert_eq!(up.len(), 1);
        assert!(raised(up.into_iter().next(), 0));
        assert!(side.end_task(2).is_empty(), "it is raised once");
        side.lower(FenceNumber(0));
        assert!(side.is_open() && !side.is_fenced(&(15..16), 7, None));
    }

    #[test]
    fn a_fence_that_nobody_is_in_the_way_of_is_up_at_once() {
        let mut side = Side::default();
        for (number, blocks) in [(4, 0..8), (5, 8..16)] {
            let up = side.raise(
                FenceNumber(number),
                ticket(number),
                blocks,
                [(1, 20..21, None)].into_iter(),
            );
            assert!(raised(up, number));
        }
        assert_eq!(side.fences(), 2);
        side.lower(FenceNumber(4));
        assert!(!side.is_fenced(&(0..8), 9, None));
        assert!(side.is_fenced(&(8..9), 9, None));
    }

    #[test]
    fn a_core_with_an_orphan_refuses_before_anybody_has_answered() {
        let mut side = Side::default();
        let asked = side.add_orphan(Some(ticket(1)));
        assert!(matches!(asked, Some(ToOwner::RefuseAccess { ticket: t }) if t == ticket(1)));
        assert!(side.refuses_access());
        let again = side.add_orphan(None);
        assert!(again.is_none());
        assert!(side.await_refusal('a'));
        assert!(!side.await_refusal('a'), "it waits for it once");
        assert!(side.await_refusal('b'));
        side.leave_refusal('a');
        assert_eq!(side.handle_access_refused(ticket(2)), []);
        assert_eq!(side.handle_access_refused(ticket(1)), ['b']);
        assert!(!side.await_refusal('c'), "it is so already");
        assert!(side.end_orphan(1).is_none());
        let (message, waits) = side.end_orphan(1).unwrap();
        assert!(matches!(message, ToOwner::AllowAccess { core: 1 }) && waits.is_empty());
        assert!(!side.refuses_access() && side.orphans() == 0);
    }

    #[test]
    fn who_waits_for_a_refusal_goes_on_when_the_orphans_are_back() {
        let mut side = Side::default();
        side.add_orphan(Some(ticket(1)));
        assert!(side.await_refusal('a'));
        let (_, waits) = side.end_orphan(0).unwrap();
        assert_eq!(waits, ['a']);
        // The answer to the first question comes when there are others.
        side.add_orphan(Some(ticket(2)));
        assert!(side.await_refusal('b'));
        assert_eq!(side.handle_access_refused(ticket(1)), []);
        assert_eq!(side.handle_access_refused(ticket(2)), ['b']);
    }

    #[test]
    fn a_refusal_that_stood_does_not_stand_for_the_next_orphan() {
        let mut side = Side::default();
        side.add_orphan(Some(ticket(1)));
        assert!(side.await_refusal('a'));
        assert_eq!(side.handle_access_refused(ticket(1)), ['a']);
        side.end_orphan(1).unwrap();
        side.add_orphan(Some(ticket(2)));
        assert!(side.await_refusal('b'), "nobody has confirmed this one");
    }

    #[test]
    fn what_the_owner_says_holds_beside_the_own_orphans() {
        let mut side = Side::default();
        let round = Round(3);
        let confirmed = side.set_refused(true, round);
        assert!(matches!(confirmed, Some(ToOwner::RefusalConfirmed { round: r }) if r == round));
        assert!(side.refuses_access());
        side.add_orphan(Some(ticket(1)));
        assert!(side.set_refused(false, Round(4)).is_none());
        assert!(side.refuses_access(), "its own orphan is still there");
        side.end_orphan(0);
        assert!(!side.refuses_access());
    }
}
