//! What an initiator does wrong on demand.

use iscsi::framing::Pdu;
use iscsi::pdu::{
    Bhs, DataOutBhs, NopOutBhs, RESERVED_TAG, RequestBhs, ScsiCommandBhs, SnackBhs, U24, flags,
};

use super::{Operation, Session, Task};
use crate::prng::Prng;

/// A kind of misbehaviour. Each can be switched on by itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mischief {
    /// A command beyond MaxCmdSN, which must be ignored.
    CmdSnOutsideWindow,
    /// A request with an opcode that means nothing.
    UnknownOpcode,
    /// Data for a transfer nobody asked for.
    UnknownTransferTag,
    /// Data with a DataSN out of order, for a burst that was asked for.
    WrongDataSn,
    /// Data at an offset out of order, for a burst that was asked for.
    WrongOffset,
    /// More data than the burst has.
    BurstTooLong,
    /// A data segment longer than the target takes.
    SegmentTooLong,
    /// Bytes that are no PDU.
    Garbage,
    /// A command with the tag of one under way.
    TagInUse,
    /// SNACK at ErrorRecoveryLevel 0.
    Snack,
    /// A damaged PDU, where digests are on.
    BadDigest,
    /// Immediate data beyond FirstBurstLength or where none was agreed on.
    TooMuchImmediate,
    /// A data segment that never ends, and then silence.
    HalfPdu,
    /// Data with a DataSN out of order, for a command that takes none though it announces some.
    UnaskedData,
}

/// VERIFY (16) of a few blocks without comparison: it changes nothing, and has work for the store.
const VERIFY: [u8; 16] = [0x8f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0];

/// Tags of wrong commands, which the target may answer.
const MAY_BE_ANSWERED: u32 = 0x8000_0000;
/// Tags of wrong commands, which the target must not answer.
const MUST_BE_IGNORED: u32 = 0x4000_0000;

/// An operation code that means nothing: the answer shows that it is for a wrong command, also
/// where the target had answered the command whose tag it took.
const NO_OPCODE: u8 = 0xff;
/// INVALID COMMAND OPERATION CODE.
pub(super) const NO_OPCODE_SENSE: (u8, u8, u8) = (0x05, 0x20, 0x00);

/// Whether a tag is one of those.
pub(super) const fn may_be_answered(tag: u32) -> bool {
    tag & (MAY_BE_ANSWERED | MUST_BE_IGNORED) == MAY_BE_ANSWERED
}

impl Mischief {
    /// Every kind that any world may have; [`Mischief::UnaskedData`] is for those with late stores.
    pub const ALL: [Self; 13] = [
        Self::CmdSnOutsideWindow,
        Self::UnknownOpcode,
        Self::UnknownTransferTag,
        Self::WrongDataSn,
        Self::WrongOffset,
        Self::BurstTooLong,
        Self::SegmentTooLong,
        Self::Garbage,
        Self::TagInUse,
        Self::Snack,
        Self::BadDigest,
        Self::TooMuchImmediate,
        Self::HalfPdu,
    ];
}

impl Session {
    /// Does something wrong, if the moment allows it. From then on the target may reject what
    /// comes and hang up; everything else it must still do right.
    pub fn misbehave(&mut self, connection: usize, mischief: Mischief, prng: &mut Prng) -> bool {
        let Some(pdu) = self.wrong_pdu(connection, mischief, prng) else {
            return false;
        };
        self.is_suspect = true;
        match mischief {
            Mischief::Garbage => {
                let len = prng.size(1, 200);
                let noise = (0..len).map(|_| prng.next_u64().to_be_bytes()[0]);
                let mut noise: Vec<u8> = noise.collect();
                // Not by chance a reset or a write that the world would have to know of.
                noise[0] |= 0x1c;
                if let Some(length) = noise.get_mut(5) {
                    *length = 0xff;
                }
                self.transmit_raw(connection, &noise);
                self.ruin(connection);
            }
            Mischief::BadDigest => {
                let mut bytes = self.wire_bytes(connection, &pdu);
                let at = prng.size(0, bytes.len() - 1);
                bytes[at] ^= 1 << prng.below(8);
                self.transmit_raw(connection, &bytes);
            }
            Mischief::HalfPdu => {
                let bytes = self.wire_bytes(connection, &pdu);
                let half = prng.size(1, bytes.len() - 1);
                self.transmit_raw(connection, &bytes[..half]);
                self.ruin(connection);
            }
            Mischief::CmdSnOutsideWindow
            | Mischief::UnknownOpcode
            | Mischief::UnknownTransferTag
            | Mischief::WrongDataSn
            | Mischief::WrongOffset
            | Mischief::BurstTooLong
            | Mischief::SegmentTooLong
            | Mischief::TagInUse
            | Mischief::Snack
            | Mischief::TooMuchImmediate => self.transmit(connection, &pdu),
            Mischief::UnaskedData => {
                self.transmit(connection, &pdu);
                let tag = ScsiCommandBhs::view(&pdu.header).initiator_task_tag.get();
                let mut header = self.wrong_data(tag, RESERVED_TAG, 0);
                header.data_sn = 7.into();
                self.transmit(
                    connection,
                    &Pdu::new(header.as_bhs_bytes(), vec![0xbb; 512]),
                );
            }
        }
        true
    }

