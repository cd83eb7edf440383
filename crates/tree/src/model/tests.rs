//! The tree over a fixed daemon.

use api::edit::{
    Edit, HyperscsiKeys, Keys, LunKeys, NbdKeys, QuotaKeys, StoreKeys, TargetKeys, Thing,
};
use api::spec;

use super::*;
use crate::refusal::Number;
use crate::table;
use crate::testing::{Fixed, IQN, daemon};

/// The place of a path, name by name.
fn place(view: &Arc<dyn View>, path: &str) -> Result<Place, Refusal> {
    let mut place = Place::ROOT;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let Place::Directory(directory) = place else {
            return Err(Refusal::Absent);
        };
        place = lookup(view, &directory, name)?;
    }
    Ok(place)
}

fn text(path: &str) -> String {
    let view = daemon();
    match node(&view, &place(&view, path).unwrap()).unwrap() {
        Node::File(file) => file.text,
        Node::Link(path) => path,
        Node::Directory { .. } => panic!("{path} is a directory"),
    }
}

fn names(view: &Arc<dyn View>, path: &str) -> Result<Vec<String>, Refusal> {
    let Place::Directory(directory) = place(view, path)? else {
        return Err(Refusal::Absent);
    };
    let entries = entries(view, &directory)?;
    Ok(entries.into_iter().map(|(name, _)| name).collect())
}

fn written(path: &str, text: &str) -> Result<Call, Refusal> {
    let view = daemon();
    call(&view, &place(&view, path)?, text)
}

/// All places below one, itself too.
fn below(view: &Arc<dyn View>, directory: &Directory) -> Vec<(String, Place)> {
    let mut all = Vec::new();
    for (name, place) in entries(view, directory).unwrap() {
        if let Place::Directory(inner) = &place {
            all.extend(below(view, inner));
        }
        assert_eq!(lookup(view, directory, &name).unwrap(), place);
        all.push((name, place));
    }
    all
}

#[test]
fn whatever_is_listed_is_found_under_its_name_and_is_there() {
    let view = daemon();
    let all = below(&view, &Directory::Root);
    assert!(all.len() > 60, "{}", all.len());
    for (name, place) in all {
        node(&view, &place).unwrap();
        assert!(place.path().ends_with(&name), "{} {name}", place.path());
        let path = place.path();
        assert_eq!(self::place(&view, &path).unwrap(), place);
    }
}

#[test]
fn values_are_one_line_and_lists_a_line_each() {
    #[rustfmt::skip]
    let cases = [
        ("revision", "42\n"),
        ("config", "# nothing\n"),
        ("findings", "write-cache disk0: each write waits for the disk; take cache=writeback\n"),
        ("last_error", "the last\n"),
        ("luns/disk0/size", "1048576\n"),
        ("luns/disk0/thin", "1\n"),
        ("luns/disk0/cache", ""),
        ("luns/disk0/shown_by", "iqn.2026-11.example.tarn:a 3 ro lab\n"),
        ("luns/disk0/reservations", "type: write-exclusive-all-registrants\nregistered: 2\n"),
        ("luns/disk0/served_by", "hyperscsi rw ABC at eth1\n"),
        ("luns/block:%2Fdev%2Fvg/id", "block:/dev/vg\n"),
        ("targets/iqn.2026-11.example.tarn:a/portals", "[::]:3260 1\n[::]:3260 2 san:3260\n"),
        ("targets/iqn.2026-11.example.tarn:a/views", "0 disk0 rw\n3 block:/dev/vg rw\n"),
        ("targets/iqn.2026-11.example.tarn:a/luns/3", "../../../luns/block:%2Fdev%2Fvg"),
        ("targets/iqn.2026-11.example.tarn:a/sessions/7", "../../../sessions/7"),
        ("sessions/7/luns", "0 disk0 ro\n"),
        ("sessions/7/end", "0\n"),
        ("groups/lab/initiators", "iqn.x:*\n192.0.2.0/24\n"),
        ("users/alice/mutual_name", ""),
        ("luns/disk0/snapshots/a/taken_ms", "5\n"),
        ("luns/disk0/snapshots/a/rollback", "0\n"),
        ("luns/disk0/owner", ""),
        ("stores/part/store", "file:/srv/part.img\n"),
        ("nbd/%2Frun%2Fnbd.sock/place", "/run/nbd.sock\n"),
        ("nbd/%2Frun%2Fnbd.sock/tls", "/etc/server.pem\n/etc/key.pem\n"),
        ("quotas/owner:alice/used", "1G\n"),
        ("quotas/owner:alice/used_bytes", "4096\n"),
        ("quotas/owner:alice/soft", ""),
        ("hyperscsi/ABC at eth1/name", "ABC\n"),
        ("hyperscsi/ABC at eth1/password_file", "/s/abc\n"),
        ("hyperscsi/ABC at eth1/user", ""),
        ("hyperscsi/ABC at eth1/devices", "disk0 crc rw\nblock:/dev/vg encrypt ro\n"),
        ("hyperscsi/ABC at eth1/sessions/7", "../../../sessions/7"),
    ];
    for (path, expected) in cases {
        assert_eq!(text(path), expected, "{path}");
    }
    assert!(text("status").starts_with("version: 0.1.0\npid: 7\n"));
}

