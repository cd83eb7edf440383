//! Commands on their way: from the initiator through the device server to its answer. The one
//! interpreter of [`Step`].

use marks::sometimes;
use memory::{Need, Payload, Pool};
use scsi::{Input, Outcome, Sense, SenseBytes, SenseCode, SenseKey, Step, Task, TaskAttribute};
use store::{IoRequest, Submitted};

use crate::agree::ToOwner;
use crate::carrier::{Carrier, News};
use crate::engine::Engine;
use crate::keys::{SessionKey, TaskKey};
use crate::life::{Ending, Life};
use crate::luns::{MappedLun, NO_SERIES};
use crate::owed::Owed;
use crate::port::{Port, Response};
use crate::room::{self, Room};
use crate::session::Session;
use crate::stores::{Sent, Stores};
use crate::task::{Command, CommandId, Fencing, Request, Running, Stage};
use crate::unit::{InPlace, Unit};

/// A command that has its turn.
struct Begun<C: Carrier> {
    session: SessionKey,
    id: CommandId<C>,
    mapped: MappedLun,
    account: C::Account,
}

/// Why a task cannot be over at once.
enum Hindrance {
    /// Its data has no place to wait in.
    NoRoom,
    /// Its data is not there yet.
    DataOut,
    /// The store takes its time.
    Store(Sent, Submitted),
    /// What [`Engine::drive`] must do.
    Other(Step),
}

