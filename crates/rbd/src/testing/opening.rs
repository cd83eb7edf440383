//! How the image is found and opened.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use super::clients::refused;
use super::{FakeImage, FakePool, ID, lock, state};
use crate::calls::Handle;

pub(super) unsafe extern "C" fn read_object(
    pool: Handle,
    object: *const c_char,
    to: *mut c_char,
    len: usize,
    _: u64,
) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (answer, state, object) = unsafe { (refused(pool), state(pool), CStr::from_ptr(object)) };
    if let Err(answer) = answer {
        return answer;
    }
    let id = lock(&state.named).clone();
    let id = id.filter(|_| object == c"rbd_id.disk" && !state.is_missing.load(Ordering::SeqCst));
    let Some(id) = id else {
        return -libc::ENOENT;
    };
    let mut bytes = u32::try_from(id.len())
        .unwrap_or_default()
        .to_le_bytes()
        .to_vec();
    bytes.extend(id.bytes());
    bytes.truncate(len);
    // SAFETY: there is room for them.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    c_int::try_from(bytes.len()).unwrap_or(c_int::MAX)
}

pub(super) unsafe extern "C" fn open(
    pool: Handle,
    name: *const c_char,
    image: *mut Handle,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, name) = unsafe { (state(pool), CStr::from_ptr(name)) };
    let id = lock(&state.named).clone().filter(|_| name == c"disk");
    let Some(id) = id.and_then(|id| CString::new(id).ok()) else {
        return -libc::ENOENT;
    };
    // SAFETY: as of the caller.
    unsafe { open_by_id(pool, id.as_ptr(), image, snapshot) }
}

pub(super) unsafe extern "C" fn open_by_id(
    pool: Handle,
    id: *const c_char,
    image: *mut Handle,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: a handle of ours, strings of C or null, the caller's to be filled.
    unsafe {
        if let Err(answer) = refused(pool) {
            return answer;
        }
        let (pool, state, id) = (super::pool(pool).clone(), state(pool), CStr::from_ptr(id));
        let is_named = lock(&state.named).as_deref() == id.to_str().ok();
        let has = |snapshot: &CStr| snapshot == c"yesterday" || state.snapshots.has(snapshot);
        let is_there = snapshot.is_null() || has(CStr::from_ptr(snapshot));
        if !is_there || !is_named && id.to_bytes() != ID.as_bytes() {
            return -libc::ENOENT;
        }
        if state.is_missing.load(Ordering::SeqCst) {
            return -libc::ENOENT;
        }
        state.images.fetch_add(1, Ordering::SeqCst);
        let snapshot = (!snapshot.is_null()).then(|| CStr::from_ptr(snapshot).to_owned());
        if snapshot.is_some() {
            state.walks.note_opening();
        }
        let opened = FakeImage {
            pool,
            snapshot,
            id: id.to_owned(),
            has_lock: AtomicBool::new(false),
        };
        *image = Box::into_raw(Box::new(opened)).cast();
    }
    0
}

pub(super) unsafe extern "C" fn close(image: Handle) -> c_int {
    // SAFETY: a handle of ours, which nobody uses any more.
    let image = unsafe { Box::from_raw(image.cast::<FakeImage>()) };
    let FakePool { state, client } = &image.pool;
    state.images.fetch_sub(1, Ordering::SeqCst);
    let owner = &mut lock(&state.faults).owner;
    let is_owner = owner
        .as_ref()
        .is_some_and(|(address, _)| *address == client.address);
    if is_owner && image.has_lock.load(Ordering::SeqCst) {
        *owner = None;
    }
    0
}
