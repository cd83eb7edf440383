//! Secrets of users, as the administration meets them: compared, and put into files; never shown.
//!
//! `STATE/secrets/NAME/HEX.secret`, where NAME is that of the history and HEX is random. A secret
//! has a file of its own, which is never written again: what runs and what an earlier revision
//! says stay as they are whatever becomes of a change. A file goes when neither the configuration
//! file nor a record of any history in the state directory names it. Files elsewhere are not
//! Tarn's, and stay.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::edit::SecretOf;
use api::problem::{Problem, ProblemKind};
use config::{
    HyperScsiPassword, HyperScsiRule, Model, NOT_SHOWN, NewSecrets, PASSWORD_BYTES_MAX,
    PASSWORD_BYTES_MIN,
};

use super::file::unwritten;
use super::history::{Record, name_of};
use super::running::Running;
use crate::secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secrets, UserSecrets};

/// Lengths that CHAP secrets may have, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = SECRET_BYTES_MIN..=SECRET_BYTES_MAX;

/// Lengths that passwords of groups of HyperSCSI may have, in bytes.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX;

/// What the name of a secret's file ends with.
const ENDING: &str = ".secret";

/// Which secrets of a user that both configurations have are others in the second.
pub(super) fn differ(
    (old, old_secrets): (&Model, &Secrets),
    (new, new_secrets): (&Model, &Secrets),
    user: &str,
) -> NewSecrets {
    let before = old.user_by_name(user).and_then(|user| old_secrets.of(user));
    let after = new.user_by_name(user).and_then(|user| new_secrets.of(user));
    let own = |secrets: Option<&UserSecrets>| secrets.map(|both| both.forward.clone());
    let mutual = |secrets: Option<&UserSecrets>| secrets.and_then(|both| both.mutual.clone());
    NewSecrets {
        own: own(before) != own(after),
        mutual: mutual(before)
            .zip(mutual(after))
            .is_some_and(|(before, after)| before != after),
    }
}

/// Whether a group of HyperSCSI that both configurations have, here by what it is called, has another password in the
/// second.
pub(super) fn password_differs(
    (old, old_secrets): (&Model, &Secrets),
    (new, new_secrets): (&Model, &Secrets),
    group: &str,
) -> bool {
    let of = |model: &Model, secrets: &Secrets| {
        let mut groups = model.hyperscsi().iter();
        let position = groups.position(|one| one.to_string() == group)?;
        secrets.password(position).cloned()
    };
    of(old, old_secrets) != of(new, new_secrets)
}

/// The files of one configuration's secrets.
#[derive(Debug)]
pub(super) struct SecretFiles {
    state: PathBuf,
    directory: PathBuf,
    /// Those that a change is going to name.
    pending: Mutex<BTreeSet<PathBuf>>,
}

impl SecretFiles {
    /// Those of the configuration file, in this state directory.
    pub(super) fn of(state: &Path, file: &Path) -> io::Result<Self> {
        let state = std::path::absolute(state)?;
        Ok(Self {
            directory: state.join("secrets").join(name_of(file)?),
            state,
            pending: Mutex::default(),
        })
    }

