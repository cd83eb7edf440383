//! The last flush of a unit: before the plane stops, or before the unit is removed.
//!
//! Every flush ends, and one that does not end well is named: by the exit code of the program, or in
//! the report of the change that removed the unit.

use std::sync::Arc;
use std::time::Duration;

use store::{HelperResult, IoRequest, IoTag, RingOperation, Submitted};

use crate::core::Core;
use crate::plan::UnitIndex;
use crate::token::Purpose;

/// How long a store that takes no flush now is left alone.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// The tag of a last flush; no task has it.
const TAG: IoTag = IoTag(u64::MAX);

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
    /// Names of units whose data may not be on stable storage.
    failed: Vec<Arc<str>>,
}

impl LastFlushes {
    pub(crate) const fn are_over(&self) -> bool {
        self.under_way.is_empty()
    }

    /// When a store is to be asked again.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (!self.refused.is_empty()).then_some(self.again_at)
    }

    pub(crate) fn take_failed(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.failed)
    }
}

impl Core {
    /// Flushes the stores of the units this core owns.
    pub(crate) fn flush_stores(&mut self) {
        for unit in self.units.units() {
            if self.owned[unit].is_some() {
                self.flush_store(unit);
            }
        }
    }

    /// Flushes one store, for the last time.
    pub(crate) fn flush_store(&mut self, unit: UnitIndex) {
        let limit = self.reactor.now() + self.settings.abort_timeout;
        self.last_flushes.under_way.push((unit, limit));
        self.submit_last_flush(unit);
    }

    fn submit_last_flush(&mut self, unit: UnitIndex) {
        let submitted = self.units[unit].store.submit(TAG, IoRequest::Flush);
        self.carry_flush_on(unit, submitted);
    }

    fn carry_flush_on(&mut self, unit: UnitIndex, submitted: Submitted) {
        let token = Purpose::Flush(unit).token();
        match submitted {
            Submitted::Done(Ok(_)) => self.end_last_flush(unit, None),
            Submitted::Done(Err(error)) => self.end_last_flush(unit, Some(&error.to_string())),
            Submitted::Ring(operation) => {
                self.reactor.submit_store(token, operation);
            }
            Submitted::Helper(operation) => {
                self.reactor.submit_helper(token, operation);
            }
            Submitted::Full(_) => {
                self.last_flushes.refused.push(unit);
                self.last_flushes.again_at = self.reactor.now() + FULL_PAUSE;
            }
            // No store of this plane answers by mail.
            Submitted::Pending => {
                self.end_last_flush(unit, Some("the store does not say when the flush ends"));
            }
        }
    }

    /// Asks stores again that took no flush.
    pub(crate) fn retry_last_flushes(&mut self, now: Duration) {
        if self.last_flushes.deadline().is_none_or(|at| now < at) {
            return;
        }
        for unit in std::mem::take(&mut self.last_flushes.refused) {
            let limit = self.last_flushes.under_way.iter();
            let mut limit = limit.filter(|(one, _)| *one == unit);
            if limit.next().is_some_and(|(_, limit)| now < *limit) {
                self.submit_last_flush(unit);
            } else {
                self.end_last_flush(unit, Some("the store takes no flush"));
            }
        }
    }

    fn end_last_flush(&mut self, unit: UnitIndex, failure: Option<&str>) {
        self.last_flushes.under_way.retain(|(one, _)| *one != unit);
        if let Some(error) = failure {
            self.note_unflushed(unit, error);
        }
        self.handle_flushed(unit, failure.is_none());
    }

    fn note_unflushed(&mut self, unit: UnitIndex, error: &str) {
        let name = Arc::clone(&self.units[unit].name);
        tracing::error!(unit = %name, error, "the last flush failed: data may be lost");
        // Of a unit that is removed, the change reports it.
        if !self.forgetting.iter().any(|&(one, _)| one == unit) {
            self.last_flushes.failed.push(name);
        }
    }

    /// The core ends although flushes are under way, or were not begun. What a store keeps without
    /// a flush is not named.
    pub(crate) fn give_up_last_flushes(&mut self) {
        let is_late = |core: &Self, unit: &UnitIndex| {
            let is_volatile = core.units[*unit].store.capabilities().volatile_cache;
            let under_way = &core.last_flushes.under_way;
            let is_open = !core.is_flushed || under_way.iter().any(|(one, _)| one == unit);
            core.owned[*unit].is_some() && is_volatile && is_open
        };
        let late: Vec<UnitIndex> = self
            .units
            .units()
            .filter(|unit| is_late(self, unit))
            .collect();
        for unit in late {
            self.note_unflushed(unit, "it did not end in time");
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
