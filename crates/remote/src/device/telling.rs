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
        *lock(&self.told) = Some((nexus, Instant::now() + TELLING));
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Whether a command of this nexus has to come again.
    pub(crate) fn keeps_out(&self, nexus: u64) -> bool {
        if !self.is_on.load(Ordering::SeqCst) {
            return false;
        }
        let mut told = lock(&self.told);
        told.take_if(|(_, until)| *until <= Instant::now());
        self.is_on.store(told.is_some(), Ordering::SeqCst);
        told.is_some_and(|(who, _)| who != nexus)
    }
}
