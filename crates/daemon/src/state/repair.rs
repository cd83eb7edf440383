//! `tarn state`: which files of a state directory are damaged, and their copies put back.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use durable::{Found, copy_of};

use super::State;
use super::ledger::{Ledger, Record};
use super::log::LOG;
use super::unit::{MEDIUM, SAVED, UnitState, name_of, unframe};
use crate::StartError;

/// A file that is not what Tarn wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Damaged {
    pub path: PathBuf,
    pub problem: String,
    /// Whether its copy is whole.
    pub has_copy: bool,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Ledger,
    /// Tokens, or the key of HyperSCSI.
    Table,
    Saved,
    /// A revision of a configuration; it has no copy.
    Record,
    /// What the store of a unit was, or how it stands to its log: an administrator decides about what is there.
    Decided {
        /// How.
        remedy: &'static str,
    },
}

/// Files of a unit without a copy.
const DECIDED: [(&str, Kind); 2] = [
    (
        MEDIUM,
        Kind::Decided {
            remedy: "accept what is at the place of its store: tarn lun adopt",
        },
    ),
    (
        LOG,
        Kind::Decided {
            remedy: "do without what its log has: tarn lun log discard",
        },
    ),
];

impl Kind {
    /// What is wrong with a file that is there.
    fn problem(self, path: &Path) -> io::Result<Option<String>> {
        if self == Self::Saved {
            return Ok(match durable::read_bytes(path)? {
                Found::Absent => Some("it is missing".to_owned()),
                Found::Damaged(damage) => Some(damage.to_string()),
                Found::Whole(bytes) => {
                    let unit = path.parent().map(name_of).unwrap_or_default();
                    let is_whole = unframe(&bytes, unit).is_some();
                    (!is_whole).then(|| "it is cut off, changed, or of another unit".to_owned())
                }
            });
        }
        Ok(match durable::read(path)? {
            Found::Absent => Some("it is missing".to_owned()),
            Found::Damaged(damage) => Some(damage.to_string()),
            Found::Whole(text) if self == Self::Ledger => {
                let parsed = Ledger::parse(&text, path);
                parsed.err().map(|error| {
                    if let StartError::StateForeign { problem, .. } = error {
                        problem
                    } else {
                        crate::error::chain(&error)
                    }
                })
            }
            Found::Whole(_) if matches!(self, Self::Decided { .. }) => None,
            Found::Whole(text) => {
                let parsed = text.parse::<toml::Table>();
                parsed.err().map(|error| error.message().to_owned())
            }
        })
    }
}

impl State {
    /// All files that are damaged, or gone although their copy is there.
    pub fn damaged_files(&self) -> io::Result<Vec<Damaged>> {
        let mut damaged = Vec::new();
        let units = self.directory.join("units");
        let (ledger, _) = self.read_ledger().map_err(io::Error::other)?;
        let saved_in = ledger.records.iter().filter_map(|it| it.saved_in.as_ref());
        let saved: BTreeSet<PathBuf> = saved_in.map(|name| units.join(name)).collect();
        let mut look = |path: PathBuf, kind: Kind| -> io::Result<()> {
            let copy = copy_of(&path);
            let is_missed = match kind {
                Kind::Ledger => copy.exists() || self.was_used(),
                Kind::Saved => copy.exists() || path.parent().is_some_and(|it| saved.contains(it)),
                Kind::Table | Kind::Record | Kind::Decided { .. } => copy.exists(),
            };
            let problem = if path.exists() {
                kind.problem(&path)?
            } else {
                is_missed.then(|| "it is missing".to_owned())
            };
            if let Some(problem) = problem {
                let has_copy = copy.exists() && kind.problem(&copy)?.is_none();
                damaged.push(Damaged {
                    path,
                    problem,
                    has_copy,
                    kind,
                });
            }
            Ok(())
        };
        look(self.ledger_path(), Kind::Ledger)?;
        look(self.directory.join("tokens.toml"), Kind::Table)?;
        look(self.hyperscsi_path(), Kind::Table)?;
        for unit in saved
            .iter()
            .cloned()
            .chain(entries(&units)?)
            .collect::<BTreeSet<_>>()
        {
            look(unit.join(SAVED), Kind::Saved)?;
            for (name, kind) in DECIDED {
                look(unit.join(name), kind)?;
            }
        }
        for history in entries(&self.directory.join("history"))? {
            for record in entries(&history)? {
                if record.extension().is_some_and(|ending| ending == "toml") {
                    look(record, Kind::Record)?;
                }
            }
        }
        Ok(damaged)
    }

    /// Puts the copy of each damaged file in its place. One that has no good copy is moved aside
    /// if it is to be discarded. Gives what was done, a line for each file, and how many are
    /// damaged still.
    pub fn restore(&self, discards: bool) -> io::Result<(Vec<String>, usize)> {
        let lock = durable::open_private(&self.directory.join("lock"))?;
        File::lock(&lock)?;
        let (mut lines, mut left) = (Vec::new(), 0);
        for file in self.damaged_files()? {
            let path = file.path.display().to_string();
            let unit = file.path.parent().filter(|_| file.kind == Kind::Saved);
            let held = unit.map_or_else(|| Ok(Some(UnitState::volatile())), UnitState::lock)?;
            if held.is_none() {
                left += 1;
                lines.push(format!(
                    "{path}: left alone: a Tarn serves the unit, stop it first"
                ));
            } else if file.has_copy {
                let copy = fs::read(copy_of(&file.path))?;
                if file.path.is_dir() {
                    // No file can replace it.
                    move_aside(&file.path)?;
                }
                durable::replace(&file.path, &copy)?;
                lines.push(format!("{path}: restored from its copy"));
            } else if let Kind::Decided { remedy } = file.kind {
                left += 1;
                let problem = &file.problem;
                lines.push(format!(
                    "{path}: {problem}: restore it from a backup, or {remedy}"
                ));
            } else if discards {
                self.discard(&file)?;
                lines.push(format!(
                    "{path}: discarded; what is left of it is in {path}.damaged"
                ));
            } else {
                left += 1;
                lines.push(format!(
                    "{path}: {}, and there is no good copy: restore it from a backup, or discard it with --discard",
                    file.problem
                ));
            }
        }
        Ok((lines, left))
    }

    /// What was saved for a unit is gone for good, and not missed any more. The ledger is locked.
    fn forget_saved(&self, directory: &str) -> io::Result<()> {
        let (mut ledger, damage) = self.read_ledger().map_err(io::Error::other)?;
        let is_it = |record: &&mut Record| record.saved_in.as_deref() == Some(directory);
        if damage.is_none()
            && let Some(record) = ledger.records.iter_mut().find(is_it)
        {
            record.saved_in = None;
            let text = durable::seal(&ledger.to_text()?);
            durable::write_with_copy(&self.ledger_path(), text.as_bytes())?;
        }
        Ok(())
    }

    fn discard(&self, file: &Damaged) -> io::Result<()> {
        for path in [file.path.clone(), copy_of(&file.path)] {
            move_aside(&path)?;
        }
        if file.kind == Kind::Saved {
            self.forget_saved(file.path.parent().map(name_of).unwrap_or_default())?;
        }
        if file.kind == Kind::Ledger {
            // One that is not there would be missed: units have been served.
            durable::write(&file.path, &Ledger::default().to_text()?)?;
        }
        Ok(())
    }
}

/// Gives what is at `path`, if anything is, a name that Tarn does not read.
fn move_aside(path: &Path) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".damaged");
    match fs::rename(path, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What is in a directory, if it is there.
pub(super) fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}
