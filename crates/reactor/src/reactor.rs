//! The reactor of one core.

use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::opcode;
use io_uring::types::{CancelBuilder, Timespec};
use memory::{BUFFER_BYTES_MAX, Buffer, Pool};
use store::{HelperOperation, HelperResult, IoFailure, RingOperation, Route};

use crate::again::Tries;
use crate::chunks::{Chunks, FRAME_GROUP, GROUP};
use crate::clock::Clock;
use crate::datagram::DatagramRoom;
use crate::event::{Event, OperationId, Token, Wait};
use crate::helper::Helpers;
use crate::in_flight::{InFlight, Key, NO_KEY};
use crate::lane::Lanes;
use crate::mail::{Mailbox, Waker};
use crate::operation::{Operation, SendHeader};
use crate::ring::{Completion, Ring, Sleep};
use crate::settings::{Settings, SetupError, TurnError};
use crate::{Listener, Socket};

mod completions;
mod datagrams;
mod sends;

/// How long a reactor that is dropped waits for the kernel to give everything back.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// How often a reactor that is dropped looks whether workers of lanes are done.
const LANE_PAUSE: Duration = Duration::from_millis(5);

/// A sleep of this length is worth a timer of its own: sessions of datagrams have deadlines one or two milliseconds
/// away in every turn, which a standing timer serves with one wake-up for many turns.
const ALARM_TIME_MIN: Duration = Duration::from_micros(500);

/// Timers at once; each is nearer than those before.
const ALARMS_MAX: usize = 16;

/// One core's ring, memory and mail. It belongs to the thread that made it.
///
/// All functions but [`Reactor::turn`] return at once. Each operation ends in exactly one event
/// with its token. Operations may be queued in any number; those beyond
/// [`Settings::in_flight_max`] make room for themselves.
#[derive(Debug)]
pub struct Reactor {
    // Dropped in this order: the kernel releases the chunks before they are freed.
    ring: Ring,
    in_flight: InFlight<Slot>,
    chunks: Chunks,
    /// Of datagrams.
    frames: Option<Chunks>,
    pool: Pool,
    helpers: Helpers,
    /// One thread that keeps state, so that no other work can delay it.
    keepers: Helpers,
    lanes: Lanes,
    lane_results: Vec<(Key, i64)>,
    watched: Vec<Watched>,
    /// When the timers go off that wake from long sleeps.
    alarms: Vec<Duration>,
    /// Sends that the kernel takes at once, without a completion, unless it gives them back with one.
    at_once: Vec<Key>,
    /// Receives that found no chunk, oldest first.
    starved: Vec<Key>,
    /// Receives of datagrams that found no frame.
    starved_of_frames: Vec<Key>,
    /// Operations of stores that are tried again, each at its time.
    paused: Vec<(Duration, Key)>,
    /// Events of operations that ended without the kernel.
    ready: Vec<Event>,
    completions: Vec<Completion>,
    #[expect(
        clippy::vec_box,
        reason = "the boxes go into the table, which may move"
    )]
    spare_headers: Vec<Box<SendHeader>>,
    spare_rooms: Vec<Box<DatagramRoom>>,
    /// How many operations of the table the kernel has.
    with_kernel: usize,
    /// How many operations the lanes have.
    with_lanes: usize,
    busy_poll: Duration,
    start: Clock,
    now: Duration,
    last_work: Duration,
    drain_limit: Duration,
    /// Being dropped: nothing goes on any more.
    closing: bool,
}

#[derive(Debug)]
struct Slot {
    operation: Operation,
    cancelled: bool,
}

#[derive(Debug)]
struct Watched {
    waker: Arc<Waker>,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Owner(Token),
    /// Answers of helpers and keepers, results of lanes.
    Own,
}

