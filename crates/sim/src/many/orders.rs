//! What an administrator does beside changes of the plan and moves of media: it holds media, has units write through,
//! flushes them as at the end of the program, grows their stores, and removes them. Stores lose their caches.

use std::rc::Rc;
use std::time::Duration;

use engine::{FlushFailure, MediumFailure, MediumOrder, UnitIndex};

use super::World;
use super::administrator::{Growing, Held, Ordered, Removal, Stood};
use super::known::Change;
use super::outcomes::Kind;
use crate::disk::Layout;
use crate::initiator::Breach;
use crate::letter::{Order, Receipt};

/// The longest that a medium is held, and that the flush of a write cache may take.
const HOLD_MAX_MS: u64 = 4000;
const FLUSH_MAX_MS: u64 = 2000;
/// Blocks that a unit gets at most, beside those that it has at first.
pub(super) const GROWTH_MAX: usize = 8;

impl World {
    /// Something of that, for some unit.
    pub(super) fn order_something(&mut self) {
        let units: Vec<UnitIndex> = self.books.plan.present_units().collect();
        let Some(unit) = self.prng.pick(&units) else {
            return;
        };
        let is_moving = self.administrator.moving.contains_key(&unit);
        let is_busy = is_moving || self.is_ordered(unit);
        match self.prng.below(100) {
            0..30 if !is_busy => self.hold(unit),
            30..65 if !is_busy => self.order_cache(unit),
            65..80 if !self.administrator.orders.is_flushing(unit) => self.flush_unit(unit),
            80..90 => self.grow(unit),
            90..97 if !is_moving && units.len() > 1 => self.remove_unit(unit),
            _ => {}
        }
    }

    pub(super) fn is_ordered(&self, unit: UnitIndex) -> bool {
        // The end of an order that has failed may not have reached all cores.
        self.administrator.orders.is_busy(unit) || self.books.is_expected(unit.as_usize())
    }

    fn owner_of(&self, unit: UnitIndex) -> usize {
        unit.owner(self.settings.cores)
    }

    fn begin_order(&mut self, unit: UnitIndex, order: MediumOrder, change: Option<Change<bool>>) {
        let handle = self.books.new_handle();
        let book = &mut self.books.units[unit.as_usize()];
        book.begin_flush(handle);
        if change.is_some() {
            book.judge.begin_move(handle, order);
        }
        self.note(|| format!("{unit:?}: {order:?}"));
        let ordered = Ordered {
            order,
            handle,
            change,
        };
        self.administrator.orders.ordered.insert(unit, ordered);
        let act = Order::new(move |core| core.engine.move_medium(unit, order));
        self.order(self.owner_of(unit), act);
    }

    fn hold(&mut self, unit: UnitIndex) {
        let limit = Duration::from_millis(self.prng.within(1, HOLD_MAX_MS));
        let number = self.books.new_handle();
        self.begin_order(unit, MediumOrder::Hold { limit, number }, None);
    }

    /// A unit writes through, or does not any more.
    fn order_cache(&mut self, unit: UnitIndex) {
        let at = unit.as_usize();
        if !self.stores[at].has_volatile_cache {
            return;
        }
        let limit = Duration::from_millis(self.prng.within(1, FLUSH_MAX_MS));
        let order = match self.prng.below(4) {
            0 => MediumOrder::NotWriteThrough,
            1 => MediumOrder::WriteBack,
            _ => MediumOrder::WriteThrough { limit },
        };
        self.books.expect(Kind::Mode, 3, at);
        let change = self.books.units[at].begin_cache_order();
        self.begin_order(unit, order, Some(change));
        if self.prng.chance(100) {
            self.flush_unit(unit);
        }
    }

