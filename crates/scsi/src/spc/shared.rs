//! The state of a unit that commands can change. Every core holds the same immutable snapshot;
//! the owner core makes a new one for each change.

use store::WriteCache;

use crate::sam::nexus::NexusId;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::spc::reservation::Reservations;

use super::parameters::Modes;

/// A snapshot. What is per nexus (unit attentions, task sets) is not in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Counts the snapshots of a unit.
    pub generation: u64,
    /// Capacity.
    pub blocks: u64,
    /// The write cache of the store.
    pub cache: WriteCache,
    /// Mode parameters in force.
    pub modes: Modes,
    /// Mode parameters after a reset.
    pub saved_modes: Modes,
    /// Persistent and SPC-2 reservations.
    pub reservations: Reservations,
    /// START STOP UNIT stopped the unit.
    pub is_stopped: bool,
    /// START STOP UNIT or an administrator ejected the medium, or there is none. An eject is kept over a restart.
    pub is_ejected: bool,
    /// The generation since which the medium is out, or was for the last time. A command acts on the medium that was in
    /// when it began, and on no later one, which may be another.
    pub ejected_at: u64,
    /// What commands that need a medium are answered with where there is none.
    pub absent: SenseCode,
    /// How often the medium went or came.
    pub moves: u64,
    /// How often an administrator wanted it, and an initiator prevented that.
    pub wishes: u64,
    /// Who prevents the removal of the medium.
    ///
    /// Spec: SPC-4, PREVENT ALLOW MEDIUM REMOVAL.
    pub preventing: Vec<NexusId>,
}

impl Shared {
    /// Mode parameters as initiators see them.
    pub(crate) const fn shown_modes(&self) -> Modes {
        let mut modes = self.modes;
        modes.write_cache = self.cache.is_shown();
        modes
    }

    /// Saved mode parameters as initiators see them: what is saved for a cache that the store has not now stays saved.
    pub(crate) const fn shown_saved_modes(&self) -> Modes {
        let mut modes = self.saved_modes;
        modes.write_cache &= self.cache.is_there();
        modes
    }

    /// What an initiator saves.
    pub(crate) const fn save_modes(&mut self, modes: Modes) {
        let write_cache = self.saved_modes.write_cache;
        self.saved_modes = modes;
        if !self.cache.is_there() {
            self.saved_modes.write_cache = write_cache;
        }
    }

    /// Other mode parameters are in force.
    pub(crate) const fn set_modes(&mut self, modes: Modes) {
        self.modes = modes;
        self.cache.switch(modes.write_cache);
        self.modes.write_cache = self.cache.is_on();
    }

    /// Something becomes of the write cache.
    pub(crate) fn change_cache(&mut self, change: impl FnOnce(&mut WriteCache)) {
        change(&mut self.cache);
        self.modes.write_cache = self.cache.is_on();
    }

    /// Why commands that need the medium end in NOT READY, if they do.
    pub(crate) fn not_ready(&self) -> Option<Sense> {
        if let Err(sense) = self.check_medium() {
            return Some(sense);
        }
        let code = SenseCode::INITIALIZING_COMMAND_REQUIRED;
        self.is_stopped
            .then_some(Sense::new(SenseKey::NotReady, code))
    }

    /// NOT READY, MEDIUM NOT PRESENT where the medium is out.
    pub(crate) const fn check_medium(&self) -> Result<(), Sense> {
        if self.is_ejected {
            return Err(self.no_medium());
        }
        Ok(())
    }

    /// NOT READY, MEDIUM NOT PRESENT.
    pub(crate) const fn no_medium(&self) -> Sense {
        Sense::new(SenseKey::NotReady, self.absent)
    }

    /// Whether the tray of a drive is open.
    pub(crate) fn is_open(&self) -> bool {
        self.is_ejected && self.absent == SenseCode::MEDIUM_NOT_PRESENT_TRAY_OPEN
    }

    /// Whether nobody keeps the medium where it is. Prevention locks the drive: an initiator can neither
    /// eject nor load.
    ///
    /// Spec: SPC-4, PREVENT ALLOW MEDIUM REMOVAL.
    pub fn check_removal(&self) -> Result<(), Sense> {
        if !self.preventing.is_empty() {
            let code = SenseCode::MEDIUM_REMOVAL_PREVENTED;
            return Err(Sense::illegal_request(code));
        }
        Ok(())
    }

    /// Takes the medium out, which changes nothing where it is out, but that the tray of an empty drive opens. A nexus
    /// that prevents that goes on to do so for the time when the medium is in again. `absent` is what commands are
    /// answered with from now on.
    pub(crate) fn eject(&mut self, force: bool, absent: SenseCode) -> Result<(), Sense> {
        if !force && !self.is_ejected {
            self.check_removal()?;
        }
        self.take_out();
        self.absent = absent;
        self.is_stopped = false;
        Ok(())
    }

    /// The medium is out from the snapshot on that is being made.
    pub(crate) const fn take_out(&mut self) {
        if !self.is_ejected {
            self.is_ejected = true;
            self.ejected_at = self.generation + 1;
            self.moves += 1;
        }
    }

    /// Whether a restart finds the medium out.
    pub(crate) const fn is_kept_out(&self) -> bool {
        self.is_ejected && self.blocks > 0
    }

    /// The nexus prevents nothing any more.
    pub(crate) fn allow_removal(&mut self, nexus: NexusId) {
        self.preventing.retain(|id| *id != nexus);
    }
}
