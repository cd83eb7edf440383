//! One text and one edit in, the text afterwards out.

use std::path::Path;

use super::*;
use crate::Model;

const TEXT: &str = r#"# The site.

# Of the demo.
[[lun]]
id = "a"
store = "mem:1M"   # grows

[[lun]]
id = "b"
store = "file:b.img?size=1M&thin"

[[user]]
name = "alice"
secret_file = "alice.secret"

[[group]]
id = "lab"
initiators = [
    "iqn.x:*", # all of x
    "192.0.2.1",
]

# What initiators see.
[[target]]
name = "iqn.2026-11.example.tarn:t"
luns = [
    { lun = 1, id = "a" }, # the first
    { lun = 0, id = "b", groups = ["lab"] },
]

[limits]
queue_depth = 64 # few
"#;

/// A key that the API does not have would be lost with the next edit of its thing.
#[test]
fn the_api_has_every_key_of_the_file() {
    let draft = Draft::parse(include_str!("../../../../examples/tarn.toml")).unwrap();
    let model = Model::from_toml(&draft.to_string(), Path::new("tarn.toml")).unwrap();
    assert_eq!(draft.luns().len(), model.units().len());
    assert_eq!(draft.stores().len(), model.stores.len());
    assert_eq!(draft.targets().len(), model.targets().len());
    assert_eq!(draft.groups().len(), model.groups().len());
    assert_eq!(draft.users().len(), model.users().len());
    assert_eq!(draft.nbd().len(), model.nbd().len());
    assert_eq!(draft.hyperscsi().len(), model.hyperscsi().len());
    assert_eq!(draft.quotas().len(), model.quotas().len());
}

fn draft(text: &str) -> Draft {
    Draft::parse(text).unwrap()
}

/// What the text became: the lines that went and those that came.
fn change(text: &str, edit: impl FnOnce(&mut Draft)) -> (Vec<String>, Vec<String>) {
    let mut draft = draft(text);
    edit(&mut draft);
    let after = draft.to_string();
    if let Err(error) = Model::from_toml(&after, Path::new("after")) {
        panic!("{error}\n{after}");
    }
    let without = |a: &str, b: &str| {
        let b: Vec<_> = b.lines().collect();
        let gone = a.lines().filter(|line| !b.contains(line));
        gone.map(str::to_owned).collect()
    };
    (without(text, &after), without(&after, text))
}

fn lun(id: &str, store: &str) -> spec::Lun {
    spec::Lun {
        id: id.to_owned(),
        store: store.to_owned(),
        ..spec::Lun::default()
    }
}

fn entry(lun: u16, id: &str) -> spec::TargetLun {
    spec::TargetLun {
        lun,
        id: id.to_owned(),
        groups: Vec::new(),
        readonly: false,
    }
}

fn portal(bind: &str, group: Option<u16>) -> spec::Portal {
    spec::Portal {
        bind: bind.to_owned(),
        advertise: None,
        group,
    }
}

const T: &str = "iqn.2026-11.example.tarn:T";

fn lab(initiators: &[&str]) -> spec::Group {
    let initiators = initiators.iter().map(|&one| one.to_owned()).collect();
    let id = "lab".to_owned();
    spec::Group { id, initiators }
}

fn user(name: &str) -> spec::User {
    spec::User {
        name: name.to_owned(),
        secret_file: None,
        secret: None,
        mutual: None,
        initiators: None,
    }
}

fn alice_with_mutual() -> spec::User {
    spec::User {
        mutual: Some(spec::Mutual {
            name: "tarn".to_owned(),
            secret_file: Some("m".to_owned()),
            secret: None,
        }),
        initiators: Some(vec!["iqn.2026-11.example:*".to_owned()]),
        ..user("alice")
    }
}

type Change = fn(&mut Draft);

