//! The gate that every command of a nexus passes: unit attentions, reservations, readiness, write
//! protection.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use super::shared::Shared;
use crate::sam::attention::{AttentionQueue, UnitAttention};
use crate::sam::cdb::Cdb;
use crate::sam::command::Outcome;
use crate::sam::failure;
use crate::sam::nexus::Nexus;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::sam::task_set::TaskSet;
use crate::table::access::Blocked;
use crate::table::row::{CommandSpec, Traits};

/// What a read-only view of a unit has no right to.
const NEEDS_RIGHT_TO_WRITE: Traits = Traits::WRITES.with(Traits::ALTERS);

/// Why a core keeps commands from the medium, beside what the shared state says.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Shut {
    /// An I/O of the past is not accounted for.
    pub(crate) refuses_access: bool,
    /// Another client has the medium.
    pub(crate) is_held_elsewhere: bool,
}

impl Shut {
    /// Why commands that need the medium end in NOT READY, if they do.
    pub(crate) fn not_ready(self, shared: &Shared) -> Option<Sense> {
        let refused = Sense::new(SenseKey::NotReady, SenseCode::LOGICAL_UNIT_NOT_READY);
        self.refuses_access
            .then_some(refused)
            .or_else(|| shared.not_ready())
            .or_else(|| self.is_held_elsewhere.then(failure::held_elsewhere))
    }

    /// The same for this command, if it is one that needs the medium.
    fn refusal(self, spec: &CommandSpec, shared: &Shared) -> Option<Sense> {
        let is_there = Self {
            is_held_elsewhere: self.is_held_elsewhere
                && !spec.traits.has(Traits::WHEN_HELD_ELSEWHERE),
            ..self
        };
        // Reservations and modes belong to the medium, and the other client keeps them.
        if self.is_held_elsewhere && spec.traits.has(Traits::ALTERS) {
            return Some(failure::held_elsewhere());
        }
        let needs_medium = !spec.traits.has(Traits::WHEN_NOT_READY);
        needs_medium.then(|| is_there.not_ready(shared)).flatten()
    }
}

/// What became of the medium of a drive.
///
/// Spec: MMC-6, Media event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MediaEvent {
    /// Nothing that the nexus has not heard of.
    None,
    /// An administrator wants it.
    EjectRequest,
    /// One came.
    NewMedia,
    /// It is gone.
    Removal,
}

/// A nexus that is attached on this core.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) nexus: Nexus,
    pub(crate) tasks: TaskSet,
    attentions: AttentionQueue,
    blocked: Blocked,
    /// What the nexus has heard of the medium: moves and wishes.
    heard: (u64, u64),
    /// As the unit's.
    shut: Shut,
    /// Something must be looked at before a command may run. Tested once per command.
    is_gated: bool,
}

impl Gate {
    /// A nexus whose first unit attention is `reason`.
    pub(crate) fn new(
        nexus: Nexus,
        reason: Option<UnitAttention>,
        shut: Shut,
        shared: &Shared,
    ) -> Self {
        let mut gate = Self {
            nexus,
            tasks: TaskSet::default(),
            attentions: AttentionQueue::default(),
            blocked: Blocked::NONE,
            heard: (shared.moves, shared.wishes),
            shut,
            is_gated: false,
        };
        gate.tell(reason, shared);
        gate
    }

    /// Queues unit attentions for the nexus, and evaluates the snapshot again.
    pub(crate) fn tell(
        &mut self,
        attentions: impl IntoIterator<Item = UnitAttention>,
        shared: &Shared,
    ) {
        for attention in attentions {
            self.attentions.push(attention);
        }
        self.refresh(shared);
    }

    /// Takes the next unit attention out.
    pub(crate) fn take_attention(&mut self, shared: &Shared) -> Option<UnitAttention> {
        let attention = self.attentions.pop();
        self.refresh(shared);
        attention
    }

    /// What the nexus has not heard of the medium; the next one when this was told.
    pub(crate) fn media_event(&mut self, shared: &Shared, is_told: bool) -> MediaEvent {
        let (moves, wishes) = self.heard;
        let (event, heard) = if shared.is_ejected || wishes == shared.wishes {
            let event = match (moves == shared.moves, shared.is_ejected) {
                (true, _) => MediaEvent::None,
                (false, false) => MediaEvent::NewMedia,
                (false, true) => MediaEvent::Removal,
            };
            (event, (shared.moves, shared.wishes))
        } else {
            (MediaEvent::EjectRequest, (moves, shared.wishes))
        };
        if is_told {
            self.heard = heard;
        }
        event
    }

