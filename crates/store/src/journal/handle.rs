//! A store with a log, as one core sees it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use marks::sometimes;
use memory::Payload;

use super::books::{Wait, Work};
use super::plan::{Logging, enter, plan, stuck};
use super::shared::{Shared, Use};
use crate::compose::slots::{Key, Slots};
use crate::request::admit;
use crate::{
    Backstore, Capabilities, Durability, HelperAnswer, HelperOperation, HelperResult, IoAnswer,
    IoFailure, IoRequest, IoResult, IoTag, Order, Outlet, PartTag, RingOperation, SocketResult,
    SocketTag, Submitted, Waker,
};

/// `EOPNOTSUPP` and `EIO`.
const NOT_SUPPORTED: i32 = 95;
const INPUT_OUTPUT: i32 = 5;

/// How long a record stays in an idle log, about.
const AGE: Duration = Duration::from_secs(5);

/// A name that no request of the engine has.
const NOBODY: IoTag = IoTag(u64::MAX);

/// The store, and the log device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Store,
    Log,
}

/// What is done outside, with the name that it has inside.
#[derive(Debug)]
enum Outside {
    Part {
        side: Side,
        request: Option<IoTag>,
        own: PartTag,
    },
    Timer {
        side: Side,
        number: u64,
    },
    /// Of this handle: the log is to be emptied now and then.
    Age,
    /// Of this handle: that the log is not to be replayed is noted.
    Leave,
}

/// What a request inside is for.
#[derive(Debug)]
enum Purpose {
    /// A request from outside, as it is.
    Pass(IoTag),
    /// A change of the store.
    Change(Key),
    /// A flush of the store after that.
    Flush(Key),
    /// What the books want done.
    Record,
    Sync,
    Header,
    LastSync,
}

/// A request that is not over.
#[derive(Debug)]
struct Job {
    tag: IoTag,
    /// Among the changes; a flush has none.
    place: Option<u64>,
    /// What a change changes.
    range: Range<u64>,
    is_cancelled: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A change before it has bytes in common.
    Parked { request: IoRequest, durable: bool },
    /// The store has it. Then this goes into the books, and is waited for if it is `durable`.
    Under { logging: Logging, durable: bool },
    /// The store has it behind it, with success.
    Waits(Wait),
    /// It is flushed in the store.
    Flushes,
}

/// One of the two, on this core.
#[derive(Debug)]
struct Inner {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    /// What it has no room for, oldest first.
    waiting: VecDeque<(Key, IoRequest)>,
}

