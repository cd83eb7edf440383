//! Lanes: the workers of one file on one core, for operations that may wait in the kernel.
//!
//! A lane belongs to one file, so that a store that hangs stops nothing but itself: not the thread of the core, not
//! the kernel's own workers of the ring, which all files of a core share, and not the helper threads. Workers start
//! when there is something to do, as many as are busy at once, and end when there is nothing for a while. What finds
//! no slot waits in memory of the core, where it can be taken back at any time.

mod child;
mod closer;
mod guardian;
mod worker;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, Ordering::SeqCst};
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::process::Pid;
use rustix::thread::futex;
use store::{AllocateMode, Class, FileHandle, Place, RingOperation};

use self::child::{Child, State};
pub(crate) use self::closer::close;
pub(crate) use self::guardian::{note, note_listener, release, set_lock};
use self::worker::{
    CANCELLED, CLASSES, Done, FREE, Job, QUEUED, RUNNING, SLOTS, SLOTS_OF_CLASS, Shared,
    WORKERS_MAX,
};
use crate::in_flight::Key;
use crate::mail::Waker;

/// How often lanes are looked after.
const TEND: Duration = Duration::from_millis(500);

/// An operation that a worker has not finished after this time is overdue.
const OVERDUE: Duration = Duration::from_secs(1);

/// Workers of the process beyond which a lane gets no second one.
const PROCESS_WORKERS_MAX: usize = 1024;

/// Workers that were started and have not been reaped, in this process.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// All lanes of one core.
pub(crate) struct Lanes {
    lanes: Vec<Option<Box<Lane>>>,
    done: Arc<Done>,
    /// Lanes whose file was closed, by their place.
    closing: Rc<RefCell<Vec<usize>>>,
    /// Lanes with something new to do.
    dirty: Vec<usize>,
    next_tend: Duration,
    results: Vec<(usize, usize, i64)>,
    /// Results that were taken before somebody asked for them.
    early: Vec<(Key, i64)>,
}

/// What a file keeps: with it the lane ends.
struct Ticket {
    lane: usize,
    closing: Rc<RefCell<Vec<usize>>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.closing.borrow_mut().push(self.lane);
    }
}

struct Waiting {
    key: Key,
    job: Job,
}

struct Lane {
    shared: Arc<Shared>,
    place: Arc<Place>,
    /// What has no slot yet, oldest first, by class.
    waiting: [VecDeque<Waiting>; CLASSES],
    /// How many slots each class has.
    places: [usize; CLASSES],
    free: Vec<usize>,
    /// The operation of each slot and since when it has been there.
    taken: [Option<(Key, Duration)>; SLOTS],
    workers: Vec<Worker>,
    is_dirty: bool,
    is_overdue: bool,
    /// None runs and none could be started last.
    has_no_worker: bool,
}

