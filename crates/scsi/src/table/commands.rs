//! The table of commands: a row for each. It drives dispatch, the check of CDB fields, reservations,
//! unit attentions, REPORT SUPPORTED OPERATION CODES and the docs.
//!
//! What is not really done has no row.

use super::access::AccessClass::{Always, Read as Reads, Status as Asks, Write as Alters};
use super::field::{fields_of, length_of, usage_of};
use super::foreign::{self, FOREIGN};
use super::row::Direction::{In, None as No, Out};
use super::row::Requires::{Fixed, Nothing, Removable, Thick, Thin};
use super::row::{
    CommandKind, CommandSpec, DeviceTypes, DiskOperation, Features, Operation, OpticalOperation,
    OwnerOperation, SpcOperation, Table, Traits, operation, table, unknown_command,
};
use crate::sam::cdb::Cdb;
use crate::sam::sense::Sense;

const ALL: DeviceTypes = DeviceTypes::ALL;
const DISK: DeviceTypes = DeviceTypes::DISK;
const CDVD: DeviceTypes = DeviceTypes::OPTICAL;
const BLKS: DeviceTypes = DeviceTypes::BLOCKS;

const NONE: Traits = Traits::NONE;
const WRITES: Traits = Traits::WRITES;
/// Runs whatever else is the matter.
const AT_ALL_TIMES: Traits = Traits::BYPASSES_ATTENTION
    .with(Traits::WHEN_NOT_READY)
    .with(Traits::WHEN_LOST);
/// Needs no medium.
const ANSWERS: Traits = Traits::WHEN_NOT_READY;
const ANSWERS_IF_LOST: Traits = ANSWERS.with(Traits::WHEN_LOST);
/// Needs a medium, and nothing of what is on it.
const DESCRIBES: Traits = Traits::WHEN_HELD_ELSEWHERE;
const CHANGES: Traits = ANSWERS.with(Traits::ALTERS);
const CHANGES_IF_LOST: Traits = CHANGES.with(Traits::WHEN_LOST);

