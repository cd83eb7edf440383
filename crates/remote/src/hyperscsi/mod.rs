//! A store behind a HyperSCSI server.
//!
//! [`open`] looks at the device, and [`attendant`] has the session, in a thread of its own, for the jobs of
//! [`crate::scsi`]. [`station`] has the socket and what both of these do with it.

mod attendant;
mod open;
mod options;
mod station;
#[cfg(test)]
mod tests;
mod wire;

pub use open::{HyperscsiConnection, HyperscsiFailure, HyperscsiOpenError, ServerFound, discover};
pub use options::{HyperscsiOptions, Password};
pub use wire::Carrier;
