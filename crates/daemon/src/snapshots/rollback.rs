//! Rollbacks of files: a copy of the snapshot takes the place of the file, and the unit starts again with that.
//!
//! There is no moment at which a crash leaves something else than the one or the other. From before the exchange until
//! the unit serves what is at the path, nobody works on its medium: the exchange may be carried out long after its
//! caller has gone, and what was written to the file of before would be lost. So where the file system does not answer,
//! the fence stays, the caller learns that nothing is known yet, and the daemon finds out later what has come of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::event::Severity;
use api::problem::{Problem, ProblemKind};
use plane::{SessionReport, UnitIndex};
use reactor::process::{exchange, keeping};
use store::{SnapshotName, Snapshots, Standing};

use super::{HOLD_MAX, STEP_MAX, Source, not_held, note, note_as};
use crate::attempts::{Patience, pause};
use crate::daemon::Daemon;
use crate::held::Acceptance;
use crate::settling::{Begun, Rolling};

/// For the unit of before to be closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Between two looks for sessions that see a unit which was replaced.
const PAUSE: Duration = Duration::from_millis(5);

/// How far a rollback is.
enum Step {
    /// The unit has the data of the snapshot.
    Done,
    /// The unit has the data of before.
    Undone,
    /// The data of the snapshot is at the path, and cannot be served.
    Unserved(Problem),
    /// It cannot be known yet.
    Unknown(String),
}

impl Begun {
    /// What is not known, for an administrator.
    fn in_words(&self) -> String {
        let (lun, name, why) = (&self.lun, &self.name, &self.why);
        format!(
            "it is not known yet whether lun {lun} has the data of snapshot {name} or that of before, and its commands \
             wait until it is: {why}; see tarn lun show {lun}, there is nothing to ask again"
        )
    }

    /// Finds out which file is at the path, and has the unit serve that one.
    fn advance(&mut self, daemon: &Daemon, patience: &Patience<'_>) -> Step {
        if !self.is_served {
            let exchange = self.exchange.clone();
            // A call of this rollback that has not come back is still under way by then.
            match patience.ask(&self.key, move || exchange.stands()) {
                Ok(Ok(Standing::Exchanged)) => {}
                Ok(Ok(Standing::Before)) => return Step::Undone,
                Ok(Err(error)) => return Step::Unknown(error.to_string()),
                Err(unanswered) => return Step::Unknown(unanswered.to_string()),
            }
            let in_force = daemon.in_force();
            // A unit that was removed has nothing to serve.
            if in_force.running.unit_position(self.index).is_some()
                && let Err(problem) = daemon.reopen(&self.lun, self.index, Acceptance::Anything)
            {
                return Step::Unserved(problem);
            }
            self.is_served = true;
        }
        match self.is_seen(daemon, patience) {
            false => Step::Done,
            true => Step::Unknown("sessions still see the file of before".to_owned()),
        }
    }

    /// Whether a session has the unit with the file of before. Without the fence, it would write that.
    fn is_seen(&self, daemon: &Daemon, patience: &Patience<'_>) -> bool {
        loop {
            let sessions = daemon.plane.sessions();
            let is_seen = sessions.map_or(true, |all| all.iter().any(|one| sees(one, self.index)));
            if !is_seen || patience.is_over() {
                return is_seen;
            }
            pause(PAUSE);
        }
    }

    /// Commands go on. What is left is the file of before.
    fn end(self, daemon: &Daemon) {
        drop(self.fence);
        // The unit of before is closed now, and its file with it, by another process.
        let until = Instant::now() + CLOSE_MAX;
        let left = loop {
            daemon.settle_rest();
            let (exchange, step) = (self.exchange.clone(), daemon.attempts.begin_step(STEP_MAX));
            let why = match step.ask_in_turn(&self.key, move || exchange.finish()) {
                Ok(Ok(())) => break None,
                Ok(Err(error)) => error.to_string(),
                Err(unanswered) => unanswered.to_string(),
            };
            if Instant::now() >= until {
                break Some(why);
            }
            pause(PAUSE);
        };
        let (lun, name) = (&self.lun, &self.name);
        if let Some(why) = left {
            tracing::warn!(lun, why, "the file of before the rollback is left over");
        }
        let message = format!("it has the data of snapshot {name} again");
        note(daemon, "snapshot-restored", lun, &message);
    }
}

