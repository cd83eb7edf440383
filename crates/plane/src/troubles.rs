//! What a core knows of troubles with stores: failures by unit and cause, requests that are not given back, commands
//! that waited long. Written where something failed, so the way of a command that succeeds does not come here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::UnitIndex;
use store::Cause;

use crate::bucket::Bucket;

/// How many causes of a unit are counted. What comes later is counted as [`Cause::System`] 0, as an unknown one.
const CAUSES_MAX: usize = 16;

/// Of one cause of a unit this many are reported at once.
const REPORTS_MAX: u32 = 1;

/// One more may be reported after each of these.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Of the reservation conflicts of a unit one is reported after each of these. They are ordinary in clusters.
const CONFLICT_EVERY: Duration = Duration::from_secs(600);

/// Failures of the store of a unit that have the same cause.
#[derive(Debug)]
struct Failing {
    count: u64,
    last: Instant,
    reports: Bucket,
}

/// Commands of a unit that ended with RESERVATION CONFLICT.
#[derive(Debug)]
struct Conflicts {
    last: Conflict,
    reports: Bucket,
}

/// The last command of a unit that ended with RESERVATION CONFLICT.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// InitiatorName.
    pub initiator: Box<str>,
    /// When.
    pub at: Instant,
}

/// What is the matter with a unit.
#[derive(Debug, Default)]
struct Trouble {
    is_stuck: bool,
    slow: Option<Instant>,
    /// Blocks that it had and has no more: how many they were, and are.
    shrunk: Option<(u64, u64)>,
    failures: BTreeMap<Cause, Failing>,
    conflicts: Option<Conflicts>,
}

/// What one core knows. Locked by the core when something has failed, and by those who read.
#[derive(Debug, Default)]
pub(crate) struct Troubles(Mutex<BTreeMap<UnitIndex, Trouble>>);

impl Troubles {
    /// Every change of a row is a single step, so a thread that panicked has left whole ones.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<UnitIndex, Trouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts failures of one cause. Says whether they are to be reported, and how many were not before them.
    pub(crate) fn note_failures(
        &self,
        unit: UnitIndex,
        cause: Cause,
        count: u64,
        now: Duration,
    ) -> Option<u64> {
        let mut all = self.lock();
        let failures = &mut all.entry(unit).or_default().failures;
        let is_full = failures.len() >= CAUSES_MAX && !failures.contains_key(&cause);
        let cause = if is_full { Cause::System(0) } else { cause };
        let at = Instant::now();
        let failing = failures.entry(cause).or_insert_with(|| Failing {
            count: 0,
            last: at,
            reports: Bucket::new(REPORTS_MAX, REPORT_EVERY),
        });
        failing.count = failing.count.saturating_add(count);
        failing.last = at;
        let unreported = failing.reports.take(now);
        failing.reports.leave_out(count.saturating_sub(1));
        unreported
    }

    /// Counts reservation conflicts. Says as [`Troubles::note_failures`] what is to be reported.
    pub(crate) fn note_conflict(
        &self,
        unit: UnitIndex,
        initiator: &str,
        count: u64,
        now: Duration,
    ) -> Option<u64> {
        let mut all = self.lock();
        let last = Conflict {
            initiator: initiator.into(),
            at: Instant::now(),
        };
        let conflicts = &mut all.entry(unit).or_default().conflicts;
        let conflicts = conflicts.get_or_insert_with(|| Conflicts {
            last: last.clone(),
            reports: Bucket::new(REPORTS_MAX, CONFLICT_EVERY),
        });
        conflicts.last = last;
        let unreported = conflicts.reports.take(now);
        conflicts.reports.leave_out(count.saturating_sub(1));
        unreported
    }

    /// A store keeps a request, or has given all of them back.
    pub(crate) fn set_stuck(&self, unit: UnitIndex, is_stuck: bool) {
        self.lock().entry(unit).or_default().is_stuck = is_stuck;
    }

    /// A command waited for the store for longer than for all else, and was slow.
    pub(crate) fn note_slow(&self, unit: UnitIndex) {
        self.lock().entry(unit).or_default().slow = Some(Instant::now());
    }

    /// The unit has another size. One that has shrunk stays so until it is as large as it was.
    pub(crate) fn note_size(&self, unit: UnitIndex, before: u64, blocks: u64) {
        let mut all = self.lock();
        let largest = all.get(&unit).and_then(|trouble| trouble.shrunk);
        let largest = largest.map_or(before, |(largest, _)| largest.max(before));
        if blocks < largest {
            all.entry(unit).or_default().shrunk = Some((largest, blocks));
        } else if let Some(trouble) = all.get_mut(&unit) {
            trouble.shrunk = None;
        }
    }

    /// The unit is gone, and what was the matter with it.
    pub(crate) fn remove_unit(&self, unit: UnitIndex) {
        self.lock().remove(&unit);
    }

