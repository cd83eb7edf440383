//! Finds out whether a store can be opened, and makes and changes nothing.
//!
//! A file that is there is opened and locked as if to be served, and closed again: a program that wants it in the same
//! moment finds it in use. What would be made, or made larger, is tried on a file without a name in the same directory,
//! which nobody sees and which goes with its descriptor. Where the file system has no such files, rights are asked for
//! instead, and sizes are not known to fit.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    Access, FallocateFlags, Mode, OFlags, access, fallocate, fstat, fstatvfs, ftruncate,
};
use rustix::io::Errno;

use super::{CREATE, OpenError, OpenFailure, OpenOptions, RESERVE, StoreKind, check_size, system};
use crate::file::FileDisk;
use crate::null::NullDisk;
use crate::size::size_of_disk;
use crate::{CacheMode, SharedStore};

impl OpenOptions {
    /// A store as [`OpenOptions::open`] would give it, to be asked and not to be used.
    ///
    /// # Errors
    ///
    /// What would keep it from being opened.
    pub fn probe(&self) -> Result<Arc<dyn SharedStore>, OpenError> {
        self.try_probe().map_err(|reason| OpenError {
            place: self.place(),
            reason,
        })
    }

    fn try_probe(&self) -> Result<Arc<dyn SharedStore>, OpenFailure> {
        match self.kind {
            StoreKind::Memory | StoreKind::Null => return self.try_open(),
            StoreKind::Path | StoreKind::File | StoreKind::Block => {}
        }
        let found = match std::fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.probe_new(),
            Err(error) => return Err(system("look at it")(error)),
        };
        let (file, disk) = self.open_found(&found)?;
        if !found.file_type().is_block_device() {
            let actual = size_of_disk(&file, false).map_err(system("find out its size"))?;
            if disk.size_bytes > actual {
                fits(&self.path, actual, disk.size_bytes, self.thin)?;
            }
        }
        self.to_disk(file, disk, &found)
    }

    /// The same for a file that would have to be made.
    fn probe_new(&self) -> Result<Arc<dyn SharedStore>, OpenFailure> {
        let size = self.size_to_make()?;
        let direct = match self.cache {
            CacheMode::Direct => OFlags::DIRECT,
            CacheMode::WriteBack | CacheMode::WriteThrough => OFlags::empty(),
        };
        let Some(file) = nameless(&self.path, direct)? else {
            let may_make = access(directory_of(&self.path), Access::WRITE_OK | Access::EXEC_OK);
            may_make.map_err(|errno| system(CREATE)(errno.into()))?;
            let block = self.block_bytes.unwrap_or(512);
            return Ok(Arc::new(NullDisk::new(size, block, false)));
        };
        let disk = self.describe(&file, size, false)?;
        make_so_large(&file, 0, size, self.thin)?;
        Ok(Arc::new(FileDisk::new(file, disk, self.cache, false, None)))
    }

    /// The size that a file is made with, if it may be made.
    pub(super) fn size_to_make(&self) -> Result<u64, OpenFailure> {
        if self.kind == StoreKind::Block {
            return Err(OpenFailure::Missing);
        }
        let size = self.size_bytes.ok_or(OpenFailure::MissingAndNoSize)?;
        if self.read_only {
            return Err(OpenFailure::Missing);
        }
        check_size(size, self.block_bytes.unwrap_or(512))?;
        // Nobody makes a file behind a link.
        match std::fs::symlink_metadata(&self.path) {
            Ok(_) => Err(OpenFailure::DanglingLink),
            Err(_) => Ok(size),
        }
    }
}

/// The space that a file takes at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reservation {
    /// The number of the file system.
    pub file_system: u64,
    /// What is taken of it, in bytes.
    pub bytes: u64,
    /// What is free there now.
    pub free_bytes: u64,
}

/// The space that a file without thin provisioning will take when it gets a size, whether it is there or not. `None`
/// if it is as large, if it is no file, or if that cannot be found out: the file system may not reserve space.
pub fn reservation(path: &Path, size_bytes: u64) -> Option<Reservation> {
    let actual = match std::fs::metadata(path) {
        Ok(found) if found.is_file() => found.len(),
        Ok(_) => return None,
        Err(_) => 0,
    };
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let bytes = size_bytes.checked_sub(actual).filter(|bytes| *bytes > 0)?;
    let file = nameless(&path, OFlags::empty()).ok().flatten()?;
    let found = fstatvfs(&file).ok()?;
    reserves(&file).then_some(())?;
    Some(Reservation {
        file_system: fstat(&file).ok()?.st_dev,
        bytes,
        free_bytes: found.f_bavail.saturating_mul(found.f_frsize),
    })
}

