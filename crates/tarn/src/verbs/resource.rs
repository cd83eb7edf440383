//! What all configured things have in common: a name, a place in the API and in the document.

use api::plan::Applied;
use api::spec;
use client::{Answer, Path, path};
use config::Draft;
use serde::Serialize;

use super::Outcome;
use super::desk::Desk;
use super::failure::Failure;

/// A kind of thing with a section of its own in the document.
pub(super) trait Resource: Serialize + Sized {
    /// What the command line calls it.
    const NOUN: &'static str;
    /// Where the API has it.
    const COLLECTION: &'static str;

    /// What names it.
    fn name(&self) -> &str;

    /// All of them, as the document has them.
    fn all(draft: &Draft) -> Vec<Self>;

    /// Where the API has the one of this name.
    fn at(name: &str) -> Path {
        path(&[Self::COLLECTION, name])
    }

    /// The one of this name, as the document has it.
    fn find(draft: &Draft, name: &str) -> Result<Self, Failure> {
        let mut all = Self::all(draft).into_iter();
        all.find(|one| one.name() == name)
            .ok_or_else(|| Failure::Missing {
                noun: Self::NOUN,
                name: name.to_owned(),
            })
    }
}

macro_rules! resources {
    ($($type:ident: $noun:literal, $collection:literal, $key:ident, $all:ident;)*) => {
        $(impl Resource for spec::$type {
            const NOUN: &'static str = $noun;
            const COLLECTION: &'static str = $collection;

            fn name(&self) -> &str {
                &self.$key
            }

            fn all(draft: &Draft) -> Vec<Self> {
                draft.$all()
            }
        })*
    };
}

resources! {
    Lun: "lun", "luns", id, luns;
    Target: "target", "targets", name, targets;
    Group: "group", "groups", id, groups;
    User: "user", "users", name, users;
}

/// Adds a thing that must not be there yet.
pub(super) fn add<T: Resource>(desk: &Desk, thing: &T) -> Outcome {
    desk.change(|revision, draft| {
        must_be_new::<T>(&draft, thing.name())?;
        put(desk, thing, revision)
    })
}

/// Changes a thing that must be there.
pub(super) fn set<T: Resource>(desk: &Desk, name: &str, alter: impl Fn(&mut T)) -> Outcome {
    desk.change(|revision, draft| {
        let mut thing = T::find(&draft, name)?;
        alter(&mut thing);
        put(desk, &thing, revision)
    })
}

/// Nothing of this name is in the document.
pub(super) fn must_be_new<T: Resource>(draft: &Draft, name: &str) -> Result<(), Failure> {
    if T::all(draft).iter().any(|one| one.name() == name) {
        return Err(Failure::Exists {
            noun: T::NOUN,
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn put<T: Resource>(desk: &Desk, thing: &T, revision: u64) -> Result<Answer<Applied>, Failure> {
    let at = T::at(thing.name());
    Ok(desk.client.put(&at, thing, Some(revision))?)
}

/// Nothing for an empty text, which takes a key out of the document.
pub(super) fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
