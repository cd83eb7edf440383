//! Snapshots of regular files: copies that share their blocks with the file (reflinks), in a directory beside it.
//!
//! The snapshots of `disk.img` are the files of `disk.img.snapshots`, each under its own name. There is no record of
//! them but these names, so none can disagree with them. A copy is made under a name that no snapshot can have, a dot
//! in front, and gets its own when it is whole and on stable storage. What a crash leaves is found by its name, and is
//! not locked by anybody; the next copy removes it.
//!
//! A copy has three steps, so that only the second one is made while nobody may write: [`Snapshots::begin`] writes
//! what the page cache has, [`NewSnapshot::take`] copies, [`NewSnapshot::keep`] makes the copy durable.
//!
//! Every call may wait for as long as a file system is stuck, so no core makes one.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, ioctl_ficlone, renameat_with};
use rustix::io::Errno;

/// What the name of the directory ends with.
const DIRECTORY: &str = ".snapshots";

/// What the name of a copy that is being made ends with; it begins with a dot.
const UNFINISHED: &str = ".new";

/// Snapshots of one file, at most: a schedule that nobody looks at does not fill a directory.
pub const SNAPSHOTS_MAX: usize = 1024;

/// Flushes before a copy, at most.
const FLUSHES_MAX: usize = 5;

/// A flush that takes no longer leaves little to be written.
const FLUSH_SHORT: Duration = Duration::from_millis(50);

/// Characters of a name, at most.
const NAME_CHARS_MAX: usize = 64;

/// The name of a snapshot: a letter or digit, then letters, digits, `.`, `_` and `-`. So it is one part of a path, and
/// no copy that is being made has it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SnapshotName(String);

impl SnapshotName {
    /// The name, if it may be one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_in_it = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let is_good = text.len() <= NAME_CHARS_MAX
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(is_in_it);
        is_good.then(|| Self(text.to_owned()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A snapshot that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// Its name.
    pub name: SnapshotName,
    /// Its file.
    pub path: PathBuf,
    /// When it was taken.
    pub taken: SystemTime,
    /// Its length.
    pub size_bytes: u64,
}

/// What is free of a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Room {
    /// What others than root may still write.
    pub free_bytes: u64,
    /// All of it.
    pub size_bytes: u64,
}

/// Why something is not done with a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A block device, or anything else.
    #[error(
        "it is not a regular file: Tarn takes snapshots of files on XFS and btrfs; for a block device use the \
         snapshots of its volume manager (LVM, ZFS)"
    )]
    NotAFile,
    /// The file system cannot share blocks.
    #[error(
        "its file system does not share blocks between files: put the file on XFS (made with reflink=1) or btrfs \
         (without nodatacow)"
    )]
    NoReflinks,
    /// The copy would be on another one.
    #[error(
        "it is on another file system than the snapshot: choose a path beside the file of the snapshot"
    )]
    OtherFileSystem,
    /// Something is where the new file is to be.
    #[error("{} is there already: choose another path, or remove it", path.display())]
    FileExists {
        /// Where.
        path: PathBuf,
    },
    /// The new file would be among snapshots.
    #[error("{} is where snapshots of {} are: choose another directory", path.display(), of.display())]
    AmongSnapshots {
        /// Where.
        path: PathBuf,
        /// Whose snapshots.
        of: PathBuf,
    },
    /// The name is taken.
    #[error("there is a snapshot {name} already: choose another name, or remove that one")]
    Exists {
        /// The name.
        name: SnapshotName,
    },
    /// Nothing has the name.
    #[error("there is no snapshot {name}: see tarn snapshot list")]
    Missing {
        /// The name.
        name: SnapshotName,
    },
    /// Some program has it locked.
    #[error(
        "snapshot {name} is in use: remove the lun that serves it, or stop the program that reads it"
    )]
    InUse {
        /// The name.
        name: SnapshotName,
    },
    /// One more is too many.
    #[error("it has {SNAPSHOTS_MAX} snapshots, which is the most: remove some")]
    TooMany,
    /// The path names another file than the one that was meant.
    #[error("another file is at its path now: see tarn doctor")]
    Replaced,
    /// The system refuses.
    #[error("cannot {action}: {source}{}", remedy(source))]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// What helps, if the error says that.
