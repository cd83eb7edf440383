//! The table of metrics, and what it reads.

use std::collections::BTreeMap;

use api::control::Control;
use api::event::{Finding, Severity};
use api::stats::{
    Connections, Core, FileSystemSpace, Hyperscsi, LoginFailures, LunSpace, Operations, Series,
    Space, Stats, StoreErrors,
};
use api::view::{Certificate, Session, Status};

/// What the daemon counted, at one moment.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) stats: Stats,
    pub(super) status: Status,
    pub(super) space: Space,
    /// How many there are of each rule, severity and unit.
    pub(super) findings: Vec<([String; 3], u64)>,
    /// None when the data plane does not answer.
    pub(super) sessions: Vec<Session>,
    pub(super) hyperscsi: Hyperscsi,
}

impl Snapshot {
    pub(super) fn take(control: &dyn Control) -> Self {
        let status = control.status();
        Self {
            stats: control.stats(),
            findings: by_labels(&status.findings),
            status,
            space: control.space(),
            // Counters are worth most when something hangs.
            sessions: control.sessions().unwrap_or_default(),
            hyperscsi: control.hyperscsi_stats(),
        }
    }
}

/// How many findings there are of each rule, severity and unit.
pub(super) fn by_labels(findings: &[Finding]) -> Vec<([String; 3], u64)> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        let severity = match finding.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let lun = finding.lun.clone().unwrap_or_default();
        let labels = [finding.code.clone(), severity.to_owned(), lun];
        *counts.entry(labels).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

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
    /// One for each certificate in use.
    OfCertificates(fn(&Certificate) -> Value),
    /// One for each core.
    OfCores(fn(&Core) -> Value),
    /// One for each unit whose data others have.
    OfStores(fn(&Connections) -> Value),
    /// One for each cause of failed logins.
    OfLogins(fn(&LoginFailures) -> Value),
    /// How many there are, for each rule, severity and unit.
    Findings,
    /// One for each unit and cause of failures of its store.
    OfStoreErrors(fn(&StoreErrors) -> Value),
    /// One for each kind of frame of HyperSCSI, of event, or place.
    OfHyperscsi(fn(&Hyperscsi, usize) -> Option<(&str, u64)>),
    /// One for each unit, with text in the labels.
    OfEachLun(fn(&LunSpace) -> Vec<String>),
    /// One for each unit, where it is known.
    OfLuns(fn(&LunSpace) -> Option<Value>),
    /// One for each file system with files of units.
    OfFileSystems(fn(&FileSystemSpace) -> Value),
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
    const fn new(
        kind: Kind,
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        samples: Samples,
    ) -> Self {
        Self {
            name,
            kind,
            unit,
            labels,
            help,
            samples,
        }
    }

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

fn session_labels(session: &Session) -> Vec<String> {
    vec![
        session.id.to_string(),
        session.initiator.clone(),
        session.target.clone().unwrap_or_default(),
        session
            .iscsi()
            .map(|iscsi| iscsi.portal_group.to_string())
            .unwrap_or_default(),
        session.core.to_string(),
    ]
}

