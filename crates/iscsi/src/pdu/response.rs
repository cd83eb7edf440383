//! Header views of the PDUs a target sends.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{InitiatorTaskTag, Isid, LoginStage, LoginStatus, Opcode, Tsih, U24, flags, impl_bhs};
use crate::serial::SerialNumber;

/// What all response headers have in common; StatSN is reserved in Data-In without status.
///
/// Spec: RFC 7143 section 11.2.1.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct ResponseBhs {
    /// Opcode.
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
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// Bytes 36 to 47, of the PDU type.
    pub tail: [u8; 12],
}

impl_bhs!(ResponseBhs, Opcode::NopIn, flags = flags::FINAL, {
    initiator_task_tag @ 16, stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32, tail @ 36,
});

/// Gives the response views the accessors that all of them share.
macro_rules! impl_response {
    ($($name:ident),*) => {$(
        impl $name {
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

            /// StatSN as a serial number.
            #[must_use]
            pub fn stat_sn(&self) -> SerialNumber {
                self.stat_sn.into()
            }

            /// ExpCmdSN as a serial number.
            #[must_use]
            pub fn exp_cmd_sn(&self) -> SerialNumber {
                self.exp_cmd_sn.into()
            }

            /// MaxCmdSN as a serial number.
            #[must_use]
            pub fn max_cmd_sn(&self) -> SerialNumber {
                self.max_cmd_sn.into()
            }

            /// Writes the three sequence numbers that every response carries.
            pub fn stamp(
                &mut self,
                stat_sn: SerialNumber,
                exp_cmd_sn: SerialNumber,
                max_cmd_sn: SerialNumber,
            ) {
                self.stat_sn = stat_sn.into();
                self.exp_cmd_sn = exp_cmd_sn.into();
                self.max_cmd_sn = max_cmd_sn.into();
            }
        }
    )*};
}

impl_response!(
    ResponseBhs,
    NopInBhs,
    ScsiResponseBhs,
    TaskManagementResponseBhs,
    LoginResponseBhs,
    TextResponseBhs,
    DataInBhs,
    LogoutResponseBhs,
    R2tBhs,
    AsyncMessageBhs,
    RejectBhs
);

/// NOP-In: a ping, or the answer to the initiator's ping.
///
/// Spec: RFC 7143 section 11.19.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct NopInBhs {
    /// Opcode 0x20.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Ping data, in bytes, padding left out.
    pub data_segment_length: U24,
    /// To be copied into the answer when this is the target's ping.
    pub lun: U64,
    /// Copied from the NOP-Out that is answered; else 0xffffffff.
    pub initiator_task_tag: U32,
    /// To be copied into the answer; 0xffffffff when none is wanted.
    pub target_transfer_tag: U32,
    /// Next StatSN; used up only when a NOP-Out is answered.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    reserved_36: [u8; 12],
}

impl_bhs!(NopInBhs, Opcode::NopIn, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, stat_sn @ 24, exp_cmd_sn @ 28,
    max_cmd_sn @ 32,
});

/// SCSI Response.
///
/// Spec: RFC 7143 section 11.4.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct ScsiResponseBhs {
    /// Opcode 0x21.
    pub opcode: u8,
    /// F 0x80, always set; o 0x10, u 0x08, O 0x04, U 0x02.
    pub flags: u8,
    /// See `IscsiResponse`.
    pub response: u8,
    /// SCSI status, valid when the response is "command completed".
    pub status: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Sense data with its two-byte length, and response data; padding left out.
    pub data_segment_length: U24,
    /// SAM-5 status qualifier; reserved below iSCSIProtocolLevel 2 (RFC 7144).
    pub status_qualifier: U16,
    reserved_10: [u8; 6],
    /// Names the task.
    pub initiator_task_tag: U32,
    /// Nonzero after an R-Data SNACK.
    pub snack_tag: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// Number of Data-In and R2T PDUs sent for the task.
    pub exp_data_sn: U32,
    /// In bytes; see the o and u bits.
    pub bidirectional_read_residual_count: U32,
    /// In bytes; see the O and U bits.
    pub residual_count: U32,
}

impl_bhs!(ScsiResponseBhs, Opcode::ScsiResponse, flags = flags::FINAL, {
    response @ 2, status @ 3, status_qualifier @ 8, initiator_task_tag @ 16, snack_tag @ 20,
    stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32, exp_data_sn @ 36,
    bidirectional_read_residual_count @ 40, residual_count @ 44,
});

