//! What waits, in a fair order: one of each nexus after the other.

use std::collections::{HashMap, VecDeque};

/// Items that wait, by nexus.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    waiting: HashMap<u64, VecDeque<T>>,
    /// Each nexus that has items, the one whose turn it is in front.
    order: VecDeque<u64>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Turns<T> {
    pub(crate) fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// How many items of this nexus wait.
    pub(crate) fn len_of(&self, nexus: u64) -> usize {
        self.waiting.get(&nexus).map_or(0, VecDeque::len)
    }

    pub(crate) fn push(&mut self, nexus: u64, item: T) {
        let own = self.waiting.entry(nexus).or_default();
        if own.is_empty() {
            self.order.push_back(nexus);
        }
        own.push_back(item);
    }

    /// Puts an item back that was taken last: it is the next one again.
    pub(crate) fn put_back(&mut self, nexus: u64, item: T) {
        self.order.retain(|other| *other != nexus);
        self.order.push_front(nexus);
        self.waiting.entry(nexus).or_default().push_front(item);
    }

    /// The item whose turn it is.
    pub(crate) fn next(&self) -> Option<&T> {
        self.waiting.get(self.order.front()?)?.front()
    }

    /// Takes the item whose turn it is. Its nexus comes after all others then.
    pub(crate) fn take(&mut self) -> Option<T> {
        let nexus = self.order.pop_front()?;
        let own = self.waiting.get_mut(&nexus)?;
        let item = own.pop_front();
        match own.is_empty() {
            true => {
                self.waiting.remove(&nexus);
            }
            false => self.order.push_back(nexus),
        }
        item
    }

    /// Takes the first item of which this is so, out of turn.
    pub(crate) fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let mut all = self.waiting.iter_mut();
        let (nexus, item) = all.find_map(|(nexus, own)| {
            let at = own.iter().position(&is_it)?;
            Some((*nexus, own.remove(at)?))
        })?;
        if self.len_of(nexus) == 0 {
            self.waiting.remove(&nexus);
            self.order.retain(|other| *other != nexus);
        }
        Some(item)
    }

    /// Takes all, in turn.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        std::iter::from_fn(|| self.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(items: &[(u64, &'static str)]) -> Turns<&'static str> {
        let mut turns = Turns::default();
        for (nexus, item) in items {
            turns.push(*nexus, *item);
        }
        turns
    }

    #[test]
    fn each_nexus_has_its_turn_and_keeps_its_order() {
        let mut turns = filled(&[(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")]);
        assert_eq!(turns.len(), 5);
        assert_eq!(turns.len_of(1), 3);
        assert_eq!(turns.take(), Some("a1"));
        turns.push(2, "b2");
        assert_eq!(turns.drain(), ["b1", "c1", "a2", "b2", "a3"]);
        assert_eq!((turns.len(), turns.next()), (0, None));
    }

    #[test]
    fn what_is_put_back_is_next() {
        let mut turns = filled(&[(1, "a1"), (2, "b1"), (1, "a2")]);
        let taken = turns.take().unwrap();
        turns.put_back(1, taken);
        assert_eq!(turns.next(), Some(&"a1"));
        assert_eq!(turns.drain(), ["a1", "b1", "a2"]);
        // The last one of its nexus.
        turns.put_back(7, "d");
        assert_eq!(turns.drain(), ["d"]);
    }

    #[test]
    fn what_is_removed_leaves_no_turn_behind() {
        let mut turns = filled(&[(1, "a1"), (1, "a2"), (2, "b1")]);
        assert_eq!(turns.remove(|item| *item == "b1"), Some("b1"));
        assert_eq!(turns.remove(|item| *item == "b1"), None);
        assert_eq!(turns.remove(|item| *item == "a1"), Some("a1"));
        turns.push(2, "b2");
        assert_eq!(turns.drain(), ["a2", "b2"]);
    }
}
