//! Commands that take too long: which they are, and what is reported about them.
//!
//! A command is slow when the turn that answers it has been sent and more than the limit has
//! passed since its header came. That comparison is made where latencies are counted; all else
//! here happens to slow commands alone. How many are reported is limited, so that a store in trouble
//! does not hide everything else that happens: the others are counted.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::{Ending, PhaseTime};
use front::SessionId;
use scsi::Description;

use crate::bucket::Bucket;

/// How many are reported at once, on each core.
const REPORTS_MAX: u32 = 8;

/// One more may be reported after each of these.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A command that has waited this many times the limit is reported although it is not over.
const HANGS_AFTER: u32 = 10;

/// Shorter waits are not shown.
const SHOWN_MIN: Duration = Duration::from_millis(1);

/// From when on a command is slow. Read by every core, changed by the administrator.
#[derive(Debug)]
pub(crate) struct SlowLimit(AtomicU64);

/// The limit in microseconds that nothing reaches.
const NEVER: u64 = u64::MAX;

impl SlowLimit {
    /// `None`: no command is slow.
    pub(crate) fn new(limit: Option<Duration>) -> Self {
        let made = Self::default();
        made.set(limit);
        made
    }

    pub(crate) fn set(&self, limit: Option<Duration>) {
        let us = limit.map_or(NEVER, |limit| {
            u64::try_from(limit.as_micros()).unwrap_or(NEVER)
        });
        self.0.store(us, Ordering::Relaxed);
    }

    /// In microseconds, [`NEVER`] where there is none.
    fn us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Default for SlowLimit {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

/// A command that took long, or still does, to be reported.
#[derive(Clone, Debug)]
pub struct SlowCommand<'a> {
    /// The unit.
    pub unit: &'a str,
    /// InitiatorName.
    pub initiator: &'a str,
    /// TargetName, while the session is there.
    pub target: Option<&'a str>,
    /// The user that the initiator has proved to be, while the session is there.
    pub user: Option<&'a str>,
    /// Its session.
    pub session: SessionId,
    /// Initiator Task Tag.
    pub task_tag: u32,
    /// What it was to do.
    pub description: Description,
    /// Data that goes with it, in bytes.
    pub bytes: u32,
    /// From its header to the moment its answer was given to the kernel, or until now.
    pub took: Duration,
    /// What it waited for, in the order in which it began to.
    pub phases: Vec<PhaseTime>,
    /// How it ended.
    pub ending: Ending,
    /// How many slow commands of the core were not reported since the last that was.
    pub unreported: u64,
}

impl SlowCommand<'_> {
    /// The time without the waits: the core worked, for this command or for others.
    pub fn on_core(&self) -> Duration {
        let waited = self.phases.iter().map(|one| one.took).sum();
        self.took.saturating_sub(waited)
    }
}

impl fmt::Display for SlowCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.description.name)?;
        if let Some((lba, blocks)) = self.description.extent {
            write!(f, ", {blocks} blocks at {lba}")?;
        }
        let ending = self.ending.name().unwrap_or("not answered");
        let took = self.took.as_secs_f64();
        write!(f, ", {} bytes: {ending} after {took:.3} s", self.bytes)?;
        let waits = self.phases.iter().map(|one| (one.phase.as_str(), one.took));
        let parts = waits.chain([("core", self.on_core())]);
        let parts = parts.filter(|(_, took)| *took >= SHOWN_MIN);
        for (word, took) in parts {
            write!(f, ", {word} {:.3} s", took.as_secs_f64())?;
        }
        write!(
            f,
            "; session {}, task {:#010x}",
            self.session, self.task_tag
        )?;
        match self.unreported {
            0 => Ok(()),
            more => write!(f, "; {more} more were slow and are not listed"),
        }
    }
}

/// The reports of slow commands of a core.
#[derive(Debug)]
pub(crate) struct SlowLog {
    limit: Arc<SlowLimit>,
    reports: Bucket,
    /// The next place of the table of tasks that is looked at.
    pub(crate) next_place: usize,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl SlowLog {
    pub(crate) const fn new(limit: Arc<SlowLimit>) -> Self {
        Self {
            limit,
            reports: Bucket::new(REPORTS_MAX, REPORT_EVERY),
            next_place: 0,
        }
    }

    /// From when on a command is slow, in microseconds.
    pub(crate) fn limit_us(&self) -> u64 {
        self.limit.us()
    }

    /// When a command hangs; `None`: never.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let us = self.limit.us();
        (us != NEVER).then(|| Duration::from_micros(us).saturating_mul(HANGS_AFTER))
    }

    /// Whether one more may be reported, and if so, how many were not before it. One that may not is
    /// counted.
    pub(crate) fn take(&mut self, now: Duration) -> Option<u64> {
        self.reports.take(now)
    }

    /// Whether one more may be reported. None is counted.
    pub(crate) fn may_report(&mut self, now: Duration) -> bool {
        self.reports.may_report(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Phase;
    use scsi::Status;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_limit_is_kept_in_microseconds_and_none_is_never_reached() {
        let limit = SlowLimit::new(Some(Duration::from_millis(1)));
        assert_eq!(limit.us(), 1000);
        limit.set(None);
        assert_eq!(limit.us(), u64::MAX);
    }

    #[test]
    fn a_command_hangs_at_ten_times_the_limit() {
        let log = SlowLog::new(Arc::new(SlowLimit::new(Some(seconds(2)))));
        assert_eq!(log.patience(), Some(seconds(20)));
        assert_eq!(SlowLog::default().patience(), None);
    }

    fn command(ending: Ending, unreported: u64) -> SlowCommand<'static> {
        let phase = |phase, from, took| PhaseTime {
            phase,
            from: Duration::from_micros(from),
            took: Duration::from_micros(took),
        };
        SlowCommand {
            unit: "disk",
            initiator: "iqn.x",
            target: None,
            user: None,
            session: SessionId(3),
            task_tag: 0x1a2b,
            description: Description {
                name: "WRITE (10)",
                extent: Some((2048, 8)),
            },
            bytes: 4096,
            took: Duration::from_micros(2_104_000),
            phases: vec![
                phase(Phase::Arrival, 0, 999),
                phase(Phase::Data, 999, 2_000_001),
                phase(Phase::Store, 2_001_000, 100_000),
            ],
            ending,
            unreported,
        }
    }

    #[test]
    fn its_life_is_one_line_without_what_took_no_time() {
        for (ending, unreported, line) in [
            (
                Ending::Answered(Status::Good),
                0,
                "WRITE (10), 8 blocks at 2048, 4096 bytes: GOOD after 2.104 s, data 2.000 s, \
                 store 0.100 s, core 0.003 s; session 3, task 0x00001a2b",
            ),
            (
                Ending::Pending,
                7,
                "WRITE (10), 8 blocks at 2048, 4096 bytes: not answered after 2.104 s, \
                 data 2.000 s, store 0.100 s, core 0.003 s; session 3, task 0x00001a2b; \
                 7 more were slow and are not listed",
            ),
        ] {
            assert_eq!(command(ending, unreported).to_string(), line);
        }
        let mut short = command(Ending::Aborted, 0);
        (short.phases, short.description.extent) = (Vec::new(), None);
        assert_eq!(
            short.to_string(),
            "WRITE (10), 4096 bytes: aborted after 2.104 s, core 2.104 s; session 3, task 0x00001a2b"
        );
    }
}
