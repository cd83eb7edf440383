//! The data of one command, wherever it lies.

use std::ptr::NonNull;
use std::rc::Rc;

use crate::{Buffer, MappedRange};

/// Contiguous data on its way between a peer and a store. Cheap to move; the bytes stay put.
#[derive(Debug)]
pub enum Payload {
    /// No data.
    Empty,
    /// Exclusively owned bytes of the core's pool.
    Pool(Buffer),
    /// Part of what one receive brought; several commands may share the buffer.
    Received {
        /// The buffer that was received into. Nobody writes it any more.
        chunk: Rc<Buffer>,
        /// Where this payload starts in it, in bytes.
        offset: usize,
        /// In bytes.
        len: usize,
    },
    /// Memory that other cores may write at any time.
    Mapped(MappedRange),
    /// Bytes of the ordinary heap: parameter data, never bulk data.
    Heap(Vec<u8>),
}

impl Payload {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Pool(buffer) => buffer.len(),
            Self::Received { len, .. } => *len,
            Self::Mapped(range) => range.len(),
            Self::Heap(bytes) => bytes.len(),
        }
    }

    /// True when there is no data.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, unless others may write them ([`Payload::Mapped`]).
    pub fn as_slice(&self) -> Option<&[u8]> {
        match self {
            Self::Empty => Some(&[]),
            Self::Pool(buffer) => Some(buffer),
            Self::Received { chunk, offset, len } => chunk.get(*offset..*offset + *len),
            Self::Mapped(_) => None,
            Self::Heap(bytes) => Some(bytes),
        }
    }

    /// Where the bytes lie, for lending them to the kernel while this value is kept.
    pub fn address(&self) -> NonNull<u8> {
        match self {
            Self::Mapped(range) => range.address(),
            Self::Empty | Self::Pool(_) | Self::Received { .. } | Self::Heap(_) => {
                NonNull::from(self.as_slice().unwrap_or(&[])).cast()
            }
        }
    }

    /// Copies `bytes.len()` bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// When they are not all inside the payload.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        match self {
            Self::Mapped(range) => range.copy_to(offset, bytes),
            Self::Empty | Self::Pool(_) | Self::Received { .. } | Self::Heap(_) => {
                let end = offset + bytes.len();
                bytes.copy_from_slice(&self.as_slice().unwrap_or(&[])[offset..end]);
            }
        }
    }

    /// The same bytes in a form of which [`Payload::part`] costs nothing, where there is one.
    #[must_use]
    pub fn into_shareable(self) -> Self {
        match self {
            Self::Pool(buffer) => Self::Received {
                len: buffer.len(),
                chunk: Rc::new(buffer),
                offset: 0,
            },
            Self::Empty | Self::Received { .. } | Self::Mapped(_) | Self::Heap(_) => self,
        }
    }

    /// The `len` bytes from `offset` on. What cannot be shared is copied.
    ///
    /// # Panics
    ///
    /// When they are not all inside the payload.
    #[must_use]
    pub fn part(&self, offset: usize, len: usize) -> Self {
        match self {
            Self::Received {
                chunk,
                offset: start,
                len: whole,
            } => {
                assert!(offset + len <= *whole, "a part past the end of a payload");
                Self::Received {
                    chunk: Rc::clone(chunk),
                    offset: start + offset,
                    len,
                }
            }
            Self::Mapped(range) => Self::Mapped(range.part(offset, len)),
            Self::Empty | Self::Pool(_) | Self::Heap(_) => {
                let mut bytes = vec![0; len];
                self.copy_to(offset, &mut bytes);
                Self::Heap(bytes)
            }
        }
    }

    /// All bytes in a vector of their own. For parameter lists, not for bulk data.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// The first offset at or after `offset` where the payload differs from `expected`, which is
    /// compared with the bytes from `offset` on. Bytes past the end of the payload differ.
    pub fn first_difference(&self, offset: usize, expected: &[u8]) -> Option<usize> {
        const STEP: usize = 4096;
        let mut scratch = [0; STEP];
        let mut done = 0;
        for piece in expected.chunks(STEP) {
            let have = self.len().saturating_sub(offset + done).min(piece.len());
            let actual = match self.as_slice() {
                Some(bytes) => &bytes[offset + done..offset + done + have],
                None => {
                    self.copy_to(offset + done, &mut scratch[..have]);
                    &scratch[..have]
                }
            };
            if actual != piece {
                let at = actual
                    .iter()
                    .zip(piece)
                    .position(|(a, b)| a != b)
                    .unwrap_or(have);
                return Some(offset + done + at);
            }
            done += piece.len();
        }
        None
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Heap(bytes)
    }
}

