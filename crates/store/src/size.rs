//! How large a file or block device is, and whether a file ends before a byte.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, SeekFrom, StatxFlags, fstat, seek, statx};
use rustix::io::Errno;

/// What a write is answered with that would make its file longer ([`ends_before`]), or that is past the largest offset
/// of the file system: nothing was written.
pub const PAST_THE_END: Errno = Errno::FBIG;

/// Whether a regular file is known to end before this byte. Asks no server and allocates nothing, as the workers of a
/// lane must not; where the kernel does not know, the answer is no.
pub fn ends_before(file: BorrowedFd<'_>, end: u64) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::SIZE;
    statx(file, c"", flags, wanted).is_ok_and(|found| {
        let mode = u32::from(found.stx_mode);
        FileType::from_raw_mode(mode).is_file() && found.stx_size < end
    })
}

/// The size in bytes now. Seeking disturbs nobody: all I/O names its offset.
pub(crate) fn size_of_disk(file: &impl AsFd, is_block_device: bool) -> io::Result<u64> {
    Ok(find_size(file.as_fd(), is_block_device)?)
}

/// The size of a file or block device in bytes. Blocks the thread. Allocates nothing and does not panic, as the
/// workers of a lane must not.
///
/// # Errors
///
/// What the kernel answers.
pub fn find_size(file: BorrowedFd<'_>, is_block_device: bool) -> Result<u64, Errno> {
    if is_block_device {
        seek(file, SeekFrom::End(0))
    } else {
        u64::try_from(fstat(file)?.st_size).map_err(|_| Errno::OVERFLOW)
    }
}
