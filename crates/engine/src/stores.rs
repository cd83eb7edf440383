//! What tasks ask of stores, what stores order for that, and what comes back.
//!
//! A request that a store takes is an *errand*, whose key is the tag of the request. What the store orders for it
//! outside are its *parts*. An answer waits until the parts of its errand are back; then it waits for
//! [`Engine::settle_answers`], so that a store that answers one request while it takes another does not make a
//! recursion of both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use scsi::{Input, Outcome, Sense, SenseCode, SenseKey};
use store::{
    HelperResult, IoRequest, IoResult, IoTag, Order, Outlet, PartTag, RingOperation, SocketResult,
    SocketTag, SocketWork, Submitted,
};

use crate::UnitIndex;
use crate::carrier::{Carrier, News, StoreWork};
use crate::engine::Engine;
use crate::room::{Lien, Room};
use crate::table::{Key, Table};
use crate::task::{Stage, TaskKey};
use crate::unit::Unit;

/// What a [`PartKey`] names.
#[derive(Debug)]
pub enum OfPart {}

/// Names an operation that a [`Carrier`] does for a store.
pub type PartKey = Key<OfPart>;

/// What an [`ErrandKey`] names.
#[derive(Debug)]
pub(crate) enum OfErrand {}

/// Names a request that a store has taken. Its bits are the tag of the request.
pub(crate) type ErrandKey = Key<OfErrand>;

pub(crate) const fn tag_of(key: ErrandKey) -> IoTag {
    IoTag(key.to_bits())
}

/// `ENOTCONN`.
const NOT_CONNECTED: i32 = 107;

const fn errand_of(tag: IoTag) -> ErrandKey {
    Key::from_bits(tag.0)
}

/// What the engine has to know of a request after the store has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// It changes the medium.
    pub(crate) alters: bool,
    /// How much data it holds, in bytes.
    bytes: usize,
}

impl Sent {
    #[inline]
    pub(crate) fn of(request: &IoRequest) -> Self {
        let (alters, bytes) = match request {
            IoRequest::Read { len, .. } => (false, *len),
            IoRequest::Write { data, .. } | IoRequest::CompareAndWrite { data, .. } => {
                (true, data.len())
            }
            IoRequest::Unmap { .. } | IoRequest::WriteZeros { .. } => (true, 0),
            IoRequest::Flush | IoRequest::Extents { .. } => (false, 0),
        };
        Self { alters, bytes }
    }
}

/// Who gets the answer of an errand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Client {
    /// A task, which waits in [`Stage::Store`].
    Task(TaskKey),
    /// A flush of the unit that no command asked for.
    Flush,
    /// Nobody any more.
    Nobody,
}

/// A request that a store has.
#[derive(Debug)]
struct Errand {
    unit: UnitIndex,
    client: Client,
    /// How many parts of it are under way.
    parts: usize,
    /// The store was asked to give it up.
    is_cancelled: bool,
    /// The answer of the store, until nothing of the request is under way.
    answer: Option<IoResult>,
}

/// An operation that is done for a store.
#[derive(Debug)]
struct Part<O> {
    unit: UnitIndex,
    name: PartTag,
    /// The connection that it is on, if it is on one.
    socket: Option<SocketTag>,
    operation: O,
}

/// The errands of one core, and their parts.
#[derive(Debug)]
pub(crate) struct Stores<O> {
    errands: Table<Errand, OfErrand>,
    parts: Table<Part<O>, OfPart>,
    /// Errands that are answered and have no part under way, in order.
    answered: VecDeque<ErrandKey>,
    /// Open connections.
    sockets: BTreeSet<(UnitIndex, SocketTag)>,
}

impl<O> Default for Stores<O> {
    fn default() -> Self {
        Self {
            errands: Table::default(),
            parts: Table::default(),
            answered: VecDeque::new(),
            sockets: BTreeSet::new(),
        }
    }
}

impl<O: Copy + Debug> Stores<O> {
    /// Submits a request, under a tag that no other has. [`Stores::note_done`] or [`Stores::open`] follows.
    #[inline]
    pub(crate) fn submit(&self, unit: &mut Unit, request: IoRequest) -> Submitted {
        let tag = tag_of(self.errands.vacant_key());
        unit.store.submit(tag, request, &mut unit.outlet)
    }

    /// The request that was just submitted is over, or was not taken.
    #[inline]
    pub(crate) const fn note_done(&mut self) {
        self.errands.skip_key();
    }

