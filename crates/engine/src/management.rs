//! Task management, and the answers of owners to what this core has asked.

use std::collections::BTreeSet;
use std::iter;

use marks::sometimes;
use scsi::{Change, ChangeKind, Input, Reply, Sense, SenseCode, SenseKey, Status};

use crate::agree::ToOwner;
use crate::carrier::Carrier;
use crate::engine::{Engine, request_key};
use crate::keys::{RequestKey, SessionKey, TaskKey};
use crate::luns::MappedLun;
use crate::port::ManagementOutcome;
use crate::report::Report;
use crate::session::Session;
use crate::task::{CommandId, ManagementId, Request, Stage, Then};
use crate::{TargetIndex, Ticket, UnitIndex};

/// A task management request, with the commands that it names.
///
/// Spec: SAM-6, task management functions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Management<I> {
    /// ABORT TASK, of a command that may be over.
    AbortTask(Option<I>),
    /// ABORT TASK SET, and CLEAR TASK SET, which is the same: each nexus has a task set of its own
    /// (TST 001b).
    AbortTaskSet {
        /// The eight bytes of the LUN field.
        lun: u64,
        /// The commands for it that came before the request.
        commands: Vec<I>,
    },
    /// LOGICAL UNIT RESET.
    LogicalUnitReset {
        /// The eight bytes of the LUN field.
        lun: u64,
    },
    /// All units of the session are reset.
    TargetReset {
        /// All sessions of this target end after it ([`Report::TargetReset`]).
        cold: Option<TargetIndex>,
    },
}

/// What the reset of a unit costs for each of its nexuses, in bytes: its notice takes as long as copying that.
const NEXUS_BYTES: usize = 512;

/// A change that happened, but tasks it had to end are still in the store.
const NOT_ENDED: Sense = Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);

impl<C: Carrier> Engine<C> {
    /// A task management request of a session. It is answered by
    /// [`Port::respond_management`](crate::Port::respond_management) when it is done.
    pub fn handle_management(
        &mut self,
        session: SessionKey,
        id: ManagementId<C>,
        request: Management<CommandId<C>>,
    ) {
        let Some(entry) = self.sessions.get(session) else {
            return;
        };
        let then = Then::Management { session, id };
        match request {
            Management::AbortTask(command) => {
                let keys = entry.task_keys(command.into_iter().collect());
                self.abort_tasks(&keys, then);
            }
            Management::AbortTaskSet { lun, commands } => {
                if entry.luns.find(lun).is_none() {
                    self.respond_management(session, id, ManagementOutcome::NoSuchUnit);
                    return;
                }
                let keys = entry.task_keys(commands);
                self.abort_tasks(&keys, then);
            }
            Management::LogicalUnitReset { lun } => match entry.luns.find(lun) {
                // It would end the commands of others.
                Some(mapped) if self.sees_read_only(mapped) => {
                    sometimes!("a reset is asked for by a nexus that may only read");
                    self.respond_management(session, id, ManagementOutcome::NotAllowed);
                }
                Some(mapped) => {
                    let (kind, unit) = (ChangeKind::LogicalUnitReset, vec![mapped.unit]);
                    self.begin_reset((session, id), kind, Some(unit), None);
                }
                None => self.respond_management(session, id, ManagementOutcome::NoSuchUnit),
            },
            Management::TargetReset { cold } => {
                let count = entry.luns.iter().count();
                let is_only_read =
                    count > 0 && entry.luns.iter().all(|lun| self.sees_read_only(lun));
                // Where the target allows it, an initiator may end all sessions of the target, whatever it sees.
                if cold.is_none() && is_only_read {
                    sometimes!("a target reset is asked for by one that may only read");
                    self.respond_management(session, id, ManagementOutcome::NotAllowed);
                    return;
                }
                self.begin_reset((session, id), ChangeKind::TargetReset, None, cold);
            }
        }
    }

    /// Whether the nexus may not change the unit, so that it may not reset it for others either.
    fn sees_read_only(&self, mapped: MappedLun) -> bool {
        let unit = self.units.get(mapped.unit);
        unit.is_none_or(|unit| unit.view.is_read_only(mapped.nexus))
    }

    /// Notes a reset, which begins when its turn comes. Its answer follows when all owners have answered.
    fn begin_reset(
        &mut self,
        asked: (SessionKey, ManagementId<C>),
        kind: ChangeKind,
        rest: Option<Vec<UnitIndex>>,
        cold: Option<TargetIndex>,
    ) {
        let ticket = self.open_request(Request::Management {
            asked: Some(asked),
            kind,
            rest,
            left: 0,
            is_complete: true,
            cold,
            since: self.now,
        });
        self.pieces.push_reset(asked.0, request_key(ticket));
        self.carry_on_pieces();
    }

