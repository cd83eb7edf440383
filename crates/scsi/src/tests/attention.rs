use super::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE: [u8; 6] = [0x17, 0, 0, 0, 0, 0];

#[test]
fn a_fresh_nexus_is_told_once_why() {
    let mut rig = Rig::new(profile());
    let slot = rig.cores[0].attach(nexus(1), Some(UnitAttention::NexusLoss));
    let at = (0, slot);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (6, 0x29, 0x07));
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn inquiry_and_report_luns_pass_and_leave_the_attention() {
    let mut rig = Rig::new(profile());
    let at = (
        0,
        rig.cores[0].attach(nexus(1), Some(UnitAttention::PowerOn)),
    );
    good(&rig.run(at, &[0x12, 0, 0, 0, 36, 0], &[]));
    good(&rig.run(at, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]));
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (6, 0x29, 0x01));
}

#[test]
fn request_sense_tells_the_attention_as_data_and_so_clears_it() {
    let mut rig = Rig::new(profile());
    let at = (
        0,
        rig.cores[0].attach(nexus(1), Some(UnitAttention::PowerOn)),
    );
    let fixed = data(rig.run(at, &[0x03, 0, 0, 0, 252, 0], &[]));
    assert_dump(
        &fixed,
        "70 00 06 00 00 00 00 0a 00 00 00 00 29 01 00 00 00 00",
    );
    let descriptor = data(rig.run(at, &[0x03, 0x01, 0, 0, 252, 0], &[]));
    assert_dump(&descriptor, "72 00 00 00 00 00 00 00");
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn report_luns_clears_what_it_tells_itself() {
    let (mut rig, at) = Rig::ready(profile());
    rig.notify(at, UnitAttention::ReportedLunsChanged);
    good(&rig.run(at, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]));
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
    rig.notify(at, UnitAttention::ReportedLunsChanged);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (6, 0x3f, 0x0e));
}

#[test]
fn an_unknown_opcode_is_refused_before_the_attention_and_leaves_it() {
    let mut rig = Rig::new(profile());
    let at = (
        0,
        rig.cores[0].attach(nexus(1), Some(UnitAttention::PowerOn)),
    );
    assert_eq!(sense(&rig.run(at, &[0xff; 16], &[])), (5, 0x20, 0x00));
    assert_eq!(
        sense(&rig.run(at, &[0x00, 0xff, 0, 0, 0, 0], &[])),
        (6, 0x29, 0x01)
    );
}

/// SAM: a reset is reported before a reservation conflict, other conditions after it.
#[test]
fn a_reset_goes_before_a_reservation_conflict_and_others_after() {
    let (mut rig, holder) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    good(&rig.run(holder, &RESERVE, &[]));
    rig.change(None, ChangeKind::CapacityChanged { blocks: 100 });
    let conflict = rig.run(other, &TEST_UNIT_READY, &[]);
    assert_eq!(conflict.status, Status::ReservationConflict);
    rig.notify(other, UnitAttention::NexusLoss);
    assert_eq!(
        sense(&rig.run(other, &TEST_UNIT_READY, &[])),
        (6, 0x29, 0x07)
    );
    let conflict = rig.run(other, &TEST_UNIT_READY, &[]);
    assert_eq!(conflict.status, Status::ReservationConflict);
}

#[test]
fn attention_goes_before_not_ready_and_before_the_fields() {
    let (mut rig, at) = Rig::ready(profile());
    good(&rig.run(at, &[0x1b, 0, 0, 0, 0, 0], &[]));
    rig.change(None, ChangeKind::CapacityChanged { blocks: 100 });
    assert_eq!(
        sense(&rig.run(at, &ten(0x28, 0xe0, 0, 1), &[])),
        (6, 0x2a, 0x09)
    );
    assert_eq!(
        sense(&rig.run(at, &ten(0x28, 0xe0, 0, 1), &[])),
        (2, 0x04, 0x02)
    );
    good(&rig.run(at, &[0x1b, 0, 0, 0, 1, 0], &[]));
    assert_eq!(
        sense(&rig.run(at, &ten(0x28, 0xe0, 0, 1), &[])),
        INVALID_FIELD
    );
}

#[test]
fn a_new_capacity_is_told_to_all_and_in_force_on_all_cores() {
    let (mut rig, first) = Rig::ready(profile());
    let second = rig.attach(1, 2);
    rig.change(None, ChangeKind::CapacityChanged { blocks: 100 });
    for at in [first, second] {
        assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (6, 0x2a, 0x09));
        good(&rig.run(at, &ten(0x28, 0, 99, 1), &[]));
        assert_eq!(
            sense(&rig.run(at, &ten(0x28, 0, 100, 1), &[])),
            OUT_OF_RANGE
        );
    }
}

