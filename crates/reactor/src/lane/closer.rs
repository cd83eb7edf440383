//! Closes the files of stores, each in a process of its own, because closing one may wait for its store.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use super::child::{Child, State};

/// Closers that were started and have not been seen to have ended.
static CLOSERS: Mutex<Vec<Child>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread may wait for a store.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread goes on when a file that it closes is closed, and with it the lock on it.
pub(super) fn wait_for_closers() {
    WAITS.set(true);
}

/// Closes a file, for which a thread of [`wait_for_closers`] waits.
pub(crate) fn close(file: OwnedFd) {
    // The number itself is what the closer gets, not an address.
    let number = usize::try_from(file.as_raw_fd()).unwrap_or(usize::MAX);
    let argument = ptr::without_provenance_mut(number);
    // SAFETY: `enter` keeps to the rules of children and takes its argument for a number.
    match unsafe { Child::start(enter, argument) } {
        Ok(child) => {
            // The closer has it.
            let _number = file.into_raw_fd();
            if WAITS.get() {
                child.wait();
                return;
            }
            let mut closers = CLOSERS.lock().unwrap_or_else(PoisonError::into_inner);
            closers.push(child);
        }
        Err(error) => {
            tracing::error!(%error, "no process to close a store in");
            drop(file);
        }
    }
    tend();
}

/// Takes ended closers away.
pub(super) fn tend() {
    // Another core is at it already.
    let Ok(mut closers) = CLOSERS.try_lock() else {
        return;
    };
    for _ in 0..closers.len() {
        if let Some(child) = closers.pop()
            && let State::Runs(child) = child.look()
        {
            closers.insert(0, child);
        }
    }
}

extern "C" fn enter(argument: *mut c_void) -> c_int {
    if let Ok(fd) = RawFd::try_from(argument.addr()) {
        // SAFETY: the descriptor is this process's to close; its number is not used again before that.
        unsafe { rustix::io::close(fd) };
    }
    0
}
