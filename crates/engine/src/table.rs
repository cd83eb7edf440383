//! Tables whose keys are never given twice, each kind of entry with a key of its own.
//!
//! Places in a table are used again; a key has the number of its use, too. Whatever comes late for
//! an entry that is gone (a completion, an answer of another core, a deadline) finds nobody, and
//! never another entry in the same place. A key of one table does not fit another.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::UnitIndex;

/// Names one entry of one table of one core, for as long as the process runs.
///
/// The place has 24 bits, the number of its use 32; see [`Key::to_bits`].
pub struct Key<T> {
    place: u32,
    /// Which use of the place this is.
    serial: u32,
    kind: PhantomData<fn() -> T>,
}

/// Keys travel through tokens of the reactor beside a byte for the purpose.
const PLACE_BITS: u32 = 24;

const _: () = assert!(
    PLACE_BITS + u32::BITS <= u64::BITS - u8::BITS,
    "no byte is left"
);
const _: () = assert!(
    Key::<()>::NONE.place >> PLACE_BITS != 0,
    "it may name an entry"
);

impl<T> Key<T> {
    /// Names nothing, ever.
    pub const NONE: Self = Self::new(u32::MAX, u32::MAX);

    const fn new(place: u32, serial: u32) -> Self {
        Self {
            place,
            serial,
            kind: PhantomData,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "windows and limits keep every table far below 2^24 places"
    )]
    const fn at(place: usize, serial: u32) -> Self {
        debug_assert!(place < 1 << PLACE_BITS);
        Self::new(place as u32, serial)
    }

    /// The key in 56 bits: the serial number, then the place in the low 24.
    pub const fn to_bits(self) -> u64 {
        (self.serial as u64) << PLACE_BITS | self.place as u64
    }

    /// From [`Key::to_bits`].
    #[expect(
        clippy::cast_possible_truncation,
        reason = "56 bits less those of the place are 32"
    )]
    pub const fn from_bits(bits: u64) -> Self {
        let place = (bits & ((1 << PLACE_BITS) - 1)) as u32;
        Self::new(place, (bits >> PLACE_BITS) as u32)
    }

    /// The place in the table.
    pub const fn place(self) -> u32 {
        self.place
    }
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.place, self.serial) == (other.place, other.serial)
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.place, self.serial).cmp(&(other.place, other.serial))
    }
}

impl<T> std::hash::Hash for Key<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.place, self.serial).hash(state);
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.place, self.serial)
    }
}

/// A table of `T`. Its keys are of kind `K`, which need not be the type of the entries: that may have
/// parameters that the holder of a key does not know.
#[derive(Debug)]
pub struct Table<T, K = T> {
    places: Slab<(u32, T)>,
    next_serial: u32,
    kind: PhantomData<fn() -> K>,
}

impl<T, K> Default for Table<T, K> {
    fn default() -> Self {
        Self {
            places: Slab::new(),
            next_serial: 0,
            kind: PhantomData,
        }
    }
}

impl<T, K> Table<T, K> {
    /// The key that the next entry gets.
    pub fn vacant_key(&self) -> Key<K> {
        Key::at(self.places.vacant_key(), self.next_serial)
    }

    /// The key that the next entry would have got is used up: no entry gets it.
    #[inline]
    pub const fn skip_key(&mut self) {
        self.next_serial = self.next_serial.wrapping_add(1);
    }

    /// Puts an entry in. Its key was given to no other.
    pub fn insert(&mut self, entry: T) -> Key<K> {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        Key::at(self.places.insert((serial, entry)), serial)
    }

    /// An entry, unless it is gone.
    pub fn get(&self, key: Key<K>) -> Option<&T> {
        let (serial, entry) = self.places.get(key.place as usize)?;
        (*serial == key.serial).then_some(entry)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: Key<K>) -> Option<&mut T> {
        let (serial, entry) = self.places.get_mut(key.place as usize)?;
        (*serial == key.serial).then_some(entry)
    }

