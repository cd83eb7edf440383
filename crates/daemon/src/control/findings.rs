//! What is wrong, as the administration asks for it.

use std::time::SystemTime;

use api::event::{Finding, Severity};

use crate::daemon::Daemon;
use crate::doctor::Inquirer;
use crate::events::of_trouble;
use crate::expiry::ADMINISTRATION;
use crate::held::Withheld;
use crate::settling::SETTLING_PATIENCE;
use crate::state::Trouble;

impl Daemon {
    /// What limits or endangers the service, now.
    pub(crate) fn findings_now(&self, inquirer: Inquirer) -> Vec<Finding> {
        let of_trouble = |trouble: Trouble| Finding {
            severity: trouble.severity,
            code: trouble.code.to_owned(),
            lun: trouble.is_of_unit.then(|| trouble.subject.clone()),
            subject: trouble.subject,
            message: trouble.message,
            remedy: trouble.remedy,
        };
        let troubles = self.state.troubles().list().into_iter();
        let mut findings: Vec<_> = troubles.map(of_trouble).collect();
        findings.extend(self.settlings().late(SETTLING_PATIENCE).map(|message| Finding {
            severity: Severity::Warning,
            code: "change-unsettled".to_owned(),
            subject: String::new(),
            lun: None,
            message,
            remedy: "look at the stores of the luns that are named and at the kernel log; it ends by itself when \
                they answer".to_owned(),
        }));
        findings.extend(self.doctor.findings(self, inquirer));
        findings
    }

    /// Keys that take effect when Tarn starts again, and what is served then.
    pub(crate) fn pending(&self) -> Vec<String> {
        let in_force = self.in_force();
        let running = &in_force.running;
        let mut pending = config::pending_keys(&self.begun, &running.model);
        let groups = running.hyperscsi.waiting(&running.model);
        pending.extend(groups.map(|group| format!("[[hyperscsi.group]] {group}")));
        let units = running.model.units().iter().zip(&running.units);
        let waiting = units.filter(|(_, served)| {
            let held = served.opened.held.as_ref();
            held.is_some_and(Withheld::waits_for_restart)
        });
        pending.extend(waiting.map(|(unit, _)| format!("[[lun]] {unit}")));
        pending
    }

    /// Certificates in use: what has each, and when it is valid no longer.
    pub(crate) fn certificates(&self) -> Vec<(String, SystemTime)> {
        let in_force = self.in_force();
        let running = &in_force.running;
        let of_admin = self.administration.get().and_then(|one| one.not_after());
        let of_admin = of_admin.map(|end| (ADMINISTRATION.to_owned(), end));
        let servers = running.model.nbd().iter().zip(&running.tls);
        let of_nbd = servers.filter_map(|(server, tls)| {
            let end = tls.as_ref()?.not_after?;
            Some((server.at.to_string(), end))
        });
        of_admin.into_iter().chain(of_nbd).collect()
    }

    /// Puts what was found wrong since the last time into the log and the events.
    pub(crate) fn note_troubles(&self) {
        for trouble in self.state.troubles().unreported() {
            let Trouble {
                severity,
                code,
                subject,
                is_of_unit: _,
                message,
                remedy,
            } = &trouble;
            match severity {
                Severity::Error => tracing::error!(code, subject, remedy, "{message}"),
                Severity::Warning | Severity::Info => {
                    tracing::warn!(code, subject, remedy, "{message}");
                }
            }
            self.events.note(of_trouble(&trouble));
        }
    }
}

#[cfg(test)]
mod tests {
    use api::control::Control as _;
    use api::request::EventQuestion;

    use super::*;
    use crate::serve::living::Living;
    use crate::settling::Rolling;

    #[test]
    fn troubles_are_findings_while_they_last_and_events_once_and_a_rollback_that_waits_is_a_finding()
     {
        let living = Living::new(
            "[server]\nstate = \"{dir}/state\"\ncores = 1\n[admin]\nenabled = false\n\
             [limits]\npool_per_core_bytes = \"16M\"\n",
        );
        let daemon = &living.daemon;
        let noted = |after| daemon.events(EventQuestion::after(after, 1000));
        let before = noted(0).last().map_or(0, |event| event.number);
        for (severity, subject, is_of_unit) in [
            (Severity::Error, "a", true),
            (Severity::Warning, "ledger", false),
        ] {
            daemon.state.troubles().note(Trouble {
                severity,
                code: "state-unwritable",
                subject: subject.to_owned(),
                is_of_unit,
                message: format!("what is wrong with {subject}"),
                remedy: "what helps".to_owned(),
            });
        }
        daemon.settlings().rollbacks.push(Rolling {
            lun: "b".to_owned(),
            words: "why b waits".to_owned(),
            begun: None,
        });
        let findings = daemon.findings().into_iter();
        let findings = findings
            .filter(|one| ["state-unwritable", "change-unsettled"].contains(&one.code.as_str()));
        let findings = findings.map(|one| (one.severity, one.subject, one.lun, one.message));
        let (error, warning) = (Severity::Error, Severity::Warning);
        let text = |text: &str| text.to_owned();
        assert_eq!(
            findings.collect::<Vec<_>>(),
            [
                (
                    error,
                    text("a"),
                    Some(text("a")),
                    text("what is wrong with a")
                ),
                (
                    warning,
                    text("ledger"),
                    None,
                    text("what is wrong with ledger")
                ),
                (warning, String::new(), None, text("why b waits")),
            ]
        );
        for expected in [2, 0] {
            let before = noted(0).last().map_or(before, |event| event.number);
            daemon.note_troubles();
            let noted = noted(before);
            assert_eq!(noted.len(), expected, "{noted:?}");
        }
        living.stop();
    }
}
