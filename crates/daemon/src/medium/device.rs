//! What a block device is known by, as far as sysfs says it.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{major, minor};

use super::{Medium, file};

/// Where one file of a device says what it is, and what that is called. A partition has that of its disk.
const NAMES: [(&str, &str); 5] = [
    ("dm/uuid", "dm-uuid"),
    ("md/uuid", "md-uuid"),
    ("wwid", "wwid"),
    ("device/wwid", "wwid"),
    ("serial", "serial"),
];

/// Notes what shows that a device is the medium that it was.
pub(super) fn describe(number: u64, medium: &mut Medium) {
    let name = format!("{}:{}", major(number), minor(number));
    describe_at(&Path::new("/sys/dev/block").join(name), medium);
}

fn describe_at(entry: &Path, medium: &mut Medium) {
    let Ok(directory) = fs::canonicalize(entry) else {
        return;
    };
    let partition = read(&directory, "partition");
    let disk = match &partition {
        Some(_) => directory.parent().unwrap_or(&directory),
        None => &directory,
    };
    let named = NAMES
        .iter()
        .find_map(|(file, key)| Some((key, read(disk, file)?)));
    let is_named = match named {
        Some((key, value)) => {
            medium.note(key, value);
            true
        }
        None => describe_loop(disk, medium),
    };
    // Tables are put in order, and then another partition has the number.
    if let Some(partition) = partition.filter(|_| is_named) {
        let start = read(&directory, "start").unwrap_or_default();
        medium.note("partition", format!("{partition} from sector {start}"));
    }
}

/// A loop device is known by its file, and by where in it; one of a device by that device.
fn describe_loop(disk: &Path, medium: &mut Medium) -> bool {
    let Some(path) = read(disk, "loop/backing_file") else {
        return false;
    };
    let Ok(backing) = File::open(&path) else {
        return false;
    };
    let at = read(disk, "loop/offset").unwrap_or_default();
    let device = backing.metadata().ok();
    let device = device.filter(|found| found.file_type().is_block_device());
    if let Some(device) = device {
        let mut below = Medium::default();
        describe(device.rdev(), &mut below);
        let names: Vec<String> = below.strong.into_values().collect();
        if !names.is_empty() {
            medium.note("loop-device", format!("{} from {at}", names.join(" ")));
        }
        return !names.is_empty();
    }
    let mark = file::mark(backing.as_fd()).ok().flatten().unwrap_or(path);
    medium.note("loop-file", format!("{mark} from {at}"));
    if let Ok(file_system) = reactor::filesystem::of(backing.as_fd())
        && let Some(id) = file_system.id
    {
        medium.note("loop-file-system-id", id);
    }
    true
}

/// A fact in one line; an empty one is none.
fn read(directory: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(directory.join(name)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn described(scratch: &Scratch, entry: &str) -> Vec<(String, String)> {
        let mut medium = Medium::default();
        describe_at(&scratch.path().join(entry), &mut medium);
        medium.strong.into_iter().collect()
    }

    #[test]
    fn a_partition_is_known_by_its_disk_and_its_number() {
        let scratch = Scratch::new();
        let write = |path: &str, text: &str| {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sda/device/wwid", "naa.5000c500\n");
        write("sda/sda2/partition", "2\n");
        write("sda/sda2/start", "2048\n");
        write("dm-0/dm/uuid", "LVM-abc\n");
        write("vda/serial", "\n");
        let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(described(&scratch, "sda"), [fact("wwid", "naa.5000c500")]);
        assert_eq!(
            described(&scratch, "sda/sda2"),
            [
                fact("partition", "2 from sector 2048"),
                fact("wwid", "naa.5000c500")
            ]
        );
        assert_eq!(described(&scratch, "dm-0"), [fact("dm-uuid", "LVM-abc")]);
        assert_eq!(described(&scratch, "vda"), []);
        assert_eq!(described(&scratch, "none"), []);
    }
}
