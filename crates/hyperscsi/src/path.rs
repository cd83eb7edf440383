//! What a sender knows of the way to its peer: round trips, how much may be under way, and when something is lost.

use std::time::Duration;

use crate::limits::{ACK_DELAY, SILENCE_RADIO, SILENCE_WIRED};

/// Frames under way at first, and timers: what kind of network it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Profile {
    /// The least time before a probe.
    pub timer_floor: Duration,
    /// Frames that may be under way at first.
    pub first_frames: u32,
    /// Time in queues that a sender leaves alone.
    pub delay_target: Duration,
    /// What is left of the window after a loss, in tenths.
    pub left_tenths: u64,
    /// A frame that is lost found a queue full: less time in queues is left alone then.
    pub is_lost_in_queues: bool,
    /// So many frames sent later have arrived, at first: a frame before them is lost.
    pub reorder_first: u64,
    /// A frame may be later than a round trip by so many times the variance of those.
    pub variances: u32,
    /// How long a session survives silence.
    pub silence: Duration,
}

impl Profile {
    /// Switched Ethernet.
    pub const WIRED: Self = Self {
        timer_floor: Duration::from_millis(2),
        first_frames: 8,
        delay_target: Duration::from_millis(2),
        left_tenths: 7,
        is_lost_in_queues: true,
        reorder_first: REORDER_MIN,
        variances: 0,
        silence: SILENCE_WIRED,
    };
    /// Radio: round trips vary, frames pass each other and are lost without a queue that is full, and stations sleep.
    pub const WIRELESS: Self = Self {
        timer_floor: Duration::from_millis(20),
        first_frames: 8,
        delay_target: Duration::from_millis(40),
        left_tenths: 9,
        is_lost_in_queues: false,
        reorder_first: 64,
        variances: 4,
        silence: SILENCE_RADIO,
    };

    /// As it stands in the last step of a login.
    pub(crate) const fn to_wire(self) -> u8 {
        match self.timer_floor.as_nanos() >= Self::WIRELESS.timer_floor.as_nanos() {
            true => 1,
            false => 0,
        }
    }

    pub(crate) const fn from_wire(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::WIRED),
            1 => Some(Self::WIRELESS),
            _ => None,
        }
    }
}

/// Frames are counted in parts of this many, so that one can be added over many acknowledgements.
const PART: u64 = 1024;
/// The fewest frames under way.
const FRAMES_MIN: u64 = 2;
/// The most, whatever a peer grants.
const FRAMES_MAX: u64 = 4096;
/// So many frames sent later have arrived, at first: a frame before them is lost.
const REORDER_MIN: u64 = 8;
/// The same where frames pass each other.
const REORDER_MAX: u64 = 128;
/// A frame may be later than a round trip by so many eighths of it, at first, and where frames pass each other.
const SLACK_MIN: u32 = 1;
const SLACK_MAX: u32 = 64;
/// After so many losses without one that was none, less disorder is expected.
const LOSSES_TO_CALM: u32 = 64;
/// Round trips that are remembered: their longest shows how long a queue was.
const LAST_MAX: usize = 4;
/// After a queue was full at least this time in queues is left alone.
const TARGET_MIN: Duration = Duration::from_micros(500);
/// The delay target is whole again so long after it was nothing.
const TARGET_RISES: Duration = Duration::from_secs(8);
/// In so many steps.
const TARGET_STEPS: u32 = 1024;
/// The shortest round trip is that of the last so long.
const MIN_AGE: Duration = Duration::from_secs(10);
/// The first probe, while no round trip is known.
const FIRST_PROBE: Duration = Duration::from_millis(20);
/// Nothing is known lost earlier than this after it was sent.
const LOSS_MIN: Duration = Duration::from_micros(200);

