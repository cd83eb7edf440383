//! Compares the documents that a newcomer reads first with the project.
#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, outside of #[test] functions"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn manifest(path: &str) -> toml::Table {
    fs::read_to_string(project(path)).unwrap().parse().unwrap()
}

/// The crates of the project, by name, with the crates from elsewhere that each uses.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(project("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let manifest = manifest(&format!("crates/{name}/Cargo.toml"));
        // Those of one system stand in tables of their own, under `target`.
        let systems = manifest.get("target").and_then(toml::Value::as_table);
        let tables = systems.iter().flat_map(|systems| systems.values());
        let tables = tables.filter_map(toml::Value::as_table).chain([&manifest]);
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        let names = tables
            .flat_map(|table| sections.iter().map(move |section| table.get(*section)))
            .filter_map(|section| section?.as_table())
            .flat_map(|section| section.keys().cloned());
        uses.insert(name, names.collect());
    }
    let own: Vec<_> = uses.keys().cloned().collect();
    for names in uses.values_mut() {
        names.retain(|name| !own.contains(name));
    }
    uses
}

/// A line for each that is used, none for one that is not, and the right users in it.
#[test]
fn dependencies_md_lists_what_is_used_and_by_whom() {
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (user, names) in uses() {
        for name in names {
            expected.entry(name).or_default().push(user.clone());
        }
    }
    let text = fs::read_to_string(project("DEPENDENCIES.md")).unwrap();
    let listed: BTreeMap<String, Vec<String>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let (name, rest) = line.split_once("` | ").unwrap();
            let users = rest.split(" | ").nth(1).unwrap();
            let mut users: Vec<_> = users.split(", ").map(str::to_owned).collect();
            users.sort();
            (name.to_owned(), users)
        })
        .collect();
    assert_eq!(listed, expected);
}

#[test]
fn links_of_the_front_door_lead_somewhere() {
    for file in [
        "README.md",
        "CONTRIBUTING.md",
        "docs/reference/api.md",
        "docs/reference/configuration.md",
        "docs/guide/stores.md",
        "docs/guide/quotas.md",
        "docs/guide/operating.md",
        "docs/guide/measuring.md",
        "docs/reference/cli.md",
        "docs/guide/initiators.md",
        "docs/guide/migration.md",
    ] {
        let text = fs::read_to_string(project(file)).unwrap();
        let directory = project(file).parent().unwrap().to_owned();
        let targets = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let target = target.split('#').next().unwrap();
            assert!(directory.join(target).exists(), "{file}: {target}");
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Words of small letters and dashes between these marks.
fn words(text: &str, mark: char) -> BTreeSet<&str> {
    let is_kind = |word: &&str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        word.len() > 2 && word.bytes().all(is_plain)
    };
    text.split(mark).filter(is_kind).collect()
}

/// The words in the comment of a field of `api::event`.
fn documented_kinds<'a>(events: &'a str, field: &str) -> BTreeSet<&'a str> {
    let before = events.split(field).next().unwrap();
    let lines = before.lines().rev();
    let comment = lines.take_while(|line| line.trim().starts_with("///"));
    comment.flat_map(|line| words(line, '`')).collect()
}

#[test]
fn the_kinds_of_events_are_documented_as_they_are_emitted() {
    let (events, api) = (
        read("crates/api/src/event.rs"),
        read("docs/reference/api.md"),
    );
    let documented = documented_kinds(&events, "    pub kind: String");
    let emitted = [
        read("crates/daemon/src/events.rs"),
        read("crates/daemon/src/snapshots.rs"),
        read("crates/daemon/src/snapshots/images.rs"),
        read("crates/admin/src/audit.rs"),
        read("crates/daemon/src/state/troubles.rs"),
    ];
    // A file may begin with modules of tests that are other files.
    let emitted = emitted.map(|text| {
        text.split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap()
            .to_owned()
    });
    let mut emitted: BTreeSet<&str> = emitted
        .iter()
        .flat_map(|text| words(text, '"'))
        .filter(|word| word.contains('-'))
        .collect();
    emitted.extend(["config-applied", "administration"]);
    assert_eq!(documented, emitted);
    assert!(
        documented.is_subset(&words(&api, '`')),
        "docs/reference/api.md"
    );
    for mock in ["web/mock/server.mjs", "web/mock/routes.mjs"] {
        for call in read(mock).split(".note(\"").skip(1) {
            let kind = call.split('"').nth(2).unwrap();
            assert!(documented.contains(kind), "{mock}: {kind}");
        }
    }
}

#[test]
fn the_codes_of_findings_are_documented_as_they_are_emitted() {
    let events = read("crates/api/src/event.rs");
    let documented = documented_kinds(&events, "    pub code: String");
    let rules = [
        "document",
        "network",
        "reservations",
        "service",
        "space",
        "stores",
    ];
    let rules = rules.map(|name| read(&format!("crates/daemon/src/doctor/{name}.rs")));
    let start = [
        "serve",
        "expiry",
        "held",
        "state/troubles",
        "state/hyperscsi",
    ];
    let start = start.map(|name| read(&format!("crates/daemon/src/{name}.rs")));
    let rules = rules.iter().chain(&start);
    let emitted: BTreeSet<&str> = rules.flat_map(|text| words(text, '"')).collect();
    for code in &documented {
        assert!(
            emitted.contains(code),
            "{code} is documented, and no rule gives it"
        );
    }
    for fixture in ["web/mock/views.mjs", "crates/tree/src/testing.rs"] {
        for rest in read(fixture).split("code: \"").skip(1) {
            let code = rest.split('"').next().unwrap();
            assert!(documented.contains(code), "{fixture}: {code}");
        }
    }
}

#[test]
fn the_mock_of_the_console_sends_the_policy_of_the_daemon() {
    let guard = read("crates/admin/src/guard.rs");
    let policy = guard
        .split('"')
        .find(|text| text.starts_with("default-src"));
    let lines = policy.unwrap().split("\\\n").map(str::trim_start);
    let policy: String = lines.collect();
    assert!(read("web/mock/server.mjs").contains(&format!("\"{policy}\"")));
}

#[test]
fn a_crate_names_only_crates_above_it() {
    let text = read("ARCHITECTURE.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|line| line.split('|').nth(1));
    let crates = |name: &&str| project(&format!("crates/{name}")).exists();
    let order: Vec<&str> = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(crates)
        .collect();
    let all: BTreeSet<_> = uses().into_keys().collect();
    assert_eq!(
        order
            .iter()
            .map(ToString::to_string)
            .collect::<BTreeSet<_>>(),
        all
    );
    for (place, name) in order.iter().enumerate() {
        let manifest = manifest(&format!("crates/{name}/Cargo.toml"));
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        for other in &order[place + 1..] {
            let names = dependencies.is_some_and(|names| names.contains_key(*other));
            assert!(!names, "{name} names {other}");
        }
    }
}
