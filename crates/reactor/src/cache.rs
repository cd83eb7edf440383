//! What the page cache has.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::OnceLock;

/// The number of `cachestat` (Linux 6.5) on every architecture.
const CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of linux/mman.h: bytes from `offset` on.
#[repr(C)]
struct CachedRange {
    offset: u64,
    len: u64,
}

/// `struct cachestat` of linux/mman.h, in pages.
#[repr(C)]
#[derive(Default)]
struct Cached {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether the kernel does not have the call, or a filter of system calls refuses it.
static IS_MISSING: OnceLock<bool> = OnceLock::new();

/// Whether all these bytes are in the page cache. It never waits. `None` where the kernel does not answer: before Linux
/// 6.5, and for files that the user of this process neither owns nor may write.
pub(crate) fn is_cached(file: BorrowedFd<'_>, offset: u64, len: usize) -> Option<bool> {
    if len == 0 || *IS_MISSING.get_or_init(is_missing) {
        return None;
    }
    let page = rustix::param::page_size() as u64;
    let end = offset.checked_add(len as u64)?;
    let pages = end.div_ceil(page) - offset / page;
    let range = CachedRange {
        offset,
        len: len as u64,
    };
    let mut found = Cached::default();
    // SAFETY: the structs are laid out as the kernel's, are there for the time of the call, and no flag is set.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut found,
            0_u32,
        )
    };
    (result == 0).then_some(found.cached >= pages)
}

fn is_missing() -> bool {
    // SAFETY: the descriptor is none, so nothing is looked at and nothing written.
    let result = unsafe { libc::syscall(CACHESTAT, -1, 0_usize, 0_usize, 0_u32) };
    result != 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EBADF)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_was_written_is_cached_and_a_hole_is_not() {
        let mut file = tempfile();
        file.write_all(&[1; 8192]).unwrap();
        file.set_len(1 << 20).unwrap();
        let Some(is_cached_at_start) = is_cached(file.as_fd(), 512, 4096) else {
            assert!(is_missing(), "only an old kernel does not answer");
            return;
        };
        assert!(is_cached_at_start);
        assert_eq!(is_cached(file.as_fd(), 4096, 8192), Some(false));
        assert_eq!(is_cached(file.as_fd(), 512 * 1024, 512), Some(false));
        assert_eq!(is_cached(file.as_fd(), u64::MAX, 512), None);
    }

    fn tempfile() -> std::fs::File {
        rustix::fs::memfd_create("cache", rustix::fs::MemfdFlags::CLOEXEC)
            .unwrap()
            .into()
    }
}