fn remedy(error: &io::Error) -> &'static str {
    let kind = error.kind();
    if matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded) {
        "; make room, or remove snapshots (tarn snapshot rm)"
    } else if kind == ErrorKind::PermissionDenied {
        "; the directory of the file must be writable, and a confined Tarn needs the whole directory in \
         confine.roots, not the file alone"
    } else {
        ""
    }
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> SnapshotError {
    move |source| SnapshotError::System { action, source }
}

/// What an error means that is of this kind; any other one is the system's.
fn classify(
    kind: ErrorKind,
    meant: impl FnOnce() -> SnapshotError,
    action: &'static str,
    error: io::Error,
) -> SnapshotError {
    if error.kind() == kind {
        meant()
    } else {
        system(action)(error)
    }
}

/// The snapshots of one file.
#[derive(Clone, Debug)]
pub struct Snapshots {
    file: PathBuf,
    directory: PathBuf,
}

impl Snapshots {
    /// Those of the file that this path leads to: by whatever links it is reached, it has one directory.
    ///
    /// # Errors
    ///
    /// It leads nowhere.
    pub fn of(path: &Path) -> Result<Self, SnapshotError> {
        let file = fs::canonicalize(path).map_err(system("find the file"))?;
        let mut directory = file.as_os_str().to_owned();
        directory.push(DIRECTORY);
        let directory = PathBuf::from(directory);
        Ok(Self { file, directory })
    }

    /// How full their file system is.
    ///
    /// # Errors
    ///
    /// The system refuses.
    pub fn room(&self) -> Result<Room, SnapshotError> {
        let found = rustix::fs::statvfs(&self.file);
        let found = found.map_err(|error| system("look at the file system")(error.into()))?;
        Ok(Room {
            free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
            size_bytes: found.f_blocks.saturating_mul(found.f_frsize),
        })
    }

