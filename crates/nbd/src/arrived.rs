//! Which bytes of a read have arrived. A reply that sends some bytes twice and leaves others out is not complete.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;

/// Runs of bytes behind a gap that are remembered. Servers send data in order, or in a few parts; a reply with more
/// gaps than this is refused.
const APART_MAX: usize = 256;

/// The bytes of one read that have come.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    /// All in front of this one.
    until: u32,
    /// Further ones, in order, with a gap before each. Empty without allocation where data comes in order.
    apart: Vec<Range<u32>>,
}

impl Arrived {
    /// Takes note of bytes, at least one. False if some of them had come already, or if they leave too many gaps.
    pub(crate) fn add(&mut self, part: Range<u32>) -> bool {
        let next = self.apart.partition_point(|one| one.end <= part.start);
        let follows = |one: Option<&Range<u32>>| one.is_none_or(|one| part.end <= one.start);
        if part.is_empty() || part.start < self.until || !follows(self.apart.get(next)) {
            return false;
        }
        if part.start == self.until {
            // Nothing apart can end before it.
            self.until = part.end;
            if self.apart.first().is_some_and(|one| one.start == part.end) {
                self.until = self.apart.remove(0).end;
            }
            return true;
        }
        let touches_next = self
            .apart
            .get(next)
            .is_some_and(|one| one.start == part.end);
        let end = match touches_next {
            true => self.apart.remove(next).end,
            false => part.end,
        };
        let is_full = self.apart.len() >= APART_MAX;
        let before = next.checked_sub(1).and_then(|at| self.apart.get_mut(at));
        match before.filter(|one| one.end == part.start) {
            Some(one) => one.end = end,
            None if is_full => return false,
            None => self.apart.insert(next, part.start..end),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_have_a_limit() {
        let gaps = u32::try_from(APART_MAX).unwrap();
        let mut arrived = Arrived::default();
        assert!((1..=gaps).all(|number| arrived.add(2 * number..2 * number + 1)));
        assert!(!arrived.add(2 * gaps + 2..2 * gaps + 3));
        // What closes one is no new one.
        assert!(arrived.add(2 * gaps + 1..2 * gaps + 2));
        assert!(arrived.add(0..2));
        assert_eq!(arrived.until, 3);
    }

    proptest! {
        /// As a set of bytes would have it.
        #[test]
        fn a_byte_comes_once(parts in proptest::collection::vec((0_u32..64, 0_u32..8), 0..40)) {
            let mut arrived = Arrived::default();
            let mut bytes = [false; 72];
            for (start, length) in parts {
                let part = start..start.saturating_add(length);
                let places = usize::try_from(start).unwrap()..usize::try_from(part.end).unwrap();
                let is_new = length > 0 && bytes[places.clone()].iter().all(|there| !there);
                prop_assert_eq!(arrived.add(part), is_new);
                if is_new {
                    bytes[places].fill(true);
                }
                let until = bytes.iter().take_while(|there| **there).count();
                prop_assert_eq!(usize::try_from(arrived.until).unwrap(), until);
            }
        }
    }
}
