//! SCSI device servers: a disk, pure.
//!
//! CDB bytes go in; store requests, changes for the owner core and outcomes come out. No socket,
//! thread, clock or random source, and no word of any transport: names come from the caller.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod attention;
pub mod nexus;
pub mod reservation;
pub mod sense;
pub mod status;

pub use access::{AccessClass, Blocked};
pub use attention::{AttentionQueue, UnitAttention};
pub use nexus::{Nexus, NexusId, PortName};
pub use sense::{Sense, SenseCode, SenseData, SenseKey, SenseKeySpecific};
pub use status::Status;
