//! A logical unit as one core sees it: who may do what now, and which command goes where.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::sync::Arc;

use crate::disk::work::{FlushAfter, Work};
use crate::owner::{self, Change, ChangeKind, Notice};
use crate::sam::attention::{AttentionQueue, UnitAttention};
use crate::sam::cdb::Cdb;
use crate::sam::failure::Purpose;
use crate::sam::nexus::{Nexus, NexusId, PortName};
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::sam::task_set::TaskSet;
use crate::spc::mode::{self, ModeState};
use crate::spc::reservation::{PARAMETER_LIST_BYTES_MAX, Refusal, Surroundings};
use crate::spc::shared::Shared;
use crate::spc::{inquiry, report};
use crate::table::access::Blocked;
use crate::table::commands as table;
use crate::table::row::{CommandSpec, Operation, OwnerOperation, Traits};
use crate::task::{Command, Input, Outcome, Step, Task};

/// What a read-only view of a unit has no right to.
const NEEDS_RIGHT_TO_WRITE: Traits = Traits::WRITES.with(Traits::ALTERS);

/// Names an attached nexus on one core. Valid from [`LogicalUnit::attach`] to
/// [`LogicalUnit::detach`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct NexusSlot(usize);

/// One attached nexus.
#[derive(Debug)]
struct Attached {
    nexus: Nexus,
    attentions: AttentionQueue,
    blocked: Blocked,
    /// As the unit's.
    refuses_access: bool,
    /// Something must be looked at before a command may run. Tested once per command.
    is_gated: bool,
    tasks: TaskSet,
}

/// Places for nexuses whose memory is kept.
const ROOM_KEPT: usize = 64;

/// One core's view of a unit, with the nexuses whose sessions live on this core.
#[derive(Debug)]
pub struct LogicalUnit {
    pub(crate) profile: Arc<Profile>,
    pub(crate) shared: Arc<Shared>,
    /// Capacity, beside the data that the fast path needs.
    pub(crate) blocks: u64,
    /// A write is durable only if it is asked to be.
    pub(crate) is_cached: bool,
    /// An I/O of the past is not accounted for, so nothing new may touch the medium.
    refuses_access: bool,
    attached: Vec<Option<Attached>>,
    /// Slots that nobody has; some are gone or were taken again.
    vacant: Vec<usize>,
}

impl LogicalUnit {
    /// A view that starts from the owner's snapshot.
    pub fn new(profile: Arc<Profile>, shared: Arc<Shared>) -> Self {
        let mut unit = Self {
            profile,
            blocks: 0,
            is_cached: false,
            refuses_access: false,
            shared: Arc::clone(&shared),
            attached: Vec::new(),
            vacant: Vec::new(),
        };
        unit.install(&shared, &[]);
        unit
    }

    /// Adds a nexus, which will first be told `reason`.
    pub fn attach(&mut self, nexus: Nexus, reason: Option<UnitAttention>) -> NexusSlot {
        let mut attentions = AttentionQueue::default();
        if let Some(reason) = reason {
            attentions.push(reason);
        }
        let mut attached = Attached {
            nexus,
            attentions,
            blocked: Blocked::NONE,
            refuses_access: self.refuses_access,
            is_gated: false,
            tasks: TaskSet::default(),
        };
        attached.refresh(&self.shared);
        while let Some(at) = self.vacant.pop() {
            // One that was behind the last may be gone, or be taken again.
            if let Some(slot @ None) = self.attached.get_mut(at) {
                *slot = Some(attached);
                return NexusSlot(at);
            }
        }
        self.attached.push(Some(attached));
        NexusSlot(self.attached.len().saturating_sub(1))
    }

    /// Removes a nexus, with the unit attentions it was not told of. Its tasks are over.
    pub fn detach(&mut self, slot: NexusSlot) {
        if let Some(attached) = self.attached.get_mut(slot.0)
            && attached.take().is_some()
        {
            self.vacant.push(slot.0);
            self.give_back();
        }
    }

