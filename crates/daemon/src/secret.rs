//! Secrets of CHAP and passwords of HyperSCSI: read from private files, wiped from memory, never shown.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use config::{
    HyperScsiGroup, HyperScsiPassword, Model, NOT_SHOWN, Notify, NotifyTo, PASSWORD_BYTES_MAX,
    PASSWORD_BYTES_MIN, Place, SecretFile, User, UserIndex,
};
use zeroize::Zeroizing;

use crate::StartError;

/// Shortest secret in bytes: 96 bits, as the standard asks where nothing else protects the wire.
///
/// Spec: RFC 7143 section 9.2.1.
pub const SECRET_BYTES_MIN: usize = 12;

/// Longest secret in bytes.
pub const SECRET_BYTES_MAX: usize = 128;

const CHAP_BYTES: RangeInclusive<usize> = SECRET_BYTES_MIN..=SECRET_BYTES_MAX;

/// Of the password of a mail server, which has rules of its own.
const MAIL_BYTES: RangeInclusive<usize> = 1..=255;

const PASSWORD_BYTES: RangeInclusive<usize> = PASSWORD_BYTES_MIN..=PASSWORD_BYTES_MAX;

/// A secret. Has no `Debug` and no `Display`; its memory is wiped when it is dropped.
#[derive(Clone, Eq, PartialEq)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// The bytes, for the digest.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes of a text, which is wiped by its owner if it has to be.
    pub fn from_text(text: &str) -> Self {
        Self(Zeroizing::new(text.as_bytes().to_vec()))
    }
}

/// The secrets of one user.
#[derive(Clone, Eq, PartialEq)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct UserSecrets {
    /// With which the initiator proves itself.
    pub forward: Secret,
    /// With which the target proves itself, if it does.
    pub mutual: Option<Secret>,
}

/// The secrets of all users of a model.
#[derive(Default)]
#[expect(
    missing_debug_implementations,
    reason = "secrets are not to reach a log"
)]
pub struct Secrets {
    /// By the position of the user; `None` for one whose files were not read.
    users: Vec<Option<UserSecrets>>,
    /// By the position of the group of HyperSCSI; `None` for one whose file was not read. That of an open one is empty.
    passwords: Vec<Option<Secret>>,
}

impl Secrets {
    /// Reads the secret files of all users. `uid` is the user this process runs as.
    ///
    /// # Errors
    ///
    /// A file that is missing, not private, of a wrong length, or a mutual secret that some
    /// initiator has as well.
    pub fn read(model: &Model, uid: u32) -> Result<Self, StartError> {
        let (secrets, mistakes) = Self::read_all(model, uid);
        match mistakes.into_iter().next() {
            None => Ok(secrets),
            Some(error) => Err(error),
        }
    }

    /// As [`Secrets::read`], with all that is wrong. Who has a file that cannot be used has no secret.
    pub(crate) fn read_all(model: &Model, uid: u32) -> (Self, Vec<StartError>) {
        let mut mistakes = Vec::new();
        let mut noted =
            |read: Result<Secret, StartError>| read.map_err(|error| mistakes.push(error)).ok();
        let users = model.users().iter().map(|user| {
            let forward = noted(read(&user.secret, CHAP_BYTES, uid));
            let mutual = user.mutual.as_ref();
            let mutual = mutual.map(|mutual| noted(read(&mutual.secret, CHAP_BYTES, uid)));
            let mutual = match mutual {
                None => None,
                Some(mutual) => Some(mutual?),
            };
            Some(UserSecrets {
                forward: forward?,
                mutual,
            })
        });
        let users = users.collect();
        for one in model.notify() {
            // Wrong ones are to be found when others are; it is read again when events begin to be sent.
            Self::of_notify(one, uid).transpose().map(&mut noted);
        }
        let groups = model.hyperscsi().iter();
        let passwords = groups.map(|group| noted(password(group, uid))).collect();
        let secrets = Self { users, passwords };
        mistakes.extend(secrets.check_directions(model));
        (secrets, mistakes)
    }

