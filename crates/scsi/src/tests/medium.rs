//! A removable medium: ejected, loaded, held, and what is answered while it is out.

use super::matrix::{ORDINARY, Sent};
use super::*;

pub(super) const TEST_UNIT_READY: [u8; 6] = [0; 6];
pub(super) const START: u8 = 0x01;
pub(super) const LOEJ: u8 = 0x02;
pub(super) const NO_FLUSH: u8 = 0x04;

const NO_MEDIUM: Codes = (2, 0x3a, 0x00);
const PREVENTED: Codes = (5, 0x53, 0x02);
const REFUSED: Codes = (2, 0x04, 0x00);
const NOW_READY: Codes = (6, 0x28, 0x00);

pub(super) fn start_stop(flags: u8) -> [u8; 6] {
    [0x1b, 0, 0, 0, flags, 0]
}

pub(super) fn prevent(yes: u8) -> [u8; 6] {
    [0x1e, 0, 0, 0, yes, 0]
}

pub(super) fn removable() -> Profile {
    let mut profile = profile();
    profile.identity.removable = true;
    profile
}

/// A removable unit whose owner knows three nexuses, two of them on one core.
fn three() -> (Rig, [At; 3]) {
    let mut rig = Rig::new(removable());
    let nexuses = [(0, 1), (0, 2), (1, 3)].map(|(core, number)| {
        rig.change(Some(number), ChangeKind::NexusAttached);
        rig.attach(core, number)
    });
    (rig, nexuses)
}

/// An administrator's change, and why it was refused.
fn administer(rig: &mut Rig, kind: ChangeKind) -> Result<(), Codes> {
    let reply = rig.apply(&Change { from: None, kind });
    match reply.sense {
        Some(Sense { key, code, .. }) => Err((key as u8, code.asc, code.ascq)),
        None => Ok(()),
    }
}

fn medium(rig: &Rig) -> Medium {
    rig.owner.medium().unwrap()
}

#[test]
fn a_fixed_medium_is_not_ejected_and_removal_not_prevented() {
    let (mut rig, at) = Rig::ready(profile());
    let outcome = rig.run(at, &start_stop(LOEJ), &[]);
    assert_eq!(
        (sense(&outcome), pointer(&outcome)),
        (INVALID_FIELD, (4, Some(1)))
    );
    assert_eq!(sense(&rig.run(at, &prevent(1), &[])), (5, 0x20, 0x00));
    let power_condition = rig.run(at, &start_stop(0x10), &[]);
    assert_eq!(pointer(&power_condition), (4, Some(4)));
    for kind in [ChangeKind::Eject { force: true }, ChangeKind::Load] {
        assert_eq!(administer(&mut rig, kind), Err((5, 0x20, 0x00)));
    }
    assert_eq!(rig.owner.medium(), None);
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn an_ejected_medium_is_not_present_until_loaded() {
    let (mut rig, [at, same_core, other]) = three();
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    assert!(!medium(&rig).is_in);
    for nexus in [at, same_core, other] {
        assert_eq!(sense(&rig.run(nexus, &TEST_UNIT_READY, &[])), NO_MEDIUM);
    }
    good(&rig.run(at, &start_stop(LOEJ | START), &[]));
    assert!(medium(&rig).is_in);
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
    for nexus in [same_core, other] {
        assert_eq!(sense(&rig.run(nexus, &TEST_UNIT_READY, &[])), NOW_READY);
        good(&rig.run(nexus, &TEST_UNIT_READY, &[]));
    }
}

/// What moves nothing is no news to anybody.
#[test]
fn ejecting_twice_and_loading_twice_is_doing_it_once() {
    let (mut rig, [at, other, _]) = three();
    good(&rig.run(at, &start_stop(LOEJ | START), &[]));
    good(&rig.run(other, &TEST_UNIT_READY, &[]));
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    let generation = rig.owner.shared().generation;
    good(&rig.run(other, &start_stop(LOEJ), &[]));
    assert_eq!(rig.owner.shared().generation, generation);
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), NO_MEDIUM);
}

