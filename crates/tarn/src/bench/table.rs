//! Results as text: one block for each point, figures in columns.

use std::fmt::Write as _;

use ::bench::result::{Metric, PointResult, Spread};

/// The columns, after target and row.
const COLUMNS: [Metric; 7] = [
    Metric::Iops,
    Metric::Throughput,
    Metric::P50,
    Metric::P99,
    Metric::P999,
    Metric::TargetCpu,
    Metric::GeneratorCpu,
];
const LABEL_WIDTH_MAX: usize = 24;
const ROW_WIDTH: usize = 6;
const FIGURE_WIDTH: usize = 10;

/// One row of a spread: its name, and which of the three figures it has.
type Row = (&'static str, fn(&Spread) -> f64);

const ROWS: [Row; 3] = [
    ("median", |spread| spread.median),
    ("min", |spread| spread.min),
    ("max", |spread| spread.max),
];

/// The block of one point.
pub(super) fn point(result: &PointResult) -> String {
    let labels = result.targets.iter().map(|t| t.label.chars().count());
    let width = labels.max().unwrap_or(0).clamp(6, LABEL_WIDTH_MAX);
    let mut text = format!("{}\n{:width$} {:ROW_WIDTH$}", result.point, "target", "");
    for metric in COLUMNS {
        let _infallible = write!(text, " {:>FIGURE_WIDTH$}", metric.form().name);
    }
    text.push('\n');
    let units = COLUMNS.map(|metric| metric.form().unit);
    let units = units.map(|unit| if unit == "MB/s" { "" } else { unit });
    text.push_str(&line(width, "", "", units.map(str::to_owned)));
    for (index, target) in result.targets.iter().enumerate() {
        let rounds = target.samples.len();
        let figures = |metric: Metric| result.spread(index, metric);
        block(
            &mut text,
            width,
            &shortened(&target.label),
            rounds,
            figures,
            |metric, value| format!("{value:.*}", metric.form().digits),
        );
        if index > 0 {
            let ratios = |metric: Metric| result.ratio(index, metric);
            block(&mut text, width, " ratio", rounds, ratios, |_, value| {
                format!("{value:.2}x")
            });
        }
        troubles(&mut text, index, result);
    }
    text
}

/// The rows of one spread; only the median when there was one round.
fn block(
    text: &mut String,
    width: usize,
    label: &str,
    rounds: usize,
    figures: impl Fn(Metric) -> Option<Spread>,
    show: impl Fn(Metric, f64) -> String,
) {
    let rows = if rounds > 1 { ROWS.len() } else { 1 };
    let spreads = COLUMNS.map(|metric| (metric, figures(metric)));
    for (n, (name, pick)) in ROWS.iter().take(rows).enumerate() {
        let cells = spreads.map(|(metric, spread)| {
            spread.map_or_else(|| "-".to_owned(), |spread| show(metric, pick(&spread)))
        });
        let label = if n == 0 { label } else { "" };
        text.push_str(&line(width, label, name, cells));
    }
}

fn line(width: usize, label: &str, row: &str, cells: [String; COLUMNS.len()]) -> String {
    let mut text = format!("{label:width$} {row:ROW_WIDTH$}");
    for cell in cells {
        let _infallible = write!(text, " {cell:>FIGURE_WIDTH$}");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// What went wrong with a target, one line each.
fn troubles(text: &mut String, index: usize, result: &PointResult) {
    let Some(target) = result.targets.get(index) else {
        return;
    };
    for (round, sample) in target.samples.iter().enumerate() {
        let (label, round) = (&target.label, round + 1);
        let tally = &sample.tally;
        let mut say = |line: String| {
            let _infallible = writeln!(text, "  {label}, round {round}: {line}");
        };
        if let Some(failure) = &sample.failure {
            say(failure.clone());
        }
        if tally.errors > 0 {
            say(format!("{} I/O errors", tally.errors));
            tally
                .first_errors
                .iter()
                .for_each(|e| say(format!("  {e}")));
        }
        if tally.miscompares > 0 {
            say(format!("{} MISCOMPARES", tally.miscompares));
            let first = tally.first_miscompares.iter();
            first.for_each(|e| say(format!("  {e}")));
        }
    }
}

fn shortened(label: &str) -> String {
    let count = label.chars().count();
    if count <= LABEL_WIDTH_MAX {
        return label.to_owned();
    }
    // The end distinguishes paths and addresses.
    let tail: String = label.chars().skip(count - LABEL_WIDTH_MAX + 2).collect();
    format!("..{tail}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::bench::result::TargetResult;
    use ::bench::tally::{Sample, Tally};
    use ::bench::workload::{Access, Point};

    use super::*;

    fn sample(iops: f64) -> Sample {
        let mut tally = Tally {
            reads: 100,
            iops,
            generator_cpu: Duration::from_micros(120),
            ..Tally::default()
        };
        (0..100).for_each(|_| tally.latency.record(64_000));
        Sample {
            tally,
            ..Sample::default()
        }
    }

    fn result() -> PointResult {
        let target = |label: &str, rates: [f64; 3]| TargetResult {
            label: label.to_owned(),
            samples: rates.map(sample).into(),
        };
        PointResult {
            point: Point {
                access: Access::RandRead,
                block_bytes: 4096,
                depth: 32,
                sessions: 1,
                read_percent: 70,
            },
            targets: vec![
                target("tarn", [1000.0, 2000.0, 3000.0]),
                target("other", [500.0, 1000.0, 3000.0]),
            ],
        }
    }

    #[test]
    fn a_point_is_a_block_of_aligned_rows() {
        let text = point(&result());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "randread 4 KiB, depth 32");
        assert!(lines[3].starts_with("tarn   median       2000        8.2       64.0"));
        assert!(lines[6].starts_with("other"));
        assert!(lines[9].starts_with(" ratio median      0.50x"), "{text}");
        assert!(lines.iter().all(|line| line.len() <= 92), "{text}");
    }

    #[test]
    fn troubles_are_told_below_their_target() {
        let mut result = result();
        let bad = &mut result.targets[1].samples[2];
        bad.failure = Some("connection lost".to_owned());
        bad.tally.errors = 3;
        bad.tally.first_errors = vec!["SCSI status BUSY".to_owned()];
        let text = point(&result);
        assert!(text.contains("other, round 3: connection lost\n"), "{text}");
        assert!(text.contains("other, round 3: 3 I/O errors\n"), "{text}");
        assert!(
            text.ends_with("other, round 3:   SCSI status BUSY\n"),
            "{text}"
        );
    }

    #[test]
    fn long_labels_keep_their_end() {
        let label = "a".repeat(30) + "end";
        let short = shortened(&label);
        assert_eq!(short.chars().count(), LABEL_WIDTH_MAX);
        assert!(short.starts_with("..a") && short.ends_with("end"));
        let whole = "a".repeat(LABEL_WIDTH_MAX);
        assert_eq!(shortened(&whole), whole);
    }
}
