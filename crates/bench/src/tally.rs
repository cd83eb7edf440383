//! What was counted in one measured window.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::process::CpuTime;

/// Failures of one kind that are kept in words; further ones are only counted.
pub const FAILURES_KEPT_MAX: usize = 5;

/// Counts of one generator thread, or of all of a point.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Reads that were good, in the window.
    pub reads: u64,
    /// Writes that were good, in the window.
    pub writes: u64,
    /// Time of the good ones, from just before they were submitted until they were handled.
    pub latency: Histogram,
    /// I/Os that failed, at any time.
    pub errors: u64,
    /// The first of them, in words.
    pub first_errors: Vec<String>,
    /// Blocks that were not what was written, at any time.
    pub miscompares: u64,
    /// The first of them, in words.
    pub first_miscompares: Vec<String>,
    /// CPU time of the generator in the window.
    pub generator_cpu: Duration,
    /// I/Os a second, good ones.
    pub iops: f64,
    /// Length of the window.
    pub window: Duration,
}

impl Tally {
    /// Good I/Os in the window.
    #[must_use]
    pub const fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// Takes note of a failed I/O.
    pub(crate) fn note_error(&mut self, text: impl FnOnce() -> String) {
        self.errors += 1;
        if self.first_errors.len() < FAILURES_KEPT_MAX {
            self.first_errors.push(text());
        }
    }

    /// Takes note of a block that is not what was written.
    pub(crate) fn note_miscompare(&mut self, text: impl FnOnce() -> String) {
        self.miscompares += 1;
        if self.first_miscompares.len() < FAILURES_KEPT_MAX {
            self.first_miscompares.push(text());
        }
    }

    /// Adds what another thread has counted in the same window.
    pub(crate) fn merge(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.latency.merge(&other.latency);
        self.errors += other.errors;
        self.miscompares += other.miscompares;
        self.generator_cpu += other.generator_cpu;
        self.iops += other.iops;
        self.window = self.window.max(other.window);
        self.first_errors.extend(other.first_errors);
        self.first_errors.truncate(FAILURES_KEPT_MAX);
        self.first_miscompares.extend(other.first_miscompares);
        self.first_miscompares.truncate(FAILURES_KEPT_MAX);
    }
}

/// One target at one point in one round.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// What was counted.
    pub tally: Tally,
    /// CPU time of the target's process in the window, if it was named.
    pub target_cpu: Option<CpuTime>,
    /// What ended the window early, in words.
    pub failure: Option<String>,
}

impl Sample {
    /// True when nothing went wrong.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.failure.is_none() && self.tally.errors == 0 && self.tally.miscompares == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_only_the_first_failures_are_kept() {
        let tally = |n: u64| {
            let mut tally = Tally {
                reads: n,
                writes: 1,
                iops: 10.0,
                window: Duration::from_millis(n),
                ..Tally::default()
            };
            tally.latency.record(n);
            for error in 0..4 {
                tally.note_error(|| format!("{n}.{error}"));
            }
            tally.note_miscompare(|| n.to_string());
            tally
        };
        let mut all = tally(1);
        all.merge(tally(2));
        assert_eq!((all.reads, all.writes, all.ios()), (3, 2, 5));
        assert_eq!(all.latency.count(), 2);
        assert_eq!((all.errors, all.miscompares), (8, 2));
        assert_eq!(all.first_errors, ["1.0", "1.1", "1.2", "1.3", "2.0"]);
        assert_eq!(all.first_miscompares, ["1", "2"]);
        assert_eq!(all.window, Duration::from_millis(2));
        assert!((all.iops - 20.0).abs() < 1e-9);
    }
}
