//! The time in which one initiator has been told of a unit attention of the device and the others have not.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::lock;

/// In so long the device server tells the others.
const TELLING: Duration = Duration::from_millis(500);

/// Who has been told last. What others send meanwhile may be sent in ignorance of it, so it finds the device busy.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    is_on: AtomicBool,
    told: Mutex<Option<(u64, Instant)>>,
}

impl Telling {
    /// This nexus is told.
    pub(crate) fn begin(&self, nexus: u64) {
        self.begin_at(nexus, Instant::now());
    }

    fn begin_at(&self, nexus: u64, now: Instant) {
        *lock(&self.told) = Some((nexus, now + TELLING));
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Whether a command of this nexus has to come again.
    pub(crate) fn keeps_out(&self, nexus: u64) -> bool {
        self.is_on.load(Ordering::SeqCst) && self.keeps_out_at(nexus, Instant::now())
    }

    fn keeps_out_at(&self, nexus: u64, now: Instant) -> bool {
        let mut told = lock(&self.told);
        told.take_if(|(_, until)| *until <= now);
        self.is_on.store(told.is_some(), Ordering::SeqCst);
        told.is_some_and(|(who, _)| who != nexus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_find_the_device_busy_until_they_are_told() {
        let (telling, now) = (Telling::default(), Instant::now());
        assert!(!telling.keeps_out(2));
        telling.begin_at(1, now);
        let last = now + TELLING - Duration::from_nanos(1);
        for moment in [now, last] {
            assert!(telling.keeps_out_at(2, moment));
            assert!(!telling.keeps_out_at(1, moment));
        }
        // The next one, reported by another.
        telling.begin_at(2, last);
        assert!(telling.keeps_out_at(1, now + TELLING));
        assert!(!telling.keeps_out_at(1, last + TELLING));
        assert!(!telling.is_on.load(Ordering::SeqCst));
    }
}
