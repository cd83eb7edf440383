//! Snapshots of the image, and clones, which have names alone.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::clients::refused;
use super::{FakeCluster, State, at, leaked, lock, state};
use crate::calls::{Child, Handle, ProgressCallback, SnapshotInfo};

/// Steps of a rollback or a flatten.
const STEPS: u64 = 4;

#[derive(Debug)]
struct FakeSnapshot {
    id: u64,
    name: String,
    medium: Vec<u8>,
    is_protected: bool,
    clones: Vec<String>,
}

/// Those of the image.
#[derive(Debug, Default)]
pub(super) struct FakeSnapshots {
    all: Mutex<Vec<FakeSnapshot>>,
    /// The image is a clone.
    is_clone: AtomicBool,
    /// A rollback or a flatten stands still after its first step.
    stands: Mutex<bool>,
    moved: Condvar,
}

impl FakeSnapshots {
    pub(super) fn has(&self, name: &CStr) -> bool {
        let name = name.to_string_lossy();
        lock(&self.all).iter().any(|one| one.name == name)
    }

    /// The data of one.
    pub(super) fn medium(&self, name: &CStr) -> Option<Vec<u8>> {
        let name = name.to_string_lossy();
        let all = lock(&self.all);
        let one = all.iter().find(|one| one.name == name);
        one.map(|one| one.medium.clone())
    }

    fn with<T>(&self, name: *const c_char, call: impl FnOnce(&mut FakeSnapshot) -> T) -> Option<T> {
        // SAFETY: a string of C.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let mut all = lock(&self.all);
        all.iter_mut().find(|one| one.name == name).map(call)
    }

    /// What takes long, up to its last step: whether it came there.
    fn go(&self, progress: ProgressCallback, argument: *mut c_void) -> bool {
        for step in 0..STEPS {
            // SAFETY: as the library calls it, in the course of the call.
            if unsafe { progress(step, STEPS, argument) } < 0 {
                return false;
            }
            let mut stands = lock(&self.stands);
            while *stands {
                let waited = self.moved.wait_timeout(stands, Duration::from_millis(5));
                stands = waited.unwrap_or_else(PoisonError::into_inner).0;
                // SAFETY: as above.
                if unsafe { progress(step, STEPS, argument) } < 0 {
                    return false;
                }
            }
        }
        true
    }
}

impl FakeCluster {
    /// The names of the snapshots.
    pub fn snapshots(&self) -> Vec<String> {
        let all = lock(&self.state.snapshots.all);
        all.iter().map(|one| one.name.clone()).collect()
    }

    /// Somebody protects the snapshots there are.
    pub fn protect_snapshots(&self) {
        for snapshot in lock(&self.state.snapshots.all).iter_mut() {
            snapshot.is_protected = true;
        }
    }

    /// From now on the image is a clone.
    pub fn make_clone(&self) {
        self.state.snapshots.is_clone.store(true, Ordering::SeqCst);
    }

    /// What takes long stands still, or goes on.
    pub fn stand_still(&self, stands: bool) {
        *lock(&self.state.snapshots.stands) = stands;
        self.state.snapshots.moved.notify_all();
    }
}

fn change(state: &State) -> Result<(), c_int> {
    lock(&state.faults)
        .change
        .map_or(Ok(()), |errno| Err(-errno))
}

pub(super) unsafe extern "C" fn list(
    image: Handle,
    to: *mut SnapshotInfo,
    count: *mut c_int,
) -> c_int {
    // SAFETY: a handle of ours.
    if let Err(answer) = unsafe { refused(image) } {
        return answer;
    }
    // SAFETY: as above, the caller's to be filled.
    let (state, count) = unsafe { (state(image), &mut *count) };
    let all = lock(&state.snapshots.all);
    let needed = c_int::try_from(all.len() + 1).unwrap_or(c_int::MAX);
    if *count < needed {
        *count = needed;
        return -libc::ERANGE;
    }
    for (at, one) in all.iter().enumerate() {
        let info = SnapshotInfo {
            id: one.id,
            size_bytes: one.medium.len() as u64,
            name: leaked(&one.name),
        };
        // SAFETY: there is room, as was looked at above.
        unsafe { *to.add(at) = info };
    }
    let end = SnapshotInfo {
        id: 0,
        size_bytes: 0,
        name: ptr::null(),
    };
    // SAFETY: as above.
    unsafe { *to.add(all.len()) = end };
    needed - 1
}

pub(super) unsafe extern "C" fn free_list(mut list: *mut SnapshotInfo) {
    loop {
        // SAFETY: what `list` gave, up to its end.
        let name = unsafe { (*list).name };
        if name.is_null() {
            return;
        }
        // SAFETY: as above.
        unsafe {
            drop(CString::from_raw(name.cast_mut()));
            list = list.add(1);
        }
    }
}

/// A name with a space is that of one in the trash.
pub(super) unsafe extern "C" fn kind(image: Handle, id: u64, kind: *mut c_int) -> c_int {
    // SAFETY: a handle of ours.
    let all = lock(&unsafe { state(image) }.snapshots.all);
    let Some(one) = all.iter().find(|one| one.id == id) else {
        return -libc::ENOENT;
    };
    // SAFETY: the caller's to be filled.
    unsafe { *kind = if one.name.contains(' ') { 2 } else { 0 } };
    0
}

pub(super) unsafe extern "C" fn time(_: Handle, id: u64, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's to be filled.
    unsafe { (*time).tv_sec = i64::try_from(id).unwrap_or_default() };
    0
}

