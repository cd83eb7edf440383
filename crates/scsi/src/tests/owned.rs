use super::medium::{LOEJ, NO_FLUSH, START, TEST_UNIT_READY, prevent, removable, start_stop};
use super::*;

/// What a nexus that may not write is answered, and what it then says again at the owner, which a
/// change of its rights may have overtaken.
#[test]
fn a_read_only_view_alters_nothing_and_gives_back_what_it_holds() {
    const WRITE_PROTECTED: Codes = (7, 0x27, 0x00);
    let (mut rig, at) = Rig::ready(removable());
    let slot = rig.cores[1].attach(nexus(2), None);
    let view = (1, slot);
    let (register_cdb, parameters) = register(2, true);
    good(&rig.run(view, &register_cdb, &parameters));
    let mut own_key = vec![0; 24];
    own_key[7] = 2;
    good(&rig.run(view, &[0x5f, 0x01, 0x05, 0, 0, 0, 0, 0, 24, 0], &own_key));
    good(&rig.run(view, &prevent(1), &[]));
    let luns = [Lun::new(0).unwrap()];
    let stop = Command {
        cdb: &start_stop(0),
        data_out_length: 0,
        data_in_length: 0,
        luns: &luns,
    };
    let mut task = rig.cores[1].task(slot);
    let step = rig.cores[1].start(&mut task, &stop);
    let Step::Owner(mut change) = step else {
        panic!("{step:?}");
    };
    rig.cores[1].set_read_only(slot, true);
    assert!(rig.cores[1].is_read_only(slot) && !rig.cores[0].is_read_only(at.1));
    change.from = change.from.map(|from| Nexus {
        read_only: true,
        ..from
    });
    let reply = rig.apply(&change);
    assert_eq!(reply.status, Status::CheckCondition);
    drop(rig.cores[1].resume(&mut task, Input::Owner(reply)));
    for cdb in [
        &register_cdb[..],
        &[0x5f, 0x03, 0, 0, 0, 0, 0, 0, 24, 0],
        &[0x55, 0x10, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0x15, 0x10, 0, 0, 0, 0],
        &[0x16, 0, 0, 0, 0, 0],
        &start_stop(0),
        &start_stop(LOEJ),
        &prevent(1),
    ] {
        assert_eq!(
            sense(&rig.run(view, cdb, &own_key)),
            WRITE_PROTECTED,
            "{cdb:02x?}"
        );
    }
    good(&rig.run(view, &start_stop(START), &[]));
    good(&rig.run(view, &prevent(0), &[]));
    good(&rig.run(view, &[0x5f, 0x02, 0x05, 0, 0, 0, 0, 0, 24, 0], &own_key));
    good(&rig.run(at, &start_stop(0), &[]));
    assert_eq!(
        sense(&rig.run(view, &start_stop(START), &[])),
        WRITE_PROTECTED
    );
}

#[test]
fn a_stopped_unit_is_flushed_and_not_ready_until_started() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    good(&rig.run(at, &start_stop(0), &[]));
    assert_eq!(rig.asked, [Asked::Flush]);
    for at in [at, other] {
        assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (2, 0x04, 0x02));
    }
    good(&rig.run(other, &start_stop(START), &[]));
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
    rig.asked.clear();
    good(&rig.run(at, &start_stop(NO_FLUSH), &[]));
    assert!(rig.asked.is_empty());
}

#[test]
fn a_logical_unit_reset_is_told_to_all_and_ends_all_tasks() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    good(&rig.run(at, &[0x16, 0, 0, 0, 0, 0], &[]));
    rig.change(Some(1), ChangeKind::LogicalUnitReset);
    assert_eq!(rig.aborted, [Who::All]);
    for nexus in [at, other] {
        assert_eq!(
            sense(&rig.run(nexus, &TEST_UNIT_READY, &[])),
            (6, 0x29, 0x03)
        );
        good(&rig.run(nexus, &TEST_UNIT_READY, &[]));
    }
}