/// See above.
#[derive(Debug)]
pub(crate) struct Path {
    profile: Profile,
    smooth: Option<Duration>,
    variance: Duration,
    latest: Duration,
    /// The newest round trips.
    last: [Duration; LAST_MAX],
    /// The shortest of this interval and of the one before, and when it began.
    shortest: (Duration, Duration, Duration),
    /// In parts.
    window: u64,
    threshold: u64,
    /// Loss and delay of frames sent before this one have had their effect.
    recovery: u64,
    /// Time in queues that is left alone: the profile's, or less since a queue was full. Who began while others filled
    /// it takes their part for the length of the way, so that only the loss shows how long it may be.
    target: Duration,
    /// When that was looked at.
    target_at: Duration,
    /// The time that frames spend in queues.
    queued: Duration,
    reorder: u64,
    slack: u32,
    /// What was sent before this one has had its effect on what is expected of disorder.
    disorder: u64,
    /// Losses since one was none.
    losses: u32,
    /// Probes that were not answered.
    pub(crate) backoff: u32,
    /// The number of the next transmission.
    pub(crate) next_order: u64,
    /// The newest transmission that is known to have arrived.
    pub(crate) arrived_order: Option<u64>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / PART)
}

impl Path {
    pub(crate) fn new(profile: Profile) -> Self {
        Self {
            profile,
            smooth: None,
            variance: Duration::ZERO,
            latest: Duration::ZERO,
            last: [Duration::ZERO; LAST_MAX],
            shortest: (Duration::MAX, Duration::MAX, Duration::ZERO),
            window: u64::from(profile.first_frames) * PART,
            threshold: FRAMES_MAX * PART,
            recovery: 0,
            target: profile.delay_target,
            target_at: Duration::ZERO,
            queued: Duration::ZERO,
            reorder: profile.reorder_first,
            slack: SLACK_MIN,
            disorder: 0,
            losses: 0,
            backoff: 0,
            next_order: 1,
            arrived_order: None,
        }
    }

    /// Frames that may be under way.
    pub(crate) fn frames(&self) -> usize {
        usize::try_from(self.window / PART).unwrap_or(usize::MAX)
    }

    /// A round trip was measured.
    pub(crate) fn sample(&mut self, now: Duration, order: u64, took: Duration) {
        self.latest = took;
        if now.saturating_sub(self.shortest.2) > MIN_AGE {
            self.shortest = (took, self.shortest.0, now);
        }
        self.shortest.0 = self.shortest.0.min(took);
        match self.smooth {
            None => {
                self.smooth = Some(took);
                self.variance = took / 2;
            }
            Some(smooth) => {
                self.variance = (self.variance * 3 + smooth.abs_diff(took)) / 4;
                self.smooth = Some((smooth * 7 + took) / 8);
            }
        }
        self.last.rotate_right(1);
        self.last[0] = took;
        self.raise_target(now);
        self.queued = took.saturating_sub(self.min_rtt());
        if self.is_queued() && order >= self.recovery {
            // The more it is beyond the target the less is left, down to a half.
            let (queued, target) = (micros(self.queued), micros(self.target));
            self.reduce((queued + target, (2 * queued).max(1)));
        }
    }

    /// Frames spend more time in queues than is left alone.
    fn is_queued(&self) -> bool {
        self.queued > self.target
    }

    /// More time in queues is left alone, the longer no queue was full.
    fn raise_target(&mut self, now: Duration) {
        let whole = self.profile.delay_target;
        let passed = now.saturating_sub(self.target_at).min(TARGET_RISES);
        let steps = micros(passed) * u64::from(TARGET_STEPS) / micros(TARGET_RISES);
        let steps = u32::try_from(steps).unwrap_or_default();
        if self.target >= whole || steps > 0 {
            self.target = (self.target + whole / TARGET_STEPS * steps).min(whole);
            self.target_at = now;
        }
    }

    /// A queue was full: half of the time that it took is too long for it.
    fn lower_target(&mut self) {
        let slowest = self.last.iter().copied().max().unwrap_or_default();
        let half = slowest.saturating_sub(self.min_rtt()) / 2;
        self.target = half.max(TARGET_MIN).min(self.target);
    }

    pub(crate) fn min_rtt(&self) -> Duration {
        self.shortest.0.min(self.shortest.1)
    }

    /// Leaves this part of the window.
    fn reduce(&mut self, (part, of): (u64, u64)) {
        self.window = (self.window * part / of).max(FRAMES_MIN * PART);
        self.threshold = self.window;
        self.recovery = self.next_order;
    }