    /// An order has ended that is none to move a medium. `None`: there was no such order.
    pub(super) fn take_ordered(
        &mut self,
        unit: UnitIndex,
        outcome: &Result<(), MediumFailure>,
    ) -> Option<Result<(), Breach>> {
        let Ordered {
            order,
            handle,
            change,
        } = self.administrator.orders.ordered.remove(&unit)?;
        self.note(|| format!("{unit:?}: {order:?}: {outcome:?}"));
        let is_through = matches!(order, MediumOrder::WriteThrough { .. });
        let is_good = outcome.is_ok();
        let book = &mut self.books.units[unit.as_usize()];
        book.end_flush(handle, is_through && is_good);
        if let Some(change) = change {
            let is_off = (is_through && is_good).then_some(false);
            book.end_cache_order(change, is_off);
            book.judge.end_cache_order(handle, order, is_good);
        }
        let has_faults = book.faults.has_some();
        if change.is_some() && is_good {
            self.books.end_expected(Kind::Mode, unit.as_usize());
        }
        if let (MediumOrder::Hold { number, .. }, true) = (order, is_good) {
            let disk = &self.stores[unit.as_usize()].disk;
            let held = Held {
                number,
                begun: disk.begun_count(),
                content: disk.content(),
                release: None,
            };
            self.administrator.orders.held.insert(unit, held);
        }
        let is_explained = match outcome {
            Ok(()) | Err(MediumFailure::Busy) => true,
            Err(MediumFailure::Unflushed(FlushFailure::NotInTime | FlushFailure::NotTaken)) => {
                is_through
            }
            Err(MediumFailure::Unflushed(_)) => is_through && has_faults,
            // The state could not be changed in time, or not be saved.
            Err(MediumFailure::Gone) => change.is_some(),
            Err(MediumFailure::Prevented | MediumFailure::Fixed) => false,
        };
        let detail = format!("{order:?} of {unit:?}: {outcome:?}");
        let breach = Breach::new("every-status-has-a-reason", detail);
        Some(if is_explained { Ok(()) } else { Err(breach) })
    }

    /// What goes on by itself.
    pub(super) fn check_orders(&mut self) -> Result<(), Breach> {
        self.check_holds()?;
        for (unit, failure) in self.host.take_flushed() {
            self.take_flushed(unit, failure.as_ref())?;
        }
        let is_over = |growing: &mut Growing| growing.receipt.strong_count() == 0;
        if let Some(Growing { unit, handle, .. }) =
            self.administrator.orders.growing.take_if(is_over)
        {
            let at = unit.as_usize();
            self.books.units[at].take_growth(handle);
            self.books.end_expected(Kind::Capacity, at);
        }
        self.advance_removal();
        Ok(())
    }

    // ---- holds -------------------------------------------------------------------------------

    /// Nobody reads or writes a medium that is held.
    fn check_holds(&mut self) -> Result<(), Breach> {
        let units: Vec<UnitIndex> = self.administrator.orders.held.keys().copied().collect();
        for unit in units {
            let Some(held) = self.administrator.orders.held.get_mut(&unit) else {
                continue;
            };
            let Some(release) = &held.release else {
                if !self.is_young || self.prng.chance(20) {
                    self.release(unit);
                }
                continue;
            };
            let Some((stood, begun, content)) = release.take() else {
                continue;
            };
            let is_alone = begun == held.begun && content == held.content;
            self.administrator.orders.held.remove(&unit);
            self.note(|| format!("{unit:?} is released, was held until then: {stood}"));
            if stood && !is_alone {
                let detail = format!("{unit:?} was read or written while it was held");
                return Err(Breach::new("a-held-medium-is-left-alone", detail));
            }
        }
        Ok(())
    }

    fn release(&mut self, unit: UnitIndex) {
        let disk = self.stores[unit.as_usize()].disk.clone();
        let owner = self.owner_of(unit);
        let Some(held) = self.administrator.orders.held.get_mut(&unit) else {
            return;
        };
        let (number, stood) = (held.number, Stood::default());
        held.release = Some(Rc::clone(&stood));
        let act = Order::new(move |core| {
            let (begun, content) = (disk.begun_count(), disk.content());
            let is_up = core.engine.release_medium(unit, number);
            stood.replace(Some((is_up, begun, content)));
        });
        self.order(owner, act);
    }

    // ---- last flushes, growth ----------------------------------------------------------------

    /// As at the end of the program, which goes on here.
    fn flush_unit(&mut self, unit: UnitIndex) {
        let handle = self.books.new_handle();
        self.books.units[unit.as_usize()].begin_flush(handle);
        self.administrator.orders.flushing.insert(unit, handle);
        self.note(|| format!("{unit:?} is flushed"));
        let act = Order::new(move |core| core.engine.flush_unit(unit));
        self.order(self.owner_of(unit), act);
    }

    fn take_flushed(
        &mut self,
        unit: UnitIndex,
        failure: Option<&FlushFailure>,
    ) -> Result<(), Breach> {
        self.note(|| format!("{unit:?} was flushed: {failure:?}"));
        let Some(handle) = self.administrator.orders.flushing.remove(&unit) else {
            let detail = format!("{unit:?} was flushed for nobody");
            return Err(Breach::new("one-outcome", detail));
        };
        let book = &mut self.books.units[unit.as_usize()];
        // A failure that is none: nothing was in the cache.
        book.end_flush(handle, failure.is_none());
        let is_late = matches!(
            failure,
            Some(FlushFailure::NotInTime | FlushFailure::NotTaken)
        );
        if failure.is_none() || is_late || book.faults.has_some() {
            return Ok(());
        }
        let detail = format!("the flush of {unit:?}: {failure:?}");
        Err(Breach::new("every-status-has-a-reason", detail))
    }

