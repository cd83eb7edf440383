//! Rules of login that an initiator can break, and what follows.

use crate::chap::ChapError;
use crate::names::NameError;
use crate::negotiate::{Key, NegotiationViolation};
use crate::pdu::LoginStatus;
use crate::text::TextError;

/// Why a login ended without a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginViolation {
    /// The first PDU of the connection is no Login Request.
    #[error("connection begins with opcode {opcode:#04x}")]
    NotALogin {
        /// What came instead.
        opcode: u8,
    },
    /// Another PDU came in the middle of a login.
    #[error("opcode {opcode:#04x} during login")]
    InvalidRequest {
        /// What came instead.
        opcode: u8,
    },
    /// A request came before the last one was answered.
    #[error("login request before the last one was answered")]
    RequestBeforeAnswer,
    /// The login goes on and on.
    #[error("more than {limit} login requests")]
    TooManyRequests {
        /// The limit.
        limit: u32,
    },
    /// More data than a login PDU may have.
    #[error("login data of {got_bytes} bytes, limit is {limit_bytes}")]
    SegmentTooLong {
        /// Length given.
        got_bytes: usize,
        /// The limit.
        limit_bytes: usize,
    },
    /// A Login Request has no additional header segments.
    #[error("login request with {words} words of additional header")]
    UnexpectedAhs {
        /// TotalAHSLength.
        words: u8,
    },
    /// The initiator does not speak version 0.
    #[error("initiator speaks version {version_min} at least, this target speaks 0")]
    UnsupportedVersion {
        /// Version-min.
        version_min: u8,
    },
    /// ISID, TSIH, CID or task tag changed from one request to the next.
    #[error("login request changes ISID, TSIH, CID or task tag")]
    IdentityChanged,
    /// CSG is not the stage under way, or NSG does not follow it.
    #[error("stage bits {flags:#04x} do not fit the stage under way")]
    InvalidStage {
        /// Byte 1 of the request.
        flags: u8,
    },
    /// T and C are both set.
    #[error("login request both continues its text and leaves the stage")]
    TransitAndContinue,
    /// The text is malformed or too long.
    #[error(transparent)]
    Form(#[from] TextError),
    /// A key was used against the rules.
    #[error(transparent)]
    Negotiation(#[from] NegotiationViolation),
    /// InitiatorName is no iSCSI name.
    #[error("InitiatorName: {0}")]
    InitiatorName(#[source] NameError),
    /// TargetName is no iSCSI name, so nothing can have it.
    #[error("TargetName: {0}")]
    TargetName(#[source] NameError),
    /// A mandatory key did not come.
    #[error("key {} is missing", .0.name())]
    MissingKey(Key),
    /// A key that belongs into the first request came later.
    #[error("key {} came after the first request", .0.name())]
    LateKey(Key),
    /// SessionType is neither Normal nor Discovery.
    #[error("unknown SessionType")]
    UnknownSessionType,
    /// A discovery session has one connection.
    #[error("discovery session with TSIH {tsih:#06x}")]
    DiscoveryJoin {
        /// TSIH of the request.
        tsih: u16,
    },
    /// No authentication method suits both sides.
    #[error("no common AuthMethod")]
    NoCommonAuthMethod,
    /// Authentication is required and was skipped.
    #[error("security negotiation skipped where CHAP is required")]
    SecuritySkipped,
    /// Authentication failed.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// Keys came while the answer to earlier ones was still being handed out.
    #[error("login request carries keys while an answer is being continued")]
    KeysDuringAnswer,
    /// The target offered a key and the initiator passed over it.
    #[error("offer of {} not answered", .0.name())]
    OfferUnanswered(Key),
    /// The value in force is one the target cannot live with.
    #[error("no acceptable value of {}", .0.name())]
    Unacceptable(Key),
    /// Time is up.
    #[error("login not complete in time")]
    DeadlinePassed,
    /// The owner of the machine refused.
    #[error("login refused with status {:#06x}", .0.code())]
    Refused(LoginStatus),
}

impl LoginViolation {
    /// Whether CHAP was gone through and the response is not that of the user.
    #[must_use]
    pub const fn is_wrong_proof(self) -> bool {
        matches!(
            self,
            Self::Chap(ChapError::UnknownName | ChapError::WrongResponse)
        )
    }

    /// The one table from rule to status. `None`: close without a word.
    ///
    /// Spec: RFC 7143 section 11.13.5.
    #[must_use]
    pub const fn status(self) -> Option<LoginStatus> {
        Some(match self {
            // A peer that does not begin with a login is no initiator.
            Self::NotALogin { .. } | Self::DeadlinePassed => return None,
            Self::InvalidRequest { .. } | Self::RequestBeforeAnswer => {
                LoginStatus::InvalidRequestDuringLogin
            }
            Self::TooManyRequests { .. }
            | Self::SegmentTooLong { .. }
            | Self::UnexpectedAhs { .. }
            | Self::IdentityChanged
            | Self::InvalidStage { .. }
            | Self::TransitAndContinue
            | Self::Form(_)
            | Self::Negotiation(_)
            | Self::InitiatorName(_)
            | Self::LateKey(_)
            | Self::KeysDuringAnswer
            | Self::OfferUnanswered(_)
            | Self::Unacceptable(_) => LoginStatus::InitiatorError,
            Self::UnsupportedVersion { .. } => LoginStatus::UnsupportedVersion,
            Self::TargetName(_) => LoginStatus::NotFound,
            Self::MissingKey(_) => LoginStatus::MissingParameter,
            Self::UnknownSessionType => LoginStatus::SessionTypeNotSupported,
            Self::DiscoveryJoin { .. } => LoginStatus::CannotIncludeInSession,
            Self::NoCommonAuthMethod | Self::SecuritySkipped | Self::Chap(_) => {
                LoginStatus::AuthenticationFailure
            }
            Self::Refused(status) => status,
        })
    }
}
