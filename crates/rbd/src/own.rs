//! The addresses of the clients of this process: no lock of one of them is ever broken, as that blocklists the client
//! with all its images.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Addresses of connections that have ended. With more, the oldest is left out: what it had locked is free by then.
const ENDED_MAX: usize = 4096;

#[derive(Debug)]
struct Addresses {
    /// Of connections that there are, and that the cluster takes requests from.
    in_use: BTreeSet<String>,
    ended: VecDeque<String>,
}

static ADDRESSES: Mutex<Addresses> = Mutex::new(Addresses {
    in_use: BTreeSet::new(),
    ended: VecDeque::new(),
});

fn addresses() -> MutexGuard<'static, Addresses> {
    ADDRESSES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    /// A connection of this process has it.
    InUse,
    /// A connection of this process had it, or was blocklisted.
    Ended,
    /// It is that of another process.
    Foreign,
}

/// Whose address that is.
pub(crate) fn owner_of(address: &str) -> Owner {
    let (known, address) = (addresses(), bare(address));
    if known.in_use.contains(address) {
        Owner::InUse
    } else if known.ended.iter().any(|one| one == address) {
        Owner::Ended
    } else {
        Owner::Foreign
    }
}

/// Without the version of the protocol, which one function of the libraries writes and another does not.
pub(crate) fn bare(address: &str) -> &str {
    let address = address.trim_matches(['[', ']']);
    let of_version = |prefix| address.strip_prefix(prefix);
    let bare = ["v1:", "v2:", "any:"].into_iter().find_map(of_version);
    bare.unwrap_or(address)
}

/// The address of a connection, as long as there is one.
#[derive(Debug)]
pub(crate) struct Own(String);

impl Own {
    pub(crate) fn new(address: &str) -> Self {
        let address = bare(address).to_owned();
        addresses().in_use.insert(address.clone());
        Self(address)
    }

    pub(crate) fn address(&self) -> &str {
        &self.0
    }

    /// The connection is of no more use.
    pub(crate) fn end(&self) {
        let mut known = addresses();
        if known.in_use.remove(&self.0) {
            known.ended.push_back(self.0.clone());
            if known.ended.len() > ENDED_MAX {
                known.ended.pop_front();
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_after_the_end_of_its_connection() {
        assert_eq!(owner_of("192.0.2.77:0/1"), Owner::Foreign);
        let own = Own::new("v2:192.0.2.77:0/1");
        assert_eq!(owner_of("192.0.2.77:0/1"), Owner::InUse);
        assert_eq!(owner_of("192.0.2.77:0/12"), Owner::Foreign);
        drop(own);
        assert_eq!(owner_of("v1:192.0.2.77:0/1"), Owner::Ended);
    }

    #[test]
    fn the_addresses_that_are_kept_are_bounded() {
        let in_use = Own::new("192.0.2.78:0/0");
        for number in 1..=ENDED_MAX + 1 {
            drop(Own::new(&format!("192.0.2.78:0/{number}")));
        }
        assert!(addresses().ended.len() <= ENDED_MAX);
        assert_eq!(owner_of(in_use.address()), Owner::InUse);
    }
}
