//! Single changes to the text of a configuration, which keep its comments, its order and its
//! form. What the text means as a whole is for [`Model::from_toml`](crate::Model::from_toml) to check afterwards.

mod draft;
mod error;
mod hide;
mod hyperscsi;
mod identity;
mod inline;
mod list;
mod make;
mod section;
mod size;
mod target;
mod walk;

use std::collections::BTreeMap;

use api::spec;

pub use self::draft::Draft;
use self::draft::LUN;
pub use self::error::EditError;
pub(crate) use self::hide::shown_url;
pub use self::hide::{with_other_secrets, with_secrets_of, without_secrets};
pub use self::hyperscsi::hyperscsi_name;
pub use self::identity::{nbd_address, nbd_name};
use self::list::text;

impl Draft {
    /// Adds a unit, or changes the one with this `id`. True when it was made.
    ///
    /// # Errors
    ///
    /// Its store is none.
    pub fn put_lun(&mut self, lun: &spec::Lun) -> Result<bool, EditError> {
        let is_made = self.put_section(lun)?;
        if is_made {
            self.began_as.insert(lun.id.clone(), None);
        }
        Ok(is_made)
    }

    /// Removes a unit.
    ///
    /// # Errors
    ///
    /// There is none with this `id`, or a target shows it.
    pub fn remove_lun(&mut self, id: &str) -> Result<(), EditError> {
        self.remove_section::<spec::Lun>(id)?;
        self.began_as.remove(id);
        Ok(())
    }

    /// Gives a unit another size in bytes.
    ///
    /// # Errors
    ///
    /// There is none with this `id`, it would shrink, it is a block device, or the size is not
    /// one of whole blocks.
    pub fn resize_lun(&mut self, id: &str, size_bytes: u64) -> Result<(), EditError> {
        let mut keys = self.find(LUN, id)?;
        let store = text(keys.read(), "store").unwrap_or_default();
        let resized = size::resized(id, &store, size_bytes)?;
        keys.set_text("store", Some(&resized), str::eq);
        Ok(())
    }

    /// Gives a unit another `id`; targets follow.
    ///
    /// # Errors
    ///
    /// There is none with the old `id`, or one with the new one.
    pub fn rename_lun(&mut self, old: &str, new: &str) -> Result<(), EditError> {
        if old != new && self.position(LUN, new).is_some() {
            return Err(EditError::Exists {
                what: LUN.list,
                name: new.to_owned(),
            });
        }
        self.find(LUN, old)?.set_text("id", Some(new), str::eq);
        if let Some(places) = self.places.get_mut().get_mut(LUN.list)
            && let Some(at) = places.remove(old)
        {
            places.insert(new.to_owned(), at);
        }
        self.follow_rename(old, new);
        for (lun, rest) in self.snapshots_of(old) {
            let store = format!("snap:{new}{rest}");
            self.find(LUN, &lun)?
                .set_text("store", Some(&store), str::eq);
        }
        let began_as = self.began_as.remove(old);
        let began_as = began_as.unwrap_or_else(|| Some(old.to_owned()));
        self.began_as.insert(new.to_owned(), began_as);
        Ok(())
    }

    /// The units that have another `id` than in the text this began with: the new one, and that one.
    pub fn renames(&self) -> BTreeMap<String, String> {
        let began_as = self.began_as.iter();
        let renames = began_as.filter_map(|(new, old)| Some((new.clone(), old.clone()?)));
        renames.filter(|(new, old)| new != old).collect()
    }
}

#[cfg(test)]
mod tests;
