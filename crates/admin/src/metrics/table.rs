//! The table of metrics.

use api::stats::{Core, LoginFailures, Operations, Series};
use api::view::{Session, Status};

use super::Snapshot;

/// What kind of metric it is.
///
/// Spec: OpenMetrics 1.0, section Metric Types.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// It only grows, but for a restart.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
    /// Text in labels, and the value 1.
    Info,
}

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// As it is.
    Count(u64),
    /// Microseconds, to be written as seconds.
    Micros(u64),
    /// Milliseconds, to be written as seconds.
    Millis(u64),
}

/// Of what the metric has samples, and how one is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Samples {
    /// One.
    One(fn(&Snapshot) -> Value),
    /// One with text of the daemon in the labels.
    OfStatus(fn(&Status) -> Vec<String>),
    /// One for each core.
    OfCores(fn(&Core) -> Value),
    /// One for each cause of failed logins.
    OfLogins(fn(&LoginFailures) -> Value),
    /// One for each session, with text in the labels.
    OfSessions(fn(&Session) -> Vec<String>),
    /// One for each session, by its id.
    OfEachSession(fn(&Session) -> Value),
    /// One for each unit and initiator.
    OfSeries(fn(&Series) -> Value),
    /// One for each unit, initiator and operation.
    OfOperations(fn(&Operations) -> Value),
    /// A histogram for each unit, initiator and operation.
    Latencies,
}

/// A metric.
#[derive(Debug)]
pub(super) struct Metric {
    /// Its name, without the suffix of its kind.
    pub(super) name: &'static str,
    /// Its kind.
    pub(super) kind: Kind,
    /// Its unit, which its name ends in; empty where it has none.
    pub(super) unit: &'static str,
    /// Its labels.
    pub(super) labels: &'static [&'static str],
    /// What it says.
    pub(super) help: &'static str,
    /// Its samples.
    pub(super) samples: Samples,
}

impl Metric {
    /// The name of its samples; of a histogram that of the family.
    pub(super) fn sample_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }
}

const OPERATION: &[&str] = &["lun", "initiator", "operation"];

