//! Passwords of HyperSCSI groups: read from files, from the environment, or from a terminal.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use config::Place;
use remote::Password;
use tracing::dispatcher::{self, Dispatch};
use tracing::subscriber::NoSubscriber;

use crate::{Environment, StartError};

/// Shorter ones are guessed.
const BYTES_MIN: usize = 8;
/// Longer ones are no passwords.
const BYTES_MAX: usize = 1024;

/// Reads the password that a file has. A line end at its end does not count.
///
/// # Errors
///
/// It cannot be read, or is too short or too long.
pub(crate) fn from_file(path: &Path, place: &Place) -> Result<Password, StartError> {
    let failed = |reason: String| StartError::Password {
        place: place.clone(),
        path: path.to_owned(),
        reason,
    };
    let unreadable = |error: io::Error| failed(format!("cannot be read: {error}"));
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(failed(
            "is no file; name a file with the password".to_owned(),
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        warn_of_readers(path, place, mode);
    }
    let mut bytes = Vec::with_capacity(BYTES_MAX + 3);
    file.take(BYTES_MAX as u64 + 3)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    checked(bytes).map_err(failed)
}

/// Says that others may read a password: in the log, or by itself where the program has none.
fn warn_of_readers(path: &Path, place: &Place, mode: u32) {
    let path = path.display();
    let mode = format!("{mode:04o}");
    if dispatcher::get_default(Dispatch::is::<NoSubscriber>) {
        let line = format!(
            "tarn: warning: {place}: others may read the password in {path} (mode {mode}); run chmod 600 on the file"
        );
        let line = crate::error::plain(&line);
        crate::say(io::stderr().lock(), &format!("{line}\n"));
    } else {
        tracing::warn!(%place, %path, mode, "others may read a password; run chmod 600 on the file");
    }
}

/// The password of a flag, or of the environment.
///
/// # Errors
///
/// It cannot be read, or is too short or too long.
pub fn given(
    file: Option<&Path>,
    environment: &Environment,
    flag: &str,
) -> Result<Option<Password>, StartError> {
    match (file, &environment.password) {
        (Some(path), _) => from_file(path, &Place::argument(flag)).map(Some),
        (None, Some(text)) => {
            let found = checked(text.as_bytes().to_vec());
            let found = found.map_err(|reason| StartError::Argument {
                place: Place::argument("TARN_PASSWORD"),
                reason: format!("it {reason}"),
            })?;
            Ok(Some(found))
        }
        (None, None) => Ok(None),
    }
}

/// The password in these bytes.
pub fn checked(mut bytes: Vec<u8>) -> Result<Password, String> {
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    match bytes.len() {
        count @ ..BYTES_MIN => Err(format!(
            "has {count} bytes; a password has at least {BYTES_MIN}"
        )),
        count if count > BYTES_MAX => Err(format!(
            "has more than {BYTES_MAX} bytes, which no password has"
        )),
        _ => Ok(Password::new(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_from_8_to_1024_bytes_without_its_line_end() {
        for good in [
            &b"12345678"[..],
            b"12345678\r\n",
            b"1234567\n\n",
            &[b'a'; 1024],
        ] {
            assert!(checked(good.to_vec()).is_ok(), "{good:?}");
        }
        for (bad, reason) in [
            (&b"1234567\n"[..], "has 7 bytes"),
            (b"", "has 0 bytes"),
            (&[b'a'; 1025], "more than 1024"),
        ] {
            let error = checked(bad.to_vec()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_password_is_read_from_a_file_and_from_nothing_else() {
        let scratch = crate::scratch::Scratch::new();
        let place = Place::argument("--password-file");
        let path = scratch.path().join("p");
        let read = |path: &Path| {
            let read = from_file(path, &place);
            read.map(|_| ()).map_err(|error| error.to_string())
        };
        for (bytes, expected) in [
            (&b"12345678"[..], None),
            (b"1234567\r\n", Some("has 7 bytes")),
            (&[b'a'; 1024], None),
            (&[&[b'a'; 1024][..], b"\r\n"].concat(), None),
            (&[b'a'; 1025], Some("more than 1024 bytes")),
            (&[b'a'; 4096], Some("more than 1024 bytes")),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = read(&path).err();
            let is_said =
                expected.is_none_or(|words| error.as_ref().is_some_and(|it| it.contains(words)));
            assert!(
                is_said && error.is_some() == expected.is_some(),
                "{error:?} {expected:?}"
            );
        }
        assert!(read(scratch.path()).unwrap_err().contains("is no file"));
        assert!(
            read(&scratch.path().join("none"))
                .unwrap_err()
                .contains("cannot be read")
        );
    }
}
