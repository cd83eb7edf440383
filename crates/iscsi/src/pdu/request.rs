//! Header views of the PDUs an initiator sends.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Cid, InitiatorTaskTag, Isid, LoginStage, Opcode, Tsih, U24, flags, impl_bhs};
use crate::serial::SerialNumber;

/// What all request headers have in common; CmdSN is reserved in Data-Out and SNACK.
///
/// Spec: RFC 7143 section 11.2.1.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct RequestBhs {
    /// Immediate bit 0x40 and opcode.
    pub opcode: u8,
    /// F 0x80 and bits of the PDU type.
    pub flags: u8,
    /// Bytes 2 and 3, of the PDU type.
    pub specific: [u8; 2],
    /// In units of four bytes, padding included.
    pub total_ahs_length_words: u8,
    /// In bytes, padding left out.
    pub data_segment_length: U24,
    /// LUN, or of the PDU type.
    pub lun: U64,
    /// Names the task.
    pub initiator_task_tag: U32,
    /// Bytes 20 to 23, of the PDU type.
    pub word_20: U32,
    /// Place in the session's command order.
    pub cmd_sn: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    /// Bytes 32 to 47, of the PDU type.
    pub tail: [u8; 16],
}

impl_bhs!(RequestBhs, Opcode::NopOut, flags = flags::FINAL, {
    initiator_task_tag @ 16, cmd_sn @ 24, exp_stat_sn @ 28, tail @ 32,
});

/// Gives the request views the accessors that all of them share.
macro_rules! impl_request {
    ($($name:ident),*) => {$(
        impl $name {
            /// True when the command is for immediate delivery.
            #[must_use]
            pub const fn is_immediate(&self) -> bool {
                self.opcode & flags::IMMEDIATE != 0
            }

            /// True when the F bit is set.
            #[must_use]
            pub const fn is_final(&self) -> bool {
                self.flags & flags::FINAL != 0
            }

            /// The task tag.
            #[must_use]
            pub fn itt(&self) -> InitiatorTaskTag {
                InitiatorTaskTag(self.initiator_task_tag.get())
            }

            /// ExpStatSN as a serial number.
            #[must_use]
            pub fn exp_stat_sn(&self) -> SerialNumber {
                self.exp_stat_sn.into()
            }
        }
    )*};
}

/// As [`impl_request`], for the PDUs that carry a CmdSN.
macro_rules! impl_numbered_request {
    ($($name:ident),*) => {
        impl_request!($($name),*);
        $(
            impl $name {
                /// CmdSN as a serial number.
                #[must_use]
                pub fn cmd_sn(&self) -> SerialNumber {
                    self.cmd_sn.into()
                }
            }
        )*
    };
}

impl_numbered_request!(
    RequestBhs,
    NopOutBhs,
    ScsiCommandBhs,
    TaskManagementRequestBhs,
    LoginRequestBhs,
    TextRequestBhs,
    LogoutRequestBhs
);
impl_request!(DataOutBhs, SnackBhs);

/// NOP-Out: a ping, or the answer to the target's ping.
///
/// Spec: RFC 7143 section 11.18.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct NopOutBhs {
    /// Immediate bit 0x40 and opcode 0x00.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Ping data, in bytes, padding left out.
    pub data_segment_length: U24,
    /// Copied from the NOP-In that is answered; else reserved.
    pub lun: U64,
    /// 0xffffffff when no answer is wanted.
    pub initiator_task_tag: U32,
    /// Copied from the NOP-In that is answered; else 0xffffffff.
    pub target_transfer_tag: U32,
    /// Place in the session's command order.
    pub cmd_sn: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    reserved_32: [u8; 16],
}

impl_bhs!(NopOutBhs, Opcode::NopOut, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, cmd_sn @ 24, exp_stat_sn @ 28,
});

/// SCSI Command.
///
/// Spec: RFC 7143 section 11.3.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct ScsiCommandBhs {
    /// Immediate bit 0x40 and opcode 0x01.
    pub opcode: u8,
    /// F 0x80, R 0x40, W 0x20, task attribute in the low three bits.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Immediate data, in bytes, padding left out.
    pub data_segment_length: U24,
    /// The logical unit.
    pub lun: U64,
    /// Names the task.
    pub initiator_task_tag: U32,
    /// In bytes; of the write part when the command is bidirectional.
    pub expected_data_transfer_length: U32,
    /// Place in the session's command order.
    pub cmd_sn: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    /// The CDB, or its first 16 bytes.
    pub cdb: [u8; 16],
}

