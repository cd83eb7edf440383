//! How a send of a connection ends, and whether that wakes its core.
//!
//! A core that sleeps after each answer is woken by the next command only, not by the end of its send as well,
//! when nothing waits for that end: no memory that others ask for, no rest of the output, no connection that closes.

/// A longer message holds buffers that should come back soon.
pub(crate) const UNWATCHED_BYTES_MAX: usize = 64 * 1024;

/// Whether somebody waits for the end of a send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SendEnd {
    /// The end is an event of its own.
    Wakes,
    /// The end may come with the next event of the core, however late that is, where the line takes all at once.
    Waits,
}

/// How a send has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// Just now, all of it.
    Now,
    /// All of it, at the moment when it was sent.
    AtOnce,
    /// The connection is of no use.
    Not,
}
