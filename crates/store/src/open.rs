//! Opening a store: every check that keeps an administrator's slip from becoming lost data.

mod probe;

pub use probe::{Reservation, probe_growth, reservation, seen};

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memory::{PIECE_BYTES, Pool};
use rustix::fs::{
    FallocateFlags, FileType, FlockOperation, Mode, OFlags, fallocate, flock, fstat, ftruncate,
};
use rustix::io::Errno;

use crate::backing;
use crate::file::FileDisk;
use crate::geometry::Geometry;
use crate::made::MadeFiles;
use crate::memory_disk::MemoryDisk;
use crate::null::NullDisk;
use crate::size::size_of_disk;
use crate::{CacheMode, Capabilities, SharedStore};

/// What kind of store to open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreKind {
    /// [`OpenOptions::path`] names a regular file or a block device.
    Path,
    /// [`OpenOptions::path`] names a regular file.
    File,
    /// [`OpenOptions::path`] names a block device.
    Block,
    /// Memory of [`OpenOptions::size_bytes`].
    Memory,
    /// Zeros of [`OpenOptions::size_bytes`].
    Null,
    /// [`OpenOptions::path`] names a regular file that has the data of a disc, whose last block is left out where it is
    /// not whole; where it is empty, there is no disc.
    Disc,
}

/// The length of a block of a disc.
const DISC_BLOCK_BYTES: u32 = 2048;

/// What to open and how.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// What it is.
    pub kind: StoreKind,
    /// Where it is; not used for memory and zeros.
    pub path: PathBuf,
    /// The least size wanted. A missing file is created and a smaller one grows; a larger one stays as it is.
    pub size_bytes: Option<u64>,
    /// Logical block length, 512 or 4096, of a disc 2048. By default that of the block device, else 512.
    pub block_bytes: Option<u32>,
    /// Refuse all writes.
    pub read_only: bool,
    /// How writes reach the medium; for files and block devices.
    pub cache: CacheMode,
    /// Unmapped ranges give their space back. Without it a new file takes all its space at once.
    pub thin: bool,
    /// Take the file for plain data even if it looks like an image of some format.
    pub force_raw: bool,
    /// Where a file that is made is noted.
    pub made: MadeFiles,
    /// What is at the path, if somebody has looked ([`seen`]): nothing else is opened.
    pub seen: Option<Option<(u64, u64)>>,
}

impl OpenOptions {
    /// The defaults: writable, thin, write-back.
    pub fn new(kind: StoreKind, path: impl Into<PathBuf>) -> Self {
        Self {
            kind,
            path: path.into(),
            size_bytes: None,
            block_bytes: None,
            read_only: false,
            cache: CacheMode::default(),
            thin: true,
            force_raw: false,
            made: MadeFiles::default(),
            seen: None,
        }
    }

    /// Opens the store. A file that had to be created is removed again when that fails.
    pub fn open(&self) -> Result<Arc<dyn SharedStore>, OpenError> {
        self.try_open().map_err(|reason| OpenError {
            place: self.place(),
            reason,
        })
    }

    fn place(&self) -> Place {
        match self.kind {
            StoreKind::Path | StoreKind::File | StoreKind::Block | StoreKind::Disc => {
                Place::Path(self.path.clone())
            }
            StoreKind::Memory => Place::Memory,
            StoreKind::Null => Place::Null,
        }
    }

    fn try_open(&self) -> Result<Arc<dyn SharedStore>, OpenFailure> {
        let possible: &[u32] = match self.kind == StoreKind::Disc {
            true => &[DISC_BLOCK_BYTES],
            false => &[512, 4096],
        };
        if let Some(block_bytes) = self.block_bytes.filter(|n| !possible.contains(n)) {
            return Err(OpenFailure::BlockSize { block_bytes });
        }
        match self.kind {
            StoreKind::Disc if self.path.as_os_str().is_empty() => {
                Ok(Arc::new(NullDisk::new(0, DISC_BLOCK_BYTES, true)))
            }
            StoreKind::Path | StoreKind::File | StoreKind::Block | StoreKind::Disc => {
                self.open_path()
            }
            StoreKind::Memory => {
                let (size, block) = self.size_and_block()?;
                let disk = MemoryDisk::new(size, block, self.read_only, self.thin)
                    .map_err(system("reserve that much memory"))?;
                Ok(Arc::new(disk))
            }
            StoreKind::Null => {
                let (size, block) = self.size_and_block()?;
                Ok(Arc::new(NullDisk::new(size, block, self.read_only)))
            }
        }
    }

