//! Limits of the data plane and parameters of the protocol: name, default, range, reason.
//!
//! Relations between two limits are checked by [`Limits::check`] and, for the defaults, by the
//! compiler.

use crate::Rule;
use crate::keys::{Fallback, Form, Key};
use crate::value::{KeyOf, quoted, size};

/// Whether a CRC32C digest is used on a connection.
///
/// Spec: RFC 7143 section 13.1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum DigestPolicy {
    /// As the initiator wishes.
    #[default]
    Allow,
    /// A login that does not agree on CRC32C is refused.
    Require,
    /// Never.
    Refuse,
}

impl DigestPolicy {
    pub(crate) fn parse(text: &str) -> Result<Self, Rule> {
        match text {
            "allow" => Ok(Self::Allow),
            "require" => Ok(Self::Require),
            "refuse" => Ok(Self::Refuse),
            _ => Err(Rule::NotOneOf {
                got: text.to_owned(),
                wanted: "allow, require or refuse",
            }),
        }
    }

    /// The word of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Require => "require",
            Self::Refuse => "refuse",
        }
    }
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Largest value of the length keys of iSCSI.
///
/// Spec: RFC 7143 sections 13.12 to 13.14.
const ISCSI_LENGTH_MAX: u64 = (1 << 24) - 1;

const fn is_within(min: u64, value: u64, max: u64) -> bool {
    min <= value && value <= max
}

/// A limit that is a number: how it is documented, checked and set.
pub(crate) struct Number {
    pub(crate) name: &'static str,
    pub(crate) min: u64,
    pub(crate) max: u64,
    pub(crate) is_bytes: bool,
    pub(crate) set: fn(&mut Limits, u64),
}

