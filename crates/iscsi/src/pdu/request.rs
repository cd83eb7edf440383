//! Header views of the PDUs an initiator sends.

#![expect(
    missing_debug_implementations,
    reason = "zerocopy derives helper types, and the lint does not know them for such in a macro"
)]

use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::{Cid, InitiatorTaskTag, Isid, LoginStage, Opcode, Tsih, bhs, flags};
use crate::serial::SerialNumber;

/// As [`bhs`], with the sequence numbers that requests have between two groups of fields.
macro_rules! request_bhs {
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
                /// Place in the session's command order.
                pub cmd_sn: U32 = 24,
                /// Next StatSN expected on this connection.
                pub exp_stat_sn: U32 = 28,
                $($after)*
            }
        }
    };
}

request_bhs! {
    /// What all request headers have in common; CmdSN is reserved in Data-Out and SNACK.
    ///
    /// Spec: RFC 7143 section 11.2.1.
    RequestBhs(Opcode::NopOut, flags::FINAL):
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
        /// Bytes 32 to 47, of the PDU type.
        pub tail: [u8; 16] = 32,
    }
}

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

request_bhs! {
    /// NOP-Out: a ping, or the answer to the target's ping.
    ///
    /// Spec: RFC 7143 section 11.18.
    NopOutBhs(Opcode::NopOut, flags::FINAL):
    "F 0x80, always set.", { reserved_2: [u8; 2] },
    "Ping data, in bytes, padding left out.", {
        /// Copied from the NOP-In that is answered; else reserved.
        pub lun: U64 = 8,
        /// 0xffffffff when no answer is wanted.
        pub initiator_task_tag: U32 = 16,
        /// Copied from the NOP-In that is answered; else 0xffffffff.
        pub target_transfer_tag: U32 = 20,
    }, numbers, {
        reserved_32: [u8; 16],
    }
}

request_bhs! {
    /// SCSI Command.
    ///
    /// Spec: RFC 7143 section 11.3.
    ScsiCommandBhs(Opcode::ScsiCommand, flags::FINAL):
    "F 0x80, R 0x40, W 0x20, task attribute in the low three bits.", { reserved_2: [u8; 2] },
    "Immediate data, in bytes, padding left out.", {
        /// The logical unit.
        pub lun: U64 = 8,
        /// Names the task.
        pub initiator_task_tag: U32 = 16,
        /// In bytes; of the write part when the command is bidirectional.
        pub expected_data_transfer_length: U32 = 20,
    }, numbers, {
        /// The CDB, or its first 16 bytes.
        pub cdb: [u8; 16] = 32,
    }
}

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

request_bhs! {
    /// Task Management Function Request.
    ///
    /// Spec: RFC 7143 section 11.5.
    TaskManagementRequestBhs(Opcode::TaskManagementRequest, flags::FINAL):
    "F 0x80, always set; the function in the low seven bits.", { reserved_2: [u8; 2] },
    "Always zero.", {
        /// The logical unit, where the function names one.
        pub lun: U64 = 8,
        /// Names this function, not the task it is about.
        pub initiator_task_tag: U32 = 16,
        /// The task this function is about; else 0xffffffff.
        pub referenced_task_tag: U32 = 20,
    }, numbers, {
        /// CmdSN of the task this function is about (ABORT TASK).
        pub ref_cmd_sn: U32 = 32,
        /// Next DataSN expected (TASK REASSIGN).
        pub exp_data_sn: U32 = 36,
        reserved_40: [u8; 8],
    }
}

impl TaskManagementRequestBhs {
    /// The seven bits of the function; see `TaskManagementFunction::from_code`.
    #[must_use]
    pub const fn function_bits(&self) -> u8 {
        self.flags & flags::FUNCTION_MASK
    }
}

