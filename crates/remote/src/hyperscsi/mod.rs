//! A store behind a HyperSCSI server.
//!
//! [`open`] looks at the device, [`shared`] is what all cores have in common, [`handle`] is the handle of a core, which
//! turns requests into jobs, and [`attendant`] the one thread that has the session and carries the jobs out.
//! [`station`] has the socket and what both of these do with it, [`scsi`] the commands and what is made of answers.

mod attendant;
mod handle;
mod job;
mod open;
mod scsi;
mod shared;
mod station;
#[cfg(test)]
mod tests;
mod wire;

pub use job::Bytes;
pub use open::{
    HyperscsiConnection, HyperscsiFailure, HyperscsiOpenError, HyperscsiOptions, Password,
    ServerFound, discover,
};
pub use wire::Carrier;
