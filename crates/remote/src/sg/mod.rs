//! A SCSI device of this machine as a store.
//!
//! [`node`] finds the node of the generic driver (`/dev/sgN`) of a device by whatever name it has; [`open`] looks at
//! the device, and [`attendant`] has its node open and threads that carry commands out, each of which waits in the
//! kernel for the end of its command. Of other drivers only the node of a disk or drive is opened, which keeps this
//! host from mounting it; opening that of a tape waits for a medium, and closing it rewinds.

mod attendant;
mod node;
mod open;
mod options;

pub use options::{ScsiFailure, ScsiOpenError, ScsiOptions};