/// Nobody is at work on the medium from before its flush until it is out.
#[test]
fn an_eject_has_the_medium_to_itself_and_flushes_it() {
    for (flags, flushes) in [(LOEJ, true), (LOEJ | NO_FLUSH, false)] {
        let (mut rig, [at, ..]) = three();
        let (mut task, step) = rig.start(at, &start_stop(flags), &[]);
        let Step::Fence(WHOLE_MEDIUM) = step else {
            panic!("{step:?}");
        };
        let mut step = rig.cores[at.0].resume(&mut task, Input::FenceGranted);
        assert!(medium(&rig).is_in);
        if flushes {
            let Step::Io(IoRequest::Flush) = step else {
                panic!("{step:?}");
            };
            step = rig.cores[at.0].resume(&mut task, Input::Io(Ok(IoAnswer::Done)));
        }
        let Step::Owner(change) = step else {
            panic!("{step:?}");
        };
        let reply = rig.apply(&change);
        let step = rig.cores[at.0].resume(&mut task, Input::Owner(reply));
        let Step::Done(outcome) = step else {
            panic!("{step:?}");
        };
        good(&outcome);
        assert!(!medium(&rig).is_in);
    }
}

/// Also one that would not be flushed.
#[test]
fn a_request_that_may_still_land_keeps_the_medium_in() {
    for flags in [LOEJ, LOEJ | NO_FLUSH] {
        let (mut rig, [at, ..]) = three();
        let (mut task, _) = rig.start(at, &start_stop(flags), &[]);
        rig.cores[at.0].refuse_access(true);
        let step = rig.cores[at.0].resume(&mut task, Input::FenceGranted);
        let Step::Done(outcome) = step else {
            panic!("{step:?}");
        };
        assert_eq!(sense(&outcome), REFUSED);
        assert!(medium(&rig).is_in);
    }
}

/// A load of another nexus is in force at the owner and not yet installed where the eject comes.
#[test]
fn an_eject_that_has_not_heard_of_a_load_flushes_what_was_written_since() {
    let (mut rig, [at, .., other]) = three();
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    let load = rig.owner.propose(&Change {
        from: None,
        kind: ChangeKind::Load,
    });
    let loaded = rig.owner.commit(load).shared.unwrap();
    rig.cores[other.0].install(&loaded, &[]);
    good(&rig.run(other, &ten(0x2a, 0, 0, 1), &[9; BLOCK]));
    rig.asked.clear();
    rig.fences.clear();
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    assert_eq!(rig.asked, [Asked::Flush]);
    assert_eq!(rig.fences, [WHOLE_MEDIUM]);
    assert!(!medium(&rig).is_in);
}

#[test]
fn a_medium_that_cannot_be_flushed_stays_in() {
    let (mut rig, [at, ..]) = three();
    rig.failure = Some(IoFailure::Hardware { errno: 5 });
    let outcome = rig.run(at, &start_stop(LOEJ), &[]);
    assert_eq!(outcome.status, Status::CheckCondition);
    assert_eq!(rig.asked, [Asked::Flush]);
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
    good(&rig.run(at, &start_stop(LOEJ), &[]));
}

