//! What tasks ask of stores, and what comes back.

use scsi::{Input, Outcome, Sense, SenseCode, SenseKey};
use store::{HelperResult, IoRequest, IoResult, RingOperation, Submitted};

use crate::UnitIndex;
use crate::carrier::{Carrier, News, Purpose, StoreWork};
use crate::engine::Engine;
use crate::execute::tag_of;
use crate::room::{Lien, Room};
use crate::task::{Stage, TaskKey};

impl<C: Carrier> Engine<C> {
    /// Hands a request to the store of the task's unit. The result, if it is there at once.
    pub(crate) fn submit(&mut self, key: TaskKey, request: IoRequest) -> Option<IoResult> {
        let running = &mut self.tasks[key];
        let unit = &mut self.units[running.unit];
        if let Some(sense) = unit.view.refusal_of(&request) {
            // It was let pass before, and has waited since.
            self.turn_down(key, Outcome::check(sense));
            return None;
        }
        if alters(&request) && unit.view.is_read_only(running.nexus) {
            // The right to write was taken from it while it waited.
            let sense = Sense::new(SenseKey::DataProtect, SenseCode::WRITE_PROTECTED);
            self.turn_down(key, Outcome::check(sense));
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
        let running = &mut self.tasks[key];
        let alters = alters(&request);
        let unit = &mut self.units[running.unit];
        let submitted = unit.store.submit(tag_of(key), request);
        running.has_altered |= alters && !matches!(submitted, Submitted::Full(_));
        self.carry_on(key, submitted)
    }

    /// Does what the store asks for. The result, if it is there.
    pub(crate) fn carry_on(&mut self, key: TaskKey, submitted: Submitted) -> Option<IoResult> {
        let work = match submitted {
            Submitted::Done(result) => return Some(result),
            Submitted::Ring(operation) => {
                let running = &mut self.tasks[key];
                debug_assert!(running.lien.is_none(), "{key:?} is counted twice");
                let held = &self.units[running.unit].held_bytes;
                running.lien = Some(Lien::new(held, &operation));
                Some(StoreWork::Ring(operation))
            }
            Submitted::Helper(operation) => Some(StoreWork::Helper(operation)),
            Submitted::Pending => None,
            Submitted::Full(request) => {
                self.await_store(key, request);
                return None;
            }
        };
        let operation = work.map(|work| self.carrier.begin(Purpose::Task(key), work));
        self.enter(key, Stage::Store { operation });
        None
    }

    /// An operation on the ring, or on the lane of a file, is over. `result` is the kernel's: a
    /// count of bytes or zero, or a negative error number.
    pub fn handle_ring_result(&mut self, purpose: Purpose, operation: RingOperation, result: i32) {
        match purpose {
            Purpose::Task(key) => {
                if let Some(unit) = self.unit_of_task_in_store(key) {
                    let store = &mut self.units[unit].store;
                    let submitted = store.handle_ring_result(tag_of(key), operation, result);
                    self.handle_submitted(key, submitted);
                }
            }
            Purpose::Probe(unit) => self.handle_probed(unit, operation, result),
            Purpose::Flush(unit) => self.handle_flush_result(unit, operation, result),
        }
    }

    /// Work of a helper thread is over.
    pub fn handle_helper_result(&mut self, purpose: Purpose, result: HelperResult) {
        match purpose {
            Purpose::Task(key) => {
                if let Some(unit) = self.unit_of_task_in_store(key) {
                    let store = &mut self.units[unit].store;
                    let submitted = store.handle_helper_result(tag_of(key), result);
                    self.handle_submitted(key, submitted);
                }
            }
            Purpose::Flush(unit) => self.handle_flush_helped(unit, result),
            // No store looks at its size by a helper.
            Purpose::Probe(_) => self
                .carrier
                .notify(News::Broken("a helper looked at a size")),
        }
    }

    /// A request that the store took with [`Submitted::Pending`] is over.
    pub fn handle_store_result(&mut self, purpose: Purpose, result: IoResult) {
        match purpose {
            Purpose::Task(key) => {
                if self.unit_of_task_in_store(key).is_some() {
                    self.handle_submitted(key, Submitted::Done(result));
                }
            }
            Purpose::Flush(unit) => self.carry_flush_on(unit, Submitted::Done(result)),
            Purpose::Probe(_) => {
                let news = News::Broken("a size was looked at by a store itself");
                self.carrier.notify(news);
            }
        }
    }

    /// The unit of a task that the store works for. A completion finds its task in any case, because
    /// that keeps its place until then.
    fn unit_of_task_in_store(&mut self, key: TaskKey) -> Option<UnitIndex> {
        let task = self.tasks.get(key).filter(|task| task.is_in_store());
        let unit = task.map(|task| task.unit);
        debug_assert!(
            unit.is_some(),
            "a completion for a task that is not in the store"
        );
        if unit.is_none() {
            let news = News::Broken("a completion for a task that is not in the store");
            self.carrier.notify(news);
        }
        unit
    }

    fn handle_submitted(&mut self, key: TaskKey, submitted: Submitted) {
        let unit = self.tasks[key].unit;
        debug_assert!(self.tasks[key].is_in_store(), "{key:?} comes back twice");
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
        self.retry_full(unit);
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
}

/// Whether a request changes the medium.
pub(crate) const fn alters(request: &IoRequest) -> bool {
    match request {
        IoRequest::Write { .. } | IoRequest::Unmap { .. } | IoRequest::WriteZeros { .. } => true,
        IoRequest::Read { .. } | IoRequest::Flush | IoRequest::Extents { .. } => false,
    }
}
