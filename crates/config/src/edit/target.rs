//! Changes to targets, their portals and the units they show.

use std::collections::HashSet;

use api::spec;
use toml_edit::{TableLike, Value};

use super::draft::{Draft, NBD, TARGET};
use super::error::EditError;
use super::inline::array_of;
use super::list::{List, Row, rows, text, texts, tidy};
use super::walk;
use crate::PORTAL_DEFAULT;
use crate::address::{is_same_bind, parse_bind};
use crate::keys::SECTION_TARGET_LUN;

impl Draft {
    /// Shows a unit under a number of a target, or changes how it is shown there. True when the
    /// number was free.
    ///
    /// # Errors
    ///
    /// There is no such target, or it shows another unit there: initiators would write to one disk what they
    /// have read of another.
    pub fn put_target_lun(
        &mut self,
        target: &str,
        lun: &spec::TargetLun,
    ) -> Result<bool, EditError> {
        let name = target;
        let mut target = self.find(TARGET, target)?;
        let there = views(target.read(), lun.lun);
        let found = position_of_view(&there, lun);
        if found.is_none() && there.iter().any(|(_, entry)| shares_view(entry, lun)) {
            return Err(EditError::LunTaken {
                target: name.to_owned(),
                lun: lun.lun,
            });
        }
        match (target.list("luns"), found) {
            (Some(mut list), Some(at)) => {
                if let Some(mut keys) = list.table(at) {
                    walk::write(&mut keys, &SECTION_TARGET_LUN, lun, &[]);
                }
            }
            (Some(mut list), None) => list.insert(list.len(), lun_value(lun)),
            (None, _) => target.set("luns", Some(array_of([lun_value(lun)]).into())),
        }
        Ok(found.is_none())
    }

    /// Takes a number from a target: for everyone, or for this group alone, where `*` is what those see who are in no
    /// group. The other groups that see the same unit under the number go on to.
    ///
    /// # Errors
    ///
    /// There is no such target, nothing under the number for the group, or no group and several units.
    pub fn remove_target_lun(
        &mut self,
        target: &str,
        lun: u16,
        group: Option<&str>,
    ) -> Result<(), EditError> {
        let mut keys = self.find(TARGET, target)?;
        let there = views(keys.read(), lun);
        let missing = || EditError::NotAtTarget {
            target: target.to_owned(),
            what: "LUN",
            name: match group {
                Some(group) => format!("{lun} for group {group}"),
                None => lun.to_string(),
            },
        };
        let sees = |entry: &spec::TargetLun| match group {
            None => true,
            Some(EVERYONE) => entry.groups.is_empty(),
            Some(group) => entry.groups.iter().any(|one| one == group),
        };
        let mut seen = there.iter().filter(|(_, one)| sees(one));
        let &(at, ref view) = seen.next().ok_or_else(missing)?;
        if seen.next().is_some() {
            return Err(EditError::LunShared {
                target: target.to_owned(),
                lun,
                groups: there.iter().map(|(_, one)| viewers(one)).collect(),
            });
        }
        let rest = view
            .groups
            .iter()
            .filter(|one| group.is_some_and(|group| *one != group));
        let rest: Vec<String> = rest.cloned().collect();
        let mut list = keys.list("luns").ok_or_else(missing)?;
        match list.table(at).filter(|_| !rest.is_empty()) {
            Some(mut entry) => entry.set_texts("groups", &rest, str::to_owned),
            None => {
                list.remove(at);
            }
        }
        tidy(&mut keys, "luns");
        Ok(())
    }

    /// Takes a unit from a target, under whatever numbers it is shown.
    pub(super) fn hide_at(&mut self, target: &str, id: &str) -> Result<(), EditError> {
        let mut keys = self.find(TARGET, target)?;
        if let Some(mut list) = keys.list("luns") {
            for at in (0..list.len()).rev() {
                if list.row(at).and_then(|row| row.text("id")) == Some(id) {
                    list.remove(at);
                }
            }
        }
        tidy(&mut keys, "luns");
        Ok(())
    }

