//! Streams of live data: who has a place, and what is new for them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use tokio::sync::{Notify, oneshot, watch};

use crate::limits;
use crate::places::Places;

/// What is new.
#[derive(Clone, Debug, Default)]
pub(crate) struct News {
    /// The counters, ready to be sent; empty before the first.
    pub(crate) stats: Bytes,
    /// Grows with each of them.
    pub(crate) turn: u64,
    /// Number of the newest event.
    pub(crate) newest: u64,
}

/// Dropped when a stream has lost its place.
type Keep = oneshot::Sender<()>;

/// Streams of live data.
#[derive(Debug)]
pub(crate) struct Live {
    places: Arc<Mutex<Places<Keep>>>,
    pub(crate) news: watch::Sender<News>,
    /// A place was taken. One task waits for it.
    is_taken: Notify,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            places: Arc::new(Mutex::new(Places::new(limits::STREAMS_MAX))),
            news: watch::Sender::new(News::default()),
            is_taken: Notify::new(),
        }
    }
}

impl Live {
    fn is_listened_to(&self) -> bool {
        locked(&self.places).items().next().is_some()
    }

    /// Ends when somebody listens. A place that is taken before this looks is not missed: it leaves a note.
    pub(crate) async fn listener(&self) {
        while !self.is_listened_to() {
            self.is_taken.notified().await;
        }
    }

    /// A place for a stream of this caller.
    pub(crate) fn place(&self, author: &str) -> Place {
        let (keep, lost) = oneshot::channel();
        let number = locked(&self.places).take(author, keep);
        self.is_taken.notify_one();
        let places = Arc::clone(&self.places);
        Place {
            places,
            number,
            lost,
        }
    }
}

/// Every change of places is whole.
fn locked(places: &Mutex<Places<Keep>>) -> MutexGuard<'_, Places<Keep>> {
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a stream, given back at its end.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Mutex<Places<Keep>>>,
    number: u64,
    /// Ends when another stream has got the place.
    pub(crate) lost: oneshot::Receiver<()>,
}

impl Drop for Place {
    fn drop(&mut self) {
        locked(&self.places).give_back(self.number);
    }
}
