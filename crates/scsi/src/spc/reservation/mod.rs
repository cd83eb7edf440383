//! Reservations of one logical unit: persistent ones and those of RESERVE and RELEASE.
//!
//! This module owns who is registered with which key, who holds the unit, and which access
//! classes are therefore shut to whom. It knows the layout of the two PERSISTENT RESERVE commands
//! and of TransportIDs. It does not know sessions, cores, files or other commands: what follows
//! from a change (unit attentions, tasks to abort, state to keep) is handed back as [`Effects`].
//!
//! A change is made whole or not at all: a refused command leaves the state as it was.
//!
//! | Module | Does |
//! | --- | --- |
//! | `parse` | PERSISTENT RESERVE OUT: bytes to a typed request |
//! | `execute` | PERSISTENT RESERVE OUT: a request and a state to another state |
//! | `report` | PERSISTENT RESERVE IN |
//! | `kept` | what outlives a restart |
//! | `transport_id` | names of initiator ports |
//!
//! Spec: SPC-4, Reservations, PERSISTENT RESERVE IN, PERSISTENT RESERVE OUT; SPC-2, RESERVE and
//! RELEASE.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

mod execute;
mod kept;
mod parse;
mod report;
mod transport_id;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::sam::attention::UnitAttention;
use crate::sam::nexus::{NexusId, PortName};
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::table::access::Blocked;

use parse::Request;

pub use kept::KeptError;
pub(crate) use parse::BASIC_BYTES;
pub use transport_id::{TRANSPORT_ID_BYTES_MAX, canonical_transport_id, device_of};

/// How many I_T nexuses can be registered with one unit. One more is refused with INSUFFICIENT
/// REGISTRATION RESOURCES.
pub const REGISTRATIONS_MAX: usize = 256;

/// Nobody gets a further registration who has so many times as many as are free: a user with all of its initiator
/// ports, or a device of which no user is known.
pub const REGISTERED_PER_FREE_MAX: usize = 8;

/// What those who register others (SPEC_I_PT, REGISTER AND MOVE) leave free: they may name whom they like.
pub const REGISTRATIONS_KEPT: usize = REGISTRATIONS_MAX / 8;

/// The longest parameter list of PERSISTENT RESERVE OUT that can make sense, in bytes: a
/// TransportID for every registration there is room for. A longer one needs not be fetched.
pub const PARAMETER_LIST_BYTES_MAX: usize = 28 + REGISTRATIONS_MAX * TRANSPORT_ID_BYTES_MAX;

/// PERSISTENT RESERVATION INFORMATION LOST, of sense key DATA PROTECT.
const INFORMATION_LOST: Sense = Sense::new(
    SenseKey::DataProtect,
    SenseCode {
        asc: 0x44,
        ascq: 0x01,
    },
);

/// The type of a persistent reservation.
///
/// Spec: SPC-4, Persistent reservation type codes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum ReservationType {
    /// One holder writes, all others read.
    WriteExclusive = 0x1,
    /// One holder reads and writes.
    ExclusiveAccess = 0x3,
    /// One holder; who is registered writes, all others read.
    WriteExclusiveRegistrantsOnly = 0x5,
    /// One holder; who is registered reads and writes.
    ExclusiveAccessRegistrantsOnly = 0x6,
    /// Who is registered is a holder and writes, all others read.
    WriteExclusiveAllRegistrants = 0x7,
    /// Who is registered is a holder, reads and writes.
    ExclusiveAccessAllRegistrants = 0x8,
}

impl ReservationType {
    /// Every type, in the order of the codes.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Its name, in words of the standard.
    pub const fn word(self) -> &'static str {
        match self {
            Self::WriteExclusive => "write-exclusive",
            Self::ExclusiveAccess => "exclusive-access",
            Self::WriteExclusiveRegistrantsOnly => "write-exclusive-registrants-only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive-access-registrants-only",
            Self::WriteExclusiveAllRegistrants => "write-exclusive-all-registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive-access-all-registrants",
        }
    }

    /// Every registered I_T nexus is a holder.
    pub const fn is_all_registrants(self) -> bool {
        match self {
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants => true,
            Self::WriteExclusive
            | Self::ExclusiveAccess
            | Self::WriteExclusiveRegistrantsOnly
            | Self::ExclusiveAccessRegistrantsOnly => false,
        }
    }

    /// To be registered is enough for access.
    const fn admits_registrants(self) -> bool {
        match self {
            Self::WriteExclusive | Self::ExclusiveAccess => false,
            Self::WriteExclusiveRegistrantsOnly
            | Self::ExclusiveAccessRegistrantsOnly
            | Self::WriteExclusiveAllRegistrants
            | Self::ExclusiveAccessAllRegistrants => true,
        }
    }

    /// What is shut to those whom the reservation does not admit.
    const fn shuts(self) -> Blocked {
        match self {
            Self::WriteExclusive
            | Self::WriteExclusiveRegistrantsOnly
            | Self::WriteExclusiveAllRegistrants => Blocked::WRITE,
            Self::ExclusiveAccess
            | Self::ExclusiveAccessRegistrantsOnly
            | Self::ExclusiveAccessAllRegistrants => Blocked::READ_AND_WRITE,
        }
    }
}

