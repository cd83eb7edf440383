//! What is well by itself and not together: files that take their space at once and fit one at a time.

use std::collections::BTreeMap;

use config::{Place, StoreSpec, Unit};
use store::Reservation;

use super::Look;
use crate::StartError;

impl Look<'_> {
    /// Refuses files for which the space of their file system is not enough beside those before them.
    pub(super) fn space(&mut self) {
        let model = self.model;
        let mut taken: BTreeMap<u64, u64> = BTreeMap::new();
        for (position, unit) in model.units().iter().enumerate() {
            if self.is_refused(unit) || self.is_wrong(unit) {
                continue;
            }
            for (spec, place) in self.reserving(position, unit) {
                let Some(wanted) = self.reservation((spec, place)) else {
                    continue;
                };
                let sum = taken.entry(wanted.file_system).or_default();
                let before_bytes = *sum;
                *sum = sum.saturating_add(wanted.bytes);
                // One that is too large by itself was refused for that.
                if *sum > wanted.free_bytes && wanted.bytes <= wanted.free_bytes {
                    let error = StartError::NoRoomTogether {
                        place: place.clone(),
                        store: spec.at.to_string(),
                        bytes: wanted.bytes,
                        before_bytes,
                        free_bytes: wanted.free_bytes,
                    };
                    self.wrong_unit(unit, error);
                }
            }
        }
    }

    /// The stores of a unit that take their space at once, and its log if it is new.
    fn reserving<'u>(
        &self,
        position: usize,
        unit: &'u Unit,
    ) -> impl Iterator<Item = (&'u StoreSpec, &'u Place)> + use<'u> {
        let at = self.units.from.get(position).copied().flatten();
        let before = at.and_then(|at| self.old.model.units().get(at));
        let keeps = before.is_some_and(|before| self.units.keeps(position, before, unit));
        let log = unit.log.as_ref().filter(|_| !keeps);
        let log = log.map(|log| (&log.store, &log.place));
        let parts = unit.parts();
        let parts = parts.filter(|(spec, _)| spec.thin == Some(false));
        parts.chain(log)
    }

    fn reservation(&mut self, part: (&StoreSpec, &Place)) -> Option<Reservation> {
        let (path, _) = part.0.at.node()?;
        let (path, size_bytes) = (path.to_owned(), part.0.configured_size_bytes()?);
        let look = move |_: &StoreSpec, _: &Place| Ok(store::reservation(&path, size_bytes));
        self.ask(part, look).ok()?
    }
}
