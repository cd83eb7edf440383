//! Rules about stores that fail: what happened to commands, and what files look like.
//!
//! | Finding | It is over when |
//! | --- | --- |
//! | `store-error`, no space | the file system has [`ROOM_BYTES`] free again; where that is not known, as below |
//! | `store-error`, end of the store | the file is as long as the LUN; where it is no file, as below |
//! | `store-error`, any other cause | none came for [`QUIET`]: nothing shows that a medium is good again |
//! | `store-short` | the store is as large as it was; a file stays short until it is opened again |
//! | `store-stuck` | every core has its requests back |
//! | `store-slow` | no command was slow because of the store for [`QUIET`] |
//!
//! Removing a LUN and adding it again ends them all. A failed flush has a finding of its own, and so has a store that
//! cannot be reached.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::event::{Finding, Severity};
use plane::{Cause, CoreCounts, StoreTrouble};

use super::space::{FileLook, Room};
use super::{Facts, of_lun};
use crate::Running;

/// After this time without another one, a trouble is over of which nothing else shows the end.
const QUIET: Duration = Duration::from_secs(5 * 60);

/// With so much free, a file system has space again.
const ROOM_BYTES: u64 = 16 << 20;

/// What is the matter with the store of a unit, on all cores.
#[derive(Clone, Debug, Default)]
pub(super) struct Troubled {
    pub(super) lun: String,
    pub(super) is_stuck: bool,
    pub(super) slow: Option<Instant>,
    /// The blocks that it had at most, and those that it has.
    pub(super) shrunk: Option<(u64, u64)>,
    /// How many commands failed, and when the last one did.
    pub(super) failures: BTreeMap<Cause, (u64, Instant)>,
}

impl Troubled {
    fn add(&mut self, of_core: &StoreTrouble) {
        self.is_stuck |= of_core.is_stuck;
        self.slow = self.slow.max(of_core.slow);
        self.shrunk = self.shrunk.or(of_core.shrunk);
        for one in &of_core.failures {
            let sum = self.failures.entry(one.cause).or_insert((0, one.last));
            *sum = (sum.0.saturating_add(one.count), sum.1.max(one.last));
        }
    }
}

/// What the cores know, unit by unit. A unit that is gone is left out.
pub(super) fn troubled(running: &Running, counts: &[CoreCounts]) -> Vec<Troubled> {
    let mut all: BTreeMap<usize, Troubled> = BTreeMap::new();
    for one in counts.iter().flat_map(|core| &core.troubles) {
        let Some(at) = running.unit_position(one.unit) else {
            continue;
        };
        let Some(unit) = running.model.units().get(at) else {
            continue;
        };
        let troubled = all.entry(at).or_insert_with(|| Troubled {
            lun: unit.to_string(),
            ..Troubled::default()
        });
        troubled.add(one);
    }
    all.into_values().collect()
}

/// Whether the cause is known to be over although little time has passed.
fn is_over(cause: Cause, lun: &str, room: &Room, last: Instant) -> bool {
    if room.looked.is_none_or(|looked| looked <= last) {
        return false;
    }
    let files = || room.files.iter().filter(|file| file.lun == lun);
    match cause {
        Cause::NoSpace => {
            let free = |file: &FileLook| file.free_bytes >= ROOM_BYTES;
            files().next().is_some() && files().all(free)
        }
        Cause::Truncated => {
            files().next().is_some() && files().all(|file| file.missing_bytes() == 0)
        }
        Cause::Medium | Cause::FlushFailed | Cause::NotReady | Cause::System(_) => false,
    }
}

fn in_words(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::NoSpace => (
            "its store has no space left",
            "free space where the store is, or let initiators release unused blocks (discard)",
        ),
        Cause::Truncated => (
            "its store ends before the blocks",
            "see store-short; put the missing part back from a backup, or lower the size of the LUN",
        ),
        Cause::Medium => (
            "its medium does not give or take bytes",
            "see the kernel log and the state of the disk; copy the data while most of it can be read",
        ),
        Cause::FlushFailed | Cause::NotReady | Cause::System(_) => (
            "its store fails",
            "see the log and the kernel log, and check what the store is on",
        ),
    }
}

/// Commands failed because of the store, not long ago.
pub(super) fn store_errors(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in facts.troubled {
        for (&cause, &(count, last)) in &one.failures {
            // They have findings of their own, which last as long as the cause.
            if matches!(cause, Cause::FlushFailed | Cause::NotReady) {
                continue;
            }
            let is_old = facts.now.saturating_duration_since(last) >= QUIET;
            if is_old || is_over(cause, &one.lun, facts.room, last) {
                continue;
            }
            let (what, remedy) = in_words(cause);
            let message = format!("{what} ({cause}): {count} commands failed");
            findings.push(of_lun(
                Severity::Error,
                "store-error",
                &one.lun,
                message,
                remedy,
            ));
        }
    }
    findings
}