    /// The request that was just submitted is taken.
    fn open(&mut self, unit: UnitIndex, client: Client) -> ErrandKey {
        self.errands.insert(Errand {
            unit,
            client,
            parts: 0,
            is_cancelled: false,
            answer: None,
        })
    }

    /// How many requests stores have.
    pub(crate) fn errands(&self) -> usize {
        self.errands.len()
    }

    /// Answers wait for [`Engine::settle_answers`].
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The task that gets the answer of an errand, which is there.
    pub(crate) fn client(&self, key: ErrandKey) -> Option<Client> {
        self.errands.get(key).map(|errand| errand.client)
    }

    /// Nobody waits for the answer any longer.
    fn disown(&mut self, key: ErrandKey) {
        if let Some(errand) = self.errands.get_mut(key) {
            errand.client = Client::Nobody;
        }
    }

    /// A request that the unit's store has and has not answered.
    fn open_errand(&mut self, unit: UnitIndex, tag: IoTag) -> Option<&mut Errand> {
        let errand = self.errands.get_mut(errand_of(tag))?;
        (errand.unit == unit && errand.answer.is_none()).then_some(errand)
    }

    /// The store answers. False when it has no such request, or has answered it before.
    fn take_answer(&mut self, unit: UnitIndex, tag: IoTag, result: IoResult) -> bool {
        let Some(errand) = self.open_errand(unit, tag) else {
            return false;
        };
        errand.answer = Some(result);
        if errand.parts == 0 {
            self.answered.push_back(errand_of(tag));
        }
        true
    }

    /// A part is over. The answer of its request may have waited for it.
    fn end_part(&mut self, key: PartKey) -> Option<Part<O>> {
        let part = self.parts.remove(key)?;
        if let Some(tag) = part.name.request
            && let Some(errand) = self.errands.get_mut(errand_of(tag))
        {
            debug_assert!(errand.parts > 0, "{key:?} is a part too many");
            errand.parts -= 1;
            if errand.parts == 0 && errand.answer.is_some() {
                self.answered.push_back(errand_of(tag));
            }
        }
        Some(part)
    }

    /// The parts of a unit, as far as they are meant.
    fn parts_of(
        &self,
        unit: UnitIndex,
        is_meant: impl Fn(PartTag) -> bool,
    ) -> impl Iterator<Item = &O> {
        let parts = self.parts.iter().map(|(_, part)| part);
        parts
            .filter(move |part| part.unit == unit && is_meant(part.name))
            .map(|part| &part.operation)
    }

    /// Panics where something does not hold that must.
    pub(crate) fn check(&self) {
        assert!(self.answered.is_empty(), "answers were left");
        for (key, errand) in self.errands.iter() {
            let name = Some(tag_of(key));
            let parts = self
                .parts
                .iter()
                .filter(|(_, part)| part.name.request == name);
            assert_eq!(parts.count(), errand.parts, "the parts of {key:?}");
            assert!(
                errand.answer.is_none() || errand.parts > 0,
                "{key:?} is answered and is there"
            );
        }
    }
}

/// Timers of stores, the soonest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// By the time when they are due, and a number that keeps those of the same time in order.
    all: BTreeMap<(Duration, u64), (UnitIndex, u64)>,
    next: u64,
}

