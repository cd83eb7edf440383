//! The clock of a reactor.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Time since the second in which it was made (`CLOCK_MONOTONIC`). It counts from a whole second, so that a look at it,
/// of which each turn takes some, borrows nothing between seconds and nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start_seconds: i64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            start_seconds: clock_gettime(ClockId::Monotonic).tv_sec,
        }
    }

    #[inline]
    pub(crate) fn elapsed(self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        // This clock never goes back, and its nanoseconds are fewer than a second.
        let seconds = (now.tv_sec - self.start_seconds).unsigned_abs();
        Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_goes_as_fast_as_others_and_begins_within_a_second() {
        let (clock, other) = (Clock::start(), Instant::now());
        let first = clock.elapsed();
        assert!(first < Duration::from_secs(60), "{first:?}");
        let (before, began) = (other.elapsed(), clock.elapsed());
        while other.elapsed() < before + Duration::from_millis(5) {
            std::hint::spin_loop();
        }
        let (ended, after) = (clock.elapsed(), other.elapsed());
        assert!(ended - began <= after - before);
        assert!(clock.elapsed() >= ended && ended > began);
    }
}
