//! Units come and go while the plane runs: the core's side of an administrator's change.
//!
//! An index is never given twice: a letter that is late for a unit that has gone finds an empty
//! place, never another unit.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use engine::agree::{Patience, UnitOwner};
use scsi::{Change, ChangeKind, LogicalUnit, Owner, Profile};
use store::{
    Backstore, Capabilities, HelperResult, IoFailure, IoRequest, IoTag, RingOperation, Submitted,
};

use crate::core::{CHANGE_PATIENCE, Core};
use crate::handle::Receipt;
use crate::plan::{UnitDescription, UnitIndex, UnitPlan};
use crate::plane::StartError;
use crate::running::Request;
use crate::unit::{Owned, Unit};
use crate::watcher::Happening;

/// What stands where a store was: it takes nothing.
#[derive(Debug)]
struct NoStore(Capabilities);

impl Backstore for NoStore {
    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn submit(&mut self, _: IoTag, _: IoRequest) -> Submitted {
        Submitted::Done(Err(IoFailure::Hardware { errno: 0 }))
    }

    fn handle_ring_result(&mut self, _: IoTag, _: RingOperation, _: i32) -> Submitted {
        Submitted::Done(Err(IoFailure::Hardware { errno: 0 }))
    }

    fn handle_helper_result(&mut self, _: IoTag, _: HelperResult) -> Submitted {
        Submitted::Done(Err(IoFailure::Hardware { errno: 0 }))
    }

    /// The answer to a question that was put to the store that stood here.
    fn handle_probed(&mut self, _: RingOperation, _: i32) {}

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

/// The first state of a unit. One whose kept state is damaged starts with its reservations lost,
/// so that an initiator must look at them, and is served.
fn make_owner(profile: &Profile, restored: Option<&[u8]>, name: &str) -> Owner {
    Owner::new(profile.clone(), restored).unwrap_or_else(|error| {
        tracing::error!(unit = %name, %error, "kept state is damaged, reservations are lost");
        Owner::with_lost_reservations(profile.clone())
    })
}

impl Core {
    /// Takes units up. Every core makes the same first state from the same facts. One that cannot
    /// be used gets a place all the same, so that the indices of all cores stay the same.
    pub(crate) fn add_units(&mut self, units: &[(UnitIndex, UnitPlan)]) -> Result<(), StartError> {
        let mut outcome = Ok(());
        for (index, plan) in units {
            debug_assert_eq!(*index, self.units.next(), "indices come in order");
            let owner = make_owner(&plan.profile, plan.restored.as_deref(), &plan.name);
            let view = LogicalUnit::new(Arc::clone(owner.profile()), Arc::clone(owner.shared()));
            let handle = plan.store.handle().unwrap_or_else(|source| {
                let name = plan.name.clone();
                outcome = Err(StartError::Store { name, source });
                Box::new(NoStore(plan.profile.capabilities.clone()))
            });
            self.units
                .push(Unit::new(plan.name.as_str().into(), view, handle));
            let is_own = self.owner_of(*index) == self.index;
            let patience = Patience {
                change: self.settings.abort_timeout * CHANGE_PATIENCE,
            };
            let owned = || {
                let unit = UnitOwner::new(owner, self.posts.len(), patience);
                Owned::new(unit, Arc::clone(&plan.keeper))
            };
            self.owned.push(is_own.then(owned));
        }
        outcome
    }

    pub(crate) fn handle_add_units(
        &mut self,
        units: &[(UnitIndex, UnitPlan)],
        report: &Sender<Result<(), StartError>>,
    ) {
        let outcome = self.add_units(units);
        // Whoever asked may have lost patience.
        drop(report.send(outcome));
    }

    pub(crate) fn handle_describe_units(&mut self, units: &[UnitDescription]) {
        for described in units {
            let index = described.unit;
            let unit = &mut self.units[index];
            unit.name = Arc::clone(&described.name);
            unit.view.set_profile(Arc::clone(&described.profile));
            if let Some(owned) = self.owned[index].as_mut() {
                owned.unit.set_profile(Arc::clone(&described.profile));
            }
        }
    }

    /// The units are to go: their receipt is kept until nothing here has to do with them.
    pub(crate) fn handle_retire_units(&mut self, units: &[UnitIndex], receipt: &Receipt) {
        for &unit in units {
            self.retiring.push((unit, receipt.clone()));
        }
    }

    /// Gives back the receipts of units that are idle now.
    pub(crate) fn check_retiring(&mut self) {
        if self.retiring.is_empty() {
            return;
        }
        let mut retiring = std::mem::take(&mut self.retiring);
        retiring.retain(|(unit, _)| !self.is_idle(*unit));
        self.retiring = retiring;
    }

    fn is_idle(&self, index: UnitIndex) -> bool {
        let unit = &self.units[index];
        let owner_is_idle = self.owned[index]
            .as_ref()
            .is_none_or(|owned| owned.unit.is_idle() && !owned.is_probing);
        owner_is_idle
            && unit.side.orphans() == 0
            && unit.view.nexuses().next().is_none()
            && !self.tasks.iter().any(|(_, running)| running.unit == index)
    }

    /// Closes the stores of units that are idle on every core, flushed before.
    pub(crate) fn handle_forget_units(&mut self, units: &[UnitIndex], receipt: &Receipt) {
        for &unit in units {
            if self.owned[unit].is_some() {
                self.forgetting.push((unit, receipt.clone()));
                self.flush_store(unit);
            } else {
                self.close_store(unit);
            }
        }
    }

    /// The last flush of a unit is over.
    pub(crate) fn handle_flushed(&mut self, index: UnitIndex, is_good: bool) {
        let is_it = |(unit, _): &(UnitIndex, Receipt)| *unit == index;
        if let Some(at) = self.forgetting.iter().position(is_it) {
            let (unit, receipt) = self.forgetting.swap_remove(at);
            self.owned[index] = None;
            self.close_store(unit);
            if !is_good {
                receipt.note_unflushed(unit);
            }
            drop(receipt);
        }
    }

    fn close_store(&mut self, unit: UnitIndex) {
        self.tally.forget_unit(unit);
        let unit = &mut self.units[unit];
        unit.store = Box::new(NoStore(unit.store.capabilities().clone()));
    }

    /// The store of a unit that this core owns has another size.
    pub(crate) fn handle_size_changed(&mut self, unit: UnitIndex, receipt: Receipt) {
        self.take_size(unit, Request::Administrator { _receipt: receipt });
    }

    /// Takes over the size that the store was found to have, and tells everybody of a new one.
    pub(crate) fn take_size(&mut self, unit: UnitIndex, request: Request) {
        let Some(owned) = self.owned[unit].as_ref() else {
            return;
        };
        let known = owned.unit.shared().blocks;
        let store = &mut self.units[unit].store;
        store.refresh_size();
        let capabilities = store.capabilities();
        let blocks = capabilities.size_bytes / u64::from(capabilities.block_bytes);
        if blocks != known {
            tracing::info!(unit = %self.units[unit].name, blocks, "the size of a unit changed");
            let unit_name = &self.units[unit].name;
            self.watcher.hear(&Happening::UnitResized {
                unit: unit_name,
                blocks,
            });
            let ticket = self.open_request(request);
            let kind = ChangeKind::CapacityChanged { blocks };
            self.ask_change(unit, ticket, Change { from: None, kind });
        }
    }
}
