//! Whatever a peer sends, a task ends, and in a way the standards know.

use proptest::prelude::*;

use super::*;

/// The service action as it stands in byte 1.
fn action_byte(row: &CommandSpec) -> u8 {
    row.service_action()
        .map_or(0, |action| u8::try_from(action).unwrap())
}

/// Units that between them have every row.
pub(super) fn every_kind() -> [Profile; 4] {
    let (mut thick, mut fixed) = (profile(), profile());
    thick.capabilities.thin = false;
    fixed.identity.removable = false;
    let mut removable = profile();
    removable.identity.removable = true;
    [thick, fixed, removable, optical::dvd_profile()]
}

fn features(profile: &Profile) -> Features {
    Features {
        device_type: profile.device_type,
        thin: profile.capabilities.thin,
        removable: profile.identity.removable,
    }
}

#[test]
fn every_bit_that_no_command_evaluates_is_refused_where_it_stands() {
    let is_had = |row: &CommandSpec| every_kind().iter().any(|it| row.is_there(&features(it)));
    assert!(COMMANDS.iter().all(is_had));
    let of = |profile: Profile| {
        let rows = COMMANDS.iter();
        let rows = rows.filter(|row| row.is_there(&features(&profile)));
        rows.map(|row| (row, profile.clone())).collect::<Vec<_>>()
    };
    for (row, profile) in every_kind().into_iter().flat_map(of) {
        let (mut rig, at) = Rig::ready(profile);
        let mut base = [0; 16];
        base[0] = row.opcode();
        base[1] = action_byte(row);
        for (byte, &usage) in row.usage.iter().enumerate().skip(1) {
            let selects = if byte == 1 && row.service_action().is_some() {
                0x1f
            } else {
                0
            };
            for bit in (0..8).filter(|bit| (usage | selects) & 1 << bit == 0) {
                let mut cdb = base;
                cdb[byte] |= 1 << bit;
                let outcome = rig.run(at, &cdb, &[]);
                let place = (u16::try_from(byte).unwrap(), Some(bit));
                assert_eq!(sense(&outcome), INVALID_FIELD, "{}: {cdb:02x?}", row.name);
                assert_eq!(pointer(&outcome), place, "{}: {cdb:02x?}", row.name);
            }
        }
        assert!(rig.asked.is_empty(), "{}", row.name);
    }
}

#[test]
fn every_opcode_without_a_row_is_unknown() {
    for profile in every_kind() {
        let (mut rig, at) = Rig::ready(profile);
        for opcode in 0..=0xff {
            let has_row = COMMANDS
                .iter()
                .any(|row| row.opcode() == opcode && row.is_there(&features(rig.owner.profile())));
            if !has_row {
                let outcome = rig.run(at, &[opcode; 16], &[]);
                assert_eq!(sense(&outcome), (5, 0x20, 0x00), "{opcode:#x}");
            }
        }
    }
}

#[test]
fn a_cdb_of_any_length_is_taken() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &[], &[]));
    good(&rig.run(at, &[0x00; 260], &[]));
}

/// No command of a disk is longer than 16 bytes.
#[test]
fn variable_length_and_32_byte_commands_are_unknown() {
    let (mut rig, at) = Rig::ready(profile());
    for (length, service_action) in [(16, 0x09_u16), (32, 0x09), (32, 0x0b), (260, 0xffff)] {
        let mut cdb = vec![0; length];
        cdb[0] = 0x7f;
        cdb[7] = u8::try_from(length - 8).unwrap();
        cdb[8..10].copy_from_slice(&service_action.to_be_bytes());
        assert_eq!(
            sense(&rig.run(at, &cdb, &[])),
            (5, 0x20, 0x00),
            "{cdb:02x?}"
        );
    }
    assert!(rig.asked.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Bits are taken from the usage of a row, so that most commands get past the field check.
    #[test]
    fn every_task_ends(
        rows in proptest::collection::vec(
            (0..COMMANDS.len(), any::<[u8; 16]>(), any::<[u8; 16]>(), 0_usize..4200, any::<u8>()),
            1..40,
        ),
    ) {
        let (mut rig, first) = Rig::ready(profile());
        let second = rig.attach(1, 2);
        for (number, bits, mask, length, fill) in rows {
            let row = &COMMANDS[number];
            let mut cdb = [0; 16];
            for (at, &usage) in row.usage.iter().enumerate() {
                cdb[at] = bits[at] & mask[at] & usage;
            }
            cdb[0] = row.opcode();
            cdb[1] |= action_byte(row);
            let at = if bits[0] & 1 == 0 { first } else { second };
            let list: Vec<u8> = (0..length).map(|at| fill & bits[at % 16]).collect();
            let outcome = rig.run_with_room(at, &cdb, &list, 1 << 20);
            let has_sense = outcome.sense.is_some();
            prop_assert_eq!(has_sense, outcome.status == Status::CheckCondition);
        }
    }
}
