//! A command descriptor block, read by fields.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

/// The first 16 bytes of a CDB, zeros where it is shorter. No command of this crate is longer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cdb(u128);

impl Cdb {
    /// Takes the bytes over; what lies behind the 16th is not looked at.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut padded = [0; 16];
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(u128::from_be_bytes(padded))
    }

    /// All 16 bytes.
    pub(crate) const fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// All 16 bytes as one number, the first byte most significant.
    pub(crate) const fn number(self) -> u128 {
        self.0
    }

    /// Everything before byte `at` shifted out.
    const fn shifted(self, at: u32) -> u128 {
        self.0.wrapping_shl(at.wrapping_mul(8))
    }

    /// The operation code.
    pub(crate) const fn opcode(self) -> u8 {
        self.u8(0)
    }

    /// The byte at `at`.
    pub(crate) const fn u8(self, at: u32) -> u8 {
        (self.shifted(at) >> 120) as u8
    }

    /// Two bytes, big-endian.
    pub(crate) const fn u16(self, at: u32) -> u16 {
        (self.shifted(at) >> 112) as u16
    }

    /// Three bytes, big-endian.
    pub(crate) const fn u24(self, at: u32) -> u32 {
        (self.shifted(at) >> 104) as u32
    }

    /// Four bytes, big-endian.
    pub(crate) const fn u32(self, at: u32) -> u32 {
        (self.shifted(at) >> 96) as u32
    }

    /// Eight bytes, big-endian.
    pub(crate) const fn u64(self, at: u32) -> u64 {
        (self.shifted(at) >> 64) as u64
    }

    /// Whether any bit of the mask is set in the byte.
    pub(crate) const fn has(self, at: u32, mask: u8) -> bool {
        self.u8(at) & mask != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_missing_bytes_read_zero() {
        let bytes: Vec<u8> = (1..=16).collect();
        let cdb = Cdb::new(&bytes);
        assert_eq!(cdb.opcode(), 1);
        assert_eq!(cdb.u8(15), 16);
        assert_eq!(cdb.u16(7), 0x0809);
        assert_eq!(cdb.u24(1), 0x02_0304);
        assert_eq!(cdb.u32(10), 0x0b0c_0d0e);
        assert_eq!(cdb.u64(2), 0x0304_0506_0708_090a);
        assert!(cdb.has(1, 0x02) && !cdb.has(1, 0x01));
        let short = Cdb::new(&[0x08, 0x1f]);
        assert_eq!((short.u8(1), short.u8(2), short.u32(2)), (0x1f, 0, 0));
        assert_eq!(Cdb::new(&[0xff; 32]), Cdb::new(&[0xff; 16]));
    }
}
