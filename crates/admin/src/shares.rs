//! Places that are free again in a moment, as those of questions: nobody is displaced, but no caller may have all of
//! them, and some are for administrators. Knows nothing of what the places are for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::access::Role;

use crate::limits;

/// Who takes places.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Owner {
    /// As the audit names it.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) role: Role,
}

impl Owner {
    /// The administration itself: no token has this name.
    pub(crate) const fn own() -> Self {
        Self {
            name: String::new(),
            role: Role::Admin,
        }
    }
}

/// So many places.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    most: usize,
    taken: Arc<Mutex<HashMap<Owner, usize>>>,
}

impl Shares {
    /// All free.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Arc::default(),
        }
    }

    /// A place, unless the owner has its share, or all are taken that are for its role.
    pub(crate) fn take(&self, owner: Owner) -> Option<Share> {
        let mut taken = locked(&self.taken);
        let of_admins = self.most / limits::SHARE_OF_ADMINS;
        let below: usize = taken
            .iter()
            .filter(|(other, _)| other.role < Role::Admin)
            .map(|(_, count)| count)
            .sum();
        let own = taken.get(&owner).copied().unwrap_or(0);
        let is_free = if owner.role < Role::Admin {
            below < self.most - of_admins
        } else {
            taken.values().sum::<usize>() < self.most
        };
        if !is_free || own >= self.most / limits::SHARE_OF_ONE {
            return None;
        }
        taken.insert(owner.clone(), own + 1);
        drop(taken);
        Some(Share {
            taken: Arc::clone(&self.taken),
            owner,
        })
    }
}

/// Every change of counts is whole.
fn locked(taken: &Mutex<HashMap<Owner, usize>>) -> MutexGuard<'_, HashMap<Owner, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place; free when this is gone.
#[derive(Debug)]
pub(crate) struct Share {
    taken: Arc<Mutex<HashMap<Owner, usize>>>,
    owner: Owner,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = locked(&self.taken);
        if let Some(count) = taken.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str, role: Role) -> Owner {
        let name = name.to_owned();
        Owner { name, role }
    }

    /// As many places as this owner gets.
    fn all_for(shares: &Shares, name: &str, role: Role) -> Vec<Share> {
        let take = || shares.take(owner(name, role));
        std::iter::from_fn(take).collect()
    }

    #[test]
    fn one_owner_has_its_share_and_those_below_admin_leave_some() {
        let shares = Shares::new(16);
        let first = all_for(&shares, "v1", Role::Viewer);
        let second = all_for(&shares, "v2", Role::Operator);
        assert_eq!((first.len(), second.len()), (8, 4));
        assert!(shares.take(owner("v3", Role::Metrics)).is_none());
        let admin = all_for(&shares, "a", Role::Admin);
        assert_eq!(admin.len(), 4);
        drop(first);
        assert_eq!(all_for(&shares, "b", Role::Admin).len(), 8);
        assert_eq!(all_for(&shares, "a", Role::Admin).len(), 4);
    }

    #[test]
    fn a_place_is_free_when_its_share_is_gone() {
        let shares = Shares::new(4);
        drop(all_for(&shares, "v", Role::Viewer));
        assert!(locked(&shares.taken).is_empty());
        assert_eq!(all_for(&shares, "v", Role::Viewer).len(), 2);
    }
}