struct Worker {
    child: Child,
    shared: *const Shared,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes")
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl Lanes {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            lanes: Vec::new(),
            done: Arc::new(Done::new(Arc::new(Waker::new()?))),
            closing: Rc::default(),
            dirty: Vec::new(),
            next_tend: Duration::ZERO,
            results: Vec::new(),
            early: Vec::new(),
        })
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.done.waker
    }

    /// Takes an operation, which stays where it is and unchanged until its key comes back.
    pub(crate) fn submit(&mut self, key: Key, class: Class, operation: &mut RingOperation) {
        let index = self.lane_of(operation.file());
        let Some(Some(lane)) = self.lanes.get_mut(index) else {
            debug_assert!(false, "lane {index} of an open file is gone");
            return;
        };
        lane.waiting[Shared::queue_of(class)].push_back(Waiting {
            key,
            job: job_of(operation),
        });
        if !lane.is_dirty {
            lane.is_dirty = true;
            self.dirty.push(index);
        }
    }

    fn lane_of(&mut self, file: &FileHandle) -> usize {
        let attached = file.attachment().get_or_init(|| {
            let free = self.lanes.iter().position(Option::is_none);
            let index = free.unwrap_or_else(|| {
                self.lanes.push(None);
                self.lanes.len() - 1
            });
            self.lanes[index] = Some(Box::new(Lane::new(index, file, &self.done)));
            Box::new(Ticket {
                lane: index,
                closing: Rc::clone(&self.closing),
            })
        });
        let ticket = attached.downcast_ref::<Ticket>();
        ticket.map_or(usize::MAX, |ticket| ticket.lane)
    }

    /// Takes an operation back that no worker has begun.
    pub(crate) fn cancel(&mut self, key: Key, file: &FileHandle) -> bool {
        let index = self.lane_of(file);
        let lane = self.lanes.get_mut(index).and_then(Option::as_mut);
        lane.is_some_and(|lane| lane.cancel(key))
    }

    /// Hands over what is new. Gives the operations whose worker was killed, with the reason.
    pub(crate) fn kick(&mut self, now: Duration) -> Vec<(Key, i64)> {
        let mut failed = Vec::new();
        if !self.closing.borrow().is_empty() {
            for index in self.closing.take() {
                if let Some(Some(lane)) = self.lanes.get_mut(index) {
                    guardian::set_waiting(lane.shared.fd, false);
                    guardian::set_overdue(lane.shared.fd, false);
                    lane.close();
                }
            }
        }
        while let Some(index) = self.dirty.pop() {
            if let Some(Some(lane)) = self.lanes.get_mut(index) {
                lane.is_dirty = false;
                lane.kick(now);
            }
        }
        if now >= self.next_tend {
            self.next_tend = now + TEND;
            self.tend(now, &mut failed);
        }
        failed
    }

    /// Takes ended workers away, notices what is overdue, and starts workers where some are missing.
    fn tend(&mut self, now: Duration, failed: &mut Vec<(Key, i64)>) {
        closer::tend();
        let mut is_any_over = false;
        for lane in self.lanes.iter_mut().flatten() {
            lane.reap(failed);
            if lane.shared.is_closed.load(SeqCst) {
                is_any_over |= lane.workers.is_empty();
                continue;
            }
            lane.note_overdue(now);
            lane.kick(now);
        }
        if is_any_over {
            self.remove_ended();
        }
    }

    /// Frees the lanes whose file is closed and whose workers have ended.
    fn remove_ended(&mut self) {
        let is_over = |lane: &Lane| lane.shared.is_closed.load(SeqCst) && lane.workers.is_empty();
        let over: Vec<usize> = (0..self.lanes.len())
            .filter(|&index| self.lanes[index].as_deref().is_some_and(is_over))
            .collect();
        // The last that their workers did may be on the list still, which points into the lane.
        let mut early = mem::take(&mut self.early);
        self.take_done(&mut early);
        self.early = early;
        for index in over {
            self.lanes[index] = None;
        }
    }

    /// What is done: keys and results.
    pub(crate) fn take(&mut self, into: &mut Vec<(Key, i64)>) {
        into.append(&mut self.early);
        self.take_done(into);
    }

    fn take_done(&mut self, into: &mut Vec<(Key, i64)>) {
        self.done.take(&mut self.results);
        for (index, slot, result) in self.results.drain(..).rev() {
            let Some(Some(lane)) = self.lanes.get_mut(index) else {
                continue;
            };
            if let Some(key) = lane.empty(slot) {
                into.push((key, result));
            }
            if !lane.is_dirty && lane.waiting.iter().any(|queue| !queue.is_empty()) {
                lane.is_dirty = true;
                self.dirty.push(index);
            }
        }
    }
}

impl Drop for Lanes {
    /// Workers end by themselves, or with the thread that has started them. What they may still use is not freed.
    fn drop(&mut self) {
        for lane in self.lanes.iter_mut().flatten() {
            lane.close();
            lane.reap(&mut Vec::new());
        }
    }
}

impl Lane {
    fn new(index: usize, file: &FileHandle, done: &Arc<Done>) -> Self {
        guardian::set_waiting(file.as_raw_fd(), file.place().may_wait());
        Self {
            shared: Arc::new(Shared::new(file.as_raw_fd(), index, done)),
            place: Arc::clone(file.place()),
            waiting: Default::default(),
            places: [0; CLASSES],
            free: (0..SLOTS).rev().collect(),
            taken: [None; SLOTS],
            workers: Vec::new(),
            is_dirty: false,
            is_overdue: false,
            has_no_worker: false,
        }
    }

