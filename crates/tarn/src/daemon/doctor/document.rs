//! The rule about the configuration file: it is what runs, and Tarn can start with it again.

use std::path::Path;

use api::event::{Finding, Severity};
use config::Model;

use super::finding;
use crate::daemon::control::Daemon;
use crate::prepare::read_text;

/// What there is to say of the file.
pub(super) fn look(daemon: &Daemon) -> Option<Finding> {
    let file = daemon.file.clone()?;
    let in_force = daemon.in_force();
    let document = &in_force.document;
    let asked = file.clone();
    let text = daemon
        .attempts()
        .begin()
        .ask(&file, move || text_of(&asked));
    let text = text.unwrap_or_else(|unanswered| Err(unanswered.to_string()));
    examine(&file, text, document.revision, &document.text)
}

fn text_of(file: &Path) -> Result<String, String> {
    read_text(file).map_err(|error| crate::error::chain(&error))
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
