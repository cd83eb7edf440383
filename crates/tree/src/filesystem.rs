//! Requests of the kernel, each passed to the [`Tree`] and answered.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::handle::Open;
use crate::model::Node;
use crate::refusal::{Refusal, VALUE_BYTES_MAX};
use crate::tree::{Tree, kind};

/// The kernel keeps nothing: what is there changes without it.
const KEEP: Duration = Duration::ZERO;

/// Bytes of one write. A value that is too long has to arrive whole to be refused.
const WRITE_BYTES_MAX: u32 = 128 * 1024;
const _: () = assert!(VALUE_BYTES_MAX < WRITE_BYTES_MAX as usize);

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
        let node = self.node(number);
        match node {
            Ok(Node::Link(path)) => reply.data(path.as_bytes()),
            Ok(Node::Directory { .. } | Node::File(_)) => reply.error(Errno::EINVAL),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(number, flags, request.pid()) {
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
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Cannot be more than a write of the kernel.
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match self.write_part(number, handle.0, offset, data) {
            Ok(()) => reply.written(length),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn flush(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        match self.write_list(number, handle.0, Some(request.pid())) {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(self.refuse(number, None, &refusal)),
        }
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // The kernel reports no error of this to any program; `last_error` has it.
        if let Err(refusal) = self.write_list(number, handle.0, None) {
            self.refuse(number, None, &refusal);
        }
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

    // What makes or removes a snapshot.

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        match self.make(parent, name) {
            Ok(attributes) => reply.entry(&KEEP, &attributes, Generation(0)),
            Err(refusal) => reply.error(self.refuse(parent, Some(name), &refusal)),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.remove(parent, name) {
            Ok(()) => reply.ok(),
            Err(refusal) => reply.error(self.refuse(parent, Some(name), &refusal)),
        }
    }

    // What would make or remove anything else.

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

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply.error(self.refuse(parent, Some(name), &Refusal::Structure));
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, _: &Path, reply: ReplyEntry) {
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
