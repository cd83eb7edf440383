//! The file that a loop device is of. Who serves the device locks that file, too, so that no other program that locks
//! what it serves has it at the same time.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::io::Errno;

use crate::locks;

/// Devices below each other: deeper than anybody stacks them.
const DEPTH_MAX: usize = 8;

/// Locks the file below a device, if there is one: alone for a writer, but where the device is only a part of it.
///
/// # Errors
///
/// Another program has this file locked. A file that this process cannot see or open is not locked.
pub(crate) fn lock(device: impl AsFd, read_only: bool) -> Result<Option<OwnedFd>, PathBuf> {
    let Some((path, file, is_alone)) = open_below(device, read_only) else {
        return Ok(None);
    };
    let how = match is_alone {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    match flock(&file, how) {
        Err(Errno::WOULDBLOCK) => Err(path),
        Err(_) => Ok(None),
        Ok(()) => Ok(Some(file.into())),
    }
}

/// As [`lock`], without locking it.
///
/// # Errors
///
/// As [`lock`].
pub(crate) fn check(device: impl AsFd, read_only: bool) -> Result<(), PathBuf> {
    match open_below(device, read_only) {
        Some((path, file, is_alone)) if locks::is_locked(&file, is_alone) => Err(path),
        Some(_) | None => Ok(()),
    }
}

/// The file below a device, open, and whether its user is to have it alone.
fn open_below(device: impl AsFd, read_only: bool) -> Option<(PathBuf, File, bool)> {
    let number = fstat(device).ok()?.st_rdev;
    let (path, is_whole) = file_below(&sysfs_of(number))?;
    let file = File::open(&path).ok()?;
    Some((path, file, is_whole && !read_only))
}

fn sysfs_of(number: u64) -> PathBuf {
    PathBuf::from(format!(
        "/sys/dev/block/{}:{}",
        major(number),
        minor(number)
    ))
}

/// The file below the device of this directory of sysfs, and whether the device is all of it: partitions lie on disks,
/// volumes on partitions, loop devices on other devices. Of several files the first stands for all.
fn file_below(base: &Path) -> Option<(PathBuf, bool)> {
    let mut base = fs::canonicalize(base).ok()?;
    let mut is_whole = true;
    for _ in 0..DEPTH_MAX {
        if let Ok(name) = fs::read(base.join("loop/backing_file")) {
            let name = name.strip_suffix(b"\n").unwrap_or(&name);
            let path = Path::new(std::ffi::OsStr::from_bytes(name));
            let device = fs::metadata(path).ok();
            let device = device.filter(|found| found.file_type().is_block_device());
            let Some(number) = device.map(|device| device.rdev()) else {
                return Some((path.to_owned(), is_whole));
            };
            base = fs::canonicalize(sysfs_of(number)).ok()?;
            continue;
        }
        is_whole = false;
        let slaves = fs::read_dir(base.join("slaves")).ok();
        let slaves = slaves.into_iter().flatten().filter_map(Result::ok);
        let below = match slaves.map(|entry| entry.path()).min() {
            Some(slave) => slave,
            None if base.join("partition").exists() => base.parent()?.to_owned(),
            None => return None,
        };
        base = fs::canonicalize(below).ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn the_file_of_a_loop_device_is_found_below_its_partitions_and_volumes() {
        let scratch = Scratch::new();
        let sysfs = scratch.path("sysfs");
        let part = sysfs.join("loop0/loop0p1");
        let volume = sysfs.join("dm-0/slaves");
        let disk = sysfs.join("sda");
        for directory in [&sysfs.join("loop0/loop"), &part, &volume, &disk] {
            fs::create_dir_all(directory).unwrap();
        }
        fs::write(sysfs.join("loop0/loop/backing_file"), "/srv/a b.img\n").unwrap();
        fs::write(part.join("partition"), "1\n").unwrap();
        std::os::unix::fs::symlink(&part, volume.join("loop0p1")).unwrap();
        // The first stands for all.
        std::os::unix::fs::symlink(&disk, volume.join("sda")).unwrap();
        let file = |is_whole| Some((PathBuf::from("/srv/a b.img"), is_whole));
        assert_eq!(file_below(&sysfs.join("loop0")), file(true));
        assert_eq!(file_below(&part), file(false));
        assert_eq!(file_below(&sysfs.join("dm-0")), file(false));
        assert_eq!(file_below(&disk), None);
    }
}