/// Whether the file system reserves space. Where it cannot, a file is made without, as [`OpenOptions::open`] does.
fn reserves(file: &OwnedFd) -> bool {
    fallocate(file, FallocateFlags::KEEP_SIZE, 0, 4096) != Err(Errno::OPNOTSUPP)
}

/// Whether a file that is served can be made larger: the file system takes files of that size, and has the space where
/// it is taken at once.
///
/// # Errors
///
/// It cannot.
pub fn probe_growth(path: &Path, from: u64, to: u64, is_thin: bool) -> Result<(), OpenFailure> {
    fits(path, from, to, is_thin)
}

fn fits(path: &Path, from: u64, to: u64, is_thin: bool) -> Result<(), OpenFailure> {
    // The space is that of the file, not that of a link to it.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match nameless(&path, OFlags::empty()) {
        Ok(Some(file)) => make_so_large(&file, from, to, is_thin),
        // It is there and can be written, whatever may be done with its directory.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Gives a file without a name a size. Space is not taken, even if it would be.
fn make_so_large(file: &OwnedFd, from: u64, to: u64, is_thin: bool) -> Result<(), OpenFailure> {
    ftruncate(file, to).map_err(|errno| system("make it that large")(errno.into()))?;
    let free = || fstatvfs(file).map(|found| found.f_bavail.saturating_mul(found.f_frsize));
    match free() {
        Ok(free) if !is_thin && free < to.saturating_sub(from) && reserves(file) => {
            Err(system(RESERVE)(Errno::NOSPC.into()))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A file without a name beside this one; `None` where the file system has no such files.
fn nameless(path: &Path, more: OFlags) -> Result<Option<OwnedFd>, OpenFailure> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
    match rustix::fs::open(directory_of(path), flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => Ok(None),
        Err(Errno::INVAL) if more.contains(OFlags::DIRECT) => Err(OpenFailure::NoDirectIo),
        Err(errno) => Err(system(CREATE)(errno.into())),
    }
}

fn directory_of(path: &Path) -> &Path {
    let directory = path.parent();
    let directory = directory.filter(|path| !path.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn options(path: &Path, size: Option<u64>) -> OpenOptions {
        OpenOptions {
            size_bytes: size,
            ..OpenOptions::new(StoreKind::File, path)
        }
    }

    #[test]
    fn a_probe_says_what_an_open_would_and_makes_nothing() {
        let directory = std::env::temp_dir().join(format!("tarn-probe-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (new, old) = (directory.join("new.img"), directory.join("old.img"));
        File::create(&old).unwrap().set_len(8192).unwrap();
        let size = |path: &Path, wanted| {
            let probed = options(path, wanted).probe();
            probed.map(|store| store.capabilities().size_bytes)
        };
        assert_eq!(size(&new, Some(4096)).unwrap(), 4096);
        assert!(matches!(
            size(&new, None).unwrap_err().reason,
            OpenFailure::MissingAndNoSize
        ));
        assert!(matches!(
            size(&new, Some(4000)).unwrap_err().reason,
            OpenFailure::PartialBlock { .. }
        ));
        let far = directory.join("none/new.img");
        size(&far, Some(4096)).unwrap_err();
        assert_eq!(size(&old, None).unwrap(), 8192);
        assert_eq!(size(&old, Some(4096)).unwrap(), 8192, "a size is the least");
        assert_eq!(size(&old, Some(16384)).unwrap(), 16384);
        assert_eq!(
            fs::metadata(&old).unwrap().len(),
            8192,
            "the file has grown"
        );
        let names = fs::read_dir(&directory).unwrap().count();
        assert_eq!(names, 1, "a probe has made something");
        let served = options(&old, None).open().unwrap();
        assert!(matches!(
            size(&old, None).unwrap_err().reason,
            OpenFailure::InUse
        ));
        drop(served);
        size(&old, None).unwrap();
        probe_growth(&old, 8192, 1 << 20, true).unwrap();
        probe_growth(&old, 8192, u64::MAX / 2 + 1, true).unwrap_err();
        let link = directory.join("link");
        std::os::unix::fs::symlink(directory.join("gone"), &link).unwrap();
        for failed in [
            options(&link, Some(4096)).probe(),
            options(&link, Some(4096)).open(),
        ] {
            assert!(matches!(
                failed.unwrap_err().reason,
                OpenFailure::DanglingLink
            ));
        }
        assert_eq!(reservation(&old, 8192), None);
        if let Some(found) = reservation(&old, 1 << 20) {
            assert_eq!(found.bytes, (1 << 20) - 8192);
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
