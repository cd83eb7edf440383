//! Tokens: made once, kept as hashes in a private file, found by their hash.
//!
//! The file is TOML, one `[[token]]` for each, and belongs to the daemon. It is replaced as a whole
//! and only after it is on disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::access::{NewToken, Role, Token};
use api::problem::{Problem, ProblemKind};
use durable::Found;
use serde::{Deserialize, Serialize};

use crate::limits;
use crate::random::{self, Hash};

/// What every token begins with, so that a search for leaked secrets finds it.
const PREFIX: &str = "tarn_";

/// Why the tokens cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not what was written.
    #[error(
        "{}: {reason}; no token is good until it is whole: run tarn state restore and restart Tarn, or move \
         it and its copy away and make new tokens",
        path.display()
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// A token as it is kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    name: String,
    role: Role,
    made_ms: u64,
    sha256: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct TokensFile {
    #[serde(default)]
    token: Vec<Kept>,
}

/// Who a token belongs to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Holder {
    /// The token's name.
    pub(crate) name: String,
    /// What it may do.
    pub(crate) role: Role,
    /// Which token: one that was made later under the same name is another.
    pub(crate) token: Hash,
}

/// A token with its hash at hand.
#[derive(Clone)]
struct Entry {
    kept: Kept,
    hash: Hash,
}

/// All tokens.
pub(crate) struct Tokens {
    path: PathBuf,
    /// What is wrong with the file.
    damage: Option<String>,
    /// Held for no longer than a look takes: the thread that answers everybody takes it.
    entries: Mutex<Vec<Entry>>,
    /// A change holds this, also while the file is written.
    turn: Mutex<()>,
}

