//! The last thing a core does: it makes the writes of its units durable.

use store::{IoRequest, IoTag, RingOperation, Submitted};

use crate::core::Core;
use crate::token::Purpose;

impl Core {
    /// Flushes the stores of the units this core owns.
    pub(crate) fn flush_stores(&mut self) {
        for unit in 0..self.units.len() {
            if self.owned[unit].is_some() {
                self.flush_store(unit);
            }
        }
    }

    /// Flushes one store, for the last time.
    pub(crate) fn flush_store(&mut self, unit: usize) {
        let tag = IoTag(u64::MAX);
        let submitted = self.units[unit].store.submit(tag, IoRequest::Flush);
        self.carry_flush_on(unit, submitted);
    }

    fn carry_flush_on(&mut self, unit: usize, submitted: Submitted) {
        let name = &self.units[unit].name;
        match submitted {
            Submitted::Done(Ok(_)) => self.handle_flushed(unit),
            Submitted::Done(Err(error)) => {
                tracing::error!(unit = %name, %error, "the last flush failed");
                self.handle_flushed(unit);
            }
            Submitted::Ring(operation) => {
                self.flushes += 1;
                self.reactor
                    .submit_store(Purpose::Flush(unit).token(), operation);
            }
            Submitted::Helper(_) | Submitted::Pending | Submitted::Full(_) => {
                tracing::error!(unit = %name, "the store takes no flush now");
                self.handle_flushed(unit);
            }
        }
    }

    pub(crate) fn handle_flush_result(
        &mut self,
        unit: usize,
        operation: RingOperation,
        result: i32,
    ) {
        self.flushes -= 1;
        let tag = IoTag(u64::MAX);
        let submitted = self.units[unit]
            .store
            .handle_ring_result(tag, operation, result);
        self.carry_flush_on(unit, submitted);
    }
}
