//! What an initiator can ask of the disk, and the CDBs for it.

use std::ops::Range;

use crate::disk::BLOCK_BYTES;
use crate::ledger::{self, WriteId};

/// A SCSI command, in the terms of the ledger.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    /// READ (16).
    Read {
        /// Which blocks.
        blocks: Range<usize>,
        /// How many blocks the initiator has room for; mostly all of them.
        room: usize,
    },
    /// WRITE (16).
    Write {
        /// Which blocks.
        blocks: Range<usize>,
        /// What to write.
        id: WriteId,
        /// FUA.
        fua: bool,
    },
    /// WRITE SAME (16) of zeros, with or without UNMAP.
    Zero {
        /// Which blocks.
        blocks: Range<usize>,
        /// UNMAP.
        unmap: bool,
    },
    /// COMPARE AND WRITE of one block, which is expected to hold `old`.
    CompareAndWrite {
        /// Which block.
        block: usize,
        /// What it is expected to hold.
        old: WriteId,
        /// What to write.
        id: WriteId,
    },
    /// SYNCHRONIZE CACHE (10) of everything.
    Flush,
    /// TEST UNIT READY.
    TestUnitReady,
    /// INQUIRY.
    Inquiry,
    /// RESERVE (6).
    Reserve,
    /// RELEASE (6).
    Release,
    /// PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY.
    Register {
        /// Zero to unregister.
        key: u64,
        /// APTPL.
        aptpl: bool,
    },
    /// PERSISTENT RESERVE OUT, RESERVE with this type.
    PersistentReserve {
        /// The key registered.
        key: u64,
        /// Type code.
        kind: u8,
    },
    /// PERSISTENT RESERVE OUT, PREEMPT AND ABORT with this type.
    PreemptAndAbort {
        /// The key registered.
        key: u64,
        /// The key whose registrations go.
        other: u64,
        /// Type code.
        kind: u8,
    },
    /// PERSISTENT RESERVE OUT, CLEAR.
    Clear {
        /// The key registered.
        key: u64,
    },
    /// START STOP UNIT that ejects the medium.
    Eject,
    /// START STOP UNIT that loads it.
    Load,
    /// PREVENT ALLOW MEDIUM REMOVAL.
    Prevent {
        /// Prevent.
        on: bool,
    },
    /// MODE SELECT (6) of the caching page.
    SetWriteCache {
        /// WCE.
        on: bool,
    },
}

impl Operation {
    /// The command descriptor block.
    pub fn cdb(&self) -> [u8; 16] {
        let mut cdb = [0; 16];
        match self {
            Self::Read { blocks, .. } => place(&mut cdb, 0x88, 0, blocks),
            Self::Write { blocks, fua, .. } => place(&mut cdb, 0x8a, u8::from(*fua) << 3, blocks),
            Self::Zero { blocks, unmap } => place(&mut cdb, 0x93, u8::from(*unmap) << 3, blocks),
            Self::CompareAndWrite { block, .. } => {
                place(&mut cdb, 0x89, 0, &(*block..*block));
                cdb[13] = 1;
            }
            Self::Flush => cdb[0] = 0x35,
            Self::TestUnitReady => {}
            Self::Inquiry => {
                cdb[0] = 0x12;
                cdb[4] = 36;
            }
            Self::Reserve => cdb[0] = 0x16,
            Self::Release => cdb[0] = 0x17,
            Self::Eject => start_stop(&mut cdb, 0x02),
            Self::Load => start_stop(&mut cdb, 0x03),
            Self::Prevent { on } => {
                cdb[0] = 0x1e;
                cdb[4] = u8::from(*on);
            }
            Self::Register { .. } => persistent(&mut cdb, 0x06, 0),
            Self::PersistentReserve { kind, .. } => persistent(&mut cdb, 0x01, *kind),
            Self::PreemptAndAbort { kind, .. } => persistent(&mut cdb, 0x05, *kind),
            Self::Clear { .. } => persistent(&mut cdb, 0x03, 0),
            Self::SetWriteCache { .. } => {
                cdb[0] = 0x15;
                cdb[1] = 0x10;
                cdb[4] = 24;
            }
        }
        cdb
    }

