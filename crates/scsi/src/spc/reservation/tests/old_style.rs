//! RESERVE and RELEASE of SPC-2.

use super::*;
use crate::table::access::AccessClass;

fn reserve(unit: &mut Unit, number: usize) -> Result<(), Refusal> {
    let id = NexusId(u32::try_from(number).unwrap());
    unit.state.reserve(id, &nexus(number))
}

fn release(unit: &mut Unit, number: usize) -> Result<(), Refusal> {
    let id = NexusId(u32::try_from(number).unwrap());
    unit.state.release(id, &nexus(number))
}

#[test]
fn one_nexus_reserves_and_all_others_conflict_until_it_releases() {
    let mut unit = Unit::default();
    assert_eq!(reserve(&mut unit, A), Ok(()));
    assert_eq!(reserve(&mut unit, A), Ok(()));
    assert_eq!(reserve(&mut unit, B), Err(Refusal::Conflict));
    assert_eq!(unit.blocked(A), Blocked::NONE);
    assert_eq!(unit.blocked(B), Blocked::ALL);
    assert!(!unit.blocked(B).contains(AccessClass::Always));
    // From another nexus it does nothing, and that is good.
    assert_eq!(release(&mut unit, B), Ok(()));
    assert_eq!(unit.blocked(B), Blocked::ALL);
    assert_eq!(release(&mut unit, A), Ok(()));
    assert_eq!(unit.blocked(B), Blocked::NONE);
    assert_eq!(reserve(&mut unit, B), Ok(()));
}

#[test]
fn it_goes_with_its_nexus_and_with_a_reset() {
    let mut unit = Unit::default();
    reserve(&mut unit, A).unwrap();
    unit.state.nexus_lost(NexusId(1));
    assert_eq!(unit.blocked(B), Blocked::ALL);
    unit.state.nexus_lost(NexusId(0));
    assert_eq!(unit.blocked(B), Blocked::NONE);
    reserve(&mut unit, A).unwrap();
    unit.state.reset();
    assert_eq!(unit.blocked(B), Blocked::NONE);
}

#[test]
fn it_shuts_the_persistent_commands_out_for_its_holder_too() {
    let mut unit = Unit::default();
    reserve(&mut unit, A).unwrap();
    for number in [A, B] {
        let result = unit.send(number, &out(REGISTER, 0, 5));
        assert_eq!(result, Err(Refusal::Conflict));
    }
    for action in 0..4 {
        let result = unit
            .state
            .persistent_reserve_in(Some(action), &unit.surroundings());
        assert_eq!(result, Err(Refusal::Conflict));
    }
}

#[test]
fn one_registration_shuts_it_out() {
    let mut unit = Unit::with_keys(&[0xa1]);
    for number in [A, B] {
        assert_eq!(reserve(&mut unit, number), Err(Refusal::Conflict));
        assert_eq!(release(&mut unit, number), Err(Refusal::Conflict));
    }
}

/// Compatible reservation handling: good and without effect for a holder, and for a registrant
/// where registration is enough.
///
/// Spec: SPC-4, Exceptions to SPC-2 RESERVE and RELEASE behavior.
#[test]
fn whoever_already_has_the_unit_persistently_is_told_good() {
    for kind in TYPES {
        for (number, is_good) in [(A, true), (B, kind != WE && kind != EA), (C, false)] {
            let mut unit = Unit::held_by_a(kind);
            let before = unit.state.clone();
            let expected = if is_good {
                Ok(())
            } else {
                Err(Refusal::Conflict)
            };
            assert_eq!(
                reserve(&mut unit, number),
                expected,
                "type {kind} from {number}"
            );
            assert_eq!(
                release(&mut unit, number),
                expected,
                "type {kind} from {number}"
            );
            assert_eq!(unit.state, before);
        }
    }
}
