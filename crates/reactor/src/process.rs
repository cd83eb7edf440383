//! The end of the whole process, and calls that do not keep it from ending.

use std::io::Write as _;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::lane;
pub use crate::lane::{exchange, wait_for};

static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// What [`leave`] ends with.
static STATUS: AtomicI32 = AtomicI32::new(0);

/// Whether [`end_at_once`] was called. A thread whose end is that of the process then has to wait for it.
pub fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Ends the process at once with this exit status: no destructor runs, no other thread is waited
/// for. A thread that serves holds promises to others (mail, letters, locks); without it they would
/// wait for ever, while a service manager restarts a process that has ended.
///
/// `line` goes to the standard error output first, past a log that may have a queue.
pub fn end_at_once(status: u8, line: &str) -> ! {
    STATUS.store(i32::from(status), Ordering::SeqCst);
    // Another thread may meet a file that was given back, and fail. The line says all that is to be said.
    std::panic::set_hook(Box::new(|_| {}));
    leave_at_abort();
    IS_ENDING.store(true, Ordering::SeqCst);
    // Nobody may be there to read it.
    drop(writeln!(std::io::stderr(), "{line}"));
    release();
    // SAFETY: `_exit` has no precondition, and does not return.
    unsafe { libc::_exit(i32::from(status)) }
}

/// A library that meets a file which was given back may abort, as that of Ceph does: the process ends as it was about
/// to.
fn leave_at_abort() {
    let handler: extern "C" fn(libc::c_int) = leave;
    // SAFETY: what handles the signal is a function of this program that does what a handler may do.
    let before = unsafe { libc::signal(libc::SIGABRT, handler as libc::sighandler_t) };
    debug_assert_ne!(before, libc::SIG_ERR, "a signal that can be handled");
}

/// For the signal of an abort.
extern "C" fn leave(_: libc::c_int) {
    // SAFETY: `_exit` may be called in a handler, and does not return.
    unsafe { libc::_exit(STATUS.load(Ordering::SeqCst)) }
}

/// Calls a function that changes a file which is open, but by its path. Should this process end meanwhile, the file
/// stays open, and locked, until the function is done: nobody else serves it before.
pub fn keeping<T>(file: &impl AsRawFd, function: impl FnOnce() -> T) -> T {
    lane::set_overdue(file.as_raw_fd(), true);
    let done = function();
    lane::set_overdue(file.as_raw_fd(), false);
    done
}

/// A file of this process is open for the lock on it alone, or is about to be closed: [`release`] gives the lock back.
pub fn set_lock(file: &impl AsRawFd, is_lock: bool) {
    lane::set_lock(file.as_raw_fd(), is_lock);
}

/// Everything is open and every right of the start is given up: what runs beside this process must not have more.
/// Workers that were started before end, others take their place, and the guardian starts, a process that gives ports
/// and locks back should this one end while a store hangs.
pub fn guard() {
    lane::renew_workers();
    lane::ensure_guardian();
}

/// Starts another guardian where the last one was killed. To be called now and then.
pub fn look_after_guardian() {
    lane::look_after_guardian();
}

/// Gives back sockets, locks, standard streams and files, as the last thing before the process ends. Without that they
/// would be taken for as long as a worker of a store hangs, as workers share the open files. What still uses one then
/// gets errors. The guardian does it too, after any end; this waits a moment for it. Does nothing before [`guard`].
pub fn release() {
    lane::release();
}
