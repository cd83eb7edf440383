//! Findings that begin and end: each is an event and a line of the log when it does.
//!
//! Findings of the severity `info` are none: they come and go with the load. One that is there for less than [`PAUSE`]
//! is perhaps not seen, and one is over only when [`LOOKS_WITHOUT`] looks have not found it, so that what flickers is
//! said once. What rules look at that hangs is late for the rules too; a look ends in any case.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use api::event::{Finding, Severity};

use super::daemon::Daemon;
use super::doctor::Inquirer;
use super::{events, snapshots};

/// Between two looks.
const PAUSE: Duration = Duration::from_secs(5);

/// A finding is over when so many looks in a row have not found it.
const LOOKS_WITHOUT: u32 = 2;

/// How many findings are followed. Those beyond are not, until others end; `tarn doctor` lists them.
const FOLLOWED_MAX: usize = 4096;

/// A finding that has begun.
#[derive(Clone, Debug)]
struct Followed {
    finding: Finding,
    /// How many looks have not found it since.
    missed: u32,
}

/// What has begun and is not over.
#[derive(Debug, Default)]
struct Watch(BTreeMap<(String, String), Followed>);

/// What a look has shown.
#[derive(Debug, Default)]
struct Turns {
    began: Vec<Finding>,
    ended: Vec<Finding>,
}

impl Watch {
    /// Takes over what there is now. Of several findings with one code and subject the first stands for all.
    fn look(&mut self, now: Vec<Finding>) -> Turns {
        let mut turns = Turns::default();
        for followed in self.0.values_mut() {
            followed.missed += 1;
        }
        let grave = now.into_iter().filter(|one| one.severity > Severity::Info);
        for finding in grave {
            let key = (finding.code.clone(), finding.subject.clone());
            if let Some(known) = self.0.get_mut(&key) {
                known.missed = 0;
                known.finding = finding;
            } else if self.0.len() < FOLLOWED_MAX {
                turns.began.push(finding.clone());
                self.0.insert(key, Followed { finding, missed: 0 });
            }
        }
        self.0.retain(|_, followed| {
            let is_over = followed.missed >= LOOKS_WITHOUT;
            if is_over {
                turns.ended.push(followed.finding.clone());
            }
            !is_over
        });
        turns
    }
}

/// Notes what has begun and what is over.
fn look(watch: &mut Watch, daemon: &Daemon) {
    let turns = watch.look(daemon.findings_now(Inquirer::Watch));
    for finding in &turns.began {
        let Finding {
            code,
            subject,
            message,
            remedy,
            ..
        } = finding;
        match finding.severity {
            Severity::Error => tracing::error!(code, subject, remedy, "finding: {message}"),
            Severity::Warning => tracing::warn!(code, subject, remedy, "finding: {message}"),
            Severity::Info => {}
        }
        daemon.events.note(events::of_finding(finding, true));
    }
    for finding in &turns.ended {
        let Finding { code, subject, .. } = finding;
        tracing::info!(code, subject, "finding is over");
        daemon.events.note(events::of_finding(finding, false));
    }
}

/// The thread that looks, until this is dropped.
pub(crate) struct Watcher {
    _ends: SyncSender<()>,
}

impl Watcher {
    pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<Self> {
        let (ends, ended) = sync_channel::<()>(0);
        let daemon = Arc::downgrade(daemon);
        let run = move || {
            let mut watch = Watch::default();
            while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let Some(daemon) = daemon.upgrade() else {
                    break;
                };
                look(&mut watch, &daemon);
                snapshots::note_resumed(&daemon);
            }
        };
        thread::Builder::new()
            .name("findings".to_owned())
            .spawn(run)?;
        Ok(Self { _ends: ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, subject: &str) -> Finding {
        Finding {
            severity,
            code: "store-error".to_owned(),
            subject: subject.to_owned(),
            lun: None,
            message: String::new(),
            remedy: String::new(),
        }
    }

    fn subjects(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|one| one.subject.as_str()).collect()
    }

    #[test]
    fn a_finding_begins_once_and_ends_after_two_looks_without_it() {
        let mut watch = Watch::default();
        let there = |subject| finding(Severity::Error, subject);
        let turns = watch.look(vec![there("a"), there("a"), there("b")]);
        assert_eq!(subjects(&turns.began), ["a", "b"]);
        let turns = watch.look(vec![there("b")]);
        assert_eq!(
            (turns.began.len(), turns.ended.len()),
            (0, 0),
            "it may flicker"
        );
        let turns = watch.look(vec![there("b")]);
        assert_eq!(subjects(&turns.ended), ["a"]);
        let turns = watch.look(vec![there("a"), there("b")]);
        assert_eq!((subjects(&turns.began), turns.ended.len()), (vec!["a"], 0));
    }

    #[test]
    fn what_is_only_good_to_know_is_no_event() {
        let mut watch = Watch::default();
        let turns = watch.look(vec![
            finding(Severity::Info, "a"),
            finding(Severity::Warning, "b"),
        ]);
        assert_eq!(subjects(&turns.began), ["b"]);
    }

    #[test]
    fn no_more_are_followed_than_the_limit() {
        let mut watch = Watch::default();
        let many = (0..=FOLLOWED_MAX).map(|number| finding(Severity::Error, &number.to_string()));
        let turns = watch.look(many.collect());
        assert_eq!(turns.began.len(), FOLLOWED_MAX);
    }
}
