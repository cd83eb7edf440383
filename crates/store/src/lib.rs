//! Stores of blocks: where the data of a logical unit lives.
//!
//! [`Backstore`] says what every store promises; that is pure. The stores:
//! zeros ([`NullDisk`]), memory ([`MemoryDisk`]), regular files and block devices
//! ([`OpenOptions`], which opens any of them).
//! A store never blocks and never waits: what takes time goes to its [`Outlet`], as a [`RingOperation`] for the
//! reactor, a [`HelperOperation`] for a helper thread, an operation on a socket or a timer, and comes back by tag.
//! A library's own threads reach the core of a handle by a [`channel`].
//! [`Place`] knows which operations the kernel may do on the thread that asks. Only opening may block.
//!
//! The stores need Linux. The contract does not, so crates that only use the contract compile everywhere.
//!
//! This crate knows nothing of SCSI or of networks; it counts in bytes.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod contract;
#[cfg(target_os = "linux")]
mod disk_file;
#[cfg(target_os = "linux")]
mod extents;
#[cfg(target_os = "linux")]
mod file;
#[cfg(not(target_os = "linux"))]
mod fileless;
#[cfg(target_os = "linux")]
mod geometry;
#[cfg(target_os = "linux")]
mod latch;
#[cfg(target_os = "linux")]
mod memory_disk;
#[cfg(target_os = "linux")]
mod next;
#[cfg(target_os = "linux")]
mod null;
#[cfg(target_os = "linux")]
mod open;
mod operation;
mod outlet;
#[cfg(target_os = "linux")]
mod place;
mod request;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wake;
#[cfg(target_os = "linux")]
mod zeros;

pub use contract::{Backstore, SharedStore, Submitted};
#[cfg(target_os = "linux")]
pub use disk_file::{CacheProbe, DiskFile, StoreFile, set_cache_probe, set_closer};
#[cfg(target_os = "linux")]
pub use extents::find_extents;
#[cfg(target_os = "linux")]
pub use file::find_size;
#[cfg(not(target_os = "linux"))]
pub use fileless::StoreFile;
#[cfg(target_os = "linux")]
pub use memory_disk::MemoryDisk;
#[cfg(target_os = "linux")]
pub use null::NullDisk;
#[cfg(target_os = "linux")]
pub use open::{OpenError, OpenFailure, OpenOptions, StoreKind};
pub use operation::{
    AllocateMode, Descriptor, FileHandle, HelperAnswer, HelperOperation, HelperResult,
    RingOperation,
};
pub use outlet::{Order, Outlet, PartTag, SocketResult, SocketTag, SocketWork};
#[cfg(target_os = "linux")]
pub use place::{CacheMode, Class, Place, Route, UnderWay};
pub use request::{Capabilities, Extent, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, refuse};
pub use wake::{Receiver, Sender, Waker, channel};
