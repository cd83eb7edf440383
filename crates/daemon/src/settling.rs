//! What a change that is in force has left to do: sessions get what they see now or end, units
//! that are gone are flushed and closed. Nothing of it can be refused, and all of it may wait for a
//! store that hangs; so it holds up no other change.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::view;
use plane::{Closed, Confirmation, Grant, Handle, NoAnswer, SessionId, SessionReport, UnitIndex};
use store::{Exchange, SnapshotName};

use crate::access::{ModelPolicy, judge};

/// How long the change itself waits for what it has left, before the next change has its turn: as
/// long as it takes where nothing hangs.
pub(super) const OWN_PATIENCE: Duration = Duration::from_millis(250);

/// How long the rest of a change may take before it is logged.
pub(super) const SETTLING_PATIENCE: Duration = Duration::from_secs(15);

/// What has come of changes is kept for those who ask for it, of so many at most.
const OUTCOMES_MAX: usize = 64;

/// A unit that is to be closed, and what it was called.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Leaver {
    pub(super) index: UnitIndex,
    pub(super) name: String,
}

/// Which sessions end or see something else, and which units have another size or go.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    pub(super) grown: Vec<UnitIndex>,
    pub(super) removed: Vec<Leaver>,
    /// Sessions of HyperSCSI see what they are to see, or are over.
    pub(super) grouped: Option<Confirmation>,
}

/// One change that is not settled.
#[derive(Debug)]
pub(super) struct Settling {
    /// `None`: a change that was not made has left it.
    revision: Option<u64>,
    rest: Unsettled,
    stage: Stage,
    /// It has been logged that it takes long.
    is_told: bool,
    since: Instant,
}

#[derive(Debug)]
enum Stage {
    /// A core has not said yet which sessions it has.
    Judge,
    /// Cores were asked to release everything.
    Leave(Vec<Confirmation>),
    /// The stores are being flushed and closed.
    Close(Confirmation),
    /// Nothing is left; these units were closed without a good flush.
    Settled(Vec<UnitIndex>),
}

impl Settling {
    /// Of a change that is in force.
    pub(super) fn new(revision: u64, rest: Unsettled) -> Self {
        Self {
            revision: Some(revision),
            rest,
            stage: Stage::Judge,
            is_told: false,
            since: Instant::now(),
        }
    }

    /// Of units that a change had added before it failed: no session has seen them.
    pub(super) fn unseen(removed: Vec<Leaver>, plane: &Handle) -> Self {
        let units: Vec<UnitIndex> = removed.iter().map(|unit| unit.index).collect();
        Self {
            revision: None,
            rest: Unsettled {
                grown: Vec::new(),
                removed,
                grouped: None,
            },
            stage: Stage::Leave(vec![plane.drain_units(&units)]),
            is_told: false,
            since: Instant::now(),
        }
    }

    fn units(&self) -> Vec<UnitIndex> {
        self.rest.removed.iter().map(|unit| unit.index).collect()
    }

    /// Grants sessions what the rules in force give them. To be called while no other change is made:
    /// cores read their letters in order, so the last judgement must be that of the last rules.
    pub(super) fn judge(&mut self, policy: &ModelPolicy, plane: &Handle) {
        if !matches!(self.stage, Stage::Judge) {
            return;
        }
        let Ok(sessions) = plane.sessions() else {
            return;
        };
        let verdict = judge(policy, &sessions);
        let key = |session: &SessionReport| (session.core, session.id);
        let ended: Vec<(usize, SessionId)> = verdict.ended.iter().map(key).collect();
        let granted: Vec<Grant> = verdict.granted;
        let reason = "the configuration lets it in no longer";
        let mut leave = vec![
            plane.change_sessions(granted, &ended, reason),
            plane.announce_sizes(&self.rest.grown),
            plane.drain_units(&self.units()),
        ];
        leave.extend(self.rest.grouped.take());
        self.stage = Stage::Leave(leave);
    }

    /// Goes as far as it gets until then. True when nothing is left to do.
    pub(super) fn advance(&mut self, plane: &Handle, until: Instant) -> bool {
        if let Stage::Leave(confirmations) = &mut self.stage {
            confirmations.retain_mut(|one| !one.wait_until(until));
            if confirmations.is_empty() {
                self.stage = Stage::Close(plane.close_units(&self.units()));
            }
        }
        if let Stage::Close(confirmation) = &mut self.stage
            && confirmation.wait_until(until)
        {
            self.stage = Stage::Settled(confirmation.unflushed().to_vec());
        }
        matches!(self.stage, Stage::Settled(_))
    }

