//! One process that outlives this one, however this one ends.
//!
//! Workers share the table of open files, and a worker that hangs keeps it: ports would stay taken, and files and
//! states locked, for as long as its store hangs. And who leaves the table last closes what is in it, which may wait
//! for a store: that must not be this process. So the guardian waits for the end of this process and gives back what
//! others need: sockets itself, which never waits, and files by processes of its own, one more whenever those that are
//! there make no progress.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{DupFlags, Errno, dup3};
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::child::{Child, State};

static STARTED: Once = Once::new();

/// It stays to the end, unless it is killed.
static CHILD: Mutex<Option<Child>> = Mutex::new(None);

static IS_THERE: AtomicBool = AtomicBool::new(false);

/// Readable when this process has ended.
static END: AtomicI32 = AtomicI32::new(-1);

/// Readable when this process is about to end and wants its files given back now.
static CALL: AtomicI32 = AtomicI32::new(-1);

/// Everything is given back that can be without waiting long.
static IS_DONE: AtomicBool = AtomicBool::new(false);

/// Processes of [`give_files_back`] that are at it.
static HELPERS: AtomicU32 = AtomicU32::new(0);

/// How long an end waits for its guardian: it takes some milliseconds where no store hangs.
const CALL_TIME: Duration = Duration::from_millis(100);

/// Takes the place of what is given back, so that its number is not used again.
static SPARE: AtomicI32 = AtomicI32::new(-1);

/// Starts the guardian of this process unless it is there. Without one the process serves as well; only its end may
/// wait for a store.
pub(crate) fn ensure() {
    STARTED.call_once(|| match start() {
        Ok(()) => IS_THERE.store(true, SeqCst),
        Err(error) => {
            tracing::warn!(%error, "no guardian: a store that hangs may keep ports and the end of the process");
        }
    });
}

/// Starts another guardian where the last one was killed.
pub(crate) fn look_after() {
    if !IS_THERE.load(SeqCst) {
        return;
    }
    let mut child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    *child = match child.take().map(Child::look) {
        Some(State::Runs(child)) => Some(child),
        ended => {
            if ended.is_some() {
                tracing::error!("the guardian was killed; another one starts");
            }
            // SAFETY: `enter` keeps to the rules of children and takes no argument.
            unsafe { Child::start(enter, ptr::null_mut()) }.ok()
        }
    };
}

fn start() -> std::io::Result<()> {
    let end = pidfd_open(getpid(), PidfdFlags::empty())?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let (spare, call) = (eventfd(0, flags)?, eventfd(0, flags)?);
    // What was opened at the start has lower numbers.
    note(spare.as_raw_fd());
    // For ever: the guardian needs them to the end.
    END.store(end.into_raw_fd(), SeqCst);
    SPARE.store(spare.into_raw_fd(), SeqCst);
    CALL.store(call.into_raw_fd(), SeqCst);
    // SAFETY: `enter` keeps to the rules of children and takes no argument.
    let child = unsafe { Child::start(enter, ptr::null_mut()) }?;
    *CHILD.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    Ok(())
}

/// Descriptors below this one are the standard streams.
const STANDARD_STREAMS: RawFd = 3;

/// Descriptors from this one on are nobody's files. Stores have low numbers: they are opened before sessions begin.
const FILES_MAX: usize = 1 << 20;

/// Descriptors of this process that were not passed to [`note`], at most: files of the state, rings, the administration
/// and its connections, stores that were opened since the lock of their unit.
const UNKNOWN_MAX: RawFd = 4096;

/// The highest descriptor that was passed to [`note`]. A new descriptor gets the lowest number that is free, so none is
/// higher than this one and all unknown ones together.
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// Counts for descriptors.
struct Counts([AtomicU16; FILES_MAX]);

impl Counts {
    const fn new() -> Self {
        Self([const { AtomicU16::new(0) }; FILES_MAX])
    }

