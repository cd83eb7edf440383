//! Stores of blocks: where the data of a logical unit lives.
//!
//! [`contract`] says what every store promises; it is pure. The other modules are the stores.
//! A store never blocks and never waits: what takes time is handed to the reactor as a
//! [`RingOperation`] or to its helper thread as a [`HelperOperation`], and comes back by tag.
//!
//! This crate knows nothing of SCSI or of networks; it counts in bytes.
#![warn(missing_docs)]

pub mod contract;

pub use contract::*;
