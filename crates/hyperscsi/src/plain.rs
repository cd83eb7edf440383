//! PDUs outside a session: one frame, tag 0, with a checksum.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::frame::FragmentHeader;
use crate::keys::MacKey;
use crate::limits::FRAME_MIN_BYTES;
use crate::pdu::{Header, Level, Opcode, is_intact, trailer};

/// A frame with this PDU, from behind its Ethernet header, of at least so many bytes.
pub(crate) fn write(opcode: Opcode, body: &[u8], frame_bytes_min: usize) -> Vec<u8> {
    let header = Header::new(opcode, body.len()).at(Level::Crc).encode();
    let head = FragmentHeader {
        is_last: true,
        ..FragmentHeader::default()
    };
    let end = trailer(Level::Crc, &no_key(), 0, 0, &[&header, body]);
    let mut frame = [&head.encode()[..], &header, body, &end].concat();
    frame.resize(frame.len().max(frame_bytes_min).max(FRAME_MIN_BYTES), 0);
    frame
}

/// The opcode and the body of the PDU in such a frame.
pub(crate) fn read(frame: &[u8]) -> Option<(Opcode, &[u8])> {
    let (head, rest) = frame.split_first_chunk::<3>()?;
    let head = FragmentHeader::decode(*head);
    let expected = FragmentHeader {
        is_last: true,
        ..FragmentHeader::default()
    };
    (head == expected).then_some(())?;
    let header = Header::decode(rest)?;
    let pdu = rest.get(..header.whole_bytes(false))?;
    let is_sound = header.level(false) == Level::Crc && is_intact(Level::Crc, &no_key(), 0, 0, pdu);
    is_sound.then_some((header.opcode, header.body(pdu)?))
}

/// The frame for a client that sends frames with the tag of no session: its session is over. The caller bounds how
/// many leave. It is as short as a frame can be, so never longer than what it answers.
#[must_use]
pub fn unknown_session(tag: u16) -> Vec<u8> {
    write(Opcode::Disconnect, &tag.to_be_bytes(), 0)
}

/// The tag in such a frame.
#[must_use]
pub fn read_unknown_session(frame: &[u8]) -> Option<u16> {
    let (opcode, body) = read(frame)?;
    let tag = <[u8; 2]>::try_from(body).ok()?;
    (opcode == Opcode::Disconnect).then(|| u16::from_be_bytes(tag))
}

/// Checksums need none.
fn no_key() -> MacKey {
    MacKey::new([0; 32])
}
