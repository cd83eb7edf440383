//! What tests need: a store that answers from another thread, and a bench for the stores of this crate.

#[cfg(test)]
mod bench;
mod foreign;

#[cfg(test)]
pub(crate) use bench::*;
pub use foreign::{ForeignDisk, Manner};
