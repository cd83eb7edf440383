//! Which connections there are, and which of them makes room for a new one: never one at work, whose request has a
//! place. One address has more connections than there are such places, so a new one finds room.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// A connection.
#[derive(Debug)]
struct Entry {
    /// No request of it has had a place.
    is_stranger: bool,
    /// Its requests that have places. One that the daemon has not answered in time may last longer than its answer.
    at_work: usize,
    /// Since when it has none.
    since: Instant,
    /// Where it comes from; none for the sockets of this host.
    source: Option<Source>,
    close: Arc<Notify>,
}

/// An address, or with IPv6 the network of a site (64 bits).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Source([u8; 16]);

impl Source {
    /// The one of this address.
    pub(crate) const fn of(address: IpAddr) -> Self {
        let address = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut octets = address.octets();
        if address.to_ipv4_mapped().is_none() {
            let (_, host) = octets.split_at_mut(8);
            host.copy_from_slice(&[0; 8]);
        }
        Self(octets)
    }
}

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry>,
    next: u64,
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    of_source_max: usize,
    table: Mutex<Table>,
}

impl Table {
    /// The one that goes first, of this source or of all.
    fn first_to_go(&self, source: Option<Source>) -> Option<u64> {
        let may_go =
            |entry: &Entry| entry.at_work == 0 && (source.is_none() || entry.source == source);
        let some = self.entries.iter().filter(|(_, entry)| may_go(entry));
        some.min_by_key(|(number, entry)| (!entry.is_stranger, entry.since, **number))
            .map(|(number, _)| *number)
    }
}

impl Connections {
    /// So many at once, and so many of them from one source.
    pub(crate) fn new(most: usize, of_source_max: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            of_source_max,
            table: Mutex::default(),
        })
    }

    /// A place for a connection, from this address if it has one. Where its address has all that one may have, one of
    /// its own makes room; where all are taken, any; where none can, there is no place.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant, from: Option<IpAddr>) -> Option<Place> {
        let source = from.map(Source::of);
        let mut table = self.lock();
        let is_own = |entry: &&Entry| entry.source == source;
        let own = table.entries.values().filter(is_own).count();
        let is_full = source.is_some() && own >= self.of_source_max;
        if is_full || table.entries.len() >= self.most {
            let first = table.first_to_go(source.filter(|_| is_full))?;
            if let Some(entry) = table.entries.remove(&first) {
                entry.close.notify_one();
            }
        }
        let number = table.next;
        table.next += 1;
        let close = Arc::new(Notify::new());
        let entry = Entry {
            is_stranger: true,
            at_work: 0,
            since: now,
            source,
            close: Arc::clone(&close),
        };
        table.entries.insert(number, entry);
        drop(table);
        Some(Place {
            all: Arc::clone(self),
            number,
            close,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change is one call.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place; free when this is gone.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<Connections>,
    number: u64,
    close: Arc<Notify>,
}

impl Place {
    /// Waits until another connection needs the place.
    pub(crate) async fn taken(&self) {
        self.close.notified().await;
    }

    /// For its requests.
    pub(crate) fn link(&self) -> Link {
        Link {
            all: Arc::clone(&self.all),
            number: self.number,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.lock().entries.remove(&self.number);
    }
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    all: Arc<Connections>,
    number: u64,
}

impl Link {
    /// The request has a place, until the value is gone.
    pub(crate) fn work(&self) -> AtWork {
        if let Some(entry) = self.all.lock().entries.get_mut(&self.number) {
            entry.is_stranger = false;
            entry.at_work += 1;
        }
        AtWork(self.clone())
    }
}

/// A connection whose request has a place.
#[derive(Debug)]
pub(crate) struct AtWork(Link);

impl Drop for AtWork {
    fn drop(&mut self) {
        let Self(Link { all, number }) = self;
        if let Some(entry) = all.lock().entries.get_mut(number) {
            entry.at_work = entry.at_work.saturating_sub(1);
            entry.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn from(last: u8) -> Option<IpAddr> {
        Some(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last)))
    }

    fn is_taken(place: &Place) -> bool {
        let all = place.all.lock();
        !all.entries.contains_key(&place.number)
    }

    #[test]
    fn the_one_that_has_been_idle_longest_makes_room() {
        let all = Connections::new(2, 2);
        let start = Instant::now();
        let older = all.admit(start + Duration::from_secs(1), None).unwrap();
        let oldest = all.admit(start, None).unwrap();
        let newest = all.admit(start + Duration::from_secs(2), None).unwrap();
        assert!(is_taken(&oldest));
        assert!(!is_taken(&older) && !is_taken(&newest));
    }

    #[test]
    fn one_at_work_makes_no_room_and_an_idle_one_does() {
        let all = Connections::new(1, 1);
        let now = Instant::now();
        let first = all.admit(now, from(1)).unwrap();
        let (one, late) = (first.link().work(), first.link().work());
        drop(one);
        assert!(all.admit(now, from(1)).is_none() && all.admit(now, from(2)).is_none());
        drop(late);
        assert!(all.admit(now, from(2)).is_some());
        assert!(is_taken(&first));
    }

    #[test]
    fn strangers_make_room_before_those_who_are_known() {
        let all = Connections::new(3, 3);
        let late = Instant::now() + Duration::from_secs(1);
        let known = all.admit(late, from(1)).unwrap();
        drop(known.link().work());
        let strangers = [(); 4].map(|()| all.admit(late, from(2)).unwrap());
        let taken = strangers.each_ref().map(is_taken);
        assert_eq!(taken, [true, true, false, false]);
        assert!(!is_taken(&known));
    }

    #[test]
    fn an_address_with_all_that_one_may_have_makes_room_for_itself() {
        let all = Connections::new(4, 2);
        let now = Instant::now();
        let other = all.admit(now, from(1)).unwrap();
        let own = [(); 2].map(|()| all.admit(now, from(2)).unwrap());
        let third = all.admit(now, from(2)).unwrap();
        assert!(is_taken(&own[0]));
        assert!(!is_taken(&own[1]) && !is_taken(&other) && !is_taken(&third));
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let all = Connections::new(1, 1);
        drop(all.admit(Instant::now(), None).unwrap());
        assert!(all.lock().entries.is_empty());
    }

    #[test]
    fn a_site_is_one_source() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }
}
