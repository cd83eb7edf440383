//! Snapshots of a daemon that runs, of images; and what needs none.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use api::control::Control as _;
use store::{NativeError, Progress};

use super::testing::Images;
use super::*;
use crate::attempts::pause;
use crate::serve::living::Living;

#[test]
fn a_snapshot_without_a_name_is_called_by_its_second() {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_255_416);
    assert_eq!(name_at(time).as_str(), "2026-11-21T10-03-36Z");
    let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
    assert_eq!(name_at(before).as_str(), "1970-01-01T00-00-00Z");
}

#[test]
fn what_is_done_at_once_ends_as_a_whole() {
    let fail = |text: &str| Problem::new(ProblemKind::Failed, text);
    let done = at_once([1, 2, 3].into_iter(), |one| Ok(one * 2)).unwrap();
    assert_eq!(done, [2, 4, 6]);
    let failed = at_once([1, 2, 3].into_iter(), |one| match one {
        2 => Err(fail("second")),
        3 => Err(fail("third")),
        one => Ok(one),
    });
    assert_eq!(failed.unwrap_err().detail, "second");
}

#[test]
fn only_what_was_kept_is_taken_back() {
    let failed = || Err(Problem::new(ProblemKind::Failed, "no"));
    let taken_back = std::cell::RefCell::new(Vec::new());
    let take_back = |name: &&'static str| taken_back.borrow_mut().push(*name);
    let all = all_or_none(vec![Ok(1), Ok(2)], &["a", "b"], take_back);
    assert_eq!((all.unwrap(), taken_back.borrow().len()), (vec![1, 2], 0));
    let none = all_or_none(vec![Ok(1), failed(), Ok(3)], &["a", "b", "c"], take_back);
    assert!(none.is_err());
    assert_eq!(*taken_back.borrow(), ["a", "c"]);
}

#[test]
fn an_error_names_the_lun_that_is_not_held_and_why() {
    for (why, status) in [
        (NotHeld::Refused(MediumFailure::Gone), 409),
        (NotHeld::Refused(MediumFailure::Busy), 409),
        (NotHeld::NoAnswer, 503),
    ] {
        let problem = not_held("disk", &why);
        assert_eq!(problem.status, status);
        assert!(problem.detail.contains("\"disk\""), "{}", problem.detail);
    }
}

#[test]
fn a_name_that_is_no_part_of_a_path_is_refused_with_the_rule() {
    for name in ["", "..", "a/b", "../a", "a\u{0}"] {
        let problem = parse(name).unwrap_err();
        assert_eq!(
            (problem.status, problem.place.as_deref()),
            (400, Some("name"))
        );
    }
    assert!(parse("before-upgrade").is_ok());
}

const NONE: [&str; 0] = [];

fn take_of(images: &Images, luns: &[&str], name: &str) -> Result<view::SnapshotsTaken, Problem> {
    let wanted = TakeSnapshots {
        luns: strings(luns),
        name: (!name.is_empty()).then(|| name.to_owned()),
    };
    take(&images.living.daemon, &wanted, "tester")
}

/// One at a time, as each author takes one.
#[test]
fn a_snapshot_is_taken_of_all_units_or_of_none() {
    let images = Images::new();
    let taken = take_of(&images, &["b", "a"], "s").unwrap();
    let view = |lun: &str| view::Snapshot {
        lun: lun.to_owned(),
        name: "s".to_owned(),
        taken_ms: 1000,
        size_bytes: 4096,
        path: "rbd:pool/i@s".to_owned(),
    };
    assert_eq!(taken.snapshots, [view("b"), view("a")]);
    for cluster in [&images.a, &images.b] {
        assert_eq!(cluster.calls(), ["begin s", "take s", "keep s"]);
    }
    let taken = ["b", "a"].map(|lun| format!("snapshot-taken Info lun {lun}: snapshot s is taken"));
    assert_eq!(images.noted(), taken);
    nothing_is_left_of_one_that_fails(&images);
    what_cannot_be_taken_is_refused(&images);
    let unnamed = take_of(&images, &["a"], "")
        .unwrap()
        .snapshots
        .swap_remove(0)
        .name;
    assert_eq!(
        (unnamed.len(), unnamed.ends_with('Z')),
        (20, true),
        "{unnamed}"
    );
    images.living.stop();
}

