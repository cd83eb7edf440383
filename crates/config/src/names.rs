//! Names in the file: what they lead to, and that none is there twice.

use std::collections::BTreeMap;

use crate::error::{At as _, Broken as _, nearest_hint};
use crate::reader::Field;
use crate::{ConfigError, Place, Rule};

/// The names that references of one kind may lead to, by position.
pub(crate) struct Names<'a> {
    what: &'static str,
    positions: BTreeMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(what: &'static str, names: impl Iterator<Item = &'a str>) -> Self {
        Self {
            what,
            positions: names.zip(0..).collect(),
        }
    }

    /// The position of the name, or the error that it does not exist.
    pub(crate) fn find(&self, name: &str) -> Result<usize, Rule> {
        self.positions.get(name).copied().ok_or_else(|| {
            let what = self.what;
            Rule::Unknown {
                what,
                name: name.to_owned(),
                hint: nearest_hint(name, self.positions.keys().copied(), || {
                    format!("add a [[{what}]] of that name")
                }),
            }
        })
    }

    pub(crate) fn find_all<T>(
        &self,
        field: Option<Field<'_>>,
        index: fn(usize) -> T,
    ) -> Result<Vec<T>, ConfigError> {
        let Some(field) = field else {
            return Ok(Vec::new());
        };
        let mut seen = FirstUse::new(self.what);
        let mut found = Vec::new();
        for entry in field.entries()? {
            let name = entry.text()?;
            found.push(index(self.find(name).at(|| entry.place())?));
            seen.insert(name, entry.place())?;
        }
        Ok(found)
    }
}

pub(crate) struct AllNames<'a> {
    pub(crate) users: &'a Names<'a>,
    pub(crate) groups: &'a Names<'a>,
    pub(crate) units: &'a Names<'a>,
}

/// Refuses the second use of a name; the error says where the first is.
pub(crate) struct FirstUse {
    what: &'static str,
    places: BTreeMap<String, Place>,
}

impl FirstUse {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            places: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(
        &mut self,
        name: impl Into<String>,
        place: Place,
    ) -> Result<(), ConfigError> {
        let name = name.into();
        self.insert_as(name.clone(), name, place)
    }

    /// The same for a name of which others may see only this.
    pub(crate) fn insert_as(
        &mut self,
        name: String,
        shown: String,
        place: Place,
    ) -> Result<(), ConfigError> {
        match self.places.insert(name, place.clone()) {
            None => Ok(()),
            Some(first) => Err(Rule::Twice {
                what: self.what,
                name: shown,
                first,
            }
            .at(place)),
        }
    }
}