    pub(crate) fn read(&self) -> Vec<StoreTrouble> {
        let all = self.lock();
        let one = |(unit, trouble): (&UnitIndex, &Trouble)| {
            let failures = trouble.failures.iter();
            let failures = failures.map(|(cause, failing)| StoreFailing {
                cause: *cause,
                count: failing.count,
                last: failing.last,
            });
            StoreTrouble {
                unit: *unit,
                is_stuck: trouble.is_stuck,
                slow: trouble.slow,
                shrunk: trouble.shrunk,
                failures: failures.collect(),
                conflict: trouble.conflicts.as_ref().map(|it| it.last.clone()),
            }
        };
        all.iter().map(one).collect()
    }
}

/// What a core knows of a unit and its store.
#[derive(Clone, Debug)]
pub struct StoreTrouble {
    /// The unit.
    pub unit: UnitIndex,
    /// The store does not give requests of this core back that were to end.
    pub is_stuck: bool,
    /// When a command was reported last that was slow because of the store.
    pub slow: Option<Instant>,
    /// The blocks that the unit had at most, and those that it has, where these are fewer.
    pub shrunk: Option<(u64, u64)>,
    /// Commands that failed because of the store, since the unit was opened.
    pub failures: Vec<StoreFailing>,
    /// The last command that a reservation of others has ended.
    pub conflict: Option<Conflict>,
}

/// Commands that failed because of a store, by cause.
#[derive(Clone, Copy, Debug)]
pub struct StoreFailing {
    /// Their cause.
    pub cause: Cause,
    /// How many.
    pub count: u64,
    /// When the last one did.
    pub last: Instant,
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: UnitIndex = UnitIndex(3);

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn every_failure_is_counted_and_few_are_reported_by_cause() {
        let troubles = Troubles::default();
        let note = |cause, count, at| troubles.note_failures(UNIT, cause, count, seconds(at));
        assert_eq!(note(Cause::Medium, 3, 100), Some(0));
        assert_eq!(note(Cause::Medium, 5, 101), None);
        assert_eq!(note(Cause::NoSpace, 1, 101), Some(0), "another cause");
        assert_eq!(
            note(Cause::Medium, 1, 111),
            Some(7),
            "2 of the first 3, and 5"
        );
        let read = troubles.read();
        let counts: Vec<_> = read[0]
            .failures
            .iter()
            .map(|one| (one.cause, one.count))
            .collect();
        assert_eq!(counts, [(Cause::Medium, 9), (Cause::NoSpace, 1)]);
    }

    #[test]
    fn causes_beyond_the_limit_share_a_row() {
        let troubles = Troubles::default();
        for errno in 1..100 {
            troubles.note_failures(UNIT, Cause::System(errno), 1, seconds(1));
        }
        let failures = &troubles.read()[0].failures;
        assert_eq!(failures.len(), CAUSES_MAX + 1);
        assert_eq!(failures[0].cause, Cause::System(0));
        assert_eq!(failures.iter().map(|one| one.count).sum::<u64>(), 99);
    }

    #[test]
    fn of_many_conflicts_the_first_is_reported_and_the_last_is_known() {
        let troubles = Troubles::default();
        let note = |who, count, at| troubles.note_conflict(UNIT, who, count, seconds(at));
        assert_eq!(note("iqn.a", 2, 1000), Some(0));
        assert_eq!(note("iqn.b", 3, 1599), None);
        assert_eq!(
            &*troubles.read()[0].conflict.clone().unwrap().initiator,
            "iqn.b"
        );
        assert_eq!(note("iqn.a", 1, 1600), Some(4));
    }

    #[test]
    fn a_unit_is_shrunk_until_it_is_as_large_as_it_was() {
        let troubles = Troubles::default();
        troubles.note_size(UNIT, 8, 16);
        assert!(troubles.read().is_empty(), "it has grown");
        troubles.note_size(UNIT, 16, 10);
        troubles.note_size(UNIT, 10, 4);
        assert_eq!(troubles.read()[0].shrunk, Some((16, 4)));
        troubles.note_size(UNIT, 4, 15);
        assert_eq!(troubles.read()[0].shrunk, Some((16, 15)));
        troubles.note_size(UNIT, 15, 16);
        assert_eq!(troubles.read()[0].shrunk, None);
    }

    #[test]
    fn a_unit_that_is_gone_takes_its_troubles_with_it() {
        let troubles = Troubles::default();
        troubles.set_stuck(UNIT, true);
        troubles.note_slow(UNIT);
        let [trouble] = &troubles.read()[..] else {
            panic!("one unit")
        };
        assert!(trouble.is_stuck && trouble.slow.is_some());
        troubles.set_stuck(UNIT, false);
        assert!(!troubles.read()[0].is_stuck);
        troubles.remove_unit(UNIT);
        assert!(troubles.read().is_empty());
    }
}
