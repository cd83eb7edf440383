//! What an initiator may do wrong in the full-feature phase, and the one table of consequences.

use std::time::Duration;

use crate::pdu::{AhsError, RejectReason};

/// Something the initiator did that the standard does not allow.
///
/// One variant per rule, so that a test, a counter and a log line can name it. What the target
/// does about it is decided in one place, [`Violation::verdict`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The stream cannot be trusted any more.
    #[error("data segment of {got_bytes} bytes, the declared limit is {limit_bytes}")]
    DataSegmentTooLong {
        /// As the header says.
        got_bytes: usize,
        /// Our MaxRecvDataSegmentLength.
        limit_bytes: usize,
    },
    /// Spec: RFC 7143 section 7.8.
    #[error("header digest error")]
    HeaderDigest,
    /// Spec: RFC 7143 section 7.8.
    #[error("data digest error in a PDU with opcode {opcode:#04x}")]
    DataDigest {
        /// Of the damaged PDU.
        opcode: u8,
    },
    /// A number outside the window; such requests are dropped without an answer.
    #[error("CmdSN {got} is outside the window {first}..={last}")]
    CmdSnOutsideWindow {
        /// As sent.
        got: u32,
        /// ExpCmdSN.
        first: u32,
        /// MaxCmdSN.
        last: u32,
    },
    /// A number that waits for its turn already.
    #[error("CmdSN {got} came twice")]
    CmdSnRepeated {
        /// As sent.
        got: u32,
    },
    /// Spec: RFC 7143 section 11.17.
    #[error("opcode {opcode:#04x} is not one of a target in this phase")]
    OpcodeNotSupported {
        /// Without the immediate bit.
        opcode: u8,
    },
    /// Spec: RFC 7143 section 11.2.2.
    #[error("additional header segments: {0}")]
    AdditionalHeaders(AhsError),
    /// A field that has no meaning here.
    #[error("field at byte {byte} of a PDU with opcode {opcode:#04x}")]
    InvalidField {
        /// Of the PDU.
        opcode: u8,
        /// Offset in the basic header segment.
        byte: u8,
    },
    /// The tag names a task that has not ended.
    #[error("initiator task tag {initiator_task_tag:#010x} is in use")]
    TaskTagInUse {
        /// As sent.
        initiator_task_tag: u32,
    },
    /// More immediate commands than the target takes at a time.
    #[error("more than {limit} immediate commands at a time")]
    TooManyImmediate {
        /// How many are taken.
        limit: usize,
    },
    /// A session for discovery carries no SCSI.
    #[error("a PDU with opcode {opcode:#04x} in a discovery session")]
    NotInDiscovery {
        /// Of the PDU.
        opcode: u8,
    },
    /// Data for a task that is not, or not any more, in need of it.
    #[error("Data-Out for task {initiator_task_tag:#010x}, which is unknown")]
    DataOutForUnknownTask {
        /// As sent.
        initiator_task_tag: u32,
    },
    /// Data for another unit than the one its R2T named.
    ///
    /// Spec: RFC 7143 sections 11.7.4 and 11.8.
    #[error("Data-Out for LUN field {got:#018x} where the R2T had {expected:#018x}")]
    DataOutForOtherLun {
        /// As sent.
        got: u64,
        /// As in the command and its R2T.
        expected: u64,
    },
    /// Spec: RFC 7143 section 11.7.5. At ErrorRecoveryLevel 0 a lost PDU cannot be asked for again.
    #[error("DataSN {got} where {expected} was due")]
    DataSnOutOfOrder {
        /// As sent.
        got: u32,
        /// What the sequence is at.
        expected: u32,
    },
    /// DataPDUInOrder and DataSequenceInOrder are Yes in every session of ours.
    #[error("data at offset {got} where {expected} was due")]
    DataOutOfOrder {
        /// As sent.
        got: u32,
        /// What the sequence is at.
        expected: u32,
    },
    /// More than an R2T asked for, or more than FirstBurstLength unsolicited.
    #[error("{got} bytes in a burst of {limit}")]
    BurstTooLong {
        /// So far in the burst, this PDU included.
        got: u32,
        /// As negotiated or as asked for.
        limit: u32,
    },
    /// SNACK needs ErrorRecoveryLevel 1.
    #[error("SNACK at ErrorRecoveryLevel 0")]
    Snack,
    /// A text exchange that breaks the rules of negotiation.
    #[error("text request refused")]
    Text,
    /// What waits in the session for its turn, or for its end, is too much.
    #[error(
        "{got_bytes} bytes held for the session, limit is {limit_bytes} and what all sessions share"
    )]
    HoldBudget {
        /// With what was to be held now.
        got_bytes: usize,
        /// The session's limit.
        limit_bytes: usize,
    },
    /// A number is missing that others wait for.
    #[error("CmdSN {expected} did not come within {} s of later ones", .limit.as_secs())]
    CmdSnMissing {
        /// ExpCmdSN.
        expected: u32,
        /// How long it may be missing.
        limit: Duration,
    },
    /// Spec: RFC 7143 section 11.10; one text request at a time.
    #[error("text request before the answer to the last one was sent")]
    TextOutstanding,
    /// A ping with a tag that was not ours.
    #[error("NOP-Out answers ping {target_transfer_tag:#010x}, which is not outstanding")]
    UnknownPing {
        /// As sent.
        target_transfer_tag: u32,
    },
}

