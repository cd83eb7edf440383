//! Finds out whether a store can be opened, and makes and changes nothing.
//!
//! A file that is there is opened for reading; whether it could be written, and whether another program has it, is
//! asked without a lock. What would be made, or made larger, is compared with what its file system says of itself. So
//! some things only an opening finds: a lock that the kernel does not show (of another host, or in another PID
//! namespace), direct I/O for a file that is not there yet, a limit of a file system that [`size_max`] does not know.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, CWD, OFlags, StatFs, accessat, statfs};
use rustix::io::Errno;

use super::{
    CREATE, OpenError, OpenFailure, OpenOptions, RESERVE, StoreKind, check_size, denied, identity,
    not_opened, system,
};
use crate::file::FileDisk;
use crate::geometry::is_read_only;
use crate::null::NullDisk;
use crate::size::size_of_disk;
use crate::{CacheMode, Capabilities, SharedStore, backing, locks};

/// What a probe has found at its path, for [`OpenOptions::seen`]: `None` if nothing. Whoever keeps a file that was
/// probed keeps its inode from being used again.
pub fn seen(probed: &dyn SharedStore) -> Option<(u64, u64)> {
    identity(&probed.descriptor()?).ok()
}

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
            StoreKind::Disc if self.path.as_os_str().is_empty() => return self.try_open(),
            StoreKind::Path | StoreKind::File | StoreKind::Block | StoreKind::Disc => {}
        }
        let found = match std::fs::metadata(&self.path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.probe_new(),
            Err(error) => return Err(system("look at it")(error)),
        };
        let (file, disk) = self.open_found(&found, |is_device| self.open_to_look(is_device))?;
        let is_block_device = found.file_type().is_block_device();
        if is_block_device {
            let below = backing::check(&file, self.read_only);
            below.map_err(|path| OpenFailure::BackingInUse { path })?;
        } else {
            let actual = size_of_disk(&file, false).map_err(system("find out its size"))?;
            probe_growth(&self.path, actual, disk.size_bytes, self.thin)?;
        }
        let disk = FileDisk::new(file, disk, self.cache, is_block_device, None);
        Ok(Arc::new(disk))
    }

    /// The same for a file that would have to be made.
    fn probe_new(&self) -> Result<Arc<dyn SharedStore>, OpenFailure> {
        let size = self.size_to_make()?;
        let may = Access::WRITE_OK | Access::EXEC_OK;
        let may = accessat(CWD, directory_of(&self.path), may, AtFlags::EACCESS);
        may.map_err(|errno| system(CREATE)(errno.into()))?;
        probe_growth(&self.path, 0, size, self.thin)?;
        let mut disk = Capabilities::plain(size, self.block_bytes.unwrap_or(512));
        disk.thin = self.thin;
        disk.volatile_cache = true;
        disk.writes_through = self.cache == CacheMode::WriteThrough;
        Ok(Arc::new(NullDisk::like(disk)))
    }

    /// Opens it for reading, if it could be opened for the I/O to come and locked.
    fn open_to_look(&self, is_block_device: bool) -> Result<OwnedFd, OpenFailure> {
        if !self.read_only {
            accessat(CWD, &self.path, Access::WRITE_OK, AtFlags::EACCESS).map_err(not_opened)?;
        }
        let claim = self.claim(is_block_device);
        if !claim.is_empty() {
            drop(self.open_as(OFlags::RDONLY | claim)?);
        }
        let file = self.open_as(OFlags::RDONLY)?;
        if is_block_device && !self.read_only && is_read_only(&file) {
            return Err(denied(rustix::process::geteuid().is_root()));
        }
        match (locks::is_locked(&file, !self.read_only), self.read_only) {
            (false, _) => Ok(file),
            (true, true) => Err(OpenFailure::InUseByWriter),
            (true, false) => Err(OpenFailure::InUse),
        }
    }

    /// The size that a file is made with, if it may be made.
    pub(super) fn size_to_make(&self) -> Result<u64, OpenFailure> {
        if matches!(self.kind, StoreKind::Block | StoreKind::Disc) {
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
/// if it is as large, if it is no file, or if that cannot be found out.
pub fn reservation(path: &Path, size_bytes: u64) -> Option<Reservation> {
    let actual = match std::fs::metadata(path) {
        Ok(found) if found.is_file() => found.len(),
        Ok(_) => return None,
        Err(_) => 0,
    };
    let bytes = size_bytes.checked_sub(actual).filter(|bytes| *bytes > 0)?;
    let (directory, found) = file_system_of(path)?;
    Some(Reservation {
        file_system: std::fs::metadata(directory).ok()?.dev(),
        bytes,
        free_bytes: free_bytes(&found)?,
    })
}

/// Whether a store can be made so large: it is a file, and its file system takes files of that size, and has the space
/// where it is taken at once.
///
/// # Errors
///
/// It cannot.
pub fn probe_growth(path: &Path, from: u64, to: u64, is_thin: bool) -> Result<(), OpenFailure> {
    let Some((_, found)) = file_system_of(path).filter(|_| to > from) else {
        return Ok(());
    };
    if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
        let (actual, wanted) = (from, to);
        return Err(OpenFailure::CannotGrow { actual, wanted });
    }
    if to > size_max(&found) {
        return Err(system("make it that large")(Errno::FBIG.into()));
    }
    match free_bytes(&found) {
        Some(free) if !is_thin && free < to - from => Err(system(RESERVE)(Errno::NOSPC.into())),
        Some(_) | None => Ok(()),
    }
}

/// The directory that a file is in, or is to be in, and its file system. Not those of a link to it.
fn file_system_of(path: &Path) -> Option<(std::path::PathBuf, StatFs)> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = directory_of(&path);
    let found = statfs(directory).ok()?;
    Some((directory.to_owned(), found))
}