/// All commands, by operation code and service action. Rows of one operation code are adjacent.
///
/// The timeout is what an initiator should wait at least, in seconds. Commands that touch many
/// blocks or wait for stable storage have a longer one.
#[rustfmt::skip] // A table, a row a line.
pub static COMMANDS: &[CommandSpec] = table![
//  type CDB                                      data shut by traits          unit is   timeout executed by                     name
    ALL  "00 00000000 00"                         No  Asks   NONE            Nothing   30  Spc TestUnitReady               "TEST UNIT READY";
    ALL  "03 01 0000 AA 00"                       In  Always AT_ALL_TIMES    Nothing   30  Spc RequestSense                "REQUEST SENSE";
    DISK "08 1L LLLL ZZ 00"                       In  Reads  NONE            Nothing   30  Disk Read                       "READ (6)";
    DISK "0a 1L LLLL ZZ 00"                       Out Alters WRITES          Nothing   30  Disk Write                      "WRITE (6)";
    ALL  "12 01 ff AAAA 00"                       In  Always AT_ALL_TIMES    Nothing   30  Spc Inquiry                     "INQUIRY";
    ALL  "15 11 0000 PP 00"                       Out Alters CHANGES         Nothing   30  Owned ModeSelect                "MODE SELECT (6)";
    ALL  "16 00000000 00"                         No  Always CHANGES         Nothing   30  Owned Reserve                   "RESERVE (6)";
    ALL  "17 00000000 00"                         No  Always ANSWERS         Nothing   30  Owned Release                   "RELEASE (6)";
    ALL  "1a 08 ffff AA 00"                       In  Reads  ANSWERS         Nothing   30  Spc ModeSense                   "MODE SENSE (6)";
    DISK "1b 01 0000 05 00"                       No  Alters CHANGES_IF_LOST Fixed     120 Owned StartStopUnit             "START STOP UNIT";
    DISK "1b 01 0000 07 00"                       No  Alters CHANGES_IF_LOST Removable 120 Owned StartStopUnit             "START STOP UNIT";
    CDVD "1b 01 0000 03 00"                      No  Alters CHANGES_IF_LOST Nothing   120 Owned StartStopUnit              "START STOP UNIT";
    ALL  "1d 14 0000 00 00"                       No  Alters NONE            Nothing   30  Spc SendDiagnostic              "SEND DIAGNOSTIC";
    ALL  "1e 000000 01 00"                        No  Alters CHANGES         Removable 30  Owned PreventAllowMediumRemoval "PREVENT ALLOW MEDIUM REMOVAL";
    BLKS "25 00 00000000 0000 00 00"              In  Always DESCRIBES       Nothing   30  Disk ReadCapacity10             "READ CAPACITY (10)";
    BLKS "28 18 LLLLLLLL 1f NNNN 00"              In  Reads  NONE            Nothing   30  Disk Read                       "READ (10)";
    DISK "2a 18 LLLLLLLL 1f NNNN 00"              Out Alters WRITES          Nothing   30  Disk Write                      "WRITE (10)";
    DISK "2e 12 LLLLLLLL 1f NNNN 00"              Out Alters WRITES          Nothing   30  Disk WriteAndVerify             "WRITE AND VERIFY (10)";
    DISK "2f 16 LLLLLLLL 1f NNNN 00"              Out Reads  NONE            Nothing   120 Disk Verify                     "VERIFY (10)";
    DISK "34 02 LLLLLLLL 1f NNNN 00"              No  Reads  NONE            Nothing   30  Disk PreFetch                   "PRE-FETCH (10)";
    DISK "35 02 LLLLLLLL 1f NNNN 00"              No  Alters NONE            Nothing   120 Disk SynchronizeCache           "SYNCHRONIZE CACHE (10)";
    DISK "37 00 1f 00000000 AAAA 00"              In  Reads  NONE            Nothing   30  Disk ReadDefectData10           "READ DEFECT DATA (10)";
    DISK "41 08 LLLLLLLL 1f NNNN 00"              Out Alters WRITES          Thin      120 Disk WriteSame                  "WRITE SAME (10)";
    DISK "41 00 LLLLLLLL 1f NNNN 00"              Out Alters WRITES          Thick     120 Disk WriteSame                  "WRITE SAME (10)";
    DISK "42 00 00000000 1f PPPP 00"              Out Alters WRITES          Thin      120 Disk Unmap                      "UNMAP";
    CDVD "43 02 0f 000000 ff AAAA 00"            In  Reads  NONE            Nothing   30  Mmc ReadToc                      "READ TOC/PMA/ATIP";
    CDVD "46 03 ffff 000000 AAAA 00"             In  Always AT_ALL_TIMES    Nothing   30  Mmc GetConfiguration             "GET CONFIGURATION";
    CDVD "4a 01 0000 ff 0000 AAAA 00"            In  Always AT_ALL_TIMES    Nothing   30  Mmc GetEventStatus               "GET EVENT STATUS NOTIFICATION";
    ALL  "4d 00 ffff 000000 AAAA 00"              In  Always ANSWERS_IF_LOST Nothing   30  Spc LogSense                    "LOG SENSE";
    CDVD "51 07 0000000000 AAAA 00"              In  Reads  NONE            Nothing   30  Mmc ReadDiscInformation          "READ DISC INFORMATION";
    CDVD "52 07 ffffffff 00 AAAA 00"             In  Reads  NONE            Nothing   30  Mmc ReadTrackInformation         "READ TRACK INFORMATION";
    ALL  "55 11 00000000 00 PPPP 00"              Out Alters CHANGES         Nothing   30  Owned ModeSelect                "MODE SELECT (10)";
    ALL  "56 00 00000000 000000 00"               No  Always CHANGES         Nothing   30  Owned Reserve                   "RESERVE (10)";
    ALL  "57 00 00000000 000000 00"               No  Always ANSWERS         Nothing   30  Owned Release                   "RELEASE (10)";
    ALL  "5a 18 ffff 000000 AAAA 00"              In  Reads  ANSWERS         Nothing   30  Spc ModeSense                   "MODE SENSE (10)";
    ALL  "5e:00 00000000 00 AAAA 00"              In  Asks   ANSWERS         Nothing   30  Spc PersistentReserveIn         "PERSISTENT RESERVE IN, READ KEYS";
    ALL  "5e:01 00000000 00 AAAA 00"              In  Asks   ANSWERS         Nothing   30  Spc PersistentReserveIn         "PERSISTENT RESERVE IN, READ RESERVATION";
    ALL  "5e:02 00000000 00 AAAA 00"              In  Asks   ANSWERS         Nothing   30  Spc PersistentReserveIn         "PERSISTENT RESERVE IN, REPORT CAPABILITIES";
    ALL  "5e:03 00000000 00 AAAA 00"              In  Asks   ANSWERS         Nothing   30  Spc PersistentReserveIn         "PERSISTENT RESERVE IN, READ FULL STATUS";
    ALL  "5f:00 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, REGISTER";
    ALL  "5f:01 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, RESERVE";
    ALL  "5f:02 ff 0000 PPPPPPPP 00"              Out Always ANSWERS_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, RELEASE";
    ALL  "5f:03 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, CLEAR";
    ALL  "5f:04 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, PREEMPT";
    ALL  "5f:05 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, PREEMPT AND ABORT";
    ALL  "5f:06 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY";
    ALL  "5f:07 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, REGISTER AND MOVE";
    ALL  "5f:08 ff 0000 PPPPPPPP 00"              Out Always CHANGES_IF_LOST Nothing   30  Owned PersistentReserveOut      "PERSISTENT RESERVE OUT, REPLACE LOST RESERVATION";
    DISK "88 18 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  In  Reads  NONE            Nothing   30  Disk Read                       "READ (16)";
    DISK "89 18 LLLLLLLLLLLLLLLL 000000 NN 1f 00" Out Alters WRITES          Nothing   30  Disk CompareAndWrite            "COMPARE AND WRITE";
    DISK "8a 18 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  Out Alters WRITES          Nothing   30  Disk Write                      "WRITE (16)";
    DISK "8b 18 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  Out Alters WRITES          Nothing   30  Disk OrWrite                    "ORWRITE (16)";
    DISK "8e 12 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  Out Alters WRITES          Nothing   30  Disk WriteAndVerify             "WRITE AND VERIFY (16)";
    DISK "8f 16 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  Out Reads  NONE            Nothing   120 Disk Verify                     "VERIFY (16)";
    DISK "90 02 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  No  Reads  NONE            Nothing   30  Disk PreFetch                   "PRE-FETCH (16)";
    DISK "91 02 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  No  Alters NONE            Nothing   120 Disk SynchronizeCache           "SYNCHRONIZE CACHE (16)";
    DISK "93 09 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  Out Alters WRITES          Thin      120 Disk WriteSame                  "WRITE SAME (16)";
    DISK "93 01 LLLLLLLLLLLLLLLL NNNNNNNN 1f 00"  Out Alters WRITES          Thick     120 Disk WriteSame                  "WRITE SAME (16)";
    DISK "9e:10 0000000000000000 AAAAAAAA 00 00"  In  Always DESCRIBES       Nothing   30  Disk ReadCapacity16             "READ CAPACITY (16)";
    DISK "9e:12 LLLLLLLLLLLLLLLL AAAAAAAA 00 00"  In  Reads  NONE            Nothing   120 Disk GetLbaStatus               "GET LBA STATUS";
    ALL  "a0 00 ff 000000 AAAAAAAA 00 00"         In  Always AT_ALL_TIMES    Nothing   30  Spc ReportLuns                  "REPORT LUNS";
    ALL  "a3:ea 00000000 AAAAAAAA 00 00"          In  Asks   ANSWERS_IF_LOST Nothing   30  Spc ReportTargetPortGroups      "REPORT TARGET PORT GROUPS";
    ALL  "a3:0c 87 ff ffff AAAAAAAA 00 00"        In  Reads  ANSWERS         Nothing   30  Spc ReportOperationCodes        "REPORT SUPPORTED OPERATION CODES";
    ALL  "a3:0d 80 000000 AAAAAAAA 00 00"         In  Reads  ANSWERS         Nothing   30  Spc ReportTaskManagement        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS";
    CDVD "a4 00 ffffffff 00 ff AAAA ff 00"       In  Reads  ANSWERS         Nothing   30  Mmc ReportKey                    "REPORT KEY";
    BLKS "a8 18 LLLLLLLL NNNNNNNN 1f 00"          In  Reads  NONE            Nothing   30  Disk Read                       "READ (12)";
    DISK "aa 18 LLLLLLLL NNNNNNNN 1f 00"          Out Alters WRITES          Nothing   30  Disk Write                      "WRITE (12)";
    CDVD "ad 0f ffffffff ff ff AAAA c0 00"       In  Reads  NONE            Nothing   30  Mmc ReadDiscStructure            "READ DISC STRUCTURE";
    DISK "ae 12 LLLLLLLL NNNNNNNN 1f 00"          Out Alters WRITES          Nothing   30  Disk WriteAndVerify             "WRITE AND VERIFY (12)";
    DISK "af 16 LLLLLLLL NNNNNNNN 1f 00"          Out Reads  NONE            Nothing   120 Disk Verify                     "VERIFY (12)";
    DISK "b7 1f ffffffff AAAAAAAA 00 00"          In  Reads  NONE            Nothing   30  Disk ReadDefectData12           "READ DEFECT DATA (12)";
    CDVD "b9 1c 00 ffffff ffffff 10 00 00"       In  Reads  NONE            Nothing   30  Mmc ReadCdMsf                    "READ CD MSF";
    CDVD "bb 03 ffffffff 0000000000 00"          No  Reads  ANSWERS         Nothing   30  Mmc SetSpeed                     "SET CD SPEED";
    CDVD "bd 00 000000000000 AAAA 00 00"         In  Reads  ANSWERS         Nothing   30  Mmc MechanismStatus              "MECHANISM STATUS";
    CDVD "be 1c LLLLLLLL NNNNNN 10 00 00"        In  Reads  NONE            Nothing   30  Mmc ReadCd                       "READ CD";
];