#[test]
fn a_target_reset_is_told_to_all() {
    let (mut rig, at) = Rig::ready(profile());
    rig.change(Some(1), ChangeKind::TargetReset);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (6, 0x29, 0x02));
}

#[test]
fn an_spc_2_reservation_shuts_others_out_on_every_core() {
    let (mut rig, holder) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let reserve = [0x16, 0, 0, 0, 0, 0];
    let mode_sense = [0x1a, 0, 0x3f, 0, 255, 0];
    good(&rig.run(holder, &reserve, &[]));
    good(&rig.run(holder, &reserve, &[]));
    good(&rig.run(holder, &mode_sense, &[]));
    for cdb in [reserve, TEST_UNIT_READY, mode_sense] {
        let outcome = rig.run(other, &cdb, &[]);
        assert_eq!(outcome.status, Status::ReservationConflict, "{cdb:02x?}");
    }
    good(&rig.run(other, &[0x12, 0, 0, 0, 36, 0], &[]));
    good(&rig.run(other, &[0x17, 0, 0, 0, 0, 0], &[]));
    assert_eq!(
        rig.run(other, &TEST_UNIT_READY, &[]).status,
        Status::ReservationConflict
    );
    rig.change(Some(1), ChangeKind::NexusLost);
    good(&rig.run(other, &TEST_UNIT_READY, &[]));
}

/// RESERVE of another nexus comes between the admission of a command and its turn at the owner.
#[test]
fn the_owner_looks_at_reservations_again() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let luns = [Lun::new(0).unwrap()];
    let stop = Command {
        cdb: &start_stop(0),
        data_out_length: 0,
        data_in_length: 0,
        luns: &luns,
    };
    let mut task = rig.cores[at.0].task(at.1);
    let step = rig.cores[at.0].start(&mut task, &stop);
    good(&rig.run(other, &[0x16, 0, 0, 0, 0, 0], &[]));
    let Step::Owner(change) = step else {
        panic!("{step:?}");
    };
    let reply = rig.apply(&change);
    let step = rig.cores[at.0].resume(&mut task, Input::Owner(reply));
    let Step::Done(outcome) = step else {
        panic!("{step:?}");
    };
    assert_eq!(outcome.status, Status::ReservationConflict);
    good(&rig.run(other, &TEST_UNIT_READY, &[]));
}

fn register(key: u64, aptpl: bool) -> ([u8; 10], Vec<u8>) {
    let mut parameters = vec![0; 24];
    parameters[8..16].copy_from_slice(&key.to_be_bytes());
    parameters[20] = u8::from(aptpl);
    ([0x5f, 0x00, 0, 0, 0, 0, 0, 0, 24, 0], parameters)
}

fn read_keys(rig: &mut Rig, at: At) -> Vec<u8> {
    data(rig.run(at, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0], &[]))
}

#[test]
fn a_registration_is_seen_by_all_and_kept_only_with_aptpl() {
    let (mut rig, at) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let (cdb, parameters) = register(0xabcd, false);
    let outcome = rig.run(at, &cdb, &parameters);
    good(&outcome);
    assert_eq!(outcome.transfer_length, 24);
    assert_eq!(rig.persisted, None);
    assert_dump(
        &read_keys(&mut rig, other),
        "00 00 00 01 00 00 00 08 00 00 00 00 00 00 ab cd",
    );
    let (cdb, parameters) = register(0x1234, true);
    good(&rig.run(other, &cdb, &parameters));
    let kept = rig.persisted.take().unwrap();
    let mut restarted = Rig::restored(profile(), Some(&kept));
    let at = restarted.attach(0, 77);
    assert_dump(
        &read_keys(&mut restarted, at),
        "00 00 00 00 00 00 00 10 00 00 00 00 00 00 ab cd 00 00 00 00 00 00 12 34",
    );
}

