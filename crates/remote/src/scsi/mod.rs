//! Disks that speak SCSI: what stores behind HyperSCSI servers and iSCSI targets have in common.
//!
//! [`shared`] is what all cores have in common, [`handle`] the store and the handle of a core, which turns requests
//! into jobs, [`jobs`] what becomes of jobs from the arrival of their letters to their end, [`command`] the commands
//! and what is made of answers, and [`medium`] which disk it is, and which are in use: no two stores of this process
//! have one.
//! Each store has one *attendant*, a thread with the session, whatever the number of cores; the transports have theirs
//! in modules of their own, and what they have for [`jobs`] is a [`jobs::Carries`].
//!
//! An attendant shares no memory with a core but the queue of letters, the mailboxes, the figures and what is known of
//! the disk, all in [`shared::Common`], each held for a moment and never while something is waited for. One that hangs
//! in a look-up of a name holds the requests of its own store only; the engine answers those that are cancelled.

pub(crate) mod command;
pub(crate) mod handle;
pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod link;
pub(crate) mod medium;
pub(crate) mod shared;
#[cfg(test)]
pub(crate) mod testing;
