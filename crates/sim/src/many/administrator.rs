//! The administrator, and what it has begun.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use engine::{MediumOrder, UnitIndex};
use front::SessionReport;

use super::known::Change;
use crate::ledger::Handle;
use crate::prng::Prng;

/// How far a change is; each stage ends with its receipt.
#[derive(Debug)]
pub(super) enum Stage {
    /// The cores learn what is to be.
    Access,
    /// Every core reports its sessions here.
    Report(Rc<RefCell<Vec<SessionReport>>>),
    /// Sessions end or see something else.
    Leave,
}

/// A medium that is being moved.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) order: MediumOrder,
    pub(super) handle: Handle,
    pub(super) change: Change<bool>,
}

/// What came of a release: whether the hold stood, how many requests for blocks the disk had had, and what was on it.
pub(super) type Stood = Rc<RefCell<Option<(bool, usize, Vec<u8>)>>>;

/// An order under way, which moves no medium.
#[derive(Debug)]
pub(super) struct Ordered {
    pub(super) order: MediumOrder,
    pub(super) handle: Handle,
    pub(super) change: Option<Change<bool>>,
}

/// A medium that is held.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) number: u64,
    pub(super) begun: usize,
    pub(super) content: Vec<u8>,
    pub(super) release: Option<Stood>,
}

/// A unit that grows: it is done when all cores know.
#[derive(Debug)]
pub(super) struct Growing {
    pub(super) unit: UnitIndex,
    pub(super) handle: Handle,
    pub(super) receipt: Weak<()>,
}

/// How far the removal of a unit is.
#[derive(Debug)]
pub(super) enum Removal {
    /// Nobody is to see it any more.
    Leave,
    /// These cores have something to do with it.
    Drain(Vec<usize>),
    Flush,
    Close(Weak<()>),
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) ordered: BTreeMap<UnitIndex, Ordered>,
    pub(super) held: BTreeMap<UnitIndex, Held>,
    pub(super) growing: Option<Growing>,
    /// Flushes as at the end of the program.
    pub(super) flushing: BTreeMap<UnitIndex, Handle>,
    pub(super) removal: Option<(UnitIndex, Removal)>,
}

impl Orders {
    pub(super) fn is_idle(&self) -> bool {
        self.ordered.is_empty()
            && self.held.is_empty()
            && self.growing.is_none()
            && self.flushing.is_empty()
            && self.removal.is_none()
    }

    pub(super) fn is_flushing(&self, unit: UnitIndex) -> bool {
        let is_leaving = self.removal.as_ref().is_some_and(|(of, _)| *of == unit);
        is_leaving || self.flushing.contains_key(&unit)
    }

    /// No order for the medium of a unit may begin beside what is under way.
    pub(super) fn is_busy(&self, unit: UnitIndex) -> bool {
        self.ordered.contains_key(&unit) || self.held.contains_key(&unit) || self.is_flushing(unit)
    }
}

/// See above.
#[derive(Debug)]
pub(super) struct Administrator {
    /// Of 1000 occasions, those to change the plan, those to move a medium, and those for another order.
    pub(super) changes: u32,
    pub(super) moves: u32,
    pub(super) others: u32,
    pub(super) stage: Option<(Weak<()>, Stage)>,
    pub(super) moving: BTreeMap<UnitIndex, Moving>,
    pub(super) orders: Orders,
    /// Media that it has ejected, and how much their disks had been asked for then.
    pub(super) left_alone: BTreeMap<UnitIndex, u64>,
}

impl Administrator {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        Self {
            changes: prng.pick(&[0, 50, 200, 600]).unwrap_or(0),
            moves: prng.pick(&[0, 0, 100, 300]).unwrap_or(0),
            others: prng.pick(&[0, 0, 200, 600]).unwrap_or(0),
            stage: None,
            moving: BTreeMap::new(),
            orders: Orders::default(),
            left_alone: BTreeMap::new(),
        }
    }

    /// The machine has started again.
    pub(super) fn restart(&mut self) {
        self.stage = None;
        self.moving.clear();
        self.orders = Orders::default();
        self.left_alone.clear();
    }
}
