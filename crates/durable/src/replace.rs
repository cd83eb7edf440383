//! Files that are replaced as a whole. After a crash the old content is there or the new one,
//! never a part.

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Rights of every file of the state directory.
const PRIVATE: u32 = 0o600;

/// Opens a file for writing and makes it, private, if it is not there; its content stays. A FIFO
/// in its place is an error, and not waited for.
pub fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
}

/// Makes a directory for its owner alone, and those above it, where they are not there.
pub fn make_private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// What the name of a file that is being written ends with; nobody else's files are called so.
pub const TEMPORARY: &str = ".tarn-new";

/// Why a file was not replaced.
#[derive(Debug)]
pub struct NotReplaced {
    /// What failed.
    pub error: io::Error,
    /// The new content may be there all the same, now or after a crash: the name was changed, and only then something
    /// failed. Otherwise the old content is there.
    pub may_be_done: bool,
}

/// Replaces a file by one that only this user may read, or makes it. On return it is on stable
/// storage; on an error the old content is there, or the new one if only the directory could not
/// be flushed.
///
/// The caller holds the lock that keeps others from replacing the same file: they would use the
/// same temporary name.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    try_replace(path, content).map_err(|not| not.error)
}

/// The same for those who must know which content may be there after an error.
///
/// # Errors
///
/// That is what it says.
pub fn try_replace(path: &Path, content: &[u8]) -> Result<(), NotReplaced> {
    replace_as(path, content, None)
}

/// Replaces the content of a file that is somebody else's: a link stays one, and those who might
/// read and write the file still may. Otherwise as [`replace`].
pub fn replace_content(path: &Path, content: &[u8]) -> io::Result<()> {
    let path = std::fs::canonicalize(path)?;
    let before = std::fs::metadata(&path)?;
    replace_as(&path, content, Some(&before)).map_err(|not| not.error)
}

/// Makes a file with the rights of the file `like`. There must be none at `path`.
pub fn make_like(path: &Path, content: &[u8], like: &Path) -> io::Result<()> {
    write_new(path, content, PRIVATE, Some(&std::fs::metadata(like)?))?;
    sync_directory_of(path)
}

/// Makes a file with this mode. There must be none at `path`.
pub fn make(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    write_new(path, content, mode, None)?;
    sync_directory_of(path)
}

fn replace_as(
    path: &Path,
    content: &[u8],
    rights_of: Option<&Metadata>,
) -> Result<(), NotReplaced> {
    let not = |may_be_done| move |error| NotReplaced { error, may_be_done };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(TEMPORARY);
    let temporary = PathBuf::from(temporary);
    // Open before anything is done: what fails after the rename has replaced the file.
    let directory = directory_of(path).map_err(not(false))?;
    // One is left over when a process was killed; its rights are anybody's guess.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(not(false)(error)),
        Ok(()) | Err(_) => {}
    }
    write_new(&temporary, content, PRIVATE, rights_of).map_err(not(false))?;
    // A file system of another machine may rename although it reports an error.
    let renamed = std::fs::rename(&temporary, path).inspect_err(|_| remove(&temporary));
    renamed
        .and_then(|()| directory.sync_all())
        .map_err(not(true))
}

/// Writes a file that is not there yet. On an error it takes no space.
fn write_new(
    path: &Path,
    content: &[u8],
    mode: u32,
    rights_of: Option<&Metadata>,
) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    let written = file
        .write_all(content)
        .and_then(|()| rights_of.map_or(Ok(()), |before| give_rights(&file, before)))
        .and_then(|()| file.sync_all());
    written.inspect_err(|_| remove(path))
}

/// Gives a new file the owner, group and mode of another, as far as this process may. What was
/// the group's right becomes that of another group only if everybody has it.
fn give_rights(file: &File, before: &Metadata) -> io::Result<()> {
    let is_owner = |uid, gid| fchown(file, uid, gid).is_ok();
    let keeps_group =
        is_owner(Some(before.uid()), Some(before.gid())) || is_owner(None, Some(before.gid()));
    let mode = before.mode() & 0o777;
    let mode = match keeps_group {
        true => mode,
        false => mode & 0o707 | (mode & 0o007) << 3,
    };
    file.set_permissions(Permissions::from_mode(mode))
}

