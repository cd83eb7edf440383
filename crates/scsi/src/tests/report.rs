use super::hostile::every_kind;
use super::*;

#[test]
fn capacities_and_their_limits() {
    let (mut rig, at) = Rig::ready(profile());
    assert_dump(
        &data(rig.run(at, &[0x25; 1], &[])),
        "00 00 0f ff 00 00 02 00",
    );
    assert_dump(
        &data(rig.run(at, &sixteen(0x9e, 0x10, 0, 255), &[])),
        "00 00 00 00 00 00 0f ff 00 00 02 00 00 03 c0 00
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
    );
    for length in 0..40 {
        let got = data(rig.run(at, &sixteen(0x9e, 0x10, 0, length), &[])).len();
        assert_eq!(got, length.min(32) as usize);
    }
    for (blocks, last) in [
        (0xffff_ffff, 0xffff_fffe),
        (0x1_0000_0000, u32::MAX),
        (1 << 40, u32::MAX),
    ] {
        rig.change(None, ChangeKind::CapacityChanged { blocks });
        assert_eq!(sense(&rig.run(at, &[0; 6], &[])), (6, 0x2a, 0x09));
        assert_eq!(data(rig.run(at, &[0x25; 1], &[]))[..4], last.to_be_bytes());
    }
}

#[test]
fn luns_by_select_report() {
    let (mut rig, at) = Rig::ready(profile());
    let report = |select| [0xa0, 0, select, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let both = "00 00 00 10 00 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 00 00";
    assert_dump(&data(rig.run(at, &report(0), &[])), both);
    assert_dump(&data(rig.run(at, &report(2), &[])), both);
    assert_dump(
        &data(rig.run(at, &report(1), &[])),
        "00 00 00 00 00 00 00 00",
    );
    let outcome = rig.run(at, &report(0x10), &[]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (2, None))
    );
}

#[test]
fn target_port_groups_with_both_headers() {
    let (mut rig, at) = Rig::ready(profile());
    let report = |format: u8| [0xa3, format << 5 | 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let group = "00 01 00 01 00 00 00 02 00 00 00 01 00 00 00 02";
    assert_dump(
        &data(rig.run(at, &report(0), &[])),
        &format!("00 00 00 10 {group}"),
    );
    assert_dump(
        &data(rig.run(at, &report(1), &[])),
        &format!("00 00 00 14 10 00 00 00 {group}"),
    );
    let outcome = rig.run(at, &report(2), &[]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (1, Some(7)))
    );
}

