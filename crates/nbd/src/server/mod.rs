//! The server's side: [`Handshake`] until an export is agreed on, then a [`Request`] for each header that
//! comes, and the headers of what is answered.
//!
//! What a request does, and where its data lies, is the caller's business.

mod handshake;
mod reply;
mod request;
#[cfg(test)]
mod tests;

pub use handshake::{Agreement, Exports, Handshake, HandshakeError, Offer, Progress, Tls};
pub use reply::{
    CHUNK_HEADER_BYTES, DATA_CHUNK_BYTES, ERROR_CHUNK_BYTES, SIMPLE_REPLY_BYTES,
    block_status_chunk, cache_lost_chunk, data_chunk, error_chunk, none_chunk, simple_reply,
};
pub use request::{BadMagic, Command, REQUEST_BYTES, Request, Terms};

/// Most data of one request, in bytes: what clients send that know no limit.
pub const PAYLOAD_MAX_BYTES: u32 = 32 * 1024 * 1024;
/// The number of the context `base:allocation` in answers to block status.
pub const ALLOCATION_CONTEXT: u32 = 1;
