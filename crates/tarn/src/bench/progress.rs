//! What is said on the error stream while a benchmark runs: a line that renews itself on a
//! terminal, else one line for each finished point.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use ::bench::result::{Metric, PointResult};
use ::bench::{Observer, Progress};

/// Goes back to the start of the line and clears it.
const RENEW: &str = "\r\x1b[K";

/// Shows the progress of a benchmark.
#[derive(Debug)]
pub(super) struct Teller {
    is_terminal: bool,
    start: Instant,
    points: usize,
    /// What one measurement takes, warm-up included.
    one: Duration,
}

impl Teller {
    /// For a benchmark of so many points, each measurement of which takes that long.
    pub(super) fn new(points: usize, one: Duration) -> Self {
        Self {
            is_terminal: io::stderr().is_terminal(),
            start: Instant::now(),
            points,
            one,
        }
    }

    fn say(&self, text: &str) {
        let mut stderr = io::stderr().lock();
        let line = if self.is_terminal {
            format!("{RENEW}{text}")
        } else {
            format!("{text}\n")
        };
        // A failure is ignored: nobody reads the stream any more.
        let _unread = stderr
            .write_all(line.as_bytes())
            .and_then(|()| stderr.flush());
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.is_terminal {
            self.say("");
        }
    }
}

impl Observer for Teller {
    fn progress(&mut self, progress: &Progress<'_>) {
        if self.is_terminal {
            self.say(&line(progress, self.one));
        }
    }

    fn point_done(&mut self, index: usize, result: &PointResult) {
        if self.is_terminal {
            return;
        }
        let rates = (0..result.targets.len()).map(|target| {
            let rate = result.spread(target, Metric::Iops);
            rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.0}", rate.median))
        });
        let rates = rates.collect::<Vec<_>>().join(" / ");
        let elapsed = self.start.elapsed().as_secs();
        self.say(&format!(
            "point {} of {}: {}: {rates} IOPS ({elapsed} s)",
            index + 1,
            self.points,
            result.point,
        ));
    }
}

/// Point, target, rate, median and how long it will still take.
fn line(progress: &Progress<'_>, one: Duration) -> String {
    let per_round = u32::try_from(progress.targets).unwrap_or(u32::MAX);
    let per_point = per_round.saturating_mul(progress.rounds);
    let done = progress.round * per_round + u32::try_from(progress.target_index).unwrap_or(0);
    let points_left = u32::try_from(progress.points - progress.point_index).unwrap_or(u32::MAX);
    let left = points_left.saturating_mul(per_point).saturating_sub(done);
    let left = one.saturating_mul(left).saturating_sub(progress.elapsed);
    let seconds = progress.elapsed.as_secs_f64();
    let rate = if seconds > 0.0 {
        progress.ios as f64 / seconds
    } else {
        0.0
    };
    format!(
        "point {}/{} {}, round {}/{}, {}: {rate:.0} IOPS, p50 {:.0} us, {} left",
        progress.point_index + 1,
        progress.points,
        progress.point,
        progress.round + 1,
        progress.rounds,
        progress.label,
        progress.median_ns as f64 / 1e3,
        clock(left),
    )
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use ::bench::workload::{Access, Point};

    use super::*;

    #[test]
    fn the_line_tells_how_far_it_is_and_how_long_it_takes() {
        let point = Point {
            access: Access::RandRead,
            block_bytes: 4096,
            depth: 32,
            sessions: 1,
            read_percent: 70,
        };
        let progress = Progress {
            point_index: 1,
            points: 3,
            point: &point,
            round: 2,
            rounds: 3,
            target_index: 1,
            targets: 2,
            label: "b",
            elapsed: Duration::from_secs(2),
            ios: 100_000,
            median_ns: 75_400,
        };
        let text = line(&progress, Duration::from_secs(10));
        // One more measurement here, six at the last point, 2 s of the first are over.
        let expected =
            "point 2/3 randread 4 KiB, depth 32, round 3/3, b: 50000 IOPS, p50 75 us, 1:08 left";
        assert_eq!(text, expected);
    }
}
