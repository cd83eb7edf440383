//! Counters. All grow from the start of what they belong to, and never shrink; rates are the difference of two
//! readings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Upper bounds of the buckets of a latency histogram, in microseconds, each inclusive; one more
/// bucket holds what is above the last. Two to the octave.
pub const LATENCY_BOUNDS_US: [u64; 40] = {
    let mut bounds = [0; 40];
    let mut at = 0;
    while at < bounds.len() {
        let octave = 1 << (at / 2 + 2);
        bounds[at] = if at % 2 == 0 {
            octave
        } else {
            octave + octave / 2
        };
        at += 1;
    }
    bounds
};

/// Everything that is counted, at one moment.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Stats {
    /// When it was read.
    pub at_ms: u64,
    /// Each core.
    pub cores: Vec<Core>,
    /// Commands, by unit and initiator. Beyond the limit of series those that came last are
    /// counted together under the initiator `other`.
    pub series: Vec<Series>,
    /// Commands that failed because of a store, by unit and cause, since the unit was opened. Unit attentions,
    /// reservations and bad commands are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub store_errors: Vec<StoreErrors>,
    /// Logins.
    pub logins: Logins,
    /// Sessions now.
    pub sessions: u32,
    /// The connections of units whose data others have.
    #[serde(default)]
    pub stores: Vec<Connections>,
}

/// How the store of a unit reaches those who have its data: servers of NBD, a Ceph cluster.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Connections {
    /// The unit.
    pub lun: String,
    /// Connections that are up; an image that is open is one.
    pub up: u64,
    /// How often one was made again that was up before.
    pub again: u64,
    /// Requests that wait for one, or for an answer on one that is silent.
    pub held: u64,
}

/// What HyperSCSI counts, on all cores together. For metrics.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Hyperscsi {
    /// Frames, by what became of them.
    pub frames: Vec<(&'static str, u64)>,
    /// What else happened, by its kind.
    pub events: Vec<(&'static str, u64)>,
    /// Places, and on how many cores each is away.
    pub places: Vec<(String, u64)>,
}

/// A core.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Core {
    /// Its number.
    pub core: u32,
    /// Processor time it has used.
    pub busy_us: u64,
    /// Turns of its loop.
    pub turns: u64,
    /// Sessions that live on it.
    pub sessions: u32,
    /// Memory for data in flight.
    pub pool_bytes: u64,
    /// How much of it is not in use.
    pub pool_free_bytes: u64,
    /// Commands that had to wait for memory.
    pub starved: u64,
}

/// The commands of one initiator to one unit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Series {
    /// The unit.
    pub lun: String,
    /// InitiatorName, or `other`.
    pub initiator: String,
    /// Commands that wait for something: data, the store, another command.
    pub depth: u32,
    /// Commands that took longer than `slow_command_ms` of `[limits]`, aborted ones too.
    #[serde(default)]
    pub slow: u64,
    /// Commands that read the medium.
    pub read: Operations,
    /// Commands that write the medium.
    pub write: Operations,
    /// All others.
    pub other: Operations,
}

/// What was counted of one kind of command.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Operations {
    /// Commands that were answered.
    pub count: u64,
    /// Data that went with them.
    pub bytes: u64,
    /// Commands that were not answered GOOD.
    pub errors: u64,
    /// The sum of their latencies.
    pub latency_us: u64,
    /// How many fell into each bucket of [`LATENCY_BOUNDS_US`], and one more for those above; empty
    /// when there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<u64>,
}

/// Commands that failed because of a store, for one cause.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct StoreErrors {
    /// The unit.
    pub lun: String,
    /// The name of an error number (`EIO`, `ENOSPC`), or `truncated`, `flush-failed`, `not-ready`, `unknown`.
    pub errno: String,
    /// How many.
    pub count: u64,
}

/// The space that units have, and that of the file systems they are on.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Space {
    /// Units.
    pub luns: Vec<LunSpace>,
    /// File systems with files of units.
    pub file_systems: Vec<FileSystemSpace>,
}

/// The space of a unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct LunSpace {
    /// The unit.
    pub lun: String,
    /// What it is for initiators, as `type` of `/luns`.
    #[serde(default, rename = "type")]
    #[schema(required = true)]
    pub device_type: String,
    /// What initiators see.
    pub size_bytes: u64,
    /// What its files take where they are; `None` where it has none, or nothing is known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<u64>,
}

/// The space of a file system.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct FileSystemSpace {
    /// One of the files on it.
    pub path: String,
    /// All.
    pub size_bytes: u64,
    /// What others than root may still write.
    pub free_bytes: u64,
    /// What the files of units may still take: where it is more than is free, the file system is over-committed.
    pub promised_bytes: u64,
}

/// Logins since the start.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct Logins {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Logins that led to a session or joined one.
    pub succeeded: u64,
    /// Logins that failed.
    pub failed: Vec<LoginFailures>,
}

/// Logins that failed for one cause.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct LoginFailures {
    /// As `authentication-failure`, `not-found`, `timeout`.
    pub cause: String,
    /// How many.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_grow_by_half_an_octave() {
        assert_eq!(LATENCY_BOUNDS_US[..6], [4, 6, 8, 12, 16, 24]);
        assert_eq!(LATENCY_BOUNDS_US[39], 3 << 20);
    }
}
