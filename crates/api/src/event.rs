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
    /// Of initiators `session-began`, `session-ended`, `connection-joined`, `login-failed`,
    /// `slow-command`, `command-hangs`, `slow-send`; of units `lun-resized`, `medium-ejected`,
    /// `medium-loaded`, `snapshot-taken`, `snapshot-removed`, `snapshot-restored`, `snapshot-missed`,
    /// `rollback-failed`, `lun-flattened`, `flatten-failed`, `store-error`, `store-stuck`, `store-freed`,
    /// `store-lost`, `store-reached`, `state-not-kept`, `state-conflict`,
    /// `reservation-conflict`; of quotas `quota-soft`,
    /// `quota-full`, `quota-free`; of findings `finding-began`, `finding-ended`; of cores `core-stalled`; of
    /// the start `state-damaged`, `state-unwritable`, `state-foreign`, `reservations-lost`,
    /// `lun-withheld`, `administration`; of administrators `config-applied`, `admin-change`,
    /// `admin-read`, `admin-refused`.
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
    /// The user that the initiator has proved to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Who did it, if an administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The command it is about, of `slow-command` and `command-hangs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<SlowCommand>,
}

/// A command that took long, or still does.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct SlowCommand {
    /// The id of its session.
    pub session: u64,
    /// Initiator Task Tag.
    pub task_tag: u32,
    /// Its name in the standards.
    pub name: String,
    /// The first block, if the CDB names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lba: Option<u64>,
    /// How many blocks, if the CDB names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// Data that goes with it.
    pub bytes: u32,
    /// From its header to the moment its answer was given to the kernel, or until now.
    pub took_us: u64,
    /// Its status in the words of the standard, or `aborted`; absent while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What it waited for, in the order in which it began to.
    pub phases: Vec<CommandPhase>,
    /// What is left of the time: the core was at work, for it or for others.
    pub core_us: u64,
    /// How many slow commands of its core were not reported since the last one that was.
    pub untold: u64,
}

/// How long a command waited for something.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct CommandPhase {
    /// For what: `arrival` (its immediate data, the commands before it), `order` (older commands, as
    /// its task attribute asks), `data` (Data-Out), `memory`, `fence` (others on the same blocks),
    /// `owner` (a change of state that all cores share), `store`.
    pub phase: String,
    /// When it began to, counted from its arrival.
    pub from_us: u64,
    /// How long, all times taken together.
    pub us: u64,
}

/// How bad.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Deserialize,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
    ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know.
    #[default]
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
    /// Stable, for scripts. Of the state `lun-withheld`, `reservations-lost`, `state-damaged`,
    /// `state-unwritable`, `state-foreign`, `state-conflict`, `administration`; of the configuration
    /// file `file-invalid`, `file-edited`, `restart-pending`; of the service `notify-failed`, `flush-failed`,
    /// `store-lost`, `store-error`, `store-stuck`, `store-slow`, `log-lost`, `reservation-stranded`,
    /// `certificate-expires`, `certificate-last-week`, `certificate-expired`,
    /// `log-failed`, `config`, `cores-busy`, `one-session`, `core-busy`, `buffers-short`, `window-full`,
    /// `write-cache`, `descriptors`, `strangers`, `little-memory`,
    /// `socket-buffers`, `violations`, `digests`, `clock`, `trace`; of the network `mtu`,
    /// `unanswered`, `retransmissions`, `frames-lost`, `frames-corrupt`, `receive-window`, `send-buffer`; of files
    /// `file-system`, `space`, `file-replaced`, `store-short`, `disc-cut`, `snapshot-missed`; of quotas `quota-soft`,
    /// `quota-full`, `quota-exceeded`.
    pub code: String,
    /// What it is about: an id, a name, an address; empty for the whole daemon.
    pub subject: String,
    /// The unit it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<String>,
    /// What is the matter, with the figure that shows it.
    pub message: String,
    /// What to do.
    pub remedy: String,
}
