//! CDBs as far as the reference knows them: what a command is, which blocks it means, what reservations say of it.
//!
//! It knows no state. Spec: SPC-4 clause 6, SBC-3 clause 5, SPC-2 for RESERVE and RELEASE.

use std::ops::Range;

/// What a command does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Inquiry,
    ReportLuns,
    RequestSense,
    TestUnitReady,
    ReadCapacity10,
    ReadCapacity16,
    Read,
    Write,
    Verify,
    CompareAndWrite,
    OrWrite,
    WriteSame,
    Unmap,
    Flush,
    Prefetch,
    LbaStatus,
    ModeSense,
    ModeSelect,
    PersistentIn,
    PersistentOut,
    Reserve,
    Release,
    Prevent,
    StartStop,
    /// Its parameter data is not judged.
    Other,
    /// Not in the table.
    Unknown,
}

/// What the reservations of others say of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Allowed always.
    Always,
    /// Allowed beside a persistent reservation; an SPC-2 reservation forbids it.
    Ready,
    /// Allowed beside a persistent reservation; SPC-2 leaves it open.
    Report,
    /// The standards' editions differ.
    Doubtful,
    /// Forbidden by exclusive access.
    Reads,
    /// Forbidden by every reservation.
    Writes,
    /// Has rules of its own.
    Own,
}

/// A command as sent.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) kind: Kind,
    pub(crate) access: Access,
    pub(crate) cdb: [u8; 16],
    pub(crate) data_out: Vec<u8>,
    /// The blocks that it names; empty for what names none.
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    /// A bit is set that this command does not define, or NACA.
    pub(crate) is_odd: bool,
    /// The field RDPROTECT, WRPROTECT or VRPROTECT is set, which wants protection information.
    pub(crate) protects: bool,
}

/// A row: operation code, service action (of all if `ANY`), what it is, and the bits of byte 1 that it defines.
type Row = (u8, u8, Kind, Access, u8);

const ANY: u8 = 0xff;