    /// Reads what one who gets events needs to know, if anything.
    ///
    /// # Errors
    ///
    /// As [`Secrets::read`].
    pub(crate) fn of_notify(one: &Notify, uid: u32) -> Result<Option<Secret>, StartError> {
        let bytes = match one.to {
            NotifyTo::Webhook { .. } => CHAP_BYTES,
            NotifyTo::Mail(_) => MAIL_BYTES,
        };
        let secret = one.secret().map(|file| read(file, bytes, uid));
        secret.transpose()
    }

    /// The secrets of a user of the model this was read for.
    pub fn of(&self, user: UserIndex) -> Option<&UserSecrets> {
        self.users.get(user.position())?.as_ref()
    }

    /// The password of a group of HyperSCSI of the model this was read for, by its position.
    pub(crate) fn password(&self, position: usize) -> Option<&Secret> {
        self.passwords.get(position)?.as_ref()
    }

    /// These secrets for another model, without a look at any file: of the users who are in both
    /// and whose files have the same paths in both. The others have none.
    pub(crate) fn carried_over(&self, from: &Model, to: &Model) -> Self {
        let carried = |user: &User| {
            let index = from.user_by_name(&user.name)?;
            let before = from.users().get(index.position())?;
            (paths(before) == paths(user)).then(|| self.of(index).cloned())?
        };
        let file_of = |group: &HyperScsiGroup| match &group.password {
            HyperScsiPassword::File(file) => Some(file.path.clone()),
            HyperScsiPassword::Written { .. } | HyperScsiPassword::Open { .. } => None,
        };
        let password = |group: &HyperScsiGroup| match &group.password {
            HyperScsiPassword::Open { .. } => Some(Secret::from_text("")),
            HyperScsiPassword::Written { password, .. } => {
                Some(Secret::from_text(password.as_str()))
            }
            HyperScsiPassword::File(file) => {
                let mut groups = from.hyperscsi().iter().zip(&self.passwords);
                let same = groups.find(|(before, _)| file_of(before).as_ref() == Some(&file.path));
                same?.1.clone()
            }
        };
        Self {
            users: to.users().iter().map(carried).collect(),
            passwords: to.hyperscsi().iter().map(password).collect(),
        }
    }

    /// An initiator that knows the target's secret could pass for the target.
    ///
    /// Spec: RFC 7143 section 9.2.1, secrets of the two directions must differ.
    fn check_directions(&self, model: &Model) -> Vec<StartError> {
        let mut mistakes = Vec::new();
        for (secrets, user) in self.users.iter().zip(model.users()) {
            let secret = secrets.as_ref().and_then(|both| both.mutual.as_ref());
            let (Some(secret), Some(mutual)) = (secret, &user.mutual) else {
                continue;
            };
            let is_same = |other: &UserSecrets| other.forward == *secret;
            let mut others = self.users.iter();
            let other = others.position(|other| other.as_ref().is_some_and(is_same));
            if let Some(other) = other.and_then(|position| model.users().get(position)) {
                mistakes.push(StartError::SecretReflected {
                    place: mutual.secret.place.clone(),
                    other: other.secret.place.clone(),
                });
            }
        }
        mistakes
    }
}

/// The files of a user's secrets: of the initiator's, and of the target's if it has one.
fn paths(user: &User) -> (&Path, Option<&Path>) {
    let mutual = user.mutual.as_ref();
    let mutual = mutual.map(|mutual| mutual.secret.path.as_path());
    (&user.secret.path, mutual)
}

/// Reads the secret file that a flag of the command line names. `uid` is the user this process
/// runs as.
///
/// # Errors
///
/// It is missing, not private, or of a wrong length.
pub fn read_alone(flag: &str, path: &Path, uid: u32) -> Result<Secret, StartError> {
    let file = SecretFile {
        path: path.to_owned(),
        text: path.display().to_string(),
        place: Place::argument(flag),
    };
    read(&file, CHAP_BYTES, uid)
}

fn password(group: &HyperScsiGroup, uid: u32) -> Result<Secret, StartError> {
    match &group.password {
        HyperScsiPassword::Open { .. } => Ok(Secret::from_text("")),
        HyperScsiPassword::Written { password, .. } => Ok(Secret::from_text(password.as_str())),
        HyperScsiPassword::File(file) => read(file, PASSWORD_BYTES, uid),
    }
}

