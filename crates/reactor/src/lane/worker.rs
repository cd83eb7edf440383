//! What the workers of a lane do, and the memory that they share with their core.
//!
//! A worker is a process that shares memory and open files with this one: a system call that never ends does not keep
//! this process from ending, and what this one closes is closed. It runs on a stack of its own and has no thread-local
//! storage, so nothing here allocates, panics, logs or calls the C library; system calls are made directly.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst,
};

use rustix::fs::{FallocateFlags, Timespec, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, futex, sched_setaffinity};
use store::{Class, Extent, find_extents, find_size};

use crate::mail::Waker;

/// Classes of operations ([`Class`]). None can keep another from slots or workers.
pub(super) const CLASSES: usize = 5;

/// Operations of each class that run at once: reads, writes in turn, other writes, flushes, questions.
const RUNNING_MAX: [u32; CLASSES] = [32, 1, 32, 8, 2];

/// Operations of each class that workers can see: those that run, and some so that workers need not wait for the core.
pub(super) const SLOTS_OF_CLASS: [usize; CLASSES] = [40, 4, 40, 10, 2];

/// Operations of one lane that its workers can see.
pub(super) const SLOTS: usize = 96;

/// Workers of one lane, at most: enough for all classes at once.
pub(super) const WORKERS_MAX: u32 = 75;

const _: () = {
    let (mut class, mut slots, mut workers) = (0, 0, 0);
    while class < CLASSES {
        slots += SLOTS_OF_CLASS[class];
        workers += RUNNING_MAX[class];
        class += 1;
    }
    assert!(slots == SLOTS, "a slot for each that may have one");
    assert!(workers == WORKERS_MAX, "a worker for each that may run");
};

/// How long a worker waits for work before it ends.
const IDLE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// One operation, without what it owns: that stays in the table of the core until the worker is done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    None,
    Read {
        start: *mut u8,
        len: usize,
        offset: u64,
    },
    Write {
        start: *const u8,
        len: usize,
        offset: u64,
        durable: bool,
    },
    Sync,
    Allocate {
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    },
    Extents {
        start: u64,
        end: u64,
        block_bytes: u32,
        found: *mut Extent,
        room: usize,
    },
    Size {
        is_block_device: bool,
    },
}

/// Where a slot stands. Between `FREE` and `QUEUED` its core has it, while `RUNNING` a worker.
pub(super) const FREE: u32 = 0;
pub(super) const QUEUED: u32 = 1;
pub(super) const RUNNING: u32 = 2;
/// Its operation was taken back before a worker began.
pub(super) const CANCELLED: u32 = 3;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) state: AtomicU32,
    job: UnsafeCell<Job>,
    pub(super) result: AtomicI64,
    /// The lane, by its place in the table of the core, and the place in the lane.
    pub(super) lane: usize,
    pub(super) index: usize,
    /// The queue it was put into.
    queue: AtomicU32,
    /// The worker that runs it, or ran it last.
    worker: AtomicI32,
    /// The next on the list of what is done.
    next: AtomicPtr<Self>,
}

// SAFETY: `job` is written by the core while the slot is free and read by the one worker that took it from a queue,
// which the core put it into after that; what it points to is not touched by the core meanwhile.
unsafe impl Sync for Slot {}
// SAFETY: as above; nothing in a slot belongs to a thread.
unsafe impl Send for Slot {}

