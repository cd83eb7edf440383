//! Regions from the kernel's mappings.
//!
//! They begin at a multiple of [`HUGE_PAGE_BYTES`], so that the kernel can put huge pages under
//! them: random access to a large region with ordinary pages spends as much time on looking
//! addresses up as on the data (docs/internals/performance.md).

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::Region;

/// Spec: madvise(2), since Linux 6.1; not every C library knows it.
const MADV_COLLAPSE: libc::c_int = 25;

/// The size of a huge page, in bytes (x86-64; elsewhere it may be another, then there are none).
pub const HUGE_PAGE_BYTES: usize = 2 * 1024 * 1024;

impl Region {
    /// Private zeroed memory that costs nothing until it is touched.
    pub(crate) fn anonymous(len: usize, protection: ProtFlags) -> io::Result<Self> {
        let whole = len
            .checked_next_multiple_of(rustix::param::page_size())
            .and_then(|len| len.checked_add(HUGE_PAGE_BYTES))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), whole, protection, flags) }?;
        Self::from_raw(start, whole)?.cut_to_huge_pages(len)
    }

    /// The first `len` bytes of `file`, shared with everyone who maps it.
    pub(crate) fn shared(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let place = Self::anonymous(len, ProtFlags::empty())?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let start = place.start.as_ptr().cast();
        // SAFETY: it replaces exactly the mapping that `place` owns and nobody has seen yet; the
        // file is a memfd of ours, which nobody truncates.
        unsafe { mmap(start, len, protection, flags, file, 0) }?;
        Ok(place)
    }

    /// Gives back what lies before the first huge page and after `len` bytes from there.
    fn cut_to_huge_pages(self, len: usize) -> io::Result<Self> {
        let head = self.start.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let end = head + len.next_multiple_of(rustix::param::page_size());
        let whole = ManuallyDrop::new(self);
        for (offset, len) in [(0, head), (end, whole.len - end)] {
            if len > 0 {
                let start = whole.address(offset, len).as_ptr();
                // SAFETY: whole pages of the mapping just made, which nobody uses.
                unsafe { munmap(start.cast(), len) }?;
            }
        }
        let start = whole.address(head, len);
        Ok(Self { start, len })
    }

    /// Private zeroed memory to work in, with huge pages from the first touch on. The kernel may
    /// decline those.
    pub(crate) fn to_work_in(len: usize) -> io::Result<Self> {
        let region = Self::anonymous(len, ProtFlags::READ | ProtFlags::WRITE)?;
        region.prefer_huge_pages();
        Ok(region)
    }

    fn prefer_huge_pages(&self) {
        let start = self.start.as_ptr().cast();
        // SAFETY: the advice changes no contents, and the range is this region's.
        let _declined = unsafe { madvise(start, self.len, Advice::LinuxHugepage) };
    }

    /// Puts huge pages under what is there, copying it (`MADV_COLLAPSE`, Linux 6.1). Takes about a
    /// millisecond for each, during which threads that touch the range may wait. The range is cut
    /// to whole huge pages.
    pub(crate) fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        let start = range.start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = range.end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if start >= end {
            return Ok(());
        }
        let address = self.address(start, end - start).as_ptr();
        // SAFETY: the advice changes no contents, and the range is inside this region.
        let result = unsafe { libc::madvise(address.cast(), end - start, MADV_COLLAPSE) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn from_raw(start: *mut c_void, len: usize) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range came from mmap with this length, and the code that lent an address of it to
        // the kernel kept the owner of this region alive until the kernel was done.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}
