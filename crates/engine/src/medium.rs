//! An administrator ejects the medium of a unit, or loads it. What an initiator ejects or loads is a
//! command like any other.
//!
//! Both eject in the same way: a fence around the whole medium, so that nobody is at work on it; a
//! flush; the change, which every core takes over; then the fence goes, and commands that waited for it
//! find no medium. Nothing has happened where one of the first two steps fails or takes too long.
//!
//! A fence does not wait for requests of the past ([`crate::refusal`]), which may still land. A core says that
//! it has one before it confirms the fence; so the owner's core refuses access by then, and the medium stays in.
//!
//! An administrator also *holds* a medium, for a copy that somebody else makes: the same fence, and nothing more. It
//! falls when the medium is released, or at its deadline, whichever comes first. Who releases it learns whether it
//! stood until then: only then was nobody at work on the medium all the while.

use std::time::Duration;

use marks::sometimes;
use scsi::{Change, ChangeKind, DeviceType, Reply, SenseCode, Shared, Status, WHOLE_MEDIUM};
use store::FlushFailure;

use crate::agree::ToOwner;
use crate::carrier::{Carrier, News};
use crate::engine::{Engine, request_key};
use crate::report::{MediumFailure, Report};
use crate::task::{CacheStep, MediumStep, Request};
use crate::{Ticket, UnitIndex};

/// What an administrator wants done with a medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MediumOrder {
    /// Take it out.
    Eject {
        /// Although a nexus prevents that.
        force: bool,
    },
    /// Put it in.
    Load,
    /// Put in what the store stands for now, which is another one ([`Engine::exchange_store`]).
    LoadAnother,
    /// Keep everybody from it until [`Engine::release_medium`].
    Hold {
        /// For so long at most, the wait for those at work included. It is held when that has been reported.
        limit: Duration,
        /// Of this hold and no other.
        number: u64,
    },
    /// Have no write cache before it, and be flushed.
    WriteThrough {
        /// How long the flush may take.
        limit: Duration,
    },
    /// Take a [`MediumOrder::WriteThrough`] back.
    NotWriteThrough,
    /// Have a write cache before it, which is on.
    WriteBack,
    /// Have nobody reserve the unit, nor be registered with it.
    ClearReservations,
}

impl<C: Carrier> Engine<C> {
    /// Moves the medium of a unit that this core owns. The outcome comes with
    /// [`Report::MediumMoved`].
    pub fn move_medium(&mut self, unit: UnitIndex, order: MediumOrder) {
        let one = &self.units[unit];
        let Some(owner) = one.owner.as_ref().filter(|_| !one.is_leaving) else {
            self.report_medium(unit, Err(MediumFailure::Gone));
            return;
        };
        if self.is_medium_moving(unit) || self.flushes.has(unit) {
            sometimes!("a second order for a medium comes while one is under way");
            self.report_medium(unit, Err(MediumFailure::Busy));
            return;
        }
        // What is refused may still be written: the fence would be waited for up to its deadline.
        let may_be_written = !self.refused_blocks(unit).is_empty();
        let shared = owner.shared();
        let is_drive = one.view.profile().device_type == DeviceType::Optical;
        match order {
            MediumOrder::Eject { .. } | MediumOrder::Hold { .. } if may_be_written => {
                sometimes!("an eject is refused because of a request of the past");
                self.report_medium(unit, Err(MediumFailure::Busy));
            }
            // The owner looks at it again; so nobody is held up by the fence for nothing.
            MediumOrder::Eject { force: false }
                if !shared.is_ejected && shared.check_removal().is_err() =>
            {
                sometimes!("an administrator may not eject a medium");
                self.report_medium(unit, Err(MediumFailure::Prevented));
                if is_drive {
                    // They learn that it is wanted.
                    let kind = ChangeKind::EjectWish;
                    self.ask_change(unit, Ticket::NOBODY, Change { from: None, kind });
                }
            }
            // One that is out is fenced and flushed, too: it may be in by the time the owner looks.
            MediumOrder::Eject { force } => {
                self.ask_medium_fence(unit, MediumStep::Fence { force });
            }
            MediumOrder::Hold { limit, number } => {
                let is_up = false;
                let step = MediumStep::Hold {
                    limit,
                    number,
                    is_up,
                };
                self.ask_medium_fence(unit, step);
            }
            MediumOrder::Load => self.ask_to_move(unit, ChangeKind::Load),
            MediumOrder::LoadAnother => {
                let store = one.store.capabilities();
                let blocks = store.size_bytes / u64::from(store.block_bytes);
                self.ask_to_move(unit, ChangeKind::LoadAnother { blocks });
            }
            MediumOrder::WriteThrough { limit } => self.begin_write_through(unit, limit),
            MediumOrder::NotWriteThrough => self.ask_to_move(unit, ChangeKind::NotWrittenThrough),
            MediumOrder::WriteBack => self.ask_to_move(unit, ChangeKind::WriteBack),
            MediumOrder::ClearReservations => {
                self.ask_to_move(unit, ChangeKind::ClearReservations);
            }
        }
    }

