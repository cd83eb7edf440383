//! Finds the files and devices of a model's units, without opening them.

mod cluster;
mod device;
mod own_files;
mod snapshot;

use std::collections::HashMap;
use std::fs::{self, File, FileType, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use config::{ConfigError, Model, Node, Place, ServerAddress, StoreRule, StoreSpec, Unit};
use store::SharedStore;

pub(crate) use self::own_files::{OwnFiles, files_of_store, secrets_of};
pub(crate) use self::snapshot::snapshot_at;
use crate::StartError;

/// Where the data of a unit is, as far as it can be found without opening it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    /// The absolute path, without symbolic links for a file. A device keeps the name it was
    /// given: where `/dev/disk/by-id/x` leads may be another disk after the next boot. Of an
    /// export, its server and name.
    pub path: PathBuf,
    /// Whether it is there now; if not, it is yet to be made, and its data will be new.
    pub exists: bool,
    /// What stays with a file when it is moved. `None` for devices, for files yet to be made, and
    /// where the file system does not report when a file was created.
    pub mark: Option<FileMark>,
    /// It is a block device.
    pub is_device: bool,
    /// What else leads to the same data: an image's names in its cluster, one for each that its configuration file has
    /// of that; the inode of a file; the number of a device, and the inode of the file of a loop device.
    pub names: Vec<String>,
    /// Of a composition: where its further members are.
    pub further: Vec<Self>,
}

/// What stays with a file when it is moved: device, inode, and the time it was made, as inodes
/// are used again.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct FileMark(String);

impl Location {
    /// The same, with further members behind those that it has.
    pub(crate) fn joined(before: Option<Self>, added: Vec<Self>) -> Option<Self> {
        let mut added = added.into_iter();
        let mut whole = before.or_else(|| added.next())?;
        whole.further.extend(added);
        Some(whole)
    }
}

impl Location {
    /// The same, where a file that was yet to be made is there and open.
    pub(crate) fn made(self, store: &dyn SharedStore) -> Self {
        let open = store.descriptor().filter(|_| !self.exists);
        let open = open.and_then(|open| open.try_clone_to_owned().ok());
        let found = open.and_then(|open| File::from(open).metadata().ok());
        match found {
            None => self,
            Some(found) => Self {
                exists: true,
                mark: FileMark::of(&found),
                names: vec![device::inode(&found)],
                ..self
            },
        }
    }

    /// Whether both are, in part or as a whole, the same file, device or export.
    pub(crate) fn shares(&self, other: &Self) -> bool {
        let is_same = |one: &Self, two: &Self| {
            one.path == two.path || (one.mark.is_some() && one.mark == two.mark)
        };
        self.all()
            .any(|one| other.all().any(|two| is_same(one, two)))
    }

    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.further)
    }
}

impl FileMark {
    /// For the text of the state directory.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn of(metadata: &Metadata) -> Option<Self> {
        let made = metadata.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Some(Self(format!("{device:x}:{inode}:{}", made.as_nanos())))
    }
}

/// Where the units of a start are.
#[derive(Debug)]
pub(crate) struct Located {
    /// By the position of the unit; `None` for memory, and for a unit that is not found.
    pub(crate) locations: Vec<Option<Location>>,
    /// Why a unit may not be opened, where another one has the same file or device.
    pub(crate) twice: Vec<Option<StartError>>,
}

/// Finds the location of every unit, for a start. With a configuration file a unit keeps no other from being served;
/// what keeps it from being found is found again when it is opened.
///
/// # Errors
///
/// Without a configuration file: a store that is not there and has no `size=` to be made with, is of another kind than
/// asked for, or is that of two units, or of a unit and a log.
pub(crate) fn locate_for_start(model: &Model, has_file: bool) -> Result<Located, StartError> {
    let mut locations = Vec::new();
    for unit in model.units() {
        locations.push(match locate(unit) {
            Err(_) if has_file => None,
            found => found?,
        });
    }
    let logs: Vec<_> = model.units().iter().map(locate_log).collect();
    let mut twice: Vec<_> = model.units().iter().map(|_| None).collect();
    for (position, error) in double_uses(model, &locations, &logs) {
        match twice.get_mut(position) {
            Some(place) if has_file => *place = Some(error),
            Some(_) | None => return Err(error),
        }
    }
    Ok(Located { locations, twice })
}

