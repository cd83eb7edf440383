//! A command descriptor block, read by fields.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

/// A CDB of any length: 16 bytes here, zeros where it is shorter, and the rest of a longer one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cdb {
    head: [u8; 16],
    tail: Option<Box<[u8]>>,
}

impl Cdb {
    /// Takes the bytes over.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        let (head, tail) = match bytes.split_first_chunk::<16>() {
            Some((&head, tail)) => (head, tail),
            None => {
                let mut padded = [0; 16];
                for (to, from) in padded.iter_mut().zip(bytes) {
                    *to = *from;
                }
                (padded, &[][..])
            }
        };
        Self {
            head,
            tail: (!tail.is_empty()).then(|| tail.into()),
        }
    }

    /// The first 16 bytes.
    #[inline]
    pub(crate) const fn head(&self) -> &[u8; 16] {
        &self.head
    }

    /// Eight of the first 16 bytes as one number, the first byte most significant.
    #[inline]
    pub(crate) fn window(&self, at: u8) -> Option<u64> {
        let bytes = self.head.get(usize::from(at)..)?.first_chunk()?;
        Some(u64::from_be_bytes(*bytes))
    }

    /// What stands behind the first 16 bytes.
    pub(crate) fn tail(&self) -> &[u8] {
        self.tail.as_deref().unwrap_or(&[])
    }

    /// How many bytes there are, padding of the first 16 included.
    pub(crate) fn len(&self) -> usize {
        self.tail().len().saturating_add(16)
    }

    /// The byte at `at`, wherever it is; zero behind the end.
    #[inline]
    pub(crate) fn u8(&self, at: usize) -> u8 {
        let far = || self.tail().get(at.checked_sub(16)?);
        self.head.get(at).or_else(far).copied().unwrap_or(0)
    }

    /// The operation code.
    #[inline]
    pub(crate) const fn opcode(&self) -> u8 {
        let [opcode, ..] = self.head;
        opcode
    }

    /// Two bytes, big-endian.
    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.u8(at), self.u8(at.saturating_add(1))])
    }

    /// Whether any bit of the mask is set in the byte.
    #[inline]
    pub(crate) fn has(&self, at: usize, mask: u8) -> bool {
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
        assert_eq!(cdb.window(8), Some(0x090a_0b0c_0d0e_0f10));
        assert_eq!(cdb.window(9), None);
        assert!(cdb.has(1, 0x02) && !cdb.has(1, 0x01));
        let short = Cdb::new(&[0x08, 0x1f]);
        assert_eq!((short.u8(1), short.u8(2), short.len()), (0x1f, 0, 16));
    }

    #[test]
    fn what_stands_behind_byte_16_is_kept() {
        let bytes: Vec<u8> = (1..=32).collect();
        let cdb = Cdb::new(&bytes);
        assert_eq!((cdb.tail(), cdb.len()), (&bytes[16..], 32));
        assert_eq!([cdb.u8(0), cdb.u8(15), cdb.u8(16)], [1, 16, 17]);
        assert_eq!([cdb.u8(31), cdb.u8(32)], [32, 0]);
        assert_ne!(cdb, Cdb::new(&bytes[..16]));
    }
}
