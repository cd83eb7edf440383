//! Every command, under every kind of reservation, for everybody: typed from the standards, not
//! from the code.
//!
//! Spec: SPC-4, SPC commands that are allowed in the presence of various reservations, PERSISTENT
//! RESERVE OUT service actions that are allowed in the presence of various reservations,
//! Exceptions to SPC-2 RESERVE and RELEASE behavior; SBC-3, SBC-3 commands that are allowed in the
//! presence of various reservations; SPC-2, Reservations and annex B.

use super::medium::removable;
use super::optical::dvd_profile;
use super::*;

/// A line of the standards' tables.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) cdb: &'static str,
    /// What the initiator sends.
    pub(super) data: Sent,
    /// One letter for each column, A (allowed) or C (conflict); spaces as in the heading.
    columns: &'static str,
}

/// What goes out with a command.
#[derive(Clone, Copy)]
pub(super) enum Sent {
    /// Nothing.
    None,
    /// That many blocks of zeros.
    Blocks(usize),
    /// The parameter list of PERSISTENT RESERVE OUT with this SERVICE ACTION RESERVATION KEY; the
    /// RESERVATION KEY is the sender's.
    Keys(Victim),
    /// The parameter list of REGISTER AND MOVE, to a fourth initiator.
    Move,
}

/// Which key stands in SERVICE ACTION RESERVATION KEY.
#[derive(Clone, Copy)]
pub(super) enum Victim {
    /// None.
    Nobody,
    /// The key of the holder, or if it sends the command itself, of the other registrant.
    Other,
    /// A new key.
    New,
}

const fn line(name: &'static str, cdb: &'static str, data: Sent, columns: &'static str) -> Line {
    Line {
        name,
        cdb,
        data,
        columns,
    }
}

use Sent::{Blocks, Keys, Move, None as Nothing};
use Victim::{New, Nobody, Other};

