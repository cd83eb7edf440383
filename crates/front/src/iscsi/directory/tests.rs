use std::net::SocketAddr;

use super::super::holder::Holding;
use super::*;
use crate::policy::{Asker, Authorization, VisibleTarget};
use ::iscsi::pdu::Isid;
use engine::{UnitIndex, VisibleLun};

const LIMIT: usize = 100;

fn empty<W>(cores: usize, sessions_max: usize) -> Directory<W> {
    let holding = Holding::new(usize::MAX);
    Directory::new(cores, Common::new(sessions_max, usize::MAX, holding))
}

/// Shows one unit, for writing to those from 192.0.2.1 and for reading to those from 192.0.2.2.
#[derive(Debug)]
struct ByAddress;

impl Policy for ByAddress {
    fn authorize(&self, _: &Asker<'_>, _: Option<&str>) -> Result<Authorization, LoginStatus> {
        Err(LoginStatus::NotFound)
    }

    fn luns(&self, asker: &Asker<'_>, _: TargetIndex) -> Result<Vec<VisibleLun>, LoginStatus> {
        let lun = |read_only| VisibleLun {
            lun: 0,
            unit: UnitIndex(0),
            read_only,
        };
        match asker.address.to_string().as_str() {
            "192.0.2.1" => Ok(vec![lun(false)]),
            "192.0.2.2" => Ok(vec![lun(true)]),
            _ => Err(LoginStatus::AuthorizationFailure),
        }
    }

    fn may_discover(&self, _: &Asker<'_>) -> bool {
        true
    }

    fn targets(&self, _: &Asker<'_>, _: Option<TargetIndex>) -> Vec<VisibleTarget> {
        Vec::new()
    }
}

fn member(isid: u8) -> Member {
    Member {
        nexus: NexusKey {
            initiator_name: "iqn.2026-11.example:host".to_owned(),
            isid: Isid([0, 0, 0, 0, 0, isid]),
            target: TargetIndex(0),
            portal_group_tag: 1,
        },
        user: None,
        peer: SocketAddr::from(([192, 0, 2, 1], 1)),
        portal: SocketAddr::from(([192, 0, 2, 100], 3260)),
        luns: 1,
    }
}

fn user(name: &str) -> Member {
    Member {
        user: Some(name.to_owned()),
        ..member(1)
    }
}

fn from(address: [u8; 4]) -> Member {
    Member {
        peer: SocketAddr::from((address, 2)),
        ..member(1)
    }
}

impl<W> Directory<W> {
    fn lead(&mut self, member: Member, login: W) -> Decision<W> {
        self.admit(Some(member), login, &ByAddress, 1)
    }

    fn lead_after(&mut self, member: Member, login: W) -> Decision<W> {
        self.admit_after(member, login, &ByAddress, 1)
    }
}

fn placed<W: std::fmt::Debug>(decision: Decision<W>) -> Placement {
    match decision {
        Decision::Place(placement, _) => placement,
        Decision::EndFirst { .. } | Decision::Wait(_) | Decision::Refuse(..) => {
            panic!("{decision:?}")
        }
    }
}

const REFUSED: Decision<()> = Decision::Refuse(LoginStatus::AuthorizationFailure, ());

#[test]
fn sessions_spread_over_the_cores() {
    let mut directory = empty(2, LIMIT);
    let first = placed(directory.lead(member(1), ()));
    let second = placed(directory.lead(member(2), ()));
    assert_ne!(first.core, second.core);
    assert_ne!(first.nexus, second.nexus);
}

#[test]
fn a_core_whose_sessions_have_ended_is_chosen_again() {
    let mut directory = empty(2, 8);
    let first = [1, 2, 3, 4].map(|isid| placed(directory.lead(member(isid), ())));
    let core = first[0].core;
    for placement in first.iter().filter(|one| one.core == core) {
        directory.ended(placement.tsih);
    }
    for isid in [5, 6] {
        let placement = placed(directory.lead(member(isid), ()));
        assert_eq!(placement.core, core, "session {isid}");
    }
}

#[test]
fn numbers_are_those_that_chance_gives_and_never_zero_or_in_use_or_just_given_up() {
    let mut directory = empty(1, LIMIT);
    let mut tsih = |random, isid| {
        let placement = placed(directory.admit(Some(member(isid)), (), &ByAddress, random));
        placement.tsih.0
    };
    assert_eq!(tsih(0xbeef, 1), 0xbeef);
    assert_eq!(tsih(0x1234, 2), 0x1234);
    assert_eq!(tsih(0x1234, 3), 0x1235);
    assert_eq!(tsih(0, 4), 1);
    assert_eq!(tsih(0xffff, 5), 0xffff);
    assert_eq!(tsih(0xffff, 6), 2);
    directory.ended(Tsih(0xbeef));
    let next = placed(directory.admit(None, (), &ByAddress, 0xbeef));
    assert_eq!(next.tsih, Tsih(0xbef0));
}

