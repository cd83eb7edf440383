//! The state of a unit that commands can change. Every core holds the same immutable snapshot;
//! the owner core makes a new one for each change.

use crate::sam::nexus::NexusId;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::spc::reservation::Reservations;

use super::mode::Modes;

/// A snapshot. What is per nexus (unit attentions, task sets) is not in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Counts the snapshots of a unit.
    pub generation: u64,
    /// Capacity.
    pub blocks: u64,
    /// Mode parameters in force.
    pub modes: Modes,
    /// Mode parameters after a reset.
    pub saved_modes: Modes,
    /// Persistent and SPC-2 reservations.
    pub reservations: Reservations,
    /// START STOP UNIT stopped the unit.
    pub is_stopped: bool,
    /// START STOP UNIT ejected the medium.
    pub is_ejected: bool,
    /// Who prevents the removal of the medium.
    pub preventing: Vec<NexusId>,
}

impl Shared {
    /// Why commands that need the medium end in NOT READY, if they do.
    pub(crate) fn not_ready(&self) -> Option<Sense> {
        let code = if self.is_ejected {
            SenseCode::MEDIUM_NOT_PRESENT
        } else if self.is_stopped {
            SenseCode::INITIALIZING_COMMAND_REQUIRED
        } else {
            return None;
        };
        Some(Sense::new(SenseKey::NotReady, code))
    }
}
