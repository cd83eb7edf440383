//! Commands on their way: from the initiator's PDU through device server and store to the answer.

use std::collections::HashSet;
use std::time::Duration;

use iscsi::target::{Command, DataFault, Response, TaskId};
use memory::{Need, Payload};
use scsi::{Input, Outcome, Sense, SenseCode, SenseKey, Status, Step, TaskAttribute};
use store::{HelperResult, IoRequest, IoResult, IoTag, RingOperation, Submitted};

use crate::core::Core;
use crate::counters::{Account, NO_SERIES};
use crate::plan::UnitIndex;
use crate::room::{self, Lien, Room};
use crate::running::{Request, Running, Stage, TaskKey};
use crate::session::{MappedLun, SessionEntry, SessionKey};
use crate::slow::Ending;
use crate::token::Purpose;

impl Core {
    /// A command of a session, in its turn.
    pub(crate) fn handle_command(&mut self, session: SessionKey, id: TaskId, command: Command) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        if entry.is_ending {
            entry.session.abandon(id);
            return;
        }
        let Some(mapped) = entry.luns.find(command.lun) else {
            let outcome = scsi::missing::execute(&scsi_command(&command, &[], &entry.luns));
            self.respond_at_once(session, id, outcome, false, Account::NOBODY);
            return;
        };
        let series = if mapped.series == NO_SERIES {
            self.tally.find_series(entry, command.lun, mapped)
        } else {
            mapped.series
        };
        let account = Account::new(series, entry, id, &command);
        let unit = mapped.unit;
        let Some(attribute) = attribute_of(command.attribute) else {
            // Spec: SAM-5, task attributes: neither a reserved one nor ACA without an ACA condition.
            let sense = Sense::illegal_request(SenseCode::INVALID_MESSAGE_ERROR);
            let descriptor = self.units[unit].view.descriptor_sense();
            self.respond_at_once(session, id, Outcome::check(sense), descriptor, account);
            return;
        };
        let set = self.units[unit].view.task_set(mapped.nexus);
        let may_pass = attribute == TaskAttribute::Simple
            && command.extended_cdb.is_empty()
            && set.is_some_and(|set| set.lets_simple_pass())
            && self.units[unit].side.is_open();
        if may_pass {
            self.run_at_once(session, id, &command, mapped, account);
            return;
        }
        let now = self.reactor.now();
        let key = self.enroll(Running::new(session, id, unit, mapped.nexus, account, now));
        let set = self.units[unit].view.task_set(mapped.nexus);
        if set.is_none_or(|set| set.enter(attribute, key.place())) {
            self.start(key, &command);
        } else {
            self.enter(key, Stage::Dormant(Box::new(command)));
            if let Some(entry) = self.sessions.get_mut(session) {
                entry.session.leave_chunk(id, &entry.pool);
            }
        }
    }

    /// A task waits for something else from now on. Gives what it waited for.
    pub(crate) fn enter(&mut self, key: TaskKey, stage: Stage) -> Stage {
        let now = self.reactor.now();
        self.tasks[key].enter(stage, now)
    }

    /// Gives a task its place in the tables.
    fn enroll(&mut self, running: Running) -> TaskKey {
        let (session, id) = (running.session, running.id);
        self.tally.enter(running.account);
        let key = self.tasks.insert(running);
        if let Some(entry) = session.and_then(|session| self.sessions.get_mut(session)) {
            entry.set_task_key(id, Some(key));
        }
        key
    }

    /// Runs a SIMPLE command that nothing stands in the way of. As long as it need not wait it
    /// has no place in any table: that is all there is to most reads and writes of memory.
    fn run_at_once(
        &mut self,
        session: SessionKey,
        id: TaskId,
        command: &Command,
        mapped: MappedLun,
        account: Account,
    ) {
        let index = mapped.unit;
        let (Some(entry), Some(unit)) = (self.sessions.get_mut(session), self.units.get_mut(index))
        else {
            return;
        };
        // What the task will be called if it does have to wait.
        let tag = tag_of(self.tasks.vacant_key());
        let command = scsi_command(command, &[], &entry.luns);
        let (mut task, mut step) = unit.view.start(mapped.nexus, &command);
        let hindrance = loop {
            let input = match step {
                Step::DataOut { length } => {
                    match entry.session.request_data(id, length, &entry.pool) {
                        Some(data) => match room::kept(data, Some(&task), &entry.pool) {
                            Ok(data) => Input::DataOut(data),
                            Err(_) => break Hindrance::NoRoom,
                        },
                        None => break Hindrance::DataOut,
                    }
                }
                Step::Io(request) => {
                    let (pool, reactor) = (&entry.pool, &mut self.reactor);
                    let connections = &self.connections;
                    let is_backed_up = || room::is_backed_up(entry, connections);
                    let task = Some(&task);
                    match room::make_room(request, task, unit, pool, reactor, is_backed_up) {
                        Room::Ready(request) => match unit.store.submit(tag, request) {
                            Submitted::Done(result) => Input::Io(result),
                            submitted @ (Submitted::Ring(_)
                            | Submitted::Helper(_)
                            | Submitted::Pending
                            | Submitted::Full(_)) => break Hindrance::Store(submitted),
                        },
                        Room::Wait(request, _) | Room::UnitShare(request) => {
                            break Hindrance::Other(Step::Io(request));
                        }
                        Room::Refused => break Hindrance::NoRoom,
                    }
                }
                Step::Done(outcome) if !must_copy(&outcome, &entry.session, id) => {
                    let descriptor = unit.view.descriptor_sense();
                    self.respond_at_once(session, id, outcome, descriptor, account);
                    return;
                }
                step @ (Step::Done(_) | Step::Owner(_) | Step::Fence(_)) => {
                    break Hindrance::Other(step);
                }
            };
            step = unit.view.resume(&mut task, input);
        };
        if let Some(set) = unit.view.task_set(mapped.nexus) {
            let may_start = set.enter(TaskAttribute::Simple, self.tasks.vacant_key().place());
            debug_assert!(may_start, "a task that was let pass has to wait");
        }
        let now = self.reactor.now();
        let mut running = Running::new(session, id, index, mapped.nexus, account, now);
        running.task = Some(task);
        let key = self.enroll(running);
        match hindrance {
            Hindrance::DataOut => self.await_data_out(key),
            Hindrance::Store(submitted) => {
                if let Some(result) = self.carry_on(key, submitted) {
                    let step = self.resume(key, Input::Io(result));
                    self.drive(key, step);
                }
            }
            Hindrance::NoRoom => self.refuse(key),
            Hindrance::Other(step) => self.drive(key, step),
        }
    }

    fn start(&mut self, key: TaskKey, command: &Command) {
        let running = &mut self.tasks[key];
        let Some(entry) = running
            .session
            .and_then(|session| self.sessions.get(session))
        else {
            return;
        };
        let view = &mut self.units[running.unit].view;
        let long;
        let cdb = if command.extended_cdb.is_empty() {
            &[]
        } else {
            long = [&command.cdb[..], &command.extended_cdb].concat();
            &long[..]
        };
        let (task, step) = view.start(running.nexus, &scsi_command(command, cdb, &entry.luns));
        running.task = Some(task);
        self.drive(key, step);
    }

    /// Carries a task on until it waits for something or is over.
    pub(crate) fn drive(&mut self, key: TaskKey, mut step: Step) {
        loop {
            let input = match step {
                Step::DataOut { length } => match self.collect(key, length) {
                    Some(payload) => Input::DataOut(payload),
                    None => return,
                },
                Step::Io(request) => match self.submit(key, request) {
                    Some(result) => Input::Io(result),
                    None => return,
                },
                Step::Owner(change) => {
                    self.enter(key, Stage::Owner);
                    let unit = self.tasks[key].unit;
                    let ticket = self.open_request(Request::Task(key));
                    self.ask_change(unit, ticket, change);
                    return;
                }
                Step::Fence(blocks) => {
                    self.ask_fence(key, blocks);
                    return;
                }
                Step::Done(outcome) => {
                    self.finish(key, outcome);
                    return;
                }
            };
            step = self.resume(key, input);
        }
    }

    fn resume(&mut self, key: TaskKey, input: Input) -> Step {
        self.enter(key, Stage::Active);
        let running = &mut self.tasks[key];
        match &mut running.task {
            Some(task) => self.units[running.unit].view.resume(task, input),
            // A task that never started is never given anything.
            None => Step::Done(Outcome::check(internal_failure())),
        }
    }

    fn collect(&mut self, key: TaskKey, length: u32) -> Option<Payload> {
        let running = &mut self.tasks[key];
        let session = running.session?;
        let entry = self.sessions.get_mut(session)?;
        let Some(data) = entry.session.request_data(running.id, length, &entry.pool) else {
            self.await_data_out(key);
            return None;
        };
        let kept = room::kept(data, running.task.as_ref(), &entry.pool);
        if kept.is_err() {
            self.refuse(key);
        }
        kept.ok()
    }

    /// The session collects data for a task.
    fn await_data_out(&mut self, key: TaskKey) {
        self.enter(key, Stage::DataOut);
        let Some(session) = self.tasks[key].session else {
            return;
        };
        let is_starving = self.sessions[session].session.is_starving();
        if is_starving && !self.starved_sessions.contains(&session) {
            self.starved_sessions.push(session);
        }
        if self.sessions[session].session.has_event() {
            // What has come for it already is bad.
            self.eventful.push(session);
        }
        self.mark_session_dirty(session);
    }

    /// The task of a session that has this name and waits for data.
    fn task_awaiting_data(&self, session: SessionKey, id: TaskId) -> Option<TaskKey> {
        let key = self.sessions.get(session)?.task_key(id)?;
        let task = self.tasks.get(key)?;
        (task.id == id && matches!(task.stage, Stage::DataOut)).then_some(key)
    }

    /// The data that [`Core::collect`] asked for.
    pub(crate) fn handle_data_out(&mut self, session: SessionKey, id: TaskId, data: Payload) {
        // It may have been aborted meanwhile.
        let Some(key) = self.task_awaiting_data(session, id) else {
            return;
        };
        let step = self.resume(key, Input::DataOut(data));
        self.drive(key, step);
    }

    // ---- the store ---------------------------------------------------------------------------

    /// Hands a request to the store of the task's unit. The result, if it is there at once.
    fn submit(&mut self, key: TaskKey, request: IoRequest) -> Option<IoResult> {
        let running = &mut self.tasks[key];
        let unit = &mut self.units[running.unit];
        if unit.view.refuses_access() {
            // It was let pass before, and has waited since.
            let sense = Sense::new(SenseKey::NotReady, SenseCode::LOGICAL_UNIT_NOT_READY);
            self.finish(key, Outcome::check(sense));
            return None;
        }
        if alters(&request) && unit.view.is_read_only(running.nexus) {
            // The right to write was taken from it while it waited.
            let sense = Sense::new(SenseKey::DataProtect, SenseCode::WRITE_PROTECTED);
            self.finish(key, Outcome::check(sense));
            return None;
        }
        if !unit.side.is_open()
            && let Some(blocks) = running.task.as_ref().and_then(scsi::Task::blocks)
            && unit.side.is_fenced(&blocks, key, running.fence)
        {
            self.park(key, request);
            return None;
        }
        let request = match self.make_room_for(key, request) {
            Room::Ready(request) => request,
            Room::Wait(request, why) => {
                self.await_room(key, Stage::Memory(request), why);
                return None;
            }
            Room::UnitShare(request) => {
                self.await_store(key, request);
                return None;
            }
            Room::Refused => {
                self.refuse(key);
                return None;
            }
        };
        let unit = &mut self.units[self.tasks[key].unit];
        let submitted = unit.store.submit(tag_of(key), request);
        self.carry_on(key, submitted)
    }

    /// Does what the store asks for. The result, if it is there.
    fn carry_on(&mut self, key: TaskKey, submitted: Submitted) -> Option<IoResult> {
        let token = Purpose::Task(key).token();
        let operation = match submitted {
            Submitted::Done(result) => return Some(result),
            Submitted::Ring(operation) => {
                let running = &mut self.tasks[key];
                let held = &self.units[running.unit].held_bytes;
                running.lien = Some(Lien::new(held, &operation));
                Some(self.reactor.submit_store(token, operation))
            }
            Submitted::Helper(operation) => Some(self.reactor.submit_helper(token, operation)),
            Submitted::Pending => None,
            Submitted::Full(request) => {
                self.await_store(key, request);
                return None;
            }
        };
        self.enter(key, Stage::Store { operation });
        None
    }

    pub(crate) fn handle_ring_result(
        &mut self,
        key: TaskKey,
        operation: RingOperation,
        result: i32,
    ) {
        let Some(unit) = self.task_in_store(key) else {
            return;
        };
        let store = &mut self.units[unit].store;
        let submitted = store.handle_ring_result(tag_of(key), operation, result);
        self.handle_submitted(key, submitted);
    }

    pub(crate) fn handle_helper_result(&mut self, key: TaskKey, result: HelperResult) {
        let Some(unit) = self.task_in_store(key) else {
            return;
        };
        let submitted = self.units[unit]
            .store
            .handle_helper_result(tag_of(key), result);
        self.handle_submitted(key, submitted);
    }

    /// The unit of a task that the store works for. A completion finds its task in any case, because
    /// that keeps its place until then.
    fn task_in_store(&self, key: TaskKey) -> Option<UnitIndex> {
        let task = self.tasks.get(key).filter(|task| task.is_in_store());
        debug_assert!(
            task.is_some(),
            "a completion for a task that is not in the store"
        );
        if task.is_none() {
            tracing::error!("a completion for a task that is not in the store");
        }
        task.map(|task| task.unit)
    }

    fn handle_submitted(&mut self, key: TaskKey, submitted: Submitted) {
        let unit = self.tasks[key].unit;
        // What the store had of the task is back.
        self.enter(key, Stage::Active);
        self.tasks[key].lien = None;
        if self.tasks[key].is_aborted && !matches!(submitted, Submitted::Done(_)) {
            // The rest of a transfer that nobody wants any more is not begun.
            drop(submitted);
            self.units[unit].store.abandon(tag_of(key));
            self.close_task(key);
        } else if let Some(result) = self.carry_on(key, submitted) {
            if self.tasks[key].is_aborted {
                self.close_task(key);
            } else {
                let step = self.resume(key, Input::Io(result));
                self.drive(key, step);
            }
        }
        // One that is done at once makes room for the next.
        for _ in 0..self.units[unit].full.len() {
            let Some(next) = self.units[unit].full.pop_front() else {
                break;
            };
            let left = self.units[unit].full.len();
            self.retry(next);
            if self.units[unit].full.len() > left {
                // Still none; it keeps its place.
                self.units[unit].full.rotate_right(1);
                break;
            }
        }
    }

    /// Tries a request again that could not be taken before.
    pub(crate) fn retry(&mut self, key: TaskKey) {
        if self.tasks.get(key).is_none() {
            debug_assert!(false, "a task that is over waits");
            return;
        }
        match self.enter(key, Stage::Active) {
            Stage::Memory(request) | Stage::StoreFull(request) | Stage::Parked(request) => {
                if let Some(result) = self.submit(key, request) {
                    let step = self.resume(key, Input::Io(result));
                    self.drive(key, step);
                }
            }
            Stage::AnswerMemory(outcome) => self.finish(key, outcome),
            stage @ (Stage::Active
            | Stage::Dormant(_)
            | Stage::DataOut
            | Stage::Store { .. }
            | Stage::Owner
            | Stage::Fence) => {
                debug_assert!(false, "retry in {stage:?}");
                self.enter(key, stage);
            }
        }
    }

    // ---- answers -----------------------------------------------------------------------------

    /// The device server is done with a task.
    pub(crate) fn finish(&mut self, key: TaskKey, mut outcome: Outcome) {
        let running = &self.tasks[key];
        let Some(session) = running.session else {
            self.close_task(key);
            return;
        };
        if must_copy(&outcome, &self.sessions[session].session, running.id) {
            let pool = &self.sessions[session].pool;
            match room::copied(&outcome.data, Need::Begin, pool) {
                Ok(data) => outcome.data = data,
                Err(why) => {
                    self.await_room(key, Stage::AnswerMemory(outcome), why);
                    return;
                }
            }
        }
        let descriptor = self.units[running.unit].view.descriptor_sense();
        self.respond_to(key, session, outcome, descriptor);
    }

    /// Answers a task that has its place in the tables; then it has none.
    fn respond_to(
        &mut self,
        key: TaskKey,
        session: SessionKey,
        outcome: Outcome,
        descriptor: bool,
    ) {
        let ending = Ending::Answered(outcome.status);
        let id = self.tasks[key].id;
        self.respond(session, id, outcome, descriptor);
        self.end_task(key, ending);
    }

    /// Answers a command that never had a place in any table.
    fn respond_at_once(
        &mut self,
        session: SessionKey,
        id: TaskId,
        outcome: Outcome,
        descriptor: bool,
        account: Account,
    ) {
        self.tally.note(account, outcome.status);
        self.respond(session, id, outcome, descriptor);
    }

    fn respond(&mut self, session: SessionKey, id: TaskId, outcome: Outcome, descriptor: bool) {
        let Some(entry) = self.sessions.get_mut(session) else {
            return;
        };
        let sense = outcome.sense.map(|sense| sense.encode(descriptor));
        let sense = sense.as_deref().unwrap_or(&[]);
        let response = Response {
            status: outcome.status as u8,
            sense,
            data: outcome.data,
            transfer_length: outcome.transfer_length,
        };
        let connection = entry.session.respond(id, response);
        if let Some(connection) = connection {
            self.mark_dirty(session, connection);
        }
    }

    /// The data of a command will not be complete.
    pub(crate) fn handle_data_fault(&mut self, session: SessionKey, id: TaskId, fault: DataFault) {
        let aborted = |code| Outcome::check(Sense::new(SenseKey::AbortedCommand, code));
        let outcome = match fault {
            DataFault::UnexpectedUnsolicited => aborted(SenseCode::UNEXPECTED_UNSOLICITED_DATA),
            DataFault::IncorrectAmount => aborted(SenseCode::NOT_ENOUGH_UNSOLICITED_DATA),
            DataFault::DigestError => aborted(SenseCode::PROTOCOL_SERVICE_CRC_ERROR),
            DataFault::NoMemory => Outcome::status(Status::TaskSetFull),
        };
        if let Some(key) = self.task_awaiting_data(session, id) {
            self.respond_to(key, session, outcome, false);
        } else {
            // Its command was not given out. Any other task keeps its place and its outcome: the
            // session says this of none that does not wait for data.
            let has_place = |entry: &SessionEntry| entry.task_key(id).is_some();
            let is_known = self.sessions.get(session).is_some_and(has_place);
            debug_assert!(!is_known, "a fault of data that nothing waits for");
            if !is_known {
                self.respond(session, id, outcome, false);
            }
        }
    }

    /// Forgets a task that was aborted.
    pub(crate) fn close_task(&mut self, key: TaskKey) {
        self.end_task(key, Ending::Aborted);
    }

    /// Removes a task, and lets those go on that waited for it. Its place is kept while the store
    /// or the owner of its unit has something of it that comes back by itself: that must find this
    /// task, and nothing else may take the place before.
    fn end_task(&mut self, key: TaskKey, ending: Ending) {
        let now = self.reactor.now();
        let Some(task) = self.tasks.get_mut(key) else {
            debug_assert!(false, "a task ended twice");
            return;
        };
        if task.stage.is_elsewhere() {
            debug_assert!(false, "a task ended in {:?}", task.stage);
            tracing::error!(stage = ?task.stage, "a task cannot end yet");
            task.is_aborted = true;
            return;
        }
        let Some(mut running) = self.tasks.remove(key) else {
            return;
        };
        running.life.leave(running.stage.phase(), now);
        self.tally.leave(running.account);
        self.tally.note_lived(running.account, ending, running.life);
        let unit_index = running.unit;
        if let Some(entry) = running
            .session
            .and_then(|session| self.sessions.get_mut(session))
        {
            if running.is_aborted {
                entry.session.abandon(running.id);
            }
            if entry.task_key(running.id) == Some(key) {
                entry.set_task_key(running.id, None);
            }
        }
        let unit = &mut self.units[unit_index];
        let mut startable = Vec::new();
        if running.session.is_some()
            && let Some(set) = unit.view.task_set(running.nexus)
        {
            set.leave(key.place(), &mut startable);
        }
        if running.orphan.is_some() {
            self.end_orphan(unit_index);
        }
        if let Some(ticket) = running.fence {
            self.release_fence(unit_index, ticket);
        }
        if !self.units[unit_index].side.is_open() {
            self.leave_fences(unit_index, key);
        }
        for wait in running.waiters {
            self.count_down(wait);
        }
        let in_place = |place| self.tasks.in_place(place as usize);
        self.startable
            .extend(startable.into_iter().filter_map(in_place));
    }

    /// Starts the tasks whose turn has come. Not where it comes: a queue of short commands would
    /// be a recursion as deep as it is long.
    pub(crate) fn start_waiting(&mut self) {
        let now = self.reactor.now();
        loop {
            while let Some(key) = self.startable.pop_front() {
                let Some(waiting) = self.tasks.get_mut(key) else {
                    continue;
                };
                if waiting.is_aborted || !matches!(waiting.stage, Stage::Dormant(_)) {
                    continue;
                }
                if let Stage::Dormant(command) = waiting.enter(Stage::Active, now) {
                    self.start(key, &command);
                }
            }
            let Some(session) = self.eventful.pop() else {
                break;
            };
            self.handle_session_events(session);
        }
    }

    /// Ends tasks that have waited too long, each with the status of [`Stage::patience`]. Called
    /// once a tick.
    pub(crate) fn end_overdue(&mut self, now: Duration) {
        let fence = self.settings.fence_timeout;
        let units = self.units.values();
        let queued = units.flat_map(|unit| unit.parked.iter().chain(&unit.full));
        let is_overdue = |key: &&TaskKey| {
            self.tasks.get(**key).is_some_and(|task| {
                let patience = task.stage.patience(fence);
                patience.is_some_and(|(limit, _)| task.life.waited(now) >= limit)
            })
        };
        let sharing = self
            .sharing
            .iter()
            .filter_map(|&key| self.sessions.get(key));
        let sharing = sharing.flat_map(|entry| &entry.waiting);
        let overdue = queued.chain(&self.starved).chain(sharing);
        let overdue = overdue.filter(is_overdue);
        let overdue: Vec<TaskKey> = overdue.copied().collect();
        if overdue.is_empty() {
            return;
        }
        self.leave_queues(&overdue);
        for key in overdue {
            let Some(task) = self.tasks.get(key) else {
                continue;
            };
            let Some((_, status)) = task.stage.patience(fence) else {
                continue;
            };
            self.enter(key, Stage::Active);
            self.finish(key, Outcome::status(status));
        }
    }

    /// These tasks wait in no queue of their core any more. Looks at each queue once, however many
    /// they are.
    pub(crate) fn leave_queues(&mut self, keys: &[TaskKey]) {
        let gone: HashSet<TaskKey> = keys.iter().copied().collect();
        let tasks = keys.iter().filter_map(|&key| self.tasks.get(key));
        let (units, sessions): (HashSet<UnitIndex>, HashSet<Option<SessionKey>>) =
            tasks.map(|task| (task.unit, task.session)).unzip();
        for unit in units {
            let unit = &mut self.units[unit];
            unit.parked.retain(|key| !gone.contains(key));
            unit.full.retain(|key| !gone.contains(key));
        }
        for session in sessions.into_iter().flatten() {
            if let Some(entry) = self.sessions.get_mut(session) {
                entry.waiting.retain(|key| !gone.contains(key));
            }
        }
        if !self.starved.is_empty() {
            self.starved.retain(|key| !gone.contains(key));
        }
    }
}