/// The commands of Tarn's own devices.
static OWN: Table = Table::new(COMMANDS);

/// What the rows of each operation code do to the medium, all the same.
static KINDS: [CommandKind; 256] = {
    let mut kinds = [CommandKind::Other; 256];
    let mut at = 0;
    while at < COMMANDS.len() {
        let row = &COMMANDS[at];
        let first = &COMMANDS[OWN.first[row.usage[0] as usize] as usize];
        assert!(row.kind() as u8 == first.kind() as u8);
        kinds[row.usage[0] as usize] = row.kind();
        at += 1;
    }
    kinds
};

/// What a command with this operation code does to the medium.
#[inline]
pub(crate) fn kind_of(opcode: u8) -> CommandKind {
    KINDS[usize::from(opcode)]
}

/// The row for a CDB of whatever unit of Tarn's own.
pub(crate) fn row_of(cdb: &Cdb) -> Option<&'static CommandSpec> {
    OWN.rows_of(cdb).find(|row| row.is_asked_for(cdb))
}

/// The rows that a unit has, by operation code and service action.
pub(crate) fn rows_of(unit: &Features) -> Vec<&'static CommandSpec> {
    let table = if unit.is_foreign { &FOREIGN } else { &OWN };
    let is_there = |row: &&CommandSpec| row.is_there(unit);
    let mut rows: Vec<&'static CommandSpec> = table.rows.iter().filter(is_there).collect();
    if unit.is_foreign {
        let name = |row: &CommandSpec| (row.opcode(), row.service_action());
        let answered = COMMANDS.iter().filter(|row| is_answered(row, unit));
        rows.extend(answered);
        // What the device gets was first.
        rows.sort_by_key(|row| name(row));
        rows.dedup_by_key(|row| name(row));
    }
    rows
}

