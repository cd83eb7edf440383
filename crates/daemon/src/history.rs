//! The revisions of a configuration: one file each in the state directory, and the text that runs in
//! the configuration file itself.
//!
//! `STATE/history/NAME/NNNNNN.toml`, where NAME is the path of the configuration file with `/` as
//! `-` and `-` as `--`, and NNNNNN the revision. The keys of such a file are those of [`Record`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use api::plan::Revision;
use durable::Found;
use serde::{Deserialize, Serialize};

use super::calendar::milliseconds;

/// A revision as it is kept.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Record {
    /// Its number.
    pub(super) revision: u64,
    /// When it was applied, in milliseconds since 1970-01-01 UTC.
    pub(super) applied_ms: u64,
    /// Who applied it.
    pub(super) author: String,
    /// What it was for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) comment: Option<String>,
    /// Its steps, one line each.
    pub(super) summary: Vec<String>,
    /// The document.
    pub(super) text: String,
}

/// The revisions that are kept at one moment, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct Past(Arc<[Arc<Record>]>);

impl Past {
    pub(super) fn find(&self, revision: u64) -> Option<&Record> {
        let found = self.0.iter().find(|record| record.revision == revision);
        found.map(AsRef::as_ref)
    }

    /// The last first.
    pub(super) fn list(&self) -> Vec<Revision> {
        let revision = |record: &Arc<Record>| Revision {
            revision: record.revision,
            applied_ms: record.applied_ms,
            author: record.author.clone(),
            comment: record.comment.clone(),
            summary: record.summary.clone(),
        };
        self.0.iter().rev().map(revision).collect()
    }
}

/// The revisions of one configuration file. The last one runs.
#[derive(Debug)]
pub(crate) struct History {
    directory: PathBuf,
    /// The oldest first.
    records: Vec<Arc<Record>>,
    /// The largest number that a file has, whether it can be read or not.
    highest: u64,
}

impl History {
    /// Reads what is kept for the file, and notes that it is started with this text; so many are
    /// kept.
    #[cfg(test)]
    pub(super) fn begin(state: &Path, file: &Path, text: &str, most: usize) -> io::Result<Self> {
        let (history, unkept) = Self::begin_anyhow(state, file, text, most)?;
        unkept.map_or(Ok(history), Err)
    }

    /// As it says, and also where the record of the start cannot be written: then with the error,
    /// and the record is gone with the process. Disks do not wait for a history.
    pub(crate) fn begin_anyhow(
        state: &Path,
        file: &Path,
        text: &str,
        most: usize,
    ) -> io::Result<(Self, Option<io::Error>)> {
        let mut unkept = None;
        let mut history = match Self::open(state, file) {
            Ok(history) => history,
            Err(error) => {
                unkept = Some(error);
                Self {
                    directory: state.join("history").join(name_of(file)?),
                    records: Vec::new(),
                    highest: 0,
                }
            }
        };
        let is_last = |last: &Arc<Record>| last.text == text && last.revision == history.highest;
        if !history.records.last().is_some_and(is_last) {
            let record = Record {
                revision: history.highest + 1,
                applied_ms: milliseconds(SystemTime::now()),
                author: "start".to_owned(),
                comment: None,
                summary: Vec::new(),
                text: text.to_owned(),
            };
            if let Err(error) = history.add(record.clone()) {
                unkept = Some(error);
                history.highest = record.revision;
                history.records.push(Arc::new(record));
            }
        }
        history.prune(most);
        Ok((history, unkept))
    }

    /// Reads what is kept for the file. A record that cannot be read is left alone and logged.
    fn open(state: &Path, file: &Path) -> io::Result<Self> {
        let directory = state.join("history").join(name_of(file)?);
        durable::make_private_directory(&directory)?;
        let (mut records, mut highest) = (Vec::new(), 0);
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let number = path
                .file_stem()
                .and_then(|stem| stem.to_str()?.parse().ok());
            highest = highest.max(number.unwrap_or(0));
            match read(&path) {
                Ok(record) => records.push(Arc::new(record)),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "no record of a revision");
                }
            }
        }
        records.sort_by_key(|record| record.revision);
        let last = records.last().map_or(0, |record| record.revision);
        Ok(Self {
            directory,
            records,
            highest: highest.max(last),
        })
    }

    /// The revision that runs.
    pub(super) fn running(&self) -> u64 {
        self.records.last().map_or(0, |last| last.revision)
    }

    /// What is kept now.
    pub(super) fn past(&self) -> Past {
        Past(self.records.as_slice().into())
    }

    /// Keeps a record; it is on stable storage when this returns.
    pub(super) fn add(&mut self, record: Record) -> io::Result<()> {
        let text = toml::to_string(&record).map_err(io::Error::other)?;
        let path = self.path(record.revision);
        durable::write(&path, &text).inspect_err(|_| {
            // It may be there when only the directory could not be flushed.
            let _not_there = fs::remove_file(&path);
        })?;
        self.highest = self.highest.max(record.revision);
        self.records.push(Arc::new(record));
        Ok(())
    }

    /// Lets the oldest go if there are more than so many.
    pub(super) fn prune(&mut self, most: usize) {
        let many = self.records.len().saturating_sub(most.max(1));
        for oldest in self.records.drain(..many) {
            if let Err(error) = fs::remove_file(path_in(&self.directory, oldest.revision)) {
                tracing::warn!(%error, revision = oldest.revision, "an old revision stays");
            }
        }
    }

    /// Removes the last record: the change in it was not made.
    pub(super) fn take_back(&mut self) -> io::Result<()> {
        match self.records.pop() {
            Some(record) => fs::remove_file(self.path(record.revision)),
            None => Ok(()),
        }
    }

    fn path(&self, revision: u64) -> PathBuf {
        path_in(&self.directory, revision)
    }

    /// Where the records are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

