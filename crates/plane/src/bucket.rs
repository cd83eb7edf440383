//! Limits the rate of reports about what may happen very often: some at once, then one from time to time. What
//! is left out is counted, and the count is in the next report.

use std::time::Duration;

/// Counts how many more may be reported.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// How many are reported at once.
    most: u32,
    /// One more may be reported after each of these.
    every: Duration,
    /// How many may be reported now.
    left: u32,
    /// When that was last counted up.
    filled: Duration,
    unreported: u64,
}

impl Bucket {
    /// A full one.
    pub(crate) const fn new(most: u32, every: Duration) -> Self {
        Self {
            most,
            every,
            left: most,
            filled: Duration::ZERO,
            unreported: 0,
        }
    }

    fn fill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.filled).as_nanos() / self.every.as_nanos();
        let more = u32::try_from(passed).unwrap_or(u32::MAX);
        if more >= self.most - self.left {
            self.left = self.most;
            self.filled = now;
        } else {
            self.left += more;
            self.filled += self.every * more;
        }
    }

    /// Whether one more may be reported, and if so, how many were not before it. One that may not is
    /// counted.
    pub(crate) fn take(&mut self, now: Duration) -> Option<u64> {
        self.admit(now).then(|| self.take_unreported())
    }

    /// As [`Bucket::take`], but those that were not reported stay counted until
    /// [`Bucket::take_unreported`].
    pub(crate) fn admit(&mut self, now: Duration) -> bool {
        self.fill(now);
        if self.left == 0 {
            self.unreported += 1;
            return false;
        }
        self.left -= 1;
        true
    }

    /// More came with one that is reported: they are counted as left out.
    pub(crate) const fn leave_out(&mut self, count: u64) {
        self.unreported = self.unreported.saturating_add(count);
    }

    /// How many were not reported since the last call.
    pub(crate) const fn take_unreported(&mut self) -> u64 {
        std::mem::replace(&mut self.unreported, 0)
    }

    /// Whether one more may be reported.
    pub(crate) fn may_report(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_burst_they_are_counted_and_the_next_one_has_the_count() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut bucket = Bucket::new(8, SECOND * 10);
        let start = SECOND * 1000;
        for n in 0..8 {
            assert_eq!(bucket.take(start), Some(0), "{n}");
        }
        assert_eq!(bucket.take(start), None);
        assert_eq!(bucket.take(start + SECOND * 9), None);
        assert_eq!(bucket.take(start + SECOND * 10), Some(2));
        assert!(!bucket.may_report(start + SECOND * 10));
        assert_eq!(bucket.take(start + SECOND * 10), None);
        assert_eq!(bucket.take(start + SECOND * 10_000), Some(1));
        assert_eq!(bucket.left, 7);
    }

    #[test]
    fn a_part_of_a_period_is_not_lost() {
        const SECOND: Duration = Duration::from_secs(1);
        let mut bucket = Bucket::new(2, SECOND * 10);
        let start = SECOND * 1000;
        assert!(bucket.admit(start) && bucket.admit(start));
        assert!(bucket.admit(start + SECOND * 15));
        assert!(!bucket.admit(start + SECOND * 19));
        assert!(bucket.admit(start + SECOND * 20));
    }
}
