//! What goes into a negotiation and what comes out of it, as plain structs.

use super::keys::Key;
use super::{KeyKind, Negotiation, ResultFunction};

/// What a session is for.
///
/// Spec: RFC 7143 section 13.21.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum SessionType {
    /// SCSI commands.
    #[default]
    Normal,
    /// SendTargets only.
    Discovery,
}

impl SessionType {
    /// The value on the wire.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Discovery => "Discovery",
        }
    }

    /// The type of this value, if it is one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Normal, Self::Discovery]
            .into_iter()
            .find(|kind| kind.text() == text)
    }
}

/// How a side feels about a digest.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum DigestPolicy {
    /// Only without.
    Never,
    /// Without if the peer agrees, else with.
    #[default]
    Allowed,
    /// With if the peer agrees, else without. A responder has no say in the order.
    Preferred,
    /// Only with.
    Required,
}

impl DigestPolicy {
    const fn values(self) -> &'static [u32] {
        match self {
            Self::Never => &[0],
            Self::Allowed => &[0, 1],
            Self::Preferred => &[1, 0],
            Self::Required => &[1],
        }
    }
}

/// How the end of many tasks at once is reported.
///
/// Spec: RFC 7143 section 13.23.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum TaskReporting {
    /// As RFC 3720 has it: all affected tasks answered and acknowledged first.
    #[default]
    Rfc3720,
    /// RFC 3720, and responses are fenced.
    ResponseFence,
    /// Aborted tasks get no answer.
    FastAbort,
}

/// What one side wants of a session and its connections.
///
/// For a target these are limits: the result is never beyond them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OperationalPreferences {
    /// CRC32C over headers.
    pub header_digest: DigestPolicy,
    /// CRC32C over data.
    pub data_digest: DigestPolicy,
    /// Connections in one session.
    pub max_connections: u16,
    /// True to want an R2T before the first data that is not immediate.
    pub initial_r2t: bool,
    /// True to allow data in the command PDU.
    pub immediate_data: bool,
    /// Longest data segment this side takes, in bytes.
    pub max_recv_data_segment_length_bytes: u32,
    /// Longest solicited burst, in bytes.
    pub max_burst_length_bytes: u32,
    /// Longest unsolicited burst, immediate data included, in bytes.
    pub first_burst_length_bytes: u32,
    /// Seconds to wait before reconnecting.
    pub default_time2wait_s: u16,
    /// Seconds for which state is kept.
    pub default_time2retain_s: u16,
    /// R2Ts open at once in one task.
    pub max_outstanding_r2t: u16,
    /// True to want the PDUs of a sequence in order of offset.
    pub data_pdu_in_order: bool,
    /// True to want the sequences of a task in order of offset.
    pub data_sequence_in_order: bool,
    /// Highest error recovery level that can be done.
    pub error_recovery_level: u8,
    /// True when fenced responses can be done.
    pub response_fence: bool,
    /// Highest iSCSIProtocolLevel that can be done.
    pub protocol_level: u8,
}

impl Default for OperationalPreferences {
    /// What Tarn can do: as little waiting for R2Ts as possible, recovery level 0.
    fn default() -> Self {
        Self {
            header_digest: DigestPolicy::Allowed,
            data_digest: DigestPolicy::Allowed,
            max_connections: 8,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length_bytes: 256 * 1024,
            max_burst_length_bytes: 1024 * 1024,
            first_burst_length_bytes: 256 * 1024,
            default_time2wait_s: 2,
            default_time2retain_s: 20,
            max_outstanding_r2t: 8,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            response_fence: false,
            protocol_level: 1,
        }
    }
}

/// This side's wish for one key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Own {
    /// A number, or 0 and 1 for a boolean.
    Number(u32),
    /// Acceptable values, best first.
    List(&'static [u32]),
}

impl OperationalPreferences {
    pub(super) fn of(&self, key: Key) -> Own {
        Own::Number(match key {
            Key::HeaderDigest => return Own::List(self.header_digest.values()),
            Key::DataDigest => return Own::List(self.data_digest.values()),
            // RFC 7143 wants an originator to offer at least these two once it knows the second.
            Key::TaskReporting if self.response_fence => return Own::List(&[1, 0]),
            Key::TaskReporting => return Own::List(&[0]),
            Key::MaxConnections => self.max_connections.into(),
            Key::InitialR2T => self.initial_r2t.into(),
            Key::ImmediateData => self.immediate_data.into(),
            Key::MaxRecvDataSegmentLength => self.max_recv_data_segment_length_bytes,
            Key::MaxBurstLength => self.max_burst_length_bytes,
            Key::FirstBurstLength => self
                .first_burst_length_bytes
                .min(self.max_burst_length_bytes),
            Key::DefaultTime2Wait => self.default_time2wait_s.into(),
            Key::DefaultTime2Retain => self.default_time2retain_s.into(),
            Key::MaxOutstandingR2T => self.max_outstanding_r2t.into(),
            Key::DataPduInOrder => self.data_pdu_in_order.into(),
            Key::DataSequenceInOrder => self.data_sequence_in_order.into(),
            Key::ErrorRecoveryLevel => self.error_recovery_level.into(),
            Key::IscsiProtocolLevel => self.protocol_level.into(),
            Key::IfMarker
            | Key::OfMarker
            | Key::IfMarkInt
            | Key::OfMarkInt
            | Key::AuthMethod
            | Key::ChapAlgorithm
            | Key::ChapIdentifier
            | Key::ChapChallenge
            | Key::ChapName
            | Key::ChapResponse
            | Key::SendTargets
            | Key::TargetName
            | Key::InitiatorName
            | Key::TargetAlias
            | Key::InitiatorAlias
            | Key::TargetAddress
            | Key::TargetPortalGroupTag
            | Key::SessionType
            | Key::NodeArchitecture => 0,
        })
    }

