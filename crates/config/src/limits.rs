//! Limits of the data plane and parameters of the protocol: name, default, range, reason.
//!
//! Relations between two limits are checked by [`Limits::check`] and, for the defaults, by the
//! compiler.

use crate::keys::{Fallback, Form, Key};
use crate::value::{KeyOf, quoted, size};
use crate::words::words;

/// Two limits that cannot both hold.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{small} {small_value} exceeds {large} {large_value}; lower the first or raise the second")]
pub(crate) struct LimitsCross {
    /// The one that must be smaller.
    pub(crate) small: &'static str,
    /// Its value.
    pub(crate) small_value: u64,
    /// The one that must be larger.
    pub(crate) large: &'static str,
    /// Its value.
    pub(crate) large_value: u64,
}

words! {
    /// Whether a CRC32C digest is used on a connection.
    ///
    /// Spec: RFC 7143 section 13.1.
    #[derive(Default)]
    DigestPolicy {
        /// As the initiator wishes.
        #[default]
        Allow = "allow",
        /// A login that does not agree on CRC32C is refused.
        Require = "require",
        /// Never.
        Refuse = "refuse",
    }
    "allow, require or refuse"
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
        $name:ident: $kind:ident $type:ty = $default:expr, $min:expr => $max:expr, set it $set_it:literal;
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
                value: |limits| Some(limits!(@value $kind u64::from(limits.$name))),
            },)*
            KeyOf {
                name: "initial_r2t",
                value: |limits| Some(limits.initial_r2t.to_string()),
            },
            KeyOf {
                name: "immediate_data",
                value: |limits| Some(limits.immediate_data.to_string()),
            },
            KeyOf {
                name: "header_digest",
                value: |limits| Some(quoted(limits.header_digest.as_str())),
            },
            KeyOf {
                name: "data_digest",
                value: |limits| Some(quoted(limits.data_digest.as_str())),
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
                set_it: $set_it,
            },)*
            Key {
                name: "initial_r2t",
                form: Form::Flag,
                default: Fallback::Value("false"),
                meaning: "Whether the initiator must wait for R2T with all data of a WRITE (InitialR2T).",
                set_it: "for many initiators with little memory",
            },
            Key {
                name: "immediate_data",
                form: Form::Flag,
                default: Fallback::Value("true"),
                meaning: "Whether a WRITE command may carry data itself (ImmediateData).",
                set_it: "to test initiators",
            },
            Key {
                name: "header_digest",
                form: Form::OneOf(&["allow", "require", "refuse"]),
                default: Fallback::Value("\"allow\""),
                meaning: "CRC32C over the headers: `allow` if the initiator asks for it, `require` always, \
                    `refuse` never.",
                set_it: "if the network is not trusted",
            },
            Key {
                name: "data_digest",
                form: Form::OneOf(&["allow", "require", "refuse"]),
                default: Fallback::Value("\"allow\""),
                meaning: "CRC32C over the data: `allow` if the initiator asks for it, `require` always, \
                    `refuse` never.",
                set_it: "if the network is not trusted",
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
    "Sessions at once, over all targets. One more login is refused with \"out of resources\". One user or address \
     gets at most eight ninths of them."
    sessions_max: number u32 = 10_000, 1 => 65_535,
        set it "for more initiators, or with little memory";

    "Connections of one session (MaxConnections)."
    connections_per_session_max: number u16 = 8, 1 => 64,
        set it "for sessions over more than 8 links, or to allow fewer";

    "Connections at once that have not finished their login. One more closes the oldest one of the address \
        that has the most."
    connections_in_login_max: number u32 = 1024, 1 => 65_535,
        set it "if thousands of machines boot in the same second";

    "Seconds a login may take from connection to full feature phase."
    login_timeout_seconds: number u32 = 15, 1 => 300,
        set it "for very slow links";

    "Discovery sessions at once, not counted as sessions. One more closes the oldest one of the address that \
        has the most."
    discovery_sessions_max: number u32 = 1000, 1 => 16_384,
        set it "for thousands of initiators that start at the same time";

    "Seconds a discovery session may last."
    discovery_lifetime_seconds: number u32 = 60, 1 => 86_400,
        set it "if initiators keep discovery sessions open";

    "Connections in login and discovery sessions that one address (with IPv6, one /64 network) may have. One \
        more closes the oldest of them. Sessions of targets do not count."
    unproved_per_address_max: number u32 = 256, 1 => 65_535,
        set it "for many initiators behind one address";

    "Memory of all unauthenticated peers together, in bytes: three quarters for logins and discovery, a quarter for \
     waiting requests of their sessions. Authenticated users have as much for themselves. The LUNs that sessions see \
     have as much again (four times as much for users): those beyond the first 16 of a session count 512 bytes each. A \
     login without room is refused."
    unproved_memory_bytes: bytes u64 = 128 * MIB, MIB => 64 * GIB,
        set it "with little memory";

    "Seconds that the requests of a session wait for a missing command number (CmdSN). Then the session ends."
    command_gap_seconds: number u32 = 30, 1 => 300,
        set it "for sessions over several links, one of them very slow";

    "Seconds of silence after which the initiator is pinged; 0 means never."
    nop_interval_seconds: number u32 = 30, 0 => 3600,
        set it "to find dead peers sooner";

    "Seconds to wait for the answer to a ping before the connection is closed."
    nop_timeout_seconds: number u32 = 20, 1 => 300,
        set it "to find dead peers sooner";

    "Commands that a session may have under way at once (the CmdSN window)."
    queue_depth: number u16 = 128, 1 => 4096,
        set it "for fast disks and few sessions";

    "Size of the data buffers of each core, in bytes; all data under way is in them."
    pool_per_core_bytes: bytes u64 = 256 * MIB, 8 * MIB => 64 * GIB,
        set it "for many sessions with large transfers, or with little memory";

    "Seconds that task management waits for an aborted command whose store does not answer, before it answers \
        FUNCTION REJECTED."
    task_deadline_seconds: number u32 = 5, 1 => 300,
        set it "for stores that can hang, such as network file systems";

    "Seconds that initiators have to log out when Tarn ends, before their connections are closed."
    shutdown_timeout_seconds: number u32 = 5, 1 => 300,
        set it "if the service manager kills sooner, or stores flush slowly";

    "Seconds that a core may be stuck, in the kernel or by a fault of Tarn, before the process ends, so that \
        a service manager can restart it. After 5 s it is reported."
    core_stall_limit_seconds: number u32 = 60, 10 => 3600,
        set it "on machines that stop for long, such as virtual machines that are moved";

    "Milliseconds after which a command is slow: `tarn events` and the log report what it waited for; 0 means never."
    slow_command_ms: number u32 = 1000, 0 => 600_000,
        set it "to find the cause of pauses";

    "Largest sequence of Data-Out for one R2T, or of Data-In (MaxBurstLength)."
    max_burst_bytes: bytes u32 = 1024 * 1024, 512 => ISCSI_LENGTH_MAX,
        set it "for measurements";

    "Largest amount of unsolicited data of a WRITE (FirstBurstLength); at most max_burst_bytes."
    first_burst_bytes: bytes u32 = 256 * 1024, 512 => ISCSI_LENGTH_MAX,
        set it "for measurements, or with little memory";

    "Largest data segment the target accepts (MaxRecvDataSegmentLength)."
    max_recv_data_segment_bytes: bytes u32 = 1024 * 1024, 512 => ISCSI_LENGTH_MAX,
        set it "for measurements";

    "R2Ts that a WRITE may have open at once (MaxOutstandingR2T)."
    outstanding_r2t_max: number u16 = 4, 1 => 64,
        set it "for links with high latency";
}

impl Limits {
    /// Checks the relations between limits; the ranges are checked as they are read.
    ///
    /// # Errors
    ///
    /// They cross.
    pub(crate) fn check(&self) -> Result<(), LimitsCross> {
        // Spec: RFC 7143 section 13.14, FirstBurstLength must not exceed MaxBurstLength.
        if self.first_burst_bytes > self.max_burst_bytes {
            return Err(LimitsCross {
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