impl Inner {
    fn new(store: Box<dyn Backstore>) -> Self {
        Self {
            store,
            outlet: Outlet::default(),
            waiting: VecDeque::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Handle {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    store: Inner,
    log: Inner,
    requests: Slots<Purpose>,
    outside: Slots<Outside>,
    jobs: Slots<Job>,
    /// Jobs that wait for a change before them, or for the log.
    waiting: Vec<Key>,
    answers: Vec<(IoTag, IoResult)>,
    /// Work for helper threads that is to be begun.
    helps: Vec<(PartTag, HelperOperation)>,
    /// Among the cores.
    core: Option<usize>,
}

impl Handle {
    pub(super) fn new(
        shared: Arc<Shared>,
        store: Box<dyn Backstore>,
        log: Box<dyn Backstore>,
    ) -> Self {
        Self {
            capabilities: shared.capabilities(store.capabilities()),
            shared,
            store: Inner::new(store),
            log: Inner::new(log),
            requests: Slots::default(),
            outside: Slots::default(),
            jobs: Slots::default(),
            waiting: Vec::new(),
            answers: Vec::new(),
            helps: Vec::new(),
            core: None,
        }
    }

    const fn inner(&mut self, side: Side) -> &mut Inner {
        match side {
            Side::Store => &mut self.store,
            Side::Log => &mut self.log,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(core) = self.core {
            self.shared.forget(core);
        }
    }
}

#[deny(
    clippy::missing_trait_methods,
    reason = "what is not passed on is lost"
)]
impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        self.store.store.durability()
    }

    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        self.core = Some(self.shared.enter(make_waker()));
        self.store.store.start(make_waker, &mut self.store.outlet);
        self.log.store.start(make_waker, &mut self.log.outlet);
        self.set_age(outlet);
        self.settle(outlet);
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let range = match admit(&self.capabilities, &request) {
            Ok(range) => range,
            Err(failure) => return Submitted::Done(Err(failure)),
        };
        match request {
            IoRequest::Read { .. } | IoRequest::Extents { .. } => {
                self.order(Side::Store, Purpose::Pass(tag), request);
            }
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                let errno = NOT_SUPPORTED;
                return Submitted::Done(Err(IoFailure::Hardware { errno }));
            }
            IoRequest::Flush => self.begin_flush(tag),
            IoRequest::Write { durable, .. } | IoRequest::WriteZeros { durable, .. } => {
                self.begin_change(tag, request, range, durable);
            }
            IoRequest::Unmap { .. } => self.begin_change(tag, request, range, false),
        }
        self.settle(outlet);
        // What was answered just now is done.
        match self.answers.iter().position(|(own, _)| *own == tag) {
            Some(at) => {
                let (_, result) = self.answers.swap_remove(at);
                self.hand_out(outlet);
                Submitted::Done(result)
            }
            None => {
                self.hand_out(outlet);
                Submitted::Taken
            }
        }
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        let job = self.jobs.find(|job| job.tag == tag);
        if let Some(key) = job {
            self.cancel_job(key);
        }
        let is_meant = |purpose: &Purpose| match purpose {
            Purpose::Pass(own) => *own == tag,
            Purpose::Change(own) | Purpose::Flush(own) => Some(*own) == job,
            Purpose::Record | Purpose::Sync | Purpose::Header | Purpose::LastSync => false,
        };
        if let Some(key) = self.requests.find(is_meant) {
            let before = self.store.waiting.len();
            self.store.waiting.retain(|(own, _)| *own != key);
            if self.store.waiting.len() < before {
                sometimes!("a request is cancelled that waits for room inside");
                self.end_request(key, Err(IoFailure::Cancelled));
            } else {
                self.store
                    .store
                    .cancel(IoTag(key.to_number()), &mut self.store.outlet);
            }
        }
        self.go_on(outlet);
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        if let Some(Outside::Part { side, own, .. }) = self.end_outside(part.number) {
            let one = self.inner(side);
            one.store
                .handle_ring_result(own, operation, result, &mut one.outlet);
            self.go_on(outlet);
        }
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        match self.end_outside(part.number) {
            Some(Outside::Part { side, own, .. }) => {
                let one = self.inner(side);
                one.store.handle_helper_result(own, result, &mut one.outlet);
            }
            Some(Outside::Leave) => self.shared.books().left(result.is_ok()),
            Some(Outside::Timer { .. } | Outside::Age) | None => {}
        }
        self.go_on(outlet);
    }

    /// Only the store may have connections.
    fn handle_socket(
        &mut self,
        socket: SocketTag,
        number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        let one = &mut self.store;
        one.store
            .handle_socket(socket, number, result, &mut one.outlet);
        self.go_on(outlet);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        self.store.store.handle_wake(&mut self.store.outlet);
        self.log.store.handle_wake(&mut self.log.outlet);
        self.go_on(outlet);
    }

    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        match self.end_outside(number) {
            Some(Outside::Timer { side, number }) => {
                let one = self.inner(side);
                one.store.handle_timer(number, &mut one.outlet);
            }
            Some(Outside::Age) => {
                self.shared.books().age();
                self.set_age(outlet);
            }
            Some(Outside::Part { .. } | Outside::Leave) | None => {}
        }
        self.go_on(outlet);
    }

    #[cfg(test)]
    fn use_ring_only(&mut self, honours_dsync: bool) {
        self.store.store.use_ring_only(honours_dsync);
    }

    fn probe(&mut self, outlet: &mut Outlet) {
        self.store.store.probe(&mut self.store.outlet);
        self.go_on(outlet);
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let changed = self.store.store.refresh_size();
        self.capabilities = self.shared.capabilities(self.store.store.capabilities());
        changed
    }
}

/// Requests from outside.
impl Handle {
    fn begin_flush(&mut self, tag: IoTag) {
        let wait = self.shared.books().flush();
        let state = State::Waits(wait);
        self.insert(tag, None, 0..0, state);
    }