    /// The store of a unit becomes larger.
    fn grow(&mut self, unit: UnitIndex) {
        let at = unit.as_usize();
        let disk = self.stores[at].disk.clone();
        let (before, most) = (disk.blocks(), self.stores[at].blocks + GROWTH_MAX);
        let orders = &self.administrator.orders;
        // What is on a medium that is held would be more.
        if orders.growing.is_some() || orders.held.contains_key(&unit) || before >= most {
            return;
        }
        if let Layout::Stripe(_) = disk.layout() {
            // Both parts would, by as much.
            return;
        }
        let blocks = self.prng.size(before + 1, most);
        self.note(|| format!("{unit:?} grows to {blocks} blocks"));
        disk.grow(blocks);
        let handle = self.books.new_handle();
        self.books.units[at].grow(handle, blocks);
        self.books.expect(Kind::Capacity, 1, at);
        let receipt = Receipt::default();
        let weak = Rc::downgrade(&receipt);
        self.administrator.orders.growing = Some(Growing {
            unit,
            handle,
            receipt: weak,
        });
        let act = Order::new(move |core| core.engine.handle_size_changed(unit, receipt));
        self.order(self.owner_of(unit), act);
    }

    // ---- removal -----------------------------------------------------------------------------

    /// Nobody sees a unit any more; then it is closed.
    fn remove_unit(&mut self, unit: UnitIndex) {
        let orders = &self.administrator.orders;
        let is_at_work = orders.ordered.contains_key(&unit) || orders.is_flushing(unit);
        if self.administrator.stage.is_some() || orders.removal.is_some() || is_at_work {
            return;
        }
        self.note(|| format!("{unit:?} is removed"));
        let plan = self.books.plan.without(unit);
        self.put_in_force(plan);
        self.administrator.orders.removal = Some((unit, Removal::Leave));
        if self.prng.chance(500) {
            // Before its sessions lose it, too.
            self.leave_unit(&Receipt::default());
        }
    }

    /// The unit that is being removed takes no orders any more, on any core.
    pub(super) fn leave_unit(&mut self, receipt: &Receipt) {
        if let Some((unit, Removal::Leave)) = self.administrator.orders.removal {
            for core in 0..self.settings.cores {
                let receipt = Rc::clone(receipt);
                let act = Order::new(move |core| {
                    core.engine.leave_unit(unit);
                    drop(receipt);
                });
                self.order(core, act);
            }
        }
    }

    fn advance_removal(&mut self) {
        let Some((unit, removal)) = self.administrator.orders.removal.take() else {
            return;
        };
        let next = match removal {
            Removal::Leave if self.administrator.stage.is_none() => {
                Some(Removal::Drain((0..self.settings.cores).collect()))
            }
            Removal::Drain(mut cores) => {
                cores.retain(|core| !self.host.is_unit_idle(*core, unit));
                Some(match cores.is_empty() {
                    false => Removal::Drain(cores),
                    true => {
                        self.flush_unit(unit);
                        Removal::Flush
                    }
                })
            }
            Removal::Flush if !self.administrator.orders.flushing.contains_key(&unit) => {
                let receipt = Receipt::default();
                for core in 0..self.settings.cores {
                    let receipt = Rc::clone(&receipt);
                    let act = Order::new(move |core| {
                        core.engine.close_unit(unit);
                        drop(receipt);
                    });
                    self.order(core, act);
                }
                Some(Removal::Close(Rc::downgrade(&receipt)))
            }
            Removal::Close(receipt) if receipt.strong_count() == 0 => None,
            removal @ (Removal::Leave | Removal::Flush | Removal::Close(_)) => Some(removal),
        };
        self.administrator.orders.removal = next.map(|next| (unit, next));
    }

    // ---- caches ------------------------------------------------------------------------------

    /// The cache of a store goes, as of a server that was started again.
    pub(super) fn lose_cache(&mut self) {
        let Some(at) = self.draw_store(|store| store.is_forgetful) else {
            return;
        };
        let held = self.administrator.orders.held.keys();
        if held.map(|unit| unit.as_usize()).any(|held| held == at) {
            // Which changes what is on it.
            return;
        }
        let disk = self.stores[at].disk.clone();
        let before = disk.content();
        disk.lose_cache();
        self.note(|| format!("disk {at} loses its cache"));
        self.books.units[at].lose_cache(&before, &disk.content());
    }
}
