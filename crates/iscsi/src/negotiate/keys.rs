//! The table of text keys: one row a key.
//!
//! Spec: RFC 7143 sections 12 and 13, RFC 7144 section 7.

/// The values a key can take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// `Yes` or `No`, held as 1 and 0.
    Boolean,
    /// A number in this range, both ends included.
    Number {
        /// Smallest legal value.
        min: u32,
        /// Largest legal value.
        max: u32,
    },
    /// Values by name; held as the index into this list.
    List(&'static [&'static str]),
    /// Text that another module understands (names, addresses, authentication).
    Text,
}

/// How the two sides' values become one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ResultFunction {
    /// Yes only if both say Yes.
    And,
    /// Yes if either says Yes.
    Or,
    /// The smaller number.
    Minimum,
    /// The larger number.
    Maximum,
    /// The first value of the originator's list that the responder takes.
    FirstCommon,
    /// No result: each side declares its own value.
    Declarative,
    /// The key is gone from the standard: the answer is always `Reject`.
    Obsolete,
}

/// In which phase a key may be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// IO: during any login.
    InitializeOnly,
    /// LO: during the leading login of a session.
    LeadingOnly,
    /// FFPO: in the full-feature phase.
    FullFeatureOnly,
    /// ALL: always.
    All,
}

/// Who may send a key first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Senders {
    /// Only the initiator.
    Initiator,
    /// Only the target.
    Target,
    /// Either.
    Both,
}

/// What a value belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// CO: one connection.
    Connection,
    /// SW: the whole session.
    Session,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The key.
    pub key: Key,
    /// Its name on the wire.
    pub name: &'static str,
    /// Its values.
    pub kind: KeyKind,
    /// Value in force when nothing was negotiated; zero for text.
    pub default: u32,
    /// How a result comes about.
    pub result: ResultFunction,
    /// When it may be sent.
    pub allowed: Use,
    /// What it belongs to.
    pub scope: Scope,
    /// Who may send it.
    pub senders: Senders,
    /// False when a discovery session has no use for it.
    pub in_discovery: bool,
}

/// Defines [`Key`] and [`KEYS`] from one list, so that they cannot differ.
macro_rules! key_table {
    ($($key:ident, $name:literal, $kind:expr, $default:literal, $result:ident, $allowed:ident,
       $scope:ident, $senders:ident, $in_discovery:literal;)*) => {
        /// Every key this crate understands.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[repr(u8)]
        pub enum Key {
            $(
                #[doc = concat!("`", $name, "`.")]
                $key,
            )*
        }

        /// The table, in the order of [`Key`].
        pub const KEYS: &[KeySpec] = &[$(KeySpec {
            key: Key::$key,
            name: $name,
            kind: $kind,
            default: $default,
            result: ResultFunction::$result,
            allowed: Use::$allowed,
            scope: Scope::$scope,
            senders: Senders::$senders,
            in_discovery: $in_discovery,
        },)*];
    };
}

/// Names of the digests, by their held value.
const DIGESTS: &[&str] = &["None", "CRC32C"];
/// Names of the task reporting forms, by their held value.
const TASK_REPORTING: &[&str] = &["RFC3720", "ResponseFence", "FastAbort"];
/// The range of MaxRecvDataSegmentLength and of the burst lengths, in bytes.
const SEGMENT_RANGE: KeyKind = Number {
    min: 512,
    max: 0x00ff_ffff,
};
const SECONDS: KeyKind = Number { min: 0, max: 3600 };
const COUNT: KeyKind = Number { min: 1, max: 65535 };
use KeyKind::{Boolean, List, Number, Text};

