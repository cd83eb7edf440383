//! Tasks that end without an answer, and those who wait for that.
//!
//! What has not reached the store ends at once. A request in the store gets a cancel and ends
//! with its completion. Whoever waits is told at a deadline at the latest; what is still in the
//! store then makes the unit refuse access until the kernel has returned it, because a write that
//! "is aborted" must not reach the medium later.

use std::sync::Arc;
use std::time::Duration;

use engine::agree::ToOwner;
use iscsi::pdu::{LogoutResponseCode, TaskManagementFunction, TaskManagementResponse};
use iscsi::target::{LogoutEvent, ManagementEvent, ManagementId};
use scsi::{Change, ChangeKind, PortName, Principal};

use crate::core::Core;
use crate::lines::LineKind;
use crate::plan::{TargetIndex, UnitIndex};
use crate::running::{Request, Stage, TaskKey, Then, Wait, WaitKey};
use crate::session::{MappedLun, SessionKey};
use crate::watcher::Happening;

/// A reset is several aborts, one after the other on each unit; it is answered after this many
/// times what one may take.
const RESET_PATIENCE: u32 = 2;

/// For an orphan whose nexus has left its unit already: no reservation is of that port.
fn unknown_port() -> PortName {
    PortName {
        transport_id: Arc::from([]),
        target_port: 0,
        principal: Principal::Unknown,
    }
}

impl Core {
    /// Ends tasks; `then` happens when all have ended, or at the deadline.
    pub(crate) fn abort_tasks(&mut self, keys: &[TaskKey], then: Then) {
        let deadline = self.reactor.now() + self.settings.abort_timeout;
        // One more than there are tasks, so that nothing follows before all have been asked.
        let tasks_left = keys.len() + 1;
        let wait = self.waits.insert(Wait {
            tasks_left,
            deadline,
            is_late: false,
            then,
        });
        self.wait_deadlines.set(wait, deadline);
        // All first: the end of one must not let another begin that is to end as well.
        for &key in keys {
            if let Some(running) = self.tasks.get_mut(key) {
                running.is_aborted = true;
            }
        }
        let is_queued = |key: &&TaskKey| {
            self.tasks
                .get(**key)
                .is_some_and(|task| task.stage.is_queued())
        };
        let queued: Vec<TaskKey> = keys.iter().filter(is_queued).copied().collect();
        if !queued.is_empty() {
            self.leave_queues(&queued);
        }
        for &key in keys {
            self.abort_task(key, wait);
        }
        self.count_down(wait);
    }

    fn abort_task(&mut self, key: TaskKey, wait: WaitKey) {
        let Some(running) = self.tasks.get_mut(key) else {
            self.count_down(wait);
            return;
        };
        running.waiters.push(wait);
        match &running.stage {
            Stage::Store { operation } => {
                if let Some(operation) = *operation {
                    self.reactor.cancel(operation);
                }
                return;
            }
            // The owner has it in its queue; its answer ends the task.
            Stage::Owner => return,
            // Those have left their queues.
            Stage::Parked(_) | Stage::StoreFull(_) | Stage::Memory(_) | Stage::AnswerMemory(_) => {}
            Stage::Active | Stage::Dormant(_) | Stage::DataOut | Stage::Fence => {}
        }
        self.close_task(key);
    }

    /// Ends a task that nobody waits for.
    pub(crate) fn abort_unheard(&mut self, key: TaskKey) {
        self.abort_tasks(&[key], Then::Nothing);
    }

    /// One thing less that a wait waits for.
    pub(crate) fn count_down(&mut self, wait: WaitKey) {
        let Some(waiting) = self.waits.get_mut(wait) else {
            return;
        };
        waiting.tasks_left -= 1;
        if waiting.tasks_left == 0
            && let Some(Wait { then, is_late, .. }) = self.waits.remove(wait)
        {
            self.follow(then, !is_late);
        }
    }

    /// The deadline of a wait has come. What is still in the store is an orphan from now on, and the
    /// wait goes on until every core refuses access to the units concerned.
    pub(crate) fn give_up_waiting(&mut self, wait: WaitKey) {
        let deadline = self.reactor.now() + self.settings.abort_timeout;
        let Some(waiting) = self.waits.get_mut(wait) else {
            return;
        };
        waiting.deadline = deadline;
        self.wait_deadlines.set(wait, deadline);
        if waiting.is_late {
            self.give_up_refusing(wait);
            return;
        }
        waiting.is_late = true;
        // One, so that nothing follows before all have been asked.
        waiting.tasks_left = 1;
        let left: Vec<TaskKey> = self
            .tasks
            .iter()
            .filter(|(_, running)| running.waiters.contains(&wait))
            .map(|(key, _)| key)
            .collect();
        for key in left {
            let running = &mut self.tasks[key];
            running.waiters.retain(|&other| other != wait);
            let unit = running.unit;
            if running.is_in_store() && running.orphan.is_none() {
                let port = self.units[unit].view.port_of(running.nexus);
                running.orphan = Some(port.unwrap_or_else(unknown_port));
                let name = &self.units[unit].name;
                tracing::error!(unit = %name, "the store did not end a request in time");
                self.watcher.hear(&Happening::StoreStuck { unit: name });
                self.add_orphan(unit);
            }
            if self.tasks[key].orphan.is_some() {
                self.await_refusal(unit, wait);
            }
        }
        self.count_down(wait);
    }

