//! Two texts in, the differences of their models out.

use std::path::Path;

use super::*;
use crate::TargetLuns;

fn model(text: &str) -> Model {
    Model::from_toml(text, Path::new("tarn.toml")).unwrap()
}

const BASE: &str = r#"
lun = [{ id = "a", store = "mem:1M" }, { id = "b", store = "file:b.img?size=2M" }]
user = [{ name = "alice", secret_file = "a.secret" }]
group = [{ id = "lab", initiators = ["192.0.2.0/24", "alice"] }]
[[target]]
name = "iqn.2026-11.example.tarn:t"
portals = ["127.0.0.1:3260", "127.0.0.2:3260"]
luns = [{ lun = 0, id = "a" }, { lun = 1, id = "b", groups = ["lab"] }]
"#;

/// The differences in words, one each, after `from` of the base became `to`.
fn words(from: &str, to: &str) -> Vec<String> {
    assert!(BASE.contains(from), "{from}");
    let (old, new) = (model(BASE), model(&BASE.replacen(from, to, 1)));
    let differences = diff(&old, &new);
    let mut words = Vec::new();
    tell(&mut words, "store", &differences.stores);
    tell(&mut words, "unit", &differences.units);
    for Renamed { old, new } in &differences.renamed {
        words.push(format!("unit {} is now {}", old.position(), new.position()));
    }
    tell(&mut words, "user", &differences.users);
    tell(&mut words, "group", &differences.groups);
    tell(&mut words, "target", &differences.targets);
    tell(&mut words, "portal", &differences.portals);
    tell(&mut words, "lun", &differences.target_luns);
    words.extend(differences.server.iter().map(KeyChange::to_string));
    words.extend(differences.limits.iter().map(KeyChange::to_string));
    words.extend(differences.admin.iter().map(KeyChange::to_string));
    words.extend(differences.confine.iter().map(KeyChange::to_string));
    words
}

trait At {
    fn at(&self) -> usize;
}

macro_rules! at {
    ($($name:ident),*) => { $(impl At for $name { fn at(&self) -> usize { self.position() } })* };
}
at!(StoreIndex, UnitIndex, UserIndex, GroupIndex, TargetIndex);

impl At for InTarget {
    fn at(&self) -> usize {
        self.position
    }
}

fn tell<I: At>(words: &mut Vec<String>, what: &str, list: &[Difference<I>]) {
    for difference in list {
        match difference {
            Difference::Added(new) => words.push(format!("{what} + {}", new.at())),
            Difference::Removed(old) => words.push(format!("{what} - {}", old.at())),
            Difference::Changed { old, new, keys } => {
                let keys: Vec<_> = keys.iter().map(KeyChange::to_string).collect();
                words.push(format!(
                    "{what} {} {}: {}",
                    old.at(),
                    new.at(),
                    keys.join("; ")
                ));
            }
        }
    }
}

/// What no text can say yet.
#[test]
fn units_that_share_a_number_are_found_by_their_groups() {
    let text = BASE.replace(
        "group = [",
        "group = [{ id = \"new\", initiators = [\"alice\"] }, ",
    );
    let (mut old, mut new) = (model(BASE), model(&text));
    let entry = |unit, group: Option<usize>| TargetLun {
        lun: crate::LunNumber(0),
        unit: UnitIndex(unit),
        groups: group.map(GroupIndex).into_iter().collect(),
        read_only: false,
    };
    old.targets[0].luns = TargetLuns::new(vec![entry(0, Some(0)), entry(1, None)]);
    let entries = vec![entry(1, Some(0)), entry(0, None), entry(0, Some(1))];
    new.targets[0].luns = TargetLuns::new(entries);
    let mut words = Vec::new();
    tell(&mut words, "lun", &diff(&old, &new).target_luns);
    let expected = ["lun + 0", "lun 1 1: id: \"b\" -> \"a\""];
    assert_eq!(words, expected);
}

#[test]
fn each_kind_of_difference_is_told_once_with_its_keys() {
    for (from, to, expected) in [
        ("mem:1M", "mem:1024k", &[][..]),
        ("mem:1M", "mem:2M", &["unit 0 0: size: \"1M\" -> \"2M\""]),
        (
            "file:b.img?size=2M",
            "b.img?size=2M&cache=direct&serial=X",
            &[
                "unit 1 1: store: \"file:b.img\" -> \"b.img\"; cache: \"writeback\" -> \"direct\"; serial: none \
                 -> \"X\"",
            ],
        ),
        (
            "lun = [",
            "lun = [{ id = \"c\", store = \"mem:1M\" }, ",
            &["unit + 0"],
        ),
        (
            "a.secret",
            "b.secret",
            &["user 0 0: secret_file: \"a.secret\" -> \"b.secret\""],
        ),
        (
            "user = [",
            "user = [{ name = \"bob\", secret_file = \"b\" }, ",
            &["user + 0"],
        ),
        (
            "192.0.2.0/24",
            "*",
            &[
                "group 0 0: initiators: [\"192.0.2.0/24\", \"user:alice\"] -> [\"*\", \"user:alice\"]",
            ],
        ),
        (
            "tarn:t\"",
            "tarn:T\"\nalias = \"x\"\nauth = [\"alice\"]",
            &["target 0 0: alias: none -> \"x\"; auth: [] -> [\"alice\"]"],
        ),
        ("tarn:t", "tarn:u", &["target - 0", "target + 0"]),
        (", \"127.0.0.2:3260\"", "", &["portal - 1"]),
        (
            "\"127.0.0.1:3260\"",
            "{ bind = \"127.0.0.1\", group = 2 }",
            &["portal 0 0: group: 1 -> 2"],
        ),
        ("{ lun = 0, id = \"a\" }, ", "", &["lun - 0"]),
        (
            "lun = 0, id = \"a\"",
            "lun = 0, id = \"b\", readonly = true",
            &["lun 0 0: id: \"a\" -> \"b\"; readonly: false -> true"],
        ),
        (
            "[[target]]",
            "[server]\ncores = 2\n[limits]\nqueue_depth = 64\nmax_burst_bytes = \"2M\"\n[admin]\n\
             listen = [\"[::1]:1\"]\n[[target]]",
            &[
                "cores: none -> 2",
                "queue_depth: 128 -> 64",
                "max_burst_bytes: \"1M\" -> \"2M\"",
                "listen: [] -> [\"[::1]:1\"]",
            ],
        ),
    ] {
        assert_eq!(words(from, to), expected, "{from} -> {to}");
    }
}

