//! The last events, for whoever asks.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use api::event::Event;

/// How many are kept.
const EVENTS_MAX: usize = 4096;

/// A ring of events. Noting one takes a moment, so a core may do it.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Event>,
    last: u64,
}

impl Events {
    /// A thread that panicked while it held the lock left a whole ring behind.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, with the number and the time it gets here.
    pub(crate) fn note(&self, mut event: Event) {
        let mut ring = self.lock();
        ring.last += 1;
        event.number = ring.last;
        event.at_ms = milliseconds(SystemTime::now());
        if ring.events.len() >= EVENTS_MAX {
            ring.events.pop_front();
        }
        ring.events.push_back(event);
    }

    /// Those after a number, the oldest first.
    pub(crate) fn after(&self, number: u64, most: usize) -> Vec<Event> {
        let ring = self.lock();
        let newer = ring.events.iter().filter(|event| event.number > number);
        newer.take(most).cloned().collect()
    }
}

/// Since 1970-01-01 UTC; zero for a clock that is before that.
pub(crate) fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use api::event::Severity;

    use super::*;

    #[test]
    fn the_last_events_are_kept_and_numbered() {
        let events = Events::default();
        let event = Event {
            number: 0,
            at_ms: 0,
            severity: Severity::Info,
            kind: "test".to_owned(),
            message: String::new(),
            lun: None,
            target: None,
            initiator: None,
            author: None,
        };
        for _ in 0..EVENTS_MAX + 2 {
            events.note(event.clone());
        }
        let all = events.after(0, usize::MAX);
        assert_eq!((all.len(), all[0].number), (EVENTS_MAX, 3));
        assert!(all[0].at_ms > 0);
        assert_eq!(events.after(4096, 1)[0].number, 4097);
    }
}
