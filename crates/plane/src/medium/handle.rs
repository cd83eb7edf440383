//! Removable media as the administration sees and moves them.

use std::sync::mpsc;

use engine::{MediumFailure, MediumOrder};

use super::{MEDIUM_PATIENCE, MediumReport};
use crate::handle::Handle;
use crate::letter::Letter;
use crate::plan::UnitIndex;
use crate::receipt::NoAnswer;

impl Handle {
    /// Ejects or loads the medium of a unit. [`Handle::medium`] shows the change before this returns.
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
