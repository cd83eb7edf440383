//! What the main figures were, for an hour, a day and thirty days: of all units together and of each that has worked.
//!
//! | Module | Owns |
//! | --- | --- |
//! | `series` | counters to points, downsampled |
//! | `kept` | their form in the state directory |
//!
//! A thread reads the counters that `/metrics` reads, every [`STEP_MS`]: no core is asked, or woken. Another writes
//! them into the directory of the revisions, every [`KEEP_PAUSE`] and at the end: while the state directory hangs,
//! figures are read on. Each is replaced as a whole, so a crash costs what came since the last write. A file that is
//! damaged is logged, and the figures begin again. Both threads and the administration share one lock, which is held
//! for as long as it takes to add or to copy figures. A unit is known by its NAA designator, so that another id does
//! not take its figures; they go when the unit is removed. Where two processes share a configuration and a state
//! directory, the last that writes counts, as it does for the numbers of events.

mod historian;
mod kept;
mod series;

pub(super) use self::historian::{Historian, figures};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use plane::{CoreCounts, UnitIndex};

use self::series::{Gain, LEVELS, Series};

/// Between two readings: what the shortest step covers.
const STEP_MS: u64 = LEVELS[0].step_ms;

/// Units whose figures are kept: with all steps of all ranges, they take 4 MiB. A further one takes the place of one
/// that has done nothing for [`IDLE_MS`], or has no figures.
const UNITS_MAX: usize = 128;

/// A unit that has done nothing for so long may lose its figures to another.
const IDLE_MS: u64 = 3_600_000;

/// The figures of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
struct OfUnit {
    series: Series,
    /// When it last answered a command.
    active_ms: u64,
}

/// All figures.
#[derive(Debug, Default, PartialEq)]
struct Past {
    all: Series,
    /// By NAA designator.
    units: BTreeMap<String, OfUnit>,
}

impl Past {
    /// What has happened in the `passed_ms` before `now_ms`: in all, and by unit.
    fn add(&mut self, now_ms: u64, passed_ms: u64, all: &Gain, units: &BTreeMap<String, Gain>) {
        self.all.add(now_ms, passed_ms, all);
        self.units.retain(|naa, _| units.contains_key(naa));
        for (naa, gain) in units {
            if !self.units.contains_key(naa) {
                let begins = gain.is_active() && self.make_room(now_ms);
                if !begins {
                    continue;
                }
            }
            let unit = self.units.entry(naa.clone()).or_default();
            if gain.is_active() {
                unit.active_ms = now_ms;
            }
            unit.series.add(now_ms, passed_ms, gain);
        }
    }

    /// Whether there is room for one more unit, perhaps because another has lost its figures.
    fn make_room(&mut self, now_ms: u64) -> bool {
        if self.units.len() < UNITS_MAX {
            return true;
        }
        let idle = self.units.iter().min_by_key(|(_, unit)| unit.active_ms);
        let idle = idle.filter(|(_, unit)| now_ms.saturating_sub(unit.active_ms) > IDLE_MS);
        let Some(naa) = idle.map(|(naa, _)| naa.clone()) else {
            return false;
        };
        self.units.remove(&naa);
        true
    }
}

/// The counters of a reading, for the next one.
#[derive(Debug)]
struct Reading {
    at: Instant,
    units: BTreeMap<UnitIndex, Gain>,
    busy_us: u64,
}

/// What the threads and the administration share.
#[derive(Debug)]
struct Inner {
    past: Past,
    before: Reading,
}

/// The figures of the past, and where they are kept.
#[derive(Debug)]
pub(crate) struct PastFigures {
    path: PathBuf,
    inner: Mutex<Inner>,
}

impl PastFigures {
    /// Takes over what is kept in this directory. All counters begin at nothing now.
    pub(crate) fn begin(directory: &Path) -> Self {
        let path = directory.join("figures");
        let past = kept::read(&path).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "the figures of the past begin again");
            Past::default()
        });
        let before = Reading {
            at: Instant::now(),
            units: BTreeMap::new(),
            busy_us: 0,
        };
        let inner = Mutex::new(Inner { past, before });
        Self { path, inner }
    }

    /// A thread that panicked while it held the lock may have left one step unfinished, which only figures show.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes them.
    fn keep(&self) {
        let text = kept::encode(&self.lock().past);
        if let Err(error) = kept::write(&self.path, &text) {
            let path = self.path.display();
            tracing::warn!(%path, %error, "figures are not kept; a restart loses those since the last write");
        }
    }
}

/// The counters of each unit that is served, by its index.
fn totals(counts: &[CoreCounts]) -> BTreeMap<UnitIndex, Gain> {
    let mut units: BTreeMap<UnitIndex, Gain> = BTreeMap::new();
    for one in counts.iter().flat_map(|core| &core.series) {
        units.entry(one.unit).or_default().count(one);
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;

    fn gain(reads: u64) -> Gain {
        Gain {
            reads,
            ..Gain::default()
        }
    }

    fn gains(of: &[(&str, u64)]) -> BTreeMap<String, Gain> {
        let one = |(naa, reads): &(&str, u64)| ((*naa).to_owned(), gain(*reads));
        of.iter().map(one).collect()
    }

    #[test]
    fn a_unit_has_figures_from_its_first_command_until_it_is_removed() {
        let mut past = Past::default();
        let mut add = |now_ms, of: &[(&str, u64)]| {
            past.add(now_ms, 1000, &Gain::default(), &gains(of));
            past.units.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(add(MINUTE_MS, &[("a", 0), ("b", 1)]), ["b"]);
        assert_eq!(add(2 * MINUTE_MS, &[("a", 1), ("b", 0)]), ["a", "b"]);
        assert_eq!(add(3 * MINUTE_MS, &[("a", 0)]), ["a"]);
    }

    #[test]
    fn no_more_units_than_the_limit_have_figures_and_only_idle_ones_make_room() {
        let mut past = Past::default();
        let ids: Vec<String> = (0..=UNITS_MAX)
            .map(|number| format!("{number:04}"))
            .collect();
        let all = |reads: fn(usize) -> u64| -> BTreeMap<String, Gain> {
            let one = |(at, id): (usize, &String)| (id.clone(), gain(reads(at)));
            ids.iter().enumerate().map(one).collect()
        };
        past.add(MINUTE_MS, 1000, &Gain::default(), &all(|_| 1));
        assert_eq!(past.units.len(), UNITS_MAX);
        assert!(!past.units.contains_key(&ids[UNITS_MAX]));
        // All but the first work on, so that only it is idle when the hour is over.
        past.add(
            2 * MINUTE_MS,
            1000,
            &Gain::default(),
            &all(|at| u64::from(at > 0)),
        );
        past.add(
            MINUTE_MS + IDLE_MS,
            1000,
            &Gain::default(),
            &all(|at| u64::from(at > 0)),
        );
        assert!(past.units.contains_key(&ids[0]), "one hour is not yet over");
        past.add(
            MINUTE_MS + IDLE_MS + 1,
            1000,
            &Gain::default(),
            &all(|at| u64::from(at > 0)),
        );
        assert_eq!(past.units.len(), UNITS_MAX);
        assert!(!past.units.contains_key(&ids[0]));
        assert!(past.units.contains_key(&ids[UNITS_MAX]));
    }
}
