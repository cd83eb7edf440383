//! Which connections there are, and which of them makes room for a new one. A stranger, who has
//! not authenticated yet, never takes the place of a known and active client, unless the one that
//! that is has more places than anybody else.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use hyper::body::{Bytes, Frame, SizeHint};
use tokio::sync::Notify;

/// A connection.
#[derive(Debug)]
struct Entry {
    /// Since when it does nothing; none while an answer is made or sent.
    idle_since: Option<Instant>,
    /// Nobody knows yet who is at its other end.
    is_stranger: bool,
    /// Where it comes from; none for the sockets of this host.
    source: Option<Source>,
    close: Arc<Notify>,
}

/// An address, or with IPv6 the network of a site (64 bits).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Source([u8; 16]);

impl Source {
    const fn of(address: IpAddr) -> Self {
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
    strangers_max: usize,
    table: Mutex<Table>,
}

impl Table {
    /// The connection that loses its place to one from `source`: the oldest of the address that has
    /// more than that, whatever it does; else the first of its own to go; where it has none, the first
    /// of all. Of all, or of the strangers alone.
    fn gives_way(&self, source: Option<Source>, strangers_alone: bool) -> Option<u64> {
        let Some(source) = source else {
            return self.first_to_go(|_| true, strangers_alone);
        };
        let of_the_fullest = self.of_the_fullest(source, strangers_alone);
        let is_own = |entry: &Entry| entry.source == Some(source);
        let has_own = self.entries.values().any(is_own);
        of_the_fullest
            .or_else(|| self.first_to_go(|entry| !has_own || is_own(entry), strangers_alone))
    }

    /// The one that has been idle longest, else the oldest of the strangers.
    fn first_to_go(&self, is_among: impl Fn(&Entry) -> bool, strangers_alone: bool) -> Option<u64> {
        let may_go = |entry: &Entry| is_among(entry) && (entry.is_stranger || !strangers_alone);
        let some = || self.entries.iter().filter(|(_, entry)| may_go(entry));
        let idle = some().filter_map(|(number, entry)| Some((entry.idle_since?, *number)));
        let strangers = some().filter(|(_, entry)| entry.is_stranger);
        let oldest = || strangers.map(|(number, _)| *number).min();
        idle.min().map(|(_, number)| number).or_else(oldest)
    }

    /// The oldest connection of the source that has the most, if that is not the source of the newcomer.
    /// Of all, or of the strangers alone.
    fn of_the_fullest(&self, newcomer: Source, strangers_alone: bool) -> Option<u64> {
        let mut sources: HashMap<Source, (usize, u64)> = HashMap::new();
        for (&number, entry) in &self.entries {
            if let Some(source) = entry.source
                && (entry.is_stranger || !strangers_alone)
            {
                let (count, oldest) = sources.entry(source).or_insert((0, number));
                *count += 1;
                *oldest = number.min(*oldest);
            }
        }
        let own = sources.get(&newcomer).map_or(0, |(count, _)| *count);
        let fullest = sources
            .values()
            .max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        fullest
            .filter(|(count, _)| *count > own + 1)
            .map(|&(_, oldest)| oldest)
    }