#[test]
fn task_management_functions() {
    let (mut rig, at) = Rig::ready(profile());
    let report = |flags| [0xa3, 0x0d, flags, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    assert_dump(&data(rig.run(at, &report(0), &[])), "d8 00 00 00");
    assert_dump(
        &data(rig.run(at, &report(0x80), &[])),
        "d8 00 00 0c 00 00 00 00 00 00 00 00 00 00 00 00",
    );
}

#[test]
fn log_pages() {
    let (mut rig, at) = Rig::ready(profile());
    let sense_of = |page, subpage| [0x4d, 0, page, subpage, 0, 0, 0, 0, 255, 0];
    assert_dump(
        &data(rig.run(at, &sense_of(0x40, 0), &[])),
        "00 00 00 02 00 2f",
    );
    assert_dump(
        &data(rig.run(at, &sense_of(0x40, 0xff), &[])),
        "40 ff 00 06 00 00 00 ff 2f 00",
    );
    assert_dump(
        &data(rig.run(at, &sense_of(0x6f, 0), &[])),
        "2f 00 00 08 00 00 03 04 00 00 ff 00",
    );
    assert_eq!(pointer(&rig.run(at, &sense_of(0x41, 0), &[])), (2, Some(5)));
    assert_eq!(pointer(&rig.run(at, &sense_of(0x6f, 1), &[])), (3, None));
}

#[test]
fn defect_lists_are_empty_in_every_format() {
    let (mut rig, at) = Rig::ready(profile());
    for format in 0..=0x1f {
        let ten = [0x37, 0, format, 0, 0, 0, 0, 0, 32, 0];
        assert_eq!(data(rig.run(at, &ten, &[])), [0, format, 0, 0]);
        let twelve = [0xb7, format, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
        assert_eq!(
            data(rig.run(at, &twelve, &[])),
            [0, format, 0, 0, 0, 0, 0, 0]
        );
    }
}

fn operation_codes(options: u8, opcode: u8, action: u8) -> [u8; 12] {
    [
        0xa3, 0x0c, options, opcode, 0, action, 0, 0, 0xff, 0xff, 0, 0,
    ]
}

const RCTD: u8 = 0x80;

#[test]
fn all_commands_of_a_thin_fixed_disk() {
    let (mut rig, at) = Rig::ready(profile());
    let list = data(rig.run(at, &operation_codes(0, 0, 0), &[]));
    assert_eq!(
        u32::from_be_bytes(list[..4].try_into().unwrap()) as usize,
        list.len() - 4
    );
    let listed: Vec<(u8, u8, u8, u8)> = list[4..]
        .chunks(8)
        .map(|entry| (entry[0], entry[3], entry[5], entry[7]))
        .collect();
    let plain = |opcode, length| (opcode, 0, 0, length);
    let action = |opcode, action, length| (opcode, action, 1, length);
    let mut golden = Vec::new();
    for opcode in [
        0x00, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1d,
    ] {
        golden.push(plain(opcode, 6));
    }
    for opcode in [
        0x25, 0x28, 0x2a, 0x2e, 0x2f, 0x34, 0x35, 0x37, 0x41, 0x42, 0x4d, 0x55, 0x56, 0x57, 0x5a,
    ] {
        golden.push(plain(opcode, 10));
    }
    golden.extend((0..=3).map(|number| action(0x5e, number, 10)));
    golden.extend((0..=8).map(|number| action(0x5f, number, 10)));
    for opcode in [0x88, 0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93] {
        golden.push(plain(opcode, 16));
    }
    golden.extend([
        action(0x9e, 0x10, 16),
        action(0x9e, 0x12, 16),
        plain(0xa0, 12),
    ]);
    golden.extend([0x0a, 0x0c, 0x0d].map(|number| action(0xa3, number, 12)));
    golden.extend([0xa8, 0xaa, 0xae, 0xaf, 0xb7].map(|opcode| plain(opcode, 12)));
    assert_eq!(listed, golden);
}

#[test]
fn each_listed_command_is_reported_alone_with_its_usage_and_timeout() {
    for profile in every_kind() {
        list_and_report(profile);
    }
}

fn list_and_report(profile: Profile) {
    let (mut rig, at) = Rig::ready(profile);
    let list = data(rig.run(at, &operation_codes(RCTD, 0, 0), &[]));
    let entries: Vec<&[u8]> = list[4..].chunks(20).collect();
    for entry in entries {
        let (opcode, action, has_action) = (entry[0], entry[3], entry[5] & 1 != 0);
        assert_eq!(entry[5] & 2, 2, "CTDP of {opcode:#x}");
        assert_eq!(entry[8..10], [0x00, 0x0a]);
        let by_opcode = rig.run(at, &operation_codes(1, opcode, 0), &[]);
        let by_action = rig.run(at, &operation_codes(2, opcode, action), &[]);
        let (fits, refused) = if has_action {
            (by_action, by_opcode)
        } else {
            (by_opcode, by_action)
        };
        assert_eq!(
            (sense(&refused), pointer(&refused)),
            (INVALID_FIELD, (2, Some(2)))
        );
        let one = data(fits);
        assert_eq!(one[1], 0x03);
        let length = usize::from(one[3]);
        assert_eq!((one.len(), one[4]), (4 + length, opcode));
        assert_eq!(length, usize::from(entry[7]));
        let either = data(rig.run(at, &operation_codes(3, opcode, action), &[]));
        assert_eq!(either, one);
        let timed = data(rig.run(at, &operation_codes(RCTD | 3, opcode, action), &[]));
        assert_eq!(timed[1], 0x83);
        assert_eq!(timed[4 + length..], entry[8..20]);
    }
}

#[test]
fn usage_of_some_commands_that_clients_look_at() {
    let (mut rig, at) = Rig::ready(profile());
    let mut usage =
        |opcode, action| data(rig.run(at, &operation_codes(3, opcode, action), &[])).split_off(4);
    assert_dump(&usage(0x28, 0), "28 18 ff ff ff ff 1f ff ff 00");
    assert_dump(&usage(0x42, 0), "42 00 00 00 00 00 1f ff ff 00");
    assert_dump(
        &usage(0x93, 0),
        "93 09 ff ff ff ff ff ff ff ff ff ff ff ff 1f 00",
    );
    assert_dump(
        &usage(0x9e, 0x10),
        "9e 10 00 00 00 00 00 00 00 00 ff ff ff ff 00 00",
    );
    assert_dump(&usage(0x1b, 0), "1b 01 00 00 05 00");
}

#[test]
fn what_is_not_there_is_reported_as_not_supported() {
    let (mut rig, at) = Rig::ready(profile());
    for cdb in [
        operation_codes(1, 0x48, 0),
        operation_codes(2, 0x9e, 0x11),
        operation_codes(2, 0x48, 1),
        operation_codes(3, 0x48, 0),
        operation_codes(3, 0x9e, 0x11),
        operation_codes(3, 0x28, 1),
    ] {
        assert_eq!(data(rig.run(at, &cdb, &[])), [0, 1, 0, 0], "{cdb:02x?}");
    }
    for options in 4..8 {
        let outcome = rig.run(at, &operation_codes(options, 0, 0), &[]);
        assert_eq!(
            (sense(&outcome), pointer(&outcome)),
            (INVALID_FIELD, (2, Some(2)))
        );
    }
}
