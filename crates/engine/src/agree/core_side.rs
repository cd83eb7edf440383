//! One core's side of a unit: which blocks are fenced here, and to which access is refused.
//!
//! `T` names a task of the core, `W` something of it that waits for tasks to end. What a method gives
//! is to be sent to the owner, or goes on. The rule of fences is in [`crate::fence`].

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use super::{BlockSet, FenceNumber, Round, ToOwner, overlap};
use crate::Ticket;

/// Blocks that belong to one task alone until it is over.
#[derive(Debug)]
struct Fence<T> {
    number: FenceNumber,
    holder: Ticket,
    blocks: Range<u64>,
    /// Tasks of this core that it lets pass: when it was raised, the store had a request of theirs on the blocks, or
    /// one was parked.
    waiting_for: BTreeSet<T>,
}

/// Orphans of a unit that one core keeps apart. With one more it refuses access to the whole medium: a store that has
/// so many requests and gives none back is given no others.
pub const ORPHANS_MAX: usize = 128;

/// One core's side of one unit.
#[derive(Debug)]
pub struct CoreSide<T, W> {
    /// No fence is there and no access is refused. The plain path looks only at that.
    is_open: bool,
    /// The unit gets no more space.
    is_full: bool,
    /// Commands of a nexus are carried out one after the other.
    is_in_order: bool,
    fences: Vec<Fence<T>>,
    orphans: Orphans<T, W>,
}

/// Requests that nobody waits for any longer, but which may still take effect.
#[derive(Debug)]
struct Orphans<T, W> {
    /// Each with the blocks that it may still write, which are none when it is a request that writes nothing.
    all: Vec<(T, Range<u64>)>,
    /// The blocks of all of them.
    own: BlockSet,
    /// What the owner knows of that.
    named: BlockSet,
    /// What the owner has announced, of this core and of others.
    announced: Arc<BlockSet>,
    /// What counts here: both.
    refused: BlockSet,
    /// The last question to the owner, until it is answered.
    asked: Option<Ticket>,
    /// What goes on when the owner has answered its question, or when no orphan may write any more.
    waits: Vec<(W, Ticket)>,
}

impl<T, W> Default for CoreSide<T, W> {
    fn default() -> Self {
        Self {
            is_open: true,
            is_full: false,
            is_in_order: false,
            fences: Vec::new(),
            orphans: Orphans {
                all: Vec::new(),
                own: BlockSet::default(),
                named: BlockSet::default(),
                announced: Arc::default(),
                refused: BlockSet::default(),
                asked: None,
                waits: Vec::new(),
            },
        }
    }
}

impl<T: Copy + Debug + Ord, W: Copy + Debug + Eq> CoreSide<T, W> {
    /// No blocks are fenced, no access is refused, and new blocks get their space.
    #[inline]
    pub const fn is_open(&self) -> bool {
        debug_assert!(
            self.is_open == self.may_be_open(),
            "the plain path is open where it must not be, or closed for nothing"
        );
        self.is_open
    }

    /// Computes what the plain path looks at.
    const fn settle(&mut self) {
        self.is_open = self.may_be_open();
    }

    const fn may_be_open(&self) -> bool {
        let is_free = self.fences.is_empty() && self.orphans.refused.is_empty();
        is_free && !self.is_full && !self.is_in_order
    }

    /// No command is carried out beside another one of its nexus.
    pub const fn set_in_order(&mut self, is_in_order: bool) {
        self.is_in_order = is_in_order;
        self.settle();
    }