impl Slot {
    fn new(lane: usize, index: usize) -> Self {
        Self {
            state: AtomicU32::new(FREE),
            job: UnsafeCell::new(Job::None),
            result: AtomicI64::new(0),
            lane,
            index,
            queue: AtomicU32::new(0),
            worker: AtomicI32::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Fills a free slot.
    pub(super) fn fill(&self, job: Job, queue: usize) {
        debug_assert_eq!(self.state.load(SeqCst), FREE, "a slot that is free");
        // SAFETY: the slot is free, so no worker looks at it.
        unsafe { *self.job.get() = job };
        self.queue.store(u32::try_from(queue).unwrap_or(0), SeqCst);
        self.worker.store(0, SeqCst);
        self.state.store(QUEUED, SeqCst);
    }

    pub(super) fn queue(&self) -> usize {
        self.queue.load(SeqCst) as usize
    }

    pub(super) fn is_run_by(&self, worker: Pid) -> bool {
        self.worker.load(SeqCst) == worker.as_raw_pid()
    }
}

/// Slots of one class that wait for a worker: one core puts in, many workers take out.
#[derive(Debug)]
pub(super) struct Queue {
    head: AtomicU64,
    tail: AtomicU64,
    entries: [AtomicU32; SLOTS],
    running: AtomicU32,
    limit: u32,
}

impl Queue {
    fn new(limit: u32) -> Self {
        Self {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            entries: std::array::from_fn(|_| AtomicU32::new(0)),
            running: AtomicU32::new(0),
            limit,
        }
    }

    /// There is always room: no slot is in a queue twice.
    pub(super) fn push(&self, index: usize) {
        let tail = self.tail.load(SeqCst);
        if let Some(entry) = self.entries.get(place(tail)) {
            entry.store(u32::try_from(index).unwrap_or(0), SeqCst);
        }
        self.tail.store(tail.wrapping_add(1), SeqCst);
    }

    /// How many more workers have something to do here.
    pub(super) fn wanted(&self) -> u32 {
        let waiting = self.tail.load(SeqCst).wrapping_sub(self.head.load(SeqCst));
        let room = self.limit.saturating_sub(self.running.load(SeqCst));
        u32::try_from(waiting).unwrap_or(u32::MAX).min(room)
    }

    pub(super) fn running(&self) -> u32 {
        self.running.load(SeqCst)
    }

    /// One that was taken is over.
    pub(super) fn leave(&self) {
        self.running.fetch_sub(1, SeqCst);
    }

    /// Takes the oldest, if one more may run.
    fn pop(&self) -> Option<usize> {
        let more = |running: u32| (running < self.limit).then(|| running.wrapping_add(1));
        self.running.fetch_update(SeqCst, SeqCst, more).ok()?;
        loop {
            let head = self.head.load(SeqCst);
            if head == self.tail.load(SeqCst) {
                self.leave();
                return None;
            }
            let index = self
                .entries
                .get(place(head))
                .map(|entry| entry.load(SeqCst));
            let next = head.wrapping_add(1);
            if self
                .head
                .compare_exchange(head, next, SeqCst, SeqCst)
                .is_ok()
            {
                return index.map(|index| index as usize);
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "less than SLOTS")]
const fn place(number: u64) -> usize {
    (number % SLOTS as u64) as usize
}

/// What the workers of all lanes of a core have done: a list that everybody may add to and that the core takes as a
/// whole.
#[derive(Debug)]
pub(super) struct Done {
    head: AtomicPtr<Slot>,
    pub(super) waker: Arc<Waker>,
}

impl Done {
    pub(super) const fn new(waker: Arc<Waker>) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            waker,
        }
    }

    fn push(&self, slot: &Slot) {
        let own = ptr::from_ref(slot).cast_mut();
        let mut head = self.head.load(SeqCst);
        loop {
            slot.next.store(head, SeqCst);
            match self.head.compare_exchange(head, own, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(found) => head = found,
            }
        }
        self.waker.wake();
    }

    /// Everything that is done, latest first: lane, slot, result.
    pub(super) fn take(&self, into: &mut Vec<(usize, usize, i64)>) {
        let mut at = self.head.swap(ptr::null_mut(), SeqCst);
        // SAFETY: slots live as long as their lane, and a lane is freed only when no slot of it is on its way.
        while let Some(slot) = unsafe { at.as_ref() } {
            into.push((slot.lane, slot.index, slot.result.load(SeqCst)));
            at = slot.next.load(SeqCst);
        }
    }
}

/// The memory of one lane. It is freed when every worker is known to have ended.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) fd: RawFd,
    parent: Pid,
    cores: Option<CpuSet>,
    /// Changes with every call for workers.
    pub(super) signal: AtomicU32,
    pub(super) is_closed: AtomicBool,
    /// Workers that wait for a call.
    pub(super) idle: AtomicU32,
    /// Workers that were started and have not ended.
    pub(super) live: AtomicU32,
    pub(super) queues: [Queue; CLASSES],
    pub(super) slots: [Slot; SLOTS],
    done: Arc<Done>,
}

impl Shared {
    pub(super) fn new(fd: RawFd, lane: usize, done: &Arc<Done>) -> Self {
        Self {
            fd,
            parent: rustix::process::getpid(),
            cores: crate::cores::allowed().ok(),
            signal: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            live: AtomicU32::new(0),
            queues: RUNNING_MAX.map(Queue::new),
            slots: std::array::from_fn(|index| Slot::new(lane, index)),
            done: Arc::clone(done),
        }
    }

    pub(super) const fn queue_of(class: Class) -> usize {
        match class {
            Class::Read => 0,
            Class::WriteInTurn => 1,
            Class::Write => 2,
            Class::Flush => 3,
            Class::Query => 4,
        }
    }

