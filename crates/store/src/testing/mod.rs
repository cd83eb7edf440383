//! What tests need: stores that answer from a thread or over a connection, a layer of faults, and a bench for the
//! stores of this crate.

#[cfg(test)]
mod bench;
mod fault;
mod foreign;
#[cfg(target_os = "linux")]
mod remote;

#[cfg(test)]
pub(crate) use bench::*;
pub use fault::{Fate, Faulty, Hung};
pub use foreign::{ForeignDisk, Manner};
#[cfg(target_os = "linux")]
pub use remote::{REPLY_BYTES, REQUEST_BYTES, RemoteDisk};
