//! A cluster in memory, behind the functions of the libraries: one pool `rbd` with one image `disk`.
//!
//! A connection finds it by the name of its configuration file. Requests end on a thread of its own.
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a function of the libraries gets several pointers, for one reason"
)]

mod clients;
mod opening;
mod snapshots;
mod walks;

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::thread;

use clients::{Client, refused};

use crate::calls::{AioCallback, Calls, Handle, ProgressCallback, Setting, WatchCallback};
use crate::{ClusterOptions, Library};

/// How the cluster treats a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    /// It carries it out.
    Prompt,
    /// It carries it out after [`FakeCluster::release`].
    Held,
    /// It ends with this error number.
    Fails(i32),
}

/// What goes wrong beside requests; each is an error number or none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Of connecting.
    pub connect: Option<i32>,
    /// Of taking the exclusive lock.
    pub lock: Option<i32>,
    /// The setting `rbd_cache` of the image; empty: `false`.
    pub cache: &'static str,
    /// Who has the lock, and whether it is there. A client that takes the lock is noted here.
    pub owner: Option<(String, bool)>,
    /// Of breaking the lock of a client.
    pub break_lock: Option<i32>,
    /// The image has no exclusive lock.
    pub is_unlocked: bool,
    /// Of resizing the image and of setting its metadata.
    pub change: Option<i32>,
}

#[derive(Debug)]
enum Deed {
    Read {
        offset: usize,
        to: usize,
        len: usize,
    },
    Write {
        offset: usize,
        from: usize,
        len: usize,
    },
    Zero {
        offset: usize,
        len: usize,
    },
    Compare {
        offset: usize,
        old: usize,
        new: usize,
        len: usize,
        mismatch: usize,
    },
    Flush,
}

#[derive(Debug)]
struct Job {
    deed: Deed,
    manner: Manner,
    /// The completion, as a number: an address of this process.
    completion: usize,
}

#[derive(Debug)]
enum Call {
    Job(Job),
    Release,
}

#[derive(Debug)]
struct State {
    medium: Mutex<Vec<u8>>,
    faults: Mutex<Faults>,
    manners: Mutex<VecDeque<Manner>>,
    /// By number: the callback and what it gets.
    watches: Mutex<HashMap<u64, (WatchCallback, usize)>>,
    calls: Mutex<mpsc::Sender<Call>>,
    connections: AtomicUsize,
    connections_ever: AtomicUsize,
    clients: Mutex<Vec<Weak<Client>>>,
    images: AtomicUsize,
    is_missing: AtomicBool,
    /// The identity of the image that has the name `disk`.
    named: Mutex<Option<String>>,
    has_pool: AtomicBool,
    metadata: Mutex<HashMap<String, String>>,
    /// Held while metadata is set.
    setting: Mutex<()>,
    walks: walks::FakeWalks,
    snapshots: snapshots::FakeSnapshots,
}

/// The identity of the image.
pub const ID: &str = "abc123";

/// A cluster with its one image.
#[derive(Debug)]
pub struct FakeCluster {
    name: String,
    state: Arc<State>,
}

struct FakeCompletion {
    callback: AioCallback,
    argument: *mut c_void,
    result: isize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clusters() -> &'static Mutex<HashMap<String, Arc<State>>> {
    static CLUSTERS: OnceLock<Mutex<HashMap<String, Arc<State>>>> = OnceLock::new();
    CLUSTERS.get_or_init(Mutex::default)
}

/// The functions of all such clusters.
pub fn library() -> Library {
    // SAFETY: they keep to the headers as far as this crate relies on them.
    unsafe { Library::of(&CALLS) }
}

