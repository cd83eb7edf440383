//! The revisions of a configuration: one file each in the state directory, and the text that runs in
//! the configuration file itself.
//!
//! `STATE/history/NAME/NNNNNN.toml`, where NAME is the path of the configuration file with `/` as
//! `-` and `-` as `--`, and NNNNNN the revision. The keys of such a file are those of [`Record`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use api::plan::Revision;
use serde::{Deserialize, Serialize};

use crate::state::{make_private_directory, replace_file};

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

/// The revisions of one configuration file.
#[derive(Debug)]
pub(super) struct History {
    directory: PathBuf,
    /// The oldest first.
    records: Vec<Record>,
    /// How many are kept.
    most: usize,
}

impl History {
    /// Reads what is kept for the file. A record that cannot be read is left alone and logged.
    pub(super) fn open(state: &Path, file: &Path, most: usize) -> io::Result<Self> {
        let absolute = std::path::absolute(file)?;
        let name = absolute
            .to_string_lossy()
            .replace('-', "--")
            .replace('/', "-");
        let directory = state.join("history").join(name.trim_start_matches('-'));
        make_private_directory(&directory)?;
        let mut records = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            match toml::from_str::<Record>(&text) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "no record of a revision");
                }
            }
        }
        records.sort_by_key(|record| record.revision);
        Ok(Self {
            directory,
            records,
            most: most.max(1),
        })
    }

    /// Keeps so many from the next one on.
    pub(super) fn keep(&mut self, most: usize) {
        self.most = most.max(1);
    }

    pub(super) fn last(&self) -> Option<&Record> {
        self.records.last()
    }

    pub(super) fn find(&self, revision: u64) -> Option<&Record> {
        self.records
            .iter()
            .find(|record| record.revision == revision)
    }

    /// The last first.
    pub(super) fn list(&self) -> Vec<Revision> {
        let revision = |record: &Record| Revision {
            revision: record.revision,
            applied_ms: record.applied_ms,
            author: record.author.clone(),
            comment: record.comment.clone(),
            summary: record.summary.clone(),
        };
        self.records.iter().rev().map(revision).collect()
    }

    /// Keeps a record; it is on stable storage when this returns. The oldest goes if there are
    /// too many.
    pub(super) fn add(&mut self, record: Record) -> io::Result<()> {
        let text = toml::to_string(&record).map_err(io::Error::other)?;
        replace_file(&self.path(record.revision), text.as_bytes())?;
        self.records.push(record);
        while self.records.len() > self.most {
            let oldest = self.records.remove(0);
            if let Err(error) = fs::remove_file(self.path(oldest.revision)) {
                tracing::warn!(%error, revision = oldest.revision, "an old revision stays");
            }
        }
        Ok(())
    }

    /// Takes the last record back: what it tells of was not done after all.
    pub(super) fn take_back(&mut self) -> io::Result<()> {
        match self.records.pop() {
            Some(record) => fs::remove_file(self.path(record.revision)),
            None => Ok(()),
        }
    }

    fn path(&self, revision: u64) -> PathBuf {
        self.directory.join(format!("{revision:06}.toml"))
    }
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

    #[test]
    fn revisions_survive_and_the_oldest_go() {
        let scratch = Scratch::new();
        let file = Path::new("/etc/tarn/a-b.toml");
        let mut history = History::open(scratch.path(), file, 2).unwrap();
        for revision in 1..=3 {
            history.add(record(revision)).unwrap();
        }
        let mut again = History::open(scratch.path(), file, 2).unwrap();
        let numbers: Vec<u64> = again.list().iter().map(|one| one.revision).collect();
        assert_eq!(numbers, [3, 2]);
        assert_eq!(again.find(2).unwrap().text, record(2).text);
        again.take_back().unwrap();
        let other = History::open(scratch.path(), Path::new("/etc/tarn/a/b.toml"), 2).unwrap();
        assert!(other.last().is_none());
        let last = History::open(scratch.path(), file, 2).unwrap();
        assert_eq!(last.last().unwrap().revision, 2);
    }
}
