//! What an open file is known by.

use std::fs;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, major, minor, statx};

use super::{FILE_SYSTEM, Medium};

/// File systems that are known by where their data is: a server with an export, a pool with a name.
const BY_SOURCE: [&str; 4] = ["nfs", "smb", "ceph", "zfs"];

/// Notes what shows that an open file is the medium that it was; `device` is that of its file system. What a file
/// system does not have is left out.
///
/// # Errors
///
/// The file system does not answer.
pub(super) fn describe(open: BorrowedFd<'_>, device: u64, medium: &mut Medium) -> io::Result<()> {
    let file_system = reactor::filesystem::of(open)?;
    if BY_SOURCE.contains(&file_system.kind.as_str())
        && let Some(source) = source_of(device)
    {
        medium.note("source", source);
    }
    medium.note(FILE_SYSTEM, file_system.kind);
    if let Some(id) = file_system.id {
        medium.note("file-system-id", id);
    }
    medium.weak = mark(open)?;
    Ok(())
}

/// Inode and birth time; `None` where the file system does not keep it.
pub(super) fn mark(open: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let found = statx(open, "", AtFlags::EMPTY_PATH, wanted)?;
    let has = StatxFlags::from_bits_retain(found.stx_mask);
    let born = found.stx_btime;
    let mark = || format!("{}:{}.{:09}", found.stx_ino, born.tv_sec, born.tv_nsec);
    Ok(has.contains(wanted).then(mark))
}

/// What is mounted as this device: server and export, or the name of a data set.
fn source_of(device: u64) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    source_in(&mounts, &format!("{}:{}", major(device), minor(device)))
}

/// Spec: proc_pid_mountinfo(5): the device is the third field; behind a hyphen come type and source.
fn source_in(mounts: &str, device: &str) -> Option<String> {
    let mut lines = mounts.lines();
    let line = lines.find(|line| line.split(' ').nth(2) == Some(device))?;
    let (_, behind) = line.split_once(" - ")?;
    behind.split(' ').nth(1).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_file_is_another_one_than_its_copy_and_the_same_under_another_name() {
        let scratch = Scratch::new();
        let path = |name: &str| scratch.path().join(name);
        fs::write(path("a"), "a").unwrap();
        fs::copy(path("a"), path("b")).unwrap();
        let described = |name: &str| {
            let file = fs::File::open(path(name)).unwrap();
            let mut medium = Medium::default();
            describe(file.as_fd(), file.metadata().unwrap().dev(), &mut medium).unwrap();
            medium
        };
        let (a, b) = (described("a"), described("b"));
        assert!(a.strong.contains_key(FILE_SYSTEM), "{a:?}");
        assert_eq!(a.strong, b.strong);
        if a.weak.is_some() {
            assert_ne!(a.weak, b.weak);
        }
        fs::rename(path("a"), path("c")).unwrap();
        assert_eq!(described("c"), a);
    }

    #[test]
    fn the_source_of_a_mount_is_found_by_its_device() {
        let mounts = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw\n\
                      37 35 0:52 / /srv rw shared:2 - nfs4 box:/export/vol rw,vers=4.2\n";
        assert_eq!(
            source_in(mounts, "0:52").as_deref(),
            Some("box:/export/vol")
        );
        assert_eq!(source_in(mounts, "98:0").as_deref(), Some("/dev/root"));
        assert_eq!(source_in(mounts, "0:5"), None);
    }
}
