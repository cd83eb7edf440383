//! The table of commands that a device of others gets through Tarn. Its columns are those of [`super::commands`], whose
//! rows for all types answer the rest for each nexus.
//!
//! What has no row in either is refused: loading of firmware (WRITE BUFFER), third-party copy, parameters of SEND
//! DIAGNOSTIC, SECURITY PROTOCOL of a tape, whose keys are those of one initiator, which is Tarn for all, and what
//! nobody knows the reservations of. Which bits of a CDB the device evaluates is its affair.
//!
//! Spec: SPC-4, SBC-3, SSC-4, SMC-3, MMC-6: the tables of commands allowed in the presence of reservations.

use super::access::AccessClass::{Always, Read as Reads, Status as Asks, Write as Alters};
use super::field::{fields_of, length_of, usage_of};
use super::row::Direction::{In, None as No, Out};
use super::row::Requires::Nothing;
use super::row::{CommandSpec, DeviceTypes, Operation, Passing, Table, Traits, operation, table};
use crate::sam::cdb::Cdb;
use crate::sam::device_type::DeviceType;

const ALL: DeviceTypes = DeviceTypes::ALL;
const TAPE: DeviceTypes = DeviceTypes::of(DeviceType::Tape);
const CHGR: DeviceTypes = DeviceTypes::of(DeviceType::Changer);
const CDVD: DeviceTypes = DeviceTypes::OPTICAL;
/// What has blocks and is no CD or DVD.
const DISK: DeviceTypes = DeviceTypes::DISK
    .and(DeviceTypes::of(DeviceType::WriteOnce))
    .and(DeviceTypes::of(DeviceType::OpticalMemory))
    .and(DeviceTypes::of(DeviceType::ReducedDisk));
const BLKS: DeviceTypes = DISK.and(CDVD);
/// MMC has other commands where SPC has some of A3h.
const NOCD: DeviceTypes = ALL.without(CDVD);

const NONE: Traits = Traits::NONE;
const WRITES: Traits = Traits::WRITES;
const AT_ALL_TIMES: Traits = Traits::BYPASSES_ATTENTION
    .with(Traits::WHEN_NOT_READY)
    .with(Traits::WHEN_LOST);
const ANSWERS: Traits = Traits::WHEN_NOT_READY;
const ANSWERS_IF_LOST: Traits = ANSWERS.with(Traits::WHEN_LOST);
const CHANGES: Traits = ANSWERS.with(Traits::ALTERS);

/// An operation code of the vendor, where the administrator lets those pass.
#[rustfmt::skip] // As below.
static VENDOR: &[CommandSpec] = table![
    ALL "ff ffffffffffffffffffffffffffffff" No Alters WRITES Nothing 0 Pass Writes "vendor command";
];

/// The first operation code that is a vendor's.
const VENDOR_FIRST: u8 = 0xc0;