    fn begin_change(&mut self, tag: IoTag, request: IoRequest, range: Range<u64>, durable: bool) {
        if range.is_empty() {
            self.answers.push((tag, Ok(IoAnswer::Done)));
            return;
        }
        let place = self.shared.books().begin(range.clone());
        self.insert(tag, Some(place), range, State::Parked { request, durable });
    }

    /// What it waits for is looked at when all that has happened is settled.
    fn insert(&mut self, tag: IoTag, place: Option<u64>, range: Range<u64>, state: State) {
        let key = self.jobs.insert(Job {
            tag,
            place,
            range,
            is_cancelled: false,
            state,
        });
        self.waiting.push(key);
    }

    fn cancel_job(&mut self, key: Key) {
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        job.is_cancelled = true;
        match job.state {
            // Nothing of it is under way, or the store has it, and only its record is.
            State::Parked { .. } | State::Waits(_) => self.finish(key, Err(IoFailure::Cancelled)),
            State::Under { .. } | State::Flushes => {}
        }
    }

    /// A job is over.
    fn finish(&mut self, key: Key, result: IoResult) {
        let Some(job) = self.jobs.remove(key) else {
            return;
        };
        self.waiting.retain(|one| *one != key);
        if let Some(place) = job.place {
            let wait = match job.state {
                State::Waits(wait) => wait,
                State::Parked { .. } | State::Under { .. } | State::Flushes => Wait::Nothing,
            };
            self.shared.books().end_after(place, wait);
        }
        self.answers.push((job.tag, result));
    }

    /// Goes on with the jobs that wait, as far as they get. Whether any did.
    fn advance(&mut self) -> bool {
        let mut has_gone = false;
        for key in self.waiting.clone() {
            let Some(job) = self.jobs.get_mut(key) else {
                continue;
            };
            has_gone |= match job.state {
                State::Parked { .. } => self.try_change(key),
                State::Waits(wait) => self.try_finish(key, wait),
                State::Under { .. } | State::Flushes => false,
            };
        }
        has_gone
    }

    /// A change begins, if none before it has bytes in common.
    fn try_change(&mut self, key: Key) -> bool {
        let shared = Arc::clone(&self.shared);
        let books = shared.books();
        let Some(job) = self.jobs.get_mut(key) else {
            return false;
        };
        if !job.place.is_some_and(|place| books.may_go(place)) {
            sometimes!("a change waits for one before it with the same bytes");
            return false;
        }
        let State::Parked { request, durable } =
            std::mem::replace(&mut job.state, State::Waits(Wait::Nothing))
        else {
            return false;
        };
        let planned = plan(&books, request, &job.range, durable);
        drop(books);
        self.waiting.retain(|one| *one != key);
        match planned {
            Ok((request, logging)) => {
                job.state = State::Under { logging, durable };
                self.order(Side::Store, Purpose::Change(key), request);
            }
            Err(failure) => self.finish(key, Err(failure)),
        }
        true
    }

    fn try_finish(&mut self, key: Key, wait: Wait) -> bool {
        let now = self.shared.books().is_over(wait);
        match now {
            Wait::Nothing => self.finish(key, Ok(IoAnswer::Done)),
            Wait::Committed(_) | Wait::Synced(_) => return false,
            Wait::Stuck => self.finish(key, Err(stuck())),
            Wait::Frozen => self.finish(key, Err(IoFailure::FlushLatched)),
            Wait::Flush => {
                sometimes!("a flush of a store whose log is gone");
                if let Some(job) = self.jobs.get_mut(key) {
                    job.state = State::Flushes;
                }
                self.waiting.retain(|one| *one != key);
                self.order(Side::Store, Purpose::Flush(key), IoRequest::Flush);
            }
        }
        true
    }