    /// A frame was lost.
    pub(crate) fn lose(&mut self, order: u64) {
        self.losses += 1;
        if self.losses >= LOSSES_TO_CALM {
            self.losses = 0;
            self.reorder = (self.reorder / 2).max(self.profile.reorder_first);
            self.slack = (self.slack / 2).max(SLACK_MIN);
        }
        if order >= self.recovery {
            if self.profile.is_lost_in_queues {
                self.lower_target();
            }
            self.reduce((self.profile.left_tenths, 10));
        }
    }

    /// Frames have arrived while so many were under way.
    pub(crate) fn arrive(&mut self, frames: u64, in_flight: usize) {
        let is_used = in_flight.saturating_mul(2) >= self.frames();
        if !is_used || self.is_queued() {
            return;
        }
        let more = if self.window < self.threshold {
            frames * PART
        } else if self.target < self.profile.delay_target {
            // Where a queue was full, the nearer it is the slower it is filled: several senders together fill it fast.
            let left = micros(self.target.saturating_sub(self.queued));
            frames * PART * PART / self.window * left / micros(self.target).max(1)
        } else {
            frames * PART * PART / self.window
        };
        self.window = (self.window + more).min(FRAMES_MAX * PART);
    }

    /// A frame that was sent again, as this transmission, had not been lost. More disorder is expected from then on,
    /// once for each round trip.
    pub(crate) fn note_spurious(&mut self, order: u64) {
        self.losses = 0;
        if order >= self.disorder {
            self.disorder = self.next_order;
            self.reorder = (self.reorder * 2).min(REORDER_MAX);
            self.slack = (self.slack * 2).min(SLACK_MAX);
            // No queue was full.
            self.target = self.profile.delay_target;
        }
    }

    /// When a frame that was sent before one that has arrived is lost.
    pub(crate) fn loss_delay(&self) -> Duration {
        let smooth = self.smooth.unwrap_or(self.profile.timer_floor);
        let base = smooth.max(self.latest);
        let late = (base / 8 * self.slack).max(self.variance * self.profile.variances);
        (base + late).max(LOSS_MIN)
    }

    /// So many later ones have arrived that this one is lost.
    pub(crate) fn is_overtaken(&self, order: u64) -> bool {
        self.arrived_order
            .is_some_and(|arrived| order + self.reorder <= arrived)
    }

