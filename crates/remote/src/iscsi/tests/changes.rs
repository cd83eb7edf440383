//! The disk becomes another one than it was found to be.

use super::*;
use crate::scsi::testing::{Medium, changes};

fn prepared(change: impl FnOnce(&mut Medium)) -> Target {
    let target = Target::new(SIZE);
    change(&mut target.medium());
    target
}

#[test]
fn a_cache_that_appears_is_flushed() {
    for attention in [Some((0x2a, 0x01)), None] {
        let target = prepared(|medium| medium.writes_back = false);
        let mut client = client(&target, 20);
        target.medium().writes_back = true;
        target.medium().attentions.extend(attention);
        changes::a_cache_that_appears_is_flushed(&mut client, &target.medium);
    }
    // With a new session.
    let mut target = prepared(|medium| medium.writes_back = false);
    let mut client = client(&target, 60);
    target.kill();
    target.medium().writes_back = true;
    target.start();
    client.read_now(0, BLOCK);
    changes::a_cache_that_appears_is_flushed(&mut client, &target.medium);
}

#[test]
fn a_durable_write_is_durable_where_the_disk_does_no_fua_any_more() {
    let mut target = Target::new(SIZE);
    let mut client = client(&target, 60);
    changes::durable_writes_are_durable(&mut client, &target.medium);
    assert_eq!(target.medium().counts.get(&0x91), None);
    target.medium().has_fua = false;
    target.medium().attentions.push_back((0x2a, 0x01));
    changes::durable_writes_are_durable(&mut client, &target.medium);
    target.medium().has_fua = true;
    target.medium().attentions.push_back((0x2a, 0x01));
    client.read_now(0, BLOCK);
    target.kill();
    target.medium().has_fua = false;
    target.start();
    changes::durable_writes_are_durable(&mut client, &target.medium);
}

#[test]
fn a_disk_that_becomes_another_one_is_not_used_any_more() {
    for attention in changes::CHANGES {
        let target = Target::new(SIZE);
        let mut client = client(&target, 2);
        let other = |medium: &mut Medium| medium.designator = [6; 16];
        let why = "disk of this LUN is another one now";
        changes::is_left_alone(&mut client, &target.medium, attention, other, why);
    }
}

#[test]
fn a_disk_that_shrinks_or_takes_no_writes_any_more_is_not_used() {
    let target = Target::new(SIZE);
    let mut first = client(&target, 2);
    let shrink = |medium: &mut Medium| medium.bytes.truncate(SIZE / 2);
    let why = format!("had {SIZE} bytes and has {}", SIZE / 2);
    changes::is_left_alone(&mut first, &target.medium, (0x2a, 0x09), shrink, &why);
    let target = Target::new(SIZE);
    let mut client = client(&target, 2);
    let protect = |medium: &mut Medium| medium.is_read_only = true;
    let why = "is read-only now";
    changes::is_left_alone(&mut client, &target.medium, (0x2a, 0x01), protect, why);
    // It is used again when it is as before.
    target.medium().is_read_only = false;
    client.until_outage(false);
    client.write_now(0, vec![9; BLOCK]);
}

#[test]
fn a_disk_that_is_the_one_of_before_is_used_on() {
    let target = Target::new(SIZE);
    changes::goes_on(&mut client(&target, 20), &target.medium);
}

#[test]
fn no_look_is_for_ever() {
    let target = Target::new(SIZE);
    changes::no_look_is_for_ever(&mut client(&target, 2), &target.medium);
}

#[test]
fn limits_are_those_of_now() {
    let target = Target::new(SIZE);
    changes::limits_are_those_of_now(&mut client(&target, 20), &target.medium);
}

#[test]
fn only_a_disk_without_cache_refuses_a_flush() {
    let target = prepared(|medium| {
        medium.writes_back = false;
        medium.has_flush = false;
    });
    let mut client = client(&target, 20);
    changes::only_a_disk_without_cache_refuses_a_flush(&mut client, &target.medium);
}

#[test]
fn a_target_that_was_off_without_a_cache_fails_the_next_flush_too() {
    let mut target = prepared(|medium| medium.writes_back = false);
    let mut client = client(&target, 60);
    client.write_now(0, vec![1; BLOCK]);
    target.kill();
    target.medium().attentions.push_back((0x29, 0x00));
    target.start();
    assert_eq!(client.flush_now(), Err(IoFailure::FlushLatched));
    assert_eq!(client.flush_now(), Ok(()));
}

#[test]
fn a_write_that_the_target_never_took_is_not_done() {
    let target = Target::new(SIZE);
    let mut client = client(&target, 60);
    let before = target.rules.logins.load(Ordering::SeqCst);
    target.set(|rules| &rules.ignores_data, true);
    client.write_now(0, vec![7; 64 << 10]);
    // In another session.
    assert!(target.rules.logins.load(Ordering::SeqCst) > before);
    assert_eq!(target.medium().bytes[..64 << 10], [7; 64 << 10]);
}
