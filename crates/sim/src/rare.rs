//! Rare states that the sources name (`sometimes!` of the crate `marks`), and how often runs were in them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

/// The crates whose marks some world has to reach.
pub const CRATES: [&str; 3] = ["engine", "front", "store"];

/// How a mark begins in a source.
const MARK: &str = "sometimes!(\"";

/// The names of all marks in the sources of [`CRATES`], in the directory of the crates.
///
/// # Errors
///
/// A source cannot be read, or two marks have one name.
pub fn named(crates: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for name in CRATES {
        read_directory(&crates.join(name).join("src"), &mut names)?;
    }
    Ok(names)
}

fn read_directory(directory: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            read_directory(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            for name in marks_of(&fs::read_to_string(&path)?) {
                if !names.insert(name.to_owned()) {
                    let text = format!("two marks have one name: {name}");
                    return Err(io::Error::other(text));
                }
            }
        }
    }
    Ok(())
}

/// The marks of a source.
fn marks_of(source: &str) -> impl Iterator<Item = &str> {
    let after = source.split(MARK).skip(1);
    after.filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
}

/// How often runs of this process were in each state, and those that they never were in.
pub fn reached(names: &BTreeSet<String>) -> (Vec<(u64, String)>, Vec<String>) {
    let passed: BTreeMap<&str, u64> = marks::passed().into_iter().collect();
    let is_reached = |name: &&String| passed.contains_key(name.as_str());
    let (reached, never): (Vec<&String>, Vec<&String>) = names.iter().partition(is_reached);
    let count = |name: &String| passed.get(name.as_str()).copied().unwrap_or_default();
    let mut counts: Vec<(u64, String)> = reached
        .into_iter()
        .map(|name| (count(name), name.clone()))
        .collect();
    counts.sort();
    (counts, never.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marks_of_the_sources_are_found() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let names = named(&crates).unwrap();
        assert!(names.contains("a request becomes an orphan"), "{names:?}");
        assert!(names.len() > 100, "{}", names.len());
    }

    #[test]
    fn a_mark_that_no_run_passes_is_named() {
        marks::sometimes!("a test of the marks");
        let names = ["a test of the marks", "never reached"];
        let (counts, never) = reached(&names.map(str::to_owned).into());
        assert_eq!(counts, [(1, "a test of the marks".to_owned())]);
        assert_eq!(never, ["never reached"]);
    }
}