/// An edit, the lines that go, the lines that come.
#[rustfmt::skip]
const EDITS: &[(Change, &[&str], &[&str])] = &[
    (|d| assert_eq!(d.put_lun(&lun("a", "mem:2M")), Ok(false)), &["store = \"mem:1M\"   # grows"], &["store = \"mem:2M\"   # grows"]),
    (|d| assert_eq!(d.put_lun(&lun("c", "mem:2M")), Ok(true)), &[], &["id = \"c\"", "store = \"mem:2M\""]),
    (|d| d.resize_lun("b", 2 << 20).unwrap(), &["store = \"file:b.img?size=1M&thin\""], &["store = \"file:b.img?size=2M&thin\""]),
    (|d| d.rename_lun("a", "z").unwrap(), &["id = \"a\"", "    { lun = 1, id = \"a\" }, # the first"], &["id = \"z\"", "    { lun = 1, id = \"z\" }, # the first"]),
    (|d| assert_eq!(d.put_target_lun(T, &entry(2, "a")), Ok(true)), &[], &["    { lun = 2, id = \"a\" },"]),
    (|d| assert_eq!(d.put_target_lun(T, &entry(0, "b")), Ok(false)), &["    { lun = 0, id = \"b\", groups = [\"lab\"] },"], &["    { lun = 0, id = \"b\" },"]),
    (|d| assert_eq!(d.put_target_lun(T, &spec::TargetLun { readonly: true, ..entry(1, "a") }), Ok(false)), &["    { lun = 1, id = \"a\" }, # the first"], &["    { lun = 1, id = \"a\", readonly = true }, # the first"]),
    (|d| d.remove_target_lun(T, 1, None).unwrap(), &["    { lun = 1, id = \"a\" }, # the first"], &[]),
    (|d| assert_eq!(d.put_portal(T, &portal("192.0.2.1:1", Some(2))), Ok(true)), &[], &["portals = [\"127.0.0.1:3260\", { bind = \"192.0.2.1:1\", group = 2 }]"]),
    (|d| assert_eq!(d.put_portal(T, &portal("127.0.0.1", Some(1))), Ok(false)), &[], &[]),
    (|d| assert_eq!(d.put_section(&lab(&["IQN.x:*", "alice", "192.0.2.1/32"])), Ok(false)), &[], &["    \"alice\","]),
    (|d| assert_eq!(d.put_section(&alice_with_mutual()), Ok(false)), &[], &["mutual = { name = \"tarn\", secret_file = \"m\" }", "initiators = [\"iqn.2026-11.example:*\"]"]),
    (|d| d.remove_section::<spec::User>("alice").unwrap(), &["[[user]]", "name = \"alice\"", "secret_file = \"alice.secret\""], &[]),
    (|d| d.remove_section::<spec::Target>(T).unwrap(), &["# What initiators see.", "[[target]]", "name = \"iqn.2026-11.example.tarn:t\"", "luns = [", "    { lun = 1, id = \"a\" }, # the first", "    { lun = 0, id = \"b\", groups = [\"lab\"] },"], &[]),
    (|d| { d.remove_target_lun(T, 1, None).unwrap(); d.remove_lun("a").unwrap(); }, &["# Of the demo.", "id = \"a\"", "store = \"mem:1M\"   # grows", "    { lun = 1, id = \"a\" }, # the first"], &[]),
];

#[test]
fn each_edit_changes_its_lines_and_no_others() {
    for (number, &(edit, gone, come)) in EDITS.iter().enumerate() {
        let (was_gone, has_come) = change(TEXT, edit);
        assert_eq!(was_gone, gone, "edit {number}");
        assert_eq!(has_come, come, "edit {number}");
    }
}

