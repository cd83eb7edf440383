//! Which image, and what it is found to be when it is opened.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rbd::{CallError, ClusterOptions, Image, Library, LoadError, Lock, Mode, words};
use store::SharedStore;

use super::attendant::BUSY;
use super::looks::Looks;
use super::notes::Texts;
use super::shared::{self, RbdDisk};

/// Longer files of Ceph are none.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Objects, and bytes, that are walked through at a time to see which hold data: the thread does nothing else then.
const WALK_OBJECTS: u64 = 256;
const WALK_BYTES_MAX: u64 = 1 << 30;
/// The library compares and writes one sector at a time; larger ranges it refuses (`EINVAL`).
const COMPARE_BYTES: u32 = 512;

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
    image: String,
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

/// Error numbers of the system that mean something of their own here.
pub(super) const NOT_PERMITTED: i32 = 1;
pub(super) const NOT_FOUND: i32 = 2;
pub(super) const DENIED: i32 = 13;
pub(super) const EXISTS: i32 = 17;
const ALREADY: i32 = 114;
pub(super) const TIMED_OUT: i32 = 110;

/// What the first look found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) size_bytes: u64,
    pub(super) compare_and_write_bytes: u32,
    /// How many bytes are walked through at a time to see which hold data.
    pub(super) walk_bytes: u64,
    /// Its identity in its pool.
    pub(super) id: String,
    /// Names the image among all: the cluster, the pool, the namespace, its identity.
    pub(super) medium: String,
    /// `None` where this store must not write them.
    pub(super) texts: Option<Arc<Texts>>,
    /// Kept until the store is gone, or has to be opened again.
    pub(super) claim: Option<Claim>,
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

    /// Looks at the image over a connection of `looks`, and gives the store. Blocks; no thread is left but those of
    /// that connection.
    ///
    /// # Errors
    ///
    /// There is no library or no such image, it cannot be a disk, or it cannot be reached.
    pub fn open(self, looks: &Looks) -> Result<Arc<dyn SharedStore>, RbdOpenError> {
        let opened = Library::load().map_err(RbdFailure::from);
        self.open_with(opened, looks)
    }

    /// Looks at the image as [`RbdOptions::open`], and neither makes it nor makes it larger. `None`: it would be made.
    ///
    /// # Errors
    ///
    /// As [`RbdOptions::open`].
    pub fn probe(self, looks: &Looks) -> Result<Option<Arc<dyn SharedStore>>, RbdOpenError> {
        let (wanted, may_write, image) = (self.size_bytes, !self.is_read_only(), self.to_string());
        let as_it_is = Self {
            size_bytes: None,
            ..self
        };
        let store = match as_it_is.open(looks) {
            Err(error) => {
                let is_missing = matches!(error.reason, RbdFailure::Image { .. });
                let would_make = is_missing && may_write && wanted.is_some();
                return if would_make { Ok(None) } else { Err(error) };
            }
            Ok(store) => store,
        };
        let actual_bytes = store.capabilities().size_bytes;
        let reason = match wanted {
            Some(wanted_bytes) if wanted_bytes > actual_bytes && !may_write => {
                RbdFailure::CannotGrow {
                    actual_bytes,
                    wanted_bytes,
                }
            }
            Some(_) | None => return Ok(Some(store)),
        };
        Err(RbdOpenError { image, reason })
    }

    /// The same with a library that is loaded.
    pub(super) fn open_with(
        self,
        library: Result<Library, RbdFailure>,
        looks: &Looks,
    ) -> Result<Arc<dyn SharedStore>, RbdOpenError> {
        let found = library.and_then(|library| Ok((library, self.look(library, looks)?)));
        match found {
            Ok((library, found)) => Ok(Arc::new(RbdDisk::new(self, library, found))),
            Err(reason) => Err(RbdOpenError {
                image: self.to_string(),
                reason,
            }),
        }
    }

    /// As whom.
    fn user(&self) -> String {
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

    fn look(&self, library: Library, looks: &Looks) -> Result<Found, RbdFailure> {
        self.look_at_files()?;
        let cluster = looks.connect(library, &self.cluster);
        let cluster = cluster.map_err(|error| self.failed(error))?;
        let fsid = cluster.fsid().map_err(RbdFailure::Call)?;
        let pool = || cluster.pool(&self.pool, &self.namespace);
        let pool_id = pool().map_err(|error| self.failed(error))?.id();
        let open = || Image::open(pool()?, &self.image, &self.mode());
        let image = match (open(), self.size_bytes) {
            (Err(error), Some(size_bytes)) if self.may_make(error) => pool()
                .and_then(|pool| pool.create_image(&self.image, size_bytes))
                .or_else(|error| match error.errno {
                    // Somebody was quicker.
                    EXISTS => Ok(()),
                    _ => Err(error),
                })
                .and_then(|()| open()),
            (opened, _) => opened,
        };
        let image = image.map_err(|error| self.failed(error))?;
        let id = image.id().to_owned();
        let snapshot = self.snapshot.as_deref().unwrap_or_default();
        let namespace = &self.namespace;
        let medium = format!("{fsid}/{pool_id}/{namespace}/{id}");
        if let Some(before) = shared::had_before(self, (&fsid, &medium, &id)) {
            return Err(RbdFailure::Replaced { found: id, before });
        }
        // Before its lock, which may be that of this process.
        let claim = Some(Claim::new(format!("{medium}@{snapshot}"))?);
        let found = self.look_at(&image).map_err(|error| self.failed(error))??;
        let (size_bytes, stripe_bytes) = found;
        let texts = match self.is_read_only() {
            true => None,
            false => Some(Texts::find(&image, id.clone()).map_err(|error| self.failed(error))?),
        };
        Ok(Found {
            size_bytes,
            compare_and_write_bytes: compare_bytes(self.block_bytes),
            walk_bytes: stripe_bytes
                .saturating_mul(WALK_OBJECTS)
                .min(WALK_BYTES_MAX),
            texts: texts.map(Arc::new),
            claim,
            id,
            medium,
        })
    }

    /// Whether this is the error for an image that is to be made.
    fn may_make(&self, error: CallError) -> bool {
        !self.is_read_only() && error.call == "rbd_open" && error.errno == NOT_FOUND
    }

    /// Makes the image as large as it is configured. Gives its size then.
    fn grow(&self, image: &Image) -> Result<Result<u64, RbdFailure>, CallError> {
        let actual_bytes = image.size_bytes()?;
        Ok(match self.size_bytes {
            // It is the least that is wanted.
            Some(wanted_bytes) if wanted_bytes <= actual_bytes => Ok(actual_bytes),
            Some(wanted_bytes) if self.is_read_only() => Err(RbdFailure::CannotGrow {
                actual_bytes,
                wanted_bytes,
            }),
            Some(wanted_bytes) => {
                image.grow(wanted_bytes)?;
                Ok(wanted_bytes)
            }
            None => Ok(actual_bytes),
        })
    }

    /// Size and stripe unit, if the image can be a disk.
    fn look_at(&self, image: &Image) -> Result<Result<(u64, u64), RbdFailure>, CallError> {
        let block_bytes = self.block_bytes;
        if image.has_cache()? {
            return Ok(Err(RbdFailure::Cache));
        }
        if self.waits_for_lock && !self.is_read_only() && !image.has_exclusive_lock()? {
            return Ok(Err(RbdFailure::Unlocked));
        }
        let lock = match self.is_read_only() {
            true => Lock::Free,
            false => image.lock()?,
        };
        let size_bytes = match lock {
            Lock::Held {
                holder,
                is_alive: true,
            } if !self.waits_for_lock => {
                let address = holder.to_string();
                return Ok(Err(RbdFailure::Locked { address }));
            }
            // Who has it may resize it.
            Lock::Held { is_alive: true, .. } | Lock::Own { .. } => image.size_bytes()?,
            Lock::Held { .. } | Lock::Free => match self.grow(image)? {
                Ok(size_bytes) => size_bytes,
                Err(failure) => return Ok(Err(failure)),
            },
        };
        if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes.into()) {
            return Ok(Err(RbdFailure::Size {
                size_bytes,
                block_bytes,
            }));
        }
        Ok(Ok((size_bytes, image.stripe_unit_bytes()?)))
    }

    /// The libraries would write to the standard error about files that are not there.
    fn look_at_files(&self) -> Result<(), RbdFailure> {
        if let Some(path) = &self.cluster.conf {
            read(path).map_err(|reason| RbdFailure::Conf {
                path: Some(path.clone()),
                reason,
            })?;
        }
        if let Some(path) = &self.cluster.keyring {
            read(path).map_err(|reason| RbdFailure::Keyring {
                path: path.clone(),
                reason,
                user: self.user(),
            })?;
        }
        Ok(())
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

/// The address of another client that has the exclusive lock and is there.
pub(super) fn living_user(image: &Image) -> Result<Option<String>, CallError> {
    match image.lock()? {
        Lock::Held {
            holder,
            is_alive: true,
        } => Ok(Some(holder.to_string())),
        Lock::Held { .. } | Lock::Own { .. } | Lock::Free => Ok(None),
    }
}

/// Within so many bytes the library may compare and write for an initiator, in place of a fence.
const fn compare_bytes(block_bytes: u32) -> u32 {
    match block_bytes {
        COMPARE_BYTES => COMPARE_BYTES,
        _ => 0,
    }
}

/// Whether a file can be read; the reason if not.
fn read(path: &std::path::Path) -> Result<(), String> {
    let in_words = |error: std::io::Error| words(error.raw_os_error().unwrap_or_default());
    // Looked at before it is opened: that of a pipe would wait for somebody who writes.
    let metadata = std::fs::metadata(path).map_err(in_words)?;
    match (metadata.is_file(), metadata.len()) {
        (false, _) => Err("it is no file".to_owned()),
        (true, length) if length > FILE_BYTES_MAX => {
            Err(format!("it has {length} bytes, more than such files have"))
        }
        (true, _) => std::fs::File::open(path).map(drop).map_err(in_words),
    }
}
