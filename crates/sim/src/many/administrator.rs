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

/// See above.
#[derive(Debug)]
pub(super) struct Administrator {
    /// Of 1000 occasions, those to change the plan and those to move a medium.
    pub(super) changes: u32,
    pub(super) moves: u32,
    pub(super) stage: Option<(Weak<()>, Stage)>,
    pub(super) moving: BTreeMap<UnitIndex, Moving>,
    /// Media that it has ejected, and how much their disks had been asked for then.
    pub(super) left_alone: BTreeMap<UnitIndex, u64>,
}

impl Administrator {
    pub(super) fn draw(prng: &mut Prng) -> Self {
        Self {
            changes: prng.pick(&[0, 50, 200, 600]).unwrap_or(0),
            moves: prng.pick(&[0, 0, 100, 300]).unwrap_or(0),
            stage: None,
            moving: BTreeMap::new(),
            left_alone: BTreeMap::new(),
        }
    }

    /// The machine has started again.
    pub(super) fn restart(&mut self) {
        self.stage = None;
        self.moving.clear();
        self.left_alone.clear();
    }
}
