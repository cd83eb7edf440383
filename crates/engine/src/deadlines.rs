//! Deadlines of entries, the soonest first.
//!
//! An entry that is gone, or whose deadline has moved, is not looked for: what stands here for it is
//! forgotten, or moved, when its time comes. So an entry whose deadline comes *sooner* than it was has
//! to be set again, and one whose deadline comes later need not be.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// What stands here for entries that are gone is cleared away beyond so many, and twice those that
/// are there.
const STALE_MIN: usize = 64;

/// Deadlines of entries that are named by `K`.
#[derive(Debug)]
pub struct Deadlines<K>(BinaryHeap<Reverse<(Duration, K)>>);

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self(BinaryHeap::new())
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// The entry has a deadline from now on, or one that comes sooner than before.
    pub fn set(&mut self, key: K, at: Duration) {
        self.0.push(Reverse((at, key)));
    }

    /// The soonest deadline. `of` gives that of an entry as it is now, `entries` is how many there are.
    pub fn next(&mut self, entries: usize, of: impl Fn(K) -> Option<Duration>) -> Option<Duration> {
        if self.0.len() > STALE_MIN + 2 * entries {
            self.0.retain(|Reverse((at, key))| of(*key) == Some(*at));
        }
        loop {
            let &Reverse((at, key)) = self.0.peek()?;
            match of(key) {
                Some(now) if now <= at => return Some(now),
                Some(later) => {
                    self.0.pop();
                    self.0.push(Reverse((later, key)));
                }
                None => {
                    self.0.pop();
                }
            }
        }
    }

    /// Takes an entry whose deadline has come.
    pub fn due(&mut self, now: Duration, of: impl Fn(K) -> Option<Duration>) -> Option<K> {
        loop {
            let &Reverse((at, key)) = self.0.peek()?;
            if at > now {
                return None;
            }
            self.0.pop();
            match of(key) {
                Some(deadline) if deadline <= now => return Some(key),
                Some(later) => self.0.push(Reverse((later, key))),
                None => {}
            }
        }
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
        assert!(deadlines.0.len() <= STALE_MIN + 3, "{}", deadlines.0.len());
    }
}