    /// What it waits for, for the caller that made the change. There is nothing to try again.
    pub(super) fn in_words(&self) -> String {
        let names: Vec<&str> = self
            .rest
            .removed
            .iter()
            .map(|it| it.name.as_str())
            .collect();
        let waits_for = match self.stage {
            Stage::Judge => NoAnswer.to_string(),
            Stage::Leave(_) if names.is_empty() => {
                "commands on what sessions no longer see have not ended".to_owned()
            }
            Stage::Leave(_) | Stage::Close(_) | Stage::Settled(_) => format!(
                "commands on lun {} have not ended or its store is not closed",
                names.join(", ")
            ),
        };
        match self.revision {
            Some(revision) => format!(
                "revision {revision} is in force, but {waits_for}; see the log and tarn doctor, there is nothing to \
                 apply again"
            ),
            None => format!("of a change that was not made, {waits_for}"),
        }
    }

    /// A line for each unit that was closed without a good flush.
    fn warnings(&self) -> Vec<String> {
        let Stage::Settled(unflushed) = &self.stage else {
            return Vec::new();
        };
        let is_unflushed = |unit: &&Leaver| unflushed.contains(&unit.index);
        let removed = self.rest.removed.iter().filter(is_unflushed);
        removed
            .map(|unit| {
                format!(
                    "the last flush of lun {} failed, data that was answered as written may be lost; look at the \
                     disk and the kernel log",
                    unit.name
                )
            })
            .collect()
    }
}

/// Changes that are not settled, and what came of those that are.
#[derive(Debug, Default)]
pub(super) struct Settlings {
    under_way: Vec<Settling>,
    /// By revision; the last ones.
    outcomes: VecDeque<(u64, Vec<String>)>,
    /// Rollbacks of which it is not known yet what has come of them.
    pub(super) rollbacks: Vec<Rolling>,
    /// When stores that could not be opened again are tried the next time.
    pub(super) reopen_after: Option<Instant>,
}

/// A rollback of which it is not known what has come of it.
#[derive(Debug)]
pub(super) struct Rolling {
    pub(super) lun: String,
    pub(super) words: String,
    /// `None` while somebody looks.
    pub(super) begun: Option<Begun>,
}

/// A rollback whose exchange was begun.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) lun: String,
    pub(super) index: UnitIndex,
    /// What its calls wait for each other by.
    pub(super) key: PathBuf,
    pub(super) name: SnapshotName,
    pub(super) exchange: Exchange,
    /// The unit serves what is at the path.
    pub(super) is_served: bool,
    pub(super) why: String,
    pub(super) fence: Closed,
}

/// How far a change is.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Progress {
    /// It waits for this.
    Waits(String),
    /// It has taken effect everywhere, and this has to be reported.
    Settled(Vec<String>),
}

impl Settlings {
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// What those wait for that have taken so long already.
    pub(super) fn late(&self, patience: Duration) -> impl Iterator<Item = String> {
        let now = Instant::now();
        let is_late = move |settling: &&Settling| now - settling.since > patience;
        let late = self.under_way.iter().filter(is_late);
        let rollbacks = self.rollbacks.iter().map(|one| one.words.clone());
        let late: Vec<String> = late.map(Settling::in_words).chain(rollbacks).collect();
        late.into_iter()
    }

    /// Shows for each unit why its commands wait for a rollback.
    pub(super) fn show_rollbacks(&self, luns: &mut [view::Lun]) {
        for rolling in &self.rollbacks {
            let own = |lun: &&mut view::Lun| lun.spec.id == rolling.lun;
            if let Some(lun) = luns.iter_mut().find(own) {
                lun.outage.get_or_insert_with(|| rolling.words.clone());
            }
        }
    }

    /// Takes over what a change has left, if anything. Gives how far it is.
    pub(super) fn add(&mut self, settling: Settling) -> Progress {
        if matches!(settling.stage, Stage::Settled(_)) {
            return Progress::Settled(settling.warnings());
        }
        let waits = settling.in_words();
        self.under_way.push(settling);
        Progress::Waits(waits)
    }

    /// Has those that could not judge sessions try it again. To be called while no change is made.
    pub(super) fn judge(&mut self, policy: &ModelPolicy, plane: &Handle) {
        for settling in &mut self.under_way {
            settling.judge(policy, plane);
        }
    }