impl Tokens {
    /// Reads the file; none is no token. One that is damaged is none either, as a token that was
    /// revoked may be in it: that comes with what is wrong, and nothing is made or revoked then.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<String>), TokensError> {
        let found = durable::read(path).map_err(|source| TokensError::Read {
            path: path.to_owned(),
            source,
        })?;
        let form = |reason: String| TokensError::Form {
            path: path.to_owned(),
            reason,
        };
        let entries = match found {
            Found::Absent if durable::copy_of(path).exists() => {
                Err(form("it is missing".to_owned()))
            }
            Found::Absent => Ok(Vec::new()),
            Found::Damaged(damage) => Err(form(damage.to_string())),
            Found::Whole(text) => parse(&text).map_err(form),
        };
        let (entries, damage) = match entries {
            Ok(entries) => (entries, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let tokens = Self {
            path: path.to_owned(),
            damage: damage.clone(),
            entries: Mutex::new(entries),
            turn: Mutex::default(),
        };
        Ok((tokens, damage))
    }

    /// Who this token belongs to. Takes the same time for every wrong one.
    pub(crate) fn holder(&self, token: &str) -> Option<Holder> {
        let hash = Hash::of(token);
        let mut found = None;
        for entry in self.lock().iter() {
            if entry.hash.is(&hash) {
                found = Some(entry.holder());
            }
        }
        found
    }

    /// True while the token of this holder has not been revoked.
    pub(crate) fn knows(&self, holder: &Holder) -> bool {
        self.lock().iter().any(|entry| entry.holder() == *holder)
    }

    /// All of them, without their secret part.
    pub(crate) fn list(&self) -> Vec<Token> {
        self.lock().iter().map(|entry| entry.shown(None)).collect()
    }

    /// Creates a token and returns it, this once.
    ///
    /// # Errors
    ///
    /// The name is taken or no name, there are too many, or the file cannot be written.
    pub(crate) fn make(&self, new: NewToken, now_ms: u64) -> Result<Token, Problem> {
        self.make_by(new, now_ms, durable::write_with_copy)
    }

    fn make_by(
        &self,
        new: NewToken,
        now_ms: u64,
        write: impl FnOnce(&Path, &[u8]) -> io::Result<()>,
    ) -> Result<Token, Problem> {
        check_name(&new.name)?;
        let random = random::secret().map_err(|error| unavailable(&error))?;
        let token = format!("{PREFIX}{random}");
        let hash = Hash::of(&token);
        let kept = Kept {
            name: new.name,
            role: new.role,
            made_ms: now_ms,
            sha256: hash.to_hex(),
        };
        let entry = Entry { kept, hash };
        let shown = entry.shown(Some(token));
        self.change(write, |entries| {
            check_room(entries, &entry.kept.name)?;
            entries.push(entry);
            Ok(())
        })?;
        Ok(shown)
    }

    /// Revokes a token. Gives who held it, to end what it has opened.
    ///
    /// # Errors
    ///
    /// There is none of that name, or the file cannot be written; then the token stays.
    pub(crate) fn revoke(&self, name: &str) -> Result<Holder, Problem> {
        self.change(durable::write_with_copy, |entries| {
            let place = entries.iter().position(|entry| entry.kept.name == name);
            let place = place.ok_or_else(|| {
                Problem::new(ProblemKind::NotFound, format!("there is no token {name:?}"))
            })?;
            Ok(entries.remove(place).holder())
        })
    }

    /// Makes a change that is in force once it is on disk. A look-up meanwhile finds
    /// what was before, and does not wait for the disk.
    fn change<T>(
        &self,
        write: impl FnOnce(&Path, &[u8]) -> io::Result<()>,
        edit: impl FnOnce(&mut Vec<Entry>) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if let Some(damage) = &self.damage {
            return Err(conflict(damage.clone()));
        }
        // Holds nothing that could be half changed.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.lock().clone();
        let outcome = edit(&mut entries)?;
        let text = durable::seal(&written(&entries)?);
        write(&self.path, text.as_bytes()).map_err(|error| {
            let path = self.path.display();
            Problem::of_write(format!("{path}: cannot be written: {error}"), &error)
        })?;
        *self.lock() = entries;
        Ok(outcome)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        // Every change is one assignment.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tokens of a file, or what is wrong with it.
fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let file: TokensFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let entries = file.token.into_iter().map(|kept| {
        let hash = Hash::parse(&kept.sha256)
            .ok_or_else(|| format!("token {:?}: sha256 is no digest", kept.name))?;
        Ok(Entry { kept, hash })
    });
    entries.collect()
}

/// The file with these tokens.
fn written(entries: &[Entry]) -> Result<String, Problem> {
    let file = TokensFile {
        token: entries.iter().map(|entry| entry.kept.clone()).collect(),
    };
    toml::to_string(&file).map_err(|error| unavailable(&error))
}

/// Checks that there can be one more token, of this name.
fn check_room(entries: &[Entry], name: &str) -> Result<(), Problem> {
    if entries.iter().any(|entry| entry.kept.name == name) {
        return Err(conflict(format!(
            "there is a token {name:?} already; revoke it first, or take another name"
        )));
    }
    if entries.len() >= limits::TOKENS_MAX {
        return Err(conflict(format!(
            "there are {} tokens already; revoke one first",
            limits::TOKENS_MAX
        )));
    }
    Ok(())
}

impl Entry {
    fn holder(&self) -> Holder {
        Holder {
            name: self.kept.name.clone(),
            role: self.kept.role,
            token: self.hash,
        }
    }

    fn shown(&self, token: Option<String>) -> Token {
        Token {
            name: self.kept.name.clone(),
            role: self.kept.role,
            made_ms: self.kept.made_ms,
            token,
        }
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=limits::TOKEN_NAME_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let mut problem = Problem::new(
        ProblemKind::BadRequest,
        format!(
            "a token's name has 1 to {} letters, digits, '.', '_' and '-'",
            limits::TOKEN_NAME_MAX
        ),
    );
    problem.place = Some("name".to_owned());
    Err(problem)
}

fn conflict(detail: String) -> Problem {
    Problem::new(ProblemKind::Conflict, detail)
}

fn unavailable(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(ProblemKind::Unavailable, error.to_string())
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use durable::scratch::Scratch;

    fn new(name: &str, role: Role) -> NewToken {
        NewToken {
            name: name.to_owned(),
            role,
        }
    }

    #[test]
    fn a_token_is_told_once_and_found_again_after_a_restart() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tokens.toml");
        let tokens = Tokens::open(&path).unwrap().0;
        let made = tokens.make(new("ops", Role::Operator), 7).unwrap();
        let token = made.token.unwrap();
        assert_eq!(tokens.list()[0].token, None);

        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&token[PREFIX.len()..]), "{text}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let tokens = Tokens::open(&path).unwrap().0;
        let holder = tokens.holder(&token).unwrap();
        assert_eq!((holder.name.as_str(), holder.role), ("ops", Role::Operator));
        assert!(tokens.holder(&format!("{token}0")).is_none());

        tokens.revoke("ops").unwrap();
        assert!(tokens.holder(&token).is_none());
        assert!(!tokens.knows(&holder));
        let again = Tokens::open(&path).unwrap().0;
        assert!(again.list().is_empty());
    }

    #[test]
    fn a_token_of_the_same_name_does_not_revive_what_was_revoked() {
        let scratch = Scratch::new();
        let tokens = Tokens::open(&scratch.path().join("tokens.toml")).unwrap().0;
        let old = tokens.make(new("a", Role::Admin), 0).unwrap();
        let old = tokens.holder(&old.token.unwrap()).unwrap();
        assert_eq!(tokens.revoke("a").unwrap(), old);
        let made = tokens.make(new("a", Role::Admin), 0).unwrap();
        let holder = tokens.holder(&made.token.unwrap()).unwrap();
        assert!(tokens.knows(&holder));
        assert!(!tokens.knows(&old));
    }

    #[test]
    fn a_name_is_taken_once() {
        let scratch = Scratch::new();
        let tokens = Tokens::open(&scratch.path().join("tokens.toml")).unwrap().0;
        tokens.make(new("a", Role::Admin), 0).unwrap();
        let problem = tokens.make(new("a", Role::Admin), 0).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Conflict);
        assert_eq!(tokens.revoke("b").unwrap_err().kind, ProblemKind::NotFound);
    }