/// Where the log of a unit is. What is wrong with it is found when it is opened.
fn locate_log(unit: &Unit) -> Option<Location> {
    let log = unit.log.as_ref()?;
    locate_store(&log.store, &log.place).ok().flatten()
}

/// Finds the location of every unit, with all that is wrong; a unit that is not found has no location.
pub(crate) fn locate_each(model: &Model) -> (Vec<Option<Location>>, Vec<StartError>) {
    let mut mistakes = Vec::new();
    let units = model.units().iter();
    let locations = units.map(|unit| {
        let found = unit.parts().filter_map(|(store, place)| {
            let found = locate_store(store, place);
            found.map_err(|error| mistakes.push(error)).ok().flatten()
        });
        let found = found.collect();
        Location::joined(None, found)
    });
    let locations: Vec<_> = locations.collect();
    let logs: Vec<_> = model.units().iter().map(locate_log).collect();
    let twice = double_uses(model, &locations, &logs);
    mistakes.extend(twice.into_iter().map(|(_, error)| error));
    (locations, mistakes)
}

/// Units that have a file or device, as their store or as their log, which another one before them has, by position.
pub(crate) fn double_uses(
    model: &Model,
    locations: &[Option<Location>],
    logs: &[Option<Location>],
) -> Vec<(usize, StartError)> {
    let mut uses = Uses::default();
    let units = || model.units().iter().enumerate();
    let stores = units().zip(locations).map(|((position, unit), location)| {
        let place = &unit.place;
        (position, place, location)
    });
    let logs = units().zip(logs).map(|((position, unit), location)| {
        let place = unit.log.as_ref().map_or(&unit.place, |log| &log.place);
        (position, place, location)
    });
    let twice = stores
        .chain(logs)
        .filter_map(|(position, place, location)| {
            let claimed = uses.claim(place, location.as_ref()?);
            Some((position, claimed.err()?))
        });
    twice.collect()
}

/// Where what is used. The model has compared the paths as they are written; this compares where
/// they lead.
#[derive(Default)]
struct Uses<'a> {
    paths: HashMap<PathBuf, &'a Place>,
    marks: HashMap<FileMark, &'a Place>,
    names: HashMap<String, &'a Place>,
}

impl<'a> Uses<'a> {
    /// Refuses what another unit, or another member, has already.
    fn claim(&mut self, place: &'a Place, location: &Location) -> Result<(), StartError> {
        let mut further = location.further.iter();
        further.try_for_each(|location| self.claim(place, location))?;
        let by_path = self.paths.insert(location.path.clone(), place);
        let mark = location.mark.as_ref();
        let by_mark = mark.and_then(|mark| self.marks.insert(mark.clone(), place));
        let names = location.names.iter();
        let by_name = names.fold(None, |found, name| {
            let before = self.names.insert(name.clone(), place);
            found.or(before)
        });
        match by_path.or(by_mark).or(by_name) {
            None => Ok(()),
            Some(first) => {
                let path = location.path.display().to_string();
                let first = first.clone();
                Err(ConfigError::new(StoreRule::Twice { path, first }, place.clone()).into())
            }
        }
    }
}

/// Finds the location of one unit.
fn locate(unit: &Unit) -> Result<Option<Location>, StartError> {
    let parts = unit.parts();
    let found = parts.map(|(store, place)| locate_store(store, place));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    Ok(Location::joined(
        None,
        found.into_iter().flatten().collect(),
    ))
}

