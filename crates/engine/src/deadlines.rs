//! Deadlines of entries, the soonest first.
//!
//! An entry that is gone, or whose deadline has moved, is not looked for: what stands here for it is
//! forgotten, or moved, when its time comes. So an entry whose deadline comes *sooner* than it was has
//! to be set again, and one whose deadline comes later need not be.
//!
//! Before a core sleeps it asks for [`Deadlines::soonest`], a bound that looks at no entry and is never later than
//! [`Deadlines::next`]: every deadline that is set lowers it. As long as the bounds of all tables are not below the
//! moment until which the core slept before, that moment stands, and no table is looked through. A table that is full
//! of what is gone says so by its bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What stands here for entries that are gone is cleared away beyond so many, and twice those that
/// are there.
const STALE_MIN: usize = 64;

/// Lines for so many entries.
const fn most(entries: usize) -> usize {
    STALE_MIN + 2 * entries
}

const NANOS_OF_A_SECOND: u64 = 1_000_000_000;

/// A moment before which nothing is due, in nanoseconds: what is compared in every turn.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Moment(u64);

impl Moment {
    /// Something may be due at once.
    pub const START: Self = Self(0);

    /// Nothing is ever due.
    pub const NEVER: Self = Self(u64::MAX);

    /// When something is due at this time, if ever.
    #[inline]
    pub const fn of(at: Option<Duration>) -> Self {
        match at {
            Some(at) => Self::at(at),
            None => Self::NEVER,
        }
    }

    /// This time; never a later one.
    #[inline]
    pub const fn at(at: Duration) -> Self {
        let seconds = at.as_secs().saturating_mul(NANOS_OF_A_SECOND);
        let nanos = seconds.saturating_add(at.subsec_nanos() as u64);
        Self(nanos)
    }
}

/// Deadlines of entries that are named by `K`.
#[derive(Debug)]
pub struct Deadlines<K> {
    all: BinaryHeap<Reverse<(Duration, K)>>,
    /// The time of the first, changed with it.
    soonest: Moment,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self {
            all: BinaryHeap::new(),
            soonest: Moment::NEVER,
        }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// The entry has a deadline from now on, or one that comes sooner than before.
    pub fn set(&mut self, key: K, at: Duration) {
        self.all.push(Reverse((at, key)));
        self.soonest = self.soonest.min(Moment::at(at));
    }

    /// Before this moment no deadline comes that was set; perhaps none comes then either. [`Moment::START`] where too
    /// much stands here for what is gone, so that who asks looks with [`Deadlines::next`], which clears it away.
    #[inline]
    pub fn soonest(&self, entries: usize) -> Moment {
        match self.is_crowded(entries) {
            true => Moment::START,
            false => self.soonest,
        }
    }

    #[inline]
    fn is_crowded(&self, entries: usize) -> bool {
        self.all.len() > most(entries)
    }

    /// The soonest deadline. `of` gives that of an entry as it is now, `entries` is how many there are.
    pub fn next(&mut self, entries: usize, of: impl Fn(K) -> Option<Duration>) -> Option<Duration> {
        if self.is_crowded(entries) {
            self.clear_away(&of);
            self.all.shrink_to(2 * most(entries));
        }
        let next = loop {
            let Some(&Reverse((at, key))) = self.all.peek() else {
                break None;
            };
            match of(key) {
                // One that comes sooner and was not set again is taken at the time that was set.
                Some(now) if now <= at => break Some(at),
                Some(later) => {
                    self.all.pop();
                    self.all.push(Reverse((later, key)));
                }
                None => {
                    self.all.pop();
                }
            }
        };
        self.soonest = Moment::of(next);
        next
    }

    /// Takes an entry whose deadline has come.
    #[inline]
    pub fn due(&mut self, now: Duration, of: impl Fn(K) -> Option<Duration>) -> Option<K> {
        if self.soonest > Moment::at(now) {
            return None;
        }
        self.take_due(now, of)
    }

    /// Leaves one line for each entry that has a deadline: also for one whose deadline has moved, which may have no
    /// other.
    fn clear_away(&mut self, of: impl Fn(K) -> Option<Duration>) {
        let lines = self.all.drain();
        let mut lines: Vec<(K, Duration)> = lines.map(|Reverse((at, key))| (key, at)).collect();
        lines.sort_unstable();
        lines.dedup_by_key(|(key, _)| *key);
        let lines = lines.into_iter();
        let kept = lines.filter_map(|(key, at)| Some(Reverse((of(key)?.max(at), key))));
        self.all.extend(kept);
    }

