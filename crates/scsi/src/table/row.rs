//! What a row of the command table says about a command.

use crate::sam::cdb::Cdb;
use crate::sam::profile::Profile;
use crate::sam::sense::Sense;
use crate::table::access::AccessClass;

/// Which way parameter data or blocks go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// No data.
    None,
    /// To the initiator.
    In,
    /// From the initiator.
    Out,
}

/// What a unit must be for the row to exist.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requires {
    /// Nothing.
    Nothing,
    /// Blocks can be unmapped.
    Thin,
    /// Blocks cannot be unmapped.
    Thick,
    /// The medium can be ejected.
    Removable,
    /// The medium cannot be ejected.
    Fixed,
}

/// Facts about a command, as a bit set.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Traits(u8);

impl Traits {
    /// None of them.
    pub const NONE: Self = Self(0x00);
    /// Executed although unit attentions are pending, which stay.
    pub const BYPASSES_ATTENTION: Self = Self(0x01);
    /// Executed although the unit is stopped, has no medium or refuses access.
    pub const WHEN_NOT_READY: Self = Self(0x02);
    /// Changes blocks: needs a unit and a nexus that may write.
    pub const WRITES: Self = Self(0x04);
    /// Executed although the kept persistent reservations are lost.
    pub const WHEN_LOST: Self = Self(0x08);
    /// Changes the unit for other nexuses without writing blocks: needs a nexus that may write.
    pub const ALTERS: Self = Self(0x10);

    /// Both sets together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of the other set is in this one.
    pub const fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all of the other set are in this one.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a row is executed by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the commands")]
pub enum Operation {
    TestUnitReady,
    RequestSense,
    Inquiry,
    ModeSense,
    LogSense,
    ReportLuns,
    ReadCapacity10,
    ReadCapacity16,
    ReadDefectData,
    ReportSupportedOperationCodes,
    ReportSupportedTaskManagementFunctions,
    ReportTargetPortGroups,
    SendDiagnostic,
    PersistentReserveIn,
    Read,
    Write,
    WriteAndVerify,
    Verify,
    PreFetch,
    SynchronizeCache,
    CompareAndWrite,
    OrWrite,
    WriteSame,
    Unmap,
    GetLbaStatus,
    /// Changes state that all cores share.
    Owned(OwnerOperation),
}

impl Operation {
    /// Whether the CDB names blocks of the medium.
    pub(crate) const fn has_extent(self) -> bool {
        match self {
            Self::Read
            | Self::Write
            | Self::WriteAndVerify
            | Self::Verify
            | Self::PreFetch
            | Self::SynchronizeCache
            | Self::CompareAndWrite
            | Self::OrWrite
            | Self::WriteSame => true,
            Self::TestUnitReady
            | Self::RequestSense
            | Self::Inquiry
            | Self::ModeSense
            | Self::LogSense
            | Self::ReportLuns
            | Self::ReadCapacity10
            | Self::ReadCapacity16
            | Self::ReadDefectData
            | Self::ReportSupportedOperationCodes
            | Self::ReportSupportedTaskManagementFunctions
            | Self::ReportTargetPortGroups
            | Self::SendDiagnostic
            | Self::PersistentReserveIn
            | Self::Unmap
            | Self::GetLbaStatus
            | Self::Owned(_) => false,
        }
    }
}

/// What a command does to the medium, for those who count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommandKind {
    /// Reads it.
    Read,
    /// Writes it, or unmaps.
    Write,
    /// Anything else.
    Other,
}

/// What the owner core executes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the names are those of the commands")]
pub enum OwnerOperation {
    ModeSelect,
    PersistentReserveOut,
    Reserve,
    Release,
    StartStopUnit,
    PreventAllowMediumRemoval,
}

/// Where a CDB holds LBA and length, by its size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Layout {
    /// 21 bits and 8 bits, where length 0 means 256.
    Six,
    /// 32 bits and 16 bits.
    Ten,
    /// 32 bits and 32 bits.
    Twelve,
    /// 64 bits and 32 bits.
    Sixteen,
    /// 64 bits and 8 bits (COMPARE AND WRITE).
    SixteenByte,
}

impl Layout {
    const fn of(usage: &[u8]) -> Self {
        match (usage[0], usage.len()) {
            (0x89, _) => Self::SixteenByte,
            (_, 6) => Self::Six,
            (_, 10) => Self::Ten,
            (_, 12) => Self::Twelve,
            _ => Self::Sixteen,
        }
    }

    /// LBA and number of blocks.
    pub(crate) const fn extent(self, cdb: Cdb) -> (u64, u32) {
        match self {
            Self::Six => {
                let blocks = cdb.u8(4) as u32;
                let lba = (cdb.u24(1) & 0x1f_ffff) as u64;
                (lba, if blocks == 0 { 256 } else { blocks })
            }
            Self::Ten => (cdb.u32(2) as u64, cdb.u16(7) as u32),
            Self::Twelve => (cdb.u32(2) as u64, cdb.u32(6)),
            Self::Sixteen => (cdb.u64(2), cdb.u32(10)),
            Self::SixteenByte => (cdb.u64(2), cdb.u8(13) as u32),
        }
    }

