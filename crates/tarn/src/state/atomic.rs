//! Files that are replaced as a whole. After a crash the old content is there or the new one,
//! never a part.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Rights of every file of the state directory.
const PRIVATE: u32 = 0o600;

/// Opens a file for writing and makes it, private, if it is not there; its content stays.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE)
        .open(path)
}

/// Replaces the content of `path`. On return it is on stable storage.
///
/// The caller holds the lock that keeps others from replacing the same file: they would use the
/// same temporary name.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE)
        .open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    // The new name is an entry of the directory, which has a life of its own on the disk.
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn content_is_replaced_whole_and_private_and_nothing_is_left_over() {
        let scratch = Scratch::new();
        let path = scratch.path().join("file.toml");
        fs::write(
            path.with_extension("new"),
            b"rest of a crash, longer than the new text",
        )
        .unwrap();
        for content in [&b"first"[..], b"2"] {
            replace(&path, content).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, PRIVATE);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }
}
