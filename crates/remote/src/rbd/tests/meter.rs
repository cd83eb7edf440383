//! What an image takes, as it is counted for quotas.

use store::{SnapshotName, TakenNative};

use super::*;

const OBJECT: u64 = 64 << 10;
/// `EIO`
const INPUT_OUTPUT: i32 = 5;

fn started(fake: &FakeCluster) -> (Arc<dyn SharedStore>, Rig) {
    let disk = open(options(fake)).unwrap();
    let mut rig = Rig::new(&*disk);
    let read = rig.read(0);
    rig.begin(0, read);
    let _opened = rig.answer();
    (disk, rig)
}

fn write(rig: &mut Rig, object: u64) {
    let write = rig.write(object * OBJECT, 7);
    rig.begin(1, write);
    assert!(matches!(rig.answer(), (1, Ok(IoAnswer::Done))));
}

/// Asks until a count is over that began after this call: the one that is under way has fewer walks than this waits
/// for.
fn counted(disk: &Arc<dyn SharedStore>, fake: &FakeCluster) -> u64 {
    let until = fake.walks().0 + 10;
    loop {
        match disk.used_bytes() {
            Ok(Some(bytes)) if fake.walks().0 > until => return bytes,
            Ok(Some(_)) => {}
            Ok(None) => panic!("it is never counted"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
        pause();
    }
}

fn take(disk: &Arc<dyn SharedStore>, name: &str) {
    let of = || disk.native_snapshots().unwrap();
    let name = SnapshotName::parse(name).unwrap();
    TakenNative::take(of(), name).unwrap().keep().unwrap();
}

#[test]
fn an_image_takes_its_objects_and_what_its_snapshots_keep() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = started(&fake);
    assert_eq!(counted(&disk, &fake), 0);
    write(&mut rig, 0);
    write(&mut rig, 3);
    assert_eq!(counted(&disk, &fake), 2 * OBJECT);
    take(&disk, "a");
    assert_eq!(counted(&disk, &fake), 2 * OBJECT);
    let again = rig.write(0, 8);
    rig.begin(1, again);
    let _written = rig.answer();
    assert_eq!(counted(&disk, &fake), 3 * OBJECT);
    take(&disk, "b");
    write(&mut rig, 4);
    assert_eq!(counted(&disk, &fake), 4 * OBJECT);
    // What a snapshot keeps is counted once.
    let openings = fake.walks().1;
    assert_eq!(counted(&disk, &fake), 4 * OBJECT);
    assert_eq!(fake.walks().1, openings);
    let name = SnapshotName::parse("a").unwrap();
    disk.native_snapshots().unwrap().remove(&name).unwrap();
    assert_eq!(counted(&disk, &fake), 3 * OBJECT);
}

#[test]
fn a_cluster_that_hangs_keeps_nobody_waiting_and_no_other_image_from_being_counted() {
    let (one, other) = (FakeCluster::new(MIB), FakeCluster::new(MIB));
    let (hung, rig) = started(&one);
    let (well, mut rig_of_well) = started(&other);
    assert_eq!(counted(&hung, &one), 0);
    let hangs = one.hang_walks();
    write(&mut rig_of_well, 0);
    for _ in 0..100 {
        // What was known before.
        assert_eq!(hung.used_bytes().unwrap(), Some(0));
    }
    assert_eq!(counted(&well, &other), OBJECT);
    drop((rig, hung));
    drop(hangs);
    // The count that hung has ended, and the image is closed.
    while one.counts().2 > 0 {
        pause();
    }
}

#[test]
fn a_count_that_fails_leaves_what_was_counted_before() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = started(&fake);
    write(&mut rig, 0);
    assert_eq!(counted(&disk, &fake), OBJECT);
    fake.fail_walks(Some(INPUT_OUTPUT));
    write(&mut rig, 1);
    assert_eq!(counted(&disk, &fake), OBJECT);
    fake.fail_walks(None);
    assert_eq!(counted(&disk, &fake), 2 * OBJECT);
    let mut snapshot = options(&fake);
    snapshot.snapshot = Some("yesterday".to_owned());
    assert_eq!(open(snapshot).unwrap().used_bytes().unwrap(), Some(0));
}

#[test]
fn objects_that_are_not_known_are_walked_through_piece_by_piece() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = started(&fake);
    write(&mut rig, 0);
    write(&mut rig, 15);
    fake.forget_objects();
    assert_eq!(counted(&disk, &fake), 2 * OBJECT);
}
