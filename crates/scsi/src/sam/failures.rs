//! What failed in the store of a unit, until its core counts it.
//!
//! Noted where a failure becomes sense data, so a request that does not fail costs nothing here.

use std::cell::RefCell;

use store::{Cause, IoFailure};

/// How many causes are counted apart until the next take. Later ones are counted with the last of these.
const CAUSES_MAX: usize = 8;

/// Failures of one cause.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreFailures {
    /// Their cause.
    pub cause: Cause,
    /// The first of them.
    pub first: IoFailure,
    /// How many there were.
    pub count: u64,
}

/// Failures that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Failures(RefCell<Vec<StoreFailures>>);

impl Failures {
    /// A request of the store failed, and its initiator is answered so.
    #[cold]
    pub(crate) fn note(&self, failure: &IoFailure) {
        let Some(cause) = failure.cause() else {
            return;
        };
        let mut all = self.0.borrow_mut();
        let is_full = all.len() >= CAUSES_MAX;
        if let Some(known) = all.iter_mut().find(|one| one.cause == cause) {
            known.count = known.count.saturating_add(1);
            return;
        }
        if is_full && let Some(last) = all.last_mut() {
            last.count = last.count.saturating_add(1);
            return;
        }
        all.push(StoreFailures {
            cause,
            first: failure.clone(),
            count: 1,
        });
    }

    /// All since the last time.
    pub(crate) fn take(&self) -> Vec<StoreFailures> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_cause_until_they_are_taken() {
        let failures = Failures::default();
        failures.note(&IoFailure::Miscompare { offset: 1 });
        assert_eq!(failures.take(), []);
        for offset in [512, 1024] {
            failures.note(&IoFailure::NoSpace { offset });
        }
        failures.note(&IoFailure::FlushLatched);
        let taken = failures.take();
        let taken: Vec<_> = taken.iter().map(|one| (&one.first, one.count)).collect();
        let first = IoFailure::NoSpace { offset: 512 };
        assert_eq!(taken, [(&first, 2), (&IoFailure::FlushLatched, 1)]);
        assert_eq!(failures.take(), []);
    }

    #[test]
    fn causes_beyond_the_limit_are_counted_with_the_last() {
        let failures = Failures::default();
        for errno in 1..=20 {
            failures.note(&IoFailure::Hardware { errno });
        }
        let taken = failures.take();
        assert_eq!(taken.len(), CAUSES_MAX);
        assert_eq!(taken.iter().map(|one| one.count).sum::<u64>(), 20);
    }
}