bhs! {
    /// Login Request.
    ///
    /// Spec: RFC 7143 section 11.12.
    LoginRequestBhs(Opcode::LoginRequest, 0):
    "T 0x80, C 0x40, CSG in bits 2 and 3, NSG in bits 0 and 1.", {
        /// Highest version the initiator speaks.
        pub version_max: u8 = 2,
        /// Lowest version the initiator speaks.
        pub version_min: u8 = 3,
    },
    "Text, in bytes, padding left out.", {
        /// The initiator's part of the session identifier.
        pub isid: Isid = 8,
        /// Zero for a leading login, else the session to join.
        pub tsih: U16 = 14,
        /// The same in all requests of one login.
        pub initiator_task_tag: U32 = 16,
        /// Names this connection.
        pub cid: U16 = 20,
        reserved_22: U16,
        /// The session's first CmdSN on a leading login.
        pub cmd_sn: U32 = 24,
        /// Reserved in the first request; then next StatSN expected.
        pub exp_stat_sn: U32 = 28,
        reserved_32: [u8; 16],
    }
}

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

request_bhs! {
    /// Text Request.
    ///
    /// Spec: RFC 7143 section 11.10.
    TextRequestBhs(Opcode::TextRequest, flags::FINAL):
    "F 0x80, C 0x40.", { reserved_2: [u8; 2] },
    "Text, in bytes, padding left out.", {
        /// Copied from the target's response when the exchange goes on.
        pub lun: U64 = 8,
        /// Names the exchange.
        pub initiator_task_tag: U32 = 16,
        /// Copied from the target's response, or 0xffffffff to begin again.
        pub target_transfer_tag: U32 = 20,
    }, numbers, {
        reserved_32: [u8; 16],
    }
}

impl TextRequestBhs {
    /// C bit: the text goes on in the next request.
    #[must_use]
    pub const fn is_continued(&self) -> bool {
        self.flags & flags::CONTINUE != 0
    }
}

bhs! {
    /// SCSI Data-Out.
    ///
    /// Spec: RFC 7143 section 11.7.
    DataOutBhs(Opcode::DataOut, 0):
    "F 0x80: last PDU of this sequence.", { reserved_2: [u8; 2] },
    "In bytes, padding left out.", {
        /// Copied from the R2T when the data is solicited.
        pub lun: U64 = 8,
        /// Names the task.
        pub initiator_task_tag: U32 = 16,
        /// Copied from the R2T, or 0xffffffff for unsolicited data.
        pub target_transfer_tag: U32 = 20,
        reserved_24: U32,
        /// Next StatSN expected on this connection.
        pub exp_stat_sn: U32 = 28,
        reserved_32: U32,
        /// Counts from zero in each sequence.
        pub data_sn: U32 = 36,
        /// In bytes, from the start of the command's data.
        pub buffer_offset: U32 = 40,
        reserved_44: U32,
    }
}

request_bhs! {
    /// Logout Request.
    ///
    /// Spec: RFC 7143 section 11.14.
    LogoutRequestBhs(Opcode::LogoutRequest, flags::FINAL):
    "F 0x80, always set; the reason in the low seven bits.", { reserved_2: [u8; 2] },
    "Always zero.", {
        reserved_8: U64,
        /// Names this request.
        pub initiator_task_tag: U32 = 16,
        /// The connection to close, unless the reason is to close the session.
        pub cid: U16 = 20,
        reserved_22: U16,
    }, numbers, {
        reserved_32: [u8; 16],
    }
}

impl LogoutRequestBhs {
    /// The seven bits of the reason; see `LogoutReason::from_code`.
    #[must_use]
    pub const fn reason_bits(&self) -> u8 {
        self.flags & flags::REASON_MASK
    }
}

bhs! {
    /// SNACK Request.
    ///
    /// Spec: RFC 7143 section 11.16.
    SnackBhs(Opcode::Snack, flags::FINAL):
    "F 0x80, always set; the type in the low four bits.", { reserved_2: [u8; 2] },
    "Always zero.", {
        /// Copied from the Data-In that asked for a DataACK; else reserved.
        pub lun: U64 = 8,
        /// Names the task, or 0xffffffff.
        pub initiator_task_tag: U32 = 16,
        /// Target transfer tag of a DataACK, or SNACK tag of an R-Data SNACK.
        pub target_transfer_tag: U32 = 20,
        reserved_24: U32,
        /// Next StatSN expected on this connection.
        pub exp_stat_sn: U32 = 28,
        reserved_32: U64,
        /// First number missing.
        pub beg_run: U32 = 40,
        /// How many are missing; zero means all from the first on.
        pub run_length: U32 = 44,
    }
}
