//! Places that callers hold until they give them back or others of their role take them. Knows nothing of what the
//! places are for.

use api::access::Role;

/// A place that is held.
#[derive(Debug)]
struct Held<T> {
    number: u64,
    role: Role,
    item: T,
}

/// Places with what their holders keep there. Dropping that is how a holder loses a place.
#[derive(Debug)]
pub(crate) struct Places<T> {
    of_role_max: usize,
    /// The oldest first.
    held: Vec<Held<T>>,
    last: u64,
}

impl<T> Places<T> {
    /// So many places for each role.
    pub(crate) const fn new(of_role_max: usize) -> Self {
        Self {
            of_role_max,
            held: Vec::new(),
            last: 0,
        }
    }

    /// Takes a place, and gives its number. Where the role has all of its places, its oldest is lost.
    pub(crate) fn take(&mut self, role: Role, item: T) -> u64 {
        let of_role = || self.held.iter().filter(|held| held.role == role);
        if of_role().count() >= self.of_role_max
            && let Some(oldest) = of_role().map(|held| held.number).next()
        {
            self.give_back(oldest);
        }
        self.last += 1;
        let number = self.last;
        self.held.push(Held { number, role, item });
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
    fn a_role_with_all_of_its_places_loses_its_oldest_and_no_other_role_does() {
        let mut places = Places::new(2);
        for (role, item) in [
            (Role::Admin, "a1"),
            (Role::Viewer, "v1"),
            (Role::Viewer, "v2"),
            (Role::Viewer, "v3"),
            (Role::Admin, "a2"),
        ] {
            places.take(role, item);
        }
        assert_eq!(items(&places), "a1 v2 v3 a2");
    }

    #[test]
    fn a_place_that_was_given_back_is_free_and_others_stay() {
        let mut places = Places::new(2);
        let first = places.take(Role::Viewer, "v1");
        places.take(Role::Viewer, "v2");
        places.give_back(first);
        places.give_back(first);
        places.take(Role::Viewer, "v3");
        assert_eq!(items(&places), "v2 v3");
    }
}