    /// The target cannot follow this stream any more: nothing more is sent on it, and what it
    /// answers means nothing.
    fn ruin(&mut self, connection: usize) {
        if let Some(state) = self.connection(connection) {
            state.is_ruined = true;
        }
    }

    fn wrong_pdu(&mut self, connection: usize, mischief: Mischief, prng: &mut Prng) -> Option<Pdu> {
        let state = self.connection(connection)?;
        let has_digests = state.parameters.header_digest && state.parameters.data_digest;
        match mischief {
            Mischief::CmdSnOutsideWindow => {
                let mut command = self.test_unit_ready(connection);
                // Beyond any window that the target can have opened meanwhile.
                let beyond = u32::try_from(prng.within(1000, 2000)).unwrap_or(1000);
                command.cmd_sn = self.max_cmd_sn.plus(beyond).into();
                command.initiator_task_tag = (MUST_BE_IGNORED | self.new_tag()).into();
                Some(Pdu::new(command.as_bhs_bytes(), Vec::new()))
            }
            Mischief::UnknownOpcode => {
                let mut header = RequestBhs::new();
                header.opcode = flags::IMMEDIATE | 0x1c;
                header.initiator_task_tag = self.new_tag().into();
                header.cmd_sn = self.cmd_sn.into();
                Some(Pdu::new(header.as_bhs_bytes(), vec![0; prng.size(0, 9)]))
            }
            Mischief::UnknownTransferTag => {
                let header = self.wrong_data(0, 0x7777_7777, 0);
                Some(Pdu::new(header.as_bhs_bytes(), vec![0xee; 100]))
            }
            Mischief::WrongDataSn | Mischief::WrongOffset | Mischief::BurstTooLong => {
                self.wrong_burst(connection, mischief)
            }
            Mischief::SegmentTooLong => {
                let mut header = self.ping_header();
                let limit = u32::try_from(self.segment_limit(connection)).ok()?;
                let pdu = Pdu::new(header.as_bhs_bytes(), Vec::new());
                header = *NopOutBhs::view(&pdu.header);
                header.data_segment_length = U24::new(limit + 1)?;
                let mut pdu = pdu;
                pdu.header = *header.as_bhs_bytes();
                Some(pdu)
            }
            Mischief::BadDigest if !has_digests => None,
            Mischief::Garbage | Mischief::BadDigest | Mischief::HalfPdu => {
                let header = self.ping_header();
                Some(Pdu::new(header.as_bhs_bytes(), vec![5; prng.size(1, 64)]))
            }
            Mischief::TagInUse => {
                let mut command = self.test_unit_ready(connection);
                let alive = |(_, task): &(u32, &Task)| !task.may_vanish;
                let (tag, _) = self.tasks().find(alive)?;
                self.taken_tags.insert(tag);
                command.initiator_task_tag = tag.into();
                command.cdb[0] = NO_OPCODE;
                command.opcode |= flags::IMMEDIATE;
                command.cmd_sn = self.cmd_sn.into();
                Some(Pdu::new(command.as_bhs_bytes(), Vec::new()))
            }
            Mischief::UnaskedData if self.parameters.initial_r2t => None,
            Mischief::UnaskedData => self.takes_no_data(connection, prng),
            Mischief::Snack => {
                let mut header = SnackBhs::new();
                header.initiator_task_tag = RESERVED_TAG.into();
                header.target_transfer_tag = RESERVED_TAG.into();
                header.flags |= 1;
                Some(Pdu::new(header.as_bhs_bytes(), Vec::new()))
            }
            Mischief::TooMuchImmediate => self.too_much_immediate(connection),
        }
    }

