//! Small bodies of requests, and who asks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Role;
use crate::edit::View;
use crate::event::{Event, Severity};
use crate::spec;

/// Another size for a unit.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The new size.
    pub size_bytes: u64,
}

/// The way out for the medium of a unit.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Eject {
    /// Although initiators prevent the removal.
    #[serde(default)]
    pub force: bool,
}

/// Another id for a unit.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new id.
    pub id: String,
}

/// Snapshots of units.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshots {
    /// The units: all of them at one moment, and all or none.
    pub luns: Vec<String>,
    /// What each of the snapshots is called: letters, digits, `.`, `_` and `-`, at most 64; the time in UTC if it is
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A new unit with the data of a snapshot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClone {
    /// The unit. Its STORE is a file that is not there, on the file system of the snapshot.
    pub lun: spec::Lun,
    /// Where a target shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<View>,
}

/// The way back to a revision.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The revision whose document is to run again, as a new revision.
    pub revision: u64,
    /// What it is for, for the history; one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// How much a trace keeps.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tracing {
    /// Of the data of each SCSI PDU and ping; 64 if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 8192)]
    pub data_bytes: Option<u32>,
    /// In all, as a file; 1 MiB if it is absent. The oldest PDUs go for new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 65536, maximum = 16777216)]
    pub keep_bytes: Option<u32>,
}

/// The way into the console.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// A token of a role above `metrics`.
    pub token: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").finish_non_exhaustive()
    }
}

/// Who asks.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct WhoAmI {
    /// The token's name, or `uid 0` on the socket.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// What a browser's changes bring along as `X-Tarn-CSRF`; empty where none is needed.
    pub csrf: String,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct EventQuestion {
    /// Those with a number above this, the oldest of them first; `None`: the newest there are.
    pub after: Option<u64>,
    /// At most so many.
    pub most: usize,
    /// Those as bad as this or worse.
    pub severity: Severity,
    /// Those of these kinds; empty: of any.
    pub kinds: Vec<String>,
    /// Those about this unit.
    pub lun: Option<String>,
    /// Those about this target.
    pub target: Option<String>,
    /// Those about this initiator.
    pub initiator: Option<String>,
    /// Those about, or by, this user or administrator.
    pub user: Option<String>,
    /// Those from this moment on, in milliseconds since 1970-01-01 UTC.
    pub since_ms: Option<u64>,
}

impl EventQuestion {
    /// All after `number`, `most` at a time.
    #[must_use]
    pub fn after(number: u64, most: usize) -> Self {
        Self {
            after: Some(number),
            most,
            ..Self::default()
        }
    }

    /// Whether it asks for this event, whatever its number.
    #[must_use]
    pub fn wants(&self, event: &Event) -> bool {
        let is = |asked: &Option<String>, found: &[Option<&String>]| {
            asked
                .as_ref()
                .is_none_or(|asked| found.contains(&Some(asked)))
        };
        event.severity >= self.severity
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && is(&self.lun, &[event.lun.as_ref()])
            && is(&self.target, &[event.target.as_ref()])
            && is(&self.initiator, &[event.initiator.as_ref()])
            && is(&self.user, &[event.user.as_ref(), event.author.as_ref()])
            && self.since_ms.is_none_or(|since| event.at_ms >= since)
    }
}
