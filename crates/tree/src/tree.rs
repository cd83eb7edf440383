//! What a request of the kernel asks for: from numbers to places, from refusals to error numbers.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use fuser::{Errno, FileAttr, FileType, INodeNo, OpenAccMode, OpenFlags};

use crate::attribute::File;
use crate::call::Call;
use crate::handle::{Handles, Open};
use crate::inode::Inodes;
use crate::model::{self, Node};
use crate::place::{Directory, Place};
use crate::refusal::{Number, Refusal, VALUE_BYTES_MAX};
use crate::view::{Daemon, View};

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

    /// What the kernel has looked up.
    pub(crate) fn inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is open.
    pub(crate) fn handles(&self) -> MutexGuard<'_, Handles> {
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

    /// What is at the place of a number now.
    pub(crate) fn node(&self, number: INodeNo) -> Result<Node, Refusal> {
        model::node(&self.view, &self.place(number)?)
    }

    fn file(&self, place: &Place) -> Result<File, Refusal> {
        match model::node(&self.view, place)? {
            Node::File(file) => Ok(file),
            Node::Directory { .. } | Node::Link(_) => Err(Refusal::Absent),
        }
    }

    fn attributes(&self, number: u64, node: &Node) -> FileAttr {
        let (kind, perm, length) = match node {
            Node::Directory { is_writable: true } => (FileType::Directory, 0o755, 0),
            Node::Directory { is_writable: false } => (FileType::Directory, 0o555, 0),
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
    pub(crate) fn refuse(&self, number: INodeNo, name: Option<&OsStr>, refusal: &Refusal) -> Errno {
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

    /// Attributes of a name in a directory, which the kernel then holds.
    pub(crate) fn look_up(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Refusal> {
        let name = name.to_str().ok_or(Refusal::Absent)?;
        let place = model::lookup(&self.view, &self.directory(parent)?, name)?;
        let node = model::node(&self.view, &place)?;
        Ok(self.attributes(self.inodes().look_up(place), &node))
    }

    /// Attributes of what the kernel holds.
    pub(crate) fn stat(&self, number: INodeNo) -> Result<FileAttr, Refusal> {
        let node = self.node(number)?;
        Ok(self.attributes(number.0, &node))
    }

    /// Cutting a file to nothing is what comes before writing it; nothing else can be set.
    pub(crate) fn set(
        &self,
        number: INodeNo,
        is_cut: bool,
        is_else: bool,
    ) -> Result<FileAttr, Refusal> {
        if is_else {
            return Err(Refusal::Fixed);
        }
        if is_cut && !self.file(&self.place(number)?)?.is_writable {
            return Err(Refusal::ReadOnly);
        }
        self.stat(number)
    }

    /// Opens a file with the text it has now, for this process.
    pub(crate) fn open_file(
        &self,
        number: INodeNo,
        flags: OpenFlags,
        process: u32,
    ) -> Result<u64, Refusal> {
        let file = self.file(&self.place(number)?)?;
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if writes && !file.is_writable {
            return Err(Refusal::ReadOnly);
        }
        let open = Open::File(file.text.into());
        if writes && file.is_list {
            return self.handles().open_list(open, process);
        }
        self.handles().open(open)
    }

    /// Opens a directory with the names it has now.
    pub(crate) fn open_directory(&self, number: INodeNo) -> Result<u64, Refusal> {
        let directory = self.directory(number)?;
        let itself = (".".to_owned(), Place::Directory(directory.clone()));
        let parent = ("..".to_owned(), Place::Directory(directory.parent()));
        let mut entries = vec![itself, parent];
        entries.extend(model::entries(&self.view, &directory)?);
        self.handles().open(Open::Directory(entries.into()))
    }

    /// Takes what is written: a value at once, a list when it is whole.
    pub(crate) fn write_part(
        &self,
        number: INodeNo,
        handle: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Refusal> {
        let collected = self.handles().collect(handle, offset, data);
        match collected {
            Some(collected) => collected,
            None if offset != 0 => Err(Refusal::NotWhole),
            None => self.write_value(number, data),
        }
    }

    /// Has the daemon do what a list asks for that this process has written, or any process (`None`).
    pub(crate) fn write_list(
        &self,
        number: INodeNo,
        handle: u64,
        process: Option<u32>,
    ) -> Result<(), Refusal> {
        let written = self.handles().written(handle, process);
        written.map_or(Ok(()), |bytes| self.write_value(number, &bytes))
    }

    /// Has the daemon do what a value asks for.
    fn write_value(&self, number: INodeNo, data: &[u8]) -> Result<(), Refusal> {
        if data.len() > VALUE_BYTES_MAX {
            return Err(Refusal::TooLong { got: data.len() });
        }
        let text = str::from_utf8(data).map_err(|_| Refusal::NotText)?;
        let call = model::call(&self.view, &self.place(number)?, text)?;
        self.carry_out(&call)
    }

    fn carry_out(&self, call: &Call) -> Result<(), Refusal> {
        let outcome = call.make(self.daemon.client());
        // After a failure too: without an answer nobody knows what was done.
        self.daemon.forget();
        outcome
    }

    /// Has the daemon make what a new directory stands for; its attributes, which the kernel then holds.
    pub(crate) fn make(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Refusal> {
        let text = name.to_str().ok_or(Refusal::NotText)?;
        self.carry_out(&model::make(&self.directory(parent)?, text)?)?;
        self.look_up(parent, name)
    }

    /// Has the daemon remove what a directory stands for.
    pub(crate) fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Refusal> {
        let text = name.to_str().ok_or(Refusal::NotText)?;
        self.carry_out(&model::remove(&self.directory(parent)?, text)?)
    }
}

/// What kind of entry a place is.
pub(crate) fn kind(place: &Place) -> FileType {
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
