//! Edits as the API says them, carried out on a draft.

use std::collections::HashSet;

use api::edit::{
    Edit, GroupKeys, Keys, LunKeys, Name, NbdKeys, QuotaKeys, TargetKeys, Thing, UserKeys, View,
};
use api::spec;

use super::section::Section as _;
use super::target::shares_view;
use super::{Draft, EditError, GROUP, HYPERSCSI, LUN, NBD, QUOTA, STORE, TARGET, USER, read};
use crate::LunNumber;
use crate::address::is_same_bind;

impl Draft {
    /// Makes one edit; true when it has made a thing.
    ///
    /// # Errors
    ///
    /// Why it cannot be made, whatever the rest of the configuration says.
    pub fn make(&mut self, edit: &Edit) -> Result<bool, EditError> {
        match edit {
            Edit::Add(thing) => {
                self.check_new(thing)?;
                self.put(thing)
            }
            Edit::Put(thing) => self.put(thing),
            Edit::Set(keys) => self.set(keys).map(|()| false),
            Edit::Remove(name) => self.remove_named(name).map(|()| false),
            Edit::Hide { lun } => self.hide_lun(lun).map(|()| false),
            Edit::Resize { lun, size_bytes } => self.resize_lun(lun, *size_bytes).map(|()| false),
            Edit::Rename { lun, id } => self.rename_lun(lun, id).map(|()| false),
        }
    }

    fn put(&mut self, thing: &Thing) -> Result<bool, EditError> {
        match thing {
            Thing::Lun(lun) => self.put_lun(lun),
            Thing::Store(store) => self.put_section(store),
            Thing::Nbd(server) => self.put_section(server),
            Thing::Quota(quota) => self.put_section(quota),
            Thing::Hyperscsi(group) => self.put_section(group),
            Thing::Device(of) => self.put_device(&of.hyperscsi, &of.device),
            Thing::Target(target) => self.put_target(target),
            Thing::Group(group) => self.put_group(group),
            Thing::User(user) => self.put_user(user),
            Thing::View(view) => {
                let entry = self.entry(view)?;
                self.put_target_lun(&view.target, &entry)
            }
            Thing::Portal(portal) => self.put_portal(&portal.target, &portal.portal),
        }
    }

    /// Nothing is there yet under the name of this thing.
    fn check_new(&self, thing: &Thing) -> Result<(), EditError> {
        let (kind, name) = match thing {
            Thing::Lun(lun) => (LUN, lun.id.clone()),
            Thing::Store(store) => (STORE, store.named()?),
            Thing::Nbd(server) => (NBD, server.named()?),
            Thing::Quota(quota) => (QUOTA, quota.named()?),
            Thing::Hyperscsi(group) => (HYPERSCSI, group.named()?),
            Thing::Device(of) => return self.check_no_device(&of.hyperscsi, &of.device.id),
            Thing::Target(target) => (TARGET, target.name.clone()),
            Thing::Group(group) => (GROUP, group.id.clone()),
            Thing::User(user) => (USER, user.name.clone()),
            Thing::View(view) => return self.check_free(view),
            Thing::Portal(portal) => {
                return self.check_unbound(&portal.target, &portal.portal.bind);
            }
        };
        match self.position(kind, &name) {
            None => Ok(()),
            Some(_) => Err(EditError::Exists {
                what: kind.list,
                name,
            }),
        }
    }

    fn check_no_device(&self, called: &str, id: &str) -> Result<(), EditError> {
        match self.has_device(called, id)? {
            true => Err(EditError::DeviceExists {
                group: called.to_owned(),
                id: id.to_owned(),
            }),
            false => Ok(()),
        }
    }

    fn check_free(&self, view: &View) -> Result<(), EditError> {
        let entry = self.entry(view)?;
        let Some(lun) = view.lun else {
            return Ok(());
        };
        let there = self.views(&view.target, lun)?;
        match there.iter().any(|one| shares_view(one, &entry)) {
            true => Err(EditError::LunTaken {
                target: view.target.clone(),
                lun,
            }),
            false => Ok(()),
        }
    }

    fn check_unbound(&self, target: &str, bind: &str) -> Result<(), EditError> {
        let portals = self.target(target)?.portals.unwrap_or_default();
        if portals.iter().any(|there| is_same_bind(&there.bind, bind)) {
            return Err(EditError::Exists {
                what: "portal",
                name: format!("{bind} of target {target}"),
            });
        }
        Ok(())
    }

    /// A view with its number: the one that is given, or the lowest that is free.
    fn entry(&self, view: &View) -> Result<spec::TargetLun, EditError> {
        let lun = match view.lun {
            Some(lun) => lun,
            None => {
                let there = self.numbers(&view.target)?;
                let free = (0..=LunNumber::MAX).find(|number| !there.contains(number));
                free.ok_or_else(|| EditError::NoFreeLun {
                    target: view.target.clone(),
                })?
            }
        };
        Ok(spec::TargetLun {
            lun,
            id: view.id.clone(),
            groups: view.groups.clone(),
            readonly: view.readonly,
        })
    }

    fn set(&mut self, keys: &Keys) -> Result<(), EditError> {
        match keys {
            Keys::Lun(keys) => self.set_lun(keys),
            Keys::Store(keys) => self.set_section(&keys.id, |store: &mut spec::Store| {
                if let Some(text) = &keys.store {
                    store.store.clone_from(text);
                }
            }),
            Keys::Nbd(keys) => self.set_section(&keys.nbd, |server| set_nbd(server, keys)),
            Keys::Quota(keys) => self.set_section(&keys.quota, |quota| set_quota(quota, keys)),
            Keys::Hyperscsi(keys) => self.set_hyperscsi(keys),
            Keys::Device(keys) => self.set_device_keys(keys),
            Keys::Target(keys) => self.set_target(keys),
            Keys::Group(keys) => self.set_group(keys),
            Keys::User(keys) => self.set_user(keys),
        }
    }

