//! Opens the stores of units that were served before: what is at their place must be what was served.
//!
//! Nothing is made, lengthened or written before that is known. A unit whose medium is missing, smaller, or another
//! one is not served until what was served is back, or an administrator accepts what is there (`tarn lun adopt`). A
//! unit that is new, or was given another store, has no such record: what is there is recorded.

use config::{Place, StoreSpec};
use remote::{RbdFailure, RbdOpenError};
use store::{OpenFailure, SharedStore};

use super::open::{Found, Opener, look_at_part, open_part};
use super::opened::Part;
use crate::StartError;
use crate::error::MediumError;
use crate::medium::{Fit, Medium, check_positions, name_of};
use crate::state::UnitIdentity;

/// What the parts of a unit have to be.
#[derive(Clone, Debug, Default)]
pub(super) enum Expected {
    /// Whatever they are: the unit is new.
    #[default]
    Anything,
    /// Whatever is there, but something has to be: an earlier release served them, and recorded nothing, or an
    /// administrator has accepted them.
    Present,
    /// Parts with these names have to be these; others may be anything.
    Recorded(Vec<Medium>),
}

impl Expected {
    /// Of a unit with this identity and its configured stores.
    ///
    /// # Errors
    ///
    /// The record cannot be read.
    pub(super) fn of(unit: &config::Unit, identity: &UnitIdentity) -> Result<Self, StartError> {
        // One of the command line is known by its file: another one is another disk.
        if unit.id.is_none() {
            return Ok(Self::Anything);
        }
        let recorded = identity.state.media();
        let recorded = recorded.map_err(|source| MediumError::Unknown {
            place: unit.place.clone(),
            source,
        })?;
        Ok(match recorded {
            Some(media) => Self::Recorded(media),
            None if identity.was_served => Self::Present,
            None => Self::Anything,
        })
    }

    /// Whether the parts of the unit would be put together as those that were served.
    ///
    /// # Errors
    ///
    /// Its data would be in another order, or a part of it missing.
    pub(super) fn check_form(&self, unit: &config::Unit) -> Result<(), StartError> {
        let Self::Recorded(media) = self else {
            return Ok(());
        };
        let checked = check_positions(media, &unit.store);
        checked.map_err(|why| {
            let (place, store) = (unit.place.clone(), unit.store.at.to_string());
            MediumError::Changed { place, store, why }.into()
        })
    }

    /// Records that a unit of which nothing is known has not been served yet, so that its stores may be made also where
    /// this does not succeed at once.
    pub(super) fn note_unserved(&self, unit: &config::Unit, identity: &UnitIdentity) {
        let has_medium = unit.parts().any(|(spec, _)| name_of(spec).is_some());
        if matches!(self, Self::Anything)
            && unit.id.is_some()
            && has_medium
            && let Err(error) = identity.state.note_unserved()
        {
            tracing::warn!(%unit, %error, "the state directory does not say that a lun is new");
        }
    }

    /// What a part was when it was served last.
    pub(super) fn part(&self, spec: &StoreSpec) -> Option<&Medium> {
        let name = name_of(spec)?;
        match self {
            Self::Recorded(media) => media.iter().find(|medium| medium.store == name),
            Self::Anything | Self::Present => None,
        }
    }

