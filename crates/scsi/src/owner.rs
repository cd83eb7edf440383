//! The one place where the shared state of a unit changes. Changes come one after the other from
//! all cores; each gives a new snapshot for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sam::attention::UnitAttention;
use crate::sam::cdb::Cdb;
use crate::sam::nexus::{Nexus, NexusId, PortName};
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::spc::mode::{self, Modes};
use crate::spc::reservation::{KeptError, Refusal, Reservations, Surroundings};
use crate::spc::shared::Shared;
use crate::table::commands as table;
use crate::table::row::{CommandSpec, Operation, OwnerOperation};

/// Something that changes shared state, on its way to the owner core.
#[derive(Clone, Debug)]
pub struct Change {
    /// Who asks, if it is a nexus.
    pub from: Option<Nexus>,
    /// What is asked.
    pub kind: ChangeKind,
}

/// What is to change.
#[derive(Clone, Debug)]
pub enum ChangeKind {
    /// A command of the table that the owner executes.
    Command {
        /// Padded with zeros.
        cdb: [u8; 16],
        /// What the initiator sent.
        parameters: Vec<u8>,
    },
    /// The task management function LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// A target reset reached this unit.
    TargetReset,
    /// A session is there; its name is needed where PERSISTENT RESERVE OUT names a device.
    NexusAttached,
    /// The session of `from` is no more; its tasks have ended, or the unit refuses access.
    NexusLost,
    /// The store grew or shrank.
    CapacityChanged {
        /// The new capacity.
        blocks: u64,
    },
}

/// Whom something concerns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Who {
    /// Every nexus.
    All,
    /// Every nexus but one.
    AllExcept(NexusId),
    /// The nexus between these ports, if it is there.
    Port(PortName),
}

impl Who {
    /// Whether a nexus between these ports is meant that is not there any more.
    pub fn is_port(&self, port: &PortName) -> bool {
        match self {
            Self::All | Self::AllExcept(_) => true,
            Self::Port(meant) => meant.admits(port),
        }
    }

    /// Whether the nexus is meant.
    pub fn is(&self, nexus: &Nexus) -> bool {
        match self {
            Self::All => true,
            Self::AllExcept(id) => nexus.id != *id,
            Self::Port(port) => port.admits(&nexus.port),
        }
    }
}

/// A unit attention and who is to be told.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Notice {
    /// Who.
    pub who: Who,
    /// What.
    pub attention: UnitAttention,
}

/// The outcome of a change, for the core that asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Status.
    pub status: Status,
    /// Sense data, exactly with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// Set by the core that asked.
    pub transfer_length: u64,
}

impl Reply {
    const fn good() -> Self {
        Self {
            status: Status::Good,
            sense: None,
            transfer_length: 0,
        }
    }

    /// CHECK CONDITION; also for a caller that could not keep the state it was given.
    pub const fn check(sense: Sense) -> Self {
        Self {
            status: Status::CheckCondition,
            sense: Some(sense),
            transfer_length: 0,
        }
    }
}

/// What a change would lead to. Nothing has happened until [`Owner::commit`]; one that is dropped
/// never happens.
#[derive(Clone, Debug)]
#[must_use]
pub struct Proposal {
    reply: Reply,
    /// `None` when it stays as it is.
    shared: Option<Arc<Shared>>,
    nexuses: NexusChange,
    notices: Vec<Notice>,
    abort: Vec<Who>,
    must_be_kept: bool,
}

/// Who is there, and who is no more.
#[derive(Clone, Debug)]
enum NexusChange {
    Stays,
    Comes(Nexus),
    Goes(NexusId),
}

impl Proposal {
    /// What must be on stable storage before the proposal is committed, if anything must.
    pub fn state_to_keep(&self) -> Option<Vec<u8>> {
        let shared = self.shared.as_ref().filter(|_| self.must_be_kept);
        shared.map(|shared| encode(shared))
    }

    const fn of_refused(reply: Reply) -> Self {
        Self {
            reply,
            shared: None,
            nexuses: NexusChange::Stays,
            notices: Vec::new(),
            abort: Vec::new(),
            must_be_kept: false,
        }
    }
}

