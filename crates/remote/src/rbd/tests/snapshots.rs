//! Snapshots of the image, taken by those who serve it.

use store::{ClonePlace, Ended, NativeError, NativeSnapshots, Progress, SnapshotName, TakenNative};

use super::*;

const AT_ONCE: Duration = Duration::ZERO;
/// `ENOSPC`
const NO_SPACE: i32 = 28;

fn name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

fn of(disk: &Arc<dyn SharedStore>) -> Arc<dyn NativeSnapshots> {
    disk.native_snapshots().unwrap()
}

fn keep(disk: &Arc<dyn SharedStore>, text: &str) {
    of(disk).begin(&name(text)).unwrap();
    let taken = TakenNative::take(of(disk), name(text)).unwrap();
    assert_eq!(taken.keep().unwrap().place, format!("rbd:rbd/disk@{text}"));
}

fn names(disk: &Arc<dyn SharedStore>) -> Vec<String> {
    let all = of(disk).list().unwrap();
    all.into_iter().map(|one| one.name.to_string()).collect()
}

/// Opens the image, which another store of this process may have for a moment yet.
fn open_in_turn(options: &RbdOptions) -> Arc<dyn SharedStore> {
    loop {
        match open(options.clone()) {
            Err(why) if why.contains("another store") => pause(),
            opened => return opened.unwrap(),
        }
    }
}

fn rig(fake: &FakeCluster) -> (Arc<dyn SharedStore>, Rig) {
    let disk = open_in_turn(&options(fake));
    let mut rig = Rig::new(&*disk);
    let write = rig.write(0, 1);
    rig.begin(1, write);
    assert!(matches!(rig.answer(), (1, Ok(IoAnswer::Done))));
    (disk, rig)
}

#[test]
fn a_snapshot_has_its_name_when_it_is_kept_and_is_removed_when_it_is_not() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = rig(&fake);
    let taken = TakenNative::take(of(&disk), name("a")).unwrap();
    assert_eq!(
        (names(&disk).len(), fake.snapshots()),
        (0, vec![".a.new".to_owned()])
    );
    // One that is being taken is not what a crash has left.
    of(&disk).begin(&name("b")).unwrap();
    let twice = TakenNative::take(of(&disk), name("a")).unwrap_err();
    assert_eq!(twice, NativeError::Exists { name: name("a") });
    drop(taken);
    assert_eq!(fake.snapshots(), [""; 0]);
    keep(&disk, "a");
    let again = of(&disk).begin(&name("a")).unwrap_err();
    assert_eq!(again, NativeError::Exists { name: name("a") });
}

#[test]
fn a_snapshot_that_is_needed_is_not_removed() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = rig(&fake);
    keep(&disk, "a");
    let mut served = options(&fake);
    served.snapshot = Some("a".to_owned());
    let reader = open(served).unwrap();
    assert!(reader.native_snapshots().is_none());
    let remove = || of(&disk).remove(&name("a"));
    assert_eq!(
        remove().unwrap_err(),
        NativeError::InUse { name: name("a") }
    );
    drop(reader);
    let place = clone_place("copy");
    of(&disk).clone_to(&name("a"), &place).unwrap();
    let missing = of(&disk).clone_to(&name("b"), &place).unwrap_err();
    assert_eq!(missing, NativeError::Missing { name: name("b") });
    let clones = vec!["rbd/copy".to_owned()];
    let error = NativeError::HasClones {
        name: name("a"),
        clones,
    };
    assert_eq!(remove().unwrap_err(), error);
    of(&disk).remove_clone(&place).unwrap();
    fake.protect_snapshots();
    assert_eq!(
        remove().unwrap_err(),
        NativeError::Protected { name: name("a") }
    );
    let mut read_only = options(&fake);
    read_only.read_only = true;
    drop((_rig, disk));
    let disk = open_in_turn(&read_only);
    let _rig = Rig::new(&*disk);
    while disk.outage().is_some() {
        pause();
    }
    assert_eq!(names(&disk), ["a"]);
    assert_eq!(
        of(&disk).begin(&name("b")).unwrap_err(),
        NativeError::ReadOnly
    );
}

/// Which data there is at the start, by a READ.
fn first_byte(rig: &mut Rig, tag: u64) -> Result<u8, IoFailure> {
    let read = rig.read(0);
    let result = match rig.submit(tag, read) {
        Some(done) => done,
        None => rig.answer().1,
    };
    match result? {
        IoAnswer::Data(data) => Ok(data.to_vec()[0]),
        other @ (IoAnswer::Done | IoAnswer::Extents(_) | IoAnswer::Device(_)) => {
            panic!("{other:?}")
        }
    }
}

fn unnoted() -> Ended {
    Box::new(|_| {})
}

/// Notes how it ends.
fn noted() -> (Ended, mpsc::Receiver<bool>) {
    let (sender, ends) = mpsc::channel();
    let ended = move |outcome: &Result<(), NativeError>| sender.send(outcome.is_ok()).unwrap();
    (Box::new(ended), ends)
}

