//! Commands on their way: from the session through device server and store to the answer.

use engine::agree::ToOwner;
use iscsi::pdu::Tsih;
use iscsi::target::{Command, DataFault, Response, TaskId};
use memory::Payload;
use scsi::{Input, Lun, Outcome, Sense, SenseCode, SenseKey, Status, Step, TaskAttribute};
use store::{IoRequest, IoResult, IoTag, Submitted};

use super::core::{Core, Request, Running, Stage};
use crate::sabotage::Sabotage;

/// The one unit is LUN 0.
pub(super) fn luns() -> Vec<Lun> {
    Lun::new(0).into_iter().collect()
}

impl Core {
    pub(super) fn handle_command(&mut self, tsih: Tsih, id: TaskId, command: Command) {
        let Some(entry) = self.sessions.get_mut(&tsih.0) else {
            return;
        };
        if entry.is_ending {
            entry.session.abandon(id);
            return;
        }
        if command.lun != 0 {
            let outcome = scsi::missing::execute(&scsi_command(&command, &luns()));
            self.respond(tsih, id, outcome);
            return;
        }
        let (slot, nexus) = (entry.slot, entry.nexus);
        let key = self.new_key();
        let running = Running {
            tsih,
            id,
            slot,
            nexus,
            task: None,
            stage: Stage::Active,
            fence: None,
            is_aborted: false,
            waits: Vec::new(),
            is_orphan: false,
            is_forgotten: false,
        };
        self.tasks.insert(key, running);
        let attribute = attribute_of(command.attribute);
        let may_start = match self.view.task_set(slot) {
            Some(set) => set.enter(attribute, number(key)),
            None => true,
        };
        if may_start {
            self.start(key, &command);
        } else if let Some(running) = self.tasks.get_mut(&key) {
            running.stage = Stage::Dormant(Box::new(command));
        }
    }

    pub(super) fn start(&mut self, key: u64, command: &Command) {
        let Some(running) = self.tasks.get_mut(&key) else {
            return;
        };
        let (task, step) = self
            .view
            .start(running.slot, &scsi_command(command, &luns()));
        running.task = Some(task);
        running.stage = Stage::Active;
        self.drive(key, step);
    }

    /// Carries a task on until it waits or is over.
    pub(super) fn drive(&mut self, key: u64, mut step: Step) {
        loop {
            let input = match step {
                Step::DataOut { length } => self.collect(key, length).map(Input::DataOut),
                Step::Io(request) => self.submit(key, request).map(Input::Io),
                Step::Owner(change) => {
                    let ticket = self.open_request(Request::Task(key));
                    self.set_stage(key, Stage::Owner(ticket));
                    self.ask_owner(ToOwner::Change { ticket, change });
                    None
                }
                Step::Fence(blocks) => {
                    self.ask_fence(key, blocks);
                    None
                }
                Step::Done(outcome) => {
                    self.finish(key, outcome);
                    None
                }
            };
            let Some(input) = input else {
                return;
            };
            step = self.resume(key, input);
        }
    }

    pub(super) fn resume(&mut self, key: u64, input: Input) -> Step {
        self.set_stage(key, Stage::Active);
        match self
            .tasks
            .get_mut(&key)
            .and_then(|running| running.task.as_mut())
        {
            Some(task) => self.view.resume(task, input),
            None => Step::Done(Outcome::good()),
        }
    }

    pub(super) fn set_stage(&mut self, key: u64, stage: Stage) {
        if let Some(running) = self.tasks.get_mut(&key) {
            running.stage = stage;
        }
    }

    fn collect(&mut self, key: u64, length: u32) -> Option<Payload> {
        let running = self.tasks.get_mut(&key)?;
        let entry = self.sessions.get_mut(&running.tsih.0)?;
        let data = entry.session.request_data(running.id, length, &entry.pool);
        if data.is_none() {
            running.stage = Stage::DataOut;
        }
        data
    }

    pub(super) fn handle_data_out(&mut self, tsih: Tsih, id: TaskId, data: Payload) {
        if let Some(key) = self.key_of(tsih, id) {
            let step = self.resume(key, Input::DataOut(data));
            self.drive(key, step);
        }
    }

    pub(super) fn key_of(&self, tsih: Tsih, id: TaskId) -> Option<u64> {
        let is_it = |running: &Running| running.tsih == tsih && running.id == id;
        let mut tasks = self.tasks.iter();
        tasks
            .find(|(_, running)| is_it(running) && !running.is_forgotten)
            .map(|(&key, _)| key)
    }

    // ---- the store ---------------------------------------------------------------------------

    fn submit(&mut self, key: u64, request: IoRequest) -> Option<IoResult> {
        if self.is_fenced(key) {
            self.set_stage(key, Stage::Parked(request));
            self.parked.push(key);
            return None;
        }
        let request = if let IoRequest::Read {
            offset,
            len,
            buffer: None,
        } = request
        {
            let buffer = self.pool.allocate(len).ok();
            let is_starved = buffer.is_none();
            let request = IoRequest::Read {
                offset,
                len,
                buffer,
            };
            if is_starved {
                self.set_stage(key, Stage::Memory(request));
                self.starved.push_back(key);
                return None;
            }
            request
        } else {
            request
        };
        match self.store.submit(IoTag(key), request) {
            Submitted::Done(result) => return Some(result),
            Submitted::Full(request) => {
                self.set_stage(key, Stage::StoreFull(request));
                self.full.push_back(key);
            }
            // This disk asks for nothing else.
            Submitted::Pending | Submitted::Ring(_) | Submitted::Helper(_) => {
                self.set_stage(key, Stage::Store);
            }
        }
        None
    }