    /// Of a command that would change nothing: VERIFY without comparison.
    fn too_much_immediate(&mut self, connection: usize) -> Option<Pdu> {
        let limit = self.parameters.first_burst_length_bytes as usize;
        let room = self.segment_limit(connection);
        let too_much = if self.parameters.immediate_data {
            limit + 512
        } else {
            512
        };
        (too_much <= room).then(|| {
            let mut command = self.test_unit_ready(connection);
            command.flags |= flags::WRITE;
            command.expected_data_transfer_length = u32::try_from(too_much).unwrap_or(0).into();
            command.opcode |= flags::IMMEDIATE;
            command.cmd_sn = self.cmd_sn.into();
            Pdu::new(command.as_bhs_bytes(), vec![0xdd; too_much])
        })
    }

    /// A command that takes no data and announces some, which its Data-Out follows.
    fn takes_no_data(&mut self, connection: usize, prng: &mut Prng) -> Option<Pdu> {
        let mut command = self.test_unit_ready(connection);
        command.cdb = prng.pick(&[VERIFY, Operation::Flush.cdb()])?;
        command.flags |= flags::WRITE;
        command.flags &= !flags::FINAL;
        command.expected_data_transfer_length = 1024.into();
        command.opcode |= flags::IMMEDIATE;
        command.cmd_sn = self.cmd_sn.into();
        Some(Pdu::new(command.as_bhs_bytes(), Vec::new()))
    }

    fn test_unit_ready(&mut self, connection: usize) -> ScsiCommandBhs {
        let mut command = ScsiCommandBhs::new();
        command.initiator_task_tag = (MAY_BE_ANSWERED | self.new_tag()).into();
        command.exp_stat_sn = self.exp_stat_sn(connection).into();
        command
    }

    /// A ping that wants no answer.
    fn ping_header(&self) -> NopOutBhs {
        let mut header = NopOutBhs::new();
        header.opcode |= flags::IMMEDIATE;
        header.initiator_task_tag = RESERVED_TAG.into();
        header.target_transfer_tag = RESERVED_TAG.into();
        header.cmd_sn = self.cmd_sn.into();
        header
    }

    fn wrong_data(&self, tag: u32, transfer: u32, offset: usize) -> DataOutBhs {
        let mut header = DataOutBhs::new();
        header.flags |= flags::FINAL;
        header.initiator_task_tag = tag.into();
        header.target_transfer_tag = transfer.into();
        header.buffer_offset = u32::try_from(offset).unwrap_or(0).into();
        header
    }

    fn wrong_burst(&mut self, connection: usize, mischief: Mischief) -> Option<Pdu> {
        let (tag, offset, length, transfer) = self.tasks().find_map(|(tag, task)| {
            let burst = task.bursts.front()?;
            let here = task.connection == connection;
            here.then_some((tag, burst.offset, burst.length, burst.target_transfer_tag))
        })?;
        let mut header = self.wrong_data(tag, transfer, offset);
        let mut data = vec![0xcc; length.min(512)];
        if mischief == Mischief::WrongDataSn {
            header.data_sn = 5.into();
        } else if mischief == Mischief::WrongOffset {
            header.buffer_offset = u32::try_from(offset + 4).unwrap_or(0).into();
        } else {
            data = vec![0xcc; length + 4];
        }
        (data.len() <= self.segment_limit(connection))
            .then(|| Pdu::new(header.as_bhs_bytes(), data))
    }

    fn wire_bytes(&mut self, connection: usize, pdu: &Pdu) -> Vec<u8> {
        let parameters = self.connection(connection).map(|state| state.parameters);
        let parameters = parameters.unwrap_or_default();
        pdu.to_bytes(parameters.header_digest, parameters.data_digest)
    }

    fn transmit_raw(&mut self, connection: usize, bytes: &[u8]) {
        if let Some(state) = self.connection(connection) {
            state.outbound.extend(bytes);
        }
    }
}
