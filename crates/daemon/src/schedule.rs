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
