//! Links of the world as the sessions of a core see them.

use std::net::SocketAddr;

use front::testing::{Noted, TestLine, UnderWay};
use iscsi::target::Receive;

/// How much one receive into a chunk takes, in bytes.
const CHUNK_BYTES: usize = 8192;

/// A link by which an initiator of iSCSI comes. Every one has an address of its own.
pub(super) fn line(link: usize) -> TestLine {
    let [.., high, low] = link.to_be_bytes();
    TestLine {
        number: link,
        peer: SocketAddr::from(([10, 0, high, low], 49_152)),
        portal: SocketAddr::from(([10, 1, 0, 1], 3260)),
        has_had_all: false,
        noted: Noted::default(),
    }
}

/// How much the receive of a link would take now, in bytes.
pub(super) fn appetite(link: &UnderWay) -> usize {
    match &link.receiving {
        Some((_, Receive::Chunk { limit_bytes })) => CHUNK_BYTES.min(*limit_bytes),
        Some((_, Receive::Exact { range, .. })) => range.len(),
        None => 0,
    }
}