fn nothing_is_left_of_one_that_fails(images: &Images) {
    #[rustfmt::skip]
    let steps = [
        ("begin", &["begin t"][..], &["begin t"][..]),
        ("take", &["begin t", "take t", "discard t"], &["begin t", "take t", "discard t"]),
        ("keep", &["begin t", "take t", "keep t", "remove t"], &["begin t", "take t", "keep t", "discard t"]),
    ];
    for (step, a, b) in steps {
        images.b.fail(Some(step));
        let problem = take_of(images, &["a", "b"], "t").unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Failed);
        assert_eq!(
            problem.detail,
            format!("lun \"b\": cannot {step}: it fails")
        );
        let calls = (images.a.calls(), images.b.calls());
        assert_eq!(calls, (strings(a), strings(b)));
        assert_eq!(images.noted(), NONE);
    }
    images.b.fail(None);
}

fn what_cannot_be_taken_is_refused(images: &Images) {
    let many: Vec<String> = (0..=UNITS_MAX).map(|number| format!("x{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let (bad, conflict) = (ProblemKind::BadRequest, ProblemKind::Conflict);
    #[rustfmt::skip]
    let refused = [
        (&[][..], "t", bad, Some("luns"), "it names 0 luns, and 1 to 16"),
        (&many, "t", bad, Some("luns"), "it names 17 luns"),
        (&many[1..], "t", ProblemKind::NotFound, None, "no lun \"x1\""),
        (&["a", "b", "a"], "t", bad, Some("luns"), "names lun \"a\" twice"),
        (&["a"], "a/b", bad, Some("name"), "\"a/b\" is no name"),
        (&["a"], "hourly-2026-11-24T02.00Z", bad, Some("name"), "a name of a schedule"),
        (&["a", "b"], "s", conflict, None, "lun \"a\": there is a snapshot s already"),
        (&["n"], "t", conflict, None, "it is a snapshot itself"),
    ];
    for (luns, name, kind, place, words) in refused {
        let problem = take_of(images, luns, name).unwrap_err();
        assert_eq!(
            (problem.kind, problem.place.as_deref()),
            (kind, place),
            "{problem}"
        );
        assert!(problem.detail.contains(words), "{problem}");
    }
    images.is_latched.store(true, Ordering::Relaxed);
    let problem = take_of(images, &["a", "b"], "t").unwrap_err();
    assert_eq!(problem.kind, conflict);
    assert!(
        problem.detail.contains("a flush of lun \"b\" failed"),
        "{problem}"
    );
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|&one| one.to_owned()).collect()
}

/// Those that are there, as `LUN@NAME`.
fn there(found: &[view::Snapshot]) -> Vec<String> {
    let found = found.iter();
    found
        .map(|one| format!("{}@{}", one.lun, one.name))
        .collect()
}

#[test]
fn a_snapshot_is_listed_until_it_is_removed_and_stays_where_a_lun_is_made_of_it() {
    let images = Images::new();
    let daemon = &images.living.daemon;
    for (cluster, names) in [
        (&images.a, &["s", "used", "hourly-2026-11-24T02.00Z"][..]),
        (&images.b, &["used"]),
    ] {
        for name in names {
            cluster.keep(&parse(name).unwrap()).unwrap();
        }
        cluster.calls();
    }
    let all = ["a@s", "a@used", "a@hourly-2026-11-24T02.00Z", "b@used"];
    assert_eq!(there(&list(daemon, None).unwrap()), all);
    assert_eq!(there(&list(daemon, Some("a")).unwrap()), all[..3]);
    let found = names(daemon, "a").unwrap();
    assert_eq!(
        found.iter().map(SnapshotName::as_str).collect::<Vec<_>>(),
        ["s", "used", "hourly-2026-11-24T02.00Z"]
    );
    for fails in ["list", "reach"] {
        images.a.fail(Some(fails));
        assert_eq!(there(&list(daemon, None).unwrap()), all[3..], "{fails}");
        assert!(list(daemon, Some("a")).is_err() && names(daemon, "a").is_err());
    }
    images.a.fail(None);
    for (lun, name, expected) in [
        ("a", "s", Ok(())),
        ("a", "s", Err(ProblemKind::NotFound)),
        ("f", "used", Err(ProblemKind::Conflict)),
        ("f", "s", Err(ProblemKind::NotFound)),
        ("a", "a/b", Err(ProblemKind::BadRequest)),
        ("b", "used", Ok(())),
        ("n", "s", Err(ProblemKind::Conflict)),
        ("x", "s", Err(ProblemKind::NotFound)),
    ] {
        let removed = remove(daemon, lun, name).map_err(|problem| problem.kind);
        assert_eq!(removed, expected, "{lun}@{name}");
    }
    assert_eq!(
        (images.a.calls(), images.b.calls()),
        (strings(&["remove s"; 2]), strings(&["remove used"]))
    );
    let removed = [("a", "s"), ("b", "used")];
    let removed = removed
        .map(|(lun, name)| format!("snapshot-removed Info lun {lun}: snapshot {name} is removed"));
    assert_eq!(images.noted(), removed);
    images.living.stop();
}

/// The exports that sessions see, with the numbers of these sessions.
fn seen(daemon: &Daemon) -> BTreeMap<String, u64> {
    let sessions = daemon.sessions().unwrap().into_iter();
    let seen = sessions.flat_map(|one| one.luns.into_iter().map(move |lun| (lun.id, one.id)));
    seen.collect()
}

fn until(daemon: &Daemon, is_so: impl Fn(&BTreeMap<String, u64>) -> bool) -> BTreeMap<String, u64> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let seen = seen(daemon);
        if is_so(&seen) {
            return seen;
        }
        assert!(Instant::now() < end, "{seen:?}");
        pause(Duration::from_millis(5));
    }
}