    /// The byte where the length starts, for the field pointer.
    pub(crate) const fn length_at(self) -> u16 {
        match self {
            Self::Six => 4,
            Self::Ten => 7,
            Self::Twelve => 6,
            Self::Sixteen => 10,
            Self::SixteenByte => 13,
        }
    }
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Its name in the standards.
    pub name: &'static str,
    /// CDB usage data: the operation code, the service action, and a one for each bit that is
    /// evaluated. Every other bit must be zero, else INVALID FIELD IN CDB.
    pub usage: &'static [u8],
    /// The low five bits of byte 1 select it.
    pub has_service_action: bool,
    /// Which way data goes.
    pub direction: Direction,
    /// What reservations say about it.
    pub access: AccessClass,
    /// More facts.
    pub traits: Traits,
    /// RECOMMENDED COMMAND TIMEOUT, in seconds.
    pub timeout_seconds: u32,
    /// When the row exists.
    pub requires: Requires,
    /// What executes it.
    pub operation: Operation,
    /// Where LBA and length are, for commands that have them.
    pub layout: Layout,
    /// Bits of the 16 bytes that may be set.
    allowed: u128,
}

impl CommandSpec {
    /// The operation code.
    pub const fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// The service action, if the command has one.
    pub const fn service_action(&self) -> Option<u8> {
        if self.has_service_action {
            Some(self.usage[1] & 0x1f)
        } else {
            None
        }
    }

    /// What it does to the medium.
    pub const fn kind(&self) -> CommandKind {
        if self.traits.has(Traits::WRITES) {
            CommandKind::Write
        } else if matches!(self.operation, Operation::Read) {
            CommandKind::Read
        } else {
            CommandKind::Other
        }
    }

    /// INVALID FIELD IN CDB for the first bit that is set and not evaluated.
    ///
    /// Spec: SPC-5, Sense key specific data, field pointer.
    pub(crate) fn check_fields(&self, cdb: Cdb) -> Result<(), Sense> {
        let wrong = cdb.number() & !self.allowed;
        if wrong == 0 {
            return Ok(());
        }
        // The standard counts bytes from the left and bits from the right of each byte.
        let from_left = wrong.leading_zeros();
        let byte = u16::try_from(from_left / 8).unwrap_or(0);
        let bit = u8::try_from(7 - from_left % 8).unwrap_or(0);
        Err(Sense::invalid_field_in_cdb(byte, bit))
    }

    /// Whether the unit has this command.
    pub fn is_there(&self, profile: &Profile) -> bool {
        let thin = profile.capabilities.thin;
        let removable = profile.identity.removable;
        match self.requires {
            Requires::Nothing => true,
            Requires::Thin => thin,
            Requires::Thick => !thin,
            Requires::Removable => removable,
            Requires::Fixed => !removable,
        }
    }

    pub(crate) const fn requires(mut self, requires: Requires) -> Self {
        self.requires = requires;
        self
    }

    pub(crate) const fn timeout(mut self, seconds: u32) -> Self {
        self.timeout_seconds = seconds;
        self
    }
}

/// Ordinary commands answer long before this; an initiator should not give up earlier.
const TIMEOUT_SECONDS: u32 = 30;
/// Commands that touch many blocks or wait for stable storage.
pub(crate) const LONG_SECONDS: u32 = 120;

const fn allowed(usage: &[u8], has_service_action: bool) -> u128 {
    let mut padded = [0; 16];
    let mut at = 0;
    while at < usage.len() {
        padded[at] = usage[at];
        at += 1;
    }
    // The row was found by these; they are right.
    padded[0] = 0xff;
    if has_service_action {
        padded[1] |= 0x1f;
    }
    // What lies behind the CDB is padding of the transport, not a field.
    while at < 16 {
        padded[at] = 0xff;
        at += 1;
    }
    u128::from_be_bytes(padded)
}

/// A row without service action, with the usual timeout, for every unit.
pub(crate) const fn row(
    name: &'static str,
    usage: &'static [u8],
    direction: Direction,
    access: AccessClass,
    traits: Traits,
    operation: Operation,
) -> CommandSpec {
    CommandSpec {
        name,
        usage,
        has_service_action: false,
        direction,
        access,
        traits,
        timeout_seconds: TIMEOUT_SECONDS,
        requires: Requires::Nothing,
        operation,
        layout: Layout::of(usage),
        allowed: allowed(usage, false),
    }
}

/// The same row, with a service action in byte 1.
pub(crate) const fn action(mut row: CommandSpec) -> CommandSpec {
    row.has_service_action = true;
    row.allowed = allowed(row.usage, true);
    row
}
