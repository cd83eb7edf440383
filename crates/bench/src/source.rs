//! What a session does next: a plain stream of I/Os, or one whose data is verified.

use std::sync::Arc;

use crate::stream::AddressStream;
use crate::transport::{Data, Operation};
use crate::verify::{Miscompare, Verifier};

/// Where the I/Os of one session come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Nobody looks at the data.
    Plain {
        /// Where they go.
        stream: AddressStream,
        /// What writes carry, all the same.
        data: Arc<[u8]>,
    },
    /// Every byte read is checked.
    Verified(Box<Verifier>),
}

impl Source {
    /// The next I/O for a slot that is free, and whether it is a read.
    pub(crate) fn next_io(&mut self, slot: u32, length: u32) -> (Operation, bool) {
        match self {
            Self::Plain { stream, data } => {
                let (offset, is_read) = stream.next_io();
                let data = if is_read {
                    Data::Discard
                } else {
                    Data::Write(Arc::clone(data))
                };
                let operation = Operation {
                    offset,
                    length,
                    data,
                };
                (operation, is_read)
            }
            Self::Verified(verifier) => verifier.next_io(slot),
        }
    }

    /// The I/O of a slot is over.
    pub(crate) fn finish(&mut self, slot: u32, is_good: bool, data: Data) -> Option<Miscompare> {
        match self {
            Self::Plain { .. } => None,
            Self::Verified(verifier) => verifier.finish(slot, is_good, data),
        }
    }
}
