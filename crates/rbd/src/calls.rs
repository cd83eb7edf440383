//! The functions of librados and librbd that are used, and how they are found.
//!
//! Spec: rados/librados.h and rbd/librbd.h of Ceph 16.2; all of these are in later ones, too.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// A handle of the libraries: an address that only they look at.
pub(crate) type Handle = *mut c_void;

/// The end of a request. The second argument is what was given with it.
pub(crate) type AioCallback = unsafe extern "C" fn(Handle, *mut c_void);
/// Something about an image has changed.
pub(crate) type WatchCallback = unsafe extern "C" fn(*mut c_void);
/// A part of an image: offset, length, whether it holds data, what was given with it. A negative answer ends the walk.
pub(crate) type DiffCallback = unsafe extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// Who watches an image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    /// The address of the client.
    pub(crate) address: *mut c_char,
    /// The number of the client.
    pub(crate) id: i64,
    /// The name of the watch.
    pub(crate) cookie: u64,
}

/// How far something has come: of how much, what was given with it.
pub(crate) type ProgressCallback = unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int;

/// One setting of an image, as it is in force.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Its name.
    pub(crate) name: *mut c_char,
    /// Its value.
    pub(crate) value: *mut c_char,
    /// Where it is set: 0 nowhere but in the configuration, 1 in the pool, 2 in the image.
    pub(crate) source: c_int,
}

/// One snapshot of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotInfo {
    /// Its number.
    pub(crate) id: u64,
    /// The size of the image then.
    pub(crate) size_bytes: u64,
    /// Its name; null behind the last one.
    pub(crate) name: *const c_char,
}

/// One clone of a snapshot.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    /// The number of its pool.
    pub(crate) pool_id: i64,
    /// The name of its pool.
    pub(crate) pool_name: *mut c_char,
    /// Its namespace there.
    pub(crate) namespace: *mut c_char,
    /// Its identity in the pool.
    pub(crate) image_id: *mut c_char,
    /// Its name.
    pub(crate) image_name: *mut c_char,
    /// It is in the trash.
    pub(crate) is_trash: bool,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $library:ident $name:ident($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The functions, as addresses: those of the libraries, or of a test.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Calls {
            $(
                $(#[$doc])*
                pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,
            )*
        }

        impl Calls {
            fn find(rados: Handle, rbd: Handle) -> Result<Self, LoadError> {
                let find = |library: &str, name: &'static str| {
                    let from = if library == "rados" { rados } else { rbd };
                    let text = CString::new(name).map_err(|_| LoadError::TooOld { name })?;
                    // SAFETY: the library is loaded and stays so; the name is a string of C.
                    let address = unsafe { libc::dlsym(from, text.as_ptr()) };
                    match address.is_null() {
                        true => Err(LoadError::TooOld { name }),
                        false => Ok(address),
                    }
                };
                Ok(Self {
                    $(
                        // SAFETY: an address of a function; the headers of the libraries give it this type.
                        $name: unsafe {
                            std::mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) $(-> $answer)?>(
                                find(stringify!($library), stringify!($name))?,
                            )
                        },
                    )*
                })
            }
        }
    };
}

