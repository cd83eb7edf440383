//! The units that a target shows: which one under a number, and to whom.

use std::collections::BTreeMap;
use std::fmt;

use crate::{GroupIndex, UnitIndex};

/// A logical unit number that fits the flat addressing method.
///
/// Spec: SAM, flat space addressing.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LunNumber(pub(crate) u16);

impl LunNumber {
    /// Largest number.
    pub const MAX: u16 = (1 << 14) - 1;

    /// A number up to [`Self::MAX`].
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::MAX {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number.
    pub const fn value(self) -> u16 {
        self.0
    }
}

impl fmt::Display for LunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a unit of a target is found by. An initiator in groups of two entries with one number may not log in; one
/// that is in none of the groups sees the entry without groups, if there is one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LunKey {
    /// The number.
    pub lun: LunNumber,
    /// Those who see the unit under this number.
    pub viewers: Viewers,
}

/// Who sees a unit of a target.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Viewers {
    /// The members of a group.
    Group(GroupIndex),
    /// Everyone who may log in.
    All,
}

/// A unit that a target shows, as the configuration gives it: under one key for each of its groups.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TargetLun {
    /// Its number in this target.
    pub lun: LunNumber,
    /// The unit.
    pub unit: UnitIndex,
    /// Who sees it; empty: everyone who may log in.
    pub groups: Vec<GroupIndex>,
    /// Writes are refused here or in the store.
    pub read_only: bool,
}

impl TargetLun {
    pub(crate) fn keys(&self) -> impl Iterator<Item = LunKey> + '_ {
        let groups = self.groups.iter().map(|group| Viewers::Group(*group));
        let all = self.groups.is_empty().then_some(Viewers::All);
        let lun = self.lun;
        groups
            .chain(all)
            .map(move |viewers| LunKey { lun, viewers })
    }
}

/// All units of a target: at most one under each key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TargetLuns {
    entries: Vec<TargetLun>,
    /// The position in `entries`.
    by_key: BTreeMap<LunKey, usize>,
}

impl TargetLuns {
    /// Of entries no two of which have a key in common.
    pub fn new(mut entries: Vec<TargetLun>) -> Self {
        entries.sort_by_key(|entry| entry.lun);
        let mut by_key = BTreeMap::new();
        for (position, entry) in entries.iter().enumerate() {
            for key in entry.keys() {
                let before = by_key.insert(key, position);
                debug_assert!(before.is_none(), "{key:?} stands twice");
            }
        }
        Self { entries, by_key }
    }

    /// Entry by entry, in the order of their numbers, then of the configuration.
    pub fn entries(&self) -> &[TargetLun] {
        &self.entries
    }

    /// Key by key, in their order.
    pub fn by_key(&self) -> impl Iterator<Item = (LunKey, &TargetLun)> {
        let all = self.by_key.iter();
        all.filter_map(|(key, position)| Some((*key, self.entries.get(*position)?)))
    }

    /// Every group that some unit is shown to.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupIndex> + '_ {
        self.by_key.keys().filter_map(|key| match key.viewers {
            Viewers::Group(group) => Some(group),
            Viewers::All => None,
        })
    }

    /// No unit is shown to anybody.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries have this number.
    pub(crate) fn count_of(&self, lun: LunNumber) -> usize {
        let first = self.entries.partition_point(|entry| entry.lun < lun);
        let rest = self.entries.iter().skip(first);
        rest.take_while(|entry| entry.lun == lun).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(lun: u16, unit: usize, groups: &[usize]) -> TargetLun {
        TargetLun {
            lun: LunNumber(lun),
            unit: UnitIndex(unit),
            groups: groups.iter().copied().map(GroupIndex).collect(),
            read_only: false,
        }
    }

    #[test]
    fn a_number_may_lead_to_another_unit_for_each_group_and_one_for_all_others() {
        let luns = TargetLuns::new(vec![
            entry(1, 4, &[]),
            entry(0, 3, &[]),
            entry(0, 1, &[2, 0]),
            entry(0, 2, &[1]),
        ]);
        let keys = luns.by_key().map(|(key, entry)| {
            let LunKey { lun, viewers } = key;
            (lun.value(), viewers, entry.unit.position())
        });
        let group = |index| Viewers::Group(GroupIndex(index));
        let expected = [
            (0, group(0), 1),
            (0, group(1), 2),
            (0, group(2), 1),
            (0, Viewers::All, 3),
            (1, Viewers::All, 4),
        ];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
        let counts: Vec<_> = (0..3).map(|lun| luns.count_of(LunNumber(lun))).collect();
        assert_eq!(counts, [3, 1, 0]);
        let units = luns.entries().iter().map(|entry| entry.unit.position());
        assert_eq!(units.collect::<Vec<_>>(), [3, 1, 2, 4]);
    }
}