#[test]
fn a_unit_with_another_id_is_renamed_and_its_targets_are_the_same() {
    let renamed = BASE.replace("id = \"b\"", "id = \"z\"");
    let differences = diff(&model(BASE), &model(&renamed));
    let only = Differences {
        renamed: vec![Renamed {
            old: UnitIndex(1),
            new: UnitIndex(1),
        }],
        ..Differences::default()
    };
    assert_eq!(differences, only);
}

#[test]
fn a_unit_is_not_renamed_where_two_could_be_meant_or_it_differs() {
    let two = BASE.replace(
        "{ id = \"a\", store = \"mem:1M\" }",
        "{ id = \"a\", store = \"mem:1M\" }, { id = \"c\", store = \"mem:1M\" }",
    );
    let other = BASE.replace("id = \"a\"", "id = \"x\"");
    assert_eq!(diff(&model(&two), &model(&other)).renamed, []);
    let larger = other.replace("mem:1M", "mem:2M");
    let differences = diff(&model(BASE), &model(&larger));
    assert_eq!(differences.renamed, []);
    assert_eq!(differences.units.len(), 2);
}

#[test]
fn a_new_secret_is_a_change_of_its_user_alone() {
    let model = model(BASE);
    let of_alice = |own, mutual| {
        move |name: &str| match name {
            "alice" => NewSecrets { own, mutual },
            _ => NewSecrets::default(),
        }
    };
    let differences = diff_with(&model, &model, None, of_alice(false, true));
    let Some(Difference::Changed { keys, .. }) = differences.users.first() else {
        panic!("{differences:?}");
    };
    let named: Vec<_> = keys.iter().map(|change| change.key).collect();
    assert_eq!(named, ["mutual secret"]);
    let differences = diff_with(&model, &model, None, of_alice(true, false));
    assert_eq!(
        diff_with(&model, &model, None, |_| NewSecrets::default()),
        Differences::default()
    );
    let [Difference::Changed { keys, .. }] = differences.users.as_slice() else {
        panic!("{differences:?}");
    };
    assert_eq!(keys[0].key, "secret");
}

#[test]
fn equal_stores_of_a_command_line_are_told_apart_by_their_order() {
    let name = crate::IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
    let stores = |count| {
        let stores = vec!["mem:1M".to_owned(); count];
        Model::from_stores(&stores, name.clone(), &[]).unwrap()
    };
    assert!(diff(&stores(2), &stores(2)).is_empty());
    let differences = diff(&stores(2), &stores(3));
    assert_eq!(differences.units, [Difference::Added(UnitIndex(2))]);
}

/// As many units as a large site has, all moved by one: what grows with the square shows.
#[test]
fn ten_thousand_units_are_compared_by_name() {
    let text = |first: usize| {
        let unit = |n: usize| format!("{{ id = \"u{n}\", store = \"file:{n}.img?size=1M\" }},\n");
        let entry = |n: usize| format!("{{ lun = {}, id = \"u{n}\" }},\n", n - first);
        let range = first..first + 10_000;
        let units: String = range.clone().map(unit).collect();
        let luns: String = range.map(entry).collect();
        let name = "iqn.2026-11.example.tarn:t";
        format!("lun = [\n{units}]\n[[target]]\nname = \"{name}\"\nluns = [\n{luns}]\n")
    };
    let differences = diff(&model(&text(0)), &model(&text(1)));
    assert_eq!(differences.units.len(), 2);
    assert_eq!(differences.target_luns.len(), 10_000);
}

#[test]
fn a_disk_of_named_stores_differs_in_its_members() {
    let words = words(
        "lun = [{ id = \"a\", store = \"mem:1M\" }",
        "store = [{ id = \"m\", store = \"mem:1M\" }]\nlun = [{ id = \"a\", store = \"concat:m\" }",
    );
    assert_eq!(
        words,
        [
            "store + 0",
            "unit 0 0: store: \"mem\" -> \"concat:m\"; size: \"1M\" -> none; members: none -> \
             [\"mem:1M?blocksize=512&readonly=false&removable=false\"]; blocksize: 512 -> none",
        ]
    );
}

#[test]
fn keys_of_the_process_wait_for_a_restart_until_they_are_as_they_were() {
    let model = |text: &str| Model::from_toml(text, Path::new("/etc/t.toml")).unwrap();
    let begun = model("[server]\ncores = 2\nlog = \"info\"\n");
    let now = model(
        "[server]\ncores = 4\nlog = \"debug\"\n[limits]\npool_per_core_bytes = \"64M\"\nqueue_depth = 7\n",
    );
    let pending = pending_keys(&begun, &now);
    assert_eq!(pending.len(), 2, "{pending:?}");
    assert!(
        pending[0].starts_with("[server] cores: ")
            && pending[1].starts_with("[limits] pool_per_core_bytes: ")
    );
    assert!(pending_keys(&begun, &begun).is_empty());
}
