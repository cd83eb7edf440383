//! Stores of units that are open, or that something stands in for.

use std::path::PathBuf;
use std::sync::Arc;

use store::{Composed, Form, Held, Logged, OpenOptions, SharedStore};

use super::held::Withheld;
use crate::StartError;
use crate::medium::{Medium, positions};

/// How an open store stands to a log.
#[derive(Clone, Debug)]
pub(crate) enum LogUse {
    /// It has none, or is not served.
    None,
    /// It is served with it.
    InUse(Arc<Logged>),
}

/// A part of a unit, as it was opened.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) store: Arc<dyn SharedStore>,
    /// What it is; `None`: memory.
    pub(super) medium: Option<Medium>,
    /// It is another file than the one that was served last.
    pub(super) is_other_file: bool,
}

/// A store that is open.
#[derive(Clone, Debug)]
pub(crate) struct OpenStore {
    /// What the data plane gets.
    pub(crate) store: Arc<dyn SharedStore>,
    /// The same, if it is a composition.
    pub(crate) composed: Option<Arc<Composed>>,
    /// What has the data, if it is not the same.
    under: Option<Arc<dyn SharedStore>>,
    /// How it stands to a log.
    pub(crate) log: LogUse,
    /// Why it is not served.
    pub(crate) held: Option<Withheld>,
    /// What its parts are, in their order; `None`: memory, or not known.
    pub(crate) media: Vec<Option<Medium>>,
    /// What its log is, while that is in use.
    log_medium: Option<Medium>,
    /// A part is another file than the one that was served last.
    pub(crate) has_other_file: bool,
}

impl OpenStore {
    pub(super) fn plain(store: Arc<dyn SharedStore>) -> Self {
        Self {
            store,
            composed: None,
            under: None,
            log: LogUse::None,
            held: None,
            media: Vec::new(),
            log_medium: None,
            has_other_file: false,
        }
    }

    /// The same, with a log before it.
    pub(super) fn with_log(self, logged: Arc<Logged>, log_medium: Option<Medium>) -> Self {
        Self {
            log_medium,
            store: Arc::clone(&logged) as Arc<dyn SharedStore>,
            under: Some(self.store),
            log: LogUse::InUse(logged),
            ..self
        }
    }

    /// The same, which is not served, for this reason.
    pub(super) fn held(self, stand_in: Arc<Held>, reason: Withheld) -> Self {
        Self {
            store: stand_in,
            under: Some(self.store),
            log: LogUse::None,
            held: Some(reason),
            ..self
        }
    }

    /// The composition that it is, if that is a concat.
    pub(crate) fn concat(&self) -> Option<&Composed> {
        let composed = self.composed.as_deref();
        composed.filter(|composed| composed.form() == Form::Concat)
    }

    /// The stores that have the data, in the order of [`config::Unit::parts`].
    pub(crate) fn parts(&self) -> Vec<Arc<dyn SharedStore>> {
        match &self.composed {
            Some(composed) => {
                let members = composed.members();
                members.iter().map(|one| Arc::clone(&one.store)).collect()
            }
            None => vec![Arc::clone(self.under.as_ref().unwrap_or(&self.store))],
        }
    }

    /// What its parts and its log are, with the sizes that they have now and where each is in the unit; `None` while it
    /// is not served, and for memory.
    pub(crate) fn media_now(&self, unit: &config::Unit) -> Option<Vec<Medium>> {
        let parts = self.parts().into_iter().zip(positions(&unit.store));
        let media = self.media.iter().zip(parts);
        let media = media.filter_map(|(medium, (part, position))| {
            Some(medium.as_ref()?.with_size_of(&*part).at(position))
        });
        let media: Vec<_> = media.chain(self.log_medium.clone()).collect();
        (self.held.is_none() && !media.is_empty()).then_some(media)
    }

    /// Their sizes in bytes.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let parts = self.parts();
        parts
            .iter()
            .map(|one| one.capabilities().size_bytes)
            .collect()
    }

    /// Those, and then the log device that is in use: all that quotas count.
    pub(crate) fn counted(&self) -> Vec<Arc<dyn SharedStore>> {
        let log = match &self.log {
            LogUse::InUse(logged) => Some(logged.device()),
            LogUse::None => None,
        };
        self.parts().into_iter().chain(log).collect()
    }
}

/// What stands in for the store of a unit that cannot be served now. `size_bytes` is what it had when it was served
/// last.
///
/// # Errors
///
/// The size is none that a disk can have.
pub(crate) fn withheld(
    unit: &config::Unit,
    size_bytes: Option<u64>,
    error: &StartError,
) -> Result<OpenStore, StartError> {
    let reason = Withheld::of(error);
    let (lun, why) = (unit.to_string(), &reason.why);
    tracing::error!(lun, why, "a lun is not ready");
    let opened = stand_in(unit, size_bytes)?;
    let store = Held::new(opened.store.capabilities());
    Ok(opened.held(Arc::new(store), reason))
}

/// The size of a stand-in for a store of which nothing is known.
const SIZE_UNKNOWN: u64 = 1 << 20;

/// What stands in for a store that is not touched.
pub(crate) fn stand_in(
    unit: &config::Unit,
    size_bytes: Option<u64>,
) -> Result<OpenStore, StartError> {
    if !unit.store.is_disk() {
        // An empty drive.
        let options = OpenOptions::new(store::StoreKind::Disc, PathBuf::new());
        return opened(unit, &options);
    }
    let mut options = OpenOptions::new(store::StoreKind::Null, PathBuf::new());
    let block_bytes = unit.store.block_size.bytes();
    let is_whole = |size: &u64| *size > 0 && size.is_multiple_of(block_bytes.into());
    options.size_bytes = size_bytes.filter(is_whole).or(Some(SIZE_UNKNOWN));
    options.block_bytes = Some(block_bytes);
    options.read_only = true;
    opened(unit, &options)
}

fn opened(unit: &config::Unit, options: &OpenOptions) -> Result<OpenStore, StartError> {
    let opened = options.open().map_err(|source| StartError::Store {
        place: unit.place.clone(),
        source,
    });
    opened.map(OpenStore::plain)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::Model;

    use super::*;

    #[test]
    fn a_stand_in_has_the_size_that_was_served_where_that_is_one() {
        let text = "[[lun]]\nid = \"a\"\nstore = \"mem:1M?blocksize=4096\"\n\
                    [[lun]]\nid = \"d\"\nstore = \"cdrom:/none.iso\"\n";
        let model = Model::from_toml(text, Path::new("/t.toml")).unwrap();
        let found = |at: usize, size| {
            let opened = stand_in(&model.units()[at], size).ok().unwrap();
            let facts = opened.store.capabilities();
            (facts.size_bytes, facts.block_bytes)
        };
        for (size, expected) in [
            (None, SIZE_UNKNOWN),
            (Some(0), SIZE_UNKNOWN),
            (Some(4096), 4096),
            (Some(4608), SIZE_UNKNOWN),
            (Some(3 * 4096), 3 * 4096),
        ] {
            assert_eq!(found(0, size), (expected, 4096), "{size:?}");
        }
        assert_eq!(found(1, Some(4096)), (0, 2048), "an empty drive");
    }
}
