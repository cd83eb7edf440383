//! A wire that loses, delays, repeats and changes frames, until it heals.

use std::collections::BTreeMap;
use std::time::Duration;

use super::prng::Prng;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum To {
    Client,
    Target,
}

/// What happens to frames, each so many times in a thousand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplicate: u64,
    pub(crate) delay: u64,
    pub(crate) flip: u64,
    /// An old frame comes once more.
    pub(crate) replay: u64,
    /// Frames longer than this are dropped, at first and later on.
    pub(crate) frame_bytes_max: (usize, usize),
    /// Nothing gets through.
    pub(crate) blackhole: Option<(Duration, Duration)>,
    /// Then there are no faults any more, but the last bound of length.
    pub(crate) heals_at: Duration,
    /// When the second bound of length is in force.
    pub(crate) narrows_at: Duration,
}

/// See above.
#[derive(Debug)]
pub(crate) struct Wire {
    faults: Faults,
    prng: Prng,
    frames: BTreeMap<(Duration, u64), (To, Vec<u8>)>,
    number: u64,
    old: Vec<(To, Vec<u8>)>,
}

/// Frames that may be replayed.
const OLD_MAX: usize = 400;

impl Wire {
    pub(crate) fn new(faults: Faults, prng: Prng) -> Self {
        Self {
            faults,
            prng,
            frames: BTreeMap::new(),
            number: 0,
            old: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, now: Duration, to: To, frame: &[u8]) {
        let healed = now >= self.faults.heals_at;
        let bounds = self.faults.frame_bytes_max;
        let bound = if now >= self.faults.narrows_at {
            bounds.1
        } else {
            bounds.0
        };
        if frame.len() > bound {
            return;
        }
        if healed {
            self.put(now, to, frame.to_vec(), 0);
            return;
        }
        let in_hole = self
            .faults
            .blackhole
            .is_some_and(|(from, until)| (from..until).contains(&now));
        if in_hole || self.prng.happens(self.faults.loss) {
            return;
        }
        if self.old.len() < OLD_MAX {
            self.old.push((to, frame.to_vec()));
        } else {
            let at = usize::try_from(self.prng.below(400)).unwrap();
            self.old[at] = (to, frame.to_vec());
        }
        let copies = if self.prng.happens(self.faults.duplicate) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let mut frame = frame.to_vec();
            if self.prng.happens(self.faults.flip) {
                let bit = usize::try_from(self.prng.below(frame.len() as u64 * 8)).unwrap();
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            let late = self.prng.happens(self.faults.delay);
            let extra = if late { self.prng.below(20_000) } else { 0 };
            self.put(now, to, frame, extra);
        }
        if self.prng.happens(self.faults.replay) {
            let at = usize::try_from(self.prng.below(self.old.len() as u64)).unwrap();
            let (to, frame) = self.old[at].clone();
            let extra = self.prng.below(2_000_000);
            self.put(now, to, frame, extra);
        }
    }

    fn put(&mut self, now: Duration, to: To, frame: Vec<u8>, extra_us: u64) {
        self.number += 1;
        let at = now + Duration::from_micros(50 + extra_us);
        self.frames.insert((at, self.number), (to, frame));
    }

    pub(crate) fn next_at(&self) -> Option<Duration> {
        self.frames.keys().next().map(|&(at, _)| at)
    }

    pub(crate) fn take(&mut self, now: Duration) -> Option<(To, Vec<u8>)> {
        let first = self.frames.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
