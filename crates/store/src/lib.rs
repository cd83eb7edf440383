//! Stores of blocks: where the data of a logical unit lives.
//!
//! [`contract`] says what every store promises; it is pure. The other modules are the stores:
//! zeros ([`NullDisk`]), memory ([`MemoryDisk`]), regular files and block devices
//! ([`OpenOptions`], which opens any of them).
//! A store never blocks and never waits: what takes time is handed to the reactor as a
//! [`RingOperation`] or to its helper thread as a [`HelperOperation`], and comes back by tag.
//! [`Place`] knows which operations the kernel may do on the thread that asks. Only opening may block.
//!
//! This crate knows nothing of SCSI or of networks; it counts in bytes.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod contract;
mod extents;
mod file;
mod geometry;
mod latch;
mod memory_disk;
mod null;
mod open;
mod place;
mod request;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod zeros;

pub use contract::*;
pub use extents::find_extents;
pub use file::{CacheMode, find_size};
pub use memory_disk::MemoryDisk;
pub use null::NullDisk;
pub use open::{OpenError, OpenFailure, OpenOptions, StoreKind};
pub use place::{
    CacheProbe, Class, DiskFile, Place, Route, StoreFile, UnderWay, set_cache_probe, set_closer,
};
