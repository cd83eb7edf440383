//! Walks through the objects of the image.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::{FakeCluster, FakeImage, lock};
use crate::calls::{DiffCallback, Handle};

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct FakeWalks {
    /// Held while one waits.
    turn: Mutex<()>,
    /// With what they end.
    failure: Mutex<Option<c_int>>,
    /// Which objects there are is not known without a look.
    is_unknown: AtomicBool,
    count: AtomicUsize,
    openings: AtomicUsize,
}

impl FakeWalks {
    /// An image was opened at a snapshot.
    pub(super) fn note_opening(&self) {
        self.openings.fetch_add(1, Ordering::SeqCst);
    }
}

impl FakeCluster {
    /// Who walks through the objects waits until this is dropped.
    pub fn hang_walks(&self) -> MutexGuard<'_, ()> {
        lock(&self.state.walks.turn)
    }

    /// Walks end with this error number from now on, or with none.
    pub fn fail_walks(&self, errno: Option<i32>) {
        *lock(&self.state.walks.failure) = errno;
    }

    /// From now on which objects there are is not known without a look at each.
    pub fn forget_objects(&self) {
        self.state.walks.is_unknown.store(true, Ordering::SeqCst);
    }

    /// How often somebody has walked through objects, and has opened the image at a snapshot.
    pub fn walks(&self) -> (usize, usize) {
        let walks = &self.state.walks;
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (count(&walks.count), count(&walks.openings))
    }
}

/// Of `rbd_get_flags`: what is known of the changes of objects does not hold.
const UNKNOWN: u64 = 1 << 1;

pub(super) unsafe extern "C" fn flags(image: Handle, flags: *mut u64) -> c_int {
    // SAFETY: a handle of ours.
    let image = unsafe { &*image.cast::<FakeImage>() };
    let is_unknown = image.pool.state.walks.is_unknown.load(Ordering::SeqCst);
    // SAFETY: the caller's to be filled.
    unsafe { *flags = if is_unknown { UNKNOWN } else { 0 } };
    0
}

/// Every 64 KiB that is not zero, or not as in the snapshot, is data.
pub(super) unsafe extern "C" fn diff(
    image: Handle,
    since: *const c_char,
    offset: u64,
    length: u64,
    _: u8,
    _: u8,
    callback: DiffCallback,
    argument: *mut c_void,
) -> c_int {
    const UNIT: usize = 64 << 10;
    // SAFETY: a handle of ours.
    let image = unsafe { &*image.cast::<FakeImage>() };
    let state = &image.pool.state;
    drop(lock(&state.walks.turn));
    state.walks.count.fetch_add(1, Ordering::SeqCst);
    if let Some(errno) = *lock(&state.walks.failure) {
        return -errno;
    }
    let medium = match &image.snapshot {
        Some(name) => state.snapshots.medium(name),
        None => Some(lock(&state.medium).clone()),
    };
    let before = match since.is_null() {
        true => Some(Vec::new()),
        // SAFETY: a string of C.
        false => state.snapshots.medium(unsafe { CStr::from_ptr(since) }),
    };
    let (Some(medium), Some(mut before)) = (medium, before) else {
        return -libc::ENOENT;
    };
    before.resize(medium.len(), 0);
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start + usize::try_from(length).unwrap_or_default();
    for at in (start - start % UNIT..end).step_by(UNIT) {
        let (from, to) = (at.max(start), (at + UNIT).min(end));
        if medium[from..to] == before[from..to] {
            continue;
        }
        // SAFETY: as the library calls it, in the course of the call.
        let answer = unsafe { callback(from as u64, to - from, 1, argument) };
        if answer < 0 {
            return answer;
        }
    }
    0
}