calls! {
    /// Makes a connection that is not connected yet; the user may be null.
    rados rados_create(*mut Handle, *const c_char) -> c_int;
    /// Reads a configuration file; null for the usual places.
    rados rados_conf_read_file(Handle, *const c_char) -> c_int;
    /// Takes what is in the environment (`CEPH_ARGS`).
    rados rados_conf_parse_env(Handle, *const c_char) -> c_int;
    /// Sets an option.
    rados rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
    /// Connects.
    rados rados_connect(Handle) -> c_int;
    /// Ends a connection, connected or not.
    rados rados_shutdown(Handle);
    /// The identity of the cluster.
    rados rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
    /// The addresses of this client.
    rados rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
    /// Frees what that gave.
    rados rados_buffer_free(*mut c_char);
    /// Opens a pool.
    rados rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
    /// Closes it.
    rados rados_ioctx_destroy(Handle);
    /// Chooses a namespace of the pool.
    rados rados_ioctx_set_namespace(Handle, *const c_char);
    /// Requests that find the pool full fail instead of waiting for space.
    rados rados_set_pool_full_try(Handle);
    /// The number of the pool.
    rados rados_ioctx_get_id(Handle) -> i64;
    /// Reads from an object: so many bytes from an offset on.
    rados rados_read(Handle, *const c_char, *mut c_char, usize, u64) -> c_int;
    /// Makes an image of this size; the order of its objects is filled in, zero for the usual one.
    rbd rbd_create(Handle, *const c_char, u64, *mut c_int) -> c_int;
    /// Opens an image, of a snapshot or null.
    rbd rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    /// The same, for reading.
    rbd rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    /// Opens the image with this identity, of a snapshot or null.
    rbd rbd_open_by_id(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    /// The same, for reading.
    rbd rbd_open_by_id_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
    /// Closes it when its requests have ended.
    rbd rbd_close(Handle) -> c_int;
    /// Its size in bytes.
    rbd rbd_get_size(Handle, *mut u64) -> c_int;
    /// Gives it another size, which is smaller only if that is allowed.
    rbd rbd_resize2(Handle, u64, bool, ProgressCallback, *mut c_void) -> c_int;
    /// A text of its metadata. The length is that of the place, and is set to what is needed where it is too short.
    rbd rbd_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
    /// Sets one.
    rbd rbd_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
    /// Its features, a bit each.
    rbd rbd_get_features(Handle, *mut u64) -> c_int;
    /// What does not hold of its features now, a bit each.
    rbd rbd_get_flags(Handle, *mut u64) -> c_int;
    /// How many bytes lie in one object before the next.
    rbd rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
    /// Its identity in the pool.
    rbd rbd_get_id(Handle, *mut c_char, usize) -> c_int;
    /// Its settings.
    rbd rbd_config_image_list(Handle, *mut Setting, *mut c_int) -> c_int;
    /// Frees what that gave.
    rbd rbd_config_image_list_cleanup(*mut Setting, c_int);
    /// Who has the exclusive lock.
    rbd rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
    /// Frees what that gave.
    rbd rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
    /// Takes the exclusive lock.
    rbd rbd_lock_acquire(Handle, c_int) -> c_int;
    /// Breaks the exclusive lock of the client at this address, and has the cluster refuse what that sends from now on.
    rbd rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
    /// Who watches.
    rbd rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
    /// Frees what that gave.
    rbd rbd_watchers_list_cleanup(*mut Watcher, usize);
    /// Begins to watch.
    rbd rbd_update_watch(Handle, *mut u64, WatchCallback, *mut c_void) -> c_int;
    /// Ends that.
    rbd rbd_update_unwatch(Handle, u64) -> c_int;
    /// Walks over the parts of an image that differ from a snapshot, or with null from nothing.
    rbd rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, DiffCallback, *mut c_void) -> c_int;
    /// The snapshots of an image. The count is that of the places, one more than there are; it is set to what is needed
    /// where it is too small.
    rbd rbd_snap_list(Handle, *mut SnapshotInfo, *mut c_int) -> c_int;
    /// Frees what that gave.
    rbd rbd_snap_list_end(*mut SnapshotInfo);
    /// Whose snapshot it is: 0 for those of users.
    rbd rbd_snap_get_namespace_type(Handle, u64, *mut c_int) -> c_int;
    /// When it was taken.
    rbd rbd_snap_get_timestamp(Handle, u64, *mut libc::timespec) -> c_int;
    /// Takes a snapshot.
    rbd rbd_snap_create(Handle, *const c_char) -> c_int;
    /// Removes one.
    rbd rbd_snap_remove(Handle, *const c_char) -> c_int;
    /// Gives one another name.
    rbd rbd_snap_rename(Handle, *const c_char, *const c_char) -> c_int;
    /// Whether somebody keeps it from being removed.
    rbd rbd_snap_is_protected(Handle, *const c_char, *mut c_int) -> c_int;
    /// Gives the image the data and the size of a snapshot.
    rbd rbd_snap_rollback_with_progress(Handle, *const c_char, ProgressCallback, *mut c_void) -> c_int;
    /// The clones of the snapshot that is open. The count is that of the places, and is set to what is needed.
    rbd rbd_list_children3(Handle, *mut Child, *mut usize) -> c_int;
    /// Frees what that gave.
    rbd rbd_linked_image_spec_list_cleanup(*mut Child, usize);
    /// Makes an image that begins with the data of a snapshot: of this image and name, and where with what name.
    rbd rbd_clone3(Handle, *const c_char, *const c_char, Handle, *const c_char, Handle) -> c_int;
    /// Gives a clone all data of its snapshot.
    rbd rbd_flatten_with_progress(Handle, ProgressCallback, *mut c_void) -> c_int;
    /// Removes an image.
    rbd rbd_remove(Handle, *const c_char) -> c_int;
    /// Makes options for an image.
    rbd rbd_image_options_create(*mut Handle);
    /// Frees them.
    rbd rbd_image_options_destroy(Handle);
    /// Sets one of them.
    rbd rbd_image_options_set_uint64(Handle, c_int, u64) -> c_int;
    /// Makes what a request ends with.
    rbd rbd_aio_create_completion(*mut c_void, AioCallback, *mut Handle) -> c_int;
    /// Gives it back.
    rbd rbd_aio_release(Handle);
    /// How the request ended.
    rbd rbd_aio_get_return_value(Handle) -> isize;
    /// Begins to read.
    rbd rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
    /// Begins to write.
    rbd rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
    /// Begins to flush.
    rbd rbd_aio_flush(Handle, Handle) -> c_int;
    /// Begins to write zeros.
    rbd rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
    /// Begins to compare and write.
    rbd rbd_aio_compare_and_write(
        Handle, u64, usize, *const c_char, *const c_char, Handle, *mut u64, c_int
    ) -> c_int;
}