    /// Gives memory back after most of many have left. Every place is looked at once for each time
    /// it was taken.
    fn give_back(&mut self) {
        while let Some(None) = self.attached.last() {
            self.attached.pop();
        }
        let len = self.attached.len();
        if self.attached.capacity() > len.max(ROOM_KEPT).saturating_mul(4) {
            self.attached.shrink_to(len.saturating_mul(2));
            self.vacant.retain(|&at| at < len);
            self.vacant.shrink_to(len.saturating_mul(2));
        }
    }

    #[cfg(test)]
    pub(crate) fn places(&self) -> usize {
        self.attached.capacity().max(self.vacant.capacity())
    }

    /// Commands that need the medium end in NOT READY from now on, or run again. This holds on
    /// this core at once and is no part of the shared state.
    pub fn refuse_access(&mut self, refuses: bool) {
        self.refuses_access = refuses;
        for attached in self.attached.iter_mut().flatten() {
            attached.refuses_access = refuses;
            attached.refresh(&self.shared);
        }
    }

    /// Whether commands that need the medium are refused.
    pub const fn refuses_access(&self) -> bool {
        self.refuses_access
    }

    /// The ports of an attached nexus.
    pub fn port_of(&self, slot: NexusSlot) -> Option<PortName> {
        let attached = self.attached.get(slot.0)?.as_ref()?;
        Some(attached.nexus.port.clone())
    }

    /// The slot of a nexus, if it is attached here.
    pub fn slot_of(&self, id: NexusId) -> Option<NexusSlot> {
        let is_it = |one: &Option<Attached>| one.as_ref().is_some_and(|one| one.nexus.id == id);
        self.attached.iter().position(is_it).map(NexusSlot)
    }

    /// Every attached nexus.
    pub fn nexuses(&self) -> impl Iterator<Item = (NexusSlot, &Nexus)> {
        let slots = (0..).map(NexusSlot);
        slots
            .zip(&self.attached)
            .filter_map(|(slot, attached)| Some((slot, &attached.as_ref()?.nexus)))
    }

    /// The task set of a nexus; `None` when it is not attached.
    pub fn task_set(&mut self, slot: NexusSlot) -> Option<&mut TaskSet> {
        self.attached_mut(slot).map(|attached| &mut attached.tasks)
    }

    /// Takes a new snapshot over and queues what the nexuses here must be told.
    pub fn install(&mut self, shared: &Arc<Shared>, notices: &[Notice]) {
        self.shared = Arc::clone(shared);
        self.blocks = shared.blocks;
        self.is_cached = self.profile.capabilities.volatile_cache && shared.modes.write_cache;
        for attached in self.attached.iter_mut().flatten() {
            for notice in notices {
                if notice.who.is(&attached.nexus) {
                    attached.attentions.push(notice.attention);
                }
            }
            attached.refresh(shared);
        }
    }

    /// Tells one nexus something, before its next command.
    pub fn notify(&mut self, slot: NexusSlot, attention: UnitAttention) {
        if let Some(Some(attached)) = self.attached.get_mut(slot.0) {
            attached.attentions.push(attention);
            attached.refresh(&self.shared);
        }
    }

    /// From now on this nexus may write, or not. Commands that have begun go on as they began.
    pub fn set_read_only(&mut self, slot: NexusSlot, read_only: bool) {
        if let Some(Some(attached)) = self.attached.get_mut(slot.0) {
            attached.nexus.read_only = read_only;
        }
    }

    /// Whether the nexus sees the unit read-only.
    pub fn is_read_only(&self, slot: NexusSlot) -> bool {
        self.attached(slot)
            .is_some_and(|attached| attached.nexus.read_only)
    }

    /// The unit says other things of itself from now on: other target ports show it. Its store and
    /// its limits are the same.
    pub fn set_profile(&mut self, profile: Arc<Profile>) {
        self.profile = profile;
        self.is_cached = self.profile.capabilities.volatile_cache && self.shared.modes.write_cache;
    }

    /// The snapshot in force.
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What the unit is.
    pub const fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// D_SENSE: the format for [`Sense::encode`].
    pub fn descriptor_sense(&self) -> bool {
        self.shared.modes.descriptor_sense
    }

