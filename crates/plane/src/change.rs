//! Adds, changes and removes units on a core while the plane runs.
//!
//! An index is never given twice: a late letter for a removed unit finds an empty place, never another unit.

use std::io;
use std::sync::Arc;

use engine::{FlushFailure, NoStore, Version};
use scsi::Owner;
use store::Backstore;

use crate::core::Core;
use crate::letter::Letter;
use crate::outside::Named;
use crate::plan::{Exchange, Restored, UnitDescription, UnitIndex, UnitPlan};
use crate::receipt::{AddUnitError, Receipt};

/// The first state of a unit, and the version it is of. One whose kept state is damaged starts with its reservations
/// lost, so that an initiator must look at them, and is served.
fn make_owner(plan: &UnitPlan) -> (Owner, Option<Version>) {
    let (state, version) = match &plan.restored {
        Restored::Nothing => (None, None),
        Restored::State(saved) => (Some(saved.state.as_slice()), Some(saved.version)),
        Restored::Damaged => {
            tracing::error!(unit = %plan.name, "what was saved is damaged, reservations are lost");
            return (Owner::with_lost_reservations(plan.profile.clone()), None);
        }
    };
    let owner = Owner::new(plan.profile.clone(), state).unwrap_or_else(|error| {
        tracing::error!(unit = %plan.name, %error, "kept state is damaged, reservations are lost");
        Owner::with_lost_reservations(plan.profile.clone())
    });
    (owner, version)
}

impl Core {
    /// Adds a unit. Every core makes the same first state from the same facts. One whose store cannot be
    /// used gets a place all the same, so that the indices of all cores stay the same.
    pub(crate) fn add_unit(
        &mut self,
        index: UnitIndex,
        plan: &UnitPlan,
    ) -> Result<(), AddUnitError> {
        debug_assert_eq!(index, self.engine.next_unit(), "indices come in order");
        let (owner, saved) = make_owner(plan);
        let (store, outcome) = match plan.store.handle() {
            Ok(store) => (store, Ok(())),
            Err(source) => {
                let name = plan.name.clone();
                let store: Box<dyn Backstore> =
                    Box::new(NoStore(plan.profile.capabilities.clone()));
                (store, Err(AddUnitError::Store { name, source }))
            }
        };
        // Before the engine has it: the store may report something, and its owner may save, at once.
        let is_own = index.owner(self.cores()) == self.engine.carrier.index;
        self.engine.carrier.units.push(Named {
            name: plan.name.as_str().into(),
            authority: is_own.then(|| Arc::clone(&plan.authority)),
            saving: Arc::default(),
        });
        let unit = self.engine.add_unit(owner, saved, store);
        self.engine.share_losses(unit, &plan.losses);
        self.publish_state(unit);
        outcome
    }

    pub(crate) fn describe_units(&mut self, units: &[UnitDescription], receipt: Receipt) {
        for described in units {
            let unit = described.unit;
            self.engine.carrier.units[unit].name = Arc::clone(&described.name);
            self.engine.set_profile(unit, &described.profile);
        }
        drop(receipt);
    }

    /// Another store stands for the medium of a unit.
    pub(crate) fn exchange(&mut self, exchange: &Exchange) -> Result<(), AddUnitError> {
        let failed = |source| AddUnitError::Store {
            name: exchange.name.clone(),
            source,
        };
        let store = exchange.store.handle().map_err(failed)?;
        let (unit, profile) = (exchange.unit, &exchange.profile);
        match self.engine.exchange_store(unit, profile, store) {
            true => Ok(()),
            false => Err(failed(io::ErrorKind::ResourceBusy.into())),
        }
    }

    /// Keeps the receipt of each unit until nothing on this core uses it.
    pub(crate) fn handle_drain_units(&mut self, units: &[UnitIndex], receipt: &Receipt) {
        for &unit in units {
            self.engine.leave_unit(unit);
            self.draining.push((unit, receipt.clone()));
        }
    }

    /// Drops the receipts of units that are idle now.
    pub(crate) fn check_draining(&mut self) {
        // What waits may give a unit to a session.
        if self.draining.is_empty() || self.sessions.has_grants() {
            return;
        }
        let mut draining = std::mem::take(&mut self.draining);
        draining.retain(|(unit, _)| !self.engine.is_unit_idle(*unit));
        self.draining = draining;
    }

    /// Flushes the stores of units that are idle on every core and that this one owns. They are closed then, on all
    /// cores.
    pub(crate) fn handle_close_units(&mut self, units: &[UnitIndex], receipt: &Receipt) {
        for &unit in units {
            if self.engine.owner(unit).is_some() {
                self.closing.push((unit, receipt.clone()));
                // Where the program ends, all are.
                if !self.engine.flushing_units().any(|other| other == unit) {
                    self.engine.flush_unit(unit);
                }
            }
        }
    }

    /// The last flush of a unit is over: a removed unit is closed. The name of any other whose data may be lost
    /// is kept for the end of the program.
    pub(crate) fn handle_flushed(&mut self, index: UnitIndex, failure: Option<&FlushFailure>) {
        if let Some(error) = failure {
            let name = &self.engine.carrier.units[index].name;
            tracing::error!(unit = %name, %error, "the last flush failed: data may be lost");
        }
        let is_it = |(unit, _): &(UnitIndex, Receipt)| *unit == index;
        let is_closing = self.closing.iter().any(is_it);
        // Who waits for the change gets no answer any more once the program ends.
        if failure.is_some() && (!is_closing || self.stop_at.is_some()) {
            let name = Arc::clone(&self.engine.carrier.units[index].name);
            self.unflushed.push(name);
        }
        if let Some(at) = self.closing.iter().position(is_it) {
            let (unit, receipt) = self.closing.swap_remove(at);
            if failure.is_some() {
                receipt.note_unflushed(unit);
            }
            self.post_to_all(|| Letter::CloseStore {
                unit,
                receipt: receipt.clone(),
            });
        }
    }

    /// Closes the store of a unit, which was flushed.
    pub(crate) fn handle_close_store(&mut self, unit: UnitIndex, receipt: Receipt) {
        self.engine.carrier.tally.remove_unit(unit);
        self.media.remove(unit);
        self.engine.carrier.units[unit].authority = None;
        self.engine.close_unit(unit);
        drop(receipt);
    }
}
