//! What sessions share: none takes so much that others find nothing.

use std::sync::Arc;

use ::iscsi::pdu::Opcode;
use engine::testing::bench::visible;
use engine::testing::disk::Take;
use memory::{Need, NoRoom};

use super::super::sessions::SessionEntry;
use super::super::{Grant, Holding};
use super::bench::{Bench, HOSTS_OF_ADDRESS, Receipt, Rules};

/// A host with another address than those below.
const ELSEWHERE: u8 = HOSTS_OF_ADDRESS;

#[test]
fn what_sessions_hold_displaces_no_login_and_leaves_room_to_another_address() {
    let holding = Holding::new(2 * 1024 * 1024);
    let all = holding.clone();
    let mut bench = Bench::with(|settings| settings.holding = holding);
    let mut rejects = 0;
    for host in 0..40 {
        let line = bench.log_in(host);
        assert!(bench.is_in(line), "{host}");
        for _ in 0..7 {
            bench.ping_behind_gap(line);
        }
        rejects += bench.heard(line).len();
    }
    assert!(rejects > 200, "{rejects}");
    assert!(all.unproved.used() > all.unproved.limit() / 10 * 8);
    assert_eq!((all.logins.used(), all.proved.used()), (0, 0));
    let line = bench.log_in(ELSEWHERE);
    bench.ping_behind_gap(line);
    assert!(bench.is_in(line) && bench.heard(line).is_empty());
    bench.end_all();
    assert_eq!(all.unproved.used(), 0);
}

#[test]
fn a_session_holds_what_its_holder_may_have_and_the_rest_is_rejected() {
    // Of 28,000 bytes one address gets less than eight ninths: three requests, with their headers.
    let holding = Holding::new(4 * 28_000);
    let unproved = Arc::clone(&holding.unproved);
    let mut bench = Bench::with(|settings| settings.holding = holding);
    let line = bench.log_in(1);
    for count in 1..=3 {
        bench.ping_behind_gap(line);
        assert_eq!(bench.heard(line), []);
        assert_eq!(unproved.used(), count * 8240);
    }
    bench.ping_behind_gap(line);
    assert_eq!(bench.heard(line), [(Opcode::Reject, u32::MAX)]);
    bench.end_all();
}

#[test]
fn a_session_that_replaces_another_has_its_place_also_where_its_holder_gets_no_more() {
    let mut bench = Bench::with(|settings| settings.sessions_max = 18);
    let lines: Vec<usize> = (0..16).map(|host| bench.ready(host)).collect();
    for host in [ELSEWHERE, ELSEWHERE + 1] {
        let line = bench.log_in(host);
        assert!(bench.is_in(line), "{host}");
    }
    for host in [0, 15] {
        let line = bench.log_in(host);
        assert!(bench.is_in(line), "{host}");
    }
    // Nobody gets the place while the old session has a command in its store.
    bench.disk.take_next([Take::Pending]);
    bench.write(lines[7]);
    let new = bench.log_in(7);
    let other = bench.log_in(ELSEWHERE + 2);
    assert!(bench.is_shut(lines[7]) && !bench.is_in(new));
    assert!(bench.is_shut(other) && !bench.is_in(other));
    bench.finish_pending();
    assert!(bench.is_in(new));
    assert_eq!(bench.report().len(), 18);
    bench.end_all();
}

#[test]
fn the_connections_of_one_address_leave_some_to_another() {
    let mut bench = Bench::with(|settings| settings.connections_max = 18);
    let lines: Vec<usize> = (0..9).map(|host| bench.log_in(host)).collect();
    for host in 0..7 {
        let line = bench.join(host, lines[usize::from(host)], 2);
        assert!(bench.is_in(line), "{host}");
    }
    // Sixteen are there, and two are free: neither a connection nor a session more.
    let refused = [bench.join(8, lines[8], 2), bench.log_in(9)];
    assert!(
        refused
            .map(|line| bench.is_in(line))
            .iter()
            .all(|is_in| !is_in)
    );
    // What replaces another needs no place: a connection, a session.
    let replacing = [bench.join(7, lines[7], 1), bench.log_in(8)];
    assert!(
        replacing
            .map(|line| bench.is_in(line))
            .iter()
            .all(|is_in| *is_in)
    );
    let other = bench.log_in(ELSEWHERE);
    assert!(bench.is_in(other));
    bench.log_out(lines[0], Some(2));
    let next = bench.log_in(9);
    assert!(bench.is_in(next));
    bench.end_all();
}

#[test]
fn sessions_of_one_address_hold_buffers_together_and_leave_some_to_another() {
    let mut bench = Bench::new();
    for host in [0, 1, 2, ELSEWHERE] {
        bench.ready(host);
    }
    let pool = |host: u8| {
        let name = format!("iqn.2026-11.example:host{host}");
        let is_of = |entry: &SessionEntry| {
            entry.port.iscsi().unwrap().detail.profile.initiator_name == name
        };
        let (_, entry) = bench
            .engine
            .sessions()
            .find(|(_, entry)| is_of(entry))
            .unwrap();
        entry.pool().clone()
    };
    let of = |host, need, len| pool(host).allocate_for(need, len);
    let half = bench.engine.pool().capacity_bytes() / 2;
    let held = [(0, half), (1, half / 2)].map(|(host, len)| of(host, Need::Begin, len).unwrap());
    assert_eq!(of(2, Need::Begin, half / 4).unwrap_err(), NoRoom::Share);
    assert_eq!(of(2, Need::Arrived, half / 4).unwrap_err(), NoRoom::Share);
    assert!(of(ELSEWHERE, Need::Arrived, half / 4).is_ok());
    assert!(of(ELSEWHERE, Need::Begin, half / 4).is_ok());
    drop(held);
    bench.end_all();
}

#[test]
fn the_luns_of_a_session_count_from_its_login_to_its_end_and_as_they_change() {
    let holding = Holding::new(1 << 20);
    let luns = Arc::clone(&holding.unproved_luns);
    let mut bench = Bench::with(|settings| settings.holding = holding);
    let line = bench.ready(1);
    assert_eq!(luns.used(), 0);
    let grant = Grant {
        session: bench.id_of(line),
        core: 0,
        luns: (0..20).map(|lun| visible(lun, 0)).collect(),
        targets: Vec::new(),
    };
    bench
        .sessions
        .grant(&mut bench.engine, grant, &Receipt::default());
    bench.settle();
    assert_eq!(luns.used(), 4 * 512);
    bench.set_rules(Rules {
        luns: Ok((0..18).map(|lun| visible(lun, 0)).collect()),
        ..Rules::new()
    });
    let other = bench.log_in(2);
    assert!(bench.is_in(other));
    assert_eq!(luns.used(), (4 + 2) * 512);
    bench.end_all();
    assert_eq!(luns.used(), 0);
}
