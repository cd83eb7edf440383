//! Rules that a target can break.

/// Something the target did that the standard does not allow.
///
/// The consequence is the same for all: at ErrorRecoveryLevel 0 the connection is dropped, and
/// every task on it ends as [`super::Outcome::ConnectionLost`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetViolation {
    /// The data segment is longer than this side declared to take.
    #[error("data segment of {got_bytes} bytes, limit is {limit_bytes}")]
    DataSegmentTooLong {
        /// Announced.
        got_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// The header's digest is wrong.
    #[error("header digest error")]
    HeaderDigest,
    /// The data's digest is wrong.
    #[error("data digest error")]
    DataDigest,
    /// No target sends this PDU, or not in this phase.
    #[error("opcode {opcode:#04x} from a target")]
    UnexpectedOpcode {
        /// The opcode.
        opcode: u8,
    },
    /// The task tag belongs to nothing under way on this connection.
    #[error("opcode {opcode:#04x} for task {initiator_task_tag:#010x}, which is unknown here")]
    UnknownTask {
        /// The PDU.
        opcode: u8,
        /// The tag.
        initiator_task_tag: u32,
    },
    /// StatSN leaves a gap or goes back.
    #[error("StatSN {got:#010x}, expected {expected:#010x}")]
    StatSn {
        /// Received.
        got: u32,
        /// Expected.
        expected: u32,
    },
    /// DataSN or R2TSN leaves a gap or goes back.
    #[error("DataSN or R2TSN {got}, expected {expected}")]
    DataSn {
        /// Received.
        got: u32,
        /// Expected.
        expected: u32,
    },
    /// Data-In lies outside the buffer, or not behind the data before it.
    #[error("Data-In of {length} bytes at offset {offset}, {received} of {expected} are there")]
    DataInOutside {
        /// Buffer offset.
        offset: u32,
        /// Length of the segment.
        length: u32,
        /// What came before.
        received: u32,
        /// Length of the buffer.
        expected: u32,
    },
    /// R2T asks for data that the command does not have, or that was asked for already.
    #[error("R2T for {length} bytes at offset {offset}, next is {next} of {expected}")]
    R2tOutside {
        /// Buffer offset.
        offset: u32,
        /// Desired length.
        length: u32,
        /// First byte not asked for yet.
        next: u32,
        /// Length of the data.
        expected: u32,
    },
    /// More R2Ts are open than was negotiated.
    #[error("R2T beyond the {limit} that may be open")]
    TooManyR2t {
        /// MaxOutstandingR2T.
        limit: u16,
    },
    /// GOOD status, and yet data and residual do not make up the expected length.
    #[error("{received} bytes received and {residual} residual, expected {expected}")]
    DataMissing {
        /// Received.
        received: u32,
        /// Underflow reported.
        residual: u32,
        /// Length of the buffer.
        expected: u32,
    },
    /// GOOD status for a write whose data was never asked for, and no residual says so.
    #[error("{sent} bytes taken and {residual} residual of a write of {expected}")]
    DataNotTaken {
        /// Handed to the connection.
        sent: u32,
        /// Underflow reported.
        residual: u32,
        /// Length of the data.
        expected: u32,
    },
    /// A length inside the data segment, or the response code, makes no sense.
    #[error("malformed contents of opcode {opcode:#04x}")]
    Malformed {
        /// The PDU.
        opcode: u8,
    },
    /// More pings than anyone needs.
    #[error("more than {limit} pings unanswered")]
    TooManyPings {
        /// The limit.
        limit: usize,
    },
    /// The answer to a text request never ends.
    #[error("text answer longer than {limit_bytes} bytes")]
    AnswerTooLong {
        /// The limit.
        limit_bytes: usize,
    },
}
