//! Requests of the kernel: from numbers to places, from refusals to error numbers.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};

use crate::attribute::File;
use crate::call::VALUE_BYTES_MAX;
use crate::handle::{Handles, Open};
use crate::inode::Inodes;
use crate::model::{self, Node};
use crate::place::{Directory, Place};
use crate::refusal::{Number, Refusal};
use crate::view::{Daemon, View};

/// The kernel keeps nothing: what is there changes without it.
const KEEP: Duration = Duration::ZERO;

/// Bytes of one write. A value that is too long has to arrive whole to be refused.
const WRITE_BYTES_MAX: u32 = 128 * 1024;
const _: () = assert!(VALUE_BYTES_MAX < WRITE_BYTES_MAX as usize);

/// Size of a block, for the count of blocks. Spec: stat(2).
const STAT_BLOCK_BYTES: u64 = 512;

/// The tree, as the kernel asks for it.
pub(crate) struct Tree {
    daemon: Arc<Daemon>,
    view: Arc<dyn View>,
    inodes: Mutex<Inodes>,
    handles: Mutex<Handles>,
    since: SystemTime,
    uid: u32,
    gid: u32,
}

impl Tree {
    /// The tree of a daemon, for the user of this process.
    pub(crate) fn new(daemon: Daemon) -> Self {
        let daemon = Arc::new(daemon);
        Self {
            view: Arc::<Daemon>::clone(&daemon),
            daemon,
            inodes: Mutex::default(),
            handles: Mutex::default(),
            since: SystemTime::now(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, number: INodeNo) -> Result<Place, Refusal> {
        self.inodes().place(number.0).ok_or(Refusal::Absent)
    }

    fn directory(&self, number: INodeNo) -> Result<Directory, Refusal> {
        match self.place(number)? {
            Place::Directory(directory) => Ok(directory),
            Place::File(..) | Place::Link(..) => Err(Refusal::Absent),
        }
    }

    fn file(&self, place: &Place) -> Result<File, Refusal> {
        match model::node(&self.view, place)? {
            Node::File(file) => Ok(file),
            Node::Directory | Node::Link(_) => Err(Refusal::Absent),
        }
    }

    fn attributes(&self, number: u64, node: &Node) -> FileAttr {
        let (kind, perm, length) = match node {
            Node::Directory => (FileType::Directory, 0o555, 0),
            Node::File(file) if file.is_writable => (FileType::RegularFile, 0o644, file.text.len()),
            Node::File(file) => (FileType::RegularFile, 0o444, file.text.len()),
            Node::Link(path) => (FileType::Symlink, 0o777, path.len()),
        };
        let size = length as u64;
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: size.div_ceil(STAT_BLOCK_BYTES),
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind,
            perm,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// The error number of a refusal. Its text is kept, but for names that are not there: shells
    /// and file managers look for many.
    fn refuse(&self, number: INodeNo, name: Option<&OsStr>, refusal: &Refusal) -> Errno {
        if !matches!(refusal, Refusal::Absent) {
            let mut path = self
                .place(number)
                .map_or_else(|_| String::new(), |place| place.path());
            if let Some(name) = name {
                path = format!("{path}/{}", name.to_string_lossy());
            }
            self.daemon.note(refusal.line(path.trim_start_matches('/')));
        }
        errno(refusal.number())
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Refusal> {
        let name = name.to_str().ok_or(Refusal::Absent)?;
        let place = model::lookup(&self.view, &self.directory(parent)?, name)?;
        let node = model::node(&self.view, &place)?;
        Ok(self.attributes(self.inodes().look_up(place), &node))
    }

    fn stat(&self, number: INodeNo) -> Result<FileAttr, Refusal> {
        let node = model::node(&self.view, &self.place(number)?)?;
        Ok(self.attributes(number.0, &node))
    }

    /// Cutting a file to nothing is what comes before writing it; nothing else can be set.
    fn set(&self, number: INodeNo, is_cut: bool, is_else: bool) -> Result<FileAttr, Refusal> {
        if is_else {
            return Err(Refusal::Fixed);
        }
        if is_cut && !self.file(&self.place(number)?)?.is_writable {
            return Err(Refusal::ReadOnly);
        }
        self.stat(number)
    }

    fn open_file(&self, number: INodeNo, flags: OpenFlags) -> Result<u64, Refusal> {
        let file = self.file(&self.place(number)?)?;
        if flags.acc_mode() != OpenAccMode::O_RDONLY && !file.is_writable {
            return Err(Refusal::ReadOnly);
        }
        self.handles().open(Open::File(file.text.into()))
    }

    fn open_directory(&self, number: INodeNo) -> Result<u64, Refusal> {
        let directory = self.directory(number)?;
        let itself = (".".to_owned(), Place::Directory(directory.clone()));
        let parent = ("..".to_owned(), Place::Directory(directory.parent()));
        let mut entries = vec![itself, parent];
        entries.extend(model::entries(&self.view, &directory)?);
        self.handles().open(Open::Directory(entries.into()))
    }

    fn write_value(&self, number: INodeNo, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        if offset != 0 {
            return Err(Refusal::NotWhole);
        }
        if data.len() > VALUE_BYTES_MAX {
            return Err(Refusal::TooLong { got: data.len() });
        }
        let text = str::from_utf8(data).map_err(|_| Refusal::NotText)?;
        let call = model::call(&self.view, &self.place(number)?, text)?;
        let outcome = call.make(self.daemon.client());
        // After a failure too: without an answer nobody knows what was done.
        self.daemon.forget();
        outcome
    }
}

impl Filesystem for Tree {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let set = config.set_max_write(WRITE_BYTES_MAX);
        set.map_err(|most| io::Error::other(format!("the kernel writes {most} bytes at once")))?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look_up(parent, name) {
            Ok(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            Err(refusal) => reply.error(self.refuse(parent, Some(name), &refusal)),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.inodes().forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.stat(number) {
            Ok(attributes) => reply.attr(&KEEP, &attributes),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
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
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let is_times = size.is_none() && (atime.is_some() || mtime.is_some());
        let is_else = mode.is_some() || uid.is_some() || gid.is_some() || is_times;
        match self.set(number, size.is_some(), is_else) {
            Ok(attributes) => reply.attr(&KEEP, &attributes),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let node = self
            .place(number)
            .and_then(|place| model::node(&self.view, &place));
        match node {
            Ok(Node::Link(path)) => reply.data(path.as_bytes()),
            Ok(Node::Directory | Node::File(_)) => reply.error(Errno::EINVAL),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(number, flags) {
            // Not by way of the page cache, which would cut a text at the length it had before.
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.handles().of(handle.0) {
            Some(Open::File(text)) => reply.data(piece(text.as_bytes(), offset, size)),
            Some(Open::Directory(_)) | None => reply.error(Errno::EBADF),
        }
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Cannot be more than a write of the kernel.
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.write_value(number, offset, data) {
            Ok(()) => reply.written(length),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.handles().close(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_directory(number) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(Open::Directory(entries)) = self.handles().of(handle.0) else {
            return reply.error(Errno::EBADF);
        };
        let inodes = self.inodes();
        let rest = (1..)
            .zip(entries.iter())
            .skip_while(|(next, _)| *next <= offset);
        for (next, (name, place)) in rest {
            let number = INodeNo(inodes.number(place));
            let is_full = reply.add(number, next, kind(place), name);
            if is_full {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.handles().close(handle.0);
        reply.ok();
    }

    // What would make or remove something.

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: &std::path::Path,
        reply: ReplyEntry,
    ) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn link(&self, _: &Request, _: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }
}

/// The bytes that a read gets; none behind the end.
fn piece(bytes: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = usize::try_from(offset)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let (_, rest) = bytes.split_at(start);
    let (piece, _) = rest.split_at(rest.len().min(size as usize));
    piece
}

fn kind(place: &Place) -> FileType {
    match place {
        Place::Directory(_) => FileType::Directory,
        Place::File(..) => FileType::RegularFile,
        Place::Link(..) => FileType::Symlink,
    }
}

fn errno(number: Number) -> Errno {
    match number {
        Number::NoEntry => Errno::ENOENT,
        Number::Invalid => Errno::EINVAL,
        Number::Access => Errno::EACCES,
        Number::NotPermitted => Errno::EPERM,
        Number::Busy => Errno::EBUSY,
        Number::Again => Errno::EAGAIN,
        Number::TooBig => Errno::EFBIG,
        Number::TooManyFiles => Errno::ENFILE,
        Number::Failed => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_ends_with_the_text() {
        for (offset, size, expected) in [
            (0, 10, "abc"),
            (0, 3, "abc"),
            (0, 2, "ab"),
            (2, 2, "c"),
            (3, 1, ""),
            (u64::MAX, u32::MAX, ""),
        ] {
            assert_eq!(
                piece(b"abc", offset, size),
                expected.as_bytes(),
                "{offset} {size}"
            );
        }
    }
}