    /// The wish as a number, held to the range of the key; the best value of a list.
    pub(super) fn number(&self, key: Key) -> u32 {
        let own = match self.of(key) {
            Own::Number(number) => number,
            Own::List(values) => values.first().copied().unwrap_or_default(),
        };
        match key.spec().kind {
            KeyKind::Number { min, max } => own.clamp(min, max),
            KeyKind::Boolean | KeyKind::List(_) | KeyKind::Text => own,
        }
    }

    /// True when this side can live with `value` being in force.
    pub(super) fn accepts(&self, key: Key, value: u32) -> bool {
        if let Own::List(values) = self.of(key) {
            return values.contains(&value);
        }
        let own = self.number(key);
        match key.spec().result {
            ResultFunction::And | ResultFunction::Minimum => value <= own,
            // Longer waiting and stricter order are for the other side's comfort.
            ResultFunction::Or | ResultFunction::Maximum => value >= own,
            ResultFunction::FirstCommon
            | ResultFunction::Declarative
            | ResultFunction::Obsolete => true,
        }
    }
}

/// What is in force for a whole session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionParameters {
    /// Normal or discovery.
    pub session_type: SessionType,
    /// Connections the session may have.
    pub max_connections: u16,
    /// True when all data beyond the immediate waits for an R2T.
    pub initial_r2t: bool,
    /// True when the command PDU may carry data.
    pub immediate_data: bool,
    /// Longest sequence of Data-In, or of Data-Out for one R2T, in bytes.
    pub max_burst_length_bytes: u32,
    /// Longest unsolicited data of one command, immediate data included, in bytes; never above
    /// `max_burst_length_bytes`.
    pub first_burst_length_bytes: u32,
    /// Seconds to wait before reconnecting.
    pub default_time2wait_s: u16,
    /// Seconds for which state is kept after that.
    pub default_time2retain_s: u16,
    /// R2Ts open at once in one task.
    pub max_outstanding_r2t: u16,
    /// True when the PDUs of a sequence come in order of offset.
    pub data_pdu_in_order: bool,
    /// True when the sequences of a task come in order of offset.
    pub data_sequence_in_order: bool,
    /// 0 to 2.
    pub error_recovery_level: u8,
    /// How the end of many tasks is reported.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel; 2 and above have the features of RFC 7144.
    pub protocol_level: u8,
}

/// What is in force for one connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionParameters {
    /// CRC32C after BHS and AHS, both ways.
    pub header_digest: bool,
    /// CRC32C after data, both ways.
    pub data_digest: bool,
    /// Longest data segment this side takes, in bytes.
    pub max_recv_data_segment_length_bytes: u32,
    /// Longest data segment the peer takes, in bytes.
    pub peer_max_recv_data_segment_length_bytes: u32,
}

impl Default for ConnectionParameters {
    /// What is in force when nothing was negotiated.
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_recv_data_segment_length_bytes: 8192,
            peer_max_recv_data_segment_length_bytes: 8192,
        }
    }
}

impl Negotiation {
    /// What is in force for the session by now.
    #[must_use]
    pub fn session_parameters(&self) -> SessionParameters {
        let short = |key| u16::try_from(self.agreed(key)).unwrap_or(u16::MAX);
        let byte = |key| u8::try_from(self.agreed(key)).unwrap_or(u8::MAX);
        let flag = |key| self.agreed(key) != 0;
        let max_burst_length_bytes = self.agreed(Key::MaxBurstLength);
        SessionParameters {
            session_type: self.session_type,
            max_connections: short(Key::MaxConnections),
            initial_r2t: flag(Key::InitialR2T),
            immediate_data: flag(Key::ImmediateData),
            max_burst_length_bytes,
            first_burst_length_bytes: self
                .agreed(Key::FirstBurstLength)
                .min(max_burst_length_bytes),
            default_time2wait_s: short(Key::DefaultTime2Wait),
            default_time2retain_s: short(Key::DefaultTime2Retain),
            max_outstanding_r2t: short(Key::MaxOutstandingR2T),
            data_pdu_in_order: flag(Key::DataPduInOrder),
            data_sequence_in_order: flag(Key::DataSequenceInOrder),
            error_recovery_level: byte(Key::ErrorRecoveryLevel),
            task_reporting: match self.agreed(Key::TaskReporting) {
                1 => TaskReporting::ResponseFence,
                2 => TaskReporting::FastAbort,
                _ => TaskReporting::Rfc3720,
            },
            protocol_level: byte(Key::IscsiProtocolLevel),
        }
    }

    /// What is in force for the connection by now.
    #[must_use]
    pub fn connection_parameters(&self) -> ConnectionParameters {
        ConnectionParameters {
            header_digest: self.agreed(Key::HeaderDigest) != 0,
            data_digest: self.agreed(Key::DataDigest) != 0,
            max_recv_data_segment_length_bytes: self.own_segment_length,
            peer_max_recv_data_segment_length_bytes: self
                .declared_segment_length()
                .unwrap_or(Key::MaxRecvDataSegmentLength.spec().default),
        }
    }
}
