//! Which image, which of them are in use, and what keeps one from being a store.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rbd::{CallError, ClusterOptions, LoadError, Mode, words};

use super::errno::{ALREADY, BUSY, DENIED, NOT_FOUND, NOT_PERMITTED, TIMED_OUT};

/// What to open and how.
#[derive(Clone, Debug)]
pub struct RbdOptions {
    /// Which cluster, and as whom.
    pub cluster: ClusterOptions,
    /// The pool.
    pub pool: String,
    /// A namespace of the pool; empty for the one without a name.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// A snapshot of it, which is only read.
    pub snapshot: Option<String>,
    /// The size that a missing image is made with, and to which a smaller one grows; a larger one stays as large.
    pub size_bytes: Option<u64>,
    /// An image that another client has is no error: it is opened when that client has given it up, or has died.
    pub waits_for_lock: bool,
    /// How long requests wait for a cluster that does not answer before they fail, at least [`RETRY_MIN`].
    ///
    /// [`RETRY_MIN`]: RbdOptions::RETRY_MIN
    pub retry: Duration,
    /// Refuse all writes.
    pub read_only: bool,
    /// Unmapped blocks release their space.
    pub thin: bool,
    /// Logical block length, 512 or 4096.
    pub block_bytes: u32,
}

/// Why an image cannot be a store: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("image {image}: {reason}")]
pub struct RbdOpenError {
    pub(super) image: String,
    /// What was found.
    pub reason: RbdFailure,
}

/// What keeps an image from being a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RbdFailure {
    /// The libraries are not there.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The configuration file cannot be read.
    #[error("cannot read {}: {reason}; name the configuration file of the cluster with conf=", file_of(.path.as_ref()))]
    Conf {
        /// Where it was looked for; `None` for the places of Ceph.
        path: Option<PathBuf>,
        /// In words.
        reason: String,
    },
    /// The file of the key cannot be read.
    #[error("cannot read the keyring {}: {reason}; name the file with the key of client.{user}", .path.display())]
    Keyring {
        /// Where it is.
        path: PathBuf,
        /// In words.
        reason: String,
        /// Whose key.
        user: String,
    },
    /// The cluster is not reached, or takes the user for nobody.
    #[error("cannot connect as client.{user}: {}", connecting(*.errno))]
    Connect {
        /// As whom.
        user: String,
        /// The library's.
        errno: i32,
    },
    /// There is no such pool.
    #[error("there is no pool {pool:?}; create it, or name another one")]
    Pool {
        /// Its name.
        pool: String,
    },
    /// There is no such image.
    #[error(
        "there is no such image{of_snapshot}; create it with rbd create{of_size}, or name another one"
    )]
    Image {
        /// Words for a snapshot.
        of_snapshot: &'static str,
        /// Words for one that could be made.
        of_size: &'static str,
    },
    /// It is smaller than the configured size, and is only read.
    #[error(
        "it has {actual_bytes} bytes, size={wanted_bytes} are wanted, and it is opened readonly; leave size= out"
    )]
    CannotGrow {
        /// Its size.
        actual_bytes: u64,
        /// The configured size.
        wanted_bytes: u64,
    },
    /// The user may not.
    #[error(
        "client.{user} must not use it; give the user the capabilities \"profile rbd\" for this pool"
    )]
    Forbidden {
        /// As whom.
        user: String,
    },
    /// Another client has it.
    #[error(
        "the client at {address} has its exclusive lock; end that client (one that died loses its lock after some \
         30 s), or wait for it (takeover=wait)"
    )]
    Locked {
        /// Where that is.
        address: String,
    },
    /// Nothing but the lock keeps two gateways from serving it together.
    #[error(
        "it has no exclusive lock, and takeover=wait needs one: with none, two gateways would write to it at once; \
         turn it on (rbd feature enable IMAGE exclusive-lock), or leave takeover=wait out"
    )]
    Unlocked,
    /// It is to be opened again, and its name leads to another image.
    #[error(
        "another image (id {found}) has the name, and the lun was served from that with the id {before}; rename that \
         back (rbd rename), or remove the lun and then add it with the image that is meant"
    )]
    Replaced {
        /// What has the name.
        found: String,
        /// What was served.
        before: String,
    },
    /// A lock of another kind is in the way.
    #[error(
        "it has an advisory lock, which hides the exclusive lock; see rbd lock ls, and remove it (rbd lock rm)"
    )]
    Advisory,
    /// Another connection of this process has the lock.
    #[error(
        "another connection of this Tarn has its exclusive lock; it ends with what is still open over it"
    )]
    OwnLock,
    /// Breaking a lock needs a right.
    #[error(
        "client.{user} may not blocklist the client that has its exclusive lock; give the user the capability mon \
         \"profile rbd\""
    )]
    NoBlocklist {
        /// As whom.
        user: String,
    },
    /// Another client has taken the lock in between.
    #[error("another client has taken its exclusive lock in between; try again")]
    Taken,
    /// Another unit of this process has it.
    #[error("another store of this Tarn has the same image; an image is the store of one unit")]
    Twice,
    /// A cache would hold answered writes.
    #[error(
        "its settings turn rbd_cache on, which would lose answered writes; remove that setting (rbd config image \
         rm, or rbd config pool rm)"
    )]
    Cache,
    /// Not a whole number of blocks, or none.
    #[error(
        "{size_bytes} bytes are not a whole number of blocks of {block_bytes} bytes, at least one"
    )]
    Size {
        /// Of the image.
        size_bytes: u64,
        /// Of the disk.
        block_bytes: u32,
    },
    /// Anything else.
    #[error("{0}; see the state of the cluster (ceph status)")]
    Call(CallError),
}

