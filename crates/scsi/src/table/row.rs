//! What a row of the command table says about a command.

use super::access::AccessClass;
use super::field::Fields;
use crate::sam::cdb::Cdb;
use crate::sam::device_type::DeviceType;
use crate::sam::sense::{Sense, SenseCode};

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

/// The device types that have a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeviceTypes(u32);

impl DeviceTypes {
    /// What SPC has for all.
    pub const ALL: Self = Self(u32::MAX);
    /// Disks only.
    pub const DISK: Self = Self::of(DeviceType::Disk);
    /// CD and DVD drives only.
    pub const OPTICAL: Self = Self::of(DeviceType::Optical);
    /// Both.
    pub const BLOCKS: Self = Self::DISK.and(Self::OPTICAL);

    /// This one only.
    pub(crate) const fn of(device_type: DeviceType) -> Self {
        Self(1 << device_type as u8)
    }

    /// Both sets together.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without the other.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the type is one of them.
    pub const fn contains(self, device_type: DeviceType) -> bool {
        self.0 & Self::of(device_type).0 != 0
    }
}

/// START of START STOP UNIT, in byte 4.
pub(crate) const START: u8 = 0x01;
/// LOEJ: the medium moves.
pub(crate) const LOEJ: u8 = 0x02;
/// NO_FLUSH: what is cached may stay so.
pub(crate) const NO_FLUSH: u8 = 0x04;

/// What a unit must be able to do for the row to exist.
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

/// What decides which rows a unit has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Features {
    /// What the unit is.
    pub device_type: DeviceType,
    /// Blocks can be unmapped.
    pub thin: bool,
    /// The medium can be ejected.
    pub removable: bool,
    /// It is a device of others, to which commands are passed.
    pub is_foreign: bool,
    /// It gets commands of its vendor, too.
    pub has_vendor_commands: bool,
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
    /// Executed although another client has the medium, as what has [`Traits::WHEN_NOT_READY`].
    pub const WHEN_HELD_ELSEWHERE: Self = Self(0x20);

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
pub(crate) enum Operation {
    /// The core of the nexus, whatever the device type.
    Spc(SpcOperation),
    /// The disk.
    Disk(DiskOperation),
    /// The CD or DVD drive.
    Optical(OpticalOperation),
    /// The owner: it changes state that all cores share.
    Owned(OwnerOperation),
    /// A device of others.
    Foreign(Passing),
}

/// What is passed to a device of others, by what it does there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Passing {
    /// Nothing that outlives it.
    Reads,
    /// It changes the medium, its position or the device.
    Writes,
    /// It changes mode parameters.
    Modes,
    /// It changes log parameters.
    Logs,
    /// It loads or unloads the medium.
    Moves,
    /// It prevents or allows the removal of the medium.
    Prevents,
}

/// Commands of SPC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SpcOperation {
    TestUnitReady,
    RequestSense,
    Inquiry,
    ModeSense,
    LogSense,
    ReportLuns,
    ReportOperationCodes,
    ReportTaskManagement,
    ReportTargetPortGroups,
    SendDiagnostic,
    PersistentReserveIn,
}

/// Commands of SBC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DiskOperation {
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
    ReadCapacity10,
    ReadCapacity16,
    ReadDefectData10,
    ReadDefectData12,
}

/// Commands of MMC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OpticalOperation {
    ReadToc,
    GetConfiguration,
    GetEventStatus,
    ReadDiscInformation,
    ReadTrackInformation,
    ReportKey,
    ReadDiscStructure,
    ReadCdMsf,
    SetSpeed,
    MechanismStatus,
    ReadCd,
}

