//! Changes to targets, their portals and the units they show.

use std::collections::{HashMap, HashSet};

use api::spec;
use toml_edit::{InlineTable, Item, TableLike, Value};

use super::list::{List, Row, array_of, rows};
use super::table::Keys;
use super::{Draft, EditError, NBD, TARGET, read, table};
use crate::address::{is_same_bind, parse_bind};
use crate::{ChapAlgorithm, HostPort, IscsiName, PORTAL_DEFAULT, shorthand};

impl Draft {
    /// Adds a target, or changes the one with this name. True when it was made.
    ///
    /// # Errors
    ///
    /// Its name is none.
    pub fn put_target(&mut self, target: &spec::Target) -> Result<bool, EditError> {
        IscsiName::parse(&target.name)?;
        let (mut keys, is_made) = self.find_or_add(TARGET, &target.name)?;
        keys.set_text("alias", target.alias.as_deref(), str::eq);
        set_portals(&mut keys, target.portals.as_deref());
        set_names(&mut keys, "auth", &target.auth);
        set_algorithms(&mut keys, target.chap_algorithms.as_deref());
        set_flag(&mut keys, "cold_reset", target.cold_reset);
        set_luns(&mut keys, &target.luns);
        Ok(is_made)
    }

    /// Removes a target.
    ///
    /// # Errors
    ///
    /// There is none with this name.
    pub fn remove_target(&mut self, name: &str) -> Result<(), EditError> {
        self.remove(TARGET, name, |_| Vec::new())
    }

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
                    set_target_lun(&mut keys, lun);
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
            Some(mut entry) => set_names(&mut entry, "groups", &rest),
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
            rows.filter_map(read::lun_number).collect()
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
        let mut target = self.find(TARGET, target)?;
        let mut portals = portals(&target);
        let found = portals
            .iter()
            .position(|there| is_same_bind(&there.bind, &portal.bind));
        match found.and_then(|at| portals.get_mut(at)) {
            Some(slot) => *slot = portal.clone(),
            None => portals.push(portal.clone()),
        }
        set_portals(&mut target, Some(&portals));
        Ok(found.is_none())
    }

    /// Removes the portal of a target that is bound to this address.
    ///
    /// # Errors
    ///
    /// There is no such target or portal, or it is the only one.
    pub fn remove_portal(&mut self, target: &str, bind: &str) -> Result<(), EditError> {
        let mut keys = self.find(TARGET, target)?;
        let portals = portals(&keys);
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
        if let Some(mut list) = keys.list("portals") {
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
            let before = table::texts(server.read(), "luns");
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
                let has = table::texts(server, key).iter().any(|one| one == name);
                let place = table::text(server, "bind").or_else(|| table::text(server, "socket"));
                has.then(|| format!("nbd {}", place.unwrap_or_default()))
            }
            Row::Text(_) => None,
        });
        uses.collect()
    }
}

/// The portals of a target, the default one too.
fn portals(target: &Keys<'_>) -> Vec<spec::Portal> {
    match target.read().get("portals") {
        Some(list) => rows(Some(list)).into_iter().map(read::portal).collect(),
        None => vec![spec::Portal {
            bind: PORTAL_DEFAULT.to_string(),
            advertise: None,
            group: None,
        }],
    }
}

fn set_portals(target: &mut Keys<'_>, wanted: Option<&[spec::Portal]>) {
    let Some(wanted) = wanted else {
        target.remove("portals");
        return;
    };
    let there = portals(target);
    let is_same = |(a, b): (&spec::Portal, &spec::Portal)| is_same_portal(a, b);
    if there.len() == wanted.len() && there.iter().zip(wanted).all(is_same) {
        return;
    }
    let names: Vec<String> = wanted
        .iter()
        .map(|portal| bind_form(&portal.bind))
        .collect();
    let Some(mut list) = target.list("portals") else {
        let array = wanted.iter().map(portal_value).collect();
        target.set("portals", Some(Value::Array(array)));
        return;
    };
    let name = |row: Row<'_>| bind_form(&read::portal(row).bind);
    let is_inline = matches!(list, List::Inline(_));
    let make = |at: usize| match wanted.get(at) {
        Some(portal) if is_inline => portal_value(portal),
        Some(portal) => portal_table(portal).into(),
        None => Value::from(""),
    };
    list.reconcile(&names, name, make);
    for (at, portal) in wanted.iter().enumerate() {
        let there = list.row(at).map(read::portal);
        if there.is_none_or(|there| is_same_portal(&there, portal)) {
            continue;
        }
        match list.table(at) {
            Some(mut keys) => set_portal(&mut keys, portal),
            None => list.replace(at, portal_value(portal)),
        }
    }
}

fn set_portal(keys: &mut Keys<'_>, portal: &spec::Portal) {
    let is_same = |a: &str, b: &str| a == b || HostPort::parse(a).ok() == HostPort::parse(b).ok();
    keys.set_text("advertise", portal.advertise.as_deref(), is_same);
    let there = read::number(keys.read(), "group");
    if group_tag(there) != group_tag(portal.group) {
        keys.set("group", portal.group.map(|tag| Value::from(i64::from(tag))));
    }
}

fn is_same_portal(a: &spec::Portal, b: &spec::Portal) -> bool {
    is_same_bind(&a.bind, &b.bind)
        && a.advertise == b.advertise
        && group_tag(a.group) == group_tag(b.group)
}

fn group_tag(given: Option<u16>) -> u16 {
    given.unwrap_or(shorthand::GROUP_TAG_DEFAULT)
}

