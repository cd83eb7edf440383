//! A disk as a file: a directory with the one file `disk`, whose bytes are somebody else's.
//!
//! The kernel keeps nothing of it: each read and write goes to the [`Disk`], whole blocks of it, and is answered when
//! that answers, from whichever thread. A call of the `Disk` may wait until the disk has room for the request; a thread
//! of the mount waits with it, so a disk has to end each request within a bounded time. What programs do to the file is
//! what they may do to a block device: its size stays, `O_TRUNC` does nothing, a write that is not of whole blocks
//! fails with EINVAL.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

use crate::failed_flushes::FailedFlushes;

/// Longest read or write of the kernel, in bytes.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Requests that the kernel has under way by itself (direct I/O of a loop device).
const BACKGROUND_MAX: u16 = 128;

/// How long the kernel keeps what does not change.
const KEEP: Duration = Duration::from_secs(60);

/// The file.
const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);

/// Why a request of a disk failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiskError {
    /// The data cannot be reached, or the medium failed.
    Io,
    /// The disk, or where its data lives, is full.
    NoSpace,
    /// Nothing may write to it.
    ReadOnly,
    /// It cannot do this.
    NotSupported,
}

impl From<DiskError> for Errno {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Io => Self::EIO,
            DiskError::NoSpace => Self::ENOSPC,
            DiskError::ReadOnly => Self::EROFS,
            DiskError::NotSupported => Self::EOPNOTSUPP,
        }
    }
}

/// What a disk is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DiskShape {
    /// In bytes; a whole number of blocks.
    pub size_bytes: u64,
    /// Offsets and lengths are multiples of it, a power of two.
    pub block_bytes: u32,
    /// Nothing may write to it.
    pub is_read_only: bool,
}

/// Called once with how a request ended.
pub type Answer<T> = Box<dyn FnOnce(Result<T, DiskError>) + Send>;

/// A disk. Requests are of whole blocks inside it, and not empty; each is answered once, from any thread. A call may
/// wait where the disk has as many requests as it takes, for as long as the disk needs to end one.
pub trait Disk: Send + Sync + 'static {
    /// What it is, for as long as it is mounted.
    fn shape(&self) -> DiskShape;
    /// Reads so many bytes, 2 MiB at most.
    fn read(&self, offset: u64, length: u32, answer: Answer<Vec<u8>>);
    /// Writes 1 MiB at most; `is_durable`: on stable storage before it is answered.
    fn write(&self, offset: u64, data: Vec<u8>, is_durable: bool, answer: Answer<()>);
    /// Makes bytes read zeros, however many; gives their space back, unless it is to be kept.
    fn zero(&self, offset: u64, length: u64, keeps_space: bool, answer: Answer<()>);
    /// Puts all that was answered on stable storage.
    fn flush(&self, answer: Answer<()>);
}

/// The directory with the disk in it.
pub(crate) struct DiskTree {
    disk: Arc<dyn Disk>,
    shape: DiskShape,
    flushes: Arc<FailedFlushes>,
    made: SystemTime,
    uid: u32,
    gid: u32,
}

impl DiskTree {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            shape: disk.shape(),
            disk,
            flushes: Arc::default(),
            made: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    fn attributes(&self, number: INodeNo) -> Option<FileAttr> {
        let may_write = if self.shape.is_read_only { 0 } else { 0o200 };
        let (kind, perm, size) = match number {
            INodeNo::ROOT => (FileType::Directory, 0o500, 0),
            FILE => (
                FileType::RegularFile,
                0o400 | may_write,
                self.shape.size_bytes,
            ),
            _ => return None,
        };
        Some(FileAttr {
            ino: number,
            size,
            blocks: size / 512,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind,
            perm,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: self.shape.block_bytes,
            flags: 0,
        })
    }

    /// Whether a range is of whole blocks.
    fn is_aligned(&self, offset: u64, length: u64) -> bool {
        let block = u64::from(self.shape.block_bytes);
        offset.is_multiple_of(block) && length.is_multiple_of(block)
    }

    /// Why nothing may be written here, if that is so.
    fn refusal(&self, offset: u64, length: u64) -> Option<Errno> {
        let end = offset.checked_add(length);
        match end {
            _ if self.shape.is_read_only => Some(Errno::EROFS),
            Some(end) if end <= self.shape.size_bytes => {
                (!self.is_aligned(offset, length)).then_some(Errno::EINVAL)
            }
            Some(_) | None => Some(Errno::ENOSPC),
        }
    }
}

/// The bytes of a read, and the blocks that they are in; `None` where there are none.
fn read_range(
    shape: DiskShape,
    offset: u64,
    size: u32,
) -> Option<(u64, u32, std::ops::Range<usize>)> {
    let block = u64::from(shape.block_bytes);
    let end = offset.saturating_add(size.into()).min(shape.size_bytes);
    let wanted = end.checked_sub(offset).filter(|wanted| *wanted > 0)?;
    let begin = offset - offset % block;
    let length = u32::try_from(end.next_multiple_of(block) - begin).ok()?;
    let skipped = usize::try_from(offset - begin).ok()?;
    Some((
        begin,
        length,
        skipped..skipped + usize::try_from(wanted).ok()?,
    ))
}

/// Answers a request that has nothing to say.
fn answered(reply: ReplyEmpty) -> Answer<()> {
    Box::new(move |result| match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    })
}

