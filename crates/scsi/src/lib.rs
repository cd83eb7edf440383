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
//!
//! # Rooms
//!
//! Each names only those above it:
//!
//! | room | has |
//! |---|---|
//! | `sam` | nexus, CDB, command, step, outcome, change, task set, unit attention, sense, status, LUN, profile |
//! | `table` | a row for each command: device types, fields of the CDB, reservations, what executes it |
//! | `spc` | the gate that every command passes, INQUIRY, modes, reports, reservations; `peripheral`: a device type |
//! | `disk` | SBC: block commands, their pages |
//! | `optical` | MMC: a CD or DVD drive, which reads its blocks as `disk` does |
//! | `device` | `enum Device`: a variant for each device type |
//! | `kept` | the state that outlives a restart |
//! | `owner`, `task`, `unit` | the shared state, a command in execution, a logical unit on one core |
//!
//! A new device type is a room beside `disk`, a variant of `device::Device`, a
//! [`DeviceType`] and rows of [`COMMANDS`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod device;
mod disk;
mod kept;
mod optical;
mod owner;
mod sam;
mod spc;
mod table;
mod task;
mod unit;

#[cfg(test)]
mod tests;

pub use kept::{RestoreError, check_kept_state, ports_of_kept_state, with_ports_of_kept_state};
pub use owner::{Applied, Medium, Owner, Proposal};
pub use sam::attention::{AttentionQueue, UnitAttention};
pub use sam::cdb::Cdb;
pub use sam::change::{Change, ChangeKind, Notice, Reply, Who};
pub use sam::command::{Command, FlushScope, Input, Outcome, PIECE_BYTES_MAX, Step};
pub use sam::device_type::DeviceType;
pub use sam::failures::StoreFailures;
pub use sam::lun::{Lun, LunInventory, UnsupportedLun};
pub use sam::nexus::{Nexus, NexusId, NexusSlot, PortName, Principal};
pub use sam::profile::{Identity, Limits, Profile, TargetPort};
pub use sam::sense::{Sense, SenseCode, SenseData, SenseKey, SenseKeySpecific};
pub use sam::status::Status;
pub use sam::task_set::{TaskAttribute, TaskKey, TaskSet};
pub use spc::parameters::Modes;
pub use spc::shared::Shared;
pub use spc::{missing, reservation};
pub use table::access::{AccessClass, Blocked};
pub use table::commands::{COMMANDS, kind_of};
pub use table::describe::{Description, describe};
pub use table::row::{
    CommandKind, CommandSpec, DeviceTypes, Direction, Features, Requires, Traits,
};
pub use task::Task;
pub use unit::{LogicalUnit, WHOLE_MEDIUM};