    /// The sizes of what was recorded, together, in bytes.
    pub(super) fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Recorded(media) if !media.is_empty() => {
                let parts = media.iter().filter(|medium| !medium.is_log());
                Some(parts.map(|medium| medium.size_bytes).sum())
            }
            Self::Recorded(_) | Self::Anything | Self::Present => None,
        }
    }

    /// The store as it is opened: nothing is made or lengthened of what was served.
    fn asked(&self, spec: &StoreSpec) -> StoreSpec {
        let size_bytes = spec.size_bytes.filter(|_| self.may_make(spec));
        StoreSpec {
            size_bytes,
            ..spec.clone()
        }
    }

    /// Why a part cannot be opened: what was served is not there, if that is so.
    fn said(&self, (spec, place): (&StoreSpec, &Place), error: StartError) -> StartError {
        if self.may_make(spec) || !is_missing(&error) {
            return error;
        }
        let (place, store) = (place.clone(), name_of(spec).unwrap_or_default());
        MediumError::Missing { place, store }.into()
    }

    /// Whether a part is another file than the one that was served last.
    fn check(
        &self,
        (spec, place): (&StoreSpec, &Place),
        store: &dyn SharedStore,
    ) -> Result<bool, MediumError> {
        let recorded = self.part(spec).filter(|_| !self.may_make(spec));
        let Some(recorded) = recorded else {
            return Ok(false);
        };
        let found = medium_of((spec, place), store)?;
        let Some(found) = found else {
            return Ok(false);
        };
        let fit = recorded.check(&found).map_err(|why| MediumError::Changed {
            place: place.clone(),
            store: name_of(spec).unwrap_or_default(),
            why,
        })?;
        Ok(fit == Fit::OtherFile)
    }

    /// Whether a part that is missing may be made. Memory always is.
    fn may_make(&self, spec: &StoreSpec) -> bool {
        match self {
            Self::Anything => true,
            Self::Present => name_of(spec).is_none(),
            Self::Recorded(_) => self.part(spec).is_none_or(Medium::may_be_made),
        }
    }
}

/// Whether a part of a unit can be opened, and is what was served. Makes, locks and changes nothing. May take as long
/// as a file system or a server lets it.
///
/// # Errors
///
/// It cannot be opened, or is not what was served.
pub(super) fn look_expected(
    spec: &StoreSpec,
    place: &Place,
    opener: &Opener,
    expected: &Expected,
) -> Result<Found, StartError> {
    let asked = expected.asked(spec);
    let found = look_at_part(&asked, place, opener);
    let mut found = found.map_err(|error| expected.said((spec, place), error))?;
    found.is_other_file = expected.check((spec, place), &*found.store)?;
    Ok(found)
}

/// Opens a part of a unit, which has to be what was served; where a look has `found` it, it has to be that. May take as
/// long as a file system or a server lets it.
///
/// # Errors
///
/// It cannot be opened, or is not what was served.
pub(super) fn open_expected(
    (spec, place): (&StoreSpec, &Place),
    opener: &Opener,
    expected: &Expected,
    found: Option<&Found>,
) -> Result<Part, StartError> {
    let asked = expected.asked(spec);
    let store = open_part(&asked, place, opener, found);
    let store = store.map_err(|error| expected.said((spec, place), error))?;
    let is_other_file = match found {
        Some(found) => found.is_other_file,
        None => expected.check((spec, place), &*store)?,
    };
    grow(spec, place, &*store)?;
    Ok(Part {
        medium: medium_of((spec, place), &*store)?,
        store,
        is_other_file,
    })
}

/// What an open store is.
fn medium_of(
    (spec, place): (&StoreSpec, &Place),
    store: &dyn SharedStore,
) -> Result<Option<Medium>, MediumError> {
    Medium::of(spec, store).map_err(|source| MediumError::Unseen {
        place: place.clone(),
        source,
    })
}

/// Whether there is nothing at the place of a store.
fn is_missing(error: &StartError) -> bool {
    let is_local = |reason: &OpenFailure| {
        matches!(
            reason,
            OpenFailure::Missing
                | OpenFailure::MissingAndNoSize
                | OpenFailure::NoDirectory
                | OpenFailure::DanglingLink
        )
    };
    if let StartError::Store { source, .. } = error {
        return is_local(&source.reason);
    }
    let reason = |source: &RbdOpenError| matches!(source.reason, RbdFailure::Image { .. });
    matches!(error, StartError::Image { source, .. } if reason(source))
}

/// Gives a store the size that the configuration wants at least.
fn grow(spec: &StoreSpec, place: &Place, store: &dyn SharedStore) -> Result<(), MediumError> {
    let now = store.capabilities().size_bytes;
    let Some(size) = spec.configured_size_bytes().filter(|size| *size > now) else {
        return Ok(());
    };
    store.grow(size).map_err(|source| MediumError::NotGrown {
        place: place.clone(),
        size,
        now,
        source,
    })
}
