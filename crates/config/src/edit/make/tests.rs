//! Edits as they come from the API, on a text with comments, an order of its own and few keys.

use std::path::Path;

use api::edit::{LunKeys, TargetKeys, TargetPortal};

use super::*;
use crate::Model;

/// The order is not that of the documentation, and hardly a default is written.
const TEXT: &str = r#"# The site.
[limits]
queue_depth = 64 # few

# What initiators see.
[[target]] # the one
luns = [
    # the boot disk
    { lun = 1, id = "a" }, # the first
    { lun = 3, groups = ["lab"], id = "b" },
]
name = "iqn.2026-11.example.tarn:t"   # for good

# Who works here.
[[group]]
initiators = ["iqn.x:*"] # all of x
id = "lab"

# Disks.
[[lun]]
store = "mem:1M"   # grows
id = "a" # the demo

# The second.
[[lun]]
id = "b"
store = "file:b.img?size=1M&thin"

[[user]]
name = "alice" # the boss
secret_file = "alice.secret"
"#;

const T: &str = "iqn.2026-11.example.tarn:T";

fn text(text: &str) -> String {
    text.to_owned()
}

fn made(edits: &[Edit]) -> Result<String, EditError> {
    let mut draft = Draft::parse(TEXT).unwrap();
    for edit in edits {
        draft.make(edit)?;
    }
    let after = draft.to_string();
    if let Err(error) = Model::from_toml(&after, Path::new("after")) {
        panic!("{error}\n{after}");
    }
    Ok(after)
}

fn view(lun: Option<u16>, id: &str) -> View {
    View {
        target: text(T),
        lun,
        id: text(id),
        groups: Vec::new(),
        readonly: false,
    }
}

fn group(add: &[&str], remove: &[&str]) -> Edit {
    Edit::Set(Keys::Group(GroupKeys {
        id: text("lab"),
        initiators: None,
        add: add.iter().map(|&one| text(one)).collect(),
        remove: remove.iter().map(|&one| text(one)).collect(),
    }))
}

fn user() -> UserKeys {
    UserKeys {
        name: text("alice"),
        ..UserKeys::default()
    }
}

fn target() -> TargetKeys {
    TargetKeys::of([T])
}

fn lun(id: &str) -> spec::Lun {
    spec::Lun {
        id: text(id),
        store: text("mem:1M"),
        ..spec::Lun::default()
    }
}

/// Edits, the lines that go with them, and the lines that come.
type Case = (Vec<Edit>, &'static [&'static str], &'static [&'static str]);

/// What went and what came is just that, and what is left is in its order.
fn check_cases(cases: Vec<Case>) {
    for (number, (edits, gone, come)) in cases.into_iter().enumerate() {
        let after = made(&edits).unwrap();
        let without = |a: &str, b: &str| -> Vec<String> {
            let there: Vec<_> = b.lines().collect();
            let gone = a.lines().filter(|line| !there.contains(line));
            gone.map(str::to_owned).collect()
        };
        assert_eq!(without(TEXT, &after), gone, "what went with edit {number}");
        // A line that was there once more (`store = "mem:1M"`) has another comment.
        assert_eq!(without(&after, TEXT), come, "what came with edit {number}");
        let kept = |text: &str| -> Vec<String> {
            let is_kept = |line: &&str| !gone.contains(line) && !come.contains(line);
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.filter(is_kept).map(str::to_owned).collect()
        };
        let (before, now) = (kept(TEXT), kept(&after));
        // Headings (`[[lun]]`) stand more than once, so one of the two has the other within it.
        let is_within = |a: &[String], b: &[String]| {
            let mut rest = b.iter();
            a.iter().all(|line| rest.any(|other| other == line))
        };
        assert!(
            is_within(&before, &now) || is_within(&now, &before),
            "the order after edit {number}:\n{after}"
        );
    }
}

