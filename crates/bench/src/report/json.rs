//! Results for programs. docs/guide/measuring.md explains the fields; the types here are the schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Report, TargetNote};
use crate::host::Host;
use crate::result::{Metric, PointResult, Spread, TargetResult};
use crate::suite::Beside;
use crate::tally::Sample;
use crate::workload::{Access, Point};

/// What `format` says.
pub const FORMAT: &str = "tarn-bench";
/// What `version` says; it changes when a field changes its meaning or goes.
pub const VERSION: u32 = 1;

/// A whole report.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// Where the generator ran.
    pub host: Host,
    /// What was measured.
    pub targets: Vec<TargetNote>,
    /// Every byte read was checked.
    pub verified: bool,
    /// What ended the benchmark early, in words.
    pub failure: Option<String>,
    /// What came of each point.
    pub points: Vec<PointDocument>,
    /// What others published, of the suite `papers`; else absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedDocument>,
}

/// A published figure. What was measured at its point is in `points`.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct PublishedDocument {
    /// Who measured what.
    pub source: String,
    /// When.
    pub year: u16,
    /// On what, in a few words.
    pub hardware: String,
    /// Which target, and what else sets the row apart.
    pub target: String,
    /// As in [`PointDocument`].
    pub rw: String,
    /// Bytes of one I/O.
    pub block_bytes: u32,
    /// I/Os under way in each session.
    pub iodepth: u32,
    /// Sessions.
    pub sessions: u32,
    /// Which figure it is, by the keys of `summary`.
    pub metric: String,
    /// The figure.
    pub figure: f64,
}

/// One point.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct PointDocument {
    /// As given to `--rw`.
    pub rw: String,
    /// Bytes of one I/O.
    pub block_bytes: u32,
    /// I/Os under way in each session.
    pub iodepth: u32,
    /// Sessions.
    pub sessions: u32,
    /// Reads of 100 I/Os, of a mixed load.
    pub read_percent: Option<u8>,
    /// One for each target, in their order.
    pub targets: Vec<TargetDocument>,
}

/// One target at one point.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct TargetDocument {
    /// What the target is called.
    pub label: String,
    /// One for each round, in their order.
    pub rounds: Vec<RoundDocument>,
    /// Each figure over all rounds.
    pub summary: BTreeMap<String, SpreadDocument>,
    /// The ratio of each figure to that of the first target, over all rounds; empty for the first.
    pub ratio_to_first: BTreeMap<String, SpreadDocument>,
}

/// One measurement.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct RoundDocument {
    /// Length of the window.
    pub seconds: f64,
    /// Good reads in it.
    pub reads: u64,
    /// Good writes in it.
    pub writes: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// The first of them, in words.
    pub first_errors: Vec<String>,
    /// Blocks that were not what was written.
    pub miscompares: u64,
    /// The first of them, in words.
    pub first_miscompares: Vec<String>,
    /// What ended the window early, in words.
    pub failure: Option<String>,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Longest latency in microseconds.
    pub max_us: f64,
    /// The figures, by the same keys as in `summary`.
    pub figures: BTreeMap<String, f64>,
}

/// What several rounds gave.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub struct SpreadDocument {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

/// The report as JSON text.
///
/// # Errors
///
/// A figure that JSON cannot express.
pub fn render(report: &Report<'_>) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(&document(report))?;
    text.push('\n');
    Ok(text)
}

fn document(report: &Report<'_>) -> Document {
    Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        host: report.host.clone(),
        targets: report.targets.to_vec(),
        verified: report.is_verified,
        failure: report.failure.map(str::to_owned),
        points: report.results.iter().map(point_document).collect(),
        published: report.published.iter().map(published_document).collect(),
    }
}

fn published_document(beside: &Beside<'_>) -> PublishedDocument {
    let row = beside.row;
    PublishedDocument {
        source: row.source.to_owned(),
        year: row.year,
        hardware: row.hardware.to_owned(),
        target: row.target.to_owned(),
        rw: row.point.access.name().to_owned(),
        block_bytes: row.point.block_bytes,
        iodepth: row.point.depth,
        sessions: row.point.sessions,
        metric: row.metric.form().key.to_owned(),
        figure: row.figure,
    }
}

