//! Tasks that end without an answer, and those who wait for that.

use engine::agree::ToOwner;
use engine::{RequestNumber, Ticket};
use iscsi::pdu::{LogoutResponseCode, TaskManagementFunction, TaskManagementResponse, Tsih};
use iscsi::target::{LogoutEvent, ManagementEvent, ManagementId};
use scsi::{Change, ChangeKind};

use super::core::{Core, Request, Stage, Then, Wait};

impl Core {
    /// Ends tasks; `then` follows when all have ended, or at the deadline.
    pub(super) fn abort_tasks(&mut self, keys: &[u64], then: Then) {
        let wait = self.new_key();
        let deadline = self.now + self.settings.abort_timeout;
        let left = keys.len() + 1;
        self.waits.insert(
            wait,
            Wait {
                left,
                deadline,
                is_late: false,
                then,
            },
        );
        for &key in keys {
            let Some(running) = self.tasks.get_mut(&key) else {
                self.count_down(wait);
                continue;
            };
            running.waits.push(wait);
            running.is_aborted = true;
            // The store and the owner end these in their own time.
            if !matches!(running.stage, Stage::Store | Stage::Owner(_)) {
                self.close_task(key);
            }
        }
        self.count_down(wait);
    }

    pub(super) fn count_down(&mut self, key: u64) {
        let Some(wait) = self.waits.get_mut(&key) else {
            return;
        };
        wait.left -= 1;
        if wait.left == 0 {
            let (then, is_complete) = (wait.then, !wait.is_late);
            self.waits.remove(&key);
            self.follow(then, is_complete);
        }
    }

    /// Deadlines of waits: what is left in the store is a danger until it ends, so that the unit
    /// refuses access.
    pub(super) fn time_out_waits(&mut self) {
        let now = self.now;
        let due = self.waits.iter().filter(|(_, wait)| wait.deadline <= now);
        let due: Vec<u64> = due.map(|(&key, _)| key).collect();
        for key in due {
            self.give_up_waiting(key);
        }
    }

    /// What is still in the store is an orphan from now on, and the wait goes on until every core
    /// refuses access.
    fn give_up_waiting(&mut self, key: u64) {
        let deadline = self.now + self.settings.abort_timeout;
        let Some(wait) = self.waits.get_mut(&key) else {
            return;
        };
        wait.deadline = deadline;
        if wait.is_late {
            // An initiator gets its answer, which is no success; nothing else follows before it is
            // safe.
            if matches!(wait.then, Then::Management(..) | Then::Logout(..)) {
                let then = wait.then;
                self.waits.remove(&key);
                self.side.leave_refusal(key);
                self.follow(then, false);
            }
            return;
        }
        wait.is_late = true;
        wait.left = 1;
        let left = self.tasks.iter_mut();
        let left = left.filter(|(_, running)| running.waits.contains(&key));
        let mut orphans = Vec::new();
        for (_, running) in left {
            running.waits.retain(|&other| other != key);
            let is_new = matches!(running.stage, Stage::Store) && !running.is_orphan;
            running.is_orphan |= is_new;
            orphans.extend(running.is_orphan.then_some(is_new));
        }
        for is_new in orphans {
            if is_new {
                self.add_orphan();
            }
            if self.side.await_refusal(key)
                && let Some(wait) = self.waits.get_mut(&key)
            {
                wait.left += 1;
            }
        }
        self.count_down(key);
    }

    fn add_orphan(&mut self) {
        let number = self.next_key;
        let ticket = Ticket {
            core: self.index,
            request: RequestNumber(number),
        };
        let question = self.side.add_orphan(|| ticket);
        self.settle_access();
        if let Some(question) = question {
            self.next_key += 1;
            self.requests.insert(number, Request::Refusal);
            self.ask_owner(question);
        }
    }

    pub(super) fn end_orphan(&mut self) {
        if let Some((message, waits)) = self.side.end_orphan(self.index) {
            self.settle_access();
            self.ask_owner(message);
            waits.into_iter().for_each(|wait| self.count_down(wait));
        }
    }

    pub(super) fn settle_access(&mut self) {
        self.view.refuse_access(self.side.refuses_access());
    }

    pub(super) fn handle_access_refused(&mut self, ticket: Ticket) {
        self.requests.remove(&ticket.request.0);
        for wait in self.side.handle_access_refused(ticket) {
            self.count_down(wait);
        }
    }