impl Filesystem for DiskTree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let set = config.set_max_write(TRANSFER_BYTES_MAX);
        set.map_err(|most| io::Error::other(format!("the kernel writes {most} bytes at once")))?;
        // What the kernel has less of, it uses as it is.
        let _less = config.set_max_background(BACKGROUND_MAX);
        let _less = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if parent == INodeNo::ROOT && name == NAME => {
                reply.entry(&KEEP, &attributes, Generation(0));
            }
            Some(_) | None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(number) {
            Some(attributes) => reply.attr(&KEEP, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // An open with O_TRUNC comes without a handle.
        let is_size_kept = size
            .is_none_or(|size| size == self.shape.size_bytes || (size == 0 && handle.is_none()));
        match self.attributes(number) {
            _ if mode.is_some() || uid.is_some() || gid.is_some() => reply.error(Errno::EPERM),
            _ if !is_size_kept => reply.error(Errno::EINVAL),
            Some(attributes) => reply.attr(&KEEP, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.0 & i32::try_from(OFlags::ACCMODE.bits()).unwrap_or_default() != 0;
        match number {
            FILE if writes && self.shape.is_read_only => reply.error(Errno::EROFS),
            // Not by way of the page cache, and several writes at once: as a device with O_DIRECT.
            FILE => reply.opened(
                FileHandle(self.flushes.open()),
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            ),
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some((begin, length, wanted)) = read_range(self.shape, offset, size) else {
            return reply.data(&[]);
        };
        let answer = move |result: Result<Vec<u8>, DiskError>| match result {
            Ok(data) => match data.get(wanted) {
                Some(wanted) => reply.data(wanted),
                None => reply.error(Errno::EIO),
            },
            Err(error) => reply.error(error.into()),
        };
        self.disk.read(begin, length, Box::new(answer));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Cannot be more than a write of the kernel.
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if let Some(refusal) = self.refusal(offset, length.into()) {
            return reply.error(refusal);
        }
        if length == 0 {
            return reply.written(0);
        }
        let is_durable = flags.0 & i32::try_from(OFlags::DSYNC.bits()).unwrap_or_default() != 0;
        let answer = move |result: Result<(), DiskError>| match result {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(error.into()),
        };
        self.disk
            .write(offset, data.to_vec(), is_durable, Box::new(answer));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let without_size = mode - FallocateFlags::KEEP_SIZE;
        let keeps_space = match without_size {
            FallocateFlags::PUNCH_HOLE => false,
            FallocateFlags::ZERO_RANGE => true,
            // That there is space cannot be promised.
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if let Some(refusal) = self.refusal(offset, length) {
            return reply.error(refusal);
        }
        if length == 0 {
            return reply.ok();
        }
        self.disk.zero(offset, length, keeps_space, answered(reply));
    }

    fn fsync(&self, _: &Request, _: INodeNo, file: FileHandle, _: bool, reply: ReplyEmpty) {
        if self.shape.is_read_only {
            return reply.ok();
        }
        let flushes = Arc::clone(&self.flushes);
        let answer = answered(reply);
        let settled = move |result| answer(flushes.settle(file.0, result, DiskError::Io));
        self.disk.flush(Box::new(settled));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.flushes.close(file.0);
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // The end of a use is no flush of a disk.
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if number != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, NAME),
        ];
        for (next, (number, kind, name)) in (1..).zip(entries) {
            if next > offset && reply.add(number, next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    // The directory has what it has.

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DiskShape = DiskShape {
        size_bytes: 8192,
        block_bytes: 512,
        is_read_only: false,
    };

    #[test]
    fn a_read_takes_whole_blocks_and_gives_what_was_asked_for() {
        for (offset, size, expected) in [
            (0, 512, Some((0, 512, 0..512))),
            (0, 1, Some((0, 512, 0..1))),
            (511, 2, Some((0, 1024, 511..513))),
            (512, 512, Some((512, 512, 0..512))),
            (8191, 100, Some((7680, 512, 511..512))),
            (8192, 1, None),
            (0, 0, None),
            (u64::MAX, u32::MAX, None),
        ] {
            assert_eq!(read_range(SHAPE, offset, size), expected, "{offset} {size}");
        }
    }

    struct Nothing(DiskShape);

    impl Disk for Nothing {
        fn shape(&self) -> DiskShape {
            self.0
        }
        fn read(&self, _: u64, _: u32, answer: Answer<Vec<u8>>) {
            answer(Err(DiskError::Io));
        }
        fn write(&self, _: u64, _: Vec<u8>, _: bool, answer: Answer<()>) {
            answer(Err(DiskError::Io));
        }
        fn zero(&self, _: u64, _: u64, _: bool, answer: Answer<()>) {
            answer(Err(DiskError::Io));
        }
        fn flush(&self, answer: Answer<()>) {
            answer(Err(DiskError::Io));
        }
    }

    #[test]
    fn a_write_is_of_whole_blocks_inside_the_disk() {
        let tree = |is_read_only| {
            DiskTree::new(Arc::new(Nothing(DiskShape {
                is_read_only,
                ..SHAPE
            })))
        };
        for (offset, length, expected) in [
            (0, 8192, None),
            (7680, 512, None),
            (1, 512, Some(Errno::EINVAL)),
            (0, 513, Some(Errno::EINVAL)),
            (7680, 1024, Some(Errno::ENOSPC)),
            (8192, 512, Some(Errno::ENOSPC)),
            (u64::MAX, 512, Some(Errno::ENOSPC)),
        ] {
            assert_eq!(
                tree(false).refusal(offset, length),
                expected,
                "{offset} {length}"
            );
            assert_eq!(tree(true).refusal(offset, length), Some(Errno::EROFS));
        }
        let perm = |tree: DiskTree| tree.attributes(FILE).unwrap().perm;
        assert_eq!((perm(tree(false)), perm(tree(true))), (0o600, 0o400));
    }
}
