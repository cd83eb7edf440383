//! A stretch of address space from the kernel, unmapped on drop.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Owns one `mmap`ed range. Gives out addresses, never references.
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
    /// Private zeroed memory that costs nothing until it is touched.
    pub(crate) fn anonymous(len: usize, protection: ProtFlags) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, flags) }?;
        Self::from_raw(start, len)
    }

    /// The first `len` bytes of `file`, shared with everyone who maps it.
    pub(crate) fn shared(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above; the file is a memfd of ours, which nobody truncates.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        Self::from_raw(start, len)
    }

    fn from_raw(start: *mut c_void, len: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

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

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap with this length, and whoever lent an address of it to
        // the kernel kept the owner of this region alive until the kernel was done.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}
