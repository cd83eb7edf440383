//! Which logical units a session sees, and under which numbers.

use std::collections::BTreeMap;

use scsi::{Lun, LunInventory, NexusSlot};

use crate::UnitIndex;

/// One logical unit as a nexus may see it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VisibleLun {
    /// The number the initiator uses.
    pub lun: u16,
    /// The unit behind it.
    pub unit: UnitIndex,
    /// This initiator may not write.
    pub read_only: bool,
}

impl VisibleLun {
    /// Whether `granted` has every unit of `wanted` by the same number and with at least the same
    /// access.
    pub fn cover(granted: &[Self], wanted: &[Self]) -> bool {
        let in_order = |luns: &[Self]| {
            let mut luns = luns.to_vec();
            luns.sort_unstable_by_key(|one| one.lun);
            luns
        };
        // Of each number there is one: both lists are walked once.
        let mut rest = in_order(granted).into_iter();
        in_order(wanted).iter().all(|wanted| {
            let found = rest.find(|one| one.lun >= wanted.lun);
            found.is_some_and(|one| {
                one.lun == wanted.lun
                    && one.unit == wanted.unit
                    && (wanted.read_only || !one.read_only)
            })
        })
    }
}

/// No series yet: it is made by the first command.
pub const NO_SERIES: u32 = u32::MAX;

/// What a number of the map leads to.
#[derive(Clone, Copy, Debug)]
pub struct MappedLun {
    /// The unit.
    pub unit: UnitIndex,
    /// The session's I_T nexus in the unit's view.
    pub nexus: NexusSlot,
    /// As what its commands are counted, or [`NO_SERIES`].
    pub series: u32,
}

/// The logical units a session sees, by number.
#[derive(Debug)]
pub struct LunMap<T = MappedLun> {
    /// The eight bytes of the first few numbers, as almost every command carries them, lead here
    /// without a search.
    low: Vec<Option<T>>,
    all: BTreeMap<u32, T>,
}

/// Numbers below this are found by index.
const LOW_LUNS: u32 = 64;

impl<T> Default for LunMap<T> {
    fn default() -> Self {
        Self {
            low: Vec::new(),
            all: BTreeMap::new(),
        }
    }
}

impl<T: Copy> LunMap<T> {
    /// The number leads there from now on.
    pub fn insert(&mut self, lun: u16, mapped: T) {
        let number = u32::from(lun);
        if number < LOW_LUNS {
            let needed = usize::from(lun) + 1;
            if self.low.len() < needed {
                self.low.resize(needed, None);
            }
            self.low[usize::from(lun)] = Some(mapped);
        }
        self.all.insert(number, mapped);
    }

    /// What the number leads to.
    pub fn get(&self, lun: u16) -> Option<T> {
        self.all.get(&u32::from(lun)).copied()
    }

    /// The number leads nowhere from now on. Gives what it led to.
    pub fn remove(&mut self, lun: u16) -> Option<T> {
        if let Some(low) = self.low.get_mut(usize::from(lun)) {
            *low = None;
        }
        self.all.remove(&u32::from(lun))
    }

    /// The unit behind the LUN field of a command.
    pub fn find(&self, address: u64) -> Option<T> {
        // Peripheral device addressing on bus 0: the number is the second byte.
        let number = address >> 48;
        if address << 16 == 0 && number < u64::from(LOW_LUNS) {
            let index = usize::try_from(number).ok()?;
            return self.low.get(index).copied().flatten();
        }
        let lun = Lun::decode(address).ok()?;
        self.all.get(&lun.number()).copied()
    }

    /// Everything that some number leads to.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.all.values().copied()
    }
}

impl LunMap {
    /// Commands to the unit behind this address are counted as `mapped` says from now on.
    pub(crate) fn note_series(&mut self, address: u64, mapped: MappedLun) {
        let number = Lun::decode(address).ok().map(|lun| lun.number());
        if let Some(number) = number.and_then(|number| u16::try_from(number).ok()) {
            self.insert(number, mapped);
        }
    }
}

impl<T> LunInventory for LunMap<T> {
    fn for_each(&self, visit: &mut dyn FnMut(Lun)) {
        let mut numbers: Vec<u32> = self.all.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().filter_map(Lun::new).for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_by_every_form_of_their_number() {
        let mut map = LunMap::default();
        for lun in [0, 5, 63, 64, 255, 256, 16_383] {
            map.insert(lun, u64::from(lun) + 1);
        }
        for lun in [0u64, 5, 63, 64, 255] {
            assert_eq!(map.find(lun << 48), Some(lun + 1), "peripheral {lun}");
        }
        for lun in [0u64, 63, 64, 256, 16_383] {
            assert_eq!(map.find((0x4000 | lun) << 48), Some(lun + 1), "flat {lun}");
        }
        assert!(map.find(1 << 48).is_none());
        assert!(map.find(5 << 48 | 1).is_none());
        assert_eq!((map.remove(64), map.get(64)), (Some(65), None));
        assert_eq!((map.remove(5), map.find(5 << 48)), (Some(6), None));
        map.insert(5, 6);
        map.insert(64, 65);
        let mut numbers = Vec::new();
        map.for_each(&mut |lun| numbers.push(lun.number()));
        assert_eq!(numbers, [0, 5, 63, 64, 255, 256, 16_383]);
    }

    #[test]
    fn every_unit_is_needed_with_its_number_and_its_access() {
        let lun = |lun, unit, read_only| VisibleLun {
            lun,
            unit: UnitIndex(unit),
            read_only,
        };
        let (write, read) = (lun(0, 5, false), lun(0, 5, true));
        for (granted, wanted, is_covered) in [
            (&[][..], &[][..], true),
            (&[write], &[], true),
            (&[write], &[write], true),
            (&[write], &[read], true),
            (&[read], &[read], true),
            (&[read], &[write], false),
            (&[], &[read], false),
            (&[lun(1, 5, false)], &[write], false),
            (&[lun(0, 6, false)], &[write], false),
            (&[lun(1, 6, false), write], &[write], true),
            (&[write], &[write, lun(1, 6, true)], false),
            (
                &[lun(9, 7, true), write, lun(5, 6, false)],
                &[lun(5, 6, true), write],
                true,
            ),
            (
                &[lun(9, 7, true), write, lun(5, 6, true)],
                &[lun(5, 6, false), write],
                false,
            ),
        ] {
            assert_eq!(
                VisibleLun::cover(granted, wanted),
                is_covered,
                "{granted:?} for {wanted:?}"
            );
        }
    }
}