    /// A thread that panicked while it held this lock did not leave half a value behind.
    fn pending(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a secret in a new file, readable by this user alone, until [`SecretFiles::release`]
    /// at least. Gives the path.
    pub(super) fn keep(&self, of: SecretOf<'_>, secret: &str) -> Result<String, Problem> {
        let (what, name, bytes) = match of {
            SecretOf::User(name) | SecretOf::Mutual(name) => ("secret", name, SECRET_BYTES),
            SecretOf::Hyperscsi(name) => ("password", name, PASSWORD_BYTES),
        };
        if !bytes.contains(&secret.len()) || secret.contains('\n') {
            let (least, most) = (bytes.start(), bytes.end());
            let detail =
                format!("the {what} of {name:?} must be one line of {least} to {most} bytes");
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        if secret == NOT_SHOWN {
            let detail = format!("the {what} of {name:?}: {}", HyperScsiRule::NotShown);
            return Err(Problem::new(ProblemKind::BadRequest, detail));
        }
        let failed = |detail| Problem::new(ProblemKind::ApplyFailed, detail);
        let mut random = [0; 8];
        getrandom::fill(&mut random)
            .map_err(|error| failed(format!("no random name for a secret: {error}")))?;
        let name = format!("{:016x}{ENDING}", u64::from_be_bytes(random));
        let path = self.directory.join(name);
        let text = path.to_str().map(ToOwned::to_owned).ok_or_else(|| {
            let path = path.display();
            failed(format!("the path {path} cannot be written into TOML"))
        })?;
        self.pending().insert(path.clone());
        let kept = durable::make_private_directory(&self.directory)
            .and_then(|()| durable::replace(&path, secret.as_bytes()));
        kept.map_err(|error| {
            self.pending().remove(&path);
            unwritten(format!("cannot write {text}: {error}"), &error)
        })?;
        Ok(text)
    }

    /// The file that a secret is in already, as the document names it: the same secret
    /// again is no change. Only a file of this directory will do, as nobody else writes it.
    pub(super) fn same(&self, running: &Running, of: SecretOf<'_>, secret: &str) -> Option<String> {
        let user = |name: &str| {
            let index = running.model.user_by_name(name)?;
            let user = running.model.users().get(index.position())?;
            Some((user, running.secrets.of(index)?))
        };
        let (file, known) = match of {
            SecretOf::User(name) => {
                let (user, secrets) = user(name)?;
                (&user.secret, &secrets.forward)
            }
            SecretOf::Mutual(name) => {
                let (user, secrets) = user(name)?;
                (&user.mutual.as_ref()?.secret, secrets.mutual.as_ref()?)
            }
            SecretOf::Hyperscsi(name) => {
                let mut groups = running.model.hyperscsi().iter();
                let at = groups.position(|one| one.name == name || one.to_string() == name)?;
                let group = running.model.hyperscsi().get(at)?;
                let HyperScsiPassword::File(file) = &group.password else {
                    return None;
                };
                (file, running.secrets.password(at)?)
            }
        };
        let is_same =
            file.path.starts_with(&self.directory) && known.as_bytes() == secret.as_bytes();
        is_same.then(|| file.text.clone())
    }

    /// The change that was to name the file has been made, or not.
    pub(super) fn release(&self, path: &str, file: &Path) {
        let path = PathBuf::from(path);
        self.pending().remove(&path);
        if path.starts_with(&self.directory) {
            self.remove_unnamed(file, &[path]);
            self.remove_empty(&self.pending());
        }
    }

    /// Removes every file that nothing names any more. `file` is the configuration file.
    pub(super) fn collect(&self, file: &Path) {
        // Held to the end: what is made meanwhile is pending, or has not been listed.
        let pending = self.pending();
        let mut files = files_in(&self.directory);
        files.retain(|path| !pending.contains(&finished(path)));
        self.remove_unnamed(file, &files);
        self.remove_empty(&pending);
    }

    /// Removes the directories, unless something is in them or is going to be: [`SecretFiles::keep`] notes a file as
    /// pending before it makes them.
    fn remove_empty(&self, pending: &BTreeSet<PathBuf>) {
        let all = self.state.join("secrets");
        for directory in [&self.directory, &all] {
            if pending.is_empty() && fs::remove_dir(directory).is_err() {
                break;
            }
        }
    }

    fn remove_unnamed(&self, file: &Path, files: &[PathBuf]) {
        let mut unnamed = BTreeMap::<String, Vec<&PathBuf>>::new();
        for path in files {
            if let Some(name) = finished(path).file_name().and_then(|name| name.to_str()) {
                unnamed.entry(name.to_owned()).or_default().push(path);
            }
        }
        if unnamed.is_empty() {
            return;
        }
        if let Err(error) = self.strike_named(file, &mut unnamed) {
            tracing::warn!(%error, "secrets that nothing may name any more stay");
            return;
        }
        for path in unnamed.into_values().flatten() {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), %error, "an old secret stays");
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Leaves the names that no text has. Several daemons may share the state directory, so the
    /// texts are those of every history, read as they are on disk.
    fn strike_named<T>(&self, file: &Path, names: &mut BTreeMap<String, T>) -> io::Result<()> {
        strike(&text_of(file)?, names);
        for history in entries(&self.state.join("history"))? {
            for record in entries(&history)? {
                if record.extension().is_some_and(|it| it == "toml") && record.is_file() {
                    strike(&document_in(&text_of(&record)?), names);
                }
            }
        }
        Ok(())
    }
}

/// The text of a file; nothing if there is none.
fn text_of(file: &Path) -> io::Result<String> {
    match fs::read(file) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// The document of a record: its steps name what was before, too. A damaged record counts as it
/// is, as the names have no character that TOML would write in another way.
fn document_in(record: &str) -> Cow<'_, str> {
    match toml::from_str::<Record>(record) {
        Ok(record) => Cow::Owned(record.text),
        Err(_) => Cow::Borrowed(record),
    }
}

/// Removes the names that a text has.
fn strike<T>(text: &str, names: &mut BTreeMap<String, T>) {
    for (at, _) in text.match_indices(ENDING) {
        let before = text.get(..at).unwrap_or_default();
        let start = before
            .trim_end_matches(|each: char| each.is_ascii_hexdigit())
            .len();
        if let Some(name) = text.get(start..at + ENDING.len()) {
            names.remove(name);
        }
    }
}

/// The path of a file when it has been written.
fn finished(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.and_then(|name| name.strip_suffix(durable::TEMPORARY)) {
        Some(name) => path.with_file_name(name),
        None => path.to_owned(),
    }
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = entries(directory).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %directory.display(), "old secrets stay");
        Vec::new()
    });
    files.retain(|path| path.is_file());
    files
}