#[test]
fn an_id_is_never_given_again() {
    let mut directory = empty(1, 8);
    let first = placed(directory.lead(member(1), ()));
    directory.ended(first.tsih);
    let again = placed(directory.lead(member(1), ()));
    let other = placed(directory.lead(member(2), ()));
    let discovery = placed(directory.admit(None, (), &ByAddress, 1));
    let ids = [first, again, other, discovery].map(|placement| placement.id);
    assert_eq!(ids, [1, 2, 3, 4].map(SessionId));
}

#[test]
fn every_number_can_be_given_although_some_rest() {
    let mut directory = empty(1, usize::MAX);
    for _ in 0..2 * RESTING_MAX {
        let placement = placed(directory.admit(None, (), &ByAddress, 7));
        directory.ended(placement.tsih);
    }
    assert_eq!(directory.ended.len(), RESTING_MAX);
    for n in 0..u16::MAX - 1 {
        placed(directory.admit(None, (), &ByAddress, n));
    }
    let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
    assert_eq!(directory.admit(None, (), &ByAddress, 7), refused);
}

#[test]
fn a_known_port_waits_for_its_old_session_and_returns() {
    let mut directory = empty(1, LIMIT);
    let old = placed(directory.lead(member(1), "old"));
    assert!(!old.is_return);
    let end = Decision::EndFirst {
        core: 0,
        tsih: old.tsih,
    };
    assert_eq!(directory.lead(member(1), "first"), end);
    let waits = Decision::Wait(Some("first"));
    assert_eq!(directory.lead(member(1), "second"), waits);
    assert_eq!(
        directory.join(old.tsih, &member(1), &ByAddress),
        Err(LoginStatus::CannotIncludeInSession)
    );
    assert_eq!(directory.ended(old.tsih), Some("second"));
    assert!(placed(directory.lead_after(member(1), "second")).is_return);
}

/// Of two logins that wait the second replaces the first.
#[test]
fn a_login_that_waits_too_long_is_taken_out_and_its_session_ends_once_all_the_same() {
    let mut directory = empty(1, LIMIT);
    let old = placed(directory.lead(member(1), 1));
    let end_first = Decision::EndFirst {
        core: old.core,
        tsih: old.tsih,
    };
    assert_eq!(directory.lead(member(1), 2), end_first);
    assert_eq!(directory.lead(member(1), 3), Decision::Wait(Some(2)));
    assert_eq!(directory.take_overdue(|login| *login == 2), []);
    assert_eq!(directory.take_overdue(|login| *login == 3), [3]);
    // It has been asked to end already.
    assert_eq!(directory.lead(member(1), 4), Decision::Wait(None));
    assert_eq!(directory.ended(old.tsih), Some(4));
}

#[test]
fn each_session_of_a_port_that_is_replaced_is_counted() {
    let mut directory = empty(1, LIMIT);
    let old = placed(directory.lead(member(1), ()));
    assert_eq!(old.reinstatements, 0);
    directory.lead(member(1), ());
    directory.lead(member(1), ());
    assert!(directory.ended(old.tsih).is_some());
    let first = placed(directory.lead_after(member(1), ()));
    assert_eq!(first.reinstatements, 1);
    let end = Decision::EndFirst {
        core: 0,
        tsih: first.tsih,
    };
    assert_eq!(directory.lead_after(member(1), ()), end);
    assert_eq!(directory.ended(first.tsih), Some(()));
    let second = placed(directory.lead_after(member(1), ()));
    assert_eq!(second.reinstatements, 2);
    // A session that ended by itself was not replaced; the port is still the same.
    assert!(directory.ended(second.tsih).is_none());
    let third = placed(directory.lead(member(1), ()));
    assert_eq!((third.is_return, third.reinstatements), (true, 2));
}

/// Neither another user nor a login without one ends a session; it goes on.
#[test]
fn a_session_is_replaced_only_by_the_user_that_began_it() {
    for (owner, strangers) in [
        (user("alice"), [user("bob"), member(1)]),
        (member(1), [user("bob"), user("alice")]),
    ] {
        let mut directory = empty(1, LIMIT);
        let session = placed(directory.lead(owner.clone(), ()));
        for stranger in strangers {
            assert_eq!(directory.lead(stranger.clone(), ()), REFUSED);
            assert_eq!(
                directory.join(session.tsih, &stranger, &ByAddress),
                Err(LoginStatus::AuthorizationFailure)
            );
        }
        assert_eq!(directory.join(session.tsih, &owner, &ByAddress), Ok(0));
        // Somebody else who waits for the end of the session does not inherit its place.
        directory.lead(owner.clone(), ());
        assert_eq!(directory.lead(user("eve"), ()), REFUSED);
        assert_eq!(directory.ended(session.tsih), Some(()));
    }
}

