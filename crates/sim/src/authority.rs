//! Where the state of the unit is kept: it outlives crashes of the target, another target may save there, and a save
//! may be done although the answer is that this is not certain.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::{Save, SaveError, SavedState, StateAuthority, Version};

/// The authority of the one unit.
#[derive(Debug, Default)]
pub struct Authority(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    saved: Option<SavedState>,
    /// The last save that was done and not answered as such.
    left: Option<Version>,
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

    /// Saves, and answers that this is not certain.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn save_uncertainly(&self, save: &Save) -> Result<Version, SaveError> {
        let version = self.save(save)?;
        self.lock().left = Some(version);
        Err(SaveError::Uncertain(io::Error::other("no answer")))
    }

    /// What is saved.
    pub fn saved(&self) -> Option<SavedState> {
        self.lock().saved.clone()
    }

    /// Another target has saved it, and the one under test has not loaded it since.
    pub fn is_foreign(&self) -> bool {
        self.lock().is_foreign
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
            found if found == save.replaces || found.is_some() && found == kept.left => {}
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
        let (version, state) = (after(kept.version()), save.state.clone());
        (kept.saved, kept.left) = (Some(SavedState { version, state }), None);
        Ok(version)
    }
}
