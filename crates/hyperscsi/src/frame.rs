//! The header of three bytes that begins every frame.
//!
//! ```text
//! byte 0            byte 1            byte 2
//! 7 6 5 4 3 2 1 0   7 6 5 4 3 2 1 0   7 6 5 4 3 2 1 0
//! S G G A T T T T   T T T T T L F F   F F F F F F F F
//! ```
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use crate::limits::{FRAGMENTS_MAX, TAGS};

/// What the header of a frame says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FragmentHeader {
    /// The frame is sealed: what follows is encrypted.
    pub is_sealed: bool,
    /// How often the tag has been used, modulo 4.
    pub generation: u8,
    /// The sender waits for an acknowledgement.
    pub wants_ack: bool,
    /// From 0 to 511.
    pub tag: u16,
    /// The last fragment of its PDU.
    pub is_last: bool,
    /// The number of the fragment, from 0 to 1023.
    pub fragment: u16,
}

impl FragmentHeader {
    /// Reads a header; every three bytes are one.
    #[must_use]
    pub fn decode([a, b, c]: [u8; 3]) -> Self {
        Self {
            is_sealed: a & 0x80 != 0,
            generation: (a >> 5) & 3,
            wants_ack: a & 0x10 != 0,
            tag: (u16::from(a & 0x0f) << 5) | u16::from(b >> 3),
            is_last: b & 0x04 != 0,
            fragment: (u16::from(b & 0x03) << 8) | u16::from(c),
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub fn encode(self) -> [u8; 3] {
        debug_assert!(self.tag < TAGS && self.fragment < FRAGMENTS_MAX && self.generation < 4);
        let [tag_high, tag_low] = self.tag.to_be_bytes();
        let [fragment_high, fragment_low] = self.fragment.to_be_bytes();
        let sealed = if self.is_sealed { 0x80 } else { 0 };
        let ack = if self.wants_ack { 0x10 } else { 0 };
        let last = if self.is_last { 0x04 } else { 0 };
        [
            sealed | ((self.generation & 3) << 5) | ack | ((tag_high & 1) << 3) | (tag_low >> 5),
            ((tag_low & 0x1f) << 3) | last | (fragment_high & 3),
            fragment_low,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_three_bytes_are_one_header_and_no_other() {
        for number in 0..1_u32 << 24 {
            let [_, a, b, c] = number.to_be_bytes();
            assert_eq!(FragmentHeader::decode([a, b, c]).encode(), [a, b, c]);
        }
    }

    /// What the dissector of Wireshark shows for these bytes.
    #[test]
    fn the_fields_are_where_analysers_look_for_them() {
        let header = FragmentHeader::decode([0x09, 0x64, 0x00]);
        assert_eq!(
            (header.tag, header.is_last, header.fragment),
            (300, true, 0)
        );
        let header = FragmentHeader::decode([0x00, 0x0c, 0x01]);
        assert_eq!((header.tag, header.is_last, header.fragment), (1, true, 1));
        let header = FragmentHeader::decode([0xff, 0xfb, 0xff]);
        assert_eq!(
            (header.tag, header.is_last, header.fragment),
            (511, false, 1023)
        );
        assert!(header.is_sealed && header.wants_ack && header.generation == 3);
    }
}