    /// The store has carried a change out, or failed to.
    fn changed(&mut self, key: Key, result: IoResult) {
        let Some(job) = self.jobs.get_mut(key) else {
            return;
        };
        let is_cancelled = job.is_cancelled;
        let state = std::mem::replace(&mut job.state, State::Waits(Wait::Nothing));
        let (State::Under { logging, durable }, Some(place)) = (state, job.place) else {
            return;
        };
        if let Err(failure) = result {
            self.shared.books().failed(place);
            self.finish(key, Err(failure));
            return;
        }
        let change = (place, &job.range);
        let wait = enter(&mut self.shared.books(), change, logging, durable);
        job.state = State::Waits(wait);
        match (is_cancelled, wait) {
            (true, _) => self.finish(key, Err(IoFailure::Cancelled)),
            (false, Wait::Nothing) => self.finish(key, Ok(IoAnswer::Done)),
            (
                false,
                Wait::Committed(_) | Wait::Synced(_) | Wait::Flush | Wait::Stuck | Wait::Frozen,
            ) => self.waiting.push(key),
        }
    }
}

/// Requests inside.
impl Handle {
    /// Asks one of the two for something, or has it wait for room there.
    fn order(&mut self, side: Side, purpose: Purpose, request: IoRequest) {
        let key = self.requests.insert(purpose);
        if self.inner(side).waiting.is_empty() {
            self.submit_inside(side, key, request);
        } else {
            self.inner(side).waiting.push_back((key, request));
        }
    }

    /// False when there is no room for it, and it waits.
    fn submit_inside(&mut self, side: Side, key: Key, request: IoRequest) -> bool {
        let one = self.inner(side);
        let submitted = one
            .store
            .submit(IoTag(key.to_number()), request, &mut one.outlet);
        match (submitted, one.outlet.take_returned()) {
            (Submitted::Done(result), _) => self.end_request(key, result),
            (Submitted::Taken, None) => {}
            (Submitted::Taken, Some(request)) => {
                // Under another tag the next time.
                sometimes!("a store below a log is full");
                if let Some(purpose) = self.requests.remove(key) {
                    let key = self.requests.insert(purpose);
                    self.inner(side).waiting.push_front((key, request));
                }
                return false;
            }
        }
        true
    }

    fn end_request(&mut self, key: Key, result: IoResult) {
        // One that nobody knows is answered for the second time, and stays without effect.
        let Some(purpose) = self.requests.remove(key) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let is_good = result.is_ok();
        // What the store has lost since it was opened no sync of it covers: the log keeps it, and the next start writes
        // it again.
        let is_synced = is_good && matches!(self.store.store.durability().lost, None | Some(0));
        match purpose {
            Purpose::Pass(tag) => self.answers.push((tag, result)),
            Purpose::Change(job) => self.changed(job, result),
            Purpose::Flush(job) => self.finish(job, result),
            Purpose::Record => shared.books().record_written(is_good),
            Purpose::Header => shared.header_written(is_good),
            Purpose::LastSync => shared.books().last_synced(is_synced),
            Purpose::Sync => {
                let work = shared.books().store_synced(is_synced);
                if let Some(work) = work {
                    self.begin_work(work);
                }
            }
        }
    }

    fn begin_work(&mut self, work: Work) {
        let write = |offset, bytes: Vec<u8>| IoRequest::Write {
            offset,
            data: Payload::Heap(bytes),
            durable: true,
        };
        match work {
            Work::Record { at, bytes } => self.order(Side::Log, Purpose::Record, write(at, bytes)),
            Work::Header { at, bytes } => self.order(Side::Log, Purpose::Header, write(at, bytes)),
            Work::Sync => self.order(Side::Store, Purpose::Sync, IoRequest::Flush),
            Work::LastSync => self.order(Side::Store, Purpose::LastSync, IoRequest::Flush),
            Work::Leave => {
                let number = self.outside.insert(Outside::Leave).to_number();
                let (shared, binding) = (Arc::clone(&self.shared), self.shared.books().binding());
                let work = Box::new(move || match shared.noted.note(binding, Use::Left) {
                    Ok(()) => Ok(HelperAnswer::Done),
                    Err(_) => Err(IoFailure::Hardware {
                        errno: INPUT_OUTPUT,
                    }),
                });
                let name = "note that a log is left";
                self.helps
                    .push((PartTag::own(number), HelperOperation { name, work }));
            }
        }
    }
}

/// Events.
impl Handle {
    fn set_age(&mut self, outlet: &mut Outlet) {
        outlet.set_timer(self.outside.insert(Outside::Age).to_number(), AGE);
    }

