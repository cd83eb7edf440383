//! Places that callers hold, each token its share: who takes many loses some before others lose any.
//! Knows nothing of what the places are for.

use api::access::Role;

/// A place that is held.
#[derive(Debug)]
struct Held<T> {
    number: u64,
    owner: String,
    role: Role,
    item: T,
}

/// All places are held by callers whom the new one may not displace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Full;

/// Places with what their holders keep there. Dropping that is how a holder loses a place.
#[derive(Debug)]
pub(crate) struct Places<T> {
    places_max: usize,
    share_max: usize,
    /// The oldest first.
    held: Vec<Held<T>>,
    last: u64,
}

impl<T> Places<T> {
    /// So many places, and so many of them for one owner.
    pub(crate) const fn new(places_max: usize, share_max: usize) -> Self {
        Self {
            places_max,
            share_max,
            held: Vec::new(),
            last: 0,
        }
    }

    /// Takes a place, and gives its number.
    ///
    /// An owner with a whole share loses its own oldest place. When all places are held, the owner of the same role
    /// or a lower one that holds most loses its oldest; of two that hold as many, the one of the lower role.
    ///
    /// # Errors
    ///
    /// All places are held by owners of higher roles.
    pub(crate) fn take(&mut self, owner: &str, role: Role, item: T) -> Result<u64, Full> {
        let displaced = if self.count(owner) >= self.share_max {
            self.held.iter().position(|held| held.owner == owner)
        } else if self.held.len() >= self.places_max {
            Some(self.displaced_for(owner, role).ok_or(Full)?)
        } else {
            None
        };
        if let Some(displaced) = displaced {
            self.held.remove(displaced);
        }
        self.last += 1;
        self.held.push(Held {
            number: self.last,
            owner: owner.to_owned(),
            role,
            item,
        });
        Ok(self.last)
    }

    /// Which place is lost to this owner.
    fn displaced_for(&self, owner: &str, role: Role) -> Option<usize> {
        let held = self.held.iter().enumerate();
        // Of equals the last is taken, which is the oldest in this order.
        held.rev()
            .filter(|(_, held)| held.role <= role)
            .max_by_key(|(_, held)| {
                // With the place that it wants now.
                let more = usize::from(held.owner == owner);
                let count = self.count(&held.owner) + more;
                (count, std::cmp::Reverse(held.role))
            })
            .map(|(at, _)| at)
    }

    fn count(&self, owner: &str) -> usize {
        self.held.iter().filter(|held| held.owner == owner).count()
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

    fn owners(places: &Places<&'static str>) -> String {
        let items: Vec<&str> = places.items().copied().collect();
        items.join(" ")
    }

    #[test]
    fn an_owner_with_a_whole_share_loses_its_own_oldest_place() {
        let mut places = Places::new(8, 2);
        for (owner, item) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("a", "a3")] {
            places.take(owner, Role::Viewer, item).unwrap();
        }
        assert_eq!(owners(&places), "b1 a2 a3");
    }

    #[test]
    fn the_owner_with_most_loses_its_oldest_place_when_all_are_held() {
        let mut places = Places::new(4, 3);
        for (owner, item) in [("b", "b1"), ("a", "a1"), ("a", "a2"), ("a", "a3")] {
            places.take(owner, Role::Viewer, item).unwrap();
        }
        places.take("c", Role::Viewer, "c1").unwrap();
        assert_eq!(owners(&places), "b1 a2 a3 c1");
        // With one more it would have as many as the other: its own goes.
        places.take("c", Role::Viewer, "c2").unwrap();
        assert_eq!(owners(&places), "b1 a3 c1 c2");
        places.take("c", Role::Viewer, "c3").unwrap();
        assert_eq!(owners(&places), "b1 a3 c2 c3");
    }

    #[test]
    fn nobody_displaces_a_higher_role_and_an_admin_always_finds_a_place() {
        let mut places = Places::new(2, 2);
        places.take("admin", Role::Admin, "a").unwrap();
        places.take("operator", Role::Operator, "o").unwrap();
        assert_eq!(places.take("viewer", Role::Viewer, "v"), Err(Full));
        // Both hold one: the lower role goes.
        places.take("other", Role::Admin, "x").unwrap();
        assert_eq!(owners(&places), "a x");
        assert_eq!(places.take("operator", Role::Operator, "o"), Err(Full));
        places.take("third", Role::Admin, "y").unwrap();
        assert_eq!(owners(&places), "x y");
    }

    #[test]
    fn a_place_that_was_given_back_is_free_and_others_stay() {
        let mut places = Places::new(2, 2);
        let first = places.take("a", Role::Viewer, "a1").unwrap();
        places.take("a", Role::Viewer, "a2").unwrap();
        places.give_back(first);
        places.give_back(first);
        places.take("b", Role::Viewer, "b1").unwrap();
        assert_eq!(owners(&places), "a2 b1");
    }
}
