//! Who may ask: tokens and roles.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a token may do. Each may do what those before it may.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Read `/metrics`, nothing else.
    Metrics,
    /// Read everything but secrets.
    Viewer,
    /// End sessions, trace them, resize and rename LUNs, eject and load their media, take snapshots; no users, no
    /// tokens, no targets.
    Operator,
    /// Everything.
    Admin,
}

/// A token to be made.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// For the audit log and to revoke it.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

/// A token, as it is listed.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// When it was made.
    pub made_ms: u64,
    /// The token itself: in the answer to the request that made it, and never again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}