/// One registered I_T nexus.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Registration {
    /// Its names.
    pub port: PortName,
    /// Never zero.
    pub key: u64,
}

/// The persistent reservation. Its scope is always the logical unit.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Held {
    kind: ReservationType,
    /// The holder, always registered; `None` exactly for the all registrants types.
    by: Option<PortName>,
}

impl Held {
    fn new(kind: ReservationType, by: &PortName) -> Self {
        Self {
            kind,
            by: (!kind.is_all_registrants()).then(|| by.clone()),
        }
    }
}

/// What the command needs to know of the surroundings of the unit.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The relative identifiers of all target ports through which the unit can be reached.
    pub target_ports: &'a [u16],
    /// The TransportIDs of the initiator ports that are logged in, in the form of
    /// [`canonical_transport_id`]. Needed where a TransportID names a device instead of a port.
    pub initiator_ports: &'a [Arc<[u8]>],
    /// There is a place to keep [`Reservations::encode`] over a restart.
    pub can_persist: bool,
}

/// What a command that went well leaves to do, all of it before the command is answered.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Effects {
    /// Unit attentions to establish. Never for the nexus that sent the command.
    pub attentions: Vec<(PortName, UnitAttention)>,
    /// Nexuses whose tasks end (PREEMPT AND ABORT). The sender's own name may be among them; its
    /// PERSISTENT RESERVE OUT itself goes on.
    pub abort_tasks_of: Vec<PortName>,
    /// [`Reservations::encode`] has changed and must be on stable storage.
    pub persist: bool,
}

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// RESERVATION CONFLICT.
    Conflict,
    /// CHECK CONDITION with this sense data.
    Check(Sense),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

/// All reservations of one logical unit.
///
/// Invariants: a nexus is registered once and with a key that is not zero; the holder of a
/// persistent reservation is registered, and one of an all registrants type has a registration;
/// an SPC-2 reservation and registrations exclude each other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reservations {
    /// In the order of registration.
    registrations: Vec<Registration>,
    held: Option<Held>,
    /// PRgeneration.
    generation: u32,
    /// The last APTPL bit: registrations and reservation outlive a restart.
    is_kept: bool,
    /// The kept state could not be read; only REPLACE LOST RESERVATION helps.
    is_lost: bool,
    /// Holder of the SPC-2 reservation.
    reserved_by: Option<NexusId>,
}

impl Reservations {
    /// The state of a unit whose kept reservations are known to have existed and cannot be read.
    ///
    /// Until a REPLACE LOST RESERVATION the unit must end every command with
    /// [`Reservations::lost_sense`], except that one, INQUIRY, LOG SENSE, READ BUFFER, REPORT LUNS,
    /// REPORT TARGET PORT GROUPS, REQUEST SENSE, START STOP UNIT (START) and WRITE BUFFER.
    ///
    /// Spec: SPC-4, Recoverable loss of persistent reservation information.
    pub fn lost() -> Self {
        Self {
            is_lost: true,
            ..Self::default()
        }
    }

    /// What to end a command with while the kept reservations are lost.
    pub fn lost_sense(&self) -> Option<Sense> {
        self.is_lost.then_some(INFORMATION_LOST)
    }

    /// The access classes that this nexus may not use now.
    ///
    /// Spec: SPC-4, table of commands that are allowed in the presence of various reservations.
    pub fn blocked(&self, nexus: NexusId, port: &PortName) -> Blocked {
        if self.reserved_by.is_some_and(|holder| holder != nexus) {
            return Blocked::ALL;
        }
        match &self.held {
            Some(held) if !self.is_admitted(port) => held.kind.shuts(),
            Some(_) | None => Blocked::NONE,
        }
    }

    /// RESERVE (6) and (10) of a whole unit for the sender.
    ///
    /// Spec: SPC-2, RESERVE; SPC-4, Exceptions to SPC-2 RESERVE and RELEASE behavior.
    pub fn reserve(&mut self, nexus: NexusId, port: &PortName) -> Result<(), Refusal> {
        if !self.yields_to_persistent(port)? {
            match self.reserved_by {
                Some(holder) if holder != nexus => return Err(Refusal::Conflict),
                Some(_) | None => self.reserved_by = Some(nexus),
            }
        }
        Ok(())
    }

    /// RELEASE (6) and (10) of a whole unit. From any other than the holder it does nothing, and
    /// does that well.
    ///
    /// Spec: as for [`Reservations::reserve`].
    pub fn release(&mut self, nexus: NexusId, port: &PortName) -> Result<(), Refusal> {
        if !self.yields_to_persistent(port)? {
            self.nexus_lost(nexus);
        }
        Ok(())
    }

    /// The nexus is no more: its SPC-2 reservation goes, persistent ones stay.
    pub fn nexus_lost(&mut self, nexus: NexusId) {
        self.reserved_by = self.reserved_by.filter(|&holder| holder != nexus);
    }

