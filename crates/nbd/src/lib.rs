//! The client of the NBD protocol, sans-I/O: bytes in, bytes out.
//!
//! [`Handshake`] finds the export and agrees on what both sides can do; then [`Client`] sends
//! requests and takes replies, simple and structured, in any order. A server is trusted no more
//! than any peer: what it says is checked, and nothing it sends makes this side grow without
//! bound or panic. The crate knows no socket, thread or clock.
//!
//! Spec: the NBD protocol, <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod handshake;
mod reader;
mod receive;
mod request;
#[cfg(test)]
mod tests;
mod wire;

pub use client::{Client, Piece};
pub use handshake::{Export, Handshake, HandshakeError, Progress};
pub use receive::Violation;
pub use request::{Completion, ReadBuffer, Request, StatusExtent, SubmitError, Work};
pub use wire::{ServerError, TransmissionFlags};