impl_bhs!(ScsiCommandBhs, Opcode::ScsiCommand, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, expected_data_transfer_length @ 20, cmd_sn @ 24,
    exp_stat_sn @ 28, cdb @ 32,
});

impl ScsiCommandBhs {
    /// R bit: data will flow to the initiator.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.flags & flags::READ != 0
    }

    /// W bit: data will flow to the target.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        self.flags & flags::WRITE != 0
    }
}

/// Task Management Function Request.
///
/// Spec: RFC 7143 section 11.5.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct TaskManagementRequestBhs {
    /// Immediate bit 0x40 and opcode 0x02.
    pub opcode: u8,
    /// F 0x80, always set; the function in the low seven bits.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Always zero.
    pub data_segment_length: U24,
    /// The logical unit, where the function names one.
    pub lun: U64,
    /// Names this function, not the task it is about.
    pub initiator_task_tag: U32,
    /// The task this function is about; else 0xffffffff.
    pub referenced_task_tag: U32,
    /// Place in the session's command order.
    pub cmd_sn: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    /// CmdSN of the task this function is about (ABORT TASK).
    pub ref_cmd_sn: U32,
    /// Next DataSN expected (TASK REASSIGN).
    pub exp_data_sn: U32,
    reserved_40: [u8; 8],
}

impl_bhs!(TaskManagementRequestBhs, Opcode::TaskManagementRequest, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, referenced_task_tag @ 20, cmd_sn @ 24, exp_stat_sn @ 28,
    ref_cmd_sn @ 32, exp_data_sn @ 36,
});

impl TaskManagementRequestBhs {
    /// The seven bits of the function; see `TaskManagementFunction::from_code`.
    #[must_use]
    pub const fn function_bits(&self) -> u8 {
        self.flags & flags::FUNCTION_MASK
    }
}

/// Login Request.
///
/// Spec: RFC 7143 section 11.12.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct LoginRequestBhs {
    /// Immediate bit 0x40, always set, and opcode 0x03.
    pub opcode: u8,
    /// T 0x80, C 0x40, CSG in bits 2 and 3, NSG in bits 0 and 1.
    pub flags: u8,
    /// Highest version the initiator speaks.
    pub version_max: u8,
    /// Lowest version the initiator speaks.
    pub version_min: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Text, in bytes, padding left out.
    pub data_segment_length: U24,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// Zero for a leading login, else the session to join.
    pub tsih: U16,
    /// The same in all requests of one login.
    pub initiator_task_tag: U32,
    /// Names this connection.
    pub cid: U16,
    reserved_22: U16,
    /// The session's first CmdSN on a leading login.
    pub cmd_sn: U32,
    /// Reserved in the first request; then next StatSN expected.
    pub exp_stat_sn: U32,
    reserved_32: [u8; 16],
}

impl_bhs!(LoginRequestBhs, Opcode::LoginRequest, flags = 0, {
    version_max @ 2, version_min @ 3, isid @ 8, tsih @ 14, initiator_task_tag @ 16, cid @ 20,
    cmd_sn @ 24, exp_stat_sn @ 28,
});

impl LoginRequestBhs {
    /// T bit: the initiator is ready for the next stage.
    #[must_use]
    pub const fn is_transit(&self) -> bool {
        self.flags & flags::TRANSIT != 0
    }

    /// C bit: the text goes on in the next request.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUE != 0
    }

    /// CSG, or `None` for the reserved value.
    #[must_use]
    pub const fn current_stage(&self) -> Option<LoginStage> {
        LoginStage::from_code((self.flags >> flags::CURRENT_STAGE_SHIFT) & flags::STAGE_MASK)
    }

    /// NSG, or `None` for the reserved value; only valid with the T bit.
    #[must_use]
    pub const fn next_stage(&self) -> Option<LoginStage> {
        LoginStage::from_code(self.flags & flags::STAGE_MASK)
    }

    /// The session to join, if any.
    #[must_use]
    pub fn tsih(&self) -> Tsih {
        Tsih(self.tsih.get())
    }

    /// The connection.
    #[must_use]
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }
}