#[rustfmt::skip] // A table, a row a line.
static ROWS: &[CommandSpec] = table![
//  type CDB                                  data shut by traits   unit is timeout by            name
    ALL  "00 ffffffff 00"                         No  Asks   NONE            Nothing 30   Pass Reads  "TEST UNIT READY";
    TAPE "01 ffffffff 00"                         No  Reads  NONE            Nothing 7200 Pass Writes "REWIND";
    BLKS "04 ffffffff 00"                         Out Alters WRITES          Nothing 7200 Pass Writes "FORMAT UNIT";
    TAPE "04 ffffffff 00"                         Out Alters WRITES          Nothing 7200 Pass Writes "FORMAT MEDIUM";
    TAPE "05 ffffffff 00"                         In  Asks   NONE            Nothing 30   Pass Reads  "READ BLOCK LIMITS";
    DISK "07 ffffffff 00"                         Out Alters WRITES          Nothing 120  Pass Writes "REASSIGN BLOCKS";
    CHGR "07 ffffffff 00"                         No  Alters CHANGES         Nothing 7200 Pass Writes "INITIALIZE ELEMENT STATUS";
    DISK "08 ffffffff 00"                         In  Reads  NONE            Nothing 120  Pass Reads  "READ (6)";
    TAPE "08 ffffffff 00"                         In  Reads  NONE            Nothing 3600 Pass Writes "READ (6)";
    DISK "0a ffffffff 00"                         Out Alters WRITES          Nothing 120  Pass Writes "WRITE (6)";
    TAPE "0a ffffffff 00"                         Out Alters WRITES          Nothing 3600 Pass Writes "WRITE (6)";
    TAPE "0b ffffffff 00"                         No  Alters WRITES          Nothing 3600 Pass Writes "SET CAPACITY";
    TAPE "0f ffffffff 00"                         In  Reads  NONE            Nothing 3600 Pass Writes "READ REVERSE (6)";
    TAPE "10 ffffffff 00"                         No  Alters WRITES          Nothing 3600 Pass Writes "WRITE FILEMARKS (6)";
    TAPE "11 ffffffff 00"                         No  Reads  NONE            Nothing 7200 Pass Writes "SPACE (6)";
    TAPE "13 ffffffff 00"                         Out Reads  NONE            Nothing 7200 Pass Writes "VERIFY (6)";
    TAPE "14 ffffffff 00"                         In  Reads  NONE            Nothing 3600 Pass Writes "RECOVER BUFFERED DATA";
    ALL  "15 ffffffff 00"                         Out Alters CHANGES         Nothing 30   Pass Modes  "MODE SELECT (6)";
    TAPE "19 ffffffff 00"                         No  Alters WRITES          Nothing 7200 Pass Writes "ERASE (6)";
    ALL  "1a ffffffff 00"                         In  Reads  ANSWERS         Nothing 30   Pass Reads  "MODE SENSE (6)";
    BLKS "1b ffffffff 00"                         No  Alters CHANGES         Nothing 600  Pass Moves  "START STOP UNIT";
    TAPE "1b ffffffff 00"                         No  Alters CHANGES         Nothing 3600 Pass Moves  "LOAD UNLOAD";
    CHGR "1b ffffffff 00"                         No  Alters CHANGES         Nothing 600  Pass Writes "OPEN/CLOSE IMPORT/EXPORT ELEMENT";
    ALL  "1c ffffffff 00"                         In  Reads  ANSWERS         Nothing 30   Pass Reads  "RECEIVE DIAGNOSTIC RESULTS";
    ALL  "1d f7 ff 0000 00"                       No  Alters CHANGES         Nothing 7200 Pass Writes "SEND DIAGNOSTIC";
    CDVD "23 ffffffffffffffff 00"                 In  Reads  ANSWERS         Nothing 30   Pass Reads  "READ FORMAT CAPACITIES";
    BLKS "25 ffffffffffffffff 00"                 In  Always NONE            Nothing 30   Pass Reads  "READ CAPACITY (10)";
    BLKS "28 ffffffffffffffff 00"                 In  Reads  NONE            Nothing 120  Pass Reads  "READ (10)";
    BLKS "2a ffffffffffffffff 00"                 Out Alters WRITES          Nothing 120  Pass Writes "WRITE (10)";
    TAPE "2b ffffffffffffffff 00"                 No  Reads  NONE            Nothing 7200 Pass Writes "LOCATE (10)";
    CHGR "2b ffffffffffffffff 00"                 No  Alters CHANGES         Nothing 600  Pass Writes "POSITION TO ELEMENT";
    BLKS "2e ffffffffffffffff 00"                 Out Alters WRITES          Nothing 120  Pass Writes "WRITE AND VERIFY (10)";
    BLKS "2f ffffffffffffffff 00"                 Out Reads  NONE            Nothing 120  Pass Reads  "VERIFY (10)";
    DISK "34 ffffffffffffffff 00"                 No  Reads  NONE            Nothing 120  Pass Reads  "PRE-FETCH (10)";
    TAPE "34 ffffffffffffffff 00"                 In  Asks   NONE            Nothing 30   Pass Reads  "READ POSITION";
    DISK "35 ffffffffffffffff 00"                 No  Alters NONE            Nothing 600  Pass Reads  "SYNCHRONIZE CACHE (10)";
    CDVD "35 ffffffffffffffff 00"                 No  Alters WRITES          Nothing 600  Pass Writes "SYNCHRONIZE CACHE (10)";
    DISK "37 ffffffffffffffff 00"                 In  Reads  NONE            Nothing 120  Pass Reads  "READ DEFECT DATA (10)";
    CHGR "37 ffffffffffffffff 00"                 No  Alters CHANGES         Nothing 7200 Pass Writes "INITIALIZE ELEMENT STATUS WITH RANGE";
    ALL  "3c ffffffffffffffff 00"                 In  Reads  ANSWERS         Nothing 30   Pass Reads  "READ BUFFER (10)";
    DISK "41 ffffffffffffffff 00"                 Out Alters WRITES          Nothing 600  Pass Writes "WRITE SAME (10)";
    DISK "42 ffffffffffffffff 00"                 Out Alters WRITES          Nothing 600  Pass Writes "UNMAP";
    CDVD "42 ffffffffffffffff 00"                 In  Reads  NONE            Nothing 30   Pass Reads  "READ SUB-CHANNEL";
    CDVD "43 ffffffffffffffff 00"                 In  Reads  NONE            Nothing 30   Pass Reads  "READ TOC/PMA/ATIP";
    TAPE "44 ffffffffffffffff 00"                 In  Asks   NONE            Nothing 30   Pass Reads  "REPORT DENSITY SUPPORT";
    CHGR "44 ffffffffffffffff 00"                 In  Asks   NONE            Nothing 30   Pass Reads  "REPORT VOLUME TYPES SUPPORTED";
    CDVD "45 ffffffffffffffff 00"                 No  Reads  NONE            Nothing 600  Pass Reads  "PLAY AUDIO (10)";
    CDVD "46 ffffffffffffffff 00"                 In  Always AT_ALL_TIMES    Nothing 30   Pass Reads  "GET CONFIGURATION";
    CDVD "47 ffffffffffffffff 00"                 No  Reads  NONE            Nothing 600  Pass Reads  "PLAY AUDIO MSF";
    DISK "48 ffffffffffffffff 00"                 Out Alters WRITES          Nothing 7200 Pass Writes "SANITIZE";
    CDVD "4a ffffffffffffffff 00"                 In  Always AT_ALL_TIMES    Nothing 30   Pass Reads  "GET EVENT STATUS NOTIFICATION";
    CDVD "4b ffffffffffffffff 00"                 No  Reads  NONE            Nothing 30   Pass Reads  "PAUSE/RESUME";
    ALL  "4c ffffffffffffffff 00"                 Out Alters CHANGES         Nothing 30   Pass Logs   "LOG SELECT";
    ALL  "4d ffffffffffffffff 00"                 In  Always ANSWERS_IF_LOST Nothing 30   Pass Reads  "LOG SENSE";
    CDVD "4e ffffffffffffffff 00"                 No  Reads  NONE            Nothing 30   Pass Reads  "STOP PLAY/SCAN";
    CDVD "51 ffffffffffffffff 00"                 In  Reads  NONE            Nothing 30   Pass Reads  "READ DISC INFORMATION";
    CDVD "52 ffffffffffffffff 00"                 In  Reads  NONE            Nothing 30   Pass Reads  "READ TRACK INFORMATION";
    CDVD "53 ffffffffffffffff 00"                 No  Alters WRITES          Nothing 120  Pass Writes "RESERVE TRACK";
    CDVD "54 ffffffffffffffff 00"                 Out Alters WRITES          Nothing 120  Pass Writes "SEND OPC INFORMATION";
    ALL  "55 ffffffffffffffff 00"                 Out Alters CHANGES         Nothing 30   Pass Modes  "MODE SELECT (10)";
    ALL  "5a ffffffffffffffff 00"                 In  Reads  ANSWERS         Nothing 30   Pass Reads  "MODE SENSE (10)";
    CDVD "5b ffffffffffffffff 00"                 No  Alters WRITES          Nothing 7200 Pass Writes "CLOSE TRACK/SESSION";
    CDVD "5c ffffffffffffffff 00"                 In  Reads  NONE            Nothing 30   Pass Reads  "READ BUFFER CAPACITY";
    CDVD "5d ffffffffffffffff 00"                 Out Alters WRITES          Nothing 120  Pass Writes "SEND CUE SHEET";
    TAPE "80 ffffffffffffffffffffffffffff 00"     No  Alters WRITES          Nothing 3600 Pass Writes "WRITE FILEMARKS (16)";
    TAPE "81 ffffffffffffffffffffffffffff 00"     In  Reads  NONE            Nothing 3600 Pass Writes "READ REVERSE (16)";
    TAPE "82 ffffffffffffffffffffffffffff 00"     No  Alters WRITES          Nothing 30   Pass Writes "ALLOW OVERWRITE";
    DISK "88 ffffffffffffffffffffffffffff 00"     In  Reads  NONE            Nothing 120  Pass Reads  "READ (16)";
    TAPE "88 ffffffffffffffffffffffffffff 00"     In  Reads  NONE            Nothing 3600 Pass Writes "READ (16)";
    DISK "89 ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 120  Pass Writes "COMPARE AND WRITE";
    DISK "8a ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 120  Pass Writes "WRITE (16)";
    TAPE "8a ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 3600 Pass Writes "WRITE (16)";
    DISK "8b ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 120  Pass Writes "ORWRITE (16)";
    TAPE "8c ffffffffffffffffffffffffffff 00"     In  Reads  NONE            Nothing 120  Pass Reads  "READ ATTRIBUTE";
    CHGR "8c ffffffffffffffffffffffffffff 00"     In  Reads  NONE            Nothing 120  Pass Reads  "READ ATTRIBUTE";
    TAPE "8d ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 120  Pass Writes "WRITE ATTRIBUTE";
    CHGR "8d ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 120  Pass Writes "WRITE ATTRIBUTE";
    DISK "8e ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 120  Pass Writes "WRITE AND VERIFY (16)";
    DISK "8f ffffffffffffffffffffffffffff 00"     Out Reads  NONE            Nothing 120  Pass Reads  "VERIFY (16)";
    TAPE "8f ffffffffffffffffffffffffffff 00"     Out Reads  NONE            Nothing 7200 Pass Writes "VERIFY (16)";
    DISK "90 ffffffffffffffffffffffffffff 00"     No  Reads  NONE            Nothing 120  Pass Reads  "PRE-FETCH (16)";
    DISK "91 ffffffffffffffffffffffffffff 00"     No  Alters NONE            Nothing 600  Pass Reads  "SYNCHRONIZE CACHE (16)";
    TAPE "91 ffffffffffffffffffffffffffff 00"     No  Reads  NONE            Nothing 7200 Pass Writes "SPACE (16)";
    TAPE "92 ffffffffffffffffffffffffffff 00"     No  Reads  NONE            Nothing 7200 Pass Writes "LOCATE (16)";
    DISK "93 ffffffffffffffffffffffffffff 00"     Out Alters WRITES          Nothing 600  Pass Writes "WRITE SAME (16)";
    TAPE "93 ffffffffffffffffffffffffffff 00"     No  Alters WRITES          Nothing 7200 Pass Writes "ERASE (16)";
    DISK "9e:10 ffffffffffffffffffffffffff 00"    In  Always NONE            Nothing 30   Pass Reads  "READ CAPACITY (16)";
    DISK "9e:12 ffffffffffffffffffffffffff 00"    In  Reads  NONE            Nothing 120  Pass Reads  "GET LBA STATUS";
    CDVD "a1 ffffffffffffffffffff 00"             No  Alters WRITES          Nothing 7200 Pass Writes "BLANK";
    NOCD "a3:05 ffffffffffffffffff 00"            In  Reads  ANSWERS         Nothing 30   Pass Reads  "REPORT IDENTIFYING INFORMATION";
    NOCD "a3:0f ffffffffffffffffff 00"            In  Asks   ANSWERS         Nothing 30   Pass Reads  "REPORT TIMESTAMP";
    CDVD "a4 ffffffffffffffffffff 00"             In  Reads  ANSWERS         Nothing 30   Pass Reads  "REPORT KEY";
    TAPE "a4:0f ffffffffffffffffff 00"            Out Alters CHANGES         Nothing 30   Pass Writes "SET TIMESTAMP";
    CHGR "a4:0f ffffffffffffffffff 00"            Out Alters CHANGES         Nothing 30   Pass Writes "SET TIMESTAMP";
    CHGR "a5 ffffffffffffffffffff 00"             No  Alters CHANGES         Nothing 600  Pass Writes "MOVE MEDIUM";
    CHGR "a6 ffffffffffffffffffff 00"             No  Alters CHANGES         Nothing 600  Pass Writes "EXCHANGE MEDIUM";
    CDVD "a6 ffffffffffffffffffff 00"             No  Alters CHANGES         Nothing 600  Pass Moves  "LOAD/UNLOAD MEDIUM";
    CDVD "a7 ffffffffffffffffffff 00"             No  Reads  ANSWERS         Nothing 30   Pass Reads  "SET READ AHEAD";
    BLKS "a8 ffffffffffffffffffff 00"             In  Reads  NONE            Nothing 120  Pass Reads  "READ (12)";
    BLKS "aa ffffffffffffffffffff 00"             Out Alters WRITES          Nothing 120  Pass Writes "WRITE (12)";
    CDVD "ac ffffffffffffffffffff 00"             In  Reads  ANSWERS         Nothing 30   Pass Reads  "GET PERFORMANCE";
    CDVD "ad ffffffffffffffffffff 00"             In  Reads  NONE            Nothing 30   Pass Reads  "READ DISC STRUCTURE";
    DISK "ae ffffffffffffffffffff 00"             Out Alters WRITES          Nothing 120  Pass Writes "WRITE AND VERIFY (12)";
    DISK "af ffffffffffffffffffff 00"             Out Reads  NONE            Nothing 120  Pass Reads  "VERIFY (12)";
    CHGR "b5 ffffffffffffffffffff 00"             In  Alters CHANGES         Nothing 600  Pass Writes "REQUEST VOLUME ELEMENT ADDRESS";
    CHGR "b6 ffffffffffffffffffff 00"             Out Alters CHANGES         Nothing 30   Pass Writes "SEND VOLUME TAG";
    CDVD "b6 ffffffffffffffffffff 00"             Out Alters CHANGES         Nothing 30   Pass Writes "SET STREAMING";
    DISK "b7 ffffffffffffffffffff 00"             In  Reads  NONE            Nothing 120  Pass Reads  "READ DEFECT DATA (12)";
    CHGR "b8 ffffffffffffffffffff 00"             In  Reads  NONE            Nothing 600  Pass Reads  "READ ELEMENT STATUS";
    CDVD "b9 ffffffffffffffffffff 00"             In  Reads  NONE            Nothing 120  Pass Reads  "READ CD MSF";
    CDVD "bb ffffffffffffffffffff 00"             No  Reads  ANSWERS         Nothing 30   Pass Reads  "SET CD SPEED";
    CDVD "bd ffffffffffffffffffff 00"             In  Reads  ANSWERS         Nothing 30   Pass Reads  "MECHANISM STATUS";
    CDVD "be ffffffffffffffffffff 00"             In  Reads  NONE            Nothing 120  Pass Reads  "READ CD";
    CDVD "bf ffffffffffffffffffff 00"             Out Alters WRITES          Nothing 120  Pass Writes "SEND DISC STRUCTURE";
];

/// The commands of devices of others.
pub(super) static FOREIGN: Table = Table::new(ROWS);

/// Whether an operation code is one of the vendor's.
pub(crate) const fn is_of_vendor(opcode: u8) -> bool {
    opcode >= VENDOR_FIRST
}

/// The row for a command of the vendor.
pub(super) fn vendor(cdb: &Cdb) -> Option<&'static CommandSpec> {
    VENDOR.first().filter(|_| is_of_vendor(cdb.opcode()))
}
