//! Memory that the allocator keeps although nothing uses it.

/// Gives it back to the system. Takes some milliseconds after much was freed, in which nobody else
/// gets memory. Does nothing where the allocator of the C library knows no such call: that of musl
/// gives back by itself.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it has no precondition; what it gives back is in nobody's use.
    let _was_any = unsafe { libc::malloc_trim(0) };
}