/// Text Request.
///
/// Spec: RFC 7143 section 11.10.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct TextRequestBhs {
    /// Immediate bit 0x40 and opcode 0x04.
    pub opcode: u8,
    /// F 0x80, C 0x40.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Text, in bytes, padding left out.
    pub data_segment_length: U24,
    /// Copied from the target's response when the exchange goes on.
    pub lun: U64,
    /// Names the exchange.
    pub initiator_task_tag: U32,
    /// Copied from the target's response, or 0xffffffff to begin again.
    pub target_transfer_tag: U32,
    /// Place in the session's command order.
    pub cmd_sn: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    reserved_32: [u8; 16],
}

impl_bhs!(TextRequestBhs, Opcode::TextRequest, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, cmd_sn @ 24, exp_stat_sn @ 28,
});

impl TextRequestBhs {
    /// C bit: the text goes on in the next request.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUE != 0
    }
}

/// SCSI Data-Out.
///
/// Spec: RFC 7143 section 11.7.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct DataOutBhs {
    /// Opcode 0x05; never immediate.
    pub opcode: u8,
    /// F 0x80: last PDU of this sequence.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// In bytes, padding left out.
    pub data_segment_length: U24,
    /// Copied from the R2T when the data is solicited.
    pub lun: U64,
    /// Names the task.
    pub initiator_task_tag: U32,
    /// Copied from the R2T, or 0xffffffff for unsolicited data.
    pub target_transfer_tag: U32,
    reserved_24: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    reserved_32: U32,
    /// Counts from zero in each sequence.
    pub data_sn: U32,
    /// In bytes, from the start of the command's data.
    pub buffer_offset: U32,
    reserved_44: U32,
}

impl_bhs!(DataOutBhs, Opcode::DataOut, flags = 0, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, exp_stat_sn @ 28, data_sn @ 36,
    buffer_offset @ 40,
});

/// Logout Request.
///
/// Spec: RFC 7143 section 11.14.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct LogoutRequestBhs {
    /// Immediate bit 0x40 and opcode 0x06.
    pub opcode: u8,
    /// F 0x80, always set; the reason in the low seven bits.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Always zero.
    pub data_segment_length: U24,
    reserved_8: U64,
    /// Names this request.
    pub initiator_task_tag: U32,
    /// The connection to close, unless the reason is to close the session.
    pub cid: U16,
    reserved_22: U16,
    /// Place in the session's command order.
    pub cmd_sn: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    reserved_32: [u8; 16],
}

impl_bhs!(LogoutRequestBhs, Opcode::LogoutRequest, flags = flags::FINAL, {
    initiator_task_tag @ 16, cid @ 20, cmd_sn @ 24, exp_stat_sn @ 28,
});

impl LogoutRequestBhs {
    /// The seven bits of the reason; see `LogoutReason::from_code`.
    #[must_use]
    pub const fn reason_bits(&self) -> u8 {
        self.flags & flags::REASON_MASK
    }
}

/// SNACK Request.
///
/// Spec: RFC 7143 section 11.16.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct SnackBhs {
    /// Opcode 0x10.
    pub opcode: u8,
    /// F 0x80, always set; the type in the low four bits.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Always zero.
    pub data_segment_length: U24,
    /// Copied from the Data-In that asked for a DataACK; else reserved.
    pub lun: U64,
    /// Names the task, or 0xffffffff.
    pub initiator_task_tag: U32,
    /// Target transfer tag of a DataACK, or SNACK tag of an R-Data SNACK.
    pub target_transfer_tag: U32,
    reserved_24: U32,
    /// Next StatSN expected on this connection.
    pub exp_stat_sn: U32,
    reserved_32: U64,
    /// First number missing.
    pub beg_run: U32,
    /// How many are missing; zero means all from the first on.
    pub run_length: U32,
}

impl_bhs!(SnackBhs, Opcode::Snack, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, exp_stat_sn @ 28, beg_run @ 40,
    run_length @ 44,
});