    /// The targets that show a unit.
    pub(super) fn targets_with(&self, id: &str) -> Vec<String> {
        let targets = rows(self.document.get(TARGET.list)).into_iter();
        let shows = |target: &Row<'_>| match target {
            Row::Table(target) => {
                let mut luns = rows(target.get("luns")).into_iter();
                luns.any(|entry| entry.text("id") == Some(id))
            }
            Row::Text(_) => false,
        };
        let with = targets.filter(shows);
        with.filter_map(|target| target.text("name").map(str::to_owned))
            .collect()
    }

    /// What a target shows under a number.
    pub(super) fn views(&self, target: &str, lun: u16) -> Result<Vec<spec::TargetLun>, EditError> {
        let there = self.one(TARGET, target, |target| views(target, lun))?;
        Ok(there.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The numbers under which a target shows units.
    pub(super) fn numbers(&self, target: &str) -> Result<HashSet<u16>, EditError> {
        self.one(TARGET, target, |target| {
            let rows = rows(target.get("luns")).into_iter();
            rows.filter_map(walk::lun_number).collect()
        })
    }

    /// Adds a portal to a target, or changes the one that is bound to this address. True when
    /// it was made. A target that has the default portal keeps it.
    ///
    /// # Errors
    ///
    /// There is no such target, or the address is none.
    pub fn put_portal(&mut self, target: &str, portal: &spec::Portal) -> Result<bool, EditError> {
        parse_bind(&portal.bind)?;
        let mut target: spec::Target = self.section(target)?;
        let portals = target.portals.get_or_insert_with(|| vec![default_portal()]);
        let found = portals
            .iter()
            .position(|there| is_same_bind(&there.bind, &portal.bind));
        match found.and_then(|at| portals.get_mut(at)) {
            Some(slot) => *slot = portal.clone(),
            None => portals.push(portal.clone()),
        }
        self.put_section(&target)?;
        Ok(found.is_none())
    }

    /// Removes the portal of a target that is bound to this address.
    ///
    /// # Errors
    ///
    /// There is no such target or portal, or it is the only one.
    pub fn remove_portal(&mut self, target: &str, bind: &str) -> Result<(), EditError> {
        let portals = self.section::<spec::Target>(target)?.portals;
        let portals = portals.unwrap_or_else(|| vec![default_portal()]);
        let found = portals
            .iter()
            .position(|portal| is_same_bind(&portal.bind, bind));
        let at = found.ok_or_else(|| EditError::NotAtTarget {
            target: target.to_owned(),
            what: "portal",
            name: bind.to_owned(),
        })?;
        if portals.len() == 1 {
            return Err(EditError::LastPortal {
                target: target.to_owned(),
                bind: bind.to_owned(),
            });
        }
        if let Some(mut list) = self.find(TARGET, target)?.list("portals") {
            list.remove(at);
        }
        Ok(())
    }

    /// Calls a unit by its new `id` wherever a target shows it.
    pub(super) fn follow_rename(&mut self, old: &str, new: &str) {
        self.follow_in_nbd(old, new);
        self.follow_in_hyperscsi(old, new);
        let Some(mut targets) = self.document.get_mut(TARGET.list).and_then(List::of) else {
            return;
        };
        for at in 0..targets.len() {
            let Some(mut target) = targets.table(at) else {
                continue;
            };
            let Some(mut luns) = target.list("luns") else {
                continue;
            };
            for at in 0..luns.len() {
                if luns.row(at).and_then(|row| row.text("id")) == Some(old)
                    && let Some(mut keys) = luns.table(at)
                {
                    keys.set_text("id", Some(new), str::eq);
                }
            }
        }
    }

    fn follow_in_nbd(&mut self, old: &str, new: &str) {
        let Some(mut servers) = self.document.get_mut(NBD.list).and_then(List::of) else {
            return;
        };
        for at in 0..servers.len() {
            let Some(mut server) = servers.table(at) else {
                continue;
            };
            let is_old = |id: &String| id == old;
            let before = texts(server.read(), "luns");
            if before.iter().any(is_old) {
                let after = before.into_iter();
                let after = after.map(|id| if is_old(&id) { new.to_owned() } else { id });
                let after: Vec<String> = after.collect();
                server.set_texts("luns", &after, str::to_owned);
            }
        }
    }

    /// The servers of NBD whose list under this key has the name, in words.
    pub(super) fn nbd_with(&self, key: &str, name: &str) -> Vec<String> {
        let rows = rows(self.document.get(NBD.list)).into_iter();
        let uses = rows.filter_map(|row| match row {
            Row::Table(server) => {
                let has = texts(server, key).iter().any(|one| one == name);
                let place = text(server, "bind").or_else(|| text(server, "socket"));
                has.then(|| format!("nbd {}", place.unwrap_or_default()))
            }
            Row::Text(_) => None,
        });
        uses.collect()
    }
}

/// The only one of a target that names none.
fn default_portal() -> spec::Portal {
    spec::Portal {
        bind: PORTAL_DEFAULT.to_string(),
        ..spec::Portal::default()
    }
}

/// What stands in the place of a group for those who are in none.
const EVERYONE: &str = "*";

/// What a target shows under a number, and where in its list.
fn views(target: &dyn TableLike, lun: u16) -> Vec<(usize, spec::TargetLun)> {
    let rows = rows(target.get("luns")).into_iter().enumerate();
    let of_number = rows.filter(|(_, row)| walk::lun_number(*row) == Some(lun));
    of_number
        .filter_map(|(at, row)| Some((at, walk::target_lun(row)?)))
        .collect()
}

/// Where a target shows this unit, of what it shows under the number: to these groups, or else to others, if that is
/// in one place.
fn position_of_view(there: &[(usize, spec::TargetLun)], wanted: &spec::TargetLun) -> Option<usize> {
    let of_unit = || there.iter().filter(|(_, one)| one.id == wanted.id);
    let mut same = of_unit().filter(|(_, one)| one.groups == wanted.groups);
    let alone = || of_unit().next().filter(|_| of_unit().count() == 1);
    same.next().or_else(alone).map(|(at, _)| *at)
}

/// Whether some initiator would see both entries if they had one number. An entry for everyone next to one for a group
/// is not made by an edit of one view: members of the group would get another disk under a number they know.
pub(super) fn shares_view(one: &spec::TargetLun, two: &spec::TargetLun) -> bool {
    let is_common = |group: &String| two.groups.contains(group);
    one.groups.is_empty() || two.groups.is_empty() || one.groups.iter().any(is_common)
}

/// Who sees an entry, as [`Draft::remove_target_lun`] takes it.
fn viewers(entry: &spec::TargetLun) -> String {
    let first = entry.groups.first();
    first.map_or_else(|| format!("\"{EVERYONE}\""), String::clone)
}

fn lun_value(lun: &spec::TargetLun) -> Value {
    walk::row_value(&SECTION_TARGET_LUN, lun)
}
