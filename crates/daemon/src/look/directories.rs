//! Quotas of directories that are not there: what they count is nothing, and what was meant is something else.
//!
//! Only a change that brings such a quota is refused. A start, and a change of something else, take it as it is: its
//! file system may be mounted later.

use std::fs;
use std::io;
use std::path::Path;

use api::plan::Kind;
use config::QuotaOf;

use super::Look;
use crate::StartError;

impl Look<'_> {
    /// Refuses new quotas of directories that are not there.
    pub(super) fn directories(&mut self) {
        let (old, model) = (self.old, self.model);
        let is_known = |of: &QuotaOf| old.model.quotas().iter().any(|one| one.of == *of);
        for quota in model.quotas().iter().filter(|quota| !is_known(&quota.of)) {
            let QuotaOf::Directory(directory) = &quota.of else {
                continue;
            };
            let (place, shown) = (quota.place.clone(), directory.display().to_string());
            let path = directory.clone();
            let answer = self
                .means
                .patience
                .ask_in_turn(directory, move || look(&path));
            let error = match answer {
                Ok(None) => continue,
                Ok(Some(reason)) => StartError::QuotaDirectory {
                    place,
                    directory: shown,
                    reason,
                },
                Err(source) => StartError::StoreHangs { place, source },
            };
            self.note_time(&error);
            self.wrong_step(Kind::Quota, &quota.of.to_string(), error);
        }
    }
}

/// Why disks cannot be there.
fn look(path: &Path) -> Option<String> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some("it is no directory".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some("it is not there".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_a_directory_can_have_disks() {
        let scratch = Scratch::new();
        let file = scratch.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(look(scratch.path()), None);
        assert_eq!(look(&file).as_deref(), Some("it is no directory"));
        let gone = look(&scratch.path().join("gone"));
        assert_eq!(gone.as_deref(), Some("it is not there"));
    }
}
