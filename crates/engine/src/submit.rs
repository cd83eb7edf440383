//! What tasks ask of stores, and what comes back.

use marks::sometimes;
use scsi::{FlushScope, Input, NexusId, Outcome, Sense, SenseCode, SenseKey, Task};
use store::{
    HelperResult, IoFailure, IoRequest, IoResult, Mark, Party, RingOperation, SocketResult,
    Submitted,
};

use crate::UnitIndex;
use crate::carrier::{Carrier, News};
use crate::engine::Engine;
use crate::keys::{ErrandKey, PartKey, TaskKey};
use crate::losses::{Initiator, Losses, party};
use crate::room::Room;
use crate::session::Session;
use crate::space::Look;
use crate::stores::{Client, Part, Sent};
use crate::task::{Fencing, Stage};
use crate::unit::Lien;

/// Whether it changes the medium, and a store may answer it before that is durable.
const fn may_stay_uncovered(request: &IoRequest) -> bool {
    match request {
        IoRequest::Write { durable, .. }
        | IoRequest::WriteZeros { durable, .. }
        | IoRequest::CompareAndWrite { durable, .. } => !*durable,
        IoRequest::Unmap { .. } => true,
        IoRequest::Read { .. }
        | IoRequest::Flush
        | IoRequest::Extents { .. }
        | IoRequest::Device(_) => false,
    }
}

impl<C: Carrier> Engine<C> {
    /// Hands a request to the store of the task's unit. The result, if it is there at once.
    pub(crate) fn submit(&mut self, key: TaskKey, request: IoRequest) -> Option<IoResult> {
        let running = &mut self.tasks[key];
        let unit = &mut self.units[running.unit];
        let sent = Sent::of(&request);
        let task = running.task.as_ref();
        let refusal = task.and_then(|task| unit.view.refusal_of(task, &request));
        if let Some(sense) = refusal {
            // It was let pass before, and has waited since.
            sometimes!("a command is refused that has waited");
            self.turn_down(key, Outcome::check(sense));
            return None;
        }
        // A flush alters nothing, and a tape that is read moves only.
        let writes = sent.alters && task.is_some_and(Task::needs_right_to_write);
        if writes && unit.view.is_read_only(running.nexus) {
            // The right to write was taken from it while it waited.
            sometimes!("a write waits and loses its right");
            let sense = Sense::new(SenseKey::DataProtect, SenseCode::WRITE_PROTECTED);
            self.turn_down(key, Outcome::check(sense));
            return None;
        }
        if !unit.side.is_open() {
            if let Some(blocks) = running.blocks() {
                if self.refuse_blocks(key, Some(blocks.clone())) {
                    return None;
                }
                let running = &self.tasks[key];
                let side = &self.units[running.unit].side;
                let is_flush = matches!(request, IoRequest::Flush);
                if !is_flush && side.is_fenced(&blocks, key, running.fence()) {
                    // See the module `fence`: else there could be a circle.
                    debug_assert!(running.fence().is_none(), "{key:?} has a fence and parks");
                    sometimes!("a command parks before a fence");
                    self.park(key, request);
                    return None;
                }
            }
            if let Some(range) = self.has_to_look(key, &request) {
                return self.look_first(key, request, range);
            }
        }
        let request = match self.make_room_for(key, request) {
            Room::Ready(request) => request,
            Room::Wait(request, why) => {
                self.await_room(key, Stage::Memory(request), why);
                return None;
            }
            Room::UnitShare(request) => {
                sometimes!("a command waits for the share of its unit");
                self.await_store(key, request);
                return None;
            }
            Room::Refused => {
                self.refuse(key);
                return None;
            }
        };
        if self.units[self.tasks[key].unit].losses().is_some() {
            self.note_losses(key, &request);
        }
        let unit = &mut self.units[self.tasks[key].unit];
        let submitted = self.stores.submit(unit, request);
        let result = self.carry_on(key, sent, submitted)?;
        self.looked(key, result)
    }

    /// A request goes to a store that may lose what it has answered.
    fn note_losses(&mut self, key: TaskKey, request: &IoRequest) {
        let running = &mut self.tasks[key];
        let unit = &self.units[running.unit];
        let session = running.session.and_then(|key| self.sessions.get(key));
        let (Some(losses), Some(session)) = (unit.losses(), session) else {
            return;
        };
        if matches!(request, IoRequest::Flush) {
            let scope = running.task.as_ref().map(Task::flush_scope);
            let party = party(session.nexus_id(), session.name(), self.now);
            running.look = match scope.unwrap_or(FlushScope::Earlier) {
                FlushScope::Earlier => Look::Covers(losses.begin_flush(party, unit.lost())),
                FlushScope::Own => Look::CoversOwn(losses.begin_flush(party, unit.lost())),
                FlushScope::Read => Look::None,
            };
        } else if may_stay_uncovered(request) {
            running.look = Look::Writes(unit.lost());
        }
    }