    /// Begins a command.
    pub fn start(&mut self, slot: NexusSlot, command: &Command<'_>) -> (Task, Step) {
        let cdb = Cdb::new(command.cdb);
        let mut task = Task::new(slot, cdb);
        task.began_cached = self.is_cached;
        let step = match self.admit(slot, cdb) {
            Ok(spec) => {
                task.spec = Some(spec);
                self.execute(&mut task, spec, command)
                    .unwrap_or_else(|sense| Step::Done(task.refused(sense)))
            }
            Err(outcome) => Step::Done(outcome),
        };
        if matches!(step, Step::Done(_)) {
            task.work = Work::Over;
        }
        (task, step)
    }

    /// Goes on with a command when what its last step asked for is there.
    pub fn resume(&mut self, task: &mut Task, input: Input) -> Step {
        let work = std::mem::replace(&mut task.work, Work::Over);
        let step = self
            .advance(task, work, input)
            .unwrap_or_else(|sense| Step::Done(Outcome::check(sense)));
        if matches!(step, Step::Done(_)) {
            task.work = Work::Over;
        }
        step
    }

    fn attached_mut(&mut self, slot: NexusSlot) -> Option<&mut Attached> {
        self.attached.get_mut(slot.0)?.as_mut()
    }

    fn attached(&self, slot: NexusSlot) -> Option<&Attached> {
        self.attached.get(slot.0)?.as_ref()
    }

