//! A connection to a cluster, and a pool of it.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::calls::{Calls, Handle};
use crate::own::Own;
use crate::{CallError, Library, check};

/// `ENAMETOOLONG`, `EINVAL`: of this platform.
const INVALID: i32 = libc::EINVAL;
/// Longer identities of images are none.
const ID_BYTES_MAX: usize = 124;

/// Which cluster, and as whom. What is left out is as Ceph's own tools have it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct ClusterOptions {
    /// The configuration file.
    pub conf: Option<PathBuf>,
    /// The user, without `client.`.
    pub user: Option<String>,
    /// The file of the user's key.
    pub keyring: Option<PathBuf>,
}

/// How long a connection waits for a cluster that does not answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Patience {
    /// So long for each step, to look at something.
    Within(Duration),
    /// So long to connect; requests wait until the cluster can carry them out, as long as it takes.
    Endless {
        /// To connect.
        connect: Duration,
    },
}

/// A connection to a cluster. It ends when it is dropped, which may take a moment.
pub struct Cluster {
    pub(crate) calls: &'static Calls,
    handle: Handle,
    /// Its address, once it is connected.
    own: Option<Own>,
    is_fenced: AtomicBool,
}

// SAFETY: librados may be called from any thread, and its handles belong to none.
unsafe impl Send for Cluster {}
// SAFETY: as above; its functions take the locks that they need.
unsafe impl Sync for Cluster {}

impl Cluster {
    /// Reads the configuration and connects. Blocks.
    ///
    /// # Errors
    ///
    /// The one of the call that failed; the configuration file is `rados_conf_read_file`, the key and the monitors are
    /// `rados_connect`.
    pub fn connect(
        library: Library,
        options: &ClusterOptions,
        patience: Patience,
    ) -> Result<Self, CallError> {
        let calls = library.0;
        let user = options.user.as_deref().map(text).transpose()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the handle is ours to fill; the user is a string of C or null.
        let answer = unsafe { (calls.rados_create)(&raw mut handle, pointer(user.as_ref())) };
        check("rados_create", answer)?;
        let mut cluster = Self {
            calls,
            handle,
            own: None,
            is_fenced: AtomicBool::new(false),
        };
        let conf = options.conf.as_deref().map(text_of_path).transpose()?;
        // SAFETY: the handle is one, the path a string of C or null.
        let answer = unsafe { (calls.rados_conf_read_file)(handle, pointer(conf.as_ref())) };
        check("rados_conf_read_file", answer)?;
        // SAFETY: the handle is one; null stands for CEPH_ARGS.
        let answer = unsafe { (calls.rados_conf_parse_env)(handle, ptr::null()) };
        check("rados_conf_parse_env", answer)?;
        cluster.set_all(options, patience)?;
        // SAFETY: the handle is one and is not connected.
        let answer = unsafe { (calls.rados_connect)(handle) };
        check("rados_connect", answer)?;
        cluster.own = Some(Own::new(&cluster.addresses()?));
        Ok(cluster)
    }

    fn addresses(&self) -> Result<String, CallError> {
        let mut addresses = ptr::null_mut();
        // SAFETY: connected; the library fills in a string of C.
        let answer = unsafe { (self.calls.rados_getaddrs)(self.handle, &raw mut addresses) };
        check("rados_getaddrs", answer)?;
        // SAFETY: a string of C until it is given back below.
        let text = unsafe { string(addresses) };
        // SAFETY: what was filled is given back once.
        unsafe { (self.calls.rados_buffer_free)(addresses) };
        Ok(text)
    }

    /// The address of this client, as the cluster shows it.
    pub fn address(&self) -> &str {
        self.own.as_ref().map_or("", Own::address)
    }