impl FakeCluster {
    /// A cluster with an image of zeros.
    pub fn new(size_bytes: usize) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let file = format!("tarn-fake-cluster-{}-{number}", std::process::id());
        let file = std::env::temp_dir().join(file);
        // Who looks for it finds a file; where that fails a test does.
        drop(std::fs::write(&file, b""));
        let name = file.display().to_string();
        let (calls, queue) = mpsc::channel();
        let state = Arc::new(State {
            medium: Mutex::new(vec![0; size_bytes]),
            faults: Mutex::default(),
            manners: Mutex::default(),
            watches: Mutex::default(),
            calls: Mutex::new(calls),
            connections: AtomicUsize::new(0),
            connections_ever: AtomicUsize::new(0),
            clients: Mutex::default(),
            images: AtomicUsize::new(0),
            is_missing: AtomicBool::new(false),
            named: Mutex::new(Some(ID.to_owned())),
            has_pool: AtomicBool::new(true),
            metadata: Mutex::default(),
            setting: Mutex::default(),
            walks: walks::FakeWalks::default(),
            snapshots: snapshots::FakeSnapshots::default(),
        });
        lock(clusters()).insert(name.clone(), Arc::clone(&state));
        let weak = Arc::downgrade(&state);
        thread::spawn(move || {
            let mut held = Vec::new();
            while let Ok(call) = queue.recv() {
                let Some(state) = weak.upgrade() else {
                    return;
                };
                match call {
                    Call::Job(job) if job.manner == Manner::Held => held.push(job),
                    Call::Job(job) => state.carry_out(job),
                    Call::Release => held.drain(..).for_each(|job| state.carry_out(job)),
                }
            }
        });
        Self { name, state }
    }

    /// How to connect to it.
    pub fn options(&self) -> ClusterOptions {
        ClusterOptions {
            conf: Some(PathBuf::from(&self.name)),
            ..ClusterOptions::default()
        }
    }

    /// How it treats the next requests; those after them it carries out.
    pub fn treat_next(&self, manners: impl IntoIterator<Item = Manner>) {
        lock(&self.state.manners).extend(manners);
    }

    /// Carries out what it held.
    pub fn release(&self) {
        drop(lock(&self.state.calls).send(Call::Release));
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.state.faults) = faults;
    }

    /// Another client resizes the image.
    pub fn resize(&self, size_bytes: usize) {
        self.state.resize(size_bytes);
    }

    /// The image is not there any more.
    pub fn remove_image(&self) {
        self.state.is_missing.store(true, Ordering::SeqCst);
    }

    /// Somebody gives the name of the image to the one with this identity, or to none.
    pub fn rename(&self, id: Option<&str>) {
        *lock(&self.state.named) = id.map(str::to_owned);
    }

    /// Somebody removes the pool.
    pub fn remove_pool(&self) {
        self.state.has_pool.store(false, Ordering::SeqCst);
    }

    /// A text of the metadata of the image.
    pub fn metadata(&self, key: &str) -> Option<String> {
        lock(&self.state.metadata).get(key).cloned()
    }

    /// Metadata that is to be set waits until this is dropped.
    pub fn hang_metadata(&self) -> MutexGuard<'_, ()> {
        lock(&self.state.setting)
    }

    /// Another client sets a text of the metadata.
    pub fn set_metadata(&self, key: &str, value: &str) {
        lock(&self.state.metadata).insert(key.to_owned(), value.to_owned());
    }

    /// A byte of the medium.
    pub fn byte(&self, at: usize) -> u8 {
        lock(&self.state.medium)
            .get(at)
            .copied()
            .unwrap_or_default()
    }

    /// How many connections there are, how many there were ever, and how many open images.
    pub fn counts(&self) -> (usize, usize, usize) {
        let count = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let state = &self.state;
        (
            count(&state.connections),
            count(&state.connections_ever),
            count(&state.images),
        )
    }
}

impl Drop for FakeCluster {
    fn drop(&mut self) {
        lock(clusters()).remove(&self.name);
        drop(std::fs::remove_file(&self.name));
    }
}

impl State {
    fn carry_out(&self, job: Job) {
        let result = match job.manner {
            Manner::Fails(errno) => -(errno as isize),
            Manner::Prompt | Manner::Held => self.apply(&job.deed),
        };
        let completion = job.completion as *mut FakeCompletion;
        // SAFETY: the completion lives until it is released, which its callback does.
        let (callback, argument) = unsafe {
            (*completion).result = result;
            ((*completion).callback, (*completion).argument)
        };
        // SAFETY: as the library calls it: once, with what was given.
        unsafe { callback(completion.cast(), argument) };
    }