    /// Whether requests for new blocks are to be looked at.
    pub const fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
        self.settle();
    }

    // ---- fences ------------------------------------------------------------------------------

    /// How many fences are up, or are being raised.
    pub const fn fences(&self) -> usize {
        self.fences.len()
    }

    /// Whether a task must wait before it touches these blocks. A fence does not stop the task
    /// that holds it (`own`), nor one that it waits for itself.
    pub fn is_fenced(&self, blocks: &Range<u64>, task: T, own: Option<Ticket>) -> bool {
        self.fences.iter().any(|fence| {
            Some(fence.holder) != own
                && overlap(&fence.blocks, blocks)
                && !fence.waiting_for.contains(&task)
        })
    }

    /// The tasks that fences wait for; one stands here for each of them.
    pub fn waited_for(&self) -> impl Iterator<Item = T> {
        let fences = self.fences.iter();
        fences.flat_map(|fence| fence.waiting_for.iter().copied())
    }

    /// The owner raises a fence. `before` are the tasks that the store works for and those that are parked, each
    /// with its blocks and the fence that it holds itself.
    pub fn raise(
        &mut self,
        number: FenceNumber,
        holder: Ticket,
        blocks: Range<u64>,
        before: impl Iterator<Item = (T, Range<u64>, Option<Ticket>)>,
    ) -> Option<ToOwner> {
        // The owner raises one when those that were in its way are lowered, and letters stay in order.
        debug_assert!(
            self.fences.iter().all(|it| !overlap(&it.blocks, &blocks)),
            "{number:?} and another fence have a block in common"
        );
        let waiting_for: BTreeSet<T> = before
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
        self.settle();
        is_up.then_some(ToOwner::FenceRaised { fence: number })
    }

    /// The store has no request of a task any more, and none is parked: fences that waited for it may be up.
    pub fn leave(&mut self, task: T) -> Vec<ToOwner> {
        let mut up = Vec::new();
        for fence in &mut self.fences {
            if fence.waiting_for.remove(&task) && fence.waiting_for.is_empty() {
                let fence = fence.number;
                up.push(ToOwner::FenceRaised { fence });
            }
        }
        up
    }

    /// The owner takes a fence away. Tasks that no other one stops go on.
    pub fn lower(&mut self, number: FenceNumber) {
        let before = self.fences.len();
        self.fences.retain(|fence| fence.number != number);
        debug_assert!(
            self.fences.len() < before,
            "a fence is lowered that was not raised"
        );
        self.settle();
    }

    // ---- access ------------------------------------------------------------------------------

    /// The blocks that no command may touch here, because a request of the past may still write them.
    pub const fn refused(&self) -> &BlockSet {
        &self.orphans.refused
    }

    /// How many requests of this core are in the store although nobody waits for them.
    pub const fn orphans(&self) -> usize {
        self.orphans.all.len()
    }

    /// Nothing new touches what an orphan may write, here and from this moment on. [`CoreSide::name`] follows.
    pub fn add_orphan(&mut self, task: T, blocks: Range<u64>) {
        self.orphans.all.push((task, blocks));
        self.settle_orphans();
    }

    /// An orphan has come back. When none may write any more, there is nothing to be confirmed: these waits go on.
    /// [`CoreSide::name`] follows.
    pub fn end_orphan(&mut self, task: T) -> Vec<W> {
        let orphans = &mut self.orphans;
        let before = orphans.all.len();
        orphans.all.retain(|(other, _)| *other != task);
        debug_assert!(orphans.all.len() < before, "{task:?} is no orphan");
        self.settle_orphans();
        let orphans = &mut self.orphans;
        if !orphans.own.is_empty() {
            return Vec::new();
        }
        orphans.asked = None;
        let waits = std::mem::take(&mut orphans.waits);
        waits.into_iter().map(|(wait, _)| wait).collect()
    }

    fn settle_orphans(&mut self) {
        let orphans = &mut self.orphans;
        let ranges = orphans.all.iter().map(|(_, blocks)| blocks.clone());
        orphans.own = if orphans.all.len() > ORPHANS_MAX {
            BlockSet::whole()
        } else {
            ranges.collect()
        };
        debug_assert!(
            orphans
                .all
                .iter()
                .all(|(_, it)| it.is_empty() || orphans.own.has_all(it)),
            "an orphan may write beside {:?}",
            orphans.own
        );
        self.settle_refused();
    }

    fn settle_refused(&mut self) {
        let orphans = &mut self.orphans;
        let both = [&orphans.own, &*orphans.announced];
        let ranges = both.into_iter().flat_map(BlockSet::ranges);
        orphans.refused = ranges.cloned().collect();
        self.settle();
    }

    /// Whether the owner knows other blocks than the orphans of this core may write.
    pub fn has_news(&self) -> bool {
        self.orphans.own != self.orphans.named
    }

    /// What the owner is to know. `ticket` names the question that this is where an orphan was added that may write.
    pub fn name(&mut self, core: usize, ticket: Option<Ticket>) -> ToOwner {
        let orphans = &mut self.orphans;
        orphans.named = orphans.own.clone();
        if ticket.is_some() {
            orphans.asked = ticket;
        }
        let blocks = orphans.own.clone();
        ToOwner::RefuseAccess {
            core,
            blocks,
            ticket,
        }
    }

    /// A wait is to go on until every core refuses access to what orphans of this one may write. True when that
    /// is one thing more that it waits for.
    #[must_use]
    pub fn await_refusal(&mut self, wait: W) -> bool {
        let orphans = &mut self.orphans;
        let Some(ticket) = orphans.asked else {
            return false;
        };
        // The owner answers questions in order: the answer to the last one is that to all.
        match orphans.waits.iter_mut().find(|(other, _)| *other == wait) {
            Some((_, until)) => *until = ticket,
            None => {
                orphans.waits.push((wait, ticket));
                return true;
            }
        }
        false
    }

    /// Whether this wait goes on until every core refuses access.
    pub fn awaits_refusal(&self, wait: W) -> bool {
        self.orphans.waits.iter().any(|(other, _)| *other == wait)
    }

    /// A wait ends before that.
    pub fn leave_refusal(&mut self, wait: W) {
        self.orphans.waits.retain(|(other, _)| *other != wait);
    }

    /// The owner announces which blocks requests of the past may write, on whichever core.
    pub fn set_refused(&mut self, core: usize, blocks: Arc<BlockSet>, round: Round) -> ToOwner {
        self.orphans.announced = blocks;
        self.settle_refused();
        ToOwner::RefusalConfirmed { core, round }
    }

    /// The owner's answer: every core refuses access to what was named with this question. These waits go on.
    pub fn handle_access_refused(&mut self, ticket: Ticket) -> Vec<W> {
        let orphans = &mut self.orphans;
        orphans.asked = orphans.asked.filter(|asked| *asked != ticket);
        let answered = orphans.waits.extract_if(.., |(_, until)| *until == ticket);
        answered.map(|(wait, _)| wait).collect()
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
        assert!(side.leave(1).is_empty());
        let up = side.leave(2);
        assert_eq!(up.len(), 1);
        assert!(raised(up.into_iter().next(), 0));
        assert!(side.leave(2).is_empty(), "it is raised once");
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

    fn blocks(ranges: &[(u64, u64)]) -> BlockSet {
        ranges.iter().map(|&(start, end)| start..end).collect()
    }

    /// An orphan is added, and the owner is asked.
    fn ask(side: &mut Side, task: u32, range: Range<u64>, request: u64) -> BlockSet {
        side.add_orphan(task, range);
        let asked = side.name(1, Some(ticket(request)));
        let ToOwner::RefuseAccess { blocks, .. } = asked else {
            panic!("{asked:?}");
        };
        blocks
    }

    #[test]
    fn a_core_with_an_orphan_refuses_its_blocks_before_anybody_has_answered() {
        let mut side = Side::default();
        side.add_orphan(1, 8..16);
        assert!(!side.is_open() && side.has_news());
        assert_eq!(side.refused(), &blocks(&[(8, 16)]));
        side.add_orphan(2, 30..31);
        let named = side.name(1, Some(ticket(1)));
        let ToOwner::RefuseAccess {
            core: 1,
            blocks: named,
            ticket: Some(asked),
        } = named
        else {
            panic!("{named:?}");
        };
        assert_eq!((named, asked), (blocks(&[(8, 16), (30, 31)]), ticket(1)));
        assert!(!side.has_news());
        assert_eq!(side.end_orphan(1), []);
        assert_eq!(
            side.refused(),
            &blocks(&[(30, 31)]),
            "those of one are free"
        );
        assert!(side.has_news());
        assert_eq!(side.end_orphan(2), []);
        assert!(side.refused().is_empty() && side.is_open() && side.orphans() == 0);
    }

    #[test]
    fn waits_end_with_the_answer_to_their_own_question() {
        let mut side = Side::default();
        ask(&mut side, 1, 0..1, 1);
        assert!(side.await_refusal('a'));
        assert!(!side.await_refusal('a'), "it waits for it once");
        assert!(side.await_refusal('b') && side.await_refusal('c'));
        side.leave_refusal('a');
        assert!(!side.awaits_refusal('a'));
        ask(&mut side, 2, 5..6, 2);
        assert!(!side.await_refusal('b'), "for one thing, but a later one");
        assert_eq!(side.handle_access_refused(ticket(3)), []);
        assert_eq!(side.handle_access_refused(ticket(1)), ['c']);
        assert!(side.await_refusal('d'), "the last question is open");
        assert_eq!(side.handle_access_refused(ticket(2)), ['b', 'd']);
        assert!(!side.await_refusal('e'), "it is so already");
    }

    #[test]
    fn who_waits_for_a_refusal_goes_on_when_the_orphans_are_back() {
        let mut side = Side::default();
        ask(&mut side, 1, 0..1, 1);
        assert!(side.await_refusal('a'));
        assert_eq!(side.end_orphan(1), ['a']);
        side.name(1, None);
        // The answer to the first question comes when there are others.
        ask(&mut side, 2, 0..1, 2);
        assert!(side.await_refusal('b'));
        assert_eq!(side.handle_access_refused(ticket(1)), []);
        assert_eq!(side.handle_access_refused(ticket(2)), ['b']);
    }

    #[test]
    fn a_refusal_that_stood_does_not_stand_for_the_next_orphan() {
        let mut side = Side::default();
        ask(&mut side, 1, 0..1, 1);
        assert_eq!(side.handle_access_refused(ticket(1)), []);
        ask(&mut side, 2, 1..2, 2);
        assert!(side.await_refusal('b'), "nobody has confirmed this one");
    }

    #[test]
    fn what_the_owner_says_holds_beside_the_own_orphans() {
        let mut side = Side::default();
        let announced = Arc::new(blocks(&[(0, 4), (10, 12)]));
        let confirmed = side.set_refused(3, announced, Round(7));
        assert!(matches!(
            confirmed,
            ToOwner::RefusalConfirmed {
                core: 3,
                round: Round(7)
            }
        ));
        assert!(!side.is_open() && !side.has_news());
        side.add_orphan(1, 11..20);
        assert_eq!(side.refused(), &blocks(&[(0, 4), (10, 20)]));
        side.set_refused(3, Arc::default(), Round(8));
        assert_eq!(side.refused(), &blocks(&[(11, 20)]), "its own is there");
        side.end_orphan(1);
        assert!(side.is_open());
    }

    #[test]
    fn an_orphan_that_writes_nothing_refuses_nothing() {
        let mut side = Side::default();
        side.add_orphan(1, 0..0);
        assert!(side.is_open() && !side.has_news());
        assert_eq!(side.orphans(), 1, "but it is there");
        assert_eq!(side.end_orphan(1), []);
    }

    #[test]
    fn a_fence_and_a_refusal_close_the_plain_path_each_by_itself() {
        let mut side = Side::default();
        side.raise(FenceNumber(0), ticket(1), 0..1, std::iter::empty());
        side.add_orphan(1, 5..6);
        side.lower(FenceNumber(0));
        assert!(!side.is_open());
        side.raise(FenceNumber(1), ticket(1), 0..1, std::iter::empty());
        side.end_orphan(1);
        assert!(!side.is_open());
        side.lower(FenceNumber(1));
        assert!(side.is_open());
    }

    #[test]
    fn beyond_the_limit_of_orphans_everything_is_refused() {
        let mut side = Side::default();
        for task in 0..u32::try_from(ORPHANS_MAX).unwrap() {
            side.add_orphan(task, 0..0);
        }
        assert!(side.is_open());
        side.add_orphan(9999, 0..0);
        assert!(side.refused().is_whole() && side.has_news());
        side.end_orphan(9999);
        assert!(side.is_open());
    }
}
