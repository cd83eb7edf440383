//! Numbers of places, as long as the kernel holds them.
//!
//! A number is made from the name of its place, so that a listing and a look at the place agree
//! without anything being kept. What is kept is the way back, for what the kernel has looked up
//! and not dropped: as much as it caches, and it drops entries under pressure.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::place::Place;

/// The number of the mount point, by the kernel's protocol.
const ROOT: u64 = 1;

struct Held {
    place: Place,
    /// How often the kernel has looked it up, less how many of these look-ups it has dropped (FUSE_FORGET).
    lookups: u64,
}

/// Numbers of places.
#[derive(Default)]
pub(crate) struct Inodes {
    held: HashMap<u64, Held>,
}

impl Inodes {
    /// The number that a place has or would get.
    pub(crate) fn number(&self, place: &Place) -> u64 {
        if *place == Place::ROOT {
            return ROOT;
        }
        let mut hasher = DefaultHasher::new();
        place.hash(&mut hasher);
        let mut number = hasher.finish();
        while self.is_taken(number, place) {
            number = number.wrapping_add(1);
        }
        number
    }

    fn is_taken(&self, number: u64, place: &Place) -> bool {
        number <= ROOT
            || self
                .held
                .get(&number)
                .is_some_and(|held| held.place != *place)
    }

    /// The number of a place that is given to the kernel as looked up.
    pub(crate) fn look_up(&mut self, place: Place) -> u64 {
        let number = self.number(&place);
        if number != ROOT {
            let held = self.held.entry(number);
            held.or_insert(Held { place, lookups: 0 }).lookups += 1;
        }
        number
    }

    /// The kernel drops so many of its look-ups.
    pub(crate) fn forget(&mut self, number: u64, lookups: u64) {
        if let Some(held) = self.held.get_mut(&number) {
            held.lookups = held.lookups.saturating_sub(lookups);
            if held.lookups == 0 {
                self.held.remove(&number);
            }
        }
    }

    /// The place of a number that the kernel holds.
    pub(crate) fn place(&self, number: u64) -> Option<Place> {
        if number == ROOT {
            return Some(Place::ROOT);
        }
        self.held.get(&number).map(|held| held.place.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Directory;

    #[test]
    fn a_place_is_held_until_every_lookup_is_forgotten() {
        let place = Place::Directory(Directory::Lun("a".to_owned()));
        let mut inodes = Inodes::default();
        let number = inodes.number(&place);
        assert_eq!(inodes.place(number), None);
        assert_eq!(inodes.look_up(place.clone()), number);
        assert_eq!(inodes.look_up(place.clone()), number);
        inodes.forget(number, 1);
        assert_eq!(inodes.place(number), Some(place.clone()));
        inodes.forget(number, 1);
        assert_eq!(inodes.place(number), None);
        assert_eq!(inodes.number(&place), number);
    }

    #[test]
    fn the_root_is_held_always() {
        let mut inodes = Inodes::default();
        assert_eq!(inodes.look_up(Place::ROOT), ROOT);
        inodes.forget(ROOT, 1);
        assert_eq!(inodes.place(ROOT), Some(Place::ROOT));
    }

    #[test]
    fn two_places_never_share_a_number() {
        let place = |name: &str| Place::Directory(Directory::Lun(name.to_owned()));
        let mut inodes = Inodes::default();
        let number = inodes.number(&place("a"));
        let other = Held {
            place: place("b"),
            lookups: 1,
        };
        inodes.held.insert(number, other);
        assert_eq!(inodes.look_up(place("a")), number.wrapping_add(1));
        assert_eq!(inodes.place(number), Some(place("b")));
    }
}