/// Whether a command for a device of others is answered here, unless it is passed.
fn is_answered(row: &CommandSpec, unit: &Features) -> bool {
    row.devices == DeviceTypes::ALL && row.is_there(unit)
}

/// The row for a CDB, or why there is none: INVALID COMMAND OPERATION CODE, or INVALID FIELD IN
/// CDB for a service action.
#[inline]
pub(crate) fn find(cdb: &Cdb, unit: &Features) -> Result<&'static CommandSpec, Sense> {
    // Most operation codes have one row, and reads and writes do.
    let first = OWN.first[usize::from(cdb.opcode())];
    match COMMANDS.get(usize::from(first)) {
        Some(row) if row.is_there(unit) && !unit.is_foreign && row.is_asked_for(cdb) => Ok(row),
        Some(_) | None => find_further(cdb, unit),
    }
}

/// The same, where it may take longer.
#[inline(never)]
pub(crate) fn find_further(cdb: &Cdb, unit: &Features) -> Result<&'static CommandSpec, Sense> {
    if !unit.is_foreign {
        return OWN.find(cdb, |row| row.is_there(unit));
    }
    if let Some(vendor) = foreign::vendor(cdb).filter(|_| unit.has_vendor_commands) {
        return Ok(vendor);
    }
    let passed = FOREIGN.find(cdb, |row| row.is_there(unit));
    passed.or_else(|refusal| {
        let own = OWN.find(cdb, |row| is_answered(row, unit));
        own.map_err(|own| match refusal == unknown_command() {
            true => own,
            false => refusal,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the owner executes alters the unit, unless it only gives back what the nexus holds.
    #[test]
    fn every_command_for_the_owner_needs_a_nexus_that_may_write_or_gives_something_back() {
        let owned = |row: &&CommandSpec| matches!(row.operation, Operation::Owned(_));
        for row in COMMANDS.iter().filter(owned) {
            let gives_back = row.operation == Operation::Owned(OwnerOperation::Release)
                || row.name == "PERSISTENT RESERVE OUT, RELEASE";
            assert_ne!(row.traits.has(Traits::ALTERS), gives_back, "{}", row.name);
        }
        let alters = |row: &&CommandSpec| row.traits.has(Traits::ALTERS);
        assert!(COMMANDS.iter().filter(alters).all(|row| owned(&row)));
    }

    /// Blocks that are read for the unit alone are not read for anybody.
    #[test]
    fn what_reads_and_writes_blocks_is_of_that_kind_in_every_size() {
        let of = |kind| {
            let codes = (0..=u8::MAX).filter(move |&code| kind_of(code) == kind);
            codes.collect::<Vec<u8>>()
        };
        assert_eq!(of(CommandKind::Read), [0x08, 0x28, 0x88, 0xa8, 0xb9, 0xbe]);
        assert_eq!(
            of(CommandKind::Write),
            [
                0x0a, 0x2a, 0x2e, 0x41, 0x42, 0x89, 0x8a, 0x8b, 0x8e, 0x93, 0xaa, 0xae
            ]
        );
    }

    #[test]
    fn rows_are_sorted_so_that_those_of_one_opcode_are_adjacent() {
        let key = |row: &CommandSpec| (row.opcode(), row.service_action());
        assert!(COMMANDS.is_sorted_by_key(key));
    }

    #[test]
    fn usage_data_has_the_length_of_its_command_group() {
        for row in COMMANDS {
            let group_length = match row.opcode() >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                group => panic!("{}: group {group}", row.name),
            };
            assert_eq!(row.usage.len(), group_length, "{}", row.name);
            assert_eq!(row.usage[row.usage.len() - 1], 0, "{}: NACA", row.name);
        }
    }

    #[test]
    fn what_writes_is_shut_out_by_every_reservation() {
        for row in COMMANDS.iter().filter(|row| row.traits.has(Traits::WRITES)) {
            assert_eq!(row.access, Alters, "{}", row.name);
        }
    }
}
