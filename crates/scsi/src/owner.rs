//! The one place where the shared state of a unit changes. Changes come one after the other from
//! all cores; each gives a new snapshot for all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::WriteCache;

use crate::device::Device;
use crate::kept::{self, Kept, RestoreError};
use crate::sam::attention::UnitAttention;
use crate::sam::cdb::Cdb;
use crate::sam::change::{Change, ChangeKind, Notice, Reply, Who};
use crate::sam::device_type::DeviceType;
use crate::sam::nexus::{Nexus, NexusId, PortName};
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::spc::gate;
use crate::spc::mode::{self, ModeState};
use crate::spc::peripheral::Peripheral;
use crate::spc::reservation::{BASIC_BYTES, Refusal, Reservations, Surroundings};
use crate::spc::shared::Shared;
use crate::table::commands;
use crate::table::row::{CommandSpec, LOEJ, Operation, OwnerOperation, START, unknown_command};

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
    relies_on_kept: bool,
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
        shared.map(|shared| kept::encode(shared))
    }

    /// Its reply says what is there after a restart. Where [`Proposal::state_to_keep`] is `None`, that is the state in
    /// force.
    pub const fn relies_on_kept_state(&self) -> bool {
        self.relies_on_kept
    }

    const fn of_refused(reply: Reply) -> Self {
        Self {
            reply,
            shared: None,
            nexuses: NexusChange::Stays,
            notices: Vec::new(),
            abort: Vec::new(),
            must_be_kept: false,
            relies_on_kept: false,
        }
    }
}

/// What a change has led to.
#[derive(Clone, Debug)]
pub struct Applied {
    /// For the core that asked, once all of the rest is done.
    pub reply: Reply,
    /// The snapshot to install on every core; `None` when nothing changed and no nexus gets a
    /// unit attention.
    pub shared: Option<Arc<Shared>>,
    /// What to queue on every core, with the snapshot.
    pub notices: Vec<Notice>,
    /// Whose tasks on this unit end before the reply; the one that asks goes on.
    pub abort: Vec<Who>,
}

/// A removable medium, for an administrator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Medium {
    /// It is in.
    pub is_in: bool,
    /// Who prevents its removal, in the order they began.
    pub prevented_by: Vec<PortName>,
}

/// The state kept by the owner core.
#[derive(Debug)]
pub struct Owner {
    profile: Arc<Profile>,
    device: Device,
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
    relies_on_kept: bool,
}

impl Owner {
    /// Starts from `blocks` of capacity and what the last [`Proposal::state_to_keep`] gave, if
    /// there was one.
    pub fn new(profile: Profile, restored: Option<&[u8]>) -> Result<Self, RestoreError> {
        let device = Device::new(&profile);
        let kept = match restored {
            Some(bytes) => kept::decode(bytes, &device)?,
            None => Kept {
                modes: device.default_modes(),
                reservations: Reservations::default(),
                is_out: false,
            },
        };
        Ok(Self::starting_with(profile, device, kept))
    }

    /// Starts although kept state could not be read. Every command that persistent reservations
    /// could forbid is refused until an initiator replaces them (REPLACE LOST RESERVATION).
    ///
    /// Spec: SPC-4, Recoverable loss of persistent reservation information.
    pub fn with_lost_reservations(profile: Profile) -> Self {
        let device = Device::new(&profile);
        let kept = Kept {
            modes: device.default_modes(),
            reservations: Reservations::lost(),
            is_out: false,
        };
        Self::starting_with(profile, device, kept)
    }

    fn starting_with(profile: Profile, device: Device, kept: Kept) -> Self {
        let Kept {
            modes,
            reservations,
            is_out,
        } = kept;
        // What cannot be loaded is in.
        let is_out = is_out && device.features().removable;
        let capabilities = &profile.capabilities;
        let blocks = capabilities.size_bytes / u64::from(capabilities.block_bytes);
        let shared = Arc::new(Shared {
            generation: 0,
            blocks,
            cache: WriteCache::new(capabilities.has_cache(), modes.write_cache),
            modes,
            saved_modes: modes,
            reservations,
            is_stopped: false,
            is_ejected: is_out || !device.has_medium(blocks),
            ejected_at: 0,
            absent: device.absent(is_out),
            moves: 0,
            wishes: 0,
            preventing: Vec::new(),
        });
        Self {
            profile: Arc::new(profile),
            device,
            shared,
            nexuses: BTreeMap::new(),
        }
    }