    /// The store has answered a write.
    pub(crate) fn note_written(&mut self, key: TaskKey, since: u64, result: &IoResult) {
        let running = &mut self.tasks[key];
        running.written_since = running.written_since.min(since);
        if result.is_ok()
            && let Some((losses, party)) = self.losses_of(key)
        {
            losses.note_write(party, since);
        }
    }

    /// The losses of the unit of a task, and its nexus.
    fn losses_of(&self, key: TaskKey) -> Option<(&Losses, Party<NexusId, impl Fn() -> Initiator>)> {
        let running = &self.tasks[key];
        let session = self.sessions.get(running.session?)?;
        let losses = self.units[running.unit].losses()?;
        let party = party(session.nexus_id(), session.name(), self.now);
        Some((losses, party))
    }

    /// The store has answered a flush. What its task gets.
    pub(crate) fn settle_losses(&self, key: TaskKey, mark: Mark, result: IoResult) -> IoResult {
        let running = &self.tasks[key];
        let session = running.session.and_then(|key| self.sessions.get(key));
        if result.is_err() || session.is_none_or(Session::is_ending) {
            return result;
        }
        let lost = self.units[running.unit].lost();
        let losses = self.losses_of(key);
        match losses.is_some_and(|(losses, party)| losses.end_flush(party, mark, lost)) {
            true => Err(IoFailure::CacheLost),
            false => result,
        }
    }

    /// The store has answered the flush of what a task has written. What the task gets: an error if that may be lost,
    /// which is no report of what others have written.
    pub(crate) fn settle_own(&self, key: TaskKey, mark: Mark, result: IoResult) -> IoResult {
        let running = &self.tasks[key];
        let lost = self.units[running.unit].lost();
        if result.is_ok()
            && let Some((losses, party)) = self.losses_of(key)
        {
            losses.cover(party, mark, lost);
        }
        match running.written_since < lost {
            true => result.and(Err(IoFailure::CacheLost)),
            false => result,
        }
    }

    /// A request was submitted for a task. The result, if it is there.
    pub(crate) fn carry_on(
        &mut self,
        key: TaskKey,
        sent: Sent,
        submitted: Submitted,
    ) -> Option<IoResult> {
        let running = &mut self.tasks[key];
        let index = running.unit;
        let unit = &mut self.units[index];
        if let Submitted::Done(result) = submitted {
            self.stores.note_done();
            running.has_altered |= sent.alters;
            self.carry_orders(index);
            return Some(result);
        }
        if let Some(request) = unit.outlet.take_returned() {
            sometimes!("a store is full");
            self.stores.note_done();
            self.carry_orders(index);
            self.await_store(key, request);
            return None;
        }
        running.has_altered |= sent.alters;
        running.is_writing = sent.alters;
        running.lien = Some(Lien::new(&unit.held_bytes, sent.bytes));
        let errand = self.stores.open(index, Client::Task(key));
        self.enter(key, Stage::Store(errand));
        self.carry_orders(index);
        None
    }

    // ---- orders ------------------------------------------------------------------------------

    /// Carries out what a store has ordered, and takes its answers.
    pub(crate) fn carry_orders(&mut self, index: UnitIndex) {
        let of = (index, &mut self.units[index]);
        if self.stores.carry_orders(of, &mut self.carrier, self.now) {
            self.take_size(index, None);
        }
    }

    /// Nobody needs the result of a request that a store has.
    pub(crate) fn cancel_errand(&mut self, key: ErrandKey) {
        if let Some(index) = self.stores.unit_of(key) {
            let of = (index, &mut self.units[index]);
            self.stores.cancel(key, of, &mut self.carrier);
            self.carry_orders(index);
        }
    }

    // ---- what comes back ---------------------------------------------------------------------

    /// An operation on the ring, or on the lane of a file, is over. `result` is the kernel's: a
    /// count of bytes or zero, or a negative error number.
    pub fn handle_ring_result(&mut self, key: PartKey, operation: RingOperation, result: i32) {
        if let Some(part) = self.end_part(key) {
            let unit = &mut self.units[part.unit];
            let outlet = &mut unit.outlet;
            unit.store
                .handle_ring_result(part.name, operation, result, outlet);
            self.heed(part.unit);
        }
    }

    /// Work of a helper thread is over.
    pub fn handle_helper_result(&mut self, key: PartKey, result: HelperResult) {
        if let Some(part) = self.end_part(key) {
            let unit = &mut self.units[part.unit];
            let outlet = &mut unit.outlet;
            unit.store.handle_helper_result(part.name, result, outlet);
            self.heed(part.unit);
        }
    }