    fn path_of(&self, name: &SnapshotName) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// All of them, the oldest first. What else is in the directory is left out.
    ///
    /// # Errors
    ///
    /// The directory cannot be read. That there is none means no snapshots.
    pub fn list(&self) -> Result<Vec<Snapshot>, SnapshotError> {
        let action = "read the directory of its snapshots";
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(system(action)(error)),
        };
        let mut all = Vec::new();
        // Others may fill it, too.
        for entry in entries.take(SNAPSHOTS_MAX.saturating_mul(2)) {
            let entry = entry.map_err(system(action))?;
            let file_name = entry.file_name();
            let Some(name) = file_name.to_str().and_then(SnapshotName::parse) else {
                continue;
            };
            // Removed meanwhile, or a directory of somebody.
            let Some(found) = entry.metadata().ok().filter(fs::Metadata::is_file) else {
                continue;
            };
            all.push(snapshot(name, entry.path(), &found));
        }
        all.sort_by(|one, other| (one.taken, &one.name).cmp(&(other.taken, &other.name)));
        Ok(all)
    }

    /// Begins a snapshot: writes what the page cache has of the file, so that less is left to be written while nobody
    /// may write, and makes an empty copy. `is_meant` says whether the path leads to the file that is meant.
    ///
    /// # Errors
    ///
    /// Why there can be none. Nothing is left.
    pub fn begin(
        &self,
        name: &SnapshotName,
        is_meant: impl FnOnce(&Path) -> io::Result<bool>,
    ) -> Result<NewSnapshot, SnapshotError> {
        let source = self.open_meant(is_meant)?;
        flush(&source).map_err(system("flush the file"))?;
        let (directory, made) = self.make_directory()?;
        self.remove_unfinished()?;
        if self.list()?.len() >= SNAPSHOTS_MAX {
            return Err(SnapshotError::TooMany);
        }
        let finished = self.path_of(name);
        if finished.symlink_metadata().is_ok() {
            return Err(SnapshotError::Exists { name: name.clone() });
        }
        let unfinished = self.make_unfinished(name)?;
        Ok(NewSnapshot {
            name: name.clone(),
            source,
            directory,
            unfinished,
            finished,
            _made: made,
        })
    }

    /// The file, if it is the one that is meant.
    fn open_meant(
        &self,
        is_meant: impl FnOnce(&Path) -> io::Result<bool>,
    ) -> Result<File, SnapshotError> {
        let file = open_regular(&self.file, OFlags::empty()).map_err(|error| match error {
            Some(error) => system("open the file")(error),
            None => SnapshotError::NotAFile,
        })?;
        match is_meant(&self.file).map_err(system("look at the file"))? {
            true => Ok(file),
            false => Err(SnapshotError::Replaced),
        }
    }

    /// An empty copy, locked, under a name that no snapshot has.
    fn make_unfinished(&self, name: &SnapshotName) -> Result<Unfinished, SnapshotError> {
        let place = self.directory.join(format!(".{name}{UNFINISHED}"));
        let copy = create(&place).map_err(|error| {
            // Another one makes it just now.
            let exists = || SnapshotError::Exists { name: name.clone() };
            classify(ErrorKind::AlreadyExists, exists, "make the copy", error)
        })?;
        let unfinished = Unfinished { copy, place };
        lock(&unfinished.copy).map_err(system("lock the copy"))?;
        Ok(unfinished)
    }

    /// Makes a copy of a snapshot that is to take the place of the file, with its owner, mode and size: where the file
    /// is larger now, the rest reads zeros. `is_meant` says whether the path leads to the file that is meant.
    ///
    /// # Errors
    ///
    /// Why there can be none. Nothing is left.
    pub fn begin_rollback(
        &self,
        name: &SnapshotName,
        is_meant: impl FnOnce(&Path) -> io::Result<bool>,
    ) -> Result<Rollback, SnapshotError> {
        let (snapshot, file) = (self.open(name)?, self.open_meant(is_meant)?);
        self.remove_unfinished()?;
        let unfinished = self.make_unfinished(name)?;
        let copy = &unfinished.copy;
        reflink(copy, &snapshot)?;
        let found = file.metadata().map_err(system("look at the file"))?;
        let size = found
            .len()
            .max(copy.metadata().map_or(0, |copy| copy.len()));
        copy.set_len(size)
            .map_err(system("make the copy as large as the file"))?;
        settle(copy, &file, found.mode() & 0o777)?;
        self.prepare(unfinished, &found)
    }

    /// What is to take the place of the file.
    fn prepare(
        &self,
        unfinished: Unfinished,
        before: &fs::Metadata,
    ) -> Result<Rollback, SnapshotError> {
        let copy = unfinished.copy.metadata();
        let exchange = Exchange {
            file: self.file.clone(),
            old: unfinished.place.clone(),
            before: Inode::of(before),
            copy: Inode::of(&copy.map_err(system("look at the copy"))?),
        };
        Ok(Rollback {
            exchange,
            unfinished,
        })
    }

    /// The directory, made where it is not there.
    fn make_directory(&self) -> Result<(File, Option<MadeDirectory>), SnapshotError> {
        let created = DirBuilder::new().mode(0o700).create(&self.directory);
        let mut made = None;
        match created {
            Ok(()) => {
                made = Some(MadeDirectory(self.directory.clone()));
                sync_directory_of(&self.directory)
                    .map_err(system("make the directory of its snapshots durable"))?;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(system("make the directory of its snapshots")(error)),
        }
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&self.directory);
        let opened = opened.map_err(system("open the directory of its snapshots"))?;
        Ok((opened, made))
    }

    /// Removes what a crash has left. What is being made is locked.
    fn remove_unfinished(&self) -> Result<(), SnapshotError> {
        let action = "read the directory of its snapshots";
        let entries = fs::read_dir(&self.directory).map_err(system(action))?;
        for entry in entries.take(SNAPSHOTS_MAX.saturating_mul(2)) {
            let entry = entry.map_err(system(action))?;
            let file_name = entry.file_name();
            let name = file_name.to_str().and_then(|name| {
                let name = name.strip_prefix('.')?.strip_suffix(UNFINISHED)?;
                SnapshotName::parse(name)
            });
            let place = entry.path();
            let Some(file) = name.and_then(|_| open_regular(&place, OFlags::NOFOLLOW).ok()) else {
                continue;
            };
            if lock(&file).is_ok() {
                fs::remove_file(&place).map_err(system("remove what an earlier copy has left"))?;
            }
        }
        Ok(())
    }

    /// Removes a snapshot that nobody has open.
    ///
    /// # Errors
    ///
    /// There is none of this name, it is in use, or the system refuses: then it may be gone after the next crash.
    pub fn remove(&self, name: &SnapshotName) -> Result<(), SnapshotError> {
        let file = self.open(name)?;
        lock(&file).map_err(|error| {
            let in_use = || SnapshotError::InUse { name: name.clone() };
            classify(ErrorKind::WouldBlock, in_use, "lock the snapshot", error)
        })?;
        // Open before anything is done: what fails from here on has removed it.
        let directory = File::open(&self.directory).map_err(system("open its directory"))?;
        fs::remove_file(self.path_of(name)).map_err(system("remove the snapshot"))?;
        let kept = system("make sure that the snapshot, which is removed, stays so after a crash");
        directory.sync_all().map_err(kept)
    }

    fn open(&self, name: &SnapshotName) -> Result<File, SnapshotError> {
        let missing = || SnapshotError::Missing { name: name.clone() };
        open_regular(&self.path_of(name), OFlags::NOFOLLOW).map_err(|error| match error {
            Some(error) if error.kind() == ErrorKind::NotFound => missing(),
            Some(error) => system("open the snapshot")(error),
            None => missing(),
        })
    }

    /// Makes a new file with the data of a snapshot. They share blocks until one of them changes, and neither needs
    /// the other to stay.
    ///
    /// # Errors
    ///
    /// Something is at the path already, or the copy fails; nothing is left.
    pub fn clone_to(
        &self,
        name: &SnapshotName,
        path: &Path,
    ) -> Result<Finished<()>, SnapshotError> {
        if let Some(of) = file_of_snapshot(path) {
            let path = path.to_owned();
            return Err(SnapshotError::AmongSnapshots { path, of });
        }
        let snapshot = self.open(name)?;
        let copy = create(path).map_err(|error| {
            let path = path.to_owned();
            let exists = || SnapshotError::FileExists { path };
            classify(ErrorKind::AlreadyExists, exists, "make the new file", error)
        })?;
        let unfinished = Unfinished {
            copy,
            place: path.to_owned(),
        };
        // Nobody serves it before it is whole and stays.
        lock(&unfinished.copy).map_err(system("lock the new file"))?;
        reflink(&unfinished.copy, &snapshot)?;
        let mode = fs::metadata(&self.file).map_or(0o600, |found| found.mode() & 0o666);
        settle(&unfinished.copy, &snapshot, mode)?;
        sync_directory_of(path).map_err(system("make the name of the new file durable"))?;
        Ok(Finished {
            what: (),
            unfinished,
        })
    }
}

