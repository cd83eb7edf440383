//! The initiator task tags of a session, by place in its table of tasks.

use crate::pdu::RESERVED_TAG;

/// So many tags are compared at once.
const ROW: usize = 16;

/// The tag of each place, [`RESERVED_TAG`] where no task is. The last row is filled up with that.
///
/// Every command asks whether its tag is in use, and the answer is nearly always "no", so the whole
/// table is read. A search that may stop at any tag is compiled to one comparison at a time; one that
/// stops only after a row of fixed length compares four at a time.
#[derive(Debug, Default)]
pub(super) struct Tags(Vec<[u32; ROW]>);

impl Tags {
    /// Gives a place to a tag.
    #[inline]
    pub(super) fn set(&mut self, place: u32, tag: u32) {
        let (row, column) = position(place);
        if row >= self.0.len() {
            self.grow(row.saturating_add(1));
        }
        if let Some(slot) = self.0.get_mut(row).and_then(|row| row.get_mut(column)) {
            *slot = tag;
        }
    }

    #[cold]
    fn grow(&mut self, rows: usize) {
        self.0.resize(rows, [RESERVED_TAG; ROW]);
    }

    /// Takes the place away from its tag.
    #[inline]
    pub(super) fn clear(&mut self, place: u32) {
        let (row, column) = position(place);
        if let Some(slot) = self.0.get_mut(row).and_then(|row| row.get_mut(column)) {
            *slot = RESERVED_TAG;
        }
    }

    /// The tag in a place.
    #[inline]
    pub(super) fn get(&self, place: u32) -> u32 {
        let (row, column) = position(place);
        let tag = self.0.get(row).and_then(|row| row.get(column));
        tag.copied().unwrap_or(RESERVED_TAG)
    }

    /// Whether there is a task in a place.
    #[inline]
    pub(super) fn is_used(&self, place: u32) -> bool {
        self.get(place) != RESERVED_TAG
    }

    /// The first place of a tag, which is not the reserved one.
    #[inline]
    pub(super) fn find(&self, tag: u32) -> Option<u32> {
        let is_there = |row: &[u32; ROW]| {
            row.iter()
                .fold(false, |is_found, &other| is_found | (other == tag))
        };
        let row = self.0.iter().position(is_there)?;
        let column = self.0.get(row)?.iter().position(|&other| other == tag)?;
        u32::try_from(row.saturating_mul(ROW).saturating_add(column)).ok()
    }

    /// The tags of all places, and reserved ones behind them.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.as_flattened().iter().copied()
    }
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
    fn a_place_is_used_until_its_tag_is_reserved_again() {
        let mut tags = Tags::default();
        assert!(!tags.is_used(20));
        tags.set(20, 5);
        assert_eq!(
            (tags.get(20), tags.is_used(20), tags.is_used(19)),
            (5, true, false)
        );
        assert_eq!(tags.iter().filter(|&tag| tag != RESERVED_TAG).count(), 1);
        tags.clear(20);
        tags.clear(200);
        assert_eq!((tags.find(5), tags.is_used(20)), (None, false));
    }
}