    /// Whether the cluster refuses what this client sends, for all pools and images, and always will.
    pub fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::SeqCst)
    }

    /// Some request has ended with `ESHUTDOWN`: the cluster has blocklisted this client.
    pub fn set_fenced(&self) {
        self.is_fenced.store(true, Ordering::SeqCst);
        if let Some(own) = &self.own {
            own.end();
        }
    }

    /// The result of a call over this connection, which shows whether it was blocklisted.
    pub(crate) fn check(&self, call: &'static str, answer: i32) -> Result<u32, CallError> {
        let checked = check(call, answer);
        if checked.is_err_and(|error| error.errno == libc::ESHUTDOWN) {
            self.set_fenced();
        }
        checked
    }

    fn set_all(&self, options: &ClusterOptions, patience: Patience) -> Result<(), CallError> {
        for (name, value) in [
            // An answered write is on the disks of the cluster.
            ("rbd_cache", "false"),
            // Who calls must not wait for others; what there is at a time is bounded by the handles.
            ("objecter_inflight_ops", "0"),
            ("objecter_inflight_op_bytes", "0"),
            // Nobody asks for the first; the second would go to the standard error of the program.
            ("admin_socket", ""),
            ("log_to_stderr", "false"),
            ("err_to_stderr", "false"),
        ] {
            self.set(name, value)?;
        }
        if let Some(keyring) = &options.keyring {
            let path = keyring.to_str().ok_or(CallError {
                call: "rados_conf_set",
                errno: INVALID,
            })?;
            self.set("keyring", path)?;
        }
        match patience {
            Patience::Within(limit) => {
                let seconds = limit.as_secs().max(1).to_string();
                self.set("client_mount_timeout", &seconds)?;
                self.set("rados_mon_op_timeout", &seconds)?;
                self.set("rados_osd_op_timeout", &seconds)
            }
            Patience::Endless { connect } => {
                let seconds = connect.as_secs().max(1).to_string();
                self.set("client_mount_timeout", &seconds)?;
                // A write that the library gave up could still reach the medium.
                self.set("rados_osd_op_timeout", "0")
            }
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<(), CallError> {
        let (name, value) = (text(name)?, text(value)?);
        // SAFETY: the handle is one, both are strings of C.
        let answer =
            unsafe { (self.calls.rados_conf_set)(self.handle, name.as_ptr(), value.as_ptr()) };
        check("rados_conf_set", answer).map(drop)
    }

    /// The identity of the cluster.
    ///
    /// # Errors
    ///
    /// The library gives none.
    pub fn fsid(&self) -> Result<String, CallError> {
        let mut bytes = [0_u8; 64];
        // SAFETY: connected; the library writes no more than the length says.
        let answer = unsafe {
            (self.calls.rados_cluster_fsid)(self.handle, bytes.as_mut_ptr().cast(), bytes.len())
        };
        check("rados_cluster_fsid", answer)?;
        Ok(until_nul(&bytes))
    }

    /// A pool, with a namespace of it or the one without a name. Requests that find it full fail.
    ///
    /// # Errors
    ///
    /// There is no such pool (`ENOENT`), or the user must not use it (`EPERM`).
    pub fn pool(self: &Arc<Self>, name: &str, namespace: &str) -> Result<Pool, CallError> {
        let called = (name.to_owned(), namespace.to_owned());
        let (name, namespace) = (text(name)?, text(namespace)?);
        let mut handle = ptr::null_mut();
        // SAFETY: connected; the name is a string of C, the handle ours to fill.
        let answer =
            unsafe { (self.calls.rados_ioctx_create)(self.handle, name.as_ptr(), &raw mut handle) };
        self.check("rados_ioctx_create", answer)?;
        let cluster = Arc::clone(self);
        let pool = Pool {
            cluster,
            handle,
            name: called,
        };
        // SAFETY: the pool is open, the namespace a string of C.
        unsafe { (self.calls.rados_ioctx_set_namespace)(pool.handle, namespace.as_ptr()) };
        // SAFETY: the pool is open.
        unsafe { (self.calls.rados_set_pool_full_try)(pool.handle) };
        Ok(pool)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: nobody has the handle any more; pools and images keep the cluster.
        unsafe { (self.calls.rados_shutdown)(self.handle) };
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// An open pool.
pub struct Pool {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) handle: Handle,
    /// With its namespace.
    name: (String, String),
}

// SAFETY: as for a cluster; a pool belongs to no thread.
unsafe impl Send for Pool {}
// SAFETY: as above. The namespace is set before anybody else has the pool.
unsafe impl Sync for Pool {}

impl Pool {
    /// Makes an image of this size, with the features and the layout that the configuration of the cluster says.
    ///
    /// # Errors
    ///
    /// There is one of this name (`EEXIST`), or the user must not make it (`EPERM`).
    pub fn create_image(&self, name: &str, size_bytes: u64) -> Result<(), CallError> {
        let name = text(name)?;
        let mut order = 0;
        // SAFETY: the pool is open, the name a string of C, the order ours to fill.
        let answer = unsafe {
            (self.cluster.calls.rbd_create)(self.handle, name.as_ptr(), size_bytes, &raw mut order)
        };
        self.cluster.check("rbd_create", answer).map(drop)
    }

    /// Removes an image, whose space it gives back. Blocks.
    ///
    /// # Errors
    ///
    /// There is none (`ENOENT`), somebody has it open (`EBUSY`), it has snapshots (`ENOTEMPTY`).
    pub fn remove_image(&self, name: &str) -> Result<(), CallError> {
        let name = text(name)?;
        // SAFETY: the pool is open, the name a string of C.
        let answer = unsafe { (self.cluster.calls.rbd_remove)(self.handle, name.as_ptr()) };
        self.cluster.check("rbd_remove", answer).map(drop)
    }

    /// The identity of the image that has this name now; `None` if none has it. It is one small request, which a
    /// cluster that has blocklisted this client refuses (`ESHUTDOWN`). Blocks.
    ///
    /// # Errors
    ///
    /// The cluster does not say.
    pub fn image_id(&self, name: &str) -> Result<Option<String>, CallError> {
        let object = text(&format!("rbd_id.{name}"))?;
        let mut bytes = [0_u8; 4 + ID_BYTES_MAX];
        let read = self.cluster.calls.rados_read;
        // SAFETY: the pool is open, the name a string of C; the library writes no more than the length says.
        let answer = unsafe {
            read(
                self.handle,
                object.as_ptr(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                0,
            )
        };
        let count = match self.cluster.check("rados_read", answer) {
            Ok(count) => usize::try_from(count).unwrap_or_default(),
            Err(error) if error.errno == libc::ENOENT => return Ok(None),
            Err(error) => return Err(error),
        };
        // Its length in four bytes, and the text.
        let (length, id) = bytes.split_at(4);
        let length = length
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
        match id.get(..length) {
            Some(id) if length + 4 <= count => Ok(Some(String::from_utf8_lossy(id).into_owned())),
            Some(_) | None => Err(CallError {
                call: "rados_read",
                errno: libc::EIO,
            }),
        }
    }

    /// The same pool once more.
    pub(crate) fn again(&self) -> Result<Self, CallError> {
        self.cluster.pool(&self.name.0, &self.name.1)
    }

    /// Its number in the cluster.
    pub fn id(&self) -> i64 {
        // SAFETY: the pool is open.
        unsafe { (self.cluster.calls.rados_ioctx_get_id)(self.handle) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: images keep their pool, so nobody has the handle any more.
        unsafe { (self.cluster.calls.rados_ioctx_destroy)(self.handle) };
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

/// A string of C. What has a NUL in it names nothing.
pub(crate) fn text(text: &str) -> Result<CString, CallError> {
    CString::new(text).map_err(|_| CallError {
        call: "string",
        errno: INVALID,
    })
}

fn text_of_path(path: &Path) -> Result<CString, CallError> {
    use std::os::unix::ffi::OsStrExt as _;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| CallError {
        call: "rados_conf_read_file",
        errno: INVALID,
    })
}

pub(crate) fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(ptr::null(), |text| text.as_ptr())
}

/// The bytes before the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// A copy of a string of C; empty for null.
///
/// # Safety
///
/// It is null, or a string of C that stays during the call.
pub(crate) unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller says.
    let text: CString = unsafe { CStr::from_ptr(text) }.to_owned();
    text.to_string_lossy().into_owned()
}
