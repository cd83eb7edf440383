//! What the kernel knows about the device below a file.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dev, FallocateFlags, StatxFlags, fallocate, fstat, fstatfs, ioctl_blkpbszget,
    ioctl_blksszget, major, makedev, minor, statx,
};
use rustix::io::Errno;

/// The largest unit that is reported: a file system on a striped volume may name its stripe.
const UNIT_MAX: u32 = 64 * 1024;

/// File systems whose every write path, buffered and direct, ends in the sync that `RWF_DSYNC` asks
/// for, by their magic number (`f_type`). On all others the flag is taken and may be ignored: FUSE
/// ignores it with direct I/O, and a file system of the network has what its server has. Block
/// devices honour it.
#[rustfmt::skip] // one file system per line
const HONOURS_DSYNC: [u32; 5] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0xF2F5_2010, // F2FS
    0x0102_1994, // tmpfs, which has no stable storage
];

/// Whether a write to this file with `RWF_DSYNC` is known to be durable when it ends.
pub(crate) fn honours_dsync(file: &OwnedFd) -> bool {
    // Its type differs between platforms and may have a sign; every magic number has 32 bits.
    fstatfs(file).is_ok_and(|found| is_known_to_honour(i128::from(found.f_type) & 0xFFFF_FFFF))
}

fn is_known_to_honour(magic: i128) -> bool {
    HONOURS_DSYNC
        .iter()
        .any(|&known| i128::from(known) == magic)
}

/// Facts for [`crate::Capabilities`], as far as the kernel reports them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Geometry {
    /// Of a block device; files have none of their own.
    pub(crate) logical_block_bytes: Option<u32>,
    pub(crate) physical_block_bytes: u32,
    pub(crate) unmap_granularity_bytes: u32,
    pub(crate) can_unmap: bool,
    pub(crate) solid_state: bool,
    /// What direct I/O asks of offsets and lengths; `None` when the kernel does not say.
    pub(crate) direct_align_bytes: Option<u32>,
}

impl Geometry {
    pub(crate) fn of(file: &OwnedFd, is_block_device: bool) -> Result<Self, Errno> {
        let status = fstat(file)?;
        let queue = queue_directory(if is_block_device {
            status.st_rdev
        } else {
            status.st_dev
        });
        let number = |name: &str| read_number(queue.as_deref()?, name);
        let solid_state = number("rotational") != Some(1);
        let direct_align_bytes = direct_align(file);
        if is_block_device {
            let (logical, physical) = (ioctl_blksszget(file)?, ioctl_blkpbszget(file)?);
            return Ok(Self {
                solid_state,
                direct_align_bytes,
                ..Self::of_device((logical, physical), number)
            });
        }
        let block = unit(u32::try_from(status.st_blksize).unwrap_or(4096));
        Ok(Self {
            logical_block_bytes: None,
            physical_block_bytes: block,
            unmap_granularity_bytes: block,
            can_unmap: can_punch(file, status.st_size),
            solid_state,
            direct_align_bytes,
        })
    }

    /// Of a block device with these units, logical and physical, and these numbers of its queue.
    fn of_device((logical, physical): (u32, u32), number: impl Fn(&str) -> Option<u64>) -> Self {
        let physical = physical.max(logical);
        let granularity = number("discard_granularity").and_then(|n| u32::try_from(n).ok());
        let can = |name: &str| number(name).is_some_and(|n| n > 0);
        Self {
            logical_block_bytes: Some(logical),
            physical_block_bytes: unit(physical),
            unmap_granularity_bytes: unit(granularity.unwrap_or(physical).max(logical)),
            // Punching a hole in a device means its own command for zeros, which frees space where the device can; a
            // device that can neither is not thin.
            can_unmap: can("write_zeroes_max_bytes") && can("discard_max_bytes"),
            solid_state: true,
            direct_align_bytes: None,
        }
    }
}

/// Whether nobody may write a block device.
pub(crate) fn is_read_only(device: &OwnedFd) -> bool {
    let number = fstat(device).map_or(0, |found| found.st_rdev);
    let base = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    read_number(Path::new(&base), "ro") == Some(1)
}

/// A power of two that can be reported to initiators.
fn unit(bytes: u32) -> u32 {
    let bytes = bytes.clamp(512, UNIT_MAX);
    if bytes.is_power_of_two() { bytes } else { 4096 }
}

/// Tries it where it changes nothing: behind the end of the file. One that is open for reading only is taken for one
/// that can.
fn can_punch(file: &OwnedFd, size: i64) -> bool {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let behind = u64::try_from(size).unwrap_or(0).next_multiple_of(1 << 20);
    matches!(
        fallocate(file, mode, behind, 1 << 20),
        Ok(()) | Err(Errno::BADF)
    )
}

