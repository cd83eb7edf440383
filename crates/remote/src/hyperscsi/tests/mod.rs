//! A store and its server, over loopback. Each wait has an end that is far away: what is tested is what happens, not
//! when.

mod changes;
mod target;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, sockopt};
use store::{IoFailure, IoRequest};

use super::open::HyperscsiFailure;
use super::options::{HyperscsiOptions, Password};
use super::wire::Carrier;
use crate::iscsi::tests as other;
use crate::scsi::command::Unfit;
use crate::scsi::testing::{BLOCK, Client, checks};
use target::{GROUP, Named, PASSWORD, Target};

const SIZE: usize = 4 << 20;

fn options(target: &Target, retry: u64) -> HyperscsiOptions {
    HyperscsiOptions {
        carrier: Carrier::udp("127.0.0.1", Some(target.port())),
        group: GROUP.to_owned(),
        device: "disk".to_owned(),
        server: None,
        user: None,
        password: Password::new(PASSWORD.to_vec()),
        level: None,
        retry: Duration::from_secs(retry),
        read_only: false,
        thin: true,
        block_bytes: 512,
    }
}

/// A network, at the broadcast address of loopback, where several servers receive what one client asks.
pub(super) fn broadcast(port: u16) -> UdpSocket {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&socket, true).unwrap();
    let all = Ipv4Addr::new(127, 255, 255, 255);
    rustix::net::bind(&socket, &SocketAddrV4::new(all, port)).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_nonblocking(true).unwrap();
    socket
}

fn client(target: &Target, retry: u64) -> Client {
    Client::new(options(target, retry).open().unwrap())
}

/// Of a store that gives up soon.
fn hasty(target: &Target) -> Client {
    let retry = Duration::from_millis(300);
    let options = HyperscsiOptions {
        retry,
        ..options(target, 0)
    };
    Client::new(options.open().unwrap())
}

checks::tests!();

fn cut(target: &Target, is_cut: bool) {
    target.net.is_cut.store(is_cut, Ordering::SeqCst);
}

#[test]
fn data_arrives_whole_through_loss_and_in_any_order() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 20);
    target.net.drop_every.store(13, Ordering::SeqCst);
    target.net.swaps.store(true, Ordering::SeqCst);
    checks::carries_data(&mut client, &target.medium);
    assert!(!client.disk.is_flush_latched());
}

#[test]
fn a_disk_is_what_its_device_says() {
    let target = Target::new(SIZE);
    checks::is_what_the_disk_says(&client(&target, 20), &target.medium);
}

#[test]
fn a_device_that_cannot_be_opened_says_why() {
    let target = Target::new(SIZE);
    let reason = |options: HyperscsiOptions| *options.open().unwrap_err().reason;
    let base = options(&target, 0);
    let failure = reason(HyperscsiOptions {
        device: "disc".to_owned(),
        ..base.clone()
    });
    assert_eq!(
        failure.to_string(),
        "there is no such device; there are \"disk\""
    );
    let failure = reason(HyperscsiOptions {
        server: Some("s2".to_owned()),
        ..base.clone()
    });
    // Another server of the host could still answer, but only one is asked.
    assert!(
        matches!(failure, HyperscsiFailure::OtherServer { .. }),
        "{failure}"
    );
    let failure = reason(HyperscsiOptions {
        password: Password::new(b"wrong one".to_vec()),
        ..base.clone()
    });
    assert!(
        failure.to_string().contains("check the password"),
        "{failure}"
    );
    target.medium().is_read_only = true;
    assert!(matches!(
        reason(base.clone()),
        HyperscsiFailure::Unfit(Unfit::ReadOnly)
    ));
    let read_only = HyperscsiOptions {
        read_only: true,
        device: "1".to_owned(),
        ..base
    };
    assert!(read_only.open().unwrap().capabilities().read_only);
}

#[test]
fn a_restart_of_the_server_fails_the_next_flush_once_and_repeats_what_was_under_way() {
    let mut target = Target::new(SIZE);
    let mut client = client(&target, 60);
    client.write_now(0, vec![1; BLOCK]);
    target.medium().holds = true;
    let (write, read) = (
        client.write(512, vec![2; BLOCK], false),
        client.read(0, BLOCK),
    );
    target.kill();
    target.medium().holds = false;
    target.medium().attentions.push_back((0x29, 0));
    target.start();
    assert!(client.answer(write).is_ok());
    assert!(client.answer(read).is_ok());
    assert_eq!(client.flush_now(), Err(IoFailure::CacheLost));
    assert_eq!(client.flush_now(), Ok(()));
    assert_eq!(client.read_now(512, BLOCK), vec![2; BLOCK]);
    assert_eq!(client.disk.outage(), None);
}

