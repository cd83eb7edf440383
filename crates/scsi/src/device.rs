//! The device servers there are. Names the rooms below; each new device type is a variant here.

use std::ops::Range;

use store::DeviceCommand;

use crate::disk::{self, Disk};
use crate::foreign::{Foreign, Next, Pass};
use crate::optical::{OfUnit, Optical};
use crate::sam::cdb::Cdb;
use crate::sam::command::{Command, FlushScope, Input, Outcome, Step};
use crate::sam::device_type::DeviceType;
use crate::sam::failures::StoreFailures;
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode};
use crate::spc::parameters::{Modes, PageCode};
use crate::spc::peripheral::Peripheral;
use crate::spc::shared::Shared;
use crate::table::row::{CommandSpec, DiskOperation, Features, OpticalOperation, unknown_command};

/// What a logical unit holds: the part of it that its device type decides.
#[derive(Debug)]
pub(crate) enum Device {
    /// SBC.
    Disk(Disk),
    /// MMC.
    Optical(Optical),
    /// Whatever others have.
    Foreign(Box<Foreign>),
}

/// A command of a device in execution.
#[derive(Debug)]
pub(crate) enum Job {
    /// Of a disk.
    Disk(disk::Job),
}

impl Job {
    /// The answer to a command that was not begun.
    pub(crate) fn refused(&self, sense: Sense) -> Outcome {
        match self {
            Self::Disk(job) => job.refused(sense),
        }
    }

    /// The blocks that it reads or writes, for fences. `None` when it touches none.
    pub(crate) fn blocks(&self) -> Option<Range<u64>> {
        match self {
            Self::Disk(job) => job.blocks(),
        }
    }

    /// It waits for data that it hands to the store at once and does not look at.
    pub(crate) const fn is_plain_write(&self) -> bool {
        match self {
            Self::Disk(job) => job.is_plain_write(),
        }
    }

    /// What its flush is for, when it has one done.
    pub(crate) fn flush_scope(&self) -> FlushScope {
        match self {
            Self::Disk(job) => job.flush_scope(),
        }
    }

    /// It holds data that is to be compared or combined with what the store reads for it.
    pub(crate) fn holds_data(&self) -> bool {
        match self {
            Self::Disk(job) => job.holds_data(),
        }
    }
}

impl Device {
    /// The device server of a unit.
    pub(crate) fn new(profile: &Profile) -> Self {
        match (&profile.foreign, profile.device_type) {
            (Some(facts), _) => Self::Foreign(Box::new(Foreign::new(profile, facts))),
            (None, DeviceType::Optical) => Self::Optical(Optical::new(profile)),
            (None, _) => Self::Disk(Disk::new(profile)),
        }
    }

    /// The disk that reads the blocks.
    #[inline]
    const fn disk(&self) -> &Disk {
        match self {
            Self::Disk(disk) | Self::Optical(Optical { disk }) => disk,
            Self::Foreign(device) => &device.disk,
        }
    }

    /// What commands that need a medium are answered with where there is none; `is_open` where it was ejected.
    pub(crate) const fn absent(&self, is_open: bool) -> SenseCode {
        match (self, is_open) {
            (Self::Disk(_) | Self::Foreign(_), _) => SenseCode::MEDIUM_NOT_PRESENT,
            (Self::Optical(_), false) => SenseCode::MEDIUM_NOT_PRESENT_TRAY_CLOSED,
            (Self::Optical(_), true) => SenseCode::MEDIUM_NOT_PRESENT_TRAY_OPEN,
        }
    }

    /// Whether a medium of so many blocks is one. A drive may be empty.
    pub(crate) const fn has_medium(&self, blocks: u64) -> bool {
        match self {
            Self::Disk(_) | Self::Foreign(_) => true,
            Self::Optical(_) => blocks > 0,
        }
    }

    /// Takes over what of the shared state every command needs.
    pub(crate) fn install(&mut self, shared: &Shared) {
        match self {
            Self::Disk(disk) | Self::Optical(Optical { disk }) => disk.install(shared),
            Self::Foreign(device) => device.disk.install(shared),
        }
    }

    /// A write is durable only if it is asked to be.
    pub(crate) const fn is_cached(&self) -> bool {
        self.disk().is_cached()
    }

    /// The place of a command that is to begin.
    #[inline]
    pub(crate) const fn job(&self) -> Job {
        match self {
            Self::Disk(_) | Self::Optical(_) | Self::Foreign(_) => Job::Disk(disk::Job::new()),
        }
    }

    /// Begins a block command.
    #[inline]
    pub(crate) fn start_disk(
        &self,
        job: &mut Job,
        operation: DiskOperation,
        row: &'static CommandSpec,
        cdb: &Cdb,
        command: &Command<'_>,
    ) -> Step {
        let Job::Disk(job) = job;
        self.disk().start(job, operation, row, cdb, command)
    }

