//! Until when a core may sleep.

use std::time::Duration;

use engine::deadlines::Moment;
use reactor::Wait;

/// A moment that is nearer than this is not kept for later sleeps. It is mostly that of held output, which has gone
/// before: a sleep until then would set a timer and be woken by it, which costs more than the look that it spares.
const KEPT_MIN: Duration = Duration::from_millis(1);

/// The moment before which nothing is due, but what the turn has added: that is found before the next sleep.
#[derive(Debug, Default)]
pub(crate) struct Due {
    at: Duration,
    /// It is far enough away to be kept for later sleeps.
    is_kept: bool,
}

impl Due {
    /// Something is due, or may be.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        now >= self.at
    }

    /// Has the next turn look at everything.
    pub(crate) fn look_at_once(&mut self) {
        self.at = Duration::ZERO;
    }

    /// Whether the moment of an earlier sleep is good for this one, too: nothing has come that is due sooner.
    pub(crate) fn stands(&self, now: Duration, soonest: Moment) -> bool {
        self.is_kept && now < self.at && Moment::at(self.at) <= soonest
    }

    /// Takes what a look has found.
    pub(crate) fn set(&mut self, found: Option<Duration>, now: Duration) {
        self.at = found.unwrap_or(Duration::MAX);
        self.is_kept = self.at >= now.saturating_add(KEPT_MIN);
    }

    pub(crate) const fn at(&self) -> Duration {
        self.at
    }

    /// How a core that has nothing to do waits.
    pub(crate) fn wait(&self) -> Wait {
        if self.at == Duration::MAX {
            Wait::Forever
        } else {
            Wait::Until(self.at)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(5);

    fn found(after: Option<Duration>) -> Due {
        let mut due = Due::default();
        due.set(after.map(|after| NOW + after), NOW);
        due
    }

    #[test]
    fn a_far_moment_stands_until_it_has_come_or_something_sooner_has() {
        let due = found(Some(Duration::from_secs(1)));
        let later = NOW + Duration::from_millis(999);
        assert!(due.stands(later, Moment::NEVER));
        assert!(due.stands(later, Moment::at(due.at())));
        assert!(!due.stands(later, Moment::at(later)));
        assert!(!due.stands(NOW + Duration::from_secs(1), Moment::NEVER));
        assert!(due.is_due(NOW + Duration::from_secs(1)) && !due.is_due(later));
        assert!(matches!(due.wait(), Wait::Until(at) if at == due.at()));
    }

    #[test]
    fn the_moment_of_held_output_is_no_moment_for_the_sleep_after_it() {
        let due = found(Some(Duration::from_micros(30)));
        assert!(!due.stands(NOW + Duration::from_micros(5), Moment::NEVER));
        assert!(matches!(due.wait(), Wait::Until(at) if at == due.at()));
    }

    #[test]
    fn nothing_due_is_a_sleep_without_end_that_stands() {
        let mut due = found(None);
        assert!(due.stands(NOW, Moment::NEVER));
        assert!(matches!(due.wait(), Wait::Forever));
        due.look_at_once();
        assert!(due.is_due(Duration::ZERO) && !due.stands(NOW, Moment::NEVER));
    }
}