#[test]
fn a_persistent_reservation_shuts_writes_of_others_out() {
    let (mut rig, holder) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    let (cdb, parameters) = register(1, false);
    good(&rig.run(holder, &cdb, &parameters));
    let mut reserve = vec![0; 24];
    reserve[7] = 1;
    good(&rig.run(holder, &[0x5f, 0x01, 0x01, 0, 0, 0, 0, 0, 24, 0], &reserve));
    let write = ten(0x2a, 0, 0, 1);
    good(&rig.run(holder, &write, &[0; BLOCK]));
    assert_eq!(
        rig.run(other, &write, &[0; BLOCK]).status,
        Status::ReservationConflict
    );
    good(&rig.run(other, &ten(0x28, 0, 0, 1), &[]));
    // START is allowed, STOP is not.
    good(&rig.run(other, &start_stop(START), &[]));
    assert_eq!(
        rig.run(other, &start_stop(0), &[]).status,
        Status::ReservationConflict
    );
}

#[test]
fn a_parameter_list_that_comes_short_is_refused_and_never_fetched() {
    let (mut rig, at) = Rig::ready(profile());
    let (cdb, parameters) = register(1, false);
    assert_eq!(sense(&rig.run(at, &cdb, &parameters[..23])), LIST_LENGTH);
    let huge = [0x5f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0];
    assert_eq!(sense(&rig.run(at, &huge, &parameters)), LIST_LENGTH);
}

#[test]
fn service_actions_that_are_not_there_are_refused_at_their_field() {
    let (mut rig, at) = Rig::ready(profile());
    for action in 4..=0x1f {
        let outcome = rig.run(at, &[0x5e, action, 0, 0, 0, 0, 0, 0, 255, 0], &[]);
        assert_eq!(
            (sense(&outcome), pointer(&outcome)),
            (INVALID_FIELD, (1, Some(4)))
        );
    }
}

#[test]
fn lost_reservations_shut_the_medium_until_they_are_replaced() {
    let owner = Owner::with_lost_reservations(profile());
    let mut rig = Rig::new(profile());
    for core in &mut rig.cores {
        core.install(owner.shared(), &[]);
    }
    rig.owner = owner;
    let at = rig.attach(0, 1);
    assert_eq!(
        sense(&rig.run(at, &ten(0x28, 0, 0, 1), &[])),
        (7, 0x44, 0x01)
    );
    good(&rig.run(at, &[0x12, 0, 0, 0, 36, 0], &[]));
    let mut replace = vec![0; 24];
    replace[15] = 7;
    good(&rig.run(at, &[0x5f, 0x08, 0x01, 0, 0, 0, 0, 0, 24, 0], &replace));
    good(&rig.run(at, &ten(0x28, 0, 0, 1), &[]));
}

/// Nothing must make of lost reservations that there are none.
#[test]
fn reservations_that_are_lost_are_lost_after_the_next_start() {
    let owner = Owner::with_lost_reservations(profile());
    let restored = Owner::new(profile(), Some(&owner.kept_state()));
    assert_eq!(restored.unwrap_err(), RestoreError::Lost);
}

/// After a failed save that counts also where the state stays as it is.
#[test]
fn replies_that_say_what_is_kept_are_known() {
    let (mut rig, at) = Rig::ready(profile());
    let (registers, parameters) = register(1, true);
    good(&rig.run(at, &registers, &parameters));
    let mut again = registers;
    again[1] = 0x06;
    let select = |save: u8| [0x15, 0x10 | save, 0, 0, 0, 0];
    let cases = [
        (&again[..], &parameters[..], true),
        (&select(1)[..], &[][..], true),
        (&select(0)[..], &[][..], false),
        (&[0x1b, 0, 0, 0, 1, 0][..], &[][..], false),
    ];
    for (cdb, parameters, relies) in cases {
        let (_, step) = rig.start(at, cdb, parameters);
        let Step::Owner(change) = step else {
            panic!("{step:?}");
        };
        let proposal = rig.owner.propose(&change);
        assert_eq!(proposal.state_to_keep(), None, "{cdb:x?}");
        assert_eq!(proposal.relies_on_kept_state(), relies, "{cdb:x?}");
    }
}