    /// Decides whether a command may run: opcode, unit attention and reservation, readiness,
    /// fields of the CDB, write protection, in this order.
    ///
    /// Spec: SAM-6, Status precedence, Unit attention conditions.
    fn admit(&mut self, slot: NexusSlot, cdb: Cdb) -> Result<&'static CommandSpec, Outcome> {
        let spec = table::find(cdb, &self.profile).map_err(Outcome::check)?;
        let attached = self
            .attached
            .get_mut(slot.0)
            .and_then(Option::as_mut)
            .ok_or_else(|| Outcome::check(report::no_such_unit()))?;
        if attached.is_gated {
            attached.pass_gate(spec, cdb, &self.shared)?;
        }
        spec.check_fields(cdb).map_err(Outcome::check)?;
        if spec.traits.has_any(NEEDS_RIGHT_TO_WRITE)
            && let Some(sense) = attached.refusal(spec, cdb, &self.profile, &self.shared)
        {
            return Err(Outcome::check(sense));
        }
        Ok(spec)
    }

    fn execute(
        &mut self,
        task: &mut Task,
        spec: &'static CommandSpec,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let cdb = task.cdb;
        let profile = &*self.profile;
        let data = match spec.operation {
            Operation::Read => return self.start_read(task, spec, command),
            Operation::Write => return self.start_write(task, spec, command),
            Operation::WriteAndVerify => return self.start_write_and_verify(task, spec, command),
            Operation::Verify => return self.start_verify(task, spec, command),
            Operation::PreFetch => return self.start_pre_fetch(task, spec),
            Operation::SynchronizeCache => return self.start_synchronize(task, spec),
            Operation::CompareAndWrite => {
                return self.start_compare_and_write(task, spec, command);
            }
            Operation::OrWrite => return self.start_or_write(task, spec, command),
            Operation::WriteSame => return self.start_write_same(task, spec, command),
            Operation::Unmap => return self.start_unmap(task, command),
            Operation::GetLbaStatus => return self.start_lba_status(task),
            Operation::SendDiagnostic => return Ok(self.start_diagnostic(task)),
            Operation::Owned(operation) => return self.start_owned(task, operation, command),
            Operation::TestUnitReady => return Ok(Step::Done(Outcome::good())),
            Operation::PersistentReserveIn => return self.persistent_reserve_in(task),
            Operation::RequestSense => self.request_sense(task),
            Operation::Inquiry => self.inquiry(task)?,
            Operation::ModeSense => mode::sense(cdb, profile, self.mode_state(task.slot))?,
            Operation::LogSense => report::log(cdb)?,
            Operation::ReportLuns => {
                let data = report::luns(cdb, command.luns)?;
                self.forget(task.slot, UnitAttention::ReportedLunsChanged);
                data
            }
            Operation::ReadCapacity10 => report::capacity_10(profile, self.blocks),
            Operation::ReadCapacity16 => report::capacity_16(profile, self.blocks),
            Operation::ReadDefectData => report::defects(cdb),
            Operation::ReportSupportedOperationCodes => report::operation_codes(cdb, profile)?,
            Operation::ReportSupportedTaskManagementFunctions => {
                report::task_management(cdb, profile)
            }
            Operation::ReportTargetPortGroups => report::target_port_groups(cdb, profile)?,
        };
        let allocation_length = report::allocation_length(cdb);
        Ok(Step::Done(Outcome::data(data, allocation_length)))
    }

    fn inquiry(&self, task: &Task) -> Result<Vec<u8>, Sense> {
        let attached = self.attached(task.slot).ok_or_else(report::no_such_unit)?;
        inquiry::inquiry(task.cdb, &self.profile, &attached.nexus.port)
    }

    /// Pending unit attentions and NOT READY come as data.
    ///
    /// Spec: SPC-5, REQUEST SENSE.
    fn request_sense(&mut self, task: &Task) -> Vec<u8> {
        let shared = Arc::clone(&self.shared);
        let attention = self.attached_mut(task.slot).and_then(|attached| {
            let attention = attached.attentions.pop();
            attached.refresh(&shared);
            attention
        });
        let sense = attention
            .map(UnitAttention::sense)
            .or_else(|| not_ready(self.refuses_access, &shared))
            .unwrap_or(Sense::new(
                SenseKey::NoSense,
                SenseCode::NO_ADDITIONAL_SENSE_INFORMATION,
            ));
        sense.encode(task.cdb.has(1, 0x01)).to_vec()
    }

    /// Another command has told what the unit attention would tell.
    fn forget(&mut self, slot: NexusSlot, attention: UnitAttention) {
        let shared = Arc::clone(&self.shared);
        if let Some(attached) = self.attached_mut(slot) {
            attached.attentions.remove(attention);
            attached.refresh(&shared);
        }
    }

    fn mode_state(&self, slot: NexusSlot) -> ModeState {
        let attached = self.attached(slot);
        let protection =
            attached.and_then(|attached| attached.write_protection(&self.profile, &self.shared));
        ModeState {
            blocks: self.blocks,
            current: self.shared.modes,
            saved: self.shared.saved_modes,
            write_protected: protection.is_some(),
        }
    }

    fn persistent_reserve_in(&self, task: &Task) -> Result<Step, Sense> {
        let surroundings = Surroundings {
            target_ports: &self.profile.relative_ports(),
            initiator_ports: &[],
            can_persist: self.profile.keeps_state,
        };
        let reservations = &self.shared.reservations;
        match reservations.persistent_reserve_in(&task.cdb.bytes(), &surroundings) {
            Ok(data) => {
                let allocation_length = report::allocation_length(task.cdb);
                Ok(Step::Done(Outcome::data(data, allocation_length)))
            }
            Err(Refusal::Conflict) => Ok(Step::Done(Outcome::status(Status::ReservationConflict))),
            Err(Refusal::Check(sense)) => Err(sense),
        }
    }

    /// Commands that change shared state: collect the parameter list, hand all to the owner.
    fn start_owned(
        &self,
        task: &mut Task,
        operation: OwnerOperation,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let length = match operation {
            OwnerOperation::ModeSelect => mode::parameter_length(task.cdb),
            OwnerOperation::PersistentReserveOut => task.cdb.u32(5),
            OwnerOperation::Reserve
            | OwnerOperation::Release
            | OwnerOperation::StartStopUnit
            | OwnerOperation::PreventAllowMediumRemoval => 0,
        };
        let is_too_long = usize::try_from(length).is_ok_and(|len| len > PARAMETER_LIST_BYTES_MAX);
        if is_too_long || length > command.data_out_length {
            // Never fetched: it cannot be right, or will not come whole.
            let code = SenseCode::PARAMETER_LIST_LENGTH_ERROR;
            return Err(Sense::illegal_request(code));
        }
        task.transfer_length = u64::from(length);
        if length == 0 {
            return Ok(self.hand_to_owner(task, Vec::new()));
        }
        task.work = Work::OwnerParameters;
        Ok(Step::DataOut { length })
    }

    pub(crate) fn hand_to_owner(&self, task: &mut Task, parameters: Vec<u8>) -> Step {
        let cdb = task.cdb;
        let Some(attached) = self.attached(task.slot) else {
            return Step::Done(Outcome::check(report::no_such_unit()));
        };
        const START: u8 = 0x01;
        const NO_FLUSH: u8 = 0x04;
        let flush = match task.spec.map(|spec| spec.operation) {
            // In force on all cores first, so that the flush covers every write answered before.
            Some(Operation::Owned(OwnerOperation::ModeSelect)) if self.is_cached => {
                FlushAfter::CacheOff
            }
            Some(Operation::Owned(OwnerOperation::StartStopUnit))
                if !cdb.has(4, START | NO_FLUSH) =>
            {
                FlushAfter::Always
            }
            Some(_) | None => FlushAfter::Never,
        };
        task.work = Work::Owner { flush };
        Step::Owner(Change {
            from: Some(attached.nexus.clone()),
            kind: ChangeKind::Command {
                cdb: cdb.bytes(),
                parameters,
            },
        })
    }

    /// The default self-test: the first block can be read.
    fn start_diagnostic(&self, task: &mut Task) -> Step {
        const SELFTEST: u8 = 0x04;
        if !task.cdb.has(1, SELFTEST) || self.blocks == 0 {
            return Step::Done(Outcome::good());
        }
        task.work = Work::Last {
            purpose: Purpose::Read,
        };
        self.read_request(0, 1)
    }
}