/// Reads a secret that has so many bytes.
fn read(file: &SecretFile, bytes: RangeInclusive<usize>, uid: u32) -> Result<Secret, StartError> {
    let (min, max) = (*bytes.start(), *bytes.end());
    let SecretFile { path, place, .. } = file;
    let unreadable = |source| StartError::SecretUnreadable {
        place: place.clone(),
        path: path.clone(),
        min,
        max,
        source,
    };
    let file = open_regular(path).map_err(unreadable)?;
    let file = file.ok_or_else(|| StartError::SecretNoFile {
        place: place.clone(),
        path: path.clone(),
    })?;
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(StartError::SecretExposed {
            place: place.clone(),
            path: path.clone(),
            mode,
        });
    }
    if metadata.uid() != uid && metadata.uid() != 0 {
        return Err(StartError::SecretForeign {
            place: place.clone(),
            path: path.clone(),
            owner: metadata.uid(),
            uid,
        });
    }
    // Room for a line end of two bytes and one byte that is too many. Its full size at once: a
    // vector that grows would leave copies behind.
    let room = max + 3;
    let mut bytes = Zeroizing::new(Vec::with_capacity(room));
    file.take(room as u64)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    strip_line_end(&mut bytes);
    if *bytes == *NOT_SHOWN.as_bytes() {
        return Err(StartError::SecretNotShown {
            place: place.clone(),
            path: path.clone(),
        });
    }
    if !(min..=max).contains(&bytes.len()) {
        return Err(StartError::SecretLength {
            place: place.clone(),
            path: path.clone(),
            got: if bytes.len() > max {
                format!("more than {max}")
            } else {
                bytes.len().to_string()
            },
            min,
            max,
        });
    }
    Ok(Secret(bytes))
}

/// Opens a file; `None` if it is none but a device or a pipe, some of which do things when they
/// are opened. An admin who asks for a plan may name any path.
fn open_regular(path: &Path) -> io::Result<Option<File>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    // Not to block on the pipe that somebody may have put there meanwhile; a file does not mind.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    // Asked of the open file, so that nobody can swap it in between.
    let is_file = file.metadata()?.is_file();
    Ok(is_file.then_some(file))
}

