//! The open file of a store: for all cores, and for one.

use std::any::Any;
use std::cell::OnceCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::fdatasync;
use rustix::io::Errno;

use crate::place::Place;

/// How the files of stores are closed and synced.
static CALLS: OnceLock<(fn(OwnedFd), Syncer)> = OnceLock::new();

/// Makes what was written to a file durable.
pub type Syncer = fn(BorrowedFd<'_>) -> Result<(), Errno>;

/// Has files of stores closed by `closer`: closing a file may wait for its store (a FUSE server is asked, NFS and block
/// devices write what they still have), and the last use of a file may end on a core. And has them synced by `syncer`
/// where a thread waits for that: in the call itself it might keep the process from ending. The first ones stay.
pub fn set_closer(closer: fn(OwnedFd), syncer: Syncer) {
    // Set already: by the reactor of another core, which sets the same.
    let _set_before = CALLS.set((closer, syncer));
}

/// Makes what was written to a file durable.
pub(crate) fn sync(file: BorrowedFd<'_>) -> Result<(), Errno> {
    CALLS
        .get()
        .map_or_else(|| fdatasync(file), |(_, syncer)| syncer(file))
}

/// Answers whether bytes of a file (offset, length) are all in the page cache, where the kernel knows.
pub type CacheProbe = fn(BorrowedFd<'_>, u64, usize) -> Option<bool>;

static CACHE_PROBE: OnceLock<CacheProbe> = OnceLock::new();

/// Has `probe` asked what the page cache has, before it is read from on the thread of a core: what it has not is read
/// from the medium, and a read that is tried all the same begins that itself (`RWF_NOWAIT` does not forbid it), which
/// waits for metadata, locks and the queue of the device. The first probe stays.
pub fn set_cache_probe(probe: CacheProbe) {
    // Set already: by the reactor of another core, which sets the same.
    let _set_before = CACHE_PROBE.set(probe);
}

/// The open file of a store, for all cores.
#[derive(Debug)]
pub struct DiskFile {
    /// There until it is dropped.
    fd: Option<OwnedFd>,
    is_memory: bool,
}

impl DiskFile {
    /// A file without a name, in memory: closing it never waits.
    pub const fn memory(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            is_memory: true,
        }
    }
}

impl From<OwnedFd> for DiskFile {
    fn from(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            is_memory: false,
        }
    }
}

impl AsFd for DiskFile {
    #[expect(clippy::expect_used, reason = "only `drop` takes it")]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_ref().expect("an open file").as_fd()
    }
}

impl AsRawFd for DiskFile {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        let calls = CALLS.get().filter(|_| !self.is_memory);
        match (self.fd.take(), calls) {
            (Some(fd), Some((closer, _))) => closer(fd),
            (fd, _) => drop(fd),
        }
    }
}

/// The file of a store on one core: its descriptor, its place, and what the reactor of that core keeps for it.
#[derive(Debug)]
pub struct StoreFile {
    fd: Arc<DiskFile>,
    place: Arc<Place>,
    attachment: OnceCell<Box<dyn Any>>,
}

impl StoreFile {
    /// The file, for one core.
    pub fn new(fd: Arc<DiskFile>, place: Arc<Place>) -> Self {
        Self {
            fd,
            place,
            attachment: OnceCell::new(),
        }
    }

    /// Where it lies.
    pub const fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Whether these bytes are all in the page cache, where the kernel answers that.
    pub(crate) fn is_cached(&self, offset: u64, len: usize) -> Option<bool> {
        CACHE_PROBE
            .get()
            .and_then(|probe| probe(self.as_fd(), offset, len))
    }

    /// What the reactor keeps for this file; dropped with it.
    pub const fn attachment(&self) -> &OnceCell<Box<dyn Any>> {
        &self.attachment
    }
}

impl AsFd for StoreFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for StoreFile {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