/// Finds the location of a store that has data, given at `place`.
///
/// # Errors
///
/// It is not there and has no `size=` to be made with, or is of another kind than asked for.
pub(crate) fn locate_store(
    store: &StoreSpec,
    place: &Place,
) -> Result<Option<Location>, StartError> {
    let Some((path, node)) = store.at.node() else {
        let found = at_server(store).or_else(|| in_cluster(store));
        let found = found.or_else(|| in_group(store));
        let found = found.or_else(|| at_target(store));
        return Ok(found
            .or_else(|| at_device(store))
            .or_else(|| at_handler(store)));
    };
    let unreachable = |source| StartError::StoreUnreachable {
        place: place.clone(),
        path: path.to_owned(),
        source,
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return locate_new(store, place, path),
        Err(error) => return Err(unreachable(error)),
    };
    check_node(place, path, node, metadata.file_type())?;
    let location = if metadata.file_type().is_block_device() {
        Location {
            path: std::path::absolute(path).map_err(unreachable)?,
            exists: true,
            mark: None,
            is_device: true,
            names: device::names(metadata.rdev()),
            further: Vec::new(),
        }
    } else {
        Location {
            path: fs::canonicalize(path).map_err(unreachable)?,
            exists: true,
            mark: FileMark::of(&metadata),
            is_device: false,
            names: vec![device::inode(&metadata)],
            further: Vec::new(),
        }
    };
    Ok(Some(location))
}

/// Data that a server has is where the server is. Whether it is there, only opening shows.
fn at_server(store: &StoreSpec) -> Option<Location> {
    let export = store.at.export()?;
    // One socket has one path, as one file has.
    let socket = match export.server() {
        ServerAddress::Unix(socket) => fs::canonicalize(socket).ok(),
        ServerAddress::Tcp(_) => None,
    };
    let path = match socket {
        Some(socket) => format!("nbd+unix:///{}?socket={}", export.name(), socket.display()),
        None => store.at.medium()?.to_string(),
    };
    Some(elsewhere(path))
}

/// Data that a cluster has is where its configuration file leads to.
fn in_cluster(store: &StoreSpec) -> Option<Location> {
    let image = store.at.image()?;
    let medium = store.at.medium()?.to_string();
    // One file has one path.
    let conf = image.conf().and_then(|conf| fs::canonicalize(conf).ok());
    let name = medium.split_once('?').map_or(medium.as_str(), |it| it.0);
    let clusters = cluster::names(image.conf());
    let names = clusters.map(|cluster| format!("{cluster} {name}"));
    let names = names.collect();
    let place = elsewhere(match conf {
        Some(conf) => format!("{name}?conf={}", conf.display()),
        None => medium.clone(),
    });
    Some(Location { names, ..place })
}

/// A device is known by its group; which server has it, only opening shows.
fn in_group(store: &StoreSpec) -> Option<Location> {
    store.at.device()?;
    Some(elsewhere(store.at.medium()?.to_string()))
}

/// A disk is known by its target and its number; which disk that is, only opening shows, and refuses one that another
/// store has.
fn at_target(store: &StoreSpec) -> Option<Location> {
    store.at.target_lun()?;
    Some(elsewhere(store.at.medium()?.to_string()))
}

/// A device of this machine keeps the name that it was given. Whether it is there, only opening shows.
fn at_device(store: &StoreSpec) -> Option<Location> {
    let path = store.at.local_device()?;
    let metadata = fs::metadata(path).ok();
    let names = metadata.as_ref().map(device::names_of_scsi);
    Some(Location {
        is_device: true,
        names: names.unwrap_or_default(),
        ..elsewhere(path.display().to_string())
    })
}

/// A handler is known by its socket; which device it is, only opening shows.
fn at_handler(store: &StoreSpec) -> Option<Location> {
    let path = store.at.handler()?;
    Some(elsewhere(format!("handler:{}", path.display())))
}

fn elsewhere(path: String) -> Location {
    Location {
        path: PathBuf::from(path),
        exists: true,
        mark: None,
        is_device: false,
        names: Vec::new(),
        further: Vec::new(),
    }
}