/// What a change has led to.
#[derive(Clone, Debug)]
pub struct Applied {
    /// For the core that asked, once all of the rest is done.
    pub reply: Reply,
    /// The snapshot to install on every core; `None` when nothing changed and nobody is told
    /// anything.
    pub shared: Option<Arc<Shared>>,
    /// What to queue on every core, with the snapshot.
    pub notices: Vec<Notice>,
    /// Whose tasks on this unit end before the reply; the one that asks goes on.
    pub abort: Vec<Who>,
}

/// Why kept state cannot be used.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// It does not start as it must.
    #[error("not the state of a logical unit")]
    NotAState,
    /// Written by a later version of this program.
    #[error("the state is of version {got}, known is {known}")]
    Version {
        /// The version found.
        got: u8,
        /// The version this program writes.
        known: u8,
    },
    /// It has something that must not be left out and that this program does not know.
    #[error("the state has a section {tag} of a later version of this program")]
    Section {
        /// Its tag.
        tag: u16,
    },
    /// The reservations in it cannot be used.
    #[error("the kept reservations cannot be used")]
    Reservations(#[source] KeptError),
}

/// Kept state, all numbers big-endian: these 8 bytes, the version in one, then sections. A section
/// is a tag in 2 bytes, the length of its body in 4, and the body; none stands twice. One whose tag
/// has the highest bit set may be skipped by a program that does not know it: so a new field costs
/// nobody what was kept before. What is not there is as at the first start.
///
/// Version 1 had no sections: the modes in one byte, then the reservations.
const MAGIC: &[u8; 8] = b"TARNUNIT";
const VERSION: u8 = 2;
const VERSION_WITHOUT_SECTIONS: u8 = 1;

/// The saved mode parameters, in one byte.
const TAG_MODES: u16 = 1;
/// The reservations, as [`Reservations::encode`] gives them.
const TAG_RESERVATIONS: u16 = 2;
const MAY_BE_SKIPPED: u16 = 0x8000;

/// The state kept by the owner core.
#[derive(Debug)]
pub struct Owner {
    profile: Arc<Profile>,
    shared: Arc<Shared>,
    nexuses: BTreeMap<NexusId, Nexus>,
}

/// A change in the making.
struct Draft {
    shared: Shared,
    nexuses: NexusChange,
    notices: Vec<Notice>,
    abort: Vec<Who>,
    persist: bool,
}

impl Owner {
    /// Starts from `blocks` of capacity and what the last [`Proposal::state_to_keep`] gave, if
    /// there was one.
    pub fn new(profile: Profile, restored: Option<&[u8]>) -> Result<Self, RestoreError> {
        let profile = Arc::new(profile);
        let default = Modes::default_of(&profile);
        let (modes, reservations) = match restored {
            Some(bytes) => decode(bytes, &profile)?,
            None => (default, Reservations::default()),
        };
        Ok(Self::starting_with(profile, modes, reservations))
    }

    /// Starts although kept state could not be read. Every command that persistent reservations
    /// could forbid is refused until an initiator replaces them (REPLACE LOST RESERVATION).
    ///
    /// Spec: SPC-4, Recoverable loss of persistent reservation information.
    pub fn with_lost_reservations(profile: Profile) -> Self {
        let profile = Arc::new(profile);
        let modes = Modes::default_of(&profile);
        Self::starting_with(profile, modes, Reservations::lost())
    }

    fn starting_with(profile: Arc<Profile>, modes: Modes, reservations: Reservations) -> Self {
        let capabilities = &profile.capabilities;
        let shared = Arc::new(Shared {
            generation: 0,
            blocks: capabilities.size_bytes / u64::from(capabilities.block_bytes),
            modes,
            saved_modes: modes,
            reservations,
            is_stopped: false,
            is_ejected: false,
            preventing: Vec::new(),
        });
        Self {
            profile,
            shared,
            nexuses: BTreeMap::new(),
        }
    }