#[rustfmt::skip] // one row per line
const ROWS: &[Row] = &[
    (0x00, ANY,  Kind::TestUnitReady,   Access::Ready,    0x00),
    (0x03, ANY,  Kind::RequestSense,    Access::Always,   0x01),
    (0x08, ANY,  Kind::Read,            Access::Reads,    0x1f),
    (0x0a, ANY,  Kind::Write,           Access::Writes,   0x1f),
    (0x12, ANY,  Kind::Inquiry,         Access::Always,   0x01),
    (0x15, ANY,  Kind::ModeSelect,      Access::Writes,   0x11),
    (0x16, ANY,  Kind::Reserve,         Access::Own,      0x00),
    (0x17, ANY,  Kind::Release,         Access::Own,      0x00),
    (0x1a, ANY,  Kind::ModeSense,       Access::Doubtful, 0x08),
    (0x1b, ANY,  Kind::StartStop,       Access::Own,      0x01),
    (0x1d, ANY,  Kind::Other,           Access::Writes,   0xff),
    (0x1e, ANY,  Kind::Prevent,         Access::Own,      0x00),
    (0x25, ANY,  Kind::ReadCapacity10,  Access::Report,   0x00),
    (0x28, ANY,  Kind::Read,            Access::Reads,    0xfc),
    (0x2a, ANY,  Kind::Write,           Access::Writes,   0xfc),
    (0x2e, ANY,  Kind::Write,           Access::Writes,   0xf6),
    (0x2f, ANY,  Kind::Verify,          Access::Reads,    0xf6),
    (0x34, ANY,  Kind::Prefetch,        Access::Reads,    0x02),
    (0x35, ANY,  Kind::Flush,           Access::Writes,   0x06),
    (0x37, ANY,  Kind::Other,           Access::Reads,    0xff),
    (0x41, ANY,  Kind::WriteSame,       Access::Writes,   0xf8),
    (0x42, ANY,  Kind::Unmap,           Access::Writes,   0x00),
    (0x4c, ANY,  Kind::Other,           Access::Writes,   0xff),
    (0x4d, ANY,  Kind::Other,           Access::Report,   0xff),
    (0x55, ANY,  Kind::ModeSelect,      Access::Writes,   0x11),
    (0x56, ANY,  Kind::Reserve,         Access::Own,      0x00),
    (0x57, ANY,  Kind::Release,         Access::Own,      0x00),
    (0x5a, ANY,  Kind::ModeSense,       Access::Doubtful, 0x18),
    (0x5e, ANY,  Kind::PersistentIn,    Access::Own,      0x1f),
    (0x5f, ANY,  Kind::PersistentOut,   Access::Own,      0x1f),
    (0x88, ANY,  Kind::Read,            Access::Reads,    0xfc),
    (0x89, ANY,  Kind::CompareAndWrite, Access::Writes,   0xfc),
    (0x8a, ANY,  Kind::Write,           Access::Writes,   0xfc),
    (0x8b, ANY,  Kind::OrWrite,         Access::Writes,   0xfc),
    (0x8e, ANY,  Kind::Write,           Access::Writes,   0xf6),
    (0x8f, ANY,  Kind::Verify,          Access::Reads,    0xf6),
    (0x90, ANY,  Kind::Prefetch,        Access::Reads,    0x02),
    (0x91, ANY,  Kind::Flush,           Access::Writes,   0x06),
    (0x93, ANY,  Kind::WriteSame,       Access::Writes,   0xf9),
    (0x9e, 0x10, Kind::ReadCapacity16,  Access::Report,   0x1f),
    (0x9e, 0x12, Kind::LbaStatus,       Access::Reads,    0x1f),
    (0xa0, ANY,  Kind::ReportLuns,      Access::Always,   0x00),
    (0xa3, 0x0a, Kind::Other,           Access::Report,   0xff),
    (0xa3, 0x0c, Kind::Other,           Access::Doubtful, 0xff),
    (0xa3, 0x0d, Kind::Other,           Access::Doubtful, 0xff),
    (0xa8, ANY,  Kind::Read,            Access::Reads,    0xfc),
    (0xaa, ANY,  Kind::Write,           Access::Writes,   0xfc),
    (0xae, ANY,  Kind::Write,           Access::Writes,   0xf6),
    (0xaf, ANY,  Kind::Verify,          Access::Reads,    0xf6),
    (0xb7, ANY,  Kind::Other,           Access::Reads,    0xff),
];

impl Command {
    /// Reads a CDB. One of more than 16 bytes is of an unknown kind.
    pub(crate) fn new(cdb: &[u8], data_out: &[u8]) -> Self {
        let mut bytes = [0; 16];
        bytes
            .iter_mut()
            .zip(cdb)
            .for_each(|(byte, &given)| *byte = given);
        let (opcode, action) = (bytes[0], bytes[1] & 0x1f);
        let row = ROWS
            .iter()
            .find(|row| row.0 == opcode && (row.1 == ANY || row.1 == action));
        let &(.., kind, access, defined) =
            row.unwrap_or(&(opcode, ANY, Kind::Unknown, Access::Doubtful, 0xff));
        let mut command = Self {
            kind,
            access,
            cdb: bytes,
            data_out: data_out.to_vec(),
            lba: 0,
            blocks: 0,
            is_odd: false,
            protects: false,
        };
        (command.lba, command.blocks) = command.extent();
        command.protects = bytes[1] & 0xe0 != 0 && defined & 0xe0 == 0xe0 && command.means_blocks();
        let control = cdb
            .len()
            .checked_sub(1)
            .and_then(|last| cdb.get(last))
            .is_some_and(|&control| control != 0);
        command.is_odd = bytes[1] & !defined != 0 || control || command.has_own_oddness();
        command
    }

    /// Whether the command reads, writes or compares the blocks it names.
    pub(crate) const fn means_blocks(&self) -> bool {
        matches!(
            self.kind,
            Kind::Read
                | Kind::Write
                | Kind::Verify
                | Kind::CompareAndWrite
                | Kind::OrWrite
                | Kind::WriteSame
                | Kind::Flush
                | Kind::Prefetch
                | Kind::LbaStatus
        )
    }

