//! A store behind an iSCSI target.
//!
//! [`open`] looks at the disk, and [`attendant`] has the session, in a thread of its own, for the jobs of
//! [`crate::scsi`]. [`line`] has the connection and what both of these do with it: the state machines of the crate
//! `iscsi` ([`::iscsi::login`], [`::iscsi::initiator`]) say what is sent and check all that comes.

mod attendant;
mod commands;
mod line;
mod open;
mod options;
#[cfg(test)]
pub(crate) mod tests;

pub use open::{IscsiFailure, IscsiOpenError};
pub use options::{IscsiLogin, IscsiOptions};