impl Timers {
    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.all.first_key_value().map(|((at, _), _)| *at)
    }

    fn set(&mut self, at: Duration, unit: UnitIndex, number: u64) {
        self.all.insert((at, self.next), (unit, number));
        self.next += 1;
    }

    fn due(&mut self, now: Duration) -> Option<(UnitIndex, u64)> {
        let first = self.all.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

impl<C: Carrier> Engine<C> {
    /// Hands a request to the store of the task's unit. The result, if it is there at once.
    pub(crate) fn submit(&mut self, key: TaskKey, request: IoRequest) -> Option<IoResult> {
        let running = &mut self.tasks[key];
        let unit = &mut self.units[running.unit];
        let sent = Sent::of(&request);
        if let Some(sense) = unit.view.refusal_of(&request) {
            // It was let pass before, and has waited since.
            self.turn_down(key, Outcome::check(sense));
            return None;
        }
        if sent.alters && unit.view.is_read_only(running.nexus) {
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
        let unit = &mut self.units[self.tasks[key].unit];
        let submitted = self.stores.submit(unit, request);
        self.carry_on(key, sent, submitted)
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
            self.stores.note_done();
            self.carry_orders(index);
            self.await_store(key, request);
            return None;
        }
        debug_assert!(running.lien.is_none(), "{key:?} is counted twice");
        running.has_altered |= sent.alters;
        running.lien = Some(Lien::new(&unit.held_bytes, sent.bytes));
        let errand = self.stores.open(index, Client::Task(key));
        self.enter(key, Stage::Store(errand));
        self.carry_orders(index);
        None
    }

    /// Submits a flush that no command asked for. `Err` when the store has no room for it now.
    pub(crate) fn submit_flush(&mut self, index: UnitIndex) -> Result<FlushWay, ()> {
        let unit = &mut self.units[index];
        let submitted = self.stores.submit(unit, IoRequest::Flush);
        let is_returned = unit.outlet.take_returned().is_some();
        let way = match submitted {
            Submitted::Done(result) => {
                self.stores.note_done();
                Ok(FlushWay::Over(result))
            }
            Submitted::Taken if is_returned => {
                self.stores.note_done();
                Err(())
            }
            Submitted::Taken => {
                let errand = self.stores.open(index, Client::Flush);
                Ok(FlushWay::Taken(errand))
            }
        };
        self.carry_orders(index);
        way
    }

    // ---- stores come and go ------------------------------------------------------------------

    /// The store of a new unit may begin what it needs.
    pub(crate) fn start_store(&mut self, index: UnitIndex) {
        let carrier = &self.carrier;
        let unit = &mut self.units[index];
        unit.store.start(&|| carrier.waker(index), &mut unit.outlet);
        self.carry_orders(index);
    }

    /// The store of a unit that is idle is closed. What is under way for it ends soon, and unseen.
    pub(crate) fn forget_store(&mut self, index: UnitIndex) {
        for operation in self.stores.parts_of(index, |_| true) {
            self.carrier.cancel(*operation);
        }
        let sockets = self.stores.sockets.iter();
        let sockets = sockets.filter(|(unit, _)| *unit == index);
        let open: Vec<SocketTag> = sockets.map(|(_, socket)| *socket).collect();
        for socket in open {
            self.close_socket(index, socket);
        }
        let errands = self.stores.errands.iter();
        let errands = errands.filter(|(_, errand)| errand.unit == index);
        let gone: Vec<ErrandKey> = errands.map(|(key, _)| key).collect();
        for key in gone {
            let errand = self.stores.errands.remove(key);
            debug_assert!(
                errand.is_some_and(|errand| !matches!(errand.client, Client::Task(_))),
                "a store is closed that works for a task"
            );
        }
        self.timers.all.retain(|_, (unit, _)| *unit != index);
        self.units[index].outlet = Outlet::default();
    }

    // ---- orders ------------------------------------------------------------------------------

    /// Carries out what a store has ordered, and takes its answers.
    pub(crate) fn carry_orders(&mut self, index: UnitIndex) {
        while let Some(order) = self.units[index].outlet.next_order() {
            match order {
                Order::Answer { tag, result } => {
                    if !self.stores.take_answer(index, tag, result) {
                        self.carrier.notify(News::StoreConfused { unit: index });
                    }
                }
                Order::Ring { part, operation } => {
                    self.begin_part(index, part, None, StoreWork::Ring(operation));
                }
                Order::Helper { part, operation } => {
                    self.begin_part(index, part, None, StoreWork::Helper(operation));
                }
                Order::CancelParts(request) => {
                    self.cancel_parts(index, |part| part.request == Some(request));
                }
                Order::CancelPart(meant) => self.cancel_parts(index, |part| part == meant),
                Order::Timer { number, after } => {
                    let at = self.now.saturating_add(after);
                    self.timers.set(at, index, number);
                }
                Order::Size => self.take_size(index, None),
                Order::OpenSocket { socket, descriptor } => {
                    debug_assert!(
                        !self.stores.sockets.contains(&(index, socket)),
                        "{socket:?} is the name of two connections"
                    );
                    if self.carrier.open_socket(index, socket, descriptor) {
                        self.stores.sockets.insert((index, socket));
                    }
                }
                Order::Socket {
                    socket,
                    number,
                    work,
                } => self.work_on_socket(index, socket, number, work),
                Order::CloseSocket(socket) => self.close_socket(index, socket),
            }
        }
    }

    fn work_on_socket(
        &mut self,
        index: UnitIndex,
        socket: SocketTag,
        number: u64,
        work: SocketWork,
    ) {
        if self.stores.sockets.contains(&(index, socket)) {
            let unit = index;
            let work = StoreWork::Socket { unit, socket, work };
            self.begin_part(index, PartTag::own(number), Some(socket), work);
        } else {
            let unit = &mut self.units[index];
            let result = work.fail(NOT_CONNECTED);
            let outlet = &mut unit.outlet;
            unit.store.handle_socket(socket, number, result, outlet);
        }
    }

    fn close_socket(&mut self, index: UnitIndex, socket: SocketTag) {
        if self.stores.sockets.remove(&(index, socket)) {
            self.carrier.close_socket(index, socket);
        }
    }

    fn begin_part(
        &mut self,
        unit: UnitIndex,
        name: PartTag,
        socket: Option<SocketTag>,
        work: StoreWork,
    ) {
        if let Some(tag) = name.request {
            let Some(errand) = self.stores.open_errand(unit, tag) else {
                // Nothing may be done for a request that is over.
                drop(work);
                self.carrier.notify(News::StoreConfused { unit });
                return;
            };
            errand.parts += 1;
        }
        let key = self.stores.parts.vacant_key();
        let operation = self.carrier.begin(key, work);
        let inserted = self.stores.parts.insert(Part {
            unit,
            name,
            socket,
            operation,
        });
        debug_assert_eq!(key, inserted, "a part is called otherwise than its work");
    }

    fn cancel_parts(&mut self, unit: UnitIndex, is_meant: impl Fn(PartTag) -> bool) {
        for operation in self.stores.parts_of(unit, is_meant) {
            self.carrier.cancel(*operation);
        }
    }

    /// Nobody needs the result of a request that a store has.
    pub(crate) fn cancel_errand(&mut self, key: ErrandKey) {
        let Some(errand) = self.stores.errands.get_mut(key) else {
            return;
        };
        let (index, tag) = (errand.unit, tag_of(key));
        if std::mem::replace(&mut errand.is_cancelled, true) {
            return;
        }
        if errand.answer.is_some() {
            // The store is done with it; what is under way is not.
            self.cancel_parts(index, |part| part.request == Some(tag));
            return;
        }
        let unit = &mut self.units[index];
        unit.store.cancel(tag, &mut unit.outlet);
        self.carry_orders(index);
    }

    /// A flush that no command asked for has taken too long: its answer goes nowhere.
    pub(crate) fn disown_errand(&mut self, key: ErrandKey) {
        self.stores.disown(key);
        self.cancel_errand(key);
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
        while let Some((index, number)) = self.timers.due(self.now) {
            let unit = &mut self.units[index];
            unit.store.handle_timer(number, &mut unit.outlet);
            self.heed(index);
        }
    }

    fn end_part(&mut self, key: PartKey) -> Option<Part<C::Operation>> {
        let part = self.stores.end_part(key);
        debug_assert!(part.is_some(), "{key:?} comes back twice");
        if part.is_none() {
            let news = News::Broken("an operation of a store comes back twice");
            self.carrier.notify(news);
        }
        part
    }

    /// A store was called: does what it wants.
    fn heed(&mut self, index: UnitIndex) {
        self.carry_orders(index);
        self.settle_answers();
    }

    /// Carries on those whose requests are over.
    pub(crate) fn settle_answers(&mut self) {
        while let Some(key) = self.stores.answered.pop_front() {
            let Some(errand) = self.stores.errands.remove(key) else {
                continue;
            };
            let (unit, answer) = (errand.unit, errand.answer);
            match (errand.client, answer) {
                (Client::Task(key), Some(result)) => self.handle_answer(key, result),
                (Client::Flush, Some(result)) => self.handle_flush(unit, result),
                (Client::Nobody, Some(_)) => {}
                (client, None) => debug_assert!(false, "no answer for {client:?}"),
            }
            self.retry_full(unit);
        }
    }

    fn handle_answer(&mut self, key: TaskKey, result: IoResult) {
        debug_assert!(self.tasks[key].is_in_store(), "{key:?} comes back twice");
        // What the store had of the task is back.
        self.enter(key, Stage::Active);
        self.tasks[key].lien = None;
        if self.tasks[key].is_aborted {
            self.close_task(key);
        } else {
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
            | Stage::Store(_)
            | Stage::Owner
            | Stage::Fence) => {
                debug_assert!(false, "retry in {stage:?}");
                self.enter(key, stage);
            }
        }
    }
}

/// What became of a flush that no command asked for.
#[derive(Debug)]
pub(crate) enum FlushWay {
    /// It is over.
    Over(IoResult),
    /// The store has it.
    Taken(ErrandKey),
}
