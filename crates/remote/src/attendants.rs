//! Threads that end what belongs to stores, after their last user is gone.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};

/// What a thread needs that calls the libraries of Ceph.
pub(crate) const STACK_BYTES: usize = 2 << 20;

/// How many attendants there are.
static ATTENDANTS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

fn attendants() -> MutexGuard<'static, usize> {
    ATTENDANTS.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until all images and sessions are closed whose stores were dropped, but no longer than this. False when some
/// are not: the libraries may have threads then, and the process must end without what C libraries do at an ordinary
/// end.
pub fn wait_for_images(limit: Duration) -> bool {
    let until = Instant::now() + limit;
    let mut count = attendants();
    while *count > 0 {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let waited = ATTENDANTS.1.wait_timeout(count, left);
        count = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    true
}

/// Counts an attendant, or another thread that ends what is the libraries', until it ends.
pub(crate) struct Counted;

impl Counted {
    pub(crate) fn new() -> Self {
        *attendants() += 1;
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *attendants() -= 1;
        ATTENDANTS.1.notify_all();
    }
}

/// Waits for one of these, or so long. An interrupted wait is a short one.
pub(crate) fn wait(places: &mut [PollFd<'_>], left: Duration) {
    let left = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let _ready = poll(places, Some(&left));
}

/// Starts a thread that is counted until it has dropped all that it has.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let counted = Counted::new();
    let thread = thread::Builder::new().name(name.to_owned());
    let whole = move || {
        run();
        drop(counted);
    };
    thread.stack_size(STACK_BYTES).spawn(whole).map(drop)
}
