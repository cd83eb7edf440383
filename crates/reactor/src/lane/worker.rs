//! What the workers of a lane do, and the memory that they share with their core.
//!
//! A worker is a process that shares memory and open files with this one: a system call that never ends does not keep
//! this process from ending, and what this one closes is closed. It runs on a stack of its own and has no thread-local
//! storage, so nothing here allocates, panics, logs or calls the C library; system calls are made directly.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};

use rustix::fs::{FallocateFlags, Timespec, fallocate, fdatasync};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};
use rustix::process::Pid;
use rustix::thread::{CpuSet, futex, sched_setaffinity};
use store::{Class, Extent, PAST_THE_END, ends_before, find_extents, find_size};

use super::child::end_with;
use crate::mail::Waker;

/// Classes of operations ([`Class`]). None can keep another from slots or workers.
pub(super) const CLASSES: usize = 5;

/// Operations of each class that run at once: reads, writes in turn, other writes, flushes, questions. Now and then one
/// more does.
const RUNNING_MAX: [usize; CLASSES] = [32, 1, 32, 8, 2];

/// Slots of each class: for those that run, and some so that workers need not wait for the core. One worker does the
/// writes in turn, which take some microseconds each where the page cache has room: it is given what a session may have
/// under way.
const SLOTS_OF_CLASS: [usize; CLASSES] = [40, 36, 40, 10, 2];

/// Writes in turn that a worker has done before it notifies the core, while more of them wait: waking the core for each
/// costs as much as the write. Should the next one hang, the core looks by itself twice a second.
const UNTOLD_MAX: usize = 4;

/// Operations of one lane that its workers can see.
pub(super) const SLOTS: usize = {
    let (mut class, mut slots) = (0, 0);
    while class < CLASSES {
        slots += SLOTS_OF_CLASS[class];
        class += 1;
    }
    slots
};

/// Workers of one lane, at most: enough for all classes at once.
pub(super) const WORKERS_MAX: usize = SLOTS;

/// The slots of a class.
pub(super) fn slots_of(class: usize) -> Range<usize> {
    let before: usize = SLOTS_OF_CLASS.iter().take(class).sum();
    before..before + SLOTS_OF_CLASS.get(class).copied().unwrap_or(0)
}

/// The class of a slot.
pub(super) fn class_of(index: usize) -> usize {
    (0..CLASSES)
        .find(|&class| slots_of(class).contains(&index))
        .unwrap_or(0)
}

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

/// Where a slot stands. With [`Phase::Running`] and [`Phase::Done`] goes the worker, in one word, so that a worker
/// which is killed leaves no operation of which nobody knows whose it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    /// The core has it.
    Free,
    /// Any worker may take it, and the core may take it back.
    Queued,
    Running(Pid),
    /// There is a result. It is on the list of what is done, or will be.
    Done(Pid),
}

impl Phase {
    const BITS: u32 = 8;

    const fn word(self) -> u64 {
        let (number, pid) = match self {
            Self::Free => (0, 0),
            Self::Queued => (1, 0),
            Self::Running(pid) => (2, pid.as_raw_nonzero().get()),
            Self::Done(pid) => (3, pid.as_raw_nonzero().get()),
        };
        number | (pid.unsigned_abs() as u64) << Self::BITS
    }