    /// The snapshot in force.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The state in force as [`Proposal::state_to_keep`] gives it: to be kept anew when what was kept
    /// last is of a proposal that was dropped.
    pub fn kept_state(&self) -> Vec<u8> {
        encode(&self.shared)
    }

    /// What the unit is.
    pub const fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// As [`LogicalUnit::set_profile`](crate::LogicalUnit::set_profile), for the owner.
    pub fn set_profile(&mut self, profile: Arc<Profile>) {
        self.profile = profile;
    }

    /// What a change would lead to, whole or not at all. Changes nothing.
    pub fn propose(&self, change: &Change) -> Proposal {
        let mut draft = Draft {
            shared: Shared::clone(&self.shared),
            nexuses: NexusChange::Stays,
            notices: Vec::new(),
            abort: Vec::new(),
            persist: false,
        };
        match self.draft(change, &mut draft) {
            Ok(()) => {}
            Err(Refusal::Conflict) => {
                return Proposal::of_refused(Reply {
                    status: Status::ReservationConflict,
                    ..Reply::good()
                });
            }
            Err(Refusal::Check(sense)) => return Proposal::of_refused(Reply::check(sense)),
        }
        let has_changed = draft.shared != *self.shared;
        // What must be kept is the state even where it is the same as before.
        let shared = if has_changed {
            draft.shared.generation += 1;
            Some(Arc::new(draft.shared))
        } else {
            draft.persist.then(|| Arc::clone(&self.shared))
        };
        Proposal {
            reply: Reply::good(),
            shared,
            nexuses: draft.nexuses,
            notices: draft.notices,
            abort: draft.abort,
            must_be_kept: draft.persist,
        }
    }

    /// Carries out what was proposed last. What it must keep is safe.
    pub fn commit(&mut self, proposal: Proposal) -> Applied {
        let before = Arc::clone(&self.shared);
        if let Some(shared) = proposal.shared {
            debug_assert!(
                shared.generation <= before.generation + 1,
                "a proposal is committed before the next is made"
            );
            self.shared = shared;
        }
        match proposal.nexuses {
            NexusChange::Stays => {}
            NexusChange::Comes(nexus) => {
                self.nexuses.insert(nexus.id, nexus);
            }
            NexusChange::Goes(id) => {
                self.nexuses.remove(&id);
            }
        }
        let has_changed = !Arc::ptr_eq(&before, &self.shared);
        let is_told = has_changed || !proposal.notices.is_empty();
        Applied {
            reply: proposal.reply,
            shared: is_told.then(|| Arc::clone(&self.shared)),
            notices: proposal.notices,
            abort: proposal.abort,
        }
    }

    fn draft(&self, change: &Change, draft: &mut Draft) -> Result<(), Refusal> {
        let from = change.from.as_ref();
        match &change.kind {
            ChangeKind::Command { cdb, parameters } => {
                let from = from.ok_or(Sense::illegal_request(
                    SenseCode::INVALID_COMMAND_OPERATION_CODE,
                ))?;
                self.command(from, Cdb::new(cdb), parameters, draft)?;
            }
            ChangeKind::LogicalUnitReset => {
                draft.reset(Who::All, UnitAttention::LogicalUnitReset);
            }
            ChangeKind::TargetReset => draft.reset(Who::All, UnitAttention::TargetReset),
            ChangeKind::NexusAttached => {
                if let Some(from) = from {
                    draft.nexuses = NexusChange::Comes(from.clone());
                }
            }
            ChangeKind::NexusLost => {
                if let Some(from) = from {
                    draft.nexuses = NexusChange::Goes(from.id);
                    draft.shared.preventing.retain(|id| *id != from.id);
                    draft.shared.reservations.nexus_lost(from.id);
                }
            }
            ChangeKind::CapacityChanged { blocks } => {
                if draft.shared.blocks != *blocks {
                    draft.shared.blocks = *blocks;
                    draft.notify(Who::All, UnitAttention::CapacityChanged);
                }
            }
        }
        Ok(())
    }

