//! CRC32C, in pieces.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC32C of what was taken in so far.
#[derive(Debug)]
pub(crate) struct Checksum(Digest);

impl Checksum {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// As it stands on the wire: in network order, as every number here.
    pub(crate) fn to_wire(&self) -> [u8; 4] {
        u32::try_from(self.0.finalize())
            .unwrap_or_default()
            .to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RFC 3720, appendix B.4: 32 bytes of zeros.
    #[test]
    fn it_is_that_of_the_standard() {
        let mut checksum = Checksum::new();
        checksum.update(&[0; 20]);
        checksum.update(&[0; 12]);
        assert_eq!(checksum.to_wire(), 0x8a91_36aa_u32.to_be_bytes());
    }
}