    fn of(word: u64) -> Self {
        let pid = i32::try_from(word >> Self::BITS)
            .ok()
            .and_then(Pid::from_raw);
        match (word & 0xff, pid) {
            (1, _) => Self::Queued,
            (2, Some(pid)) => Self::Running(pid),
            (3, Some(pid)) => Self::Done(pid),
            _ => Self::Free,
        }
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    phase: AtomicU64,
    /// The order in which operations came.
    number: AtomicU64,
    job: UnsafeCell<Job>,
    pub(super) result: AtomicI64,
    /// The lane, by its place in the table of the core, and the place in the lane.
    lane: usize,
    index: usize,
    /// The next on the list of what is done.
    next: AtomicPtr<Self>,
}

// SAFETY: `job` is written by the core while the slot is free and read by the one worker that took it after the core
// had offered it; what it points to is not touched by the core meanwhile.
unsafe impl Sync for Slot {}
// SAFETY: as above; nothing in a slot belongs to a thread.
unsafe impl Send for Slot {}

impl Slot {
    fn new(lane: usize, index: usize) -> Self {
        Self {
            phase: AtomicU64::new(Phase::Free.word()),
            number: AtomicU64::new(0),
            job: UnsafeCell::new(Job::None),
            result: AtomicI64::new(0),
            lane,
            index,
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::of(self.phase.load(SeqCst))
    }

    fn change(&self, from: Phase, to: Phase) -> bool {
        let changed = self
            .phase
            .compare_exchange(from.word(), to.word(), SeqCst, SeqCst);
        changed.is_ok()
    }

    /// Offers an operation in a free slot to the workers.
    pub(super) fn offer(&self, job: Job, number: u64) {
        debug_assert_eq!(self.phase(), Phase::Free, "a slot that is free");
        // SAFETY: the slot is free, so no worker looks at it.
        unsafe { *self.job.get() = job };
        self.number.store(number, SeqCst);
        self.phase.store(Phase::Queued.word(), SeqCst);
    }

    /// Takes back what no worker has begun.
    pub(super) fn take_back(&self) -> bool {
        self.change(Phase::Queued, Phase::Free)
    }

    /// The worker that had it is done with it.
    pub(super) fn free(&self) {
        self.phase.store(Phase::Free.word(), SeqCst);
    }
}

/// What the workers of all lanes of a core have done: a list that everybody may add to and that the core takes as a
/// whole.
#[derive(Debug)]
pub(super) struct Done {
    head: AtomicPtr<Slot>,
    /// A worker has left that may have been counted on: where it was the last of its lane, others have to start.
    has_left: AtomicBool,
    pub(super) waker: Arc<Waker>,
}

impl Done {
    pub(super) const fn new(waker: Arc<Waker>) -> Self {
        Self {
            head: AtomicPtr::new(ptr::null_mut()),
            has_left: AtomicBool::new(false),
            waker,
        }
    }

    /// Whether a worker has left since the last call without looking for work once more.
    pub(super) fn take_left(&self) -> bool {
        self.has_left.load(SeqCst) && self.has_left.swap(false, SeqCst)
    }

    /// Puts a slot on the list. The core is not notified before [`Waker::wake`].
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
    /// Workers without work end: others have none.
    pub(super) is_dismissing: AtomicBool,
    /// Workers that wait for a call; more where one was killed while it waited.
    pub(super) idle: AtomicU32,
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
            is_dismissing: AtomicBool::new(false),
            idle: AtomicU32::new(0),
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

    /// How many operations of a class run, how many more may begin now, and the oldest of these.
    fn look(&self, class: usize) -> (usize, usize, Option<&Slot>) {
        let (mut running, mut queued) = (0, 0);
        let mut oldest: Option<(u64, &Slot)> = None;
        for slot in self.slots.get(slots_of(class)).unwrap_or_default() {
            match slot.phase() {
                Phase::Running(_) => running += 1,
                Phase::Queued => {
                    queued += 1;
                    let number = slot.number.load(SeqCst);
                    if oldest.is_none_or(|(other, _)| number < other) {
                        oldest = Some((number, slot));
                    }
                }
                Phase::Free | Phase::Done(_) => {}
            }
        }
        let limit = RUNNING_MAX.get(class).copied().unwrap_or(0);
        let wanted = queued.min(limit.saturating_sub(running));
        (
            running,
            wanted,
            oldest.filter(|_| wanted > 0).map(|(_, slot)| slot),
        )
    }

