//! Texts with their length and checksum in a first line, which TOML takes for a comment:
//!
//! ```text
//! # sum = 1234 d2a84f4b8b650937ec8f73cd8be2c74add5a911ba64df27458ed8229da804a26
//! ```
//!
//! The length is that of all after this line in bytes, the checksum its SHA-256. The line comes
//! first, so that a text which is cut off anywhere is known to be. A text that has no such line
//! is of an earlier version, or was edited by hand without it, and is taken as it is; it gets one
//! when it is written again.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use sha2::{Digest as _, Sha256};

use crate::replace;

/// What the first line begins with.
const MARK: &str = "# sum = ";

/// What the name of the copy of a file ends with.
const COPY: &str = ".last";

/// Bytes of a file that is read, at most. A longer one is not what Tarn wrote.
pub const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
    /// It is a directory, a FIFO, a socket or a device.
    NotRegular,
    /// It has more than [`FILE_BYTES_MAX`] bytes.
    TooLong,
    /// There is nothing in it. A file that Tarn writes is never empty.
    Empty,
    /// It is no text.
    NoText,
    /// It is not what its first line says.
    Sum,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotRegular => "it is not a regular file",
            Self::TooLong => "it is longer than 64 MiB",
            Self::Empty => "it is empty",
            Self::NoText => "it is no text",
            Self::Sum => "it is cut off or changed: its checksum is another one",
        })
    }
}

/// A file that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found<T = String> {
    /// There is none.
    Absent,
    /// What it holds: by [`read`] its text, without the line of the checksum.
    Whole(T),
    /// It cannot be trusted.
    Damaged(Damage),
}

/// The text with its first line.
pub fn seal(text: &str) -> String {
    format!("{MARK}{}\n{text}", sum_of(text.as_bytes()))
}

/// Length and checksum of bytes.
pub fn sum_of(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    let mut sum = format!("{} ", bytes.len());
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _infallible = write!(sum, "{byte:02x}");
    }
    sum
}

/// The text without its first line.
///
/// # Errors
///
/// The text is not what the line says.
pub fn open(bytes: &[u8]) -> Result<&str, Damage> {
    let text = std::str::from_utf8(bytes).map_err(|_| Damage::NoText)?;
    if text.is_empty() {
        return Err(Damage::Empty);
    }
    if MARK.starts_with(text) {
        return Err(Damage::Sum);
    }
    let Some(sealed) = text.strip_prefix(MARK) else {
        return Ok(text);
    };
    match sealed.split_once('\n') {
        Some((sum, content)) if sum == sum_of(content.as_bytes()) => Ok(content),
        Some(_) | None => Err(Damage::Sum),
    }
}

/// Reads a file and checks its first line.
///
/// # Errors
///
/// It cannot be read.
pub fn read(path: &Path) -> io::Result<Found> {
    Ok(match read_bytes(path)? {
        Found::Absent => Found::Absent,
        Found::Damaged(damage) => Found::Damaged(damage),
        Found::Whole(bytes) => match open(&bytes) {
            Ok(text) => Found::Whole(text.to_owned()),
            Err(damage) => Found::Damaged(damage),
        },
    })
}

/// Reads the bytes of a file. What is not a regular file, or too long, is damaged: it is not
/// waited for, and takes no memory.
///
/// # Errors
///
/// It cannot be read.
pub fn read_bytes(path: &Path) -> io::Result<Found<Vec<u8>>> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        // A socket.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => {
            return Ok(Found::Damaged(Damage::NotRegular));
        }
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(Found::Damaged(Damage::NotRegular));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Ok(Found::Damaged(Damage::TooLong));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Found::Whole(bytes))
}

/// Replaces a file by this text with its first line.
///
/// # Errors
///
/// As [`replace`](crate::replace).
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    replace(path, seal(text).as_bytes())
}

/// Replaces a file by these bytes, and then its copy ([`write_copy`]).
///
/// # Errors
///
/// As [`replace`](crate::replace).
pub fn write_with_copy(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes)?;
    write_copy(path, bytes);
    Ok(())
}

/// Replaces the copy of a file by what the file holds. It is there for when the file is damaged later. The file
/// counts: that the copy cannot be written is only logged.
pub fn write_copy(path: &Path, bytes: &[u8]) {
    let copy = copy_of(path);
    if let Err(error) = replace(&copy, bytes) {
        tracing::warn!(path = %copy.display(), %error, "the copy of a state file is not up to date");
    }
}

/// Where the copy of a file is.
pub fn copy_of(path: &Path) -> PathBuf {
    let mut copy = path.as_os_str().to_owned();
    copy.push(COPY);
    PathBuf::from(copy)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::scratch::Scratch;

    const TEXT: &str = "version = 1\n\n[[unit]]\nid = \"a\"\n";

    #[test]
    fn a_sealed_text_is_read_again_and_no_part_of_it_is() {
        let sealed = seal(TEXT);
        assert_eq!(open(sealed.as_bytes()), Ok(TEXT));
        for end in 0..sealed.len() {
            assert!(open(&sealed.as_bytes()[..end]).is_err(), "{end} bytes");
        }
        assert_eq!(open(seal("").as_bytes()), Ok(""));
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed_behind_the_mark() {
        let sealed = seal(TEXT).into_bytes();
        for at in MARK.len()..sealed.len() {
            for bit in 0..8 {
                let mut flipped = sealed.clone();
                flipped[at] ^= 1 << bit;
                assert!(open(&flipped).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_text_of_an_earlier_version_is_taken_as_it_is() {
        assert_eq!(open(TEXT.as_bytes()), Ok(TEXT));
        assert_eq!(open(b"# mine\n"), Ok("# mine\n"));
        assert_eq!(open(b"\xff"), Err(Damage::NoText));
    }

    #[test]
    fn a_file_and_its_copy_are_the_same() {
        let scratch = Scratch::new();
        let path = scratch.path().join("a.toml");
        assert_eq!(read(&path).unwrap(), Found::Absent);
        write_with_copy(&path, seal(TEXT).as_bytes()).unwrap();
        fs::write(&path, "").unwrap();
        assert_eq!(read(&path).unwrap(), Found::Damaged(Damage::Empty));
        let copy = read(&copy_of(&path)).unwrap();
        assert_eq!(copy, Found::Whole(TEXT.to_owned()));
    }

    #[test]
    fn what_is_not_a_regular_file_is_damaged_and_not_waited_for() {
        let scratch = Scratch::new();
        let (directory, fifo, socket) = (
            scratch.path().join("directory"),
            scratch.path().join("fifo"),
            scratch.path().join("socket"),
        );
        fs::create_dir(&directory).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for path in [&directory, &fifo, &socket, Path::new("/dev/zero")] {
            let found = read(path).unwrap();
            assert_eq!(found, Found::Damaged(Damage::NotRegular), "{path:?}");
        }
    }

    #[test]
    fn a_file_may_have_64_mib_and_no_more() {
        let scratch = Scratch::new();
        let path = scratch.path().join("long");
        let file = File::create(&path).unwrap();
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read(&path).unwrap(), Found::Damaged(Damage::TooLong));
        file.set_len(FILE_BYTES_MAX).unwrap();
        let Found::Whole(bytes) = read_bytes(&path).unwrap() else {
            panic!("the longest file is damaged");
        };
        assert_eq!(bytes.len() as u64, FILE_BYTES_MAX);
    }
}