/// Units whose stores became smaller while they were served.
pub(super) fn short_stores(facts: &Facts<'_>) -> Vec<Finding> {
    let shrunk = facts
        .troubled
        .iter()
        .filter_map(|one| Some((one, one.shrunk?)));
    let findings = shrunk.map(|(one, (before, blocks))| {
        let message = format!("its store has shrunk from {before} to {blocks} blocks: what was behind them is lost");
        let remedy = "find out what cut it, and put the missing part back from a backup; if it was meant, remove the \
                      lun and add it again, or restart Tarn";
        of_lun(Severity::Error, "store-short", &one.lun, message, remedy)
    });
    findings.collect()
}

/// Requests that a store should have given back.
pub(super) fn stuck_stores(facts: &Facts<'_>) -> Vec<Finding> {
    let stuck = facts.troubled.iter().filter(|one| one.is_stuck);
    let findings = stuck.map(|one| {
        let message = "its store keeps a request that was to end; the blocks that this may write are refused";
        let remedy = "check the device or the server of its file system, and the kernel log; it ends by itself when \
                      the store answers";
        of_lun(Severity::Error, "store-stuck", &one.lun, message, remedy)
    });
    findings.collect()
}

/// Commands that waited for the store for longer than for all else.
pub(super) fn slow_stores(facts: &Facts<'_>) -> Vec<Finding> {
    let is_recent = |at: Instant| facts.now.saturating_duration_since(at) < QUIET;
    let slow = facts.troubled.iter();
    let slow = slow.filter(|one| !one.is_stuck && one.slow.is_some_and(is_recent));
    let findings = slow.map(|one| {
        let message = "commands wait for its store for longer than slow_command_ms, or hang";
        let remedy =
            "tarn events --kind slow-command has the times; check the device, and who else uses it";
        of_lun(Severity::Warning, "store-slow", &one.lun, message, remedy)
    });
    findings.collect()
}

#[cfg(test)]
mod tests {
    use plane::{StoreFailing, UnitIndex};

    use super::*;
    use crate::serve::living::Living;

    type Facts = (bool, Option<Instant>, Option<(u64, u64)>);

    fn trouble(
        unit: UnitIndex,
        (is_stuck, slow, shrunk): Facts,
        failures: &[(Cause, u64, Instant)],
    ) -> StoreTrouble {
        let failing =
            |&(cause, count, last): &(Cause, u64, Instant)| StoreFailing { cause, count, last };
        StoreTrouble {
            unit,
            is_stuck,
            slow,
            shrunk,
            failures: failures.iter().map(failing).collect(),
            conflict: None,
        }
    }

    fn of_core(troubles: Vec<StoreTrouble>) -> CoreCounts {
        CoreCounts {
            thread: 0,
            turns: 0,
            starved: 0,
            sessions: 0,
            pool_bytes: 0,
            pool_free_bytes: 0,
            series: Vec::new(),
            troubles,
        }
    }

    #[test]
    fn the_troubles_of_all_cores_are_one_for_each_unit_that_is_there() {
        let living = Living::new(
            "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n[[lun]]\nid = \"b\"\nstore = \"mem:1M\"\n\
             [server]\nstate = \"{dir}/state\"\ncores = 1\n[admin]\nenabled = false\n\
             [limits]\npool_per_core_bytes = \"16M\"\n",
        );
        let in_force = living.daemon.in_force();
        let running = &in_force.running;
        let [a, b] = [0, 1].map(|at| running.units[at].index);
        let gone = UnitIndex(a.0 + b.0 + 1);
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let (space, medium) = (Cause::NoSpace, Cause::Medium);
        let counts = [
            of_core(vec![
                trouble(b, (true, Some(later), None), &[(space, 1, later)]),
                trouble(gone, (true, None, None), &[]),
            ]),
            of_core(vec![
                trouble(
                    b,
                    (false, Some(now), Some((9, 8))),
                    &[(space, 2, now), (medium, 4, now)],
                ),
                trouble(
                    a,
                    (false, None, Some((7, 6))),
                    &[(medium, 8, now), (medium, 1, later)],
                ),
            ]),
            of_core(vec![trouble(a, (true, Some(now), Some((5, 4))), &[])]),
        ];
        let found = troubled(running, &counts);
        let facts = found
            .iter()
            .map(|one| (one.lun.as_str(), one.is_stuck, one.slow, one.shrunk));
        let expected = [
            ("a", true, Some(now), Some((7, 6))),
            ("b", true, Some(later), Some((9, 8))),
        ];
        assert_eq!(facts.collect::<Vec<_>>(), expected);
        let failures: Vec<_> = found.iter().map(|one| one.failures.clone()).collect();
        let expected = [
            BTreeMap::from([(medium, (9, later))]),
            BTreeMap::from([(space, (3, later)), (medium, (4, now))]),
        ];
        assert_eq!(failures, expected);
        living.stop();
    }
}
