//! Prints, as JSON, where a small edit of the sources of some crates makes a bug: `mutate ROOT CRATE...`, where ROOT is
//! the repository. It owns the order of files and modules. What is drawn, built and judged is up to tests/mutants/draw.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the list is what it is for")]

mod enums;
mod finder;
mod names;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::enums::Enums;
use crate::finder::{Found, find};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let root = PathBuf::from(arguments.next().context("mutate ROOT CRATE...")?);
    let crates: Vec<String> = arguments.collect();
    let enums = enums_of(&root.join("crates"))?;
    let mut sites = Vec::new();
    for name in &crates {
        sites.extend(sites_of(&root, name, &enums)?);
    }
    println!("{}", Value::Array(sites));
    Ok(())
}

/// The enumerations of all crates.
fn enums_of(crates: &Path) -> anyhow::Result<Enums> {
    let mut enums = Enums::default();
    let mut directories: Vec<PathBuf> = entries(crates)?;
    directories.sort();
    for directory in directories {
        let name = directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut places = vec![directory.join("src")];
        while let Some(place) = places.pop() {
            if place.is_dir() {
                places.extend(entries(&place)?);
            } else if place.extension().is_some_and(|extension| extension == "rs") {
                enums
                    .add(&name, &read(&place)?)
                    .with_context(|| place.display().to_string())?;
            }
        }
    }
    Ok(enums)
}

fn entries(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    Ok(entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?)
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// The sites of a crate: from its roots from module to module, as the compiler goes.
fn sites_of(root: &Path, name: &str, enums: &Enums) -> anyhow::Result<Vec<Value>> {
    let source = root.join("crates").join(name).join("src");
    let roots = ["lib.rs", "main.rs"].map(|file| source.join(file));
    let mut files: Vec<PathBuf> = roots.into_iter().filter(|path| path.is_file()).collect();
    if files.is_empty() {
        bail!("{} has neither lib.rs nor main.rs", source.display());
    }
    let mut sites = Vec::new();
    while let Some(path) = files.pop() {
        let text = read(&path)?;
        let Found {
            sites: found,
            modules,
        } = find(&text, name, enums).with_context(|| path.display().to_string())?;
        let is_root = path
            .file_name()
            .is_some_and(|file| file == "lib.rs" || file == "main.rs" || file == "mod.rs");
        let below = if is_root {
            path.with_file_name("")
        } else {
            path.with_extension("")
        };
        for module in modules {
            let beside = below.join(format!("{module}.rs"));
            files.push(if beside.is_file() {
                beside
            } else {
                below.join(module).join("mod.rs")
            });
        }
        let file = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .display()
            .to_string();
        for site in found {
            let edit = |edit: &finder::Edit| {
                let (begin, end) = (edit.range.start, edit.range.end);
                json!({"begin": begin, "end": end, "new": edit.new, "put": edit.put})
            };
            let edits: Vec<Value> = site.edits.iter().map(edit).collect();
            sites.push(json!({
                "crate": name, "file": file, "function": site.function, "kind": site.kind, "operator": site.operator,
                "text": site.text, "edits": edits,
            }));
        }
    }
    Ok(sites)
}
