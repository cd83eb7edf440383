//! Flushes that no command asked for: the last one of a unit, before the core ends or before the unit is
//! removed, and the one before an administrator's eject.
//!
//! Every last flush ends, and one that does not end well is named, with [`Report::Flushed`].

use std::fmt;
use std::time::Duration;

use store::{HelperResult, IoFailure, IoRequest, IoTag, RingOperation, Submitted};

use crate::UnitIndex;
use crate::carrier::{Carrier, Purpose, StoreWork};
use crate::engine::Engine;
use crate::report::Report;

/// How long a store that takes no flush now is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// The tag of such a flush; no task has it.
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

/// A flush under way.
#[derive(Debug)]
struct Flushing {
    unit: UnitIndex,
    /// When a store that takes none is given up.
    limit: Duration,
    /// Its end is reported.
    is_last: bool,
}

/// Flushes of one core that no command asked for, one a unit at most.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    under_way: Vec<Flushing>,
    /// The units among them whose store took none.
    refused: Vec<UnitIndex>,
    /// When these are tried again.
    again_at: Duration,
}

impl Flushes {
    /// Whether a store is being flushed.
    pub(crate) fn has(&self, unit: UnitIndex) -> bool {
        self.under_way.iter().any(|one| one.unit == unit)
    }

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
        let mut under_way = self.flushes.under_way.iter_mut();
        match under_way.find(|one| one.unit == unit) {
            // The one before an eject: nothing was written since it began.
            Some(one) => one.is_last = true,
            None => self.begin_flush(unit, true),
        }
    }

    /// Flushes a store of which no flush is under way.
    pub(crate) fn begin_flush(&mut self, unit: UnitIndex, is_last: bool) {
        debug_assert!(!self.flushes.has(unit), "{unit:?} is being flushed");
        self.flushes.under_way.push(Flushing {
            unit,
            limit: self.now + self.settings.abort_timeout,
            is_last,
        });
        self.submit_flush(unit);
    }

    /// Units whose last flush is under way.
    pub fn flushing_units(&self) -> impl Iterator<Item = UnitIndex> + '_ {
        let last = self.flushes.under_way.iter().filter(|one| one.is_last);
        last.map(|one| one.unit)
    }

    fn submit_flush(&mut self, unit: UnitIndex) {
        let submitted = self.units[unit].store.submit(TAG, IoRequest::Flush);
        self.carry_flush_on(unit, submitted);
    }

    pub(crate) fn carry_flush_on(&mut self, unit: UnitIndex, submitted: Submitted) {
        debug_assert!(self.flushes.has(unit), "{unit:?} is not flushed");
        let work = match submitted {
            Submitted::Done(result) => {
                self.end_flush(unit, result.err().map(FlushFailure::Store));
                return;
            }
            Submitted::Full(_) => {
                self.flushes.refused.push(unit);
                self.flushes.again_at = self.now + FULL_PAUSE;
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
    pub(crate) fn retry_flushes(&mut self) {
        let now = self.now;
        if self.flushes.deadline().is_none_or(|at| now < at) {
            return;
        }
        for unit in std::mem::take(&mut self.flushes.refused) {
            let mut under_way = self.flushes.under_way.iter();
            if under_way.any(|one| one.unit == unit && now < one.limit) {
                self.submit_flush(unit);
            } else {
                self.end_flush(unit, Some(FlushFailure::NotTaken));
            }
        }
    }

    fn end_flush(&mut self, unit: UnitIndex, failure: Option<FlushFailure>) {
        let mut under_way = self.flushes.under_way.iter();
        let Some(at) = under_way.position(|one| one.unit == unit) else {
            debug_assert!(false, "{unit:?} was not flushed");
            return;
        };
        let ended = self.flushes.under_way.swap_remove(at);
        self.handle_flushed_medium(unit, failure.as_ref());
        if ended.is_last {
            self.reports.push_back(Report::Flushed { unit, failure });
        }
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
