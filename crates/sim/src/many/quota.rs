//! A quota of two units, as the administrator has it.

use std::rc::Weak;

use engine::{Space, UnitIndex};

use super::known::Change;
use crate::plan::Plan;
use crate::prng::Prng;

/// Of 1000 moments, those at which what units take is looked at.
const LOOKS: u32 = 20;
/// Of 1000 looks, those that find another limit.
const OTHERS: u32 = 100;

/// See above.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) units: Vec<UnitIndex>,
    /// Blocks that each of them has at first.
    blocks: usize,
    /// Blocks that may have space, of all of them together.
    pub(super) most: usize,
    /// What the cores know, or learn.
    pub(super) space: Space,
    /// Until all of them know.
    pub(super) setting: Option<Setting>,
    /// Of its own, so that lives without a quota are the same with and without this.
    prng: Prng,
}

/// A change that the cores learn.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) receipt: Weak<()>,
    pub(super) changes: Vec<(UnitIndex, Change<bool>)>,
}

impl Quota {
    /// Draws whether there is one, and of which units.
    pub(super) fn draw(seed: u64, plan: &Plan, blocks: usize) -> Option<Self> {
        let mut prng = Prng::stream(seed, "quota");
        let mut units: Vec<UnitIndex> = plan.units().collect();
        while units.len() > 2 {
            units.swap_remove(prng.size(0, units.len() - 1));
        }
        let mut quota = Self {
            units,
            blocks,
            most: 0,
            space: Space::Free,
            setting: None,
            prng,
        };
        quota.draw_most();
        quota.prng.chance(400).then_some(quota)
    }

    fn draw_most(&mut self) {
        self.most = self.prng.size(1, self.units.len() * self.blocks);
    }

    /// Whether what they take is looked at now, perhaps by another limit.
    pub(super) fn is_time(&mut self) -> bool {
        let is_time = self.setting.is_none() && self.prng.chance(LOOKS);
        if is_time && self.prng.chance(OTHERS) {
            self.draw_most();
        }
        is_time
    }

    pub(super) const fn is_setting(&self) -> bool {
        self.setting.is_some()
    }

    /// What so many blocks with space leave.
    pub(super) const fn left(&self, taken: usize) -> Space {
        if taken >= self.most {
            Space::Full
        } else if taken * 10 >= self.most * 9 {
            Space::Low
        } else {
            Space::Free
        }
    }
}
