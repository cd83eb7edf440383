//! Lanes: the workers of one file on one core, for operations that may wait in the kernel.
//!
//! A lane belongs to one file, so that a store that hangs stops nothing but itself: not the thread of the core, not
//! the kernel's own workers of the ring, which all files of a core share, and not the helper threads. Workers start
//! when there is something to do, as many as are busy at once, and end when there is nothing for a while. What finds
//! no slot waits in memory of the core, where it can be taken back at any time.

mod call;
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

pub(crate) use self::call::sync;
pub use self::call::{exchange, wait_for};
use self::child::{Child, State};
pub(crate) use self::closer::close;
pub(crate) use self::guardian::{
    ensure as ensure_guardian, look_after as look_after_guardian, note, note_listener, release,
    set_lock, set_overdue,
};
use self::worker::{
    CLASSES, Done, Job, Phase, SLOTS, Seat, Shared, WORKERS_MAX, class_of, slots_of,
};
use crate::in_flight::Key;
use crate::mail::Waker;

/// An operation that a worker has not finished after this time is overdue.
const OVERDUE: Duration = Duration::from_secs(1);

/// Workers of the process beyond which a lane gets no second one.
const PROCESS_WORKERS_MAX: usize = 1024;

/// Workers that were started and have not been reaped, in this process.
static WORKERS: AtomicUsize = AtomicUsize::new(0);

/// Has all workers end when they have nothing in hand, and others take their place.
pub(crate) fn renew_workers() {
    worker::renew();
}

/// All lanes of one core.
pub(crate) struct Lanes {
    lanes: Vec<Option<Box<Lane>>>,
    done: Arc<Done>,
    /// Lanes whose file was closed, by their place.
    closing: Rc<RefCell<Vec<usize>>>,
    /// Lanes with something new to do.
    dirty: Vec<usize>,
    /// How often lanes are looked after, and when they are next.
    tend_every: Duration,
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
    /// Free slots, by class.
    free: [Vec<usize>; CLASSES],
    /// Operations that were offered to workers so far.
    offered: u64,
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
    /// One count of it belongs to the child, until it was seen to have ended.
    seat: Arc<Seat>,
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lanes")
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

impl Lanes {
    /// Results wake with `waker`.
    pub(crate) fn new(waker: &Arc<Waker>, tend_every: Duration) -> Self {
        Self {
            lanes: Vec::new(),
            done: Arc::new(Done::new(Arc::clone(waker))),
            closing: Rc::default(),
            dirty: Vec::new(),
            tend_every,
            next_tend: Duration::ZERO,
            results: Vec::new(),
            early: Vec::new(),
        }
    }

    /// Whether [`Lanes::kick`] would find nothing to do.
    pub(crate) fn is_quiet(&self, now: Duration) -> bool {
        self.dirty.is_empty() && now < self.next_tend && self.closing.borrow().is_empty()
    }

