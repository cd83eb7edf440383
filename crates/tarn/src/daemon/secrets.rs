//! Secrets of users, as the administration meets them: compared, and put into files; never shown.

use std::path::Path;

use api::problem::{Problem, ProblemKind};
use config::Model;

use crate::secret::Secrets;
use crate::state::{make_private_directory, replace_file};

/// Lengths that CHAP secrets may have, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 12..=128;

/// Whether a user that both configurations have has another secret in the second.
pub(super) fn differ(
    (old, old_secrets): (&Model, &Secrets),
    (new, new_secrets): (&Model, &Secrets),
    user: &str,
) -> bool {
    let before = old.user_by_name(user).and_then(|user| old_secrets.of(user));
    let after = new.user_by_name(user).and_then(|user| new_secrets.of(user));
    before != after
}

/// Keeps a secret in `STATE/secrets/USER.secret`, or `USER.mutual.secret`, readable by this user
/// alone. Gives the path. Characters of the name that are not plain letters or digits are written
/// as `%` and two hexadecimal digits a byte.
pub(super) fn keep(
    state: &Path,
    user: &str,
    secret: &str,
    is_mutual: bool,
) -> Result<String, Problem> {
    if !SECRET_BYTES.contains(&secret.len()) || secret.contains('\n') {
        let (least, most) = (SECRET_BYTES.start(), SECRET_BYTES.end());
        let detail = format!("the secret of {user:?} must be one line of {least} to {most} bytes");
        return Err(Problem::new(ProblemKind::BadRequest, detail));
    }
    let directory = state.join("secrets");
    let ending = if is_mutual { "mutual.secret" } else { "secret" };
    let path = directory.join(format!("{}.{ending}", escaped(user)));
    let kept =
        make_private_directory(&directory).and_then(|()| replace_file(&path, secret.as_bytes()));
    kept.map_err(|error| {
        let detail = format!("cannot write {}: {error}", path.display());
        Problem::new(ProblemKind::ApplyFailed, detail)
    })?;
    let path = std::path::absolute(&path).unwrap_or(path);
    path.into_os_string().into_string().map_err(|path| {
        let detail = format!("the path {} cannot be written into TOML", path.display());
        Problem::new(ProblemKind::ApplyFailed, detail)
    })
}

/// A name as part of a file's name.
fn escaped(user: &str) -> String {
    let mut name = String::new();
    for byte in user.bytes() {
        if byte.is_ascii_alphanumeric() {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_secret_is_kept_in_a_private_file_whatever_the_user_is_called() {
        let scratch = Scratch::new();
        for (user, is_mutual, name) in [
            ("alice", false, "alice.secret"),
            ("alice", true, "alice.mutual.secret"),
            ("../x", false, "%2e%2e%2fx.secret"),
        ] {
            let path = keep(scratch.path(), user, "a secret of 20 bytes", is_mutual).unwrap();
            assert!(path.ends_with(&format!("/secrets/{name}")), "{path}");
            assert_eq!(
                std::fs::read_to_string(&path).unwrap(),
                "a secret of 20 bytes"
            );
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_secret_that_chap_cannot_use_is_refused() {
        let scratch = Scratch::new();
        for secret in ["short", "two lines\nof secret", &"x".repeat(129)] {
            let problem = keep(scratch.path(), "alice", secret, false).unwrap_err();
            assert!(!problem.detail.contains(secret), "{problem}");
        }
    }
}