/// Writes the struct, its defaults, the keys and the setters from one list.
macro_rules! limits {
    ($(
        $meaning:literal
        $name:ident: $kind:ident $type:ty = $default:expr, $min:expr => $max:expr, for $needed_by:literal;
    )*) => {
        /// Limits of the data plane and parameters of the protocol. Units are in the names.
        #[derive(Clone, Debug, Eq, PartialEq)]
        pub struct Limits {
            $(#[doc = $meaning] pub $name: $type,)*
            /// Whether the initiator must wait for R2T with all data of a WRITE (InitialR2T).
            pub initial_r2t: bool,
            /// Whether a WRITE command may carry data itself (ImmediateData).
            pub immediate_data: bool,
            /// Digest of the headers.
            pub header_digest: DigestPolicy,
            /// Digest of the data.
            pub data_digest: DigestPolicy,
        }

        impl Default for Limits {
            fn default() -> Self {
                Self {
                    $($name: $default,)*
                    initial_r2t: false,
                    immediate_data: true,
                    header_digest: DigestPolicy::Allow,
                    data_digest: DigestPolicy::Allow,
                }
            }
        }

        /// All limits that are numbers.
        pub(crate) const NUMBERS: &[Number] = &[$(Number {
            name: stringify!($name),
            min: $min,
            max: $max,
            is_bytes: limits!(@is_bytes $kind),
            set: |limits, value| {
                // The assertion below makes every value of the range fit.
                limits.$name = <$type>::try_from(value).unwrap_or(<$type>::MAX);
            },
        },)*];

        /// The keys of the section with their values.
        pub(crate) const LIMIT_VALUES: [KeyOf<Limits>; NUMBERS.len() + 4] = [
            $(KeyOf {
                name: stringify!($name),
                value: |_, limits| Some(limits!(@value $kind u64::from(limits.$name))),
            },)*
            KeyOf {
                name: "initial_r2t",
                value: |_, limits| Some(limits.initial_r2t.to_string()),
            },
            KeyOf {
                name: "immediate_data",
                value: |_, limits| Some(limits.immediate_data.to_string()),
            },
            KeyOf {
                name: "header_digest",
                value: |_, limits| Some(quoted(limits.header_digest.as_str())),
            },
            KeyOf {
                name: "data_digest",
                value: |_, limits| Some(quoted(limits.data_digest.as_str())),
            },
        ];

        $(const _: () = assert!($max <= <$type>::MAX as u64);)*
        $(const _: () = assert!(is_within($min, $default as u64, $max));)*

        /// The keys of the section.
        pub(crate) const LIMIT_KEYS: [Key; NUMBERS.len() + 4] = [
            $(Key {
                name: stringify!($name),
                form: limits!(@form $kind $min, $max),
                default: Fallback::Number($default as u64),
                meaning: $meaning,
                needed_by: $needed_by,
            },)*
            Key {
                name: "initial_r2t",
                form: Form::Flag,
                default: Fallback::Value("false"),
                meaning: "Whether the initiator must wait for R2T with all data of a WRITE (InitialR2T).",
                needed_by: "who has little memory and many initiators",
            },
            Key {
                name: "immediate_data",
                form: Form::Flag,
                default: Fallback::Value("true"),
                meaning: "Whether a WRITE command may carry data itself (ImmediateData).",
                needed_by: "who tests initiators",
            },
            Key {
                name: "header_digest",
                form: Form::OneOf(&["allow", "require", "refuse"]),
                default: Fallback::Value("\"allow\""),
                meaning: "CRC32C over the headers: as the initiator wishes, always, or never.",
                needed_by: "who does not trust the network",
            },
            Key {
                name: "data_digest",
                form: Form::OneOf(&["allow", "require", "refuse"]),
                default: Fallback::Value("\"allow\""),
                meaning: "CRC32C over the data: as the initiator wishes, always, or never.",
                needed_by: "who does not trust the network",
            },
        ];
    };
    (@value number $value:expr) => { $value.to_string() };
    (@value bytes $value:expr) => { size($value) };
    (@is_bytes number) => { false };
    (@is_bytes bytes) => { true };
    (@form number $min:expr, $max:expr) => { Form::Number { min: $min, max: $max } };
    (@form bytes $min:expr, $max:expr) => { Form::Bytes { min: $min, max: $max } };
}

limits! {
    "Sessions at once, over all targets; a login beyond is refused with \"out of resources\"."
    sessions_max: number u32 = 10_000, 1 => 65_535,
        for "who has more initiators, or little memory";

    "Connections of one session (MaxConnections)."
    connections_per_session_max: number u16 = 8, 1 => 64,
        for "who uses multi-connection sessions on many links";

    "Connections at once that have not finished their login; one more ends the oldest of the address that has the most."
    connections_in_login_max: number u32 = 1024, 1 => 65_535,
        for "who boots thousands of machines in the same second";

    "Seconds a login may take from connection to full feature phase."
    login_timeout_seconds: number u32 = 15, 1 => 300,
        for "who has very slow links";

    "Discovery sessions at once; they take no place of others, and one more ends the oldest of the address that has the most."
    discovery_sessions_max: number u32 = 1000, 1 => 16_384,
        for "who has thousands of initiators that ask at the same time";

    "Seconds a discovery session may last."
    discovery_lifetime_seconds: number u32 = 60, 1 => 86_400,
        for "whose initiators keep discovery sessions open";

    "Connections in login and discovery sessions that one address (of IPv6: one /64 network) may have; one more ends its oldest. Sessions of targets do not count."
    unproved_per_address_max: number u32 = 256, 1 => 65_535,
        for "who has many initiators behind one address";

    "Bytes that peers which have not proved to be a user may make the target hold in all: unfinished logins, discovery sessions, requests that wait for their turn; users that have proved it have as much for themselves. One session or login takes at most 64K of it."
    unproved_memory_bytes: bytes u64 = 128 * MIB, MIB => 64 * GIB,
        for "who has little memory";

    "Seconds a command number (CmdSN) may be missing that later requests of its session wait for; then the session ends."
    command_gap_seconds: number u32 = 30, 1 => 300,
        for "who has sessions over several links, one of them very slow";

    "Seconds of silence after which the initiator is pinged; 0 is never."
    nop_interval_seconds: number u32 = 30, 0 => 3600,
        for "who wants dead peers found sooner";

    "Seconds a ping may stay without an answer before the connection is dropped."
    nop_timeout_seconds: number u32 = 20, 1 => 300,
        for "who wants dead peers found sooner";

    "Commands a session may have open at once (the CmdSN window)."
    queue_depth: number u16 = 128, 1 => 4096,
        for "who has fast disks and few sessions";

    "Bytes of data buffers on each core; all data under way lies in them."
    pool_per_core_bytes: bytes u64 = 256 * MIB, 8 * MIB => 64 * GIB,
        for "who has many sessions with large transfers, or little memory";

    "Seconds an aborted command may wait for its store before task management answers that it was rejected."
    task_deadline_seconds: number u32 = 5, 1 => 300,
        for "who has stores that hang, such as network file systems";

    "Seconds a clean end may take: initiators are asked to log out, then they are dropped."
    shutdown_timeout_seconds: number u32 = 5, 1 => 300,
        for "whose service manager kills sooner, or whose stores flush slowly";

    "Seconds a core may go without a turn, held by the kernel or by a fault of Tarn, before the process ends so that a service manager starts it anew; after 5 s it is reported."
    core_stall_limit_seconds: number u32 = 60, 10 => 3600,
        for "machines that stop for long, such as virtual machines that are moved";

    "Milliseconds after which a command is slow: `tarn events` and the log tell what it waited for; 0 is never. A change is in force at once."
    slow_command_ms: number u32 = 1000, 0 => 600_000,
        for "who looks for the cause of pauses";

    "Largest sequence of data for one R2T or one run of Data-In (MaxBurstLength)."
    max_burst_bytes: bytes u32 = 1024 * 1024, 512 => ISCSI_LENGTH_MAX,
        for "who measures";

    "Largest amount of unsolicited data of a WRITE (FirstBurstLength); at most max_burst_bytes."
    first_burst_bytes: bytes u32 = 256 * 1024, 512 => ISCSI_LENGTH_MAX,
        for "who measures, or has little memory";

    "Largest data segment the target accepts (MaxRecvDataSegmentLength)."
    max_recv_data_segment_bytes: bytes u32 = 1024 * 1024, 512 => ISCSI_LENGTH_MAX,
        for "who measures";

    "R2Ts that a WRITE may have open at once (MaxOutstandingR2T)."
    outstanding_r2t_max: number u16 = 4, 1 => 64,
        for "who has long links";
}

impl Limits {
    /// Checks the relations between limits; the ranges are checked as they are read.
    ///
    /// # Errors
    ///
    /// [`Rule::LimitsCross`].
    pub(crate) fn check(&self) -> Result<(), Rule> {
        // Spec: RFC 7143 section 13.14, FirstBurstLength must not exceed MaxBurstLength.
        if self.first_burst_bytes > self.max_burst_bytes {
            return Err(Rule::LimitsCross {
                small: "first_burst_bytes",
                small_value: u64::from(self.first_burst_bytes),
                large: "max_burst_bytes",
                large_value: u64::from(self.max_burst_bytes),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_together() {
        assert_eq!(Limits::default().check(), Ok(()));
    }

    #[test]
    fn a_first_burst_may_equal_the_burst_and_not_exceed_it() {
        let mut limits = Limits::default();
        limits.first_burst_bytes = limits.max_burst_bytes;
        assert_eq!(limits.check(), Ok(()));
        limits.first_burst_bytes += 1;
        assert_eq!(
            limits.check().unwrap_err().to_string(),
            "first_burst_bytes 1048577 exceeds max_burst_bytes 1048576; lower the first or raise the second"
        );
    }

    #[test]
    fn every_setter_reaches_a_field_of_its_own() {
        let mut seen = Vec::new();
        for number in NUMBERS {
            let mut limits = Limits::default();
            (number.set)(&mut limits, number.max);
            assert_ne!(limits, Limits::default(), "{}", number.name);
            assert!(!seen.contains(&limits), "{}", number.name);
            seen.push(limits);
        }
    }
}
