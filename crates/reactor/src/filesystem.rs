//! What a file system is known by, whatever the device of the moment is called.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::fs::fstatfs;

/// A file system.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FileSystem {
    /// Its type: the name, or the magic number in hexadecimal digits.
    pub kind: String,
    /// Its UUID in hexadecimal digits; on btrfs with the number of the subvolume. `None` where the kernel reports none.
    pub id: Option<String>,
}

/// Magic numbers of file systems.
///
/// Spec: linux/magic.h, fs/zfs of OpenZFS.
const KINDS: [(u64, &str); 10] = [
    (0x5846_5342, "xfs"),
    (0xef53, "ext4"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x6969, "nfs"),
    (0xfe53_4d42, "smb"),
    (0x00c3_6400, "ceph"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
];

/// `XFS_IOC_FSGEOMETRY_V1`: the UUID is at 64.
///
/// Spec: xfs_fs.h, struct xfs_fsop_geom_v1.
const XFS_GEOMETRY: Question = Question::new(0x8070_5864, 112);
/// `EXT4_IOC_GETFSUUID`: length, flags, UUID.
///
/// Spec: ext4 of linux/fs, struct fsuuid.
const EXT4_UUID: Question = Question::new(0x8008_662c, 24);
/// `BTRFS_IOC_FS_INFO`: the UUID is at 16.
///
/// Spec: linux/btrfs.h, struct btrfs_ioctl_fs_info_args.
const BTRFS_INFO: Question = Question::new(0x8400_941f, 1024);
/// `BTRFS_IOC_INO_LOOKUP`: the tree of the file, then an object in it.
///
/// Spec: linux/btrfs.h, struct btrfs_ioctl_ino_lookup_args.
const BTRFS_LOOKUP: Question = Question::new(0xd000_9412, 4096);
/// `FS_IOC_GETFSUUID`, from Linux 6.9 on: length, UUID.
///
/// Spec: linux/fs.h, struct fsuuid2.
const ANY_UUID: Question = Question::new(0x8011_1500, 17);

/// `BTRFS_FIRST_FREE_OBJECTID`: with it and tree 0 everybody may ask for the tree.
const BTRFS_FIRST_FREE: u64 = 256;

const UUID_BYTES: usize = 16;
/// The same, in the struct of the kernel.
const UUID_LENGTH: u32 = 16;

/// An `ioctl` that fills a struct of this many bytes.
struct Question {
    number: libc::c_ulong,
    bytes: usize,
}

impl Question {
    const fn new(number: libc::c_ulong, bytes: usize) -> Self {
        Self { number, bytes }
    }

    /// The answer; `head` are the first bytes of the question.
    fn ask(&self, file: BorrowedFd<'_>, head: &[u8]) -> Option<Vec<u8>> {
        let mut room = vec![0_u8; self.bytes];
        room.get_mut(..head.len())?.copy_from_slice(head);
        // An int in musl, a long elsewhere; the numbers have 32 bits.
        // SAFETY: the questions of this file read and write as many bytes as the room has, and keep no address.
        let asked = unsafe { libc::ioctl(file.as_raw_fd(), self.number as _, room.as_mut_ptr()) };
        (asked == 0).then_some(room)
    }
}

/// What the file system of an open file is known by. May block for as long as that file system does.
///
/// # Errors
///
/// The file system does not answer at all.
pub fn of(file: BorrowedFd<'_>) -> io::Result<FileSystem> {
    // A signed word on some machines, whose upper half says nothing.
    let magic = fstatfs(file)?.f_type.cast_unsigned() & 0xffff_ffff;
    let known = KINDS.iter().find(|(number, _)| *number == magic);
    let kind = known.map_or_else(|| format!("{magic:x}"), |(_, name)| (*name).to_owned());
    let id = match kind.as_str() {
        "xfs" => uuid(XFS_GEOMETRY.ask(file, &[]), 64),
        "ext4" => uuid(EXT4_UUID.ask(file, &UUID_LENGTH.to_ne_bytes()), 8),
        "btrfs" => btrfs(file),
        _ => uuid(ANY_UUID.ask(file, &[]), 1),
    };
    Ok(FileSystem { kind, id })
}

/// The UUID at this byte of an answer. All zeros is none.
fn uuid(answer: Option<Vec<u8>>, at: usize) -> Option<String> {
    let answer = answer?;
    let bytes = answer.get(at..at + UUID_BYTES)?;
    bytes
        .iter()
        .any(|byte| *byte != 0)
        .then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn btrfs(file: BorrowedFd<'_>) -> Option<String> {
    let id = uuid(BTRFS_INFO.ask(file, &[]), 16)?;
    let mut question = [0; 16];
    question[8..].copy_from_slice(&BTRFS_FIRST_FREE.to_ne_bytes());
    let answer = BTRFS_LOOKUP.ask(file, &question)?;
    let tree = u64::from_ne_bytes(answer.get(..8)?.try_into().ok()?);
    Some(format!("{id}/{tree}"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_file_in_memory_is_of_a_known_kind() {
        let file = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(of(file.as_fd()).unwrap().kind, "tmpfs");
    }

    #[test]
    fn a_uuid_of_zeros_is_none() {
        assert_eq!(uuid(Some(vec![0; 24]), 8), None);
        let mut answer = vec![0; 24];
        answer[8] = 0xab;
        let expected = format!("ab{}", "0".repeat(30));
        assert_eq!(uuid(Some(answer.clone()), 8), Some(expected));
        answer.truncate(20);
        assert_eq!(uuid(Some(answer), 8), None);
    }
}