/// The one form of an address to listen on.
fn bind_form(bind: &str) -> String {
    parse_bind(bind).map_or_else(|_| bind.to_owned(), |address| address.to_string())
}

/// The short form where it says all.
fn portal_value(portal: &spec::Portal) -> Value {
    if portal.advertise.is_none() && portal.group.is_none() {
        return Value::from(portal.bind.as_str());
    }
    portal_table(portal).into()
}

fn portal_table(portal: &spec::Portal) -> InlineTable {
    let mut table = InlineTable::from_iter([("bind", portal.bind.as_str())]);
    set_portal(&mut Keys::Inline(&mut table), portal);
    table
}

/// What stands in the place of a group for those who are in none.
const EVERYONE: &str = "*";

fn luns(target: &Keys<'_>) -> Vec<spec::TargetLun> {
    let rows = rows(target.read().get("luns")).into_iter();
    rows.filter_map(read::target_lun).collect()
}

/// What a target shows under a number, and where in its list.
fn views(target: &dyn TableLike, lun: u16) -> Vec<(usize, spec::TargetLun)> {
    let rows = rows(target.get("luns")).into_iter().enumerate();
    let of_number = rows.filter(|(_, row)| read::lun_number(*row) == Some(lun));
    of_number
        .filter_map(|(at, row)| Some((at, read::target_lun(row)?)))
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

fn set_luns(target: &mut Keys<'_>, wanted: &[spec::TargetLun]) {
    // The order of the file means nothing here, so it stays.
    let there = luns(target);
    let shared = shared_numbers(&[&there, wanted]);
    let name = |entry: &spec::TargetLun| view_name(entry, shared.contains(&entry.lun));
    let order: HashMap<String, usize> = there.iter().map(name).zip(0..).collect();
    let mut wanted: Vec<&spec::TargetLun> = wanted.iter().collect();
    wanted.sort_by_key(|entry| order.get(&name(entry)).copied().unwrap_or(usize::MAX));

    let Some(mut list) = target.list("luns") else {
        if !wanted.is_empty() {
            let array = array_of(wanted.into_iter().map(lun_value));
            target.set("luns", Some(array.into()));
        }
        return;
    };
    let names: Vec<String> = wanted.iter().map(|entry| name(entry)).collect();
    let name = |row: Row<'_>| match read::target_lun(row) {
        Some(entry) => name(&entry),
        None => String::new(),
    };
    let make = |at: usize| {
        wanted
            .get(at)
            .map_or_else(|| Value::from(""), |entry| lun_value(entry))
    };
    list.reconcile(&names, name, make);
    for (at, entry) in wanted.iter().enumerate() {
        if let Some(mut keys) = list.table(at) {
            set_target_lun(&mut keys, entry);
        }
    }
    tidy(target, "luns");
}

/// The numbers that several entries of one list have.
fn shared_numbers(lists: &[&[spec::TargetLun]]) -> HashSet<u16> {
    let mut shared = HashSet::new();
    for list in lists {
        let mut seen = HashSet::new();
        let again = list.iter().filter(|entry| !seen.insert(entry.lun));
        shared.extend(again.map(|entry| entry.lun));
    }
    shared
}

/// What an entry is found by: its number, and the first of its groups where the number is shared.
fn view_name(entry: &spec::TargetLun, is_shared: bool) -> String {
    let first = entry.groups.first().filter(|_| is_shared);
    format!("{} {}", entry.lun, first.map_or("", String::as_str))
}

fn lun_value(lun: &spec::TargetLun) -> Value {
    let mut table = InlineTable::from_iter([("lun", i64::from(lun.lun))]);
    set_target_lun(&mut Keys::Inline(&mut table), lun);
    table.into()
}

fn set_target_lun(keys: &mut Keys<'_>, lun: &spec::TargetLun) {
    keys.set_text("id", Some(&lun.id), str::eq);
    set_names(keys, "groups", &lun.groups);
    set_flag(keys, "readonly", lun.readonly);
}

/// A key that is absent where it is not so.
pub(super) fn set_flag(keys: &mut Keys<'_>, key: &str, wanted: bool) {
    if read::flag(keys.read(), key) != wanted {
        keys.set(key, wanted.then(|| Value::from(true)));
    }
}

/// A list of names; the key goes away with the last of them.
fn set_names(keys: &mut Keys<'_>, key: &str, wanted: &[String]) {
    if wanted.is_empty() && !rows(keys.read().get(key)).is_empty() {
        keys.remove(key);
    } else if !wanted.is_empty() {
        keys.set_texts(key, wanted, str::to_owned);
    }
}

fn set_algorithms(target: &mut Keys<'_>, wanted: Option<&[String]>) {
    const KEY: &str = "chap_algorithms";
    let is_default = |words: &[String]| words.iter().eq(ChapAlgorithm::ALL.map(|a| a.as_str()));
    match wanted {
        None => target.remove(KEY),
        Some(words) if is_default(words) && target.read().get(KEY).is_none() => {}
        Some(words) => target.set_texts(KEY, words, str::to_owned),
    }
}

/// Takes the key of an empty `[[list]]` away, which would otherwise come back as `list = []`.
pub(super) fn tidy(keys: &mut Keys<'_>, key: &str) {
    let is_bare =
        matches!(keys.read().get(key), Some(Item::ArrayOfTables(tables)) if tables.is_empty());
    if is_bare {
        keys.remove(key);
    }
}
