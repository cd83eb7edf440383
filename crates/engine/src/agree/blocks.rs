//! Ranges of blocks, and whether they meet.

use std::ops::Range;

use scsi::WHOLE_MEDIUM;

/// Ranges that a [`BlockSet`] keeps apart.
pub const RANGES_MAX: usize = 16;

/// True when the ranges have a block in common.
pub fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// Blocks of a unit: at most [`RANGES_MAX`] ranges in order, none of which touches the next. Where more are needed,
/// the smallest gaps are closed: the set may have blocks more than were put in, and never one less.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BlockSet(Vec<Range<u64>>);

impl BlockSet {
    /// All blocks that a unit may ever have.
    pub fn whole() -> Self {
        Self(vec![WHOLE_MEDIUM])
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// No block is in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All blocks are.
    pub fn is_whole(&self) -> bool {
        self.0 == [WHOLE_MEDIUM]
    }

    /// Whether it has all blocks of a range.
    pub fn has_all(&self, blocks: &Range<u64>) -> bool {
        let has = |range: &Range<u64>| range.start <= blocks.start && blocks.end <= range.end;
        self.0.iter().any(has)
    }

    /// Whether it has a block in common with a range.
    pub fn overlaps(&self, blocks: &Range<u64>) -> bool {
        self.0.iter().any(|range| overlap(range, blocks))
    }
}

impl FromIterator<Range<u64>> for BlockSet {
    /// All that is in one of the ranges, which come in any order and may meet; empty ones count for nothing.
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let ranges = ranges.into_iter().filter(|range| !range.is_empty());
        let mut all: Vec<Range<u64>> = ranges.collect();
        all.sort_unstable_by_key(|range| range.start);
        let mut set: Vec<Range<u64>> = Vec::new();
        for next in all {
            match set.last_mut() {
                Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
                Some(_) | None => set.push(next),
            }
        }
        while set.len() > RANGES_MAX {
            let gap = |at: &usize| set[*at].start - set[*at - 1].end;
            let Some(at) = (1..set.len()).min_by_key(gap) else {
                break;
            };
            set[at - 1].end = set.remove(at).end;
        }
        debug_assert!(
            set.iter().all(|range| !range.is_empty()) && set.is_sorted_by(|a, b| a.end < b.start),
            "{set:?} is in no order"
        );
        Self(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> BlockSet {
        ranges.iter().map(|&(start, end)| start..end).collect()
    }

    #[test]
    fn ranges_overlap_when_they_share_a_block() {
        for (a, b, expected) in [
            (0..1, 1..2, false),
            (0..2, 1..3, true),
            (5..6, 0..10, true),
            (3..3, 0..10, false),
            (7..9, 0..7, false),
        ] {
            assert_eq!(overlap(&a, &b), expected, "{a:?} {b:?}");
            assert_eq!(overlap(&b, &a), expected, "{b:?} {a:?}");
        }
    }

    #[test]
    fn a_set_has_the_blocks_of_its_ranges_and_no_other() {
        let set = set(&[(30, 40), (0, 10), (5, 12), (12, 14), (50, 50)]);
        assert_eq!(set.ranges(), [0..14, 30..40]);
        for (blocks, expected) in [
            (13..14, true),
            (14..30, false),
            (29..31, true),
            (40..60, false),
            (35..35, false),
            (WHOLE_MEDIUM, true),
        ] {
            assert_eq!(set.overlaps(&blocks), expected, "{blocks:?}");
        }
        assert!(!set.is_empty() && !set.is_whole());
        assert!(BlockSet::default().is_empty() && BlockSet::whole().is_whole());
        assert!(!BlockSet::default().overlaps(&WHOLE_MEDIUM));
    }

    #[test]
    fn a_range_too_many_closes_the_smallest_gap_and_no_other() {
        let most = u64::try_from(RANGES_MAX).unwrap();
        let full: Vec<(u64, u64)> = (0..most).map(|at| (at * 100, at * 100 + 10)).collect();
        assert_eq!(set(&full).ranges().len(), RANGES_MAX);
        let mut more = full;
        more.push((350, 351));
        let set = set(&more);
        assert_eq!(set.ranges().len(), RANGES_MAX);
        assert!(set.overlaps(&(320..321)), "310..350 is the smallest gap");
        for free in [10..100, 210..300, 351..400] {
            assert!(!set.overlaps(&free), "{free:?}");
        }
        assert!(
            more.iter()
                .all(|&(start, _)| set.overlaps(&(start..start + 1)))
        );
    }
}
