//! Where the state of the unit is kept: it outlives crashes of the target, and another target may save there.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{Save, SaveError, SavedState, StateAuthority, Version};

/// The authority of the one unit.
#[derive(Debug, Default)]
pub struct Authority(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    saved: Option<SavedState>,
    /// Another target has saved it, and the one under test has not loaded it since.
    is_foreign: bool,
    /// That was replaced all the same.
    is_overwritten: bool,
}

impl Authority {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another target saves.
    pub fn save_of_another(&self, state: Vec<u8>) {
        let mut kept = self.lock();
        let version = after(kept.version());
        kept.saved = Some(SavedState { version, state });
        kept.is_foreign = true;
    }

    /// What is saved, unless another target has saved it.
    pub fn own(&self) -> Option<SavedState> {
        let kept = self.lock();
        kept.saved.clone().filter(|_| !kept.is_foreign)
    }

    /// What another target had saved was replaced by one that did not know it.
    pub fn is_overwritten(&self) -> bool {
        self.lock().is_overwritten
    }
}

impl Kept {
    fn version(&self) -> Option<Version> {
        self.saved.as_ref().map(|saved| saved.version)
    }
}

fn after(last: Option<Version>) -> Version {
    Version(last.map_or(0, |last| last.0) + 1)
}

impl StateAuthority for Authority {
    fn load(&self) -> io::Result<Option<SavedState>> {
        let mut kept = self.lock();
        kept.is_foreign = false;
        Ok(kept.saved.clone())
    }

    fn save(&self, save: &Save) -> Result<Version, SaveError> {
        let mut kept = self.lock();
        match kept.version() {
            found if found == save.replaces => {}
            Some(found) => {
                let advice = "another target has saved".to_owned();
                return Err(SaveError::Conflict { found, advice });
            }
            None => {
                let nothing = io::Error::other("there is no state to replace");
                return Err(SaveError::Failed(nothing));
            }
        }
        kept.is_overwritten |= kept.is_foreign;
        let (version, state) = (after(save.replaces), save.state.clone());
        kept.saved = Some(SavedState { version, state });
        Ok(version)
    }
}