/// A file that cannot be removed either is removed by the next who replaces it.
fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "a temporary file is left over");
    }
}

/// A new name is an entry of the directory, which has a life of its own on the disk.
fn sync_directory_of(path: &Path) -> io::Result<()> {
    directory_of(path)?.sync_all()
}

fn directory_of(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::scratch::Scratch;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn names(scratch: &Scratch) -> Vec<String> {
        let entries = fs::read_dir(scratch.path()).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn content_is_replaced_whole_and_private_and_nothing_is_left_over() {
        let scratch = Scratch::new();
        let path = scratch.path().join("file.toml");
        let stale = scratch.path().join("file.toml.tarn-new");
        fs::write(&stale, b"rest of a crash, longer than the new text").unwrap();
        fs::set_permissions(&stale, Permissions::from_mode(0o666)).unwrap();
        for content in [&b"first"[..], b"2"] {
            replace(&path, content).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
            assert_eq!(mode(&path), PRIVATE);
        }
        assert_eq!(names(&scratch), ["file.toml"]);
    }

    #[test]
    fn files_beside_it_are_left_alone() {
        let scratch = Scratch::new();
        for other in ["tarn.new", "tarn.toml.new"] {
            fs::write(scratch.path().join(other), other).unwrap();
        }
        replace(&scratch.path().join("tarn.toml"), b"text").unwrap();
        for other in ["tarn.new", "tarn.toml.new"] {
            let content = fs::read_to_string(scratch.path().join(other)).unwrap();
            assert_eq!(content, other);
        }
    }

    #[test]
    fn a_link_stays_a_link_and_the_rights_of_its_file_stay() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("real")).unwrap();
        let (file, link) = (
            scratch.path().join("real/tarn.toml"),
            scratch.path().join("tarn.toml"),
        );
        fs::write(&file, "old").unwrap();
        symlink("real/tarn.toml", &link).unwrap();
        for rights in [0o644, 0o640, 0o600] {
            fs::set_permissions(&file, Permissions::from_mode(rights)).unwrap();
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&file, Some(4711), Some(4712)).unwrap();
            }
            let before = fs::metadata(&file).unwrap();
            replace_content(&link, b"new").unwrap();
            let after = fs::metadata(&file).unwrap();
            assert_eq!(fs::read(&file).unwrap(), b"new");
            assert_eq!(mode(&file), rights);
            assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        }
        assert!(link.is_symlink());
        assert_eq!(names(&scratch), ["real", "tarn.toml"]);
    }

    #[test]
    fn an_error_leaves_neither_a_change_nor_a_temporary_file() {
        let scratch = Scratch::new();
        let directory = scratch.path().join("taken");
        fs::create_dir_all(directory.join("in it")).unwrap();
        let not = try_replace(&directory, b"text").unwrap_err();
        assert!(not.may_be_done, "the name was to be changed");
        assert!(replace_content(&scratch.path().join("absent"), b"text").is_err());
        let full = write_new(Path::new("/dev/full"), b"text", PRIVATE, None);
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(&scratch), ["taken"]);
    }

    #[test]
    fn what_fails_before_the_name_is_changed_is_not_done() {
        let scratch = Scratch::new();
        let path = scratch.path().join("file");
        fs::create_dir(scratch.path().join("file.tarn-new")).unwrap();
        assert!(!try_replace(&path, b"text").unwrap_err().may_be_done);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_made_like_another_file_replaces_nothing() {
        let scratch = Scratch::new();
        let (like, made) = (scratch.path().join("a"), scratch.path().join("b"));
        fs::write(&like, "").unwrap();
        fs::set_permissions(&like, Permissions::from_mode(0o640)).unwrap();
        make_like(&made, b"text", &like).unwrap();
        assert_eq!(
            (fs::read(&made).unwrap(), mode(&made)),
            (b"text".to_vec(), 0o640)
        );
        let again = make_like(&made, b"other", &like).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&made).unwrap(), b"text");
    }
}