    fn command(
        &self,
        from: &Nexus,
        cdb: Cdb,
        parameters: &[u8],
        draft: &mut Draft,
    ) -> Result<(), Refusal> {
        let shared = &mut draft.shared;
        let spec = table::find(cdb, &self.profile)?;
        // A reservation may have come after the command was admitted on its core.
        let blocked = shared.reservations.blocked(from.id, &from.port);
        if blocked.contains(table::access_of(spec, cdb)) {
            return Err(Refusal::Conflict);
        }
        if let Some(sense) = view_refusal(from, spec, cdb, shared) {
            return Err(sense.into());
        }
        let Operation::Owned(operation) = spec.operation else {
            return Err(Sense::illegal_request(SenseCode::INVALID_COMMAND_OPERATION_CODE).into());
        };
        match operation {
            OwnerOperation::Reserve => shared.reservations.reserve(from.id, &from.port),
            OwnerOperation::Release => shared.reservations.release(from.id, &from.port),
            OwnerOperation::PersistentReserveOut => {
                let initiators: Vec<Arc<[u8]>> = self
                    .nexuses
                    .values()
                    .map(|nexus| Arc::clone(&nexus.port.transport_id))
                    .collect();
                let surroundings = Surroundings {
                    target_ports: &self.profile.relative_ports(),
                    initiator_ports: &initiators,
                    can_persist: self.profile.keeps_state,
                };
                let effects = shared.reservations.persistent_reserve_out(
                    &from.port,
                    &cdb.bytes(),
                    parameters,
                    &surroundings,
                )?;
                draft.persist = effects.persist && self.profile.keeps_state;
                for (port, attention) in effects.attentions {
                    draft.notify(Who::Port(port), attention);
                }
                draft
                    .abort
                    .extend(effects.abort_tasks_of.into_iter().map(Who::Port));
                Ok(())
            }
            OwnerOperation::ModeSelect => Ok(self.mode_select(from, cdb, parameters, draft)?),
            OwnerOperation::StartStopUnit => Ok(start_stop(from, cdb, draft)?),
            OwnerOperation::PreventAllowMediumRemoval => {
                shared.preventing.retain(|id| *id != from.id);
                if cdb.has(4, 0x01) {
                    shared.preventing.push(from.id);
                }
                Ok(())
            }
        }
    }

    fn mode_select(
        &self,
        from: &Nexus,
        cdb: Cdb,
        parameters: &[u8],
        draft: &mut Draft,
    ) -> Result<(), Sense> {
        let current = draft.shared.modes;
        let blocks = draft.shared.blocks;
        let selected = mode::select(cdb, parameters, &self.profile, current, blocks)?;
        draft.shared.modes = selected.modes;
        if selected.save {
            draft.persist = draft.shared.saved_modes != selected.modes;
            draft.shared.saved_modes = selected.modes;
        }
        if selected.modes != current {
            let others = Who::AllExcept(from.id);
            draft.notify(others, UnitAttention::ModeParametersChanged);
        }
        Ok(())
    }
}

impl Draft {
    fn notify(&mut self, who: Who, attention: UnitAttention) {
        self.notices.push(Notice { who, attention });
    }

    /// A hard reset or a logical unit reset.
    ///
    /// Spec: SAM-6, Logical unit reset; SPC-5, PREVENT ALLOW MEDIUM REMOVAL, saved mode pages.
    fn reset(&mut self, told: Who, attention: UnitAttention) {
        self.shared.reservations.reset();
        self.shared.preventing.clear();
        let was_cached = self.shared.modes.write_cache;
        self.shared.modes = self.shared.saved_modes;
        // Switched off here it would be off without the flush that belongs to it.
        self.shared.modes.write_cache |= was_cached;
        self.shared.is_stopped = false;
        self.abort.push(Who::All);
        self.notify(told, attention);
    }
}

