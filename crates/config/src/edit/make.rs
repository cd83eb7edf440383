//! Edits as the API says them, carried out on a draft.

use std::collections::HashSet;

use api::edit::{Edit, GroupKeys, Keys, Name, Thing, UserKeys, View};
use api::spec;

use super::draft::{Draft, GROUP, HYPERSCSI, LUN, NBD, QUOTA, STORE, TARGET, USER};
use super::error::EditError;
use super::section::Section as _;
use super::target::shares_view;
use crate::LunNumber;
use crate::address::is_same_bind;
use crate::group::initiator_form;

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
            Thing::Target(target) => self.put_section(target),
            Thing::Group(group) => self.put_section(group),
            Thing::User(user) => self.put_section(user),
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
            Keys::Lun(keys) => self.set_section(keys.name(0), keys),
            Keys::Store(keys) => self.set_section(keys.name(0), keys),
            Keys::Nbd(keys) => self.set_section(keys.name(0), keys),
            Keys::Quota(keys) => self.set_section(keys.name(0), keys),
            Keys::Hyperscsi(keys) => self.set_hyperscsi(keys),
            Keys::Device(keys) => self.set_device_keys(keys),
            Keys::Target(keys) => self.set_section(keys.name(0), keys),
            Keys::Group(keys) => self.set_group(keys),
            Keys::User(keys) => self.set_user(keys),
        }
    }

    fn set_group(&mut self, keys: &GroupKeys) -> Result<(), EditError> {
        let mut group = self.section::<spec::Group>(&keys.id)?;
        if let Some(initiators) = &keys.initiators {
            group.initiators.clone_from(initiators);
        }
        let form = |entry: &String| initiator_form(entry);
        let removed: HashSet<String> = keys.remove.iter().map(form).collect();
        let initiators = &mut group.initiators;
        initiators.retain(|entry| !removed.contains(&form(entry)));
        let mut there: HashSet<String> = initiators.iter().map(form).collect();
        let new = keys.add.iter().filter(|new| there.insert(form(new)));
        group.initiators.extend(new.cloned());
        self.put_section(&group).map(drop)
    }

    fn set_user(&mut self, keys: &UserKeys) -> Result<(), EditError> {
        let mut user = self.section::<spec::User>(&keys.name)?;
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
        self.put_section(&user).map(drop)
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
            Name::Target(name) => self.remove_section::<spec::Target>(name),
            Name::Group(id) => self.remove_section::<spec::Group>(id),
            Name::User(name) => self.remove_section::<spec::User>(name),
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
        self.section(name)
    }
}

#[cfg(test)]
mod tests;
