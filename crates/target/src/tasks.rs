//! The tasks of one core, each under a key that is never given twice.
//!
//! Places in the table are used again; a key has the number of its use, too. Whatever comes late
//! for a task that is over (a completion, an answer of an owner, data) finds nobody, and never
//! another task in the same place.

use std::ops::{Index, IndexMut};

use slab::Slab;

use crate::running::Running;

/// Names one task of one core, for as long as the process runs.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct TaskKey {
    place: u32,
    /// Which use of the place this is.
    serial: u32,
}

/// Keys travel through tokens of the reactor beside a byte for the purpose.
const PLACE_BITS: u32 = 24;

impl TaskKey {
    /// The key in 56 bits: the serial number, then the place in the low 24.
    pub(crate) const fn to_bits(self) -> u64 {
        (self.serial as u64) << PLACE_BITS | self.place as u64
    }

    /// From [`TaskKey::to_bits`].
    #[expect(
        clippy::cast_possible_truncation,
        reason = "56 bits less those of the place are 32"
    )]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self {
            place: (bits & ((1 << PLACE_BITS) - 1)) as u32,
            serial: (bits >> PLACE_BITS) as u32,
        }
    }

    /// The place in the table, which is the task's number in its task set.
    pub(crate) const fn place(self) -> u32 {
        self.place
    }
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    places: Slab<(u32, Running)>,
    next_serial: u32,
}

impl Tasks {
    /// The key that the next task gets.
    pub(crate) fn vacant_key(&self) -> TaskKey {
        key_of(self.places.vacant_key(), self.next_serial)
    }

    pub(crate) fn insert(&mut self, running: Running) -> TaskKey {
        let serial = self.next_serial;
        self.next_serial = serial.wrapping_add(1);
        key_of(self.places.insert((serial, running)), serial)
    }

    pub(crate) fn get(&self, key: TaskKey) -> Option<&Running> {
        let (serial, running) = self.places.get(key.place as usize)?;
        (*serial == key.serial).then_some(running)
    }

    pub(crate) fn get_mut(&mut self, key: TaskKey) -> Option<&mut Running> {
        let (serial, running) = self.places.get_mut(key.place as usize)?;
        (*serial == key.serial).then_some(running)
    }

    pub(crate) fn remove(&mut self, key: TaskKey) -> Option<Running> {
        self.get(key)?;
        Some(self.places.remove(key.place as usize).1)
    }

    /// The task that is in a place now.
    pub(crate) fn in_place(&self, place: usize) -> Option<TaskKey> {
        let (serial, _) = self.places.get(place)?;
        Some(key_of(place, *serial))
    }

    /// How many places there are, vacant ones included.
    pub(crate) fn places(&self) -> usize {
        self.places.capacity()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TaskKey, &Running)> {
        let all = self.places.iter();
        all.map(|(place, (serial, running))| (key_of(place, *serial), running))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (TaskKey, &mut Running)> {
        let all = self.places.iter_mut();
        all.map(|(place, (serial, running))| (key_of(place, *serial), running))
    }
}

impl Index<TaskKey> for Tasks {
    type Output = Running;

    /// # Panics
    ///
    /// When the task is over: only for keys that were looked up in the same step.
    #[expect(clippy::expect_used, reason = "a bug of ours, which must not go on")]
    fn index(&self, key: TaskKey) -> &Running {
        self.get(key).expect("the task is over")
    }
}

impl IndexMut<TaskKey> for Tasks {
    #[expect(clippy::expect_used, reason = "a bug of ours, which must not go on")]
    fn index_mut(&mut self, key: TaskKey) -> &mut Running {
        self.get_mut(key).expect("the task is over")
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "windows keep the table far below 2^24 places"
)]
const fn key_of(place: usize, serial: u32) -> TaskKey {
    debug_assert!(place < 1 << PLACE_BITS);
    TaskKey {
        place: place as u32,
        serial,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iscsi::target::TaskId;
    use scsi::NexusSlot;

    use super::*;
    use crate::counters::Account;

    fn task(index: u32) -> Running {
        let id = TaskId { index, serial: 0 };
        let nexus = NexusSlot::default();
        let now = Duration::ZERO;
        Running::new(0, id, 0, nexus, Account::NOBODY, now)
    }

    #[test]
    fn a_key_of_a_task_that_is_over_finds_nobody_in_its_place() {
        let mut tasks = Tasks::default();
        let promised = tasks.vacant_key();
        let old = tasks.insert(task(1));
        assert_eq!(old, promised);
        assert!(tasks.remove(old).is_some());
        let new = tasks.insert(task(2));
        assert_eq!((old.place(), tasks.in_place(0)), (new.place(), Some(new)));
        assert!(tasks.get(old).is_none() && tasks.get_mut(old).is_none());
        assert!(tasks.remove(old).is_none());
        assert_eq!(tasks[new].id.index, 2);
        assert_eq!(tasks.iter().map(|(key, _)| key).collect::<Vec<_>>(), [new]);
    }

    #[test]
    fn a_key_survives_its_bits() {
        for key in [
            key_of(0, 0),
            key_of((1 << PLACE_BITS) - 1, u32::MAX),
            key_of(70_000, 3),
        ] {
            assert!(key.to_bits() < 1 << 56);
            assert_eq!(TaskKey::from_bits(key.to_bits()), key);
        }
    }
}
