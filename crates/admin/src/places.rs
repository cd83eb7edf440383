//! Places that callers hold until they give them back or take more than they may have. Knows nothing of what the places
//! are for.

/// A place that is held.
#[derive(Debug)]
struct Held<T> {
    number: u64,
    caller: String,
    item: T,
}

/// Places with what their holders keep there. Dropping that is how a holder loses a place.
#[derive(Debug)]
pub(crate) struct Places<T> {
    of_caller_max: usize,
    /// The oldest first.
    held: Vec<Held<T>>,
    last: u64,
}

impl<T> Places<T> {
    /// So many places for each caller.
    pub(crate) const fn new(of_caller_max: usize) -> Self {
        Self {
            of_caller_max,
            held: Vec::new(),
            last: 0,
        }
    }

    /// Takes a place, and gives its number. Where the caller has all of its places, its oldest is lost.
    pub(crate) fn take(&mut self, caller: &str, item: T) -> u64 {
        let own = || self.held.iter().filter(|held| held.caller == caller);
        if own().count() >= self.of_caller_max
            && let Some(oldest) = own().map(|held| held.number).next()
        {
            self.give_back(oldest);
        }
        self.last += 1;
        let number = self.last;
        let caller = caller.to_owned();
        self.held.push(Held {
            number,
            caller,
            item,
        });
        number
    }

    /// Gives a place back; one that was lost meanwhile is gone already.
    pub(crate) fn give_back(&mut self, number: u64) {
        self.held.retain(|held| held.number != number);
    }

    /// What is kept in all places, the oldest first.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.held.iter().map(|held| &held.item)
    }

    /// Keeps only the places of which this is true.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        self.held.retain(|held| is_kept(&held.item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(places: &Places<&'static str>) -> String {
        let items: Vec<&str> = places.items().copied().collect();
        items.join(" ")
    }

    #[test]
    fn a_caller_with_all_of_its_places_loses_its_oldest_and_no_other_does() {
        let mut places = Places::new(2);
        for (caller, item) in [
            ("a", "a1"),
            ("v", "v1"),
            ("v", "v2"),
            ("v", "v3"),
            ("a", "a2"),
        ] {
            places.take(caller, item);
        }
        assert_eq!(items(&places), "a1 v2 v3 a2");
    }

    #[test]
    fn a_place_that_was_given_back_is_free_and_others_stay() {
        let mut places = Places::new(2);
        let first = places.take("v", "v1");
        places.take("v", "v2");
        places.give_back(first);
        places.give_back(first);
        places.take("v", "v3");
        assert_eq!(items(&places), "v2 v3");
    }
}
