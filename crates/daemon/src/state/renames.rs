//! Units that get another `id`.
//!
//! The configuration file and the ledger are two files, so a crash may come between their
//! replacements. The ledger is written first and then knows the unit by both ids; which of them
//! holds is decided by the configuration that is found later. Nothing here depends on the change
//! having been completed.

use std::collections::{BTreeMap, BTreeSet};

use config::Model;

use super::ledger::{Ledger, Renaming};

/// A change of the id of one unit.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Rename {
    /// The id that it has.
    pub(crate) old: String,
    /// The id that it gets.
    pub(crate) new: String,
    /// The path of its store, which it keeps; `None` for memory.
    pub(crate) path: Option<String>,
}

impl Ledger {
    /// Notes renames that a change is about to make.
    pub(super) fn begin_renames(&mut self, renames: &[Rename]) {
        for rename in renames {
            if let Some(record) = self.find_by_id(&rename.old) {
                record.renaming = Some(Renaming {
                    to: rename.new.clone(),
                    path: rename.path.clone(),
                });
            }
        }
    }

    /// Ends the renames that this configuration decides: where it has the new id alone, the unit
    /// has that; where it has the old one alone, the rename was not made. Where it has both, a
    /// unit was added under one of them, and the path says which. Others are left as they are:
    /// the directory may be shared.
    pub(super) fn settle(&mut self, model: &Model) {
        let units = model.units().iter();
        let paths: BTreeMap<&str, Option<String>> = units
            .filter_map(|unit| Some((unit.id.as_deref()?, path_of(unit))))
            .collect();
        let mut made = BTreeSet::new();
        for (position, record) in self.records.iter_mut().enumerate() {
            let Some((old, renaming)) = record.id.as_deref().zip(record.renaming.as_ref()) else {
                continue;
            };
            let is_made = match (paths.get(old), paths.get(renaming.to.as_str())) {
                (_, Some(path)) if path.is_some() && *path == renaming.path => true,
                (None, Some(_)) => true,
                (Some(_), _) => false,
                (None, None) => continue,
            };
            if is_made {
                made.insert(position);
            } else {
                record.renaming = None;
            }
        }
        let ids: BTreeSet<String> = made
            .iter()
            .filter_map(|&position| Some(self.records.get(position)?.renaming.as_ref()?.to.clone()))
            .collect();
        for (position, record) in self.records.iter_mut().enumerate() {
            if made.contains(&position) {
                record.id = record.renaming.take().map(|renaming| renaming.to);
                continue;
            }
            // What the new id meant before waits for the id to be free.
            if record.id.as_ref().is_some_and(|id| ids.contains(id)) {
                record.is_displaced = true;
            }
        }
    }
}

/// The medium of a unit's store.
pub(crate) fn path_of(unit: &config::Unit) -> Option<String> {
    Some(unit.store.at.medium()?.to_string())
}
