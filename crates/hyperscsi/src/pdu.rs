//! PDUs: their header, and what protects them.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Deref;

use crate::bytes::{Reader, long, short, size};
use crate::checksum::Checksum;
use crate::keys::{MAC_BYTES, MacKey};
use crate::limits::{PDU_MAX_BYTES, VERSION};

/// The bytes of a header, from the version on.
pub const HEADER_BYTES: usize = 21;
/// The bytes of a CRC.
const CRC_BYTES: usize = 4;

/// What a PDU is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Opcode {
    /// A command or a task management request.
    Request,
    /// Its end.
    Reply,
    /// Who has this group?
    Discovery,
    /// A server that has it.
    DiscoveryAnswer,
    /// A step of a login, or a question about devices.
    Negotiation,
    /// Its answer.
    NegotiationAnswer,
    /// The end of a session.
    Disconnect,
    /// Its answer.
    DisconnectAnswer,
    /// Asks what has arrived.
    Probe,
    /// What has arrived, and how much more may come.
    Ack,
}

impl Opcode {
    const fn code(self) -> u8 {
        match self {
            Self::Request => 0x00,
            Self::Reply => 0x01,
            Self::Discovery => 0x10,
            Self::DiscoveryAnswer => 0x90,
            Self::Negotiation => 0x11,
            Self::NegotiationAnswer => 0x12,
            Self::Disconnect => 0x13,
            Self::DisconnectAnswer => 0x93,
            Self::Probe => 0x20,
            Self::Ack => 0x21,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        Some(match code {
            0x00 => Self::Request,
            0x01 => Self::Reply,
            0x10 => Self::Discovery,
            0x90 => Self::DiscoveryAnswer,
            0x11 => Self::Negotiation,
            0x12 => Self::NegotiationAnswer,
            0x13 => Self::Disconnect,
            0x93 => Self::DisconnectAnswer,
            0x20 => Self::Probe,
            0x21 => Self::Ack,
            _ => return None,
        })
    }

    /// The byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        self.code()
    }
}

/// What protects a device's commands. A later level is stronger.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// The check of Ethernet alone. Bytes may be wrong.
    None,
    /// A checksum against accidents.
    Crc,
    /// A keyed hash against people.
    Hash,
    /// Nobody else can read it.
    Encrypt,
}

impl Level {
    /// All, the weakest first.
    pub const ALL: [Self; 4] = [Self::None, Self::Crc, Self::Hash, Self::Encrypt];

    /// The byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc => 1,
            Self::Hash => 2,
            Self::Encrypt => 3,
        }
    }

    /// The level of a byte on the wire.
    #[must_use]
    pub fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.to_wire() == byte)
    }

    /// As configurations and reports call it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Crc => "crc",
            Self::Hash => "hash",
            Self::Encrypt => "encrypt",
        }
    }

    /// The bytes behind the body of a PDU.
    pub(crate) const fn trailer_bytes(self) -> usize {
        match self {
            // Each sealed frame has a tag of its own.
            Self::None | Self::Encrypt => 0,
            Self::Crc => CRC_BYTES,
            Self::Hash => MAC_BYTES,
        }
    }

    const fn flags(self) -> u8 {
        match self {
            Self::None | Self::Encrypt => 0,
            Self::Crc => 1,
            Self::Hash => 2,
        }
    }
}

/// The fixed part of a PDU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// What it is.
    pub opcode: Opcode,
    /// Its first two bits.
    flags: u8,
    /// The device, from 1; 0 is the session.
    pub device: u16,
    /// The session; 0 before there is one.
    pub session: u32,
    /// How often the tag has been used, modulo 2^32.
    pub sequence: u32,
    /// From the version to the end of the body, without the trailer, in bytes.
    pub length: u32,
    /// Of the PDU in each fragment but the last, in bytes.
    pub fragment_bytes: u16,
    /// Where the body begins.
    body_at: u16,
}

impl Header {
    /// The header of a PDU with a body of so many bytes.
    #[must_use]
    pub fn new(opcode: Opcode, body_bytes: usize) -> Self {
        Self {
            opcode,
            flags: 0,
            device: 0,
            session: 0,
            sequence: 0,
            length: long(body_bytes.saturating_add(HEADER_BYTES)),
            fragment_bytes: 0,
            body_at: short(HEADER_BYTES),
        }
    }

    /// The same with what the level asks for.
    #[must_use]
    pub const fn at(mut self, level: Level) -> Self {
        self.flags = level.flags();
        self
    }

