//! The key of the server of HyperSCSI: made once, and kept.
//!
//! Its seed makes the answers to names that are not known, so that they look like those to known ones, also after a
//! restart; its number is what clients know the server by. Records of passwords are not kept: they are made of the
//! passwords at each start, so that a thief of this directory has nothing to try passwords with.

use std::fs::File;
use std::path::{Path, PathBuf};

use api::event::Severity;
use durable::{Found, copy_of};
use hyperscsi::{Entropy, OpaqueTarget};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{State, Trouble};
use crate::StartError;

/// The key and the number of the server.
/// It has no `Debug`: secrets are not to reach a log.
#[derive(Clone)]
pub(crate) struct ServerKey {
    /// What clients know the server by.
    pub(crate) server: [u8; 16],
    /// [`OpaqueTarget::from_bytes`] takes it.
    pub(crate) exchange: Zeroizing<Vec<u8>>,
}

/// What the file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    server: String,
    exchange: String,
}

/// Random bytes for the exchange.
///
/// # Errors
///
/// The system gives none.
pub(crate) fn entropy() -> Result<Entropy, StartError> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|source| StartError::Random { source })?;
    Ok(Entropy::new(&seed))
}

impl ServerKey {
    fn make() -> Result<Self, StartError> {
        let mut entropy = entropy()?;
        Ok(Self {
            server: entropy.bytes(),
            exchange: OpaqueTarget::new(&mut entropy).to_bytes(),
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let kept: Kept = toml::from_str(text).ok()?;
        let exchange = Zeroizing::new(kept.exchange);
        let exchange = Zeroizing::new(bytes_of(&exchange)?);
        OpaqueTarget::from_bytes(&exchange)?;
        let server = bytes_of(&kept.server)?.try_into().ok()?;
        Some(Self { server, exchange })
    }

    fn to_text(&self) -> Zeroizing<String> {
        let (server, exchange) = (hex(&self.server), hex(&self.exchange));
        let text = format!("server = \"{}\"\nexchange = \"{}\"\n", *server, *exchange);
        Zeroizing::new(text)
    }

    /// The exchange itself.
    pub(crate) fn target(&self) -> Option<OpaqueTarget> {
        OpaqueTarget::from_bytes(&self.exchange)
    }
}

fn hex(bytes: &[u8]) -> Zeroizing<String> {
    // Its full size at once: a string that grows would leave copies behind.
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        for digit in [byte >> 4, byte & 0xf] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = Zeroizing::new(digits?);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(high * 16 + low).ok(),
        [] | [_] | [..] => None,
    });
    pairs.collect()
}

/// What is in a file.
enum Read {
    Absent,
    Key(ServerKey),
    Wrong(String),
}

fn read(path: &Path) -> Read {
    match durable::read(path) {
        Ok(Found::Absent) => Read::Absent,
        Ok(Found::Damaged(damage)) => Read::Wrong(damage.to_string()),
        Ok(Found::Whole(text)) => match ServerKey::parse(&Zeroizing::new(text)) {
            Some(key) => Read::Key(key),
            None => Read::Wrong("it has no key".to_owned()),
        },
        Err(error) => Read::Wrong(error.to_string()),
    }
}

impl State {
    pub(super) fn hyperscsi_path(&self) -> PathBuf {
        self.directory.join("hyperscsi.toml")
    }

    /// The key of the server of HyperSCSI; made and kept where there is none. One that is damaged, or that cannot be
    /// kept, is noted and keeps nobody from being served.
    ///
    /// # Errors
    ///
    /// The directory cannot be locked, or the system gives no random bytes.
    pub(crate) fn hyperscsi_key(&self) -> Result<ServerKey, StartError> {
        let lock_path = self.directory.join("lock");
        let unusable = |source| StartError::StateUnusable {
            path: lock_path.clone(),
            source,
        };
        let lock = durable::open_private(&lock_path).map_err(unusable)?;
        File::lock(&lock).map_err(unusable)?;
        let path = self.hyperscsi_path();
        let problem = match read(&path) {
            Read::Key(key) => return Ok(key),
            Read::Absent => None,
            Read::Wrong(problem) => Some(problem),
        };
        let key = match (read(&copy_of(&path)), problem) {
            (Read::Key(key), _) => key,
            (Read::Absent | Read::Wrong(_), Some(problem)) => {
                self.troubles.note(renewed(&path, &problem));
                ServerKey::make()?
            }
            (Read::Absent | Read::Wrong(_), None) => ServerKey::make()?,
        };
        let text = Zeroizing::new(durable::seal(&key.to_text()));
        if let Err(error) = durable::write_with_copy(&path, text.as_bytes()) {
            self.troubles.note(unkept(&path, &error));
        }
        Ok(key)
    }
}