impl Reactor {
    /// A reactor for the calling thread.
    pub fn new(settings: &Settings) -> Result<Self, SetupError> {
        let system = |action| move |source| SetupError::System { action, source };
        let (count, bytes) = (settings.receive_chunks, settings.receive_chunk_bytes);
        // Beside the chunks there is always a place for the largest buffer; who waits for one would
        // wait for ever otherwise. It is address space, and no memory until it is used.
        let least = count.saturating_mul(bytes).saturating_add(1);
        let least = least.saturating_add(datagrams::pool_bytes(settings));
        let least = least.next_multiple_of(BUFFER_BYTES_MAX) + BUFFER_BYTES_MAX;
        let pool = Pool::new(settings.pool_bytes.max(least))
            .map_err(system("reserve memory for buffers"))?;
        let ring = Ring::new(settings)?;
        let chunks = Chunks::new(&pool, count, bytes).map_err(|_| SetupError::PoolTooSmall {
            chunks: count,
            chunk_bytes: bytes,
            pool_bytes: pool.capacity_bytes(),
        })?;
        let frames = datagrams::frames(settings, &pool)?;
        pool.set_base();
        ring.register_chunks(&chunks, GROUP)?;
        if let Some(frames) = &frames {
            ring.register_chunks(frames, FRAME_GROUP)?;
        }
        let waker = Waker::new().map_err(system("make an eventfd for work of threads"))?;
        let waker = Arc::new(waker);
        let helpers = Helpers::new(settings.helper_threads_max, &waker);
        let keepers = Helpers::new(1, &waker);
        store::set_closer(crate::lane::close, crate::lane::sync);
        store::set_cache_probe(crate::cache::is_cached);
        let lanes = Lanes::new(&waker, settings.look_after_lanes);
        let mut reactor = Self {
            ring,
            in_flight: InFlight::with_capacity(settings.in_flight_max),
            chunks,
            frames,
            pool,
            helpers,
            keepers,
            lanes,
            lane_results: Vec::new(),
            watched: Vec::new(),
            alarms: Vec::new(),
            starved: Vec::new(),
            at_once: Vec::new(),
            starved_of_frames: Vec::new(),
            paused: Vec::new(),
            ready: Vec::new(),
            completions: Vec::with_capacity(settings.in_flight_max),
            spare_headers: Vec::new(),
            spare_rooms: Vec::new(),
            with_kernel: 0,
            with_lanes: 0,
            busy_poll: settings.busy_poll,
            start: Clock::start(),
            now: Duration::ZERO,
            last_work: Duration::ZERO,
            drain_limit: DRAIN_TIME,
            closing: false,
        };
        reactor.watch_waker(waker, Purpose::Own);
        Ok(reactor)
    }

    /// The memory of this core for data in flight.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether an operation that takes its time may keep this chunk, of which the caller has a part:
    /// one half of the chunks always stays for receiving. If not, what lies in it is to be copied.
    pub fn lend_chunk(&mut self, chunk: &Rc<Buffer>) -> bool {
        self.chunks.lend(chunk)
    }

    /// Time since the second in which the reactor was made, as read at the end of the last turn's sleep.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Time since the second in which the reactor was made, read now: more exact than [`Self::now`].
    pub fn clock(&self) -> Duration {
        self.start.elapsed()
    }

    /// How long dropping the reactor waits for what the kernel still has.
    pub const fn set_drain_limit(&mut self, limit: Duration) {
        self.drain_limit = limit;
    }

    /// How many operations of the owner are under way.
    pub fn in_flight(&self) -> usize {
        let own = self.watched.len() + self.alarms.len();
        self.in_flight.len().saturating_sub(own)
    }

    /// Waits for one connection ([`Event::Accepted`]). After `EMFILE` or `ENFILE` the connection
    /// still waits, so arm again only when a descriptor was closed or some time has passed.
    pub fn accept(&mut self, listener: &Listener, token: Token) -> OperationId {
        let listener = listener.clone();
        self.start(Operation::Accept { token, listener })
    }

    /// Waits for data and receives what there is, at most one chunk of it
    /// ([`Event::Received`]). While no chunk is free the data waits in the socket.
    pub fn receive(&mut self, socket: &Socket, token: Token) -> OperationId {
        self.receive_at_most(socket, token, usize::MAX)
    }

    /// As [`Reactor::receive`], and no more than `limit_bytes`.
    pub fn receive_at_most(
        &mut self,
        socket: &Socket,
        token: Token,
        limit_bytes: usize,
    ) -> OperationId {
        let limit_bytes = limit_bytes.min(self.chunks.chunk_bytes());
        let socket = socket.clone();
        self.start(Operation::Receive {
            token,
            socket,
            limit_bytes,
        })
    }