    fn cancel(&mut self, key: Key) -> bool {
        for queue in &mut self.waiting {
            if let Some(position) = queue.iter().position(|one| one.key == key) {
                return queue.remove(position).is_some();
            }
        }
        let is_it = |taken: &Option<(Key, Duration)>| taken.is_some_and(|(other, _)| other == key);
        let Some(index) = self.taken.iter().position(is_it) else {
            return false;
        };
        let state = &self.shared.slots[index].state;
        let was_queued = state.compare_exchange(QUEUED, CANCELLED, SeqCst, SeqCst);
        if was_queued.is_ok() {
            // The slot stays until a worker comes to it.
            self.taken[index] = None;
        }
        was_queued.is_ok()
    }

    /// A worker is done with a slot. The key, unless its operation was taken back.
    fn empty(&mut self, slot: usize) -> Option<Key> {
        self.places[self.shared.slots[slot].queue()] -= 1;
        self.shared.slots[slot].state.store(FREE, SeqCst);
        self.free.push(slot);
        self.taken[slot].take().map(|(key, _)| key)
    }

    fn kick(&mut self, now: Duration) {
        for (class, waiting) in self.waiting.iter_mut().enumerate() {
            while self.places[class] < SLOTS_OF_CLASS[class]
                && let Some(&slot) = self.free.last()
                && let Some(next) = waiting.pop_front()
            {
                self.free.pop();
                self.places[class] += 1;
                self.taken[slot] = Some((next.key, now));
                self.shared.slots[slot].fill(next.job, class);
                self.shared.queues[class].push(slot);
            }
        }
        let queues = &self.shared.queues;
        let wanted: u32 = queues.iter().map(worker::Queue::wanted).sum();
        if wanted == 0 {
            return;
        }
        self.shared.signal.fetch_add(1, SeqCst);
        let idle = self.shared.idle.load(SeqCst);
        if idle > 0 {
            let count = wanted.min(idle);
            // It cannot fail: the word is there.
            let _woken = futex::wake(&self.shared.signal, futex::Flags::PRIVATE, count);
        }
        let running: u32 = queues.iter().map(worker::Queue::running).sum();
        let live = self.shared.live.load(SeqCst);
        let missing = wanted.saturating_sub(live.saturating_sub(running));
        // At most twice as many as before: what is answered fast needs few.
        let missing = missing
            .min(live.max(1))
            .min(WORKERS_MAX - live.min(WORKERS_MAX));
        for n in 0..missing {
            let is_first = live == 0 && n == 0;
            if !is_first && WORKERS.load(Ordering::Relaxed) >= PROCESS_WORKERS_MAX {
                break;
            }
            match self.spawn() {
                Ok(()) => self.has_no_worker = false,
                Err(error) if is_first => {
                    self.note_no_worker(&error);
                    break;
                }
                // Those that run will come to it.
                Err(_) => break,
            }
        }
    }

    /// There is no worker and none can be started: what waits goes on waiting, can be taken back, and is tried again
    /// when lanes are looked after. It has not begun, so it has not failed.
    fn note_no_worker(&mut self, error: &io::Error) {
        if !mem::replace(&mut self.has_no_worker, true) {
            tracing::error!(%error, "no worker for a store; its commands wait for one (limit of processes: TasksMax, pids.max)");
        }
    }

    fn note_overdue(&mut self, now: Duration) {
        let is_overdue = self
            .taken
            .iter()
            .zip(&self.shared.slots)
            .any(|(taken, slot)| {
                taken.is_some_and(|(_, since)| now >= since + OVERDUE)
                    && slot.state.load(SeqCst) == RUNNING
            });
        if is_overdue != self.is_overdue {
            self.is_overdue = is_overdue;
            self.place.set_overdue(is_overdue);
            guardian::set_overdue(self.shared.fd, is_overdue);
        }
    }

