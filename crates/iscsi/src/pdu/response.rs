//! Header views of the PDUs a target sends.

#![expect(
    missing_debug_implementations,
    reason = "zerocopy derives helper types, and the lint does not know them for such in a macro"
)]

use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::{InitiatorTaskTag, Isid, LoginStage, LoginStatus, Opcode, Tsih, bhs, flags};
use crate::serial::SerialNumber;

/// As [`bhs`], with the sequence numbers that responses have between two groups of fields.
macro_rules! response_bhs {
    (
        $(#[$meta:meta])*
        $name:ident($opcode:expr, $flags:expr):
        $flags_doc:literal, $bytes:tt,
        $data_doc:literal, { $($before:tt)* }, numbers, { $($after:tt)* }
    ) => {
        bhs! {
            $(#[$meta])*
            $name($opcode, $flags):
            $flags_doc, $bytes,
            $data_doc, {
                $($before)*
                /// Place in the connection's order of statuses.
                pub stat_sn: U32 = 24,
                /// Next CmdSN the target expects.
                pub exp_cmd_sn: U32 = 28,
                /// Last CmdSN the target will take.
                pub max_cmd_sn: U32 = 32,
                $($after)*
            }
        }
    };
}

response_bhs! {
    /// What all response headers have in common; StatSN is reserved in Data-In without status.
    ///
    /// Spec: RFC 7143 section 11.2.1.
    ResponseBhs(Opcode::NopIn, flags::FINAL):
    "F 0x80 and bits of the PDU type.", {
        /// Bytes 2 and 3, of the PDU type.
        pub specific: [u8; 2],
    },
    "In bytes, padding left out.", {
        /// LUN, or of the PDU type.
        pub lun: U64,
        /// Names the task.
        pub initiator_task_tag: U32 = 16,
        /// Bytes 20 to 23, of the PDU type.
        pub word_20: U32,
    }, numbers, {
        /// Bytes 36 to 47, of the PDU type.
        pub tail: [u8; 12] = 36,
    }
}

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

bhs! {
    /// NOP-In: a ping, or the answer to the initiator's ping.
    ///
    /// Spec: RFC 7143 section 11.19.
    NopInBhs(Opcode::NopIn, flags::FINAL):
    "F 0x80, always set.", { reserved_2: [u8; 2] },
    "Ping data, in bytes, padding left out.", {
        /// To be copied into the answer when this is the target's ping.
        pub lun: U64 = 8,
        /// Copied from the NOP-Out that is answered; else 0xffffffff.
        pub initiator_task_tag: U32 = 16,
        /// To be copied into the answer; 0xffffffff when none is wanted.
        pub target_transfer_tag: U32 = 20,
        /// Next StatSN; used up only when a NOP-Out is answered.
        pub stat_sn: U32 = 24,
        /// Next CmdSN the target expects.
        pub exp_cmd_sn: U32 = 28,
        /// Last CmdSN the target will take.
        pub max_cmd_sn: U32 = 32,
        reserved_36: [u8; 12],
    }
}

response_bhs! {
    /// SCSI Response.
    ///
    /// Spec: RFC 7143 section 11.4.
    ScsiResponseBhs(Opcode::ScsiResponse, flags::FINAL):
    "F 0x80, always set; o 0x10, u 0x08, O 0x04, U 0x02.", {
        /// See `IscsiResponse`.
        pub response: u8 = 2,
        /// SCSI status, valid when the response is "command completed".
        pub status: u8 = 3,
    },
    "Sense data with its two-byte length, and response data; padding left out.", {
        /// SAM-5 status qualifier; reserved below iSCSIProtocolLevel 2 (RFC 7144).
        pub status_qualifier: U16 = 8,
        reserved_10: [u8; 6],
        /// Names the task.
        pub initiator_task_tag: U32 = 16,
        /// Nonzero after an R-Data SNACK.
        pub snack_tag: U32 = 20,
    }, numbers, {
        /// Number of Data-In and R2T PDUs sent for the task.
        pub exp_data_sn: U32 = 36,
        /// In bytes; see the o and u bits.
        pub bidirectional_read_residual_count: U32 = 40,
        /// In bytes; see the O and U bits.
        pub residual_count: U32 = 44,
    }
}

response_bhs! {
    /// Task Management Function Response.
    ///
    /// Spec: RFC 7143 section 11.6.
    TaskManagementResponseBhs(Opcode::TaskManagementResponse, flags::FINAL):
    "F 0x80, always set.", {
        /// See `TaskManagementResponse`.
        pub response: u8 = 2,
        reserved_3: u8,
    },
    "Always zero.", {
        /// Additional response information in RFC 7144 queries; else reserved.
        pub additional_response_information: [u8; 8],
        /// Names the function.
        pub initiator_task_tag: U32 = 16,
        reserved_20: U32,
    }, numbers, {
        reserved_36: [u8; 12],
    }
}

response_bhs! {
    /// Login Response.
    ///
    /// Spec: RFC 7143 section 11.13.
    LoginResponseBhs(Opcode::LoginResponse, 0):
    "T 0x80, C 0x40, CSG in bits 2 and 3, NSG in bits 0 and 1.", {
        /// Highest version the target speaks.
        pub version_max: u8 = 2,
        /// The version in use.
        pub version_active: u8 = 3,
    },
    "Text, in bytes, padding left out.", {
        /// Copied from the request.
        pub isid: Isid = 8,
        /// The session; valid in the final response.
        pub tsih: U16 = 14,
        /// Copied from the request.
        pub initiator_task_tag: U32 = 16,
        reserved_20: U32,
    }, numbers, {
        /// High byte of `LoginStatus`.
        pub status_class: u8 = 36,
        /// Low byte of `LoginStatus`.
        pub status_detail: u8 = 37,
        reserved_38: [u8; 10],
    }
}

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

response_bhs! {
    /// Text Response.
    ///
    /// Spec: RFC 7143 section 11.11.
    TextResponseBhs(Opcode::TextResponse, 0):
    "F 0x80, C 0x40.", { reserved_2: [u8; 2] },
    "Text, in bytes, padding left out.", {
        /// To be copied into the next request of the exchange.
        pub lun: U64 = 8,
        /// Copied from the request.
        pub initiator_task_tag: U32 = 16,
        /// To be copied into the next request; 0xffffffff when the exchange is over.
        pub target_transfer_tag: U32 = 20,
    }, numbers, {
        reserved_36: [u8; 12],
    }
}

impl TextResponseBhs {
    /// C bit: the text goes on in the next response.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUE != 0
    }
}

bhs! {
    /// SCSI Data-In.
    ///
    /// Spec: RFC 7143 section 11.7.
    DataInBhs(Opcode::DataIn, 0):
    "F 0x80, A 0x40, O 0x04, U 0x02, S 0x01.", {
        reserved_2: u8,
        /// SCSI status, valid with the S bit.
        pub status: u8 = 3,
    },
    "In bytes, padding left out.", {
        /// Valid with the A bit.
        pub lun: U64 = 8,
        /// Names the task.
        pub initiator_task_tag: U32 = 16,
        /// Valid with the A bit; else 0xffffffff.
        pub target_transfer_tag: U32 = 20,
        /// Valid with the S bit.
        pub stat_sn: U32 = 24,
        /// Next CmdSN the target expects.
        pub exp_cmd_sn: U32 = 28,
        /// Last CmdSN the target will take.
        pub max_cmd_sn: U32 = 32,
        /// Counts from zero over the Data-In and R2T PDUs of the task.
        pub data_sn: U32 = 36,
        /// In bytes, from the start of the command's data.
        pub buffer_offset: U32 = 40,
        /// In bytes; valid with the S bit, see the O and U bits.
        pub residual_count: U32 = 44,
    }
}

impl DataInBhs {
    /// S bit: status, StatSN and residual are valid, and no SCSI Response follows.
    #[must_use]
    pub const fn has_status(&self) -> bool {
        self.flags & flags::STATUS != 0
    }
}

response_bhs! {
    /// Logout Response.
    ///
    /// Spec: RFC 7143 section 11.15.
    LogoutResponseBhs(Opcode::LogoutResponse, flags::FINAL):
    "F 0x80, always set.", {
        /// See `LogoutResponseCode`.
        pub response: u8 = 2,
        reserved_3: u8,
    },
    "Always zero.", {
        reserved_8: U64,
        /// Copied from the request.
        pub initiator_task_tag: U32 = 16,
        reserved_20: U32,
    }, numbers, {
        reserved_36: U32,
        /// Seconds to wait before a reassignment.
        pub time2wait_s: U16 = 40,
        /// Seconds after Time2Wait during which state is kept.
        pub time2retain_s: U16 = 42,
        reserved_44: U32,
    }
}

bhs! {
    /// Ready To Transfer.
    ///
    /// Spec: RFC 7143 section 11.8.
    R2tBhs(Opcode::R2t, flags::FINAL):
    "F 0x80, always set.", { reserved_2: [u8; 2] },
    "Always zero.", {
        /// To be copied into the Data-Out.
        pub lun: U64 = 8,
        /// Names the task.
        pub initiator_task_tag: U32 = 16,
        /// To be copied into the Data-Out; never 0xffffffff.
        pub target_transfer_tag: U32 = 20,
        /// Next StatSN; not used up.
        pub stat_sn: U32 = 24,
        /// Next CmdSN the target expects.
        pub exp_cmd_sn: U32 = 28,
        /// Last CmdSN the target will take.
        pub max_cmd_sn: U32 = 32,
        /// Counts from zero over the Data-In and R2T PDUs of the task.
        pub r2t_sn: U32 = 36,
        /// In bytes, from the start of the command's data.
        pub buffer_offset: U32 = 40,
        /// In bytes; 1 to MaxBurstLength.
        pub desired_data_transfer_length: U32 = 44,
    }
}

response_bhs! {
    /// Asynchronous Message.
    ///
    /// Spec: RFC 7143 section 11.9.
    AsyncMessageBhs(Opcode::AsyncMessage, flags::FINAL):
    "F 0x80, always set.", { reserved_2: [u8; 2] },
    "Sense data with its two-byte length, and event data; padding left out.", {
        /// The logical unit, where the event names one.
        pub lun: U64 = 8,
        /// Always 0xffffffff.
        pub initiator_task_tag: U32 = 16,
        reserved_20: U32,
    }, numbers, {
        /// See `AsyncEvent`.
        pub async_event: u8 = 36,
        /// Vendor's code for event 255.
        pub async_vendor_code: u8 = 37,
        /// Meaning depends on the event.
        pub parameter1: U16 = 38,
        /// Meaning depends on the event; Time2Wait in seconds.
        pub parameter2: U16 = 40,
        /// Meaning depends on the event; Time2Retain or a deadline in seconds.
        pub parameter3: U16 = 42,
        reserved_44: U32,
    }
}

response_bhs! {
    /// Reject.
    ///
    /// Spec: RFC 7143 section 11.17.
    RejectBhs(Opcode::Reject, flags::FINAL):
    "F 0x80, always set.", {
        /// See `RejectReason`.
        pub reason: u8 = 2,
        reserved_3: u8,
    },
    "The header of the PDU that is rejected.", {
        reserved_8: U64,
        /// Always 0xffffffff.
        pub initiator_task_tag: U32 = 16,
        reserved_20: U32,
    }, numbers, {
        /// Next DataSN or R2TSN, valid for protocol error and data digest error.
        pub data_sn: U32 = 36,
        reserved_40: U64,
    }
}