/// All metrics, in the order of the text.
#[rustfmt::skip]
pub(super) static METRICS: &[Metric] = &[
    Metric::new(Kind::Info, "tarn_build", "", &["version"],
        "Version of Tarn.",
        Samples::OfStatus(|status| vec![status.version.clone()])),
    Metric::new(Kind::Gauge, "tarn_start_time_seconds", "seconds", &[],
        "When the daemon began, since 1970-01-01 UTC.",
        Samples::One(|all| Value::Millis(all.status.started_ms))),
    Metric::new(Kind::Gauge, "tarn_certificate_not_after_seconds", "seconds", &["of"],
        "Until when a certificate in use is valid, since 1970-01-01 UTC.",
        Samples::OfCertificates(|certificate| Value::Millis(certificate.not_after_ms))),
    Metric::new(Kind::Gauge, "tarn_config_revision", "", &[],
        "Revision of the configuration that runs.",
        Samples::One(|all| Value::Count(all.status.revision))),
    Metric::new(Kind::Gauge, "tarn_luns", "", &[],
        "Logical units.",
        Samples::One(|all| Value::Count(all.status.luns.into()))),
    Metric::new(Kind::Gauge, "tarn_targets", "", &[],
        "Targets.",
        Samples::One(|all| Value::Count(all.status.targets.into()))),
    Metric::new(Kind::Gauge, "tarn_findings", "", &["rule", "severity", "lun"],
        "Findings: what limits or endangers the service; `tarn doctor` lists them.",
        Samples::Findings),
    Metric::new(Kind::Gauge, "tarn_sessions", "", &[],
        "Sessions, discovery sessions too.",
        Samples::One(|all| Value::Count(all.stats.sessions.into()))),
    Metric::new(Kind::Info, "tarn_session", "", &["session", "initiator", "target", "portal_group", "core"],
        "A session, by its id; portal_group is empty without iSCSI.",
        Samples::OfSessions(session_labels)),
    Metric::new(Kind::Gauge, "tarn_session_commands", "", &["session"],
        "Commands that a session has under way.",
        Samples::OfEachSession(|session| Value::Count(session.commands.into()))),
    Metric::new(Kind::Gauge, "tarn_session_window", "", &["session"],
        "Commands that a session may have under way.",
        Samples::OfEachSession(|session| Value::Count(session.window.into()))),
    Metric::new(Kind::Counter, "tarn_session_violations", "", &["session"],
        "Violations of the protocol by the initiator of a session.",
        Samples::OfEachSession(|session| Value::Count(session.iscsi().map_or(0, |iscsi| iscsi.violations)))),
    Metric::new(Kind::Counter, "tarn_connections_accepted", "", &[],
        "Connections of initiators that were accepted.",
        Samples::One(|all| Value::Count(all.stats.logins.accepted))),
    Metric::new(Kind::Counter, "tarn_logins", "", &[],
        "Logins that led to a session or joined one.",
        Samples::One(|all| Value::Count(all.stats.logins.succeeded))),
    Metric::new(Kind::Counter, "tarn_login_failures", "", &["cause"],
        "Logins that failed.",
        Samples::OfLogins(|failures| Value::Count(failures.count))),
    Metric::new(Kind::Counter, "tarn_scsi_commands", "", OPERATION,
        "SCSI commands that were answered.",
        Samples::OfOperations(|operations| Value::Count(operations.count))),
    Metric::new(Kind::Counter, "tarn_scsi_bytes", "bytes", OPERATION,
        "Data that went with SCSI commands.",
        Samples::OfOperations(|operations| Value::Count(operations.bytes))),
    Metric::new(Kind::Counter, "tarn_scsi_errors", "", OPERATION,
        "SCSI commands that were not answered GOOD.",
        Samples::OfOperations(|operations| Value::Count(operations.errors))),
    Metric::new(Kind::Counter, "tarn_store_errors", "", &["lun", "errno"],
        "SCSI commands that failed because of the store of a unit.",
        Samples::OfStoreErrors(|errors| Value::Count(errors.count))),
    Metric::new(Kind::Info, "tarn_lun", "", &["lun", "type"],
        "A unit; type is what it is for initiators: disk, cdrom, tape, changer, or another word of `tarn lun list`.",
        Samples::OfEachLun(|lun| vec![lun.lun.clone(), lun.device_type.clone()])),
    Metric::new(Kind::Gauge, "tarn_lun_size_bytes", "bytes", &["lun"],
        "The size of a unit, as initiators see it.",
        Samples::OfLuns(|lun| Some(Value::Count(lun.size_bytes)))),
    Metric::new(Kind::Gauge, "tarn_lun_allocated_bytes", "bytes", &["lun"],
        "What the files of a unit take where they are.",
        Samples::OfLuns(|lun| lun.allocated_bytes.map(Value::Count))),
    Metric::new(Kind::Gauge, "tarn_filesystem_size_bytes", "bytes", &["path"],
        "The size of a file system with files of units.",
        Samples::OfFileSystems(|system| Value::Count(system.size_bytes))),
    Metric::new(Kind::Gauge, "tarn_filesystem_free_bytes", "bytes", &["path"],
        "What others than root may still write to a file system.",
        Samples::OfFileSystems(|system| Value::Count(system.free_bytes))),
    Metric::new(Kind::Gauge, "tarn_filesystem_promised_bytes", "bytes", &["path"],
        "What the files of units on a file system may still take; more than is free is over-commitment.",
        Samples::OfFileSystems(|system| Value::Count(system.promised_bytes))),
    Metric::new(Kind::Histogram, "tarn_scsi_command_duration_seconds", "seconds", OPERATION,
        "From the arrival of a SCSI command to its answer.",
        Samples::Latencies),
    Metric::new(Kind::Gauge, "tarn_queue_depth", "", &["lun", "initiator"],
        "SCSI commands that wait for something: data, the store, another command.",
        Samples::OfSeries(|series| Value::Count(series.depth.into()))),
    Metric::new(Kind::Counter, "tarn_slow_commands", "", &["lun", "initiator"],
        "SCSI commands that took longer than slow_command_ms of [limits]; `tarn events` reports them.",
        Samples::OfSeries(|series| Value::Count(series.slow))),
    Metric::new(Kind::Gauge, "tarn_store_connections", "", &["lun"],
        "Connections to the servers of NBD that have the data of a unit; an image of a Ceph cluster that is open is one.",
        Samples::OfStores(|store| Value::Count(store.up))),
    Metric::new(Kind::Counter, "tarn_store_reconnects", "", &["lun"],
        "Connections of a store that were made again.",
        Samples::OfStores(|store| Value::Count(store.again))),
    Metric::new(Kind::Gauge, "tarn_store_held_requests", "", &["lun"],
        "Requests of a store that wait for a connection, or for an answer on one that is silent.",
        Samples::OfStores(|store| Value::Count(store.held))),
    Metric::new(Kind::Counter, "tarn_hyperscsi_frames", "", &["kind"],
        "Frames of HyperSCSI, by what became of them; docs/guide/hyperscsi.md has the kinds.",
        Samples::OfHyperscsi(|all, at| all.frames.get(at).copied())),
    Metric::new(Kind::Counter, "tarn_hyperscsi_events", "", &["event"],
        "Questions, answers and logins of HyperSCSI, and sessions whose frames became smaller.",
        Samples::OfHyperscsi(|all, at| all.events.get(at).copied())),
    Metric::new(Kind::Gauge, "tarn_hyperscsi_place_away", "", &["place"],
        "Cores on which a place of HyperSCSI is away, because its interface is gone or down.",
        Samples::OfHyperscsi(|all, at| all.places.get(at).map(|(place, away)| (place.as_str(), *away)))),
    Metric::new(Kind::Counter, "tarn_reactor_busy_seconds", "seconds", &["core"],
        "Processor time of a core's thread.",
        Samples::OfCores(|core| Value::Micros(core.busy_us))),
    Metric::new(Kind::Counter, "tarn_reactor_turns", "", &["core"],
        "Turns of a core's loop.",
        Samples::OfCores(|core| Value::Count(core.turns))),
    Metric::new(Kind::Gauge, "tarn_reactor_sessions", "", &["core"],
        "Sessions that live on a core.",
        Samples::OfCores(|core| Value::Count(core.sessions.into()))),
    Metric::new(Kind::Gauge, "tarn_pool_bytes", "bytes", &["core"],
        "Memory for data in flight.",
        Samples::OfCores(|core| Value::Count(core.pool_bytes))),
    Metric::new(Kind::Gauge, "tarn_pool_free_bytes", "bytes", &["core"],
        "Memory for data in flight that is not in use.",
        Samples::OfCores(|core| Value::Count(core.pool_free_bytes))),
    Metric::new(Kind::Counter, "tarn_starved_commands", "", &["core"],
        "SCSI commands that had to wait for memory.",
        Samples::OfCores(|core| Value::Count(core.starved))),
];
