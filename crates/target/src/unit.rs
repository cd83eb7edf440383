//! A logical unit as one core sees it, and, on one core, as its owner.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use scsi::{Change, LogicalUnit, Owner, Reply, Shared};
use store::Backstore;

use crate::letter::{FenceNumber, Ticket, Update};
use crate::plan::Keeper;
use crate::refusal::{Orphans, Refusal};
use crate::running::TaskKey;

/// Blocks that belong to one task alone until it is over.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) number: FenceNumber,
    pub(crate) holder: Ticket,
    pub(crate) blocks: Range<u64>,
    /// Tasks of this core that were at work on the blocks when the fence was raised.
    pub(crate) waiting_for: Vec<TaskKey>,
}

/// The unit on this core: its view of the state, its handle of the store, its fences.
#[derive(Debug)]
pub(crate) struct Unit {
    /// For logs; another one when the unit is renamed.
    pub(crate) name: Arc<str>,
    pub(crate) view: LogicalUnit,
    pub(crate) store: Box<dyn Backstore>,
    /// Almost always empty; the plain path looks only at that.
    pub(crate) fences: Vec<Fence>,
    /// Tasks that wait for fences to be lowered.
    pub(crate) parked: Vec<TaskKey>,
    /// Tasks that wait for room in the store.
    pub(crate) full: VecDeque<TaskKey>,
    pub(crate) orphans: Orphans,
    /// How much data its store works on; see [`crate::room::Lien`].
    pub(crate) held_bytes: Rc<Cell<usize>>,
}

impl Unit {
    pub(crate) fn new(name: Arc<str>, view: LogicalUnit, store: Box<dyn Backstore>) -> Self {
        Self {
            name,
            view,
            store,
            fences: Vec::new(),
            parked: Vec::new(),
            full: VecDeque::new(),
            orphans: Orphans::default(),
            held_bytes: Rc::default(),
        }
    }

    /// Whether a task must wait before it touches these blocks. A fence does not stop the task
    /// that holds it, nor one that it waits for itself.
    pub(crate) fn is_fenced(
        &self,
        blocks: &Range<u64>,
        task: TaskKey,
        own: Option<Ticket>,
    ) -> bool {
        self.fences.iter().any(|fence| {
            Some(fence.holder) != own
                && !fence.waiting_for.contains(&task)
                && overlap(&fence.blocks, blocks)
        })
    }
}

/// True when the ranges have a block in common.
pub(crate) fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// A change that waits for its turn.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) ticket: Ticket,
    pub(crate) change: Change,
    pub(crate) since: Duration,
}

/// A change on its way through the cores.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) ticket: Ticket,
    pub(crate) reply: Reply,
    pub(crate) update: Arc<Update>,
    pub(crate) acknowledgements_left: usize,
    pub(crate) is_complete: bool,
    /// The state before the change, while the new one is not kept safely yet.
    pub(crate) before: Option<Arc<Shared>>,
    pub(crate) since: Duration,
    /// It took too long to keep the state, so that the change was answered as failed: it is taken
    /// back whatever comes of that.
    pub(crate) is_given_up: bool,
}

/// Where a fence stands, for the owner.
#[derive(Debug)]
pub(crate) struct OwnedFence {
    pub(crate) number: FenceNumber,
    pub(crate) holder: Ticket,
    pub(crate) blocks: Range<u64>,
    /// How many cores have not confirmed; `None` while earlier fences are in the way.
    pub(crate) raising: Option<usize>,
}

/// What the owner core of a unit keeps.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) owner: Owner,
    /// Where its state is made safe.
    pub(crate) keeper: Arc<dyn Keeper>,
    /// Changes that wait for the current one.
    pub(crate) queue: VecDeque<Queued>,
    pub(crate) current: Option<Current>,
    /// In the order they were asked for.
    pub(crate) fences: Vec<OwnedFence>,
    pub(crate) next_fence: u64,
    /// The size of the store is being looked at.
    pub(crate) is_probing: bool,
    pub(crate) refusal: Refusal,
}

impl Owned {
    pub(crate) fn new(owner: Owner, keeper: Arc<dyn Keeper>) -> Self {
        Self {
            owner,
            keeper,
            queue: VecDeque::new(),
            current: None,
            fences: Vec::new(),
            next_fence: 0,
            is_probing: false,
            refusal: Refusal::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_when_they_share_a_block() {
        for (a, b, expected) in [
            (0..1, 1..2, false),
            (0..2, 1..3, true),
            (5..6, 0..10, true),
            (3..3, 0..10, false),
            (7..9, 0..7, false),
        ] {
            assert_eq!(overlap(&a, &b), expected, "{a:?} {b:?}");
            assert_eq!(overlap(&b, &a), expected, "{b:?} {a:?}");
        }
    }
}
