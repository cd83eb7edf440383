//! What follows a traced connection, as crate `plane` does: excerpts of both directions, kept as
//! packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use iscsi::excerpt::{Cutter, Standing};
use memory::{Message, Piece};
use pcap::{Packets, Segment};

/// What is kept of the data of a PDU when nothing else is said.
const DATA_BYTES: usize = 64;
/// A block of packets is full when it has so much.
const BLOCK_BYTES: usize = 16 * 1024;
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 50_000);
const PORTAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3260);

/// Follows both directions.
#[derive(Debug)]
pub(crate) struct Tap {
    received: Cutter,
    sent: Cutter,
    packets: Packets,
}

impl Tap {
    pub(crate) fn new() -> Self {
        let cutter = || Cutter::new(&Standing::default(), DATA_BYTES);
        Self {
            received: cutter(),
            sent: cutter(),
            packets: Packets::default(),
        }
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let piece = Piece::from(bytes);
        note(&mut self.received, &mut self.packets, piece, PEER, PORTAL);
    }

    pub(crate) fn send(&mut self, message: &Message) {
        for piece in message.pieces() {
            note(&mut self.sent, &mut self.packets, piece, PORTAL, PEER);
        }
    }
}

fn note(
    cutter: &mut Cutter,
    packets: &mut Packets,
    piece: Piece<'_>,
    from: SocketAddr,
    to: SocketAddr,
) {
    cutter.push(piece, |pdu| {
        packets.push(&Segment {
            at: Duration::ZERO,
            from,
            to,
            position: 0,
            acknowledged: 0,
            whole_bytes: pdu.whole_bytes,
            bytes: pdu.bytes,
        });
        if packets.len_bytes() >= BLOCK_BYTES {
            *packets = Packets::default();
        }
    });
}