fn direct_align(file: &OwnedFd) -> Option<u32> {
    let wanted = StatxFlags::DIOALIGN;
    let answer = statx(file, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let told = StatxFlags::from_bits_retain(answer.stx_mask).contains(wanted);
    told.then(|| answer.stx_dio_offset_align.max(answer.stx_dio_mem_align))
}

/// The directory with the limits of a device; partitions have theirs one level up.
fn queue_directory(device: Dev) -> Option<PathBuf> {
    let base = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    // Resolved first: `..` of the link itself would be something else.
    let base = fs::canonicalize(base).ok()?;
    [base.join("queue"), base.parent()?.join("queue")]
        .into_iter()
        .find(|queue| queue.is_dir())
}

/// The disk below a device, and the directory with the limits of its queue: partitions lie on disks, volumes on
/// partitions. Of several disks the first stands for all.
pub(crate) fn queue_of_disk(device: Dev) -> (Dev, Option<PathBuf>) {
    let mut number = device;
    // Deeper than anybody stacks devices.
    for _ in 0..8 {
        let base = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let Ok(base) = fs::canonicalize(base) else {
            break;
        };
        let first = fs::read_dir(base.join("slaves")).ok().and_then(|entries| {
            entries
                .filter_map(Result::ok)
                .map(|entry| entry.path())
                .min()
        });
        let is_partition = base.join("partition").exists();
        let below = first.or_else(|| base.parent().filter(|_| is_partition).map(Path::to_owned));
        match below.and_then(|below| number_in(&below)) {
            Some(below) if below != number => number = below,
            Some(_) | None => break,
        }
    }
    (number, queue_directory(number))
}

fn number_in(directory: &Path) -> Option<Dev> {
    let text = fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

pub(crate) fn read_number(directory: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(directory.join(name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn units_are_powers_of_two_within_bounds() {
        for (bytes, expected) in [
            (0, 512),
            (512, 512),
            (4096, 4096),
            (3 * 4096, 4096),
            (1 << 21, UNIT_MAX),
        ] {
            assert_eq!(unit(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn a_file_system_that_is_not_known_does_not_honour_dsync() {
        for (magic, expected) in [
            (0xEF53, true),
            (0x5846_5342, true),
            (0x6573_5546, false), // FUSE
            (0x6969, false),      // NFS
            (0x794C_7630, false), // overlayfs
            (0, false),
        ] {
            assert_eq!(is_known_to_honour(magic), expected, "{magic:#x}");
        }
    }

    #[test]
    fn looking_at_a_file_does_not_change_it() {
        let scratch = Scratch::new();
        let file = scratch.file(10_000);
        fs::write(&file, [7; 10_000]).unwrap();
        let fd = fs::File::options().read(true).write(true).open(&file);
        Geometry::of(&fd.unwrap().into(), false).unwrap();
        assert_eq!(fs::read(&file).unwrap(), [7; 10_000]);
    }

    #[test]
    fn a_block_device_has_its_own_units_and_frees_space_where_it_can_do_both() {
        const GIB: Option<u64> = Some(1 << 30);
        for (units, numbers, expected) in [
            ((512, 4096), (Some(8192), GIB, GIB), (4096, 8192, true)),
            ((4096, 512), (Some(512), GIB, Some(1)), (4096, 4096, true)),
            ((512, 4096), (None, GIB, Some(0)), (4096, 4096, false)),
            ((512, 512), (Some(1 << 32), Some(0), GIB), (512, 512, false)),
            ((512, 512), (Some(0), None, GIB), (512, 512, false)),
            (
                (512, 512),
                (Some(1 << 20), GIB, None),
                (512, UNIT_MAX, false),
            ),
        ] {
            let number = |name: &str| match name {
                "discard_granularity" => numbers.0,
                "write_zeroes_max_bytes" => numbers.1,
                "discard_max_bytes" => numbers.2,
                _ => panic!("{name}"),
            };
            let found = Geometry::of_device(units, number);
            assert_eq!(found.logical_block_bytes, Some(units.0));
            let seen = (found.physical_block_bytes, found.unmap_granularity_bytes);
            assert_eq!(
                (seen.0, seen.1, found.can_unmap),
                expected,
                "{units:?} {numbers:?}"
            );
        }
    }

    #[test]
    fn numbers_of_a_device_are_read_and_no_other_text() {
        let scratch = Scratch::new();
        let directory = scratch.path("queue");
        fs::create_dir(&directory).unwrap();
        for (text, expected) in [("7\n", Some(7)), ("x\n", None), ("-1\n", None)] {
            fs::write(directory.join("ro"), text).unwrap();
            assert_eq!(read_number(&directory, "ro"), expected, "{text}");
        }
        assert_eq!(read_number(&directory, "nothing"), None);
        for (text, expected) in [
            ("8:17\n", Some(makedev(8, 17))),
            ("8\n", None),
            ("8:x\n", None),
        ] {
            fs::write(directory.join("dev"), text).unwrap();
            assert_eq!(number_in(&directory), expected, "{text}");
        }
    }
}
