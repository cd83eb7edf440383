//! Threads that end what belongs to stores, after their last user is gone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
