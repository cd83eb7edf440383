//! What a change would do, what it has done, what was before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Role;
use crate::problem::{Mistake, ProblemKind};

/// The configuration that runs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Document {
    /// Its revision.
    pub revision: u64,
    /// TOML, with its comments.
    pub text: String,
}

/// The way from the running configuration to another one.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Plan {
    /// The revision it starts from.
    pub revision: u64,
    /// What would be done, in this order; empty when nothing differs.
    pub steps: Vec<Step>,
    /// Applying it now would succeed, as far as it was looked at.
    pub is_applicable: bool,
    /// The text is not the one that runs, if only in comments.
    #[serde(default)]
    pub changes_text: bool,
    /// What is legal and most likely not meant.
    pub warnings: Vec<String>,
    /// All that was found wrong by looking: stores, addresses, secrets, certificates. Each is the reason of a refused
    /// step, too, where it belongs to one. Steps that are refused by a rule are not here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
    /// What applying it now would be answered with, if it would fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ProblemKind>,
    /// What was not looked at, and may still keep it from being applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_probed: Vec<String>,
}

/// What a plan may look at besides the document and what runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Inspection {
    /// Secret files, stores, servers and addresses: for those who may read any file of the daemon anyway.
    Files,
    /// Nothing. No path of the document is looked at and no secret is compared, so the plan shows
    /// nothing that the document and the running configuration do not.
    DocumentOnly,
}

impl Inspection {
    /// The one table from a role to what its plans look at.
    pub const fn of(role: Role) -> Self {
        match role {
            Role::Admin => Self::Files,
            Role::Operator | Role::Viewer | Role::Metrics => Self::DocumentOnly,
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Step {
    /// What happens.
    pub action: Action,
    /// To what kind of thing.
    pub kind: Kind,
    /// Its id, name, address or key.
    pub name: String,
    /// What differs, one line, as `store: "mem:1G" -> "mem:2G"`.
    pub detail: String,
    /// With what consequence.
    pub effect: Effect,
    /// Why it is refused, and the remedy; or what is drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The sessions that end with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions_ended: Vec<u64>,
    /// What it takes away from sessions, the busiest first; at most 100, of `taken_count`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// How many units, or sessions without one, it takes away from sessions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub taken_count: u64,
    /// What becomes of the data of a store that is no longer served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataFate>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Something that a session uses and loses.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Taken {
    /// The session.
    pub session: u64,
    /// InitiatorName.
    pub initiator: String,
    /// TargetName; absent for sessions that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The logical unit number; absent where the session sees none and ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// The unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Commands of that initiator to that unit in the last second.
    pub ios_per_second: u64,
}

/// What becomes of data.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum DataFate {
    /// It stays where it is: in its file, on its device, with its server.
    Stays,
    /// It is in the memory of Tarn, and is lost.
    Lost,
}

/// What a step does.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It is new.
    Add,
    /// It differs.
    Change,
    /// It is gone.
    Remove,
}

/// What a step is about.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A logical unit.
    Lun,
    /// A named store.
    Store,
    /// A target.
    Target,
    /// An address of a target.
    Portal,
    /// A unit as a target shows it.
    View,
    /// A group of initiators.
    Group,
    /// A CHAP user.
    User,
    /// A server of NBD.
    Nbd,
    /// A group of HyperSCSI.
    #[serde(rename = "hyperscsi")]
    HyperScsi,
    /// A quota.
    Quota,
    /// A web server that gets events.
    Notify,
    /// A key of `[server]`.
    Server,
    /// A key of `[limits]`.
    Limits,
    /// A key of `[admin]`.
    Admin,
    /// A key of `[confine]`.
    Confine,
}

/// What a step costs those who work meanwhile.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nobody loses anything; initiators learn of it by unit attention.
    Online,
    /// Sessions lose what they use now.
    TakesAway,
    /// Commands that are under way on it are ended first; nobody uses it now.
    Drains,
    /// It takes effect when Tarn starts again.
    Pending,
    /// It cannot be done, for the reason that is given.
    Refused,
}

/// A change to be made: the whole new configuration.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// TOML.
    pub text: String,
    /// What it is for, for the history; one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// How a new document came about, which its text does not show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// Somebody wrote it. Which of its units is one that runs under another `id` is found by comparing.
    Written,
    /// It ran before, and is to run again as far as it can.
    Past,
    /// Edits made it of the document that runs.
    Edited {
        /// The units that have another `id` now: the new one, and the one before.
        renames: BTreeMap<String, String>,
        /// Who asks for them: a change does nothing that this role may not do.
        role: Role,
    },
}

/// A change that was made.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Applied {
    /// The revision that runs now; the old one when nothing differed.
    pub revision: u64,
    /// What was done.
    pub steps: Vec<Step>,
    /// The text is not the one that ran before, if only in comments.
    #[serde(default)]
    pub changes_text: bool,
    /// What is legal and most likely not meant, and was not so before.
    pub warnings: Vec<String>,
    /// Why the change, which is in force, may not have taken effect everywhere yet. There is
    /// nothing to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
}

/// A revision of the past, or the one that runs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Revision {
    /// Its number.
    pub revision: u64,
    /// When it was applied.
    pub applied_ms: u64,
    /// Who applied it: `uid 1000` on the socket, the token's name elsewhere, `start` for a file
    /// read at the start, `SIGHUP` for one read again.
    pub author: String,
    /// What it was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Its steps, one line each.
    pub summary: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_admin_has_files_looked_at() {
        for (role, inspection) in [
            (Role::Metrics, Inspection::DocumentOnly),
            (Role::Viewer, Inspection::DocumentOnly),
            (Role::Operator, Inspection::DocumentOnly),
            (Role::Admin, Inspection::Files),
        ] {
            assert_eq!(Inspection::of(role), inspection, "{role:?}");
        }
    }
}