#[test]
fn comments_order_and_unwritten_defaults_outlive_edits_of_units() {
    check_cases(vec![
        (
            vec![Edit::Resize {
                lun: text("a"),
                size_bytes: 2 << 20,
            }],
            &["store = \"mem:1M\"   # grows"],
            &["store = \"mem:2M\"   # grows"],
        ),
        (
            vec![Edit::Rename {
                lun: text("a"),
                id: text("z"),
            }],
            &[
                "    { lun = 1, id = \"a\" }, # the first",
                "id = \"a\" # the demo",
            ],
            &[
                "    { lun = 1, id = \"z\" }, # the first",
                "id = \"z\" # the demo",
            ],
        ),
        (
            vec![Edit::Add(Thing::Lun(lun("c")))],
            &[],
            &["id = \"c\"", "store = \"mem:1M\""],
        ),
        (
            vec![Edit::Set(Keys::Lun(LunKeys::of(["a"]).with("serial", "S")))],
            &[],
            &["serial = \"S\""],
        ),
        (
            vec![
                Edit::Hide { lun: text("a") },
                Edit::Remove(Name::Lun(text("a"))),
            ],
            &[
                "    # the boot disk",
                "    { lun = 1, id = \"a\" }, # the first",
                "# Disks.",
                "store = \"mem:1M\"   # grows",
                "id = \"a\" # the demo",
            ],
            &[],
        ),
    ]);
}

#[test]
fn comments_order_and_unwritten_defaults_outlive_edits_of_targets() {
    let alias = |alias: &str| target().with("alias", alias);
    let portal = TargetPortal {
        target: text(T),
        portal: spec::Portal {
            bind: text("192.0.2.1:1"),
            advertise: None,
            group: None,
        },
    };
    // As the console sends it: what the API shows, with defaults that the file does not have.
    let whole = serde_json::json!({
        "name": T,
        "alias": "",
        "portals": [{ "bind": "127.0.0.1:3260", "group": 1 }],
        "auth": [],
        "luns": [{ "lun": 1, "id": "a" }, { "lun": 3, "id": "b", "groups": ["lab"], "readonly": true }],
    });
    let whole: TargetKeys = serde_json::from_value(whole).unwrap();
    check_cases(vec![
        (
            vec![Edit::Set(Keys::Target(alias("the disks")))],
            &[],
            &["alias = \"the disks\""],
        ),
        (vec![Edit::Set(Keys::Target(alias("")))], &[], &[]),
        (
            vec![Edit::Set(Keys::Target(whole))],
            &["    { lun = 3, groups = [\"lab\"], id = \"b\" },"],
            &["    { lun = 3, groups = [\"lab\"], id = \"b\", readonly = true },"],
        ),
        (
            vec![Edit::Add(Thing::Portal(portal))],
            &[],
            &["portals = [\"127.0.0.1:3260\", \"192.0.2.1:1\"]"],
        ),
    ]);
}

#[test]
fn comments_order_and_unwritten_defaults_outlive_edits_of_views() {
    check_cases(vec![
        (
            vec![Edit::Add(Thing::View(view(None, "a")))],
            &[],
            &["    { lun = 0, id = \"a\" },"],
        ),
        (
            vec![
                Edit::Add(Thing::View(view(None, "a"))),
                Edit::Add(Thing::View(view(None, "b"))),
            ],
            &[],
            &[
                "    { lun = 0, id = \"a\" },",
                "    { lun = 2, id = \"b\" },",
            ],
        ),
        (
            vec![Edit::Put(Thing::View(view(Some(3), "b")))],
            &["    { lun = 3, groups = [\"lab\"], id = \"b\" },"],
            &["    { lun = 3, id = \"b\" },"],
        ),
        (
            vec![Edit::Remove(Name::View {
                target: text(T),
                lun: 3,
                group: None,
            })],
            &["    { lun = 3, groups = [\"lab\"], id = \"b\" },"],
            &[],
        ),
    ]);
}

