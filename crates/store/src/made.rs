//! Files that opening stores makes, for an attempt that may yet be refused.
//!
//! What opens stores notes each file that it makes, with its inode. The attempt ends in one of two ways: its files are
//! kept, or removed. A call that hangs may make its file when the attempt has been refused long ago; that file is
//! removed as soon as it is noted, and its store is not opened. Only the very file that was made is removed: one that
//! somebody has put in its place stays, and so does all that was there before.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The files that one attempt makes. Clones are of the same attempt.
#[derive(Clone, Debug, Default)]
pub struct MadeFiles(Arc<Mutex<Made>>);

#[derive(Debug, Default)]
struct Made {
    fate: Fate,
    files: Vec<MadeFile>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Fate {
    #[default]
    Open,
    Kept,
    Removed,
}

#[derive(Debug)]
struct MadeFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl MadeFile {
    /// Removes it, if it is still at its path.
    fn remove(&self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl MadeFiles {
    /// Notes a file that was made just now, with its device and inode. False if the attempt is over and was refused:
    /// then the file is removed.
    pub(crate) fn note(&self, path: &Path, identity: (u64, u64)) -> io::Result<bool> {
        let made = MadeFile {
            path: path.to_owned(),
            identity,
        };
        let mut all = self.lock();
        match all.fate {
            Fate::Open => all.files.push(made),
            Fate::Kept => {}
            Fate::Removed => {
                made.remove()?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the attempt was refused.
    pub fn is_refused(&self) -> bool {
        self.lock().fate == Fate::Removed
    }

    /// A file that was made stays: another program has it, or it is needed in any case.
    pub fn disown(&self, path: &Path) {
        self.lock().files.retain(|one| one.path != path);
    }

    /// The attempt has come about: all files stay.
    pub fn keep(&self) {
        let mut all = self.lock();
        if all.fate == Fate::Open {
            all.fate = Fate::Kept;
            all.files.clear();
        }
    }

    /// The attempt is refused: all its files go. Returns those that could not be removed. Nothing happens if they are
    /// kept.
    pub fn remove(&self) -> Vec<(PathBuf, io::Error)> {
        let mut all = self.lock();
        if all.fate == Fate::Open {
            all.fate = Fate::Removed;
        }
        let files = std::mem::take(&mut all.files);
        let removed = files
            .into_iter()
            .filter_map(|one| Some((one.remove().err()?, one.path)));
        removed.map(|(error, path)| (path, error)).collect()
    }

    /// Nothing that panics runs while it is held.
    fn lock(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::{OpenFailure, OpenOptions, StoreKind};

    fn options(path: &Path, made: &MadeFiles) -> OpenOptions {
        OpenOptions {
            size_bytes: Some(1 << 20),
            made: made.clone(),
            ..OpenOptions::new(StoreKind::File, path)
        }
    }

    fn directory(name: &str) -> PathBuf {
        let name = format!("tarn-made-{name}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        directory
    }

    #[test]
    fn a_refused_attempt_removes_what_it_made_and_nothing_else() {
        let directory = directory("refused");
        let [new, old, replaced] = ["new", "old", "replaced"].map(|name| directory.join(name));
        File::create(&old).unwrap();
        let made = MadeFiles::default();
        let open = |path: &Path| options(path, &made).open().unwrap();
        let stores = [open(&new), open(&old), open(&replaced)];
        fs::remove_file(&replaced).unwrap();
        fs::write(&replaced, "of somebody else").unwrap();
        assert!(made.remove().is_empty());
        drop(stores);
        assert!(!new.exists());
        assert!(old.exists() && replaced.exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn what_is_kept_is_never_removed() {
        let directory = directory("kept");
        let path = directory.join("new");
        let made = MadeFiles::default();
        drop(options(&path, &made).open().unwrap());
        made.keep();
        assert!(made.remove().is_empty());
        assert!(path.exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_comes_after_the_refusal_does_not_stay() {
        let directory = directory("late");
        let path = directory.join("new");
        let made = MadeFiles::default();
        made.remove();
        let error = options(&path, &made).open().unwrap_err();
        assert!(matches!(error.reason, OpenFailure::TooLate), "{error}");
        assert!(!path.exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_another_has_by_now_stays() {
        let directory = directory("disowned");
        let [mine, theirs, gone] = ["mine", "theirs", "gone"].map(|name| directory.join(name));
        let made = MadeFiles::default();
        assert!(!made.is_refused());
        for path in [&mine, &theirs, &gone] {
            drop(options(path, &made).open().unwrap());
        }
        made.disown(&theirs);
        fs::remove_file(&gone).unwrap();
        assert!(made.remove().is_empty() && made.is_refused());
        assert!(!mine.exists() && theirs.exists());
        // Too late to keep anything.
        made.keep();
        assert!(made.is_refused());
        fs::remove_dir_all(&directory).unwrap();
    }
}
