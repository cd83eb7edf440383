//! Snapshots that are taken by themselves, and removed when there are later ones.
//!
//! What is there is the only record of what was done: a run whose snapshot is there is over, so one that was missed is
//! caught up by the next look, after a start or a sleep as well. The wall clock is asked at each look and never waited
//! for. A run that fails is tried again after [`RETRY`]; there is one event of it, and a finding while it lasts.

mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use api::problem::Problem;
use config::Schedule;
use store::SnapshotName;

pub(super) use self::plan::Period;
use self::plan::{Run, expired, wanted};
use super::daemon::Daemon;
use super::snapshots;

/// Between two looks at the clock.
const PAUSE: Duration = Duration::from_secs(5);

/// Whose orders those of schedules are.
const AUTHOR: &str = "schedule";
/// After a run that failed.
const RETRY: Duration = Duration::from_secs(300);

/// What is known of a unit with a schedule. It lives no longer than the two of them.
struct Progress {
    /// The schedule, and the store that it is for.
    of: (Schedule, String),
    /// The runs whose snapshots were there at the last look.
    done: Vec<Run>,
    /// Not before this.
    retry: Option<Instant>,
    /// The runs that there was an event of.
    noted: Vec<SnapshotName>,
}

/// What is known of all of them.
#[derive(Default)]
struct Looks(BTreeMap<String, Progress>);

impl Looks {
    /// Takes what is due at `time`. `now` is of the clock that nobody sets.
    fn look(&mut self, daemon: &Daemon, time: SystemTime, now: Instant) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        let model = Arc::clone(&daemon.in_force().running.model);
        let mut scheduled = BTreeSet::new();
        for unit in model.units() {
            let (Some(schedule), lun) = (unit.snapshots, unit.to_string()) else {
                continue;
            };
            scheduled.insert(lun.clone());
            let of = (schedule, unit.store.text.clone());
            let progress = self
                .0
                .entry(lun.clone())
                .or_insert_with(|| Progress::new(&of));
            if progress.of != of {
                *progress = Progress::new(&of);
            }
            progress.look(daemon, &lun, wanted(&schedule, seconds), now);
        }
        self.0.retain(|lun, _| scheduled.contains(lun));
        let mut missed = daemon.missed();
        missed.retain(|lun, _| scheduled.contains(lun));
    }
}

impl Progress {
    fn new(of: &(Schedule, String)) -> Self {
        Self {
            of: of.clone(),
            done: Vec::new(),
            retry: None,
            noted: Vec::new(),
        }
    }

    fn look(&mut self, daemon: &Daemon, lun: &str, runs: Vec<Run>, now: Instant) {
        if self.done == runs || self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        match carry_out(daemon, lun, &self.of.0, &runs) {
            Ok(()) => {
                self.retry = None;
                self.noted.clear();
                daemon.missed().remove(lun);
                self.done = runs;
            }
            Err((run, problem)) => {
                // The time of the attempt counts, too.
                self.retry = Some(Instant::now() + RETRY);
                let why = format!("snapshot {} is not taken: {}", run.name, problem.detail);
                if !self.noted.contains(&run.name) {
                    snapshots::note_missed(daemon, lun, &why);
                    self.noted = vec![run.name.clone()];
                }
                daemon.missed().insert(lun.to_owned(), why);
            }
        }
    }
}

/// Takes the snapshots of runs that have none, and removes what is kept no longer.
fn carry_out<'a>(
    daemon: &Daemon,
    lun: &str,
    schedule: &Schedule,
    runs: &'a [Run],
) -> Result<(), (&'a Run, Problem)> {
    for run in runs {
        let of_run = |problem| (run, problem);
        let mut there = snapshots::names(daemon, lun).map_err(of_run)?;
        if !there.contains(&run.name) {
            snapshots::check_room(daemon, lun).map_err(of_run)?;
            snapshots::take_named(daemon, (&[lun.to_owned()], &run.name), AUTHOR)
                .map_err(of_run)?;
            there.push(run.name.clone());
        }
        for name in expired(run, run.period.kept(schedule), there.iter()) {
            // One that is served or read stays, and is asked again at the next run.
            if let Err(problem) = snapshots::remove(daemon, lun, name.as_str()) {
                tracing::info!(lun, %name, %problem, "a snapshot that is kept no longer stays");
            }
        }
    }
    Ok(())
}

/// The thread that takes snapshots, until this is dropped.
pub(crate) struct Scheduler {
    _ends: SyncSender<()>,
}

