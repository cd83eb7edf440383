//! Logs that an administrator decides about, and those that are closed at the end.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use api::problem::{Problem, ProblemKind};
use store::{Known, LogHead, Use};

use super::attempts::{on_thread, retry_while_in_use};
use super::daemon::Daemon;
use super::held::{Acceptance, Cause, Withheld};
use super::log_device::{binding_of, device_options, medium_of, name_of};
use super::open::is_in_use;
use super::opened::LogUse;
use crate::state::{LogNote, UnitIdentity};

/// What an administrator decides about a log that a unit waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// The store gets what it has.
    Replay,
    /// The unit does without what it has.
    Discard,
}

/// How long the end waits for logs to be closed. The next start replays those that were not.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Closes the logs of all units, when no core has them any more.
pub(crate) fn close_logs(daemon: &Daemon) {
    let in_force = daemon.in_force();
    let (over, ended) = channel::<()>();
    for unit in &in_force.running.units {
        if let LogUse::InUse(logged) = &unit.opened.log {
            let (logged, over) = (Arc::clone(logged), over.clone());
            drop(
                thread::Builder::new()
                    .name("close-log".to_owned())
                    .spawn(move || {
                        logged.close();
                        drop(over);
                    }),
            );
        }
    }
    drop(over);
    // Nobody sends: it ends when all are closed.
    let _timed_out = ended.recv_timeout(CLOSE_PATIENCE);
}

/// Serves a unit that is held, with what its log has or without that.
///
/// # Errors
///
/// There is no such unit, it is not held for that, or it cannot be opened.
pub(super) fn decide(daemon: &Daemon, lun: &str, verdict: Verdict) -> Result<(), Problem> {
    let in_force = daemon.in_force();
    let (unit, served) = in_force.lun(lun)?;
    let done = match verdict {
        Verdict::Replay => "replayed",
        Verdict::Discard => "discarded",
    };
    let is_possible = |reason: &Withheld| match (verdict, reason.cause) {
        (Verdict::Replay, Cause::Log { may_replay, .. }) => may_replay,
        (Verdict::Discard, Cause::Log { may_discard, .. }) => may_discard,
        (_, Cause::Medium | Cause::Store | Cause::Frames) => false,
    };
    let refusal = match &served.opened.held {
        Some(reason) if is_possible(reason) => None,
        Some(reason) => Some(format!(
            "lun {lun:?} has no log that could be {done}: {}",
            reason.why
        )),
        None => Some(format!(
            "lun {lun:?} does not wait for a log; nothing can be {done}"
        )),
    };
    if let Some(detail) = refusal {
        return Err(Problem::new(ProblemKind::Conflict, detail));
    }
    note_verdict(daemon, unit, &served.identity, verdict)?;
    tracing::warn!(
        lun,
        ?verdict,
        "an administrator has decided about what the log has"
    );
    let acceptance = match verdict {
        // The store is that of the log: the administrator says so.
        Verdict::Replay => Acceptance::AnythingForLog,
        Verdict::Discard => Acceptance::AsServed,
    };
    daemon.reopen(lun, served.index, acceptance)?;
    let in_force = daemon.in_force();
    let now = in_force.running.unit_named(lun);
    match now.and_then(|served| served.opened.held.as_ref()) {
        Some(reason) => {
            let detail = format!("lun {lun:?} is still not ready: {}", reason.why);
            Err(Problem::new(ProblemKind::Conflict, detail))
        }
        None => Ok(()),
    }
}

const NO_LOG: store::Binding = store::Binding {
    id: [0; 16],
    generation: 0,
};

/// What the head of the log says that the configuration names, if that is a log.
fn head_of(daemon: &Daemon, unit: &config::Unit) -> Result<Option<LogHead>, Problem> {
    let Some(log) = &unit.log else {
        return Ok(None);
    };
    let mut options = device_options(log);
    options.size_bytes = None;
    let patience = daemon.attempts.begin_plan();
    let read = on_thread((&log.store, &log.place), &patience, move |_, _| {
        let device = retry_while_in_use(|| options.open(), is_in_use)?;
        store::read_log_head(&*device).map_err(anyhow::Error::from)
    });
    let cannot = |why: String| {
        let detail = format!("the log of lun \"{unit}\" cannot be read: {why}");
        Problem::new(ProblemKind::Unavailable, detail)
    };
    read.map_err(|error| cannot(crate::error::chain(&error)))?
        .map_err(|error| cannot(format!("{error:#}")))
}

/// Saves how the unit stands by that to the log that is there now.
///
/// # Errors
///
/// There is nothing to replay, or it may not be saved.
fn note_verdict(
    daemon: &Daemon,
    unit: &config::Unit,
    identity: &UnitIdentity,
    verdict: Verdict,
) -> Result<(), Problem> {
    let head = head_of(daemon, unit);
    let is_own = |head: &LogHead| head.unit == name_of(identity);
    let (log, how) = match verdict {
        Verdict::Replay => {
            let found = head?.filter(|head| is_own(head) && head.has_records);
            let Some(head) = found else {
                let detail = format!("the log of lun \"{unit}\" has no changes any more");
                return Err(Problem::new(ProblemKind::Conflict, detail));
            };
            (binding_of(&head), Use::Serving)
        }
        Verdict::Discard => {
            // A log that is gone, and a note that is damaged, are done without, too.
            let found = head.ok().flatten().filter(is_own);
            let noted = identity.state.log_note().ok().flatten();
            let noted = noted.map_or(NO_LOG, |note| note.known.log);
            (found.as_ref().map_or(noted, binding_of), Use::Discarded)
        }
    };
    let note = LogNote {
        known: Known { log, how },
        store: medium_of(&unit.store),
    };
    identity.state.note_log(&note).map_err(|error| {
        let detail =
            format!("what becomes of the log of lun \"{unit}\" could not be saved: {error}");
        Problem::new(ProblemKind::Failed, detail)
    })
}