/// Puts a copy of a snapshot in the place of the file. Gives what is not known yet.
pub(super) fn roll_back(
    daemon: &Daemon,
    source: Source,
    name: SnapshotName,
) -> Result<Option<String>, Problem> {
    let lun = source.lun.clone();
    if source.has_log {
        let detail = format!(
            "lun {lun:?} has a log device, which would write later data over that of the snapshot: remove the lun, add \
             it without log, and roll it back then"
        );
        return Err(Problem::new(ProblemKind::Conflict, detail));
    }
    let step = || daemon.attempts.begin_step(STEP_MAX);
    let (path, store, of) = (source.path.clone(), Arc::clone(&source.store), name.clone());
    let new = source.ask(&step(), move || {
        Snapshots::of(&path)?.begin_rollback(&of, |there| store.is_at(there))
    })?;
    end_sessions(daemon, &source)?;
    let fence = daemon.plane.close_medium(source.index, HOLD_MAX);
    let mut begun = Begun {
        fence: fence.map_err(|why| not_held(&lun, &why))?,
        exchange: new.plan().clone(),
        is_served: false,
        why: String::new(),
        lun: lun.clone(),
        index: source.index,
        key: source.key(),
        name,
    };
    let before = Arc::clone(&source.store);
    let exchanged = source.ask(&step(), move || match before.descriptor() {
        Some(file) => keeping(&file, || new.exchange(exchange)),
        None => new.exchange(exchange),
    });
    // It keeps the file of before open.
    drop(source);
    let mut stands = begun.advance(daemon, &step());
    if let Step::Unserved(problem) = stands {
        let begun_exchange = begun.exchange.clone();
        // What came of it is found below.
        drop(step().ask_in_turn(&begun.key, move || begun_exchange.back(exchange)));
        stands = match begun.advance(daemon, &step()) {
            Step::Undone => return Err(problem),
            found @ (Step::Done | Step::Unserved(_) | Step::Unknown(_)) => found,
        };
    }
    match stands {
        Step::Done => begun.end(daemon),
        Step::Undone => {
            // At its name is the copy. One that cannot be removed goes with the next snapshot.
            let exchange = begun.exchange.clone();
            drop(step().ask_in_turn(&begun.key, move || exchange.finish()));
            let unsaid = || Problem::new(ProblemKind::Failed, format!("lun {lun:?} is as before"));
            return Err(exchanged.err().unwrap_or_else(unsaid));
        }
        Step::Unserved(Problem { detail: why, .. }) | Step::Unknown(why) => {
            begun.why = why;
            let words = begun.in_words();
            tracing::warn!(lun, "{words}");
            daemon.settlings().rollbacks.push(Rolling {
                lun,
                words: words.clone(),
                begun: Some(begun),
            });
            return Ok(Some(words));
        }
    }
    Ok(None)
}

/// Goes on with rollbacks of which it was not known what had come of them. To be called now and then.
pub(crate) fn settle(daemon: &Daemon) {
    let taken = |one: &mut Rolling| one.begun.take();
    let all: Vec<_> = {
        let mut settlings = daemon.settlings();
        settlings.rollbacks.iter_mut().filter_map(taken).collect()
    };
    for mut begun in all {
        let lun = begun.lun.clone();
        let stands = begun.advance(daemon, &daemon.attempts.begin_look());
        if let Step::Unserved(Problem { detail: why, .. }) | Step::Unknown(why) = stands {
            begun.why = why;
            let mut settlings = daemon.settlings();
            let mut all = settlings.rollbacks.iter_mut();
            if let Some(one) = all.find(|one| one.begun.is_none() && one.lun == lun) {
                one.words = begun.in_words();
                one.begun = Some(begun);
            }
            continue;
        }
        match stands {
            Step::Done => begun.end(daemon),
            Step::Undone | Step::Unserved(_) | Step::Unknown(_) => {
                let message = format!("it was not rolled back to {}: {}", begun.name, begun.why);
                drop(begun);
                note_as(daemon, Severity::Error, "rollback-failed", &lun, &message);
            }
        }
        let is_over = |one: &Rolling| one.begun.is_none() && one.lun == lun;
        daemon.settlings().rollbacks.retain(|one| !is_over(one));
    }
}

fn sees(session: &SessionReport, unit: UnitIndex) -> bool {
    session.luns.iter().any(|lun| lun.unit == unit)
}

/// Ends the sessions that see a unit: what they have read is not what they will find.
pub(super) fn end_sessions(daemon: &Daemon, source: &Source) -> Result<(), Problem> {
    let sessions = daemon.sessions_now()?;
    let seeing = sessions
        .iter()
        .filter(|session| sees(session, source.index));
    let seeing: Vec<_> = seeing.map(|session| (session.core, session.id)).collect();
    let reason = "a lun of it is rolled back to a snapshot";
    let mut ended = daemon.plane.change_sessions(Vec::new(), &seeing, reason);
    if ended.wait_until(Instant::now() + STEP_MAX) {
        return Ok(());
    }
    let (lun, seconds) = (&source.lun, STEP_MAX.as_secs());
    let detail = format!(
        "sessions that see lun {lun:?} have not ended within {seconds} s, and nothing was rolled back: look at its \
         store, or try again"
    );
    Err(Problem::new(ProblemKind::Unavailable, detail))
}