#[test]
fn a_rollback_ends_the_sessions_that_see_the_unit_and_says_what_has_come_of_it() {
    let images = Images::new();
    let daemon = &images.living.daemon;
    let nbd = &images.nbd;
    let lun = |id: &str| format!("[[lun]]\nid = \"{id}\"\nstore = \"nbd://{nbd}/{id}?retry=1\"\n");
    let rest = "[server]\nstate = \"{dir}/state\"\ncores = 1\n[admin]\nenabled = false\n\
                [limits]\npool_per_core_bytes = \"16M\"\n";
    let gateway = Living::new(&format!("{}{}{rest}", lun("a"), lun("b")));
    let before = until(daemon, |seen| seen.len() == 2);
    // As an administrator ends one: the client comes back as another session.
    daemon.end_session(before["a"]).unwrap();
    let is_back = |seen: &BTreeMap<String, u64>| seen.get("a").is_some_and(|id| *id != before["a"]);
    let after = until(daemon, is_back);
    assert_eq!(after["b"], before["b"]);
    let ended = daemon.end_session(before["a"]).unwrap_err().kind;
    assert_eq!(ended, ProblemKind::NotFound);
    let before = after;
    let back = |name: &str| {
        let back = roll_back(daemon, "a", name);
        back.map(|back| (back.lun, back.unsettled))
            .map_err(|problem| (problem.kind, problem.detail))
    };
    assert_eq!(back("s"), Ok(("a".to_owned(), None)));
    let after = until(daemon, |seen| {
        seen.get("a").is_some_and(|id| *id != before["a"])
    });
    assert_eq!(after["b"], before["b"]);
    gateway.stop();
    assert_eq!(images.a.calls(), ["close s", "roll back 10s"]);
    assert_eq!(
        images.noted(),
        ["snapshot-restored Info lun a: it has the data of snapshot s again"]
    );
    for (fails, calls, noted) in [
        ("close", &["close s"][..], &NONE[..]),
        (
            "roll back",
            &["close s", "roll back 10s", "open again"],
            &[
                "rollback-failed Error lun a: the rollback to snapshot s has failed: cannot roll back: it fails",
            ],
        ),
    ] {
        images.a.fail(Some(fails));
        let detail = format!("lun \"a\": cannot {fails}: it fails");
        assert_eq!(back("s"), Err((ProblemKind::Failed, detail)));
        assert_eq!(
            (images.a.calls(), images.noted()),
            (strings(calls), strings(noted))
        );
    }
    images.a.fail(None);
    *images.a.progress.lock().unwrap() = Progress::UnderWay { percent: 40 };
    let (kind, detail) = back("s").unwrap_err();
    assert_eq!(kind, ProblemKind::Unavailable);
    assert!(
        detail.starts_with("the rollback of lun \"a\" to s goes on (40 % is done)"),
        "{detail}"
    );
    assert_eq!(images.noted(), NONE);
    images.a.end(&Ok(()));
    assert_eq!(
        images.noted(),
        ["snapshot-restored Info lun a: it has the data of snapshot s again"]
    );
    images.living.stop();
}