    /// Receives exactly `range` of the buffer, straight into it ([`Event::ReceivedExact`]); fewer
    /// bytes come only when the stream ends.
    ///
    /// # Panics
    ///
    /// When the range is not inside the buffer.
    pub fn receive_exact(
        &mut self,
        socket: &Socket,
        token: Token,
        buffer: Buffer,
        range: Range<usize>,
    ) -> OperationId {
        assert!(
            range.start <= range.end && range.end <= buffer.len(),
            "bytes {range:?} of a buffer of {}",
            buffer.len()
        );
        if range.is_empty() {
            let result = Ok(0);
            return self.finished(Event::ReceivedExact {
                token,
                buffer,
                result,
            });
        }
        self.start(Operation::ReceiveExact {
            token,
            socket: socket.clone(),
            buffer,
            range,
            done: 0,
        })
    }

    /// Does one step for a store ([`Event::Store`]), on the ring or on the lane of the file. Short
    /// transfers are the store's to go on with.
    pub fn submit_store(&mut self, token: Token, operation: RingOperation) -> OperationId {
        let route = operation.route();
        let under_way = operation.begin();
        let tries = Tries::default();
        self.start(Operation::Store {
            token,
            operation,
            route,
            _under_way: under_way,
            tries,
        })
    }

    /// Runs blocking work for a store on a helper thread ([`Event::Helper`]).
    pub fn submit_helper(&mut self, token: Token, operation: HelperOperation) -> OperationId {
        self.submit_work(token, operation, false)
    }

    /// Runs blocking work that keeps state on a thread of its own ([`Event::Helper`]), one after
    /// the other.
    pub fn submit_keeper(&mut self, token: Token, operation: HelperOperation) -> OperationId {
        self.submit_work(token, operation, true)
    }

    fn submit_work(
        &mut self,
        token: Token,
        operation: HelperOperation,
        keeps: bool,
    ) -> OperationId {
        let name = operation.name;
        let key = self.in_flight.insert(Slot {
            operation: Operation::Helper { token },
            cancelled: false,
        });
        let helpers = if keeps { &self.keepers } else { &self.helpers };
        if let Err(error) = helpers.submit(key, operation) {
            tracing::error!(name, %error, "no thread for helper work");
            let errno = error.raw_os_error().unwrap_or(0);
            self.finish_helper(key, Err(IoFailure::Hardware { errno }));
        }
        OperationId(key)
    }

    /// Asks for the end of an operation. Its event still comes, with `ECANCELED` or
    /// [`IoFailure::Cancelled`] when the request came in time, and with its own result when not;
    /// helper work that has begun is not disturbed. Does nothing for an operation that is over.
    pub fn cancel(&mut self, id: OperationId) {
        let Some(slot) = self.in_flight.find(id.0) else {
            return;
        };
        if mem::replace(&mut slot.cancelled, true) {
            return;
        }
        if matches!(slot.operation, Operation::Helper { .. }) {
            if self.helpers.cancel(id.0) || self.keepers.cancel(id.0) {
                self.finish_helper(id.0, Err(IoFailure::Cancelled));
            }
        } else if let Some(n) = self.paused.iter().position(|&(_, key)| key == id.0) {
            self.paused.swap_remove(n);
            self.finish(id.0, -libc::ECANCELED, 0, None);
        } else if let Operation::Store {
            operation,
            route: Route::Lane(_),
            ..
        } = &slot.operation
        {
            if self.lanes.cancel(id.0, operation.file()) {
                self.with_lanes -= 1;
                self.finish(id.0, -libc::ECANCELED, 0, None);
            }
        } else if let Some(n) = self.starved.iter().position(|&key| key == id.0) {
            self.starved.remove(n);
            self.finish(id.0, -libc::ECANCELED, 0, None);
        } else if let Some(n) = self.starved_of_frames.iter().position(|&key| key == id.0) {
            self.starved_of_frames.remove(n);
            self.finish(id.0, -libc::ECANCELED, 0, None);
        } else {
            self.push_cancel(CancelBuilder::user_data(id.0));
        }
    }

    /// Yields [`Event::Mail`] with this token whenever the mailbox holds something new, from now
    /// on for as long as the reactor lives.
    pub fn watch<T>(&mut self, mailbox: &Mailbox<T>, token: Token) {
        self.watch_waker(Arc::clone(mailbox.waker()), Purpose::Owner(token));
    }