    fn has_work(&self) -> bool {
        self.queues.iter().any(|queue| queue.wanted() > 0)
    }
}

/// The life of a worker. `argument` is the [`Shared`] of its lane.
pub(super) extern "C" fn enter(argument: *mut c_void) -> c_int {
    // SAFETY: whoever starts a worker keeps its lane until the worker has ended.
    let Some(shared) = (unsafe { argument.cast::<Shared>().as_ref() }) else {
        return 1;
    };
    if prepare(shared) {
        serve(shared);
    } else {
        shared.live.fetch_sub(1, SeqCst);
    }
    0
}

/// Ends with the process it belongs to. False when that has ended.
fn prepare(shared: &Shared) -> bool {
    let _unnamed = rustix::thread::set_name(c"tarn-lane");
    let _left = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Some(shared.parent) {
        return false;
    }
    if let Some(cores) = &shared.cores {
        let _pinned = sched_setaffinity(None, cores);
    }
    true
}

fn serve(shared: &Shared) {
    while !shared.is_closed.load(SeqCst) {
        let seen = shared.signal.load(SeqCst);
        let mut worked = false;
        for queue in &shared.queues {
            while let Some(index) = queue.pop() {
                worked = true;
                let slot = shared.slots.get(index);
                if let Some(slot) = slot {
                    slot.result.store(run(shared, slot), SeqCst);
                }
                // Nobody fails it any more if this worker is killed now: it is done.
                if let Some(slot) = slot {
                    slot.worker.store(0, SeqCst);
                }
                queue.leave();
                if let Some(slot) = slot {
                    shared.done.push(slot);
                }
            }
        }
        if worked {
            continue;
        }
        shared.idle.fetch_add(1, SeqCst);
        let waited = futex::wait(&shared.signal, futex::Flags::PRIVATE, seen, Some(&IDLE));
        shared.idle.fetch_sub(1, SeqCst);
        if waited == Err(Errno::TIMEDOUT) {
            // Either the core sees that this worker has ended, or this sees what the core has put in.
            shared.live.fetch_sub(1, SeqCst);
            if !shared.has_work() {
                return;
            }
            shared.live.fetch_add(1, SeqCst);
        }
    }
    shared.live.fetch_sub(1, SeqCst);
}

fn run(shared: &Shared, slot: &Slot) -> i64 {
    let own = rustix::process::getpid();
    slot.worker.store(own.as_raw_pid(), SeqCst);
    let begun = slot
        .state
        .compare_exchange(QUEUED, RUNNING, SeqCst, SeqCst)
        .is_ok();
    if !begun {
        return -i64::from(Errno::CANCELED.raw_os_error());
    }
    // SAFETY: this worker took the slot from the queue, so it alone reads the job, and the core does not write.
    let job = unsafe { *slot.job.get() };
    // SAFETY: the operation in the table of the core has the file open until the worker is done.
    let file = unsafe { BorrowedFd::borrow_raw(shared.fd) };
    match perform(file, job) {
        Ok(count) => i64::try_from(count).unwrap_or(i64::MAX),
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}

/// Does it, and waits for as long as the kernel does.
fn perform(file: BorrowedFd<'_>, job: Job) -> Result<u64, Errno> {
    match job {
        Job::None => Err(Errno::INVAL),
        Job::Read { start, len, offset } => {
            // SAFETY: the operation in the table of the core owns these bytes, and nobody else touches them.
            let bytes = unsafe { slice::from_raw_parts_mut(start, len) };
            pread(file, bytes, offset).map(|count| count as u64)
        }
        Job::Write {
            start,
            len,
            offset,
            durable,
        } => {
            // SAFETY: the operation in the table of the core owns these bytes, and nobody writes to them.
            let bytes = unsafe { slice::from_raw_parts(start, len) };
            let flags = if durable {
                ReadWriteFlags::DSYNC
            } else {
                ReadWriteFlags::empty()
            };
            let parts = [std::io::IoSlice::new(bytes)];
            pwritev2(file, &parts, offset, flags).map(|count| count as u64)
        }
        Job::Sync => fdatasync(file).map(|()| 0),
        Job::Allocate { mode, offset, len } => fallocate(file, mode, offset, len).map(|()| 0),
        Job::Extents {
            start,
            end,
            block_bytes,
            found,
            room,
        } => {
            // SAFETY: the operation in the table of the core owns these entries, all of them are initialised, and
            // nobody else touches them.
            let found = unsafe { slice::from_raw_parts_mut(found, room) };
            find_extents(file, start..end, block_bytes, found).map(|count| count as u64)
        }
        Job::Size { is_block_device } => find_size(file, is_block_device),
    }
}
