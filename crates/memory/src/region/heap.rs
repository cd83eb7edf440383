//! Regions from the allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ptr::NonNull;

use super::Region;
use crate::PIECE_BYTES;

impl Region {
    /// Private zeroed memory to work in.
    pub(crate) fn to_work_in(len: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len, PIECE_BYTES).map_err(io::Error::other)?;
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the layout is not of size zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the alignment is a power of two, and the same layout was valid when the region
        // was made.
        let layout = unsafe { Layout::from_size_align_unchecked(self.len, PIECE_BYTES) };
        // SAFETY: the range came from this allocator with this layout, and the code that lent an address
        // of it kept the owner of this region alive.
        unsafe { dealloc(self.start.as_ptr(), layout) };
    }
}
