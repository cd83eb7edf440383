//! Places on this machine where the data of units may be, for those who add a disk and do not know them by heart.
//!
//! Directories and devices are looked at on threads of their own that are left behind where a file system does not
//! answer: then it is missing in the answer. So is what this process may not read, as a confined one may not read
//! `/sys`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use api::view::{BlockDevice, Places};
use config::Model;

use super::attempts::Patience;
use super::daemon::Daemon;

/// Directories in an answer; further ones are left out.
const DIRECTORIES_MAX: usize = 200;

/// Files of discs in an answer; further ones are left out.
const DISCS_MAX: usize = 1000;

/// Devices in an answer; further ones are left out.
const DEVICES_MAX: usize = 200;

/// Entries of a directory that are looked at.
const ENTRIES_MAX: usize = 4096;

/// Where the kernel lists its block devices.
const BLOCK: &str = "/sys/class/block";

/// Bytes of the unit in which the kernel gives sizes of devices.
const SECTOR_BYTES: u64 = 512;

/// What a root is, or a path of a unit.
enum Node {
    Directory(Vec<PathBuf>),
    Device,
    Other,
}

/// A directory with those in it, a device, or something else. May never return.
fn look(path: &Path) -> Node {
    let Ok(metadata) = fs::metadata(path) else {
        return Node::Other;
    };
    if metadata.file_type().is_block_device() {
        return Node::Device;
    }
    if !metadata.is_dir() {
        return Node::Other;
    }
    let entries = fs::read_dir(path).into_iter().flatten().take(ENTRIES_MAX);
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let is_hidden = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
    let mut below: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| is_directory(entry) && !is_hidden(entry))
        .map(|entry| entry.path())
        .collect();
    below.sort();
    Node::Directory(below)
}

/// The files of discs in a directory. May never return.
fn discs(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let is_disc = |path: &PathBuf| {
        let is_iso = path
            .extension()
            .is_some_and(|it| it.eq_ignore_ascii_case("iso"));
        is_iso && fs::metadata(path).is_ok_and(|found| found.is_file())
    };
    let paths = entries
        .take(ENTRIES_MAX)
        .flatten()
        .map(|entry| entry.path());
    let mut found: Vec<_> = paths.filter(is_disc).collect();
    found.sort();
    found
}

/// The disks and volumes of the kernel with their sizes; those without a medium are left out.
fn devices(block: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(block).into_iter().flatten().flatten();
    let sized = entries.filter_map(|entry| {
        let sectors = fs::read_to_string(entry.path().join("size")).ok()?;
        let bytes = sectors
            .trim()
            .parse::<u64>()
            .ok()?
            .checked_mul(SECTOR_BYTES)?;
        // The kernel writes `!` where a name has a slash.
        let name = entry.file_name().to_str()?.replace('!', "/");
        (bytes > 0 && !name.starts_with("ram")).then(|| (Path::new("/dev").join(name), bytes))
    });
    let mut all: Vec<_> = sized.take(ENTRIES_MAX).collect();
    all.sort();
    all
}

/// The files of discs beside those that are in drives.
fn discs_beside(
    model: &Model,
    patience: &Patience<'_>,
    is_within: impl Fn(&Path) -> bool,
) -> Vec<PathBuf> {
    let drives = model.units().iter().filter(|unit| !unit.store.is_disk());
    let directories: BTreeSet<PathBuf> = drives
        .filter_map(|unit| Some(unit.store.at.node()?.0.parent()?.to_owned()))
        .filter(|directory| is_within(directory))
        .collect();
    let found = directories.iter().take(DIRECTORIES_MAX);
    let found = found.flat_map(|directory| {
        let path = directory.clone();
        let asked = patience.ask(directory, move || discs(&path));
        asked.unwrap_or_default()
    });
    found.take(DISCS_MAX).collect()
}

