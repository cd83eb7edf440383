//! A logical unit as one core sees it: who may do what now, and which command goes where.
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;
use std::sync::Arc;

use store::IoRequest;

use crate::device::Device;
use crate::foreign::{Next, Pass};
use crate::optical::{OfUnit, tells_of_medium};
use crate::sam::attention::UnitAttention;
use crate::sam::cdb::Cdb;
use crate::sam::change::{Change, ChangeKind, Notice, Reply};
use crate::sam::command::{Command, Input, Outcome, PIECE_BYTES_MAX, Step};
use crate::sam::failures::StoreFailures;
use crate::sam::nexus::{Nexus, NexusId, NexusSlot, PortName};
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode, SenseKey};
use crate::sam::status::Status;
use crate::sam::task_set::TaskSet;
use crate::spc::gate::{Gate, Shut};
use crate::spc::mode::{self, ModeState};
use crate::spc::peripheral::Peripheral;
use crate::spc::reservation::{BASIC_BYTES, PARAMETER_LIST_BYTES_MAX, Refusal, Surroundings};
use crate::spc::shared::Shared;
use crate::spc::{inquiry, report};
use crate::table::commands;
use crate::table::row::{
    CommandSpec, Features, LOEJ, NO_FLUSH, Operation, OpticalOperation, OwnerOperation, Passing,
    START, SpcOperation,
};
use crate::task::{FlushAfter, Owned, Task, Work};

/// All blocks that a unit may ever have, for a fence.
pub const WHOLE_MEDIUM: Range<u64> = 0..u64::MAX;

/// Places for nexuses whose memory is kept.
const ROOM_KEPT: usize = 64;
/// What a byte of a long parameter list costs its turn, in bytes that are copied: the names in it are looked up.
const LIST_COST: u32 = 32;

/// One core's view of a unit, with the nexuses whose sessions live on this core.
#[derive(Debug)]
pub struct LogicalUnit {
    profile: Arc<Profile>,
    shared: Arc<Shared>,
    device: Device,
    /// The device's.
    features: Features,
    shut: Shut,
    attached: Vec<Option<Gate>>,
    /// Slots that nobody has; some are gone or were taken again.
    vacant: Vec<usize>,
}