#[test]
fn a_unit_whose_medium_another_client_has_refuses_that_and_describes_itself() {
    let (mut rig, at) = Rig::ready(profile());
    let held = (2, 0x04, 0x03);
    rig.cores[at.0].set_held_elsewhere(true);
    for cdb in [ten(0x28, 0, 0, 1), ten(0x2a, 0, 0, 1), ten(0x35, 0, 0, 0)] {
        assert_eq!(sense(&rig.run(at, &cdb, &[0; BLOCK])), held);
    }
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), held);
    // REGISTER of PERSISTENT RESERVE OUT, RESERVE, MODE SELECT.
    let changing: [&[u8]; 3] = [
        &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0],
        &[0x16, 0, 0, 0, 0, 0],
        &[0x15, 0x10, 0, 0, 24, 0],
    ];
    for cdb in changing {
        assert_eq!(sense(&rig.run(at, cdb, &[0; 24])), held);
    }
    let describing: [&[u8]; 6] = [
        &[0x12, 0, 0, 0, 36, 0],
        &ten(0x25, 0, 0, 0),
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0],
        &[0x5e, 0, 0, 0, 0, 0, 0, 0, 8, 0],
        &[0x1a, 0, 0x3f, 0, 192, 0],
    ];
    for cdb in describing {
        good(&rig.run(at, cdb, &[]));
    }
    let data = data(rig.run(at, &[0x03, 0, 0, 0, 18, 0], &[]));
    assert_eq!((data[2], data[12], data[13]), held);
    // What comes later finds the same, and what the unit itself refuses is not covered by it.
    let late = rig.attach(at.0, 7);
    assert_eq!(sense(&rig.run(late, &TEST_UNIT_READY, &[])), held);
    rig.cores[at.0].refuse_access(true);
    assert_eq!(
        sense(&rig.run(at, &ten(0x25, 0, 0, 0), &[])),
        (2, 0x04, 0x00)
    );
    rig.cores[at.0].refuse_access(false);
    rig.cores[at.0].set_held_elsewhere(false);
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn a_unit_that_refuses_access_answers_what_needs_no_medium() {
    let (mut rig, at) = Rig::ready(profile());
    rig.cores
        .iter_mut()
        .for_each(|core| core.refuse_access(true));
    for cdb in [ten(0x28, 0, 0, 1), ten(0x2a, 0, 0, 1), ten(0x35, 0, 0, 0)] {
        assert_eq!(sense(&rig.run(at, &cdb, &[0; BLOCK])), (2, 0x04, 0x00));
    }
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (2, 0x04, 0x00));
    good(&rig.run(at, &[0x12, 0, 0, 0, 36, 0], &[]));
    good(&rig.run(at, &RELEASE, &[]));
    assert_eq!(data(rig.run(at, &[0x03, 0, 0, 0, 18, 0], &[]))[2], 0x02);
    rig.cores
        .iter_mut()
        .for_each(|core| core.refuse_access(false));
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn a_slot_is_used_again_without_what_its_last_nexus_was_owed() {
    let (mut rig, (core, slot)) = Rig::ready(profile());
    rig.change(None, ChangeKind::CapacityChanged { blocks: 100 });
    rig.cores[core].detach(slot);
    assert_eq!(rig.cores[core].slot_of(NexusId(1)), None);
    let again = rig.attach(core, 2);
    assert_eq!(again.1, slot);
    good(&rig.run(again, &TEST_UNIT_READY, &[]));
}

#[test]
fn places_of_many_that_left_are_given_back_and_none_is_given_twice() {
    let mut rig = Rig::new(profile());
    let unit = &mut rig.cores[0];
    let mut taken: Vec<NexusSlot> = (0..1000).map(|n| unit.attach(nexus(n), None)).collect();
    for round in 0..10 {
        // All but some in the middle and one of each hundred leave, in different orders.
        let stays = |at: usize| at % 100 == round || (40..60).contains(&at);
        let (kept, left): (Vec<_>, Vec<_>) = (0..taken.len()).partition(|&at| stays(at));
        for &at in left.iter().rev().skip(round % 2).chain(&left) {
            unit.detach(taken[at]);
        }
        taken = kept.into_iter().map(|at| taken[at]).collect();
        taken.extend((0..500).map(|n| unit.attach(nexus(n), None)));
        let slots: BTreeSet<String> = taken.iter().map(|slot| format!("{slot:?}")).collect();
        assert_eq!(slots.len(), taken.len(), "round {round}");
        assert_eq!(unit.nexuses().count(), taken.len(), "round {round}");
    }
    for slot in taken {
        unit.detach(slot);
    }
    assert!(unit.places() <= 256, "{} places", unit.places());
}
