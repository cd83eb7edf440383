//! A quota of two units, kept as the daemon keeps one: now and then what they take is looked at, and the cores learn
//! what that leaves. The administrator raises and lowers it.

use std::rc::Rc;

use engine::{Space, UnitIndex};

use super::World;
use super::outcomes::Kind;
use super::quota::{Quota, Setting};
use crate::initiator::Breach;
use crate::letter::{Order, Receipt};

impl World {
    /// The cores know what is left, or it is looked at again.
    pub(super) fn keep_quota(&mut self) -> Result<(), Breach> {
        let Some(mut quota) = self.quota.take() else {
            return Ok(());
        };
        let is_known = |setting: &mut Setting| setting.receipt.strong_count() == 0;
        if let Some(setting) = quota.setting.take_if(is_known) {
            self.end_setting(&quota, setting);
        }
        if self.is_young && quota.is_time() {
            self.look_at_space(&mut quota);
        }
        let found = quota.units.iter().find_map(|unit| {
            let block = self.stores[unit.as_usize()].disk.beyond()?;
            Some(format!("block {block} of {unit:?} got space: {quota:?}"))
        });
        self.quota = Some(quota);
        found.map_or(Ok(()), |detail| {
            Err(Breach::new("a-full-quota-takes-no-more", detail))
        })
    }

    fn look_at_space(&mut self, quota: &mut Quota) {
        let plan = &self.books.plan;
        let is_there = |unit: &&UnitIndex| !plan.gone.contains(*unit);
        let there: Vec<UnitIndex> = quota.units.iter().filter(is_there).copied().collect();
        let taken = |unit: &UnitIndex| self.stores[unit.as_usize()].disk.taken();
        let space = quota.left(there.iter().map(taken).sum());
        let before = std::mem::replace(&mut quota.space, space);
        if space == before {
            return;
        }
        self.note(|| format!("{there:?}, which may take {} blocks: {space:?}", quota.most));
        let (receipt, mut changes) = (Receipt::default(), Vec::new());
        for unit in there {
            let at = unit.as_usize();
            self.stores[at].disk.end_limit();
            changes.push((unit, self.books.units[at].begin_space()));
            if before == Space::Free {
                self.books.expect(Kind::Space, 1, at);
            }
            for core in 0..self.settings.cores {
                let receipt = Rc::clone(&receipt);
                let act = Order::new(move |core| {
                    core.engine.set_space(unit, space);
                    drop(receipt);
                });
                self.order(core, act);
            }
        }
        quota.setting = Some(Setting {
            receipt: Rc::downgrade(&receipt),
            changes,
        });
    }

    fn end_setting(&mut self, quota: &Quota, setting: Setting) {
        let is_full = quota.space == Space::Full;
        self.report.full += u64::from(is_full);
        self.note(|| format!("all cores know that space is {:?}", quota.space));
        for (unit, change) in setting.changes {
            self.books.units[unit.as_usize()].end_space(change, is_full);
            if is_full {
                let store = &self.stores[unit.as_usize()];
                // What a composition has no room for waits inside.
                let inside = match store.is_plain() {
                    true => Vec::new(),
                    false => self.books.written(unit.as_usize()),
                };
                store.disk.limit(&inside);
            }
        }
    }

    /// The machine has started again, and its cores know nothing.
    pub(super) fn forget_quota(&mut self) {
        if let Some(quota) = &mut self.quota {
            (quota.space, quota.setting) = (Space::Free, None);
            for unit in &quota.units {
                self.stores[unit.as_usize()].disk.end_limit();
            }
        }
    }
}