    fn set_lun(&mut self, keys: &LunKeys) -> Result<(), EditError> {
        let mut lun = self.one(LUN, &keys.id, read::lun)?;
        if let Some(store) = &keys.store {
            lun.store.clone_from(store);
        }
        replace(&mut lun.serial, keys.serial.as_ref());
        replace(&mut lun.naa, keys.naa.as_ref());
        replace(&mut lun.owner, keys.owner.as_ref());
        replace(&mut lun.log, keys.log.as_ref());
        replace(&mut lun.sync_bias, keys.sync_bias.as_ref());
        if let Some(schedule) = &keys.snapshots {
            lun.snapshots = Some(schedule.clone()).filter(|it| *it != spec::Schedule::default());
        }
        self.put_lun(&lun).map(drop)
    }

    fn set_target(&mut self, keys: &TargetKeys) -> Result<(), EditError> {
        let mut target = self.target(&keys.name)?;
        replace(&mut target.alias, keys.alias.as_ref());
        if let Some(portals) = &keys.portals {
            target.portals = (!portals.is_empty()).then(|| portals.clone());
        }
        if let Some(auth) = &keys.auth {
            target.auth.clone_from(auth);
        }
        if let Some(words) = &keys.chap_algorithms {
            target.chap_algorithms = (!words.is_empty()).then(|| words.clone());
        }
        if let Some(cold_reset) = keys.cold_reset {
            target.cold_reset = cold_reset;
        }
        if let Some(luns) = &keys.luns {
            target.luns.clone_from(luns);
        }
        self.put_target(&target).map(drop)
    }

    fn set_group(&mut self, keys: &GroupKeys) -> Result<(), EditError> {
        let mut group = self.one(GROUP, &keys.id, read::group)?;
        if let Some(initiators) = &keys.initiators {
            group.initiators.clone_from(initiators);
        }
        let removed: HashSet<&String> = keys.remove.iter().collect();
        group.initiators.retain(|entry| !removed.contains(entry));
        let mut there: HashSet<String> = group.initiators.iter().cloned().collect();
        let new = keys.add.iter().filter(|new| there.insert((*new).clone()));
        group.initiators.extend(new.cloned());
        self.put_group(&group).map(drop)
    }

    fn set_user(&mut self, keys: &UserKeys) -> Result<(), EditError> {
        let mut user = self.one(USER, &keys.name, read::user)?;
        if let Some(file) = &keys.secret_file {
            user.secret_file = Some(file.clone());
        }
        if keys.no_mutual {
            user.mutual = None;
        }
        if let Some(mutual) = &keys.mutual {
            user.mutual = Some(mutual.clone());
        }
        user.initiators.clone_from(&keys.initiators);
        self.put_user(&user).map(drop)
    }

    fn remove_named(&mut self, name: &Name) -> Result<(), EditError> {
        match name {
            Name::Lun(id) => self.remove_lun(id),
            Name::Store(id) => self.remove_section::<spec::Store>(id),
            Name::Nbd(place) => self.remove_section::<spec::Nbd>(place),
            Name::Quota(of) => self.remove_section::<spec::Quota>(of),
            Name::Hyperscsi(called) => {
                let known_by = self.hyperscsi_called(called)?;
                self.remove_section::<spec::Hyperscsi>(&known_by)
            }
            Name::Device { hyperscsi, id } => self.remove_device(hyperscsi, id),
            Name::Target(name) => self.remove_target(name),
            Name::Group(id) => self.remove_group(id),
            Name::User(name) => self.remove_user(name),
            Name::View { target, lun, group } => {
                self.remove_target_lun(target, *lun, group.as_deref())
            }
            Name::Portal { target, bind } => self.remove_portal(target, bind),
        }
    }

    /// Takes a unit from every target that shows it.
    fn hide_lun(&mut self, id: &str) -> Result<(), EditError> {
        self.position(LUN, id).ok_or_else(|| LUN.not_found(id))?;
        for target in self.targets_with(id) {
            self.hide_at(&target, id)?;
        }
        Ok(())
    }

    fn target(&self, name: &str) -> Result<spec::Target, EditError> {
        self.one(TARGET, name, read::target)
    }
}

fn set_nbd(server: &mut spec::Nbd, keys: &NbdKeys) {
    replace(&mut server.mode, keys.mode.as_ref());
    if let Some(luns) = &keys.luns {
        server.luns.clone_from(luns);
    }
    if let Some(groups) = &keys.groups {
        server.groups.clone_from(groups);
    }
    replace(&mut server.certificate, keys.certificate.as_ref());
    replace(&mut server.key, keys.key.as_ref());
    replace(&mut server.ca, keys.ca.as_ref());
}

fn set_quota(quota: &mut spec::Quota, keys: &QuotaKeys) {
    replace(&mut quota.provisioned, keys.provisioned.as_ref());
    replace(&mut quota.used, keys.used.as_ref());
    if let Some(soft) = keys.soft {
        quota.soft = (soft != 0).then_some(soft);
    }
}

/// Takes a value over, if there is one; an empty one takes the key away.
pub(super) fn replace(key: &mut Option<String>, value: Option<&String>) {
    if let Some(value) = value {
        *key = (!value.is_empty()).then(|| value.clone());
    }
}

#[cfg(test)]
mod tests;