#[test]
fn putting_what_is_there_leaves_every_byte() {
    let windows = TEXT.replace('\n', "\r\n");
    for text in [
        TEXT,
        &windows,
        include_str!("../../../../examples/tarn.toml"),
    ] {
        let mut draft = draft(text);
        let model = Model::from_toml(text, Path::new("tarn.toml")).unwrap();
        let specs = model.to_specs();
        for lun in draft.luns().iter().chain(&specs.luns) {
            assert_eq!(draft.put_lun(lun), Ok(false));
        }
        for target in draft.targets().iter().chain(&specs.targets) {
            assert_eq!(draft.put_section(target), Ok(false));
        }
        for group in draft.groups().iter().chain(&specs.groups) {
            assert_eq!(draft.put_section(group), Ok(false));
        }
        for user in draft.users().iter().chain(&specs.users) {
            assert_eq!(draft.put_section(user), Ok(false));
        }
        assert_eq!(draft.to_string(), text);
    }
}

type Attempt = fn(&mut Draft) -> Result<(), EditError>;

#[rustfmt::skip]
const REFUSED: &[(Attempt, &str)] = &[
    (|d| d.remove_lun("a"), "lun \"a\" is still used by target iqn.2026-11.example.tarn:t; remove it there first"),
    (|d| d.remove_lun("x"), "there is no lun \"x\"; check the name, or add it first"),
    (|d| d.rename_lun("a", "b"), "lun \"b\" exists already; choose another name"),
    (|d| d.resize_lun("a", 512), "lun \"a\" has 1048576 bytes and cannot shrink to 512; make a new lun and copy what is needed"),
    (|d| d.remove_section::<spec::Group>("lab"), "group \"lab\" is still used by lun 0 of target iqn.2026-11.example.tarn:t; remove it there first"),
    (|d| d.remove_portal(T, "127.0.0.1:3260"), "portal 127.0.0.1:3260 is the only one of target iqn.2026-11.example.tarn:T; add another first, or remove the target"),
    (|d| d.remove_portal(T, "127.0.0.1:1"), "target iqn.2026-11.example.tarn:T has no portal 127.0.0.1:1; see tarn target show iqn.2026-11.example.tarn:T"),
    (|d| d.remove_target_lun(T, 9, None), "target iqn.2026-11.example.tarn:T has no LUN 9; see tarn target show iqn.2026-11.example.tarn:T"),
    (|d| d.put_target_lun(T, &entry(0, "a")).map(drop), "target iqn.2026-11.example.tarn:T shows another unit as LUN 0; unmap that first (tarn target unmap iqn.2026-11.example.tarn:T 0), take another number, or give each unit groups of its own"),
    (|d| d.put_target_lun("iqn.x", &entry(0, "a")).map(drop), "there is no target \"iqn.x\"; check the name, or add it first"),
    (|d| d.put_lun(&lun("a", "mem:x")).map(drop), "size \"x\": no number; write it as 512, 64k, 1M, 2G or 1T"),
    (|d| d.put_section(&lab(&[])).map(drop), "the list is empty; name an initiator, or write \"*\" for all"),
    (|d| d.put_section(&user("bob")).map(drop), "user \"bob\" has no secret; give one, or the file that holds it"),
];

#[test]
fn what_cannot_be_done_says_why_and_changes_nothing() {
    for &(edit, expected) in REFUSED {
        let mut draft = draft(TEXT);
        assert_eq!(edit(&mut draft).unwrap_err().to_string(), expected);
        assert_eq!(draft.to_string(), TEXT, "{expected}");
    }
}

/// The same configuration with its sections as tables in brackets, and with the views of the target as sections.
const FORMS: [&str; 2] = [
    r#"lun = [{ id = "a", store = "mem:1M" }, { id = "b", store = "file:b.img?size=1M&thin" }]
user = [{ name = "alice", secret_file = "alice.secret" }]
group = [{ id = "lab", initiators = ["iqn.x:*", "192.0.2.1"] }]
target = [
  { luns = [{ lun = 1, id = "a" }, { lun = 0, id = "b", groups = ["lab"] }], name = "iqn.2026-11.example.tarn:t" },
]
limits = { queue_depth = 64 }
"#,
    r#"limits.queue_depth = 64
[[lun]]
store = "mem:1M"
id = 'a'
[[group]]
id = "lab"
initiators = ["iqn.x:*",
  "192.0.2.1"]
[[lun]]
id = "b"
store = "file:b.img?size=1M&thin"
[[target]]
name = "iqn.2026-11.example.tarn:t"
[[target.luns]]
lun = 1
id = "a"
[[target.luns]]
lun = 0
id = "b"
groups = ["lab"]
[[user]]
name = "alice"
secret_file = "alice.secret"
"#,
];

