//! What a receive has brought, for a session to take.

use std::rc::Rc;

use memory::Buffer;

/// Bytes that were received, and how much of them is taken.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) bytes: &'a [u8],
    /// What they lie in, if they are there as they came.
    pub(super) chunk: Option<&'a Rc<Buffer>>,
    pub(super) at: usize,
}

impl<'a> Source<'a> {
    /// Nothing has come.
    pub(super) const NOTHING: Self = Self::of(&[]);

    /// All of these, none of which is taken.
    pub(super) const fn of(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            chunk: None,
            at: 0,
        }
    }

    /// All of a chunk.
    pub(super) fn of_chunk(chunk: &'a Rc<Buffer>) -> Self {
        Self {
            chunk: Some(chunk),
            ..Self::of(chunk)
        }
    }

    /// What is not taken.
    pub(super) fn left(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}
