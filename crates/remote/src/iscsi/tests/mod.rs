//! A store and its target, over loopback. Each wait has an end that is far away: what is tested is what happens, not
//! when.

mod changes;
mod devices;
pub(crate) mod target;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iscsi::pdu::LoginStatus;
use store::IoFailure;

use super::open::IscsiFailure;
use super::options::{IscsiLogin, IscsiOptions};
use crate::hyperscsi::Password;
use crate::nbd::OwnServers;
use crate::scsi::command::Unfit;
use crate::scsi::testing::{BLOCK, Client, checks, pattern};
use target::{LIES, NAME, Target};

const SIZE: usize = 4 << 20;
const USER: (&str, &[u8]) = ("alice", b"a secret of alice");
const OWN: (&str, &[u8]) = ("target", b"a secret of the target");

pub(crate) fn options(target: &Target, retry: u64) -> IscsiOptions {
    IscsiOptions {
        host: "127.0.0.1".to_owned(),
        port: target.port(),
        target: NAME.to_owned(),
        lun: 0,
        initiator: None,
        login: None,
        mutual: None,
        retry: Duration::from_secs(retry),
        read_only: false,
        thin: true,
        block_bytes: 512,
        own: Arc::default(),
    }
}

fn client(target: &Target, retry: u64) -> Client {
    Client::new(options(target, retry).open().unwrap())
}

/// Of a store that gives up soon.
fn hasty(target: &Target) -> Client {
    let retry = Duration::from_millis(300);
    let options = IscsiOptions {
        retry,
        ..options(target, 0)
    };
    Client::new(options.open().unwrap())
}

checks::tests!();

fn login((user, secret): (&str, &[u8])) -> Option<IscsiLogin> {
    Some(IscsiLogin {
        user: user.to_owned(),
        password: Password::new(secret.to_vec()),
    })
}

fn reason(options: IscsiOptions) -> IscsiFailure {
    *options.open().unwrap_err().reason
}

/// Waits for what another thread does.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let ends = Instant::now() + Duration::from_secs(60);
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    while !is_so() {
        assert!(Instant::now() < ends, "{what} never comes");
        let _moment = receiver.recv_timeout(Duration::from_millis(5));
    }
}

/// Ends the session without a word, when it has been up for long enough to be made again at once.
fn cut(client: &mut Client, target: &Target) {
    let before = target.rules.logins.load(Ordering::SeqCst);
    target.set(|rules| &rules.is_cut, true);
    client.until_outage(true);
    target.set(|rules| &rules.is_cut, false);
    client.until_outage(false);
    assert!(target.rules.logins.load(Ordering::SeqCst) > before);
}

#[test]
fn data_arrives_whole_in_bursts_with_and_without_digests() {
    for digests in [false, true] {
        let target = Target::new(SIZE);
        target.set(|rules| &rules.digests, digests);
        let mut client = client(&target, 20);
        checks::carries_data(&mut client, &target.medium);
        assert_eq!(client.disk.connections().unwrap().up, 1);
    }
}

#[test]
fn a_disk_is_what_its_target_says() {
    let target = Target::new(SIZE);
    checks::is_what_the_disk_says(&client(&target, 20), &target.medium);
}

#[test]
fn a_disk_that_cannot_be_opened_says_why() {
    let target = Target::new(SIZE);
    let base = options(&target, 0);
    let failure = reason(IscsiOptions {
        target: "iqn.2026-11.example.far:other".to_owned(),
        ..base.clone()
    });
    let text = failure.to_string();
    assert!(
        text.ends_with("there is no such target; check its name"),
        "{text}"
    );
    target.set(|rules| &rules.has_no_lun, true);
    assert!(matches!(reason(base.clone()), IscsiFailure::NoLun { .. }));
    target.set(|rules| &rules.has_no_lun, false);
    let own = OwnServers {
        portals: vec![([0, 0, 0, 0], target.port()).into()],
        ..OwnServers::default()
    };
    let failure = reason(IscsiOptions {
        own: Arc::new(own),
        ..base.clone()
    });
    assert!(matches!(failure, IscsiFailure::Own), "{failure}");
    target.medium().is_read_only = true;
    let failure = reason(base.clone());
    assert!(
        matches!(failure, IscsiFailure::Unfit(Unfit::ReadOnly)),
        "{failure}"
    );
    let read_only = IscsiOptions {
        read_only: true,
        ..base.clone()
    };
    assert!(read_only.open().unwrap().capabilities().read_only);
    drop(target);
    assert!(matches!(reason(base), IscsiFailure::Connect(_)));
}

