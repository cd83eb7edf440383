//! The configuration file, as a change finds and leaves it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::problem::{Problem, ProblemKind};
use durable::{make, make_like, replace_content};

use super::history::{History, Record};

/// Texts that were edited by hand and are kept beside one file, at most.
const EDITED_MAX: u32 = 100;

/// The mode of a configuration file that was missing.
const MODE: u32 = 0o640;

/// The configuration file before a change.
#[derive(Debug)]
pub(super) struct Found<'a> {
    file: &'a Path,
    /// `None` when there was none.
    text: Option<String>,
}

impl<'a> Found<'a> {
    /// Reads it.
    pub(super) fn read(file: &'a Path) -> io::Result<Self> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read?),
        };
        Ok(Self { file, text })
    }

    /// What it says; `None` when there is none.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Puts a record into the history and its text into the file, or neither.
    ///
    /// The record comes first: should Tarn be killed in between, the file says what runs, and a
    /// record too many does no harm.
    pub(super) fn save(&self, history: &mut History, record: Record) -> Result<(), Problem> {
        let text = record.text.clone();
        let added = history.add(record);
        added.map_err(|error| unwritten(format!("cannot write the history: {error}"), &error))?;
        self.write(&text).map_err(|error| {
            self.put_back(history);
            let detail = format!("cannot write {}: {error}", self.file.display());
            unwritten(detail, &error)
        })
    }

    /// Takes back what [`Found::save`] did. The record goes first: a full disk may have no room
    /// for both.
    pub(super) fn put_back(&self, history: &mut History) {
        if let Err(error) = history.take_back() {
            tracing::error!(%error, "the history has a change that was not made");
        }
        if let Err(error) = self.restore() {
            tracing::error!(%error, "the configuration file is not what runs");
        }
    }

    fn restore(&self) -> io::Result<()> {
        let Some(text) = &self.text else {
            return match fs::remove_file(self.file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                Ok(()) | Err(_) => Ok(()),
            };
        };
        // What was not replaced needs no space.
        match fs::read(self.file) {
            Ok(now) if now == text.as_bytes() => Ok(()),
            Ok(_) | Err(_) => replace_content(self.file, text.as_bytes()),
        }
    }

    /// The file says this from now on, also after a power cut.
    pub(super) fn write(&self, text: &str) -> io::Result<()> {
        match &self.text {
            Some(now) if now == text => fs::File::open(self.file)?.sync_all(),
            Some(_) => replace_content(self.file, text.as_bytes()),
            None => make(self.file, text.as_bytes(), MODE),
        }
    }

    /// Keeps the text beside the file, under a name that nothing has. Gives the name.
    pub(super) fn set_aside(&self) -> io::Result<PathBuf> {
        let text = self.text.as_deref().unwrap_or_default();
        for number in 1..=EDITED_MAX {
            let mut name = self.file.as_os_str().to_owned();
            name.push(".edited");
            if number > 1 {
                name.push(format!(".{number}"));
            }
            let path = PathBuf::from(name);
            match make_like(&path, text.as_bytes(), self.file) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| path),
            }
        }
        let message = format!("{EDITED_MAX} of them are kept already, remove some");
        Err(io::Error::other(message))
    }
}

/// The text that was edited by hand, in a file of its own; that is removed again unless it is reported.
pub(super) struct Aside(pub(super) Option<PathBuf>);

impl Aside {
    /// The change is made, so the file stays.
    pub(super) fn told(mut self) -> Option<String> {
        let path = self.0.take()?;
        Some(format!(
            "the configuration file had been edited by hand; that text is in {} now",
            path.display()
        ))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "a copy of the configuration file is left over");
        }
    }
}

/// A change failed as something could not be written, and all is as before.
pub(super) fn unwritten(detail: String, error: &io::Error) -> Problem {
    let mut problem = Problem::of_write(detail, error);
    if problem.kind != ProblemKind::StorageFull {
        problem = Problem::new(ProblemKind::ApplyFailed, problem.detail);
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn record(revision: u64, text: &str) -> Record {
        Record {
            revision,
            applied_ms: 1,
            author: "uid 0".to_owned(),
            comment: None,
            summary: Vec::new(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn the_file_and_the_history_change_together() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "old").unwrap();
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        let found = Found::read(&file).unwrap();
        found.save(&mut history, record(2, "new")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        found.put_back(&mut history);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(history.running(), 1);
        let again = History::begin(scratch.path(), &file, "old", 9).unwrap();
        assert_eq!(again.running(), 1);
    }

    #[test]
    fn a_file_that_was_missing_is_made_and_gone_again_when_the_change_is_not() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        let found = Found::read(&file).unwrap();
        assert_eq!(found.text(), None);
        found.save(&mut history, record(2, "new")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        found.put_back(&mut history);
        assert!(!file.exists());
        found.write("old").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_no_record() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "old").unwrap();
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        let found = Found::read(&file).unwrap();
        // No temporary file can be made here, by root neither.
        fs::create_dir_all(scratch.path().join("tarn.toml.tarn-new/x")).unwrap();
        let error = found.save(&mut history, record(2, "new")).unwrap_err();
        assert!(error.detail.contains("tarn.toml: "), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(history.running(), 1);
        assert_eq!(fs::read_dir(history.directory()).unwrap().count(), 1);
    }

    #[test]
    fn a_history_that_cannot_be_written_leaves_the_file() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "old").unwrap();
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        fs::remove_dir_all(history.directory()).unwrap();
        let found = Found::read(&file).unwrap();
        let error = found.save(&mut history, record(2, "new")).unwrap_err();
        assert!(error.detail.contains("the history"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    #[test]
    fn texts_edited_by_hand_are_all_kept() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        for (text, name) in [("one", "tarn.toml.edited"), ("two", "tarn.toml.edited.2")] {
            fs::write(&file, text).unwrap();
            let kept = Found::read(&file).unwrap().set_aside().unwrap();
            assert_eq!(kept, scratch.path().join(name));
            assert_eq!(fs::read_to_string(&kept).unwrap(), text);
        }
    }

    #[test]
    fn a_copy_that_nobody_is_told_of_goes() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.toml.edited");
        for is_told in [false, true] {
            fs::write(&path, "text").unwrap();
            let aside = Aside(Some(path.clone()));
            if is_told {
                assert!(aside.told().unwrap().contains("tarn.toml.edited"));
            } else {
                drop(aside);
            }
            assert_eq!(path.exists(), is_told);
        }
    }
}
