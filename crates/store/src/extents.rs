//! Which parts of a file hold data.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::Extent;

/// Writes the extents of `range` to `found`, in whole blocks: a block that is partly mapped counts as mapped.
/// Answers how many there are; they begin at the start of the range and may not reach its end. Blocks the thread.
/// Allocates nothing and does not panic, as the workers of a lane must not.
///
/// Space that is reserved and holds nothing but zeros may be reported as unmapped: for `SEEK_DATA` it is a hole. What
/// cannot be asked (block devices, some file systems) is mapped, which is always safe to say.
///
/// # Errors
///
/// What the kernel answers.
pub fn find_extents(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    block_bytes: u32,
    found: &mut [Extent],
) -> Result<usize, Errno> {
    let block = u64::from(block_bytes.max(1));
    let (mut at, mut count) = (range.start, 0);
    while at < range.end && count < found.len() {
        // Bytes of a file may change from mapped to not while this runs; every answer is one
        // that was true at some moment, and each step goes on by at least one block.
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data / block * block,
            Err(Errno::NXIO) => range.end,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(errno),
        };
        let (end, mapped) = if data > at {
            (data.min(range.end), false)
        } else {
            let end = match seek(file, SeekFrom::Hole(at)) {
                Ok(hole) => hole
                    .div_ceil(block)
                    .saturating_mul(block)
                    .max(at.saturating_add(block)),
                Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => range.end,
                Err(errno) => return Err(errno),
            };
            (end.min(range.end), true)
        };
        count = push(found, count, at..end, mapped);
        at = end;
    }
    Ok(count)
}

/// Joins neighbours of one kind, which rounding to blocks can make. Answers how many there are now.
fn push(found: &mut [Extent], count: usize, range: Range<u64>, mapped: bool) -> usize {
    let last = count.checked_sub(1).and_then(|last| found.get_mut(last));
    if let Some(last) = last.filter(|last| last.mapped == mapped) {
        last.range.end = range.end;
        return count;
    }
    if let Some(free) = found.get_mut(count) {
        *free = Extent { range, mapped };
    }
    count.saturating_add(1)
}
