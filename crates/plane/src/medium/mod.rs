//! Removable media. The core that owns a unit moves its medium; the administration orders and sees that.

mod core;
mod handle;

pub use handle::{Closed, ExchangeError, Hold, NotHeld};

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{MediumFailure, UnitIndex};

use crate::reserved::Reserved;

/// How long an administrator waits until a medium has moved. It may still move later.
pub const MEDIUM_PATIENCE: Duration = Duration::from_secs(25);

/// A removable medium at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MediumReport {
    /// It is in.
    pub is_in: bool,
    /// InitiatorNames of the sessions that prevent its removal.
    pub prevented_by: Vec<String>,
}

impl Default for MediumReport {
    /// The state of every unit at first.
    fn default() -> Self {
        Self {
            is_in: true,
            prevented_by: Vec::new(),
        }
    }
}

/// The media whose state has changed, and the reservations of all units. Each has one writer, the core that owns its
/// unit, and is read without asking that core.
#[derive(Debug, Default)]
pub(crate) struct Media {
    media: Mutex<HashMap<UnitIndex, MediumReport>>,
    pub(crate) reserved: Reserved,
}

impl Media {
    /// Every entry is whole even if a thread panicked: it is changed in one step.
    fn lock(&self) -> MutexGuard<'_, HashMap<UnitIndex, MediumReport>> {
        self.media.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, unit: UnitIndex, report: MediumReport) {
        self.lock().insert(unit, report);
    }

    fn get(&self, unit: UnitIndex) -> MediumReport {
        self.lock().get(&unit).cloned().unwrap_or_default()
    }
}

/// The media of a core's own units.
#[derive(Debug)]
pub(crate) struct CoreMedia {
    /// Orders under way, each with the channel of its caller.
    moving: Vec<(UnitIndex, Sender<Result<(), MediumFailure>>)>,
    pub(crate) shared: Arc<Media>,
}

impl CoreMedia {
    /// Nothing moves.
    pub(crate) fn new(shared: &Arc<Media>) -> Self {
        Self {
            moving: Vec::new(),
            shared: Arc::clone(shared),
        }
    }

    /// The unit is removed.
    pub(crate) fn remove(&self, unit: UnitIndex) {
        self.shared.lock().remove(&unit);
        self.shared.reserved.remove(unit);
    }

    fn place(&self, unit: UnitIndex) -> Option<usize> {
        self.moving.iter().position(|(other, _)| *other == unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_has_its_medium_in_until_its_core_says_otherwise() {
        let (media, unit) = (Media::default(), UnitIndex(3));
        assert_eq!(media.get(unit), MediumReport::default());
        let out = MediumReport {
            is_in: false,
            prevented_by: vec!["iqn.a".to_owned()],
        };
        media.set(unit, out.clone());
        assert_eq!(media.get(unit), out);
        assert!(media.get(UnitIndex(4)).is_in);
        let media = Arc::new(media);
        CoreMedia::new(&media).remove(unit);
        assert!(media.get(unit).is_in);
    }
}