    fn close(&mut self) {
        if self.is_overdue {
            self.is_overdue = false;
            self.place.set_overdue(false);
        }
        self.shared.is_closed.store(true, SeqCst);
        self.shared.signal.fetch_add(1, SeqCst);
        // It cannot fail: the word is there.
        let _woken = futex::wake(&self.shared.signal, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    fn spawn(&mut self) -> io::Result<()> {
        guardian::ensure();
        let shared = Arc::into_raw(Arc::clone(&self.shared));
        self.shared.live.fetch_add(1, SeqCst);
        // SAFETY: a worker keeps to the rules of children, and the lane's memory stays until it was reaped.
        match unsafe { Child::start(worker::enter, shared.cast_mut().cast()) } {
            Ok(child) => {
                WORKERS.fetch_add(1, Ordering::Relaxed);
                self.workers.push(Worker { child, shared });
                Ok(())
            }
            Err(error) => {
                self.shared.live.fetch_sub(1, SeqCst);
                // SAFETY: the pointer came from `into_raw` above, and no worker has it.
                drop(unsafe { Arc::from_raw(shared) });
                Err(error)
            }
        }
    }

    /// Takes away the workers that have ended, with their stacks. One that was killed has left an operation behind,
    /// which fails.
    fn reap(&mut self, failed: &mut Vec<(Key, i64)>) {
        for Worker { child, shared } in mem::take(&mut self.workers) {
            let pid = child.pid();
            let status = match child.look() {
                State::Runs(child) => {
                    self.workers.push(Worker { child, shared });
                    continue;
                }
                State::Ended(status) => status,
            };
            if let Some(status) = status
                && status.signaled()
            {
                let pid_raw = pid.as_raw_pid();
                tracing::error!(pid = pid_raw, ?status, "a worker of a store was killed");
                self.clear_up_after(pid, failed);
            }
            WORKERS.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: the pointer came from `into_raw` in `spawn`, and the worker that had it has ended.
            drop(unsafe { Arc::from_raw(shared) });
        }
    }
}

impl Lane {
    /// What a killed worker has not done itself. Its operation has ended in the kernel: a process ends after its last
    /// system call.
    fn clear_up_after(&mut self, pid: Pid, failed: &mut Vec<(Key, i64)>) {
        self.shared.live.fetch_sub(1, SeqCst);
        for index in 0..SLOTS {
            let slot = &self.shared.slots[index];
            if slot.state.load(SeqCst) == RUNNING && slot.is_run_by(pid) {
                self.shared.queues[slot.queue()].leave();
                let key = self.empty(index);
                failed.extend(key.map(|key| (key, -i64::from(libc::EIO))));
            }
        }
    }
}

/// The operation without what it owns.
fn job_of(operation: &mut RingOperation) -> Job {
    match operation {
        RingOperation::Read {
            offset,
            buffer,
            done,
            ..
        } => Job::Read {
            start: buffer.address().as_ptr().wrapping_add(*done),
            len: buffer.len().saturating_sub(*done),
            offset: *offset + *done as u64,
        },
        RingOperation::Write {
            offset,
            data,
            done,
            durable,
            ..
        } => Job::Write {
            start: data.address().as_ptr().wrapping_add(*done),
            len: data.len().saturating_sub(*done),
            offset: *offset + *done as u64,
            durable: *durable,
        },
        RingOperation::Sync { .. } => Job::Sync,
        RingOperation::Allocate { mode, range, .. } => Job::Allocate {
            mode: FallocateFlags::KEEP_SIZE
                | match mode {
                    AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE,
                    AllocateMode::ZeroRange => FallocateFlags::ZERO_RANGE,
                },
            offset: range.start,
            len: range.end - range.start,
        },
        RingOperation::Extents {
            range,
            block_bytes,
            found,
            ..
        } => Job::Extents {
            start: range.start,
            end: range.end,
            block_bytes: *block_bytes,
            found: found.as_mut_ptr(),
            room: found.len(),
        },
        RingOperation::Size {
            is_block_device, ..
        } => Job::Size {
            is_block_device: *is_block_device,
        },
    }
}