    pub(super) fn complete(&mut self, tag: IoTag, result: IoResult, now: std::time::Duration) {
        self.now = now;
        let key = tag.0;
        match self.tasks.get(&key) {
            Some(running) if running.is_aborted => {
                drop(result);
                self.close_task(key);
            }
            Some(_) => {
                let step = self.resume(key, Input::Io(result));
                self.drive(key, step);
            }
            None => {}
        }
        // One that is over at once leaves its room to the next.
        for _ in 0..self.full.len() {
            let Some(next) = self.full.pop_front() else {
                break;
            };
            self.retry(next);
            if self.full.back() == Some(&next) {
                self.full.rotate_right(1);
                break;
            }
        }
    }

    /// Tries a request again that could not be taken before.
    pub(super) fn retry(&mut self, key: u64) {
        let Some(running) = self.tasks.get_mut(&key) else {
            return;
        };
        match std::mem::replace(&mut running.stage, Stage::Active) {
            Stage::Memory(request) | Stage::StoreFull(request) | Stage::Parked(request) => {
                if let Some(result) = self.submit(key, request) {
                    let step = self.resume(key, Input::Io(result));
                    self.drive(key, step);
                }
            }
            stage @ (Stage::Active
            | Stage::Dormant(_)
            | Stage::DataOut
            | Stage::Store
            | Stage::Owner(_)
            | Stage::Fence) => running.stage = stage,
        }
    }

    // ---- answers -----------------------------------------------------------------------------

    fn finish(&mut self, key: u64, outcome: Outcome) {
        if let Some(running) = self.tasks.get(&key) {
            let (tsih, id, is_forgotten) = (running.tsih, running.id, running.is_forgotten);
            if self.is_time_for(Sabotage::ForgetAnswers) {
                self.abandon(tsih, id);
            } else if !is_forgotten {
                self.respond(tsih, id, outcome);
            }
            self.leak_now_and_then();
            self.close_task(key);
        }
    }

    fn abandon(&mut self, tsih: Tsih, id: TaskId) {
        if let Some(entry) = self.sessions.get_mut(&tsih.0) {
            entry.session.abandon(id);
        }
    }

    pub(super) fn respond(&mut self, tsih: Tsih, id: TaskId, outcome: Outcome) {
        let descriptor = self.view.descriptor_sense();
        let Some(entry) = self.sessions.get_mut(&tsih.0) else {
            return;
        };
        let sense = outcome.sense.map(|sense| sense.encode(descriptor));
        let response = Response {
            status: outcome.status as u8,
            sense: sense.as_deref().unwrap_or(&[]),
            data: outcome.data,
            transfer_length: outcome.transfer_length,
        };
        entry.session.respond(id, response);
    }

    pub(super) fn handle_data_fault(&mut self, tsih: Tsih, id: TaskId, fault: DataFault) {
        let aborted = |asc, ascq| {
            let code = SenseCode { asc, ascq };
            Outcome::check(Sense::new(SenseKey::AbortedCommand, code))
        };
        let outcome = match fault {
            DataFault::UnexpectedUnsolicited => aborted(0x0c, 0x0c),
            DataFault::IncorrectAmount => aborted(0x0c, 0x0d),
            DataFault::DigestError => aborted(0x47, 0x05),
            DataFault::NoMemory => Outcome::status(Status::TaskSetFull),
        };
        self.respond(tsih, id, outcome);
        if let Some(key) = self.key_of(tsih, id) {
            self.close_task(key);
        }
    }

    /// Forgets a task that has been answered or aborted, and lets those go on that waited for it.
    pub(super) fn close_task(&mut self, key: u64) {
        let Some(running) = self.tasks.remove(&key) else {
            return;
        };
        if running.is_aborted
            && !running.is_forgotten
            && let Some(entry) = self.sessions.get_mut(&running.tsih.0)
        {
            entry.session.abandon(running.id);
        }
        self.parked.retain(|&other| other != key);
        self.full.retain(|&other| other != key);
        self.starved.retain(|&other| other != key);
        let mut startable = Vec::new();
        if !running.is_forgotten
            && let Some(set) = self.view.task_set(running.slot)
        {
            set.leave(number(key), &mut startable);
        }
        if running.is_orphan {
            self.end_orphan();
        }
        if let Some(ticket) = running.fence {
            self.requests.remove(&ticket.request.0);
            self.ask_owner(ToOwner::FenceDone { ticket });
        }
        self.leave_fences(key);
        for wait in running.waits {
            self.count_down(wait);
        }
        for next in startable {
            let next = u64::from(next);
            let Some(waiting) = self.tasks.get_mut(&next) else {
                continue;
            };
            if let Stage::Dormant(command) = std::mem::replace(&mut waiting.stage, Stage::Active) {
                self.start(next, &command);
            }
        }
    }
}

fn scsi_command<'a>(command: &'a Command, luns: &'a Vec<Lun>) -> scsi::Command<'a> {
    scsi::Command {
        cdb: &command.cdb,
        data_out_length: command.data_out_length,
        data_in_length: command.data_in_length,
        luns,
    }
}

/// The initiators of a run send neither ACA nor reserved attributes, which are refused elsewhere.
const fn attribute_of(attribute: Option<iscsi::pdu::TaskAttribute>) -> TaskAttribute {
    use iscsi::pdu::TaskAttribute as Sent;
    match attribute {
        Some(Sent::Ordered) => TaskAttribute::Ordered,
        Some(Sent::HeadOfQueue) => TaskAttribute::HeadOfQueue,
        Some(Sent::Untagged | Sent::Simple | Sent::Aca) | None => TaskAttribute::Simple,
    }
}

/// A run has far fewer tasks than would wrap.
fn number(key: u64) -> u32 {
    u32::try_from(key).unwrap_or(u32::MAX)
}