#[test]
fn who_has_begun_what_takes_long_is_notified_once_when_it_ends_and_not_when_it_is_given_up() {
    let fake = FakeCluster::new(MIB);
    let (disk, rig) = rig(&fake);
    keep(&disk, "a");
    of(&disk).close_for_rollback(&name("a")).unwrap();
    fake.stand_still(true);
    let ((ended, ends), (further, ends_further)) = (noted(), noted());
    of(&disk).roll_back(AT_ONCE, ended).unwrap();
    of(&disk).roll_back(AT_ONCE, further).unwrap();
    assert!(ends.try_recv().is_err(), "it has not ended");
    fake.stand_still(false);
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(true));
    let over = Err(mpsc::RecvTimeoutError::Disconnected);
    assert_eq!(
        [&ends, &ends_further].map(|ends| ends.recv_timeout(PATIENCE)),
        [over; 2]
    );
    assert_eq!(of(&disk).roll_back(PATIENCE, unnoted()), Ok(Progress::Done));
    let (ended, ends) = noted();
    let refused = of(&disk).flatten(PATIENCE, ended);
    assert_eq!(refused, Err(NativeError::NoClone));
    assert_eq!(ends.recv_timeout(PATIENCE), Ok(false));
    fake.make_clone();
    fake.stand_still(true);
    let (ended, ends) = noted();
    of(&disk).flatten(AT_ONCE, ended).unwrap();
    drop((rig, disk));
    assert_eq!(ends.recv_timeout(PATIENCE), over, "its unit is gone");
}

#[test]
fn requests_are_refused_while_an_image_is_rolled_back() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = rig(&fake);
    keep(&disk, "a");
    let write = rig.write(0, 2);
    rig.begin(2, write);
    let _written = rig.answer();
    disk.grow(2 * MIB as u64).unwrap();
    let missing = of(&disk).close_for_rollback(&name("b")).unwrap_err();
    assert_eq!(missing, NativeError::Missing { name: name("b") });
    of(&disk).close_for_rollback(&name("a")).unwrap();
    assert_eq!(first_byte(&mut rig, 3), Err(IoFailure::NotReady));
    of(&disk).open_again();
    assert_eq!(first_byte(&mut rig, 4), Ok(2));
    of(&disk).close_for_rollback(&name("a")).unwrap();
    fake.stand_still(true);
    let under_way = of(&disk).roll_back(AT_ONCE, unnoted()).unwrap();
    assert!(
        matches!(under_way, Progress::UnderWay { .. }),
        "{under_way:?}"
    );
    assert!(disk.outage().unwrap().contains("data of snapshot a back"));
    // Whatever is said meanwhile.
    of(&disk).open_again();
    assert_eq!(first_byte(&mut rig, 5), Err(IoFailure::NotReady));
    let busy = of(&disk).begin(&name("c")).unwrap_err();
    assert_eq!(busy, NativeError::Busy { what: "a rollback" });
    fake.stand_still(false);
    assert_eq!(of(&disk).roll_back(PATIENCE, unnoted()), Ok(Progress::Done));
    assert_eq!(first_byte(&mut rig, 6), Ok(1));
    assert_eq!(disk.capabilities().size_bytes, 2 * MIB as u64);
    assert_eq!(
        (disk.outage(), fake.metadata("tarn.rollback")),
        (None, Some(String::new()))
    );
}

#[test]
fn a_rollback_that_was_cut_ends_before_the_image_is_served() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut one) = rig(&fake);
    keep(&disk, "a");
    let write = one.write(0, 2);
    one.begin(2, write);
    let _written = one.answer();
    of(&disk).close_for_rollback(&name("a")).unwrap();
    fake.stand_still(true);
    of(&disk).roll_back(AT_ONCE, unnoted()).unwrap();
    drop((one, disk));
    // It was given up, so it ends although it stands still.
    while fake.counts().2 > 0 {
        pause();
    }
    fake.stand_still(false);
    let (disk, mut rig) = {
        let disk = open_in_turn(&options(&fake));
        let rig = Rig::new(&*disk);
        (disk, rig)
    };
    assert_eq!(first_byte(&mut rig, 1), Ok(1));
    assert_eq!(fake.metadata("tarn.rollback"), Some(String::new()));
    let given = [(); 2].map(|()| of(&disk).take_resumed());
    assert_eq!(given, [Some(("a".to_owned(), Ok(()))), None]);
    drop((rig, disk));
    // That of a copy is not its own.
    fake.set_metadata("tarn.rollback", "other 1048576 a");
    let (_disk, _rig) = self::rig(&fake);
    assert_eq!(fake.byte(0), 1);
}

