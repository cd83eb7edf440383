//! Several gateways: who has the lock, who is blocklisted, and which image has the name.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Instant;

use rbd::testing::ID;
use store::{ClonePlace, NativeError, SnapshotName};

use super::*;

/// The address of the client of another gateway.
const STRANGER: &str = "192.0.2.1:0/77";
/// The identity of another image.
const OTHER: &str = "def456";

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn waits(fake: &FakeCluster) -> RbdOptions {
    RbdOptions {
        waits_for_lock: true,
        ..options(fake)
    }
}

fn says(disk: &Arc<dyn SharedStore>, words: &str) -> bool {
    disk.outage().is_some_and(|why| why.contains(words))
}

/// A store that waits for another gateway.
fn waiting(fake: &FakeCluster) -> (Arc<dyn SharedStore>, Rig) {
    fake.set_owner(Some((STRANGER, true)));
    let disk = open(waits(fake)).unwrap();
    let rig = Rig::new(&*disk);
    until("it waits", || says(&disk, STRANGER));
    (disk, rig)
}

fn served_of(options: RbdOptions) -> (Arc<dyn SharedStore>, Rig) {
    let disk = open(options).unwrap();
    let rig = served(&disk);
    (disk, rig)
}

fn is_any_fenced(fake: &FakeCluster) -> bool {
    fake.clients().iter().any(|(_, is_fenced)| *is_fenced)
}

#[test]
fn a_takeover_never_blocklists_an_own_client() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = waiting(&fake);
    let clients = fake.clients();
    assert_eq!(clients.len(), 1, "{clients:?}");
    // The other one has ended, and this one has the lock.
    fake.set_owner(Some((&clients[0].0, true)));
    disk.take_over().unwrap();
    assert!(!is_any_fenced(&fake));
    assert_eq!(disk.outage(), None);
    let proof = format!("{ID} {}", clients[0].0);
    assert_eq!(fake.metadata("tarn.gateway"), Some(proof));
    disk.take_over().unwrap();
    assert!(!is_any_fenced(&fake));
}

#[test]
fn the_lock_of_an_earlier_connection_is_waited_for() {
    let fake = FakeCluster::new(MIB);
    let looks = Looks::default();
    fake.set_owner(Some((STRANGER, true)));
    let disk = open_over(&looks, waits(&fake)).unwrap();
    let (earlier, _) = fake.clients().remove(0);
    drop(looks);
    let _rig = Rig::new(&*disk);
    until("it waits", || says(&disk, STRANGER));
    fake.set_owner(Some((&earlier, true)));
    let refused = disk.take_over().unwrap_err();
    assert!(refused.to_string().contains("exclusive lock"), "{refused}");
    assert_eq!(fake.owner(), Some(earlier.clone()));
    fake.set_owner(Some((&earlier, false)));
    until("it is served", || disk.outage().is_none());
}

#[test]
fn a_takeover_that_may_not_blocklist_names_the_capability() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = waiting(&fake);
    fake.set_faults(Faults {
        owner: Some((STRANGER.to_owned(), true)),
        break_lock: Some(1),
        ..Faults::default()
    });
    let refused = disk.take_over().unwrap_err().to_string();
    assert!(refused.contains("may not blocklist"), "{refused}");
    assert_eq!(fake.owner().as_deref(), Some(STRANGER));
}

#[test]
fn a_takeover_that_is_not_answered_may_be_made_and_is_not_begun_later() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = served_of(options(&fake));
    let hang = fake.hang_metadata();
    let late = disk.take_over().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    // The thread has the first one still.
    let late = disk.take_over().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    fake.set_metadata("tarn.gateway", "none");
    drop(hang);
    until("the first one ends", || {
        fake.metadata("tarn.gateway").as_deref() != Some("none")
    });
    disk.take_over().unwrap();
}

#[test]
fn a_gateway_that_is_blocklisted_while_idle_notices_it_for_all_images_of_the_connection() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = served_of(options(&fake));
    let snapshot = RbdOptions {
        snapshot: Some("yesterday".to_owned()),
        ..options(&fake)
    };
    let (reader, _reader_rig) = served_of(snapshot);
    fake.fence_all();
    fake.set_owner(Some((STRANGER, true)));
    while rig.held.is_empty() {
        rig.turn();
        assert!(rig.answered().is_none());
    }
    until("it says so", || says(&disk, "blocklisted"));
    until("the other one knows", || {
        reader.is_outdated() || says(&reader, "blocklisted")
    });
    let refused = rig.submit(2, IoRequest::Flush);
    assert!(matches!(refused, Some(Err(IoFailure::HeldElsewhere))));
    // Somebody has taken it over, and nobody has said that it is to come back.
    until("it names who has it", || says(&disk, STRANGER));
    assert!(!disk.is_outdated());
    assert_eq!(fake.owner().as_deref(), Some(STRANGER));
}

