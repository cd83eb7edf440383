//! One process that outlives this one, however this one ends.
//!
//! Workers share the table of open files, and a worker that hangs keeps it: ports would stay taken, and files and states
//! locked, for as long as its store hangs. And who leaves the table last closes what is in it, which may wait for a
//! store: that must not be this process. So the guardian waits for the end of this process and gives back what others
//! need: sockets itself, which never waits, and files by processes of its own, one more whenever those that are there
//! make no progress.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};

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

/// Lanes of a file with an operation that is overdue: each core has one of its own.
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
pub(super) fn set_overdue(fd: RawFd, is_overdue: bool) {
    if let Some(count) = OVERDUE.of(fd) {
        if is_overdue {
            count.fetch_add(1, SeqCst);
        } else {
            count.fetch_sub(1, SeqCst);
        }
    }
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
    give_files_back();
    0
}

/// The next descriptor that a process of [`give_files_back`] looks at.
static NEXT: AtomicI32 = AtomicI32::new(STANDARD_STREAMS);

/// How long those that give files back may take for the next one before one more process helps.
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Processes that give files back, at most.
const HELPERS_MAX: usize = 1024;

/// Gives back what is still open, except where an operation hangs already. Runs when the process has ended, so nobody
/// minds what starting a child does to the thread-local storage of the thread that has started this one.
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
            if before >= end {
                return;
            }
            let _waited = poll(&mut [], Some(&PATIENCE));
            if NEXT.load(SeqCst) == before {
                break;
            }
        }
    }
}

extern "C" fn help(_: *mut c_void) -> c_int {
    let _unnamed = rustix::thread::set_name(c"tarn-guardian");
    let own = (SPARE.load(SeqCst), END.load(SeqCst));
    let end = end_of_table();
    loop {
        let fd = NEXT.fetch_add(1, SeqCst);
        if fd >= end {
            return 0;
        }
        if fd != own.0 && fd != own.1 && !OVERDUE.has(fd) && kind_of(fd).is_some() {
            replace(fd);
        }
    }
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
    // SAFETY: the number is replaced and stays open, so whoever owns it may still close it.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    // It fails only when somebody closes it at this moment.
    let _replaced = dup3(spare, &mut place, DupFlags::CLOEXEC);
}

/// Replaces what `wanted` says, from `first` on: it gets a descriptor and whether it is a socket.
fn give_back(first: RawFd, wanted: impl Fn(RawFd, bool) -> bool) {
    let own = (SPARE.load(SeqCst), END.load(SeqCst));
    for fd in first..end_of_table() {
        if fd != own.0
            && fd != own.1
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
