//! What the tests of the transports have in common: a disk, a core that uses a store, and what a store has to do.

mod answer;
pub(crate) mod changes;
pub(crate) mod checks;
mod client;
mod medium;
mod tape;

pub(crate) use answer::Answer;
pub(crate) use client::{Client, pattern};
pub(crate) use medium::{BLOCK, Medium};
pub(crate) use tape::Tape;