/// Commands that the owner core executes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OwnerOperation {
    ModeSelect,
    PersistentReserveOut,
    Reserve,
    Release,
    StartStopUnit,
    PreventAllowMediumRemoval,
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

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Its name in the standards.
    pub name: &'static str,
    /// CDB usage data: the operation code, the service action, and a one for each bit that is
    /// evaluated. Every other bit must be zero, else INVALID FIELD IN CDB.
    pub usage: &'static [u8],
    /// Where its fields are.
    pub(crate) fields: Fields,
    /// The device types that have it.
    pub devices: DeviceTypes,
    /// Which way data goes.
    pub direction: Direction,
    /// What reservations say about it.
    pub access: AccessClass,
    /// More facts.
    pub traits: Traits,
    /// What else the unit must be able to do.
    pub requires: Requires,
    /// RECOMMENDED COMMAND TIMEOUT, in seconds.
    pub timeout_seconds: u32,
    /// What executes it.
    pub(crate) operation: Operation,
}

impl CommandSpec {
    /// The operation code.
    pub const fn opcode(&self) -> u8 {
        self.usage[0]
    }

    /// The service action, if the command has one.
    pub const fn service_action(&self) -> Option<u16> {
        self.fields.wanted_action()
    }

    /// Whether it is the command that the CDB asks for, whose operation code is this row's.
    #[inline]
    pub(super) fn is_asked_for(&self, cdb: &Cdb) -> bool {
        self.fields.has_action_of(cdb)
    }

    /// INVALID FIELD IN CDB for the service action.
    #[cold]
    pub(super) fn unknown_action(&self) -> Sense {
        match self.fields.service_action_at() {
            1 => Sense::invalid_field_in_cdb(1, 4),
            byte => Sense::invalid_byte_in_cdb(byte),
        }
    }

    /// What it does to the medium.
    pub const fn kind(&self) -> CommandKind {
        if self.traits.has(Traits::WRITES) {
            return CommandKind::Write;
        }
        let reads = matches!(self.opcode(), 0x08 | 0x28 | 0x88 | 0xa8 | 0xb9 | 0xbe);
        match self.operation {
            Operation::Foreign(_) if reads => CommandKind::Read,
            Operation::Disk(DiskOperation::Read)
            | Operation::Optical(OpticalOperation::ReadCd | OpticalOperation::ReadCdMsf) => {
                CommandKind::Read
            }
            Operation::Spc(_)
            | Operation::Disk(_)
            | Operation::Optical(_)
            | Operation::Owned(_)
            | Operation::Foreign(_) => CommandKind::Other,
        }
    }

    /// The CDB has six bytes, which the two MODE commands answer in another form.
    pub(crate) const fn is_six(&self) -> bool {
        self.usage.len() == 6
    }

    /// INVALID FIELD IN CDB for the first bit that is set and not evaluated.
    ///
    /// Spec: SPC-5, Sense key specific data, field pointer.
    pub(crate) fn check_fields(&self, cdb: &Cdb) -> Result<(), Sense> {
        if let Some(from_left) = self.fields.first_wrong_bit(cdb) {
            return Err(wrong_bit(from_left));
        }
        if self.usage.len() > 16 {
            return self.check_long(cdb);
        }
        Ok(())
    }

    /// The same behind byte 16, and the length.
    ///
    /// Spec: SPC-5, The variable length CDB format.
    fn check_long(&self, cdb: &Cdb) -> Result<(), Sense> {
        const ADDITIONAL_CDB_LENGTH: usize = 7;
        let additional = usize::from(cdb.u8(ADDITIONAL_CDB_LENGTH));
        let wanted = self.usage.len();
        if cdb.len() < wanted || additional.saturating_add(8) != wanted {
            return Err(Sense::invalid_byte_in_cdb(7));
        }
        let tail = cdb.tail().iter().zip(self.usage.iter().skip(16));
        for (at, (&got, &evaluated)) in (16_u32..).zip(tail) {
            if let wrong @ 1.. = got & !evaluated {
                let from_left = at.saturating_mul(8).saturating_add(wrong.leading_zeros());
                return Err(wrong_bit(from_left));
            }
        }
        Ok(())
    }

