//! Both sides of the NBD protocol, sans-I/O: bytes in, bytes out.
//!
//! Of a client, [`Handshake`] finds the export and agrees on what both sides can do; then [`Client`]
//! sends requests and takes replies, simple and structured, in any order. Of a server, [`server`] has
//! the handshake, the requests and the replies. The peer is not trusted: what it says is checked, and
//! nothing it sends makes this side grow without bound or panic. The crate knows no socket, thread or clock.
//!
//! Spec: the NBD protocol, <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod arrived;
mod client;
mod handshake;
mod reader;
mod receive;
mod request;
pub mod server;
#[cfg(test)]
mod tests;
mod wire;

pub use client::{Client, Piece};
pub use handshake::{Export, Handshake, HandshakeError, Progress};
pub use receive::Violation;
pub use request::{Completion, ReadBuffer, Request, StatusExtent, SubmitError, Work};
pub use wire::{ServerError, TransmissionFlags};