/// All metrics, in the order of the text.
pub(super) static METRICS: &[Metric] = &[
    Metric {
        name: "tarn_build",
        kind: Kind::Info,
        unit: "",
        labels: &["version"],
        help: "Version of Tarn.",
        samples: Samples::OfStatus(|status| vec![status.version.clone()]),
    },
    Metric {
        name: "tarn_start_time_seconds",
        kind: Kind::Gauge,
        unit: "seconds",
        labels: &[],
        help: "When the daemon began, since 1970-01-01 UTC.",
        samples: Samples::One(|all| Value::Millis(all.status.started_ms)),
    },
    Metric {
        name: "tarn_config_revision",
        kind: Kind::Gauge,
        unit: "",
        labels: &[],
        help: "Revision of the configuration that runs.",
        samples: Samples::One(|all| Value::Count(all.status.revision)),
    },
    Metric {
        name: "tarn_luns",
        kind: Kind::Gauge,
        unit: "",
        labels: &[],
        help: "Logical units.",
        samples: Samples::One(|all| Value::Count(all.status.luns.into())),
    },
    Metric {
        name: "tarn_targets",
        kind: Kind::Gauge,
        unit: "",
        labels: &[],
        help: "Targets.",
        samples: Samples::One(|all| Value::Count(all.status.targets.into())),
    },
    Metric {
        name: "tarn_findings",
        kind: Kind::Gauge,
        unit: "",
        labels: &[],
        help: "Findings: what limits or endangers the service; `tarn doctor` lists them.",
        samples: Samples::One(|all| Value::Count(all.status.findings.len() as u64)),
    },
    Metric {
        name: "tarn_sessions",
        kind: Kind::Gauge,
        unit: "",
        labels: &[],
        help: "Sessions, discovery sessions too.",
        samples: Samples::One(|all| Value::Count(all.stats.sessions.into())),
    },
    Metric {
        name: "tarn_session",
        kind: Kind::Info,
        unit: "",
        labels: &["session", "initiator", "target", "portal_group", "core"],
        help: "A session, by its id.",
        samples: Samples::OfSessions(|session| {
            vec![
                session.id.to_string(),
                session.initiator.clone(),
                session.target.clone().unwrap_or_default(),
                session.portal_group.to_string(),
                session.core.to_string(),
            ]
        }),
    },
    Metric {
        name: "tarn_session_commands",
        kind: Kind::Gauge,
        unit: "",
        labels: &["session"],
        help: "Commands that a session has under way.",
        samples: Samples::OfEachSession(|session| Value::Count(session.commands.into())),
    },
    Metric {
        name: "tarn_session_window",
        kind: Kind::Gauge,
        unit: "",
        labels: &["session"],
        help: "Commands that a session may have under way.",
        samples: Samples::OfEachSession(|session| Value::Count(session.window.into())),
    },
    Metric {
        name: "tarn_session_violations",
        kind: Kind::Counter,
        unit: "",
        labels: &["session"],
        help: "Violations of the protocol by the initiator of a session.",
        samples: Samples::OfEachSession(|session| Value::Count(session.violations)),
    },
    Metric {
        name: "tarn_connections_accepted",
        kind: Kind::Counter,
        unit: "",
        labels: &[],
        help: "Connections of initiators that were accepted.",
        samples: Samples::One(|all| Value::Count(all.stats.logins.accepted)),
    },
    Metric {
        name: "tarn_logins",
        kind: Kind::Counter,
        unit: "",
        labels: &[],
        help: "Logins that led to a session or joined one.",
        samples: Samples::One(|all| Value::Count(all.stats.logins.succeeded)),
    },
    Metric {
        name: "tarn_login_failures",
        kind: Kind::Counter,
        unit: "",
        labels: &["cause"],
        help: "Logins that failed.",
        samples: Samples::OfLogins(|failures| Value::Count(failures.count)),
    },
    Metric {
        name: "tarn_scsi_commands",
        kind: Kind::Counter,
        unit: "",
        labels: OPERATION,
        help: "SCSI commands that were answered.",
        samples: Samples::OfOperations(|operations| Value::Count(operations.count)),
    },
    Metric {
        name: "tarn_scsi_bytes",
        kind: Kind::Counter,
        unit: "bytes",
        labels: OPERATION,
        help: "Data that went with SCSI commands.",
        samples: Samples::OfOperations(|operations| Value::Count(operations.bytes)),
    },
    Metric {
        name: "tarn_scsi_errors",
        kind: Kind::Counter,
        unit: "",
        labels: OPERATION,
        help: "SCSI commands that were not answered GOOD.",
        samples: Samples::OfOperations(|operations| Value::Count(operations.errors)),
    },
    Metric {
        name: "tarn_scsi_command_duration_seconds",
        kind: Kind::Histogram,
        unit: "seconds",
        labels: OPERATION,
        help: "From the arrival of a SCSI command to its answer.",
        samples: Samples::Latencies,
    },
    Metric {
        name: "tarn_queue_depth",
        kind: Kind::Gauge,
        unit: "",
        labels: &["lun", "initiator"],
        help: "SCSI commands that wait for something: data, the store, another command.",
        samples: Samples::OfSeries(|series| Value::Count(series.depth.into())),
    },
    Metric {
        name: "tarn_slow_commands",
        kind: Kind::Counter,
        unit: "",
        labels: &["lun", "initiator"],
        help: "SCSI commands that took longer than slow_command_ms of [limits]; `tarn events` reports them.",
        samples: Samples::OfSeries(|series| Value::Count(series.slow)),
    },
    Metric {
        name: "tarn_reactor_busy_seconds",
        kind: Kind::Counter,
        unit: "seconds",
        labels: &["core"],
        help: "Processor time of a core's thread.",
        samples: Samples::OfCores(|core| Value::Micros(core.busy_us)),
    },
    Metric {
        name: "tarn_reactor_turns",
        kind: Kind::Counter,
        unit: "",
        labels: &["core"],
        help: "Turns of a core's loop.",
        samples: Samples::OfCores(|core| Value::Count(core.turns)),
    },
    Metric {
        name: "tarn_reactor_sessions",
        kind: Kind::Gauge,
        unit: "",
        labels: &["core"],
        help: "Sessions that live on a core.",
        samples: Samples::OfCores(|core| Value::Count(core.sessions.into())),
    },
    Metric {
        name: "tarn_pool_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        labels: &["core"],
        help: "Memory for data in flight.",
        samples: Samples::OfCores(|core| Value::Count(core.pool_bytes)),
    },
    Metric {
        name: "tarn_pool_free_bytes",
        kind: Kind::Gauge,
        unit: "bytes",
        labels: &["core"],
        help: "Memory for data in flight that is not in use.",
        samples: Samples::OfCores(|core| Value::Count(core.pool_free_bytes)),
    },
    Metric {
        name: "tarn_starved_commands",
        kind: Kind::Counter,
        unit: "",
        labels: &["core"],
        help: "SCSI commands that had to wait for memory.",
        samples: Samples::OfCores(|core| Value::Count(core.starved)),
    },
];
