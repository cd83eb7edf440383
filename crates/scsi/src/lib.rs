//! SCSI device servers, pure.
//!
//! CDB bytes go in; store requests, changes for the owner core and outcomes come out. No socket,
//! thread, clock or random source, and no word of any transport: names come from the caller.
//!
//! A core's [`LogicalUnit`] turns a [`Command`] into a [`Task`] and [`Step`]s: data to collect,
//! requests for the store, changes for the [`Owner`], and in the end an [`Outcome`]. State that
//! commands can change is in a [`Shared`] snapshot, made by the unit's one [`Owner`] and installed
//! on every core. [`COMMANDS`] is the table of all commands. [`missing`] answers for units that
//! are not there.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod disk;
mod owner;
mod sam;
mod spc;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod unit;

pub use owner::{
    Applied, Change, ChangeKind, Notice, Owner, Proposal, Reply, RestoreError, Who,
    check_kept_state,
};
pub use sam::attention::{AttentionQueue, UnitAttention};
pub use sam::lun::{Lun, LunInventory, UnsupportedLun};
pub use sam::nexus::{Nexus, NexusId, PortName, Principal};
pub use sam::profile::{Identity, Limits, Profile, TargetPort};
pub use sam::sense::{Sense, SenseCode, SenseData, SenseKey, SenseKeySpecific};
pub use sam::status::Status;
pub use sam::task_set::{TaskAttribute, TaskKey, TaskSet};
pub use spc::mode::Modes;
pub use spc::shared::Shared;
pub use spc::{missing, reservation};
pub use table::access::{AccessClass, Blocked};
pub use table::commands::{COMMANDS, kind_of};
pub use table::describe::{Description, describe};
pub use table::row::{
    CommandKind, CommandSpec, Direction, Layout, Operation, OwnerOperation, Requires, Traits,
};
pub use task::{Command, Input, Outcome, Step, Task};
pub use unit::{LogicalUnit, NexusSlot};