    fn of(&self, fd: RawFd) -> Option<&AtomicU16> {
        self.0.get(usize::try_from(fd).unwrap_or(usize::MAX))
    }

    fn has(&self, fd: RawFd) -> bool {
        self.of(fd).is_some_and(|count| count.load(SeqCst) > 0)
    }
}

/// Operations for which a file has to stay open: overdue ones of its lanes, of which each core has one of its own, and
/// changes by its path.
static OVERDUE: Counts = Counts::new();

/// Listening sockets that this process has made, and that are nobody else's.
static LISTENERS: Counts = Counts::new();

/// Files that are open for the lock on them alone.
static LOCKS: Counts = Counts::new();

/// A file is open for the lock on it alone, or is closed.
pub(crate) fn set_lock(fd: RawFd, is_lock: bool) {
    note(fd);
    if let Some(count) = LOCKS.of(fd) {
        count.store(u16::from(is_lock), SeqCst);
    }
}

/// This process has got one of the descriptors of which it has many.
pub(crate) fn note(fd: RawFd) {
    if HIGHEST.load(SeqCst) < fd {
        HIGHEST.fetch_max(fd, SeqCst);
    }
}

/// A listening socket is of this process's making. Those that were passed to it listen on without it.
pub(crate) fn note_listener(fd: RawFd) {
    note(fd);
    if let Some(count) = LISTENERS.of(fd) {
        count.store(1, SeqCst);
    }
}

/// A lane begins to have an operation that is overdue, or has none any more.
pub(crate) fn set_overdue(fd: RawFd, is_overdue: bool) {
    if let Some(count) = OVERDUE.of(fd) {
        if is_overdue {
            count.fetch_add(1, SeqCst);
        } else {
            count.fetch_sub(1, SeqCst);
        }
    }
}

/// Gives back the sockets and locks of this process, which is about to end, if a worker may have them as well, and
/// has the guardian give back the rest. Waits a moment for that, so that nothing is busy any more when this process has
/// ended, a file system that is to be unmounted for one.
pub(crate) fn release() {
    // It is not replaced any more.
    if !IS_THERE.swap(false, SeqCst) {
        return;
    }
    give_back(STANDARD_STREAMS, |fd, is_socket| is_socket || LOCKS.has(fd));
    // SAFETY: it is open for as long as the process lives.
    let call = unsafe { BorrowedFd::borrow_raw(CALL.load(SeqCst)) };
    let end = Instant::now() + CALL_TIME;
    let called = rustix::io::write(call, &1_u64.to_ne_bytes());
    while called.is_ok() && !IS_DONE.load(SeqCst) && Instant::now() < end {
        let _waited = poll(&mut [], Some(&PAUSE));
    }
}

extern "C" fn enter(_: *mut c_void) -> c_int {
    let _unnamed = rustix::thread::set_name(c"tarn-guardian");
    // SAFETY: it was opened before and stays open.
    let end = unsafe { BorrowedFd::borrow_raw(END.load(SeqCst)) };
    // SAFETY: as above.
    let call = unsafe { BorrowedFd::borrow_raw(CALL.load(SeqCst)) };
    loop {
        let mut either = [
            PollFd::new(&end, PollFlags::IN),
            PollFd::new(&call, PollFlags::IN),
        ];
        match poll(&mut either, None) {
            Ok(0) | Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {}
            Ok(_) => break,
            // It cannot know when the process ends.
            Err(_) => return 1,
        }
    }
    give_back(0, |fd, is_socket| is_socket || fd < STANDARD_STREAMS);
    give_files_back();
    for _ in 0..PAUSES_MAX {
        if HELPERS.load(SeqCst) == 0 {
            IS_DONE.store(true, SeqCst);
            break;
        }
        let _waited = poll(&mut [], Some(&PAUSE));
    }
    0
}

/// The next descriptor that a process of [`give_files_back`] looks at.
static NEXT: AtomicI32 = AtomicI32::new(STANDARD_STREAMS);