    /// Whether the unit has this command.
    #[inline]
    pub fn is_there(&self, unit: &Features) -> bool {
        self.devices.contains(unit.device_type)
            && match self.requires {
                Requires::Nothing => true,
                Requires::Thin => unit.thin,
                Requires::Thick => !unit.thin,
                Requires::Removable => unit.removable,
                Requires::Fixed => !unit.removable,
            }
    }

    /// What reservations say about it: the column of the table, except for two commands where a
    /// field decides.
    ///
    /// Spec: SPC-4, SBC-3 and SPC-2, the tables of commands allowed in the presence of
    /// reservations.
    pub(crate) fn access_of(&self, cdb: &Cdb) -> AccessClass {
        if self.starts(cdb) || self.allows_removal(cdb) {
            AccessClass::Always
        } else {
            self.access
        }
    }

    /// Whether it is a START STOP UNIT that starts or loads.
    pub(crate) fn starts(&self, cdb: &Cdb) -> bool {
        self.operation == Operation::Owned(OwnerOperation::StartStopUnit) && cdb.has(4, START)
    }

    /// Whether it is a START STOP UNIT that ejects.
    pub(crate) fn ejects(&self, cdb: &Cdb) -> bool {
        let operation = Operation::Owned(OwnerOperation::StartStopUnit);
        self.operation == operation && cdb.has(4, LOEJ) && !cdb.has(4, START)
    }

    /// Whether it is a PREVENT ALLOW MEDIUM REMOVAL that allows.
    pub(crate) fn allows_removal(&self, cdb: &Cdb) -> bool {
        let operation = Operation::Owned(OwnerOperation::PreventAllowMediumRemoval);
        self.operation == operation && !cdb.has(4, 0x01)
    }
}

/// Commands, by operation code and service action. Rows of one operation code are adjacent.
pub(super) struct Table {
    pub(super) rows: &'static [CommandSpec],
    /// The first row of each operation code.
    pub(super) first: [u8; 256],
}

/// No command has this operation code.
const NO_ROW: u8 = u8::MAX;

impl Table {
    pub(super) const fn new(rows: &'static [CommandSpec]) -> Self {
        assert!(rows.len() < NO_ROW as usize);
        let mut first = [NO_ROW; 256];
        let mut at = rows.len();
        while at > 0 {
            at -= 1;
            #[expect(clippy::cast_possible_truncation, reason = "asserted to fit above")]
            let row = at as u8;
            first[rows[at].usage[0] as usize] = row;
        }
        Self { rows, first }
    }

    /// The rows of the operation code.
    pub(super) fn rows_of(&self, cdb: &Cdb) -> impl Iterator<Item = &'static CommandSpec> {
        let opcode = cdb.opcode();
        let first = self
            .first
            .get(usize::from(opcode))
            .copied()
            .unwrap_or(NO_ROW);
        let rows = self.rows.get(usize::from(first)..).unwrap_or(&[]);
        rows.iter().take_while(move |row| row.opcode() == opcode)
    }

    /// The row for a CDB, or why there is none.
    pub(super) fn find(
        &self,
        cdb: &Cdb,
        is_there: impl Fn(&CommandSpec) -> bool,
    ) -> Result<&'static CommandSpec, Sense> {
        let mut refusal = None;
        for row in self.rows_of(cdb) {
            if is_there(row) {
                if row.is_asked_for(cdb) {
                    return Ok(row);
                }
                refusal = Some(row.unknown_action());
            }
        }
        Err(refusal.unwrap_or(unknown_command()))
    }
}

macro_rules! operation {
    (Spc $name:ident) => {
        Operation::Spc(SpcOperation::$name)
    };
    (Disk $name:ident) => {
        Operation::Disk(DiskOperation::$name)
    };
    (Mmc $name:ident) => {
        Operation::Optical(OpticalOperation::$name)
    };
    (Owned $name:ident) => {
        Operation::Owned(OwnerOperation::$name)
    };
    (Pass $name:ident) => {
        Operation::Foreign(Passing::$name)
    };
}

