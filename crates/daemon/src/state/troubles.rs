//! What is wrong with the state directory, for events and `tarn doctor`.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::event::Severity;

use crate::StartError;
use crate::error::chain;

/// Troubles that are kept. Beyond it further ones are left out.
const TROUBLES_MAX: usize = 256;

/// Something that keeps a part of the service from its state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Trouble {
    pub(crate) severity: Severity,
    /// Stable, for scripts.
    pub(crate) code: &'static str,
    /// The unit or the file.
    pub(crate) subject: String,
    /// The subject is a unit.
    pub(crate) is_of_unit: bool,
    pub(crate) message: String,
    pub(crate) remedy: String,
}

/// All that was noted; shared by all that are cloned from one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    troubles: Vec<Trouble>,
    /// How many of them have been reported.
    reported: usize,
}

impl Troubles {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        // Every change is one push or one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one, unless it is known or there are too many.
    pub(crate) fn note(&self, trouble: Trouble) {
        let troubles = &mut self.lock().troubles;
        if troubles.len() < TROUBLES_MAX && !troubles.contains(&trouble) {
            troubles.push(trouble);
        }
    }

    /// Leaves out what is noted under this code.
    pub(crate) fn withdraw(&self, code: &str) {
        let mut noted = self.lock();
        noted.troubles.retain(|one| one.code != code);
        noted.reported = noted.reported.min(noted.troubles.len());
    }

    pub(crate) fn list(&self) -> Vec<Trouble> {
        self.lock().troubles.clone()
    }

    /// Those that this has not given yet, for the log and the events.
    pub(crate) fn unreported(&self) -> Vec<Trouble> {
        let mut noted = self.lock();
        let new = noted
            .troubles
            .iter()
            .skip(noted.reported)
            .cloned()
            .collect();
        noted.reported = noted.troubles.len();
        new
    }
}

impl Trouble {
    /// The ledger is damaged, or cannot be written.
    pub(crate) fn of_ledger(error: &StartError) -> Self {
        let (code, remedy) = if let StartError::StateDamaged { has_copy, .. } = error {
            let remedy = if *has_copy {
                "its copy is used, and changes that need it are refused; run tarn state restore, then restart Tarn"
            } else {
                "restore it from a backup and restart Tarn; or give its luns the serial and naa that \
                 initiators know, run tarn state restore --discard, and restart Tarn"
            };
            ("state-damaged", remedy)
        } else {
            let remedy = "make room in the state directory and make it writable, then restart Tarn";
            ("state-unwritable", remedy)
        };
        Self {
            severity: Severity::Error,
            code,
            subject: "identities.toml".to_owned(),
            is_of_unit: false,
            message: chain(error),
            remedy: remedy.to_owned(),
        }
    }

    /// The ledger has units, and none of those that are configured.
    pub(crate) fn foreign(directory: &Path) -> Self {
        Self {
            severity: Severity::Warning,
            code: "state-foreign",
            subject: directory.display().to_string(),
            is_of_unit: false,
            message: "this state directory knows other luns, but none of the configuration: every lun has a new \
                      serial number and NAA designator, and initiators see new disks".to_owned(),
            remedy: "if initiators know these luns already, stop Tarn and start it with the state directory that \
                     served them; otherwise do nothing".to_owned(),
        }
    }

    /// A unit is not served, as nobody knows its identity.
    pub(crate) fn withheld(unit: &config::Unit, error: &StartError) -> Self {
        Self {
            severity: Severity::Error,
            code: "lun-withheld",
            subject: unit.to_string(),
            is_of_unit: true,
            message: format!(
                "it is not served, because its serial number and NAA designator are not known: {}",
                chain(error)
            ),
            remedy: "put the state directory right (tarn state check), then restart Tarn"
                .to_owned(),
        }
    }

    /// What the medium of a unit is cannot be recorded.
    pub(crate) fn of_medium(naa: String, error: &io::Error) -> Self {
        Self {
            severity: Severity::Error,
            code: "state-unwritable",
            subject: naa,
            is_of_unit: false,
            message: format!("what the medium of this lun is cannot be recorded: {error}"),
            remedy: "make room in the state directory and make it writable, then restart Tarn"
                .to_owned(),
        }
    }

