//! What lies beneath a block device, as far as the kernel says it.
//!
//! A loop device has a file. The data of a file has one place in the page cache by its own name, and another by the
//! device: what is written by the one is not what is read by the other. Devices that share others (logical volumes,
//! partitions) have parts of their own of these, so nothing follows from that.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

/// Loop devices that may lie on each other.
const DEVICES_MAX: usize = 8;

/// What a file is known by, whatever its path.
pub(super) fn inode(metadata: &Metadata) -> String {
    format!("inode {:x}:{}", metadata.dev(), metadata.ino())
}

/// What a block device is known by: itself, and the file of a loop device, or the device that it is one of.
pub(super) fn names(device: u64) -> Vec<String> {
    names_below(Path::new("/sys/dev/block"), device)
}

/// The same, of a SCSI device by any of its nodes: it may be a disk with a node of its own.
pub(super) fn names_of_scsi(node: &Metadata) -> Vec<String> {
    match node.file_type().is_block_device() {
        true => names(node.rdev()),
        false => names_of_disk(Path::new("/sys/dev/char"), node.rdev()),
    }
}

fn names_of_disk(devices: &Path, device: u64) -> Vec<String> {
    let number = format!("{}:{}", major(device), minor(device));
    let disks = fs::read_dir(devices.join(number).join("device/block"));
    let disks = disks.into_iter().flatten().flatten();
    let numbers = disks.filter_map(|disk| fs::read_to_string(disk.path().join("dev")).ok());
    numbers
        .map(|number| format!("device {}", number.trim()))
        .collect()
}

fn names_below(devices: &Path, device: u64) -> Vec<String> {
    let mut names = Vec::new();
    let mut next = Some(device);
    while let Some(device) = next.take().filter(|_| names.len() < DEVICES_MAX) {
        let number = format!("{}:{}", major(device), minor(device));
        let file = backing_file(&devices.join(&number));
        names.push(format!("device {number}"));
        if let Some(metadata) = file.and_then(|file| fs::metadata(file).ok()) {
            match metadata.rdev() {
                0 => names.push(inode(&metadata)),
                device => next = Some(device),
            }
        }
    }
    names
}

/// The file that a loop device shows as a whole. A part of one is data of its own.
fn backing_file(entry: &Path) -> Option<PathBuf> {
    let read = |name: &str| fs::read_to_string(entry.join("loop").join(name)).ok();
    let path = read("backing_file")?;
    let is_whole = ["offset", "sizelimit"]
        .iter()
        .all(|name| read(name).is_none_or(|number| number.trim() == "0"));
    is_whole.then(|| PathBuf::from(path.trim_end_matches('\n')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use durable::scratch::Scratch;

    #[test]
    fn a_scsi_device_is_known_by_its_disk() {
        let scratch = Scratch::new();
        let disk = scratch.path().join("21:3/device/block/sdb");
        fs::create_dir_all(&disk).unwrap();
        fs::write(disk.join("dev"), "8:16\n").unwrap();
        let names = |minor| names_of_disk(scratch.path(), rustix::fs::makedev(21, minor));
        let names_of_block = names_below(scratch.path(), rustix::fs::makedev(8, 16));
        assert_eq!(names(3), names_of_block);
        assert!(names(4).is_empty());
    }

    #[test]
    fn a_loop_device_is_known_by_its_file_unless_it_is_a_part_of_it() {
        let scratch = Scratch::new();
        let (devices, file) = (scratch.path(), scratch.path().join("disk.img"));
        fs::write(&file, "").unwrap();
        let path = format!("{}\n", file.display());
        for (number, offset) in [("7:3", "0\n"), ("7:4", "1048576\n")] {
            let entry = devices.join(number).join("loop");
            fs::create_dir_all(&entry).unwrap();
            fs::write(entry.join("backing_file"), &path).unwrap();
            fs::write(entry.join("offset"), offset).unwrap();
            fs::write(entry.join("sizelimit"), "0\n").unwrap();
        }
        let names = |minor| names_below(devices, rustix::fs::makedev(7, minor));
        let inode = inode(&fs::metadata(&file).unwrap());
        assert_eq!(names(3), ["device 7:3", &inode]);
        assert_eq!(names(4), ["device 7:4"]);
        assert_eq!(names(5), ["device 7:5"]);
    }
}