fn strip_line_end(bytes: &mut Vec<u8>) {
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::scratch::Scratch;

    fn model(directory: &Path, users: &[(&str, Option<&str>)]) -> Model {
        let users: String = users
            .iter()
            .map(|(secret, mutual)| {
                let mutual = mutual.map_or_else(String::new, |mutual| {
                    format!("mutual = {{ name = \"t\", secret_file = \"{mutual}\" }}\n")
                });
                format!("[[user]]\nname = \"{secret}\"\nsecret_file = \"{secret}\"\n{mutual}")
            })
            .collect();
        let text = format!("{users}[[target]]\nname = \"iqn.2026-11.example.tarn:t\"\n");
        Model::from_toml(&text, &directory.join("t.toml")).unwrap()
    }

    fn put(directory: &Path, name: &str, bytes: &[u8], mode: u32) {
        let path = directory.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn read_all(
        directory: &Path,
        users: &[(&str, Option<&str>)],
        uid: u32,
    ) -> Result<Secrets, String> {
        Secrets::read(&model(directory, users), uid)
            .map_err(|error| error.to_string().replace(directory.to_str().unwrap(), "D"))
    }

    #[test]
    fn a_line_end_does_not_count_and_everything_else_does() {
        let scratch = Scratch::new();
        for (bytes, secret) in [
            (&b"twelve bytes"[..], &b"twelve bytes"[..]),
            (b"twelve bytes\n", b"twelve bytes"),
            (b"twelve bytes\r\n", b"twelve bytes"),
            (b" twelve bytes \n\n", b" twelve bytes \n"),
            (b"twelve byte\r", b"twelve byte\r"),
            (&[b'x'; 128], &[b'x'; 128]),
        ] {
            put(scratch.path(), "a", bytes, 0o600);
            let secrets = read_all(scratch.path(), &[("a", None)], uid()).unwrap();
            let user = model(scratch.path(), &[("a", None)])
                .user_by_name("a")
                .unwrap();
            assert_eq!(secrets.of(user).unwrap().forward.as_bytes(), secret);
        }
    }

    #[test]
    fn a_secret_is_neither_short_nor_long() {
        let scratch = Scratch::new();
        for (bytes, got) in [
            (&b""[..], "0"),
            (b"eleven byte\n", "11"),
            (&[b'x'; 129], "more than 128"),
            (&[b'x'; 4096], "more than 128"),
        ] {
            put(scratch.path(), "a", bytes, 0o600);
            let error = read_all(scratch.path(), &[("a", None)], uid())
                .err()
                .unwrap();
            assert_eq!(
                error,
                format!(
                    "D/t.toml:3: user[0].secret_file: secret in D/a has {got} bytes; it must have 12 to 128"
                )
            );
        }
    }

    #[test]
    fn a_secret_that_others_can_reach_is_refused_with_the_command_that_helps() {
        let scratch = Scratch::new();
        for mode in [0o640, 0o604, 0o610, 0o601, 0o620, 0o602] {
            put(scratch.path(), "a", b"twelve bytes", mode);
            let error = read_all(scratch.path(), &[("a", None)], uid())
                .err()
                .unwrap();
            assert_eq!(
                error,
                format!(
                    "D/t.toml:3: user[0].secret_file: secret file D/a has mode {mode:04o}, which gives others \
                     access; run chmod 600 D/a"
                )
            );
        }
        put(scratch.path(), "a", b"twelve bytes", 0o400);
        assert!(read_all(scratch.path(), &[("a", None)], uid()).is_ok());
    }

    #[test]
    fn a_secret_of_a_third_user_is_refused() {
        let scratch = Scratch::new();
        put(scratch.path(), "a", b"twelve bytes", 0o600);
        if uid() == 0 {
            // What belongs to root is as good as one's own.
            assert!(read_all(scratch.path(), &[("a", None)], 1000).is_ok());
            std::os::unix::fs::chown(scratch.path().join("a"), Some(4711), None).unwrap();
        }
        let error = read_all(scratch.path(), &[("a", None)], uid() + 1)
            .err()
            .unwrap();
        assert!(
            error.contains("; it must belong to root or to user"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path().join("a")).unwrap();
        let error = read_all(scratch.path(), &[("a", None)], uid())
            .err()
            .unwrap();
        assert!(error.contains("is not a regular file"), "{error}");
        let error = read_all(scratch.path(), &[("b", None)], uid())
            .err()
            .unwrap();
        assert!(error.contains("cannot read secret file D/b"), "{error}");
        let fifo = scratch.path().join("c");
        let private = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            private,
            0,
        )
        .unwrap();
        let error = read_all(scratch.path(), &[("c", None)], uid())
            .err()
            .unwrap();
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn a_device_is_not_even_opened_and_a_link_to_a_file_works() {
        use rustix::fs::inotify;

        let scratch = Scratch::new();
        let pipe = scratch.path().join("pipe");
        let (fifo, private) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, private, 0).unwrap();
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, &pipe, inotify::WatchFlags::OPEN).unwrap();
        let link = |name: &str, to: &str| {
            std::os::unix::fs::symlink(to, scratch.path().join(name)).unwrap();
            read_all(scratch.path(), &[(name, None)], uid())
        };
        let error = link("to-pipe", "pipe").err().unwrap();
        assert!(error.contains("is not a regular file"), "{error}");
        let mut events = [0; 256];
        let seen = rustix::io::read(&watch, &mut events);
        assert_eq!(seen.unwrap_err(), rustix::io::Errno::AGAIN);

        put(scratch.path(), "file", b"twelve bytes", 0o600);
        assert!(link("to-file", "file").is_ok());
    }

    #[test]
    fn secrets_are_carried_over_by_user_and_path_alone() {
        let scratch = Scratch::new();
        put(scratch.path(), "a", b"secret of alice", 0o600);
        put(scratch.path(), "b", b"secret of bob  ", 0o600);
        put(scratch.path(), "t", b"secret of tarn", 0o600);
        let before = model(scratch.path(), &[("a", Some("t")), ("b", None)]);
        let secrets = Secrets::read(&before, uid()).unwrap();
        // What is on disk does not matter any more.
        for name in ["a", "b", "t"] {
            fs::remove_file(scratch.path().join(name)).unwrap();
        }
        for (after, known) in [
            (&[("b", None), ("a", Some("t"))][..], &[true, true][..]),
            (&[("a", Some("b")), ("b", Some("t"))], &[false, false]),
            (&[("a", None), ("c", None)], &[false, false]),
        ] {
            let after = model(scratch.path(), after);
            let carried = secrets.carried_over(&before, &after);
            let has = |user: &User| {
                carried
                    .of(after.user_by_name(&user.name).unwrap())
                    .is_some()
            };
            let found: Vec<bool> = after.users().iter().map(has).collect();
            assert_eq!(found, known);
        }
        // Another user who names a known path does not get the secret that is there.
        let text = "[[user]]\nname = \"mallory\"\nsecret_file = \"a\"\n";
        let after = Model::from_toml(text, &scratch.path().join("t.toml")).unwrap();
        let carried = secrets.carried_over(&before, &after);
        assert!(carried.of(after.user_by_name("mallory").unwrap()).is_none());
    }

    #[test]
    fn the_target_must_not_share_a_secret_with_any_initiator() {
        let scratch = Scratch::new();
        put(scratch.path(), "a", b"secret of alice", 0o600);
        put(scratch.path(), "b", b"secret of bob  ", 0o600);
        put(scratch.path(), "t", b"secret of tarn", 0o600);
        put(scratch.path(), "u", b"secret of bob  \n", 0o600);
        assert!(read_all(scratch.path(), &[("a", Some("t")), ("b", Some("t"))], uid()).is_ok());
        let error = read_all(scratch.path(), &[("a", Some("u")), ("b", None)], uid())
            .err()
            .unwrap();
        assert_eq!(
            error,
            "D/t.toml:4: user[0].mutual.secret_file: the secret is the same as that of D/t.toml:7: \
             user[1].secret_file; give each direction its own"
        );
    }

    fn group(path: &Path, password: &str) -> Model {
        let text = format!(
            "lun = [{{ id = \"a\", store = \"mem:1M\" }}]\n[[hyperscsi.group]]\nname = \"G\"\nudp = \"[::1]\"\n\
             {password}\ndevice = [{{ id = \"a\" }}]\n"
        );
        Model::from_toml(&text, &path.join("t.toml")).unwrap()
    }

    #[test]
    fn a_password_is_in_a_file_or_written_or_empty_and_shorter_than_a_secret_of_chap() {
        let scratch = Scratch::new();
        let path = scratch.path();
        put(path, "p", b"eight by\n", 0o600);
        for (text, expected) in [
            ("password_file = \"p\"", &b"eight by"[..]),
            ("password = \"written in\"", b"written in"),
            ("open = true", b""),
        ] {
            let secrets = Secrets::read(&group(path, text), uid()).ok().unwrap();
            assert_eq!(secrets.password(0).unwrap().as_bytes(), expected);
            assert!(secrets.password(1).is_none());
        }
        let wrong = |text| {
            let error = Secrets::read(&group(path, text), uid()).err().unwrap();
            crate::error::chain(&error)
        };
        put(path, "p", b"seven b", 0o600);
        let error = wrong("password_file = \"p\"");
        assert!(
            error.contains("t.toml:5: hyperscsi.group[0].password_file"),
            "{error}"
        );
        assert!(
            error.ends_with("has 7 bytes; it must have 8 to 128"),
            "{error}"
        );
        put(path, "p", b"eight by", 0o644);
        assert!(wrong("password_file = \"p\"").contains("chmod 600"));
        assert!(wrong("password_file = \"absent\"").contains("with 8 to 128 bytes"));
    }

    #[test]
    fn passwords_are_carried_over_without_a_look_at_files() {
        let scratch = Scratch::new();
        let path = scratch.path();
        put(path, "p", b"eight by", 0o600);
        let before = group(path, "password_file = \"p\"");
        let secrets = Secrets::read(&before, uid()).ok().unwrap();
        fs::remove_file(path.join("p")).unwrap();
        let same = secrets.carried_over(&before, &before);
        assert_eq!(same.password(0).unwrap().as_bytes(), b"eight by");
        let other = group(path, "password_file = \"q\"");
        assert!(secrets.carried_over(&before, &other).password(0).is_none());
    }
}
