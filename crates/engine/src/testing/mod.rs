//! A bench for engines: several cores, the letters between them, transports and stores that do what a test
//! says. For the tests of this crate, and for fuzzing (feature `testing`).
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a bench panics where a test is wrong, and says with its names what it does"
)]

pub mod bench;
pub mod cdb;
pub mod disk;
pub mod outside;
