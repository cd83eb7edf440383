//! What the tests of the transports have in common: a disk, and a core that uses a store.

mod client;
mod medium;

pub(crate) use client::{Client, pattern};
pub(crate) use medium::{Answer, BLOCK, Medium};
