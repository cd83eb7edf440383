//! What happened, and what an administrator should know.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Something that happened. The last some thousand are kept.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Event {
    /// Grows by one; a gap means that events were dropped.
    pub number: u64,
    /// When.
    pub at_ms: u64,
    /// How bad.
    pub severity: Severity,
    /// As `session-begun`, `session-ended`, `login-failed`, `config-applied`, `lun-resized`,
    /// `store-failed`, `slow-command`.
    pub kind: String,
    /// One line for people.
    pub message: String,
    /// The unit it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<String>,
    /// The target it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The initiator it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Who did it, if an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// How bad.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Look at it.
    Warning,
    /// Somebody's request did not happen.
    Error,
}

/// What limits or endangers the service, in words: `tarn doctor`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Finding {
    /// How bad.
    pub severity: Severity,
    /// As `no-auth`, `write-cache`, `socket-buffers`; stable, for scripts.
    pub code: String,
    /// What it is about: an id, a name, an address; empty for the whole daemon.
    pub subject: String,
    /// What is the matter, with the figure that shows it.
    pub message: String,
    /// What to do.
    pub remedy: String,
}
