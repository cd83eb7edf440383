//! The threads that read and write figures, and the answer to those who ask for them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use api::figures::{Figures, Range};
use api::problem::Problem;

use super::series::{self, Gain, LEVELS};
use super::{Reading, STEP_MS, totals};
use crate::calendar::milliseconds;
use crate::daemon::Daemon;
use crate::stats::cpu_us;

/// Between two times that the figures are written.
const KEEP_PAUSE: Duration = Duration::from_secs(300);

/// How long the end of the daemon waits for the last write.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Adds what has happened since the last reading.
fn read_counters(daemon: &Daemon) {
    // First, so that of two threads the later one has the later counts.
    let mut inner = daemon.past_figures.lock();
    let counts = daemon.plane.counts();
    let in_force = daemon.in_force();
    let units = totals(&counts);
    let busy_us = counts.iter().map(|core| cpu_us(core.thread)).sum();
    let now = Reading {
        at: Instant::now(),
        units,
        busy_us,
    };
    let passed = now.at.duration_since(inner.before.at);
    let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
    let mut by_unit = BTreeMap::new();
    let mut all = Gain::default();
    for unit in &in_force.running.units {
        let before = inner.before.units.get(&unit.index);
        let gain = match now.units.get(&unit.index) {
            Some(now) => now.since(before, passed_ms),
            None => Gain::default(),
        };
        all.add(&gain);
        by_unit.insert(unit.identity.naa.to_string(), gain);
    }
    let cores = u64::try_from(counts.len()).unwrap_or(1).max(1);
    all.busy_us = now.busy_us.saturating_sub(inner.before.busy_us) / cores;
    let sessions: u64 = counts.iter().map(|core| core.sessions).sum();
    all.session_ms = sessions.saturating_mul(passed_ms);
    let now_ms = milliseconds(SystemTime::now());
    inner.past.add(now_ms, passed_ms, &all, &by_unit);
    inner.before = now;
}

/// Until the shortest step that runs now is over, or the next one if that is soon: so each step has one reading.
fn pause() -> Duration {
    let into_step = milliseconds(SystemTime::now()) % STEP_MS;
    let left = STEP_MS - into_step;
    Duration::from_millis(if left < STEP_MS / 10 {
        left + STEP_MS
    } else {
        left
    })
}

/// What the main figures were.
///
/// # Errors
///
/// There is no such unit.
pub(crate) fn figures(
    daemon: &Daemon,
    range: Range,
    lun: Option<&str>,
) -> Result<Figures, Problem> {
    let naa = lun.map(|id| naa_of(daemon, id)).transpose()?;
    let now_ms = milliseconds(SystemTime::now());
    let inner = daemon.past_figures.lock();
    let past = &inner.past;
    let series = match &naa {
        None => Some(&past.all),
        Some(naa) => past.units.get(naa).map(|unit| &unit.series),
    };
    let mut points = series.map_or_else(Vec::new, |series| series.points(range, now_ms));
    if naa.is_some() {
        for point in &mut points {
            (point.busy, point.sessions) = (None, None);
        }
    }
    let level = &LEVELS[series::level_of(range)];
    Ok(Figures {
        range,
        step_ms: level.step_ms,
        points,
    })
}

/// The designator of a unit that is served.
fn naa_of(daemon: &Daemon, id: &str) -> Result<String, Problem> {
    let in_force = daemon.in_force();
    let found = in_force.lun(id);
    found.map(|(_, served)| served.identity.naa.to_string())
}

/// The threads that read and write figures, until this is dropped.
pub(crate) struct Historian {
    ends: Option<(SyncSender<()>, SyncSender<()>)>,
    kept: Receiver<()>,
}

impl Historian {
    pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<Self> {
        let (end_reading, reading) = sync_channel::<()>(0);
        let (end_keeping, keeping) = sync_channel::<()>(0);
        let (tell_kept, kept) = sync_channel(1);
        let of = Arc::downgrade(daemon);
        let read = move || {
            while reading.recv_timeout(pause()) == Err(RecvTimeoutError::Timeout) {
                let Some(daemon) = of.upgrade() else { break };
                read_counters(&daemon);
            }
        };
        let of = Arc::downgrade(daemon);
        let keep = move || {
            loop {
                let is_end = keeping.recv_timeout(KEEP_PAUSE) != Err(RecvTimeoutError::Timeout);
                let Some(daemon) = of.upgrade() else { break };
                if is_end {
                    read_counters(&daemon);
                }
                daemon.past_figures.keep();
                if is_end {
                    break;
                }
            }
            // Nobody waits any more where the end took too long.
            let _late = tell_kept.try_send(());
        };
        let thread = |name: &str| thread::Builder::new().name(name.to_owned());
        thread("figures").spawn(read)?;
        thread("figures-kept").spawn(keep)?;
        let ends = Some((end_reading, end_keeping));
        Ok(Self { ends, kept })
    }
}

impl Drop for Historian {
    fn drop(&mut self) {
        drop(self.ends.take());
        if self.kept.recv_timeout(END_PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the state directory does not answer; the last figures are not kept");
        }
    }
}