/// Removes a file that was made for a unit that there is not, if no program has it open.
///
/// # Errors
///
/// It is no regular file, it is in use, or the system refuses; it stays.
pub fn remove_unserved(path: &Path) -> io::Result<()> {
    let file = open_regular(path, OFlags::NOFOLLOW)
        .map_err(|error| error.unwrap_or_else(|| ErrorKind::InvalidInput.into()))?;
    lock(&file)?;
    fs::remove_file(path)
}

/// The file that a path is a snapshot of, or would be.
pub fn file_of_snapshot(path: &Path) -> Option<PathBuf> {
    // A link elsewhere is the snapshot, too.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = fs::canonicalize(path.parent()?).ok()?;
    let name = directory.file_name()?.to_str()?.strip_suffix(DIRECTORY)?;
    let file = directory.with_file_name(name);
    file.is_file().then_some(file)
}

/// A snapshot that is being made. Nothing of it is left when it is dropped.
#[derive(Debug)]
pub struct NewSnapshot {
    name: SnapshotName,
    source: File,
    directory: File,
    unfinished: Unfinished,
    finished: PathBuf,
    // Dropped last: nothing of the copy is in it then.
    _made: Option<MadeDirectory>,
}

/// A directory that was made for the first snapshot. If that is refused, none is left: it goes again where nothing is
/// in it.
#[derive(Debug)]
struct MadeDirectory(PathBuf);

impl Drop for MadeDirectory {
    fn drop(&mut self) {
        // One that has something in it stays.
        drop(fs::remove_dir(&self.0));
    }
}

impl NewSnapshot {
    /// Copies the file as it is now, with all that was written before. Takes a time that grows with the pieces of the
    /// file, not with its size.
    ///
    /// # Errors
    ///
    /// The file system cannot, or has no room.
    pub fn take(&self) -> Result<(), SnapshotError> {
        reflink(&self.unfinished.copy, &self.source)
    }