#[test]
fn both_sides_prove_who_they_are() {
    let target = Target::new(SIZE);
    *target.rules.chap.lock().unwrap() = Some([USER, OWN]);
    let base = options(&target, 0);
    let text = reason(base.clone()).to_string();
    assert!(text.contains("add user= and password_file="), "{text}");
    let text = reason(IscsiOptions {
        login: login((USER.0, b"another secret")),
        ..base.clone()
    });
    let text = text.to_string();
    assert!(
        text.contains("check user= and the secret in password_file="),
        "{text}"
    );
    let text = reason(IscsiOptions {
        login: login(USER),
        mutual: login((OWN.0, b"another secret")),
        ..base.clone()
    });
    let text = text.to_string();
    assert!(text.contains("check the secrets of both sides"), "{text}");
    let proved = IscsiOptions {
        login: login(USER),
        mutual: login(OWN),
        ..base
    };
    let mut client = Client::new(proved.open().unwrap());
    client.write_now(0, vec![1; BLOCK]);
}

#[test]
fn a_request_that_waits_for_the_target_is_cancelled_without_it() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 600);
    client.write_now(0, vec![1; BLOCK]);
    target.set(|rules| &rules.is_cut, true);
    client.until_outage(true);
    let waits = client.write(0, vec![2; BLOCK], false);
    let other = client.write(0, vec![3; BLOCK], false);
    client.handle.cancel(waits, &mut client.outlet);
    assert_eq!(client.answer(waits).unwrap_err(), IoFailure::Cancelled);
    client.handle.cancel(other, &mut client.outlet);
    assert_eq!(client.answer(other).unwrap_err(), IoFailure::Cancelled);
    assert_eq!(target.medium().bytes[..BLOCK], [1; BLOCK]);
}

#[test]
fn a_login_goes_where_the_target_sends_it() {
    let (first, mut last) = (Target::new(SIZE), Target::new(SIZE));
    // Two portals of one disk.
    first.medium().designator = last.medium().designator;
    first.redirect(LoginStatus::TargetMovedTemporarily, Some(last.address()));
    let mut client = client(&first, 60);
    client.write_now(0, vec![7; BLOCK]);
    assert_eq!(last.medium().bytes[..BLOCK], [7; BLOCK]);
    assert_eq!(first.medium().bytes[..BLOCK], [0; BLOCK]);
    // The look and the session.
    assert_eq!(first.rules.redirected.load(Ordering::SeqCst), 2);
    // Each session begins where it is configured: that has the disk itself now.
    *first.rules.redirects.lock().unwrap() = None;
    last.kill();
    client.write_now(0, vec![8; BLOCK]);
    assert_eq!(first.medium().bytes[..BLOCK], [8; BLOCK]);
}

#[test]
fn a_login_is_not_sent_in_circles_or_for_ever() {
    let targets: Vec<_> = (0..6).map(|_| Target::new(SIZE)).collect();
    let send = |from: usize, to: usize| {
        let address = Some(targets[to].address());
        targets[from].redirect(LoginStatus::TargetMovedPermanently, address);
    };
    let open = || reason(options(&targets[0], 0)).to_string();
    send(0, 0);
    let text = open();
    assert!(
        text.starts_with("the target sends the login in a circle"),
        "{text}"
    );
    send(0, 1);
    send(1, 0);
    let text = open();
    assert!(
        text.starts_with("the target sends the login in a circle"),
        "{text}"
    );
    for from in 0..5 {
        send(from, from + 1);
    }
    let text = open();
    assert!(
        text.starts_with("the target sends the login on too often"),
        "{text}"
    );
    assert_eq!(targets[5].rules.logins.load(Ordering::SeqCst), 0);
    // One less is followed to its end.
    *targets[4].rules.redirects.lock().unwrap() = None;
    assert!(options(&targets[0], 0).open().is_ok());
    targets[0].redirect(LoginStatus::TargetMovedTemporarily, None);
    let text = open();
    assert!(text.contains("does not say where to"), "{text}");
}

