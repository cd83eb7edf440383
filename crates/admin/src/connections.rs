//! Which connections there are, and which of them makes room for a new one. A stranger, who has
//! proved nothing yet, never takes the place of somebody who is known and at work.

use std::collections::HashMap;
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
    close: Arc<Notify>,
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
    /// The connection that loses its place first: the one that has been idle longest, else the
    /// oldest of the strangers. Of all, or of the strangers alone.
    fn first_to_go(&self, strangers_alone: bool) -> Option<u64> {
        let may_go = |entry: &Entry| entry.is_stranger || !strangers_alone;
        let some = || self.entries.iter().filter(|(_, entry)| may_go(entry));
        let idle = some().filter_map(|(number, entry)| Some((entry.idle_since?, *number)));
        let strangers = some().filter(|(_, entry)| entry.is_stranger);
        let oldest = || strangers.map(|(number, _)| *number).min();
        idle.min().map(|(_, number)| number).or_else(oldest)
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
        self.admit(now, false)
    }

    /// A place for the connection of a stranger, as [`Connections::admit_known`]; when the
    /// strangers have all that is for them, one of theirs makes room.
    pub(crate) fn admit_stranger(self: &Arc<Self>, now: Instant) -> Option<Place> {
        self.admit(now, true)
    }

    fn admit(self: &Arc<Self>, now: Instant, is_stranger: bool) -> Option<Place> {
        let mut table = self.lock();
        let too_many_strangers = is_stranger && table.strangers() >= self.strangers_max;
        if too_many_strangers || table.entries.len() >= self.most {
            let first = table.first_to_go(too_many_strangers)?;
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
        assert!(all.admit_stranger(Instant::now()).is_none());
        drop(busy);
        assert!(all.admit_known(Instant::now()).is_some());
        assert!(is_taken(&first));
    }

    #[test]
    fn strangers_have_some_places_and_the_oldest_makes_room_though_it_is_busy() {
        let all = Connections::new(4, 2);
        let now = Instant::now();
        let known = all.admit_stranger(now).unwrap();
        known.introduction().made();
        let busy_known = known.begin();
        let strangers: Vec<_> = (0..2).map(|_| all.admit_stranger(now).unwrap()).collect();
        let busy: Vec<_> = strangers.iter().map(Place::begin).collect();
        let third = all.admit_stranger(now).unwrap();
        assert!(is_taken(&strangers[0]));
        assert!(!is_taken(&strangers[1]) && !is_taken(&known));
        let fourth = all.admit_stranger(now).unwrap();
        assert!(is_taken(&third), "the idle one goes before the busy one");
        assert!(!is_taken(&strangers[1]) && !is_taken(&fourth) && !is_taken(&known));
        drop((busy, busy_known));
    }

    #[test]
    fn a_busy_stranger_makes_room_for_who_is_known_when_all_is_full() {
        let all = Connections::new(2, 1);
        let now = Instant::now();
        let known = all.admit_known(now).unwrap();
        let stranger = all.admit_stranger(now).unwrap();
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
}
