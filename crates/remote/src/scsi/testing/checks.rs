//! What stores over all transports have to do, whatever carries the commands. Each check gets a store and its disk.

use std::sync::Mutex;

use store::{Extent, IoAnswer, IoFailure, IoRequest, IoTag};

use super::{BLOCK, Client, Medium, pattern};

/// Writes that are longer than what is sent at once, a flush, and one read of all.
pub(crate) fn carries_data(client: &mut Client, medium: &Mutex<Medium>) {
    let bytes = pattern(3 << 20);
    let tags: Vec<_> = (0..)
        .zip(bytes.chunks(700 << 10))
        .map(|(number, chunk)| {
            let offset = 4096 + number * (700 << 10);
            client.write(offset, chunk.to_vec(), false)
        })
        .collect();
    for tag in tags {
        assert!(client.answer(tag).is_ok());
    }
    assert_eq!(client.flush_now(), Ok(()));
    assert_eq!(client.read_now(4096, 3 << 20), bytes);
    let medium = medium.lock().unwrap();
    assert!(medium.bytes[4096..][..3 << 20] == bytes[..]);
    assert_eq!(medium.counts[&0x91], 1);
}

/// What the store says of itself is what the disk has said.
pub(crate) fn is_what_the_disk_says(client: &Client, medium: &Mutex<Medium>) {
    let found = client.handle.capabilities();
    let sizes = (
        found.size_bytes,
        found.block_bytes,
        found.physical_block_bytes,
    );
    let size_bytes = medium.lock().unwrap().bytes.len() as u64;
    assert_eq!(sizes, (size_bytes, 512, 4096));
    assert!(found.thin && found.volatile_cache && found.solid_state && !found.read_only);
    assert_eq!(found.compare_and_write_bytes, 4096);
}

/// Waits until what the disk holds has arrived: a command that is not held comes through.
pub(crate) fn until_held(client: &mut Client, medium: &Mutex<Medium>) {
    let asked = || medium.lock().unwrap().counts.get(&0x9e).copied();
    let before = asked();
    let extents = client.submit(IoRequest::Extents {
        range: 0..BLOCK as u64,
        count_max: 1,
    });
    assert!(client.answer(extents).is_ok());
    assert!(asked() > before);
}

/// Compares and writes twice, the second time with another content; then a third time, which the disk holds.
pub(crate) fn holds_a_compare_and_write(client: &mut Client, medium: &Mutex<Medium>) -> IoTag {
    let tag = client.compare_and_write(1024, 0, 1);
    assert!(client.answer(tag).is_ok());
    let tag = client.compare_and_write(1024, 0, 2);
    let differs = IoFailure::Miscompare { offset: 0 };
    assert_eq!(client.answer(tag).unwrap_err(), differs);
    medium.lock().unwrap().holds = true;
    client.compare_and_write(1024, 1, 3)
}

/// CHECK CONDITION without sense data, or with what are none, is a failure: of writes, and of a flush.
pub(crate) fn fails_without_sense(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; BLOCK]);
    for sense in [vec![], vec![0x70], vec![0x72], vec![0; 18], vec![0x7f; 18]] {
        medium.lock().unwrap().fails_with = Some(sense.clone());
        let write = client.write(512, vec![2; BLOCK], false);
        let failure = client.answer(write).unwrap_err();
        assert_eq!(failure, IoFailure::Hardware { errno: 0 }, "{sense:?}");
        let read = client.read(0, BLOCK);
        assert!(client.answer(read).is_err(), "{sense:?}");
    }
    // No sense is a result, too: there is nothing to be said.
    let mut nothing = vec![0x70];
    nothing.resize(18, 0);
    medium.lock().unwrap().fails_with = Some(nothing);
    client.write_now(512, vec![2; BLOCK]);
    medium.lock().unwrap().fails_with = Some(Vec::new());
    assert!(client.flush_now().is_err());
}

/// A later command brings the error of a write that was answered and then failed: that command is sent again, and the
/// next flush says that something is lost, once.
pub(crate) fn hears_of_a_write_that_failed_later(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; BLOCK]);
    medium.lock().unwrap().defers = true;
    assert_eq!(client.read_now(0, BLOCK), vec![1; BLOCK]);
    assert_eq!(client.flush_now(), Err(IoFailure::CacheLost));
    assert_eq!(client.flush_now(), Ok(()));
}

