//! Units come and go on a core, and their stores are flushed although no command asks for that.

use std::sync::Arc;

use marks::sometimes;
use scsi::{LogicalUnit, Owner, Profile};
use store::{Backstore, Flush, FlushFailure, FlushStep, IoFailure, IoResult};

use crate::UnitIndex;
use crate::agree::{Patience, UnitOwner};
use crate::authority::Version;
use crate::carrier::{Carrier, Letter};
use crate::engine::Engine;
use crate::keys::ErrandKey;
use crate::losses::Losses;
use crate::report::Report;
use crate::unit::Unit;

/// A flush that no command asked for may take this many times what an abort may take.
const FLUSH_PATIENCE: u32 = 3;

/// Changes wait and are kept for this many times what an abort may take.
const CHANGE_PATIENCE: u32 = 3;

impl<C: Carrier> Engine<C> {
    /// Takes a unit up, which gets the next number. Every core makes the same first state from the
    /// same facts; the core that owns the unit keeps it. `saved` is the version that it was loaded from.
    pub fn add_unit(
        &mut self,
        owner: Owner,
        saved: Option<Version>,
        store: Box<dyn Backstore>,
    ) -> UnitIndex {
        let unit = self.units.next();
        let view = LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
        let is_own = self.owner_of(unit) == self.settings.core;
        let patience = self.owner_patience();
        let owner = is_own.then(|| UnitOwner::new(owner, saved, self.settings.cores, patience));
        self.units.push(Unit::new(view, store, owner));
        let carrier = &self.carrier;
        let of = &mut self.units[unit];
        of.store.start(&|| carrier.waker(unit), &mut of.outlet);
        self.carry_orders(unit);
        // It may have another size since it was looked at, which the store reports to nobody any more.
        self.take_size(unit, None);
        unit
    }

    /// Who gets reports of losses is shared with the other cores that have the unit.
    pub fn share_losses(&mut self, unit: UnitIndex, losses: &Arc<Losses>) {
        self.units[unit].share_losses(losses);
    }

    /// Has another store stand for the medium of a unit, which is held, so that nothing begins meanwhile. Nexuses,
    /// reservations and modes are as before. False, and nothing has changed, where a task has something in the store.
    pub fn exchange_store(
        &mut self,
        index: UnitIndex,
        profile: &Arc<Profile>,
        store: Box<dyn Backstore>,
    ) -> bool {
        let is_at_work =
            (self.tasks.iter()).any(|(_, task)| task.unit == index && task.is_in_store());
        if is_at_work {
            return false;
        }
        self.flushes.remove(index);
        let unit = &mut self.units[index];
        self.stores.close((index, unit), &mut self.carrier);
        self.set_profile(index, profile);
        let unit = &mut self.units[index];
        unit.exchange(store);
        let carrier = &self.carrier;
        unit.store.start(&|| carrier.waker(index), &mut unit.outlet);
        self.carry_orders(index);
        true
    }

    /// How long the owners of units wait.
    pub(crate) fn owner_patience(&self) -> Patience {
        Patience {
            change: self.settings.abort_timeout * CHANGE_PATIENCE,
        }
    }

    /// The unit says other things of itself from now on.
    pub fn set_profile(&mut self, unit: UnitIndex, profile: &Arc<Profile>) {
        let unit = &mut self.units[unit];
        unit.view.set_profile(Arc::clone(profile));
        if let Some(owner) = &mut unit.owner {
            owner.set_profile(Arc::clone(profile));
        }
    }

    /// A unit is being removed. Orders of its medium that are under way end by themselves, and no others begin. One
    /// that was idle once has no command and no order any more; its owner may still get a change, as by a nexus that
    /// leaves elsewhere.
    pub fn leave_unit(&mut self, unit: UnitIndex) {
        self.units[unit].is_leaving = true;
    }

    /// The store of a unit is closed, and so is the owner's part: nobody uses it, on any core.
    pub fn close_unit(&mut self, index: UnitIndex) {
        debug_assert!(
            !self.tasks.iter().any(|(_, one)| one.unit == index),
            "{index:?} is closed with a command under way"
        );
        let unit = &mut self.units[index];
        self.flushes.remove(index);
        self.stores.close((index, unit), &mut self.carrier);
        let owner = unit.owner.take();
        unit.close();
        for (core, answer) in owner.into_iter().flat_map(UnitOwner::into_answers) {
            self.carrier.post(core, index, Letter::ToCore(answer));
        }
    }

    /// Nothing on this core has to do with the unit.
    pub fn is_unit_idle(&self, index: UnitIndex) -> bool {
        let unit = &self.units[index];
        unit.owner.as_ref().is_none_or(UnitOwner::is_idle)
            && unit.side.orphans() == 0
            && unit.view.nexuses().next().is_none()
            && !self.is_medium_moving(index)
            // The owner is there for its answer.
            && !self.asks_to_refuse(index)
            // A change may give it to a session before the next takes it.
            && self.view_changes.is_empty()
            && !self.tasks.iter().any(|(_, running)| running.unit == index)
    }