    /// When the workers are to be looked after next.
    pub(crate) const fn next_tend(&self) -> Duration {
        self.next_tend
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

    /// Hands over what is new. Gives operations that are over, and those whose worker was killed.
    pub(crate) fn kick(&mut self, now: Duration) -> Vec<(Key, i64)> {
        let mut over = Vec::new();
        if !self.closing.borrow().is_empty() {
            for index in self.closing.take() {
                if let Some(Some(lane)) = self.lanes.get_mut(index) {
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
            self.next_tend = now + self.tend_every;
            self.tend(now, &mut over);
        }
        over
    }

    /// Takes ended workers away, notices what is overdue, and starts workers where some are missing.
    fn tend(&mut self, now: Duration, over: &mut Vec<(Key, i64)>) {
        closer::tend();
        let mut killed = Vec::new();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let pids = lane.iter_mut().flat_map(|lane| lane.reap());
            killed.extend(pids.map(|pid| (index, pid)));
        }
        // One that was killed may have put something on the list and woken nobody.
        self.take_done(over);
        for (index, pid) in killed {
            if let Some(Some(lane)) = self.lanes.get_mut(index) {
                lane.clear_up_after(pid, over);
            }
        }
        self.dismiss_idle_workers();
        let mut is_any_over = false;
        for lane in self.lanes.iter_mut().flatten() {
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

    /// Where a lane has no worker, because there are too many processes, those end that have nothing to do.
    fn dismiss_idle_workers(&mut self) {
        let is_short = self.lanes.iter().flatten().any(|lane| lane.has_no_worker);
        for lane in self.lanes.iter_mut().flatten() {
            lane.shared.is_dismissing.store(is_short, SeqCst);
            if is_short {
                lane.call_all();
            }
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
        if self.done.take_left() {
            self.kick_all();
        }
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

    /// Has all lanes look at the next kick whether workers are missing.
    fn kick_all(&mut self) {
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(lane) = lane
                && !lane.is_dirty
            {
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
            // Nobody waits for what they had.
            let _killed = lane.reap();
        }
    }
}

impl Lane {
    fn new(index: usize, file: &FileHandle, done: &Arc<Done>) -> Self {
        Self {
            shared: Arc::new(Shared::new(file.as_raw_fd(), index, done)),
            place: Arc::clone(file.place()),
            waiting: Default::default(),
            free: std::array::from_fn(|class| slots_of(class).rev().collect()),
            offered: 0,
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
        if self.shared.slots[index].take_back() {
            self.taken[index] = None;
            self.free[class_of(index)].push(index);
            return true;
        }
        false
    }

    /// A worker is done with a slot. Gives the key of its operation.
    fn empty(&mut self, slot: usize) -> Option<Key> {
        self.shared.slots[slot].free();
        self.free[class_of(slot)].push(slot);
        self.taken[slot].take().map(|(key, _)| key)
    }

    fn kick(&mut self, now: Duration) {
        for (waiting, free) in self.waiting.iter_mut().zip(&mut self.free) {
            while let Some(&slot) = free.last()
                && let Some(next) = waiting.pop_front()
            {
                free.pop();
                self.taken[slot] = Some((next.key, now));
                self.shared.slots[slot].offer(next.job, self.offered);
                self.offered += 1;
            }
        }
        let (running, wanted) = self.shared.load();
        if wanted == 0 {
            self.has_no_worker = false;
            return;
        }
        self.shared.signal.fetch_add(1, SeqCst);
        if self.shared.idle.load(SeqCst) > 0 {
            let count = u32::try_from(wanted).unwrap_or(u32::MAX);
            // It cannot fail: the word is there.
            let _woken = futex::wake(&self.shared.signal, futex::Flags::PRIVATE, count);
        }
        let is_live = |worker: &&Worker| worker.seat.is_live();
        let live = self.workers.iter().filter(is_live).count();
        let missing = wanted.saturating_sub(live.saturating_sub(running));
        // At most twice as many as before: what is answered fast needs few.
        let missing = missing
            .min(live.max(1))
            .min(WORKERS_MAX.saturating_sub(self.workers.len()));
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
            tracing::error!(%error, "no worker for a store; its commands wait for one (limit of processes: \
                TasksMax, pids.max)");
        }
    }

    fn note_overdue(&mut self, now: Duration) {
        let is_overdue = self
            .taken
            .iter()
            .zip(&self.shared.slots)
            .any(|(taken, slot)| {
                taken.is_some_and(|(_, since)| now >= since + OVERDUE)
                    && matches!(slot.phase(), Phase::Running(_))
            });
        if is_overdue != self.is_overdue {
            self.is_overdue = is_overdue;
            self.place.set_overdue(is_overdue);
            set_overdue(self.shared.fd, is_overdue);
        }
    }

    fn close(&mut self) {
        if mem::take(&mut self.is_overdue) {
            self.place.set_overdue(false);
            set_overdue(self.shared.fd, false);
        }
        self.shared.is_closed.store(true, SeqCst);
        self.call_all();
    }

    /// Has all workers look what there is.
    fn call_all(&self) {
        self.shared.signal.fetch_add(1, SeqCst);
        // It cannot fail: the word is there.
        let _woken = futex::wake(&self.shared.signal, futex::Flags::PRIVATE, i32::MAX as u32);
    }

    fn spawn(&mut self) -> io::Result<()> {
        let seat = Arc::new(Seat::new(&self.shared));
        let argument = Arc::into_raw(Arc::clone(&seat));
        // SAFETY: a worker keeps to the rules of children, and its count of the seat stays until it was reaped.
        match unsafe { Child::start(worker::enter, argument.cast_mut().cast()) } {
            Ok(child) => {
                WORKERS.fetch_add(1, Ordering::Relaxed);
                self.workers.push(Worker { child, seat });
                Ok(())
            }
            Err(error) => {
                // SAFETY: the pointer came from `into_raw` above, and no worker has it.
                drop(unsafe { Arc::from_raw(argument) });
                Err(error)
            }
        }
    }

    /// Takes away the workers that have ended, with their stacks. Gives those that were killed.
    fn reap(&mut self) -> Vec<Pid> {
        let mut killed = Vec::new();
        for Worker { child, seat } in mem::take(&mut self.workers) {
            let pid = child.pid();
            let status = match child.look() {
                State::Runs(child) => {
                    self.workers.push(Worker { child, seat });
                    continue;
                }
                State::Ended(status) => status,
            };
            if let Some(status) = status
                && status.signaled()
            {
                let pid_raw = pid.as_raw_pid();
                tracing::error!(pid = pid_raw, ?status, "a worker of a store was killed");
                killed.push(pid);
            }
            WORKERS.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: this count came from `into_raw` in `spawn`, and the worker that had it has ended.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&seat)) };
        }
        killed
    }

    /// What a killed worker has left, when all that it put on the list of what is done was taken from there. Its
    /// operation has ended in the kernel: a process ends after its last system call.
    fn clear_up_after(&mut self, pid: Pid, over: &mut Vec<(Key, i64)>) {
        for index in 0..SLOTS {
            let slot = &self.shared.slots[index];
            let result = match slot.phase() {
                Phase::Running(worker) if worker == pid => -i64::from(libc::EIO),
                Phase::Done(worker) if worker == pid => slot.result.load(SeqCst),
                Phase::Free | Phase::Queued | Phase::Running(_) | Phase::Done(_) => continue,
            };
            over.extend(self.empty(index).map(|key| (key, result)));
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

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use store::{DiskFile, StoreFile};

    use super::*;

    /// Tries this often, a millisecond apart, whether something has come.
    const TRIES: usize = 10_000;

    /// Runs a flush, while no lane is looked after.
    fn flush(lanes: &mut Lanes, key: Key, file: &FileHandle) {
        let mut sync = RingOperation::Sync {
            file: Rc::clone(file),
        };
        lanes.submit(key, Class::Flush, &mut sync);
        let mut done = Vec::new();
        for _ in 0..TRIES {
            assert!(lanes.kick(Duration::ZERO).is_empty());
            lanes.take(&mut done);
            if !done.is_empty() {
                assert_eq!(done, [(key, 0)]);
                return;
            }
            thread::park_timeout(Duration::from_millis(1));
        }
        panic!("nobody has done it");
    }

    #[test]
    fn what_was_left_to_a_worker_that_is_renewed_is_done_by_another() {
        let mut lanes = Lanes::new(&Arc::new(Waker::new().unwrap()), Duration::from_millis(500));
        // Lanes are looked after once, and then not any more, as time stands still.
        assert!(lanes.kick(Duration::ZERO).is_empty());
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let fd = Arc::new(DiskFile::from(fd));
        let file = Rc::new(StoreFile::new(fd, Place::unknown()));
        flush(&mut lanes, 1, &file);
        let idle = |lanes: &Lanes| lanes.lanes[0].as_ref().unwrap().shared.idle.load(SeqCst);
        let end = Instant::now() + Duration::from_secs(30);
        while idle(&lanes) == 0 {
            assert!(Instant::now() < end, "the worker never ends its flush");
            thread::yield_now();
        }
        renew_workers();
        flush(&mut lanes, 2, &file);
    }
}