    /// Another command has reported what the unit attention would report.
    pub(crate) fn forget(&mut self, attention: UnitAttention, shared: &Shared) {
        self.attentions.remove(attention);
        self.refresh(shared);
    }

    /// Commands that need the medium end in NOT READY from now on, or run again.
    pub(crate) fn set_shut(&mut self, shut: Shut, shared: &Shared) {
        self.shut = shut;
        self.refresh(shared);
    }

    /// Decides whether a command may run: unit attention and reservation, readiness, fields of the
    /// CDB, write protection, in this order.
    ///
    /// Spec: SAM-6, Status precedence, Unit attention conditions.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        spec: &CommandSpec,
        cdb: &Cdb,
        shared: &Shared,
        is_read_only: bool,
    ) -> Result<(), Outcome> {
        if self.is_gated {
            self.pass(spec, cdb, shared)?;
        }
        spec.check_fields(cdb).map_err(Outcome::check)?;
        if spec.traits.has_any(NEEDS_RIGHT_TO_WRITE)
            && let Some(sense) = self.refusal(spec, cdb, shared, is_read_only)
        {
            return Err(Outcome::check(sense));
        }
        Ok(())
    }

    /// Computes what the gate must look at.
    fn refresh(&mut self, shared: &Shared) {
        self.blocked = shared.reservations.blocked(self.nexus.id, &self.nexus.port);
        self.is_gated = !self.attentions.is_empty()
            || self.blocked != Blocked::NONE
            || self.shut.not_ready(shared).is_some()
            || shared.reservations.lost_sense().is_some();
    }

    /// The rare side of admission. A reset is reported before a reservation conflict, other unit
    /// attentions after it.
    fn pass(&mut self, spec: &CommandSpec, cdb: &Cdb, shared: &Shared) -> Result<(), Outcome> {
        let tells = !spec.traits.has(Traits::BYPASSES_ATTENTION);
        let reset = self.attentions.first().filter(|first| first.is_reset());
        if tells && reset.is_some() {
            return Err(self.told(shared));
        }
        if self.blocked.contains(spec.access_of(cdb)) {
            return Err(Outcome::status(Status::ReservationConflict));
        }
        if tells && !self.attentions.is_empty() {
            return Err(self.told(shared));
        }
        if let Some(sense) = shared.reservations.lost_sense()
            && !spec.traits.has(Traits::WHEN_LOST)
        {
            return Err(Outcome::check(sense));
        }
        match self.shut.refusal(spec, shared) {
            Some(sense) => Err(Outcome::check(sense)),
            None => Ok(()),
        }
    }

    /// The next unit attention instead of the command.
    fn told(&mut self, shared: &Shared) -> Outcome {
        self.take_attention(shared)
            .map_or_else(Outcome::good, |told| Outcome::check(told.sense()))
    }

    /// Why this nexus may not have a command that changes blocks or the unit, if it may not.
    fn refusal(
        &self,
        spec: &CommandSpec,
        cdb: &Cdb,
        shared: &Shared,
        is_read_only: bool,
    ) -> Option<Sense> {
        if spec.traits.has(Traits::WRITES) {
            self.write_protection(shared, is_read_only)
        } else {
            view_refusal(&self.nexus, spec, cdb, shared)
        }
    }

    /// Why this nexus cannot write, if it cannot.
    pub(crate) fn write_protection(&self, shared: &Shared, is_read_only: bool) -> Option<Sense> {
        let code = if shared.modes.software_write_protect {
            SenseCode::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED
        } else if self.nexus.read_only || is_read_only {
            SenseCode::WRITE_PROTECTED
        } else {
            return None;
        };
        Some(Sense::new(SenseKey::DataProtect, code))
    }
}

/// Why a nexus that sees the unit read-only may not have this command, if it may not: the command
/// would change the unit for others. Asked where the command is admitted, and again by the owner.
pub(crate) fn view_refusal(
    from: &Nexus,
    spec: &CommandSpec,
    cdb: &Cdb,
    shared: &Shared,
) -> Option<Sense> {
    let is_refused = from.read_only && alters(spec, cdb, shared);
    is_refused.then_some(Sense::new(
        SenseKey::DataProtect,
        SenseCode::WRITE_PROTECTED,
    ))
}

/// Whether the command would change the unit for other nexuses: the column of the table, except
/// for two commands where a field, or the unit, decides.
fn alters(spec: &CommandSpec, cdb: &Cdb, shared: &Shared) -> bool {
    let is_off = shared.is_stopped || shared.is_ejected;
    let starts_what_runs = spec.starts(cdb) && !is_off;
    spec.traits.has(Traits::ALTERS) && !starts_what_runs && !spec.allows_removal(cdb)
}