    // ---- flushes -----------------------------------------------------------------------------

    /// Units whose last flush is under way.
    pub fn flushing_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        self.flushes.last()
    }

    /// Flushes the store of a unit that this core owns, for the last time.
    pub fn flush_unit(&mut self, unit: UnitIndex) {
        self.flush(unit, true);
    }

    /// Flushes a store of which no flush is under way.
    pub(crate) fn begin_flush(&mut self, unit: UnitIndex) {
        self.flush(unit, false);
    }

    fn flush(&mut self, unit: UnitIndex, is_last: bool) {
        let deadline = self.now + self.settings.abort_timeout * FLUSH_PATIENCE;
        let steps = self.flushes.begin(Flush {
            unit,
            is_last,
            deadline,
        });
        self.follow_flushes(steps);
    }

    /// Gives up those whose deadline has come, and asks stores again that took none.
    pub(crate) fn retry_flushes(&mut self) {
        let steps = self.flushes.take_due(self.now);
        self.follow_flushes(steps);
    }

    /// The answer of a store to a flush that no command asked for.
    pub(crate) fn handle_flush(&mut self, unit: UnitIndex, result: IoResult) {
        let steps = self.flushes.end(unit, result, self.now);
        self.follow_flushes(steps);
    }

    fn follow_flushes(&mut self, steps: impl IntoIterator<Item = FlushStep<UnitIndex, ErrandKey>>) {
        for step in steps {
            match step {
                FlushStep::Ask(flush) => {
                    let unit = &mut self.units[flush.unit];
                    let taken = self.stores.submit_flush(flush.unit, unit);
                    let over = self.flushes.note(flush, taken, self.now);
                    self.carry_orders(flush.unit);
                    self.follow_flushes(over);
                }
                FlushStep::Over {
                    flush,
                    failure,
                    left,
                } => {
                    if let Some(errand) = left {
                        sometimes!("a flush is given up that the store has");
                        self.stores.disown(errand);
                        self.cancel_errand(errand);
                    }
                    self.end_flush(flush, failure);
                }
            }
        }
    }

    /// A lost cache that the flush of an order meets counts as reported from [`Engine::note_loss_delivered`] on.
    fn end_flush(&mut self, flush: Flush<UnitIndex>, failure: Option<FlushFailure>) {
        let Flush { unit, is_last, .. } = flush;
        // Of an order that was given up nobody is left to report to.
        let is_awaited = is_last || self.is_flush_awaited(unit);
        let of = &self.units[unit];
        let lost = of.lost();
        let losses = of.losses().filter(|_| failure.is_none() && is_awaited);
        let is_owed = losses.is_some_and(|losses| match is_last {
            true => losses.report_to_administrator(lost),
            false => losses.is_owed(lost),
        });
        let reported = || is_owed.then_some(FlushFailure::CacheLost { lost });
        let failure = failure.or_else(reported);
        self.handle_flushed_medium(unit, failure.as_ref());
        debug_assert!(
            !self.is_flush_awaited(unit),
            "an order waits for a flush that is over"
        );
        if is_last {
            let failure = failure.filter(|failure| self.may_lose_data(unit, failure));
            self.reports.push_back(Report::Flushed { unit, failure });
        }
    }

    /// Who gave an order for the medium of a unit has its outcome: the loss in it is reported to no other administrator
    /// then, but for the last flush, where that has begun.
    pub fn note_loss_delivered(&self, unit: UnitIndex, lost: u64) {
        if let Some(losses) = self.units[unit].losses()
            && !self.flushing_units().any(|flushed| flushed == unit)
        {
            losses.report_to_administrator(lost);
        }
    }

    /// Whether what the store of a unit has answered may not be durable: not where nothing is left of a volatile cache,
    /// nor where it knows that a flush has covered everything.
    pub fn may_have_unflushed(&self, unit: UnitIndex) -> bool {
        // In this order: a store has nothing to cover once it has lost it.
        let may_have = |unit: &Unit| unit.may_hold() || unit.owes();
        self.units.get(unit).is_none_or(may_have)
    }

    /// Whether a flush that failed leaves in doubt what was answered. What is durable stays so where the store cannot
    /// be reached now.
    fn may_lose_data(&self, unit: UnitIndex, failure: &FlushFailure) -> bool {
        match failure {
            FlushFailure::Store(IoFailure::NotReady | IoFailure::HeldElsewhere)
            | FlushFailure::NotTaken
            | FlushFailure::NotInTime => self.may_have_unflushed(unit),
            FlushFailure::Store(_) | FlushFailure::CacheLost { .. } => true,
        }
    }
}
