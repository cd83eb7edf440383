//! An administrator has a unit write through, or lets it have a write cache again.
//!
//! It is switched off as an initiator does it (MODE SELECT): first every core has its writes durable, and what is
//! under way is flushed when it ends; then all is flushed that was answered before. Initiators see the cache as on
//! until then, and as off from then on. Where the flush fails or takes too long, the cache is as it was.
//!
//! The owner of the unit changes its state, as for commands, so that a MODE SELECT comes before or after. The store
//! itself knows nothing of it: what is to be durable is asked for with each request.
//!
//! The flush is one of the store, and holds up no other unit. While it hangs, other orders for the same unit are
//! refused; commands go on. The last flush of a unit begins when that one is over.

use std::time::Duration;

use marks::sometimes;
use scsi::{Change, ChangeKind};

use crate::carrier::Carrier;
use crate::engine::{Engine, request_key};
use crate::report::MediumFailure;
use crate::task::{CacheStep, MediumStep, Request};
use crate::{Ticket, UnitIndex};

impl<C: Carrier> Engine<C> {
    /// Has a unit that this core owns write through.
    pub(crate) fn begin_write_through(&mut self, unit: UnitIndex, limit: Duration) {
        let ticket = self.open_request(Request::Medium {
            unit,
            step: MediumStep::Cache(CacheStep::Off { limit }),
            since: self.now,
        });
        let kind = ChangeKind::WriteThrough;
        self.ask_change(unit, ticket, Change { from: None, kind });
    }

    /// The owner has changed the state of the unit, or has not.
    pub(crate) fn handle_cache_changed(
        &mut self,
        ticket: Ticket,
        step: CacheStep,
        outcome: Result<(), MediumFailure>,
    ) {
        match (step, outcome) {
            (CacheStep::Off { limit }, Ok(())) => self.flush_cache(ticket, limit),
            (CacheStep::Flushed, Err(failure)) => self.restore_cache(ticket, failure),
            (CacheStep::Off { .. }, Err(failure)) => self.end_medium(ticket, Err(failure)),
            // Nothing is left in the cache that the store had.
            (CacheStep::Flushed, Ok(())) => self.end_medium(ticket, Ok(())),
            // Where that was refused the unit writes through, which loses nothing.
            (CacheStep::Restore, Ok(()) | Err(_)) => {
                self.close_medium(ticket);
            }
            (CacheStep::Flush { .. }, Ok(()) | Err(_)) => {
                debug_assert!(false, "a flush is no change");
            }
        }
    }

    /// Sets the step of an order, which begins now. Gives its unit.
    fn set_cache_step(&mut self, ticket: Ticket, next: CacheStep) -> Option<UnitIndex> {
        let now = self.now;
        let Some(Request::Medium { unit, step, since }) = self.request_mut(ticket) else {
            return None;
        };
        (*step, *since) = (MediumStep::Cache(next), now);
        let unit = *unit;
        Some(unit)
    }

    /// Every write is durable from now on.
    fn flush_cache(&mut self, ticket: Ticket, limit: Duration) {
        let Some(unit) = self.set_cache_step(ticket, CacheStep::Flush { limit }) else {
            return;
        };
        let until = self.now + limit;
        self.request_deadlines.set(request_key(ticket), until);
        if self.flushes.has(unit) {
            // One hangs that was given up, or the unit goes.
            sometimes!("a cache is to be flushed while a flush hangs");
            self.restore_cache(ticket, MediumFailure::Busy);
        } else {
            self.begin_flush(unit);
        }
    }

    /// Its flush has ended.
    pub(crate) fn handle_flushed_cache(
        &mut self,
        unit: UnitIndex,
        ticket: Ticket,
        failure: Option<MediumFailure>,
    ) {
        let owner = self.units[unit].owner.as_ref();
        let epoch = owner.map(|owner| owner.shared().cache.epoch());
        match (failure, epoch) {
            (None, Some(epoch)) => {
                self.set_cache_step(ticket, CacheStep::Flushed);
                let kind = ChangeKind::Flushed { epoch };
                self.ask_change(unit, ticket, Change { from: None, kind });
            }
            (Some(failure), _) => self.restore_cache(ticket, failure),
            (None, None) => self.end_medium(ticket, Err(MediumFailure::Gone)),
        }
    }

    /// The unit does not write through. Who gave the order learns why, and the cache is as it was.
    pub(crate) fn restore_cache(&mut self, ticket: Ticket, failure: MediumFailure) {
        if let Some(unit) = self.set_cache_step(ticket, CacheStep::Restore) {
            sometimes!("a cache stays on because its flush has failed");
            self.report_medium(unit, Err(failure));
            let kind = ChangeKind::NotWrittenThrough;
            self.ask_change(unit, ticket, Change { from: None, kind });
        }
    }
}
