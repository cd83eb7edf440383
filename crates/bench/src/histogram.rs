//! Counts of durations in buckets that grow with the value. Knows nothing of what is measured.
//!
//! Each power of two is cut into 64 buckets of equal width, so that a value read back is off by
//! at most one part in 128, whatever its size, and the table is of one fixed size.

/// Buckets per power of two, as a power of two.
const SUB_BITS: u32 = 6;
/// Values from two to this power on are counted as the largest one below it: 18 minutes.
const TOP_BITS: u32 = 40;
const BUCKETS: usize = ((TOP_BITS - SUB_BITS + 1) << SUB_BITS) as usize;

/// Counts of durations in nanoseconds. Histograms of several threads add up by
/// [`Histogram::merge`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, value_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket_of(value_ns)) {
            *count += 1;
        }
        self.total += 1;
        self.sum_ns += u128::from(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Adds everything that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.total += other.total;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Resets all counts and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.sum_ns, self.max_ns) = (0, 0, 0);
    }

    /// How many durations were counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// The longest one, exact, in nanoseconds; 0 when there is none.
    #[must_use]
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean in nanoseconds; 0 when there is none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        match self.total {
            0 => 0.0,
            total => self.sum_ns as f64 / total as f64,
        }
    }

    /// The duration that `per_million` of a million counted ones do not exceed, in nanoseconds; 0
    /// when there is none.
    #[must_use]
    pub fn percentile_ns(&self, per_million: u32) -> u64 {
        let share = u128::from(self.total) * u128::from(per_million);
        let wanted = share.div_ceil(1_000_000).max(1);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if seen >= wanted {
                return middle_of(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// The bucket of a value. Below 128 each value has its own.
fn bucket_of(value: u64) -> usize {
    let value = value.min((1 << TOP_BITS) - 1);
    let bits = u64::BITS - value.leading_zeros();
    let shift = bits.saturating_sub(SUB_BITS + 1);
    let bucket = (u64::from(shift) << SUB_BITS) + (value >> shift);
    usize::try_from(bucket).unwrap_or(BUCKETS)
}

/// The middle of a bucket's values.
const fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let mantissa = bucket - (shift << SUB_BITS);
    (mantissa << shift) + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut last = 0;
        for value in 1..1_u64 << 20 {
            let bucket = bucket_of(value);
            assert!(bucket == last || bucket == last + 1, "{value}");
            last = bucket;
        }
        assert_eq!(bucket_of((1 << TOP_BITS) - 1), BUCKETS - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile_ns(500_000), 0);
        for value in 1..=100 {
            histogram.record(value);
        }
        assert_eq!(histogram.percentile_ns(500_000), 50);
        assert_eq!(histogram.percentile_ns(990_000), 99);
        assert_eq!(histogram.percentile_ns(1_000_000), 100);
        assert_eq!(histogram.count(), 100);
        assert!((histogram.mean_ns() - 50.5).abs() < 1e-9);
        histogram.clear();
        assert_eq!(histogram, Histogram::default());
    }

    proptest! {
        #[test]
        fn a_value_read_back_is_off_by_one_part_in_128_at_most(value in 1_u64..1 << TOP_BITS) {
            let mut histogram = Histogram::default();
            histogram.record(value);
            histogram.record(u64::MAX);
            let read = histogram.percentile_ns(500_000);
            prop_assert!(read.abs_diff(value) <= value / 128, "{read} for {value}");
        }

        #[test]
        fn merging_is_the_same_as_counting_all_in_one(
            a in prop::collection::vec(0_u64..1 << 34, 0..50),
            b in prop::collection::vec(0_u64..1 << 34, 0..50),
        ) {
            let count = |values: &[u64]| {
                let mut histogram = Histogram::default();
                values.iter().for_each(|&value| histogram.record(value));
                histogram
            };
            let mut merged = count(&a);
            merged.merge(&count(&b));
            prop_assert_eq!(merged, count(&[a, b].concat()));
        }
    }
}