#[test]
fn comments_order_and_unwritten_defaults_outlive_edits_of_groups_and_users() {
    let mutual = spec::Mutual {
        name: text("tarn"),
        secret_file: Some(text("m")),
        secret: None,
    };
    check_cases(vec![
        (
            vec![group(&["alice", "iqn.x:*"], &["iqn.y"])],
            &["initiators = [\"iqn.x:*\"] # all of x"],
            &["initiators = [\"iqn.x:*\", \"alice\"] # all of x"],
        ),
        // Entries are compared by what they mean.
        (
            vec![
                group(&["iqn.X:*", "iqn.y@10.0.0.1"], &[]),
                group(&["user:alice"], &["IQN.Y@10.0.0.1/32"]),
                group(&[], &["alice"]),
            ],
            &[],
            &[],
        ),
        (
            vec![Edit::Set(Keys::User(UserKeys {
                mutual: Some(mutual),
                ..user()
            }))],
            &[],
            &["mutual = { name = \"tarn\", secret_file = \"m\" }"],
        ),
        (
            vec![Edit::Set(Keys::User(UserKeys {
                no_mutual: true,
                ..user()
            }))],
            &[],
            &[],
        ),
        (
            vec![Edit::Remove(Name::User(text("alice")))],
            &[
                "[[user]]",
                "name = \"alice\" # the boss",
                "secret_file = \"alice.secret\"",
            ],
            &[],
        ),
    ]);
}

#[test]
fn what_cannot_be_made_says_why() {
    let cases: [(Edit, &str); 8] = [
        (
            Edit::Add(Thing::Lun(lun("a"))),
            "lun \"a\" exists already; choose another name",
        ),
        (
            Edit::Set(Keys::Lun(LunKeys::of(["x"]))),
            "there is no lun \"x\"; check the name, or add it first",
        ),
        (
            Edit::Add(Thing::View(view(Some(1), "b"))),
            "target iqn.2026-11.example.tarn:T shows another unit as LUN 1; unmap that first (tarn target unmap \
             iqn.2026-11.example.tarn:T 1), take another number, or give each unit groups of its own",
        ),
        (
            Edit::Remove(Name::Lun(text("a"))),
            "lun \"a\" is still used by target iqn.2026-11.example.tarn:t; remove it there first",
        ),
        (
            Edit::Hide { lun: text("x") },
            "there is no lun \"x\"; check the name, or add it first",
        ),
        (
            Edit::Set(Keys::User(UserKeys {
                name: text("bob"),
                ..user()
            })),
            "there is no user \"bob\"; check the name, or add it first",
        ),
        (
            group(&[], &["iqn.x:*"]),
            "the list is empty; name an initiator, or write \"*\" for all",
        ),
        (
            Edit::Set(Keys::Target(TargetKeys::of(["iqn.x"]))),
            "there is no target \"iqn.x\"; check the name, or add it first",
        ),
    ];
    for (edit, expected) in cases {
        assert_eq!(made(&[edit]).unwrap_err().to_string(), expected);
    }
}

#[test]
fn only_what_is_made_counts_as_new() {
    let mut draft = Draft::parse(TEXT).unwrap();
    assert_eq!(draft.make(&Edit::Put(Thing::Lun(lun("c")))), Ok(true));
    assert_eq!(draft.make(&Edit::Put(Thing::Lun(lun("c")))), Ok(false));
    assert_eq!(
        draft.make(&Edit::Add(Thing::View(view(None, "c")))),
        Ok(true)
    );
    assert_eq!(draft.make(&Edit::Hide { lun: text("c") }), Ok(false));
}

#[test]
fn a_full_target_has_no_free_number() {
    let luns = (0..=LunNumber::MAX).map(|lun| format!("{{ lun = {lun}, id = \"a\" }}"));
    let luns: Vec<_> = luns.collect();
    let document = format!(
        "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n[[target]]\nname = {T:?}\nluns = [{}]\n",
        luns.join(", ")
    );
    let mut draft = Draft::parse(&document).unwrap();
    let error = draft
        .make(&Edit::Add(Thing::View(view(None, "a"))))
        .unwrap_err();
    assert!(matches!(error, EditError::NoFreeLun { .. }), "{error}");
}