    /// How long the sender waits for a sign of its peer before it asks. The peer may keep an acknowledgement for a
    /// while, which is no part of a round trip.
    pub(crate) fn probe_delay(&self) -> Duration {
        let floor = self.profile.timer_floor;
        let first = floor.max(FIRST_PROBE);
        let base = self.smooth.map_or(first, |smooth| {
            (smooth + self.variance * 4 + ACK_DELAY).max(floor)
        });
        let factor = 1 << self.backoff.min(10);
        (base * factor).min(crate::limits::PROBE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn probes_come_at_the_floor_and_back_off_to_a_second() {
        let mut path = Path::new(Profile::WIRED);
        (0..50).for_each(|_| path.sample(MS, 1, Duration::from_micros(50)));
        assert_eq!(path.probe_delay(), 2 * MS);
        path.backoff = 3;
        assert_eq!(path.probe_delay(), 16 * MS);
        path.backoff = 60;
        assert_eq!(path.probe_delay(), 1000 * MS);
        // The peer may keep an acknowledgement for a while.
        let mut path = Path::new(Profile::WIRED);
        (0..50).for_each(|_| path.sample(MS, 1, 4 * MS));
        assert_eq!(path.probe_delay(), 5 * MS);
    }

    #[test]
    fn a_loss_counts_once_for_each_round_trip() {
        let mut path = Path::new(Profile::WIRED);
        path.next_order = 40;
        path.arrive(24, 8);
        assert_eq!(path.frames(), 32);
        path.lose(3);
        path.lose(4);
        assert_eq!(path.frames(), 22);
        path.next_order = 80;
        path.lose(41);
        assert_eq!(path.frames(), 15);
        (100..200).for_each(|order| {
            path.next_order = order + 1;
            path.lose(order);
        });
        assert_eq!(path.frames(), 2);
    }

    #[test]
    fn disorder_is_expected_where_it_was_seen_once_a_round_trip_and_less_after_losses() {
        let mut path = Path::new(Profile::WIRED);
        path.sample(MS, 1, 8 * MS);
        assert_eq!(path.loss_delay(), 9 * MS);
        path.next_order = 50;
        path.note_spurious(20);
        path.note_spurious(30);
        assert_eq!(path.loss_delay(), 10 * MS, "twice as much, and once");
        path.arrived_order = Some(36);
        assert!(path.is_overtaken(20) && !path.is_overtaken(21));
        for order in 50..60 {
            path.next_order = order + 1;
            path.note_spurious(order);
        }
        assert_eq!(path.loss_delay(), 72 * MS, "no more than so much");
        (0..LOSSES_TO_CALM - 1).for_each(|_| path.lose(0));
        assert_eq!(path.loss_delay(), 72 * MS);
        path.lose(0);
        assert_eq!(path.loss_delay(), 40 * MS);
    }

    #[test]
    fn queues_slow_the_sender_before_frames_are_lost() {
        let mut path = Path::new(Profile::WIRED);
        path.sample(MS, 1, MS);
        path.arrive(24, 8);
        path.next_order = 10;
        path.sample(MS, 2, 3 * MS);
        assert_eq!(path.frames(), 32);
        path.sample(MS, 2, 5 * MS);
        assert_eq!(path.frames(), 24, "half of what is too much is taken away");
        path.arrive(24, 24);
        assert_eq!(path.frames(), 24, "it does not grow while there is a queue");
        path.sample(MS, 2, 3 * MS);
        path.arrive(24, 24);
        assert_eq!(path.frames(), 25);
        path.next_order = 20;
        path.sample(MS, 15, 1001 * MS);
        assert_eq!(path.frames(), 12, "no more than a half");
    }

    #[test]
    fn the_window_grows_only_while_it_is_used() {
        let mut path = Path::new(Profile::WIRED);
        path.arrive(8, 3);
        assert_eq!(path.frames(), 8);
        path.arrive(32, 4);
        assert_eq!(path.frames(), 40);
        path.next_order = 5;
        path.lose(1);
        (0..28).for_each(|_| path.arrive(1, 28));
        assert_eq!(path.frames(), 28);
        (0..2).for_each(|_| path.arrive(1, 28));
        assert_eq!(path.frames(), 29, "one more for each round trip");
    }

    #[test]
    fn a_full_queue_is_left_shorter_and_tried_again_slowly() {
        let mut path = Path::new(Profile::WIRED);
        path.sample(MS, 1, 3 * MS);
        path.arrive(24, 8);
        path.next_order = 10;
        path.sample(MS, 2, 5 * MS);
        assert_eq!(path.frames(), 32, "two milliseconds are left alone");
        path.lose(3);
        assert_eq!(path.frames(), 22);
        path.next_order = 20;
        path.sample(MS, 11, 5 * MS);
        assert_eq!(
            path.frames(),
            16,
            "one is, of the two where frames were lost"
        );
        path.sample(MS, 12, 3 * MS + MS / 2);
        (0..32).for_each(|_| path.arrive(1, 16));
        assert_eq!(path.frames(), 17, "half as fast, half way to it");
        path.next_order = 30;
        path.sample(MS * 3000, 21, 4 * MS + MS / 2);
        path.sample(MS * 6000, 22, 4 * MS + MS / 2);
        (0..20).for_each(|_| path.arrive(1, 20));
        assert_eq!(
            path.frames(),
            18,
            "after some seconds two are left alone again"
        );
        (0..4).for_each(|_| path.sample(MS * 6000, 31, 3 * MS));
        path.lose(32);
        assert_eq!(path.target, MS / 2, "never less than this");
    }

    #[test]
    fn a_loss_that_was_none_says_nothing_of_a_queue() {
        let mut path = Path::new(Profile::WIRED);
        path.sample(MS, 1, 3 * MS);
        path.next_order = 20;
        path.lose(11);
        assert_eq!(path.target, MS / 2);
        path.note_spurious(12);
        assert_eq!(path.target, 2 * MS);
    }

    #[test]
    fn radio_loses_frames_without_a_queue() {
        let mut path = Path::new(Profile::WIRELESS);
        path.sample(MS, 1, 5 * MS);
        path.sample(MS, 2, 9 * MS);
        path.next_order = 20;
        path.lose(11);
        assert_eq!(path.target, 40 * MS);
    }
}