    /// Reads the header of a PDU. Bytes behind it do not matter.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        (reader.u8()? == VERSION).then_some(())?;
        let header = Self {
            opcode: Opcode::of(reader.u8()?)?,
            flags: reader.u8()?,
            device: reader.u16()?,
            session: reader.u32()?,
            sequence: reader.u32()?,
            length: reader.u32()?,
            body_at: reader.u16()?,
            fragment_bytes: reader.u16()?,
        };
        let is_sound = header.flags < 3
            && header.length <= PDU_MAX_BYTES
            && usize::from(header.body_at) >= HEADER_BYTES
            && u32::from(header.body_at) <= header.length;
        is_sound.then_some(header)
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let ([d0, d1], [b0, b1], [f0, f1]) = (
            self.device.to_be_bytes(),
            self.body_at.to_be_bytes(),
            self.fragment_bytes.to_be_bytes(),
        );
        let [s0, s1, s2, s3] = self.session.to_be_bytes();
        let [q0, q1, q2, q3] = self.sequence.to_be_bytes();
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let (opcode, flags) = (self.opcode.code(), self.flags);
        [
            VERSION, opcode, flags, d0, d1, s0, s1, s2, s3, q0, q1, q2, q3, l0, l1, l2, l3, b0, b1,
            f0, f1,
        ]
    }

    /// The level of a PDU that was sealed or not.
    #[must_use]
    pub const fn level(&self, is_sealed: bool) -> Level {
        match (is_sealed, self.flags) {
            (true, _) => Level::Encrypt,
            (false, 2) => Level::Hash,
            (false, 1) => Level::Crc,
            (false, _) => Level::None,
        }
    }

    /// With its trailer, in bytes.
    pub(crate) fn whole_bytes(&self, is_sealed: bool) -> usize {
        size(self.length).saturating_add(self.level(is_sealed).trailer_bytes())
    }

    /// The body of a PDU that begins with this header.
    #[must_use]
    pub fn body<'a>(&self, pdu: &'a [u8]) -> Option<&'a [u8]> {
        pdu.get(usize::from(self.body_at)..size(self.length))
    }
}

/// The bytes behind a PDU.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trailer {
    bytes: [u8; MAC_BYTES],
    length: usize,
}

impl Trailer {
    fn of(bytes: &[u8]) -> Self {
        let mut trailer = Self::default();
        for (place, byte) in trailer.bytes.iter_mut().zip(bytes) {
            *place = *byte;
        }
        trailer.length = bytes.len().min(MAC_BYTES);
        trailer
    }
}

impl Deref for Trailer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// The bytes behind a PDU of these pieces. The tag and the whole sequence number are covered, too: a PDU under
/// another tag is another PDU.
pub(crate) fn trailer(
    level: Level,
    key: &MacKey,
    tag: u16,
    sequence: u64,
    pieces: &[&[u8]],
) -> Trailer {
    match level {
        Level::None | Level::Encrypt => Trailer::default(),
        Level::Crc => Trailer::of(&checksum(tag, pieces)),
        Level::Hash => Trailer::of(&key.mac(tag, sequence, pieces)),
    }
}

fn checksum(tag: u16, pieces: &[&[u8]]) -> [u8; CRC_BYTES] {
    let mut checksum = Checksum::new();
    checksum.update(&tag.to_be_bytes());
    pieces.iter().for_each(|piece| checksum.update(piece));
    checksum.to_wire()
}

/// Whether the trailer of this PDU is right. `pdu` is whole, with its trailer and no byte more.
pub(crate) fn is_intact(level: Level, key: &MacKey, tag: u16, sequence: u64, pdu: &[u8]) -> bool {
    let Some(end) = pdu.len().checked_sub(level.trailer_bytes()) else {
        return false;
    };
    let Some((covered, found)) = pdu.split_at_checked(end) else {
        return false;
    };
    match level {
        Level::None | Level::Encrypt => true,
        Level::Crc => checksum(tag, &[covered]) == found,
        Level::Hash => key.verifies(tag, sequence, covered, found),
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_is_laid_out_as_documented() {
        let mut header = Header::new(Opcode::Request, 10).at(Level::Crc);
        header.device = 0x0102;
        header.session = 0x0304_0506;
        header.sequence = 0x0708_090a;
        header.fragment_bytes = 1497;
        assert_eq!(
            header.encode(),
            [
                0x20, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 31, 0, 21, 5, 0xd9
            ]
        );
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let mut bytes = Header::new(Opcode::Reply, 10).encode();
        assert!(Header::decode(&bytes).is_some());
        assert!(Header::decode(&bytes[..20]).is_none());
        bytes[18] = 32;
        assert!(
            Header::decode(&bytes).is_none(),
            "the body begins behind the end"
        );
        bytes[18] = 20;
        assert!(
            Header::decode(&bytes).is_none(),
            "the body begins in the header"
        );
        bytes[18] = 21;
        bytes[13] = 1;
        assert!(Header::decode(&bytes).is_none(), "16 MiB");
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(bytes: [u8; HEADER_BYTES]) {
            let mut bytes = bytes;
            bytes[0] = VERSION;
            bytes[13] = 0;
            if let Some(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn a_changed_bit_is_noticed(bytes in prop::collection::vec(any::<u8>(), 1..200), bit: usize) {
            let key = MacKey::new([7; 32]);
            for level in [Level::Crc, Level::Hash] {
                let mut pdu = bytes.clone();
                pdu.extend_from_slice(&trailer(level, &key, 5, 9, &[&bytes]));
                prop_assert!(is_intact(level, &key, 5, 9, &pdu));
                prop_assert!(!is_intact(level, &key, 6, 9, &pdu));
                let bit = bit % (pdu.len() * 8);
                pdu[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(!is_intact(level, &key, 5, 9, &pdu));
            }
        }
    }
}