    /// A hard or logical unit reset: an SPC-2 reservation goes, persistent ones stay.
    pub fn reset(&mut self) {
        self.reserved_by = None;
    }

    /// PERSISTENT RESERVE OUT: parsed, then carried out whole or not at all.
    ///
    /// `parameters` is what the initiator sent, at least as much as the PARAMETER LIST LENGTH of
    /// the CDB; at most [`PARAMETER_LIST_BYTES_MAX`] bytes of it are ever looked at with success.
    /// Bits of the CDB outside the fields of the command are the command table's.
    ///
    /// Spec: SPC-4, PERSISTENT RESERVE OUT.
    pub fn persistent_reserve_out(
        &mut self,
        from: &PortName,
        cdb: &[u8],
        parameters: &[u8],
        surroundings: &Surroundings<'_>,
    ) -> Result<Effects, Refusal> {
        // SPC-2, Reservations overview: an SPC-2 reservation shuts the persistent commands out,
        // for its holder too.
        if self.reserved_by.is_some() {
            return Err(Refusal::Conflict);
        }
        let request = Request::parse(cdb, parameters, &from.transport_id)?;
        let (next, effects) = self.execute(from, &request, surroundings)?;
        *self = next;
        Ok(effects)
    }

    /// What CLEAR does, for an administrator, who has no registration and gives no key: nothing is reserved and nobody
    /// is registered any more. Reservations that were lost count as cleared, too, and an SPC-2 reservation is released.
    ///
    /// Spec: SPC-4, Clearing.
    pub fn clear(&mut self) -> Effects {
        let mut effects = Effects::default();
        if self.is_none() {
            return effects;
        }
        let next = Self {
            generation: self.generation.wrapping_add(1),
            is_kept: self.is_kept,
            ..Self::default()
        };
        effects.persist = self.is_lost || self.encode() != next.encode();
        let before = std::mem::replace(self, next).registrations;
        let preempted = |one: Registration| (one.port, UnitAttention::ReservationsPreempted);
        effects.attentions = before.into_iter().map(preempted).collect();
        effects
    }

    /// Nothing is reserved, nobody is registered, and nothing was lost.
    pub fn is_none(&self) -> bool {
        self.registrations.is_empty() && self.reserved_by.is_none() && !self.is_lost
    }

    /// Who is registered, in the order of registration.
    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    /// The one holder of the persistent reservation; `None` without one, or where every registered nexus holds it.
    pub fn holder(&self) -> Option<&PortName> {
        self.held.as_ref()?.by.as_ref()
    }

    /// The holder of the SPC-2 reservation.
    pub const fn reserved_by(&self) -> Option<NexusId> {
        self.reserved_by
    }

    /// Registrations and reservation outlive a restart: the last APTPL bit.
    pub const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The type of the persistent reservation, if there is one.
    pub fn held_type(&self) -> Option<ReservationType> {
        self.held.as_ref().map(|held| held.kind)
    }

    /// How many nexuses are registered.
    pub fn registration_count(&self) -> usize {
        self.registrations.len()
    }

    /// True when RESERVE and RELEASE end well without an effect, because the persistent
    /// reservation already gives the sender what it wants.
    fn yields_to_persistent(&self, port: &PortName) -> Result<bool, Refusal> {
        if let Some(sense) = self.lost_sense() {
            return Err(sense.into());
        }
        if self.held.is_some() && self.is_admitted(port) {
            return Ok(true);
        }
        // SPC-2 (Reservations overview): one registration is enough to shut the old commands out.
        if self.registrations.is_empty() {
            Ok(false)
        } else {
            Err(Refusal::Conflict)
        }
    }

    /// The persistent reservation, if any, stands in no way of this nexus.
    fn is_admitted(&self, port: &PortName) -> bool {
        let registrants_too = self
            .held
            .as_ref()
            .is_some_and(|held| held.kind.admits_registrants());
        self.is_holder(port) || registrants_too && self.key_of(port).is_some()
    }

    /// Spec: SPC-4, Persistent reservation holder.
    fn is_holder(&self, port: &PortName) -> bool {
        match &self.held {
            Some(held) => match &held.by {
                Some(holder) => holder.admits(port),
                None => self.key_of(port).is_some(),
            },
            None => false,
        }
    }

    /// A registration that somebody else made for this nexus belongs to it from its first command on.
    fn bind(&mut self, port: &PortName) {
        let names = self.registrations.iter_mut().map(|one| &mut one.port);
        let holder = self.held.as_mut().and_then(|held| held.by.as_mut());
        for name in names.chain(holder) {
            if name.admits(port) {
                name.principal = port.principal.clone();
            }
        }
    }

    /// A registration of these ports, whatever initiator has them.
    fn registration_of_ports(&self, port: &PortName) -> Option<&Registration> {
        let mut registrations = self.registrations.iter();
        registrations.find(|registration| registration.port.has_same_ports(port))
    }

    fn key_of(&self, port: &PortName) -> Option<u64> {
        self.registrations
            .iter()
            .find(|registration| registration.port.admits(port))
            .map(|registration| registration.key)
    }
}
