//! How a unit stands to its log device: kept beside the state of the unit, so that a log that is lost or foreign is
//! known.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use durable::Found;
use store::{Binding, Known, Noted, Use};

use super::unit::{UnitState, damaged};

/// The file in the directory of the unit.
pub(super) const LOG: &str = "log";

const MAGIC: &str = "tarn-log 1";

/// What is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LogNote {
    /// The log, and how the unit stands to it.
    pub(crate) known: Known,
    /// The store that the unit had then, as the configuration names it.
    pub(crate) store: String,
}

const WORDS: [(Use, &str); 4] = [
    (Use::Serving, "serving"),
    (Use::Left, "left"),
    (Use::Closed, "closed"),
    (Use::Discarded, "discarded"),
];

impl LogNote {
    fn to_text(&self, unit: &str) -> String {
        let Known { log, how } = self.known;
        let word = WORDS
            .iter()
            .find(|(one, _)| *one == how)
            .map_or("", |(_, word)| word);
        let id: String = log.id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "{MAGIC} {unit}\n{word} {id} {}\n{}\n",
            log.generation, self.store
        )
    }

    fn of_text(text: &str, unit: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != format!("{MAGIC} {unit}") {
            return None;
        }
        let mut words = lines.next()?.split(' ');
        let (word, id, generation) = (words.next()?, words.next()?, words.next()?);
        let how = WORDS.iter().find(|(_, one)| *one == word)?.0;
        let id = u128::from_str_radix(id, 16)
            .ok()
            .filter(|_| id.len() == 32)?;
        let log = Binding {
            id: id.to_be_bytes(),
            generation: generation.parse().ok()?,
        };
        Some(Self {
            known: Known { log, how },
            store: lines.next()?.to_owned(),
        })
    }
}

impl UnitState {
    fn log_path(&self) -> Option<(PathBuf, &str)> {
        Some((self.directory()?.join(LOG), self.name()?))
    }

    /// How the unit stands to its log, if it ever had one.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is damaged.
    pub(crate) fn log_note(&self) -> io::Result<Option<LogNote>> {
        let Some((path, unit)) = self.log_path() else {
            return Ok(None);
        };
        match durable::read(&path)? {
            Found::Absent => Ok(None),
            Found::Whole(text) => {
                let note = LogNote::of_text(&text, unit);
                note.map(Some)
                    .ok_or_else(|| damaged(&path, "is damaged, of another unit or version"))
            }
            Found::Damaged(_) => Err(damaged(&path, "is damaged")),
        }
    }

    /// Saves how the unit stands to its log.
    ///
    /// # Errors
    ///
    /// It may not be saved.
    pub(crate) fn note_log(&self, note: &LogNote) -> io::Result<()> {
        let Some((path, unit)) = self.log_path() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        durable::write(&path, &note.to_text(unit))
    }
}

/// Saves how a unit of this store stands to its log.
#[derive(Debug)]
pub(crate) struct LogNotes {
    pub(crate) state: Arc<UnitState>,
    pub(crate) store: String,
}

impl Noted for LogNotes {
    fn note(&self, log: Binding, how: Use) -> io::Result<()> {
        self.state.note_log(&LogNote {
            known: Known { log, how },
            store: self.store.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_note_comes_back_and_another_units_or_a_damaged_one_does_not() {
        let scratch = Scratch::new();
        let directory = scratch.path().join("3000000000000001");
        let state = UnitState::lock(&directory).unwrap().unwrap();
        assert_eq!(state.log_note().unwrap(), None);
        for (how, _) in WORDS {
            let log = Binding {
                id: *b"0123456789abcdef",
                generation: 7,
            };
            let note = LogNote {
                known: Known { log, how },
                store: "/srv/a b.img".to_owned(),
            };
            state.note_log(&note).unwrap();
            assert_eq!(state.log_note().unwrap(), Some(note));
        }
        let path = directory.join(LOG);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("discarded", "serving!!")).unwrap();
        assert!(state.log_note().is_err());
        durable::write(&path, "tarn-log 1 3000000000000002\nserving 00 1\n/a\n").unwrap();
        assert!(state.log_note().is_err());
    }
}