    fn ask_medium_fence(&mut self, unit: UnitIndex, step: MediumStep) {
        let since = self.now;
        let ticket = self.open_request(Request::Medium { unit, step, since });
        let blocks = WHOLE_MEDIUM;
        self.ask_owner(unit, ToOwner::FenceWanted { ticket, blocks });
    }

    /// Ends the hold of a medium. True when it stood until now: nothing of it was read or written since it was
    /// reported. One that is not up yet is given up, which is reported as [`MediumFailure::Busy`]. A hold of another
    /// number stays.
    pub fn release_medium(&mut self, unit: UnitIndex, number: u64) -> bool {
        let held = self
            .requests
            .iter()
            .find_map(|(key, request)| match request {
                Request::Medium {
                    unit: of,
                    step:
                        MediumStep::Hold {
                            is_up, number: it, ..
                        },
                    ..
                } if *of == unit && *it == number => Some((key, *is_up)),
                Request::Medium { .. }
                | Request::Task(_)
                | Request::Fence { .. }
                | Request::Refusal { .. }
                | Request::Management { .. }
                | Request::Administrator { .. } => None,
            });
        let Some((key, is_up)) = held else {
            return false;
        };
        self.end_hold(self.ticket_of(key), is_up);
        is_up
    }

    /// A hold is over. Who waits for it to begin gets the answer.
    fn end_hold(&mut self, ticket: Ticket, is_up: bool) {
        if is_up {
            self.close_medium(ticket);
        } else {
            self.end_medium(ticket, Err(MediumFailure::Busy));
        }
    }

    /// Whether an administrator's order is under way.
    pub(crate) fn is_medium_moving(&self, unit: UnitIndex) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|(_, one)| matches!(one, Request::Medium { unit: of, .. } if *of == unit))
    }

    fn ask_to_move(&mut self, unit: UnitIndex, kind: ChangeKind) {
        let ticket = self.open_request(Request::Medium {
            unit,
            step: MediumStep::Change { is_fenced: false },
            since: self.now,
        });
        self.ask_change(unit, ticket, Change { from: None, kind });
    }

    /// Nobody is at work on the medium.
    pub(crate) fn handle_medium_fenced(&mut self, ticket: Ticket) {
        let now = self.now;
        let Some(Request::Medium { unit, step, since }) = self.request_mut(ticket) else {
            return;
        };
        let unit = *unit;
        let force = match *step {
            MediumStep::Fence { force } => force,
            MediumStep::Hold {
                limit,
                number,
                is_up: false,
            } => {
                *step = MediumStep::Hold {
                    limit,
                    number,
                    is_up: true,
                };
                return self.handle_hold_up(unit, ticket);
            }
            MediumStep::Hold { is_up: true, .. }
            | MediumStep::Flush { .. }
            | MediumStep::Change { .. }
            | MediumStep::Cache(_) => {
                debug_assert!(false, "a fence is granted twice");
                return;
            }
        };
        (*step, *since) = (MediumStep::Flush { force }, now);
        let limit = now + self.question_patience().flush;
        self.request_deadlines.set(request_key(ticket), limit);
        if self.units[unit].view.refuses_access() || self.flushes.has(unit) {
            // A request of the past may still land, or the last flush has begun: the unit goes.
            self.end_medium(ticket, Err(MediumFailure::Busy));
        } else {
            self.begin_flush(unit);
        }
    }

    fn handle_hold_up(&mut self, unit: UnitIndex, ticket: Ticket) {
        if self.refused_blocks(unit).is_empty() {
            self.report_medium(unit, Ok(()));
        } else {
            // A request of the past may still land.
            self.end_medium(ticket, Err(MediumFailure::Busy));
        }
    }

    /// The order that waits for the flush of a unit.
    fn order_being_flushed(&self, unit: UnitIndex) -> Option<(Ticket, MediumStep)> {
        self.requests.iter().find_map(|(key, request)| {
            if let Request::Medium { unit: of, step, .. } = request
                && *of == unit
                && let MediumStep::Flush { .. } | MediumStep::Cache(CacheStep::Flush { .. }) = step
            {
                return Some((self.ticket_of(key), *step));
            }
            None
        })
    }

    /// An order waits for the flush of a unit.
    pub(crate) fn is_flush_awaited(&self, unit: UnitIndex) -> bool {
        self.order_being_flushed(unit).is_some()
    }

    /// A flush of a unit has ended, which may have been the one of an eject or of a write cache.
    pub(crate) fn handle_flushed_medium(
        &mut self,
        unit: UnitIndex,
        failure: Option<&FlushFailure>,
    ) {
        let Some((ticket, step)) = self.order_being_flushed(unit) else {
            return;
        };
        let failure = failure.map(|failure| MediumFailure::Unflushed(failure.clone()));
        let MediumStep::Flush { force } = step else {
            return self.handle_flushed_cache(unit, ticket, failure);
        };
        if let Some(Request::Medium { step, .. }) = self.request_mut(ticket) {
            *step = MediumStep::Change { is_fenced: true };
        }
        match failure {
            Some(failure) => self.end_medium(ticket, Err(failure)),
            None => {
                let kind = ChangeKind::Eject { force };
                self.ask_change(unit, ticket, Change { from: None, kind });
            }
        }
    }

    /// The owner has moved the medium, or has not.
    pub(crate) fn handle_medium_changed(&mut self, ticket: Ticket, reply: Reply) {
        let outcome = outcome_of(&reply);
        let Some(Request::Medium { step, .. }) = self.request_mut(ticket) else {
            return;
        };
        match *step {
            MediumStep::Cache(step) => self.handle_cache_changed(ticket, step, outcome),
            MediumStep::Fence { .. }
            | MediumStep::Flush { .. }
            | MediumStep::Change { .. }
            | MediumStep::Hold { .. } => self.end_medium(ticket, outcome),
        }
    }

    /// A step has taken too long.
    pub(crate) fn end_overdue_medium(&mut self, ticket: Ticket, step: MediumStep) {
        sometimes!("an order for a medium takes too long");
        let failure = match step {
            MediumStep::Fence { .. } => MediumFailure::Busy,
            MediumStep::Flush { .. } => MediumFailure::Unflushed(FlushFailure::NotInTime),
            MediumStep::Hold { is_up, .. } => return self.end_hold(ticket, is_up),
            MediumStep::Cache(CacheStep::Flush { .. }) => {
                let failure = MediumFailure::Unflushed(FlushFailure::NotInTime);
                return self.restore_cache(ticket, failure);
            }
            MediumStep::Change { .. }
            | MediumStep::Cache(CacheStep::Off { .. } | CacheStep::Flushed | CacheStep::Restore) => {
                return;
            }
        };
        self.end_medium(ticket, Err(failure));
    }

    pub(crate) fn end_medium(&mut self, ticket: Ticket, outcome: Result<(), MediumFailure>) {
        if let Some(unit) = self.close_medium(ticket) {
            self.report_medium(unit, outcome);
        }
    }

    /// An order is over, and its fence goes.
    pub(crate) fn close_medium(&mut self, ticket: Ticket) -> Option<UnitIndex> {
        let Some(Request::Medium { unit, step, .. }) = self.close_request(ticket) else {
            return None;
        };
        if step.has_fence() {
            self.ask_owner(unit, ToOwner::FenceDone { ticket });
        }
        Some(unit)
    }

    pub(crate) fn report_medium(&mut self, unit: UnitIndex, outcome: Result<(), MediumFailure>) {
        self.reports
            .push_back(Report::MediumMoved { unit, outcome });
    }

    /// A new state of a unit is about to be installed: its owner's core reports what administrators see of it.
    pub(crate) fn note_state(&mut self, unit: UnitIndex, new: &Shared) {
        let one = &self.units[unit];
        let old = one.view.shared();
        let is_moved = old.is_ejected != new.is_ejected;
        let is_seen =
            is_moved || old.preventing != new.preventing || old.reservations != new.reservations;
        if one.owner.is_none() || !is_seen {
            return;
        }
        if is_moved {
            sometimes!("a medium is moved");
            let is_in = !new.is_ejected;
            self.carrier.notify(News::MediumMoved { unit, is_in });
        }
        self.reports.push_back(Report::StateChanged { unit });
    }
}

