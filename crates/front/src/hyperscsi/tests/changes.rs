//! What is served changes while it is.

use ::hyperscsi::{ClientEvent, EndReason, Level, LoginError, Opening, Outcome};
use engine::testing::disk::Take;

use super::super::FrameSizes;
use super::bench::*;

#[test]
fn sessions_of_a_group_that_is_gone_end_and_its_place_is_closed() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.disk.take_next([Take::Pending]);
    bench.write(client, 0, vec![1; 512]);
    let key = bench.key(0);
    let (changed, receipt) = bench.serve(&[]);
    assert_eq!((changed.opened.len(), changed.closed), (0, vec![key]));
    assert_eq!(bench.hyperscsi.place_keys(), []);
    assert_eq!(bench.hyperscsi.socket(key), None);
    assert_eq!(bench.lines().ended, ["its group has changed"]);
    assert!(is_kept(&receipt), "a command is with the store");
    bench.finish_pending();
    assert!(!is_kept(&receipt));
    // Its place again is another one.
    let (changed, _) = bench.serve(&[group()]);
    assert_eq!((changed.opened.len(), changed.closed.len()), (1, 0));
    assert_ne!(changed.opened, [key]);
    let again = bench.log_in(station(1), 1);
    assert!(bench.clients[again].session.is_some());
    bench.end_all();
}

#[test]
fn clients_of_another_group_at_the_same_place_go_on() {
    let mut bench = Bench::new();
    let mut other = group();
    other.name = "DEF".to_owned();
    bench.serve(&[group(), other.clone()]);
    let client = bench.ready(1);
    let key = bench.key(0);
    let (changed, receipt) = bench.serve(&[group()]);
    assert_eq!((changed.opened.len(), changed.closed.len()), (0, 0));
    assert_eq!(bench.key(0), key);
    assert!(!is_kept(&receipt));
    let read = bench.read(client, 0, 512);
    assert_eq!(bench.answer(client, read).0, Outcome::Status(0));
    bench.serve(&[other]);
    assert_eq!(bench.lines().ended, ["its group has changed"]);
    assert!(
        bench
            .events(client)
            .contains(&ClientEvent::Ended(EndReason::Disconnected))
    );
    bench.end_all();
}

#[test]
fn a_group_without_a_socket_is_named() {
    let mut bench = Bench::new();
    let mut other = group();
    other.place = place(1);
    let (changed, _) = bench.serve_as(server(), &[group(), other], false);
    assert!(changed.opened.is_empty() && changed.closed.is_empty());
    assert_eq!(bench.lines().failed, ["ABC: no ether:eth1"]);
    bench.end_all();
}

#[test]
fn a_device_is_added_and_another_one_taken_away_in_a_session() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    let mut changed = group();
    changed.devices.push(device(2));
    bench.serve(&[changed.clone()]);
    let luns = |bench: &Bench| -> Vec<u16> {
        let report = &bench.hyperscsi.report(&bench.engine)[0];
        report.luns.iter().map(|lun| lun.lun).collect()
    };
    assert_eq!(luns(&bench), [DEVICE, 2]);
    assert_eq!(
        bench.try_open(client, 2, Level::Crc),
        Opening::Open(Level::Crc)
    );
    changed.devices.remove(0);
    bench.serve(&[changed]);
    assert_eq!(luns(&bench), [2]);
    let gone = bench.read(client, 0, 512);
    assert_eq!(bench.answer(client, gone).0, Outcome::NotOpen);
    assert_eq!(bench.lines().ended, [""; 0]);
    bench.end_all();
}

#[test]
fn a_session_ends_if_its_device_asks_for_a_higher_level_than_it_did() {
    for (before, after, ends) in [
        (Level::Crc, Level::Hash, true),
        (Level::Hash, Level::Hash, false),
        (Level::Hash, Level::Crc, false),
    ] {
        let mut bench = Bench::new();
        let of = |level| {
            let mut one = group();
            one.devices[0].level = level;
            one
        };
        bench.serve(&[of(before)]);
        let client = bench.log_in(station(1), 1);
        bench.open(client, DEVICE, before);
        bench.serve(&[of(after)]);
        assert_eq!(
            bench.lines().ended.len(),
            usize::from(ends),
            "{before:?} {after:?}"
        );
        bench.end_all();
    }
}

/// Sessions have keys of their own.
#[test]
fn with_other_keys_of_the_server_sessions_stay_and_logins_need_a_new_record() {
    let mut bench = Bench::new();
    let client = bench.ready(1);
    bench.serve_as(other_server(), &[group()], true);
    let read = bench.read(client, 0, 512);
    assert_eq!(bench.answer(client, read).0, Outcome::Status(0));
    let other = bench.log_in(station(2), 2);
    bench.pass(std::time::Duration::from_secs(5));
    assert_eq!(bench.clients[other].failed, Some(LoginError::Password));
    bench.end_all();
}

/// A login under way goes on as it began.
#[test]
fn the_same_server_with_other_groups_keeps_its_logins() {
    let mut bench = Bench::new();
    bench.is_stuck = true;
    let client = bench.log_in(station(1), 1);
    bench.carry_out();
    bench.settle();
    bench.carry_out();
    let mut changed = group();
    changed.devices.push(device(2));
    bench.serve(&[changed]);
    bench.is_stuck = false;
    bench.settle();
    assert!(bench.clients[client].session.is_some());
    bench.end_all();
}

#[test]
fn a_smaller_mtu_ends_the_sessions_whose_frames_are_larger() {
    let mut bench = Bench::new();
    bench.ready(1);
    let key = bench.key(0);
    assert_eq!(bench.hyperscsi.sizes(key), Some(SIZES));
    assert!(bench.hyperscsi.socket(key).is_some() && bench.hyperscsi.socket_mut(key).is_some());
    for (base, ends) in [(1500, 0), (9000, 0), (1500, 0), (1499, 1)] {
        let sizes = FrameSizes { base, most: 9000 };
        bench.hyperscsi.set_sizes(&mut bench.engine, key, sizes);
        bench.settle();
        assert_eq!(bench.hyperscsi.sizes(key), Some(sizes));
        assert_eq!(bench.lines().ended.len(), ends, "{base}");
    }
    assert_eq!(
        bench.lines().ended,
        ["the MTU of its interface has become smaller"]
    );
    let again = bench.log_in(station(1), 1);
    bench.open(again, DEVICE, Level::Crc);
    let read = bench.read(again, 0, 4096);
    assert_eq!(bench.answer(again, read).0, Outcome::Status(0));
    bench.end_all();
}
