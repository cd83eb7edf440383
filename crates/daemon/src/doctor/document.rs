//! The rule about the configuration file: it is what runs, and Tarn can start with it again.

use std::path::Path;
use std::time::SystemTime;

use api::event::{Finding, Severity};
use config::Model;

use super::{DocumentLooks, DocumentVerdict as Verdict, finding, locked};
use crate::calendar::milliseconds;
use crate::daemon::Daemon;
use crate::error::Unanswered;
use crate::file::{self, Content};

impl DocumentLooks {
    /// What there is to say of the file. Nothing where it is not known, as the file does not answer.
    pub(super) fn look(&self, daemon: &Daemon) -> Option<Finding> {
        let file = daemon.file.as_deref()?;
        self.looks.ask(|| self.now(daemon, file))
    }

    fn now(&self, daemon: &Daemon, file: &Path) -> Option<Finding> {
        let mut last = locked(&self.last);
        if let Ok(verdict) = verdict(daemon, file, last.as_ref()).ok()? {
            let finding = verdict.finding.clone();
            *last = Some(verdict);
            return finding;
        }
        // A change writes the file before the text is in force.
        let known = last.as_ref().and_then(|verdict| verdict.finding.clone());
        let Some(_unchanged) = daemon.hold_changes() else {
            return known;
        };
        let (Ok(verdict) | Err(verdict)) = verdict(daemon, file, None).ok()?;
        let finding = verdict.finding.clone();
        *last = Some(verdict);
        finding
    }
}

/// What is to be said of the file; as an error where that holds only if no change is being made.
fn verdict(
    daemon: &Daemon,
    file: &Path,
    last: Option<&Verdict>,
) -> Result<Result<Verdict, Verdict>, Unanswered> {
    let in_force = daemon.in_force();
    let (revision, runs) = (in_force.document.revision, in_force.document.text.len());
    let last = last.filter(|verdict| verdict.revision == revision);
    let known = last.and_then(|verdict| verdict.stamp);
    let (path, most) = (file.to_owned(), file::document_bytes_max(runs));
    let patience = daemon.attempts.begin_look();
    let content = patience.ask_in_turn(file, move || file::read(&path, most, known))?;
    let (stamp, text) = match (content, last) {
        (Ok(Content::Known), Some(last)) => return Ok(Ok(last.clone())),
        (Ok(Content::Known), None) => (None, Ok(String::new())),
        (Ok(Content::Read(stamp, text)), _) => (Some(stamp), Ok(text)),
        (Err(error), _) => (None, Err(crate::error::chain(&error))),
    };
    let now_seconds = milliseconds(SystemTime::now()) / 1000;
    let now_seconds = i64::try_from(now_seconds).unwrap_or(i64::MAX);
    // Read after the file: what a change has written may be in force by now.
    let in_force = daemon.in_force();
    let document = &in_force.document;
    let verdict = Verdict {
        stamp: stamp.filter(|stamp| stamp.is_certain(now_seconds)),
        revision: document.revision,
        finding: None,
    };
    if text.as_ref() == Ok(&document.text) {
        return Ok(Ok(verdict));
    }
    Ok(Err(Verdict {
        finding: examine(file, text, document.revision, &document.text),
        ..verdict
    }))
}

fn examine(
    file: &Path,
    text: Result<String, String>,
    revision: u64,
    running: &str,
) -> Option<Finding> {
    let name = file.display();
    let parsed = text.and_then(|text| match Model::from_toml(&text, file) {
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    });
    match parsed {
        Ok(text) if text == running => None,
        Ok(_) => Some(finding(
            Severity::Info,
            "file-edited",
            name.to_string(),
            format!("it differs from revision {revision}, which runs"),
            format!(
                "see tarn diff, then tarn apply {name}, or tarn rollback {revision} for what runs"
            ),
        )),
        Err(error) => Some(finding(
            Severity::Error,
            "file-invalid",
            name.to_string(),
            format!("Tarn would not start with it: {error}"),
            format!("put it right (tarn check {name}), or tarn rollback {revision} for what runs"),
        )),
    }
}

/// What waits for a restart.
pub(super) fn pending(keys: &[String]) -> Option<Finding> {
    let keys = keys.join("; ");
    (!keys.is_empty()).then(|| {
        finding(
            Severity::Info,
            "restart-pending",
            "",
            format!("changes of the configuration are pending until a restart: {keys}"),
            "restart Tarn when its initiators can wait some seconds, or change the keys back",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_what_runs_is_found() {
        let file = Path::new("/etc/tarn/tarn.toml");
        let code = |text: Result<&str, &str>| {
            let text = text.map(str::to_owned).map_err(str::to_owned);
            examine(file, text, 3, "[server]\n").map(|found| (found.code, found.severity))
        };
        let invalid = ("file-invalid".to_owned(), Severity::Error);
        assert_eq!(code(Ok("[server]\n")), None);
        assert_eq!(
            code(Ok("[server]\n# by hand\n")),
            Some(("file-edited".to_owned(), Severity::Info))
        );
        assert_eq!(code(Ok("junk = ")), Some(invalid.clone()));
        assert_eq!(code(Err("it cannot be read")), Some(invalid));
    }
}