    /// Submits everything queued, sleeps as `wait` says until something has happened, and appends
    /// what has to `events`. May come back with nothing.
    pub fn turn(&mut self, wait: Wait, events: &mut Vec<Event>) -> Result<(), TurnError> {
        self.restock();
        let wait = self.try_again(wait);
        self.kick_lanes();
        let wait = self.look_after_lanes(wait);
        // What is posted already keeps it from sleeping, and is taken with what has come meanwhile.
        let idle = self.ready.is_empty();
        let entered = match wait {
            Wait::Poll => self.ring.enter(Sleep::No),
            Wait::Until(_) | Wait::Forever if !idle => self.ring.enter(Sleep::No),
            Wait::Until(deadline) => self.spin_then_sleep(Some(deadline)),
            Wait::Forever => self.spin_then_sleep(None),
        };
        entered.map_err(TurnError)?;
        self.now = self.start.elapsed();
        self.reap().map_err(TurnError)?;
        self.collect_mail();
        self.kick_lanes();
        if !self.ready.is_empty() {
            self.last_work = self.now;
            if events.is_empty() {
                mem::swap(events, &mut self.ready);
            } else {
                events.append(&mut self.ready);
            }
        }
        Ok(())
    }

    /// While workers have operations, whether they live is looked at now and then.
    #[inline]
    fn look_after_lanes(&self, wait: Wait) -> Wait {
        if self.with_lanes == 0 {
            return wait;
        }
        let next = self.lanes.next_tend();
        match wait {
            Wait::Poll => Wait::Poll,
            Wait::Until(deadline) => Wait::Until(deadline.min(next)),
            Wait::Forever => Wait::Until(next),
        }
    }

