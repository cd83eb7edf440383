//! The data of a command, in the PDU that they came in, or still in their frame.

use std::ops::{Deref, Range};

/// What is kept before data: more than a header, a CDB and sense data take.
pub(crate) const LEAD_MAX_BYTES: usize = 1024;

/// See above. Nothing is copied: it keeps the whole PDU, or says where in the frame the data are.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Data {
    pdu: Vec<u8>,
    range: Range<usize>,
    is_in_frame: bool,
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
            is_in_frame: false,
        }
    }

    /// These bytes of the frame that was handled last.
    pub(crate) const fn in_frame(range: Range<usize>) -> Self {
        Self {
            pdu: Vec::new(),
            range,
            is_in_frame: true,
        }
    }

    /// In bytes, wherever they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// They are in the frame that was lent last: only [`Self::within`] has them, until the next frame is handled.
    #[must_use]
    pub const fn is_in_frame(&self) -> bool {
        self.is_in_frame
    }

    /// The bytes, which may be in this frame: the one that was handled last.
    #[must_use]
    pub fn within<'a>(&'a self, frame: &'a [u8]) -> &'a [u8] {
        let bytes = match self.is_in_frame {
            true => frame,
            false => &self.pdu,
        };
        bytes.get(self.range.clone()).unwrap_or_default()
    }

    /// Copies what is in this frame, so that it outlives it.
    pub fn leave(&mut self, frame: &[u8]) {
        if self.is_in_frame {
            let pdu = self.within(frame).to_vec();
            *self = Self::before(pdu, self.len(), self.len());
        }
    }

    /// The memory that it keeps.
    pub(crate) fn into_room(self) -> Vec<u8> {
        self.pdu
    }
}

/// What is in a frame is not here.
impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        debug_assert!(!self.is_in_frame, "data that are in a frame");
        self.within(&[])
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_leave_their_frame_are_the_same_afterwards() {
        let frame = b"head data tail";
        let mut data = Data::in_frame(5..9);
        assert_eq!((data.len(), data.within(frame)), (4, &b"data"[..]));
        data.leave(frame);
        assert!(!data.is_in_frame());
        assert_eq!(
            (&data[..], data.within(b"another")),
            (&b"data"[..], &b"data"[..])
        );
        let beyond = Data::in_frame(5..20);
        assert!(beyond.within(frame).is_empty());
    }
}
