//! A logical unit as one core sees it, and, on one core, as its owner.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use scsi::LogicalUnit;
use store::Backstore;

use crate::plan::Keeper;
use crate::running::{TaskKey, WaitKey};
use engine::agree::{CoreSide, UnitOwner};

/// The unit on this core: its view of the state, its handle of the store, its fences.
#[derive(Debug)]
pub(crate) struct Unit {
    /// For logs; another one when the unit is renamed.
    pub(crate) name: Arc<str>,
    pub(crate) view: LogicalUnit,
    pub(crate) store: Box<dyn Backstore>,
    pub(crate) side: CoreSide<TaskKey, WaitKey>,
    /// Tasks that wait for fences to be lowered.
    pub(crate) parked: Vec<TaskKey>,
    /// Tasks that wait for room in the store.
    pub(crate) full: VecDeque<TaskKey>,
    /// How much data its store works on; see [`crate::room::Lien`].
    pub(crate) held_bytes: Rc<Cell<usize>>,
}

impl Unit {
    pub(crate) fn new(name: Arc<str>, view: LogicalUnit, store: Box<dyn Backstore>) -> Self {
        Self {
            name,
            view,
            store,
            side: CoreSide::default(),
            parked: Vec::new(),
            full: VecDeque::new(),
            held_bytes: Rc::default(),
        }
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