/// All of them.
pub(super) fn places(daemon: &Daemon) -> Places {
    let in_force = daemon.in_force();
    let model = &in_force.running.model;
    let mut used: BTreeMap<PathBuf, String> = BTreeMap::new();
    for unit in model.units() {
        for (store, _) in unit.parts() {
            if let Some((path, _)) = store.at.node() {
                used.insert(path.to_owned(), unit.to_string());
            }
        }
    }
    let roots = model.confine().roots.as_ref();
    let patience = daemon.attempts.begin_look();
    let starts: BTreeSet<PathBuf> = match roots {
        Some(roots) => roots.iter().map(|root| root.path.clone()).collect(),
        None => used
            .keys()
            .filter_map(|path| Some(path.parent()?.to_owned()))
            .collect(),
    };
    let mut directories = BTreeSet::new();
    let mut found: BTreeMap<PathBuf, Option<u64>> = BTreeMap::new();
    for start in starts.iter().take(DIRECTORIES_MAX) {
        // Each further question would leave a thread behind.
        if patience.is_over() || directories.len() >= DIRECTORIES_MAX {
            break;
        }
        // Files of devices are no place for images.
        let path = start.clone();
        match patience.ask(start, move || look(&path)) {
            Ok(Node::Directory(below)) if !start.starts_with("/dev") => {
                directories.insert(start.clone());
                directories.extend(below);
            }
            Ok(Node::Device) => {
                found.insert(start.clone(), None);
            }
            Ok(Node::Directory(_) | Node::Other) | Err(_) => {}
        }
    }
    let is_within = |path: &Path| {
        roots.is_none_or(|roots| roots.iter().any(|root| path.starts_with(&root.path)))
    };
    let discs = discs_beside(model, &patience, is_within);
    let block = Path::new(BLOCK);
    let listed = patience.ask(block, || devices(Path::new(BLOCK)));
    for (path, bytes) in listed.unwrap_or_default() {
        if is_within(&path) {
            found.insert(path, Some(bytes));
        }
    }
    let text = |path: &Path| path.display().to_string();
    let device = |(path, size_bytes): (PathBuf, Option<u64>)| BlockDevice {
        lun: used.get(&path).cloned(),
        path: text(&path),
        size_bytes,
    };
    let directories = directories.iter().take(DIRECTORIES_MAX);
    Places {
        directories: directories.map(|path| text(path)).collect(),
        devices: found.into_iter().take(DEVICES_MAX).map(device).collect(),
        discs: discs.iter().map(|path| text(path)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use durable::scratch::Scratch;

    use super::*;
    use crate::serve::living::Living;

    #[test]
    fn a_directory_is_shown_with_those_in_it_and_nothing_else() {
        let scratch = Scratch::new();
        for name in ["b", "a", ".hidden"] {
            fs::create_dir(scratch.path().join(name)).unwrap();
        }
        fs::write(scratch.path().join("file"), "").unwrap();
        let Node::Directory(below) = look(scratch.path()) else {
            panic!("it is a directory");
        };
        assert_eq!(below, ["a", "b"].map(|name| scratch.path().join(name)));
        assert!(matches!(look(&scratch.path().join("file")), Node::Other));
        assert!(matches!(look(&scratch.path().join("absent")), Node::Other));
    }

    #[test]
    fn only_files_of_discs_are_shown_of_a_directory() {
        let scratch = Scratch::new();
        for name in ["b.iso", "a.ISO", "disk.img"] {
            fs::write(scratch.path().join(name), "").unwrap();
        }
        fs::create_dir(scratch.path().join("c.iso")).unwrap();
        let wanted = ["a.ISO", "b.iso"].map(|name| scratch.path().join(name));
        assert_eq!(discs(scratch.path()), wanted);
        assert!(discs(&scratch.path().join("absent")).is_empty());
    }

    #[test]
    fn devices_without_a_medium_are_left_out() {
        let scratch = Scratch::new();
        for (name, size) in [
            ("sda", "2048\n"),
            ("loop0", "0\n"),
            ("ram0", "8\n"),
            ("cciss!c0d0", "1\n"),
            ("x", "y"),
        ] {
            fs::create_dir(scratch.path().join(name)).unwrap();
            fs::write(scratch.path().join(name).join("size"), size).unwrap();
        }
        let found = devices(scratch.path());
        let wanted = [("/dev/cciss/c0d0", 512), ("/dev/sda", 2048 * 512)];
        assert_eq!(
            found,
            wanted.map(|(path, bytes)| (PathBuf::from(path), bytes))
        );
        assert!(devices(&scratch.path().join("absent")).is_empty());
    }

    #[test]
    fn places_are_beside_what_is_served_or_below_the_roots() {
        let living = Living::new(
            "[server]\nstate = \"{dir}/state\"\ncores = 1\n[admin]\nenabled = false\n\
             [limits]\npool_per_core_bytes = \"16M\"\n",
        );
        for directory in ["one/below", "one/.hidden", "two/below", "three"] {
            fs::create_dir_all(living.path(directory)).unwrap();
        }
        for file in [
            "one/a.img",
            "one/c.iso",
            "two/d.iso",
            "two/e.iso",
            "three/f.iso",
        ] {
            fs::write(living.path(file), "").unwrap();
        }
        let luns = "[[lun]]\nid = \"a\"\nstore = \"file:{dir}/one/a.img\"\n\
                    [[lun]]\nid = \"d\"\nstore = \"cdrom:{dir}/two/d.iso\"\n";
        let roots = |roots: &str| format!("{luns}[confine]\nroots = [{roots}]\n");
        let of_kernel = || -> Vec<_> {
            let devices = devices(Path::new(BLOCK)).into_iter();
            let shown =
                devices.map(|(path, bytes)| (path.display().to_string(), Some(bytes), None));
            shown.take(DEVICES_MAX).collect()
        };
        let (one, two) = (&["one", "one/below"][..], &["two", "two/below"][..]);
        let discs = ["two/d.iso", "two/e.iso"];
        for (text, directories, found, has_devices) in [
            (luns.to_owned(), &[one, two].concat()[..], &discs[..], true),
            (roots("\"{dir}/one\""), one, &[], false),
            (
                roots("\"{dir}/two\", \"{dir}/one/a.img\""),
                two,
                &discs,
                false,
            ),
            (roots("\"{dir}/one\", \"/dev\""), one, &[], true),
        ] {
            living.pretend(&text, |_| ());
            let before = of_kernel();
            let places = places(&living.daemon);
            let after = of_kernel();
            let paths = |names: &[&str]| -> Vec<String> {
                let paths = names.iter().map(|name| living.path(name));
                paths.map(|path| path.display().to_string()).collect()
            };
            assert_eq!(places.directories, paths(directories), "{text}");
            assert_eq!(places.discs, paths(found), "{text}");
            let found = places.devices.into_iter();
            let found: Vec<_> = found
                .map(|one| (one.path, one.size_bytes, one.lun))
                .collect();
            // Others may attach and detach some meanwhile.
            let is_so = before != after || found == before;
            assert!(
                if has_devices { is_so } else { found.is_empty() },
                "{text}: {found:?}"
            );
        }
        living.stop();
    }
}
