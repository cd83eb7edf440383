//! A place on a core, and clients there that have no session yet.

use std::sync::Arc;
use std::time::Duration;

use ::hyperscsi::{Cookies, Gate, OpaqueTarget, Responder, Wish};

use super::keys::PlaceKey;
use super::plan::{FrameSizes, Place};
use crate::station::Station;

/// A place, with all that its clients meet before they have a session. Each core has its own, as a client's frames come
/// to one core only.
#[derive(Debug)]
pub(super) struct PlaceEntry<S> {
    pub(super) place: Place,
    pub(super) socket: S,
    pub(super) sizes: FrameSizes,
    pub(super) gate: Gate<Arc<OpaqueTarget>, Station>,
    pub(super) responder: Responder,
    pub(super) cookies: Cookies,
    /// Frames that the system has and has not sent yet.
    pub(super) sending: usize,
}

impl<S> PlaceEntry<S> {
    /// The name of a group here. At another place the same name is that of another group.
    pub(super) fn in_full(&self, group: &str) -> String {
        format!("{group}@{}", self.place)
    }
}

/// A client that has authenticated and waits for a place.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) place: PlaceKey,
    pub(super) login: u32,
    pub(super) station: Station,
    pub(super) wish: Wish,
}

/// So many at once, and one more after each of these.
const BURST: u32 = 50;
const EVERY: Duration = Duration::from_millis(20);

/// A limit on frames that answer frames of no session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    used: u32,
    since: Duration,
}

impl Rate {
    /// Whether one more may be sent.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let back = now.saturating_sub(self.since).as_millis() / EVERY.as_millis();
        if back > 0 {
            let back = u32::try_from(back).unwrap_or(u32::MAX);
            self.used = self.used.saturating_sub(back);
            self.since = now;
        }
        let may = self.used < BURST;
        self.used = self.used.saturating_add(u32::from(may));
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_burst_and_then_one_after_the_other() {
        let mut rate = Rate::default();
        let at = Duration::from_secs(9);
        let mut taken = |now| (0..200).filter(|_| rate.take(now)).count();
        assert_eq!(taken(at), 50);
        assert_eq!(taken(at + EVERY * 3), 3);
        assert_eq!(taken(at * 2), 50);
    }
}
