//! Tarn's side of the protocol with a process that emulates a device (docs/internals/handler.md): the first bytes of a
//! connection ([`hello`], [`check_answer`]), and the [`Ring`] of commands in memory that both sides have.
//!
//! The other side is not trusted. It may write anything anywhere in the memory, at any time, so each value is read once
//! and checked after that. The crate knows no socket and no mapping: the memory is an argument ([`Memory`]).
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod arena;
mod greeting;
mod ring;

pub use greeting::{ANSWER_BYTES, GreetingError, HELLO_BYTES, VERSION, check_answer, hello};
pub use ring::{
    CDB_BYTES_MAX, Command, Completion, DATA_BYTES, MEMORY_BYTES, Memory, Ring, SENSE_BYTES_MAX,
    SLOTS, Violation,
};
