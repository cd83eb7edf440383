//! Stores of blocks: where the data of a logical unit lives.
//!
//! [`Backstore`] says what every store promises; that is pure. The stores:
//! zeros ([`NullDisk`]), memory ([`MemoryDisk`]), regular files and block devices
//! ([`OpenOptions`], which opens any of them), and several stores as one ([`Composed`]).
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

#[cfg(target_os = "linux")]
mod backing;
#[cfg(target_os = "linux")]
mod blocking;
mod cause;
mod compose;
mod contract;
mod device;
#[cfg(target_os = "linux")]
mod disk_file;
mod durability;
#[cfg(target_os = "linux")]
mod extents;
#[cfg(target_os = "linux")]
mod file;
#[cfg(not(target_os = "linux"))]
mod fileless;
#[cfg(target_os = "linux")]
mod geometry;
mod journal;
#[cfg(target_os = "linux")]
mod latch;
#[cfg(target_os = "linux")]
mod locks;
#[cfg(target_os = "linux")]
mod made;
#[cfg(target_os = "linux")]
mod memory_disk;
#[cfg(target_os = "linux")]
mod native;
mod next;
mod notes;
#[cfg(target_os = "linux")]
mod null;
#[cfg(target_os = "linux")]
mod open;
mod operation;
mod outlet;
#[cfg(target_os = "linux")]
mod place;
mod request;
#[cfg(target_os = "linux")]
mod size;
#[cfg(target_os = "linux")]
mod snapshots;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod wake;
#[cfg(target_os = "linux")]
mod zeros;

pub use cause::Cause;
pub use compose::{ComposeError, Composed, Form, Member};
pub use contract::{Backstore, Bottom, Connections, SharedStore, Submitted};
pub use device::{DeviceAnswer, DeviceCommand, DeviceFacts, DeviceRequest};
#[cfg(target_os = "linux")]
pub use disk_file::{CacheProbe, DiskFile, StoreFile, Syncer, set_cache_probe, set_closer};
pub use durability::{
    Departure, Durability, Flush, FlushFailure, FlushStep, FlushTaken, Flushes, Losses, Mark,
    OwnFlush, Party, WriteCache, Writes,
};
#[cfg(target_os = "linux")]
pub use extents::find_extents;
#[cfg(not(target_os = "linux"))]
pub use fileless::StoreFile;
pub use journal::{
    Bias, Binding, Header, Held, Journal, Known, LOG_BYTES_MIN, Limits, LogHead, LogId, LogOptions,
    MEDIUM_BYTES_MAX, Medium, Misfit, Noted, Replayed, Shape, UnitName, Use,
};
#[cfg(target_os = "linux")]
pub use journal::{Logged, NotLogged, read_log_head};
#[cfg(target_os = "linux")]
pub use locks::is_locked;
#[cfg(target_os = "linux")]
pub use made::MadeFiles;
#[cfg(target_os = "linux")]
pub use memory_disk::MemoryDisk;
#[cfg(target_os = "linux")]
pub use native::{
    ClonePlace, Ended, NativeError, NativeSnapshot, NativeSnapshots, Progress, TakenNative,
};
pub use notes::{Note, Notes};
#[cfg(target_os = "linux")]
pub use null::NullDisk;
#[cfg(target_os = "linux")]
pub use open::{
    OpenError, OpenFailure, OpenOptions, Reservation, StoreKind, probe_growth, reservation, seen,
};
pub use operation::{
    AllocateMode, Descriptor, FileHandle, HelperAnswer, HelperOperation, HelperResult,
    RingOperation,
};
pub use outlet::{Order, Outlet, PartTag, SocketResult, SocketTag, SocketWork};
#[cfg(target_os = "linux")]
pub use place::{CacheMode, Class, Place, Route, UnderWay};
pub use request::{
    Capabilities, Extent, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, crosses, refuse,
};
#[cfg(target_os = "linux")]
pub use size::{PAST_THE_END, ends_before, find_size};
#[cfg(target_os = "linux")]
pub use snapshots::{
    Exchange, Finished, NewSnapshot, Rollback, SNAPSHOTS_MAX, Snapshot, SnapshotError,
    SnapshotName, Snapshots, Standing, Swap, file_of_snapshot, probe_reflinks, remove_unserved,
};
pub use wake::{Receiver, Sender, Waker, channel};