#[test]
fn an_edit_means_the_same_however_the_document_is_written() {
    let meaning = |draft: &Draft| {
        let text = draft.to_string();
        let model = Model::from_toml(&text, Path::new("tarn.toml"));
        let model = model.unwrap_or_else(|error| panic!("{error}\n{text}"));
        format!("{:#?}\n{:?}", model.to_specs(), model.limits())
    };
    for form in FORMS {
        assert_eq!(meaning(&draft(form)), meaning(&draft(TEXT)), "{form}");
        for (number, &(edit, ..)) in EDITS.iter().enumerate() {
            let (mut one, mut other) = (draft(TEXT), draft(form));
            edit(&mut one);
            edit(&mut other);
            assert_eq!(meaning(&other), meaning(&one), "edit {number}\n{other}");
        }
        for &(edit, expected) in REFUSED {
            let mut draft = draft(form);
            assert_eq!(edit(&mut draft).unwrap_err().to_string(), expected);
            assert_eq!(draft.to_string(), form, "{expected}");
        }
    }
}

#[test]
fn a_named_store_is_put_and_held_by_the_lun_that_has_it() {
    let store = |id: &str, store: &str| spec::Store {
        id: id.to_owned(),
        store: store.to_owned(),
    };
    let (gone, came) = change(TEXT, |draft| {
        assert_eq!(draft.put_section(&store("m", "mem:1M")), Ok(true));
        assert_eq!(draft.put_section(&store("m", "mem:2M")), Ok(false));
        assert_eq!(draft.put_lun(&lun("wide", "concat:m")), Ok(true));
        assert_eq!(draft.stores(), [store("m", "mem:2M")]);
        assert_eq!(
            draft
                .remove_section::<spec::Store>("m")
                .unwrap_err()
                .to_string(),
            "store \"m\" is still used by lun wide; remove it there first"
        );
    });
    assert!(gone.is_empty(), "{gone:?}");
    assert!(came.contains(&"store = \"mem:2M\"".to_owned()), "{came:?}");
    let mut draft = draft(TEXT);
    draft.put_section(&store("m", "mem:1M")).unwrap();
    draft.remove_section::<spec::Store>("m").unwrap();
    assert_eq!(draft.stores(), []);
    assert!(draft.remove_section::<spec::Store>("m").is_err());
    assert!(draft.put_section(&store("m", "mem:x")).is_err());
}

#[test]
fn a_user_is_held_by_targets_groups_and_discovery() {
    let text = TEXT
        .replace("\"192.0.2.1\"", "\"alice\"")
        .replace("luns = [", "auth = [\"alice\"]\nluns = [")
        + "[server]\ndiscovery_auth = [\"alice\"]\n";
    assert_eq!(
        draft(&text)
            .remove_section::<spec::User>("alice")
            .unwrap_err()
            .to_string(),
        "user \"alice\" is still used by auth of target iqn.2026-11.example.tarn:t, group lab, discovery_auth; \
         remove it there first"
    );
}

#[test]
fn a_headline_outlives_the_table_below_it() {
    let mut draft = draft(TEXT);
    draft.remove_target_lun(T, 1, None).unwrap();
    draft.remove_lun("a").unwrap();
    assert!(
        draft
            .to_string()
            .starts_with("# The site.\n\n[[lun]]\nid = \"b\"\n")
    );

    let mut last = Draft::parse("# Nobody.\n\n[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n").unwrap();
    last.remove_lun("a").unwrap();
    assert_eq!(last.to_string(), "# Nobody.\n\n");
}

