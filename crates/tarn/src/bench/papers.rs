//! Published figures beside those of this run.

use std::fmt::Write as _;

use ::bench::result::PointResult;
use ::bench::suite::{Beside, PUBLISHED_PREFACE, Published};

/// The table; empty when nothing was measured that was published.
pub(super) fn table(published: &[Beside<'_>]) -> String {
    let mut text = String::new();
    let mut last_source = "";
    for Beside { row, result } in published {
        if last_source != row.source {
            last_source = row.source;
            let _infallible = writeln!(text, "\n{} ({})", row.source, row.year);
        }
        text.push_str(&line(row, result));
    }
    if text.is_empty() {
        return text;
    }
    format!("\nPublished figures, and what was measured here now\n{PUBLISHED_PREFACE}\n{text}")
}

fn line(row: &Published, result: &PointResult) -> String {
    let unit = row.metric.form().name;
    let here = result.targets.iter().enumerate().map(|(index, target)| {
        let now = result.spread(index, row.metric);
        // As many digits as are worth comparing.
        let now = now.map_or_else(
            || "-".to_owned(),
            |now| match now.median {
                ..100.0 => format!("{:.2}", now.median),
                _ => format!("{:.0}", now.median),
            },
        );
        format!("{} {now}", target.label)
    });
    let here = here.collect::<Vec<_>>().join(", ");
    format!(
        "  {}; {}, {}: {} {unit}; here: {here}\n",
        row.point, row.hardware, row.target, row.figure
    )
}

#[cfg(test)]
mod tests {
    use ::bench::result::TargetResult;
    use ::bench::suite::{PUBLISHED, beside};
    use ::bench::tally::{Sample, Tally};

    use super::*;

    #[test]
    fn only_what_was_measured_is_told_and_the_preface_is_plain() {
        assert_eq!(table(&[]), "");
        let mut sample = Sample {
            tally: Tally {
                reads: 1,
                iops: 1000.0,
                ..Tally::default()
            },
            ..Sample::default()
        };
        sample.tally.latency.record(1);
        let result = PointResult {
            point: PUBLISHED[0].point,
            targets: vec![TargetResult {
                label: "ours".to_owned(),
                samples: vec![sample],
            }],
        };
        let text = table(&beside(&[result]));
        assert!(text.contains("not a contest"));
        assert!(text.contains("SCST against STGT (2008)\n"));
        assert!(
            text.contains("1 GbE, STGT: 77 MB/s; here: ours 0.51\n"),
            "{text}"
        );
        assert!(!text.contains("INFN"));
    }
}