/// Sense data in the fixed format: HARDWARE ERROR, WRITE ERROR.
const LOST_CACHE: [u8; 18] = [0x70, 0, 4, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0, 0, 0, 0, 0];

/// A device that goes on after it has lost its cache says so to one flush, which is sent again. One that goes on to
/// say so fails its flushes.
pub(crate) fn hears_of_a_lost_cache(client: &mut Client, medium: &Mutex<Medium>) {
    medium.lock().unwrap().reports_loss = 1;
    let of_a_former_client = Err(IoFailure::CacheLost);
    assert_eq!(client.flush_now(), of_a_former_client);
    assert_eq!(client.flush_now(), Ok(()));
    medium.lock().unwrap().fails_with = Some(LOST_CACHE.to_vec());
    let durable = client.write(0, vec![1; BLOCK], true);
    assert_eq!(client.answer(durable).unwrap_err(), IoFailure::CacheLost);
    medium.lock().unwrap().fails_with = None;
    let durable = client.write(0, vec![1; BLOCK], true);
    assert!(client.answer(durable).is_ok());
    client.write_now(0, vec![1; BLOCK]);
    medium.lock().unwrap().reports_loss = 1;
    assert_eq!(client.flush_now(), Err(IoFailure::CacheLost));
    assert_eq!(client.flush_now(), Ok(()));
    assert!(!client.disk.is_flush_latched());
    medium.lock().unwrap().reports_loss = 2;
    assert_eq!(client.flush_now(), Err(IoFailure::CacheLost), "twice");
    assert!(!client.disk.is_flush_latched());
    medium.lock().unwrap().reports_loss = 9;
    assert!(client.flush_now().is_err());
    assert_eq!(client.flush_now(), Err(IoFailure::FlushLatched));
}

/// A device without FUA loses a write before the flush that makes it durable, and then does that flush.
pub(crate) fn fails_a_durable_write_that_is_lost(client: &mut Client, medium: &Mutex<Medium>) {
    let durable = client.write(0, vec![1; BLOCK], true);
    assert!(client.answer(durable).is_ok());
    medium.lock().unwrap().reports_loss = 1;
    let lost = client.write(0, vec![2; BLOCK], true);
    assert_eq!(client.answer(lost).unwrap_err(), IoFailure::CacheLost);
    let durable = client.write(0, vec![3; BLOCK], true);
    assert!(client.answer(durable).is_ok());
}

/// Unit attentions and BUSY are no errors, and a disk that has grown is seen.
pub(crate) fn waits_and_grows(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; BLOCK]);
    let size = medium.lock().unwrap().bytes.len();
    {
        let mut medium = medium.lock().unwrap();
        medium.bytes.resize(size + 8192, 0);
        medium.attentions.extend([(0x2a, 0x09), (0x3f, 0x03)]);
        medium.busy = 2;
    }
    client.write_now(0, vec![1; BLOCK]);
    client.until("a size", |client| {
        let bytes = client.handle.capabilities().size_bytes;
        (bytes == size as u64 + 8192).then_some(())
    });
    client.write_now(size as u64, vec![9; 8192]);
    assert_eq!(medium.lock().unwrap().bytes[size..], [9; 8192]);
}

/// The disk has become another one since a write of ones: nothing reaches it, and the store says why.
pub(crate) fn leaves_another_disk_alone(client: &mut Client, medium: &Mutex<Medium>, why: &str) {
    let write = client.write(0, vec![2; BLOCK], false);
    assert_eq!(client.answer(write).unwrap_err(), IoFailure::NotReady);
    let outage = client.disk.outage().unwrap();
    assert!(outage.ends_with(why), "{outage}");
    assert_eq!(medium.lock().unwrap().bytes[..BLOCK], [1; BLOCK]);
}

/// A request that is cancelled is aborted where it is.
pub(crate) fn aborts_what_is_cancelled(client: &mut Client, medium: &Mutex<Medium>) {
    medium.lock().unwrap().holds = true;
    let held = client.write(0, vec![1; BLOCK], false);
    until_held(client, medium);
    client.handle.cancel(held, &mut client.outlet);
    assert_eq!(client.answer(held).unwrap_err(), IoFailure::Cancelled);
    assert_eq!(medium.lock().unwrap().aborted, 1);
}

