//! Over Ethernet, between the two ends of a veth pair in a network of its own.

use std::env;
use std::process::Command;
use std::thread::yield_now;

use hyperscsi::Level;
use hyperscsi::limits::ETHERTYPE;
use plane::Place;
use reactor::Site;

use crate::client::Client;
use crate::host::{Keys, serve, start};
use crate::udp::exercise;
use crate::wait_until;

/// Set in the child, which has a network of its own.
const INSIDE: &str = "TARN_TEST_INSIDE";
const NAME: &str = "link::frames_of_ethernet_carry_sessions_and_an_interface_comes_back";

fn ip(arguments: &str) -> bool {
    let status = Command::new("ip").args(arguments.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

fn make_pair() {
    assert!(ip("link add tarn0 type veth peer name tarn1"));
    for name in ["tarn0", "tarn1"] {
        assert!(ip(&format!("link set {name} mtu 9000 up")));
    }
}

#[test]
fn frames_of_ethernet_carry_sessions_and_an_interface_comes_back() {
    if env::var_os(INSIDE).is_none() {
        let own = env::current_exe().unwrap();
        let can = Command::new("unshare")
            .args(["-Urn", "ip", "link"])
            .output();
        if !can.is_ok_and(|output| output.status.success()) {
            println!("skipped: `unshare -Urn ip link` does not work here");
            return;
        }
        let child = Command::new("unshare")
            .args(["-Urn"])
            .arg(own)
            .args(["--exact", NAME, "--nocapture"])
            .env(INSIDE, "1")
            .status();
        assert!(child.unwrap().success());
        return;
    }
    make_pair();
    let (plane, keys) = (start(), Keys::new());
    let place = Place::Interface("tarn0".into());
    let site = Site::interface("tarn0", ETHERTYPE, 2).unwrap();
    let groups = vec![keys.group("ABC", "secret", &place)];
    serve(&plane, &keys, groups, vec![(place.clone(), site)]);
    for round in 0..2 {
        let mut client = Client::link("tarn1", ETHERTYPE);
        client.find("ABC");
        let Ok(mut session) = client.login("ABC", "secret") else {
            panic!("no login in round {round}");
        };
        session.open(1, Level::Crc);
        session.open(2, Level::Encrypt);
        for (device, count) in [(1, 1), (2, 64), (1, 2048)] {
            exercise(&mut session, device, count);
        }
        session.close();
        if round == 0 {
            assert!(ip("link del tarn0"));
            let is_away = |away: bool| {
                let reports = plane.handle().hyperscsi().unwrap();
                reports
                    .iter()
                    .all(|report| report.away.contains(&place) == away)
            };
            wait_until("the interface is away", || is_away(true), yield_now);
            make_pair();
            wait_until("the interface is back", || is_away(false), yield_now);
        }
    }
    assert!(!plane.stop().is_core_lost);
}
