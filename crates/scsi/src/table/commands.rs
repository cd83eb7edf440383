//! The capability table of a disk: one row per command. It drives dispatch, the check of CDB
//! fields, reservations, unit attentions, REPORT SUPPORTED OPERATION CODES and the docs.
//!
//! What is not really done has no row.

use super::row::{
    CommandKind, CommandSpec, Direction, LONG_SECONDS, Operation, OwnerOperation, Requires, Traits,
    action, row,
};
use crate::sam::cdb::Cdb;
use crate::sam::profile::Profile;
use crate::sam::sense::{Sense, SenseCode};
use crate::spc::shared::Shared;
use crate::table::access::AccessClass;

const ALWAYS_RUNS: Traits = Traits::BYPASSES_ATTENTION
    .with(Traits::WHEN_NOT_READY)
    .with(Traits::WHEN_LOST);
const ANSWERS: Traits = Traits::WHEN_NOT_READY;

use AccessClass::{Always, Read as Reads, Status as Asks, Write as Alters};
use Direction::{In, None as NoData, Out};
use Operation as Op;
use Operation::Owned;
use OwnerOperation as OwnerOp;
use Traits as Is;

/// All commands, by operation code and service action. Rows of one operation code are adjacent.
pub static COMMANDS: &[CommandSpec] = &[
    row(
        "TEST UNIT READY",
        &[0x00, 0, 0, 0, 0, 0],
        NoData,
        Asks,
        Is::NONE,
        Op::TestUnitReady,
    ),
    row(
        "REQUEST SENSE",
        &[0x03, 0x01, 0, 0, 0xff, 0],
        In,
        Always,
        ALWAYS_RUNS,
        Op::RequestSense,
    ),
    row(
        "READ (6)",
        &[0x08, 0x1f, 0xff, 0xff, 0xff, 0],
        In,
        Reads,
        Is::NONE,
        Op::Read,
    ),
    row(
        "WRITE (6)",
        &[0x0a, 0x1f, 0xff, 0xff, 0xff, 0],
        Out,
        Alters,
        Is::WRITES,
        Op::Write,
    ),
    row(
        "INQUIRY",
        &[0x12, 0x01, 0xff, 0xff, 0xff, 0],
        In,
        Always,
        ALWAYS_RUNS,
        Op::Inquiry,
    ),
    row(
        "MODE SELECT (6)",
        &[0x15, 0x11, 0, 0, 0xff, 0],
        Out,
        Alters,
        ANSWERS.with(Is::ALTERS),
        Owned(OwnerOp::ModeSelect),
    ),
    row(
        "RESERVE (6)",
        &[0x16, 0, 0, 0, 0, 0],
        NoData,
        Always,
        ANSWERS.with(Is::ALTERS),
        Owned(OwnerOp::Reserve),
    ),
    row(
        "RELEASE (6)",
        &[0x17, 0, 0, 0, 0, 0],
        NoData,
        Always,
        ANSWERS,
        Owned(OwnerOp::Release),
    ),
    row(
        "MODE SENSE (6)",
        &[0x1a, 0x08, 0xff, 0xff, 0xff, 0],
        In,
        Reads,
        ANSWERS,
        Op::ModeSense,
    ),
    row(
        "START STOP UNIT",
        &[0x1b, 0x01, 0, 0, 0x05, 0],
        NoData,
        Alters,
        ANSWERS.with(Is::WHEN_LOST).with(Is::ALTERS),
        Owned(OwnerOp::StartStopUnit),
    )
    .requires(Requires::Fixed)
    .timeout(LONG_SECONDS),
    row(
        "START STOP UNIT",
        &[0x1b, 0x01, 0, 0, 0x07, 0],
        NoData,
        Alters,
        ANSWERS.with(Is::WHEN_LOST).with(Is::ALTERS),
        Owned(OwnerOp::StartStopUnit),
    )
    .requires(Requires::Removable)
    .timeout(LONG_SECONDS),
    row(
        "SEND DIAGNOSTIC",
        &[0x1d, 0x14, 0, 0, 0, 0],
        NoData,
        Alters,
        Is::NONE,
        Op::SendDiagnostic,
    ),
    row(
        "PREVENT ALLOW MEDIUM REMOVAL",
        &[0x1e, 0, 0, 0, 0x01, 0],
        NoData,
        Alters,
        ANSWERS.with(Is::ALTERS),
        Owned(OwnerOp::PreventAllowMediumRemoval),
    )
    .requires(Requires::Removable),
    row(
        "READ CAPACITY (10)",
        &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        In,
        Always,
        Is::NONE,
        Op::ReadCapacity10,
    ),
    row(
        "READ (10)",
        &[0x28, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        In,
        Reads,
        Is::NONE,
        Op::Read,
    ),
    row(
        "WRITE (10)",
        &[0x2a, 0x18, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        Out,
        Alters,
        Is::WRITES,
        Op::Write,
    ),
    row(
        "WRITE AND VERIFY (10)",
        &[0x2e, 0x12, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        Out,
        Alters,
        Is::WRITES,
        Op::WriteAndVerify,
    ),
    row(
        "VERIFY (10)",
        &[0x2f, 0x16, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        Out,
        Reads,
        Is::NONE,
        Op::Verify,
    )
    .timeout(LONG_SECONDS),
    row(
        "PRE-FETCH (10)",
        &[0x34, 0x02, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        NoData,
        Reads,
        Is::NONE,
        Op::PreFetch,
    ),
    row(
        "SYNCHRONIZE CACHE (10)",
        &[0x35, 0x02, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        NoData,
        Alters,
        Is::NONE,
        Op::SynchronizeCache,
    )
    .timeout(LONG_SECONDS),
    row(
        "READ DEFECT DATA (10)",
        &[0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0],
        In,
        Reads,
        Is::NONE,
        Op::ReadDefectData,
    ),
    row(
        "WRITE SAME (10)",
        &[0x41, 0x08, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        Out,
        Alters,
        Is::WRITES,
        Op::WriteSame,
    )
    .requires(Requires::Thin)
    .timeout(LONG_SECONDS),
    row(
        "WRITE SAME (10)",
        &[0x41, 0, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xff, 0],
        Out,
        Alters,
        Is::WRITES,
        Op::WriteSame,
    )
    .requires(Requires::Thick)
    .timeout(LONG_SECONDS),
    row(
        "UNMAP",
        &[0x42, 0, 0, 0, 0, 0, 0x1f, 0xff, 0xff, 0],
        Out,
        Alters,
        Is::WRITES,
        Op::Unmap,
    )
    .requires(Requires::Thin)
    .timeout(LONG_SECONDS),
    row(
        "LOG SENSE",
        &[0x4d, 0, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
        In,
        Always,
        ANSWERS.with(Is::WHEN_LOST),
        Op::LogSense,
    ),
    row(
        "MODE SELECT (10)",
        &[0x55, 0x11, 0, 0, 0, 0, 0, 0xff, 0xff, 0],
        Out,
        Alters,
        ANSWERS.with(Is::ALTERS),
        Owned(OwnerOp::ModeSelect),
    ),
    row(
        "RESERVE (10)",
        &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        NoData,
        Always,
        ANSWERS.with(Is::ALTERS),
        Owned(OwnerOp::Reserve),
    ),
    row(
        "RELEASE (10)",
        &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        NoData,
        Always,
        ANSWERS,
        Owned(OwnerOp::Release),
    ),
    row(
        "MODE SENSE (10)",
        &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, 0],
        In,
        Reads,
        ANSWERS,
        Op::ModeSense,
    ),
    reserve_in("PERSISTENT RESERVE IN, READ KEYS", &reserve_in_usage(0x00)),
    reserve_in(
        "PERSISTENT RESERVE IN, READ RESERVATION",
        &reserve_in_usage(0x01),
    ),
    reserve_in(
        "PERSISTENT RESERVE IN, REPORT CAPABILITIES",
        &reserve_in_usage(0x02),
    ),
    reserve_in(
        "PERSISTENT RESERVE IN, READ FULL STATUS",
        &reserve_in_usage(0x03),
    ),
    reserve_out("PERSISTENT RESERVE OUT, REGISTER", &reserve_out_usage(0x00)),
    reserve_out("PERSISTENT RESERVE OUT, RESERVE", &reserve_out_usage(0x01)),
    reserve_out("PERSISTENT RESERVE OUT, RELEASE", &reserve_out_usage(0x02)),
    reserve_out("PERSISTENT RESERVE OUT, CLEAR", &reserve_out_usage(0x03)),
    reserve_out("PERSISTENT RESERVE OUT, PREEMPT", &reserve_out_usage(0x04)),
    reserve_out(
        "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
        &reserve_out_usage(0x05),
    ),
    reserve_out(
        "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
        &reserve_out_usage(0x06),
    ),
    reserve_out(
        "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
        &reserve_out_usage(0x07),
    ),
    reserve_out(
        "PERSISTENT RESERVE OUT, REPLACE LOST RESERVATION",
        &reserve_out_usage(0x08),
    ),
    row(
        "READ (16)",
        &sixteen(0x88, 0x18),
        In,
        Reads,
        Is::NONE,
        Op::Read,
    ),
    row(
        "COMPARE AND WRITE",
        &[
            0x89, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0x1f, 0,
        ],
        Out,
        Alters,
        Is::WRITES,
        Op::CompareAndWrite,
    ),
    row(
        "WRITE (16)",
        &sixteen(0x8a, 0x18),
        Out,
        Alters,
        Is::WRITES,
        Op::Write,
    ),
    row(
        "ORWRITE (16)",
        &sixteen(0x8b, 0x18),
        Out,
        Alters,
        Is::WRITES,
        Op::OrWrite,
    ),
    row(
        "WRITE AND VERIFY (16)",
        &sixteen(0x8e, 0x12),
        Out,
        Alters,
        Is::WRITES,
        Op::WriteAndVerify,
    ),
    row(
        "VERIFY (16)",
        &sixteen(0x8f, 0x16),
        Out,
        Reads,
        Is::NONE,
        Op::Verify,
    )
    .timeout(LONG_SECONDS),
    row(
        "PRE-FETCH (16)",
        &sixteen(0x90, 0x02),
        NoData,
        Reads,
        Is::NONE,
        Op::PreFetch,
    ),
    row(
        "SYNCHRONIZE CACHE (16)",
        &sixteen(0x91, 0x02),
        NoData,
        Alters,
        Is::NONE,
        Op::SynchronizeCache,
    )
    .timeout(LONG_SECONDS),
    row(
        "WRITE SAME (16)",
        &sixteen(0x93, 0x09),
        Out,
        Alters,
        Is::WRITES,
        Op::WriteSame,
    )
    .requires(Requires::Thin)
    .timeout(LONG_SECONDS),
    row(
        "WRITE SAME (16)",
        &sixteen(0x93, 0x01),
        Out,
        Alters,
        Is::WRITES,
        Op::WriteSame,
    )
    .requires(Requires::Thick)
    .timeout(LONG_SECONDS),
    action(row(
        "READ CAPACITY (16)",
        &[
            0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ],
        In,
        Always,
        Is::NONE,
        Op::ReadCapacity16,
    )),
    action(row(
        "GET LBA STATUS",
        &[
            0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0,
            0,
        ],
        In,
        Reads,
        Is::NONE,
        Op::GetLbaStatus,
    ))
    .timeout(LONG_SECONDS),
    row(
        "REPORT LUNS",
        &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        In,
        Always,
        ALWAYS_RUNS,
        Op::ReportLuns,
    ),
    action(row(
        "REPORT TARGET PORT GROUPS",
        &[0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        In,
        Asks,
        ANSWERS.with(Is::WHEN_LOST),
        Op::ReportTargetPortGroups,
    )),
    action(row(
        "REPORT SUPPORTED OPERATION CODES",
        &[
            0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ],
        In,
        Reads,
        ANSWERS,
        Op::ReportSupportedOperationCodes,
    )),
    action(row(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        &[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
        In,
        Reads,
        ANSWERS,
        Op::ReportSupportedTaskManagementFunctions,
    )),
    row(
        "READ (12)",
        &[
            0xa8, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0,
        ],
        In,
        Reads,
        Is::NONE,
        Op::Read,
    ),
    row(
        "WRITE (12)",
        &[
            0xaa, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0,
        ],
        Out,
        Alters,
        Is::WRITES,
        Op::Write,
    ),
    row(
        "WRITE AND VERIFY (12)",
        &[
            0xae, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0,
        ],
        Out,
        Alters,
        Is::WRITES,
        Op::WriteAndVerify,
    ),
    row(
        "VERIFY (12)",
        &[
            0xaf, 0x16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0,
        ],
        Out,
        Reads,
        Is::NONE,
        Op::Verify,
    )
    .timeout(LONG_SECONDS),
    row(
        "READ DEFECT DATA (12)",
        &[
            0xb7, 0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0,
        ],
        In,
        Reads,
        Is::NONE,
        Op::ReadDefectData,
    ),
];

const fn sixteen(opcode: u8, flags: u8) -> [u8; 16] {
    let mut usage = [0xff; 16];
    usage[0] = opcode;
    usage[1] = flags;
    usage[14] = 0x1f;
    usage[15] = 0x00;
    usage
}

const fn reserve_in_usage(service_action: u8) -> [u8; 10] {
    [0x5e, service_action, 0, 0, 0, 0, 0, 0xff, 0xff, 0]
}

const fn reserve_out_usage(service_action: u8) -> [u8; 10] {
    [0x5f, service_action, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, 0]
}

const fn reserve_in(name: &'static str, usage: &'static [u8]) -> CommandSpec {
    action(row(name, usage, In, Asks, ANSWERS, Op::PersistentReserveIn))
}

const fn reserve_out(name: &'static str, usage: &'static [u8]) -> CommandSpec {
    // A nexus may give back what it holds, also when it may no longer write.
    const RELEASE: u8 = 0x02;
    let traits = ANSWERS.with(Is::WHEN_LOST);
    let traits = if usage[1] == RELEASE {
        traits
    } else {
        traits.with(Is::ALTERS)
    };
    action(row(
        name,
        usage,
        Out,
        Always,
        traits,
        Owned(OwnerOp::PersistentReserveOut),
    ))
}

/// No command has this operation code.
const NO_ROW: u8 = u8::MAX;

const _: () = assert!(COMMANDS_LEN < NO_ROW as usize);
const COMMANDS_LEN: usize = COMMANDS.len();

/// The first row of each operation code.
static FIRST_ROWS: [u8; 256] = {
    let mut first = [NO_ROW; 256];
    let mut at = COMMANDS.len();
    while at > 0 {
        at -= 1;
        #[expect(clippy::cast_possible_truncation, reason = "asserted to fit above")]
        let row = at as u8;
        first[COMMANDS[at].usage[0] as usize] = row;
    }
    first
};

/// What the rows of each operation code do to the medium, all the same.
static KINDS: [CommandKind; 256] = {
    let mut kinds = [CommandKind::Other; 256];
    let mut at = 0;
    while at < COMMANDS.len() {
        let row = &COMMANDS[at];
        let first = &COMMANDS[FIRST_ROWS[row.usage[0] as usize] as usize];
        assert!(row.kind() as u8 == first.kind() as u8);
        kinds[row.usage[0] as usize] = row.kind();
        at += 1;
    }
    kinds
};

/// What a command with this operation code does to the medium.
#[inline]
pub fn kind_of(opcode: u8) -> CommandKind {
    KINDS[usize::from(opcode)]
}

/// The row for a CDB, or why there is none: INVALID COMMAND OPERATION CODE, or INVALID FIELD IN
/// CDB for a service action.
#[inline]
pub(crate) fn find(cdb: Cdb, profile: &Profile) -> Result<&'static CommandSpec, Sense> {
    let first = FIRST_ROWS[usize::from(cdb.opcode())];
    let rows = COMMANDS.get(usize::from(first)..).unwrap_or(&[]);
    let mut opcode_is_known = false;
    for row in rows {
        if row.opcode() != cdb.opcode() {
            break;
        }
        if row.is_there(profile) {
            opcode_is_known = true;
            if row
                .service_action()
                .is_none_or(|wanted| wanted == cdb.u8(1) & 0x1f)
            {
                return Ok(row);
            }
        }
    }
    if opcode_is_known {
        Err(Sense::invalid_field_in_cdb(1, 4))
    } else {
        let code = SenseCode::INVALID_COMMAND_OPERATION_CODE;
        Err(Sense::illegal_request(code))
    }
}

/// The column of the table, except for two commands where a field decides.
///
/// Spec: SPC-4, SBC-3 and SPC-2, the tables of commands allowed in the presence of reservations.
pub(crate) fn access_of(spec: &CommandSpec, cdb: Cdb) -> AccessClass {
    let low_bit = cdb.has(4, 0x01);
    let is_harmless = spec.operation == Owned(OwnerOp::StartStopUnit) && low_bit
        || spec.operation == Owned(OwnerOp::PreventAllowMediumRemoval) && !low_bit;
    if is_harmless { Always } else { spec.access }
}

/// Whether the command would change the unit for other nexuses: the column of the table, except
/// for two commands where a field, or the unit, decides.
pub(crate) fn alters(spec: &CommandSpec, cdb: Cdb, shared: &Shared) -> bool {
    let low_bit = cdb.has(4, 0x01);
    let is_off = shared.is_stopped || shared.is_ejected;
    let starts_what_runs = spec.operation == Owned(OwnerOp::StartStopUnit) && low_bit && !is_off;
    let allows = spec.operation == Owned(OwnerOp::PreventAllowMediumRemoval) && !low_bit;
    spec.traits.has(Is::ALTERS) && !starts_what_runs && !allows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the owner executes alters the unit, unless it only gives back what the nexus holds.
    #[test]
    fn every_command_for_the_owner_needs_a_nexus_that_may_write_or_gives_something_back() {
        let owned = |row: &&CommandSpec| matches!(row.operation, Owned(_));
        for row in COMMANDS.iter().filter(owned) {
            let gives_back = matches!(row.operation, Owned(OwnerOp::Release))
                || row.name == "PERSISTENT RESERVE OUT, RELEASE";
            assert_ne!(row.traits.has(Is::ALTERS), gives_back, "{}", row.name);
        }
        let alters = |row: &&CommandSpec| row.traits.has(Is::ALTERS);
        assert!(COMMANDS.iter().filter(alters).all(|row| owned(&row)));
    }

    /// Blocks that are read for the unit alone are not read for anybody.
    #[test]
    fn what_reads_and_writes_blocks_is_of_that_kind_in_every_size() {
        let of = |kind| {
            let codes = (0..=u8::MAX).filter(move |&code| kind_of(code) == kind);
            codes.collect::<Vec<u8>>()
        };
        assert_eq!(of(CommandKind::Read), [0x08, 0x28, 0x88, 0xa8]);
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
