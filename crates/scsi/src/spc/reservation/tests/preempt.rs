use super::*;

#[test]
fn preempting_the_holder_replaces_the_reservation() {
    for old in [WE, EA, WERO, EARO] {
        for new in TYPES {
            let mut unit = Unit::held_by_a(old);
            unit.good(C, &out(REGISTER, 0, 0xc1));
            let generation = unit.generation();
            let effects = unit.good(B, &out(PREEMPT, 0xb1, 0xa1).kind(new));
            let mut expected = vec![(nexus(A), RegistrationsPreempted)];
            if new != old {
                expected.push((nexus(C), ReservationsReleased));
            }
            assert_eq!(effects.attentions, expected, "{old} to {new}");
            assert_eq!(effects.abort_tasks_of, []);
            let key = if new == WEAR || new == EAAR { 0 } else { 0xb1 };
            assert_eq!(unit.reservation(), Some((key, new)));
            assert_eq!(unit.keys(), [0xb1, 0xc1]);
            assert_eq!(unit.generation(), generation + 1);
        }
    }
}

#[test]
fn everyone_with_the_key_of_the_holder_goes_with_it_but_the_sender() {
    let mut unit = Unit::with_keys(&[7, 7, 7]);
    unit.good(A, &out(RESERVE, 7, 0).kind(WE));
    let effects = unit.good(B, &out(PREEMPT_AND_ABORT, 7, 7).kind(WE));
    assert_eq!(
        effects.attentions,
        [
            (nexus(A), RegistrationsPreempted),
            (nexus(C), RegistrationsPreempted)
        ]
    );
    // Tasks of everyone with that key, the sender's own others too.
    assert_eq!(effects.abort_tasks_of, [nexus(A), nexus(B), nexus(C)]);
    assert_eq!(unit.reservation(), Some((7, WE)));
    assert_eq!(unit.keys(), [7]);
    assert_eq!(unit.blocked(B), Blocked::NONE);
}

#[test]
fn a_holder_may_preempt_itself_to_change_the_type() {
    let mut unit = Unit::held_by_a(WE);
    let effects = unit.good(A, &out(PREEMPT, 0xa1, 0xa1).kind(EARO));
    assert_eq!(effects.attentions, [(nexus(B), ReservationsReleased)]);
    assert_eq!(unit.reservation(), Some((0xa1, EARO)));
    assert_eq!(unit.keys(), [0xa1, 0xb1]);
}

#[test]
fn preempting_all_registrants_takes_key_zero() {
    for old in [WEAR, EAAR] {
        for new in TYPES {
            let mut unit = Unit::held_by_a(old);
            let effects = unit.good(B, &out(PREEMPT_AND_ABORT, 0xb1, 0).kind(new));
            assert_eq!(effects.attentions, [(nexus(A), RegistrationsPreempted)]);
            assert_eq!(effects.abort_tasks_of, [nexus(A), nexus(B)]);
            let key = if new == WEAR || new == EAAR { 0 } else { 0xb1 };
            assert_eq!(unit.reservation(), Some((key, new)));
            assert_eq!(unit.keys(), [0xb1]);
        }
    }
}

#[test]
fn a_key_in_an_all_registrants_reservation_removes_registrations_only() {
    for kind in [WEAR, EAAR] {
        let mut unit = Unit::held_by_a(kind);
        let effects = unit.good(B, &out(PREEMPT, 0xb1, 0xa1).kind(WE));
        assert_eq!(effects.attentions, [(nexus(A), RegistrationsPreempted)]);
        assert_eq!(unit.reservation(), Some((0, kind)));
        // The last registrant may remove even itself, and then nobody is left to hold the unit.
        let effects = unit.good(B, &out(PREEMPT, 0xb1, 0xb1).kind(WE));
        assert_eq!(effects.attentions, []);
        assert_eq!(unit.reservation(), None);
        assert_eq!(unit.keys(), []);
    }
}

#[test]
fn without_a_reservation_or_for_another_key_only_registrations_go() {
    let mut free = Unit::with_keys(&[0xa1, 0xb1]);
    // Scope and type are not looked at then.
    let effects = free.good(A, &out(PREEMPT, 0xa1, 0xb1).kind(0xf));
    assert_eq!(effects.attentions, [(nexus(B), RegistrationsPreempted)]);
    assert_eq!(free.reservation(), None);
    assert_eq!(free.keys(), [0xa1]);

    for kind in [WE, EA, WERO, EARO] {
        let mut unit = Unit::held_by_a(kind);
        unit.good(C, &out(REGISTER, 0, 0xc1));
        let effects = unit.good(C, &out(PREEMPT_AND_ABORT, 0xc1, 0xb1).kind(0xf));
        assert_eq!(effects.attentions, [(nexus(B), RegistrationsPreempted)]);
        assert_eq!(effects.abort_tasks_of, [nexus(B)]);
        assert_eq!(unit.reservation(), Some((0xa1, kind)));
        assert_eq!(unit.keys(), [0xa1, 0xc1]);
    }
}

#[test]
fn removing_ones_own_registration_is_not_told() {
    let mut unit = Unit::with_keys(&[5, 5]);
    let effects = unit.good(A, &out(PREEMPT, 5, 5));
    assert_eq!(effects.attentions, [(nexus(B), RegistrationsPreempted)]);
    assert_eq!(unit.keys(), []);
}

#[test]
fn keys_that_fit_nothing_are_refused() {
    for action in [PREEMPT, PREEMPT_AND_ABORT] {
        let mut free = Unit::with_keys(&[0xa1]);
        for (from, key, victim) in [(A, 0xa1, 0xb1), (A, 0xa1, 0), (A, 0xb1, 0xa1), (B, 0, 0xa1)] {
            let result = free.send(from, &out(action, key, victim).kind(WE));
            assert_eq!(result, Err(Refusal::Conflict), "{key:x} {victim:x}");
        }
        for kind in [WE, EA, WERO, EARO] {
            let mut unit = Unit::held_by_a(kind);
            let refusal = unit.send(B, &out(action, 0xb1, 0).kind(WE)).unwrap_err();
            assert_eq!(told(refusal), wrong_parameter(8, None));
        }
        for kind in TYPES {
            let mut unit = Unit::held_by_a(kind);
            let result = unit.send(B, &out(action, 0xb1, 0xdd).kind(WE));
            assert_eq!(result, Err(Refusal::Conflict));
        }
    }
}

#[test]
fn a_new_reservation_must_have_a_type_and_the_unit_as_scope() {
    let mut unit = Unit::held_by_a(WE);
    let refusal = unit.send(B, &out(PREEMPT, 0xb1, 0xa1).kind(2)).unwrap_err();
    assert_eq!(told(refusal), wrong_cdb(2, 3));
    let mut command = out(PREEMPT, 0xb1, 0xa1).kind(WE);
    command.scope = 1;
    assert_eq!(told(unit.send(B, &command).unwrap_err()), wrong_cdb(2, 7));
}