/// Why commands that need the medium end in NOT READY, if they do.
fn not_ready(refuses_access: bool, shared: &Shared) -> Option<Sense> {
    let refused = Sense::new(SenseKey::NotReady, SenseCode::LOGICAL_UNIT_NOT_READY);
    refuses_access
        .then_some(refused)
        .or_else(|| shared.not_ready())
}

impl Attached {
    /// Computes what the gate must look at.
    fn refresh(&mut self, shared: &Shared) {
        self.blocked = shared.reservations.blocked(self.nexus.id, &self.nexus.port);
        self.is_gated = !self.attentions.is_empty()
            || self.blocked != Blocked::NONE
            || not_ready(self.refuses_access, shared).is_some()
            || shared.reservations.lost_sense().is_some();
    }

    /// The rare side of admission. A reset is told before a reservation conflict, other unit
    /// attentions after it.
    fn pass_gate(&mut self, spec: &CommandSpec, cdb: Cdb, shared: &Shared) -> Result<(), Outcome> {
        let tells = !spec.traits.has(Traits::BYPASSES_ATTENTION);
        let reset = self.attentions.first().filter(|first| first.is_reset());
        if tells && reset.is_some() {
            return Err(self.tell(shared));
        }
        if self.blocked.contains(table::access_of(spec, cdb)) {
            return Err(Outcome::status(Status::ReservationConflict));
        }
        if tells && !self.attentions.is_empty() {
            return Err(self.tell(shared));
        }
        if let Some(sense) = shared.reservations.lost_sense()
            && !spec.traits.has(Traits::WHEN_LOST)
        {
            return Err(Outcome::check(sense));
        }
        match not_ready(self.refuses_access, shared) {
            Some(sense) if !spec.traits.has(Traits::WHEN_NOT_READY) => Err(Outcome::check(sense)),
            Some(_) | None => Ok(()),
        }
    }

    fn tell(&mut self, shared: &Shared) -> Outcome {
        let attention = self.attentions.pop();
        self.refresh(shared);
        attention.map_or_else(Outcome::good, |told| Outcome::check(told.sense()))
    }

    /// Why this nexus may not have a command that changes blocks or the unit, if it may not.
    fn refusal(
        &self,
        spec: &CommandSpec,
        cdb: Cdb,
        profile: &Profile,
        shared: &Shared,
    ) -> Option<Sense> {
        if spec.traits.has(Traits::WRITES) {
            self.write_protection(profile, shared)
        } else {
            owner::view_refusal(&self.nexus, spec, cdb, shared)
        }
    }

    /// Why this nexus cannot write, if it cannot.
    fn write_protection(&self, profile: &Profile, shared: &Shared) -> Option<Sense> {
        let code = if shared.modes.software_write_protect {
            SenseCode::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED
        } else if self.nexus.read_only || profile.capabilities.read_only {
            SenseCode::WRITE_PROTECTED
        } else {
            return None;
        };
        Some(Sense::new(SenseKey::DataProtect, code))
    }
}