    fn size_and_block(&self) -> Result<(u64, u32), OpenFailure> {
        let size = self.size_bytes.ok_or(OpenFailure::NoSize)?;
        let block = self.block_bytes.unwrap_or(512);
        check_size(size, block)?;
        Ok((size, block))
    }

    fn open_path(&self) -> Result<Arc<dyn SharedStore>, OpenFailure> {
        let found = match std::fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.create(),
            Err(error) => return Err(system("look at it")(error)),
        };
        let (file, disk) = self.open_found(&found, |is_device| self.open_locked(is_device))?;
        let is_block_device = found.file_type().is_block_device();
        let below = match is_block_device {
            true => backing::lock(&file, self.read_only)
                .map_err(|path| OpenFailure::BackingInUse { path })?,
            false => {
                self.extend(&file, disk.size_bytes)?;
                None
            }
        };
        let disk = FileDisk::new(file, disk, self.cache, is_block_device, below);
        Ok(Arc::new(disk))
    }

    /// Opens what is there, and says what it is as a disk.
    fn open_found(
        &self,
        found: &Metadata,
        open: impl FnOnce(bool) -> Result<OwnedFd, OpenFailure>,
    ) -> Result<(OwnedFd, Capabilities), OpenFailure> {
        let is_block_device = found.file_type().is_block_device();
        match self.kind {
            StoreKind::File | StoreKind::Disc if is_block_device => {
                return Err(OpenFailure::NotAFile);
            }
            StoreKind::Block if !is_block_device => return Err(OpenFailure::NotABlockDevice),
            _ if !is_block_device && !found.is_file() => return Err(OpenFailure::NotADisk),
            StoreKind::Path
            | StoreKind::File
            | StoreKind::Block
            | StoreKind::Memory
            | StoreKind::Null
            | StoreKind::Disc => {}
        }
        let file = open(is_block_device)?;
        if let Some(seen) = self.seen {
            let found = identity(&file).map_err(system("look at it"))?;
            if seen != Some(found) {
                return Err(OpenFailure::Replaced);
            }
        }
        if !self.force_raw
            && let Some(format) = image_format(&file).map_err(system("read its first bytes"))?
        {
            return Err(OpenFailure::ImageFormat { format });
        }
        let size = size_of_disk(&file, is_block_device).map_err(system("find out its size"))?;
        let size = self.grown_size(size, is_block_device)?;
        let disk = self.describe(&file, size, is_block_device)?;
        Ok((file, disk))
    }

    /// Makes the file, and removes it again when it does not become a disk.
    fn create(&self) -> Result<Arc<dyn SharedStore>, OpenFailure> {
        if self.seen.flatten().is_some() {
            return Err(OpenFailure::Replaced);
        }
        self.size_to_make()?;
        let options = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let created = rustix::fs::open(&self.path, options, Mode::RUSR | Mode::WUSR);
        let created = created.map_err(|errno| system(CREATE)(errno.into()))?;
        let identity = identity(&created).map_err(|error| {
            // Nothing is in it, and nobody knows of it.
            drop(std::fs::remove_file(&self.path));
            system(CREATE)(error)
        })?;
        let made = Self {
            seen: Some(Some(identity)),
            ..self.clone()
        };
        let noted = self.made.note(&self.path, identity);
        drop(created);
        if !noted.map_err(system(CREATE))? {
            return Err(OpenFailure::TooLate);
        }
        let opened = made.open_path().and_then(|disk| {
            self.sync_name().map_err(system("make its name durable"))?;
            Ok(disk)
        });
        opened.inspect_err(|failure| {
            // Unless another program was quicker: then it is that one's by now. What went wrong
            // is said already, and a file that cannot be removed is at most empty.
            if matches!(failure, OpenFailure::InUse | OpenFailure::Replaced) {
                self.made.disown(&self.path);
            } else {
                drop(std::fs::remove_file(&self.path));
            }
        })
    }

    /// Makes a new file and its size durable, and its entry in the directory, which has a life of its
    /// own on the disk: without it the file, with all that was flushed, may be gone after a crash.
    fn sync_name(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        let directory = self
            .path
            .parent()
            .filter(|path| !path.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }

    /// Opens it for the I/O to come and locks this very description.
    fn open_locked(&self, is_block_device: bool) -> Result<OwnedFd, OpenFailure> {
        let flags = if self.read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        let file = self.open_as(flags | self.claim(is_block_device))?;
        let lock = if self.read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        match flock(&file, lock) {
            Ok(()) => Ok(file),
            Err(Errno::WOULDBLOCK) if self.read_only => Err(OpenFailure::InUseByWriter),
            Err(Errno::WOULDBLOCK) => Err(OpenFailure::InUse),
            Err(errno) => Err(system("lock it")(errno.into())),
        }
    }

    /// Refused while the kernel itself uses the device: mounted, part of an array.
    const fn claim(&self, is_block_device: bool) -> OFlags {
        if is_block_device && !self.read_only {
            OFlags::EXCL
        } else {
            OFlags::empty()
        }
    }

    fn open_as(&self, flags: OFlags) -> Result<OwnedFd, OpenFailure> {
        let direct = match self.cache {
            CacheMode::Direct => OFlags::DIRECT,
            CacheMode::WriteBack | CacheMode::WriteThrough => OFlags::empty(),
        };
        let flags = flags | direct | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&self.path, flags, Mode::empty());
        opened.map_err(|errno| match errno {
            Errno::INVAL if !direct.is_empty() => OpenFailure::NoDirectIo,
            errno => not_opened(errno),
        })
    }

    /// The size the disk will have.
    fn grown_size(&self, actual: u64, is_block_device: bool) -> Result<u64, OpenFailure> {
        match self.size_bytes {
            // It is the least that is wanted: a disk that has grown since stays as large.
            Some(wanted) if wanted <= actual => Ok(actual),
            Some(wanted) if self.read_only || is_block_device => {
                Err(OpenFailure::CannotGrow { actual, wanted })
            }
            Some(wanted) => Ok(wanted),
            None => Ok(actual),
        }
    }

    /// Checks the geometry and puts it into words.
    fn describe(
        &self,
        file: &OwnedFd,
        size_bytes: u64,
        is_block_device: bool,
    ) -> Result<Capabilities, OpenFailure> {
        let geometry = Geometry::of(file, is_block_device)
            .map_err(|errno| system("find out its geometry")(errno.into()))?;
        let native = geometry
            .logical_block_bytes
            .filter(|n| [512, 4096].contains(n));
        let block_bytes = self.block_bytes.or(native).unwrap_or(512);
        let rest = match self.kind == StoreKind::Disc {
            true if size_bytes < block_bytes.into() => {
                return Err(OpenFailure::NoDisc { size_bytes });
            }
            true => size_bytes % u64::from(block_bytes),
            false => 0,
        };
        let size_bytes = size_bytes - rest;
        check_size(size_bytes, block_bytes)?;
        let direct = self.cache == CacheMode::Direct;
        if direct {
            check_direct(file, &geometry, block_bytes)?;
        }
        Ok(Capabilities {
            size_bytes,
            block_bytes,
            physical_block_bytes: geometry.physical_block_bytes.max(block_bytes),
            read_only: self.read_only,
            thin: self.thin && geometry.can_unmap && !self.read_only,
            unmap_granularity_bytes: geometry.unmap_granularity_bytes.max(block_bytes),
            reads_in_place: false,
            in_place_unit_bytes: 0,
            needs_own_buffer: direct,
            // What is only read and exchanged is not flushed.
            volatile_cache: self.kind != StoreKind::Disc,
            writes_through: self.cache == CacheMode::WriteThrough,
            solid_state: geometry.solid_state,
            compare_and_write_bytes: 0,
        })
    }

    /// Makes the file as large as the disk.
    fn extend(&self, file: &OwnedFd, size: u64) -> Result<(), OpenFailure> {
        let actual = size_of_disk(file, false).map_err(system("find out its size"))?;
        if size <= actual {
            return Ok(());
        }
        if !self.thin {
            match fallocate(file, FallocateFlags::empty(), actual, size - actual) {
                Ok(()) => return Ok(()),
                // The file system cannot reserve space; it is as large all the same.
                Err(Errno::OPNOTSUPP) => {}
                Err(errno) => {
                    // A part may have been added.
                    drop(ftruncate(file, actual).map_err(io::Error::from));
                    return Err(system(RESERVE)(errno.into()));
                }
            }
        }
        ftruncate(file, size).map_err(|errno| system("make it that large")(errno.into()))
    }
}