    /// Carries all of them as far as they get without waiting, and logs those that take
    /// longer than `patience`.
    pub(super) fn advance(&mut self, plane: &Handle, patience: Duration) {
        let now = Instant::now();
        let outcomes = &mut self.outcomes;
        self.under_way.retain_mut(|settling| {
            let is_settled = settling.advance(plane, now);
            if is_settled {
                let warnings = settling.warnings();
                for warning in &warnings {
                    tracing::error!("{warning}");
                }
                if settling.is_told {
                    tracing::info!(revision = settling.revision, "changes are settled");
                }
                outcomes.extend(settling.revision.map(|revision| (revision, warnings)));
                if outcomes.len() > OUTCOMES_MAX {
                    outcomes.pop_front();
                }
            } else if !settling.is_told && now - settling.since > patience {
                settling.is_told = true;
                tracing::error!("{}", settling.in_words());
            }
            !is_settled
        });
    }

    /// Names of removed units whose last flush has failed, of changes whose outcome nobody has asked for. To be called
    /// when the cores have ended.
    pub(super) fn unflushed_at_end(&mut self, plane: &Handle) -> Vec<String> {
        let now = Instant::now();
        let names = |settling: &mut Settling| {
            settling.advance(plane, now);
            let unflushed = match &settling.stage {
                Stage::Judge | Stage::Leave(_) => &[][..],
                Stage::Close(confirmation) => confirmation.unflushed(),
                Stage::Settled(unflushed) => unflushed,
            };
            let removed = settling.rest.removed.iter();
            let failed = removed.filter(|unit| unflushed.contains(&unit.index));
            failed.map(|unit| unit.name.clone()).collect::<Vec<_>>()
        };
        self.under_way.iter_mut().flat_map(names).collect()
    }