/// The libraries, which stay loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Library(pub(crate) &'static Calls);

/// Why there are no libraries.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// One is not there, or cannot be loaded.
    #[error("cannot load the library {file} ({reason}); {remedy}")]
    Missing {
        /// Its file.
        file: &'static str,
        /// As the loader says it.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// One lacks a function.
    #[error(
        "the libraries of Ceph have no function {name}; install librados2 and librbd1 16.2 or later"
    )]
    TooOld {
        /// Which.
        name: &'static str,
    },
}

const REMEDY: &str = match cfg!(target_env = "musl") {
    true => "this static build of Tarn cannot load libraries, use the one for glibc",
    false => {
        "install librbd1 and librados2 16.2 or later (Debian, Ubuntu; elsewhere librbd1 and librados2 or ceph-common)"
    }
};

impl Library {
    /// Loads them, at the first call; a process that gave up the right to load code has to do this before.
    ///
    /// # Errors
    ///
    /// They are not there, or too old. A later call tries again.
    pub fn load() -> Result<Self, LoadError> {
        static LOADED: OnceLock<Calls> = OnceLock::new();
        if let Some(calls) = LOADED.get() {
            return Ok(Self(calls));
        }
        let rados = open(c"librados.so.2", "librados.so.2")?;
        let rbd = open(c"librbd.so.1", "librbd.so.1")?;
        let calls = Calls::find(rados, rbd)?;
        Ok(Self(LOADED.get_or_init(|| calls)))
    }

    /// Functions of a test instead.
    ///
    /// # Safety
    ///
    /// They keep to what the headers of the libraries say.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) const unsafe fn of(calls: &'static Calls) -> Self {
        Self(calls)
    }
}

fn open(name: &CStr, file: &'static str) -> Result<Handle, LoadError> {
    // SAFETY: the name is a string of C; the libraries are those of the system, whose beginning may run here.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return Ok(library);
    }
    // SAFETY: it has no precondition.
    let text = unsafe { libc::dlerror() };
    let reason = match text.is_null() {
        true => String::new(),
        // SAFETY: it is a string of C, and stays until the next call of the loader on this thread.
        false => unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned(),
    };
    Err(LoadError::Missing {
        file,
        // The loader begins with the name of the file.
        reason: reason
            .trim_start_matches(file)
            .trim_start_matches(": ")
            .to_owned(),
        remedy: REMEDY,
    })
}
