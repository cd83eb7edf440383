//! Whether a path leads to a snapshot, though its name does not say so.
//!
//! A snapshot is known by where it lies: among the files of `disk.img.snapshots`. A hard link, a mount of its directory
//! and a loop device lead to it from elsewhere. Such a path is compared, by inode, with the snapshots of the files that
//! are known. Only paths that can be such are: a file with one name that lies where its file system shows it costs one
//! look.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use store::{Snapshots, file_of_snapshot};

use super::device;

/// The file whose snapshot a path leads to, if it is one: by its name, or of one of these files. What cannot be looked
/// at is none.
pub(crate) fn snapshot_at(path: &Path, files: &[PathBuf]) -> Option<PathBuf> {
    file_of_snapshot(path).or_else(|| {
        let names = other_names(path)?;
        let mut files = files.iter();
        files.find(|file| has_snapshot(file, &names)).cloned()
    })
}

/// What a path is known by that can lead to a file which lies elsewhere, too.
pub(super) fn other_names(path: &Path) -> Option<Vec<String>> {
    let found = fs::metadata(path).ok()?;
    if found.file_type().is_block_device() {
        return Some(device::names(found.rdev()));
    }
    let may_be = found.is_file() && (found.nlink() > 1 || is_mounted_in_part(path));
    may_be.then(|| vec![device::inode(&found)])
}

fn has_snapshot(file: &Path, names: &[String]) -> bool {
    let all = Snapshots::of(file).and_then(|snapshots| snapshots.list());
    all.unwrap_or_default().iter().any(|snapshot| {
        let found = fs::metadata(&snapshot.path);
        found.is_ok_and(|found| names.contains(&device::inode(&found)))
    })
}

/// Whether a path is below a mount that shows a part of its file system, as bind mounts do, or nobody knows.
fn is_mounted_in_part(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
    let mounts = fs::read_to_string("/proc/self/mountinfo");
    let (Ok(found), Ok(mounts)) = (found, mounts) else {
        return true;
    };
    root_of_mount(&mounts, found.stx_mnt_id).is_none_or(|root| root != "/")
}

/// What a mount shows of its file system.
///
/// Spec: proc_pid_mountinfo(5), fields 1 and 4.
fn root_of_mount(mounts: &str, id: u64) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let is_it = fields.next()?.parse() == Ok(id);
        fields.nth(2).filter(|_| is_it)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_snapshot_is_known_by_a_hard_link_and_another_file_is_not() {
        let scratch = Scratch::new();
        let at = |name: &str| fs::canonicalize(scratch.path()).unwrap().join(name);
        fs::write(at("disk"), "").unwrap();
        fs::create_dir(at("disk.snapshots")).unwrap();
        fs::write(at("disk.snapshots/one"), "").unwrap();
        fs::hard_link(at("disk.snapshots/one"), at("link")).unwrap();
        fs::write(at("other"), "").unwrap();
        fs::hard_link(at("other"), at("twin")).unwrap();
        let files = [at("gone"), at("disk")];
        let of = |name: &str| snapshot_at(&at(name), &files);
        assert_eq!(of("link"), Some(at("disk")));
        assert_eq!(of("disk.snapshots/one"), Some(at("disk")));
        for name in ["disk", "other", "twin", "gone"] {
            assert_eq!(of(name), None, "{name}");
        }
        assert_eq!(snapshot_at(&at("link"), &[at("other")]), None);
    }

    #[test]
    fn what_a_mount_shows_is_found_by_its_number() {
        let mounts = "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 23 8:1 /srv/a /mnt rw shared:1 - ext4 /dev/sda1 rw\n";
        assert_eq!(root_of_mount(mounts, 23), Some("/"));
        assert_eq!(root_of_mount(mounts, 24), Some("/srv/a"));
        assert_eq!(root_of_mount(mounts, 25), None);
    }
}
