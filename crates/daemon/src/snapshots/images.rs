//! Snapshots of images, which their cluster makes.
//!
//! Every call to the cluster is made on a thread of its own, with a deadline, and in this process, as the library has
//! threads here. What takes long goes on without its caller, who is answered how far it is.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::event::Severity;
use api::problem::{Problem, ProblemKind};
use api::view;
use config::{Image, StoreSpec, Unit};
use store::{
    ClonePlace, Ended, NativeError, NativeSnapshot, NativeSnapshots, Progress, SnapshotName,
};

use super::rollback::end_sessions;
use super::{STEP_MAX, Source, note_in, source as find, wrong_store};
use crate::attempts::Patience;
use crate::calendar::milliseconds;
use crate::daemon::Daemon;
use crate::running::RunningUnit;

/// How long a caller waits for what takes long; the call itself may take a step more.
const LONG_MAX: Duration = Duration::from_secs(10);

/// The unit of an image, if that has snapshots.
pub(super) fn source(unit: &Unit, served: &RunningUnit) -> Result<Source, Problem> {
    let lun = unit.to_string();
    let (Some(image), Some(medium)) = (served.store.native_snapshots(), unit.store.at.medium())
    else {
        let detail = format!(
            "lun {lun:?} has no snapshots: it is a snapshot itself; take those of the image"
        );
        return Err(Problem::new(ProblemKind::Conflict, detail));
    };
    Ok(Source {
        index: served.index,
        path: PathBuf::from(medium.to_string()),
        store: Arc::clone(&served.store),
        // An image has none.
        has_log: false,
        is_short: false,
        image: Some(image),
        lun,
    })
}

impl Source {
    /// The outcome of a call to its cluster.
    pub(super) fn ask_image<T: Send + 'static>(
        &self,
        patience: &Patience<'_>,
        call: impl FnOnce() -> Result<T, NativeError> + Send + 'static,
    ) -> Result<T, Problem> {
        // Not the image itself: who opens that finds it in use, which it is not.
        self.ask_image_for(" snapshots", patience, call)
    }

    fn ask_image_for<T: Send + 'static>(
        &self,
        what: &str,
        patience: &Patience<'_>,
        call: impl FnOnce() -> Result<T, NativeError> + Send + 'static,
    ) -> Result<T, Problem> {
        let mut key = self.path.clone().into_os_string();
        key.push(what);
        let answer = patience.ask_server_in_turn(Path::new(&key), call);
        let outcome = answer.map_err(|unanswered| {
            let detail = format!("lun {:?}: {unanswered}; look at its cluster", self.lun);
            Problem::new(ProblemKind::Unavailable, detail)
        })?;
        outcome.map_err(|error| self.problem_of_image(&error))
    }

    fn problem_of_image(&self, error: &NativeError) -> Problem {
        let kind = match error {
            NativeError::Missing { .. } => ProblemKind::NotFound,
            NativeError::Call { .. } => ProblemKind::Failed,
            NativeError::ReadOnly
            | NativeError::Exists { .. }
            | NativeError::InUse { .. }
            | NativeError::HasClones { .. }
            | NativeError::Protected { .. }
            | NativeError::TooMany
            | NativeError::CloneExists { .. }
            | NativeError::NoClone
            // Another gateway may have it for days, and that hides the snapshots of no other unit.
            | NativeError::Unreached(_)
            | NativeError::Busy { .. } => ProblemKind::Conflict,
        };
        Problem::new(kind, format!("lun {:?}: {error}", self.lun))
    }

    pub(super) fn view_of_image(&self, snapshot: NativeSnapshot) -> view::Snapshot {
        view::Snapshot {
            lun: self.lun.clone(),
            name: snapshot.name.to_string(),
            taken_ms: milliseconds(snapshot.taken),
            size_bytes: snapshot.size_bytes,
            path: snapshot.place,
        }
    }
}

