//! SCSI device servers: a disk, pure.
//!
//! CDB bytes go in; store requests, changes for the owner core and outcomes come out. No socket,
//! thread, clock or random source, and no word of any transport: names come from the caller.
//!
//! [`disk`] is the device server; [`missing`] answers for units that are not there. Beside them
//! stand what every device type needs: [`sense`], [`attention`], [`reservation`], [`task_set`],
//! [`lun`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod access;
pub mod attention;
mod cdb;
pub mod disk;
pub mod failure;
pub mod lun;
pub mod missing;
pub mod nexus;
pub mod profile;
pub mod reservation;
pub mod sense;
pub mod status;
pub mod task_set;

pub use access::{AccessClass, Blocked};
pub use attention::{AttentionQueue, UnitAttention};
pub use disk::{
    Applied, Change, ChangeKind, Command, Input, LogicalUnit, NexusSlot, Notice, Outcome, Owner,
    Proposal, Reply, RestoreError, Shared, Step, Task, Who, check_kept_state,
};
pub use lun::{Lun, LunInventory, UnsupportedLun};
pub use nexus::{Nexus, NexusId, PortName, Principal};
pub use profile::{Identity, Limits, Profile, TargetPort};
pub use sense::{Sense, SenseCode, SenseData, SenseKey, SenseKeySpecific};
pub use status::Status;
pub use task_set::{TaskAttribute, TaskKey, TaskSet};
