//! Copies on the file system of the tests.

use super::*;

/// A directory of its own, gone when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("tarn-snapshots-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn disk(&self) -> Snapshots {
        let path = self.0.join("disk.img");
        fs::write(&path, vec![7; 8192]).unwrap();
        Snapshots::of(&path).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

fn swap(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

fn name(text: &str) -> SnapshotName {
    SnapshotName::parse(text).unwrap()
}

fn begin(of: &Snapshots, text: &str) -> Result<NewSnapshot, SnapshotError> {
    of.begin(&name(text), |_| Ok(true))
}

/// What the file system here can do or not, the rest can be looked at: an empty copy is kept.
fn keep(of: &Snapshots, text: &str) -> Snapshot {
    begin(of, text).unwrap().keep().unwrap().stays()
}

fn names(of: &Snapshots) -> Vec<String> {
    let all = of.list().unwrap();
    all.into_iter().map(|one| one.name.to_string()).collect()
}

#[test]
fn a_name_is_one_part_of_a_path_and_of_no_copy_that_is_being_made() {
    let longest = "a".repeat(NAME_CHARS_MAX);
    for good in ["a", "7", "before-upgrade", "2026-11-24T02.30_x", &longest] {
        assert_eq!(SnapshotName::parse(good).unwrap().as_str(), good);
    }
    let long = "a".repeat(NAME_CHARS_MAX + 1);
    for bad in [
        "", ".", "..", ".a", "-a", "a/b", "a b", "a@b", "ä", "a\0", "a\n", &long,
    ] {
        assert_eq!(SnapshotName::parse(bad), None, "{bad:?}");
    }
}

#[test]
fn a_snapshot_has_its_name_when_it_is_kept_and_not_before() {
    let scratch = Scratch::new("kept");
    let disk = scratch.disk();
    assert_eq!(names(&disk), [""; 0]);
    let new = begin(&disk, "a").unwrap();
    assert_eq!(names(&disk), [""; 0]);
    let twice = begin(&disk, "a").unwrap_err();
    assert!(matches!(twice, SnapshotError::Exists { .. }), "{twice}");
    let kept = new.keep().unwrap().stays();
    assert_eq!(kept.path, scratch.0.join("disk.img.snapshots/a"));
    assert_eq!(fs::metadata(&kept.path).unwrap().mode() & 0o222, 0);
    assert_eq!(disk.list().unwrap(), [kept]);
    let again = begin(&disk, "a").unwrap_err();
    assert!(matches!(again, SnapshotError::Exists { .. }), "{again}");
    drop(begin(&disk, "b").unwrap());
    assert_eq!(fs::read_dir(&disk.directory).unwrap().count(), 1);
}

#[test]
fn what_a_crash_has_left_goes_with_the_next_and_what_is_being_made_stays() {
    let scratch = Scratch::new("crash");
    let disk = scratch.disk();
    let under_way = begin(&disk, "a").unwrap();
    let left = disk.directory.join(".b.new");
    fs::write(&left, "half").unwrap();
    let foreign = disk.directory.join(".notes");
    fs::write(&foreign, "mine").unwrap();
    keep(&disk, "c");
    assert!(!left.exists() && foreign.exists());
    drop(under_way.keep().unwrap());
    assert_eq!(names(&disk), ["c"], "nobody waits for it any more");
}

#[test]
fn a_snapshot_that_is_open_somewhere_is_not_removed() {
    let scratch = Scratch::new("open");
    let disk = scratch.disk();
    let kept = keep(&disk, "a");
    let reader = File::open(&kept.path).unwrap();
    flock(&reader, FlockOperation::NonBlockingLockShared).unwrap();
    let refused = disk.remove(&name("a")).unwrap_err();
    assert!(matches!(refused, SnapshotError::InUse { .. }), "{refused}");
    drop(reader);
    disk.remove(&name("a")).unwrap();
    let gone = disk.remove(&name("a")).unwrap_err();
    assert!(matches!(gone, SnapshotError::Missing { .. }), "{gone}");
}

#[test]
fn what_is_no_regular_file_has_no_snapshots_and_is_none() {
    let scratch = Scratch::new("irregular");
    let disk = scratch.disk();
    let null = Snapshots::of(Path::new("/dev/null")).unwrap();
    let refused = begin(&null, "a").unwrap_err();
    assert!(matches!(refused, SnapshotError::NotAFile), "{refused}");
    let replaced = disk.begin(&name("a"), |_| Ok(false)).unwrap_err();
    assert!(matches!(replaced, SnapshotError::Replaced), "{replaced}");
    keep(&disk, "a");
    fs::create_dir(disk.directory.join("directory")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", disk.directory.join("link")).unwrap();
    assert_eq!(names(&disk), ["a"]);
    for other in ["directory", "link"] {
        let missing = disk.remove(&name(other)).unwrap_err();
        assert!(
            matches!(missing, SnapshotError::Missing { .. }),
            "{missing}"
        );
        let taken = begin(&disk, other).unwrap_err();
        assert!(matches!(taken, SnapshotError::Exists { .. }), "{taken}");
    }
    // A link instead of the directory leads nowhere.
    let other = scratch.0.join("other.img");
    fs::write(&other, "x").unwrap();
    std::os::unix::fs::symlink("/tmp", scratch.0.join("other.img.snapshots")).unwrap();
    assert!(begin(&Snapshots::of(&other).unwrap(), "a").is_err());
}

#[test]
fn a_file_has_one_directory_by_whatever_link_it_is_reached() {
    let scratch = Scratch::new("link");
    let disk = scratch.disk();
    keep(&disk, "a");
    let link = scratch.0.join("link.img");
    std::os::unix::fs::symlink("disk.img", &link).unwrap();
    assert_eq!(names(&Snapshots::of(&link).unwrap()), ["a"]);
}

#[test]
fn a_file_is_exchanged_for_another_and_back() {
    let scratch = Scratch::new("exchange");
    let disk = scratch.disk();
    let directory = disk.make_directory().unwrap();
    let read = |path: &Path| fs::read(path).unwrap();
    for goes_back in [true, false] {
        let unfinished = disk.make_unfinished(&name("a")).unwrap();
        fs::write(&unfinished.place, "new").unwrap();
        let place = unfinished.place.clone();
        // So that no other file gets their numbers.
        let _open = [&disk.file, &place].map(|path| File::open(path).unwrap());
        let found = fs::metadata(&disk.file).unwrap();
        let rollback = disk.prepare(unfinished, &found).unwrap();
        let exchange = rollback.plan().clone();
        assert_eq!(exchange.stands().unwrap(), Standing::Before);
        rollback.exchange(swap).unwrap();
        assert_eq!(exchange.stands().unwrap(), Standing::Exchanged);
        assert_eq!(
            (read(&disk.file), read(&place)),
            (b"new".to_vec(), vec![7; 8192])
        );
        if goes_back {
            exchange.back(swap).unwrap();
            assert_eq!(read(&disk.file), vec![7; 8192]);
            exchange.back(swap).unwrap_err();
            assert_eq!(read(&disk.file), vec![7; 8192], "once");
        } else {
            let served = File::open(&place).unwrap();
            lock(&served).unwrap();
            exchange.finish().unwrap_err();
            assert!(place.exists(), "a program has it open");
            disk.remove_unfinished().unwrap();
            assert!(place.exists(), "also for the next snapshot");
            drop(served);
            exchange.finish().unwrap();
            assert_eq!(read(&disk.file), b"new");
        }
        assert!(!place.exists());
        fs::write(disk.file.with_extension("other"), "other").unwrap();
        fs::rename(disk.file.with_extension("other"), &disk.file).unwrap();
        let replaced = exchange.stands().unwrap_err();
        assert!(matches!(replaced, SnapshotError::Replaced), "{replaced}");
        fs::write(&disk.file, vec![7; 8192]).unwrap();
    }
    drop(directory);
    let missing = disk.begin_rollback(&name("b"), |_| Ok(true)).unwrap_err();
    assert!(
        matches!(missing, SnapshotError::Missing { .. }),
        "{missing}"
    );
}

/// Where the file system of the tests has reflinks, the data is there; where not, it is refused with what to do.
#[test]
fn a_copy_has_the_data_of_its_moment_or_there_is_none() {
    let scratch = Scratch::new("data");
    let disk = scratch.disk();
    let new = begin(&disk, "a").unwrap();
    if let Err(error) = new.take() {
        assert!(matches!(error, SnapshotError::NoReflinks), "{error}");
        assert!(error.to_string().contains("XFS"));
        assert!(disk.directory.is_dir());
        drop(new);
        assert!(!disk.directory.exists(), "it is left over");
        let clone = scratch.0.join("clone.img");
        keep(&disk, "b");
        assert!(disk.clone_to(&name("b"), &clone).is_err());
        assert!(!clone.exists(), "nothing is left");
        return;
    }
    fs::write(&disk.file, vec![9; 8192]).unwrap();
    let kept = new.keep().unwrap().stays();
    assert_eq!(fs::read(&kept.path).unwrap(), vec![7; 8192]);
    let clone = scratch.0.join("clone.img");
    // Nobody waits for it any more.
    drop(disk.clone_to(&name("a"), &clone).unwrap());
    assert!(!clone.exists());
    disk.clone_to(&name("a"), &clone).unwrap().stays();
    assert_eq!(fs::read(&clone).unwrap(), vec![7; 8192]);
    fs::write(&disk.file, vec![9; 12288]).unwrap();
    let rollback = disk.begin_rollback(&name("a"), |_| Ok(true)).unwrap();
    let exchange = rollback.plan().clone();
    rollback.exchange(swap).unwrap();
    exchange.finish().unwrap();
    let expected = [vec![7; 8192], vec![0; 4096]].concat();
    assert_eq!(fs::read(&disk.file).unwrap(), expected);
    assert!(disk.clone_to(&name("a"), &clone).is_err(), "it is there");
    assert!(clone.exists());
}