impl<C: Carrier> Engine<C> {
    /// A command of a session, in its turn.
    ///
    /// A SIMPLE command that nothing stands in the way of is run at once. As long as it need not wait
    /// it has no place in any table: that is all there is to most reads and writes of memory.
    pub fn handle_command(&mut self, key: SessionKey, id: CommandId<C>, command: Command<C>) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.is_ending {
            sometimes!("a command comes to a session that ends");
            session.port.abandon(id);
            return;
        }
        debug_assert!(
            session.task_key(id).is_none(),
            "{id:?} is the name of two commands"
        );
        let answer = Owed::new(id);
        let lun = C::Port::lun_of(&command);
        let Some(mut mapped) = session.luns.find(lun) else {
            sometimes!("a command is for a LUN that leads nowhere");
            let ready = answer_for_nobody(session, answer, &command);
            self.note_answered(key, ready);
            return;
        };
        if mapped.series == NO_SERIES {
            mapped.series = self.carrier.series(mapped.unit, &session.port);
            session.luns.note_series(lun, mapped);
        }
        let account = C::account(mapped.series, &session.port, id, &command);
        let unit = &mut self.units[mapped.unit];
        let Some(attribute) = C::Port::attribute_of(&command) else {
            // Spec: SAM-5, task attributes: neither a reserved one nor ACA without an ACA condition.
            let sense = Sense::illegal_request(SenseCode::INVALID_MESSAGE_ERROR);
            let (outcome, descriptor) = (Outcome::check(sense), unit.view.descriptor_sense());
            self.carrier.note_answer(account, outcome.status);
            let ready = answer_by(&mut session.port, answer, outcome, descriptor);
            self.note_answered(key, ready);
            return;
        };
        let begun = || Begun {
            session: key,
            id,
            mapped,
            account,
        };
        if attribute != TaskAttribute::Simple || !unit.lets_simple_pass(mapped.nexus) {
            self.run_in_order(begun(), answer, attribute, command);
            return;
        }
        let mut long = Vec::new();
        let command = C::Port::scsi_command(&command, &session.luns, &mut long);
        let mut attempt = Attempt::<C> {
            id,
            account,
            task: unit.view.task(mapped.nexus),
            has_altered: false,
        };
        let (port, pool) = (&mut session.port, &session.pool);
        let outside = (&mut self.stores, &mut self.carrier);
        let run = attempt.run(&command, answer, unit, (port, pool), outside);
        match run {
            Ok(ready) => self.note_answered(key, ready),
            Err((hindrance, answer)) => {
                let (task, has_altered) = (attempt.task, attempt.has_altered);
                self.run_longer(begun(), answer, (task, has_altered), hindrance);
            }
        }
    }

    /// A SIMPLE command that was let pass has to wait: its task gets a place in the tables.
    #[inline(never)]
    fn run_longer(
        &mut self,
        begun: Begun<C>,
        answer: Owed<CommandId<C>>,
        (task, has_altered): (Task, bool),
        hindrance: Hindrance,
    ) {
        let (mapped, vacant) = (begun.mapped, self.tasks.vacant_key());
        if let Some(set) = self.units[mapped.unit].view.task_set(mapped.nexus) {
            let may_start = set.enter(TaskAttribute::Simple, vacant.place());
            debug_assert!(may_start, "a task that was let pass has to wait");
        }
        let key = self.enroll(begun, answer);
        debug_assert_eq!(key, vacant, "a task is called otherwise than its request");
        let running = &mut self.tasks[key];
        (running.task, running.has_altered) = (Some(task), has_altered);
        self.go_on(key, hindrance);
    }

    /// Carries on a task that could not be over at once.
    fn go_on(&mut self, key: TaskKey, hindrance: Hindrance) {
        match hindrance {
            Hindrance::DataOut => self.await_data_out(key),
            Hindrance::Store(sent, submitted) => {
                if let Some(result) = self.carry_on(key, sent, submitted) {
                    let step = self.resume(key, Input::Io(result));
                    self.drive(key, step);
                }
            }
            Hindrance::NoRoom => self.refuse(key),
            Hindrance::Other(step) => self.drive(key, step),
        }
    }

    /// Runs a command when its turn among those of its nexus has come.
    fn run_in_order(
        &mut self,
        begun: Begun<C>,
        answer: Owed<CommandId<C>>,
        attribute: TaskAttribute,
        command: Command<C>,
    ) {
        let (session, id, mapped) = (begun.session, begun.id, begun.mapped);
        let attribute = match attribute {
            TaskAttribute::Simple if self.units[mapped.unit].view.is_in_order() => {
                TaskAttribute::Ordered
            }
            other @ (TaskAttribute::Simple
            | TaskAttribute::Ordered
            | TaskAttribute::HeadOfQueue) => other,
        };
        let key = self.enroll(begun, answer);
        let set = self.units[mapped.unit].view.task_set(mapped.nexus);
        if set.is_none_or(|set| set.enter(attribute, key.place())) {
            self.start(key, &command);
            return;
        }
        sometimes!("a command waits for others of its nexus");
        self.enter(key, Stage::Dormant(Box::new(command)));
        if let Some(session) = self.sessions.get_mut(session) {
            session.port.leave_chunk(id, &session.pool);
        }
    }

    /// A task waits for something else from now on. Gives what it waited for.
    pub(crate) fn enter(&mut self, key: TaskKey, stage: Stage<C>) -> Stage<C> {
        let now = self.now;
        let running = &mut self.tasks[key];
        let before = running.enter(stage, now);
        if let Some((at, _)) = running.deadline(self.settings.fence_timeout) {
            self.task_deadlines.set(key, at);
        }
        before
    }

    /// Gives a task its place in the tables.
    fn enroll(&mut self, begun: Begun<C>, answer: Owed<CommandId<C>>) -> TaskKey {
        let Begun {
            session,
            id,
            mapped,
            account,
        } = begun;
        let entry = self.sessions.get_mut(session);
        let arrival = entry.map_or(self.now, |entry| entry.port.arrival_of(id));
        let life = Life::new(arrival, self.now);
        self.carrier.note_wait(account);
        let (asker, place) = ((session, answer), (mapped.unit, mapped.nexus));
        let key = self
            .tasks
            .insert(Running::new(asker, id, place, account, life));
        if let Some(entry) = self.sessions.get_mut(session) {
            entry.set_task_key(id, Some(key));
        }
        key
    }

    fn start(&mut self, key: TaskKey, command: &Command<C>) {
        let running = &mut self.tasks[key];
        let Some(session) = running
            .session
            .and_then(|session| self.sessions.get(session))
        else {
            return;
        };
        let view = &mut self.units[running.unit].view;
        let mut long = Vec::new();
        let command = C::Port::scsi_command(command, &session.luns, &mut long);
        let task = running.task.insert(view.task(running.nexus));
        let step = view.start(task, &command);
        self.drive(key, step);
    }

    /// Carries a task on until it waits for something or is over.
    pub(crate) fn drive(&mut self, key: TaskKey, mut step: Step) {
        debug_assert!(
            !self.tasks[key].is_aborted,
            "{key:?} was aborted and goes on"
        );
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
                    self.ask_owner(unit, ToOwner::Change { ticket, change });
                    return;
                }
                Step::Fence(blocks) => {
                    self.ask_fence(key, blocks);
                    return;
                }
                Step::Turn { bytes } => match self.ask_turn(key, bytes) {
                    Some(turn) => turn,
                    None => return,
                },
                Step::Done(outcome) => {
                    self.finish(key, outcome);
                    return;
                }
            };
            step = self.resume(key, input);
        }
    }

    pub(crate) fn resume(&mut self, key: TaskKey, input: Input) -> Step {
        self.enter(key, Stage::Active);
        let running = &mut self.tasks[key];
        match &mut running.task {
            Some(task) => self.units[running.unit].view.resume(task, input),
            // A task that never started is never given anything.
            None => Step::Done(Outcome::check(INTERNAL_FAILURE)),
        }
    }

    // ---- data from the initiator -------------------------------------------------------------

    fn collect(&mut self, key: TaskKey, length: u32) -> Option<Payload> {
        let running = &self.tasks[key];
        let is_open = self.units[running.unit].side.is_open();
        if !is_open && self.refuse_blocks(key, running.blocks()) {
            return None;
        }
        let running = &mut self.tasks[key];
        let session = running.session?;
        let entry = self.sessions.get_mut(session)?;
        let Some(data) = entry.port.request_data(running.id, length, &entry.pool) else {
            self.await_data_out(key);
            return None;
        };
        let kept = room::kept(data, running.task.as_ref(), &entry.pool);
        if kept.is_err() {
            sometimes!("data of a write has no room when it is collected");
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
        self.note_starving(session);
        if self.sessions[session].port.has_event() {
            // What has come for it already is bad.
            sometimes!("data that has come before it was asked for is bad");
            self.note_event(session);
        }
        self.note_ready(session, None);
    }

    /// The task of a session that has this name and waits for data.
    fn task_awaiting_data(&self, session: SessionKey, id: CommandId<C>) -> Option<TaskKey> {
        let key = self.sessions.get(session)?.task_key(id)?;
        let task = self.tasks.get(key)?;
        (task.id == id && matches!(task.stage, Stage::DataOut)).then_some(key)
    }

    /// The data that [`Port::request_data`] asked for.
    pub fn handle_data_out(&mut self, session: SessionKey, id: CommandId<C>, data: Payload) {
        // It may have been aborted meanwhile.
        let Some(key) = self.task_awaiting_data(session, id) else {
            sometimes!("data comes for a command that was aborted");
            return;
        };
        let step = self.resume(key, Input::DataOut(data));
        self.drive(key, step);
    }

    /// The data of a command will not be complete, and this is its answer. The
    /// command may not have been given out before.
    pub fn handle_data_fault(&mut self, session: SessionKey, id: CommandId<C>, outcome: Outcome) {
        if let Some(key) = self.task_awaiting_data(session, id) {
            self.turn_down(key, outcome);
            return;
        }
        // Any other task keeps its place and its outcome: the transport says this of none that does
        // not wait for data.
        let has_place = |entry: &Session<C::Port>| entry.task_key(id).is_some();
        let is_known = self.sessions.get(session).is_some_and(has_place);
        debug_assert!(!is_known, "a fault of data that nothing waits for");
        if !is_known {
            self.respond(session, Owed::new(id), outcome, false);
        }
    }

    // ---- answers -----------------------------------------------------------------------------

    /// The device server is done with a task.
    pub(crate) fn finish(&mut self, key: TaskKey, mut outcome: Outcome) {
        let running = &self.tasks[key];
        debug_assert!(
            !running.is_aborted,
            "{key:?} was aborted and has an outcome"
        );
        let Some(session) = running.session else {
            self.close_task(key);
            return;
        };
        let entry = &self.sessions[session];
        if must_copy(&outcome, &entry.port, running.id) {
            match room::copied(&outcome.data, Need::Begin, &entry.pool) {
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

    /// A task cannot go on. `refusal` means to its initiator that it never began. If it has altered
    /// something by then, it is answered that it was stopped on its way.
    pub(crate) fn turn_down(&mut self, key: TaskKey, refusal: Outcome) {
        let outcome = if self.tasks[key].has_altered {
            sometimes!("a command is stopped that has altered something");
            Outcome::check(STOPPED)
        } else {
            refusal
        };
        self.finish(key, outcome);
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
        let answer = self.tasks[key].answer.take();
        debug_assert!(answer.is_some(), "a command is answered twice");
        if let Some(answer) = answer {
            self.respond(session, answer, outcome, descriptor);
        }
        self.end_task(key, ending);
    }

    fn respond(
        &mut self,
        session: SessionKey,
        answer: Owed<CommandId<C>>,
        outcome: Outcome,
        descriptor: bool,
    ) {
        match self.sessions.get_mut(session) {
            Some(entry) => {
                let ready = answer_by(&mut entry.port, answer, outcome, descriptor);
                self.note_answered(session, ready);
            }
            None => answer.forgive(),
        }
    }

    /// A command was answered, by a connection that has something to send now.
    #[inline]
    fn note_answered(&mut self, session: SessionKey, ready: Option<<C::Port as Port>::Connection>) {
        if ready.is_some() {
            self.note_ready(session, ready);
        }
    }

    // ---- the end of a task -------------------------------------------------------------------

    /// Removes a task that was aborted.
    pub(crate) fn close_task(&mut self, key: TaskKey) {
        self.end_task(key, Ending::Aborted);
    }

    /// Removes a task, and lets those go on that waited for it. Its place is kept while the store
    /// or the owner of its unit has something of it that comes back by itself: that must find this
    /// task, and nothing else may take the place before.
    fn end_task(&mut self, key: TaskKey, ending: Ending) {
        let Some(task) = self.tasks.get_mut(key) else {
            debug_assert!(false, "a task ended twice");
            return;
        };
        if task.stage.is_elsewhere() {
            debug_assert!(false, "a task ended in {:?}", task.stage);
            task.is_aborted = true;
            self.carrier.notify(News::Broken("a task cannot end yet"));
            return;
        }
        let Some(mut running) = self.tasks.remove(key) else {
            return;
        };
        running.life.leave(running.stage.phase(), self.now);
        self.carrier.note_end(running.account, ending, running.life);
        self.leave_session(key, &mut running);
        let unit = running.unit;
        if running.orphan.is_some() {
            self.end_orphan(unit, key);
        }
        if let Fencing::Own(ticket) = running.fencing {
            self.release_fence(unit, ticket);
        }
        for wait in running.waiters {
            self.count_down(wait);
        }
    }

    /// A task that is over leaves its session and the order of its nexus.
    fn leave_session(&mut self, key: TaskKey, running: &mut Running<C>) {
        let answer = running.answer.take();
        let Some(session) = running.session else {
            if let Some(answer) = answer {
                answer.forgive();
            }
            return;
        };
        if let Some(entry) = self.sessions.get_mut(session) {
            if let Some(answer) = answer {
                debug_assert!(running.is_aborted, "a command ends without an answer");
                entry.port.abandon(answer.spend());
                // Some transports answer all the same, or give the command again.
                self.ready.push((session, None));
            }
            if entry.task_key(running.id) == Some(key) {
                entry.set_task_key(running.id, None);
            }
        } else if let Some(answer) = answer {
            answer.forgive();
        }
        let mut startable = Vec::new();
        if let Some(set) = self.units[running.unit].view.task_set(running.nexus) {
            set.leave(key.place(), &mut startable);
        }
        let in_place = |place| self.tasks.in_place(place as usize);
        let startable = startable.into_iter().filter_map(in_place);
        self.startable.extend(startable);
    }

    /// Starts the tasks whose turn has come. Not where it comes: a queue of short commands would
    /// be a recursion as deep as it is long.
    #[inline]
    pub fn start_waiting(&mut self) {
        if self.stores.has_answers() || !self.startable.is_empty() {
            self.start_all();
        }
    }

    #[inline(never)]
    fn start_all(&mut self) {
        self.settle_answers();
        while let Some(key) = self.startable.pop_front() {
            let Some(waiting) = self.tasks.get_mut(key) else {
                continue;
            };
            if waiting.is_aborted || !matches!(waiting.stage, Stage::Dormant(_)) {
                continue;
            }
            if let Stage::Dormant(command) = self.enter(key, Stage::Active) {
                self.start(key, &command);
            }
            self.settle_answers();
        }
    }

    /// Takes note that a task hangs. Gives what it is counted as, and its life so far.
    pub fn note_hanging(&mut self, key: TaskKey) -> Option<(C::Account, Life)> {
        let now = self.now;
        let running = self.tasks.get_mut(key)?;
        running.is_told = true;
        let mut life = running.life;
        life.leave(running.stage.phase(), now);
        Some((running.account, life))
    }
}

/// Answers a command for a unit that is not there.
fn answer_for_nobody<P: Port>(
    session: &mut Session<P>,
    answer: Owed<P::CommandId>,
    command: &P::Command,
) -> Option<P::Connection> {
    let mut long = Vec::new();
    let command = P::scsi_command(command, &session.luns, &mut long);
    let outcome = scsi::missing::execute(&command);
    answer_by(&mut session.port, answer, outcome, false)
}

/// A SIMPLE command that runs without a place in the tables.
struct Attempt<C: Carrier> {
    id: CommandId<C>,
    account: C::Account,
    task: Task,
    has_altered: bool,
}

/// Why a command was not answered at once, and its answer.
type Held<C> = (Hindrance, Owed<CommandId<C>>);

impl<C: Carrier> Attempt<C> {
    /// Carries the command on as long as it need not wait, at best to its answer. Gives the connection
    /// that has something to send then.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "the way of nearly all commands: a call would move every step once more"
    )]
    fn run(
        &mut self,
        command: &scsi::Command<'_>,
        answer: Owed<CommandId<C>>,
        unit: &mut Unit,
        (port, pool): (&mut C::Port, &Pool),
        (stores, carrier): (&mut Stores<C::Operation>, &mut C),
    ) -> Result<Option<<C::Port as Port>::Connection>, Held<C>> {
        let mut input = None;
        loop {
            let step = match input.take() {
                None => unit.view.start(&mut self.task, command),
                Some(input) => unit.view.resume(&mut self.task, input),
            };
            let next = match step {
                Step::DataOut { length } => match port.request_data(self.id, length, pool) {
                    Some(data) => room::kept(data, Some(&self.task), pool)
                        .map(Input::DataOut)
                        .map_err(|_| Hindrance::NoRoom),
                    None => Err(Hindrance::DataOut),
                },
                Step::Io(request) => self.submit(request, unit, (port, pool), (stores, carrier)),
                Step::Done(mut outcome) => {
                    if must_copy(&outcome, port, self.id) && !copy_data(&mut outcome, pool) {
                        return Err((Hindrance::Other(Step::Done(outcome)), answer));
                    }
                    carrier.note_answer(self.account, outcome.status);
                    let descriptor = unit.view.descriptor_sense();
                    return Ok(answer_by(port, answer, outcome, descriptor));
                }
                step @ (Step::Owner(_) | Step::Fence(_) | Step::Turn { .. }) => {
                    Err(Hindrance::Other(step))
                }
            };
            match next {
                Ok(next) => input = Some(next),
                Err(hindrance) => return Err((hindrance, answer)),
            }
        }
    }

    /// Hands a request to the store. Gives its result where that is there at once.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn submit(
        &mut self,
        request: IoRequest,
        unit: &mut Unit,
        (port, pool): (&C::Port, &Pool),
        (stores, carrier): (&mut Stores<C::Operation>, &mut C),
    ) -> Result<Input, Hindrance> {
        debug_assert!(unit.side.is_open(), "a request passes what is to stop it");
        let request = if unit.in_place == InPlace::Always {
            request
        } else if unit.losses().is_some() {
            return Err(Hindrance::Other(Step::Io(request)));
        } else {
            let unsent = || port.unsent_bytes();
            match room::make_room(request, (Some(&self.task), pool), unit, carrier, unsent) {
                Room::Ready(request) => request,
                Room::Wait(request, _) | Room::UnitShare(request) => {
                    return Err(Hindrance::Other(Step::Io(request)));
                }
                Room::Refused => return Err(Hindrance::NoRoom),
            }
        };
        let sent = Sent::of(&request);
        match stores.submit(unit, request) {
            Submitted::Done(result) if unit.outlet.is_empty() => {
                self.has_altered |= sent.alters;
                stores.note_done();
                Ok(Input::Io(result))
            }
            submitted @ (Submitted::Done(_) | Submitted::Taken) => {
                Err(Hindrance::Store(sent, submitted))
            }
        }
    }
}