    fn apply(&self, deed: &Deed) -> isize {
        let mut medium = lock(&self.medium);
        // SAFETY: memory of a request, which its user keeps until the completion.
        let bytes =
            |at: usize, len: usize| unsafe { std::slice::from_raw_parts(at as *const u8, len) };
        match *deed {
            Deed::Read { offset, to, len } => {
                // SAFETY: as above, and nobody else has it.
                let buffer = unsafe { std::slice::from_raw_parts_mut(to as *mut u8, len) };
                buffer.copy_from_slice(&medium[offset..offset + len]);
                isize::try_from(len).unwrap_or(isize::MAX)
            }
            Deed::Write { offset, from, len } => {
                medium[offset..offset + len].copy_from_slice(bytes(from, len));
                0
            }
            Deed::Zero { offset, len } => {
                medium[offset..offset + len].fill(0);
                0
            }
            Deed::Compare {
                offset,
                old,
                new,
                len,
                mismatch,
            } => {
                let (old, there) = (bytes(old, len), &mut medium[offset..offset + len]);
                if let Some(at) = (0..len).find(|&at| there[at] != old[at]) {
                    // SAFETY: valid until the completion.
                    unsafe { *(mismatch as *mut u64) = at as u64 };
                    return -(libc::EILSEQ as isize);
                }
                there.copy_from_slice(bytes(new, len));
                0
            }
            Deed::Flush => 0,
        }
    }

    fn resize(&self, size_bytes: usize) {
        lock(&self.medium).resize(size_bytes, 0);
        let watches: Vec<_> = lock(&self.watches).values().copied().collect();
        for (callback, argument) in watches {
            // SAFETY: the watch was not ended, so what it gets is there.
            unsafe { callback(argument as *mut c_void) };
        }
    }

    fn begin(&self, deed: Deed, completion: Handle) -> c_int {
        let manner = lock(&self.manners).pop_front().unwrap_or(Manner::Prompt);
        let completion = completion as usize;
        drop(lock(&self.calls).send(Call::Job(Job {
            deed,
            manner,
            completion,
        })));
        0
    }
}

// ---- the functions ---------------------------------------------------------------------------------

/// Behind the handle of a connection.
#[derive(Default)]
struct Connection {
    state: Option<Arc<State>>,
    client: Option<Arc<Client>>,
}

/// Behind the handle of a pool.
#[derive(Clone)]
#[repr(C)]
struct FakePool {
    state: Arc<State>,
    client: Arc<Client>,
}

/// Behind the handle of an image: what a pool has, and what it is.
#[repr(C)]
struct FakeImage {
    pool: FakePool,
    snapshot: Option<CString>,
    id: CString,
    has_lock: AtomicBool,
}

/// What is behind a handle of a pool or an image.
unsafe fn pool<'a>(handle: Handle) -> &'a FakePool {
    // SAFETY: the handle is one of ours.
    unsafe { &*handle.cast::<FakePool>() }
}

/// The state behind it.
unsafe fn state<'a>(handle: Handle) -> &'a Arc<State> {
    // SAFETY: as above.
    &unsafe { pool(handle) }.state
}