/// Where a file will be that is not there yet.
fn locate_new(
    store: &StoreSpec,
    place: &Place,
    path: &Path,
) -> Result<Option<Location>, StartError> {
    let (place, path) = (place.clone(), path.to_owned());
    let is_link = || fs::symlink_metadata(&path).is_ok();
    let remedy = remedy_for_missing(store);
    let remedy = remedy.or_else(|| is_link().then_some(REMEDY_FOR_LINK));
    if let Some(remedy) = remedy {
        return Err(StartError::StoreMissing {
            place,
            path,
            remedy,
        });
    }
    match resolve_parent(&path) {
        Ok(path) => Ok(Some(Location {
            path,
            exists: false,
            mark: None,
            is_device: false,
            names: Vec::new(),
            further: Vec::new(),
        })),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(StartError::StoreDirectoryMissing { place, path })
        }
        Err(source) => Err(StartError::StoreUnreachable {
            place,
            path,
            source,
        }),
    }
}

/// Nothing is made behind a link: where it leads may be a mistake, and another name may lead there, too.
const REMEDY_FOR_LINK: &str =
    "it is a link to a file that is not there: create that file, or name it instead of the link";

/// What to do about a store that is missing and is not made.
fn remedy_for_missing(store: &StoreSpec) -> Option<&'static str> {
    let (_, node) = store.at.node()?;
    if store.snapshot().is_some() {
        return Some(
            "name a snapshot that is there (tarn snapshot list); where the path of the lun is a link, name the file of \
             the snapshot instead, as file:PATH?readonly",
        );
    }
    match (node.takes_files(), store.read_only, store.size_bytes) {
        (false, _, _) => Some("connect the device, or name another one"),
        (true, true, _) => {
            Some("create it, or name another file; Tarn creates none to be read only")
        }
        (true, false, None) => Some("create it, or add the option size= to create it"),
        (true, false, Some(_)) => None,
    }
}