fn renewed(path: &Path, problem: &str) -> Trouble {
    Trouble {
        severity: Severity::Warning,
        code: "hyperscsi-key-renewed",
        subject: "hyperscsi.toml".to_owned(),
        is_of_unit: false,
        message: format!(
            "the key of HyperSCSI in {} could not be used ({problem}), so there is a new one: clients see another \
             server",
            path.display()
        ),
        remedy:
            "nothing, unless it happens again; then look at the file system of the state directory"
                .to_owned(),
    }
}

fn unkept(path: &Path, error: &std::io::Error) -> Trouble {
    Trouble {
        severity: Severity::Warning,
        code: "hyperscsi-key-unkept",
        subject: "hyperscsi.toml".to_owned(),
        is_of_unit: false,
        message: format!(
            "the key of HyperSCSI cannot be kept in {}, so the next start makes another one: {error}",
            path.display()
        ),
        remedy: "make room in the state directory and make it writable".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::scratch::Scratch;

    fn key(scratch: &Scratch) -> (ServerKey, Vec<&'static str>) {
        let state = State::open(scratch.path().join("state")).unwrap();
        let key = state.hyperscsi_key().unwrap();
        let codes = state.troubles().list().iter().map(|one| one.code).collect();
        (key, codes)
    }

    fn path(scratch: &Scratch) -> PathBuf {
        scratch.path().join("state/hyperscsi.toml")
    }

    #[test]
    fn the_key_is_made_once_and_nobody_else_may_read_it() {
        let scratch = Scratch::new();
        let (first, codes) = key(&scratch);
        assert_eq!(codes, [""; 0]);
        for path in [path(&scratch), copy_of(&path(&scratch))] {
            if path.exists() {
                let mode = fs::metadata(&path).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", path.display());
            }
        }
        let (second, codes) = key(&scratch);
        assert_eq!(codes, [""; 0]);
        assert_eq!(first.server, second.server);
        assert!(first.exchange == second.exchange);
        let other = Scratch::new();
        assert_ne!(key(&other).0.server, first.server);
    }

    #[test]
    fn a_damaged_key_comes_from_its_copy_and_else_is_another_one_with_a_note() {
        let scratch = Scratch::new();
        let (first, _) = key(&scratch);
        let whole = fs::read(path(&scratch)).unwrap();
        fs::write(copy_of(&path(&scratch)), &whole).unwrap();
        for damaged in [&whole[..whole.len() - 1], b"", b"server = \"00\"\n"] {
            fs::write(path(&scratch), damaged).unwrap();
            let (again, codes) = key(&scratch);
            assert_eq!((again.server, codes.len()), (first.server, 0));
            assert_eq!(fs::read(path(&scratch)).unwrap(), whole);
        }
        for file in [path(&scratch), copy_of(&path(&scratch))] {
            fs::write(file, "server = \"00\"\n").unwrap();
        }
        let (new, codes) = key(&scratch);
        assert_eq!(codes, ["hyperscsi-key-renewed"]);
        assert_ne!(new.server, first.server);
        assert_eq!(key(&scratch).0.server, new.server);
    }

    #[test]
    fn a_key_that_cannot_be_kept_serves_all_the_same() {
        let scratch = Scratch::new();
        let state = State::open(scratch.path().join("state")).unwrap();
        fs::create_dir(path(&scratch)).unwrap();
        assert!(state.hyperscsi_key().unwrap().target().is_some());
        let codes: Vec<_> = state.troubles().list().iter().map(|one| one.code).collect();
        assert!(codes.contains(&"hyperscsi-key-unkept"), "{codes:?}");
    }
}
