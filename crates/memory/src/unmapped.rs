//! What stands for memory of mappings where none can be made.

use std::ptr::NonNull;

/// Bytes of a mapping. There are none here, so there is no such value.
#[derive(Clone, Debug)]
pub enum MappedRange {}

impl MappedRange {
    /// The length in bytes.
    pub const fn len(&self) -> usize {
        match *self {}
    }

    /// True for a range of no bytes.
    pub const fn is_empty(&self) -> bool {
        match *self {}
    }

    /// Where the bytes lie.
    pub fn address(&self) -> NonNull<u8> {
        match *self {}
    }

    /// The `len` bytes from `offset` on.
    #[must_use]
    pub fn part(&self, _offset: usize, _len: usize) -> Self {
        match *self {}
    }

    /// Copies the bytes from `offset` on to `bytes`.
    pub fn copy_to(&self, _offset: usize, _bytes: &mut [u8]) {
        match *self {}
    }
}