    /// Makes the copy durable, then gives it its name. Nobody may write it. It goes again unless it is to stay
    /// ([`Finished::stays`]).
    ///
    /// # Errors
    ///
    /// The system refuses; the snapshot is not there.
    pub fn keep(mut self) -> Result<Finished<Snapshot>, SnapshotError> {
        let found = self.source.metadata().map_err(system("look at the file"))?;
        let copy = &self.unfinished.copy;
        settle(copy, &self.source, found.mode() & 0o444)?;
        let found = copy.metadata().map_err(system("look at the copy"))?;
        let (place, finished) = (&self.unfinished.place, &self.finished);
        match renameat_with(CWD, place, CWD, finished, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(SnapshotError::Exists { name: self.name }),
            Err(errno) => return Err(system("name the snapshot")(errno.into())),
        }
        self.unfinished.place.clone_from(&self.finished);
        self.directory
            .sync_all()
            .map_err(system("make the name of the snapshot durable"))?;
        Ok(Finished {
            what: snapshot(self.name, self.finished, &found),
            unfinished: self.unfinished,
        })
    }
}

/// What was made, whole and durable. It is removed again when this is dropped: where nobody waits for it any more, it
/// was said not to be there.
#[derive(Debug)]
pub struct Finished<T> {
    what: T,
    unfinished: Unfinished,
}

impl<T> Finished<T> {
    /// It is not removed.
    pub fn stays(mut self) -> T {
        self.unfinished.stays();
        self.what
    }
}

/// A copy that is to take the place of a file. Nothing of it is left when it is dropped.
#[derive(Debug)]
pub struct Rollback {
    exchange: Exchange,
    unfinished: Unfinished,
}

impl Rollback {
    /// What it is to do: to be asked where that stands, if [`Rollback::exchange`] does not return.
    pub const fn plan(&self) -> &Exchange {
        &self.exchange
    }

    /// Puts the copy in the place of the file, which gets the name of the copy, in one step of `swap`: after a crash
    /// one of the two is at the path, whole.
    ///
    /// # Errors
    ///
    /// The system refuses. [`Exchange::stands`] says what is at the path.
    pub fn exchange(mut self, swap: Swap) -> Result<(), SnapshotError> {
        // Who opens the file locks it.
        flock(&self.unfinished.copy, FlockOperation::Unlock)
            .map_err(|errno| system("unlock the copy")(errno.into()))?;
        // What has its name from here on may be the file that was there, also after an error.
        self.unfinished.stays();
        self.exchange.swap(swap)
    }
}

/// What is at the path of a file that is rolled back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The file of before.
    Before,
    /// The copy, also after a crash.
    Exchanged,
}

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Inode(u64, u64);

impl Inode {
    fn of(found: &fs::Metadata) -> Self {
        Self(found.dev(), found.ino())
    }
}

/// Exchanges what is at two paths. It may take long.
pub type Swap = fn(&Path, &Path) -> io::Result<()>;

/// A file and the copy that is to take its place.
#[derive(Clone, Debug)]
pub struct Exchange {
    file: PathBuf,
    old: PathBuf,
    before: Inode,
    copy: Inode,
}

impl Exchange {
    fn swap(&self, swap: Swap) -> Result<(), SnapshotError> {
        swap(&self.old, &self.file).map_err(system("exchange the file"))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), SnapshotError> {
        let synced = sync_directory_of(&self.file).and_then(|()| sync_directory_of(&self.old));
        synced.map_err(system("make the exchange durable"))
    }

    /// What is at the path. To be asked when no call of an exchange is under way.
    ///
    /// # Errors
    ///
    /// The system refuses, or another file is there.
    pub fn stands(&self) -> Result<Standing, SnapshotError> {
        let found = fs::metadata(&self.file).map_err(system("look at the file"))?;
        match Inode::of(&found) {
            there if there == self.before => Ok(Standing::Before),
            there if there == self.copy => self.sync().map(|()| Standing::Exchanged),
            _ => Err(SnapshotError::Replaced),
        }
    }

    /// Removes what was put out of its place, if no program has it open.
    ///
    /// # Errors
    ///
    /// It stays beside the snapshots, until the next one is taken.
    pub fn finish(&self) -> Result<(), SnapshotError> {
        let file = open_regular(&self.old, OFlags::NOFOLLOW).map_err(|error| {
            let error = error.unwrap_or_else(|| ErrorKind::InvalidInput.into());
            system("open the file of before")(error)
        })?;
        lock(&file).map_err(system("lock the file of before"))?;
        fs::remove_file(&self.old).map_err(system("remove the file of before"))
    }