#[test]
fn a_cut_rollback_that_fails_is_reported_once_until_it_ends_well() {
    let fake = FakeCluster::new(MIB);
    let (disk, rig) = rig(&fake);
    keep(&disk, "a");
    of(&disk).close_for_rollback(&name("a")).unwrap();
    fake.stand_still(true);
    of(&disk).roll_back(AT_ONCE, unnoted()).unwrap();
    drop((rig, disk));
    while fake.counts().2 > 0 {
        pause();
    }
    fake.stand_still(false);
    let disk = open_in_turn(&options(&fake));
    fake.set_faults(Faults {
        change: Some(NO_SPACE),
        ..Faults::default()
    });
    let mut rig = Rig::new(&*disk);
    let failed = loop {
        match of(&disk).take_resumed() {
            Some((_, ended)) => break ended,
            None => pause(),
        }
    };
    assert!(failed.is_err());
    fake.set_faults(Faults::default());
    // It is not ready before, and is tried again.
    let read = rig.read(0);
    rig.begin(1, read);
    let _served = rig.answer();
    let ended = of(&disk).take_resumed();
    assert_eq!(ended, Some(("a".to_owned(), Ok(()))));
}

#[test]
fn what_a_crash_leaves_between_the_steps_is_not_listed_and_goes_with_the_next_snapshot() {
    let fake = FakeCluster::new(MIB);
    let (disk, rig) = rig(&fake);
    keep(&disk, "kept");
    // Between the first and the second step nothing is there.
    of(&disk).begin(&name("a")).unwrap();
    assert_eq!(fake.snapshots(), ["kept"]);
    // Between the second and the third one the snapshot is, and the process ends.
    of(&disk).take(&name("a")).unwrap();
    drop((rig, disk));
    assert_eq!(fake.snapshots(), ["kept", ".a.new"]);
    while fake.counts().2 > 0 {
        pause();
    }
    let disk = open_in_turn(&options(&fake));
    let mut rig = Rig::new(&*disk);
    assert_eq!(first_byte(&mut rig, 1), Ok(1));
    assert_eq!(names(&disk), ["kept"]);
    let served = of(&disk).clone_to(&name("a"), &clone_place("copy"));
    assert_eq!(served, Err(NativeError::Missing { name: name("a") }));
    // The name is free, and what was left is gone first.
    keep(&disk, "a");
    assert_eq!(fake.snapshots(), ["kept", "a"]);
    assert_eq!(names(&disk), ["kept", "a"]);
}

fn clone_place(name: &str) -> ClonePlace {
    ClonePlace {
        pool: "rbd".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

#[test]
fn two_who_wait_for_one_flatten_have_one_outcome_and_who_comes_later_finds_it_done() {
    let fake = FakeCluster::new(MIB);
    let (disk, _rig) = rig(&fake);
    fake.make_clone();
    fake.stand_still(true);
    of(&disk).flatten(AT_ONCE, unnoted()).unwrap();
    let asks = || {
        std::thread::spawn({
            let of = of(&disk);
            move || of.flatten(PATIENCE, Box::new(|_| {}))
        })
    };
    let both = [asks(), asks()];
    fake.stand_still(false);
    for one in both {
        assert_eq!(one.join().unwrap(), Ok(Progress::Done));
    }
    assert_eq!(of(&disk).flatten(PATIENCE, unnoted()), Ok(Progress::Done));
}

#[test]
fn a_rollback_that_fails_leaves_the_image_closed_until_one_ends_well() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = rig(&fake);
    keep(&disk, "a");
    of(&disk).close_for_rollback(&name("a")).unwrap();
    let ended = {
        fake.stand_still(true);
        of(&disk).roll_back(AT_ONCE, unnoted()).unwrap();
        of(&disk).remove(&name("a")).unwrap_err()
    };
    assert_eq!(ended, NativeError::Busy { what: "a rollback" });
    fake.stand_still(false);
    assert_eq!(of(&disk).roll_back(PATIENCE, unnoted()), Ok(Progress::Done));
    // Before anything is changed.
    of(&disk).close_for_rollback(&name("a")).unwrap();
    fake.set_faults(Faults {
        change: Some(NO_SPACE),
        ..Faults::default()
    });
    assert!(of(&disk).roll_back(PATIENCE, unnoted()).is_err());
    of(&disk).open_again();
    assert_eq!(first_byte(&mut rig, 2), Ok(1));
}

#[test]
fn a_clone_is_flattened_while_it_is_served_and_ends_with_its_unit() {
    let fake = FakeCluster::new(MIB);
    let (disk, mut rig) = rig(&fake);
    assert_eq!(
        of(&disk).flatten(PATIENCE, unnoted()),
        Err(NativeError::NoClone)
    );
    fake.make_clone();
    fake.stand_still(true);
    let under_way = of(&disk).flatten(AT_ONCE, unnoted()).unwrap();
    assert!(
        matches!(under_way, Progress::UnderWay { .. }),
        "{under_way:?}"
    );
    keep(&disk, "a");
    let busy = of(&disk).close_for_rollback(&name("a")).unwrap_err();
    assert_eq!(busy, NativeError::Busy { what: "a flatten" });
    assert_eq!(first_byte(&mut rig, 2), Ok(1));
    fake.stand_still(false);
    assert_eq!(of(&disk).flatten(PATIENCE, unnoted()), Ok(Progress::Done));
    fake.make_clone();
    fake.stand_still(true);
    of(&disk).flatten(AT_ONCE, unnoted()).unwrap();
    drop((rig, disk));
    while fake.counts().2 > 0 {
        pause();
    }
}