    fn take_due(&mut self, now: Duration, of: impl Fn(K) -> Option<Duration>) -> Option<K> {
        let due = loop {
            let Some(&Reverse((at, key))) = self.all.peek() else {
                break None;
            };
            if at > now {
                break None;
            }
            self.all.pop();
            match of(key) {
                Some(deadline) if deadline <= now => break Some(key),
                Some(later) => self.all.push(Reverse((later, key))),
                None => {}
            }
        };
        let first = self.all.peek();
        self.soonest = Moment::of(first.map(|Reverse((at, _))| *at));
        due
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::table::Key;

    const fn key(number: u64) -> Key<()> {
        Key::from_bits(number)
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_soonest_comes_first_and_what_is_gone_or_later_does_not() {
        let mut deadlines = Deadlines::default();
        let mut entries = HashMap::from([(key(1), at(3)), (key(2), at(1)), (key(3), at(2))]);
        for (&key, &at) in &entries {
            deadlines.set(key, at);
        }
        let of = |entries: &HashMap<_, _>, key| entries.get(&key).copied();
        assert_eq!(deadlines.next(3, |key| of(&entries, key)), Some(at(1)));
        entries.remove(&key(2));
        assert_eq!(deadlines.next(2, |key| of(&entries, key)), Some(at(2)));
        entries.insert(key(3), at(9));
        assert_eq!(deadlines.next(2, |key| of(&entries, key)), Some(at(3)));
        assert_eq!(deadlines.due(at(2), |key| of(&entries, key)), None);
        assert_eq!(deadlines.due(at(9), |key| of(&entries, key)), Some(key(1)));
        entries.remove(&key(1));
        assert_eq!(deadlines.due(at(9), |key| of(&entries, key)), Some(key(3)));
        entries.remove(&key(3));
        assert_eq!(deadlines.next(0, |key| of(&entries, key)), None);
    }

    #[test]
    fn a_deadline_that_comes_sooner_is_set_again() {
        let mut deadlines = Deadlines::default();
        deadlines.set(key(1), at(5));
        deadlines.set(key(1), at(2));
        let of = |_| Some(at(2));
        assert_eq!(deadlines.next(1, of), Some(at(2)));
        assert_eq!(deadlines.due(at(2), of), Some(key(1)));
    }

    #[test]
    fn what_is_gone_takes_no_room() {
        let mut deadlines = Deadlines::default();
        for number in 0..10_000 {
            deadlines.set(key(number), at(5));
            deadlines.next(1, |other| (other == key(number)).then(|| at(5)));
        }
        assert!(
            deadlines.all.len() <= STALE_MIN + 3,
            "{}",
            deadlines.all.len()
        );
    }

    #[test]
    fn a_deadline_that_moved_is_not_cleared_away_with_what_is_gone() {
        let mut deadlines = Deadlines::default();
        deadlines.set(key(0), at(3));
        for number in 1..1000 {
            deadlines.set(key(number), at(9));
        }
        // It comes later now, so nobody sets it again.
        let of = |other| (other == key(0)).then(|| at(5));
        assert_eq!(deadlines.next(1, of), Some(at(5)));
        assert_eq!(deadlines.all.len(), 1);
        assert_eq!(deadlines.due(at(5), of), Some(key(0)));
    }

    #[test]
    fn the_bound_is_never_later_than_the_soonest_and_falls_with_each_that_is_set() {
        let mut deadlines = Deadlines::default();
        let mut entries = HashMap::new();
        assert_eq!(deadlines.soonest(0), Moment::NEVER);
        let mut seed = 7u64;
        for number in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (name, time) = (key(seed >> 60), Duration::from_millis(seed >> 40 & 0xffff));
            let of = |entries: &HashMap<_, _>, key| entries.get(&key).copied();
            match number % 7 {
                0 => drop(entries.remove(&name)),
                1 => drop(deadlines.due(time, |key| of(&entries, key))),
                2 => drop(deadlines.next(entries.len(), |key| of(&entries, key))),
                _ => {
                    let before = entries.insert(name, time);
                    if before.is_none_or(|before| time < before) {
                        deadlines.set(name, time);
                        assert!(deadlines.soonest(entries.len()) <= Moment::at(time));
                    }
                }
            }
            // What was taken is no entry any more for its owner, who sets the next deadline of it.
            let standing = deadlines.all.iter().map(|Reverse((at, _))| Moment::at(*at));
            assert_eq!(standing.min().unwrap_or(Moment::NEVER), deadlines.soonest);
        }
    }

    /// As a core does, which looks where the bound is sooner than the moment until which it slept.
    #[test]
    fn what_is_gone_is_cleared_away_by_who_looks_at_the_bound_alone() {
        let mut deadlines = Deadlines::default();
        deadlines.set(key(0), at(1));
        let of = |other| (other == key(0)).then(|| at(1));
        let slept_until = Moment::at(at(1));
        let mut most_lines = 0;
        for number in 1..100_000 {
            deadlines.set(key(number), at(9));
            if deadlines.soonest(1) < slept_until {
                assert_eq!(deadlines.next(1, of), Some(at(1)));
            }
            most_lines = most_lines.max(deadlines.all.len());
        }
        assert!(most_lines <= STALE_MIN + 3, "{most_lines} lines");
        assert!(deadlines.all.capacity() <= 4 * (STALE_MIN + 2));
    }

    #[test]
    fn a_moment_is_never_later_than_its_time() {
        for time in [Duration::ZERO, at(1), Duration::new(5, 999_999_999)] {
            assert_eq!(u128::from(Moment::at(time).0), time.as_nanos());
        }
        assert_eq!(Moment::at(Duration::MAX), Moment::NEVER);
        assert_eq!(Moment::of(None), Moment::NEVER);
    }
}