    /// A core does not confirm that it refuses access. An initiator gets its answer, which is no
    /// success; a session does not end, nor a change, before it is safe.
    fn give_up_refusing(&mut self, wait: WaitKey) {
        let Some(waiting) = self.waits.get(wait) else {
            return;
        };
        match waiting.then {
            Then::Management { .. } | Then::Logout { .. } | Then::Nothing => {
                let then = waiting.then;
                self.waits.remove(wait);
                self.leave_refusals(wait);
                self.follow(then, false);
            }
            Then::Installed { .. }
            | Then::SessionEnd { .. }
            | Then::Drained { .. }
            | Then::Narrowed { .. }
            | Then::Left { .. } => {
                tracing::error!("a core does not confirm that a unit refuses access");
            }
        }
    }

    fn follow(&mut self, then: Then, is_complete: bool) {
        match then {
            Then::Management { session, id } => {
                let response = if is_complete {
                    TaskManagementResponse::Complete
                } else {
                    TaskManagementResponse::Rejected
                };
                self.respond_management(session, id, response);
            }
            Then::Installed { unit } => {
                self.ask_owner(unit, ToOwner::Installed { is_complete });
            }
            Then::Logout { session, event } => self.answer_logout(session, event, is_complete),
            Then::SessionEnd { session } => self.bury_session(session),
            Then::Drained { leaving } => self.handle_drained(leaving),
            Then::Left { leaving } => self.handle_left(leaving),
            Then::Narrowed { narrowing } => drop(self.narrowing.remove(narrowing)),
            Then::Nothing => {}
        }
    }

