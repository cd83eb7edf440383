//! The files of Tarn itself: what no store may be, or who may add one could read secrets by reading a disk.
//!
//! A file is known by where it lies, when all links are followed, and by its inode, which a hard link, a mount of its
//! directory and a loop device lead to as well.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use config::{Certificate, FarLun, Image, Model, NbdServer, NbdTls, SecretFile, StoreSpec, Unit};

use super::snapshot::other_names;
use super::{device, resolve_parent};

/// Which they are. They are looked for when a store is compared with them for the first time, and stay the same then.
#[derive(Debug, Default)]
pub(crate) struct OwnFiles {
    /// Everything below these is one.
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    found: OnceLock<Found>,
    /// The inodes of all that is below the directories.
    below: OnceLock<HashSet<String>>,
}

#[derive(Debug, Default)]
struct Found {
    directories: Vec<PathBuf>,
    files: HashSet<PathBuf>,
    inodes: HashSet<String>,
}

impl OwnFiles {
    /// Those of a process with these configurations, the file that they stand in, and this state directory.
    pub(crate) fn of<'a>(
        models: impl IntoIterator<Item = &'a Model>,
        file: Option<&Path>,
        state: Option<&Path>,
    ) -> Self {
        let mut own = Self::default();
        own.directories.extend(state.map(Path::to_owned));
        own.files.extend(file.map(Path::to_owned));
        for model in models {
            own.directories.extend(model.server().state.clone());
            let files = files_of(model).map(Path::to_owned);
            own.files.extend(files);
        }
        own
    }

    /// Whether a path leads to one of them, or would if a file were made there.
    pub(crate) fn has(&self, path: &Path) -> bool {
        let found = self.found.get_or_init(|| self.find());
        let at = resolved(path);
        if found.files.contains(&at) || found.directories.iter().any(|one| at.starts_with(one)) {
            return true;
        }
        let names = inode_of(path).into_iter().collect::<Vec<_>>();
        if names.iter().any(|name| found.inodes.contains(name)) {
            return true;
        }
        let others = other_names(path).unwrap_or_default();
        others.iter().any(|name| {
            let below = || self.below.get_or_init(|| inodes_below(&found.directories));
            found.inodes.contains(name) || below().contains(name)
        })
    }

    fn find(&self) -> Found {
        Found {
            directories: self.directories.iter().map(|path| resolved(path)).collect(),
            files: self.files.iter().map(|path| resolved(path)).collect(),
            inodes: self
                .files
                .iter()
                .filter_map(|path| inode_of(path))
                .collect(),
        }
    }
}

/// The files that a configuration names and that are no stores.
fn files_of(model: &Model) -> impl Iterator<Item = &Path> {
    let secrets = secrets_of(model).map(|secret| secret.path.as_path());
    let of_nbd = model
        .nbd()
        .iter()
        .filter_map(|server: &NbdServer| server.tls.as_ref());
    let authorities = of_nbd.clone().filter_map(|tls| tls.ca.as_deref());
    let certificates = of_nbd.map(|tls: &NbdTls| &tls.certificate);
    let certificates = certificates.chain(&model.admin().certificate);
    let certificates = certificates.flat_map(|one: &Certificate| [&*one.certificate, &*one.key]);
    let stores = model.units().iter().flat_map(Unit::parts);
    let of_stores = stores.flat_map(|(store, _)| files_of_store(store));
    secrets
        .chain(authorities)
        .chain(certificates)
        .chain(of_stores)
}

/// The files that a configuration has secrets in, but for those of stores.
pub(crate) fn secrets_of(model: &Model) -> impl Iterator<Item = &SecretFile> {
    let of_users = model.users().iter().flat_map(|user| {
        let mutual = user.mutual.as_ref().map(|mutual| &mutual.secret);
        std::iter::once(&user.secret).chain(mutual)
    });
    let groups = model.hyperscsi().iter();
    let of_users = of_users.chain(model.notify().iter().filter_map(config::Notify::secret));
    of_users.chain(groups.filter_map(|group| match &group.password {
        config::HyperScsiPassword::File(file) => Some(file),
        config::HyperScsiPassword::Written { .. } | config::HyperScsiPassword::Open { .. } => None,
    }))
}