    /// The medium in force; `None` where it cannot be ejected.
    pub fn medium(&self) -> Option<Medium> {
        let name = |id: &NexusId| Some(self.nexuses.get(id)?.port.clone());
        self.device.features().removable.then(|| Medium {
            is_in: !self.shared.is_ejected,
            prevented_by: self.shared.preventing.iter().filter_map(name).collect(),
        })
    }

    /// The holder of the SPC-2 reservation in force.
    pub fn reserved_by(&self) -> Option<&PortName> {
        let holder = self.shared.reservations.reserved_by()?;
        Some(&self.nexuses.get(&holder)?.port)
    }

    /// The snapshot in force.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The state in force as [`Proposal::state_to_keep`] gives it: to be saved again when what was saved
    /// last is of a proposal that was dropped.
    pub fn kept_state(&self) -> Vec<u8> {
        kept::encode(&self.shared)
    }

    /// What the unit is.
    pub const fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// As [`LogicalUnit::set_profile`](crate::LogicalUnit::set_profile), for the owner.
    pub fn set_profile(&mut self, profile: Arc<Profile>) {
        self.device = Device::new(&profile);
        self.device.install(&self.shared);
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
            relies_on_kept: false,
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
        let is_moved = draft.shared.is_kept_out() != self.shared.is_kept_out();
        draft.persist |= is_moved && self.profile.keeps_state;
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
            relies_on_kept: draft.relies_on_kept,
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
            self.device.install(&self.shared);
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
                let from = from.ok_or(unknown_command())?;
                self.command(from, cdb, parameters, draft)?;
            }
            ChangeKind::Flushed { epoch } => {
                let others = from.map_or(Who::All, |from| Who::AllExcept(from.id));
                draft.change_cache(others, |cache| cache.note_flushed(*epoch));
            }
            ChangeKind::WriteThrough => draft.change_cache(Who::All, WriteCache::write_through),
            ChangeKind::NotWrittenThrough => draft.change_cache(Who::All, WriteCache::take_back),
            ChangeKind::WriteBack => self.write_back(draft),
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
                    draft.shared.allow_removal(from.id);
                    draft.shared.reservations.nexus_lost(from.id);
                }
            }
            ChangeKind::Eject { .. } | ChangeKind::Load | ChangeKind::LoadAnother { .. }
                if !self.device.features().removable =>
            {
                return Err(unknown_command().into());
            }
            ChangeKind::Eject { force } => {
                draft.shared.eject(*force, self.device.absent(true))?;
            }
            ChangeKind::Load => draft.load(Who::All, &self.device),
            ChangeKind::LoadAnother { blocks } => {
                draft.shared.blocks = *blocks;
                // An initiator may have loaded it meanwhile.
                draft.shared.take_out();
                draft.load(Who::All, &self.device);
            }
            ChangeKind::EjectWish => self.wish(draft),
            ChangeKind::Told(attention) => {
                let others = from.map_or(Who::All, |from| Who::AllExcept(from.id));
                draft.tell_others(others, *attention);
            }
            ChangeKind::ClearReservations => self.clear_reservations(draft),
            ChangeKind::SpaceLow => draft.notify(Who::All, UnitAttention::SpaceLow),
            ChangeKind::CapacityChanged { blocks } => {
                if draft.shared.blocks != *blocks {
                    draft.shared.blocks = *blocks;
                    draft.notify(Who::All, UnitAttention::CapacityChanged);
                }
            }
        }
        Ok(())
    }

    /// Initiators that lose a registration or a reservation are notified; where it is not known which those are, all.
    fn clear_reservations(&self, draft: &mut Draft) {
        let shared = &mut draft.shared;
        let was_lost = shared.reservations.lost_sense().is_some();
        let holder = shared.reservations.reserved_by();
        let holder = holder.and_then(|holder| self.nexuses.get(&holder));
        let effects = shared.reservations.clear();
        draft.persist = effects.persist && self.profile.keeps_state;
        draft.relies_on_kept = self.profile.keeps_state;
        let registered = effects.attentions.into_iter();
        let ports = registered.map(|(port, _)| Who::Port(port));
        let holder = holder.map(|holder| Who::Port(holder.port.clone()));
        for who in ports.chain(holder).chain(was_lost.then_some(Who::All)) {
            draft.notify(who, UnitAttention::ReservationsPreempted);
        }
    }

    /// Those who prevent the removal of a medium that can say so learn that it is wanted.
    ///
    /// Spec: MMC-6, PREVENT ALLOW MEDIUM REMOVAL; SPC-5, OPERATOR MEDIUM REMOVAL REQUEST.
    fn wish(&self, draft: &mut Draft) {
        if self.device.features().device_type != DeviceType::Optical {
            return;
        }
        draft.shared.wishes += 1;
        let preventing = draft.shared.preventing.clone();
        let ports = preventing.iter().filter_map(|id| self.nexuses.get(id));
        for port in ports.map(|nexus| nexus.port.clone()) {
            draft.notify(Who::Port(port), UnitAttention::MediumRemovalRequest);
        }
    }

    /// The cache is on, also after a restart: an administrator wants it so.
    fn write_back(&self, draft: &mut Draft) {
        draft.change_cache(Who::All, WriteCache::write_back);
        draft.persist = !draft.shared.saved_modes.write_cache && self.profile.keeps_state;
        draft.shared.saved_modes.write_cache = true;
    }

    fn command(
        &self,
        from: &Nexus,
        cdb: &Cdb,
        parameters: &[u8],
        draft: &mut Draft,
    ) -> Result<(), Refusal> {
        let shared = &mut draft.shared;
        let spec = commands::find_further(cdb, &self.device.features())?;
        // A reservation may have come after the command was admitted on its core.
        let blocked = shared.reservations.blocked(from.id, &from.port);
        if blocked.contains(spec.access_of(cdb)) {
            return Err(Refusal::Conflict);
        }
        if let Some(sense) = gate::view_refusal(from, spec, cdb, shared) {
            return Err(sense.into());
        }
        let Operation::Owned(operation) = spec.operation else {
            return Err(unknown_command().into());
        };
        match operation {
            OwnerOperation::Reserve => shared.reservations.reserve(from.id, &from.port),
            OwnerOperation::Release => shared.reservations.release(from.id, &from.port),
            OwnerOperation::PersistentReserveOut => {
                let initiators = self.initiators_for(parameters);
                let surroundings = Surroundings {
                    target_ports: &self.profile.relative_ports(),
                    initiator_ports: &initiators,
                    can_persist: self.profile.keeps_state,
                };
                let effects = shared.reservations.persistent_reserve_out(
                    &from.port,
                    cdb.head(),
                    parameters,
                    &surroundings,
                )?;
                draft.persist = effects.persist && self.profile.keeps_state;
                draft.relies_on_kept = self.profile.keeps_state;
                for (port, attention) in effects.attentions {
                    draft.notify(Who::Port(port), attention);
                }
                // Spec: SPC-4, PREVENT ALLOW MEDIUM REMOVAL: PREEMPT AND ABORT allows for them.
                let is_aborted = |nexus: &&Nexus| {
                    effects
                        .abort_tasks_of
                        .iter()
                        .any(|port| port.admits(&nexus.port))
                };
                for nexus in self.nexuses.values().filter(is_aborted) {
                    draft.shared.allow_removal(nexus.id);
                }
                draft
                    .abort
                    .extend(effects.abort_tasks_of.into_iter().map(Who::Port));
                Ok(())
            }
            OwnerOperation::ModeSelect => Ok(self.mode_select(from, spec, cdb, parameters, draft)?),
            OwnerOperation::StartStopUnit => Ok(start_stop(from, cdb, draft, &self.device)?),
            OwnerOperation::PreventAllowMediumRemoval => {
                shared.allow_removal(from.id);
                if cdb.has(4, 0x01) {
                    shared.preventing.push(from.id);
                }
                Ok(())
            }
        }
    }

    /// The TransportIDs that are logged in. Only a list that is longer than all others names any.
    fn initiators_for(&self, parameters: &[u8]) -> Vec<Arc<[u8]>> {
        let nexuses = self.nexuses.values();
        let nexuses = nexuses.filter(|_| parameters.len() > BASIC_BYTES);
        nexuses
            .map(|nexus| Arc::clone(&nexus.port.transport_id))
            .collect()
    }

    fn mode_select(
        &self,
        from: &Nexus,
        spec: &CommandSpec,
        cdb: &Cdb,
        parameters: &[u8],
        draft: &mut Draft,
    ) -> Result<(), Sense> {
        let cache = draft.shared.cache;
        if !cache.is_there() && cache.is_unflushed() {
            // An administrator has the unit write through. If that fails the cache is as it was, whatever is selected.
            let code = SenseCode::LOGICAL_UNIT_BECOMING_READY;
            return Err(Sense::new(SenseKey::NotReady, code));
        }
        let state = ModeState {
            blocks: draft.shared.blocks,
            current: draft.shared.modes,
            saved: draft.shared.shown_saved_modes(),
            write_protected: false,
            keeps_state: self.profile.keeps_state,
        };
        let selected = mode::select(cdb, spec.is_six(), parameters, &self.device, state)?;
        let others = Who::AllExcept(from.id);
        draft.change_modes(others, |shared| shared.set_modes(selected.modes));
        if selected.save {
            let saved = draft.shared.saved_modes;
            draft.shared.save_modes(selected.modes);
            draft.persist = draft.shared.saved_modes != saved;
            draft.relies_on_kept = true;
        }
        Ok(())
    }
}