/// Why a store cannot be opened: the place, the reason, the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct OpenError {
    place: Place,
    /// What was found.
    pub reason: OpenFailure,
}

#[derive(Debug)]
enum Place {
    Path(PathBuf),
    Memory,
    Null,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Memory => f.write_str("memory disk"),
            Self::Null => f.write_str("null disk"),
        }
    }
}

/// What kept a store from being opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenFailure {
    /// Less than a block.
    #[error(
        "it has {size_bytes} bytes, less than a block of a disc; name the image of a CD or DVD"
    )]
    NoDisc {
        /// What it has.
        size_bytes: u64,
    },
    /// Neither 512 nor 4096.
    #[error("a block size of {block_bytes} bytes is not possible: use 512 or 4096")]
    BlockSize {
        /// What was asked for.
        block_bytes: u32,
    },
    /// The size is no whole number of blocks.
    #[error(
        "its size of {size_bytes} bytes is not a multiple of the block size of {block_bytes}: \
         make it {} bytes{}",
        size_bytes.next_multiple_of(u64::from(*block_bytes)),
        if *block_bytes > 512 { ", or use smaller blocks" } else { "" }
    )]
    PartialBlock {
        /// The size.
        size_bytes: u64,
        /// The block size.
        block_bytes: u32,
    },
    /// Nothing to serve.
    #[error("it is empty: give a size")]
    Empty,
    /// Memory and zeros have no size of their own.
    #[error("no size is given: say how large it is to be")]
    NoSize,
    /// There is no such device, or a file that is to be opened read-only.
    #[error("the file or device does not exist: check the path")]
    Missing,
    /// There is no such file, and it is not known how large to make it.
    #[error("the file does not exist: check the path, or give a size (size=) to create it")]
    MissingAndNoSize,
    /// A file cannot be made.
    #[error("it cannot be created because its directory does not exist: create that first")]
    NoDirectory,
    /// A file system has a largest file.
    #[error(
        "its file system takes no file that large: make it smaller, or put it on another file system"
    )]
    TooLarge,
    /// The space of a file without thin provisioning is not there.
    #[error(
        "its file system has not the space: make room, make it smaller, or leave out thin=false"
    )]
    NoSpace,
    /// A file would have to be made where a link leads.
    #[error(
        "it is a link to a file that is not there: create that file, or name it instead of the link"
    )]
    DanglingLink,
    /// A device where a file was meant.
    #[error("it is a block device: open it as such (block:)")]
    NotAFile,
    /// A file where a device was meant.
    #[error("it is not a block device: open it as a file (file:)")]
    NotABlockDevice,
    /// A directory or the like.
    #[error("it is neither a regular file nor a block device: check the path")]
    NotADisk,
    /// The first bytes are those of an image format.
    #[error(
        "it is a {format} image, and only raw images are served: convert it (qemu-img convert \
         -O raw), serve it by way of an NBD server, or say format=raw to serve its bytes as \
         they are"
    )]
    ImageFormat {
        /// The name of the format.
        format: &'static str,
    },
    /// Some program has it locked.
    #[error("it is in use by another program: stop that one, or open both read-only")]
    InUse,
    /// A program that writes has it locked.
    #[error("it is in use by another writer: stop that one, or make it read-only too")]
    InUseByWriter,
    /// Some program has the file of a loop device locked.
    #[error(
        "it is on the loop device of {}, which is in use by another program: stop that one, or detach the device and \
         serve the file", path.display()
    )]
    BackingInUse {
        /// The file.
        path: PathBuf,
    },
    /// The kernel uses the device.
    #[error("it is in use by this host itself: unmount it, or take it out of its array or volume")]
    InUseByKernel,
    /// No permission.
    #[error("this user may not open it: change its owner or mode, or open it read-only")]
    Denied,
    /// No permission, although root asks: owner and mode are not the reason.
    #[error(
        "the kernel refuses it to root too: allow the device in the control group (DeviceAllow of \
         systemd, --device of containers), or look for a read-only device, an immutable file \
         (lsattr), a security module or a server that squashes root"
    )]
    DeniedToRoot,
    /// No writing there.
    #[error(
        "its file system is read-only: open it read-only; a service may write only where ReadWritePaths= of its unit \
         says (systemctl edit tarn)"
    )]
    ReadOnlyFileSystem,
    /// It is smaller than asked for and cannot grow.
    #[error("it has {actual} bytes, not {wanted}, and cannot grow: leave the size out")]
    CannotGrow {
        /// What it has.
        actual: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// The file system does not have it.
    #[error("its file system has no direct I/O: use another cache mode")]
    NoDirectIo,
    /// Direct I/O needs larger blocks than those of the disk.
    #[error(
        "direct I/O needs blocks of {align_bytes} bytes here, not {block_bytes}: use \
         blocksize=4096 or another cache mode"
    )]
    DirectAlignment {
        /// What is needed.
        align_bytes: u32,
        /// What was asked for.
        block_bytes: u32,
    },
    /// It was moved, removed, made or replaced since somebody looked.
    #[error(
        "what is at its path is not what was there a moment ago: another program has changed it; try again"
    )]
    Replaced,
    /// The file system took so long that nobody waits for the file any more.
    #[error(
        "its file system answered when the change had been given up, and the file was removed again: try again"
    )]
    TooLate,
    /// This process, or the system as a whole, has no descriptor left.
    #[error(
        "there are too many open files: raise the limit (`ulimit -n`, LimitNOFILE= in a service \
         file); a disk takes two"
    )]
    TooManyFiles,
    /// Something else that the system refused.
    #[error("cannot {action}: {error}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        error: io::Error,
    },
}