    /// How far the change of this revision is. Nothing is known of one that was settled long ago.
    pub(super) fn progress(&mut self, revision: u64) -> Progress {
        let is_it = |settling: &&Settling| settling.revision == Some(revision);
        if let Some(settling) = self.under_way.iter().find(is_it) {
            return Progress::Waits(settling.in_words());
        }
        let at = self.outcomes.iter().position(|(one, _)| *one == revision);
        let outcome = at.and_then(|at| self.outcomes.remove(at));
        Progress::Settled(outcome.map(|(_, warnings)| warnings).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use api::control::Control as _;

    use super::*;
    use crate::serve::living::Living;

    fn leaver(index: u32, name: &str) -> Leaver {
        Leaver {
            index: UnitIndex(index),
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_a_change_waits_for_is_told_with_its_revision_and_that_there_is_nothing_to_do() {
        let mut settling = Settling::new(7, Unsettled::default());
        let stages = [
            (Stage::Judge, Vec::new(), "a core of the data plane"),
            (Stage::Leave(Vec::new()), Vec::new(), "no longer see"),
            (
                Stage::Leave(Vec::new()),
                vec![leaver(3, "disk")],
                "lun disk",
            ),
        ];
        for (stage, removed, word) in stages {
            (settling.stage, settling.rest.removed) = (stage, removed);
            let text = settling.in_words();
            assert!(text.starts_with("revision 7 is in force, but "), "{text}");
            assert!(text.contains(word), "{text}");
            assert!(text.contains("nothing to apply again"), "{text}");
        }
    }

    #[test]
    fn a_unit_that_was_closed_without_a_good_flush_is_named_once() {
        let mut settling = Settling::new(7, Unsettled::default());
        settling.rest.removed = vec![leaver(3, "disk"), leaver(4, "other")];
        settling.stage = Stage::Settled(vec![UnitIndex(3)]);
        let warnings = settling.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("lun disk failed"), "{warnings:?}");
        let mut settlings = Settlings::default();
        assert_eq!(settlings.add(settling), Progress::Settled(warnings.clone()));
        settlings.outcomes.push_back((7, warnings.clone()));
        assert_eq!(settlings.progress(7), Progress::Settled(warnings));
        assert_eq!(settlings.progress(7), Progress::Settled(Vec::new()));
    }

    #[test]
    fn a_change_that_waits_is_found_by_its_revision() {
        let mut settlings = Settlings::default();
        let waits = settlings.add(Settling::new(7, Unsettled::default()));
        assert!(matches!(waits, Progress::Waits(_)));
        assert_eq!(settlings.progress(7), waits);
        assert_eq!(settlings.progress(8), Progress::Settled(Vec::new()));
        assert!(!settlings.is_empty());
    }

    /// A change that is settled, of which this unit was closed without a good flush.
    fn settled(revision: u64, unit: u32) -> Settling {
        let rest = Unsettled {
            removed: vec![leaver(unit, "disk"), leaver(unit + 1, "other")],
            ..Unsettled::default()
        };
        let mut settling = Settling::new(revision, rest);
        settling.stage = Stage::Settled(vec![UnitIndex(unit)]);
        settling
    }

    fn living() -> Living {
        Living::new(
            "[[lun]]\nid = \"a\"\nstore = \"mem:1M\"\n[[lun]]\nid = \"b\"\nstore = \"mem:1M\"\n\
             [server]\nstate = \"{dir}/state\"\ncores = 2\n[admin]\nenabled = false\n\
             [limits]\npool_per_core_bytes = \"16M\"\n",
        )
    }

    #[test]
    fn what_has_come_of_the_last_changes_is_kept_and_what_a_flush_has_lost_is_named_at_the_end() {
        let living = living();
        let plane = &living.daemon.plane;
        let patience = Duration::from_secs(60);
        let mut settlings = Settlings::default();
        let most = u64::try_from(OUTCOMES_MAX).unwrap();
        for revision in 1..=most {
            settlings.under_way.push(settled(revision, 3));
            settlings.advance(plane, patience);
        }
        assert!(settlings.is_empty());
        let warned = |progress| matches!(progress, Progress::Settled(all) if all.len() == 1);
        assert!(warned(settlings.progress(1)));
        for revision in [most + 1, most + 2] {
            settlings.under_way.push(settled(revision, 3));
            settlings.advance(plane, patience);
        }
        assert_eq!(settlings.outcomes.len(), OUTCOMES_MAX);
        assert_eq!(settlings.progress(2), Progress::Settled(Vec::new()));
        assert!(warned(settlings.progress(3)) && warned(settlings.progress(most + 2)));

        let mut unmade = settled(1, 5);
        unmade.revision = None;
        settlings.under_way = vec![
            settled(9, 3),
            unmade,
            Settling::new(10, Unsettled::default()),
        ];
        assert_eq!(settlings.unflushed_at_end(plane), ["disk", "disk"]);
        settlings.outcomes.clear();
        settlings.advance(plane, patience);
        assert_eq!(
            settlings.outcomes.len(),
            1,
            "nobody asks for what was not made"
        );
        assert_eq!(settlings.under_way.len(), 1);
        living.stop();
    }

    #[test]
    fn what_a_change_has_left_is_done_on_all_cores_and_is_late_after_its_time() {
        let living = living();
        let plane = &living.daemon.plane;
        let in_force = living.daemon.in_force();
        let b = in_force.running.units[1].index;
        let rest = Unsettled {
            removed: vec![leaver(b.0, "b")],
            ..Unsettled::default()
        };
        let mut settling = Settling::new(7, rest);
        let until = || Instant::now() + Duration::from_secs(30);
        assert!(!settling.advance(plane, until()), "nobody has judged yet");
        settling.judge(&in_force.running.policy(), plane);
        assert!(matches!(settling.stage, Stage::Leave(_)));
        assert!(settling.advance(plane, until()));
        assert!(matches!(&settling.stage, Stage::Settled(unflushed) if unflushed.is_empty()));
        let mut unseen = Settling::unseen(vec![leaver(b.0, "b")], plane);
        assert!(
            unseen
                .in_words()
                .starts_with("of a change that was not made, commands on lun b")
        );
        assert!(unseen.advance(plane, until()));

        let (past, patience) = (Duration::from_secs(20), Duration::from_secs(10));
        let mut settlings = Settlings::default();
        for (revision, is_told) in [(8, false), (9, true)] {
            let mut settling = Settling::new(revision, Unsettled::default());
            if is_told {
                settling.since -= past;
            }
            settlings.add(settling);
        }
        let words = |lun: &str| format!("why {lun} waits");
        for lun in ["b", "a", "a"] {
            settlings.rollbacks.push(Rolling {
                lun: lun.to_owned(),
                words: words(lun),
                begun: None,
            });
        }
        let late: Vec<_> = settlings.late(patience).collect();
        assert_eq!(late[1..], [words("b"), words("a"), words("a")]);
        assert!(late[0].starts_with("revision 9 "), "{late:?}");
        settlings.advance(plane, patience);
        let told: Vec<_> = settlings.under_way.iter().map(|one| one.is_told).collect();
        assert_eq!(told, [false, true]);
        settlings.judge(&in_force.running.policy(), plane);
        assert!(
            !settlings
                .under_way
                .iter()
                .any(|one| matches!(one.stage, Stage::Judge))
        );

        let mut luns = living.daemon.luns();
        luns[0].outage = Some("another reason".to_owned());
        settlings.show_rollbacks(&mut luns);
        let shown: Vec<_> = luns.into_iter().map(|lun| lun.outage).collect();
        assert_eq!(shown, [Some("another reason".to_owned()), Some(words("b"))]);
        living.stop();
    }
}