impl Draft {
    /// Puts the medium in, which changes nothing where it is in, and starts the unit.
    /// The tray of an empty drive closes.
    ///
    /// Spec: SPC-5, Unit attention conditions (28h/00h).
    fn load(&mut self, others: Who, device: &Device) {
        self.shared.is_stopped = false;
        if !device.has_medium(self.shared.blocks) {
            self.shared.absent = device.absent(false);
            return;
        }
        let was_ejected = std::mem::take(&mut self.shared.is_ejected);
        if was_ejected {
            self.shared.moves += 1;
            self.notify(others, UnitAttention::NotReadyToReady);
        }
    }

    /// Changes mode parameters. Those concerned learn of it where it shows.
    fn change_modes(&mut self, others: Who, change: impl FnOnce(&mut Shared)) {
        let shown = self.shared.shown_modes();
        change(&mut self.shared);
        if self.shared.shown_modes() != shown {
            self.notify(others, UnitAttention::ModeParametersChanged);
        }
    }

    fn change_cache(&mut self, others: Who, change: impl FnOnce(&mut WriteCache)) {
        self.change_modes(others, |shared| shared.change_cache(change));
    }

    /// What a device has said. One that was reset holds no medium any more that it was to hold, and what was reserved
    /// until a reset is free.
    fn tell_others(&mut self, others: Who, attention: UnitAttention) {
        if attention.is_reset() {
            self.shared.reservations.reset();
            self.shared.preventing.clear();
        }
        self.notify(others, attention);
    }