#[test]
fn an_image_that_nobody_has_taken_is_opened_anew_over_another_connection() {
    let fake = FakeCluster::new(MIB);
    let (disk, rig) = served_of(options(&fake));
    fake.fence_all();
    until("its unit is to start again", || disk.is_outdated());
    let (again, mut again_rig) = served_of(options(&fake));
    let write = again_rig.write(0, 7);
    assert!(matches!(again_rig.ask(2, write), Ok(IoAnswer::Done)));
    assert_eq!((again.outage(), fake.byte(0)), (None, 7));
    drop((disk, rig));
    assert!(!again.is_outdated());
}

#[test]
fn a_takeover_sees_that_its_own_client_was_blocklisted() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = served_of(options(&fake));
    fake.fence_all();
    fake.set_owner(Some((STRANGER, true)));
    disk.take_over().unwrap();
    assert!(disk.is_outdated(), "nothing was served");
    assert_eq!(fake.owner(), None, "its lock is broken");
    let (again, _again_rig) = served_of(options(&fake));
    again.take_over().unwrap();
}

#[test]
fn a_takeover_sees_that_the_lock_is_lost() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = served_of(options(&fake));
    fake.set_owner(Some((STRANGER, true)));
    disk.take_over().unwrap();
    assert!(disk.is_outdated(), "it was not served");
    assert_eq!(fake.owner(), None, "its lock is broken");
}

#[test]
fn another_image_at_the_name_is_neither_taken_over_nor_opened() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = waiting(&fake);
    fake.rename(Some(OTHER));
    let refused = disk.take_over().unwrap_err().to_string();
    assert!(refused.contains(OTHER) && refused.contains(ID), "{refused}");
    assert_eq!(fake.owner().as_deref(), Some(STRANGER));
    fake.set_owner(None);
    until("it says so", || says(&disk, OTHER));
    assert_eq!(fake.owner(), None, "its lock is not taken");
    fake.rename(Some(ID));
    until("it is served", || disk.outage().is_none());
}

fn name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

#[test]
fn an_image_that_lost_its_name_has_no_snapshots_and_no_clones_until_it_has_it_again() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = served_of(options(&fake));
    let snapshots = disk.native_snapshots().unwrap();
    snapshots.take(&name("a")).unwrap();
    snapshots.keep(&name("a")).unwrap();
    let place = ClonePlace {
        pool: "rbd".to_owned(),
        namespace: String::new(),
        name: "copy".to_owned(),
    };
    let is_at = || disk.is_at(Path::new("")).map_err(|error| error.kind());
    assert_eq!(is_at(), Ok(true));
    for (found, at) in [(Some(OTHER), Ok(false)), (None, Err(ErrorKind::NotFound))] {
        fake.rename(found);
        // A second without a command is enough.
        until("it is noticed", || is_at() == at);
        for refused in [
            snapshots.clone_to(&name("a"), &place),
            snapshots.begin(&name("b")),
            snapshots.remove(&name("a")),
            snapshots.close_for_rollback(&name("a")),
        ] {
            let is_named =
                matches!(&refused, Err(NativeError::Call { reason, .. }) if reason.contains(ID));
            assert!(is_named, "{refused:?}");
        }
        assert_eq!(disk.outage(), None, "it is served as before");
    }
    fake.rename(Some(ID));
    snapshots.clone_to(&name("a"), &place).unwrap();
    assert_eq!(is_at(), Ok(true));
}

#[test]
fn a_unit_that_starts_again_is_not_given_another_image_of_the_name() {
    let fake = FakeCluster::new(MIB);
    let (disk, rig) = served_of(options(&fake));
    fake.fence_all();
    until("its unit is to start again", || disk.is_outdated());
    fake.rename(Some(OTHER));
    let refused = open(options(&fake)).unwrap_err();
    assert!(refused.contains(OTHER) && refused.contains(ID), "{refused}");
    assert!(matches!(disk.is_at(Path::new("")), Ok(false)));
    drop((disk, rig));
    open(options(&fake)).unwrap();
}

#[test]
fn to_wait_for_a_takeover_needs_an_exclusive_lock() {
    let fake = FakeCluster::new(MIB);
    let unlocked = |owner: Option<&str>| Faults {
        is_unlocked: true,
        owner: owner.map(|address| (address.to_owned(), true)),
        ..Faults::default()
    };
    fake.set_faults(unlocked(None));
    let refused = open(waits(&fake)).unwrap_err();
    assert!(refused.contains("no exclusive lock"), "{refused}");
    open(options(&fake)).unwrap();
    fake.set_faults(Faults::default());
    let (disk, _rig) = waiting(&fake);
    fake.set_faults(unlocked(Some(STRANGER)));
    until("it says so", || says(&disk, "no exclusive lock"));
}

#[test]
fn an_image_that_was_cut_to_nothing_keeps_its_size_and_says_so() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = served_of(options(&fake));
    fake.resize(0);
    until("it says so", || says(&disk, "cut"));
    assert_eq!(disk.capabilities().size_bytes, MIB as u64);
    fake.resize(MIB);
    until("it is whole", || disk.outage().is_none());
}

#[test]
fn a_pool_that_was_removed_is_named() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = served_of(options(&fake));
    fake.remove_pool();
    until("it says so", || says(&disk, "its pool is gone"));
}
