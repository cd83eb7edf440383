//! The last flush of a unit: before the core ends, or before the unit is removed.
//!
//! Every flush ends, and one that does not end well is named, with [`Report::Flushed`].

use std::fmt;
use std::time::Duration;

use store::{HelperResult, IoFailure, IoRequest, IoTag, RingOperation, Submitted};

use crate::UnitIndex;
use crate::carrier::{Carrier, Purpose, StoreWork};
use crate::engine::Engine;
use crate::report::Report;

/// How long a store that takes no flush now is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// The tag of a last flush; no task has it.
const TAG: IoTag = IoTag(u64::MAX);

/// Why the data of a unit may not be on stable storage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FlushFailure {
    /// The store said so.
    Store(IoFailure),
    /// The store takes no flush.
    NotTaken,
    /// It did not end in time.
    NotInTime,
}

impl fmt::Display for FlushFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(failure) => failure.fmt(f),
            Self::NotTaken => f.write_str("the store takes no flush"),
            Self::NotInTime => f.write_str("it did not end in time"),
        }
    }
}

/// Last flushes of one core.
#[derive(Debug, Default)]
pub(crate) struct LastFlushes {
    /// Units whose flush is under way, each with the time at which a store that takes none is given
    /// up.
    under_way: Vec<(UnitIndex, Duration)>,
    /// Those of them whose store took none.
    refused: Vec<UnitIndex>,
    /// When these are tried again.
    again_at: Duration,
}

impl LastFlushes {
    /// When a store is to be asked again.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (!self.refused.is_empty()).then_some(self.again_at)
    }
}

impl<C: Carrier> Engine<C> {
    /// Flushes the store of a unit that this core owns, for the last time.
    pub fn flush_unit(&mut self, unit: UnitIndex) {
        debug_assert!(
            self.units[unit].owner.is_some(),
            "{unit:?} is another core's to flush"
        );
        debug_assert!(
            !self.flushing_units().any(|other| other == unit),
            "{unit:?} is flushed twice"
        );
        let limit = self.now + self.settings.abort_timeout;
        self.last_flushes.under_way.push((unit, limit));
        self.submit_last_flush(unit);
    }

    /// Units whose last flush is under way.
    pub fn flushing_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        self.last_flushes.under_way.iter().map(|(unit, _)| *unit)
    }

    fn submit_last_flush(&mut self, unit: UnitIndex) {
        let submitted = self.units[unit].store.submit(TAG, IoRequest::Flush);
        self.carry_flush_on(unit, submitted);
    }

    pub(crate) fn carry_flush_on(&mut self, unit: UnitIndex, submitted: Submitted) {
        debug_assert!(
            self.flushing_units().any(|other| other == unit),
            "{unit:?} is not flushed"
        );
        let work = match submitted {
            Submitted::Done(result) => {
                self.end_last_flush(unit, result.err().map(FlushFailure::Store));
                return;
            }
            Submitted::Full(_) => {
                self.last_flushes.refused.push(unit);
                self.last_flushes.again_at = self.now + FULL_PAUSE;
                return;
            }
            // Its answer comes with `handle_store_result`.
            Submitted::Pending => return,
            Submitted::Ring(operation) => StoreWork::Ring(operation),
            Submitted::Helper(operation) => StoreWork::Helper(operation),
        };
        self.carrier.begin(Purpose::Flush(unit), work);
    }

    /// Asks stores again that took no flush.
    pub(crate) fn retry_last_flushes(&mut self) {
        let now = self.now;
        if self.last_flushes.deadline().is_none_or(|at| now < at) {
            return;
        }
        for unit in std::mem::take(&mut self.last_flushes.refused) {
            let mut limits = self.last_flushes.under_way.iter();
            let limit = limits.find(|(one, _)| *one == unit);
            if limit.is_some_and(|(_, limit)| now < *limit) {
                self.submit_last_flush(unit);
            } else {
                self.end_last_flush(unit, Some(FlushFailure::NotTaken));
            }
        }
    }

    fn end_last_flush(&mut self, unit: UnitIndex, failure: Option<FlushFailure>) {
        let before = self.last_flushes.under_way.len();
        self.last_flushes.under_way.retain(|(one, _)| *one != unit);
        debug_assert_eq!(
            self.last_flushes.under_way.len() + 1,
            before,
            "{unit:?} was not flushed"
        );
        self.reports.push_back(Report::Flushed { unit, failure });
    }

    pub(crate) fn handle_flush_result(
        &mut self,
        unit: UnitIndex,
        operation: RingOperation,
        result: i32,
    ) {
        let store = &mut self.units[unit].store;
        let submitted = store.handle_ring_result(TAG, operation, result);
        self.carry_flush_on(unit, submitted);
    }

    pub(crate) fn handle_flush_helped(&mut self, unit: UnitIndex, result: HelperResult) {
        let submitted = self.units[unit].store.handle_helper_result(TAG, result);
        self.carry_flush_on(unit, submitted);
    }
}