/// Task Management Function Response.
///
/// Spec: RFC 7143 section 11.6.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct TaskManagementResponseBhs {
    /// Opcode 0x22.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    /// See `TaskManagementResponse`.
    pub response: u8,
    reserved_3: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Always zero.
    pub data_segment_length: U24,
    /// Additional response information in RFC 7144 queries; else reserved.
    pub additional_response_information: [u8; 8],
    /// Names the function.
    pub initiator_task_tag: U32,
    reserved_20: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    reserved_36: [u8; 12],
}

impl_bhs!(TaskManagementResponseBhs, Opcode::TaskManagementResponse, flags = flags::FINAL, {
    response @ 2, initiator_task_tag @ 16, stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32,
});

/// Login Response.
///
/// Spec: RFC 7143 section 11.13.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct LoginResponseBhs {
    /// Opcode 0x23.
    pub opcode: u8,
    /// T 0x80, C 0x40, CSG in bits 2 and 3, NSG in bits 0 and 1.
    pub flags: u8,
    /// Highest version the target speaks.
    pub version_max: u8,
    /// The version in use.
    pub version_active: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Text, in bytes, padding left out.
    pub data_segment_length: U24,
    /// Copied from the request.
    pub isid: Isid,
    /// The session; valid in the final response.
    pub tsih: U16,
    /// Copied from the request.
    pub initiator_task_tag: U32,
    reserved_20: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// High byte of `LoginStatus`.
    pub status_class: u8,
    /// Low byte of `LoginStatus`.
    pub status_detail: u8,
    reserved_38: [u8; 10],
}

impl_bhs!(LoginResponseBhs, Opcode::LoginResponse, flags = 0, {
    version_max @ 2, version_active @ 3, isid @ 8, tsih @ 14, initiator_task_tag @ 16,
    stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32, status_class @ 36, status_detail @ 37,
});

impl LoginResponseBhs {
    /// T bit: the next stage begins.
    #[must_use]
    pub const fn is_transit(&self) -> bool {
        self.flags & flags::TRANSIT != 0
    }

    /// C bit: the text goes on in the next response.
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

    /// The session.
    #[must_use]
    pub fn tsih(&self) -> Tsih {
        Tsih(self.tsih.get())
    }

    /// The status, or `None` for one that RFC 7143 does not list.
    #[must_use]
    pub const fn status(&self) -> Option<LoginStatus> {
        LoginStatus::from_class_and_detail(self.status_class, self.status_detail)
    }
}

/// Text Response.
///
/// Spec: RFC 7143 section 11.11.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct TextResponseBhs {
    /// Opcode 0x24.
    pub opcode: u8,
    /// F 0x80, C 0x40.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Text, in bytes, padding left out.
    pub data_segment_length: U24,
    /// To be copied into the next request of the exchange.
    pub lun: U64,
    /// Copied from the request.
    pub initiator_task_tag: U32,
    /// To be copied into the next request; 0xffffffff when the exchange is over.
    pub target_transfer_tag: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    reserved_36: [u8; 12],
}

impl_bhs!(TextResponseBhs, Opcode::TextResponse, flags = 0, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, stat_sn @ 24, exp_cmd_sn @ 28,
    max_cmd_sn @ 32,
});

impl TextResponseBhs {
    /// C bit: the text goes on in the next response.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUE != 0
    }
}

/// SCSI Data-In.
///
/// Spec: RFC 7143 section 11.7.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct DataInBhs {
    /// Opcode 0x25.
    pub opcode: u8,
    /// F 0x80, A 0x40, O 0x04, U 0x02, S 0x01.
    pub flags: u8,
    reserved_2: u8,
    /// SCSI status, valid with the S bit.
    pub status: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// In bytes, padding left out.
    pub data_segment_length: U24,
    /// Valid with the A bit.
    pub lun: U64,
    /// Names the task.
    pub initiator_task_tag: U32,
    /// Valid with the A bit; else 0xffffffff.
    pub target_transfer_tag: U32,
    /// Valid with the S bit.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// Counts from zero over the Data-In and R2T PDUs of the task.
    pub data_sn: U32,
    /// In bytes, from the start of the command's data.
    pub buffer_offset: U32,
    /// In bytes; valid with the S bit, see the O and U bits.
    pub residual_count: U32,
}

impl_bhs!(DataInBhs, Opcode::DataIn, flags = 0, {
    status @ 3, lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, stat_sn @ 24,
    exp_cmd_sn @ 28, max_cmd_sn @ 32, data_sn @ 36, buffer_offset @ 40, residual_count @ 44,
});