/// Reports the end of what may outlive its request, also where nobody waits for it then.
fn at_end(
    daemon: &Daemon,
    source: &Source,
    (done, done_message): (&'static str, String),
    (failed, failed_message): (&'static str, String),
) -> Ended {
    let (events, lun) = (Arc::clone(&daemon.events), source.lun.clone());
    Box::new(move |outcome| match outcome {
        Ok(()) => note_in(&events, Severity::Info, done, &lun, &done_message),
        Err(error) => {
            let message = format!("{failed_message}: {error}");
            note_in(&events, Severity::Error, failed, &lun, &message);
        }
    })
}

/// Reports rollbacks that have gone on after a restart, and have ended.
pub(crate) fn note_resumed(daemon: &Daemon) {
    let in_force = daemon.in_force();
    let running = &in_force.running;
    for (unit, served) in running.model.units().iter().zip(&running.units) {
        let image = served.store.native_snapshots();
        let Some((name, ended)) = image.and_then(|image| image.take_resumed()) else {
            continue;
        };
        let lun = unit.to_string();
        match ended {
            Ok(()) => {
                let message = format!(
                    "it has the data of snapshot {name} again, after a rollback that a restart had cut"
                );
                note_in(
                    &daemon.events,
                    Severity::Info,
                    "snapshot-restored",
                    &lun,
                    &message,
                );
            }
            Err(error) => {
                let message = format!(
                    "the rollback to snapshot {name}, which a restart interrupted, has failed and is tried again: \
                     {error}"
                );
                note_in(
                    &daemon.events,
                    Severity::Error,
                    "rollback-failed",
                    &lun,
                    &message,
                );
            }
        }
    }
}

/// Has the cluster write the data of a snapshot over that of the image, which is refused to everybody meanwhile. The
/// sessions that have read it end before that.
pub(super) fn roll_back(
    daemon: &Daemon,
    source: &Source,
    image: &Arc<dyn NativeSnapshots>,
    name: &SnapshotName,
) -> Result<(), Problem> {
    let step = || daemon.attempts.begin_step(STEP_MAX);
    let (closing, of) = (Arc::clone(image), name.clone());
    source.ask_image(&step(), move || closing.close_for_rollback(&of))?;
    end_sessions(daemon, source).inspect_err(|_| image.open_again())?;
    let rolling = Arc::clone(image);
    let ended = at_end(
        daemon,
        source,
        (
            "snapshot-restored",
            format!("it has the data of snapshot {name} again"),
        ),
        (
            "rollback-failed",
            format!("the rollback to snapshot {name} has failed"),
        ),
    );
    let patience = daemon.attempts.begin_step(LONG_MAX + STEP_MAX);
    let progress = source
        .ask_image(&patience, move || rolling.roll_back(LONG_MAX, ended))
        .inspect_err(|_| image.open_again())?;
    let lun = &source.lun;
    match progress {
        Progress::Done => Ok(()),
        Progress::UnderWay { percent } => {
            let detail = format!(
                "the rollback of lun {lun:?} to {name} goes on ({percent} % is done): the lun is not ready until it is \
                 over, see tarn lun show {lun}; nothing has to be asked again"
            );
            Err(Problem::new(ProblemKind::Unavailable, detail))
        }
    }
}

/// Where the clone is to be: another image of the same cluster.
fn place_of(spec: &StoreSpec) -> Option<ClonePlace> {
    let image = spec.at.image()?;
    let place = ClonePlace {
        pool: image.pool().to_owned(),
        namespace: image.namespace().to_owned(),
        name: image.name().to_owned(),
    };
    image.snapshot().is_none().then_some(place)
}

/// Makes an image that begins with the data of a snapshot.
pub(super) fn clone(
    daemon: &Daemon,
    source: &Source,
    image: &Arc<dyn NativeSnapshots>,
    name: &SnapshotName,
    (store, spec): (&str, &StoreSpec),
) -> Result<(), Problem> {
    let lun = &source.lun;
    let Some(place) = place_of(spec) else {
        let detail = format!(
            "{store}: a clone of lun {lun:?} is an image of the same cluster; name one, as rbd:POOL/IMAGE"
        );
        return Err(wrong_store(ProblemKind::BadRequest, detail));
    };
    let in_force = daemon.in_force();
    let mut units = in_force.running.model.units().iter();
    let own = units.find(|unit| unit.to_string() == *lun);
    let conf = |image: Option<&Image>| {
        let path = image.and_then(Image::conf);
        path.map(|path| super::absolute(daemon, path))
    };
    if conf(own.and_then(|unit| unit.store.at.image())) != conf(spec.at.image()) {
        let detail = format!(
            "{store}: it is not of the cluster of lun {lun:?}: say the same conf= as that one"
        );
        return Err(wrong_store(ProblemKind::Conflict, detail));
    }
    let (image, name) = (Arc::clone(image), name.clone());
    let step = daemon.attempts.begin_step(STEP_MAX);
    source.ask_image(&step, move || image.clone_to(&name, &place))
}

/// Removes the image of a clone that no unit serves.
pub(super) fn discard(daemon: &Daemon, lun: &str, spec: &StoreSpec) {
    let Ok(source) = find(daemon, lun) else {
        return;
    };
    let (Some(image), Some(place)) = (source.image.clone(), place_of(spec)) else {
        return;
    };
    let step = daemon.attempts.begin_step(STEP_MAX);
    let removed = source.ask_image(&step, move || image.remove_clone(&place));
    if let Err(problem) = removed {
        tracing::warn!(lun, %problem, "the image of a clone that is not served is left over");
    }
}

/// Begins to flatten a clone, or goes on waiting for that.
pub(super) fn flatten(
    daemon: &Daemon,
    source: &Source,
    image: &Arc<dyn NativeSnapshots>,
) -> Result<view::Flattened, Problem> {
    let flattening = Arc::clone(image);
    let patience = daemon.attempts.begin_step(LONG_MAX + STEP_MAX);
    let done = "it has all of its data, and needs no snapshot any more";
    let ended = at_end(
        daemon,
        source,
        ("lun-flattened", done.to_owned()),
        ("flatten-failed", "the flatten has failed".to_owned()),
    );
    // Not in the turn of snapshots, which are taken meanwhile.
    let flatten = move || flattening.flatten(LONG_MAX, ended);
    let progress = source.ask_image_for(" flatten", &patience, flatten)?;
    let percent = match progress {
        Progress::Done => 100,
        Progress::UnderWay { percent } => percent,
    };
    Ok(view::Flattened {
        lun: source.lun.clone(),
        done: progress == Progress::Done,
        percent,
    })
}
