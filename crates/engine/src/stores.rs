//! The requests that the stores of a core have, and what the stores have ordered.
//!
//! A request that a store takes is an *errand*, whose key is the tag of the request. What the store orders for it
//! outside are its *parts*. An answer waits until the parts of its errand are back; then it waits for
//! [`Stores::poll_answer`], so that a store that answers one request while it takes another does not make a
//! recursion of both.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use store::{
    FlushTaken, IoRequest, IoResult, IoTag, Order, Outlet, PartTag, SocketTag, SocketWork,
    Submitted,
};

use crate::UnitIndex;
use crate::carrier::{Carrier, News, StoreWork};
use crate::keys::{ErrandKey, OfErrand, OfPart, PartKey, TaskKey, errand_of, tag_of};
use crate::table::Table;
use crate::unit::Unit;

/// `ENOTCONN`.
const NOT_CONNECTED: i32 = 107;

/// What the engine has to know of a request after the store has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// It changes the medium.
    pub(crate) alters: bool,
    /// How much data it holds, in bytes.
    pub(crate) bytes: usize,
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
            IoRequest::Device(request) => {
                let bytes = request.data_in_bytes.saturating_add(request.data_out.len());
                (request.alters, bytes)
            }
        };
        Self { alters, bytes }
    }
}

/// Who gets the answer of an errand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Client {
    /// A task, which waits for the store.
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
pub(crate) struct Part<O> {
    pub(crate) unit: UnitIndex,
    pub(crate) name: PartTag,
    /// The connection that it is on, if it is on one.
    pub(crate) socket: Option<SocketTag>,
    /// Its store is closed, and another one may stand in its place.
    pub(crate) is_unseen: bool,
    operation: O,
}

/// The errands of one core, their parts, and the timers and connections of its stores.
#[derive(Debug)]
pub(crate) struct Stores<O> {
    errands: Table<Errand, OfErrand>,
    parts: Table<Part<O>, OfPart>,
    /// Errands that are answered and have no part under way, in order.
    answered: VecDeque<ErrandKey>,
    /// Open connections.
    sockets: BTreeSet<(UnitIndex, SocketTag)>,
    timers: Timers,
}

impl<O> Default for Stores<O> {
    fn default() -> Self {
        Self {
            errands: Table::default(),
            parts: Table::default(),
            answered: VecDeque::new(),
            sockets: BTreeSet::new(),
            timers: Timers::default(),
        }
    }
}

impl<O: Copy + Debug> Stores<O> {
    /// Submits a request, under a tag that no other has. [`Stores::note_done`] or [`Stores::open`] follows.
    #[inline]
    pub(crate) fn submit(&self, unit: &mut Unit, request: IoRequest) -> Submitted {
        debug_assert!(
            unit.outlet.is_empty(),
            "a request comes before what the store has ordered"
        );
        let tag = tag_of(self.errands.vacant_key());
        unit.store.submit(tag, request, &mut unit.outlet)
    }

    /// The request that was just submitted is over, or was not taken.
    #[inline]
    pub(crate) const fn note_done(&mut self) {
        self.errands.skip_key();
    }

    /// The request that was just submitted is taken.
    pub(crate) fn open(&mut self, unit: UnitIndex, client: Client) -> ErrandKey {
        self.errands.insert(Errand {
            unit,
            client,
            parts: 0,
            is_cancelled: false,
            answer: None,
        })
    }

    /// Submits a flush that no command asked for.
    pub(crate) fn submit_flush(
        &mut self,
        index: UnitIndex,
        unit: &mut Unit,
    ) -> FlushTaken<ErrandKey> {
        let submitted = self.submit(unit, IoRequest::Flush);
        let is_returned = unit.outlet.take_returned().is_some();
        match submitted {
            Submitted::Done(result) => {
                self.note_done();
                FlushTaken::Done(result)
            }
            Submitted::Taken if is_returned => {
                self.note_done();
                FlushTaken::Full
            }
            Submitted::Taken => FlushTaken::Taken(self.open(index, Client::Flush)),
        }
    }

    /// How many requests stores have.
    pub(crate) fn errands(&self) -> usize {
        self.errands.len()
    }