    /// The reservations of a unit cannot be read.
    pub(crate) fn of_unit(unit: &config::Unit, error: &io::Error) -> Self {
        Self {
            severity: Severity::Error,
            code: "reservations-lost",
            subject: unit.to_string(),
            is_of_unit: true,
            message: format!(
                "its reservations cannot be read, so it refuses what they could forbid: {error}"
            ),
            remedy: format!(
                "stop Tarn and run tarn state restore, have an initiator replace them (PERSISTENT RESERVE OUT, \
                 REPLACE LOST RESERVATION), or do without them: tarn lun reservation clear {unit}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_kept_once_and_so_many_are() {
        let troubles = Troubles::default();
        let trouble = |number: usize| Trouble {
            severity: Severity::Error,
            code: "a",
            subject: number.to_string(),
            is_of_unit: false,
            message: String::new(),
            remedy: String::new(),
        };
        for number in 0..TROUBLES_MAX + 1 {
            troubles.note(trouble(number));
            troubles.note(trouble(0));
        }
        assert_eq!(troubles.list().len(), TROUBLES_MAX);
        assert_eq!(troubles.unreported().len(), TROUBLES_MAX);
        assert_eq!(troubles.unreported(), []);
    }

    #[test]
    fn what_is_withdrawn_is_no_trouble_and_keeps_no_other_from_being_reported() {
        let troubles = Troubles::default();
        let note = |code: &'static str, subject: &str| {
            troubles.note(Trouble {
                severity: Severity::Error,
                code,
                subject: subject.to_owned(),
                is_of_unit: false,
                message: String::new(),
                remedy: String::new(),
            });
        };
        let subjects =
            |all: Vec<Trouble>| -> Vec<String> { all.into_iter().map(|one| one.subject).collect() };
        note("a", "1");
        note("b", "2");
        note("a", "3");
        assert_eq!(subjects(troubles.unreported()), ["1", "2", "3"]);
        troubles.withdraw("a");
        assert_eq!(subjects(troubles.list()), ["2"]);
        note("a", "4");
        assert_eq!(subjects(troubles.unreported()), ["4"]);
    }

    #[test]
    fn each_trouble_has_its_code_and_says_whether_it_is_of_a_unit() {
        let text = "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n";
        let model = config::Model::from_toml(text, Path::new("/t.toml")).unwrap();
        let unit = &model.units()[0];
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let unusable = StartError::StateUnusable {
            path: "/state".into(),
            source: full(),
        };
        let (error, warning) = (Severity::Error, Severity::Warning);
        for (trouble, code, subject, severity, is_of_unit) in [
            (
                Trouble::of_ledger(&unusable),
                "state-unwritable",
                "identities.toml",
                error,
                false,
            ),
            (
                Trouble::foreign(Path::new("/state")),
                "state-foreign",
                "/state",
                warning,
                false,
            ),
            (
                Trouble::withheld(unit, &unusable),
                "lun-withheld",
                "a",
                error,
                true,
            ),
            (
                Trouble::of_medium("naa".to_owned(), &full()),
                "state-unwritable",
                "naa",
                error,
                false,
            ),
            (
                Trouble::of_unit(unit, &full()),
                "reservations-lost",
                "a",
                error,
                true,
            ),
        ] {
            assert_eq!((trouble.code, trouble.subject.as_str()), (code, subject));
            assert_eq!(
                (trouble.severity, trouble.is_of_unit),
                (severity, is_of_unit),
                "{code}"
            );
        }
        for (has_copy, remedy) in [
            (true, "its copy is used"),
            (false, "restore it from a backup"),
        ] {
            let trouble = Trouble::of_ledger(&StartError::StateDamaged {
                path: "/state".into(),
                problem: "it is short".to_owned(),
                has_copy,
            });
            assert_eq!(trouble.code, "state-damaged");
            assert!(trouble.remedy.starts_with(remedy), "{}", trouble.remedy);
        }
    }
}
