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

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::replace;

/// What the first line begins with.
const MARK: &str = "# sum = ";

/// What the name of the copy of a file ends with.
const COPY: &str = ".last";

/// What is wrong with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
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
            Self::Empty => "it is empty",
            Self::NoText => "it is no text",
            Self::Sum => "it is cut off or changed: its checksum is another one",
        })
    }
}

/// A file that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// There is none.
    Absent,
    /// Its text, without the line of the checksum.
    Whole(String),
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

/// Reads a file.
///
/// # Errors
///
/// It cannot be read.
pub fn read(path: &Path) -> io::Result<Found> {
    match fs::read(path) {
        Ok(bytes) => Ok(match open(&bytes) {
            Ok(text) => Found::Whole(text.to_owned()),
            Err(damage) => Found::Damaged(damage),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Absent),
        Err(error) => Err(error),
    }
}

/// Replaces a file by this text with its first line.
///
/// # Errors
///
/// As [`replace`](crate::replace).
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    replace(path, seal(text).as_bytes())
}

/// Replaces a file by these bytes, and then its copy, which is there for when the file is damaged
/// later. The file counts: that the copy cannot be written is only logged.
///
/// # Errors
///
/// As [`replace`](crate::replace).
pub fn write_with_copy(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes)?;
    let copy = copy_of(path);
    if let Err(error) = replace(&copy, bytes) {
        tracing::warn!(path = %copy.display(), %error, "the copy of a state file is not up to date");
    }
    Ok(())
}

/// Where the copy of a file is.
pub fn copy_of(path: &Path) -> PathBuf {
    let mut copy = path.as_os_str().to_owned();
    copy.push(COPY);
    PathBuf::from(copy)
}

#[cfg(test)]
mod tests {
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
}
