//! The configuration file, as a change finds and leaves it.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use api::problem::{Problem, ProblemKind};
use durable::{make, make_like, replace_content};
use rustix::fs::OFlags;

use super::attempts::Patience;
use super::history::{History, Record};
use crate::StartError;

/// Bytes of a document, unless the one that runs is longer: as much as the administration takes.
const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;

/// Texts that were edited by hand and are kept beside one file, at most.
const EDITED_MAX: u32 = 100;

/// The mode of a configuration file that was missing.
const MODE: u32 = 0o640;

/// By what a text of a file is known again without being read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &fs::Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            size_bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }

    /// Whether a later text has another stamp: clocks of file systems are coarse.
    pub(super) fn is_certain(&self, now_seconds: i64) -> bool {
        self.changed.0.saturating_add(1) < now_seconds
    }
}

/// What a file says.
#[derive(Debug)]
pub(super) enum Content {
    /// What it said when its stamp was the one that is known.
    Known,
    /// This, and by what it is known again.
    Read(Stamp, String),
}

/// Refuses a document that could not be read again.
pub(super) fn check_length(text: &str, runs: &str) -> Result<(), Problem> {
    let most = document_bytes_max(runs.len());
    if text.len() <= most {
        return Ok(());
    }
    let detail = format!(
        "the configuration would have {} bytes, {most} is the most",
        text.len()
    );
    Err(Problem::new(ProblemKind::TooLarge, detail))
}

/// How long a document may be where one of so many bytes runs.
pub(super) fn document_bytes_max(runs: usize) -> usize {
    runs.max(DOCUMENT_BYTES_MAX)
}

/// Reads a configuration file while Tarn serves. It must be a regular file of at most `most` bytes, so that nobody
/// waits for a pipe or fills the memory.
pub(super) fn read(path: &Path, most: usize, known: Option<Stamp>) -> Result<Content, StartError> {
    let opened = open_regular(path, most);
    let (file, stamp) = match opened {
        Ok(opened) => opened,
        Err(error) => return text_of(path, Err(error)).map(|_| Content::Known),
    };
    if known == Some(stamp) {
        return Ok(Content::Known);
    }
    let mut bytes = Vec::new();
    let read = file.take(at_most(most)).read_to_end(&mut bytes);
    let text = text_of(path, read.map(|_| bytes))?;
    Ok(Content::Read(stamp, text))
}

fn open_regular(path: &Path, most: usize) -> io::Result<(fs::File, Stamp)> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let mut options = fs::OpenOptions::new();
    let options = options.read(true).custom_flags(flags.cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if metadata.size() > at_most(most) {
        let message = format!("it is longer than {most} bytes");
        return Err(io::Error::other(message));
    }
    Ok((file, Stamp::of(&metadata)))
}

fn at_most(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The text of a configuration file, within the time that a change has; `None` where there is no file.
pub(super) fn read_in_turn(
    path: &Path,
    runs: usize,
    patience: &Patience<'_>,
) -> Result<Option<String>, String> {
    let file = path.to_owned();
    let ask = move || read(&file, document_bytes_max(runs), None);
    let answer = patience.ask_in_turn(path, ask);
    let content = answer.map_err(|unanswered| unanswered.to_string())?;
    match content {
        Ok(Content::Read(_, text)) => Ok(Some(text)),
        Ok(Content::Known) => Ok(Some(String::new())),
        Err(StartError::ConfigUnreadable { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            Ok(None)
        }
        Err(error) => Err(crate::error::chain(&error)),
    }
}

/// The configuration file before a change.
#[derive(Debug)]
pub(super) struct Found<'a> {
    file: &'a Path,
    /// `None` when there was none.
    text: Option<String>,
}

impl<'a> Found<'a> {
    /// That says this; `None` when there is none.
    pub(super) const fn new(file: &'a Path, text: Option<String>) -> Self {
        Self { file, text }
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
        // Whoever edits the file does not wait for a change that takes long.
        let edited = |text: &String| fs::read(self.file).is_ok_and(|now| now != text.as_bytes());
        if self.text.as_ref().is_some_and(edited) {
            let file = self.file.display();
            let detail =
                format!("{file} was edited while this change was made; check it, and try again");
            return Err(Problem::new(ProblemKind::Conflict, detail));
        }
        let text = record.text.clone();
        let added = history.add(record);
        added.map_err(|error| {
            let directory = history.directory().display();
            unwritten(
                format!("cannot write the history in {directory}: {error}"),
                &error,
            )
        })?;
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

/// The text that was read of a configuration file.
///
/// # Errors
///
/// It cannot be read, or is not UTF-8.
pub(crate) fn text_of(path: &Path, read: io::Result<Vec<u8>>) -> Result<String, StartError> {
    let bytes = read.map_err(|source| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::IsADirectory {
            StartError::ConfigDirectory { path }
        } else {
            StartError::ConfigUnreadable { path, source }
        }
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = error.as_bytes().iter().take(valid);
        StartError::ConfigNotText {
            path: path.to_owned(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
        }
    })
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
    fn only_a_regular_file_of_the_right_length_is_read_and_only_once() {
        let scratch = Scratch::new();
        let path = scratch.path().join("tarn.toml");
        let message = || crate::error::chain(&read(&path, 4, None).unwrap_err());
        assert!(message().contains("name one that exists"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert!(message().contains("no regular file"));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(message().contains("is a directory"));
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "12345").unwrap();
        assert!(message().contains("longer than 4 bytes"));
        let Ok(Content::Read(stamp, text)) = read(&path, 5, None) else {
            panic!("it is not read");
        };
        assert_eq!(text, "12345");
        assert!(matches!(read(&path, 5, Some(stamp)), Ok(Content::Known)));
        fs::write(&path, "1234").unwrap();
        assert!(matches!(read(&path, 5, Some(stamp)), Ok(Content::Read(..))));
        assert!(!stamp.is_certain(stamp.changed.0) && stamp.is_certain(stamp.changed.0 + 2));
    }

    #[test]
    fn the_file_and_the_history_change_together() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "old").unwrap();
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        let found = Found::new(&file, fs::read_to_string(&file).ok());
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
        let found = Found::new(&file, None);
        assert_eq!(found.text(), None);
        found.save(&mut history, record(2, "new")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        found.put_back(&mut history);
        assert!(!file.exists());
        found.write("old").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
    }

    #[test]
    fn an_edit_during_a_change_is_not_overwritten() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "old").unwrap();
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        let found = Found::new(&file, fs::read_to_string(&file).ok());
        fs::write(&file, "edited").unwrap();
        let error = found.save(&mut history, record(2, "new")).unwrap_err();
        assert!(error.detail.contains("was edited"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "edited");
        assert_eq!(history.running(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_no_record() {
        let scratch = Scratch::new();
        let file = scratch.path().join("tarn.toml");
        fs::write(&file, "old").unwrap();
        let mut history = History::begin(scratch.path(), &file, "old", 9).unwrap();
        let found = Found::new(&file, fs::read_to_string(&file).ok());
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
        let found = Found::new(&file, fs::read_to_string(&file).ok());
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
            let kept = Found::new(&file, fs::read_to_string(&file).ok())
                .set_aside()
                .unwrap();
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