/// What is in a directory; nothing if there is none.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::history::History;
    use crate::scratch::Scratch;

    const SECRET: &str = "a secret of 20 bytes";

    fn files(scratch: &Scratch) -> (SecretFiles, PathBuf) {
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "").unwrap();
        let files = SecretFiles::of(scratch.path(), &file).unwrap();
        (files, file)
    }

    fn names(path: &str) -> String {
        format!("[[user]]\nname = \"a\"\nsecret_file = \"{path}\"\n")
    }

    #[test]
    fn a_secret_is_kept_in_a_private_file_whatever_the_user_is_called() {
        let scratch = Scratch::new();
        let (files, _) = files(&scratch);
        let mut paths = BTreeSet::new();
        for user in ["alice", "alice", "../x", &"ä".repeat(60)] {
            let path = files.keep(SecretOf::User(user), SECRET).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), SECRET);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert!(
                Path::new(&path).parent() == Some(&files.directory),
                "{path}"
            );
            assert!(paths.insert(path), "a file is written twice");
        }
    }

    #[test]
    fn a_secret_that_cannot_be_used_is_refused() {
        let scratch = Scratch::new();
        let (files, _) = files(&scratch);
        for secret in ["short", "two lines\nof secret", &"x".repeat(129)] {
            for of in [SecretOf::User("alice"), SecretOf::Hyperscsi("ABC")] {
                let problem = files.keep(of, secret).unwrap_err();
                assert!(!problem.detail.contains(secret), "{problem}");
            }
        }
        let group = SecretOf::Hyperscsi("ABC");
        assert!(files.keep(group, "eight by").is_ok());
        assert!(files.keep(SecretOf::User("alice"), "eight by").is_err());
    }

    #[test]
    fn a_secret_goes_when_no_text_names_it_and_no_change_is_going_to() {
        let scratch = Scratch::new();
        let (files, file) = files(&scratch);
        let keep = || files.keep(SecretOf::User("alice"), SECRET).unwrap();
        let (pending, refused, in_file, in_history) = (keep(), keep(), keep(), keep());
        fs::write(&file, names(&in_file)).unwrap();
        History::begin(
            scratch.path(),
            Path::new("/other.toml"),
            &names(&in_history),
            1,
        )
        .unwrap();
        let is_there = |path: &str| Path::new(path).exists();
        files.release(&refused, &file);
        assert!(!is_there(&refused));
        for named in [&in_file, &in_history] {
            files.release(named, &file);
        }
        files.collect(&file);
        for path in [&pending, &in_file, &in_history] {
            assert!(is_there(path), "{path}");
        }
        files.release(&pending, &file);
        fs::write(&file, "").unwrap();
        files.collect(&file);
        assert!(!is_there(&pending) && !is_there(&in_file) && is_there(&in_history));
    }

    #[test]
    fn a_secret_that_was_only_planned_leaves_no_directory() {
        let scratch = Scratch::new();
        let (files, file) = files(&scratch);
        let (one, other) = (
            files.keep(SecretOf::User("a"), SECRET).unwrap(),
            files.keep(SecretOf::User("a"), SECRET).unwrap(),
        );
        files.release(&one, &file);
        assert!(Path::new(&other).exists());
        files.release(&other, &file);
        assert!(!scratch.path().join("secrets").exists());
        let again = files.keep(SecretOf::User("a"), SECRET).unwrap();
        assert!(Path::new(&again).exists());
    }

    #[test]
    fn what_others_put_beside_the_directory_stays_and_what_was_never_finished_goes() {
        let scratch = Scratch::new();
        let (files, file) = files(&scratch);
        fs::create_dir_all(&files.directory).unwrap();
        let by_hand = scratch.path().join("secrets/alice.secret");
        let stale = files.directory.join("0123456789abcdef.secret.tarn-new");
        for path in [&by_hand, &stale] {
            fs::write(path, SECRET).unwrap();
        }
        files.collect(&file);
        assert!(by_hand.exists() && !stale.exists());
    }

    #[test]
    fn nothing_goes_while_a_text_cannot_be_read() {
        let scratch = Scratch::new();
        let (files, file) = files(&scratch);
        let path = files.keep(SecretOf::User("alice"), SECRET).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        files.release(&path, &file);
        assert!(Path::new(&path).exists());
    }
}
