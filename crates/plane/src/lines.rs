//! Limits on lines of the log that peers can cause as often as they like. Events and counters are not limited
//! here.

use std::time::Duration;

use crate::bucket::Bucket;

/// How many lines of a kind are written at once, on each core.
const BURST: u32 = 500;

/// One more may be written after each of these: 50 a second.
const EVERY: Duration = Duration::from_millis(20);

/// What a line is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LineKind {
    SessionBegins,
    SessionEnds,
    ConnectionJoins,
    TaskManagement,
    ProtocolViolation,
    MediumMoved,
    HandshakeFails,
    HyperscsiRefused,
}

impl LineKind {
    const ALL: [Self; 8] = [
        Self::SessionBegins,
        Self::SessionEnds,
        Self::ConnectionJoins,
        Self::TaskManagement,
        Self::ProtocolViolation,
        Self::MediumMoved,
        Self::HandshakeFails,
        Self::HyperscsiRefused,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::SessionBegins => "sessions that begin",
            Self::SessionEnds => "sessions that end",
            Self::ConnectionJoins => "connections that join a session",
            Self::TaskManagement => "task management",
            Self::ProtocolViolation => "protocol violations",
            Self::MediumMoved => "media that are ejected or loaded",
            Self::HandshakeFails => "handshakes of NBD that fail",
            Self::HyperscsiRefused => "logins of HyperSCSI that are refused",
        }
    }
}

/// The limits of one core, a bucket for each kind of line.
#[derive(Debug)]
pub(crate) struct LineLimits([Bucket; LineKind::ALL.len()]);

impl LineLimits {
    pub(crate) const fn new() -> Self {
        Self([const { Bucket::new(BURST, EVERY) }; LineKind::ALL.len()])
    }

    /// Whether a line of this kind may be written now. One that may not is counted.
    pub(crate) fn admit(&mut self, kind: LineKind, now: Duration) -> bool {
        self.0[kind as usize].admit(now)
    }

    /// How many lines were left out since the last call, by kind. Kinds without any are not given.
    fn take_left_out(&mut self) -> impl Iterator<Item = (LineKind, u64)> {
        let counted = LineKind::ALL.into_iter().zip(&mut self.0);
        counted
            .map(|(kind, bucket)| (kind, bucket.take_unreported()))
            .filter(|(_, count)| *count > 0)
    }

    /// Logs how many lines were left out since the last call: a line for each kind at most. Called
    /// with each tick and at the end.
    pub(crate) fn log_left_out(&mut self, core: usize) {
        for (kind, count) in self.take_left_out() {
            tracing::info!(core, "{count} lines about {} left out", kind.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);

    fn admitted(limits: &mut LineLimits, kind: LineKind, tries: usize, now: Duration) -> usize {
        (0..tries).filter(|_| limits.admit(kind, now)).count()
    }

    #[test]
    fn a_burst_is_written_then_so_many_a_second_and_the_rest_is_counted_once() {
        let mut limits = LineLimits::new();
        let kind = LineKind::TaskManagement;
        assert_eq!(admitted(&mut limits, kind, 20_000, START), BURST as usize);
        let second = START + Duration::from_secs(1);
        assert_eq!(admitted(&mut limits, kind, 1000, second), 50);
        let left_out: Vec<_> = limits.take_left_out().collect();
        assert_eq!(left_out, [(kind, 20_000 - 500 + 1000 - 50)]);
        assert_eq!(limits.take_left_out().count(), 0);
    }

    #[test]
    fn a_kind_takes_no_room_from_another() {
        let mut limits = LineLimits::new();
        for kind in LineKind::ALL {
            assert_eq!(admitted(&mut limits, kind, 501, START), BURST as usize);
        }
        let left_out: Vec<_> = limits.take_left_out().collect();
        assert_eq!(left_out, LineKind::ALL.map(|kind| (kind, 1)));
    }
}
