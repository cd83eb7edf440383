//! Frames of HyperSCSI, as counted between two looks.

use std::time::{Duration, Instant};

use plane::HyperscsiReport;

/// Between two questions to the cores, at least.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Frames of all sessions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct FrameCounts {
    pub(super) sent: u64,
    /// Sent again, and lost before.
    pub(super) again: u64,
    pub(super) received: u64,
    /// With other bits than were sent.
    pub(super) corrupt: u64,
}

impl FrameCounts {
    /// What the cores have counted, of each since it began.
    pub(super) fn of(reports: &[HyperscsiReport]) -> Self {
        let mut all = Self::default();
        for counts in reports.iter().map(|report| &report.counts) {
            let of = &counts.sessions;
            all.sent += counts.frames_out;
            all.again += of.retransmitted.saturating_sub(of.spurious);
            all.received += counts.frames_in;
            all.corrupt += of.corrupt;
        }
        all
    }

    const fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent.saturating_sub(before.sent),
            again: self.again.saturating_sub(before.again),
            received: self.received.saturating_sub(before.received),
            corrupt: self.corrupt.saturating_sub(before.corrupt),
        }
    }
}

/// What was counted at the last look, and between it and the one before.
#[derive(Debug, Default)]
pub(super) struct FrameLooks {
    last: Option<Instant>,
    totals: FrameCounts,
    since: FrameCounts,
}

impl FrameLooks {
    /// What came since the look before this one, or a moment ago. `read` asks the cores, which may not answer.
    pub(super) fn look(
        &mut self,
        now: Instant,
        read: impl FnOnce() -> Option<FrameCounts>,
    ) -> FrameCounts {
        let is_due = |last: Instant| now.saturating_duration_since(last) >= LOOK_EVERY;
        if self.last.is_none_or(is_due)
            && let Some(totals) = read()
        {
            self.last = Some(now);
            self.since = totals.since(self.totals);
            self.totals = totals;
        }
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_count_since_the_look_before() {
        let counts = |sent, again| FrameCounts {
            sent,
            again,
            ..FrameCounts::default()
        };
        let (mut looks, at) = (FrameLooks::default(), Instant::now());
        assert_eq!(looks.look(at, || None), counts(0, 0));
        assert_eq!(looks.look(at, || Some(counts(100, 3))), counts(100, 3));
        // Too soon: nobody is asked.
        let soon = at + LOOK_EVERY / 2;
        assert_eq!(looks.look(soon, || panic!("asked")), counts(100, 3));
        let later = at + LOOK_EVERY;
        assert_eq!(looks.look(later, || Some(counts(150, 3))), counts(50, 0));
        assert_eq!(looks.look(later, || panic!("asked")), counts(50, 0));
    }
}