#[test]
fn kept_state_of_another_kind_is_refused() {
    let new = |bytes: &[u8]| Owner::new(profile(), Some(bytes)).unwrap_err();
    assert_eq!(new(b""), RestoreError::NotAState);
    assert_eq!(new(b"TARNUNIT"), RestoreError::NotAState);
    assert_eq!(
        new(b"TARNUNIT\x03\x00"),
        RestoreError::Version { got: 3, known: 2 }
    );
    assert!(matches!(
        new(b"TARNUNIT\x01\x00x"),
        RestoreError::Reservations(_)
    ));
}

#[test]
fn a_proposal_that_is_dropped_never_happened() {
    let (mut rig, at) = Rig::ready(profile());
    let before = Arc::clone(rig.owner.shared());
    let (cdb, parameters) = register(1, true);
    let (mut task, step) = rig.start(at, &cdb, &parameters);
    let Step::Owner(change) = step else {
        panic!("{step:?}");
    };
    let proposal = rig.owner.propose(&change);
    let kept = proposal.state_to_keep().unwrap();
    drop(proposal);
    assert!(Arc::ptr_eq(rig.owner.shared(), &before));
    assert_ne!(rig.owner.kept_state(), kept);
    let reply = rig.apply(&change);
    drop(rig.cores[at.0].resume(&mut task, Input::Owner(reply)));
    assert_eq!(rig.owner.shared().reservations.registration_count(), 1);
    assert_eq!(rig.owner.kept_state(), kept);
}

#[test]
fn kept_state_of_the_first_version_is_read() {
    let (mut rig, at) = Rig::ready(profile());
    let (cdb, parameters) = register(1, true);
    good(&rig.run(at, &cdb, &parameters));
    let shared = rig.owner.shared();
    let mut old = b"TARNUNIT\x01".to_vec();
    old.push(shared.saved_modes.to_byte());
    old.extend_from_slice(&shared.reservations.encode());
    let restored = Owner::new(profile(), Some(&old)).unwrap();
    assert_eq!(restored.kept_state(), rig.owner.kept_state());
}

/// A program of today finds what it knows in the state of a later one, unless that says that it must
/// not.
#[test]
fn sections_that_are_not_known_are_skipped_only_where_they_may_be() {
    let (mut rig, at) = Rig::ready(profile());
    let (cdb, parameters) = register(1, true);
    good(&rig.run(at, &cdb, &parameters));
    let kept = rig.owner.kept_state();
    let with = |tag: &[u8]| [&kept[..], tag, &[0, 0, 0, 2], b"xy"].concat();
    let restored = Owner::new(profile(), Some(&with(b"\x80\x07"))).unwrap();
    assert_eq!(restored.kept_state(), kept);
    let refused = |bytes: &[u8]| Owner::new(profile(), Some(bytes)).unwrap_err();
    assert_eq!(
        refused(&with(b"\x00\x07")),
        RestoreError::Section { tag: 7 }
    );
    // The same twice, cut off, and a length beyond the end.
    let twice = [&kept[..], &kept[9..]].concat();
    let beyond = [&kept[..], b"\x80\x07", &[0, 0, 0, 3], b"xy"].concat();
    for bytes in [&twice[..], &kept[..kept.len() - 1], &beyond] {
        assert_eq!(refused(bytes), RestoreError::NotAState);
    }
}

/// They are moved for every I/O.
#[test]
fn tasks_and_steps_stay_small() {
    assert!(size_of::<Task>() <= 192, "{}", size_of::<Task>());
    assert!(size_of::<Step>() <= 192, "{}", size_of::<Step>());
    assert!(size_of::<Outcome>() <= 128, "{}", size_of::<Outcome>());
}

