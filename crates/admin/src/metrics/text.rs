//! From the table to the text.
//!
//! Spec: OpenMetrics 1.0; Prometheus text exposition format 0.0.4. They differ in the heads of
//! metrics, and in the last line.

use std::fmt::Write as _;
use std::slice::Iter;

use api::stats::{LATENCY_BOUNDS_US, Operations, Series};

use super::table::{Kind, METRICS, Metric, Samples, Snapshot, Value};

/// Bytes after which a piece is passed on. It is longer by one sample at most.
const PIECE_BYTES: usize = 16 * 1024;

/// Every other bound becomes a bucket of the text: one to the octave.
const BOUNDS_PER_BUCKET: usize = 2;

/// Which text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    /// OpenMetrics.
    OpenMetrics,
    /// The older format, for clients that do not ask for OpenMetrics.
    Prometheus,
}

impl Format {
    /// The one that is asked for.
    pub(super) fn for_accept(accept: &str) -> Self {
        let mut ranges = accept.split(',').map(|range| range.split(';'));
        let is_open = |mut parts: std::str::Split<'_, char>| {
            parts.next().is_some_and(|kind| {
                kind.trim()
                    .eq_ignore_ascii_case("application/openmetrics-text")
            })
        };
        if ranges.any(is_open) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Its content type.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    fn write_head(self, out: &mut String, metric: &Metric) {
        let (name, kind) = match (self, metric.kind) {
            (Self::OpenMetrics, Kind::Counter) => (metric.name.to_owned(), "counter"),
            (Self::OpenMetrics, Kind::Info) => (metric.name.to_owned(), "info"),
            (Self::Prometheus, Kind::Counter) => (metric.sample_name(), "counter"),
            (Self::Prometheus, Kind::Info) => (metric.sample_name(), "gauge"),
            (Self::OpenMetrics | Self::Prometheus, Kind::Gauge) => (metric.sample_name(), "gauge"),
            (Self::OpenMetrics | Self::Prometheus, Kind::Histogram) => {
                (metric.sample_name(), "histogram")
            }
        };
        line(out, format_args!("# TYPE {name} {kind}"));
        if self == Self::OpenMetrics && !metric.unit.is_empty() {
            line(out, format_args!("# UNIT {name} {}", metric.unit));
        }
        line(out, format_args!("# HELP {name} {}", metric.help));
    }
}

/// The text, piece by piece.
#[derive(Debug)]
pub(super) struct Text {
    format: Format,
    snapshot: Snapshot,
    metrics: Iter<'static, Metric>,
    /// The metric that is being written, and how many of its samples are.
    current: Option<(&'static Metric, usize)>,
    is_ended: bool,
}

impl Text {
    /// Of this snapshot.
    pub(super) fn new(format: Format, snapshot: Snapshot) -> Self {
        Self {
            format,
            snapshot,
            metrics: METRICS.iter(),
            current: None,
            is_ended: false,
        }
    }

    /// Writes a head or the samples of one thing. False when there is no more.
    fn write_next(&mut self, out: &mut String) -> bool {
        if let Some((metric, number)) = &mut self.current {
            if write_sample(out, metric, *number, &self.snapshot) {
                *number += 1;
            } else {
                self.current = None;
            }
            return true;
        }
        let Some(metric) = self.metrics.next() else {
            return false;
        };
        self.format.write_head(out, metric);
        self.current = Some((metric, 0));
        true
    }
}

impl Iterator for Text {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let mut piece = String::with_capacity(PIECE_BYTES);
        while piece.len() < PIECE_BYTES && !self.is_ended {
            if !self.write_next(&mut piece) {
                self.is_ended = true;
                if self.format == Format::OpenMetrics {
                    piece.push_str("# EOF\n");
                }
            }
        }
        (!piece.is_empty()).then_some(piece)
    }
}

/// Writes what a metric says of the thing of this number. False when there are not as many.
fn write_sample(out: &mut String, metric: &Metric, number: usize, all: &Snapshot) -> bool {
    let mut sample = Sample { metric, out };
    match metric.samples {
        Samples::One(read) if number == 0 => sample.value(&[], read(all)),
        Samples::OfStatus(read) if number == 0 => sample.info(&read(&all.status)),
        Samples::One(_) | Samples::OfStatus(_) => return false,
        Samples::OfCertificates(read) => {
            let Some(certificate) = all.status.certificates.get(number) else {
                return false;
            };
            sample.value(&[&certificate.of], read(certificate));
        }
        Samples::OfCores(read) => {
            let Some(core) = all.stats.cores.get(number) else {
                return false;
            };
            sample.value(&[&core.core.to_string()], read(core));
        }
        Samples::OfLogins(read) => {
            let Some(failures) = all.stats.logins.failed.get(number) else {
                return false;
            };
            sample.value(&[&failures.cause], read(failures));
        }
        Samples::Findings
        | Samples::OfStores(_)
        | Samples::OfStoreErrors(_)
        | Samples::OfHyperscsi(_)
        | Samples::OfEachLun(_)
        | Samples::OfLuns(_)
        | Samples::OfFileSystems(_) => return write_of_stores(&mut sample, number, all),
        Samples::OfSessions(read) => {
            let Some(session) = all.sessions.get(number) else {
                return false;
            };
            sample.info(&read(session));
        }
        Samples::OfEachSession(read) => {
            let Some(session) = all.sessions.get(number) else {
                return false;
            };
            sample.value(&[&session.id.to_string()], read(session));
        }
        Samples::OfSeries(read) => {
            let Some(series) = all.stats.series.get(number) else {
                return false;
            };
            sample.value(&[&series.lun, &series.initiator], read(series));
        }
        Samples::OfOperations(read) => {
            let Some(series) = all.stats.series.get(number) else {
                return false;
            };
            for (labels, operations) in operations(series) {
                sample.value(&labels, read(operations));
            }
        }
        Samples::Latencies => {
            let Some(series) = all.stats.series.get(number) else {
                return false;
            };
            for (labels, operations) in operations(series) {
                sample.histogram(&labels, operations);
            }
        }
    }
    true
}