/// Rows from the columns below. The layout of the CDB is that of [`super::field`].
macro_rules! table {
    ($($devices:ident $cdb:literal $direction:ident $access:ident $traits:ident $requires:ident
       $seconds:literal $executor:ident $operation:ident $name:literal;)*) => {
        &[$({
            const USAGE: [u8; length_of($cdb)] = usage_of($cdb);
            CommandSpec {
                name: $name,
                usage: &USAGE,
                fields: fields_of($cdb),
                devices: $devices,
                direction: $direction,
                access: $access,
                traits: $traits,
                requires: $requires,
                timeout_seconds: $seconds,
                operation: operation!($executor $operation),
            }
        }),*]
    };
}

pub(super) use {operation, table};

/// A field pointer to a bit of the CDB, counted from the left. The standard counts bytes from the
/// left and bits from the right of each byte.
fn wrong_bit(from_left: u32) -> Sense {
    let byte = u16::try_from(from_left / 8).unwrap_or(0);
    let bit = u8::try_from(7 - from_left % 8).unwrap_or(0);
    Sense::invalid_field_in_cdb(byte, bit)
}

/// INVALID COMMAND OPERATION CODE.
pub(crate) const fn unknown_command() -> Sense {
    Sense::illegal_request(SenseCode::INVALID_COMMAND_OPERATION_CODE)
}

#[cfg(test)]
mod tests {
    use super::super::field::{fields_of, usage_of};
    use super::*;
    use crate::sam::sense::SenseKeySpecific;

    const READ_32: &str =
        "7f 00 0000000000 18 :0009 18 00 LLLLLLLLLLLLLLLL 00000000 00000000 NNNNNNNN";

    /// A command of 32 bytes, which no device has yet.
    fn long() -> CommandSpec {
        static USAGE: [u8; 32] = usage_of(READ_32);
        CommandSpec {
            name: "READ (32)",
            usage: &USAGE,
            fields: fields_of(READ_32),
            devices: DeviceTypes::DISK,
            direction: Direction::In,
            access: AccessClass::Read,
            traits: Traits::NONE,
            requires: Requires::Nothing,
            timeout_seconds: 30,
            operation: Operation::Disk(DiskOperation::Read),
        }
    }

    fn read_32() -> [u8; 32] {
        let mut cdb = [0; 32];
        (cdb[0], cdb[7], cdb[9]) = (0x7f, 0x18, 0x09);
        cdb[12..20].fill(0xff);
        cdb[28..].fill(0xff);
        cdb
    }

    #[test]
    fn a_long_command_is_checked_to_its_end() {
        let good = read_32();
        assert!(long().is_asked_for(&Cdb::new(&good)));
        assert_eq!(long().check_fields(&Cdb::new(&good)), Ok(()));
        for at in [20, 27] {
            let mut cdb = good;
            cdb[at] = 0x40;
            let byte = u16::try_from(at).unwrap();
            let wanted = Err(Sense::invalid_field_in_cdb(byte, 6));
            assert_eq!(long().check_fields(&Cdb::new(&cdb)), wanted);
        }
    }

    #[test]
    fn a_long_command_that_is_cut_or_lies_about_its_length_is_refused_there() {
        let mut lying = read_32();
        lying[7] = 0x10;
        for cdb in [&lying[..], &read_32()[..31], &read_32()[..16]] {
            let sense = long().check_fields(&Cdb::new(cdb)).unwrap_err();
            let Some(SenseKeySpecific::FieldPointer { byte, .. }) = sense.specific else {
                panic!("{sense:?}");
            };
            assert_eq!(byte, 7);
        }
        assert_eq!(long().unknown_action(), Sense::invalid_byte_in_cdb(8));
    }
}