/// Device and inode of a file; of a device with any number of nodes, its number.
fn identity(file: &impl AsFd) -> io::Result<(u64, u64)> {
    let found = fstat(file)?;
    let is_device = FileType::from_raw_mode(found.st_mode).is_block_device();
    Ok(match is_device {
        true => (found.st_rdev, 0),
        false => (found.st_dev, found.st_ino),
    })
}

/// Owner and mode keep nobody out who is root.
pub(crate) const fn denied(is_root: bool) -> OpenFailure {
    if is_root {
        OpenFailure::DeniedToRoot
    } else {
        OpenFailure::Denied
    }
}

fn not_opened(errno: Errno) -> OpenFailure {
    match errno {
        Errno::BUSY => OpenFailure::InUseByKernel,
        Errno::ACCESS | Errno::PERM => denied(rustix::process::geteuid().is_root()),
        Errno::ROFS => OpenFailure::ReadOnlyFileSystem,
        errno => system("open it")(errno.into()),
    }
}

/// What was tried, for a remedy of its own.
const CREATE: &str = "create it";
const RESERVE: &str = "reserve its space";

fn system(action: &'static str) -> impl Fn(io::Error) -> OpenFailure {
    move |error| match Errno::from_io_error(&error) {
        Some(Errno::MFILE | Errno::NFILE) => OpenFailure::TooManyFiles,
        Some(Errno::ROFS) => OpenFailure::ReadOnlyFileSystem,
        Some(Errno::FBIG) => OpenFailure::TooLarge,
        Some(Errno::NOSPC) if action == RESERVE => OpenFailure::NoSpace,
        Some(Errno::NOENT) if action == CREATE => OpenFailure::NoDirectory,
        _ => OpenFailure::System { action, error },
    }
}