#[test]
fn the_end_of_a_rollback_that_a_restart_had_cut_is_said_once() {
    let images = Images::new();
    let daemon = &images.living.daemon;
    for (ended, noted) in [
        (
            Ok(()),
            "snapshot-restored Info lun b: it has the data of snapshot s again, after a rollback that a restart had \
             cut",
        ),
        (
            Err(NativeError::NoClone),
            "rollback-failed Error lun b: the rollback to snapshot s, which a restart interrupted, has failed and is \
             tried again: it is no clone, so there is nothing to flatten",
        ),
    ] {
        *images.b.resumed.lock().unwrap() = Some(("s".to_owned(), ended));
        note_resumed(daemon);
        assert_eq!(images.noted(), [noted]);
        note_resumed(daemon);
        assert_eq!(images.noted(), NONE, "it is said once");
    }
    images.living.stop();
}

#[test]
fn a_clone_is_an_image_of_the_same_cluster_or_a_file_and_goes_if_it_is_not_served() {
    let images = Images::new();
    let daemon = &images.living.daemon;
    let file = images.living.path("c.img");
    let path = file.display().to_string();
    let (bad, conflict) = (ProblemKind::BadRequest, ProblemKind::Conflict);
    for (lun, store, expected, calls) in [
        ("a", "rbd:pool/c", Ok(()), &["clone s to pool//c"][..]),
        (
            "a",
            "rbd:pool/space/c",
            Ok(()),
            &["clone s to pool/space/c"],
        ),
        ("a", "rbd:pool/c@x", Err(bad), &[]),
        ("a", "mem:1M", Err(bad), &[]),
        ("a", "what:c", Err(bad), &[]),
        ("a", "rbd:pool/c?blocksize=4096", Err(conflict), &[]),
        (
            "a",
            "rbd:pool/c?conf=/etc/ceph/other.conf",
            Err(conflict),
            &[],
        ),
        ("b", "rbd:pool/c", Err(conflict), &[]),
        (
            "b",
            "rbd:pool/c?conf=/etc/ceph/other.conf",
            Ok(()),
            &["clone s to pool//c"],
        ),
        ("f", "rbd:pool/c", Err(bad), &[]),
        ("f", "mem:1M", Err(bad), &[]),
        ("f", &format!("{path}?blocksize=4096"), Err(conflict), &[]),
        ("f", &path, Err(ProblemKind::NotFound), &[]),
    ] {
        let made = clone(daemon, (lun, "s"), store);
        let kind = made.as_ref().map(drop).map_err(|problem| problem.kind);
        assert_eq!(kind, expected, "{lun} {store}: {made:?}");
        let is_of_store = kind == Err(bad) || kind == Err(conflict);
        let place = made.err().and_then(|problem| problem.place);
        assert_eq!(
            place.as_deref(),
            is_of_store.then_some("lun.store"),
            "{lun} {store}"
        );
        assert_eq!(
            [images.a.calls(), images.b.calls()].concat(),
            strings(calls),
            "{lun} {store}"
        );
    }
    for (store, calls) in [
        ("rbd:pool/c", &["unmake c"][..]),
        ("rbd:pool/c@x", &[]),
        ("what:c", &[]),
    ] {
        discard(daemon, "a", store);
        assert_eq!(images.a.calls(), strings(calls), "{store}");
    }
    std::fs::write(&file, "data").unwrap();
    discard(daemon, "f", &path);
    assert!(!file.exists());
    images.living.stop();
}

#[test]
fn a_flatten_goes_on_without_its_caller_and_its_end_is_reported() {
    let images = Images::new();
    let daemon = &images.living.daemon;
    let flattened = || flatten(daemon, "a").map(|it| (it.lun, it.done, it.percent));
    let a = || "a".to_owned();
    assert_eq!(flattened().unwrap(), (a(), true, 100));
    let done = "lun-flattened Info lun a: it has all of its data, and needs no snapshot any more";
    assert_eq!(images.noted(), [done]);
    *images.a.progress.lock().unwrap() = Progress::UnderWay { percent: 40 };
    assert_eq!(flattened().unwrap(), (a(), false, 40));
    assert_eq!(images.noted(), NONE);
    images.a.end(&Err(NativeError::NoClone));
    let failed = "flatten-failed Error lun a: the flatten has failed: it is no clone, so there is nothing to flatten";
    assert_eq!(images.noted(), [failed]);
    assert_eq!(images.a.calls(), ["flatten 10s"; 2]);
    images.a.fail(Some("flatten"));
    assert_eq!(flattened().unwrap_err().kind, ProblemKind::Failed);
    images.living.stop();
}