#[test]
fn a_compare_and_write_that_was_lost_is_not_repeated() {
    let mut target = Target::new(SIZE);
    let mut client = client(&target, 60);
    let tag = checks::holds_a_compare_and_write(&mut client, &target.medium);
    // It is under way when a later write is held, too.
    let read = client.read(0, BLOCK);
    checks::until_held(&mut client, &target.medium);
    target.kill();
    target.medium().holds = false;
    target.start();
    assert_eq!(client.answer(tag).unwrap_err(), IoFailure::NotReady);
    assert!(client.answer(read).is_ok());
    assert_eq!(target.medium().counts[&0x89], 2);
}

#[test]
fn a_server_that_is_away_too_long_makes_requests_fail_for_a_while() {
    let target = Target::new(SIZE);
    let mut client = hasty(&target);
    client.write_now(0, vec![7; BLOCK]);
    cut(&target, true);
    let read = client.read(0, BLOCK);
    assert_eq!(client.answer(read).unwrap_err(), IoFailure::NotReady);
    assert!(
        client
            .disk
            .outage()
            .unwrap()
            .starts_with("server \"s1\": it does not answer")
    );
    client.until("a report", |client| (client.reach == [false]).then_some(()));
    let write = client.write(512, vec![8; BLOCK], false);
    assert_eq!(client.answer(write).unwrap_err(), IoFailure::NotReady);
    cut(&target, false);
    client.until("a report", |client| {
        (client.reach == [false, true]).then_some(())
    });
    assert_eq!(client.read_now(0, BLOCK), vec![7; BLOCK]);
    assert_eq!(client.flush_now(), Err(IoFailure::CacheLost));
}

#[test]
fn a_device_that_is_another_one_is_not_used() {
    let mut target = Target::new(SIZE);
    let mut client = client(&target, 5);
    client.write_now(0, vec![1; BLOCK]);
    target.kill();
    target.medium().designator = [6; 16];
    target.start();
    let why = "the device of this name is another one now";
    checks::leaves_another_disk_alone(&mut client, &target.medium, why);
}

#[test]
fn space_is_given_back_and_reads_zeros() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 20);
    checks::gives_space_back(&mut client, &target.medium);
    let zeros = client.submit(IoRequest::WriteZeros {
        range: 0..512,
        durable: true,
    });
    assert!(client.answer(zeros).is_ok());
    let medium = target.medium();
    assert!(!medium.unmapped);
    assert_eq!((medium.counts[&0x93], medium.counts[&0x91]), (2, 1));
}

#[test]
fn a_server_that_answers_everything_late_is_given_up() {
    let target = Target::new(SIZE);
    // Each answer comes in time, and there are a dozen.
    target.net.thinks.store(1000, Ordering::SeqCst);
    let options = options(&target, 20);
    let failure = options.look_inside(Duration::from_secs(2)).unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("it answers, but too slowly"), "{text}");
    target.net.thinks.store(0, Ordering::SeqCst);
    let_go_of(&target, 1);
}

/// Waits until a server has no session any more, of so many that it had.
fn let_go_of(target: &Target, logins: usize) {
    assert_eq!(target.net.logins.load(Ordering::SeqCst), logins);
    let ends = Instant::now() + Duration::from_secs(20);
    while target.net.sessions.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < ends, "a session is left");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn a_session_that_is_not_kept_is_logged_out_whatever_the_reason() {
    let first = broadcast(0);
    let port = first.local_addr().unwrap().port();
    let left = Target::named(SIZE, Named([1; 16], "left"), Some(first));
    let right = Target::named(SIZE, Named([2; 16], "right"), Some(broadcast(port)));
    let base = HyperscsiOptions {
        carrier: Carrier::udp("127.255.255.255", Some(port)),
        ..options(&left, 0)
    };
    let mut logins = 0;
    for (device, words) in [
        ("disk", "several servers have such a device"),
        ("1", "several servers have such a device"),
        ("nothing", "there is no such device"),
    ] {
        let options = HyperscsiOptions {
            device: device.to_owned(),
            ..base.clone()
        };
        let text = options.open().unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
        logins += 1;
        let_go_of(&left, logins);
        let_go_of(&right, logins);
    }
    // One server is looked at, and the other one is not let in at.
    let text = base.devices().unwrap_err().to_string();
    assert!(text.contains("several servers"), "{text}");
    left.medium().is_read_only = true;
    let named = HyperscsiOptions {
        server: Some("left".to_owned()),
        ..base
    };
    assert!(named.open().is_err());
    let_go_of(&left, logins + 1);
    let_go_of(&right, logins);
}

