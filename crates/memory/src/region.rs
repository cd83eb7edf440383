//! A stretch of address space, given back on drop: from the kernel on Linux, from the allocator
//! elsewhere.

use std::fmt;
use std::ptr::NonNull;

#[cfg(not(target_os = "linux"))]
mod heap;
#[cfg(target_os = "linux")]
mod kernel;

#[cfg(target_os = "linux")]
pub use self::kernel::HUGE_PAGE_BYTES;

/// Owns one range of addresses. Gives out addresses, never references.
pub(crate) struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is an address range of the process; it has no tie to the thread that made it,
// and it is only reached through the raw copies of this crate.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out addresses only.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The address of the byte at `offset`.
    ///
    /// # Panics
    ///
    /// When `offset..offset + len` is not inside the region: every caller has checked that.
    pub(crate) fn address(&self, offset: usize, len: usize) -> NonNull<u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(
            inside,
            "{len} bytes at {offset} in a region of {}",
            self.len
        );
        // SAFETY: the offset is inside the allocation, as just checked.
        unsafe { self.start.add(offset) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("len", &self.len).finish()
    }
}
