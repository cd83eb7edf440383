//! What SAM says of every SCSI device: who asks, what comes in, what goes out, in which order.
//!
//! Names no other room.

pub(crate) mod attention;
pub(crate) mod cdb;
pub(crate) mod change;
pub(crate) mod command;
pub(crate) mod device_type;
pub(crate) mod failure;
pub(crate) mod failures;
pub(crate) mod lun;
pub(crate) mod nexus;
pub(crate) mod profile;
pub(crate) mod sense;
pub(crate) mod status;
pub(crate) mod task_set;