    fn spin_then_sleep(&mut self, deadline: Option<Duration>) -> std::io::Result<()> {
        if !self.busy_poll.is_zero() {
            let end = self.last_work.saturating_add(self.busy_poll);
            let end = deadline.map_or(end, |deadline| end.min(deadline));
            while self.start.elapsed() < end {
                self.ring.enter(Sleep::No)?;
                let posted = self.watched.iter().any(|watched| watched.waker.is_posted());
                if posted || self.ring.has_completions() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        let sleep = match deadline {
            None => Sleep::Forever,
            // It wakes at the deadline or before, which may have come: what time it is makes no difference.
            Some(deadline) if self.alarms.iter().any(|&alarm| alarm <= deadline) => Sleep::Forever,
            Some(deadline) => match deadline.checked_sub(self.start.elapsed()) {
                None | Some(Duration::ZERO) => Sleep::No,
                Some(time) if self.set_alarm(deadline, time) => Sleep::Forever,
                Some(time) => Sleep::AtMost(time),
            },
        };
        // All are notified, also after one had mail: `awake` below undoes them all.
        let with_mail = |watched: &&Watched| !watched.waker.may_sleep();
        let sleep = match self.watched.iter().filter(with_mail).count() {
            0 => sleep,
            _ => Sleep::No,
        };
        let entered = self.ring.enter(sleep);
        for watched in &self.watched {
            watched.waker.awake();
        }
        entered
    }

    /// Sets a timer of the ring that wakes at `deadline`, which is `time` from now. A time limit of the sleep itself
    /// would be set and cleared with every sleep, which takes half a microsecond on a virtual machine, between the
    /// arrival of a command and its execution. False when the sleep is too short for that to pay.
    fn set_alarm(&mut self, deadline: Duration, time: Duration) -> bool {
        if time < ALARM_TIME_MIN {
            return false;
        }
        if self.alarms.len() >= ALARMS_MAX {
            return false;
        }
        self.alarms.push(deadline);
        let time = Box::new(Timespec::from(time));
        self.start(Operation::Alarm { deadline, time });
        true
    }

    /// Parks an operation and queues it for the kernel.
    fn start(&mut self, operation: Operation) -> OperationId {
        let cancelled = false;
        let key = self.in_flight.insert(Slot {
            operation,
            cancelled,
        });
        self.submit(key);
        OperationId(key)
    }

    /// An operation that is over before it began; its id finds nothing.
    fn finished(&mut self, event: Event) -> OperationId {
        self.ready.push(event);
        OperationId(NO_KEY)
    }

    /// Hands an operation to the lane of its file.
    fn submit_to_lane(&mut self, key: Key) {
        let Some(Slot {
            operation:
                Operation::Store {
                    operation,
                    route: Route::Lane(class),
                    ..
                },
            ..
        }) = self.in_flight.find(key)
        else {
            debug_assert!(false, "operation {key:#x} is for no lane");
            return;
        };
        self.with_lanes += 1;
        self.lanes.submit(key, *class, operation);
    }

    /// Gives the lanes what is new, and fails what a killed worker has left.
    #[inline]
    fn kick_lanes(&mut self) {
        if !self.lanes.is_quiet(self.now) {
            self.kick_busy_lanes();
        }
    }

    #[inline(never)]
    fn kick_busy_lanes(&mut self) {
        for (key, result) in self.lanes.kick(self.now) {
            self.handle_lane_result(key, result);
        }
    }

    fn handle_lane_result(&mut self, key: Key, result: i64) {
        self.with_lanes -= 1;
        let Some(slot) = self.in_flight.find(key) else {
            debug_assert!(false, "a result for {key:#x}, which is not under way");
            return;
        };
        let cancelled = slot.cancelled;
        if let Operation::Store {
            operation: RingOperation::Size { bytes, .. },
            ..
        } = &mut slot.operation
            && let Ok(size) = u64::try_from(result)
        {
            *bytes = size;
        }
        let result = i32::try_from(result).unwrap_or(i32::MAX);
        let step = slot.operation.advance(result, 0, cancelled);
        self.take_step(key, step, 0, None);
    }

    fn submit(&mut self, key: Key) {
        let slot = self.in_flight.find(key);
        let Some(operation) = slot.map(|slot| &mut slot.operation) else {
            debug_assert!(false, "operation {key:#x} is not there");
            return;
        };
        if operation.is_for_lane() {
            self.submit_to_lane(key);
            return;
        }
        if operation.is_at_once() {
            self.at_once.push(key);
        }
        let Some(entry) = operation.entry() else {
            debug_assert!(false, "operation {key:#x} cannot be submitted");
            return;
        };
        self.with_kernel += 1;
        // SAFETY: the entry points to what the operation in the slot owns, and the slot is
        // emptied only when its completion has come.
        let pushed = unsafe { self.ring.push(entry.user_data(key)) };
        // The entry is queued in any case; what is wrong with the ring shows in the next turn.
        if let Err(error) = pushed {
            tracing::error!(%error, "submission failed");
        }
    }

    fn push_cancel(&mut self, what: CancelBuilder) {
        let entry = opcode::AsyncCancel2::new(what).build().user_data(NO_KEY);
        // SAFETY: a cancel names no memory.
        let pushed = unsafe { self.ring.push(entry) };
        if let Err(error) = pushed {
            tracing::error!(%error, "submission failed");
        }
    }

    fn watch_waker(&mut self, waker: Arc<Waker>, purpose: Purpose) {
        let operation = Operation::Mail {
            index: self.watched.len(),
            fd: waker.raw(),
            count: Box::new(0),
        };
        self.watched.push(Watched { waker, purpose });
        self.start(operation);
    }

    /// Gives free chunks to the kernel, and as many receives that wait for one.
    fn restock(&mut self) {
        self.chunks.restock();
        let count = self.chunks.ready().min(self.starved.len());
        if count > 0 {
            let keys: Vec<Key> = self.starved.drain(..count).collect();
            for key in keys {
                self.submit(key);
            }
        }
        self.restock_frames();
    }

    /// Submits what has paused long enough. Gives how long the turn may sleep for the rest.
    #[inline]
    fn try_again(&mut self, wait: Wait) -> Wait {
        if self.paused.is_empty() {
            wait
        } else {
            self.try_paused(wait)
        }
    }

    #[inline(never)]
    fn try_paused(&mut self, wait: Wait) -> Wait {
        let now = self.start.elapsed();
        let due = self.paused.extract_if(.., |(at, _)| *at <= now);
        let due: Vec<Key> = due.map(|(_, key)| key).collect();
        for key in due {
            self.submit(key);
        }
        let next = self.paused.iter().map(|&(at, _)| at).min();
        match (wait, next) {
            (Wait::Poll, _) | (_, None) => wait,
            (Wait::Until(deadline), Some(at)) => Wait::Until(deadline.min(at)),
            (Wait::Forever, Some(at)) => Wait::Until(at),
        }
    }

    #[inline]
    fn collect_mail(&mut self) {
        let mut is_own = false;
        for watched in &self.watched {
            if watched.waker.take_posted() {
                match watched.purpose {
                    Purpose::Owner(token) => self.ready.push(Event::Mail { token }),
                    Purpose::Own => is_own = true,
                }
            }
        }
        if is_own {
            self.collect_own();
        }
    }

    /// Takes what threads of this core have done.
    #[inline(never)]
    fn collect_own(&mut self) {
        for answers in [self.helpers.answers.take(), self.keepers.answers.take()] {
            for (key, result) in answers {
                self.finish_helper(key, result);
            }
        }
        let mut results = mem::take(&mut self.lane_results);
        self.lanes.take(&mut results);
        for (key, result) in results.drain(..) {
            self.handle_lane_result(key, result);
        }
        self.lane_results = results;
    }

    /// Takes back what no worker has begun.
    fn cancel_lanes(&mut self) {
        for key in self.in_flight.keys() {
            if let Some(slot) = self.in_flight.find(key)
                && let Operation::Store {
                    operation,
                    route: Route::Lane(_),
                    ..
                } = &slot.operation
                && self.lanes.cancel(key, operation.file())
            {
                self.with_lanes -= 1;
                self.in_flight.remove(key);
            }
        }
    }

    /// How many operations the kernel or a lane has for others: all but those by which the reactor itself waits.
    fn count_foreign(&mut self) -> usize {
        let is_foreign = |operation: &Operation| match operation {
            Operation::Mail { .. } | Operation::Alarm { .. } | Operation::Helper { .. } => false,
            Operation::Accept { .. }
            | Operation::Receive { .. }
            | Operation::ReceiveExact { .. }
            | Operation::Send { .. }
            | Operation::ReceiveDatagrams { .. }
            | Operation::SendDatagram { .. }
            | Operation::Store { .. } => true,
        };
        let keys = self.in_flight.keys();
        let mut slot_is_foreign = |key: &Key| {
            let slot = self.in_flight.find(*key);
            slot.is_some_and(|slot| is_foreign(&slot.operation))
        };
        keys.iter().filter(|key| slot_is_foreign(key)).count()
    }

    fn finish_helper(&mut self, key: Key, result: HelperResult) {
        let Some(slot) = self.in_flight.remove(key) else {
            return;
        };
        if let Operation::Helper { token } = slot.operation {
            self.ready.push(Event::Helper { token, result });
        }
    }
}

impl Drop for Reactor {
    /// Takes everything back from the kernel, for a bounded time. What it does not give back by
    /// then is leaked: freed memory that a late write lands in would be worse.
    fn drop(&mut self) {
        self.closing = true;
        self.cancel_lanes();
        self.push_cancel(CancelBuilder::any());
        let deadline = self.start.elapsed().saturating_add(self.drain_limit);
        while self.with_kernel + self.with_lanes > 0 {
            let left = deadline.saturating_sub(self.start.elapsed());
            // The wake-up of the lanes is cancelled as well, so their results are looked for.
            let sleep = if self.with_lanes > 0 {
                left.min(LANE_PAUSE)
            } else {
                left
            };
            if left.is_zero() || self.ring.enter(Sleep::AtMost(sleep)).is_err() {
                break;
            }
            if self.reap().is_err() {
                break;
            }
            self.kick_lanes();
            self.collect_mail();
            self.ready.clear();
        }
        if self.with_kernel + self.with_lanes > 0 {
            let operations = self.count_foreign();
            if operations > 0 {
                tracing::warn!(
                    operations,
                    "operations of a core did not end in time; their memory is given up"
                );
            }
            let in_flight = mem::replace(&mut self.in_flight, InFlight::with_capacity(0));
            let _leaked = ManuallyDrop::new(in_flight);
            self.chunks.leak();
            self.frames.iter().for_each(Chunks::leak);
        }
    }
}
