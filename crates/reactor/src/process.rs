//! The end of the whole process.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use rustix::io::{DupFlags, Errno, dup3};
use rustix::net::sockopt::socket_type;

use crate::lane;

/// Descriptors below this one are the standard streams.
pub(crate) const STANDARD_STREAMS: RawFd = 3;

/// Locks with numbers below this are given back early. They are opened at the start, one for each unit.
const LOCKS_MAX: usize = 64 * 1024;

/// So many numbers in a row that are not open are the end of the table.
const GAP_MAX: RawFd = 64 * 1024;

/// Which descriptors are locks.
static LOCKS: [AtomicU64; LOCKS_MAX / 64] = [const { AtomicU64::new(0) }; LOCKS_MAX / 64];

/// Ends the process at once with this exit status: no destructor runs, no other thread is waited
/// for. A thread that serves holds promises to others (mail, letters, locks); without it they would
/// wait for ever, while a service manager restarts a process that has ended.
///
/// `line` goes to the standard error output first, past a log that may have a queue.
pub fn end_at_once(status: u8, line: &str) -> ! {
    // Nobody may be there to read it.
    drop(writeln!(std::io::stderr(), "{line}"));
    release();
    // SAFETY: `_exit` has no precondition, and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Gives back what others need, as the last thing before the process ends: sockets and locks. Without that they would
/// be taken for as long as a worker of a store hangs, as workers share the open files. What still uses a socket then
/// gets errors. Does nothing where no worker was ever started.
pub fn release() {
    lane::release();
}

/// A locked file. The lock ends with the process, however that ends, also when a worker of a store hangs.
#[derive(Debug)]
pub struct LockFile(File);

impl From<File> for LockFile {
    fn from(file: File) -> Self {
        if let Some((word, bit)) = lock_bit(file.as_raw_fd()) {
            word.fetch_or(bit, SeqCst);
        }
        Self(file)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Some((word, bit)) = lock_bit(self.0.as_raw_fd()) {
            word.fetch_and(!bit, SeqCst);
        }
    }
}

fn lock_bit(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let index = usize::try_from(fd).ok()?;
    Some((LOCKS.get(index / 64)?, 1 << (index % 64)))
}

/// Puts `spare` in the place of every socket, every lock and the standard streams, from descriptor `first` on. To put
/// something in their place closes them and keeps their numbers from being used again by what still runs.
///
/// Allocates nothing and does not panic, as the guardian must not. Never asks a store: what is no socket and no lock is
/// not touched.
pub(crate) fn give_back(spare: RawFd, first: RawFd) {
    // SAFETY: it is open for as long as the process lives.
    let spare = unsafe { BorrowedFd::borrow_raw(spare) };
    let (mut fd, mut gap) = (first, 0);
    while gap < GAP_MAX && fd < RawFd::MAX {
        // SAFETY: the call only asks about a number, which may be in use or not.
        let kind = socket_type(unsafe { BorrowedFd::borrow_raw(fd) });
        gap = if kind == Err(Errno::BADF) { gap + 1 } else { 0 };
        let is_lock = lock_bit(fd).is_some_and(|(word, bit)| word.load(SeqCst) & bit != 0);
        let is_open = gap == 0;
        if is_open && (kind.is_ok() || is_lock || fd < STANDARD_STREAMS) {
            // SAFETY: the number is replaced and stays open, so whoever owns it may still close it.
            let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
            // It fails only when somebody closes it at this moment.
            let _replaced = dup3(spare, &mut place, DupFlags::CLOEXEC);
        }
        fd += 1;
    }
}