fn file_of(path: Option<&PathBuf>) -> String {
    match path {
        Some(path) => path.display().to_string(),
        None => "the configuration of Ceph ($CEPH_CONF, /etc/ceph/ceph.conf)".to_owned(),
    }
}

/// Error numbers of connecting, with the remedy.
fn connecting(errno: i32) -> String {
    let said = words(errno);
    match errno {
        NOT_FOUND => {
            "no key of that user, or no monitor, is known; name the file of its key with keyring=, and check mon_host \
             in the configuration file"
                .to_owned()
        }
        NOT_PERMITTED | DENIED => {
            format!("{said}; the key is not that of the user, see ceph auth get")
        }
        TIMED_OUT => format!("no monitor answers ({said}); start the cluster, or check mon_host"),
        _ => format!("{said}; check the configuration file and the monitors"),
    }
}

/// An image that a store of this process has, until the last clone of this is dropped. Nobody else gets it meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    _claimed: Arc<Claimed>,
}

#[derive(Debug)]
struct Claimed(String);

fn claims() -> MutexGuard<'static, BTreeSet<String>> {
    static CLAIMS: OnceLock<Mutex<BTreeSet<String>>> = OnceLock::new();
    let claims = CLAIMS.get_or_init(Mutex::default);
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claim {
    pub(super) fn new(medium: String) -> Result<Self, RbdFailure> {
        match claims().insert(medium.clone()) {
            true => Ok(Self {
                _claimed: Arc::new(Claimed(medium)),
            }),
            false => Err(RbdFailure::Twice),
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        claims().remove(&self.0);
    }
}

impl fmt::Display for RbdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "/{}", self.namespace)?;
        }
        write!(f, "/{}", self.image)?;
        let mut snapshot = self.snapshot.iter();
        snapshot.try_for_each(|name| write!(f, "@{name}"))
    }
}

impl RbdOptions {
    /// The shortest `retry`: a cluster that changes its mind about who has the data is silent for some seconds.
    pub const RETRY_MIN: Duration = Duration::from_secs(5);

    /// As whom.
    pub(super) fn user(&self) -> String {
        let user = self.cluster.user.clone();
        user.unwrap_or_else(|| "admin".to_owned())
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || self.snapshot.is_some()
    }

    pub(super) fn mode(&self) -> Mode {
        match self.is_read_only() {
            true => Mode::Read {
                snapshot: self.snapshot.clone(),
            },
            false => Mode::Write,
        }
    }

    /// What a failed call of the look means.
    pub(super) fn failed(&self, error: CallError) -> RbdFailure {
        let user = self.user();
        match (error.call, error.errno) {
            ("rados_conf_read_file", errno) => RbdFailure::Conf {
                path: self.cluster.conf.clone(),
                reason: words(errno),
            },
            ("rados_connect", errno) => RbdFailure::Connect { user, errno },
            ("rbd_lock_acquire" | "rbd_lock_break", NOT_PERMITTED | DENIED) => {
                RbdFailure::NoBlocklist { user }
            }
            ("rbd_lock_acquire", BUSY) => RbdFailure::Advisory,
            ("rbd_lock_acquire", ALREADY) => RbdFailure::OwnLock,
            ("rbd_lock_break", BUSY) => RbdFailure::Taken,
            (_, NOT_PERMITTED | DENIED) => RbdFailure::Forbidden { user },
            ("rados_ioctx_create", NOT_FOUND) => RbdFailure::Pool {
                pool: self.pool.clone(),
            },
            ("rbd_open" | "rbd_open_read_only", NOT_FOUND) => RbdFailure::Image {
                of_snapshot: match self.snapshot {
                    Some(_) => ", or it has no such snapshot",
                    None => "",
                },
                of_size: match self.is_read_only() {
                    true => "",
                    false => " or the option size=",
                },
            },
            _ => RbdFailure::Call(error),
        }
    }
}