    /// Begins a command of a CD or DVD drive.
    pub(crate) fn start_optical(
        &self,
        job: &mut Job,
        operation: OpticalOperation,
        asked: (&'static CommandSpec, &Cdb),
        command: &Command<'_>,
        of: &OfUnit<'_>,
    ) -> Result<Step, Sense> {
        match (self, job) {
            (Self::Optical(optical), Job::Disk(job)) => {
                optical.start(job, operation, asked, command, of)
            }
            // No row of the table is executed by another device.
            (Self::Disk(_) | Self::Foreign(_), Job::Disk(_)) => Err(unknown_command()),
        }
    }

    /// Goes on with a command when what its last step asked for is there.
    #[inline]
    pub(crate) fn resume(&self, job: &mut Job, input: Input) -> Step {
        let Job::Disk(job) = job;
        self.disk().resume(job, input)
    }

    /// Whether its commands are passed to a device of others.
    pub(crate) const fn is_foreign(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }

    /// Goes on with a command that is passed to a device of others.
    pub(crate) fn resume_pass(&self, pass: &mut Pass, input: Input, shared: &Shared) -> Next {
        pass.resume(input, &self.disk().failures, shared)
    }

    /// What failed in its store since the last time this was asked.
    pub(crate) fn take_failures(&self) -> Vec<StoreFailures> {
        self.disk().failures.take()
    }

    /// The default self-test of SEND DIAGNOSTIC.
    pub(crate) fn start_self_test(&self, job: &mut Job) -> Step {
        let Job::Disk(job) = job;
        self.disk().start_self_test(job)
    }

    /// The flush that follows a change by the owner, of a command with so many bytes of parameters.
    pub(crate) fn start_flush(job: &mut Job, transfer_length: u64) -> Step {
        let Job::Disk(job) = job;
        Disk::start_flush(job, transfer_length)
    }
}

impl Peripheral for Device {
    #[inline]
    fn features(&self) -> Features {
        match self {
            Self::Disk(disk) => disk.features(),
            Self::Optical(drive) => drive.features(),
            Self::Foreign(device) => device.features(),
        }
    }

    fn standard_inquiry(&self) -> Option<&[u8]> {
        match self {
            Self::Disk(_) | Self::Optical(_) => None,
            Self::Foreign(device) => device.standard_inquiry(),
        }
    }

    fn lists(&self, row: &CommandSpec) -> bool {
        match self {
            Self::Disk(_) | Self::Optical(_) => true,
            Self::Foreign(device) => device.lists(row),
        }
    }

    fn vendor_commands(&self) -> &[DeviceCommand] {
        match self {
            Self::Disk(_) | Self::Optical(_) => &[],
            Self::Foreign(device) => device.vendor_commands(),
        }
    }

    fn version_descriptor(&self) -> u16 {
        match self {
            Self::Disk(disk) => disk.version_descriptor(),
            Self::Optical(drive) => drive.version_descriptor(),
            Self::Foreign(device) => device.version_descriptor(),
        }
    }

    fn has_volatile_cache(&self) -> bool {
        match self {
            Self::Disk(disk) => disk.has_volatile_cache(),
            Self::Optical(drive) => drive.has_volatile_cache(),
            Self::Foreign(device) => device.has_volatile_cache(),
        }
    }

    #[inline]
    fn is_read_only(&self) -> bool {
        match self {
            Self::Disk(disk) => disk.is_read_only(),
            Self::Optical(drive) => drive.is_read_only(),
            Self::Foreign(device) => device.is_read_only(),
        }
    }

    fn vpd_pages(&self) -> &[u8] {
        match self {
            Self::Disk(disk) => disk.vpd_pages(),
            Self::Optical(drive) => drive.vpd_pages(),
            Self::Foreign(device) => device.vpd_pages(),
        }
    }

    fn vpd_page(&self, code: u8) -> Option<Vec<u8>> {
        match self {
            Self::Disk(disk) => disk.vpd_page(code),
            Self::Optical(drive) => drive.vpd_page(code),
            Self::Foreign(device) => device.vpd_page(code),
        }
    }

    fn mode_pages(&self) -> &'static [PageCode] {
        match self {
            Self::Disk(disk) => disk.mode_pages(),
            Self::Optical(drive) => drive.mode_pages(),
            Self::Foreign(device) => device.mode_pages(),
        }
    }

    fn mode_page(&self, page: PageCode, modes: Modes) -> Vec<u8> {
        match self {
            Self::Disk(disk) => disk.mode_page(page, modes),
            Self::Optical(drive) => drive.mode_page(page, modes),
            Self::Foreign(device) => device.mode_page(page, modes),
        }
    }

    fn select_mode_page(&self, page: PageCode, bytes: &[u8], modes: &mut Modes) {
        match self {
            Self::Disk(disk) => disk.select_mode_page(page, bytes, modes),
            Self::Optical(drive) => drive.select_mode_page(page, bytes, modes),
            Self::Foreign(device) => device.select_mode_page(page, bytes, modes),
        }
    }

    fn changeable_modes(&self) -> Modes {
        match self {
            Self::Disk(disk) => disk.changeable_modes(),
            Self::Optical(drive) => drive.changeable_modes(),
            Self::Foreign(device) => device.changeable_modes(),
        }
    }

    fn default_modes(&self) -> Modes {
        match self {
            Self::Disk(disk) => disk.default_modes(),
            Self::Optical(drive) => drive.default_modes(),
            Self::Foreign(device) => device.default_modes(),
        }
    }

    fn device_specific_parameter(&self) -> u8 {
        match self {
            Self::Disk(disk) => disk.device_specific_parameter(),
            Self::Optical(drive) => drive.device_specific_parameter(),
            Self::Foreign(device) => device.device_specific_parameter(),
        }
    }

    fn block_descriptor(&self, is_long: bool, blocks: u64) -> Vec<u8> {
        match self {
            Self::Disk(disk) => disk.block_descriptor(is_long, blocks),
            Self::Optical(drive) => drive.block_descriptor(is_long, blocks),
            Self::Foreign(device) => device.block_descriptor(is_long, blocks),
        }
    }

    fn check_block_descriptor(
        &self,
        descriptor: &[u8],
        at: usize,
        blocks: u64,
    ) -> Result<(), Sense> {
        match self {
            Self::Disk(disk) => disk.check_block_descriptor(descriptor, at, blocks),
            Self::Optical(drive) => drive.check_block_descriptor(descriptor, at, blocks),
            Self::Foreign(device) => device.check_block_descriptor(descriptor, at, blocks),
        }
    }
}