fn check_size(size_bytes: u64, block_bytes: u32) -> Result<(), OpenFailure> {
    if size_bytes == 0 {
        return Err(OpenFailure::Empty);
    }
    if !size_bytes.is_multiple_of(u64::from(block_bytes)) {
        return Err(OpenFailure::PartialBlock {
            size_bytes,
            block_bytes,
        });
    }
    Ok(())
}

/// Whether single blocks can be transferred. Where the kernel does not say, one is read.
fn check_direct(file: &OwnedFd, geometry: &Geometry, block: u32) -> Result<(), OpenFailure> {
    let align_bytes = match geometry.direct_align_bytes {
        Some(0) => return Err(OpenFailure::NoDirectIo),
        Some(align_bytes) if align_bytes <= block => return Ok(()),
        // Of a file that shares blocks with another XFS reports its own block size, and takes less all the same.
        Some(align_bytes) => align_bytes,
        None => 4096,
    };
    let pool = Pool::new(0).map_err(system("reserve memory"))?;
    let full = |_| system("reserve memory")(io::ErrorKind::OutOfMemory.into());
    let mut buffer = pool.allocate(block as usize).map_err(full)?;
    match rustix::io::pread(file, &mut buffer[..], 0) {
        Err(Errno::INVAL) => Err(OpenFailure::DirectAlignment {
            align_bytes,
            block_bytes: block,
        }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The name of the image format whose mark the file bears.
fn image_format(file: &OwnedFd) -> io::Result<Option<&'static str>> {
    /// Offset, mark, name.
    const MARKS: [(usize, &[u8], &str); 8] = [
        (0, b"QFI\xfb", "qcow2"),
        (0, b"QED\0", "QED"),
        (0, b"KDMV", "VMDK"),
        (0, b"COWD", "VMDK"),
        (0, b"# Disk DescriptorFile", "VMDK"),
        (0, b"vhdxfile", "VHDX"),
        (0, b"conectix", "VHD"),
        (64, b"\x7f\x10\xda\xbe", "VDI"),
    ];
    // A pool buffer, because direct I/O wants its memory aligned.
    let pool = Pool::new(0)?;
    let buffer = pool.allocate(PIECE_BYTES);
    let mut head = buffer.map_err(|_| io::ErrorKind::OutOfMemory)?;
    let len = match rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut head[..], 0)) {
        // Direct I/O that wants larger pieces than these is refused elsewhere.
        Err(Errno::INVAL) => 0,
        result => result?,
    };
    let head = &head[..len];
    let found = MARKS.iter().find(|(offset, mark, _)| {
        head.get(*offset..)
            .is_some_and(|rest| rest.starts_with(mark))
    });
    Ok(found.map(|(_, _, name)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_io_is_refused_where_there_is_none_and_tried_where_blocks_may_be_too_small() {
        let file = File::open("/proc/self/exe").unwrap().into();
        let found = Geometry::of(&file, false).unwrap();
        let checked = |direct_align_bytes| {
            let geometry = Geometry {
                direct_align_bytes,
                ..found.clone()
            };
            check_direct(&file, &geometry, 512)
        };
        let none = checked(Some(0));
        assert!(matches!(none, Err(OpenFailure::NoDirectIo)), "{none:?}");
        // It is not open for direct I/O, so any block can be read.
        for align_bytes in [None, Some(512), Some(513)] {
            assert!(checked(align_bytes).is_ok(), "{align_bytes:?}");
        }
    }

    #[test]
    fn what_the_system_refuses_has_a_failure_and_remedy_of_its_own() {
        let of = |action, errno: Errno| system(action)(errno.into());
        for errno in [Errno::MFILE, Errno::NFILE] {
            assert!(matches!(of(CREATE, errno), OpenFailure::TooManyFiles));
        }
        let no_space = of(RESERVE, Errno::NOSPC);
        assert!(matches!(no_space, OpenFailure::NoSpace), "{no_space}");
        let no_directory = of(CREATE, Errno::NOENT);
        assert!(matches!(no_directory, OpenFailure::NoDirectory));
        for (action, errno) in [(CREATE, Errno::NOSPC), (RESERVE, Errno::NOENT)] {
            assert!(matches!(of(action, errno), OpenFailure::System { .. }));
        }
        let too_large = of(RESERVE, Errno::FBIG);
        assert!(matches!(too_large, OpenFailure::TooLarge), "{too_large}");
        let read_only = [of(CREATE, Errno::ROFS), not_opened(Errno::ROFS)];
        assert!(matches!(
            read_only,
            [
                OpenFailure::ReadOnlyFileSystem,
                OpenFailure::ReadOnlyFileSystem
            ]
        ));
        assert!(matches!(
            not_opened(Errno::BUSY),
            OpenFailure::InUseByKernel
        ));
        assert!(matches!(
            [denied(true), denied(false)],
            [OpenFailure::DeniedToRoot, OpenFailure::Denied]
        ));
    }

    #[test]
    fn a_disk_has_whole_blocks_and_at_least_one() {
        for (size, block, is_good) in [
            (0, 512, false),
            (511, 512, false),
            (512, 512, true),
            (513, 512, false),
            (4608, 512, true),
            (4608, 4096, false),
            (8192, 4096, true),
        ] {
            assert_eq!(
                check_size(size, block).is_ok(),
                is_good,
                "{size} of {block}"
            );
        }
        assert!(matches!(check_size(0, 512), Err(OpenFailure::Empty)));
    }
}
