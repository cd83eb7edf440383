//! A table whose places are used again, under keys that are not.

/// Names an entry of a [`Slots`]. No two entries of a table get the same one, until four billion were in one place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Key {
    place: u32,
    serial: u32,
}

impl Key {
    pub(crate) const fn to_number(self) -> u64 {
        (self.serial as u64) << 32 | self.place as u64
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves are meant")]
    pub(crate) const fn of_number(number: u64) -> Self {
        Self {
            place: number as u32,
            serial: (number >> 32) as u32,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Slots<T> {
    /// With the serial number of the entry that is there, or of the next one.
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slots<T> {
    /// The key of the next entry.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what a core works on at a time is far less"
    )]
    pub(crate) fn vacant(&self) -> Key {
        match self.free.last() {
            Some(&place) => Key {
                place,
                serial: self.places[place as usize].0,
            },
            None => Key {
                place: self.places.len() as u32,
                serial: 0,
            },
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let key = self.vacant();
        if self.free.pop().is_none() {
            self.places.push((0, None));
        }
        self.places[key.place as usize].1 = Some(value);
        key
    }

    /// Nobody gets the key of the next entry.
    pub(crate) fn skip(&mut self) {
        let place = self.vacant().place as usize;
        if place == self.places.len() {
            self.places.push((0, None));
            self.free.push(u32::try_from(place).unwrap_or_default());
        }
        self.places[place].0 = self.places[place].0.wrapping_add(1);
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (serial, value) = self.places.get_mut(key.place as usize)?;
        value.as_mut().filter(|_| *serial == key.serial)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (serial, value) = self.places.get_mut(key.place as usize)?;
        if *serial != key.serial {
            return None;
        }
        let value = value.take()?;
        *serial = serial.wrapping_add(1);
        self.free.push(key.place);
        Some(value)
    }

    pub(crate) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Key> {
        let mut entries = self.iter();
        entries.find(|(_, value)| is_it(value)).map(|(key, _)| key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let entries = (0..).zip(&self.places);
        entries.filter_map(|(place, (serial, value))| {
            let serial = *serial;
            Some((Key { place, serial }, value.as_ref()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_entry_and_none_that_came_to_its_place_later() {
        let mut slots = Slots::default();
        let first = slots.vacant();
        assert_eq!(slots.insert('a'), first);
        let second = slots.insert('b');
        assert_eq!(Key::of_number(second.to_number()), second);
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.remove(first), None);
        let skipped = slots.vacant();
        slots.skip();
        let third = slots.insert('c');
        assert!(third != first && third != skipped);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.get_mut(skipped), None);
        assert_eq!(slots.get_mut(third), Some(&mut 'c'));
        let all: Vec<(Key, &char)> = slots.iter().collect();
        assert_eq!(all, [(third, &'c'), (second, &'b')]);
    }

    #[test]
    fn the_first_key_can_be_skipped() {
        let mut slots = Slots::default();
        let skipped = slots.vacant();
        slots.skip();
        assert_ne!(slots.insert(1), skipped);
    }
}