/// As [`write_sample`], of what units and file systems have.
fn write_of_stores(sample: &mut Sample<'_>, number: usize, all: &Snapshot) -> bool {
    match sample.metric.samples {
        Samples::Findings => {
            let Some(([rule, severity, lun], count)) = all.findings.get(number) else {
                return false;
            };
            sample.value(&[rule, severity, lun], Value::Count(*count));
        }
        Samples::OfStores(read) => {
            let Some(store) = all.stats.stores.get(number) else {
                return false;
            };
            sample.value(&[&store.lun], read(store));
        }
        Samples::OfStoreErrors(read) => {
            let Some(errors) = all.stats.store_errors.get(number) else {
                return false;
            };
            sample.value(&[&errors.lun, &errors.errno], read(errors));
        }
        Samples::OfHyperscsi(read) => {
            let Some((label, count)) = read(&all.hyperscsi, number) else {
                return false;
            };
            sample.value(&[label], Value::Count(count));
        }
        Samples::OfEachLun(read) => {
            let Some(lun) = all.space.luns.get(number) else {
                return false;
            };
            sample.info(&read(lun));
        }
        Samples::OfLuns(read) => {
            let Some(lun) = all.space.luns.get(number) else {
                return false;
            };
            if let Some(value) = read(lun) {
                sample.value(&[&lun.lun], value);
            }
        }
        Samples::OfFileSystems(read) => {
            let Some(system) = all.space.file_systems.get(number) else {
                return false;
            };
            sample.value(&[&system.path], read(system));
        }
        Samples::One(_)
        | Samples::OfStatus(_)
        | Samples::OfCertificates(_)
        | Samples::OfCores(_)
        | Samples::OfLogins(_)
        | Samples::OfSessions(_)
        | Samples::OfEachSession(_)
        | Samples::OfSeries(_)
        | Samples::OfOperations(_)
        | Samples::Latencies => return false,
    }
    true
}

/// One kind of command after the other, with its labels. Those that never came have no series.
fn operations(series: &Series) -> impl Iterator<Item = ([&str; 3], &Operations)> {
    let kinds = [
        ("read", &series.read),
        ("write", &series.write),
        ("other", &series.other),
    ];
    kinds
        .into_iter()
        .filter(|(_, operations)| operations.count > 0)
        .map(|(kind, all)| ([series.lun.as_str(), &series.initiator, kind], all))
}

/// Where samples of a metric go.
struct Sample<'a> {
    metric: &'a Metric,
    out: &'a mut String,
}

impl Sample<'_> {
    fn value(&mut self, labels: &[&str], value: Value) {
        let name = self.metric.sample_name();
        self.write(&name, labels, None, value);
    }

    fn info(&mut self, labels: &[String]) {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        self.value(&labels, Value::Count(1));
    }

    fn histogram(&mut self, labels: &[&str], operations: &Operations) {
        let bucket = format!("{}_bucket", self.metric.name);
        let mut below = 0;
        let counts = operations.latency.iter();
        for (number, (count, bound)) in counts.zip(LATENCY_BOUNDS_US).enumerate() {
            below += count;
            if number.is_multiple_of(BOUNDS_PER_BUCKET) {
                let bound = Value::Micros(bound).to_string();
                self.write(&bucket, labels, Some(&bound), Value::Count(below));
            }
        }
        let all = operations.latency.iter().sum();
        self.write(&bucket, labels, Some("+Inf"), Value::Count(all));
        let sum = Value::Micros(operations.latency_us);
        let name = self.metric.name;
        self.write(&format!("{name}_count"), labels, None, Value::Count(all));
        self.write(&format!("{name}_sum"), labels, None, sum);
    }

    fn write(&mut self, name: &str, labels: &[&str], bound: Option<&str>, value: Value) {
        self.out.push_str(name);
        let pairs = self
            .metric
            .labels
            .iter()
            .copied()
            .zip(labels.iter().copied());
        let mut opening = '{';
        for (label, text) in pairs.chain(bound.map(|bound| ("le", bound))) {
            self.out.push(opening);
            opening = ',';
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape(self.out, text);
            self.out.push('"');
        }
        if opening == ',' {
            self.out.push('}');
        }
        line(self.out, format_args!(" {value}"));
    }
}

/// Spec: OpenMetrics 1.0, `escaped-string`.
fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    writeln!(out, "{text}").ok();
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            // Whole numbers throughout: a float would lose the last digits of a large sum.
            Self::Micros(us) => write!(f, "{}.{:06}", us / 1_000_000, us % 1_000_000),
            Self::Millis(ms) => write!(f, "{}.{:03}", ms / 1000, ms % 1000),
        }
    }
}

#[cfg(test)]
mod tests;
