//! One process that outlives this one, however this one ends.
//!
//! Workers share the table of open files, and a worker that hangs keeps it: ports would stay taken and locks held, for as
//! long as its store hangs. And who leaves the table last closes what is in it, which may wait for a store: that must
//! not be this process. So the guardian waits for its end, gives back what others need, and closes the rest by ending.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::child::Child;
use crate::process;

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
    // For ever: the guardian needs them to the end.
    END.store(end.into_raw_fd(), SeqCst);
    SPARE.store(spare.into_raw_fd(), SeqCst);
    // SAFETY: `enter` keeps to the rules of children and takes no argument.
    let child = unsafe { Child::start(enter, ptr::null_mut()) }?;
    *CHILD.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    Ok(())
}

/// Gives back what others need of this process while workers may still have its open files.
pub(crate) fn release() {
    if IS_THERE.load(SeqCst) {
        process::give_back(SPARE.load(SeqCst), process::STANDARD_STREAMS);
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
    process::give_back(SPARE.load(SeqCst), 0);
    0
}
