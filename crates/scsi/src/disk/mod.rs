//! The device server of a disk: SBC commands and what SPC asks of every device.
//!
//! A core's [`LogicalUnit`] turns a [`Command`] into a [`Task`] and [`Step`]s: data to collect,
//! requests for the store, changes for the [`Owner`], and in the end an [`Outcome`]. It does no
//! I/O and knows no transport.
//!
//! State that commands can change is in a [`Shared`] snapshot, made by the unit's one [`Owner`]
//! and installed on every core. [`COMMANDS`] is the table of all commands.

mod atomic;
mod describe;
mod inquiry;
mod mode;
mod owner;
mod provision;
pub(crate) mod report;
mod shared;
mod spec;
mod table;
mod task;
mod transfer;
mod unit;
mod work;

#[cfg(test)]
mod tests;

pub use describe::{Description, describe};
pub use mode::Modes;
pub use owner::{
    Applied, Change, ChangeKind, Notice, Owner, Proposal, Reply, RestoreError, Who,
    check_kept_state,
};
pub use shared::Shared;
pub use spec::{
    CommandKind, CommandSpec, Direction, Layout, Operation, OwnerOperation, Requires, Traits,
};
pub use table::{COMMANDS, kind_of};
pub use task::{Command, Input, Outcome, Step, Task};
pub use unit::{LogicalUnit, NexusSlot};