#[test]
fn servers_of_nbd_follow_renames_and_hold_what_they_use() {
    let text = "lun = [{ id = \"a\", store = \"mem:1M\" }]\n\
                group = [{ id = \"g\", initiators = [\"192.0.2.1\"] }]\n\
                [[nbd]]\nbind = \"127.0.0.1:1\"\nluns = [\"a\"] # one\ngroups = [\"g\"]\n";
    let mut draft = Draft::parse(text).unwrap();
    for error in [
        draft.remove_lun("a").unwrap_err(),
        draft.remove_section::<spec::Group>("g").unwrap_err(),
    ] {
        assert!(error.to_string().contains("nbd 127.0.0.1:1"), "{error}");
    }
    draft.rename_lun("a", "b").unwrap();
    assert!(
        draft.to_string().contains("luns = [\"b\"] # one"),
        "{draft}"
    );
}

#[test]
fn groups_of_hyperscsi_follow_renames_and_hold_what_they_use() {
    for text in [
        "lun = [{ id = \"a\", store = \"mem:1M\" }]\n[[hyperscsi.group]]\nname = \"G\"\nudp = \"127.0.0.1\"\n\
         open = true\n[[hyperscsi.group.device]]\nid = \"a\" # one\n",
        "lun = [{ id = \"a\", store = \"mem:1M\" }]\nhyperscsi = { group = [{ name = \"G\", udp = \"127.0.0.1\", \
         open = true, device = [{ id = \"a\" }] }] } # one\n",
    ] {
        let mut draft = Draft::parse(text).unwrap();
        let error = draft.remove_lun("a").unwrap_err();
        assert!(error.to_string().contains("hyperscsi.group G"), "{error}");
        draft.rename_lun("a", "b").unwrap();
        assert_eq!(draft.to_string(), text.replace("\"a\"", "\"b\""));
    }
}

/// Each group has a disk of its own as LUN 0, and all others a third one.
const SHARED: &str = r#"lun = [
    { id = "a", store = "mem:1M" }, { id = "b", store = "mem:1M" }, { id = "c", store = "mem:1M" },
]
group = [
    { id = "g1", initiators = ["iqn.x"] }, { id = "g2", initiators = ["iqn.y"] },
    { id = "g3", initiators = ["iqn.z"] },
]
[[target]]
name = "iqn.2026-11.example.tarn:t"
luns = [
    { lun = 0, id = "a", groups = ["g1", "g3"] }, # the first
    { lun = 0, id = "b", groups = ["g2"] }, # the second
    { lun = 0, id = "c" }, # of all others
]
"#;

fn views(draft: &Draft) -> Vec<(String, String)> {
    let luns = draft.targets().remove(0).luns.into_iter();
    luns.map(|lun| (lun.id, lun.groups.join(" "))).collect()
}

#[test]
fn of_units_that_share_a_number_one_is_taken_from_the_group_that_is_named() {
    for (group, left) in [
        (Some("g2"), Ok(&[("a", "g1 g3"), ("c", "")][..])),
        (Some("g1"), Ok(&[("a", "g3"), ("b", "g2"), ("c", "")])),
        (Some("*"), Ok(&[("a", "g1 g3"), ("b", "g2")])),
        (Some("g4"), Err("has no LUN 0 for group g4")),
        (
            None,
            Err("several units as LUN 0; say whose with --group: g1, g2, \"*\""),
        ),
    ] {
        let mut draft = draft(SHARED);
        let got = draft.remove_target_lun(T, 0, group);
        match (got, left) {
            (Ok(()), Ok(left)) => {
                let views = views(&draft);
                let views = views
                    .iter()
                    .map(|(id, groups)| (id.as_str(), groups.as_str()));
                assert_eq!(views.collect::<Vec<_>>(), left, "{group:?}");
                Model::from_toml(&draft.to_string(), Path::new("t")).unwrap();
            }
            (Err(error), Err(words)) => {
                let text = error.to_string();
                assert!(text.contains(words), "{text}");
                assert_eq!(draft.to_string(), SHARED);
            }
            (got, _) => panic!("{group:?}: {got:?}"),
        }
    }
    // The last group takes the entry along: without groups it would be everyone's.
    let mut draft = draft(SHARED);
    draft.remove_target_lun(T, 0, Some("g1")).unwrap();
    draft.remove_target_lun(T, 0, Some("g3")).unwrap();
    assert_eq!(views(&draft).len(), 2);
    assert!(!draft.to_string().contains("# the first"));
}