#[test]
fn each_error_has_its_kind_and_names_the_lun() {
    let images = Images::new();
    let daemon = &images.living.daemon;
    let name = || parse("s").unwrap();
    let path = PathBuf::new;
    let (conflict, missing) = (ProblemKind::Conflict, ProblemKind::NotFound);
    let full = SnapshotError::System {
        action: "copy",
        source: io::Error::from_raw_os_error(28),
    };
    #[rustfmt::skip]
    let of_file = [
        (SnapshotError::Missing { name: name() }, missing),
        (full, ProblemKind::StorageFull),
        (SnapshotError::NotAFile, conflict),
        (SnapshotError::NoReflinks, conflict),
        (SnapshotError::OtherFileSystem, conflict),
        (SnapshotError::FileExists { path: path() }, conflict),
        (SnapshotError::AmongSnapshots { path: path(), of: path() }, conflict),
        (SnapshotError::Exists { name: name() }, conflict),
        (SnapshotError::InUse { name: name() }, conflict),
        (SnapshotError::TooMany, conflict),
        (SnapshotError::Replaced, conflict),
    ];
    let file = source(daemon, "f").unwrap();
    for (error, kind) in of_file {
        let problem = file.problem(&error);
        assert_eq!(problem.kind, kind, "{error}");
        assert!(problem.detail.starts_with("lun \"f\" ("), "{problem}");
    }
    #[rustfmt::skip]
    let of_image = [
        (NativeError::Missing { name: name() }, missing),
        (NativeError::Call { action: "copy", reason: String::new() }, ProblemKind::Failed),
        (NativeError::ReadOnly, conflict),
        (NativeError::Exists { name: name() }, conflict),
        (NativeError::InUse { name: name() }, conflict),
        (NativeError::HasClones { name: name(), clones: Vec::new() }, conflict),
        (NativeError::Protected { name: name() }, conflict),
        (NativeError::TooMany, conflict),
        (NativeError::CloneExists { place: String::new() }, conflict),
        (NativeError::NoClone, conflict),
        (NativeError::Unreached(String::new()), conflict),
        (NativeError::Busy { what: "it" }, conflict),
    ];
    let image = source(daemon, "a").unwrap();
    for (error, kind) in of_image {
        let (step, failing) = (daemon.attempts.begin_step(STEP_MAX), error.clone());
        let problem = image
            .ask_image::<()>(&step, move || Err(failing))
            .unwrap_err();
        assert_eq!(problem.kind, kind, "{error}");
        assert!(problem.detail.starts_with("lun \"a\": "), "{problem}");
    }
    images.living.stop();
}

#[test]
fn less_than_a_twentieth_free_is_no_room_and_a_unit_that_is_not_held_says_why() {
    let images = Images::new();
    let file = source(&images.living.daemon, "f").unwrap();
    for (free_bytes, expected) in [(100, Ok(())), (99, Err(ProblemKind::StorageFull))] {
        let room = file.check_room_of(free_bytes, 2000);
        assert_eq!(
            room.map_err(|problem| problem.kind),
            expected,
            "{free_bytes}"
        );
    }
    assert!(
        check_room(&images.living.daemon, "a").is_ok(),
        "a pool says so itself"
    );
    for (why, words) in [
        (
            NotHeld::Refused(MediumFailure::Prevented),
            "did not end within 5 s, or its medium is being moved",
        ),
        (
            NotHeld::Refused(MediumFailure::Gone),
            "lun \"a\" is being removed",
        ),
        (NotHeld::NoAnswer, "or its core does not answer"),
    ] {
        assert!(not_held("a", &why).detail.contains(words), "{why:?}");
    }
    images.living.stop();
}

#[test]
fn an_image_is_taken_over_or_it_is_said_why_not_and_nothing_else_is() {
    let images = Images::new();
    let take = |lun: &str| {
        images
            .living
            .daemon
            .take_over(lun)
            .map_err(|problem| problem.kind)
    };
    for (kept, expected) in [
        (None, Ok(())),
        (Some(ErrorKind::TimedOut), Err(ProblemKind::Unavailable)),
        (Some(ErrorKind::PermissionDenied), Err(ProblemKind::Failed)),
    ] {
        *images.a.kept_by_others.lock().unwrap() = kept;
        assert_eq!(take("a"), expected, "{kept:?}");
        assert_eq!(take("b"), Ok(()));
    }
    assert_eq!(take("f"), Err(ProblemKind::Conflict));
    *images.a.kept_by_others.lock().unwrap() = None;
    images.configure_with("rbd:pool/a\"", "rbd:pool/a?readonly\"");
    assert_eq!(
        take("a"),
        Err(ProblemKind::Conflict),
        "it is only read here"
    );
    images.living.stop();
}