#[test]
fn counters_are_sums_of_what_belongs_together() {
    for (path, expected) in [
        ("luns/disk0/stats/reads", "11\n"),
        ("luns/disk0/stats/write_bytes", "90112\n"),
        ("luns/disk0/stats/depth", "2\n"),
        ("luns/block:%2Fdev%2Fvg/stats/others", "300\n"),
        ("sessions/7/stats/reads", "101\n"),
        ("sessions/7/stats/read_errors", "2\n"),
    ] {
        assert_eq!(text(path), expected, "{path}");
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let view = daemon();
    for path in [
        "nothing",
        "luns/disk1",
        "luns/disk0/nothing",
        "luns/disk0/stats/nothing",
        "luns/%64isk0",
        "sessions/8",
        "sessions/07",
        "sessions/+7",
        "sessions/65536",
        "targets/x",
        "targets/iqn.2026-11.example.tarn:a/luns/1",
        "targets/iqn.2026-11.example.tarn:a/sessions/8",
        "groups/x",
        "users/x",
        "hyperscsi/ABC",
        "hyperscsi/ABC at eth1/sessions/8",
        "revision/x",
        "luns/disk0/snapshots/b",
        "luns/disk1/snapshots",
        "stores/x",
        "nbd/x",
        "quotas/x",
    ] {
        let number = place(&view, path).unwrap_err().number();
        assert_eq!(number, Number::NoEntry, "{path}");
    }
}

#[test]
fn a_name_too_long_for_a_file_is_left_out() {
    let luns = names(&daemon(), "luns").unwrap();
    assert_eq!(luns, ["disk0", "block:%2Fdev%2Fvg"]);
}

#[test]
fn a_write_becomes_a_call() {
    let resize = || {
        Call::edit(Edit::Resize {
            lun: "disk0".to_owned(),
            size_bytes: 2 << 20,
        })
    };
    let rename = Call::edit(Edit::Rename {
        lun: "disk0".to_owned(),
        id: "new".to_owned(),
    });
    let alias = |alias: &str| {
        let keys = TargetKeys::of([IQN]).with("alias", alias);
        Call::edit(Edit::Set(Keys::Target(keys)))
    };
    let group = Call::edit(Edit::Put(Thing::Group(spec::Group {
        id: "lab".to_owned(),
        initiators: ["a", "b", "c"].map(str::to_owned).to_vec(),
    })));
    let hyperscsi = Call::edit(Edit::Set(Keys::Hyperscsi(HyperscsiKeys {
        hyperscsi: "ABC at eth1".to_owned(),
        profile: Some("wireless".to_owned()),
        ..HyperscsiKeys::default()
    })));
    let lun = || "disk0".to_owned();
    let target = format!("targets/{IQN}/alias");
    for (path, text, expected) in [
        ("luns/disk0/size", "2097152\n", resize()),
        ("luns/disk0/size", " 2M", resize()),
        ("luns/disk0/id", "new\n", rename),
        (target.as_str(), "the disks\n", alias("the disks")),
        (target.as_str(), "\n", alias("")),
        (target.as_str(), "", alias("")),
        ("groups/lab/initiators", "a\n\nb c\n", group),
        ("hyperscsi/ABC at eth1/profile", "wireless\n", hyperscsi),
        ("luns/disk0/medium", "out\n", Call::Eject { lun: lun() }),
        ("luns/disk0/medium", "in", Call::Load { lun: lun() }),
        ("sessions/7/end", "1\n", Call::End { session: 7 }),
        (
            "luns/disk0/snapshots/a/rollback",
            "1\n",
            Call::RollBack {
                lun: lun(),
                name: "a".to_owned(),
            },
        ),
    ] {
        assert_eq!(written(path, text).unwrap(), expected, "{path} {text:?}");
    }
}

fn assert_sets(cases: &[(&str, &str, Keys)]) {
    for (path, text, expected) in cases {
        let made = written(path, text).unwrap();
        let wanted = Call::edit(Edit::Set(expected.clone()));
        assert_eq!(made, wanted, "{path} {text:?}");
    }
}

#[test]
fn a_write_changes_one_key_of_a_server_of_nbd() {
    let server = || NbdKeys::of(["/run/nbd.sock"]);
    let tls = |certificate: &str, key: &str, ca: &str| {
        let keys = server().with("certificate", certificate);
        Keys::Nbd(keys.with("key", key).with("ca", ca))
    };
    let luns = Keys::Nbd(server().with("luns", vec!["a", "b"]));
    let groups = Keys::Nbd(server().with("groups", Vec::<String>::new()));
    let mode = Keys::Nbd(server().with("mode", "0600"));
    assert_sets(&[
        ("nbd/%2Frun%2Fnbd.sock/luns", "a\nb\n", luns),
        ("nbd/%2Frun%2Fnbd.sock/groups", "", groups),
        ("nbd/%2Frun%2Fnbd.sock/mode", "0600\n", mode),
        ("nbd/%2Frun%2Fnbd.sock/tls", "/c\n/k\n", tls("/c", "/k", "")),
        (
            "nbd/%2Frun%2Fnbd.sock/tls",
            "/c\n/k\n/a\n",
            tls("/c", "/k", "/a"),
        ),
        ("nbd/%2Frun%2Fnbd.sock/tls", "\n", tls("", "", "")),
    ]);
}

#[test]
fn a_write_changes_one_key_of_a_quota_a_store_and_an_owner() {
    let quota = || QuotaKeys::of(["owner:alice"]);
    let soft = |soft: u16| Keys::Quota(quota().with("soft", soft));
    let used = Keys::Quota(quota().with("used", "2G"));
    let provisioned = Keys::Quota(quota().with("provisioned", ""));
    let owner = Keys::Lun(LunKeys::of(["disk0"]).with("owner", "alice"));
    let store = Keys::Store(StoreKeys::of(["part"]).with("store", "mem:1M"));
    assert_sets(&[
        ("quotas/owner:alice/used", "2G\n", used),
        ("quotas/owner:alice/provisioned", "\n", provisioned),
        ("quotas/owner:alice/soft", "80\n", soft(80)),
        ("quotas/owner:alice/soft", "\n", soft(0)),
        ("luns/disk0/owner", "alice\n", owner),
        ("stores/part/store", "mem:1M\n", store),
    ]);
}

#[test]
fn snapshots_alone_are_directories_that_come_and_go() {
    let view = daemon();
    let of = |path| match place(&view, path).unwrap() {
        Place::Directory(directory) => directory,
        other @ (Place::File(..) | Place::Link(..)) => panic!("{other:?}"),
    };
    let (lun, name) = (|| "disk0".to_owned(), || "b".to_owned());
    let snapshots = of("luns/disk0/snapshots");
    let taken = Call::Take {
        lun: lun(),
        name: name(),
    };
    assert_eq!(make(&snapshots, "b").unwrap(), taken);
    let removed = Call::RemoveSnapshot {
        lun: lun(),
        name: name(),
    };
    assert_eq!(remove(&snapshots, "b").unwrap(), removed);
    for path in ["", "luns", "luns/disk0", "luns/disk0/snapshots/a", "quotas"] {
        let refused = [make(&of(path), "b"), remove(&of(path), "b")];
        let numbers = refused.map(|refused| refused.unwrap_err().number());
        assert_eq!(numbers, [Number::NotPermitted; 2], "{path}");
    }
    for (path, is_writable) in [("luns/disk0/snapshots", true), ("luns/disk0", false)] {
        let found = node(&view, &place(&view, path).unwrap()).unwrap();
        assert_eq!(found, Node::Directory { is_writable }, "{path}");
    }
    let empty = names(&view, "luns/block:%2Fdev%2Fvg/snapshots").unwrap();
    assert_eq!(empty, [""; 0]);
}

#[test]
fn a_wrong_value_is_told_without_asking() {
    for (path, text, expected) in [
        ("luns/disk0/size", "big\n", Number::Invalid),
        ("luns/disk0/size", "\n", Number::Invalid),
        ("luns/disk0/size", "0\n", Number::Invalid),
        ("luns/disk0/id", "a\nb\n", Number::Invalid),
        ("luns/disk0/medium", "gone\n", Number::Invalid),
        ("luns/disk0/prevented_by", "\n", Number::Access),
        ("sessions/7/end", "0\n", Number::Invalid),
        ("sessions/7/end", "\n", Number::Invalid),
        ("luns/disk0/store", "mem:2M\n", Number::Access),
        ("revision", "1\n", Number::Access),
        ("luns", "x", Number::Access),
        ("luns/disk1/size", "1M", Number::NoEntry),
        ("luns/disk0/snapshots/a/rollback", "0\n", Number::Invalid),
        ("luns/disk0/snapshots/a/size", "1\n", Number::Access),
        ("luns/disk0/owner", "a\nb\n", Number::Invalid),
        ("nbd/%2Frun%2Fnbd.sock/tls", "/c\n", Number::Invalid),
        ("nbd/%2Frun%2Fnbd.sock/place", "/c\n", Number::Access),
        ("quotas/owner:alice/soft", "100\n", Number::Invalid),
        ("quotas/owner:alice/soft", "many\n", Number::Invalid),
        ("quotas/owner:alice/used_bytes", "1\n", Number::Access),
    ] {
        let number = written(path, text).unwrap_err().number();
        assert_eq!(number, expected, "{path} {text:?}");
    }
}

#[test]
fn without_a_daemon_the_skeleton_and_the_last_problem_are_there() {
    let view: Arc<dyn View> = Arc::new(Fixed { answers: false });
    assert!(names(&view, "").unwrap().contains(&"luns".to_owned()));
    let place = |path| place(&view, path).unwrap();
    let found = node(&view, &place("luns")).unwrap();
    assert_eq!(found, Node::Directory { is_writable: false });
    let Node::File(file) = node(&view, &place("last_error")).unwrap() else {
        panic!("last_error is a file");
    };
    assert_eq!(file.text, "the last\n");
    for path in [
        "luns",
        "targets",
        "sessions",
        "groups",
        "users",
        "stores",
        "nbd",
        "quotas",
        "hyperscsi",
    ] {
        let number = names(&view, path).unwrap_err().number();
        assert_eq!(number, Number::Failed, "{path}");
    }
    assert_eq!(
        node(&view, &place("status")).unwrap_err().number(),
        Number::Failed
    );
}

#[test]
fn the_document_lists_every_file() {
    let document = include_str!("../../../../docs/reference/tree.md");
    let told = table::all().into_iter();
    // Those of sessions are the same again, which the document says in a sentence.
    let told = told.filter(|row| !row.path.starts_with("sessions/ID/stats/"));
    let rows: Vec<String> = told
        .map(|row| {
            let mode = if row.is_writable { "rw" } else { "r" };
            format!("| `{}` | {mode} | {} |", row.path, row.about)
        })
        .collect();
    let missing: Vec<_> = rows.iter().filter(|row| !document.contains(*row)).collect();
    assert!(
        missing.is_empty(),
        "docs/reference/tree.md has not: {missing:#?}"
    );
    let count = document
        .lines()
        .filter(|line| line.starts_with("| `"))
        .count();
    assert_eq!(count, rows.len(), "rows of docs/reference/tree.md");
}