/// The columns of SPC-4 and SBC-3, behind that of SPC-2:
///
/// | letter | who sends it | what is held by another |
/// |---|---|---|
/// | 1 | anybody else | an SPC-2 reservation |
/// | 2 | anybody else | Write Exclusive |
/// | 3 | anybody else | Exclusive Access |
/// | 4 | a registered nexus | a registrants only or all registrants type |
/// | 5 | another nexus | Write Exclusive, such a type |
/// | 6 | another nexus | Exclusive Access, such a type |
///
/// Commands that SPC-2 does not know stand in its column as the general rule wants it.
#[rustfmt::skip] // A table, a line each.
pub(super) const ORDINARY: &[Line] = &[
    //                                                                                                                               SPC-2
    //                                                                                                                               |  WE,EA
    //                                                                                                                               |  |  reg.
    //                                                                                                                               |  |  | WE,EA unreg.
    line("TEST UNIT READY",                            "00 00 00 00 00 00",                               Nothing,   "C AA A AA"),
    line("REQUEST SENSE",                              "03 00 00 00 fc 00",                               Nothing,   "A AA A AA"),
    line("READ (6)",                                   "08 00 00 00 01 00",                               Nothing,   "C AC A AC"),
    line("WRITE (6)",                                  "0a 00 00 00 01 00",                               Blocks(1), "C CC A CC"),
    line("INQUIRY",                                    "12 00 00 00 60 00",                               Nothing,   "A AA A AA"),
    line("MODE SELECT (6)",                            "15 10 00 00 00 00",                               Nothing,   "C CC A CC"),
    line("MODE SENSE (6)",                             "1a 00 3f 00 ff 00",                               Nothing,   "C AC A AC"),
    line("START STOP UNIT, START 1",                   "1b 00 00 00 01 00",                               Nothing,   "A AA A AA"),
    line("START STOP UNIT, START 0",                   "1b 00 00 00 00 00",                               Nothing,   "C CC A CC"),
    line("SEND DIAGNOSTIC",                            "1d 04 00 00 00 00",                               Nothing,   "C CC A CC"),
    line("PREVENT ALLOW MEDIUM REMOVAL, PREVENT 0",    "1e 00 00 00 00 00",                               Nothing,   "A AA A AA"),
    line("PREVENT ALLOW MEDIUM REMOVAL, PREVENT 1",    "1e 00 00 00 01 00",                               Nothing,   "C CC A CC"),
    line("READ CAPACITY (10)",                         "25 00 00 00 00 00 00 00 00 00",                   Nothing,   "A AA A AA"),
    line("READ (10)",                                  "28 00 00 00 00 00 00 00 01 00",                   Nothing,   "C AC A AC"),
    line("WRITE (10)",                                 "2a 00 00 00 00 00 00 00 01 00",                   Blocks(1), "C CC A CC"),
    line("WRITE AND VERIFY (10)",                      "2e 00 00 00 00 00 00 00 01 00",                   Blocks(1), "C CC A CC"),
    line("VERIFY (10)",                                "2f 00 00 00 00 00 00 00 01 00",                   Nothing,   "C AC A AC"),
    line("PRE-FETCH (10)",                             "34 00 00 00 00 00 00 00 01 00",                   Nothing,   "C AC A AC"),
    line("SYNCHRONIZE CACHE (10)",                     "35 00 00 00 00 00 00 00 00 00",                   Nothing,   "C CC A CC"),
    line("READ DEFECT DATA (10)",                      "37 00 18 00 00 00 00 00 ff 00",                   Nothing,   "C AC A AC"),
    line("WRITE SAME (10)",                            "41 00 00 00 00 00 00 00 01 00",                   Blocks(1), "C CC A CC"),
    line("UNMAP",                                      "42 00 00 00 00 00 00 00 00 00",                   Nothing,   "C CC A CC"),
    line("LOG SENSE",                                  "4d 00 40 00 00 00 00 00 ff 00",                   Nothing,   "A AA A AA"),
    line("MODE SELECT (10)",                           "55 10 00 00 00 00 00 00 00 00",                   Nothing,   "C CC A CC"),
    line("MODE SENSE (10)",                            "5a 00 3f 00 00 00 00 00 ff 00",                   Nothing,   "C AC A AC"),
    line("READ (16)",                                  "88 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Nothing,   "C AC A AC"),
    line("COMPARE AND WRITE",                          "89 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Blocks(2), "C CC A CC"),
    line("WRITE (16)",                                 "8a 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Blocks(1), "C CC A CC"),
    line("ORWRITE (16)",                               "8b 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Blocks(1), "C CC A CC"),
    line("WRITE AND VERIFY (16)",                      "8e 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Blocks(1), "C CC A CC"),
    line("VERIFY (16)",                                "8f 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Nothing,   "C AC A AC"),
    line("PRE-FETCH (16)",                             "90 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Nothing,   "C AC A AC"),
    line("SYNCHRONIZE CACHE (16)",                     "91 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00", Nothing,   "C CC A CC"),
    line("WRITE SAME (16)",                            "93 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00", Blocks(1), "C CC A CC"),
    line("READ CAPACITY (16)",                         "9e 10 00 00 00 00 00 00 00 00 00 00 00 20 00 00", Nothing,   "A AA A AA"),
    line("GET LBA STATUS",                             "9e 12 00 00 00 00 00 00 00 00 00 00 00 18 00 00", Nothing,   "C AC A AC"),
    line("REPORT LUNS",                                "a0 00 00 00 00 00 00 00 00 ff 00 00",             Nothing,   "A AA A AA"),
    line("REPORT TARGET PORT GROUPS",                  "a3 0a 00 00 00 00 00 00 00 ff 00 00",             Nothing,   "C AA A AA"),
    line("REPORT SUPPORTED OPERATION CODES",           "a3 0c 00 00 00 00 00 00 ff ff 00 00",             Nothing,   "C AC A AC"),
    line("REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", "a3 0d 00 00 00 00 00 00 00 10 00 00",             Nothing,   "C AC A AC"),
    line("READ (12)",                                  "a8 00 00 00 00 00 00 00 00 01 00 00",             Nothing,   "C AC A AC"),
    line("WRITE (12)",                                 "aa 00 00 00 00 00 00 00 00 01 00 00",             Blocks(1), "C CC A CC"),
    line("WRITE AND VERIFY (12)",                      "ae 00 00 00 00 00 00 00 00 01 00 00",             Blocks(1), "C CC A CC"),
    line("VERIFY (12)",                                "af 00 00 00 00 00 00 00 00 01 00 00",             Nothing,   "C AC A AC"),
    line("READ DEFECT DATA (12)",                      "b7 18 00 00 00 00 00 00 00 ff 00 00",             Nothing,   "C AC A AC"),
];

/// The same for what only a CD or DVD drive has.
///
/// Spec: MMC-6, commands that are allowed in the presence of various reservations.
#[rustfmt::skip] // A table, a line each.
const ON_A_DRIVE: &[Line] = &[
    line("READ TOC/PMA/ATIP",             "43 00 00 00 00 00 00 00 ff 00",       Nothing, "C AC A AC"),
    line("GET CONFIGURATION",             "46 00 00 00 00 00 00 00 ff 00",       Nothing, "A AA A AA"),
    line("GET EVENT STATUS NOTIFICATION", "4a 01 00 00 10 00 00 00 08 00",       Nothing, "A AA A AA"),
    line("READ DISC INFORMATION",         "51 00 00 00 00 00 00 00 ff 00",       Nothing, "C AC A AC"),
    line("READ TRACK INFORMATION",        "52 01 00 00 00 01 00 00 ff 00",       Nothing, "C AC A AC"),
    line("REPORT KEY",                    "a4 00 00 00 00 00 00 00 00 08 08 00", Nothing, "C AC A AC"),
    line("READ DISC STRUCTURE",           "ad 00 00 00 00 00 00 00 00 ff 00 00", Nothing, "C AC A AC"),
    line("READ CD MSF",                   "b9 00 00 00 02 00 00 02 01 10 00 00", Nothing, "C AC A AC"),
    line("SET CD SPEED",                  "bb 00 ff ff 00 00 00 00 00 00 00 00", Nothing, "C AC A AC"),
    line("MECHANISM STATUS",              "bd 00 00 00 00 00 00 00 00 08 00 00", Nothing, "C AC A AC"),
    line("READ CD",                       "be 00 00 00 00 00 00 00 01 10 00 00", Nothing, "C AC A AC"),
];

/// The commands about reservations: whether a nexus gets RESERVATION CONFLICT depends on what it
/// is to the reservation, and not on what the reservation excludes.
///
/// | letter | who sends it | what is held |
/// |---|---|---|
/// | 1 | anybody else | an SPC-2 reservation |
/// | 2 | its holder | an SPC-2 reservation |
/// | 3 | the holder | a type with one holder |
/// | 4 | a registered nexus | Write Exclusive or Exclusive Access |
/// | 5 | a registered nexus | a registrants only type |
/// | 6 | a registered nexus, all of which hold it | an all registrants type |
/// | 7 | another nexus | any persistent reservation |
///
/// REGISTER AND MOVE cannot move what all registrants hold. REPLACE LOST RESERVATION has nothing
/// to replace in any of these: E, CHECK CONDITION.
#[rustfmt::skip] // A table, a line each.
const ABOUT_RESERVATIONS: &[Line] = &[
    //                                                                                                         SPC-2: other, holder
    //                                                                                                         |  holder
    //                                                                                                         |  | registered: WE/EA, RO, AR
    //                                                                                                         |  |  |   unregistered
    line("RESERVE (6)",                          "16 00 00 00 00 00",             Nothing,      "CA A CAA C"),
    line("RELEASE (6)",                          "17 00 00 00 00 00",             Nothing,      "AA A CAA C"),
    line("RESERVE (10)",                         "56 00 00 00 00 00 00 00 00 00", Nothing,      "CA A CAA C"),
    line("RELEASE (10)",                         "57 00 00 00 00 00 00 00 00 00", Nothing,      "AA A CAA C"),
    line("PR IN, READ KEYS",                     "5e 00 00 00 00 00 00 00 ff 00", Nothing,      "CC A AAA A"),
    line("PR IN, READ RESERVATION",              "5e 01 00 00 00 00 00 00 ff 00", Nothing,      "CC A AAA A"),
    line("PR IN, REPORT CAPABILITIES",           "5e 02 00 00 00 00 00 00 08 00", Nothing,      "CC A AAA A"),
    line("PR IN, READ FULL STATUS",              "5e 03 00 00 00 00 00 00 ff 00", Nothing,      "CC A AAA A"),
    line("PR OUT, REGISTER",                     "5f 00 00 00 00 00 00 00 18 00", Keys(New),    "CC A AAA A"),
    line("PR OUT, RESERVE",                      "5f 01 tt 00 00 00 00 00 18 00", Keys(Nobody), "CC A CCA C"),
    line("PR OUT, RELEASE",                      "5f 02 tt 00 00 00 00 00 18 00", Keys(Nobody), "CC A AAA C"),
    line("PR OUT, CLEAR",                        "5f 03 00 00 00 00 00 00 18 00", Keys(Nobody), "CC A AAA C"),
    line("PR OUT, PREEMPT",                      "5f 04 tt 00 00 00 00 00 18 00", Keys(Other),  "CC A AAA C"),
    line("PR OUT, PREEMPT AND ABORT",            "5f 05 tt 00 00 00 00 00 18 00", Keys(Other),  "CC A AAA C"),
    line("PR OUT, REGISTER AND IGNORE EXISTING", "5f 06 00 00 00 00 00 00 18 00", Keys(New),    "CC A AAA A"),
    line("PR OUT, REGISTER AND MOVE",            "5f 07 00 00 00 00 00 00 38 00", Move,         "CC A CCC C"),
    line("PR OUT, REPLACE LOST RESERVATION",     "5f 08 tt 00 00 00 00 00 18 00", Keys(New),    "CC E EEE E"),
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Held {
    Spc2,
    Persistent(ReservationType),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Holder,
    Registered,
    Stranger,
}

use ReservationType as Type;
use Role::{Holder, Registered, Stranger};

const ROLES: [Role; 3] = [Holder, Registered, Stranger];

/// What is held, by whom, and who asks: every cell that can be. With an SPC-2 reservation nobody
/// is registered.
fn situations() -> impl Iterator<Item = (Held, Role)> {
    let persistent = Type::ALL
        .into_iter()
        .flat_map(|kind| ROLES.map(|role| (Held::Persistent(kind), role)));
    [(Held::Spc2, Holder), (Held::Spc2, Stranger)]
        .into_iter()
        .chain(persistent)
}

const fn is_write_exclusive(kind: Type) -> bool {
    match kind {
        Type::WriteExclusive
        | Type::WriteExclusiveRegistrantsOnly
        | Type::WriteExclusiveAllRegistrants => true,
        Type::ExclusiveAccess
        | Type::ExclusiveAccessRegistrantsOnly
        | Type::ExclusiveAccessAllRegistrants => false,
    }
}

const fn is_registrants_only(kind: Type) -> bool {
    match kind {
        Type::WriteExclusiveRegistrantsOnly | Type::ExclusiveAccessRegistrantsOnly => true,
        Type::WriteExclusive
        | Type::ExclusiveAccess
        | Type::WriteExclusiveAllRegistrants
        | Type::ExclusiveAccessAllRegistrants => false,
    }
}

/// The column of [`ORDINARY`]; the holder's commands are always allowed.
fn ordinary_column(held: Held, role: Role) -> Option<usize> {
    let kind = match held {
        Held::Spc2 => return (role != Holder).then_some(0),
        Held::Persistent(kind) => kind,
    };
    let with_registrants = is_registrants_only(kind) || kind.is_all_registrants();
    match (role, with_registrants, is_write_exclusive(kind)) {
        (Holder, _, _) => None,
        (Registered | Stranger, false, true) => Some(1),
        (Registered | Stranger, false, false) => Some(2),
        (Registered, true, _) => Some(3),
        (Stranger, true, true) => Some(4),
        (Stranger, true, false) => Some(5),
    }
}

/// The column of [`ABOUT_RESERVATIONS`].
fn reservation_column(held: Held, role: Role) -> usize {
    match (held, role) {
        (Held::Spc2, Holder) => 1,
        (Held::Spc2, Registered | Stranger) => 0,
        // All registrants are holders alike.
        (Held::Persistent(kind), Holder) if kind.is_all_registrants() => 5,
        (Held::Persistent(_), Holder) => 2,
        (Held::Persistent(kind), Registered) if kind.is_all_registrants() => 5,
        (Held::Persistent(kind), Registered) if is_registrants_only(kind) => 4,
        (Held::Persistent(_), Registered) => 3,
        (Held::Persistent(_), Stranger) => 6,
    }
}

const KEY_OF_HOLDER: u64 = 0xa;
const KEY_OF_REGISTERED: u64 = 0xb;

fn reserve_out(action: u8, kind: u8, key: u64, action_key: u64) -> ([u8; 10], Vec<u8>) {
    let mut parameters = vec![0; 24];
    parameters[..8].copy_from_slice(&key.to_be_bytes());
    parameters[8..16].copy_from_slice(&action_key.to_be_bytes());
    ([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], parameters)
}

/// A unit that is held, and the nexus that plays the role, on another core than the holder.
fn held_unit(profile: Profile, held: Held, role: Role) -> (Rig, At) {
    let (mut rig, holder) = Rig::ready(profile);
    let registered = rig.attach(1, 2);
    let stranger = rig.attach(1, 3);
    match held {
        Held::Spc2 => good(&rig.run(holder, &[0x16, 0, 0, 0, 0, 0], &[])),
        Held::Persistent(kind) => {
            for (at, key) in [(holder, KEY_OF_HOLDER), (registered, KEY_OF_REGISTERED)] {
                let (cdb, parameters) = reserve_out(0x00, 0, 0, key);
                good(&rig.run(at, &cdb, &parameters));
            }
            let (cdb, parameters) = reserve_out(0x01, kind as u8, KEY_OF_HOLDER, 0);
            good(&rig.run(holder, &cdb, &parameters));
        }
    }
    let at = match role {
        Holder => holder,
        Registered => registered,
        Stranger => stranger,
    };
    (rig, at)
}

fn data_for(sent: Sent, held: Held, role: Role) -> Vec<u8> {
    let own = match (held, role) {
        (Held::Persistent(_), Holder) => KEY_OF_HOLDER,
        (Held::Persistent(_), Registered) => KEY_OF_REGISTERED,
        (Held::Spc2, _) | (Held::Persistent(_), Stranger) => 0,
    };
    match sent {
        Nothing => Vec::new(),
        Blocks(count) => vec![0; count * BLOCK],
        Keys(victim) => {
            let action_key = match (victim, role) {
                (Nobody, _) => 0,
                (Other, Holder) => KEY_OF_REGISTERED,
                (Other, Registered | Stranger) => KEY_OF_HOLDER,
                (New, _) => 0xe,
            };
            reserve_out(0, 0, own, action_key).1
        }
        Move => {
            let mut parameters = own.to_be_bytes().to_vec();
            parameters.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0xe, 0, 0, 0, 1, 0, 0, 0, 32]);
            parameters.extend_from_slice(&[0x45, 0, 0, 28]);
            parameters.extend_from_slice(b"iqn.2026-11.test:9,i,0x1");
            parameters.extend_from_slice(&[0; 4]);
            parameters
        }
    }
}

/// The letter that the unit's answer stands for.
fn answer(line: &Line, profile: Profile, held: Held, role: Role) -> char {
    let (mut rig, at) = held_unit(profile, held, role);
    let kind = match held {
        Held::Spc2 => Type::WriteExclusive,
        Held::Persistent(kind) => kind,
    };
    let cdb = hex(&line.cdb.replace("tt", &format!("{:02x}", kind as u8)));
    let outcome = rig.run(at, &cdb, &data_for(line.data, held, role));
    match outcome.status {
        Status::Good => 'A',
        Status::ReservationConflict => 'C',
        Status::CheckCondition => 'E',
        other @ (Status::ConditionMet
        | Status::Busy
        | Status::TaskSetFull
        | Status::AcaActive
        | Status::TaskAborted) => panic!("{}: {other:?}", line.name),
    }
}

/// Every cell: commands by types and roles, each on a unit of its own.
#[test]
fn every_command_is_answered_as_the_standards_tables_say() {
    let mut wrong = Vec::new();
    let mut cells = 0;
    for (lines, is_ordinary, profile) in [
        (ORDINARY, true, removable()),
        (ABOUT_RESERVATIONS, false, removable()),
        (ON_A_DRIVE, true, dvd_profile()),
    ] {
        for line in lines {
            let columns: Vec<char> = line.columns.chars().filter(|c| *c != ' ').collect();
            assert_eq!(
                columns.len(),
                if is_ordinary { 6 } else { 7 },
                "{}",
                line.name
            );
            for (held, role) in situations() {
                let column = if is_ordinary {
                    ordinary_column(held, role)
                } else {
                    Some(reservation_column(held, role))
                };
                let wanted = column.map_or('A', |column| columns[column]);
                let got = answer(line, profile.clone(), held, role);
                cells += 1;
                if got != wanted {
                    wrong.push(format!(
                        "{}, {held:?}, {role:?}: {got} for {wanted}",
                        line.name
                    ));
                }
            }
        }
    }
    let lines = ORDINARY.len() + ABOUT_RESERVATIONS.len() + ON_A_DRIVE.len();
    assert_eq!(cells, lines * 20);
    assert!(
        wrong.is_empty(),
        "{} of {cells}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A command that is added must be looked up in the standards, too.
#[test]
fn every_row_of_the_command_table_has_a_line() {
    let known: BTreeSet<(u8, Option<u16>)> = ORDINARY
        .iter()
        .chain(ABOUT_RESERVATIONS)
        .chain(ON_A_DRIVE)
        .map(|line| {
            let cdb = hex(&line.cdb.replace("tt", "01"));
            let has_action = matches!(cdb[0], 0x5e | 0x5f | 0x9e | 0xa3);
            (cdb[0], has_action.then_some(cdb[1].into()))
        })
        .collect();
    let rows: BTreeSet<(u8, Option<u16>)> = COMMANDS
        .iter()
        .map(|row| (row.opcode(), row.service_action()))
        .collect();
    assert_eq!(rows, known);
}
