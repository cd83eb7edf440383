//! One process that outlives this one, however this one ends.
//!
//! Workers share the table of open files, and a worker that hangs keeps it: ports would stay taken, and files and states
//! locked, for as long as its store hangs. And who leaves the table last closes what is in it, which may wait for a
//! store: that must not be this process. So the guardian waits for the end of this process, gives back what others
//! need, in the order of how likely that is to wait, and closes the rest by ending.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::{DupFlags, Errno, dup3};
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::child::Child;

static STARTED: Once = Once::new();

/// Never looked after: it stays to the end.
static CHILD: Mutex<Option<Child>> = Mutex::new(None);

static IS_THERE: AtomicBool = AtomicBool::new(false);

/// Readable when this process has ended.
static END: AtomicI32 = AtomicI32::new(-1);

/// Takes the place of what is given back, so that its number is not used again.
static SPARE: AtomicI32 = AtomicI32::new(-1);

/// Starts the guardian of this process unless it is there. Without one the process serves as well; only its end may
/// wait for a store.
pub(super) fn ensure() {
    STARTED.call_once(|| match start() {
        Ok(()) => IS_THERE.store(true, SeqCst),
        Err(error) => {
            tracing::warn!(%error, "no guardian: a store that hangs may keep ports and the end of the process");
        }
    });
}

fn start() -> std::io::Result<()> {
    let end = pidfd_open(getpid(), PidfdFlags::empty())?;
    let spare = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    // What was opened at the start has lower numbers.
    note(spare.as_raw_fd());
    // For ever: the guardian needs them to the end.
    END.store(end.into_raw_fd(), SeqCst);
    SPARE.store(spare.into_raw_fd(), SeqCst);
    // SAFETY: `enter` keeps to the rules of children and takes no argument.
    let child = unsafe { Child::start(enter, ptr::null_mut()) }?;
    *CHILD.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    Ok(())
}

/// Descriptors below this one are the standard streams.
const STANDARD_STREAMS: RawFd = 3;

/// Descriptors from this one on are nobody's files. Stores have low numbers: they are opened before sessions begin.
const FILES_MAX: usize = 1 << 20;

/// Descriptors of this process that [`note`] was not told of, at most: files of the state, rings, the administration
/// and its connections, stores that were opened since the lock of their unit.
const UNKNOWN_MAX: RawFd = 4096;

/// The highest descriptor that [`note`] was told of. A new descriptor gets the lowest number that is free, so none is
/// higher than this one and all unknown ones together.
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// A set of descriptors.
struct Set([AtomicU64; FILES_MAX / 64]);

impl Set {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; FILES_MAX / 64])
    }

    fn put(&self, fd: RawFd, is_in: bool) {
        let index = usize::try_from(fd).unwrap_or(usize::MAX);
        if let Some(word) = self.0.get(index / 64) {
            let bit = 1 << (index % 64);
            if is_in {
                word.fetch_or(bit, SeqCst);
            } else {
                word.fetch_and(!bit, SeqCst);
            }
        }
    }

    fn has(&self, fd: RawFd) -> bool {
        let index = usize::try_from(fd).unwrap_or(usize::MAX);
        let word = self.0.get(index / 64);
        word.is_some_and(|word| word.load(SeqCst) & 1 << (index % 64) != 0)
    }
}

/// Files of stores on file systems that may wait for anybody.
static WAITING: Set = Set::new();

/// Files of stores with an operation that is overdue.
static OVERDUE: Set = Set::new();

/// Listening sockets that this process has made, and that are nobody else's.
static LISTENERS: Set = Set::new();

/// Files that are open for the lock on them alone.
static LOCKS: Set = Set::new();

/// A file is open for the lock on it alone, or is closed.
pub(crate) fn set_lock(fd: RawFd, is_lock: bool) {
    note(fd);
    LOCKS.put(fd, is_lock);
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
    LISTENERS.put(fd, true);
}

/// A file of a store is on a file system that may wait for anybody, or is closed.
pub(super) fn set_waiting(fd: RawFd, is_waiting: bool) {
    note(fd);
    WAITING.put(fd, is_waiting);
}

/// A file has an operation that is overdue, or none any more.
pub(super) fn set_overdue(fd: RawFd, is_overdue: bool) {
    OVERDUE.put(fd, is_overdue);
}

/// Gives back the sockets and locks of this process, which is about to end, if a worker may have them as well.
pub(crate) fn release() {
    if IS_THERE.load(SeqCst) {
        give_back(STANDARD_STREAMS, |fd, is_socket| is_socket || LOCKS.has(fd));
    }
}

extern "C" fn enter(_: *mut c_void) -> c_int {
    let _unnamed = rustix::thread::set_name(c"tarn-guardian");
    // SAFETY: it was opened before and stays open.
    let end = unsafe { BorrowedFd::borrow_raw(END.load(SeqCst)) };
    loop {
        match poll(&mut [PollFd::new(&end, PollFlags::IN)], None) {
            Ok(0) | Err(Errno::INTR | Errno::AGAIN | Errno::NOMEM) => {}
            Ok(_) => break,
            // It cannot know when the process ends.
            Err(_) => return 1,
        }
    }
    give_back(0, |fd, is_socket| is_socket || fd < STANDARD_STREAMS);
    give_back(STANDARD_STREAMS, |fd, _| {
        !WAITING.has(fd) && !OVERDUE.has(fd)
    });
    give_back(STANDARD_STREAMS, |fd, _| !OVERDUE.has(fd));
    0
}

/// Puts the spare descriptor in the place of what `wanted` says, from `first` on: `wanted` gets a descriptor and
/// whether it is a socket. That closes it and keeps its number from being used again by what still runs.
fn give_back(first: RawFd, wanted: impl Fn(RawFd, bool) -> bool) {
    let own = (SPARE.load(SeqCst), END.load(SeqCst));
    // SAFETY: it is open for as long as the process lives.
    let spare = unsafe { BorrowedFd::borrow_raw(own.0) };
    let end = HIGHEST.load(SeqCst).saturating_add(UNKNOWN_MAX);
    for fd in first..end {
        // SAFETY: the call only asks about a number, which may be in use or not.
        let kind = socket_type(unsafe { BorrowedFd::borrow_raw(fd) });
        let is_open = kind != Err(Errno::BADF);
        if is_open && fd != own.0 && fd != own.1 && wanted(fd, kind.is_ok()) {
            if kind.is_ok() && fd >= STANDARD_STREAMS {
                end_socket(fd);
            }
            // SAFETY: the number is replaced and stays open, so whoever owns it may still close it.
            let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
            // It fails only when somebody closes it at this moment.
            let _replaced = dup3(spare, &mut place, DupFlags::CLOEXEC);
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
