//! Room for data: what a request must have before its store gets it, and who waits for that.
//!
//! Which buffers a session and a unit may have is decided in [`memory::Shares`], together with why
//! nobody waits for ever. Here are the queues: tasks and sessions that wait for the pool, first come
//! first; apart from them, sessions that have their share, or whose party has, and, one queue each, the tasks of such
//! sessions.

use marks::sometimes;
use memory::{Buffer, Need, NoRoom, Payload, Pool};
use scsi::{Outcome, Status, Task};
use store::{DeviceRequest, IoRequest};

use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::{SessionKey, TaskKey};
use crate::port::Port;
use crate::task::{Fencing, Stage};
use crate::unit::{InPlace, Unit};

/// With more output than this waiting for a session's initiator, in bytes, no read begins for it
/// that needs a buffer: it would only wait in memory.
const READ_BACKLOG_MAX: usize = 4 * 1024 * 1024;

/// How many sessions that have their share are looked at in one turn.
const LOOKS: usize = 64;

/// A request on its way to a store.
#[derive(Debug)]
pub(crate) enum Room {
    /// It has all it needs.
    Ready(IoRequest),
    /// It needs a buffer and does not get one now.
    Wait(IoRequest, NoRoom),
    /// The store of its unit holds the unit's share.
    UnitShare(IoRequest),
    /// Its data has no place to wait in.
    Refused,
}

/// Gives a request what its store needs: a buffer to read into, data that may stay where it is.
#[inline]
pub(crate) fn make_room<C: Carrier>(
    request: IoRequest,
    (task, pool): (Option<&Task>, &Pool),
    unit: &Unit,
    carrier: &mut C,
    unsent_bytes: impl FnOnce() -> usize,
) -> Room {
    let crosses = |bytes| matches!(request, IoRequest::Read { offset, len, .. } if store::crosses(bytes, offset, len));
    let is_in_place = match unit.in_place {
        InPlace::Never => false,
        InPlace::Within(bytes) => !crosses(bytes),
        InPlace::Always => true,
    };
    if is_in_place {
        return Room::Ready(request);
    }
    match request {
        IoRequest::Read {
            offset,
            len,
            buffer: None,
        } => {
            let request = |buffer| IoRequest::Read {
                offset,
                len,
                buffer,
            };
            room_to_read((len, request), (task, pool), unit, unsent_bytes)
        }
        IoRequest::Device(asked) => room_for_device(asked, (task, pool), unit, unsent_bytes),
        IoRequest::Write {
            offset,
            data,
            durable,
        } => room_to_write((offset, data, durable), unit, pool, carrier),
        IoRequest::CompareAndWrite {
            offset,
            data,
            durable,
        } => room_to_compare((offset, data, durable), unit, pool),
        request @ (IoRequest::Read { .. }
        | IoRequest::Flush
        | IoRequest::Unmap { .. }
        | IoRequest::WriteZeros { .. }
        | IoRequest::Extents { .. }) => Room::Ready(request),
    }
}

/// Whether the store of a unit may get more while others need room.
fn may_go_on(unit: &Unit, pool: &Pool) -> bool {
    let may_go_on = pool
        .shares()
        .unit_may_go_on(pool.free_bytes(), unit.held_bytes.get());
    debug_assert!(
        may_go_on || unit.held_bytes.get() > 0,
        "a request waits for a store that has nothing to give back"
    );
    may_go_on
}

/// What a device of others is asked has its Data-Out in memory already.
fn room_for_device(
    asked: Box<DeviceRequest>,
    (task, pool): (Option<&Task>, &Pool),
    unit: &Unit,
    unsent_bytes: impl FnOnce() -> usize,
) -> Room {
    let len = asked.data_in_bytes;
    let request = |buffer| {
        let asked = DeviceRequest { buffer, ..*asked };
        IoRequest::Device(Box::new(asked))
    };
    match (len, may_go_on(unit, pool)) {
        (0, true) => Room::Ready(request(None)),
        (0, false) => Room::UnitShare(request(None)),
        (1.., _) => room_to_read((len, request), (task, pool), unit, unsent_bytes),
    }
}