/// Answers a command. Gives the connection that has something to send now.
#[inline]
fn answer_by<P: Port>(
    port: &mut P,
    answer: Owed<P::CommandId>,
    outcome: Outcome,
    descriptor: bool,
) -> Option<P::Connection> {
    debug_assert_eq!(
        outcome.sense.is_some(),
        outcome.status == scsi::Status::CheckCondition,
        "sense data goes with CHECK CONDITION"
    );
    let encoded;
    let sense: &[u8] = match &outcome.sense {
        None => &[],
        Some(SenseBytes::Own(sense)) => {
            encoded = sense.encode(descriptor);
            &encoded
        }
        Some(SenseBytes::OfDevice(bytes)) => bytes,
    };
    let response = Response {
        status: outcome.status,
        sense,
        data: outcome.data,
        transfer_length: outcome.transfer_length,
    };
    port.respond(answer.spend(), response)
}

/// Copies the data of an answer, if there is room for that now.
fn copy_data(outcome: &mut Outcome, pool: &Pool) -> bool {
    let copied = room::copied(&outcome.data, Need::Begin, pool);
    let is_done = copied.is_ok();
    if let Ok(data) = copied {
        outcome.data = data;
    }
    is_done
}

/// Whether data that others may write has to be copied before it is answered with.
fn must_copy<P: Port>(outcome: &Outcome, port: &P, id: P::CommandId) -> bool {
    matches!(outcome.data, Payload::Mapped(_)) && port.needs_stable_data(id)
}

/// A command that has begun cannot go on. Its initiator may send it again.
///
/// Spec: SPC-4, sense key ABORTED COMMAND.
const STOPPED: Sense = Sense::new(
    SenseKey::AbortedCommand,
    SenseCode::NO_ADDITIONAL_SENSE_INFORMATION,
);

/// A bug of ours, for its initiator.
const INTERNAL_FAILURE: Sense =
    Sense::new(SenseKey::HardwareError, SenseCode::INTERNAL_TARGET_FAILURE);