/// The files that a store needs for its server: keys, passwords and certificates.
pub(crate) fn files_of_store(store: &StoreSpec) -> impl Iterator<Item = &Path> {
    let of_image = store.at.image().into_iter().flat_map(Image::files);
    let of_device = store.at.device();
    let of_device = of_device.and_then(|device| device.password_file.as_deref());
    let of_lun = store.at.target_lun().into_iter().flat_map(FarLun::files);
    let of_server = of_device.into_iter().chain(of_lun);
    of_image.chain(of_server).chain(store.ca.as_deref())
}

/// Where a path leads; of one that leads nowhere, where a file would be made.
fn resolved(path: &Path) -> PathBuf {
    let found = fs::canonicalize(path).or_else(|_| resolve_parent(path));
    found.unwrap_or_else(|_| path.to_owned())
}

fn inode_of(path: &Path) -> Option<String> {
    Some(device::inode(&fs::metadata(path).ok()?))
}

fn inodes_below(directories: &[PathBuf]) -> HashSet<String> {
    let mut inodes = HashSet::new();
    let mut left = directories.to_vec();
    while let Some(directory) = left.pop() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            match entry.metadata() {
                Ok(found) if found.is_dir() => left.push(entry.path()),
                Ok(found) => {
                    inodes.insert(device::inode(&found));
                }
                Err(_) => {}
            }
        }
    }
    inodes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn own_files_are_known_by_every_way_that_leads_to_them_and_no_other_file_is_one() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        for directory in ["state", "state/secrets", "etc", "disks"] {
            fs::create_dir(at(directory)).unwrap();
        }
        for file in [
            "state/tokens.toml",
            "state/secrets/bob",
            "etc/tarn.toml",
            "etc/alice",
            "etc/c.pem",
            "etc/k.pem",
            "disks/a.img",
        ] {
            fs::write(at(file), file).unwrap();
        }
        symlink(at("state"), at("there")).unwrap();
        symlink(at("etc/alice"), at("disks/link")).unwrap();
        fs::hard_link(at("etc/k.pem"), at("disks/key")).unwrap();
        fs::hard_link(at("state/secrets/bob"), at("disks/bob")).unwrap();
        fs::hard_link(at("disks/a.img"), at("disks/b.img")).unwrap();
        let text = format!(
            "[server]\nstate = \"next\"\n[admin]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n\
             [[user]]\nname = \"alice\"\nsecret_file = \"alice\"\n[[lun]]\nid = \"far\"\n\
             store = \"nbds://h/x?ca={}\"\n[[user]]\nname = \"new\"\nsecret_file = \"new\"\n",
            at("etc/ca.pem").display()
        );
        let file = at("etc/tarn.toml");
        let model = Model::from_toml(&text, &file).unwrap();
        let own = OwnFiles::of([&model], Some(&file), Some(&at("there")));
        for (path, is_own) in [
            ("state/tokens.toml", true),
            ("there/secrets/bob", true),
            ("there/new.img", true),
            ("etc/next/new.img", true),
            ("etc/next", true),
            ("disks/bob", true),
            ("disks/key", true),
            ("disks/link", true),
            ("etc/../etc/tarn.toml", true),
            ("etc/c.pem", true),
            ("etc/ca.pem", true),
            ("etc/new", true),
            ("etc/other", false),
            ("disks/a.img", false),
            ("disks/b.img", false),
            ("disks/new.img", false),
            ("state.img", false),
            ("nowhere/x.img", false),
        ] {
            assert_eq!(own.has(&at(path)), is_own, "{path}");
        }
        assert!(!OwnFiles::default().has(&file));
    }
}