    /// Answers wait for [`Stores::poll_answer`].
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// An answer whose errand is over, with the unit and who gets it.
    pub(crate) fn poll_answer(&mut self) -> Option<(UnitIndex, Client, IoResult)> {
        while let Some(key) = self.answered.pop_front() {
            // Its store may be closed.
            let Some(errand) = self.errands.remove(key) else {
                continue;
            };
            debug_assert_eq!(errand.parts, 0, "{key:?} ends before its parts");
            if let Some(result) = errand.answer {
                return Some((errand.unit, errand.client, result));
            }
        }
        None
    }

    /// The unit of an errand that is not over.
    pub(crate) fn unit_of(&self, key: ErrandKey) -> Option<UnitIndex> {
        self.errands.get(key).map(|errand| errand.unit)
    }

    /// The task that gets the answer of an errand, which is there.
    pub(crate) fn client(&self, key: ErrandKey) -> Option<Client> {
        self.errands.get(key).map(|errand| errand.client)
    }

    /// Nobody waits for the answer any longer.
    pub(crate) fn disown(&mut self, key: ErrandKey) {
        if let Some(errand) = self.errands.get_mut(key) {
            // An aborted task waits until its request is back.
            debug_assert_eq!(errand.client, Client::Flush, "{key:?} is given up");
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
    pub(crate) fn end_part(&mut self, key: PartKey) -> Option<Part<O>> {
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

    // ---- orders ------------------------------------------------------------------------------

    /// Carries out what a store has ordered, and takes its answers. True when it has looked at its size.
    #[must_use = "the size may be another one"]
    pub(crate) fn carry_orders<C: Carrier<Operation = O>>(
        &mut self,
        (index, unit): (UnitIndex, &mut Unit),
        carrier: &mut C,
        now: Duration,
    ) -> bool {
        let mut has_size = false;
        while let Some(order) = unit.outlet.next_order() {
            match order {
                Order::Answer { tag, result } => {
                    if !self.take_answer(index, tag, result) {
                        carrier.notify(News::StoreConfused { unit: index });
                    }
                }
                Order::Ring { part, operation } => {
                    self.begin_part((index, part, None), StoreWork::Ring(operation), carrier);
                }
                Order::Helper { part, operation } => {
                    self.begin_part((index, part, None), StoreWork::Helper(operation), carrier);
                }
                Order::CancelParts(request) => {
                    self.cancel_parts(index, |part| part.request == Some(request), carrier);
                }
                Order::CancelPart(meant) => self.cancel_parts(index, |part| part == meant, carrier),
                Order::Timer { number, after } => {
                    self.timers.set(now.saturating_add(after), index, number);
                }
                Order::Size => has_size = true,
                Order::Reach { is_reached } => carrier.notify(News::StoreReach {
                    unit: index,
                    is_reached,
                }),
                Order::HeldElsewhere { is_held } => unit.view.set_held_elsewhere(is_held),
                Order::OpenSocket { socket, descriptor } => {
                    debug_assert!(
                        !self.sockets.contains(&(index, socket)),
                        "{socket:?} is the name of two connections"
                    );
                    if carrier.open_socket(index, socket, descriptor) {
                        self.sockets.insert((index, socket));
                    }
                }
                Order::Socket {
                    socket,
                    number,
                    work,
                } => self.work_on_socket((index, unit), (socket, number), work, carrier),
                Order::CloseSocket(socket) => self.close_socket(index, socket, carrier),
            }
        }
        has_size
    }

    fn work_on_socket<C: Carrier<Operation = O>>(
        &mut self,
        (index, unit): (UnitIndex, &mut Unit),
        (socket, number): (SocketTag, u64),
        work: SocketWork,
        carrier: &mut C,
    ) {
        if self.sockets.contains(&(index, socket)) {
            let unit = index;
            let work = StoreWork::Socket { unit, socket, work };
            self.begin_part((index, PartTag::own(number), Some(socket)), work, carrier);
        } else {
            let result = work.fail(NOT_CONNECTED);
            let outlet = &mut unit.outlet;
            unit.store.handle_socket(socket, number, result, outlet);
        }
    }

    fn close_socket<C: Carrier>(&mut self, unit: UnitIndex, socket: SocketTag, carrier: &mut C) {
        if self.sockets.remove(&(unit, socket)) {
            carrier.close_socket(unit, socket);
        }
    }

    fn begin_part<C: Carrier<Operation = O>>(
        &mut self,
        (unit, name, socket): (UnitIndex, PartTag, Option<SocketTag>),
        work: StoreWork,
        carrier: &mut C,
    ) {
        if let Some(tag) = name.request {
            let Some(errand) = self.open_errand(unit, tag) else {
                // Nothing may be done for a request that is over.
                drop(work);
                carrier.notify(News::StoreConfused { unit });
                return;
            };
            errand.parts += 1;
        }
        let key = self.parts.vacant_key();
        let operation = carrier.begin(key, work);
        let inserted = self.parts.insert(Part {
            unit,
            name,
            socket,
            is_unseen: false,
            operation,
        });
        debug_assert_eq!(key, inserted, "a part is called otherwise than its work");
    }

    fn cancel_parts<C: Carrier<Operation = O>>(
        &self,
        unit: UnitIndex,
        is_meant: impl Fn(PartTag) -> bool,
        carrier: &mut C,
    ) {
        for operation in self.parts_of(unit, is_meant) {
            carrier.cancel(*operation);
        }
    }

    /// Nobody needs the result of a request that the store of this unit has.
    pub(crate) fn cancel<C: Carrier<Operation = O>>(
        &mut self,
        key: ErrandKey,
        (index, unit): (UnitIndex, &mut Unit),
        carrier: &mut C,
    ) {
        let Some(errand) = self.errands.get_mut(key) else {
            return;
        };
        let tag = tag_of(key);
        if std::mem::replace(&mut errand.is_cancelled, true) {
            return;
        }
        if errand.answer.is_some() {
            // The store is done with it; what is under way is not.
            self.cancel_parts(index, |part| part.request == Some(tag), carrier);
        } else {
            unit.store.cancel(tag, &mut unit.outlet);
        }
    }

    /// The store of a unit that is idle is closed. What is under way for it ends soon, and unseen.
    pub(crate) fn close<C: Carrier<Operation = O>>(
        &mut self,
        (index, unit): (UnitIndex, &mut Unit),
        carrier: &mut C,
    ) {
        self.cancel_parts(index, |_| true, carrier);
        let parts = self.parts.iter_mut().map(|(_, part)| part);
        for part in parts.filter(|part| part.unit == index) {
            part.is_unseen = true;
        }
        let sockets = self.sockets.iter().filter(|(unit, _)| *unit == index);
        let open: Vec<SocketTag> = sockets.map(|(_, socket)| *socket).collect();
        for socket in open {
            self.close_socket(index, socket, carrier);
        }
        let errands = self.errands.iter();
        let errands = errands.filter(|(_, errand)| errand.unit == index);
        let gone: Vec<ErrandKey> = errands.map(|(key, _)| key).collect();
        for key in gone {
            let errand = self.errands.remove(key);
            debug_assert!(
                errand.is_some_and(|errand| !matches!(errand.client, Client::Task(_))),
                "a store is closed that works for a task"
            );
        }
        self.timers.all.retain(|_, (unit, _)| *unit != index);
        unit.outlet = Outlet::default();
    }

    // ---- timers ------------------------------------------------------------------------------

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.timers.next()
    }

    /// A timer whose time has come, with its unit.
    pub(crate) fn poll_timer(&mut self, now: Duration) -> Option<(UnitIndex, u64)> {
        self.timers.due(now)
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
            assert!(
                errand.client != Client::Nobody || errand.is_cancelled,
                "{key:?} goes on for nobody"
            );
        }
        for (key, part) in self.parts.iter() {
            let is_on_socket = part.socket.is_some();
            assert!(
                part.name.request.is_none() || !is_on_socket,
                "{key:?} is of a request and of a connection"
            );
        }
    }
}

/// Timers of stores, the soonest first.
#[derive(Debug, Default)]
struct Timers {
    /// By the time when they are due, and a number that keeps those of the same time in order.
    all: BTreeMap<(Duration, u64), (UnitIndex, u64)>,
    next: u64,
}

impl Timers {
    /// When the next one is due.
    fn next(&self) -> Option<Duration> {
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
