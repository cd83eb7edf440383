//! PERSISTENT RESERVE IN.

use super::*;

#[test]
fn an_untouched_unit_reports_empty_lists() {
    let unit = Unit::default();
    for action in [0, 1, 3] {
        assert_eq!(unit.read(action), [0; 8]);
    }
}

#[test]
fn keys_are_reported_once_per_nexus_in_order_of_registration() {
    let unit = Unit::with_keys(&[7, 0x0102_0304_0506_0708, 7]);
    assert_eq!(
        unit.read(0),
        [
            0, 0, 0, 3, 0, 0, 0, 24, //
            0, 0, 0, 0, 0, 0, 0, 7, //
            1, 2, 3, 4, 5, 6, 7, 8, //
            0, 0, 0, 0, 0, 0, 0, 7,
        ]
    );
}

#[test]
fn the_reservation_is_reported_with_the_key_of_its_holder() {
    let unit = Unit::held_by_a(EARO);
    assert_eq!(
        unit.read(1),
        [
            0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0, 0, 0, 0, 0, 0x06, 0, 0
        ]
    );
    assert_eq!(Unit::with_keys(&[1]).read(1), [0, 0, 0, 1, 0, 0, 0, 0]);
}

/// RLR_C, CRH, SIP_C, ATP_C, PTPL_C; TMV, ALLOW COMMANDS 011b, PTPL_A; the mask of types 1, 3, 5,
/// 6, 7 in the first byte and 8 in the second.
#[test]
fn capabilities_tell_what_is_there() {
    let mut unit = Unit::default();
    assert_eq!(unit.read(2), [0, 8, 0x9d, 0xb0, 0xea, 0x01, 0, 0]);
    unit.good(A, &out(REGISTER, 0, 5).flags(APTPL));
    assert_eq!(unit.read(2), [0, 8, 0x9d, 0xb1, 0xea, 0x01, 0, 0]);
    unit.cannot_persist = true;
    assert_eq!(unit.read(2)[2], 0x9c);
}

#[test]
fn full_status_names_every_nexus_and_marks_the_holder() {
    let mut unit = Unit::held_by_a(WE);
    unit.good(B, &out(REGISTER_AND_IGNORE, 0, 0xb2).flags(ALL_TG_PT));
    let data = unit.read(3);
    let mut expected = vec![0, 0, 0, 3];
    let id_length = initiator(A).len();
    expected.extend_from_slice(&u32::try_from(3 * (24 + id_length)).unwrap().to_be_bytes());
    for (key, port, holder, kind) in [
        (0xa1, through(A, 1), 1, WE),
        (0xb2, through(B, 1), 0, 0),
        (0xb2, through(B, 2), 0, 0),
    ] {
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, key, 0, 0, 0, 0, holder, kind]);
        expected.extend_from_slice(&[0, 0, 0, 0]);
        expected.extend_from_slice(&port.target_port.to_be_bytes());
        expected.extend_from_slice(&u32::try_from(id_length).unwrap().to_be_bytes());
        expected.extend_from_slice(&port.transport_id);
    }
    assert_eq!(data, expected);
}

#[test]
fn all_registrants_are_all_holders() {
    for kind in [WEAR, EAAR] {
        let data = Unit::held_by_a(kind).read(3);
        let size = 24 + initiator(A).len();
        for descriptor in data[8..].chunks(size) {
            assert_eq!(descriptor[12..14], [1, kind]);
        }
    }
}

#[test]
fn service_actions_beyond_the_last_are_refused() {
    let unit = Unit::default();
    for action in 4..=0x1f {
        let refusal = unit
            .state
            .persistent_reserve_in(Some(action), &unit.surroundings())
            .unwrap_err();
        assert_eq!(told(refusal), wrong_cdb(1, 4), "action {action}");
    }
}

#[test]
fn the_generation_counts_what_the_standard_lists_and_wraps() {
    let mut unit = Unit::default();
    let commands = [
        (out(REGISTER, 0, 5), 1),
        (out(REGISTER_AND_IGNORE, 0, 6), 1),
        (out(RESERVE, 6, 0).kind(WE), 0),
        (out(PREEMPT, 6, 6).kind(EA), 1),
        (out(PREEMPT_AND_ABORT, 6, 6).kind(WE), 1),
        (out(RELEASE, 6, 0).kind(WE), 0),
        (out(CLEAR, 6, 0), 1),
    ];
    for (command, step) in commands {
        let before = unit.generation();
        unit.good(A, &command);
        assert_eq!(unit.generation(), before + step, "{command:?}");
    }
    unit.state.generation = u32::MAX;
    unit.good(A, &out(REGISTER, 0, 5));
    assert_eq!(unit.generation(), 0);
}
