//! CRC-32C, bit by bit: some programs derive identities from names with it.

/// The Castagnoli polynomial, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The CRC of `bytes` that continues `seed`, without the inversions before and after.
pub(crate) fn update(seed: u32, bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _bit| {
            let carry = if crc & 1 == 0 { 0 } else { POLYNOMIAL };
            (crc >> 1) ^ carry
        })
    })
}

/// The CRC as iSCSI has it, with both inversions.
///
/// Spec: RFC 7143 section 13.1.
pub(crate) fn checksum(bytes: impl IntoIterator<Item = u8>) -> u32 {
    !update(!0, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: RFC 7143 appendix A.4, which gives the bytes in the order of the wire.
    #[test]
    fn the_examples_of_the_standard_come_out() {
        assert_eq!(checksum([0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(checksum([0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(checksum(0..32).to_le_bytes(), [0x4e, 0x79, 0xdd, 0x46]);
    }
}