    #[test]
    fn names_have_an_alphabet_and_a_length() {
        let long = "n".repeat(limits::TOKEN_NAME_MAX);
        for (name, is_good) in [
            ("a", true),
            (long.as_str(), true),
            (&format!("{long}n"), false),
            ("", false),
            ("a b", false),
            ("a\n", false),
            ("Ä", false),
        ] {
            assert_eq!(check_name(name).is_ok(), is_good, "{name:?}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_written_is_not_made() {
        let scratch = Scratch::new();
        let tokens = Tokens::open(&scratch.path().join("missing/tokens.toml"))
            .unwrap()
            .0;
        let problem = tokens.make(new("a", Role::Admin), 0).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Failed);
        assert!(tokens.list().is_empty());
    }

    #[test]
    fn tokens_are_looked_up_while_the_file_is_written() {
        let scratch = Scratch::new();
        let tokens = Tokens::open(&scratch.path().join("tokens.toml")).unwrap().0;
        let writes = |path: &Path, bytes: &[u8]| {
            let entries = tokens.entries.try_lock();
            assert!(entries.is_ok_and(|entries| entries.is_empty()));
            durable::write_with_copy(path, bytes)
        };
        tokens.make_by(new("a", Role::Admin), 0, writes).unwrap();
        assert_eq!(tokens.list().len(), 1);
    }

    #[test]
    fn no_part_of_the_file_is_taken_for_the_whole() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tokens.toml");
        let tokens = Tokens::open(&path).unwrap().0;
        for name in ["a", "b"] {
            tokens.make(new(name, Role::Admin), 0).unwrap();
        }
        let whole = fs::read(&path).unwrap();
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let (tokens, damage) = Tokens::open(&path).unwrap();
            assert!(damage.is_some() && tokens.list().is_empty(), "{end} bytes");
        }
        fs::remove_file(&path).unwrap();
        assert!(
            Tokens::open(&path).unwrap().1.is_some(),
            "gone, but for its copy"
        );
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error_with_its_name() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tokens.toml");
        for text in [
            "[[token]]\nname = 1\n",
            "[[token]]\nname = 'a'\nrole = 'admin'\nmade_ms = 1\nsha256 = 'ab'\n",
        ] {
            fs::write(&path, text).unwrap();
            let (tokens, damage) = Tokens::open(&path).unwrap();
            assert!(damage.unwrap().contains("tokens.toml: "));
            assert!(tokens.list().is_empty());
            let problem = tokens.make(new("a", Role::Admin), 0).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::Conflict);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
