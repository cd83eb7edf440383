//! The table of operations under way. A slot owns everything its operation works on.

/// One slot per operation, found again by a key that is never used twice.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Index in the low half, generation in the high half.
pub(crate) type Key = u64;

/// No key has this value: it takes the largest index, and the table never grows so far.
pub(crate) const NO_KEY: Key = u64::MAX;

const fn key(index: u32, generation: u32) -> Key {
    (generation as u64) << 32 | index as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "taking the key apart into its halves"
)]
const fn parts(key: Key) -> (usize, u32) {
    (key as u32 as usize, (key >> 32) as u32)
}

impl<T> InFlight<T> {
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self {
            slots: Vec::with_capacity(count),
            free: Vec::with_capacity(count),
        }
    }

    /// How many operations are under way.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Parks an operation.
    ///
    /// # Panics
    ///
    /// When four billion operations are under way.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return key(index, slot.generation);
        }
        assert!(self.slots.len() < u32::MAX as usize, "table of operations");
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            generation: 0,
            value: Some(value),
        });
        key(index, 0)
    }

    /// The keys of all operations under way.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let slots = (0..).zip(&self.slots);
        slots
            .filter(|(_, slot)| slot.value.is_some())
            .map(|(index, slot)| key(index, slot.generation))
            .collect()
    }

    pub(crate) fn find(&mut self, key: Key) -> Option<&mut T> {
        let (index, generation) = parts(key);
        self.slots
            .get_mut(index)
            .filter(|slot| slot.generation == generation)
            .and_then(|slot| slot.value.as_mut())
    }

    /// Ends an operation where it lies, without moving it; its key is void from now on.
    #[inline]
    pub(crate) fn end(&mut self, key: Key) {
        let (index, generation) = parts(key);
        if let Some(slot) = self.slots.get_mut(index)
            && slot.generation == generation
            && slot.value.is_some()
        {
            slot.value = None;
            slot.generation = generation.wrapping_add(1);
            #[expect(clippy::cast_possible_truncation, reason = "it came out of a u32")]
            self.free.push(index as u32);
        }
    }

    /// Takes an operation out; its key is void from now on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let (index, generation) = parts(key);
        let slot = self
            .slots
            .get_mut(index)
            .filter(|slot| slot.generation == generation)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        #[expect(clippy::cast_possible_truncation, reason = "it came out of a u32")]
        self.free.push(index as u32);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_operation_until_it_is_taken_out_and_never_another() {
        let mut table = InFlight::with_capacity(1);
        let first = table.insert('a');
        let second = table.insert('b');
        assert_eq!(table.len(), 2);
        assert_eq!(table.find(first), Some(&mut 'a'));
        assert_eq!(table.remove(first), Some('a'));

        let third = table.insert('c');
        assert_ne!(third, first, "the slot is used again, the key is not");
        assert_eq!(table.find(first), None);
        table.end(first);
        assert_eq!(table.len(), 2, "an old key ends nothing");
        assert_eq!(table.remove(first), None);
        assert_eq!(table.remove(second), Some('b'));
        table.end(third);
        assert_eq!(table.find(third), None);
        assert_eq!(table.remove(third), None);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn no_operation_has_the_key_of_none() {
        assert_eq!(InFlight::<()>::with_capacity(0).find(NO_KEY), None);
    }
}
