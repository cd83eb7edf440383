//! CRC32C digests of headers and data.
//!
//! The four digest bytes on the wire are the CRC with its least significant byte first, unlike
//! every other field of iSCSI.
//!
//! Spec: RFC 7143 section 13.1, test values in RFC 3720 appendix B.4.

use crc_fast::CrcAlgorithm;

/// Size of a digest on the wire.
pub const DIGEST_LENGTH_BYTES: usize = 4;

/// A CRC32C that takes its input piece by piece, because a data segment may be scattered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Digest(u32);

impl Digest {
    /// The digest of nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// The digest of one piece.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::new().update(bytes)
    }

    /// Takes one more piece in.
    #[must_use]
    pub fn update(self, bytes: &[u8]) -> Self {
        // The library takes the state of the register, which is the complement of the digest so far.
        let state = u64::from(!self.0);
        let mut digest = crc_fast::Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
        digest.update(bytes);
        Self(u32::try_from(digest.finalize()).unwrap_or_default())
    }

    /// Takes in the zero bytes that pad a segment of `data_length` bytes to whole words.
    ///
    /// Only for data of our own: what a peer padded with is covered by its digest as it came, and
    /// need not be zero.
    #[must_use]
    pub fn pad(self, data_length: usize) -> Self {
        let fill = [0; 3];
        let (padding, _) = fill.split_at(crate::pdu::padding_length(data_length));
        self.update(padding)
    }

    /// The bytes as they lie on the wire.
    #[must_use]
    pub const fn to_wire(self) -> [u8; DIGEST_LENGTH_BYTES] {
        self.0.to_le_bytes()
    }

    /// True when the peer sent this digest.
    #[must_use]
    pub fn matches(self, wire: [u8; DIGEST_LENGTH_BYTES]) -> bool {
        self.to_wire() == wire
    }
}

/// Digest of a header: BHS and AHS.
#[must_use]
pub fn header_digest(bhs: &crate::pdu::BhsBytes, ahs: &[u8]) -> [u8; DIGEST_LENGTH_BYTES] {
    Digest::of(bhs).update(ahs).to_wire()
}

/// Digest of a data segment of our own, zero padding included.
#[must_use]
pub fn data_digest(data: &[u8]) -> [u8; DIGEST_LENGTH_BYTES] {
    Digest::of(data).pad(data.len()).to_wire()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720 appendix B.4, typed from the list.
    #[test]
    fn digests_equal_the_published_vectors() {
        let ascending: [u8; 32] = std::array::from_fn(|n| u8::try_from(n).unwrap());
        let descending: [u8; 32] = std::array::from_fn(|n| u8::try_from(31 - n).unwrap());
        for (bytes, wire) in [
            ([0x00; 32], [0xaa, 0x36, 0x91, 0x8a]),
            ([0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (descending, [0x5c, 0xdb, 0x3f, 0x11]),
        ] {
            assert_eq!(data_digest(&bytes), wire);
            assert!(Digest::of(&bytes).matches(wire));
        }
    }

    /// A SCSI Read (10) command PDU, the fifth vector of RFC 3720 appendix B.4.
    #[test]
    fn header_digest_covers_the_whole_header() {
        let mut bhs = [0; 48];
        bhs[0] = 0x01;
        bhs[1] = 0xc0;
        bhs[16] = 0x14;
        bhs[22] = 0x04;
        bhs[27] = 0x14;
        bhs[31] = 0x18;
        bhs[32] = 0x28;
        bhs[40] = 0x02;
        assert_eq!(header_digest(&bhs, &[]), [0x56, 0x3a, 0x96, 0xd9]);
    }

    #[test]
    fn padding_is_covered_and_pieces_add_up() {
        assert_eq!(data_digest(b"abcde"), Digest::of(b"abcde\0\0\0").to_wire());
        assert_ne!(data_digest(b"abcde"), Digest::of(b"abcde").to_wire());
        assert_eq!(Digest::of(b"ab").update(b"cd"), Digest::of(b"abcd"));
        assert_eq!(data_digest(b"abcd"), Digest::of(b"abcd").to_wire());
    }
}
