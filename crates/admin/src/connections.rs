//! Which connections there are, and which of them makes room for a new one.

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
    table: Mutex<Table>,
}

impl Connections {
    /// So many at once.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            table: Mutex::default(),
        })
    }

    /// A place for a new connection. When all are taken, the connection that has been idle longest
    /// loses its own; when none is idle, there is none.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant) -> Option<Place> {
        let mut table = self.lock();
        if table.entries.len() >= self.most {
            let idle = table
                .entries
                .iter()
                .filter_map(|(number, entry)| Some((entry.idle_since?, *number)));
            let (_, oldest) = idle.min()?;
            if let Some(entry) = table.entries.remove(&oldest) {
                entry.close.notify_one();
            }
        }
        let number = table.next;
        table.next += 1;
        let close = Arc::new(Notify::new());
        let entry = Entry {
            idle_since: Some(now),
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
        let all = Connections::new(2);
        let start = Instant::now();
        let older = all.admit(start + Duration::from_secs(1)).unwrap();
        let oldest = all.admit(start).unwrap();
        let newest = all.admit(start + Duration::from_secs(2)).unwrap();
        assert!(is_taken(&oldest));
        assert!(!is_taken(&older) && !is_taken(&newest));
    }

    #[test]
    fn a_busy_one_keeps_its_place_and_gives_it_back_idle() {
        let all = Connections::new(1);
        let first = all.admit(Instant::now()).unwrap();
        let busy = first.begin();
        assert!(all.admit(Instant::now()).is_none());
        drop(busy);
        assert!(all.admit(Instant::now()).is_some());
        assert!(is_taken(&first));
    }

    #[test]
    fn a_connection_that_ends_leaves_its_place() {
        let all = Connections::new(1);
        drop(all.admit(Instant::now()).unwrap());
        assert!(all.lock().entries.is_empty());
    }
}