#[test]
fn a_unit_is_added_beside_others_of_its_number_only_for_groups_of_its_own() {
    let of = |id: &str, groups: &[&str]| spec::TargetLun {
        groups: groups.iter().map(|&one| one.to_owned()).collect(),
        ..entry(0, id)
    };
    let two = SHARED.replace("    { lun = 0, id = \"c\" }, # of all others\n", "");
    for (wanted, taken) in [
        (of("c", &["g1"]), true),
        (of("c", &["g2", "g3"]), true),
        (of("c", &[]), true),
        (of("b", &["g3"]), false),
    ] {
        let mut draft = draft(&two);
        let got = draft.put_target_lun(T, &wanted);
        assert_eq!(got.is_err(), taken, "{wanted:?}: {got:?}");
    }
    let mut three = draft(&two.replace("[\"g1\", \"g3\"]", "[\"g1\"]"));
    assert_eq!(three.put_target_lun(T, &of("c", &["g3"])), Ok(true));
    assert_eq!(views(&three).len(), 3);
    // One whose groups change is the same entry, with its comment.
    assert_eq!(three.put_target_lun(T, &of("b", &["g2", "g3"])), Ok(false));
    assert!(
        three
            .to_string()
            .contains("[\"g2\", \"g3\"] }, # the second"),
        "{three}"
    );

    let mut draft = draft(SHARED);
    let mut target = draft.targets().remove(0);
    target.luns.reverse();
    target.luns[1].id = "a".to_owned();
    target.luns[2].id = "b".to_owned();
    draft.put_section(&target).unwrap();
    let text = draft.to_string();
    assert!(
        text.contains("id = \"b\", groups = [\"g1\", \"g3\"] }, # the first"),
        "{text}"
    );
    assert!(
        text.contains("id = \"a\", groups = [\"g2\"] }, # the second"),
        "{text}"
    );
}

#[test]
fn edits_of_one_draft_find_what_the_edits_before_have_left() {
    use api::edit::{Edit, Name, Thing};
    let unit = |n: usize| format!("[[lun]]\nid = \"u{n}\"\nstore = \"mem:1M\"\n");
    let mut apart: String = (0..6).map(unit).collect();
    let mut together = draft(&apart);
    let remove = |id: &str| Edit::Remove(Name::Lun(id.to_owned()));
    let rename = |lun: &str, id: &str| Edit::Rename {
        lun: lun.to_owned(),
        id: id.to_owned(),
    };
    let edits = [
        remove("u0"),
        rename("u5", "x"),
        Edit::Add(Thing::Lun(lun("u0", "mem:2M"))),
        remove("u3"),
        Edit::Put(Thing::Lun(lun("x", "mem:3M"))),
        Edit::Put(Thing::Lun(lun("u0", "mem:4M"))),
        remove("u4"),
        rename("x", "u5"),
        remove("u5"),
    ];
    for edit in &edits {
        together.make(edit).unwrap();
        let mut one = draft(&apart);
        one.make(edit).unwrap();
        apart = one.to_string();
        assert_eq!(together.to_string(), apart, "{edit:?}");
    }
    assert!(together.make(&remove("u5")).is_err());
}