    /// The turn of a reset has come: asks the owner of its next unit. None is asked any more for a reset that was
    /// answered as failed, or whose session is gone.
    pub(crate) fn reset_next_unit(&mut self, key: RequestKey) {
        let ticket = self.ticket_of(key);
        let Some(Request::Management {
            asked,
            kind,
            rest,
            left,
            cold,
            ..
        }) = self.requests.get_mut(key)
        else {
            return;
        };
        let asked = asked.as_ref().map(|(session, _)| *session);
        let asker = asked.and_then(|session| Some((session, self.sessions.get(session)?)));
        let (all, is_cold) = (&self.units, cold.is_some());
        // Units that the nexus may only read are not for it to reset.
        let may_reset = |mapped: &MappedLun| {
            let unit = all.get(mapped.unit);
            is_cold || unit.is_some_and(|unit| !unit.view.is_read_only(mapped.nexus))
        };
        let of_session = |(_, entry): &(SessionKey, &Session<C::Port>)| {
            let luns = entry.luns.iter().filter(may_reset);
            // A unit that has two numbers is reset once.
            let units: BTreeSet<UnitIndex> = luns.map(|mapped| mapped.unit).collect();
            units.into_iter().collect()
        };
        let units = rest.get_or_insert_with(|| asker.as_ref().map_or_else(Vec::new, of_session));
        let Some((session, entry)) = asker else {
            units.clear();
            self.end_reset(ticket);
            return;
        };
        let Some(unit) = units.pop() else {
            self.end_reset(ticket);
            return;
        };
        *left += 1;
        if !units.is_empty() {
            sometimes!("a reset has another unit to come");
            self.pieces.put_back_reset(session, key);
        }
        let change = Change {
            from: Some(entry.nexus()),
            kind: kind.clone(),
        };
        let nexuses = self
            .units
            .get(unit)
            .map_or(0, |unit| unit.view.nexuses().count());
        let bytes = nexuses.saturating_mul(NEXUS_BYTES);
        self.pieces.note_begun(bytes);
        self.ask_change(unit, ticket, change);
    }

    /// Answers questions that take too long: resets, of which what they began goes on, and fences.
    pub(crate) fn end_overdue_requests(&mut self) {
        let (now, patience) = (self.now, self.question_patience());
        let requests = &self.requests;
        let of = |key| requests.get(key)?.deadline(patience);
        let due: Vec<RequestKey> = iter::from_fn(|| self.request_deadlines.due(now, of)).collect();
        for key in due {
            match self.requests.get_mut(key) {
                Some(&mut Request::Medium { step, .. }) => {
                    self.end_overdue_medium(self.ticket_of(key), step);
                }
                Some(Request::Management { asked, .. }) => {
                    if let Some((session, id)) = asked.take() {
                        sometimes!("a reset is answered as failed");
                        self.respond_management(session, id, ManagementOutcome::Rejected);
                    }
                }
                Some(&mut Request::Fence { task, .. }) => self.end_fence_wait(task),
                Some(
                    Request::Task(_) | Request::Refusal { .. } | Request::Administrator { .. },
                )
                | None => {}
            }
        }
    }

    // ---- answers of owners -------------------------------------------------------------------

    /// The owner has answered a request of this core.
    pub(crate) fn handle_changed(&mut self, ticket: Ticket, reply: Reply, is_complete: bool) {
        match self.request_mut(ticket) {
            Some(Request::Task(key)) => {
                let key = *key;
                self.close_request(ticket);
                self.answer_task(key, reply, is_complete);
            }
            Some(Request::Management {
                left,
                is_complete: all,
                ..
            }) => {
                debug_assert!(*left > 0, "more units are reset than were asked for");
                *left -= 1;
                *all &= is_complete;
                self.end_reset(ticket);
            }
            Some(Request::Administrator { .. }) => drop(self.close_request(ticket)),
            Some(Request::Medium { .. }) => self.handle_medium_changed(ticket, reply),
            Some(Request::Fence { .. } | Request::Refusal { .. }) | None => {
                debug_assert!(false, "an answer nobody asked for");
            }
        }
    }

    /// Ends a reset if all of its units have been reset.
    fn end_reset(&mut self, ticket: Ticket) {
        let is_over = matches!(
            self.request_mut(ticket),
            Some(Request::Management { rest: Some(rest), left: 0, .. }) if rest.is_empty()
        );
        if !is_over {
            return;
        }
        let Some(Request::Management {
            asked,
            is_complete,
            cold,
            ..
        }) = self.close_request(ticket)
        else {
            return;
        };
        let outcome = if is_complete {
            ManagementOutcome::Complete
        } else {
            ManagementOutcome::Rejected
        };
        if let Some((session, id)) = asked {
            self.respond_management(session, id, outcome);
        }
        if let Some(target) = cold {
            sometimes!("a target was reset cold");
            self.reports.push_back(Report::TargetReset(target));
        }
    }

    fn answer_task(&mut self, key: TaskKey, reply: Reply, is_complete: bool) {
        let Some(running) = self.tasks.get(key) else {
            return;
        };
        // A stale answer cannot be: the task keeps its place until the owner has answered.
        debug_assert!(matches!(running.stage, Stage::Owner), "{:?}", running.stage);
        self.enter(key, Stage::Active);
        let running = &mut self.tasks[key];
        if running.is_aborted {
            self.close_task(key);
            return;
        }
        running.has_altered |= reply.status == Status::Good;
        let reply = if is_complete {
            reply
        } else {
            Reply::check(NOT_ENDED)
        };
        let step = self.resume(key, Input::Owner(reply));
        self.drive(key, step);
    }

    /// Sends the owner of a unit what it has asked for, if there is anything.
    pub(crate) fn confirm(&mut self, unit: UnitIndex, confirmation: Option<ToOwner>) {
        if let Some(message) = confirmation {
            self.ask_owner(unit, message);
        }
    }
}