    fn follow(&mut self, then: Then, is_complete: bool) {
        match then {
            Then::Management(tsih, id) => self.respond_management(tsih, id, outcome(is_complete)),
            Then::Logout(tsih, event) => self.answer_logout(tsih, event, is_complete),
            Then::SessionEnd(tsih) => self.bury_session(tsih),
            Then::Installed => self.ask_owner(ToOwner::Installed { is_complete }),
        }
    }

    pub(super) fn respond_management(
        &mut self,
        tsih: Tsih,
        id: ManagementId,
        response: TaskManagementResponse,
    ) {
        if let Some(entry) = self.sessions.get_mut(&tsih.0) {
            entry.session.respond_management(id, response);
        }
    }

    pub(super) fn answer_management(&mut self, tsih: Tsih, id: ManagementId, is_complete: bool) {
        self.respond_management(tsih, id, outcome(is_complete));
    }

    pub(super) fn handle_management(&mut self, tsih: Tsih, event: ManagementEvent) {
        let then = Then::Management(tsih, event.id);
        match event.function {
            TaskManagementFunction::AbortTask => {
                let key = event.task.and_then(|task| self.key_of(tsih, task));
                let keys: Vec<u64> = key.into_iter().collect();
                self.abort_tasks(&keys, then);
            }
            TaskManagementFunction::AbortTaskSet | TaskManagementFunction::ClearTaskSet => {
                let Some(entry) = self.sessions.get(&tsih.0) else {
                    return;
                };
                let tasks = entry.session.tasks_of_unit(event.lun, Some(event.cmd_sn));
                let keys = tasks.into_iter().filter_map(|id| self.key_of(tsih, id));
                let keys: Vec<u64> = keys.collect();
                self.abort_tasks(&keys, then);
            }
            TaskManagementFunction::LogicalUnitReset => {
                self.reset(tsih, event.id, ChangeKind::LogicalUnitReset);
            }
            TaskManagementFunction::TargetWarmReset | TaskManagementFunction::TargetColdReset => {
                self.reset(tsih, event.id, ChangeKind::TargetReset);
            }
            TaskManagementFunction::ClearAca
            | TaskManagementFunction::TaskReassign
            | TaskManagementFunction::QueryTask
            | TaskManagementFunction::QueryTaskSet
            | TaskManagementFunction::ItNexusReset
            | TaskManagementFunction::QueryAsynchronousEvent => {
                let response = TaskManagementResponse::NotSupported;
                self.respond_management(tsih, event.id, response);
            }
        }
    }

    fn reset(&mut self, tsih: Tsih, id: ManagementId, kind: ChangeKind) {
        let from = self.sessions.get(&tsih.0).map(|entry| entry.nexus());
        let ticket = self.open_request(Request::Management(tsih, id));
        let change = Change { from, kind };
        self.ask_owner(ToOwner::Change { ticket, change });
    }

    pub(super) fn handle_logout(&mut self, tsih: Tsih, event: LogoutEvent) {
        let Some(entry) = self.sessions.get_mut(&tsih.0) else {
            return;
        };
        let tasks = match event.closing {
            Some(connection) => entry.session.tasks_of_connection(connection),
            None => {
                entry.is_ending = true;
                entry.session.tasks()
            }
        };
        let keys = tasks.into_iter().filter_map(|id| self.key_of(tsih, id));
        let keys: Vec<u64> = keys.collect();
        self.abort_tasks(&keys, Then::Logout(tsih, event));
    }

    fn answer_logout(&mut self, tsih: Tsih, event: LogoutEvent, is_complete: bool) {
        let Some(entry) = self.sessions.get_mut(&tsih.0) else {
            return;
        };
        let code = if is_complete {
            LogoutResponseCode::Success
        } else {
            LogoutResponseCode::CleanupFailed
        };
        entry.session.respond_logout(event.id, code);
        let answered = event.id.connection;
        let mut others = Vec::new();
        for (&link, connection) in &mut self.connections {
            let is_meant = event.closing.is_none_or(|index| index == connection.index);
            if connection.tsih != tsih || !is_meant {
                continue;
            }
            if connection.index == answered {
                connection.close_when_sent = true;
            } else {
                others.push(link);
            }
        }
        for link in others {
            self.close_connection(link);
        }
    }
}

const fn outcome(is_complete: bool) -> TaskManagementResponse {
    if is_complete {
        TaskManagementResponse::Complete
    } else {
        TaskManagementResponse::Rejected
    }
}