/// The names in it are looked up by the owner, and a session may send many such lists at once.
#[test]
fn a_long_parameter_list_waits_for_its_turn() {
    let (mut rig, at) = Rig::ready(profile());
    let (_, mut list) = register(7, false);
    good(&rig.run(at, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list));
    assert_eq!(rig.turns, []);
    // SPEC_I_PT: one port, named forty times.
    let (_, mut other) = register(9, false);
    other[..8].copy_from_slice(&list[8..16]);
    other[20] = 0x08;
    list = other;
    let name = b"iqn.2026-11.example:many,i,0x00023d000001\0\0\0";
    let id = [&[0x45, 0, 0, 44], &name[..]].concat();
    let ids = id.repeat(40);
    list.extend_from_slice(&u32::try_from(ids.len()).unwrap().to_be_bytes());
    list.extend_from_slice(&ids);
    let length = u16::try_from(list.len()).unwrap().to_be_bytes();
    let newcomer = rig.attach(1, 9);
    list[..8].fill(0);
    let cdb = [0x5f, 0, 0, 0, 0, 0, 0, length[0], length[1], 0];
    good(&rig.run(newcomer, &cdb, &list));
    let cost = u32::try_from(list.len()).unwrap() * 32;
    assert_eq!(rig.turns, [cost]);
    // Both have one registration, and the port that was named has one.
    assert_eq!(read_keys(&mut rig, at).len(), 8 + 3 * 8);
}

/// RESERVATIONS PREEMPTED.
const PREEMPTED: Codes = (6, 0x2a, 0x03);

/// An administrator's CLEAR: everybody who was registered is notified, nobody else, and it is kept.
#[test]
fn an_administrator_clears_what_all_have_registered_and_reserved() {
    let (mut rig, holder) = Rig::ready(profile());
    let (other, stranger) = (rig.attach(1, 2), rig.attach(1, 3));
    for (at, key) in [(holder, 1), (other, 2)] {
        let (cdb, parameters) = register(key, true);
        good(&rig.run(at, &cdb, &parameters));
    }
    let mut own_key = vec![0; 24];
    own_key[7] = 1;
    good(&rig.run(holder, &[0x5f, 0x01, 0x03, 0, 0, 0, 0, 0, 24, 0], &own_key));
    let outcome = rig.run(stranger, &ten(0x28, 0, 0, 1), &[]);
    assert_eq!(outcome.status, Status::ReservationConflict);
    rig.persisted = None;
    rig.change(None, ChangeKind::ClearReservations);
    for at in [holder, other] {
        assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), PREEMPTED);
        good(&rig.run(at, &TEST_UNIT_READY, &[]));
    }
    good(&rig.run(stranger, &ten(0x28, 0, 0, 1), &[]));
    // Two registrations and CLEAR.
    assert_eq!(read_keys(&mut rig, stranger), [0, 0, 0, 3, 0, 0, 0, 0]);
    assert!(rig.aborted.is_empty());
    let state = rig.persisted.take();
    let mut rig = Rig::restored(profile(), Some(&state.unwrap()));
    let at = rig.attach(0, 1);
    assert_eq!(read_keys(&mut rig, at), [0; 8]);
    rig.change(None, ChangeKind::ClearReservations);
    assert_eq!(rig.persisted, None, "there was nothing to clear");
}

#[test]
fn an_administrator_releases_what_reserve_has_reserved() {
    let (mut rig, holder) = Rig::ready(profile());
    let other = rig.attach(1, 2);
    rig.change(Some(1), ChangeKind::NexusAttached);
    good(&rig.run(holder, &[0x16, 0, 0, 0, 0, 0], &[]));
    assert_eq!(rig.owner.reserved_by(), Some(&nexus(1).port));
    rig.change(None, ChangeKind::ClearReservations);
    assert_eq!(rig.owner.reserved_by(), None);
    good(&rig.run(other, &TEST_UNIT_READY, &[]));
    assert_eq!(sense(&rig.run(holder, &TEST_UNIT_READY, &[])), PREEMPTED);
    assert_eq!(rig.persisted, None, "it is not kept");
}

#[test]
fn an_administrator_does_without_reservations_that_are_lost() {
    let mut rig = Rig::new(profile());
    rig.owner = Owner::with_lost_reservations(profile());
    for core in &mut rig.cores {
        core.install(rig.owner.shared(), &[]);
    }
    let at = rig.attach(1, 1);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), (7, 0x44, 0x01));
    rig.change(None, ChangeKind::ClearReservations);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), PREEMPTED);
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
    assert!(Owner::new(profile(), Some(&rig.persisted.unwrap())).is_ok());
}
