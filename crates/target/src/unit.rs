//! A logical unit as one core sees it, and, on one core, as its owner.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use scsi::LogicalUnit;
use store::Backstore;

use crate::plan::Keeper;
use crate::refusal::Orphans;
use crate::running::TaskKey;
use engine::Ticket;
use engine::agree::{FenceNumber, UnitOwner, overlap};

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

/// What the owner core of a unit keeps.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) unit: UnitOwner,
    /// Where its state is made safe.
    pub(crate) keeper: Arc<dyn Keeper>,
    /// The size of the store is being looked at.
    pub(crate) is_probing: bool,
}

impl Owned {
    pub(crate) fn new(unit: UnitOwner, keeper: Arc<dyn Keeper>) -> Self {
        Self {
            unit,
            keeper,
            is_probing: false,
        }
    }
}