impl From<Buffer> for Payload {
    fn from(buffer: Buffer) -> Self {
        Self::Pool(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{CoreMapping, Mapping, Pool};

    /// The same 10,000 bytes in every form a payload can have.
    fn forms() -> Vec<Payload> {
        let bytes: Vec<u8> = (0..10_000u32)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let pool = Pool::new(0).unwrap();
        let mut buffer = pool.allocate(bytes.len()).unwrap();
        buffer.copy_from_slice(&bytes);
        let mut chunk = pool.allocate(bytes.len() + 5).unwrap();
        chunk[5..].copy_from_slice(&bytes);
        let mapping = CoreMapping::new(&Arc::new(Mapping::sparse(1 << 20).unwrap()));
        mapping.copy_in(77, &bytes);
        vec![
            Payload::Pool(buffer),
            Payload::Received {
                chunk: Rc::new(chunk),
                offset: 5,
                len: bytes.len(),
            },
            Payload::Mapped(MappedRange::new(&mapping, 77, bytes.len())),
            Payload::Heap(bytes),
        ]
    }

    #[test]
    fn every_form_holds_the_same_bytes() {
        for form in &forms() {
            assert_eq!(form.len(), 10_000);
            assert_eq!(
                form.to_vec()[9_999],
                u8::try_from(9_999 % 251).unwrap(),
                "{form:?}"
            );
        }
    }

    #[test]
    fn the_first_difference_is_found_at_the_edges_and_nowhere_else() {
        for form in &forms() {
            let bytes = form.to_vec();
            assert_eq!(form.first_difference(0, &bytes), None, "{form:?}");
            assert_eq!(
                form.first_difference(4_000, &bytes[4_000..9_000]),
                None,
                "{form:?}"
            );
            for at in [0, 1, 4_095, 4_096, 9_999] {
                let mut changed = bytes.clone();
                changed[at] ^= 0x80;
                assert_eq!(form.first_difference(0, &changed), Some(at), "{form:?}");
            }
            assert_eq!(
                form.first_difference(9_999, &bytes[9_998..]),
                Some(9_999),
                "{form:?}"
            );
        }
    }

    #[test]
    fn a_part_of_every_form_holds_its_bytes() {
        for form in forms() {
            let bytes = form.to_vec();
            let part = form.part(4_000, 600);
            assert_eq!(part.to_vec(), bytes[4_000..4_600], "{form:?}");
            let shared = form.into_shareable();
            assert_eq!(shared.to_vec(), bytes);
            let (whole, last) = (shared.address(), shared.part(9_999, 1));
            assert_eq!(last.to_vec(), bytes[9_999..]);
            // Only bytes of the heap are copied.
            let is_shared = last.address().addr().get() == whole.addr().get() + 9_999;
            assert_eq!(is_shared, !matches!(shared, Payload::Heap(_)), "{shared:?}");
        }
    }

    #[test]
    fn bytes_past_the_end_differ() {
        let short = Payload::Heap(vec![1, 2]);
        assert_eq!(short.first_difference(0, &[1, 2, 3]), Some(2));
        assert_eq!(Payload::Empty.first_difference(0, &[0]), Some(0));
    }
}
