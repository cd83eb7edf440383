//! The clients of the cluster, and who of them has the lock of the image.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{Connection, FakeCluster, FakeImage, FakePool, State, leaked, lock, pool, state};
use crate::calls::{Handle, Watcher};

/// A connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) address: String,
    /// It was blocklisted.
    pub(super) is_fenced: AtomicBool,
}

impl Client {
    /// One that has connected just now.
    pub(super) fn new() -> Self {
        static NUMBERS: AtomicUsize = AtomicUsize::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::SeqCst);
        Self {
            address: format!("198.51.100.1:0/{number}"),
            is_fenced: AtomicBool::new(false),
        }
    }
}

impl FakeCluster {
    /// The addresses of the connections that there are, and whether each was blocklisted.
    pub fn clients(&self) -> Vec<(String, bool)> {
        let clients = lock(&self.state.clients);
        let clients = clients.iter().filter_map(Weak::upgrade);
        clients
            .map(|one| (one.address.clone(), one.is_fenced.load(Ordering::SeqCst)))
            .collect()
    }

    /// Another client has the cluster refuse what the connections send that there are. Their watches end.
    pub fn fence_all(&self) {
        let clients: Vec<_> = lock(&self.state.clients)
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for client in clients {
            self.state.fence(&client.address);
        }
    }

    /// Who has the lock of the image.
    pub fn owner(&self) -> Option<String> {
        lock(&self.state.faults)
            .owner
            .clone()
            .map(|(address, _)| address)
    }

    /// Who has the lock of the image from now on, and whether that is there.
    pub fn set_owner(&self, owner: Option<(&str, bool)>) {
        let owner = owner.map(|(address, is_alive)| (address.to_owned(), is_alive));
        lock(&self.state.faults).owner = owner;
    }
}

impl State {
    /// Refuses what the client at an address sends.
    pub(super) fn fence(&self, fenced: &str) {
        for client in lock(&self.clients).iter().filter_map(Weak::upgrade) {
            if client.address == fenced {
                client.is_fenced.store(true, Ordering::SeqCst);
            }
        }
        if let Some((address, is_alive)) = &mut lock(&self.faults).owner
            && address == fenced
        {
            *is_alive = false;
        }
    }
}

/// What a client is answered that was blocklisted.
pub(super) unsafe fn refused(handle: Handle) -> Result<(), c_int> {
    // SAFETY: as above.
    match unsafe { pool(handle) }
        .client
        .is_fenced
        .load(Ordering::SeqCst)
    {
        true => Err(-libc::ESHUTDOWN),
        false => Ok(()),
    }
}

pub(super) unsafe extern "C" fn addresses(handle: Handle, to: *mut *mut c_char) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe {
        let client = &(*handle.cast::<Connection>()).client;
        *to = leaked(client.as_ref().map_or("", |client| &client.address));
    }
    0
}

pub(super) unsafe extern "C" fn free_addresses(text: *mut c_char) {
    // SAFETY: what `addresses` gave.
    drop(unsafe { CString::from_raw(text) });
}

pub(super) unsafe extern "C" fn owners(
    image: Handle,
    mode: *mut c_int,
    owners: *mut *mut c_char,
    count: *mut usize,
) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe {
        if let Err(answer) = refused(image) {
            return answer;
        }
        let Some((address, _)) = lock(&state(image).faults).owner.clone() else {
            return -libc::ENOENT;
        };
        *mode = 0;
        *owners = leaked(&address);
        *count = 1;
    }
    0
}

pub(super) unsafe extern "C" fn free_owners(owners: *mut *mut c_char, _: usize) {
    // SAFETY: what `owners` gave.
    drop(unsafe { CString::from_raw(*owners) });
}

pub(super) unsafe extern "C" fn acquire(image: Handle, _: c_int) -> c_int {
    // SAFETY: a handle of ours.
    if let Err(answer) = unsafe { refused(image) } {
        return answer;
    }
    // SAFETY: as above.
    let image = unsafe { &*image.cast::<FakeImage>() };
    let FakePool { state, client } = &image.pool;
    let before = {
        let mut faults = lock(&state.faults);
        let own = Some((client.address.clone(), true));
        match (faults.lock, &faults.owner) {
            (Some(errno), _) => return -errno,
            (None, Some((address, true))) if *address != client.address => return -libc::EROFS,
            (None, _) => std::mem::replace(&mut faults.owner, own),
        }
    };
    image.has_lock.store(true, Ordering::SeqCst);
    // That of a client that is gone is broken.
    if let Some((address, _)) = before.filter(|(address, _)| *address != client.address) {
        state.fence(&address);
    }
    0
}

pub(super) unsafe extern "C" fn break_lock(
    image: Handle,
    _: c_int,
    address: *const c_char,
) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, address) = unsafe { (state(image), CStr::from_ptr(address)) };
    let owner = {
        let faults = lock(&state.faults);
        match faults.break_lock {
            Some(errno) => return -errno,
            None => faults.owner.clone(),
        }
    };
    match owner {
        Some((owner, _)) if owner.as_bytes() == address.to_bytes() => {
            state.fence(&owner);
            lock(&state.faults).owner = None;
            0
        }
        Some(_) => -libc::EBUSY,
        None => -libc::ENOENT,
    }
}

pub(super) unsafe extern "C" fn watchers(
    image: Handle,
    to: *mut Watcher,
    count: *mut usize,
) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe {
        let owner = lock(&state(image).faults).owner.clone();
        let address = owner.filter(|(_, is_alive)| *is_alive);
        *count = usize::from(address.is_some());
        if let Some((address, _)) = address {
            *to = Watcher {
                address: leaked(&address),
                id: 1,
                cookie: 1,
            };
        }
    }
    0
}

pub(super) unsafe extern "C" fn free_watchers(watchers: *mut Watcher, count: usize) {
    for at in 0..count {
        // SAFETY: what `watchers` gave.
        drop(unsafe { CString::from_raw((*watchers.add(at)).address) });
    }
}
