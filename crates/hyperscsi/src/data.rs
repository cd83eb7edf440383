//! The data of a command, in the PDU that they came in.

use std::ops::{Deref, Range};

/// See above. Nothing is copied: it keeps the whole PDU.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Data {
    pdu: Vec<u8>,
    range: Range<usize>,
}

impl Data {
    /// The last `length` bytes before `end`.
    pub(crate) fn before(pdu: Vec<u8>, end: usize, length: usize) -> Self {
        debug_assert!(length <= end && end <= pdu.len());
        Self {
            range: end.saturating_sub(length)..end,
            pdu,
        }
    }

    /// The memory that it keeps.
    pub(crate) fn into_room(self) -> Vec<u8> {
        self.pdu
    }
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pdu.get(self.range.clone()).unwrap_or_default()
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