    fn strangers(&self) -> usize {
        let entries = self.entries.values();
        entries.filter(|entry| entry.is_stranger).count()
    }
}

impl Connections {
    /// So many at once, and so many of them with strangers.
    pub(crate) fn new(most: usize, strangers_max: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            strangers_max,
            table: Mutex::default(),
        })
    }

    /// A place for the connection of somebody who is known. When all are taken, the connection that
    /// has been idle longest loses its own, else the oldest of a stranger; when there is neither,
    /// there is no place.
    pub(crate) fn admit_known(self: &Arc<Self>, now: Instant) -> Option<Place> {
        self.admit(now, None)
    }

    /// A place for the connection of a stranger, as [`Connections::admit_known`]; when the
    /// strangers have all that is for them, one of theirs makes room. First of all it is the address
    /// with the most connections that does, known or not, with its oldest one.
    pub(crate) fn admit_stranger(self: &Arc<Self>, now: Instant, from: IpAddr) -> Option<Place> {
        self.admit(now, Some(Source::of(from)))
    }

    fn admit(self: &Arc<Self>, now: Instant, source: Option<Source>) -> Option<Place> {
        let is_stranger = source.is_some();
        let mut table = self.lock();
        let too_many_strangers = is_stranger && table.strangers() >= self.strangers_max;
        if too_many_strangers || table.entries.len() >= self.most {
            let first = table.gives_way(source, too_many_strangers)?;
            if let Some(entry) = table.entries.remove(&first) {
                entry.close.notify_one();
            }
        }
        let number = table.next;
        table.next += 1;
        let close = Arc::new(Notify::new());
        let entry = Entry {
            idle_since: Some(now),
            is_stranger,
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

    fn set_idle_since(&self, number: u64, since: Option<Instant>) {
        if let Some(entry) = self.lock().entries.get_mut(&number) {
            entry.idle_since = since;
        }
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

    /// Who is at the other end may say so by this.
    pub(crate) fn introduction(&self) -> Introduction {
        Introduction {
            all: Arc::clone(&self.all),
            number: self.number,
        }
    }

    /// The connection is busy until the value is gone.
    pub(crate) fn begin(&self) -> Busy {
        self.all.set_idle_since(self.number, None);
        Busy {
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

/// The way of a connection to be no stranger's any more.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    all: Arc<Connections>,
    number: u64,
}

impl Introduction {
    /// It has been proved who is at the other end.
    pub(crate) fn made(&self) {
        if let Some(entry) = self.all.lock().entries.get_mut(&self.number) {
            entry.is_stranger = false;
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Busy {
    all: Arc<Connections>,
    number: u64,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.all.set_idle_since(self.number, Some(Instant::now()));
    }
}

/// The body of an answer; its connection is busy until it has been sent.
#[derive(Debug)]
pub(crate) struct Tracked {
    body: Body,
    _busy: Busy,
}

impl Tracked {
    /// Of this connection.
    pub(crate) const fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn from(last: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last))
    }

    const fn here() -> IpAddr {
        from(1)
    }

    fn is_taken(place: &Place) -> bool {
        let all = place.all.lock();
        !all.entries.contains_key(&place.number)
    }

    #[test]
    fn the_one_that_has_been_idle_longest_makes_room() {
        let all = Connections::new(2, 2);
        let start = Instant::now();
        let older = all.admit_known(start + Duration::from_secs(1)).unwrap();
        let oldest = all.admit_known(start).unwrap();
        let newest = all.admit_known(start + Duration::from_secs(2)).unwrap();
        assert!(is_taken(&oldest));
        assert!(!is_taken(&older) && !is_taken(&newest));
    }

    #[test]
    fn a_busy_one_keeps_its_place_and_gives_it_back_idle() {
        let all = Connections::new(1, 1);
        let first = all.admit_known(Instant::now()).unwrap();
        let busy = first.begin();
        assert!(all.admit_known(Instant::now()).is_none());
        assert!(all.admit_stranger(Instant::now(), here()).is_none());
        drop(busy);
        assert!(all.admit_known(Instant::now()).is_some());
        assert!(is_taken(&first));
    }

    #[test]
    fn strangers_have_some_places_and_the_oldest_makes_room_though_it_is_busy() {
        let all = Connections::new(4, 2);
        let now = Instant::now();
        let known = all.admit_stranger(now, here()).unwrap();
        known.introduction().made();
        let busy_known = known.begin();
        let strangers: Vec<_> = (0..2)
            .map(|_| all.admit_stranger(now, here()).unwrap())
            .collect();
        let busy: Vec<_> = strangers.iter().map(Place::begin).collect();
        let third = all.admit_stranger(now, here()).unwrap();
        assert!(is_taken(&strangers[0]));
        assert!(!is_taken(&strangers[1]) && !is_taken(&known));
        let fourth = all.admit_stranger(now, here()).unwrap();
        assert!(is_taken(&third), "the idle one goes before the busy one");
        assert!(!is_taken(&strangers[1]) && !is_taken(&fourth) && !is_taken(&known));
        drop((busy, busy_known));
    }

    #[test]
    fn a_busy_stranger_makes_room_for_who_is_known_when_all_is_full() {
        let all = Connections::new(2, 1);
        let now = Instant::now();
        let known = all.admit_known(now).unwrap();
        let stranger = all.admit_stranger(now, here()).unwrap();
        let busy = (known.begin(), stranger.begin());
        assert!(all.admit_known(now).is_some());
        assert!(is_taken(&stranger) && !is_taken(&known));
        drop(busy);
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let all = Connections::new(1, 1);
        drop(all.admit_known(Instant::now()).unwrap());
        assert!(all.lock().entries.is_empty());
    }

    #[test]
    fn an_address_with_many_busy_connections_makes_room_for_others_and_not_for_itself() {
        let all = Connections::new(4, 4);
        let now = Instant::now();
        let admit = |last| {
            let place = all.admit_stranger(now, from(last))?;
            place.introduction().made();
            let busy = place.begin();
            Some((place, busy))
        };
        let many: Vec<_> = (0..4).map(|_| admit(2).unwrap()).collect();
        assert!(admit(2).is_none());
        let others = (admit(3).unwrap(), admit(4).unwrap());
        assert!(is_taken(&many[0].0) && is_taken(&many[1].0));
        assert!(!is_taken(&many[2].0) && !is_taken(&many[3].0));
        // Two, one and one: nobody has more than his part.
        assert!(admit(3).is_none());
        assert!(!is_taken(&others.0.0) && !is_taken(&others.1.0));
        drop((many, others));
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