#[test]
fn an_address_that_is_granted_less_neither_joins_nor_replaces() {
    for (owner, newcomer, may_enter) in [
        ([192, 0, 2, 1], [192, 0, 2, 2], false),
        ([192, 0, 2, 1], [192, 0, 2, 3], false),
        ([192, 0, 2, 2], [192, 0, 2, 1], true),
        ([192, 0, 2, 2], [192, 0, 2, 2], true),
    ] {
        let mut directory = empty(1, LIMIT);
        let session = placed(directory.lead(from(owner), ()));
        let joined = directory.join(session.tsih, &from(newcomer), &ByAddress);
        let expected = may_enter
            .then_some(0)
            .ok_or(LoginStatus::AuthorizationFailure);
        assert_eq!(joined, expected, "{newcomer:?} at {owner:?}");
        let is_refused = directory.lead(from(newcomer), ()) == REFUSED;
        assert_eq!(is_refused, !may_enter, "{newcomer:?} at {owner:?}");
    }
}

#[test]
fn ports_without_a_session_are_forgotten_when_they_are_too_many() {
    let mut directory = empty(1, LIMIT);
    let kept = placed(directory.lead(member(1), ()));
    directory.lead(member(1), ());
    directory.ended(kept.tsih);
    placed(directory.lead_after(member(1), ()));
    for number in 0..SEEN_MAX + 2 {
        let mut guest = member(2);
        guest.nexus.initiator_name = format!("iqn.2026-11.example:{number}");
        let placement = placed(directory.lead(guest, ()));
        assert!(!placement.is_return, "{number}");
        directory.ended(placement.tsih);
    }
    assert_eq!(directory.seen.len(), 3);
    let pair = PortPair::of(&member(1).nexus, &directory.hashes);
    let seen = directory.seen.get(&pair);
    assert_eq!(seen.map(|seen| seen.reinstatements), Some(1));
}

#[test]
fn a_session_is_joined_only_by_its_own_port() {
    let mut directory = empty(1, LIMIT);
    let session = placed(directory.lead(member(1), ()));
    let discovery = placed(directory.admit(None, (), &ByAddress, 5));
    let join = |tsih, isid| directory.join(tsih, &member(isid), &ByAddress);
    assert_eq!(join(session.tsih, 1), Ok(0));
    let missing = Err(LoginStatus::SessionDoesNotExist);
    assert_eq!(join(session.tsih, 2), missing);
    assert_eq!(join(discovery.tsih, 1), missing);
    assert_eq!(join(Tsih(9), 1), missing);
}

#[test]
fn the_limit_holds_and_discovery_takes_no_place() {
    let mut directory = empty(1, 2);
    for _ in 0..3 {
        placed(directory.admit(None, (), &ByAddress, 1));
    }
    let first = placed(directory.lead(member(1), ()));
    placed(directory.lead(member(2), ()));
    let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
    assert_eq!(directory.lead(member(3), ()), refused);
    assert!(directory.ended(first.tsih).is_none());
    placed(directory.lead(member(3), ()));
}

/// The number of a port and the last byte of an address.
fn numbered(number: u8, address: u8) -> Member {
    Member {
        peer: SocketAddr::from(([192, 0, 2, address], 2)),
        ..member(number)
    }
}

#[test]
fn one_address_gets_eight_ninths_of_the_places_and_the_next_finds_one() {
    let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
    let mut directory = empty(1, LIMIT);
    let mut last = None;
    for number in 0..89 {
        last = Some(placed(directory.lead(numbered(number, 1), ())));
    }
    assert_eq!(directory.lead(numbered(89, 1), ()), refused);
    // Those who come later get less and less, and nobody else's share.
    for number in 100..109 {
        placed(directory.lead(numbered(number, 2), ()));
    }
    placed(directory.lead(numbered(120, 3), ()));
    assert_eq!(directory.lead(numbered(89, 1), ()), refused);
    // A place that was given back counts for all.
    directory.ended(last.map_or(Tsih(0), |last| last.tsih));
    assert_eq!(directory.lead(numbered(88, 1), ()), refused);
    placed(directory.lead(numbered(121, 3), ()));
}