    /// An operation on a connection is over.
    pub fn handle_socket_result(&mut self, key: PartKey, result: SocketResult) {
        if let Some(part) = self.end_part(key)
            && let Some(socket) = part.socket
        {
            let unit = &mut self.units[part.unit];
            let outlet = &mut unit.outlet;
            let number = part.name.number;
            unit.store.handle_socket(socket, number, result, outlet);
            self.heed(part.unit);
        }
    }

    /// The store of a unit was woken for. The unit may be gone, or not be there yet.
    pub fn handle_store_wake(&mut self, index: UnitIndex) {
        if let Some(unit) = self.units.get_mut(index) {
            unit.store.handle_wake(&mut unit.outlet);
            self.heed(index);
        }
    }

    /// Timers of stores whose time has come.
    pub(crate) fn end_timers(&mut self) {
        while let Some((index, number)) = self.stores.poll_timer(self.now) {
            let unit = &mut self.units[index];
            unit.store.handle_timer(number, &mut unit.outlet);
            self.heed(index);
        }
    }

    /// Ends a part, which its store gets if it is still open.
    fn end_part(&mut self, key: PartKey) -> Option<Part<C::Operation>> {
        let part = self.stores.end_part(key);
        debug_assert!(part.is_some(), "{key:?} comes back twice");
        if part.is_none() {
            let news = News::Broken("an operation of a store comes back twice");
            self.carrier.notify(news);
        }
        part.filter(|part| !part.is_unseen)
    }

    /// A store was called: does what it wants.
    fn heed(&mut self, index: UnitIndex) {
        self.carry_orders(index);
        self.settle_answers();
    }

    /// Carries on those whose requests are over.
    pub(crate) fn settle_answers(&mut self) {
        while let Some((unit, client, result)) = self.stores.poll_answer() {
            debug_assert!(
                !matches!(client, Client::Task(key) if self.tasks[key].unit != unit),
                "an answer of {unit:?} for a task of another: {client:?}"
            );
            match client {
                Client::Task(key) => self.handle_answer(key, result),
                Client::Flush => self.handle_flush(unit, result),
                Client::Nobody => {}
            }
            self.retry_full(unit);
        }
    }

    fn handle_answer(&mut self, key: TaskKey, result: IoResult) {
        debug_assert!(self.tasks[key].is_in_store(), "{key:?} comes back twice");
        let running = &mut self.tasks[key];
        let unit = running.unit;
        // What the store had of the task is back.
        running.lien = None;
        if !running.is_aborted && running.orphan.take().is_some() {
            sometimes!("an orphan comes back that nobody has aborted");
            // What waited for that may abort the task. It counts as in the store still, so that this only marks it.
            self.end_orphan(unit, key);
        }
        self.enter(key, Stage::Active);
        let is_aborted = self.tasks[key].is_aborted;
        if is_aborted {
            // Access to what it may have written is open again before a fence on it is up.
            self.close_task(key);
        }
        if !self.units[unit].side.is_open() {
            self.leave_fences(unit, key);
        }
        // Nobody has aborted it, and what it asks for next it asks for like any other.
        if !is_aborted && let Some(result) = self.looked(key, result) {
            let step = self.resume(key, Input::Io(result));
            self.drive(key, step);
        }
    }

    /// One that is done makes room for the next.
    fn retry_full(&mut self, unit: UnitIndex) {
        for _ in 0..self.units[unit].full.len() {
            let Some(next) = self.units[unit].full.pop_front() else {
                break;
            };
            let left = self.units[unit].full.len();
            self.retry(next);
            if self.units[unit].full.len() > left {
                // Still none; it keeps its place.
                sometimes!("a store is full again");
                self.units[unit].full.rotate_right(1);
                break;
            }
        }
    }

    /// A request that could not be taken before was tried again: fences do not wait for it unless the store has it now.
    fn settle_parked(&mut self, unit: UnitIndex, key: TaskKey) {
        let running = self.tasks.get_mut(key);
        let is_in_store = running.as_ref().is_some_and(|one| one.is_in_store());
        if let Some(running) = running
            && !running.stage.is_queued()
            && let Fencing::Parked(_) = running.fencing
        {
            running.fencing = Fencing::Free;
        }
        if !is_in_store {
            self.leave_fences(unit, key);
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
                let unit = self.tasks[key].unit;
                let result = self.submit(key, request);
                self.settle_parked(unit, key);
                if let Some(result) = result {
                    let step = self.resume(key, Input::Io(result));
                    self.drive(key, step);
                }
            }
            Stage::AnswerMemory(outcome) => self.finish(key, outcome),
            Stage::Turn { bytes } => {
                let turn = self.take_turn(bytes);
                let step = self.resume(key, turn);
                self.drive(key, step);
            }
            stage @ (Stage::Active
            | Stage::Dormant(_)
            | Stage::DataOut
            | Stage::Store(_)
            | Stage::Owner
            | Stage::Fence) => {
                debug_assert!(false, "retry in {stage:?}");
                self.enter(key, stage);
            }
        }
    }
}
