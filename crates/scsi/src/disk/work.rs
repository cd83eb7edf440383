//! What a command is doing between two steps.

use std::ops::Range;

use memory::Payload;

use crate::sam::failure::Purpose;

/// The state of a command: what it waits for, and what it keeps for then.
///
/// Nearly every command is a plain read or write: their states are small, and the others lie apart.
#[derive(Debug)]
pub(super) enum Work {
    /// Waits for nothing.
    Over,
    /// For the store to read what is answered.
    Read,
    /// For dirty data to be written back, to read it then (FUA).
    FlushBeforeRead,
    /// For the data to write.
    WriteData { durable: bool },
    /// For the store; then all is done.
    Last { purpose: Purpose },
    /// For something else.
    Rare(Box<Rare>),
}

impl From<Rare> for Work {
    fn from(rare: Rare) -> Self {
        Self::Rare(Box::new(rare))
    }
}

/// The states of commands that are no plain reads or writes.
#[derive(Debug)]
pub(super) enum Rare {
    /// For the data to write and then read back.
    WriteAndVerifyData { compare: bool },
    /// For the data to verify against.
    VerifyData { repeat: bool },
    /// For a write, to verify it then.
    WriteBeforeVerify { compare: Compare },
    /// For dirty data to be written back, to verify then.
    FlushBeforeVerify { compare: Compare },
    /// For its turn, then for one piece of the medium.
    Verify {
        compare: Compare,
        done: u64,
        piece: u64,
    },
    /// For old and new data of COMPARE AND WRITE.
    CompareData,
    /// For the fence.
    CompareFence { data: Payload },
    /// For what is on the medium.
    CompareRead { data: Payload },
    /// For the data of ORWRITE.
    OrData,
    /// For the fence.
    OrFence { data: Payload },
    /// For what is on the medium.
    OrRead { data: Payload },
    /// For the block of WRITE SAME.
    SameData {
        unmap: bool,
        /// Zero stands for all blocks up to the end.
        is_rest: bool,
    },
    /// For its turn, then for one piece to be written.
    Same {
        block: Vec<u8>,
        done: u64,
        piece: u64,
    },
    /// For its turn, to write zeros then.
    Zero,
    /// For the parameter list of UNMAP.
    UnmapList,
    /// For its turn, then for one range to be unmapped; the ranges come from the end of the list.
    Unmap { left: Vec<Range<u64>> },
    /// For its turn, then for the extents of GET LBA STATUS.
    LbaStatus { room: Room },
}

impl Rare {
    /// It holds data that is to be compared or combined with what the store reads for it.
    pub(super) const fn holds_data(&self) -> bool {
        matches!(
            self,
            Self::CompareRead { .. }
                | Self::OrRead { .. }
                | Self::Verify {
                    compare: Compare::With(_) | Compare::WithOne(_),
                    ..
                }
        )
    }
}

/// How much of an answer to GET LBA STATUS is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) descriptors: usize,
    pub(super) allocation_length: u32,
}

/// What the medium is compared with.
#[derive(Debug)]
pub(super) enum Compare {
    /// It only has to be readable.
    Nothing,
    /// The same many blocks.
    With(Payload),
    /// One block, again and again.
    WithOne(Payload),
}

/// Where `medium`, which lies `offset` bytes into `expected`, first differs from it; counted from
/// the start of `expected`.
pub(super) fn difference(expected: &Payload, offset: usize, medium: &Payload) -> Option<usize> {
    let len = medium.len();
    let copy;
    let bytes = match expected.as_slice().and_then(|bytes| bytes.get(offset..)) {
        Some(bytes) => bytes.get(..len).unwrap_or(bytes),
        None => {
            copy = expected.part(offset, len).to_vec();
            &copy
        }
    };
    let at = medium.first_difference(0, bytes)?;
    Some(offset.saturating_add(at))
}