#[test]
fn users_have_their_places_wherever_they_come_from_and_others_by_their_network() {
    let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
    let mut directory = empty(1, 10);
    let of_user = |number, address| Member {
        user: Some("backup".to_owned()),
        ..numbered(number, address)
    };
    for number in 0..8 {
        placed(directory.lead(of_user(number, number), ()));
    }
    placed(directory.lead(of_user(8, 8), ()));
    assert_eq!(directory.lead(of_user(9, 9), ()), refused);
    placed(directory.lead(numbered(10, 8), ()));

    let mut directory = empty(1, 10);
    let of_network = |number: u8| Member {
        peer: SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into()], 2)),
        ..member(number)
    };
    for number in 0..9 {
        placed(directory.lead(of_network(number), ()));
    }
    assert_eq!(directory.lead(of_network(9), ()), refused);
    placed(directory.lead(numbered(10, 1), ()));
}

#[test]
fn a_reset_of_the_target_is_told_once_to_each_port_that_returns() {
    let mut directory = empty(1, LIMIT);
    let first = placed(directory.lead(member(1), "first"));
    assert!(!first.was_reset);
    let target = member(1).nexus.target;
    directory.note_reset(TargetIndex(target.0 + 1));
    directory.ended(first.tsih);
    let second = placed(directory.lead(member(1), "second"));
    assert!(!second.was_reset);
    directory.note_reset(target);
    directory.ended(second.tsih);
    let third = placed(directory.lead(member(1), "third"));
    assert!(third.is_return && third.was_reset);
    directory.ended(third.tsih);
    let fourth = placed(directory.lead(member(1), "fourth"));
    assert!(!fourth.was_reset);
    assert!(!placed(directory.lead(member(2), "new")).was_reset);
    // Also to one that is away, and whatever targets are reset before its return, in which order.
    directory.ended(fourth.tsih);
    directory.note_reset(target);
    directory.note_reset(TargetIndex(target.0 + 1));
    let fifth = placed(directory.lead(member(1), "fifth"));
    assert!(fifth.is_return && fifth.was_reset);
    directory.ended(fifth.tsih);
    assert!(!placed(directory.lead(member(1), "sixth")).was_reset);
}

/// A directory with memory for so many LUNs of sessions beyond those that each has anyway.
fn with_luns(luns: usize) -> (Directory<()>, Holding) {
    let holding = Holding::new(luns * 512);
    let common = Common::new(LIMIT, usize::MAX, holding.clone());
    (Directory::new(1, common), holding)
}

fn seeing(luns: usize, member: Member) -> Member {
    Member { luns, ..member }
}

#[test]
fn what_sessions_see_takes_memory_of_which_one_address_leaves_some_to_others() {
    let refused = Decision::Refuse(LoginStatus::OutOfResources, ());
    let (mut directory, holding) = with_luns(900);
    let lead = |directory: &mut Directory<()>, number, address, luns| {
        directory.lead(seeing(luns, numbered(number, address)), ())
    };
    let all: Vec<Placement> = (0..8)
        .map(|number| placed(lead(&mut directory, number, 1, 116)))
        .collect();
    assert_eq!(holding.unproved_luns.used(), 800 * 512);
    assert_eq!(lead(&mut directory, 20, 1, 17), refused);
    // Few LUNs are in the place that a session has anyway.
    placed(lead(&mut directory, 21, 1, 16));
    placed(lead(&mut directory, 22, 2, 66));
    assert_eq!(lead(&mut directory, 23, 2, 117), refused);
    // Users have their own.
    let of_user = Member {
        user: Some("backup".to_owned()),
        ..numbered(50, 1)
    };
    let of_user = placed(directory.lead(seeing(116, of_user), ()));
    assert_eq!(holding.proved_luns.used(), 100 * 512);
    drop(of_user);
    assert_eq!(holding.unproved_luns.used(), 800 * 512);
    // It is given back with the session, not with its name.
    for placement in &all {
        directory.ended(placement.tsih);
    }
    assert_eq!(lead(&mut directory, 24, 3, 900), refused);
    drop(all);
    assert_eq!(holding.unproved_luns.used(), 0);
    placed(lead(&mut directory, 25, 1, 816));
}

#[test]
fn a_session_that_replaces_another_has_room_for_what_it_sees() {
    let (mut directory, holding) = with_luns(900);
    let first = placed(directory.lead(seeing(816, member(1)), ()));
    let ends = Decision::EndFirst {
        core: first.core,
        tsih: first.tsih,
    };
    assert_eq!(directory.lead(seeing(816, member(1)), ()), ends);
    directory.ended(first.tsih);
    let second = placed(directory.lead_after(seeing(816, member(1)), ()));
    drop(first);
    assert_eq!(holding.unproved_luns.used(), 800 * 512);
    let held = second.luns_held.clone().unwrap();
    drop(second);
    // An administrator may show more than there is room for, or less.
    held.change(2016);
    assert_eq!(holding.unproved_luns.used(), 2000 * 512);
    held.change(3);
    assert_eq!(holding.unproved_luns.used(), 0);
}
