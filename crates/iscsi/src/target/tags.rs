//! The initiator task tags of a session, by place in its table of tasks.

use crate::pdu::RESERVED_TAG;

/// So many tags are compared at once.
const ROW: usize = 16;

/// Counts of tags, by the upper bits of a product with [`SPREAD`].
const COUNTS: usize = 128;
/// An odd number near 2^32 / 1.618: whatever initiators count in, its products spread.
const SPREAD: u32 = 0x9e37_79b1;

/// The tag of each place, [`RESERVED_TAG`] where no task is. The last row is filled up with that.
///
/// Every command asks whether its tag is in use, and the answer is nearly always "no". Most often a count says so: no
/// tag in use has the same product. Else the whole table is read. A search that may stop at any tag is compiled to one
/// comparison at a time; one that stops only after a row of fixed length compares four at a time.
#[derive(Debug)]
pub(super) struct Tags {
    rows: Vec<[u32; ROW]>,
    counts: [u32; COUNTS],
}

impl Default for Tags {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            counts: [0; COUNTS],
        }
    }
}

impl Tags {
    /// Gives a place to a tag.
    #[inline]
    pub(super) fn set(&mut self, place: u32, tag: u32) {
        let (row, column) = position(place);
        if row >= self.rows.len() {
            self.grow(row.saturating_add(1));
        }
        if let Some(slot) = self.rows.get_mut(row).and_then(|row| row.get_mut(column)) {
            *slot = tag;
            if let Some(count) = self.counts.get_mut(count_of(tag)) {
                *count = count.wrapping_add(1);
            }
        }
    }

    #[cold]
    fn grow(&mut self, rows: usize) {
        self.rows.resize(rows, [RESERVED_TAG; ROW]);
    }

    /// Takes the place away from its tag, which it gives.
    #[inline]
    pub(super) fn take(&mut self, place: u32) -> u32 {
        let (row, column) = position(place);
        let Some(slot) = self.rows.get_mut(row).and_then(|row| row.get_mut(column)) else {
            return RESERVED_TAG;
        };
        let tag = std::mem::replace(slot, RESERVED_TAG);
        if tag != RESERVED_TAG
            && let Some(count) = self.counts.get_mut(count_of(tag))
        {
            *count = count.wrapping_sub(1);
        }
        tag
    }

    /// The tag in a place.
    #[inline]
    pub(super) fn get(&self, place: u32) -> u32 {
        let (row, column) = position(place);
        let tag = self.rows.get(row).and_then(|row| row.get(column));
        tag.copied().unwrap_or(RESERVED_TAG)
    }

    /// The first place of a tag, which is not the reserved one.
    #[inline]
    pub(super) fn find(&self, tag: u32) -> Option<u32> {
        match self.counts.get(count_of(tag)) {
            Some(0) | None => None,
            Some(_) => self.search(tag),
        }
    }

    fn search(&self, tag: u32) -> Option<u32> {
        let is_there = |row: &[u32; ROW]| {
            row.iter()
                .fold(false, |is_found, &other| is_found | (other == tag))
        };
        let row = self.rows.iter().position(is_there)?;
        let column = self.rows.get(row)?.iter().position(|&other| other == tag)?;
        u32::try_from(row.saturating_mul(ROW).saturating_add(column)).ok()
    }

    /// The tags of all places, and reserved ones behind them.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.rows.as_flattened().iter().copied()
    }
}

/// Which count is that of a tag.
const fn count_of(tag: u32) -> usize {
    const _: () = assert!(COUNTS == 1 << (32 - 25));
    (tag.wrapping_mul(SPREAD) >> 25) as usize
}

/// Row and column of a place.
const fn position(place: u32) -> (usize, usize) {
    let place = place as usize;
    (place / ROW, place % ROW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_where_it_stands_first() {
        for len in 0..70_u32 {
            let mut tags = Tags::default();
            for place in 0..len {
                tags.set(place, place * 3);
            }
            for tag in 0..=len * 3 {
                let plain = (tag % 3 == 0 && tag < len * 3).then_some(tag / 3);
                assert_eq!(tags.find(tag), plain, "tag {tag} among {len}");
            }
        }
        let mut same = Tags::default();
        (3..40).for_each(|place| same.set(place, 7));
        assert_eq!(same.find(7), Some(3));
    }

    #[test]
    fn a_place_has_its_tag_until_that_is_cleared() {
        let mut tags = Tags::default();
        tags.set(20, 5);
        assert_eq!([19, 20].map(|place| tags.get(place)), [RESERVED_TAG, 5]);
        assert_eq!(tags.iter().filter(|&tag| tag != RESERVED_TAG).count(), 1);
        assert_eq!(
            [20, 200, 20].map(|place| tags.take(place)),
            [5, RESERVED_TAG, RESERVED_TAG]
        );
        assert_eq!((tags.find(5), tags.get(20)), (None, RESERVED_TAG));
    }

    #[test]
    fn tags_of_one_count_are_told_apart() {
        let same: Vec<_> = (0..)
            .filter(|&tag| count_of(tag) == count_of(7))
            .take(40)
            .collect();
        let mut tags = Tags::default();
        for (place, &tag) in (0..).zip(&same) {
            assert_eq!(tags.find(tag), None);
            tags.set(place, tag);
            assert_eq!(tags.find(tag), Some(place));
        }
        for (place, &tag) in (0..).zip(&same) {
            assert_eq!(tags.take(place), tag);
            assert_eq!(tags.find(tag), None);
        }
        assert!(tags.counts.iter().all(|&count| count == 0));
    }

    #[test]
    fn numbers_in_steps_of_any_power_of_two_spread() {
        for shift in 0..16 {
            let seen: std::collections::BTreeSet<_> =
                (0..64_u32).map(|n| count_of((n << shift) + 9)).collect();
            assert!(seen.len() > 24, "steps of 1 << {shift}: {}", seen.len());
        }
    }
}