    /// Something has happened inside: there may be room again.
    fn go_on(&mut self, outlet: &mut Outlet) {
        for side in [Side::Store, Side::Log] {
            while let Some((key, request)) = self.inner(side).waiting.pop_front() {
                if !self.submit_inside(side, key, request) {
                    break;
                }
            }
        }
        self.settle(outlet);
        self.hand_out(outlet);
    }

    fn hand_out(&mut self, outlet: &mut Outlet) {
        for (tag, result) in self.answers.drain(..) {
            outlet.answer(tag, result);
        }
    }

    /// Carries out what is to be done inside, and passes on what is to be done outside.
    fn settle(&mut self, outlet: &mut Outlet) {
        loop {
            let mut has_gone = false;
            for side in [Side::Store, Side::Log] {
                while let Some(order) = self.inner(side).outlet.next_order() {
                    has_gone = true;
                    self.carry(side, order, outlet);
                }
            }
            has_gone |= self.advance();
            let work = self.shared.books().next_work();
            has_gone |= work.is_some();
            if let Some(work) = work {
                self.begin_work(work);
            }
            if !has_gone {
                break;
            }
        }
        for (part, operation) in self.helps.drain(..) {
            outlet.help(part, operation);
        }
        let news = self.shared.books().take_news();
        if news {
            self.shared.wake_others(self.core);
        }
    }

    fn carry(&mut self, side: Side, order: Order, outlet: &mut Outlet) {
        match order {
            Order::Answer { tag, result } => self.end_request(Key::of_number(tag.0), result),
            Order::Ring { part, operation } => outlet.ring(self.begin_part(side, part), operation),
            Order::Helper { part, operation } => {
                outlet.help(self.begin_part(side, part), operation)
            }
            Order::CancelParts(meant) => {
                self.cancel_outside(side, |own| own.request == Some(meant), outlet)
            }
            Order::CancelPart(meant) => self.cancel_outside(side, |own| own == meant, outlet),
            Order::Timer { number, after } => {
                let key = self.outside.insert(Outside::Timer { side, number });
                outlet.set_timer(key.to_number(), after);
            }
            // The size of the log is looked at when it is opened.
            Order::Size if side == Side::Log => {}
            Order::Size => outlet.look_at_size(),
            Order::Reach { is_reached } => outlet.report_reach(is_reached),
            // A log is for one unit alone: who has it serves the unit.
            Order::HeldElsewhere { .. } if side == Side::Log => {}
            Order::HeldElsewhere { is_held } => outlet.report_held_elsewhere(is_held),
            Order::OpenSocket { socket, descriptor } => outlet.open_socket(socket, descriptor),
            Order::Socket {
                socket,
                number,
                work,
            } => outlet.on_socket(socket, number, work),
            Order::CloseSocket(socket) => outlet.close_socket(socket),
        }
    }

    /// The name of an operation that begins. One for a request that is over gets a name that the engine refuses.
    fn begin_part(&mut self, side: Side, own: PartTag) -> PartTag {
        let request = own.request.and_then(|tag| {
            let tag_of =
                |job: &Key, jobs: &mut Slots<Job>| jobs.get_mut(*job).map_or(NOBODY, |job| job.tag);
            match self.requests.get_mut(Key::of_number(tag.0)) {
                Some(Purpose::Pass(tag)) => Some(*tag),
                Some(Purpose::Change(job) | Purpose::Flush(job)) => {
                    Some(tag_of(job, &mut self.jobs))
                }
                Some(Purpose::Record | Purpose::Sync | Purpose::Header | Purpose::LastSync) => None,
                None => Some(NOBODY),
            }
        });
        let key = self.outside.insert(Outside::Part { side, request, own });
        PartTag {
            request,
            number: key.to_number(),
        }
    }

    fn end_outside(&mut self, number: u64) -> Option<Outside> {
        let ended = self.outside.remove(Key::of_number(number));
        debug_assert!(ended.is_some(), "{number} was not begun");
        ended
    }

    fn cancel_outside(&self, of: Side, is_meant: impl Fn(PartTag) -> bool, outlet: &mut Outlet) {
        for (key, outside) in self.outside.iter() {
            if let Outside::Part { side, request, own } = outside
                && *side == of
                && is_meant(*own)
            {
                outlet.cancel_part(PartTag {
                    request: *request,
                    number: key.to_number(),
                });
            }
        }
    }
}
