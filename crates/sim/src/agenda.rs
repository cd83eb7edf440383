//! What will happen, in order of time. Time is a number; nothing here ever waits.

use std::collections::BTreeMap;
use std::time::Duration;

/// Events to come. Two of the same moment happen in the order they were put down.
#[derive(Debug)]
pub struct Agenda<E> {
    now: Duration,
    count: u64,
    events: BTreeMap<(Duration, u64), E>,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self {
            now: Duration::ZERO,
            count: 0,
            events: BTreeMap::new(),
        }
    }
}

impl<E> Agenda<E> {
    /// The time of the event that is happening.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Puts an event down for `delay` from now.
    pub fn after(&mut self, delay: Duration, event: E) {
        self.at(self.now + delay, event);
    }

    /// Puts an event down for a moment; for the past means now.
    pub fn at(&mut self, when: Duration, event: E) {
        self.count += 1;
        self.events.insert((when.max(self.now), self.count), event);
    }

    /// The next event; time moves on to it.
    pub fn next_event(&mut self) -> Option<E> {
        let ((when, _), event) = self.events.pop_first()?;
        self.now = when;
        Some(event)
    }

    /// Strikes out what `is_moot` picks.
    pub fn strike(&mut self, is_moot: impl Fn(&E) -> bool) {
        self.events.retain(|_, event| !is_moot(event));
    }

    /// What is still to come, in order.
    pub fn pending(&self) -> impl Iterator<Item = &E> {
        self.events.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_writing_down() {
        let mut agenda = Agenda::default();
        let at = Duration::from_micros;
        agenda.at(at(5), "third");
        agenda.at(at(2), "first");
        agenda.at(at(5), "fourth");
        agenda.at(at(2), "second");
        assert_eq!(agenda.next_event(), Some("first"));
        assert_eq!(agenda.next_event(), Some("second"));
        agenda.after(at(1), "between");
        agenda.at(Duration::ZERO, "late");
        let rest: Vec<_> = std::iter::from_fn(|| agenda.next_event()).collect();
        assert_eq!(rest, ["late", "between", "third", "fourth"]);
        assert_eq!(agenda.now(), at(5));
    }

    #[test]
    fn what_is_struck_out_does_not_happen() {
        let mut agenda = Agenda::default();
        agenda.after(Duration::ZERO, 1);
        agenda.after(Duration::ZERO, 2);
        agenda.strike(|&event| event == 1);
        assert_eq!(agenda.pending().count(), 1);
        assert_eq!(agenda.next_event(), Some(2));
        assert_eq!(agenda.next_event(), None);
    }
}