#[test]
fn a_login_is_not_sent_to_this_very_program() {
    let (first, own) = (Target::new(SIZE), Target::new(SIZE));
    first.redirect(LoginStatus::TargetMovedTemporarily, Some(own.address()));
    let servers = OwnServers {
        portals: vec![([0, 0, 0, 0], own.port()).into()],
        ..OwnServers::default()
    };
    let failure = reason(IscsiOptions {
        own: Arc::new(servers),
        ..options(&first, 0)
    });
    assert!(matches!(failure, IscsiFailure::Own), "{failure}");
    assert_eq!(own.rules.logins.load(Ordering::SeqCst), 0);
}

#[test]
fn one_disk_is_one_store() {
    let target = Target::new(SIZE);
    let first = options(&target, 0).open().unwrap();
    let other = IscsiOptions {
        host: "localhost".to_owned(),
        lun: 3,
        ..options(&target, 0)
    };
    let failure = reason(other.clone());
    let holder = format!("iscsi://127.0.0.1:{}/{NAME}/0", target.port());
    assert!(matches!(&failure, IscsiFailure::Twice(in_use) if in_use.holder == holder));
    drop(first);
    assert!(other.open().is_ok());
}

#[test]
fn a_lost_session_repeats_what_was_under_way_and_takes_no_cache_with_it() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 60);
    client.write_now(0, vec![1; BLOCK]);
    target.medium().holds = true;
    let (write, read) = (
        client.write(512, vec![2; BLOCK], false),
        client.read(0, BLOCK),
    );
    checks::until_held(&mut client, &target.medium);
    cut(&mut client, &target);
    target.medium().holds = false;
    // What is held stays so in its session.
    cut(&mut client, &target);
    assert!(client.answer(write).is_ok());
    assert!(client.answer(read).is_ok());
    assert_eq!(client.flush_now(), Ok(()));
    assert_eq!(client.read_now(512, BLOCK), vec![2; BLOCK]);
    assert!(client.disk.connections().unwrap().again >= 2);
}

#[test]
fn a_target_that_was_off_fails_the_next_flush_once() {
    for code in [(0x29, 0x00), (0x29, 0x01), (0x29, 0x04)] {
        let mut target = Target::new(SIZE);
        let mut client = client(&target, 60);
        client.write_now(0, vec![1; BLOCK]);
        target.kill();
        target.medium().attentions.push_back(code);
        target.start();
        assert_eq!(client.flush_now(), Err(IoFailure::CacheLost), "{code:?}");
        assert_eq!(client.flush_now(), Ok(()));
        // Nothing is unflushed now.
        target.kill();
        target.medium().attentions.push_back(code);
        target.start();
        client.write_now(0, vec![3; BLOCK]);
        assert_eq!(client.flush_now(), Ok(()));
        // In the session, too.
        client.write_now(0, vec![1; BLOCK]);
        target.medium().attentions.push_back(code);
        assert_eq!(client.flush_now(), Err(IoFailure::CacheLost), "{code:?}");
        assert_eq!(client.disk.outage(), None);
    }
}

#[test]
fn a_compare_and_write_that_was_lost_is_not_repeated() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 60);
    let tag = checks::holds_a_compare_and_write(&mut client, &target.medium);
    checks::until_held(&mut client, &target.medium);
    cut(&mut client, &target);
    target.medium().holds = false;
    assert_eq!(client.answer(tag).unwrap_err(), IoFailure::NotReady);
    assert_eq!(target.medium().counts[&0x89], 2);
}

