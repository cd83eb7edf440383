//! Rates and latencies, made from counters that were read twice.

use std::collections::BTreeMap;

use api::stats::{LATENCY_BOUNDS_US, Operations, Series, Stats};

const MILLISECONDS: f64 = 1000.0;
/// One command in a hundred takes longer.
const PERCENT: u64 = 99;

/// What commands are counted together by.
pub(super) type Key = fn(&Series) -> String;

/// What happened between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rate {
    /// The unit, the initiator, or both.
    pub(super) name: String,
    /// Commands a second.
    pub(super) iops: f64,
    /// Bytes read a second.
    pub(super) read: u64,
    /// Bytes written a second.
    pub(super) written: u64,
    /// Mean latency in microseconds; `None` without commands.
    pub(super) mean_us: Option<f64>,
    /// The bound of the bucket that 99 of 100 commands stay below, in microseconds.
    pub(super) p99_us: Option<u64>,
    /// Commands that wait at the second reading.
    pub(super) depth: u64,
    /// Commands that were not answered GOOD.
    pub(super) errors: u64,
}

/// What is summed up of several series.
#[derive(Default)]
struct Sum {
    count: u64,
    read: u64,
    written: u64,
    latency_us: u64,
    buckets: Vec<u64>,
    errors: u64,
    depth: u64,
}

impl Sum {
    fn add(&mut self, operations: &Operations) {
        self.count += operations.count;
        self.latency_us += operations.latency_us;
        self.errors += operations.errors;
        if self.buckets.len() < operations.latency.len() {
            self.buckets.resize(operations.latency.len(), 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&operations.latency) {
            *sum += count;
        }
    }

    fn series(&mut self, series: &Series) {
        for operations in [&series.read, &series.write, &series.other] {
            self.add(operations);
        }
        self.read += series.read.bytes;
        self.written += series.write.bytes;
        self.depth += u64::from(series.depth);
    }

    /// What was counted since. A restarted daemon counts from zero, so its count is the difference.
    fn since(&self, before: &Self) -> Self {
        if self.count < before.count {
            return self.since(&Self::default());
        }
        let was = before.buckets.iter().chain(std::iter::repeat(&0));
        let buckets = self.buckets.iter().zip(was);
        Self {
            count: self.count - before.count,
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            latency_us: self.latency_us.saturating_sub(before.latency_us),
            buckets: buckets.map(|(now, was)| now.saturating_sub(*was)).collect(),
            errors: self.errors.saturating_sub(before.errors),
            depth: self.depth,
        }
    }

    fn rate(&self, name: String, milliseconds: u64) -> Rate {
        let seconds = milliseconds as f64 / MILLISECONDS;
        Rate {
            name,
            iops: self.count as f64 / seconds,
            read: self.read.saturating_mul(1000) / milliseconds,
            written: self.written.saturating_mul(1000) / milliseconds,
            mean_us: (self.count > 0).then(|| self.latency_us as f64 / self.count as f64),
            p99_us: percentile(&self.buckets, PERCENT),
            depth: self.depth,
            errors: self.errors,
        }
    }
}

/// The bound of the bucket in which the command is that so many of a hundred are faster than. What
/// is above the last bound is as the last bound, because nothing more is known of it.
fn percentile(buckets: &[u64], percent: u64) -> Option<u64> {
    let total: u64 = buckets.iter().sum();
    let wanted = (total * percent).div_ceil(100);
    let mut seen = 0;
    let bounds = LATENCY_BOUNDS_US.iter();
    let last = LATENCY_BOUNDS_US.last();
    for (count, bound) in buckets.iter().zip(bounds.chain(last)) {
        seen += count;
        if seen >= wanted && total > 0 {
            return Some(*bound);
        }
    }
    None
}

fn sums(stats: &Stats, key: Key) -> BTreeMap<String, Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for series in &stats.series {
        sums.entry(key(series)).or_default().series(series);
    }
    sums
}

/// The rates between two readings, by name.
pub(super) fn rates(before: &Stats, after: &Stats, key: Key) -> Vec<Rate> {
    let milliseconds = after.at_ms.saturating_sub(before.at_ms).max(1);
    let was = sums(before, key);
    let nothing = Sum::default();
    let now = sums(after, key).into_iter();
    now.map(|(name, sum)| {
        let since = sum.since(was.get(&name).unwrap_or(&nothing));
        since.rate(name, milliseconds)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(count: u64, bytes: u64, latency_us: u64, bucket: usize) -> Operations {
        let mut latency = vec![0; LATENCY_BOUNDS_US.len() + 1];
        latency[bucket] = count;
        Operations {
            count,
            bytes,
            errors: 1,
            latency_us,
            latency,
        }
    }

    fn stats(at_ms: u64, series: &[(&str, &str, Operations)]) -> Stats {
        let series = series.iter().map(|(lun, initiator, read)| Series {
            lun: (*lun).to_owned(),
            initiator: (*initiator).to_owned(),
            depth: 2,
            slow: 0,
            read: read.clone(),
            write: Operations::default(),
            other: Operations::default(),
        });
        Stats {
            at_ms,
            store_errors: Vec::new(),
            cores: Vec::new(),
            series: series.collect(),
            logins: api::stats::Logins::default(),
            sessions: 0,
            stores: Vec::new(),
        }
    }

    #[test]
    fn two_readings_make_a_rate_and_what_is_alike_is_summed() {
        let before = stats(1000, &[("a", "x", operations(10, 1000, 50, 0))]);
        let after = stats(
            3000,
            &[
                ("a", "x", operations(30, 5000, 250, 0)),
                ("a", "y", operations(10, 2000, 100, 3)),
            ],
        );
        let rates = rates(&before, &after, |series| series.lun.clone());
        let expected = Rate {
            name: "a".to_owned(),
            iops: 15.0,
            read: 3000,
            written: 0,
            mean_us: Some(10.0),
            p99_us: Some(LATENCY_BOUNDS_US[3]),
            depth: 4,
            errors: 1,
        };
        assert_eq!(rates, [expected]);
    }

    #[test]
    fn a_daemon_that_began_anew_counts_from_zero() {
        let before = stats(1000, &[("a", "x", operations(100, 1000, 50, 0))]);
        let after = stats(2000, &[("a", "x", operations(4, 400, 40, 0))]);
        let rates = rates(&before, &after, |series| series.lun.clone());
        assert_eq!(rates[0].iops, 4.0);
        assert_eq!(rates[0].mean_us, Some(10.0));
    }

    #[test]
    fn a_percentile_is_the_bound_of_its_bucket() {
        let last = LATENCY_BOUNDS_US.len();
        let mut buckets = vec![0; last + 1];
        assert_eq!(percentile(&buckets, 99), None);
        buckets[0] = 99;
        assert_eq!(percentile(&buckets, 99), Some(LATENCY_BOUNDS_US[0]));
        buckets[5] = 1;
        assert_eq!(percentile(&buckets, 99), Some(LATENCY_BOUNDS_US[0]));
        buckets[5] = 2;
        assert_eq!(percentile(&buckets, 99), Some(LATENCY_BOUNDS_US[5]));
        buckets[last] = 100;
        assert_eq!(percentile(&buckets, 99), Some(LATENCY_BOUNDS_US[last - 1]));
    }
}