/// It was let pass, waited for its data, and finds the medium gone.
#[test]
fn a_request_of_before_does_not_go_to_an_ejected_medium() {
    let (mut rig, [at, other, _]) = three();
    let core = at.0;
    let write = || IoRequest::Write {
        offset: 0,
        data: Payload::Heap(vec![0; BLOCK]),
        durable: false,
    };
    let (task, step) = rig.start(other, &ten(0x2a, 0, 0, 1), &[7; BLOCK]);
    assert!(
        matches!(step, Step::Io(IoRequest::Write { .. })),
        "{step:?}"
    );
    assert_eq!(rig.cores[core].refusal_of(&task, &write()), None);
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    for core in &rig.cores {
        let Some(Sense { key, code, .. }) = core.refusal_of(&task, &write()) else {
            panic!("a write of before is let pass");
        };
        assert_eq!((key as u8, code.asc, code.ascq), NO_MEDIUM);
        assert_eq!(core.refusal_of(&task, &IoRequest::Flush), None);
    }
    // What is in now may be another medium.
    good(&rig.run(at, &start_stop(LOEJ | START), &[]));
    assert!(rig.cores[core].refusal_of(&task, &write()).is_some());
    rig.run(other, &TEST_UNIT_READY, &[]);
    let (task, _) = rig.start(other, &ten(0x2a, 0, 0, 1), &[7; BLOCK]);
    assert_eq!(rig.cores[core].refusal_of(&task, &write()), None);
}

/// Commands that answer without a medium; every other one of the table ends in NOT READY.
const WITHOUT_MEDIUM: &[&str] = &[
    "REQUEST SENSE",
    "INQUIRY",
    "MODE SELECT (6)",
    "MODE SENSE (6)",
    "START STOP UNIT, START 0",
    "PREVENT ALLOW MEDIUM REMOVAL, PREVENT 0",
    "PREVENT ALLOW MEDIUM REMOVAL, PREVENT 1",
    "LOG SENSE",
    "MODE SELECT (10)",
    "MODE SENSE (10)",
    "REPORT LUNS",
    "REPORT TARGET PORT GROUPS",
    "REPORT SUPPORTED OPERATION CODES",
    "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
];

#[test]
fn every_command_says_that_there_is_no_medium_or_needs_none() {
    let mut found = 0;
    for line in ORDINARY {
        let (mut rig, [at, ..]) = three();
        good(&rig.run(at, &start_stop(LOEJ), &[]));
        rig.asked.clear();
        let data = match line.data {
            Sent::Blocks(count) => vec![0; count * BLOCK],
            Sent::None | Sent::Keys(_) | Sent::Move => Vec::new(),
        };
        let outcome = rig.run(at, &hex(line.cdb), &data);
        if WITHOUT_MEDIUM.contains(&line.name) {
            found += 1;
            good(&outcome);
        } else {
            assert_eq!(sense(&outcome), NO_MEDIUM, "{}", line.name);
        }
        let may_flush = line.name == "START STOP UNIT, START 0";
        assert!(rig.asked.is_empty() || may_flush, "{}", line.name);
    }
    assert_eq!(found, WITHOUT_MEDIUM.len());
}

#[test]
fn request_sense_reports_the_missing_medium_as_data() {
    let (mut rig, [at, ..]) = three();
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    let sense = data(rig.run(at, &[0x03, 0, 0, 0, 18, 0], &[]));
    assert_eq!((sense[2] & 0x0f, sense[12], sense[13]), NO_MEDIUM);
}

