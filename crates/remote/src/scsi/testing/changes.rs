//! What a store has to do when its disk becomes another one than it was found to be, whatever the transport.

use std::sync::{Mutex, MutexGuard};

use store::{IoFailure, IoRequest};

use super::{BLOCK, Client, Medium};

/// Unit attentions after which a disk may be anything.
pub(crate) const CHANGES: [(u8, u8); 7] = [
    (0x3f, 0x0e),
    (0x3f, 0x03),
    (0x28, 0x00),
    (0x29, 0x00),
    (0x2a, 0x01),
    (0x2a, 0x09),
    (0x2a, 0x06),
];

fn lock(medium: &Mutex<Medium>) -> MutexGuard<'_, Medium> {
    medium.lock().unwrap()
}

/// The disk was found without a cache, and has one now, as it says or as it does not need to.
pub(crate) fn a_cache_that_appears_is_flushed(client: &mut Client, medium: &Mutex<Medium>) {
    assert!(client.disk.capabilities().volatile_cache);
    for (at, durable) in [(0, false), (8192, true)] {
        let write = client.write(at, vec![1; BLOCK], durable);
        assert!(client.answer(write).is_ok());
    }
    for range in [0..4096, 4096..8192] {
        let zeros = client.submit(match range.start {
            0 => IoRequest::Unmap { range },
            _ => IoRequest::WriteZeros {
                range,
                durable: false,
            },
        });
        assert!(client.answer(zeros).is_ok());
        assert!(lock(medium).is_dirty);
        assert_eq!(client.flush_now(), Ok(()));
        assert!(!lock(medium).is_dirty);
    }
    let zeros = client.submit(IoRequest::WriteZeros {
        range: 0..4096,
        durable: true,
    });
    assert!(client.answer(zeros).is_ok());
    assert!(!lock(medium).is_dirty);
}

/// What is to be durable is, whether the disk does that by itself or not any more.
pub(crate) fn durable_writes_are_durable(client: &mut Client, medium: &Mutex<Medium>) {
    let write = client.write(0, vec![3; 8192], true);
    assert!(client.answer(write).is_ok());
    assert!(!lock(medium).is_dirty);
    assert_eq!(lock(medium).bytes[..8192], [3; 8192]);
}

/// The disk changes, as `change` has it, and says so by this unit attention.
pub(crate) fn is_left_alone(
    client: &mut Client,
    medium: &Mutex<Medium>,
    attention: (u8, u8),
    change: impl FnOnce(&mut Medium),
    why: &str,
) {
    client.write_now(0, vec![1; BLOCK]);
    {
        let mut medium = lock(medium);
        change(&mut medium);
        medium.attentions.push_back(attention);
    }
    // The first meets the unit attention. Those behind it that are under way already are beyond recall.
    for at in 0..2 {
        let write = client.write(at * 512, vec![2; BLOCK], false);
        assert_eq!(client.answer(write).unwrap_err(), IoFailure::NotReady);
    }
    let outage = client.disk.outage().unwrap();
    assert!(outage.ends_with(why), "{attention:?}: {outage}");
    let bytes = lock(medium).bytes[..2 * BLOCK].to_vec();
    assert_eq!(bytes, [[1; BLOCK], [0; BLOCK]].concat(), "{attention:?}");
}

/// The disk says that it may be anything, and is what it was.
pub(crate) fn goes_on(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; BLOCK]);
    for attention in CHANGES {
        let before = lock(medium).counts[&0];
        lock(medium).attentions.push_back(attention);
        client.write_now(0, vec![2; BLOCK]);
        assert!(lock(medium).counts[&0] > before, "{attention:?}");
    }
    {
        let mut medium = lock(medium);
        // Not ready at first, and again something new in the midst of the look.
        medium.attentions.push_back((0x2a, 0x06));
        medium.unready = 3;
        medium.interrupts = Some(0x5a);
    }
    let before = lock(medium).counts[&0];
    client.write_now(512, vec![3; BLOCK]);
    let medium = lock(medium);
    assert_eq!(medium.counts[&0], before + 5);
    assert_eq!(medium.bytes[512..1024], [3; BLOCK]);
    assert_eq!(client.disk.connections().unwrap().again, 0);
    assert_eq!(client.disk.outage(), None);
}

/// Unit attentions without an end: requests end, and the store does not hang.
pub(crate) fn no_look_is_for_ever(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; BLOCK]);
    {
        let mut medium = lock(medium);
        medium.attentions.push_back((0x3f, 0x0e));
        medium.unready = usize::MAX;
    }
    let write = client.write(0, vec![2; BLOCK], false);
    assert_eq!(client.answer(write).unwrap_err(), IoFailure::NotReady);
    lock(medium).unready = 0;
    client.until_outage(false);
    assert_eq!(client.read_now(0, BLOCK), vec![1; BLOCK]);
}

/// Limits and what blocks without data read are those of now.
pub(crate) fn limits_are_those_of_now(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; 64 << 10]);
    {
        let mut medium = lock(medium);
        medium.blocks_max = 16;
        medium.reads_zeros = false;
        medium.attentions.push_back((0x3f, 0x03));
    }
    // What was cut for the limits of before is not sent.
    let read = client.read(0, 64 << 10);
    assert_eq!(client.answer(read).unwrap_err(), IoFailure::NotReady);
    assert_eq!(client.read_now(0, 64 << 10), vec![1; 64 << 10]);
    let unmap = client.submit(IoRequest::Unmap { range: 0..4096 });
    assert!(client.answer(unmap).is_ok());
    assert!(!lock(medium).unmapped);
    assert_eq!(lock(medium).bytes[..4096], [0; 4096]);
}

/// A disk that has no command to flush has no cache, unless it says that it has one.
pub(crate) fn only_a_disk_without_cache_refuses_a_flush(
    client: &mut Client,
    medium: &Mutex<Medium>,
) {
    client.write_now(0, vec![1; BLOCK]);
    assert_eq!(client.flush_now(), Ok(()));
    {
        let mut medium = lock(medium);
        medium.writes_back = true;
        medium.attentions.push_back((0x2a, 0x01));
    }
    client.write_now(0, vec![1; BLOCK]);
    assert!(client.flush_now().is_err());
}

/// The tests of both transports. In scope are a `Target` with its `medium`, `SIZE`, `client`, which opens a store that
/// tries again for so many seconds, and `hasty`, which opens one that gives up soon; `$other` is how the store words
/// that the disk is another one.
macro_rules! tests {
    ($other:literal) => {
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
                let mut client = hasty(&target);
                let other = |medium: &mut Medium| medium.designator = [6; 16];
                let why = $other;
                changes::is_left_alone(&mut client, &target.medium, attention, other, why);
            }
        }

        #[test]
        fn a_disk_that_shrinks_or_takes_no_writes_any_more_is_not_used() {
            let target = Target::new(SIZE);
            let mut first = hasty(&target);
            let shrink = |medium: &mut Medium| medium.bytes.truncate(SIZE / 2);
            let why = format!("had {SIZE} bytes and has {}", SIZE / 2);
            changes::is_left_alone(&mut first, &target.medium, (0x2a, 0x09), shrink, &why);
            let target = Target::new(SIZE);
            let mut client = hasty(&target);
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
            changes::no_look_is_for_ever(&mut hasty(&target), &target.medium);
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
    };
}
pub(crate) use tests;