/// Why a nexus that sees the unit read-only may not have this command, if it may not: the command
/// would change the unit for others. Asked where the command is admitted, and again by the owner.
pub(crate) fn view_refusal(
    from: &Nexus,
    spec: &CommandSpec,
    cdb: Cdb,
    shared: &Shared,
) -> Option<Sense> {
    let is_refused = from.read_only && table::alters(spec, cdb, shared);
    is_refused.then_some(Sense::new(
        SenseKey::DataProtect,
        SenseCode::WRITE_PROTECTED,
    ))
}

/// Spec: SBC-4, START STOP UNIT.
fn start_stop(from: &Nexus, cdb: Cdb, draft: &mut Draft) -> Result<(), Sense> {
    let (loads_or_ejects, starts) = (cdb.has(4, 0x02), cdb.has(4, 0x01));
    let shared = &mut draft.shared;
    if !loads_or_ejects {
        shared.is_stopped = !starts;
        return Ok(());
    }
    if !shared.preventing.is_empty() {
        return Err(Sense::illegal_request(SenseCode::MEDIUM_REMOVAL_PREVENTED));
    }
    let was_ejected = shared.is_ejected;
    shared.is_ejected = !starts;
    shared.is_stopped = false;
    if was_ejected && starts {
        let others = Who::AllExcept(from.id);
        draft.notify(others, UnitAttention::NotReadyToReady);
    }
    Ok(())
}

fn encode(shared: &Shared) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(VERSION);
    let mut section = |tag: u16, body: &[u8]| {
        let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&tag.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(body);
    };
    section(TAG_MODES, &[shared.saved_modes.to_byte()]);
    section(TAG_RESERVATIONS, &shared.reservations.encode());
    bytes
}

/// Whether [`Owner::new`] could start from this.
///
/// # Errors
///
/// Why not.
pub fn check_kept_state(bytes: &[u8]) -> Result<(), RestoreError> {
    parse(bytes).map(drop)
}

fn decode(bytes: &[u8], profile: &Profile) -> Result<(Modes, Reservations), RestoreError> {
    let (modes, reservations) = parse(bytes)?;
    let modes = match modes {
        Some(modes) => Modes::from_byte(modes, profile),
        None => Modes::default_of(profile),
    };
    Ok((modes, reservations))
}

/// The byte of the saved modes, if it is there, and the reservations.
fn parse(bytes: &[u8]) -> Result<(Option<u8>, Reservations), RestoreError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(RestoreError::NotAState)?;
    let (&version, body) = body.split_first().ok_or(RestoreError::NotAState)?;
    let (modes, reservations) = match version {
        VERSION_WITHOUT_SECTIONS => {
            let (modes, reservations) = body.split_at_checked(1).ok_or(RestoreError::NotAState)?;
            (Some(modes), Some(reservations))
        }
        VERSION => sections(body)?,
        got => {
            let known = VERSION;
            return Err(RestoreError::Version { got, known });
        }
    };
    let modes = match modes {
        Some(&[modes]) => Some(modes),
        Some(_) => return Err(RestoreError::NotAState),
        None => None,
    };
    let reservations = match reservations {
        Some(record) => Reservations::decode(record).map_err(RestoreError::Reservations)?,
        None => Reservations::default(),
    };
    Ok((modes, reservations))
}

/// The bodies of the sections for modes and reservations.
type Sections<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

fn sections(mut bytes: &[u8]) -> Result<Sections<'_>, RestoreError> {
    let (mut modes, mut reservations) = (None, None);
    while let Some((head, rest)) = bytes.split_first_chunk::<6>() {
        let [a, b, length @ ..] = *head;
        let tag = u16::from_be_bytes([a, b]);
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let (body, rest) = rest
            .split_at_checked(length)
            .ok_or(RestoreError::NotAState)?;
        let before = match tag {
            TAG_MODES => modes.replace(body),
            TAG_RESERVATIONS => reservations.replace(body),
            tag if tag & MAY_BE_SKIPPED != 0 => None,
            tag => return Err(RestoreError::Section { tag }),
        };
        if before.is_some() {
            return Err(RestoreError::NotAState);
        }
        bytes = rest;
    }
    if bytes.is_empty() {
        Ok((modes, reservations))
    } else {
        Err(RestoreError::NotAState)
    }
}