/// Space is given back, reads zeros, and is known not to be there.
pub(crate) fn gives_space_back(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; 8192]);
    let unmap = client.submit(IoRequest::Unmap { range: 512..4096 });
    assert!(client.answer(unmap).is_ok());
    assert!(medium.lock().unwrap().unmapped);
    let mut expected = vec![1; 8192];
    expected[512..4096].fill(0);
    assert_eq!(client.read_now(0, 8192), expected);
    let range = 512..4096;
    let asked = client.submit(IoRequest::Extents {
        range: range.clone(),
        count_max: 4,
    });
    let mapped = false;
    match client.answer(asked) {
        Ok(IoAnswer::Extents(found)) => assert_eq!(found, [Extent { range, mapped }]),
        other => panic!("{other:?}"),
    }
}

/// Zeros come in pieces that the disk takes: seven blocks as three WRITE SAME of at most three.
pub(crate) fn cuts_zeros(client: &mut Client, medium: &Mutex<Medium>) {
    client.write_now(0, vec![1; 8192]);
    for durable in [false, true] {
        let zeros = client.submit(IoRequest::WriteZeros {
            range: 512..4096,
            durable,
        });
        assert!(client.answer(zeros).is_ok());
        let many = medium.lock().unwrap().counts.remove(&0x93);
        assert_eq!(many, Some(3), "durable: {durable}");
    }
    let mut expected = vec![1; 8192];
    expected[512..4096].fill(0);
    assert_eq!(client.read_now(0, 8192), expected);
}

/// A flush that the disk failed fails all later ones and durable writes, and nothing else.
pub(crate) fn remembers_a_failed_flush(client: &mut Client, medium: &Mutex<Medium>) {
    medium.lock().unwrap().flush_fails = Some(3);
    assert!(matches!(client.flush_now(), Err(IoFailure::Medium { .. })));
    medium.lock().unwrap().flush_fails = None;
    assert_eq!(client.flush_now(), Err(IoFailure::FlushLatched));
    let durable = client.write(0, vec![1; BLOCK], true);
    assert_eq!(client.answer(durable).unwrap_err(), IoFailure::FlushLatched);
    assert!(client.disk.is_flush_latched());
    client.write_now(0, vec![2; BLOCK]);
}

/// The tests that are the same for both transports. In scope are a `Target` with its `medium`, `SIZE`, and `client`,
/// which opens a store that tries again for so many seconds.
macro_rules! tests {
    () => {
        #[test]
        fn attentions_and_a_busy_disk_are_waited_for_and_a_larger_one_is_seen() {
            let target = Target::new(SIZE);
            checks::waits_and_grows(&mut client(&target, 20), &target.medium);
        }

        #[test]
        fn a_cancelled_request_is_aborted_at_the_disk() {
            let target = Target::new(SIZE);
            checks::aborts_what_is_cancelled(&mut client(&target, 20), &target.medium);
        }

        #[test]
        fn zeros_are_cut_to_what_the_disk_takes() {
            let target = Target::new(SIZE);
            target.medium().zeros_blocks_max = 3;
            checks::cuts_zeros(&mut client(&target, 20), &target.medium);
        }

        #[test]
        fn a_flush_that_the_disk_failed_is_remembered() {
            let target = Target::new(SIZE);
            checks::remembers_a_failed_flush(&mut client(&target, 20), &target.medium);
        }

        #[test]
        fn a_failure_without_sense_data_is_one() {
            let target = Target::new(SIZE);
            checks::fails_without_sense(&mut client(&target, 20), &target.medium);
        }

        #[test]
        fn a_write_that_failed_after_its_answer_shows_with_a_flush() {
            let target = Target::new(SIZE);
            checks::hears_of_a_write_that_failed_later(&mut client(&target, 20), &target.medium);
        }

        #[test]
        fn a_durable_write_that_is_lost_before_its_flush_fails() {
            let target = Target::new(SIZE);
            target.medium().has_fua = false;
            let mut client = client(&target, 20);
            checks::fails_a_durable_write_that_is_lost(&mut client, &target.medium);
        }

        #[test]
        fn a_cache_that_the_device_says_it_has_lost_is_no_failed_flush() {
            let target = Target::new(SIZE);
            checks::hears_of_a_lost_cache(&mut client(&target, 20), &target.medium);
        }
    };
}
pub(crate) use tests;
