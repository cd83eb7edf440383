//! What the documents at the front door say, held against the project.
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
        let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
        let names = sections
            .iter()
            .filter_map(|section| manifest.get(*section)?.as_table())
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
        "docs/API.md",
        "docs/CONFIG.md",
        "docs/BENCH.md",
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