/// Why a task cannot be over at once.
enum Hindrance {
    /// Its data has no place to wait in.
    NoRoom,
    /// Its data is not there yet.
    DataOut,
    /// The store takes its time.
    Store(Submitted),
    /// What [`Core::drive`] must do.
    Other(Step),
}

/// Whether a request changes the medium.
const fn alters(request: &IoRequest) -> bool {
    match request {
        IoRequest::Write { .. } | IoRequest::Unmap { .. } | IoRequest::WriteZeros { .. } => true,
        IoRequest::Read { .. } | IoRequest::Flush | IoRequest::Extents { .. } => false,
    }
}

/// Whether data that others may write has to be copied before it is answered with.
fn must_copy(outcome: &Outcome, session: &iscsi::target::Session, id: TaskId) -> bool {
    matches!(outcome.data, Payload::Mapped(_)) && session.needs_stable_data(id)
}

fn scsi_command<'a>(
    command: &'a Command,
    long_cdb: &'a [u8],
    luns: &'a crate::session::LunMap,
) -> scsi::Command<'a> {
    scsi::Command {
        cdb: if long_cdb.is_empty() {
            &command.cdb
        } else {
            long_cdb
        },
        data_out_length: command.data_out_length,
        data_in_length: command.data_in_length,
        luns,
    }
}

/// How the task is ordered; `None` for an attribute that no command may have here.
const fn attribute_of(attribute: Option<iscsi::pdu::TaskAttribute>) -> Option<TaskAttribute> {
    use iscsi::pdu::TaskAttribute as Sent;
    match attribute {
        Some(Sent::Untagged | Sent::Simple) => Some(TaskAttribute::Simple),
        Some(Sent::Ordered) => Some(TaskAttribute::Ordered),
        Some(Sent::HeadOfQueue) => Some(TaskAttribute::HeadOfQueue),
        // There is never an ACA condition.
        Some(Sent::Aca) | None => None,
    }
}

const fn internal_failure() -> Sense {
    Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE)
}

const fn tag_of(key: TaskKey) -> IoTag {
    IoTag(key.to_bits())
}
