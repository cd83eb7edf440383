//! Records that nobody uses any more.
//!
//! A unit that is removed keeps its identity, so that it is the same disk when it comes back. Each record notes the
//! day of its last use. The longest unused go when there are very many, and when `tarn state prune` asks for it.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;

use super::State;
use super::ledger::{Ledger, Record};
use super::unit::UnitState;
use crate::StartError;

/// Records beside those of the configuration in force that a ledger keeps.
pub(super) const UNUSED_MAX: usize = 4096;

/// A record that was pruned.
#[derive(Debug)]
pub struct Pruned {
    /// Its id, or the path of its file.
    pub name: String,
    /// Its NAA designator.
    pub naa: String,
    /// For how many days nobody had used it.
    pub unused_days: u64,
}

impl Ledger {
    /// Records that no unit has used for so many days, by their position, the longest unused first.
    fn unused(&self, days: u64) -> Vec<usize> {
        let is_unused = |record: &Record| {
            record.renaming.is_none() && self.today.saturating_sub(record.last_used) >= days
        };
        let mut unused: Vec<usize> = (0..self.records.len())
            .filter(|&position| is_unused(&self.records[position]))
            .collect();
        unused.sort_by_key(|&position| self.records[position].last_used);
        unused
    }

    /// Without the days of last use: what has to be kept.
    pub(super) fn without_days(&self) -> Self {
        let mut ledger = self.clone();
        for record in &mut ledger.records {
            record.last_used = 0;
        }
        ledger
    }
}

impl State {
    /// Removes records that no unit has used for so many days, with what is kept of their units, except for units that
    /// a process serves.
    ///
    /// # Errors
    ///
    /// The directory cannot be used, or the ledger is damaged.
    pub fn prune(&self, days: u64) -> Result<Vec<Pruned>, StartError> {
        self.change_ledger(|ledger| {
            let unused = ledger.unused(days);
            Ok(self.prune_records(ledger, unused, usize::MAX))
        })
    }

    /// Removes the longest unused records while there are too many beside these.
    pub(super) fn prune_excess(&self, ledger: &mut Ledger, used: &BTreeSet<String>) {
        let excess = ledger.records.len().saturating_sub(used.len() + UNUSED_MAX);
        if excess > 0 {
            let mut candidates = ledger.unused(0);
            candidates.retain(|&position| !used.contains(&ledger.records[position].naa));
            for Pruned { name, naa, .. } in self.prune_records(ledger, candidates, excess) {
                tracing::warn!(
                    name,
                    naa,
                    "a record of an unused unit is pruned, there are too many"
                );
            }
        }
    }

    fn prune_records(
        &self,
        ledger: &mut Ledger,
        candidates: Vec<usize>,
        most: usize,
    ) -> Vec<Pruned> {
        let mut gone: Vec<usize> = candidates
            .into_iter()
            .filter(|&position| {
                let Record { naa, saved_in, .. } = &ledger.records[position];
                self.is_forgotten(naa) && saved_in.as_ref().is_none_or(|it| self.is_forgotten(it))
            })
            .take(most)
            .collect();
        gone.sort_by_key(|&position| Reverse(position));
        let mut pruned: Vec<Pruned> = gone
            .into_iter()
            .map(|position| {
                let record = ledger.records.remove(position);
                let name = record.id.or(record.path).unwrap_or_default();
                Pruned {
                    name,
                    naa: record.naa,
                    unused_days: ledger.today.saturating_sub(record.last_used),
                }
            })
            .collect();
        pruned.reverse();
        pruned
    }

    /// Removes what is kept of a unit. False where a process serves it, or that cannot be removed.
    fn is_forgotten(&self, naa: &str) -> bool {
        let directory = self.directory.join("units").join(naa);
        if !directory.exists() {
            return true;
        }
        // Held until it is gone.
        match UnitState::lock(&directory) {
            Ok(Some(_held)) => fs::remove_dir_all(&directory).is_ok(),
            Ok(None) | Err(_) => false,
        }
    }
}