    /// Operations that run, and that may begin now.
    pub(super) fn load(&self) -> (usize, usize) {
        let classes = (0..CLASSES).map(|class| self.look(class));
        classes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    fn has_work(&self) -> bool {
        self.load().1 > 0
    }

    /// Takes the oldest operation of a class, if one more may run.
    fn take(&self, class: usize, own: Pid) -> Option<&Slot> {
        loop {
            let (_, _, oldest) = self.look(class);
            let slot = oldest?;
            if slot.change(Phase::Queued, Phase::Running(own)) {
                return Some(slot);
            }
        }
    }
}

/// Workers with an older number than this end when they have nothing in hand.
static EPOCH: AtomicU32 = AtomicU32::new(0);

/// Has workers that were started before this end, and others take their place.
pub(super) fn renew() {
    EPOCH.fetch_add(1, SeqCst);
}

/// What a worker is started with.
#[derive(Debug)]
pub(super) struct Seat {
    shared: Arc<Shared>,
    epoch: u32,
    /// It will look for work again before it ends.
    is_live: AtomicBool,
}

impl Seat {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            epoch: EPOCH.load(SeqCst),
            is_live: AtomicBool::new(true),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.is_live.load(SeqCst)
    }
}

/// The life of a worker. `argument` is its [`Seat`].
pub(super) extern "C" fn enter(argument: *mut c_void) -> c_int {
    // SAFETY: the code that starts a worker keeps its seat until the worker has ended.
    let Some(seat) = (unsafe { argument.cast::<Seat>().as_ref() }) else {
        return 1;
    };
    if prepare(&seat.shared) {
        serve(seat);
    }
    seat.is_live.store(false, SeqCst);
    // What was put in until now was left to this worker, and one that was renewed leaves it to others.
    if seat.shared.has_work() {
        seat.shared.done.has_left.store(true, SeqCst);
        seat.shared.done.waker.wake();
    }
    0
}

/// Ends with the process it belongs to. False when that has ended.
fn prepare(shared: &Shared) -> bool {
    if !end_with(shared.parent, c"tarn-lane") {
        return false;
    }
    if let Some(cores) = &shared.cores {
        let _pinned = sched_setaffinity(None, cores);
    }
    true
}

fn serve(seat: &Seat) {
    let shared = &*seat.shared;
    let own = rustix::process::getpid();
    while !shared.is_closed.load(SeqCst) && seat.epoch == EPOCH.load(SeqCst) {
        let seen = shared.signal.load(SeqCst);
        let mut worked = false;
        for class in 0..CLASSES {
            let mut next = shared.take(class, own);
            let mut untold = 0;
            while let Some(slot) = next {
                worked = true;
                slot.result.store(run(shared, slot), SeqCst);
                slot.phase.store(Phase::Done(own).word(), SeqCst);
                shared.done.push(slot);
                untold += 1;
                let is_in_turn = class == Shared::queue_of(Class::WriteInTurn);
                next = if is_in_turn && untold < UNTOLD_MAX {
                    shared.take(class, own)
                } else {
                    None
                };
                if next.is_none() {
                    shared.done.waker.wake();
                    untold = 0;
                    next = shared.take(class, own);
                }
            }
        }
        if worked {
            continue;
        }
        shared.idle.fetch_add(1, SeqCst);
        let waited = futex::wait(&shared.signal, futex::Flags::PRIVATE, seen, Some(&IDLE));
        shared.idle.fetch_sub(1, SeqCst);
        if waited == Err(Errno::TIMEDOUT) || shared.is_dismissing.load(SeqCst) {
            // Either the core sees that this worker has ended, or this sees what the core has put in.
            seat.is_live.store(false, SeqCst);
            if !shared.has_work() {
                return;
            }
            seat.is_live.store(true, SeqCst);
        }
    }
}

fn run(shared: &Shared, slot: &Slot) -> i64 {
    // SAFETY: this worker took the slot, so it alone reads the job, and the core does not write.
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
            // A file that was cut must not become as long again: what it has lost would read as zeros.
            if ends_before(file, offset.saturating_add(len as u64)) {
                return Err(PAST_THE_END);
            }
            let parts = [std::io::IoSlice::new(bytes)];
            pwritev2(file, &parts, offset, flags).map(|count| count as u64)
        }
        Job::Sync => fdatasync(file).map(|()| 0),
        Job::Allocate { offset, len, .. } if ends_before(file, offset.saturating_add(len)) => {
            Err(PAST_THE_END)
        }
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