    pub(crate) fn respond_management(
        &mut self,
        session: SessionKey,
        id: ManagementId,
        response: TaskManagementResponse,
    ) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        entry.session.respond_management(id, response);
        self.mark_dirty(session, id.connection);
    }

    /// A task management request of a session.
    pub(crate) fn handle_management(&mut self, session: SessionKey, event: ManagementEvent) {
        let Some(entry) = self.sessions.get(session) else {
            return;
        };
        let ManagementEvent {
            id,
            function,
            lun,
            task,
            cmd_sn,
        } = event;
        let now = self.reactor.now();
        if self.line_limits.admit(LineKind::TaskManagement, now) {
            let initiator = &entry.profile.initiator_name;
            tracing::info!(%initiator, ?function, lun, "task management");
        }
        let then = Then::Management { session, id };
        match function {
            TaskManagementFunction::AbortTask => {
                let key = task.and_then(|task| entry.task_key(task));
                let keys: Vec<TaskKey> = key.into_iter().collect();
                self.abort_tasks(&keys, then);
            }
            // Each nexus has a task set of its own (TST 001b), so these two are the same.
            TaskManagementFunction::AbortTaskSet | TaskManagementFunction::ClearTaskSet => {
                if entry.luns.find(lun).is_none() {
                    self.respond_management(session, id, TaskManagementResponse::LunDoesNotExist);
                    return;
                }
                let tasks = entry.session.tasks_of_unit(lun, Some(cmd_sn));
                let keys: Vec<TaskKey> = tasks
                    .into_iter()
                    .filter_map(|task| entry.task_key(task))
                    .collect();
                self.abort_tasks(&keys, then);
            }
            TaskManagementFunction::LogicalUnitReset => match entry.luns.find(lun) {
                // It would end the commands of others.
                Some(mapped) if self.sees_read_only(mapped) => {
                    self.respond_management(
                        session,
                        id,
                        TaskManagementResponse::AuthorizationFailed,
                    );
                }
                Some(mapped) => {
                    let unit = mapped.unit;
                    let request = Request::Management {
                        session: Some(session),
                        id,
                        left: 1,
                        is_complete: true,
                        cold: None,
                        since: self.reactor.now(),
                    };
                    self.reset_units(&[unit], ChangeKind::LogicalUnitReset, request);
                }
                None => {
                    self.respond_management(session, id, TaskManagementResponse::LunDoesNotExist);
                }
            },
            TaskManagementFunction::TargetWarmReset | TaskManagementFunction::TargetColdReset => {
                let is_cold = function == TaskManagementFunction::TargetColdReset;
                let target = entry.profile.target;
                let is_allowed =
                    !is_cold || target.is_some_and(|target| self.cold_resets.are_allowed(target));
                if !is_allowed || entry.luns.iter().any(|mapped| self.sees_read_only(mapped)) {
                    self.respond_management(
                        session,
                        id,
                        TaskManagementResponse::AuthorizationFailed,
                    );
                    return;
                }
                let units: Vec<UnitIndex> = entry.luns.iter().map(|mapped| mapped.unit).collect();
                let cold = target.filter(|_| is_cold);
                let request = Request::Management {
                    session: Some(session),
                    id,
                    left: units.len(),
                    is_complete: true,
                    cold,
                    since: self.reactor.now(),
                };
                self.reset_units(&units, ChangeKind::TargetReset, request);
            }
            TaskManagementFunction::ClearAca
            | TaskManagementFunction::TaskReassign
            | TaskManagementFunction::QueryTask
            | TaskManagementFunction::QueryTaskSet
            | TaskManagementFunction::ItNexusReset
            | TaskManagementFunction::QueryAsynchronousEvent => {
                self.respond_management(session, id, TaskManagementResponse::NotSupported);
            }
        }
    }

    /// Whether the nexus may not change the unit, so that it may not reset it for others either.
    fn sees_read_only(&self, mapped: MappedLun) -> bool {
        let unit = self.units.get(mapped.unit);
        unit.is_none_or(|unit| unit.view.is_read_only(mapped.nexus))
    }

    /// Asks the owners of the units; the answer follows when all have answered.
    fn reset_units(&mut self, units: &[UnitIndex], kind: ChangeKind, request: Request) {
        let Request::Management {
            session: Some(session),
            id,
            ..
        } = request
        else {
            return;
        };
        if units.is_empty() {
            self.respond_management(session, id, TaskManagementResponse::Complete);
            return;
        }
        let Some(entry) = self.sessions.get(session) else {
            return;
        };
        let from = Some(entry.nexus());
        let ticket = self.open_request(request);
        for &unit in units {
            let change = Change {
                from: from.clone(),
                kind: kind.clone(),
            };
            self.ask_change(unit, ticket, change);
        }
    }

    /// Answers resets that take too long. What they began goes on.
    pub(crate) fn handle_reset_timeouts(&mut self, now: Duration) {
        let timeout = self.settings.abort_timeout * RESET_PATIENCE;
        let mut late = Vec::new();
        for (_, request) in self.requests.iter_mut() {
            if let Request::Management {
                session, id, since, ..
            } = request
                && now >= *since + timeout
                && let Some(session) = session.take()
            {
                late.push((session, *id));
            }
        }
        for (session, id) in late {
            self.respond_management(session, id, TaskManagementResponse::Rejected);
        }
    }

    /// The sessions of a target end, with what is still to be said on them.
    pub(crate) fn end_target(&mut self, target: TargetIndex) {
        if let Some(front) = self.front.as_mut() {
            front.note_reset(target);
        }
        let sessions: Vec<SessionKey> = self
            .sessions
            .iter()
            .filter(|(_, entry)| entry.profile.target == Some(target))
            .map(|(key, _)| key)
            .collect();
        for session in sessions {
            let Some(entry) = self.sessions.get_mut(session) else {
                continue;
            };
            entry.is_ending = true;
            for key in entry.connections.clone().into_iter().flatten() {
                if let Some(connection) = self.connections.get_mut(key) {
                    connection.close_when_sent = true;
                }
            }
            self.mark_session_dirty(session);
        }
    }

    /// A logout request: the tasks it concerns end first.
    pub(crate) fn handle_logout(&mut self, session: SessionKey, event: LogoutEvent) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        let tasks = match event.closing {
            Some(connection) => entry.session.tasks_of_connection(connection),
            None => {
                entry.is_ending = true;
                entry.session.tasks()
            }
        };
        let keys: Vec<TaskKey> = tasks
            .into_iter()
            .filter_map(|task| entry.task_key(task))
            .collect();
        self.abort_tasks(&keys, Then::Logout { session, event });
    }

    fn answer_logout(&mut self, session: SessionKey, event: LogoutEvent, is_complete: bool) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        let code = if is_complete {
            LogoutResponseCode::Success
        } else {
            LogoutResponseCode::CleanupFailed
        };
        entry.session.respond_logout(event.id, code);
        self.mark_dirty(session, event.id.connection);
        self.close_after_output(session, event);
    }
}
