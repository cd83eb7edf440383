//! A seeded world that drives the pure crates of Tarn.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agenda;
pub mod disk;
pub mod ledger;
pub mod network;
pub mod prng;
pub mod trace;