fn point_document(result: &PointResult) -> PointDocument {
    let point = &result.point;
    let is_mixed = point.access == Access::Mixed;
    let targets = result.targets.iter().enumerate();
    PointDocument {
        rw: point.access.name().to_owned(),
        block_bytes: point.block_bytes,
        iodepth: point.depth,
        sessions: point.sessions,
        read_percent: is_mixed.then_some(point.read_percent),
        targets: targets
            .map(|(index, target)| target_document(result, index, target))
            .collect(),
    }
}

fn target_document(result: &PointResult, index: usize, target: &TargetResult) -> TargetDocument {
    let rounds = target.samples.iter();
    TargetDocument {
        label: target.label.clone(),
        rounds: rounds
            .map(|sample| round_document(sample, &result.point))
            .collect(),
        summary: by_key(|metric| result.spread(index, metric)),
        ratio_to_first: by_key(|metric| (index > 0).then(|| result.ratio(index, metric)).flatten()),
    }
}

fn round_document(sample: &Sample, point: &Point) -> RoundDocument {
    let tally = &sample.tally;
    let figures = Metric::FORMS
        .into_iter()
        .filter_map(|form| Some((form.key.to_owned(), form.metric.of(sample, point)?)));
    RoundDocument {
        seconds: tally.window.as_secs_f64(),
        reads: tally.reads,
        writes: tally.writes,
        errors: tally.errors,
        first_errors: tally.first_errors.clone(),
        miscompares: tally.miscompares,
        first_miscompares: tally.first_miscompares.clone(),
        failure: sample.failure.clone(),
        mean_us: tally.latency.mean_ns() / 1e3,
        max_us: tally.latency.max_ns() as f64 / 1e3,
        figures: figures.collect(),
    }
}

fn by_key(figure: impl Fn(Metric) -> Option<Spread>) -> BTreeMap<String, SpreadDocument> {
    let spreads = Metric::FORMS.into_iter().filter_map(|form| {
        let Spread { median, min, max } = figure(form.metric)?;
        Some((form.key.to_owned(), SpreadDocument { median, min, max }))
    });
    spreads.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::testing::result;
    use crate::suite::{PUBLISHED, beside};

    #[test]
    fn what_is_written_is_read_back_the_same() {
        let mut results = [result(
            8,
            &[("a\"<", &[100.0, 110.0]), ("b", &[50.0, 66.0])],
        )];
        results[0].targets[1].samples[0].failure = Some("lost".to_owned());
        let host = Host {
            pinned_cpus: vec![1, 2],
            ..Host::default()
        };
        let targets = [TargetNote {
            label: "a\"<".to_owned(),
            transport: "iscsi".to_owned(),
            place: "h:1".to_owned(),
            pid: None,
            cpus: None,
        }];
        let report = Report {
            host: &host,
            targets: &targets,
            results: &results,
            failure: Some("lost"),
            is_verified: false,
            published: &[],
        };
        let text = render(&report).unwrap();
        let back: Document = serde_json::from_str(&text).unwrap();
        assert_eq!(back, document(&report));
        let b = &back.points[0].targets[1];
        assert!((b.ratio_to_first["iops"].min - 0.5).abs() < 1e-9);
        assert!((b.summary["iops"].median - 58.0).abs() < 1e-9);
        assert!(back.points[0].targets[0].ratio_to_first.is_empty());
        assert_eq!(back.points[0].read_percent, None);
        assert!(!text.contains("published"));
    }

    #[test]
    fn published_figures_name_their_point() {
        let mut results = [result(8, &[("a", &[100.0])])];
        results[0].point = PUBLISHED[0].point;
        let report = Report {
            host: &Host::default(),
            targets: &[],
            results: &results,
            failure: None,
            is_verified: false,
            published: &beside(&results),
        };
        let back: Document = serde_json::from_str(&render(&report).unwrap()).unwrap();
        assert_eq!(back, document(&report));
        let rows = &back.published;
        assert!(rows.len() > 1, "several have published the same point");
        for row in rows {
            let measured = &back.points[0];
            assert_eq!(
                (&row.rw, row.block_bytes, row.iodepth, row.sessions),
                (
                    &measured.rw,
                    measured.block_bytes,
                    measured.iodepth,
                    measured.sessions
                )
            );
            assert!(measured.targets[0].summary.contains_key(&row.metric));
        }
    }
}