key_table! {
    AuthMethod, "AuthMethod", Text, 0, FirstCommon, InitializeOnly, Session, Both, true;
    ChapAlgorithm, "CHAP_A", Text, 0, FirstCommon, InitializeOnly, Session, Both, true;
    ChapIdentifier, "CHAP_I", Text, 0, Declarative, InitializeOnly, Session, Both, true;
    ChapChallenge, "CHAP_C", Text, 0, Declarative, InitializeOnly, Session, Both, true;
    ChapName, "CHAP_N", Text, 0, Declarative, InitializeOnly, Session, Both, true;
    ChapResponse, "CHAP_R", Text, 0, Declarative, InitializeOnly, Session, Both, true;
    HeaderDigest, "HeaderDigest", List(DIGESTS), 0, FirstCommon, InitializeOnly, Connection, Both, true;
    DataDigest, "DataDigest", List(DIGESTS), 0, FirstCommon, InitializeOnly, Connection, Both, true;
    MaxConnections, "MaxConnections", COUNT, 1, Minimum, LeadingOnly, Session, Both, false;
    SendTargets, "SendTargets", Text, 0, Declarative, FullFeatureOnly, Session, Initiator, true;
    TargetName, "TargetName", Text, 0, Declarative, InitializeOnly, Session, Both, true;
    InitiatorName, "InitiatorName", Text, 0, Declarative, InitializeOnly, Session, Initiator, true;
    TargetAlias, "TargetAlias", Text, 0, Declarative, All, Session, Target, true;
    InitiatorAlias, "InitiatorAlias", Text, 0, Declarative, All, Session, Initiator, true;
    TargetAddress, "TargetAddress", Text, 0, Declarative, All, Session, Target, true;
    TargetPortalGroupTag, "TargetPortalGroupTag", Text, 0, Declarative, InitializeOnly, Session, Target, true;
    InitialR2T, "InitialR2T", Boolean, 1, Or, LeadingOnly, Session, Both, false;
    ImmediateData, "ImmediateData", Boolean, 1, And, LeadingOnly, Session, Both, false;
    MaxRecvDataSegmentLength, "MaxRecvDataSegmentLength", SEGMENT_RANGE, 8192, Declarative, All, Connection, Both, true;
    MaxBurstLength, "MaxBurstLength", SEGMENT_RANGE, 262144, Minimum, LeadingOnly, Session, Both, false;
    FirstBurstLength, "FirstBurstLength", SEGMENT_RANGE, 65536, Minimum, LeadingOnly, Session, Both, false;
    DefaultTime2Wait, "DefaultTime2Wait", SECONDS, 2, Maximum, LeadingOnly, Session, Both, true;
    DefaultTime2Retain, "DefaultTime2Retain", SECONDS, 20, Minimum, LeadingOnly, Session, Both, true;
    MaxOutstandingR2T, "MaxOutstandingR2T", COUNT, 1, Minimum, LeadingOnly, Session, Both, false;
    DataPduInOrder, "DataPDUInOrder", Boolean, 1, Or, LeadingOnly, Session, Both, false;
    DataSequenceInOrder, "DataSequenceInOrder", Boolean, 1, Or, LeadingOnly, Session, Both, false;
    ErrorRecoveryLevel, "ErrorRecoveryLevel", Number { min: 0, max: 2 }, 0, Minimum, LeadingOnly, Session, Both, true;
    SessionType, "SessionType", Text, 0, Declarative, LeadingOnly, Session, Initiator, true;
    TaskReporting, "TaskReporting", List(TASK_REPORTING), 0, FirstCommon, LeadingOnly, Session, Both, false;
    IscsiProtocolLevel, "iSCSIProtocolLevel", Number { min: 0, max: 31 }, 1, Minimum, LeadingOnly, Session, Both, false;
    IfMarker, "IFMarker", Boolean, 0, And, InitializeOnly, Connection, Both, true;
    OfMarker, "OFMarker", Boolean, 0, And, InitializeOnly, Connection, Both, true;
    IfMarkInt, "IFMarkInt", Text, 0, Obsolete, InitializeOnly, Connection, Both, true;
    OfMarkInt, "OFMarkInt", Text, 0, Obsolete, InitializeOnly, Connection, Both, true;
    NodeArchitecture, "X#NodeArchitecture", Text, 0, Declarative, LeadingOnly, Session, Both, true;
}

/// Number of rows.
pub(super) const KEY_COUNT: usize = KEYS.len();

// A set of keys is kept in one 64-bit word.
const _: () = assert!(KEY_COUNT <= 64);

impl Key {
    /// The key of this name. Names are compared as they are: key names know no case folding.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        KEYS.iter().find(|row| row.name == name).map(|row| row.key)
    }

    /// Position in the table.
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The row of the table.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "enum and table come from one list and have one length"
    )]
    pub const fn spec(self) -> &'static KeySpec {
        &KEYS[self.index()]
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }
}

/// A set of keys.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct KeySet(u64);

impl KeySet {
    pub(super) const fn contains(self, key: Key) -> bool {
        self.0 & Self::bit(key) != 0
    }

    /// Adds a key; false when it was there already.
    pub(super) const fn insert(&mut self, key: Key) -> bool {
        let is_new = !self.contains(key);
        self.0 |= Self::bit(key);
        is_new
    }

    pub(super) const fn remove(&mut self, key: Key) {
        self.0 &= !Self::bit(key);
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn first(self) -> Option<Key> {
        let mut index = 0_usize;
        while index < KEY_COUNT {
            #[expect(
                clippy::indexing_slicing,
                reason = "the loop ends at the table's length"
            )]
            let key = KEYS[index].key;
            if self.contains(key) {
                return Some(key);
            }
            index = index.saturating_add(1);
        }
        None
    }

    const fn bit(key: Key) -> u64 {
        // The table has at most 64 rows, so the shift is in range.
        1_u64.wrapping_shl(key as u32)
    }
}