#[test]
fn a_stopped_unit_whose_medium_is_loaded_runs() {
    let (mut rig, [at, ..]) = three();
    good(&rig.run(at, &start_stop(0), &[]));
    good(&rig.run(at, &start_stop(LOEJ), &[]));
    good(&rig.run(at, &start_stop(0), &[]));
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), NO_MEDIUM);
    good(&rig.run(at, &start_stop(LOEJ | START), &[]));
    good(&rig.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn removal_stays_prevented_until_allowed_or_the_nexus_or_a_reset_ends_it() {
    let endings: [fn(&mut Rig, At); 4] = [
        |rig, at| good(&rig.run(at, &prevent(0), &[])),
        |rig, _| rig.change(Some(1), ChangeKind::NexusLost),
        |rig, _| rig.change(Some(1), ChangeKind::LogicalUnitReset),
        |rig, _| rig.change(None, ChangeKind::TargetReset),
    ];
    for ending in endings {
        let (mut rig, [at, ..]) = three();
        good(&rig.run(at, &prevent(1), &[]));
        good(&rig.run(at, &prevent(1), &[]));
        assert_eq!(medium(&rig).prevented_by, [nexus(1).port]);
        for flags in [LOEJ, LOEJ | START] {
            let outcome = rig.run(at, &start_stop(flags), &[]);
            assert_eq!(sense(&outcome), PREVENTED);
        }
        assert!(rig.fences.is_empty(), "nobody is held up by it");
        good(&rig.run(at, &TEST_UNIT_READY, &[]));
        ending(&mut rig, at);
        assert_eq!(medium(&rig).prevented_by, []);
        let fresh = rig.attach(1, 9);
        good(&rig.run(fresh, &start_stop(LOEJ), &[]));
    }
}

#[test]
fn every_nexus_that_prevents_removal_must_allow_it() {
    let (mut rig, [first, second, third]) = three();
    good(&rig.run(first, &prevent(1), &[]));
    good(&rig.run(third, &prevent(1), &[]));
    // Who prevents nothing allows nothing for others.
    good(&rig.run(second, &prevent(0), &[]));
    assert_eq!(sense(&rig.run(second, &start_stop(LOEJ), &[])), PREVENTED);
    good(&rig.run(first, &prevent(0), &[]));
    assert_eq!(sense(&rig.run(first, &start_stop(LOEJ), &[])), PREVENTED);
    good(&rig.run(third, &prevent(0), &[]));
    good(&rig.run(first, &start_stop(LOEJ), &[]));
}

/// PREVENT of another nexus comes between the admission of an eject and its turn at the owner.
#[test]
fn the_owner_asks_again_whether_removal_is_prevented() {
    let (mut rig, [at, other, _]) = three();
    let (mut task, step) = rig.start(at, &start_stop(LOEJ | NO_FLUSH), &[]);
    assert!(matches!(step, Step::Fence(_)), "{step:?}");
    let step = rig.cores[at.0].resume(&mut task, Input::FenceGranted);
    good(&rig.run(other, &prevent(1), &[]));
    let Step::Owner(change) = step else {
        panic!("{step:?}");
    };
    let reply = rig.apply(&change);
    assert_eq!(reply.sense.map(|sense| sense.code.asc), Some(0x53));
    drop(rig.cores[at.0].resume(&mut task, Input::Owner(reply)));
    assert!(medium(&rig).is_in);
}

/// Spec: SPC-4, PREVENT ALLOW MEDIUM REMOVAL.
#[test]
fn preempt_and_abort_allows_removal_for_those_it_hits_and_preempt_does_not() {
    const PREEMPT: u8 = 0x04;
    const PREEMPT_AND_ABORT: u8 = 0x05;
    for (action, allows) in [(PREEMPT, false), (PREEMPT_AND_ABORT, true)] {
        let (mut rig, [at, victim, third]) = three();
        let out = |own: u64, other: u64| {
            let mut list = [own.to_be_bytes(), other.to_be_bytes()].concat();
            list.resize(24, 0);
            list
        };
        let cdb = |action| [0x5f, action, 0x01, 0, 0, 0, 0, 0, 24, 0];
        for (nexus, key) in [(at, 1), (victim, 2), (third, 3)] {
            good(&rig.run(nexus, &cdb(0), &out(0, key)));
            good(&rig.run(nexus, &prevent(1), &[]));
        }
        good(&rig.run(at, &cdb(action), &out(1, 2)));
        let left = medium(&rig).prevented_by;
        if allows {
            assert_eq!(left, [nexus(1).port, nexus(3).port]);
        } else {
            assert_eq!(left.len(), 3);
        }
    }
}

#[test]
fn an_administrator_ejects_against_prevention_by_force_only() {
    let (mut rig, [at, other, _]) = three();
    good(&rig.run(at, &prevent(1), &[]));
    let eject = |force| ChangeKind::Eject { force };
    assert_eq!(administer(&mut rig, eject(false)), Err(PREVENTED));
    good(&rig.run(other, &TEST_UNIT_READY, &[]));
    assert_eq!(administer(&mut rig, eject(true)), Ok(()));
    assert_eq!(sense(&rig.run(other, &TEST_UNIT_READY, &[])), NO_MEDIUM);
    // The drive is locked for initiators.
    for flags in [LOEJ, LOEJ | START] {
        assert_eq!(sense(&rig.run(other, &start_stop(flags), &[])), PREVENTED);
    }
    // It is out already.
    assert_eq!(administer(&mut rig, eject(false)), Ok(()));
    assert_eq!(administer(&mut rig, ChangeKind::Load), Ok(()));
    for nexus in [at, other] {
        assert_eq!(sense(&rig.run(nexus, &TEST_UNIT_READY, &[])), NOW_READY);
    }
    // What the initiator asked for holds for this medium, too.
    assert_eq!(medium(&rig).prevented_by, [nexus(1).port]);
    assert_eq!(administer(&mut rig, eject(false)), Err(PREVENTED));
    assert_eq!(administer(&mut rig, ChangeKind::Load), Ok(()));
    good(&rig.run(other, &TEST_UNIT_READY, &[]));
}

#[test]
fn a_restart_finds_a_medium_out_that_was_ejected() {
    let (mut rig, [at, ..]) = three();
    let before = rig.owner.kept_state();
    good(&rig.run(at, &prevent(1), &[]));
    assert_eq!(rig.persisted, None);
    assert_eq!(
        administer(&mut rig, ChangeKind::Eject { force: true }),
        Ok(())
    );
    let kept = rig.persisted.take().unwrap();
    assert_eq!(rig.owner.kept_state(), kept);
    let mut restarted = Rig::restored(removable(), Some(&kept));
    let at = restarted.attach(0, 1);
    assert_eq!(sense(&restarted.run(at, &TEST_UNIT_READY, &[])), NO_MEDIUM);
    assert_eq!(medium(&restarted).prevented_by, []);
    assert_eq!(administer(&mut restarted, ChangeKind::Load), Ok(()));
    assert_eq!(restarted.persisted.take(), Some(before.clone()));
    assert_eq!(sense(&restarted.run(at, &TEST_UNIT_READY, &[])), NOW_READY);
    // A unit that is not removable any more has no way to load it.
    let mut fixed = Rig::restored(profile(), Some(&kept));
    let at = fixed.attach(0, 1);
    good(&fixed.run(at, &TEST_UNIT_READY, &[]));
}

#[test]
fn where_nothing_is_kept_an_eject_is_not() {
    let profile = Profile {
        keeps_state: false,
        ..removable()
    };
    let mut rig = Rig::restored(profile, None);
    let eject = ChangeKind::Eject { force: false };
    assert_eq!(administer(&mut rig, eject), Ok(()));
    assert_eq!(administer(&mut rig, ChangeKind::Load), Ok(()));
    assert_eq!(rig.persisted, None);
}

#[test]
fn another_medium_is_reported_to_everybody_although_it_is_as_large() {
    let (mut rig, [at, other, _]) = three();
    good(&rig.run(at, &[0x16, 0, 0, 0, 0, 0], &[]));
    let another = |blocks| ChangeKind::LoadAnother { blocks };
    assert_eq!(
        administer(&mut rig, ChangeKind::Eject { force: false }),
        Ok(())
    );
    assert_eq!(administer(&mut rig, another(BLOCKS)), Ok(()));
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), NOW_READY);
    // An initiator has loaded it before.
    assert_eq!(administer(&mut rig, another(BLOCKS / 2)), Ok(()));
    assert_eq!(sense(&rig.run(at, &TEST_UNIT_READY, &[])), NOW_READY);
    assert_eq!(rig.owner.shared().blocks, BLOCKS / 2);
    let refused = rig.run(other, &TEST_UNIT_READY, &[]);
    assert_eq!(refused.status, Status::ReservationConflict);
}
