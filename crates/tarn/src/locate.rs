//! Finds the files and devices of a model's units, without opening them.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use config::{Model, Unit};

use crate::StartError;

/// Where the data of a unit is, as far as looking from outside tells.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    /// The absolute path, without symbolic links for a file. A device keeps the name it was
    /// given: where `/dev/disk/by-id/x` leads may be another disk after the next boot.
    pub path: PathBuf,
    /// Whether it is there now; if not, it is yet to be made, and its data will be new.
    pub exists: bool,
    /// What stays with a file when it is moved. `None` for devices, for files yet to be made, and
    /// where the file system does not tell when a file was made.
    pub mark: Option<FileMark>,
}

/// What stays with a file when it is moved: device, inode, and the time it was made, as inodes
/// are used again.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileMark(String);

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

/// Finds the location of every unit, in the order of the model; `None` for units without a path.
///
/// # Errors
///
/// A store that is not there and has no `size=` to be made with.
pub fn locate_all(model: &Model) -> Result<Vec<Option<Location>>, StartError> {
    model.units().iter().map(locate).collect()
}

fn locate(unit: &Unit) -> Result<Option<Location>, StartError> {
    let Some(path) = unit.store.kind.path() else {
        return Ok(None);
    };
    let unreachable = |source| StartError::StoreUnreachable {
        place: unit.place.clone(),
        path: path.to_owned(),
        source,
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if unit.store.size_bytes.is_none() {
                return Err(StartError::StoreMissing {
                    place: unit.place.clone(),
                    path: path.to_owned(),
                });
            }
            let path = resolve_parent(path).map_err(unreachable)?;
            return Ok(Some(Location {
                path,
                exists: false,
                mark: None,
            }));
        }
        Err(error) => return Err(unreachable(error)),
    };
    let location = if metadata.file_type().is_block_device() {
        Location {
            path: std::path::absolute(path).map_err(unreachable)?,
            exists: true,
            mark: None,
        }
    } else {
        Location {
            path: fs::canonicalize(path).map_err(unreachable)?,
            exists: true,
            mark: FileMark::of(&metadata),
        }
    };
    Ok(Some(location))
}

/// The path that a file yet to be made will have.
fn resolve_parent(path: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(fs::canonicalize(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use config::IscsiName;

    use super::*;
    use crate::scratch::Scratch;

    fn locate_one(store: &str) -> Result<Option<Location>, StartError> {
        let name = IscsiName::parse("iqn.2026-11.example.tarn:t").unwrap();
        let model = Model::from_stores(&[store.to_owned()], name, &[]).unwrap();
        Ok(locate_all(&model)?.remove(0))
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
    fn what_is_missing_is_named_with_both_remedies() {
        let error = locate_one("/nowhere/disk.img").unwrap_err().to_string();
        assert_eq!(
            error,
            "STORE \"/nowhere/disk.img\": /nowhere/disk.img does not exist; create it, or add the option size= to have it made"
        );
        let error = locate_one("/nowhere/disk.img?size=1M").unwrap_err();
        assert!(
            matches!(error, StartError::StoreUnreachable { .. }),
            "{error}"
        );
        assert_eq!(locate_one("mem:1M").unwrap(), None);
    }
}