impl LogicalUnit {
    /// A view that starts from the owner's snapshot.
    pub fn new(profile: Arc<Profile>, shared: Arc<Shared>) -> Self {
        let mut device = Device::new(&profile);
        device.install(&shared);
        Self {
            features: device.features(),
            device,
            profile,
            shared,
            shut: Shut::default(),
            attached: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Adds a nexus whose first unit attention is `reason`.
    pub fn attach(&mut self, nexus: Nexus, reason: Option<UnitAttention>) -> NexusSlot {
        let attached = Gate::new(nexus, reason, self.shut, &self.shared);
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

    /// Removes a nexus, with the unit attentions that were not reported to it. Its tasks are over.
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
        self.set_shut(Shut {
            refuses_access: refuses,
            ..self.shut
        });
    }

    /// Another client has the medium from now on, or has it no more: the same, with a sense that initiators do not
    /// repeat, and READ CAPACITY is executed.
    pub fn set_held_elsewhere(&mut self, is_held: bool) {
        self.set_shut(Shut {
            is_held_elsewhere: is_held,
            ..self.shut
        });
    }

    fn set_shut(&mut self, shut: Shut) {
        self.shut = shut;
        for attached in self.attached.iter_mut().flatten() {
            attached.set_shut(shut, &self.shared);
        }
    }

    /// Whether commands that need the medium are refused.
    pub const fn refuses_access(&self) -> bool {
        self.shut.refuses_access
    }

    /// Why a request of a command that was let pass earlier may not go to the store now, if it may
    /// not: access is refused, or what the unit said then holds no more.
    #[inline]
    pub fn refusal_of(&self, task: &Task, request: &IoRequest) -> Option<Sense> {
        if let Some(sense) = self.refusal() {
            return Some(sense);
        }
        match self.shared.generation == task.generation {
            true => None,
            false => self.late_refusal(task, request),
        }
    }

    /// The medium was ejected while the command waited, even if it, or another one, is in again; or the unit was
    /// stopped, or writing inhibited, and the flush that went with that does not cover this request. A flush harms
    /// nobody.
    ///
    /// Spec: SPC-4, Control mode page (SWP); SBC-4, START STOP UNIT.
    #[cold]
    fn late_refusal(&self, task: &Task, request: &IoRequest) -> Option<Sense> {
        match request {
            IoRequest::Flush => None,
            _ if task.generation < self.shared.ejected_at => Some(self.shared.no_medium()),
            IoRequest::Read { .. } | IoRequest::Extents { .. } | IoRequest::Device(_) => None,
            IoRequest::Write { .. }
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::CompareAndWrite { .. } => {
                let inhibited = SenseCode::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED;
                let inhibited = Sense::new(SenseKey::DataProtect, inhibited);
                let is_inhibited = self.shared.modes.software_write_protect;
                let not_ready = self.shared.not_ready();
                not_ready.or_else(|| is_inhibited.then_some(inhibited))
            }
        }
    }

    /// Why no request may go to the store now, if access is refused.
    fn refusal(&self) -> Option<Sense> {
        let is_refused = self.shut.refuses_access;
        is_refused
            .then(|| self.shut.not_ready(&self.shared))
            .flatten()
    }

    /// The ports of an attached nexus.
    pub fn port_of(&self, slot: NexusSlot) -> Option<PortName> {
        let attached = self.attached.get(slot.0)?.as_ref()?;
        Some(attached.nexus.port.clone())
    }

    /// The slot of a nexus, if it is attached here.
    pub fn slot_of(&self, id: NexusId) -> Option<NexusSlot> {
        let is_it = |one: &Option<Gate>| one.as_ref().is_some_and(|one| one.nexus.id == id);
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

    /// Installs a new snapshot and queues the unit attentions of the nexuses here.
    pub fn install(&mut self, shared: &Arc<Shared>, notices: &[Notice]) {
        self.shared = Arc::clone(shared);
        self.device.install(shared);
        for attached in self.attached.iter_mut().flatten() {
            let mine = notices.iter().filter(|one| one.who.is(&attached.nexus));
            let told: Vec<UnitAttention> = mine.map(|one| one.attention).collect();
            attached.tell(told, shared);
        }
    }

    /// Queues a unit attention for one nexus, before its next command.
    pub fn notify(&mut self, slot: NexusSlot, attention: UnitAttention) {
        if let Some(Some(attached)) = self.attached.get_mut(slot.0) {
            attached.tell([attention], &self.shared);
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

    /// The unit says other things of itself from now on: other target ports show it, or standard INQUIRY data differ,
    /// of which each nexus gets a unit attention. Its store and its limits are the same.
    ///
    /// Spec: SPC-4, INQUIRY DATA HAS CHANGED.
    pub fn set_profile(&mut self, profile: Arc<Profile>) {
        if !profile.identity.is_shown_as(&self.profile.identity) {
            for attached in self.attached.iter_mut().flatten() {
                attached.tell([UnitAttention::InquiryDataChanged], &self.shared);
            }
        }
        self.device = Device::new(&profile);
        self.device.install(&self.shared);
        self.features = self.device.features();
        self.profile = profile;
    }

    /// Whether SIMPLE commands of a nexus are carried out one after the other: where the device is depends on those
    /// before.
    pub fn is_in_order(&self) -> bool {
        self.profile.device_type.is_in_order()
    }

    /// What failed in its store since the last time this was asked, where an initiator was answered so.
    pub fn take_failures(&self) -> Vec<StoreFailures> {
        self.device.take_failures()
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

    /// The place of a command of this nexus that begins now.
    #[inline]
    pub fn task(&self, slot: NexusSlot) -> Task {
        Task::new(slot, self.device.job(), self.shared.generation)
    }

    /// Begins a command in its place.
    pub fn start(&mut self, task: &mut Task, command: &Command<'_>) -> Step {
        let cdb = Cdb::new(command.cdb);
        match self.admit(task.slot, &cdb) {
            Ok(spec) => {
                task.spec = Some(spec);
                self.execute(task, spec, &cdb, command)
            }
            Err(outcome) => Step::Done(outcome),
        }
    }

    /// Goes on with a command when what its last step asked for is there.
    #[inline]
    pub fn resume(&mut self, task: &mut Task, input: Input) -> Step {
        if task.work == Work::Device {
            return self.device.resume(&mut task.job, input);
        }
        self.resume_owned(task, input)
    }

    /// The same for a command of the owner.
    fn resume_owned(&self, task: &mut Task, input: Input) -> Step {
        match (task.work, input) {
            (Work::OwnerParameters, Input::DataOut(list)) => {
                let list = list.to_vec();
                let Some(owned) = task.owned.as_mut().filter(|_| list.len() > BASIC_BYTES) else {
                    return self.hand_to_owner(task, list);
                };
                let bytes = u32::try_from(list.len()).unwrap_or(u32::MAX);
                owned.list = list;
                task.work = Work::OwnerTurn;
                Step::Turn {
                    bytes: bytes.saturating_mul(LIST_COST).min(PIECE_BYTES_MAX),
                }
            }
            (Work::OwnerTurn, Input::Turn) => {
                let list = task.owned.as_mut().map(|it| std::mem::take(&mut it.list));
                self.hand_to_owner(task, list.unwrap_or_default())
            }
            (Work::EjectFence, Input::FenceGranted) => {
                // The fence does not wait for requests of the past, which may still land.
                if let Some(sense) = self.refusal() {
                    task.work = Work::Over;
                    return Step::Done(Outcome::check(sense));
                }
                let has_no_flush = |owned: &Owned| owned.cdb.has(4, NO_FLUSH);
                if task.owned.as_deref().is_some_and(has_no_flush) {
                    return self.hand_to_owner(task, Vec::new());
                }
                task.work = Work::EjectFlush;
                Device::start_flush(&mut task.job, 0)
            }
            (Work::EjectFlush, input @ Input::Io(_)) => {
                match self.device.resume(&mut task.job, input) {
                    Step::Done(outcome) if outcome.status == Status::Good => {
                        self.hand_to_owner(task, Vec::new())
                    }
                    step @ (Step::Done(_)
                    | Step::DataOut { .. }
                    | Step::Io(_)
                    | Step::Owner(_)
                    | Step::Fence(_)
                    | Step::Turn { .. }) => step,
                }
            }
            (Work::Owner { flush }, Input::Owner(mut reply)) => {
                task.work = Work::Over;
                if reply.status != Status::Good {
                    return Step::Done(reply.into());
                }
                reply.transfer_length = task.owned.as_ref().map_or(0, |it| it.parameters.into());
                self.flush_after(task, reply, flush)
            }
            (Work::OffFlush, input @ Input::Io(_)) => {
                let step = self.device.resume(&mut task.job, input);
                let is_good = matches!(&step, Step::Done(it) if it.status == Status::Good);
                if !is_good || !self.shared.cache.is_unflushed() {
                    return step;
                }
                let epoch = task.owned.as_ref().map_or(0, |owned| owned.cache_epoch);
                self.ask_owner(task, ChangeKind::Flushed { epoch }, FlushAfter::Never)
            }
            (Work::Pass, input) => self.resume_pass(task, input),
            (work, input) => {
                debug_assert!(false, "{work:?} does not wait for {input:?}");
                let code = SenseCode::INTERNAL_TARGET_FAILURE;
                Step::Done(Outcome::check(Sense::new(SenseKey::HardwareError, code)))
            }
        }
    }

    /// The same for a command of a device of others.
    #[cold]
    fn resume_pass(&self, task: &mut Task, input: Input) -> Step {
        let pass = task.owned.as_mut().and_then(|owned| owned.pass.as_mut());
        match pass.map(|pass| self.device.resume_pass(pass, input, &self.shared)) {
            Some(next) => self.go_on_with_pass(task, next),
            None => Step::Done(Outcome::check(report::no_such_unit())),
        }
    }

    fn go_on_with_pass(&self, task: &mut Task, next: Next) -> Step {
        let step = match next {
            Next::Step(step) => step,
            Next::Tell(kind) => self.ask_owner(task, kind, FlushAfter::Never),
        };
        task.work = Work::Pass;
        step
    }

    fn attached_mut(&mut self, slot: NexusSlot) -> Option<&mut Gate> {
        self.attached.get_mut(slot.0)?.as_mut()
    }

    fn attached(&self, slot: NexusSlot) -> Option<&Gate> {
        self.attached.get(slot.0)?.as_ref()
    }

    /// Decides whether a command may run: operation code, then what [`Gate::admit`] looks at.
    #[inline]
    fn admit(&mut self, slot: NexusSlot, cdb: &Cdb) -> Result<&'static CommandSpec, Outcome> {
        let found = commands::find(cdb, &self.features);
        let spec = found.map_err(|refusal| self.without_row(refusal))?;
        let attached = self
            .attached
            .get_mut(slot.0)
            .and_then(Option::as_mut)
            .ok_or_else(|| Outcome::check(report::no_such_unit()))?;
        attached.admit(spec, cdb, &self.shared, self.device.is_read_only())?;
        Ok(spec)
    }

    /// The answer to a command that has no row: a device of others that was not found yet, and has no type so far, may
    /// have it.
    #[cold]
    fn without_row(&self, refusal: Sense) -> Outcome {
        let may_come = self.device.is_foreign();
        let not_ready = may_come.then(|| self.shut.not_ready(&self.shared));
        Outcome::check(not_ready.flatten().unwrap_or(refusal))
    }

    #[inline]
    fn execute(
        &mut self,
        task: &mut Task,
        spec: &'static CommandSpec,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Step {
        let started = match spec.operation {
            Operation::Disk(operation) => {
                task.work = Work::Device;
                let job = &mut task.job;
                return self.device.start_disk(job, operation, spec, cdb, command);
            }
            Operation::Spc(operation) => self.execute_spc(task, operation, spec, cdb, command),
            Operation::Optical(operation) => {
                task.work = Work::Device;
                self.execute_optical(task, operation, (spec, cdb), command)
            }
            Operation::Owned(OwnerOperation::PreventAllowMediumRemoval)
                if self.device.is_foreign() && !self.is_kept_by_another(task.slot, spec, cdb) =>
            {
                self.start_pass(task, Passing::Prevents, cdb, command)
            }
            Operation::Owned(_) => self.start_owned(task, spec, cdb, command),
            Operation::Foreign(what) => self.start_pass(task, what, cdb, command),
        };
        started.unwrap_or_else(|sense| Step::Done(task.job.refused(sense)))
    }

    fn execute_spc(
        &mut self,
        task: &mut Task,
        operation: SpcOperation,
        spec: &'static CommandSpec,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let (slot, device) = (task.slot, &self.device);
        let data = match operation {
            SpcOperation::TestUnitReady => return Ok(Step::Done(Outcome::good())),
            SpcOperation::SendDiagnostic => return Ok(self.start_diagnostic(task, cdb)),
            SpcOperation::PersistentReserveIn => match self.persistent_reserve_in(spec) {
                Ok(data) => data,
                Err(Refusal::Conflict) => {
                    return Ok(Step::Done(Outcome::status(Status::ReservationConflict)));
                }
                Err(Refusal::Check(sense)) => return Err(sense),
            },
            SpcOperation::RequestSense => match self.request_sense(slot, cdb) {
                Some(data) => data,
                None => return self.start_pass(task, Passing::Reads, cdb, command),
            },
            SpcOperation::Inquiry => {
                let attached = self.attached(slot).ok_or_else(report::no_such_unit)?;
                inquiry::inquiry(cdb, &self.profile, device, &attached.nexus.port)?
            }
            SpcOperation::ModeSense => {
                mode::sense(cdb, spec.is_six(), device, self.mode_state(slot))?
            }
            SpcOperation::LogSense => report::log(cdb)?,
            SpcOperation::ReportLuns => {
                let data = report::luns(cdb, command.luns)?;
                self.forget(slot, UnitAttention::ReportedLunsChanged);
                data
            }
            SpcOperation::ReportOperationCodes => report::operation_codes(cdb, device)?,
            SpcOperation::ReportTaskManagement => report::task_management(cdb, &self.profile),
            SpcOperation::ReportTargetPortGroups => report::target_port_groups(cdb, &self.profile)?,
        };
        let allocation_length = spec.fields.allocation_length(cdb);
        Ok(Step::Done(Outcome::data(data, allocation_length)))
    }

    /// A command of a CD or DVD drive.
    #[inline(never)]
    fn execute_optical(
        &mut self,
        task: &mut Task,
        operation: OpticalOperation,
        (spec, cdb): (&'static CommandSpec, &Cdb),
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let shared = Arc::clone(&self.shared);
        let is_told = operation == OpticalOperation::GetEventStatus && tells_of_medium(cdb);
        let attached = self
            .attached_mut(task.slot)
            .ok_or_else(report::no_such_unit)?;
        let of = OfUnit {
            event: attached.media_event(&shared, is_told),
            shared: &shared,
        };
        let job = &mut task.job;
        self.device
            .start_optical(job, operation, (spec, cdb), command, &of)
    }

    /// A command for a device of others.
    #[cold]
    fn start_pass(
        &self,
        task: &mut Task,
        what: Passing,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let attached = self.attached(task.slot).ok_or_else(report::no_such_unit)?;
        let by = (&*self.shared, attached.nexus.id);
        let bytes_max = self.profile.limits.transfer_bytes_max;
        let pass = Pass::new(what, cdb, command, by, bytes_max)?;
        let next = pass.start();
        task.owned = Some(Box::new(Owned {
            cdb: cdb.clone(),
            parameters: 0,
            list: Vec::new(),
            cache_epoch: 0,
            pass: Some(pass),
        }));
        Ok(self.go_on_with_pass(task, next))
    }

    /// Whether a command that allows the removal of the medium is none for the device: another nexus prevents it.
    fn is_kept_by_another(&self, slot: NexusSlot, spec: &CommandSpec, cdb: &Cdb) -> bool {
        let own = self.attached(slot).map(|attached| attached.nexus.id);
        let mut preventing = self.shared.preventing.iter();
        spec.allows_removal(cdb) && preventing.any(|id| Some(*id) != own)
    }

    /// Pending unit attentions and NOT READY come as data. `None`: a device of others has the answer.
    ///
    /// Spec: SPC-5, REQUEST SENSE.
    fn request_sense(&mut self, slot: NexusSlot, cdb: &Cdb) -> Option<Vec<u8>> {
        let shared = Arc::clone(&self.shared);
        let attention = self
            .attached_mut(slot)
            .and_then(|attached| attached.take_attention(&shared));
        let nothing = Sense::new(
            SenseKey::NoSense,
            SenseCode::NO_ADDITIONAL_SENSE_INFORMATION,
        );
        let sense = attention
            .map(UnitAttention::sense)
            .or_else(|| self.shut.not_ready(&shared))
            .or_else(|| (!self.device.is_foreign()).then_some(nothing))?;
        Some(sense.encode(cdb.has(1, 0x01)).to_vec())
    }

    /// Another command has reported what the unit attention would report.
    fn forget(&mut self, slot: NexusSlot, attention: UnitAttention) {
        let shared = Arc::clone(&self.shared);
        if let Some(attached) = self.attached_mut(slot) {
            attached.forget(attention, &shared);
        }
    }

    fn mode_state(&self, slot: NexusSlot) -> ModeState {
        let is_read_only = self.device.is_read_only();
        let protection = self
            .attached(slot)
            .and_then(|attached| attached.write_protection(&self.shared, is_read_only));
        ModeState {
            blocks: self.shared.blocks,
            current: self.shared.shown_modes(),
            saved: self.shared.shown_saved_modes(),
            write_protected: protection.is_some(),
            keeps_state: self.profile.keeps_state,
        }
    }

    fn persistent_reserve_in(&self, spec: &CommandSpec) -> Result<Vec<u8>, Refusal> {
        let surroundings = Surroundings {
            target_ports: &self.profile.relative_ports(),
            initiator_ports: &[],
            can_persist: self.profile.keeps_state,
        };
        let reservations = &self.shared.reservations;
        reservations.persistent_reserve_in(spec.service_action(), &surroundings)
    }

    /// Commands that change shared state: collect the parameter list, hand all to the owner.
    fn start_owned(
        &self,
        task: &mut Task,
        spec: &CommandSpec,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Result<Step, Sense> {
        let length = spec.fields.parameter_list_length(cdb);
        let is_too_long = usize::try_from(length).is_ok_and(|len| len > PARAMETER_LIST_BYTES_MAX);
        if is_too_long || length > command.data_out_length {
            // Never fetched: it cannot be right, or will not come whole.
            return Err(mode::length_error());
        }
        task.owned = Some(Box::new(Owned {
            cdb: cdb.clone(),
            parameters: length,
            list: Vec::new(),
            cache_epoch: 0,
            pass: None,
        }));
        if spec.ejects(cdb) {
            // The owner asks again, when the medium has been flushed. That is done for one that is out, too:
            // it may be in by the time the owner looks.
            self.shared.check_removal()?;
            task.work = Work::EjectFence;
            return Ok(Step::Fence(WHOLE_MEDIUM));
        }
        if length == 0 {
            return Ok(self.hand_to_owner(task, Vec::new()));
        }
        task.work = Work::OwnerParameters;
        Ok(Step::DataOut { length })
    }

    fn hand_to_owner(&self, task: &mut Task, parameters: Vec<u8>) -> Step {
        let Some(owned) = &task.owned else {
            task.work = Work::Over;
            return Step::Done(Outcome::check(report::no_such_unit()));
        };
        let flush = match task.spec.map(|spec| spec.operation) {
            // In force on all cores first, so that the flush covers every write answered before. Also where the
            // cache is off already: the flush that belongs to that may have failed, or be under way.
            Some(Operation::Owned(OwnerOperation::ModeSelect)) => FlushAfter::ModeSelect,
            Some(Operation::Owned(OwnerOperation::StartStopUnit))
                if !owned.cdb.has(4, START | LOEJ | NO_FLUSH) =>
            {
                FlushAfter::Always
            }
            Some(_) | None => FlushAfter::Never,
        };
        let cdb = owned.cdb.clone();
        self.ask_owner(task, ChangeKind::Command { cdb, parameters }, flush)
    }

    /// The owner has made the change; a flush may have to follow.
    fn flush_after(&self, task: &mut Task, reply: Reply, flush: FlushAfter) -> Step {
        task.work = match flush {
            FlushAfter::Always => Work::Device,
            FlushAfter::ModeSelect if self.holds_back_writes() => Work::OffFlush,
            FlushAfter::Never | FlushAfter::ModeSelect => return Step::Done(reply.into()),
        };
        if let Some(owned) = &mut task.owned {
            owned.cache_epoch = self.shared.cache.epoch();
        }
        Device::start_flush(&mut task.job, reply.transfer_length)
    }

    fn ask_owner(&self, task: &mut Task, kind: ChangeKind, flush: FlushAfter) -> Step {
        let Some(attached) = self.attached(task.slot) else {
            task.work = Work::Over;
            return Step::Done(Outcome::check(report::no_such_unit()));
        };
        task.work = Work::Owner { flush };
        let from = Some(attached.nexus.clone());
        Step::Owner(Change { from, kind })
    }

    /// Whether what is in a cache has to go to the medium now: writes do not stay in it, or are inhibited.
    ///
    /// Spec: SBC-4, Caching mode page (WCE); SPC-4, Control mode page (SWP).
    fn holds_back_writes(&self) -> bool {
        self.device.changeable_modes().write_cache
            && (!self.device.is_cached() || self.shared.modes.software_write_protect)
    }

    fn start_diagnostic(&self, task: &mut Task, cdb: &Cdb) -> Step {
        const SELFTEST: u8 = 0x04;
        if !cdb.has(1, SELFTEST) {
            return Step::Done(Outcome::good());
        }
        task.work = Work::Device;
        self.device.start_self_test(&mut task.job)
    }
}