impl Scheduler {
    pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<Self> {
        let (ends, ended) = sync_channel::<()>(0);
        let daemon = Arc::downgrade(daemon);
        let run = move || {
            let mut looks = Looks::default();
            while let Some(daemon) = daemon.upgrade() {
                looks.look(&daemon, SystemTime::now(), Instant::now());
                drop(daemon);
                if ended.recv_timeout(PAUSE) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        };
        thread::Builder::new()
            .name("schedule".to_owned())
            .spawn(run)?;
        Ok(Self { _ends: ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempts::pause;
    use crate::snapshots::testing::Images;

    /// 2026-11-24T02:29:59Z, in seconds since 1970. The schedule of the unit: `hourly = 2, daily = 1, at = "02:30"`.
    const TIME: u64 = 1_795_487_399;

    /// 2026-11-24T06:00:00Z.
    const SIX: u64 = TIME + 7 * 1800 + 1;

    const NONE: [&str; 0] = [];

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn taken(name: &str) -> [String; 3] {
        ["begin", "take", "keep"].map(|call| format!("{call} {name}"))
    }

    /// As one author has one place, all of it is one test.
    #[test]
    fn a_schedule_takes_each_run_once_and_removes_what_it_keeps_no_longer() {
        let images = Images::new();
        let (daemon, cluster) = (&images.living.daemon, &images.a);
        let mut looks = Looks::default();
        let now = Instant::now();
        looks.look(daemon, at(TIME), now);
        let first = ["hourly-2026-11-24T02.00Z", "daily-2026-11-23T02.30Z"];
        assert_eq!(cluster.calls(), first.map(taken).concat());
        let noted = |name| format!("snapshot-taken Info lun a: snapshot {name} is taken");
        assert_eq!(images.noted(), first.map(noted));
        #[rustfmt::skip]
        let times = [
            (TIME, None, None),
            (TIME + 1, Some("daily-2026-11-24T02.30Z"), Some("daily-2026-11-23T02.30Z")),
            (TIME + 1800, None, None),
            (TIME + 1801, Some("hourly-2026-11-24T03.00Z"), None),
            (TIME + 5401, Some("hourly-2026-11-24T04.00Z"), Some("hourly-2026-11-24T02.00Z")),
        ];
        for (seconds, name, removed) in times {
            looks.look(daemon, at(seconds), now);
            let mut calls: Vec<_> = name.iter().flat_map(|name| taken(name)).collect();
            calls.extend(removed.map(|name| format!("remove {name}")));
            assert_eq!(cluster.calls(), calls, "{seconds}");
        }
        images.noted();
        a_run_that_fails_is_tried_again_at_its_time_and_reported_once(&images, &mut looks);
        another_schedule_is_looked_at_anew(&images, &mut looks);

        images.configure_with("hourly = 2", "hourly = 4");
        let scheduler = Scheduler::start(daemon).unwrap();
        while !cluster.calls().iter().any(|call| call.starts_with("keep ")) {
            pause(Duration::from_millis(5));
        }
        drop(scheduler);
        images.living.stop();
    }

    fn a_run_that_fails_is_tried_again_at_its_time_and_reported_once(
        images: &Images,
        looks: &mut Looks,
    ) {
        let (daemon, cluster) = (&images.living.daemon, &images.a);
        cluster.fail(Some("take"));
        let missed = |hour: &str| {
            let name = format!("hourly-2026-11-24T{hour}.00Z");
            format!("snapshot {name} is not taken: lun \"a\": cannot take: it fails")
        };
        let mut due = Instant::now();
        for (halves, hour) in [(5, "05"), (7, "06")] {
            let time = at(TIME + 1800 * halves + 1);
            looks.look(daemon, time, due);
            assert_eq!(cluster.calls().len(), 3, "{hour}");
            assert_eq!(daemon.missed()["a"], missed(hour));
            let noted = format!("snapshot-missed Warning lun a: {}", missed(hour));
            assert_eq!(images.noted(), [noted]);
            let retry = looks.0["a"].retry.unwrap();
            let before = retry.checked_sub(Duration::from_nanos(1)).unwrap();
            looks.look(daemon, time, before);
            assert_eq!(cluster.calls(), NONE, "not before its time");
            looks.look(daemon, time, retry);
            assert_eq!(cluster.calls().len(), 3, "{hour}");
            assert_eq!(images.noted(), NONE, "it is said once");
            due = looks.0["a"].retry.unwrap();
        }
        // One that cannot be removed keeps nothing from being taken.
        cluster.fail(Some("remove"));
        looks.look(daemon, at(SIX), due);
        let mut calls = taken("hourly-2026-11-24T06.00Z").to_vec();
        calls.push("remove hourly-2026-11-24T03.00Z".to_owned());
        assert_eq!(cluster.calls(), calls);
        assert!(daemon.missed().is_empty() && looks.0["a"].retry.is_none());
    }

    fn another_schedule_is_looked_at_anew(images: &Images, looks: &mut Looks) {
        let daemon = &images.living.daemon;
        let now = Instant::now();
        let missed = |looks: &mut Looks| {
            looks.look(daemon, at(SIX), now);
            daemon.missed().len()
        };
        images.a.fail(Some("list"));
        assert_eq!(missed(looks), 0, "all is done");
        images.configure_with("hourly = 2", "hourly = 3");
        assert_eq!(missed(looks), 1);
        images.configure_with("snapshots = { hourly = 2, daily = 1, at = \"02:30\" }", "");
        assert_eq!((missed(looks), looks.0.len()), (0, 0));
        images.a.fail(None);
        images.a.calls();
    }
}