impl DataInBhs {
    /// S bit: status, StatSN and residual are valid, and no SCSI Response follows.
    #[must_use]
    pub const fn has_status(&self) -> bool {
        self.flags & flags::STATUS != 0
    }
}

/// Logout Response.
///
/// Spec: RFC 7143 section 11.15.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct LogoutResponseBhs {
    /// Opcode 0x26.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    /// See `LogoutResponseCode`.
    pub response: u8,
    reserved_3: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Always zero.
    pub data_segment_length: U24,
    reserved_8: U64,
    /// Copied from the request.
    pub initiator_task_tag: U32,
    reserved_20: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    reserved_36: U32,
    /// Seconds to wait before a reassignment.
    pub time2wait_s: U16,
    /// Seconds after Time2Wait during which state is kept.
    pub time2retain_s: U16,
    reserved_44: U32,
}

impl_bhs!(LogoutResponseBhs, Opcode::LogoutResponse, flags = flags::FINAL, {
    response @ 2, initiator_task_tag @ 16, stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32,
    time2wait_s @ 40, time2retain_s @ 42,
});

/// Ready To Transfer.
///
/// Spec: RFC 7143 section 11.8.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct R2tBhs {
    /// Opcode 0x31.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Always zero.
    pub data_segment_length: U24,
    /// To be copied into the Data-Out.
    pub lun: U64,
    /// Names the task.
    pub initiator_task_tag: U32,
    /// To be copied into the Data-Out; never 0xffffffff.
    pub target_transfer_tag: U32,
    /// Next StatSN; not used up.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// Counts from zero over the Data-In and R2T PDUs of the task.
    pub r2t_sn: U32,
    /// In bytes, from the start of the command's data.
    pub buffer_offset: U32,
    /// In bytes; 1 to MaxBurstLength.
    pub desired_data_transfer_length: U32,
}

impl_bhs!(R2tBhs, Opcode::R2t, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, target_transfer_tag @ 20, stat_sn @ 24, exp_cmd_sn @ 28,
    max_cmd_sn @ 32, r2t_sn @ 36, buffer_offset @ 40, desired_data_transfer_length @ 44,
});

/// Asynchronous Message.
///
/// Spec: RFC 7143 section 11.9.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct AsyncMessageBhs {
    /// Opcode 0x32.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    reserved_2: [u8; 2],
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// Sense data with its two-byte length, and event data; padding left out.
    pub data_segment_length: U24,
    /// The logical unit, where the event names one.
    pub lun: U64,
    /// Always 0xffffffff.
    pub initiator_task_tag: U32,
    reserved_20: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// See `AsyncEvent`.
    pub async_event: u8,
    /// Vendor's code for event 255.
    pub async_vendor_code: u8,
    /// Meaning depends on the event.
    pub parameter1: U16,
    /// Meaning depends on the event; Time2Wait in seconds.
    pub parameter2: U16,
    /// Meaning depends on the event; Time2Retain or a deadline in seconds.
    pub parameter3: U16,
    reserved_44: U32,
}

impl_bhs!(AsyncMessageBhs, Opcode::AsyncMessage, flags = flags::FINAL, {
    lun @ 8, initiator_task_tag @ 16, stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32,
    async_event @ 36, async_vendor_code @ 37, parameter1 @ 38, parameter2 @ 40, parameter3 @ 42,
});

/// Reject.
///
/// Spec: RFC 7143 section 11.17.
#[derive(
    Clone, Copy, Debug, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq, Unaligned,
)]
#[repr(C)]
pub struct RejectBhs {
    /// Opcode 0x3f.
    pub opcode: u8,
    /// F 0x80, always set.
    pub flags: u8,
    /// See `RejectReason`.
    pub reason: u8,
    reserved_3: u8,
    /// In units of four bytes.
    pub total_ahs_length_words: u8,
    /// The header of the PDU that is rejected.
    pub data_segment_length: U24,
    reserved_8: U64,
    /// Always 0xffffffff.
    pub initiator_task_tag: U32,
    reserved_20: U32,
    /// Place in the connection's order of statuses.
    pub stat_sn: U32,
    /// Next CmdSN the target expects.
    pub exp_cmd_sn: U32,
    /// Last CmdSN the target will take.
    pub max_cmd_sn: U32,
    /// Next DataSN or R2TSN, valid for protocol error and data digest error.
    pub data_sn: U32,
    reserved_40: U64,
}

impl_bhs!(RejectBhs, Opcode::Reject, flags = flags::FINAL, {
    reason @ 2, initiator_task_tag @ 16, stat_sn @ 24, exp_cmd_sn @ 28, max_cmd_sn @ 32,
    data_sn @ 36,
});