    /// What the initiator sends, if it sends anything.
    pub fn data_out(&self) -> Vec<u8> {
        match self {
            Self::Write { blocks, id, .. } => ledger::content(*id, blocks.clone()),
            Self::Zero { .. } => vec![0; BLOCK_BYTES],
            Self::CompareAndWrite { block, old, id } => {
                let block = *block..*block + 1;
                [*old, *id]
                    .map(|id| ledger::content(id, block.clone()))
                    .concat()
            }
            Self::Register { key, aptpl } => parameters(0, *key, u8::from(*aptpl)),
            Self::PreemptAndAbort { key, other, .. } => parameters(*key, *other, 0),
            Self::PersistentReserve { key, .. } | Self::Clear { key } => parameters(*key, 0, 0),
            Self::SetWriteCache { on } => {
                let mut list = vec![0, 0, 0, 0, 0x08, 18, u8::from(*on) << 2];
                list.resize(24, 0);
                list
            }
            Self::Read { .. }
            | Self::Flush
            | Self::TestUnitReady
            | Self::Inquiry
            | Self::Reserve
            | Self::Release
            | Self::Eject
            | Self::Load
            | Self::Prevent { .. } => Vec::new(),
        }
    }

    /// Whether it changes blocks.
    pub const fn writes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Zero { .. } | Self::CompareAndWrite { .. }
        )
    }

    /// The blocks that it changes.
    pub fn written(&self) -> Option<Range<usize>> {
        match self {
            Self::Write { blocks, .. } | Self::Zero { blocks, .. } => Some(blocks.clone()),
            Self::CompareAndWrite { block, .. } => Some(*block..*block + 1),
            Self::Read { .. } | Self::Flush | Self::TestUnitReady | Self::Inquiry => None,
            Self::Reserve | Self::Release | Self::Register { .. } | Self::Clear { .. } => None,
            Self::PersistentReserve { .. } | Self::PreemptAndAbort { .. } => None,
            Self::Eject | Self::Load | Self::Prevent { .. } | Self::SetWriteCache { .. } => None,
        }
    }

    /// What it fills blocks with, unless that is zeros.
    pub const fn write_id(&self) -> Option<WriteId> {
        match self {
            Self::Write { id, .. } | Self::CompareAndWrite { id, .. } => Some(*id),
            Self::Zero { .. }
            | Self::Read { .. }
            | Self::Flush
            | Self::TestUnitReady
            | Self::Inquiry
            | Self::Reserve
            | Self::Release
            | Self::Register { .. }
            | Self::PersistentReserve { .. }
            | Self::PreemptAndAbort { .. }
            | Self::Clear { .. }
            | Self::Eject
            | Self::Load
            | Self::Prevent { .. }
            | Self::SetWriteCache { .. } => None,
        }
    }

    /// Whether what was written before is durable when it ends with GOOD.
    pub const fn flushes(&self) -> bool {
        matches!(
            self,
            Self::Flush | Self::Eject | Self::SetWriteCache { on: false }
        )
    }

    /// How much the target may send, in bytes.
    pub const fn room_bytes(&self) -> usize {
        match self {
            Self::Read { room, .. } => *room * BLOCK_BYTES,
            Self::Inquiry => 36,
            Self::Write { .. }
            | Self::Zero { .. }
            | Self::CompareAndWrite { .. }
            | Self::Flush
            | Self::TestUnitReady
            | Self::Reserve
            | Self::Release
            | Self::Eject
            | Self::Load
            | Self::Register { .. }
            | Self::PersistentReserve { .. }
            | Self::PreemptAndAbort { .. }
            | Self::Clear { .. }
            | Self::Prevent { .. }
            | Self::SetWriteCache { .. } => 0,
        }
    }

    /// How much the target would send if there were room, in bytes.
    pub fn answer_bytes(&self) -> usize {
        if let Self::Read { blocks, .. } = self {
            blocks.len() * BLOCK_BYTES
        } else {
            self.room_bytes()
        }
    }
}

fn place(cdb: &mut [u8; 16], opcode: u8, flags: u8, blocks: &Range<usize>) {
    let count = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&(blocks.start as u64).to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
}

const fn start_stop(cdb: &mut [u8; 16], flags: u8) {
    cdb[0] = 0x1b;
    cdb[4] = flags;
}

const fn persistent(cdb: &mut [u8; 16], action: u8, kind: u8) {
    cdb[0] = 0x5f;
    cdb[1] = action;
    cdb[2] = kind;
    cdb[8] = 24;
}

fn parameters(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes()].concat();
    list.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdb_and_data_say_the_same() {
        let write = Operation::Write {
            blocks: 0x102..0x105,
            id: 9,
            fua: true,
        };
        let cdb = write.cdb();
        assert_eq!(cdb, [0x8a, 8, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0]);
        assert_eq!(write.data_out().len(), 3 * BLOCK_BYTES);
        let swap = Operation::CompareAndWrite {
            block: 5,
            old: 1,
            id: 2,
        };
        assert_eq!(swap.cdb()[13], 1);
        assert_eq!(swap.data_out().len(), 2 * BLOCK_BYTES);
        let register = Operation::Register {
            key: 1,
            aptpl: true,
        };
        assert_eq!(register.data_out().len(), usize::from(register.cdb()[8]));
    }
}
