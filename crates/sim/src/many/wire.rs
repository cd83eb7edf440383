//! Frames between stations and the target: lost, late, twice, out of order, changed, too long for the path, or old.

use std::collections::VecDeque;

use front::Station;

use crate::prng::Prng;

/// Frames that an old one is drawn from.
const PAST: usize = 200;
/// Beyond this many under way the path drops some.
const UNDER_WAY_MAX: usize = 600;

/// What befalls frames, in times of 1000.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u32,
    pub(super) twice: u32,
    pub(super) changed: u32,
    pub(super) old: u32,
    /// Frames that overtake others.
    pub(super) disorder: u32,
    /// What the path carries, in bytes.
    pub(super) frame_bytes_max: usize,
}

/// A frame, and the station that it comes from or goes to.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) station: Station,
    pub(super) is_to_target: bool,
    pub(super) bytes: Vec<u8>,
}

/// See above.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) faults: Faults,
    /// Nothing gets through.
    pub(super) is_dark: bool,
    under_way: VecDeque<Frame>,
    past: VecDeque<Frame>,
    prng: Prng,
    /// Frames that a fault befell.
    pub(super) harmed: u64,
}

impl Wire {
    pub(super) const fn new(faults: Faults, prng: Prng) -> Self {
        Self {
            faults,
            is_dark: false,
            under_way: VecDeque::new(),
            past: VecDeque::new(),
            prng,
            harmed: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// No more faults. What is under way arrives.
    pub(super) fn heal(&mut self) {
        self.is_dark = false;
        self.faults = Faults {
            frame_bytes_max: self.faults.frame_bytes_max,
            ..Faults::default()
        };
    }

    pub(super) fn send(&mut self, frame: Frame) {
        let Faults {
            loss,
            twice,
            changed,
            old,
            frame_bytes_max,
            ..
        } = self.faults;
        if frame.bytes.len() > frame_bytes_max {
            return;
        }
        self.past.push_back(frame.clone());
        if self.past.len() > PAST {
            self.past.pop_front();
        }
        let before = self.harmed;
        if self.is_dark || self.prng.chance(loss) || self.under_way.len() >= UNDER_WAY_MAX {
            self.harmed += 1;
        } else {
            self.under_way.push_back(frame.clone());
        }
        if self.prng.chance(twice) && !self.is_dark {
            self.harmed += 1;
            self.under_way.push_back(frame.clone());
        }
        if self.prng.chance(changed) && !self.is_dark {
            self.harmed += 1;
            let mut frame = frame;
            let at = self.prng.size(0, frame.bytes.len() - 1);
            if let Some(byte) = frame.bytes.get_mut(at) {
                *byte ^= 1 << self.prng.below(8);
            }
            // In the place of the right one, or beside it.
            if self.harmed == before + 1 && self.prng.chance(500) {
                self.under_way.pop_back();
            }
            self.under_way.push_back(frame);
        }
        if self.prng.chance(old) && !self.is_dark {
            self.harmed += 1;
            let at = self.prng.size(0, self.past.len() - 1);
            self.under_way.extend(self.past.get(at).cloned());
        }
    }

    /// The next one that arrives.
    pub(super) fn receive(&mut self) -> Option<Frame> {
        let last = self.under_way.len().checked_sub(1)?;
        let at = match self.prng.chance(self.faults.disorder) {
            true => self.prng.size(0, last),
            false => 0,
        };
        self.under_way.remove(at)
    }
}
