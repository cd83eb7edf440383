//! The data of a command, in the PDU that they came in.

use std::ops::{Deref, Range};

/// What is kept before data: more than a header, a CDB and sense data take.
pub(crate) const LEAD_MAX_BYTES: usize = 1024;

/// See above. Nothing is copied: it keeps the whole PDU.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Data {
    pdu: Vec<u8>,
    range: Range<usize>,
}

impl Data {
    /// The last `length` bytes before `end`. Only a short lead is kept with them: where the body of a PDU begins is for
    /// its sender to say.
    pub(crate) fn before(mut pdu: Vec<u8>, end: usize, length: usize) -> Self {
        debug_assert!(length <= end && end <= pdu.len());
        let lead = end.saturating_sub(length);
        if lead > LEAD_MAX_BYTES {
            return Self::before(pdu.drain(..end).skip(lead).collect(), length, length);
        }
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
