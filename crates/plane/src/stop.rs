//! The last flushes of a core, so that what was written is durable. A unit whose flush fails is named at the
//! end of the program.

use engine::FlushFailure;

use crate::core::Core;
use crate::plan::UnitIndex;

impl Core {
    /// Flushes the stores of the units this core owns.
    pub(crate) fn flush_stores(&mut self) {
        // That of a unit which is removed may be under way.
        let is_flushing =
            |unit: &UnitIndex| self.engine.flushing_units().any(|other| other == *unit);
        let units = self.engine.owned_units();
        let units: Vec<UnitIndex> = units.filter(|unit| !is_flushing(unit)).collect();
        for unit in units {
            self.engine.flush_unit(unit);
        }
        self.settle();
    }

    /// The core ends although flushes are under way, or were not begun. Units whose stores keep data without a
    /// flush, or have nothing that was not flushed, are not named.
    pub(crate) fn give_up_last_flushes(&mut self) {
        let is_late = |unit: &UnitIndex| {
            let is_open =
                !self.ending.is_flushed || self.engine.flushing_units().any(|other| other == *unit);
            is_open && self.engine.may_have_unflushed(*unit)
        };
        let late: Vec<UnitIndex> = self.engine.owned_units().filter(is_late).collect();
        for unit in late {
            self.handle_flushed(unit, Some(&FlushFailure::NotInTime));
        }
    }
}