    /// Takes an entry out. `None` when it is gone already.
    pub fn remove(&mut self, key: Key<K>) -> Option<T> {
        self.get(key)?;
        Some(self.places.remove(key.place as usize).1)
    }

    /// The entry that is in a place now.
    pub fn in_place(&self, place: usize) -> Option<Key<K>> {
        let (serial, _) = self.places.get(place)?;
        Some(Key::at(place, *serial))
    }

    /// How many places there are, vacant ones included.
    pub fn places(&self) -> usize {
        self.places.capacity()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Gives back room beyond need.
    pub fn shrink_to_fit(&mut self) {
        self.places.shrink_to_fit();
    }

    /// The keys of all entries.
    pub fn keys(&self) -> impl Iterator<Item = Key<K>> {
        self.iter().map(|(key, _)| key)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (Key<K>, &T)> {
        let all = self.places.iter();
        all.map(|(place, (serial, entry))| (Key::at(place, *serial), entry))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key<K>, &mut T)> {
        let all = self.places.iter_mut();
        all.map(|(place, (serial, entry))| (Key::at(place, *serial), entry))
    }
}

impl<T, K> Index<Key<K>> for Table<T, K> {
    type Output = T;

    /// # Panics
    ///
    /// When the entry is gone: only for keys that were looked up in the same step.
    #[expect(clippy::expect_used, reason = "a bug of ours, which must not go on")]
    fn index(&self, key: Key<K>) -> &T {
        self.get(key).expect("the entry is gone")
    }
}

impl<T, K> IndexMut<Key<K>> for Table<T, K> {
    #[expect(clippy::expect_used, reason = "a bug of ours, which must not go on")]
    fn index_mut(&mut self, key: Key<K>) -> &mut T {
        self.get_mut(key).expect("the entry is gone")
    }
}

/// A table of all units, which are numbered from 0 and stay.
#[derive(Debug)]
pub struct ByUnit<T>(Vec<T>);

impl<T> ByUnit<T> {
    /// There are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many units there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// The numbers of all units.
    pub fn units(&self) -> impl Iterator<Item = UnitIndex> + use<T> {
        (0..self.next().0).map(UnitIndex)
    }

    /// The number of the next unit.
    pub fn next(&self) -> UnitIndex {
        UnitIndex(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }

    /// Of the unit with the next number.
    pub fn push(&mut self, entry: T) {
        self.0.push(entry);
    }

    /// The entry of a unit, if there is such a unit.
    pub fn get(&self, unit: UnitIndex) -> Option<&T> {
        self.0.get(unit.as_usize())
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, unit: UnitIndex) -> Option<&mut T> {
        self.0.get_mut(unit.as_usize())
    }

    /// The entries of all units.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// The same, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }
}

impl<T> Default for ByUnit<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Index<UnitIndex> for ByUnit<T> {
    type Output = T;

    fn index(&self, unit: UnitIndex) -> &T {
        &self.0[unit.as_usize()]
    }
}

impl<T> IndexMut<UnitIndex> for ByUnit<T> {
    fn index_mut(&mut self, unit: UnitIndex) -> &mut T {
        &mut self.0[unit.as_usize()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_entry_that_is_gone_finds_nobody_in_its_place() {
        let mut table = Table::<_, ()>::default();
        let promised = table.vacant_key();
        let old = table.insert("one");
        assert_eq!(old, promised);
        assert_eq!(table.remove(old), Some("one"));
        let new = table.insert("two");
        assert_eq!((old.place(), table.in_place(0)), (new.place(), Some(new)));
        assert!(table.get(old).is_none() && table.get_mut(old).is_none());
        assert!(table.remove(old).is_none());
        assert_eq!(table[new], "two");
        assert_eq!(table.keys().collect::<Vec<_>>(), [new]);
    }

    #[test]
    fn a_key_survives_its_bits() {
        for key in [
            Key::<u8>::new(0, 0),
            Key::new((1 << PLACE_BITS) - 1, u32::MAX),
            Key::new(70_000, 3),
        ] {
            assert!(key.to_bits() < 1 << 56);
            assert_eq!(Key::from_bits(key.to_bits()), key);
        }
    }
}
