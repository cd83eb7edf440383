//! Removable media, as the administration moves and sees them. Each is the business of the core that
//! owns its unit.

use std::collections::HashMap;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::{MediumFailure, MediumOrder};
use front::iscsi::initiator_name;

use crate::core::Core;
use crate::handle::{Handle, NoAnswer};
use crate::letter::Letter;
use crate::plan::UnitIndex;

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
    /// As every unit begins.
    fn default() -> Self {
        Self {
            is_in: true,
            prevented_by: Vec::new(),
        }
    }
}

/// The media that are not as they were at the beginning. Each has one writer, the core that owns its
/// unit; nobody is asked for it.
#[derive(Debug, Default)]
pub(crate) struct Media(Mutex<HashMap<UnitIndex, MediumReport>>);

impl Media {
    /// Every entry is whole, whatever a thread that panicked was about to do.
    fn lock(&self) -> MutexGuard<'_, HashMap<UnitIndex, MediumReport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    shared: Arc<Media>,
}

impl CoreMedia {
    /// Nothing moves.
    pub(crate) fn new(shared: &Arc<Media>) -> Self {
        Self {
            moving: Vec::new(),
            shared: Arc::clone(shared),
        }
    }

    /// The unit is gone.
    pub(crate) fn forget(&self, unit: UnitIndex) {
        self.shared.lock().remove(&unit);
    }

    fn place(&self, unit: UnitIndex) -> Option<usize> {
        self.moving.iter().position(|(other, _)| *other == unit)
    }
}

impl Core {
    /// One order at a time for each unit: another one is answered at once.
    pub(crate) fn handle_move_medium(
        &mut self,
        unit: UnitIndex,
        order: MediumOrder,
        answer: Sender<Result<(), MediumFailure>>,
    ) {
        if self.media.place(unit).is_some() {
            // The caller may have lost patience.
            drop(answer.send(Err(MediumFailure::Busy)));
            return;
        }
        self.media.moving.push((unit, answer));
        self.engine.move_medium(unit, order);
    }

    pub(crate) fn handle_medium_moved(
        &mut self,
        unit: UnitIndex,
        outcome: Result<(), MediumFailure>,
    ) {
        let Some(at) = self.media.place(unit) else {
            debug_assert!(false, "nobody has asked for {unit:?}");
            return;
        };
        let (_, answer) = self.media.moving.swap_remove(at);
        // The caller may have lost patience.
        drop(answer.send(outcome));
    }

    pub(crate) fn publish_medium(&self, unit: UnitIndex) {
        let medium = self.engine.owner(unit).and_then(|owner| owner.medium());
        if let Some(medium) = medium {
            let names = medium.prevented_by.iter();
            let report = MediumReport {
                is_in: medium.is_in,
                prevented_by: names
                    .map(|port| initiator_name(&port.transport_id))
                    .collect(),
            };
            self.media.shared.set(unit, report);
        }
    }
}

impl Handle {
    /// Ejects or loads the medium of a unit. What [`Handle::medium`] says follows before the answer.
    ///
    /// # Errors
    ///
    /// The outer one: the core does not answer in time, and may still do it. The inner one: why the
    /// medium is where it was.
    pub fn move_medium(
        &self,
        unit: UnitIndex,
        order: MediumOrder,
    ) -> Result<Result<(), MediumFailure>, NoAnswer> {
        let (answer, answered) = mpsc::channel();
        let owner = unit.as_usize() % self.posts.len().max(1);
        if let Some(post) = self.posts.get(owner) {
            post.push(Letter::MoveMedium {
                unit,
                order,
                answer,
            });
        }
        answered.recv_timeout(MEDIUM_PATIENCE).map_err(|_| NoAnswer)
    }

    /// The medium of a unit, if that is removable. No core is asked.
    pub fn medium(&self, unit: UnitIndex) -> MediumReport {
        self.media.get(unit)
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
        CoreMedia::new(&media).forget(unit);
        assert!(media.get(unit).is_in);
    }
}