pub(super) unsafe extern "C" fn create(image: Handle, name: *const c_char) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, name) = unsafe { (state(image), CStr::from_ptr(name)) };
    if let Err(answer) = change(state) {
        return answer;
    }
    if state.snapshots.has(name) {
        return -libc::EEXIST;
    }
    let medium = lock(&state.medium).clone();
    let mut all = lock(&state.snapshots.all);
    let id = all.last().map_or(1, |one| one.id + 1);
    all.push(FakeSnapshot {
        id,
        name: name.to_string_lossy().into_owned(),
        medium,
        is_protected: false,
        clones: Vec::new(),
    });
    0
}

pub(super) unsafe extern "C" fn remove(image: Handle, name: *const c_char) -> c_int {
    // SAFETY: a handle of ours.
    let snapshots = &unsafe { state(image) }.snapshots;
    match snapshots.with(name, |one| (one.is_protected, one.id)) {
        None => -libc::ENOENT,
        Some((true, _)) => -libc::EBUSY,
        Some((false, id)) => {
            lock(&snapshots.all).retain(|one| one.id != id);
            0
        }
    }
}

pub(super) unsafe extern "C" fn rename(
    image: Handle,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, to) = unsafe { (state(image), CStr::from_ptr(to)) };
    if let Err(answer) = change(state) {
        return answer;
    }
    if state.snapshots.has(to) {
        return -libc::EEXIST;
    }
    let to = to.to_string_lossy().into_owned();
    match state.snapshots.with(from, |one| one.name = to) {
        Some(()) => 0,
        None => -libc::ENOENT,
    }
}

pub(super) unsafe extern "C" fn is_protected(
    image: Handle,
    name: *const c_char,
    answer: *mut c_int,
) -> c_int {
    // SAFETY: a handle of ours.
    let snapshots = &unsafe { state(image) }.snapshots;
    match snapshots.with(name, |one| one.is_protected) {
        Some(is_protected) => {
            // SAFETY: the caller's to be filled.
            unsafe { *answer = is_protected.into() };
            0
        }
        None => -libc::ENOENT,
    }
}

pub(super) unsafe extern "C" fn roll_back(
    image: Handle,
    name: *const c_char,
    progress: ProgressCallback,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: a handle of ours.
    let state: &Arc<State> = unsafe { state(image) };
    let Some(medium) = state.snapshots.with(name, |one| one.medium.clone()) else {
        return -libc::ENOENT;
    };
    if let Err(answer) = change(state) {
        return answer;
    }
    if !state.snapshots.go(progress, argument) {
        return -libc::ECANCELED;
    }
    state.resize(medium.len());
    *lock(&state.medium) = medium;
    0
}

pub(super) unsafe extern "C" fn children(
    image: Handle,
    to: *mut Child,
    count: *mut usize,
) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    let (state, count) = unsafe { (state(image), &mut *count) };
    let all = lock(&state.snapshots.all);
    let clones: Vec<_> = all.iter().flat_map(|one| &one.clones).collect();
    if *count < clones.len() {
        *count = clones.len();
        return -libc::ERANGE;
    }
    *count = clones.len();
    for (at, name) in clones.into_iter().enumerate() {
        let child = Child {
            pool_id: 7,
            pool_name: leaked("rbd"),
            namespace: leaked(""),
            image_id: leaked("1"),
            image_name: leaked(name),
            is_trash: false,
        };
        // SAFETY: there is room, as was looked at above.
        unsafe { *to.add(at) = child };
    }
    0
}

pub(super) unsafe extern "C" fn free_children(children: *mut Child, count: usize) {
    for at in 0..count {
        // SAFETY: what `children` gave.
        let child = unsafe { *children.add(at) };
        let texts = [
            child.pool_name,
            child.namespace,
            child.image_id,
            child.image_name,
        ];
        for text in texts {
            // SAFETY: as above.
            drop(unsafe { CString::from_raw(text) });
        }
    }
}

pub(super) unsafe extern "C" fn clone(
    pool: Handle,
    _: *const c_char,
    snapshot: *const c_char,
    _: Handle,
    name: *const c_char,
    _: Handle,
) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, name) = unsafe { (state(pool), CStr::from_ptr(name)) };
    let name = name.to_string_lossy().into_owned();
    if name == "disk" {
        return -libc::EEXIST;
    }
    let added = state.snapshots.with(snapshot, |one| one.clones.push(name));
    if added.is_some() { 0 } else { -libc::ENOENT }
}

pub(super) unsafe extern "C" fn flatten(
    image: Handle,
    progress: ProgressCallback,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: a handle of ours.
    let state = unsafe { state(image) };
    if !state.snapshots.is_clone.load(Ordering::SeqCst) {
        return -libc::EINVAL;
    }
    if !state.snapshots.go(progress, argument) {
        return -libc::ECANCELED;
    }
    state.snapshots.is_clone.store(false, Ordering::SeqCst);
    0
}

pub(super) unsafe extern "C" fn remove_image(pool: Handle, name: *const c_char) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, name) = unsafe { (state(pool), CStr::from_ptr(name)) };
    let name = name.to_string_lossy();
    let mut count = 0;
    for snapshot in lock(&state.snapshots.all).iter_mut() {
        count += snapshot.clones.len();
        snapshot.clones.retain(|clone| *clone != name);
        count -= snapshot.clones.len();
    }
    if count == 0 { -libc::ENOENT } else { 0 }
}

pub(super) unsafe extern "C" fn make_options(options: *mut Handle) {
    // SAFETY: the caller's to be filled.
    unsafe { *options = Box::into_raw(Box::new(at(0))).cast() };
}

pub(super) unsafe extern "C" fn free_options(options: Handle) {
    // SAFETY: what `make_options` gave.
    drop(unsafe { Box::from_raw(options.cast::<usize>()) });
}

pub(super) unsafe extern "C" fn set_option(_: Handle, option: c_int, value: u64) -> c_int {
    if (option, value) == (12, 2) {
        0
    } else {
        -libc::EINVAL
    }
}