fn copy(text: &str, to: *mut c_char, len: usize) -> c_int {
    if text.len() >= len {
        return -libc::ERANGE;
    }
    // SAFETY: there is room for the text and its end.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        *to.add(text.len()) = 0;
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

fn leaked(text: &str) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

unsafe extern "C" fn create(handle: *mut Handle, _: *const c_char) -> c_int {
    // SAFETY: the caller's to be filled.
    unsafe { *handle = Box::into_raw(Box::<Connection>::default()).cast() };
    0
}

unsafe extern "C" fn read_conf(handle: Handle, path: *const c_char) -> c_int {
    if path.is_null() {
        return -libc::ENOENT;
    }
    // SAFETY: a string of C; a handle of ours.
    let (name, connection) = unsafe { (CStr::from_ptr(path), &mut *handle.cast::<Connection>()) };
    connection.state = lock(clusters())
        .get(name.to_str().unwrap_or_default())
        .cloned();
    match connection.state {
        Some(_) => 0,
        None => -libc::ENOENT,
    }
}

unsafe extern "C" fn parse_env(_: Handle, _: *const c_char) -> c_int {
    0
}

unsafe extern "C" fn set(_: Handle, _: *const c_char, _: *const c_char) -> c_int {
    0
}

unsafe extern "C" fn connect(handle: Handle) -> c_int {
    // SAFETY: a handle of ours.
    let connection = unsafe { &mut *handle.cast::<Connection>() };
    let Some(state) = &connection.state else {
        return -libc::EINVAL;
    };
    if let Some(errno) = lock(&state.faults).connect {
        return -errno;
    }
    state.connections.fetch_add(1, Ordering::SeqCst);
    state.connections_ever.fetch_add(1, Ordering::SeqCst);
    let client = Arc::new(Client::new());
    lock(&state.clients).push(Arc::downgrade(&client));
    connection.client = Some(client);
    0
}

unsafe extern "C" fn shutdown(handle: Handle) {
    // SAFETY: a handle of ours, which nobody uses any more.
    let connection = unsafe { Box::from_raw(handle.cast::<Connection>()) };
    if let Some(state) = connection
        .state
        .as_ref()
        .filter(|_| connection.client.is_some())
    {
        state.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn fsid(handle: Handle, to: *mut c_char, len: usize) -> c_int {
    // SAFETY: a handle of ours.
    let connection = unsafe { &*handle.cast::<Connection>() };
    let address = connection
        .state
        .as_ref()
        .map_or(0, |state| Arc::as_ptr(state) as usize);
    copy(&format!("fsid-{address:x}"), to, len)
}

unsafe extern "C" fn open_pool(handle: Handle, name: *const c_char, pool: *mut Handle) -> c_int {
    // SAFETY: a handle of ours, a string of C, the caller's to be filled.
    unsafe {
        let connection = &*handle.cast::<Connection>();
        let (state, client) = (connection.state.clone(), connection.client.clone());
        let (state, client) = (state.unwrap_unchecked(), client.unwrap_unchecked());
        if CStr::from_ptr(name) != c"rbd" || !state.has_pool.load(Ordering::SeqCst) {
            return -libc::ENOENT;
        }
        *pool = Box::into_raw(Box::new(FakePool { state, client })).cast();
    }
    0
}

unsafe extern "C" fn close_pool(pool: Handle) {
    // SAFETY: a handle of ours, which nobody uses any more.
    drop(unsafe { Box::from_raw(pool.cast::<FakePool>()) });
}

unsafe extern "C" fn set_namespace(_: Handle, _: *const c_char) {}

unsafe extern "C" fn full_try(_: Handle) {}

unsafe extern "C" fn pool_id(_: Handle) -> i64 {
    7
}

unsafe extern "C" fn size(image: Handle, size: *mut u64) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe { *size = lock(&state(image).medium).len() as u64 };
    0
}

unsafe extern "C" fn create_image(
    pool: Handle,
    name: *const c_char,
    size_bytes: u64,
    _: *mut c_int,
) -> c_int {
    // SAFETY: a handle of ours, a string of C.
    let (state, name) = unsafe { (state(pool), CStr::from_ptr(name)) };
    if name != c"disk" {
        return -libc::EPERM;
    }
    if !state.is_missing.swap(false, Ordering::SeqCst) {
        return -libc::EEXIST;
    }
    *lock(&state.medium) = vec![0; at(size_bytes)];
    0
}

unsafe extern "C" fn resize(
    image: Handle,
    size_bytes: u64,
    may_shrink: bool,
    progress: ProgressCallback,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: a handle of ours.
    let state = unsafe { state(image) };
    if let Some(errno) = lock(&state.faults).change {
        return -errno;
    }
    if at(size_bytes) < lock(&state.medium).len() && !may_shrink {
        return -libc::EINVAL;
    }
    // SAFETY: as the library calls it, in the course of the call.
    unsafe { progress(1, 1, argument) };
    state.resize(at(size_bytes));
    0
}

unsafe extern "C" fn metadata(
    image: Handle,
    key: *const c_char,
    to: *mut c_char,
    len: *mut usize,
) -> c_int {
    // SAFETY: a handle of ours, a string of C, the caller's to be filled.
    let (state, key, len) = unsafe { (state(image), CStr::from_ptr(key), &mut *len) };
    // SAFETY: a handle of ours.
    if let Err(answer) = unsafe { refused(image) } {
        return answer;
    }
    let Some(value) = lock(&state.metadata).get(&*key.to_string_lossy()).cloned() else {
        return -libc::ENOENT;
    };
    match copy(&value, to, *len) {
        done if done >= 0 => 0,
        too_short => {
            *len = value.len() + 1;
            too_short
        }
    }
}

unsafe extern "C" fn set_metadata(
    image: Handle,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: a handle of ours, strings of C.
    let (state, key, value) = unsafe { (state(image), CStr::from_ptr(key), CStr::from_ptr(value)) };
    let _turn = lock(&state.setting);
    // SAFETY: a handle of ours.
    if let Err(answer) = unsafe { refused(image) } {
        return answer;
    }
    if let Some(errno) = lock(&state.faults).change {
        return -errno;
    }
    let [key, value] = [key, value].map(|text| text.to_string_lossy().into_owned());
    lock(&state.metadata).insert(key, value);
    0
}

unsafe extern "C" fn features(image: Handle, features: *mut u64) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe {
        let is_unlocked = lock(&state(image).faults).is_unlocked;
        *features = if is_unlocked { 0x1 } else { 0x3d };
    }
    0
}

unsafe extern "C" fn stripe_unit(_: Handle, unit: *mut u64) -> c_int {
    // SAFETY: the caller's to be filled.
    unsafe { *unit = 4 << 20 };
    0
}

unsafe extern "C" fn id(image: Handle, to: *mut c_char, len: usize) -> c_int {
    // SAFETY: a handle of ours.
    let image = unsafe { &*image.cast::<FakeImage>() };
    copy(image.id.to_str().unwrap_or_default(), to, len)
}

unsafe extern "C" fn settings(image: Handle, to: *mut Setting, count: *mut c_int) -> c_int {
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe {
        let value = match lock(&state(image).faults).cache {
            "" => "false".to_owned(),
            value => value.to_owned(),
        };
        *to = Setting {
            name: leaked("rbd_cache"),
            value: leaked(&value),
            source: 2,
        };
        *count = 1;
    }
    0
}

unsafe extern "C" fn free_settings(settings: *mut Setting, _: c_int) {
    // SAFETY: what `settings` gave.
    unsafe {
        drop(CString::from_raw((*settings).name));
        drop(CString::from_raw((*settings).value));
    }
}

unsafe extern "C" fn watch(
    image: Handle,
    number: *mut u64,
    callback: WatchCallback,
    argument: *mut c_void,
) -> c_int {
    static NUMBERS: AtomicUsize = AtomicUsize::new(1);
    let new = NUMBERS.fetch_add(1, Ordering::SeqCst) as u64;
    // SAFETY: a handle of ours, the caller's to be filled.
    unsafe {
        *number = new;
        lock(&state(image).watches).insert(new, (callback, argument as usize));
    }
    0
}

unsafe extern "C" fn unwatch(image: Handle, number: u64) -> c_int {
    // SAFETY: a handle of ours.
    lock(&unsafe { state(image) }.watches).remove(&number);
    0
}

unsafe extern "C" fn create_completion(
    argument: *mut c_void,
    callback: AioCallback,
    completion: *mut Handle,
) -> c_int {
    let new = Box::new(FakeCompletion {
        callback,
        argument,
        result: 0,
    });
    // SAFETY: the caller's to be filled.
    unsafe { *completion = Box::into_raw(new).cast() };
    0
}

unsafe extern "C" fn release(completion: Handle) {
    // SAFETY: one of ours, which nobody uses any more.
    drop(unsafe { Box::from_raw(completion.cast::<FakeCompletion>()) });
}

unsafe extern "C" fn return_value(completion: Handle) -> isize {
    // SAFETY: one of ours.
    unsafe { (*completion.cast::<FakeCompletion>()).result }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

unsafe extern "C" fn read(
    image: Handle,
    offset: u64,
    len: usize,
    to: *mut c_char,
    end: Handle,
) -> c_int {
    let deed = Deed::Read {
        offset: at(offset),
        to: to as usize,
        len,
    };
    // SAFETY: a handle of ours.
    unsafe { state(image) }.begin(deed, end)
}

unsafe extern "C" fn write(
    image: Handle,
    offset: u64,
    len: usize,
    from: *const c_char,
    end: Handle,
) -> c_int {
    let deed = Deed::Write {
        offset: at(offset),
        from: from as usize,
        len,
    };
    // SAFETY: a handle of ours.
    unsafe { state(image) }.begin(deed, end)
}

unsafe extern "C" fn flush(image: Handle, end: Handle) -> c_int {
    // SAFETY: a handle of ours.
    unsafe { state(image) }.begin(Deed::Flush, end)
}

unsafe extern "C" fn zeroes(
    image: Handle,
    offset: u64,
    len: usize,
    end: Handle,
    _: c_int,
    _: c_int,
) -> c_int {
    let deed = Deed::Zero {
        offset: at(offset),
        len,
    };
    // SAFETY: a handle of ours.
    unsafe { state(image) }.begin(deed, end)
}

unsafe extern "C" fn compare(
    image: Handle,
    offset: u64,
    len: usize,
    old: *const c_char,
    new: *const c_char,
    end: Handle,
    mismatch: *mut u64,
    _: c_int,
) -> c_int {
    // As the library does.
    if len > 512 {
        return -libc::EINVAL;
    }
    let deed = Deed::Compare {
        offset: at(offset),
        old: old as usize,
        new: new as usize,
        len,
        mismatch: mismatch as usize,
    };
    // SAFETY: a handle of ours.
    unsafe { state(image) }.begin(deed, end)
}

static CALLS: Calls = Calls {
    rados_create: create,
    rados_conf_read_file: read_conf,
    rados_conf_parse_env: parse_env,
    rados_conf_set: set,
    rados_connect: connect,
    rados_shutdown: shutdown,
    rados_cluster_fsid: fsid,
    rados_getaddrs: clients::addresses,
    rados_buffer_free: clients::free_addresses,
    rados_ioctx_create: open_pool,
    rados_ioctx_destroy: close_pool,
    rados_ioctx_set_namespace: set_namespace,
    rados_set_pool_full_try: full_try,
    rados_ioctx_get_id: pool_id,
    rados_read: opening::read_object,
    rbd_create: create_image,
    rbd_resize2: resize,
    rbd_metadata_get: metadata,
    rbd_metadata_set: set_metadata,
    rbd_open: opening::open,
    rbd_open_read_only: opening::open,
    rbd_open_by_id: opening::open_by_id,
    rbd_open_by_id_read_only: opening::open_by_id,
    rbd_close: opening::close,
    rbd_get_size: size,
    rbd_get_features: features,
    rbd_get_flags: walks::flags,
    rbd_get_stripe_unit: stripe_unit,
    rbd_get_id: id,
    rbd_config_image_list: settings,
    rbd_config_image_list_cleanup: free_settings,
    rbd_lock_get_owners: clients::owners,
    rbd_lock_get_owners_cleanup: clients::free_owners,
    rbd_lock_acquire: clients::acquire,
    rbd_lock_break: clients::break_lock,
    rbd_watchers_list: clients::watchers,
    rbd_watchers_list_cleanup: clients::free_watchers,
    rbd_update_watch: watch,
    rbd_update_unwatch: unwatch,
    rbd_diff_iterate2: walks::diff,
    rbd_snap_list: snapshots::list,
    rbd_snap_list_end: snapshots::free_list,
    rbd_snap_get_namespace_type: snapshots::kind,
    rbd_snap_get_timestamp: snapshots::time,
    rbd_snap_create: snapshots::create,
    rbd_snap_remove: snapshots::remove,
    rbd_snap_rename: snapshots::rename,
    rbd_snap_is_protected: snapshots::is_protected,
    rbd_snap_rollback_with_progress: snapshots::roll_back,
    rbd_list_children3: snapshots::children,
    rbd_linked_image_spec_list_cleanup: snapshots::free_children,
    rbd_clone3: snapshots::clone,
    rbd_flatten_with_progress: snapshots::flatten,
    rbd_remove: snapshots::remove_image,
    rbd_image_options_create: snapshots::make_options,
    rbd_image_options_destroy: snapshots::free_options,
    rbd_image_options_set_uint64: snapshots::set_option,
    rbd_aio_create_completion: create_completion,
    rbd_aio_release: release,
    rbd_aio_get_return_value: return_value,
    rbd_aio_read: read,
    rbd_aio_write: write,
    rbd_aio_flush: flush,
    rbd_aio_write_zeroes: zeroes,
    rbd_aio_compare_and_write: compare,
};