/// Why the data of a task will not be complete although its connection goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DataFault {
    /// Data came that was not negotiated (sense 0C/0C).
    UnexpectedUnsolicited,
    /// A sequence ended early (sense 0C/0D).
    IncorrectAmount,
    /// Data was damaged or is missing (sense 47/05).
    DigestError,
    /// There was no memory for it; the initiator may try again (TASK SET FULL).
    NoMemory,
}

/// What the session does next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Drop the PDU and say nothing.
    Ignore,
    /// Send a Reject PDU with this reason; the connection goes on.
    Reject(RejectReason),
    /// The task ends with CHECK CONDITION; the connection goes on.
    FailTask(DataFault),
    /// Close the connection, and with it, at ErrorRecoveryLevel 0, the session.
    DropConnection,
}

impl Violation {
    /// The one table that maps a rule to its consequence at ErrorRecoveryLevel 0.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match self {
            // Where the next PDU starts is unknown once a length or a header is damaged.
            Self::DataSegmentTooLong { .. } | Self::HeaderDigest => Verdict::DropConnection,
            // Spec: RFC 7143 section 7.12; at ErrorRecoveryLevel 0 the session ends.
            Self::CmdSnMissing { .. } => Verdict::DropConnection,
            // Spec: RFC 7143 sections 7.8 and 7.9; data that is missing cannot be asked for again
            // at this level, so its task ends. The stream itself is in order.
            Self::DataSnOutOfOrder { .. } | Self::DataOutOfOrder { .. } => {
                Verdict::FailTask(DataFault::DigestError)
            }
            Self::BurstTooLong { .. } => Verdict::FailTask(DataFault::IncorrectAmount),
            // It is not written anywhere, so what the task asked for does not come.
            Self::DataOutForOtherLun { .. } => Verdict::FailTask(DataFault::IncorrectAmount),
            // Spec: RFC 7143 section 4.2.2.1.
            Self::CmdSnOutsideWindow { .. } | Self::CmdSnRepeated { .. } => Verdict::Ignore,
            Self::UnknownPing { .. } => Verdict::Ignore,
            Self::DataDigest { .. } => Verdict::Reject(RejectReason::DataDigestError),
            Self::OpcodeNotSupported { .. } => Verdict::Reject(RejectReason::CommandNotSupported),
            Self::AdditionalHeaders(_) | Self::InvalidField { .. } => {
                Verdict::Reject(RejectReason::InvalidPduField)
            }
            Self::TaskTagInUse { .. } => Verdict::Reject(RejectReason::TaskInProgress),
            Self::TooManyImmediate { .. } => Verdict::Reject(RejectReason::ImmediateCommandReject),
            Self::NotInDiscovery { .. } | Self::DataOutForUnknownTask { .. } | Self::Text => {
                Verdict::Reject(RejectReason::ProtocolError)
            }
            Self::TextOutstanding => Verdict::Reject(RejectReason::ProtocolError),
            // Spec: RFC 7143 section 11.17.1, reason 0Ah, "out of resources".
            Self::HoldBudget { .. } => Verdict::Reject(RejectReason::LongOperationReject),
            Self::Snack => Verdict::Reject(RejectReason::SnackReject),
        }
    }
}