#[test]
fn one_device_is_one_store_however_it_is_spelled() {
    let target = Target::new(SIZE);
    let first = options(&target, 0).open().unwrap();
    let other = HyperscsiOptions {
        carrier: Carrier::udp("localhost", Some(target.port())),
        device: "1".to_owned(),
        ..options(&target, 0)
    };
    let (text, port) = (other.clone().open().unwrap_err().to_string(), target.port());
    let named = format!("it is the disk that hyperscsi://G/disk by 127.0.0.1:{port} has already");
    assert!(text.contains(&named), "{text}");
    assert!(text.contains("name it once"), "{text}");
    assert_eq!(text.lines().count(), 1);
    drop(first);
    assert!(other.open().is_ok());
}

#[test]
fn a_store_that_was_in_use_is_free_when_its_session_has_ended() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 20);
    client.write_now(0, vec![1; BLOCK]);
    assert!(options(&target, 0).open().is_err());
    drop(client);
    assert!(options(&target, 0).open().is_ok());
    let_go_of(&target, 4);
}

#[test]
fn devices_that_do_not_say_which_they_are_are_not_one() {
    let [one, two] = [Target::new(SIZE), Target::new(SIZE)];
    for target in [&one, &two] {
        target.medium().designator = [0; 16];
    }
    let first = options(&one, 0).open().unwrap();
    assert!(options(&two, 0).open().is_ok());
    drop(first);
}

#[test]
fn one_disk_by_both_transports_is_one_store() {
    let (here, there) = (Target::new(SIZE), other::target::Target::new(SIZE));
    let mut designator = here.medium().designator;
    designator[0] = 0x60;
    here.medium().designator = designator;
    there.medium().designator = designator;
    let first = options(&here, 0).open().unwrap();
    let text = other::options(&there, 0).open().unwrap_err().to_string();
    assert!(
        text.contains("it is the disk that hyperscsi://G/disk"),
        "{text}"
    );
    drop(first);
    let first = other::options(&there, 0).open().unwrap();
    let text = options(&here, 0).open().unwrap_err().to_string();
    assert!(
        text.contains("it is the disk that iscsi://127.0.0.1:"),
        "{text}"
    );
    drop(first);
}

#[test]
fn a_write_that_left_something_over_is_not_good() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 20);
    client.write_now(0, vec![1; BLOCK]);
    target.net.left_over.store(512, Ordering::SeqCst);
    let write = client.write(512, vec![2; 2 * BLOCK], false);
    let failure = client.answer(write).unwrap_err();
    assert!(matches!(failure, IoFailure::Hardware { .. }), "{failure:?}");
    let zeros = client.submit(IoRequest::WriteZeros {
        range: 0..512,
        durable: false,
    });
    assert!(client.answer(zeros).is_err());
    let compare = client.compare_and_write(1024, 0, 1);
    assert!(client.answer(compare).is_err());
    // Reads say by their length what came.
    assert_eq!(client.read_now(0, BLOCK).len(), BLOCK);
    target.net.left_over.store(0, Ordering::SeqCst);
    client.write_now(512, vec![3; BLOCK]);
}

#[test]
fn servers_of_a_group_are_found_and_say_whether_they_want_a_password() {
    let target = Target::new(SIZE);
    let carrier = Carrier::udp("127.0.0.1", Some(target.port()));
    let groups = ["other".to_owned(), GROUP.to_owned()];
    let found = super::discover(&carrier, &groups).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].name.as_str(), &found[0].groups[..]),
        ("s1", &[(GROUP.to_owned(), false)][..])
    );
}
