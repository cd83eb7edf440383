//! Answers to questions of discovery, which wait so that those of all servers do not come at once.

use std::collections::BTreeMap;
use std::time::Duration;

use super::keys::PlaceKey;
use crate::station::Station;

/// Answers that wait.
const ANSWERS_MAX: usize = 256;

/// Answers leave together at multiples of this time: a storm of questions does not wake a core for each answer.
const SLOT: Duration = Duration::from_millis(2);

/// An answer: where from, where to, and the frame.
pub(super) type Answer = (PlaceKey, Station, Vec<u8>);

/// See above.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    answers: BTreeMap<(Duration, u64), Answer>,
    next: u64,
}

impl Delayed {
    /// The answer is sent at this time, or up to [`SLOT`] before. False: too many wait, and it is not.
    pub(super) fn push(&mut self, at: Duration, answer: Answer) -> bool {
        if self.answers.len() >= ANSWERS_MAX {
            return false;
        }
        self.next = self.next.wrapping_add(1);
        let into_slot = u64::try_from(at.as_nanos() % SLOT.as_nanos()).unwrap_or(0);
        let at = at.saturating_sub(Duration::from_nanos(into_slot));
        self.answers.insert((at, self.next), answer);
        true
    }

    /// None waits.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// When the next one is to be sent.
    pub(super) fn next(&self) -> Option<Duration> {
        self.answers.keys().next().map(|(at, _)| *at)
    }

    /// Takes one that is to be sent now.
    pub(super) fn take(&mut self, now: Duration) -> Option<Answer> {
        let first = self.answers.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::table::Key;

    #[test]
    fn answers_leave_when_their_time_has_come_and_too_many_do_not_wait() {
        let ms = Duration::from_millis;
        let mut delayed = Delayed::default();
        let answer = |n: u8| (Key::NONE, Station::Link([n; 6]), vec![n]);
        for n in 0..=u8::MAX {
            assert!(delayed.push(ms(u64::from(n) / 2), answer(n)));
        }
        assert!(!delayed.push(ms(0), answer(0)), "it is full");
        for n in 0..4 {
            assert_eq!(delayed.take(ms(0)).unwrap().2, [n], "of one slot");
        }
        assert_eq!(delayed.take(ms(1)), None);
        assert_eq!(delayed.next(), Some(ms(2)));
        assert!(delayed.push(ms(0), answer(7)), "there is room again");
        assert_eq!(delayed.take(ms(0)).unwrap().2, [7]);
        let year = Duration::from_secs(365 * 86_400);
        assert!(delayed.push(year + ms(7), answer(9)));
        assert_eq!(delayed.answers.keys().last().unwrap().0, year + ms(6));
    }
}