fn path_in(directory: &Path, revision: u64) -> PathBuf {
    directory.join(format!("{revision:06}.toml"))
}

fn read(path: &Path) -> io::Result<Record> {
    match durable::read(path)? {
        Found::Whole(text) => toml::from_str(&text).map_err(io::Error::other),
        Found::Damaged(damage) => Err(io::Error::other(damage.to_string())),
        Found::Absent => Err(io::ErrorKind::NotFound.into()),
    }
}

/// The name of what belongs to a configuration file in the state directory.
pub(super) fn name_of(file: &Path) -> io::Result<String> {
    let absolute = std::path::absolute(file)?;
    let name = absolute
        .to_string_lossy()
        .replace('-', "--")
        .replace('/', "-");
    Ok(name.trim_start_matches('-').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn record(revision: u64) -> Record {
        Record {
            revision,
            applied_ms: 1,
            author: "uid 0".to_owned(),
            comment: Some("why \"not\"".to_owned()),
            summary: vec!["add lun a".to_owned()],
            text: "# '''\n[[lun]]\n".to_owned(),
        }
    }

    fn numbers(history: &History) -> Vec<u64> {
        let list = history.past().list();
        list.iter().map(|one| one.revision).collect()
    }

    #[test]
    fn revisions_survive_and_the_oldest_go() {
        let scratch = Scratch::new();
        let file = Path::new("/etc/tarn/a-b.toml");
        let mut history = History::open(scratch.path(), file).unwrap();
        for revision in 1..=3 {
            history.add(record(revision)).unwrap();
        }
        history.prune(2);
        let mut again = History::open(scratch.path(), file).unwrap();
        assert_eq!(numbers(&again), [3, 2]);
        assert_eq!(again.past().find(2).unwrap().text, record(2).text);
        again.take_back().unwrap();
        let other = History::open(scratch.path(), Path::new("/etc/tarn/a/b.toml")).unwrap();
        assert!(numbers(&other).is_empty());
        let last = History::open(scratch.path(), file).unwrap();
        assert_eq!(last.running(), 2);
    }

    #[test]
    fn a_change_that_is_taken_back_costs_no_revision() {
        let scratch = Scratch::new();
        let file = Path::new("/etc/tarn/tarn.toml");
        let mut history = History::begin(scratch.path(), file, "a", 3).unwrap();
        for revision in 2..=3 {
            history.add(record(revision)).unwrap();
        }
        history.add(record(4)).unwrap();
        history.take_back().unwrap();
        assert_eq!(numbers(&history), [3, 2, 1]);
    }

    #[test]
    fn a_record_that_cannot_be_written_is_no_revision() {
        let scratch = Scratch::new();
        let file = Path::new("/etc/tarn/tarn.toml");
        let mut history = History::begin(scratch.path(), file, "a", 9).unwrap();
        // Nothing replaces a directory that is not empty.
        fs::create_dir_all(history.path(2).join("full")).unwrap();
        assert!(history.add(record(2)).is_err());
        assert_eq!(numbers(&history), [1]);
        assert_eq!(history.running(), 1);
        history.add(record(3)).unwrap();
        assert_eq!(numbers(&history), [3, 1]);
    }

    #[test]
    fn a_start_with_another_text_is_a_revision() {
        let scratch = Scratch::new();
        let file = Path::new("/etc/tarn/tarn.toml");
        for (text, revisions) in [
            ("a", vec![1]),
            ("a", vec![1]),
            ("b", vec![2, 1]),
            ("c", vec![3, 2]),
        ] {
            let history = History::begin(scratch.path(), file, text, 2).unwrap();
            assert_eq!(numbers(&history), revisions, "{text}");
        }
    }

    #[test]
    fn a_damaged_record_is_left_alone_and_its_number_is_not_given_again() {
        let scratch = Scratch::new();
        let file = Path::new("/etc/tarn/tarn.toml");
        let history = History::begin(scratch.path(), file, "a", 9).unwrap();
        let damaged = [
            ("000002.toml", &b"\xff\xfe"[..]),
            ("000003.toml", b"revision = 3"),
        ];
        for (name, bytes) in damaged {
            fs::write(history.directory().join(name), bytes).unwrap();
        }
        fs::create_dir(history.directory().join("x.toml")).unwrap();
        let again = History::begin(scratch.path(), file, "a", 9).unwrap();
        assert_eq!(numbers(&again), [4, 1]);
        for (name, bytes) in damaged {
            assert_eq!(fs::read(again.directory().join(name)).unwrap(), bytes);
        }
    }
}