/// What an owner's answer says of the medium.
fn outcome_of(reply: &Reply) -> Result<(), MediumFailure> {
    let code = reply.sense.map(|sense| sense.code);
    match (reply.status, code) {
        (Status::Good, _) => Ok(()),
        (Status::Busy, _) => Err(MediumFailure::Busy),
        (_, Some(SenseCode::MEDIUM_REMOVAL_PREVENTED)) => Err(MediumFailure::Prevented),
        (_, Some(SenseCode::INVALID_COMMAND_OPERATION_CODE)) => Err(MediumFailure::Fixed),
        // The answer of the gone, and that of a state that could not be kept.
        (_, _) => Err(MediumFailure::Gone),
    }
}

#[cfg(test)]
mod tests {
    use scsi::{Sense, SenseKey};

    use super::*;

    #[test]
    fn what_an_owner_answers_is_told_as_what_it_is() {
        let check = |key, code| Reply::check(Sense::new(key, code));
        let busy = Reply {
            status: Status::Busy,
            sense: None,
            transfer_length: 0,
        };
        for (reply, failure) in [
            (busy, MediumFailure::Busy),
            (
                check(
                    SenseKey::IllegalRequest,
                    SenseCode::MEDIUM_REMOVAL_PREVENTED,
                ),
                MediumFailure::Prevented,
            ),
            (
                check(
                    SenseKey::IllegalRequest,
                    SenseCode::INVALID_COMMAND_OPERATION_CODE,
                ),
                MediumFailure::Fixed,
            ),
            (
                check(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE),
                MediumFailure::Gone,
            ),
        ] {
            assert_eq!(outcome_of(&reply), Err(failure));
        }
    }
}
