//! The data area of a ring, dealt out in pieces.

/// Pieces begin at a multiple of this.
const UNIT_BYTES: u32 = 4096;

/// Which pieces are in use. First fit; there are as many as a ring has slots, at most.
#[derive(Debug)]
pub(crate) struct Arena {
    size_bytes: u32,
    /// Offset and length, in order.
    used: Vec<(u32, u32)>,
}

impl Arena {
    pub(crate) const fn new(size_bytes: u32) -> Self {
        Self {
            size_bytes,
            used: Vec::new(),
        }
    }

    /// The offset of a new piece, also for no bytes; `None`: no gap is large enough.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<u32> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT_BYTES)?;
        let mut from = 0_u32;
        let mut at = self.used.len();
        for (index, (offset, length)) in self.used.iter().enumerate() {
            if offset.saturating_sub(from) >= bytes {
                at = index;
                break;
            }
            from = offset.saturating_add(*length);
        }
        if from.checked_add(bytes)? > self.size_bytes {
            return None;
        }
        self.used.insert(at, (from, bytes));
        Some(from)
    }

    /// The piece at this offset is free again.
    pub(crate) fn give_back(&mut self, offset: u32) {
        if let Ok(at) = self.used.binary_search_by_key(&offset, |piece| piece.0) {
            self.used.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn gaps_are_used_again_and_the_end_is_the_end() {
        let mut arena = Arena::new(5 * UNIT_BYTES);
        assert_eq!(arena.take(1), Some(0));
        assert_eq!(arena.take(2 * UNIT_BYTES), Some(UNIT_BYTES));
        assert_eq!(arena.take(UNIT_BYTES), Some(3 * UNIT_BYTES));
        assert_eq!(arena.take(2 * UNIT_BYTES), None);
        arena.give_back(UNIT_BYTES);
        assert_eq!(arena.take(UNIT_BYTES + 1), Some(UNIT_BYTES));
        assert_eq!(arena.take(UNIT_BYTES), Some(4 * UNIT_BYTES));
        assert_eq!((arena.take(0), arena.take(u32::MAX)), (None, None));
        arena.give_back(0);
        assert_eq!(arena.take(0), Some(0));
    }

    proptest! {
        #[test]
        fn no_two_pieces_overlap(steps in proptest::collection::vec((any::<bool>(), 0_u32..40_000), 1..80)) {
            let mut arena = Arena::new(64 * UNIT_BYTES);
            let mut taken: Vec<(u32, u32)> = Vec::new();
            for (takes, bytes) in steps {
                if takes {
                    let Some(offset) = arena.take(bytes) else { continue };
                    let end = offset + bytes.max(1);
                    prop_assert!(end <= 64 * UNIT_BYTES);
                    let overlaps = |(at, length): &(u32, u32)| *at < end && offset < at + length;
                    prop_assert!(!taken.iter().any(overlaps));
                    taken.push((offset, bytes.max(1)));
                } else if let Some((offset, _)) = taken.pop() {
                    arena.give_back(offset);
                }
            }
        }
    }
}