    fn notify(&mut self, who: Who, attention: UnitAttention) {
        self.notices.push(Notice { who, attention });
    }

    /// A hard reset or a logical unit reset.
    ///
    /// Spec: SAM-6, Logical unit reset; SPC-5, PREVENT ALLOW MEDIUM REMOVAL, saved mode pages.
    fn reset(&mut self, told: Who, attention: UnitAttention) {
        self.shared.reservations.reset();
        self.shared.preventing.clear();
        let mut modes = self.shared.shown_saved_modes();
        // Switched off here it would be off without the flush that belongs to it.
        modes.write_cache |= self.shared.modes.write_cache;
        self.shared.set_modes(modes);
        self.shared.is_stopped = false;
        self.abort.push(Who::All);
        self.notify(told, attention);
    }
}

/// Spec: SBC-4, START STOP UNIT.
fn start_stop(from: &Nexus, cdb: &Cdb, draft: &mut Draft, device: &Device) -> Result<(), Sense> {
    let (moves_medium, starts) = (cdb.has(4, LOEJ), cdb.has(4, START));
    if moves_medium {
        draft.shared.check_removal()?;
    }
    match (moves_medium, starts) {
        (true, true) => draft.load(Who::AllExcept(from.id), device),
        (true, false) => draft.shared.eject(false, device.absent(true))?,
        (false, true) => {
            draft.shared.check_medium()?;
            draft.shared.is_stopped = false;
        }
        (false, false) => draft.shared.is_stopped = true,
    }
    Ok(())
}