    /// Puts the file back that was there, and removes the copy.
    ///
    /// # Errors
    ///
    /// As [`Rollback::exchange`]; the copy may be left over.
    pub fn back(&self, swap: Swap) -> Result<(), SnapshotError> {
        if self.stands()? == Standing::Exchanged {
            self.swap(swap)?;
        }
        self.finish()
    }
}

/// A file that is removed again unless it is to stay.
#[derive(Debug)]
struct Unfinished {
    copy: File,
    /// Empty when it is to stay.
    place: PathBuf,
}

impl Unfinished {
    fn stays(&mut self) {
        self.place = PathBuf::new();
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if self.place.as_os_str().is_empty() {
            return;
        }
        // One that cannot be removed is found by its name, unless it has its own already.
        drop(fs::remove_file(&self.place));
    }
}

fn snapshot(name: SnapshotName, path: PathBuf, found: &fs::Metadata) -> Snapshot {
    Snapshot {
        name,
        path,
        taken: found.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        size_bytes: found.len(),
    }
}

/// Opens a file for reading. `None` as the error: it is no regular file, which is not waited for.
fn open_regular(path: &Path, flags: OFlags) -> Result<File, Option<io::Error>> {
    let flags = (OFlags::NONBLOCK | flags).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Ok(file) => file,
        // A link, a socket.
        Err(error)
            if matches!(
                Errno::from_io_error(&error),
                Some(Errno::LOOP | Errno::NXIO)
            ) =>
        {
            return Err(None);
        }
        Err(error) => return Err(Some(error)),
    };
    let found = file.metadata().map_err(Some)?;
    found.is_file().then_some(file).ok_or(None)
}

/// Writes what the page cache has of a file. Others write meanwhile, for as long as that takes: so it is written again
/// until it takes no time.
fn flush(file: &File) -> io::Result<()> {
    for _ in 0..FLUSHES_MAX {
        let since = Instant::now();
        file.sync_data()?;
        if since.elapsed() < FLUSH_SHORT {
            break;
        }
    }
    Ok(())
}

/// Makes a private file that was not there.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.open(path)
}

fn lock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

/// Has `copy` share all blocks of `source`. The kernel writes what its page cache has of that first, and lets nobody
/// write meanwhile.
fn reflink(copy: &File, source: &File) -> Result<(), SnapshotError> {
    ioctl_ficlone(copy, source).map_err(|errno| match errno {
        Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL => SnapshotError::NoReflinks,
        Errno::XDEV => SnapshotError::OtherFileSystem,
        errno => system("copy the file")(errno.into()),
    })
}

/// File systems whose files share no blocks, by their magic number (`f_type`): ext2 to ext4, tmpfs, ramfs, FAT, exFAT,
/// FUSE, F2FS, JFS.
const WITHOUT_REFLINKS: [i128; 8] = [
    0xef53,
    0x0102_1994,
    0x8584_58f6,
    0x4d44,
    0x2011_bab0,
    0x6573_5546,
    0xf2f5_2010,
    0x3153_464a,
];

/// Whether files can share blocks where a file is, or is to be, as far as the type of its file system says it. Of
/// others nothing is known, and nothing is refused.
///
/// # Errors
///
/// [`SnapshotError::NoReflinks`].
pub fn probe_reflinks(path: &Path) -> Result<(), SnapshotError> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    let found = rustix::fs::statfs(directory.unwrap_or_else(|| Path::new(".")));
    let kind = found.map_or(0, |found| i128::from(found.f_type) & 0xffff_ffff);
    match WITHOUT_REFLINKS.contains(&kind) {
        true => Err(SnapshotError::NoReflinks),
        false => Ok(()),
    }
}

/// Gives a copy the owner of the file it is of, and this mode, and makes it durable.
fn settle(copy: &File, source: &File, mode: u32) -> Result<(), SnapshotError> {
    let found = source.metadata().map_err(system("look at the file"))?;
    // Only root can give files away; the others own both.
    drop(fchown(copy, Some(found.uid()), Some(found.gid())));
    copy.set_permissions(Permissions::from_mode(mode))
        .map_err(system("set the mode of the copy"))?;
    copy.sync_all().map_err(system("make the copy durable"))
}

/// A name is an entry of the directory, which has a life of its own on the disk.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