/// The path that a file yet to be made will have.
fn resolve_parent(path: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

/// The store that is opened later asks again; this keeps what can never be one from getting an
/// identity.
fn check_node(place: &Place, path: &Path, node: Node, found: FileType) -> Result<(), StartError> {
    let is_right = (found.is_file() && node.takes_files())
        || (found.is_block_device() && node.takes_devices());
    if is_right {
        return Ok(());
    }
    Err(StartError::StoreKind {
        place: place.clone(),
        path: path.to_owned(),
        got: if found.is_file() {
            "a regular file"
        } else if found.is_dir() {
            "a directory"
        } else if found.is_block_device() {
            "a block device"
        } else {
            "neither a file nor a block device"
        },
        wanted: node.wanted(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use config::IscsiName;

    use super::*;
    use crate::scratch::Scratch;

    fn all(model: &Model) -> Result<Vec<Option<Location>>, StartError> {
        locate_for_start(model, false).map(|found| found.locations)
    }

    fn locate_one(store: &str) -> Result<Option<Location>, StartError> {
        let name = IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
        let model = Model::from_stores(&[store.to_owned()], name, &[]).unwrap();
        Ok(all(&model)?.remove(0))
    }

    #[test]
    fn a_file_is_found_through_links_and_a_missing_one_where_it_will_be() {
        let scratch = Scratch::new();
        let directory = fs::canonicalize(scratch.path()).unwrap();
        fs::write(directory.join("disk"), b"").unwrap();
        symlink(directory.join("disk"), directory.join("link")).unwrap();
        symlink(&directory, directory.join("here")).unwrap();
        for (store, path) in [
            ("disk", "disk"),
            ("link", "disk"),
            ("here/disk", "disk"),
            ("here/new?size=1M", "new"),
        ] {
            let store = format!("{}/{store}", scratch.path().display());
            let location = locate_one(&store).unwrap().unwrap();
            assert_eq!(location.path, directory.join(path));
            assert_eq!(location.exists, path == "disk");
        }
    }

    #[test]
    fn a_mark_moves_with_the_file_and_differs_between_files() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name);
        let mark = |name: &str| {
            locate_one(at(name).to_str().unwrap())
                .unwrap()
                .unwrap()
                .mark
        };
        fs::write(at("a"), b"").unwrap();
        fs::write(at("b"), b"").unwrap();
        let before = mark("a");
        assert_ne!(before, mark("b"));
        fs::rename(at("a"), at("c")).unwrap();
        assert_eq!(mark("c"), before);
    }

    #[test]
    fn what_is_missing_is_named_with_the_remedies_for_its_kind() {
        let error = locate_one("/nowhere/disk.img").unwrap_err().to_string();
        assert_eq!(
            error,
            "STORE \"/nowhere/disk.img\": /nowhere/disk.img does not exist; create it, or add the option size= to \
             create it"
        );
        for (store, remedy) in [
            ("block:/nowhere/sdz", "connect the device"),
            ("/nowhere/disk.img?readonly", "name another file"),
            ("/nowhere/disk.img?readonly&size=1M", "name another file"),
        ] {
            let error = locate_one(store).unwrap_err().to_string();
            assert!(
                error.contains(remedy) && !error.contains("option"),
                "{error}"
            );
        }
        let error = locate_one("/nowhere/disk.img?size=1M").unwrap_err();
        assert_eq!(
            error.to_string(),
            "STORE \"/nowhere/disk.img?size=1M\": /nowhere/disk.img cannot be created because its directory does not \
             exist; create that first"
        );
        let scratch = Scratch::new();
        let link = scratch.path().join("link");
        symlink(scratch.path().join("new"), &link).unwrap();
        let error = locate_one(&format!("{}?size=1M", link.display())).unwrap_err();
        assert!(error.to_string().contains("is a link to a file"), "{error}");
        assert_eq!(locate_one("mem:1M").unwrap(), None);
        let export = locate_one("nbds://H/a").unwrap().unwrap();
        assert_eq!(export.path, Path::new("nbd://h:10809/a"));
    }

    /// A node of the generic driver and the node of the disk have paths of their own.
    #[test]
    fn what_has_one_name_is_refused_with_both_places() {
        let text = "[[lun]]\nid = \"a\"\nstore = \"block:/dev/sdz\"\n\
                    [[lun]]\nid = \"b\"\nstore = \"scsi:/dev/sg99\"\n";
        let model = Model::from_toml(text, Path::new("t.toml")).unwrap();
        let named = |path: &str, name: &str| {
            Some(Location {
                names: vec![name.to_owned()],
                ..elsewhere(path.to_owned())
            })
        };
        for (name, is_refused) in [("device 8:16", true), ("device 8:32", false)] {
            let locations = [named("/dev/sdz", "device 8:16"), named("/dev/sg99", name)];
            let twice = double_uses(&model, &locations, &[]);
            let twice: Vec<_> = twice
                .iter()
                .map(|(at, why)| (*at, why.to_string()))
                .collect();
            match is_refused {
                true => {
                    let [(1, why)] = &twice[..] else {
                        panic!("{twice:?}");
                    };
                    let (at, first) = (
                        "t.toml:6: lun[1].store: ",
                        "already used at t.toml:3: lun[0].store",
                    );
                    assert!(why.starts_with(at) && why.contains(first), "{why}");
                }
                false => assert_eq!(twice, []),
            }
        }
    }

    #[test]
    fn an_image_has_one_place_by_whatever_path_of_its_cluster() {
        let scratch = Scratch::new();
        let [conf, link] = ["conf", "link"].map(|name| scratch.path().join(name));
        fs::write(&conf, b"").unwrap();
        symlink(&conf, &link).unwrap();
        let place = |name: &str, path: &Path| {
            let store = format!("rbd:p/{name}?user=u&conf={}", path.display());
            locate_one(&store).unwrap().unwrap().path
        };
        assert_eq!(place("a", &conf), place("a", &link));
        assert_ne!(place("a", &conf), place("b", &conf));
        let plain = locate_one("rbd:p/a").unwrap().unwrap().path;
        assert_eq!(plain, Path::new("rbd:p/a"));
    }

    #[test]
    fn an_image_is_one_by_whatever_file_names_its_cluster() {
        let scratch = Scratch::new();
        let conf = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            fs::write(&path, text).unwrap();
            format!("conf={}", path.display())
        };
        let whole = conf("whole", "[global]\nfsid = F-1\nmon host = [v2:a:1],b\n");
        let minimal = conf("minimal", "[global]\n\tfsid=f-1\n");
        let monitors = conf("monitors", "mon_host = b, [v2:a:1]\n");
        let other = conf("other", "fsid = f-2 # not f-1\n");
        let none = conf("none", "# fsid = f-1\n");
        let are_one = |one: &str, other: &str| {
            let stores = [one, other].map(|conf| format!("rbd:p/a?{conf}"));
            let name = IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
            let model = Model::from_stores(&stores, name, &[]).unwrap();
            match all(&model) {
                Ok(_) => false,
                Err(error) => error.to_string().contains("is already used at STORE"),
            }
        };
        for (one, two, expected) in [
            (&whole, &minimal, true),
            (&whole, &monitors, true),
            (&minimal, &monitors, false),
            (&whole, &other, false),
            (&whole, &none, false),
        ] {
            assert_eq!(are_one(one, two), expected, "{one} {two}");
        }
        let stores = [format!("rbd:p/a?{whole}"), format!("rbd:p/b?{minimal}")];
        let name = IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
        all(&Model::from_stores(&stores, name, &[]).unwrap()).unwrap();
    }

    #[test]
    fn a_socket_has_one_place_by_whatever_path() {
        let scratch = Scratch::new();
        let [socket, link] = ["socket", "link"].map(|name| scratch.path().join(name));
        fs::write(&socket, b"").unwrap();
        symlink(&socket, &link).unwrap();
        let place = |name: &str, path: &Path| {
            let store = format!("nbd+unix:///{name}?socket={}", path.display());
            locate_one(&store).unwrap().unwrap().path
        };
        assert_eq!(place("a", &socket), place("a", &link));
        assert_ne!(place("a", &socket), place("b", &socket));
    }

    #[test]
    fn what_can_be_no_store_is_refused_with_what_it_is() {
        let scratch = Scratch::new();
        fs::write(scratch.path().join("file"), b"").unwrap();
        #[rustfmt::skip]
        let cases = [
            ("D", "D is a directory; name a regular file or a block device"),
            ("file:D", "D is a directory; name a regular file, or write block: for a block device"),
            ("block:D/file", "D/file is a regular file; name a block device, or write file: for a regular file"),
            ("/dev/null", "/dev/null is neither a file nor a block device; name a regular file or a block device"),
        ];
        for (store, message) in cases {
            let directory = scratch.path().to_str().unwrap();
            let error = locate_one(&store.replace('D', directory))
                .unwrap_err()
                .to_string();
            let (_, error) = error.split_once("\": ").unwrap();
            assert_eq!(error.replace(directory, "D"), message);
        }
    }

    #[test]
    fn two_ways_to_one_file_are_seen_through() {
        let scratch = Scratch::new();
        let at = |name: &str| scratch.path().join(name).display().to_string();
        fs::write(at("disk"), b"").unwrap();
        symlink(at("disk"), at("link")).unwrap();
        fs::hard_link(at("disk"), at("twin")).unwrap();
        for second in ["./disk", "link", "twin", "./new?size=1M"] {
            let stores = [at("disk"), at("new?size=1M"), at(second)];
            let name = IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
            // Not yet refused by the model, which compares what is written.
            let stores = match Model::from_stores(&stores, name, &[]) {
                Ok(model) => all(&model).unwrap_err().to_string(),
                Err(error) => error.to_string(),
            };
            assert!(
                stores.contains("is already used at STORE"),
                "{second}: {stores}"
            );
        }
    }
}
