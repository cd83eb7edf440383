//! Times that threads beside the cores keep to, and that may change while they do.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::plan::Settings;

/// The times, in milliseconds. Each is read by itself, and none depends on another.
#[derive(Debug, Default)]
pub(crate) struct Times {
    abort_ms: AtomicU64,
    stop_ms: AtomicU64,
    core_stall_ms: AtomicU64,
}

fn ms_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Times {
    /// As the plane starts.
    pub(crate) fn of(settings: &Settings) -> Self {
        let times = Self::default();
        times.set(settings);
        times
    }

    /// From now on.
    pub(crate) fn set(&self, settings: &Settings) {
        for (place, time) in [
            (&self.abort_ms, settings.abort_timeout),
            (&self.stop_ms, settings.stop_timeout),
            (&self.core_stall_ms, settings.core_stall_limit),
        ] {
            place.store(ms_of(time), Ordering::Relaxed);
        }
    }

    /// How long an abort waits for the store.
    pub(crate) fn abort_timeout(&self) -> Duration {
        Duration::from_millis(self.abort_ms.load(Ordering::Relaxed))
    }

    /// How long the end of the cores may take: initiators log out, then commands are aborted.
    pub(crate) fn end_limit(&self) -> Duration {
        let stop = Duration::from_millis(self.stop_ms.load(Ordering::Relaxed));
        stop + self.abort_timeout()
    }

    /// When a core that takes no turn ends the process.
    pub(crate) fn core_stall_limit(&self) -> Duration {
        Duration::from_millis(self.core_stall_ms.load(Ordering::Relaxed))
    }
}