#[test]
fn a_target_that_is_away_too_long_makes_requests_fail_for_a_while() {
    let mut target = Target::new(SIZE);
    let mut client = hasty(&target);
    client.write_now(0, vec![7; BLOCK]);
    target.kill();
    let read = client.read(0, BLOCK);
    assert_eq!(client.answer(read).unwrap_err(), IoFailure::NotReady);
    let outage = client.disk.outage().unwrap();
    assert!(outage.starts_with(&format!("target {NAME}: ")), "{outage}");
    client.until("a report", |client| (client.reach == [false]).then_some(()));
    let write = client.write(512, vec![8; BLOCK], false);
    assert_eq!(client.answer(write).unwrap_err(), IoFailure::NotReady);
    target.start();
    client.until("a report", |client| {
        (client.reach == [false, true]).then_some(())
    });
    assert_eq!(client.read_now(0, BLOCK), vec![7; BLOCK]);
    assert_eq!(client.flush_now(), Ok(()));
}

#[test]
fn a_target_that_accepts_and_says_nothing_is_left() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 2);
    client.write_now(0, vec![7; BLOCK]);
    target.set(|rules| &rules.is_mute, true);
    // Nothing is asked of it but whether it is there.
    client.until_outage(true);
    let outage = client.disk.outage().unwrap();
    assert!(outage.ends_with("it does not answer"), "{outage}");
    target.set(|rules| &rules.is_mute, false);
    client.until_outage(false);
    assert_eq!(client.read_now(0, BLOCK), vec![7; BLOCK]);
}

#[test]
fn a_target_that_wants_the_session_to_end_gets_another_one() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 60);
    client.write_now(0, vec![7; BLOCK]);
    let before = target.rules.logouts.load(Ordering::SeqCst);
    target.set(|rules| &rules.asks_to_end, true);
    until("a logout", || {
        target.rules.logouts.load(Ordering::SeqCst) > before
    });
    assert_eq!(client.read_now(0, BLOCK), vec![7; BLOCK]);
    assert_eq!(client.flush_now(), Ok(()));
}

#[test]
fn no_lie_of_a_target_becomes_data_or_an_answer() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 60);
    let bytes = pattern(8192);
    client.write_now(0, bytes.clone());
    for lie in LIES {
        let before = target.rules.logins.load(Ordering::SeqCst);
        target.lie(lie);
        assert_eq!(client.read_now(0, 8192), bytes, "{lie:?}");
        assert!(target.has_lied(), "{lie:?}");
        let after = target.rules.logins.load(Ordering::SeqCst);
        assert!(after > before, "{lie:?} ends the session");
    }
    target.set(|rules| &rules.drops_data, true);
    let write = client.write(0, vec![1; 8192], false);
    let failure = client.answer(write).unwrap_err();
    assert!(matches!(failure, IoFailure::Hardware { .. }), "{failure:?}");
    assert_eq!(client.flush_now(), Ok(()));
}

#[test]
fn a_disk_that_is_another_one_is_not_used() {
    let mut target = Target::new(SIZE);
    let mut client = client(&target, 1);
    client.write_now(0, vec![1; BLOCK]);
    target.kill();
    target.medium().designator = [6; 16];
    target.start();
    let why = "the disk of this LUN is another one now";
    checks::leaves_another_disk_alone(&mut client, &target.medium, why);
}

#[test]
fn space_is_given_back_and_reads_zeros() {
    let target = Target::new(SIZE);
    checks::gives_space_back(&mut client(&target, 20), &target.medium);
}

#[test]
fn the_end_of_a_store_is_a_logout() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 20);
    client.write_now(0, vec![1; BLOCK]);
    let before = target.rules.logouts.load(Ordering::SeqCst);
    drop(client);
    until("a logout", || {
        target.rules.logouts.load(Ordering::SeqCst) > before
    });
}