/// For how many pauses those that give files back may be at one before one more process helps.
const PAUSES_MAX: u32 = 20;

const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// Processes that give files back, at most.
const HELPERS_MAX: usize = 1024;

/// Gives back what is still open, except where an operation hangs already. Starting a child may write the error number
/// of the thread that has started this process; that thread has ended, or its process is about to.
fn give_files_back() {
    let end = end_of_table();
    for n in 0..HELPERS_MAX {
        // SAFETY: `help` keeps to the rules of children and takes no argument. Its stack is never freed.
        let helper = unsafe { Child::start(help, ptr::null_mut()) };
        if helper.is_err() && n == 0 {
            // Where no process can be started, this one does it.
            let _done = help(ptr::null_mut());
        }
        loop {
            let before = NEXT.load(SeqCst);
            let mut pauses = 0;
            while NEXT.load(SeqCst) == before && pauses < PAUSES_MAX && before < end {
                let _waited = poll(&mut [], Some(&PAUSE));
                pauses += 1;
            }
            if before >= end {
                return;
            }
            if NEXT.load(SeqCst) == before {
                break;
            }
        }
    }
}

extern "C" fn help(_: *mut c_void) -> c_int {
    let _unnamed = rustix::thread::set_name(c"tarn-guardian");
    HELPERS.fetch_add(1, SeqCst);
    let end = end_of_table();
    loop {
        let fd = NEXT.fetch_add(1, SeqCst);
        if fd >= end {
            break;
        }
        if !is_own(fd) && !OVERDUE.has(fd) && kind_of(fd).is_some() {
            replace(fd);
        }
    }
    HELPERS.fetch_sub(1, SeqCst);
    0
}

/// Whether the guardian needs it itself.
fn is_own(fd: RawFd) -> bool {
    [&SPARE, &END, &CALL]
        .map(|own| own.load(SeqCst))
        .contains(&fd)
}

/// Descriptors from this one on are not open.
fn end_of_table() -> RawFd {
    HIGHEST.load(SeqCst).saturating_add(UNKNOWN_MAX)
}

/// Whether a descriptor is a socket, if it is open.
fn kind_of(fd: RawFd) -> Option<bool> {
    // SAFETY: the call only asks about a number, which may be in use or not.
    let kind = socket_type(unsafe { BorrowedFd::borrow_raw(fd) });
    (kind != Err(Errno::BADF)).then_some(kind.is_ok())
}

/// Puts the spare descriptor in the place of another. That closes it, which may wait, and keeps its number from being
/// used again by what still runs.
fn replace(fd: RawFd) {
    // SAFETY: it is open for as long as the process lives.
    let spare = unsafe { BorrowedFd::borrow_raw(SPARE.load(SeqCst)) };
    // SAFETY: the number is replaced and stays open, so its owner may still close it.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    // It fails only when somebody closes it at this moment.
    let _replaced = dup3(spare, &mut place, DupFlags::CLOEXEC);
}

/// Replaces what `wanted` says, from `first` on: it gets a descriptor and whether it is a socket.
fn give_back(first: RawFd, wanted: impl Fn(RawFd, bool) -> bool) {
    for fd in first..end_of_table() {
        if !is_own(fd)
            && let Some(is_socket) = kind_of(fd)
            && wanted(fd, is_socket)
        {
            if is_socket && fd >= STANDARD_STREAMS {
                end_socket(fd);
            }
            replace(fd);
        }
    }
}

/// Ends what a socket is for, which closing it would not: a ring has an operation on it that holds it, and the ring
/// stays as long as the memory, which workers share.
fn end_socket(fd: RawFd) {
    // SAFETY: the caller has found a socket there; at most it is another one by now.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if socket_acceptconn(socket) == Ok(false) || LISTENERS.has(fd) {
        // It fails where no connection is.
        let _ended = shutdown(socket, Shutdown::Both);
    }
}
