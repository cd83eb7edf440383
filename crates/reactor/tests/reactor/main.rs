//! The reactor as its owners see it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test may"
)]

mod common;
mod datagrams;
mod lanes;
mod sockets;
mod stores;
mod work;