fn room_to_read(
    (len, request): (usize, impl FnOnce(Option<Buffer>) -> IoRequest),
    (task, pool): (Option<&Task>, &Pool),
    unit: &Unit,
    unsent_bytes: impl FnOnce() -> usize,
) -> Room {
    let holds = task.is_some_and(Task::holds_data);
    let need = if holds { Need::GoOn } else { Need::Begin };
    if !may_go_on(unit, pool) {
        sometimes!("a read waits for the share of its unit");
        return Room::UnitShare(request(None));
    }
    if !holds && pool.held_bytes() > READ_BACKLOG_MAX && unsent_bytes() > READ_BACKLOG_MAX {
        return Room::Wait(request(None), NoRoom::Share);
    }
    match pool.allocate_for(need, len) {
        Ok(buffer) => Room::Ready(request(Some(buffer))),
        Err(why) => {
            // Behind its session's share it could wait for others that wait for memory.
            debug_assert!(
                !holds || why == NoRoom::Supply,
                "a task that holds data waits for a share"
            );
            Room::Wait(request(None), why)
        }
    }
}

fn room_to_write<C: Carrier>(
    (offset, data, durable): (u64, Payload, bool),
    unit: &Unit,
    pool: &Pool,
    carrier: &mut C,
) -> Room {
    let request = |data| IoRequest::Write {
        offset,
        data,
        durable,
    };
    let may_go_on = may_go_on(unit, pool);
    let needs_own = unit.store.capabilities().needs_own_buffer;
    // What came in a chunk leaves it or has no place at all; all else can wait where it is.
    let (copies, need) = match &data {
        Payload::Received { chunk, .. } => {
            let copies = !may_go_on || needs_own || !carrier.lend_chunk(chunk);
            (copies, Need::Arrived)
        }
        Payload::Heap(_) | Payload::Mapped(_) => (needs_own, Need::Begin),
        Payload::Empty | Payload::Pool(_) => (false, Need::Begin),
    };
    let data = if copies {
        match (copied(&data, need, pool), need) {
            (Ok(copy), _) => copy,
            (Err(_), Need::Arrived) => return Room::Refused,
            (Err(why), Need::Begin | Need::GoOn) => return Room::Wait(request(data), why),
        }
    } else {
        data
    };
    debug_assert!(
        !needs_own || matches!(data, Payload::Pool(_) | Payload::Empty),
        "data for the store is in no buffer of its own"
    );
    if may_go_on {
        Room::Ready(request(data))
    } else {
        Room::UnitShare(request(data))
    }
}

/// The data of COMPARE AND WRITE was copied when the command came, so no receive chunk is in it.
fn room_to_compare(
    (offset, data, durable): (u64, Payload, bool),
    unit: &Unit,
    pool: &Pool,
) -> Room {
    debug_assert!(
        !matches!(data, Payload::Received { .. }),
        "what is compared keeps a chunk"
    );
    let request = IoRequest::CompareAndWrite {
        offset,
        data,
        durable,
    };
    if may_go_on(unit, pool) {
        Room::Ready(request)
    } else {
        Room::UnitShare(request)
    }
}

/// Data for a task that will keep it while it waits, in a buffer of its own size: a chunk is to be
/// received into. A plain write hands its data to the store at once.
pub(crate) fn kept(data: Payload, task: Option<&Task>, pool: &Pool) -> Result<Payload, NoRoom> {
    match data {
        Payload::Received { .. } if !task.is_some_and(Task::is_plain_write) => {
            copied(&data, Need::Arrived, pool)
        }
        Payload::Received { .. }
        | Payload::Empty
        | Payload::Pool(_)
        | Payload::Mapped(_)
        | Payload::Heap(_) => Ok(data),
    }
}