/// What is free; `None` where the file system does not say.
fn free_bytes(found: &StatFs) -> Option<u64> {
    let block = u64::try_from(found.f_bsize).ok()?;
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(block))
}

/// The largest file of a file system, as far as its type says it.
fn size_max(found: &StatFs) -> u64 {
    const EXT: i128 = 0xef53;
    const FAT: i128 = 0x4d44;
    const BLOCKS: u64 = u32::MAX as u64;
    match i128::from(found.f_type) & 0xffff_ffff {
        EXT => BLOCKS.saturating_mul(u64::try_from(found.f_bsize).unwrap_or(4096)),
        FAT => BLOCKS,
        _ => i64::MAX.cast_unsigned(),
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
    fn what_a_file_takes_at_once_is_what_it_lacks() {
        let directory = std::env::temp_dir().join(format!("tarn-lacks-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (new, old) = (directory.join("new.img"), directory.join("old.img"));
        fs::write(&old, [0; 100]).unwrap();
        let lacks = |path: &Path, size| reservation(path, size).map(|found| found.bytes);
        assert_eq!((lacks(&new, 0), lacks(&new, 1)), (None, Some(1)));
        assert_eq!(
            [99, 100, 101].map(|size| lacks(&old, size)),
            [None, None, Some(1)]
        );
        assert_eq!(lacks(&directory, 1 << 20), None);
        let found = reservation(&new, 7).unwrap();
        assert_eq!(found.file_system, fs::metadata(&directory).unwrap().dev());
        assert!(found.free_bytes > 0);
        fs::remove_dir_all(&directory).unwrap();
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
        assert_another_file_is_not_opened(&directory);
        assert_a_probe_has_what_matters_to_others(&directory);
        fs::remove_dir_all(&directory).unwrap();
    }

    /// What is opened after a look is what was there.
    fn assert_another_file_is_not_opened(directory: &Path) {
        let path = directory.join("seen.img");
        let new = options(&path, Some(4096));
        let opens = |probed: &dyn SharedStore, size| {
            let opened = OpenOptions {
                seen: Some(seen(probed)),
                ..options(&path, size)
            };
            opened.open().map(drop).map_err(|error| error.reason)
        };
        let missing = new.probe().unwrap();
        opens(&*missing, Some(4096)).unwrap();
        let came = opens(&*missing, Some(8192));
        assert!(matches!(came, Err(OpenFailure::Replaced)), "{came:?}");
        let found = new.probe().unwrap();
        opens(&*found, Some(4096)).unwrap();
        fs::remove_file(&path).unwrap();
        let gone = opens(&*found, Some(4096));
        assert!(matches!(gone, Err(OpenFailure::Replaced)), "{gone:?}");
        fs::write(&path, [0; 4096]).unwrap();
        let other = opens(&*found, Some(8192));
        assert!(matches!(other, Err(OpenFailure::Replaced)), "{other:?}");
        let left = fs::metadata(&path).unwrap().len();
        assert_eq!(left, 4096, "another file was made larger");
        fs::remove_file(&path).unwrap();
    }

    /// A composition compares its members by these.
    fn assert_a_probe_has_what_matters_to_others(directory: &Path) {
        let path = directory.join("like.img");
        for (cache, thin) in [
            (CacheMode::WriteBack, true),
            (CacheMode::WriteThrough, true),
            (CacheMode::WriteBack, false),
        ] {
            let options = OpenOptions {
                cache,
                thin,
                ..options(&path, Some(4096))
            };
            let of = |store: Arc<dyn SharedStore>| {
                let it = store.capabilities();
                let cache = (it.volatile_cache, it.writes_through);
                (cache, it.thin, it.read_only, it.compare_and_write_bytes)
            };
            let missing = of(options.probe().unwrap());
            assert_eq!(missing, of(options.open().unwrap()), "{cache:?} {thin}");
            assert_eq!(missing, of(options.probe().unwrap()), "{cache:?} {thin}");
            fs::remove_file(&path).unwrap();
        }
    }
}
