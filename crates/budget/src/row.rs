//! The rows: which commands, and the bytes of them.

use anyhow::Result;
use iscsi::framing::Pdu;
use iscsi::pdu::{
    Bhs, DataOutBhs, RESERVED_TAG, ScsiCommandBhs, TaskAttribute, U24, flags, padded_length,
};
use memory::Pool;

use crate::arrival::{Arrival, Turn, chunk};

pub(crate) const BLOCK_BYTES: u32 = 512;
/// The disk, which commands walk through from its first byte to its last and again.
pub(crate) const DISK_BYTES: u32 = 16 * 1024 * 1024;
/// The CmdSN of the first command.
pub(crate) const FIRST_CMD_SN: u32 = 1;

const KIB: u32 = 1024;
/// Data segment of a Data-Out.
const SEGMENT_BYTES: u32 = 256 * KIB;
/// Commands that an initiator with a full queue sends at once.
const BATCH: u32 = 32;

/// Which way the data goes, and how.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// None: TEST UNIT READY.
    Test,
    /// READ (10).
    Read,
    /// WRITE (10) with all its data in the command PDU.
    WriteImmediate,
    /// WRITE (10) whose data is asked for by one R2T and comes in Data-Out PDUs.
    WriteSolicited,
}

/// One kind of I/O.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    kind: Kind,
    /// Data of one command.
    bytes: u32,
    /// Commands that arrive together; also the most that are under way at a time.
    pub(crate) batch: u32,
    /// CRC32C over headers and data.
    pub(crate) has_digests: bool,
    /// The connection is followed by a trace.
    pub(crate) is_traced: bool,
}

/// All rows.
pub(crate) const ROWS: [Row; 8] = [
    Row::new("test-unit-ready", "TEST UNIT READY", Kind::Test, 0),
    Row::new("read-512", "READ of 512 bytes", Kind::Read, 512),
    Row::new("read-4k", "READ of 4 KiB", Kind::Read, 4 * KIB),
    Row {
        batch: 1,
        ..Row::new(
            "read-4k-alone",
            "READ of 4 KiB, each in a turn of its own",
            Kind::Read,
            4 * KIB,
        )
    },
    Row {
        has_digests: true,
        ..Row::new(
            "read-4k-digests",
            "READ of 4 KiB, header and data digests",
            Kind::Read,
            4 * KIB,
        )
    },
    Row {
        is_traced: true,
        ..Row::new(
            "read-4k-traced",
            "READ of 4 KiB while tarn trace follows",
            Kind::Read,
            4 * KIB,
        )
    },
    Row::new(
        "write-4k",
        "WRITE of 4 KiB of immediate data",
        Kind::WriteImmediate,
        4 * KIB,
    ),
    Row {
        batch: 8,
        ..Row::new(
            "write-1m",
            "WRITE of 1 MiB in Data-Out PDUs of 256 KiB",
            Kind::WriteSolicited,
            1024 * KIB,
        )
    },
];

impl Row {
    const fn new(name: &'static str, about: &'static str, kind: Kind, bytes: u32) -> Self {
        Self {
            name,
            about,
            kind,
            bytes,
            batch: BATCH,
            has_digests: false,
            is_traced: false,
        }
    }

    /// How many turns `commands` take.
    pub(crate) const fn turn_count(&self, commands: u32) -> usize {
        let each = match self.kind {
            Kind::Test | Kind::Read | Kind::WriteImmediate => 1,
            Kind::WriteSolicited => 2,
        };
        (commands / self.batch) as usize * each
    }

    /// Everything that arrives for the commands 0 to `count - 1`.
    pub(crate) fn turns(&self, count: u32) -> Result<Vec<Turn>> {
        let arriving = padded_length((self.bytes + KIB) as usize) * self.batch as usize;
        let batches = (count / self.batch) as usize;
        // Each chunk takes a power of two, and each header of a Data-Out a chunk.
        let pool = Pool::new(2 * arriving * batches)?;
        let mut turns = Vec::new();
        for first in (0..count).step_by(self.batch as usize) {
            let numbers = first..first + self.batch;
            let commands: Vec<Pdu> = numbers.clone().map(|number| self.command(number)).collect();
            if self.kind != Kind::WriteSolicited {
                turns.push(vec![chunk(&pool, &commands, self.has_digests)?]);
                continue;
            }
            // After long data segments a target receives headers one by one.
            let alone = |pdu| chunk(&pool, &[pdu], self.has_digests);
            turns.push(commands.into_iter().map(alone).collect::<Result<_>>()?);
            let mut data = Turn::new();
            for number in numbers {
                for offset in (0..self.bytes).step_by(SEGMENT_BYTES as usize) {
                    data.push(alone(self.data_out_header(number, offset))?);
                    data.push(Arrival::Exact(SEGMENT_BYTES as usize));
                }
            }
            turns.push(data);
        }
        Ok(turns)
    }

    fn command(&self, number: u32) -> Pdu {
        let mut bhs = ScsiCommandBhs::new();
        bhs.flags |= TaskAttribute::Simple.code();
        bhs.initiator_task_tag = number.into();
        bhs.expected_data_transfer_length = self.bytes.into();
        bhs.cmd_sn = FIRST_CMD_SN.wrapping_add(number).into();
        let mut data = Vec::new();
        match self.kind {
            Kind::Test => {}
            Kind::Read => {
                bhs.flags |= flags::READ;
                bhs.cdb = self.transfer_cdb(0x28, number);
            }
            Kind::WriteImmediate | Kind::WriteSolicited => {
                bhs.flags |= flags::WRITE;
                bhs.cdb = self.transfer_cdb(0x2a, number);
            }
        }
        if self.kind == Kind::WriteImmediate {
            data = pattern(self.bytes);
        }
        Pdu::new(bhs.as_bhs_bytes(), data)
    }

    /// READ (10) or WRITE (10) of this row's length, each behind the one before.
    ///
    /// Spec: SBC-4, READ (10) and WRITE (10).
    fn transfer_cdb(&self, operation_code: u8, number: u32) -> [u8; 16] {
        let blocks = self.bytes / BLOCK_BYTES;
        let lba = number % (DISK_BYTES / self.bytes) * blocks;
        let mut cdb = [0; 16];
        cdb[0] = operation_code;
        cdb[2..6].copy_from_slice(&lba.to_be_bytes());
        let [_, _, high, low] = blocks.to_be_bytes();
        cdb[7..9].copy_from_slice(&[high, low]);
        cdb
    }

    /// The header of the data at `offset`, in answer to the one R2T of a command. A session
    /// counts its R2Ts from 0.
    fn data_out_header(&self, number: u32, offset: u32) -> Pdu {
        let mut bhs = DataOutBhs::new();
        if offset + SEGMENT_BYTES < self.bytes {
            bhs.flags &= !flags::FINAL;
        } else {
            bhs.flags |= flags::FINAL;
        }
        bhs.initiator_task_tag = number.into();
        bhs.target_transfer_tag = number.into();
        bhs.data_sn = (offset / SEGMENT_BYTES).into();
        bhs.buffer_offset = offset.into();
        let mut pdu = Pdu::new(bhs.as_bhs_bytes(), Vec::new());
        DataOutBhs::view_mut(&mut pdu.header).data_segment_length =
            U24::new(SEGMENT_BYTES).unwrap_or_default();
        pdu
    }
}

const _: () = assert!(SEGMENT_BYTES <= U24::MAX && DISK_BYTES <= RESERVED_TAG / 2);

/// Data to write.
pub(crate) fn pattern(len: u32) -> Vec<u8> {
    (0..len).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect()
}
