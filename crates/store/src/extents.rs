//! Which parts of a file hold data.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::{Extent, IoFailure};

/// The extents of `range`, at most `count_max`, in whole blocks: a block that is partly mapped
/// counts as mapped. Blocks the thread.
///
/// Space that is reserved and holds nothing but zeros may be told as unmapped: `SEEK_DATA` does
/// not tell it from a hole. What cannot be asked (block devices, some file systems) is mapped: that is always safe to say.
pub(crate) fn extents_of(
    file: &OwnedFd,
    range: Range<u64>,
    count_max: usize,
    block_bytes: u32,
) -> Result<Vec<Extent>, IoFailure> {
    let block = u64::from(block_bytes);
    let mut extents = Vec::new();
    let mut at = range.start;
    while at < range.end && extents.len() < count_max {
        // Bytes of a file may change from mapped to not while this runs; every answer is one
        // that was true at some moment, and each step goes on by at least one block.
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data / block * block,
            Err(Errno::NXIO) => range.end,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(errno) => return Err(failure(errno)),
        };
        let (end, mapped) = if data > at {
            (data.min(range.end), false)
        } else {
            let end = match seek(file, SeekFrom::Hole(at)) {
                Ok(hole) => hole.next_multiple_of(block).max(at + block),
                Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => range.end,
                Err(errno) => return Err(failure(errno)),
            };
            (end.min(range.end), true)
        };
        push(&mut extents, at..end, mapped);
        at = end;
    }
    Ok(extents)
}

/// Joins neighbours of one kind, which rounding to blocks can make.
fn push(extents: &mut Vec<Extent>, range: Range<u64>, mapped: bool) {
    match extents.last_mut() {
        Some(last) if last.mapped == mapped => last.range.end = range.end,
        Some(_) | None => extents.push(Extent { range, mapped }),
    }
}

fn failure(errno: Errno) -> IoFailure {
    IoFailure::Hardware {
        errno: errno.raw_os_error(),
    }
}