/// A request that has to wait, with its data in a buffer of its own size.
fn settled(request: IoRequest, pool: &Pool) -> Result<IoRequest, NoRoom> {
    match request {
        IoRequest::Write {
            offset,
            data: data @ Payload::Received { .. },
            durable,
        } => Ok(IoRequest::Write {
            offset,
            data: copied(&data, Need::Arrived, pool)?,
            durable,
        }),
        IoRequest::Read { .. }
        | IoRequest::Write { .. }
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Flush
        | IoRequest::Unmap { .. }
        | IoRequest::WriteZeros { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Device(_) => Ok(request),
    }
}

/// How large a buffer a request needs that has none.
fn buffer_bytes(request: &IoRequest) -> Option<usize> {
    match request {
        IoRequest::Read { len, .. } => Some(*len),
        IoRequest::Device(asked) => Some(asked.data_in_bytes),
        IoRequest::Write { .. }
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Flush
        | IoRequest::Unmap { .. }
        | IoRequest::WriteZeros { .. }
        | IoRequest::Extents { .. } => None,
    }
}

/// Makes data that nobody else can change.
pub(crate) fn copied(data: &Payload, need: Need, pool: &Pool) -> Result<Payload, NoRoom> {
    let mut buffer = pool.allocate_for(need, data.len())?;
    data.copy_to(0, &mut buffer);
    Ok(Payload::Pool(buffer))
}

impl<C: Carrier> Engine<C> {
    /// The account of a task's session; the core's own when that is gone.
    pub(crate) fn pool_of(&self, key: TaskKey) -> Pool {
        let session = self.tasks.get(key).and_then(|running| running.session);
        let entry = session.and_then(|session| self.sessions.get(session));
        entry.map_or(&self.pool, |entry| &entry.pool).clone()
    }

    /// As [`make_room`], for a task that has its place in the tables.
    pub(crate) fn make_room_for(&mut self, key: TaskKey, request: IoRequest) -> Room {
        let running = &self.tasks[key];
        let session = running
            .session
            .and_then(|session| self.sessions.get(session));
        let pool = session.map_or(&self.pool, |session| &session.pool);
        let asker = (running.task.as_ref(), pool);
        let unit = &self.units[running.unit];
        let unsent = || session.map_or(0, |session| session.port.unsent_bytes());
        make_room(request, asker, unit, &mut self.carrier, unsent)
    }

    /// A task waits for memory, with what it needs it for.
    pub(crate) fn await_room(&mut self, key: TaskKey, stage: Stage<C>, why: NoRoom) {
        self.enter(key, stage);
        let running = &self.tasks[key];
        let entry = running
            .session
            .and_then(|session| Some((session, self.sessions.get_mut(session)?)));
        match (why, entry) {
            (NoRoom::Share, Some((session, entry))) => {
                sometimes!("a command waits for the share of its session");
                if entry.pool.held_bytes() == 0 {
                    // Its party has what it needs: with a larger pool it would not wait.
                    self.carrier.note_starved();
                }
                entry.waiting.push_back(key);
                if !std::mem::replace(&mut entry.is_sharing, true) {
                    self.sharing.push_back(session);
                }
            }
            (NoRoom::Share | NoRoom::Supply, _) => {
                self.carrier.note_starved();
                if running.task.as_ref().is_some_and(Task::holds_data) {
                    self.starved.push_front(key);
                } else {
                    self.starved.push_back(key);
                }
                self.pool.set_crowded(true);
            }
        }
    }

    /// A task waits until the store of its unit has room, or until the unit has less than its share.
    pub(crate) fn await_store(&mut self, key: TaskKey, request: IoRequest) {
        if let Some(request) = self.settle_request(key, request) {
            self.enter(key, Stage::StoreFull(request));
            self.units[self.tasks[key].unit].full.push_back(key);
        }
    }

    /// A request that has to wait, without what others need: its data has a buffer of its own. `None` where there is no
    /// room for that; the task is over then.
    pub(crate) fn settle_request(&mut self, key: TaskKey, request: IoRequest) -> Option<IoRequest> {
        let settled = settled(request, &self.pool_of(key)).ok();
        if settled.is_none() {
            self.refuse(key);
        }
        settled
    }

    /// A task waits for a fence to be lowered.
    pub(crate) fn park(&mut self, key: TaskKey, request: IoRequest) {
        if let Some(request) = self.settle_request(key, request) {
            let running = &mut self.tasks[key];
            if running.fencing == Fencing::Free {
                running.fencing = Fencing::Parked(self.now);
            }
            self.units[running.unit].parked.push(key);
            self.enter(key, Stage::Parked(request));
        }
    }

    /// There is no memory for a task's data, and it cannot wait for some.
    pub(crate) fn refuse(&mut self, key: TaskKey) {
        sometimes!("a command is refused for want of memory");
        self.carrier.note_starved();
        self.turn_down(key, Outcome::status(Status::TaskSetFull));
    }

    /// Whether a task or a session of this core waits for memory.
    pub fn is_short_of_memory(&self) -> bool {
        let are_none = self.starved.is_empty()
            && self.starved_sessions.is_empty()
            && self.sharing.is_empty()
            && self.sharing_sessions.is_empty();
        !are_none
    }

    /// Gives memory that came back to those who wait for it, first come first.
    pub fn handle_memory(&mut self) {
        self.pool.set_crowded(false);
        if !self.starved.is_empty() || !self.starved_sessions.is_empty() {
            // Who was refused stands first until it was served: the others do not pass it.
            let mut turns: [fn(&mut Self) -> bool; 2] = [Self::serve_tasks, Self::serve_sessions];
            if self.sessions_first {
                turns.reverse();
            }
            let is_crowded = turns.into_iter().any(|serve| serve(self));
            if !is_crowded {
                self.sessions_first = !self.sessions_first;
            }
            self.pool.set_crowded(is_crowded);
        }
        if !self.pool.is_crowded() {
            self.serve_shares();
            if !self.sharing_sessions.is_empty() {
                self.serve_sharing_sessions();
            }
        }
        self.adjust_windows();
        // A store that was given a request may have answered others meanwhile.
        if self.stores.has_answers() {
            self.settle_answers();
        }
        if cfg!(debug_assertions) {
            // Once a turn, when all that has happened has been carried on.
            self.check();
        }
    }

    /// Whether a task that waits for memory could have it now. Trying would restart its wait.
    fn may_have_room(&self, key: TaskKey) -> Result<(), NoRoom> {
        let Some(running) = self.tasks.get(key) else {
            return Ok(());
        };
        let pool = self.pool_of(key);
        match &running.stage {
            Stage::Memory(request) if let Some(len) = buffer_bytes(request) => {
                let holds = running.task.as_ref().is_some_and(Task::holds_data);
                let need = if holds { Need::GoOn } else { Need::Begin };
                let session = running.session.and_then(|key| self.sessions.get(key));
                if !holds
                    && pool.held_bytes() > READ_BACKLOG_MAX
                    && session.is_some_and(|one| one.port.unsent_bytes() > READ_BACKLOG_MAX)
                {
                    return Err(NoRoom::Share);
                }
                pool.permit(need, len)
            }
            Stage::Memory(IoRequest::Write { data, .. }) => pool.permit(Need::Begin, data.len()),
            Stage::AnswerMemory(outcome) => pool.permit(Need::Begin, outcome.data.len()),
            Stage::Memory(
                IoRequest::Read { .. }
                | IoRequest::CompareAndWrite { .. }
                | IoRequest::Flush
                | IoRequest::Unmap { .. }
                | IoRequest::WriteZeros { .. }
                | IoRequest::Extents { .. }
                | IoRequest::Device(_),
            )
            | Stage::Active
            | Stage::Dormant(_)
            | Stage::DataOut
            | Stage::Store(_)
            | Stage::StoreFull(_)
            | Stage::Parked(_)
            | Stage::Owner
            | Stage::Fence
            | Stage::Turn { .. } => Ok(()),
        }
    }

    /// Tasks that wait for the pool. True when it has no room for the first. Small ones behind that
    /// do not wait for it.
    fn serve_tasks(&mut self) -> bool {
        let (mut at, mut is_blocked) = (0, false);
        for _ in 0..self.starved.len() {
            let Some(&key) = self.starved.get(at) else {
                break;
            };
            if is_blocked && (at > LOOKS || !self.is_small(key)) {
                at += 1;
                continue;
            }
            if self.may_have_room(key) == Err(NoRoom::Supply) {
                is_blocked = true;
                at += 1;
                continue;
            }
            self.starved.remove(at);
            let before = self.starved.len();
            self.retry(key);
            if self.starved.len() > before {
                // Still none: it keeps its place.
                sometimes!("a command finds no memory when its turn comes");
                if self.starved.back() == Some(&key) {
                    self.starved.pop_back();
                    self.starved.insert(at, key);
                }
                is_blocked = true;
                at += 1;
            }
        }
        if is_blocked {
            self.sessions_first = false;
        }
        is_blocked
    }

    /// Whether a task waits for little.
    fn is_small(&self, key: TaskKey) -> bool {
        let stage = self.tasks.get(key).map(|running| &running.stage);
        let shares = self.pool.shares();
        let Some(Stage::Memory(request)) = stage else {
            return false;
        };
        buffer_bytes(request).is_some_and(|len| shares.is_small(len))
    }

    /// A session may wait for memory for Data-Out.
    pub fn note_starving(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if let Some(why) = session.port.starves_for()
            && !session.is_starved
        {
            session.is_starved = true;
            self.queue_starving(key, why);
        }
    }

    fn queue_starving(&mut self, key: SessionKey, why: NoRoom) {
        match why {
            NoRoom::Share => self.sharing_sessions.push_back(key),
            NoRoom::Supply => self.starved_sessions.push_back(key),
        }
    }

    /// Gives a session memory for data that it wants to ask for, and says what is in the way of more.
    fn feed(&mut self, key: SessionKey) -> Option<NoRoom> {
        let session = self.sessions.get_mut(key)?;
        session.port.handle_memory(&session.pool);
        let left = session.port.starves_for();
        session.is_starved = left.is_some();
        self.note_event(key);
        self.note_ready(key, None);
        left
    }

    /// Sessions that want to ask for data. True when the pool has no room for the first.
    fn serve_sessions(&mut self) -> bool {
        for _ in 0..self.starved_sessions.len() {
            let Some(key) = self.starved_sessions.pop_front() else {
                break;
            };
            match self.feed(key) {
                None => {}
                // The pool has no room: it keeps its place.
                Some(NoRoom::Supply) => {
                    self.starved_sessions.push_front(key);
                    sometimes!("a session finds no memory for its data");
                    self.sessions_first = true;
                    return true;
                }
                Some(NoRoom::Share) => self.sharing_sessions.push_back(key),
            }
        }
        false
    }

    /// Sessions that have their share, and want to ask for data.
    fn serve_sharing_sessions(&mut self) {
        for _ in 0..self.sharing_sessions.len().min(LOOKS) {
            if let Some(key) = self.sharing_sessions.pop_front()
                && let Some(why) = self.feed(key)
            {
                self.queue_starving(key, why);
            }
        }
    }

    /// Tasks of sessions that have their share: as many of each as its share allows now.
    fn serve_shares(&mut self) {
        for _ in 0..self.sharing.len().min(LOOKS) {
            let Some(session) = self.sharing.pop_front() else {
                return;
            };
            while let Some(entry) = self.sessions.get(session)
                && let Some(&key) = entry.waiting.front()
                && self.may_have_room(key) != Err(NoRoom::Share)
                && let Some(entry) = self.sessions.get_mut(session)
            {
                entry.waiting.pop_front();
                let before = entry.waiting.len();
                self.retry(key);
                if let Some(entry) = self.sessions.get_mut(session)
                    && entry.waiting.len() > before
                {
                    // Not yet: it keeps its place at the front.
                    entry.waiting.rotate_right(1);
                    break;
                }
            }
            if let Some(entry) = self.sessions.get_mut(session) {
                entry.is_sharing = !entry.waiting.is_empty();
                if entry.is_sharing {
                    self.sharing.push_back(session);
                }
            }
        }
    }

    /// Lets initiators send less while memory is short.
    fn adjust_windows(&mut self) {
        let (free, all) = (self.pool.free_bytes(), self.pool.shares().capacity);
        let is_short = if self.is_short_of_memory {
            free < all / 2
        } else {
            free < all / 4
        };
        if is_short != self.is_short_of_memory {
            sometimes!("windows of sessions change because of memory");
            self.is_short_of_memory = is_short;
            self.set_queue_limits(self.queue_limit());
        }
    }
}