    /// Whether it changes the medium.
    pub(crate) const fn writes(&self) -> bool {
        matches!(
            self.kind,
            Kind::Write | Kind::CompareAndWrite | Kind::OrWrite | Kind::WriteSame | Kind::Unmap
        )
    }

    /// FUA: it ends when its data is on stable storage.
    pub(crate) const fn forces_unit_access(&self) -> bool {
        let by_verifying = matches!(self.cdb[0], 0x2e | 0x8e | 0xae);
        let by_bit =
            matches!(self.cdb[0], 0x2a | 0x8a | 0x8b | 0x89 | 0xaa) && self.cdb[1] & 0x08 != 0;
        by_verifying || by_bit
    }

    /// The field BYTCHK.
    pub(crate) const fn byte_check(&self) -> u8 {
        (self.cdb[1] >> 1) & 3
    }

    /// Bytes `at` of the CDB as a number.
    pub(crate) fn field(&self, at: Range<usize>) -> u64 {
        number(self.cdb.get(at).unwrap_or_default())
    }

    /// Bytes that the command takes from the initiator, in blocks.
    pub(crate) fn blocks_out(&self) -> u64 {
        if matches!(self.kind, Kind::Write | Kind::OrWrite) {
            self.blocks
        } else if self.kind == Kind::CompareAndWrite {
            2 * self.blocks
        } else if self.kind == Kind::Verify && self.byte_check() & 1 != 0 {
            if self.byte_check() == 1 {
                self.blocks
            } else {
                self.blocks.min(1)
            }
        } else {
            // WRITE SAME (16) has NDOB.
            u64::from(self.cdb[0] == 0x41 || self.cdb[0] == 0x93 && self.cdb[1] & 1 == 0)
        }
    }

    /// The blocks it names: first one and how many, of each range.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        if self.kind != Kind::Unmap {
            return vec![(self.lba, self.blocks)];
        }
        let list = self.data_out.get(8..).unwrap_or_default();
        let length = number(self.data_out.get(2..4).unwrap_or_default());
        let length = usize::try_from(length).unwrap_or(0);
        let list = list.get(..length).unwrap_or(list);
        let range = |entry: &[u8]| (number(&entry[..8]), number(&entry[8..12]));
        list.chunks_exact(16).map(range).collect()
    }

    fn extent(&self) -> (u64, u64) {
        if !self.means_blocks() {
            return (0, 0);
        }
        match (self.cdb[0] >> 5, self.kind) {
            (0, _) => (
                self.field(1..4) & 0x1f_ffff,
                (self.field(4..5) + 255) % 256 + 1,
            ),
            (1 | 2, _) => (self.field(2..6), self.field(7..9)),
            (5, _) => (self.field(2..6), self.field(6..10)),
            (4, Kind::CompareAndWrite) => (self.field(2..10), self.field(13..14)),
            (4, Kind::LbaStatus) => (self.field(2..10), 0),
            _ => (self.field(2..10), self.field(10..14)),
        }
    }

    /// Fields that have values which the standards reserve.
    fn has_own_oddness(&self) -> bool {
        let verifies = matches!(self.cdb[0], 0x2e | 0x8e | 0xae);
        let same = self.kind == Kind::WriteSame;
        self.kind == Kind::TestUnitReady && self.field(1..5) != 0
            || self.kind == Kind::Verify && self.byte_check() == 2
            || verifies && self.byte_check() > 1
            || self.kind == Kind::CompareAndWrite && self.field(10..13) != 0
            || same && self.cdb[1] & 0x16 != 0
            || self.cdb[0] == 0x93 && self.cdb[1] & 0x09 == 0x01
            || self.kind == Kind::ReadCapacity10 && self.field(2..9) != 0
            || self.kind == Kind::ReadCapacity16 && (self.field(2..10) != 0 || self.cdb[14] != 0)
    }
}

/// A big-endian number.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}
