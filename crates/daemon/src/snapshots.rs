//! Snapshots of units: copies of their stores, all of one moment.
//!
//! Of several units the copies are made in three steps ([`store::Snapshots`]). Before the second one the data plane
//! holds the media of all of them, so no command is at work on any; it counts only if all are still held when the
//! last copy is made. What fails in between takes all copies back. Every call to a file system is made on a thread of
//! its own, with a deadline; what comes too late is dropped there, and the copy is removed with it.
//!
//! A unit of an image has its snapshots in the cluster ([`images`]): the same steps, by other calls.

mod images;
mod orders;
mod rollback;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub(super) use images::note_resumed;
pub(super) use rollback::settle as settle_rollbacks;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use api::event::{Event, Severity};
use api::problem::{Problem, ProblemKind};
use api::request::TakeSnapshots;
use api::view;
use config::{StoreKind, StoreSpec, Unit};
use plane::{MediumFailure, NotHeld, UnitIndex};
use store::{
    NativeSnapshots, NewSnapshot, SharedStore, Snapshot, SnapshotError, SnapshotName, Snapshots,
    TakenNative,
};

use super::attempts::{Patience, retry_while_in_use};
use super::daemon::Daemon;
use super::events::Events;
use super::running::RunningUnit;
use super::schedule::Period;
use crate::calendar::{Moment, milliseconds};

/// Units of one moment, at most: each has a thread for its copy.
const UNITS_MAX: usize = 16;

/// How long commands may wait for all copies, the wait for commands at work included.
const HOLD_MAX: Duration = Duration::from_secs(5);

/// A schedule takes no snapshot where less of the file system is free than this part of it: 5 %.
const FREE_PART: u64 = 20;

/// How long the steps before and after that may take. The caller waits for all three.
const STEP_MAX: Duration = Duration::from_secs(10);

/// A unit whose store has snapshots.
#[derive(Debug)]
struct Source {
    lun: String,
    index: UnitIndex,
    path: PathBuf,
    store: Arc<dyn SharedStore>,
    has_log: bool,
    /// Its file was cut while it was served.
    is_short: bool,
    /// Of an image, whose `path` is its name.
    image: Option<Arc<dyn NativeSnapshots>>,
}

/// A snapshot that has been begun.
enum New {
    File(NewSnapshot),
    Image,
}

/// A copy that was made and is not kept yet. Nothing of it is left when it is dropped.
enum Copied {
    File(NewSnapshot),
    Image(TakenNative),
}

impl Source {
    fn of(unit: &Unit, served: &RunningUnit) -> Result<Self, Problem> {
        let lun = unit.to_string();
        if let Some(reason) = &served.opened.held {
            let why = &reason.why;
            let detail = format!("lun {lun:?} has no data to be copied: {why}");
            return Err(Problem::new(ProblemKind::Conflict, detail));
        }
        let elsewhere = match unit.store.at.kind {
            StoreKind::Path | StoreKind::File => None,
            StoreKind::Block => Some("use those of its volume manager (LVM, ZFS)"),
            StoreKind::Memory | StoreKind::Null => Some("put its data into a file"),
            StoreKind::Nbd
            | StoreKind::Nbds
            | StoreKind::NbdUnix
            | StoreKind::Hyperscsi
            | StoreKind::Iscsi => Some("take them where the server has the data"),
            StoreKind::Rbd => return images::source(unit, served),
            StoreKind::Snapshot => Some("take them of the lun that it is a snapshot of"),
            StoreKind::Stripe | StoreKind::Concat => Some("serve one file instead of several"),
            StoreKind::Scsi | StoreKind::Handler => Some("a device has none"),
            StoreKind::Cdrom => Some("copy the file of the disc, which is only read"),
        };
        let refused = |remedy| {
            let detail = format!(
                "lun {lun:?} has no snapshots, because its store is no file and no image: Tarn takes snapshots of \
                 files on XFS and btrfs, and of RBD images; {remedy}"
            );
            Problem::new(ProblemKind::Conflict, detail)
        };
        match (elsewhere, unit.store.at.node()) {
            (None, Some((path, _))) => Ok(Self {
                index: served.index,
                path: path.to_owned(),
                store: Arc::clone(&served.store),
                has_log: unit.log.is_some(),
                is_short: {
                    let media = served.opened.media_now(unit).unwrap_or_default();
                    served.identity.state.has_shrunk(&media)
                },
                image: None,
                lun,
            }),
            (remedy, _) => Err(refused(remedy.unwrap_or("put its data into a file"))),
        }
    }

    /// The outcome of a call to its file system.
    fn ask<T: Send + 'static>(
        &self,
        patience: &Patience<'_>,
        call: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, Problem> {
        let outcome = patience.ask_in_turn(&self.key(), call);
        let outcome = outcome.map_err(|unanswered| {
            let detail = format!("lun {:?}: {unanswered}; look at its file system", self.lun);
            Problem::new(ProblemKind::Unavailable, detail)
        })?;
        outcome.map_err(|error| self.problem(&error))
    }

    /// The same, of a call that uses its snapshots. Where another file is at its path, they are those of that file.
    fn ask_own<T: Send + 'static>(
        &self,
        patience: &Patience<'_>,
        call: impl FnOnce(&Snapshots) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, Problem> {
        let (path, store) = (self.path.clone(), Arc::clone(&self.store));
        self.ask(patience, move || match store.is_at(&path) {
            Ok(true) => call(&Snapshots::of(&path)?),
            Ok(false) | Err(_) => Err(SnapshotError::Replaced),
        })
    }

    /// What calls to its file system wait for each other by. Not the path of the file itself: who looks at that finds
    /// it in use, which it is not.
    fn key(&self) -> PathBuf {
        let mut key = self.path.clone().into_os_string();
        key.push(".snapshots");
        key.into()
    }

    fn take(&self, new: New, name: &SnapshotName, step: &Patience<'_>) -> Result<Copied, Problem> {
        match (new, &self.image) {
            (New::File(new), _) => {
                let (path, store) = (self.path.clone(), Arc::clone(&self.store));
                self.ask(step, move || {
                    new.take()?;
                    // A rollback may have put another file there since the copy was begun.
                    match store.is_at(&path) {
                        Ok(true) => Ok(Copied::File(new)),
                        Ok(false) | Err(_) => Err(SnapshotError::Replaced),
                    }
                })
            }
            (New::Image, Some(image)) => {
                let (image, name) = (Arc::clone(image), name.clone());
                self.ask_image(step, move || {
                    TakenNative::take(image, name).map(Copied::Image)
                })
            }
            (New::Image, None) => Err(self.problem(&SnapshotError::NotAFile)),
        }
    }

    fn keep(&self, copy: Copied, step: &Patience<'_>) -> Result<view::Snapshot, Problem> {
        match copy {
            Copied::File(copy) => self
                .ask(step, move || copy.keep())
                .map(|one| self.view(one.stays())),
            Copied::Image(copy) => {
                let kept = self.ask_image(step, move || copy.keep())?;
                Ok(self.view_of_image(kept))
            }
        }
    }

    fn problem(&self, error: &SnapshotError) -> Problem {
        let detail = format!("lun {:?} ({}): {error}", self.lun, self.path.display());
        let kind = match error {
            SnapshotError::Missing { .. } => ProblemKind::NotFound,
            SnapshotError::System { source, .. } => return Problem::of_write(detail, source),
            SnapshotError::NotAFile
            | SnapshotError::NoReflinks
            | SnapshotError::OtherFileSystem
            | SnapshotError::FileExists { .. }
            | SnapshotError::AmongSnapshots { .. }
            | SnapshotError::Exists { .. }
            | SnapshotError::InUse { .. }
            | SnapshotError::TooMany
            | SnapshotError::Replaced => ProblemKind::Conflict,
        };
        Problem::new(kind, detail)
    }

    fn begin(&self, name: &SnapshotName, patience: &Patience<'_>) -> Result<New, Problem> {
        if self.is_short {
            let detail = format!(
                "lun {:?}: its file was cut, and what was behind its end is lost: a snapshot would have that loss; see \
                 store-short in tarn doctor",
                self.lun
            );
            return Err(Problem::new(ProblemKind::Conflict, detail));
        }
        if let Some(image) = self.image.clone() {
            let name = name.clone();
            let begun = self.ask_image(patience, move || image.begin(&name));
            return begun.map(|()| New::Image);
        }
        let (path, store, name) = (self.path.clone(), Arc::clone(&self.store), name.clone());
        self.ask(patience, move || {
            let new = Snapshots::of(&path)?.begin(&name, |there| store.is_at(there));
            new.map(New::File)
        })
    }

    fn remove(&self, name: &SnapshotName, patience: &Patience<'_>) -> Result<(), Problem> {
        if let Some(image) = self.image.clone() {
            let name = name.clone();
            return self.ask_image(patience, move || image.remove(&name));
        }
        let name = name.clone();
        self.ask_own(patience, move |own| own.remove(&name))
    }

    fn list(&self, patience: &Patience<'_>) -> Result<Vec<view::Snapshot>, Problem> {
        if let Some(image) = self.image.clone() {
            let all = self.ask_image(patience, move || image.list())?;
            let all = all.into_iter().map(|one| self.view_of_image(one));
            return Ok(all.collect());
        }
        let path = self.path.clone();
        let all = self.ask(patience, move || Snapshots::of(&path)?.list())?;
        Ok(all.into_iter().map(|one| self.view(one)).collect())
    }

    fn check_room_of(&self, free_bytes: u64, size_bytes: u64) -> Result<(), Problem> {
        if free_bytes >= size_bytes / FREE_PART {
            return Ok(());
        }
        let (free, percent) = (free_bytes >> 20, 100 / FREE_PART);
        let detail = format!(
            "lun {:?} ({}): {free} MiB are free on its file system, which is less than {percent} %: make room, or \
             remove snapshots (tarn snapshot rm)",
            self.lun,
            self.path.display()
        );
        Err(Problem::new(ProblemKind::StorageFull, detail))
    }

    fn view(&self, snapshot: Snapshot) -> view::Snapshot {
        view::Snapshot {
            lun: self.lun.clone(),
            name: snapshot.name.to_string(),
            taken_ms: milliseconds(snapshot.taken),
            size_bytes: snapshot.size_bytes,
            path: snapshot.path.display().to_string(),
        }
    }
}

/// Takes snapshots of units, all of one moment.
pub(super) fn take(
    daemon: &Daemon,
    wanted: &TakeSnapshots,
    author: &str,
) -> Result<view::SnapshotsTaken, Problem> {
    let name = match &wanted.name {
        Some(name) => parse(name)?,
        None => name_at(SystemTime::now()),
    };
    if Period::of(&name).is_some() {
        let detail = format!(
            "{name} is a name of a schedule, which removes the snapshots that have one: choose another name"
        );
        let mut problem = Problem::new(ProblemKind::BadRequest, detail);
        problem.place = Some("name".to_owned());
        return Err(problem);
    }
    take_named(daemon, (&wanted.luns, &name), author)
}

/// As [`take`], under a name that may be one of a schedule.
pub(super) fn take_named(
    daemon: &Daemon,
    (luns, name): (&[String], &SnapshotName),
    author: &str,
) -> Result<view::SnapshotsTaken, Problem> {
    let sources = sources(daemon, luns)?;
    let permit = orders::begin(&orders::ORDERS, author);
    let _permit = permit.map_err(|detail| Problem::new(ProblemKind::Unavailable, detail))?;
    let step = daemon.attempts.begin_step(STEP_MAX);
    let begun = at_once(sources.iter(), |source| source.begin(name, &step))?;
    let (copies, paused) = copy(daemon, &sources, begun, name)?;
    let step = daemon.attempts.begin_step(STEP_MAX);
    let kept = outcomes_of(sources.iter().zip(copies), |(source, copy)| {
        source.keep(copy, &step)
    });
    let kept = all_or_none(kept, &sources, |source| {
        let step = daemon.attempts.begin_step(STEP_MAX);
        // One that cannot be removed is listed.
        drop(source.remove(name, &step));
    })?;
    let paused_ms = paused.as_secs_f64() * 1e3;
    for source in &sources {
        let message = format!("snapshot {name} is taken; commands waited {paused_ms:.1} ms");
        note(daemon, "snapshot-taken", &source.lun, &message);
    }
    Ok(view::SnapshotsTaken {
        snapshots: kept,
        paused_us: u64::try_from(paused.as_micros()).unwrap_or(u64::MAX),
    })
}

/// Makes all copies while nobody is at work on any of the units. Gives how long commands waited, too.
fn copy(
    daemon: &Daemon,
    sources: &[Source],
    begun: Vec<New>,
    name: &SnapshotName,
) -> Result<(Vec<Copied>, Duration), Problem> {
    let units: Vec<UnitIndex> = sources.iter().map(|source| source.index).collect();
    let since = Instant::now();
    let hold = daemon.plane.hold_media(&units, HOLD_MAX);
    let hold = hold.map_err(|(unit, why)| {
        let source = sources.iter().find(|source| source.index == unit);
        not_held(source.map_or("", |source| &source.lun), &why)
    })?;
    let step = daemon.attempts.begin_step(HOLD_MAX);
    let copies = at_once(sources.iter().zip(begun), |(source, new)| {
        source.take(new, name, &step)
    });
    let all_stood = hold.release();
    let copies = copies?;
    if !all_stood {
        let seconds = HOLD_MAX.as_secs();
        let detail = format!(
            "the copies took longer than {seconds} s, for which commands wait; there is no snapshot. A file in \
             many pieces takes long: put a copy in its place (cp --reflink=never), or try again under less load"
        );
        return Err(Problem::new(ProblemKind::Unavailable, detail));
    }
    Ok((copies, since.elapsed()))
}

/// Takes back those that are kept where one is not.
fn all_or_none<S, R>(
    outcomes: Vec<Result<R, Problem>>,
    sources: &[S],
    take_back: impl Fn(&S),
) -> Result<Vec<R>, Problem> {
    if outcomes.iter().any(Result::is_err) {
        let kept = sources.iter().zip(&outcomes);
        let kept = kept.filter(|(_, outcome)| outcome.is_ok());
        kept.for_each(|(source, _)| take_back(source));
    }
    outcomes.into_iter().collect()
}

/// The same for each, all beside each other. The first error, when all have ended.
fn at_once<T: Send, R: Send>(
    all: impl Iterator<Item = T>,
    call: impl Fn(T) -> Result<R, Problem> + Sync,
) -> Result<Vec<R>, Problem> {
    outcomes_of(all, call).into_iter().collect()
}

fn outcomes_of<T: Send, R: Send>(
    all: impl Iterator<Item = T>,
    call: impl Fn(T) -> Result<R, Problem> + Sync,
) -> Vec<Result<R, Problem>> {
    let call = &call;
    thread::scope(|scope| {
        let begin = |one| {
            let thread = thread::Builder::new().name("snapshot".to_owned());
            thread.spawn_scoped(scope, move || call(one))
        };
        let calls: Vec<_> = all.map(begin).collect();
        let ended = calls.into_iter().map(|call| {
            let not_begun = |error| {
                let detail = format!("no thread could be started: {error}");
                Problem::new(ProblemKind::Unavailable, detail)
            };
            let panicked = |_| Problem::new(ProblemKind::Failed, "a copy panicked; see the log");
            call.map_err(not_begun)?.join().map_err(panicked)?
        });
        ended.collect()
    })
}

/// Refuses to take away what a unit of the configuration is, whether that has it open or not.
fn refuse_configured(daemon: &Daemon, lun: &str, name: &SnapshotName) -> Result<(), Problem> {
    let in_force = daemon.in_force();
    let mut units = in_force.running.model.units().iter();
    let is_of = |unit: &&Unit| {
        let snapshot = unit.store.snapshot();
        snapshot.is_some_and(|it| it.lun == lun && it.name == name.as_str())
    };
    match units.find(is_of) {
        None => Ok(()),
        Some(unit) => {
            let detail = format!(
                "snapshot {name} of lun {lun:?} is in use by lun {unit}: remove that first"
            );
            Err(Problem::new(ProblemKind::Conflict, detail))
        }
    }
}

/// Removes a snapshot.
pub(super) fn remove(daemon: &Daemon, lun: &str, name: &str) -> Result<(), Problem> {
    let source = source(daemon, lun)?;
    let name = parse(name)?;
    refuse_configured(daemon, lun, &name)?;
    source.remove(&name, &daemon.attempts.begin_step(STEP_MAX))?;
    note(
        daemon,
        "snapshot-removed",
        lun,
        &format!("snapshot {name} is removed"),
    );
    Ok(())
}

/// Puts the data of a snapshot back.
pub(super) fn roll_back(
    daemon: &Daemon,
    lun: &str,
    name: &str,
) -> Result<view::RolledBack, Problem> {
    let source = source(daemon, lun)?;
    let name = parse(name)?;
    let unsettled = match source.image.clone() {
        Some(image) => images::roll_back(daemon, &source, &image, &name).map(|()| None)?,
        None => rollback::roll_back(daemon, source, name)?,
    };
    let lun = lun.to_owned();
    Ok(view::RolledBack { lun, unsettled })
}

fn wrong_store(kind: ProblemKind, detail: String) -> Problem {
    let mut problem = Problem::new(kind, detail);
    problem.place = Some("lun.store".to_owned());
    problem
}

/// The store of a clone.
fn parse_clone(store: &str) -> Result<StoreSpec, Problem> {
    let spec = StoreSpec::parse(store);
    spec.map_err(|rule| wrong_store(ProblemKind::BadRequest, rule.to_string()))
}

/// Makes the file or the image that a STORE names, with the data of a snapshot.
pub(super) fn clone(
    daemon: &Daemon,
    (lun, name): (&str, &str),
    store: &str,
) -> Result<(), Problem> {
    let source = source(daemon, lun)?;
    let name = parse(name)?;
    let wrong = wrong_store;
    let spec = parse_clone(store)?;
    if source.image.is_none() && spec.at.kind == StoreKind::Rbd {
        let detail = format!("{store}: lun {lun:?} is a file, and so are its clones; name a file");
        return Err(wrong(ProblemKind::BadRequest, detail));
    }
    check_block_size(&source, &spec)?;
    if let Some(image) = &source.image {
        return images::clone(daemon, &source, image, &name, (store, &spec));
    }
    let (StoreKind::Path | StoreKind::File, Some((path, _))) = (spec.at.kind, spec.at.node())
    else {
        let detail = format!("{store}: a clone is a file beside that of the snapshot; name one");
        return Err(wrong(ProblemKind::BadRequest, detail));
    };
    let to = absolute(daemon, path);
    let step = daemon.attempts.begin_step(STEP_MAX);
    let made = source.ask_own(&step, move |own| own.clone_to(&name, &to));
    made.map(store::Finished::stays)
}

fn check_block_size(source: &Source, spec: &StoreSpec) -> Result<(), Problem> {
    let has = source.store.capabilities().block_bytes;
    let wanted = spec.block_size.bytes();
    if has == wanted {
        return Ok(());
    }
    let detail = format!(
        "lun {:?} has blocks of {has} bytes, and the clone would have {wanted}: say blocksize={has}",
        source.lun
    );
    Err(wrong_store(ProblemKind::Conflict, detail))
}

/// A path as the configuration means it.
fn absolute(daemon: &Daemon, path: &Path) -> PathBuf {
    let file = daemon.file.as_deref().and_then(Path::parent);
    file.map_or_else(|| path.to_owned(), |directory| directory.join(path))
}

/// Removes what was made for a clone that no unit serves.
pub(super) fn discard(daemon: &Daemon, lun: &str, store: &str) {
    let Ok(spec) = parse_clone(store) else {
        return;
    };
    let Some((path, _)) = spec.at.node() else {
        return images::discard(daemon, lun, &spec);
    };
    let path = &absolute(daemon, path);
    let step = daemon.attempts.begin_step(STEP_MAX);
    let remove = || {
        let file = path.clone();
        let removed = step.ask_in_turn(path, move || store::remove_unserved(&file));
        removed.unwrap_or_else(|unanswered| Err(io::Error::other(unanswered.to_string())))
    };
    // The cores may be about to close it.
    let is_in_use = |error: &io::Error| error.kind() == ErrorKind::WouldBlock;
    if let Err(error) = retry_while_in_use(remove, is_in_use) {
        tracing::warn!(path = %path.display(), %error, "the file of a clone that is not served is left over");
    }
}

/// Gives a unit that is a clone all data of its snapshot. Waits for that a while.
pub(super) fn flatten(daemon: &Daemon, lun: &str) -> Result<view::Flattened, Problem> {
    let source = source(daemon, lun)?;
    match &source.image {
        Some(image) => images::flatten(daemon, &source, image),
        None => {
            let detail = format!(
                "lun {lun:?} is a file, which needs no other one: there is nothing to flatten"
            );
            Err(Problem::new(ProblemKind::Conflict, detail))
        }
    }
}

/// The snapshots of a unit, or of all that may have some.
pub(super) fn list(daemon: &Daemon, lun: Option<&str>) -> Result<Vec<view::Snapshot>, Problem> {
    let patience = daemon.attempts.begin_plan();
    if let Some(lun) = lun {
        return source(daemon, lun)?.list(&patience);
    }
    let in_force = daemon.in_force();
    let running = &in_force.running;
    let units = running.model.units().iter().zip(&running.units);
    let mut all = Vec::new();
    for source in units.filter_map(|(unit, served)| Source::of(unit, served).ok()) {
        // One whose file is gone has none, and hides no others.
        match source.list(&patience) {
            Err(problem) if problem.kind != ProblemKind::Unavailable => {
                tracing::debug!(lun = source.lun, %problem, "no snapshots are found");
            }
            found => all.extend(found?),
        }
    }
    Ok(all)
}

/// The names of the snapshots of a unit.
pub(super) fn names(daemon: &Daemon, lun: &str) -> Result<Vec<SnapshotName>, Problem> {
    let all = source(daemon, lun)?.list(&daemon.attempts.begin_step(STEP_MAX))?;
    let names = all.iter().map(|one| SnapshotName::parse(&one.name));
    Ok(names.flatten().collect())
}

/// Refuses where the file system is so full that the unit needs what is left: after a snapshot, each block that it
/// writes again takes space.
pub(super) fn check_room(daemon: &Daemon, lun: &str) -> Result<(), Problem> {
    let source = source(daemon, lun)?;
    if source.image.is_some() {
        // A pool that is full takes no snapshot.
        return Ok(());
    }
    let path = source.path.clone();
    let room = source.ask(&daemon.attempts.begin_step(STEP_MAX), move || {
        Snapshots::of(&path)?.room()
    })?;
    source.check_room_of(room.free_bytes, room.size_bytes)
}

/// A run of a schedule has no snapshot.
pub(super) fn note_missed(daemon: &Daemon, lun: &str, why: &str) {
    note_as(daemon, Severity::Warning, "snapshot-missed", lun, why);
}

fn source(daemon: &Daemon, lun: &str) -> Result<Source, Problem> {
    let in_force = daemon.in_force();
    let (unit, served) = in_force.lun(lun)?;
    Source::of(unit, served)
}

/// The units of a snapshot, each once.
fn sources(daemon: &Daemon, luns: &[String]) -> Result<Vec<Source>, Problem> {
    let wrong = |detail: String| {
        let mut problem = Problem::new(ProblemKind::BadRequest, detail);
        problem.place = Some("luns".to_owned());
        problem
    };
    if luns.is_empty() || luns.len() > UNITS_MAX {
        let many = luns.len();
        return Err(wrong(format!(
            "it names {many} luns, and 1 to {UNITS_MAX} are possible"
        )));
    }
    let twice = luns
        .iter()
        .enumerate()
        .find(|(at, lun)| luns.iter().take(*at).any(|one| one == *lun));
    if let Some((_, lun)) = twice {
        return Err(wrong(format!("it names lun {lun:?} twice")));
    }
    let sources = luns.iter().map(|lun| source(daemon, lun));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    match sources
        .iter()
        .find(|source| source.store.is_flush_latched())
    {
        None => Ok(sources),
        Some(source) => {
            let detail = format!(
                "a flush of lun {:?} failed, so that data of it may be lost; there is no snapshot: look at its store \
                 (tarn doctor)",
                source.lun
            );
            Err(Problem::new(ProblemKind::Conflict, detail))
        }
    }
}

fn parse(name: &str) -> Result<SnapshotName, Problem> {
    SnapshotName::parse(name).ok_or_else(|| {
        let detail = format!(
            "{name:?} is no name of a snapshot: use letters, digits, '.', '_' and '-', first a letter or digit, 64 at \
             most"
        );
        let mut problem = Problem::new(ProblemKind::BadRequest, detail);
        problem.place = Some("name".to_owned());
        problem
    })
}

/// The name of one that gets none: `2026-11-24T02-30-00Z`.
fn name_at(time: SystemTime) -> SnapshotName {
    let Moment { date, time } = Moment::at(time);
    let ((year, month, day), (hour, minute, second)) = (date, time);
    let text = format!("{year}-{month:02}-{day:02}T{hour:02}-{minute:02}-{second:02}Z");
    #[expect(clippy::expect_used, reason = "digits, a letter and dashes")]
    SnapshotName::parse(&text).expect("a date is a name")
}

fn not_held(lun: &str, why: &NotHeld) -> Problem {
    let seconds = HOLD_MAX.as_secs();
    let (kind, detail) = match why {
        NotHeld::Refused(MediumFailure::Gone) => (
            ProblemKind::Conflict,
            format!("lun {lun:?} is being removed"),
        ),
        NotHeld::Refused(
            MediumFailure::Busy
            | MediumFailure::Prevented
            | MediumFailure::Unflushed(_)
            | MediumFailure::Fixed,
        ) => {
            let detail = format!(
                "commands at work on lun {lun:?} did not end within {seconds} s, or its medium is being moved; \
                 nothing was done: look at its store, or try again"
            );
            (ProblemKind::Conflict, detail)
        }
        NotHeld::NoAnswer => {
            let detail = format!(
                "commands at work on lun {lun:?} did not end within {seconds} s, or its core does not answer; nothing \
                 was done: look at its store, or try again"
            );
            (ProblemKind::Unavailable, detail)
        }
    };
    Problem::new(kind, detail)
}

fn note(daemon: &Daemon, kind: &str, lun: &str, message: &str) {
    note_as(daemon, Severity::Info, kind, lun, message);
}

fn note_as(daemon: &Daemon, severity: Severity, kind: &str, lun: &str, message: &str) {
    note_in(&daemon.events, severity, kind, lun, message);
}

fn note_in(events: &Events, severity: Severity, kind: &str, lun: &str, message: &str) {
    match severity {
        Severity::Info => tracing::info!(lun, "{message}"),
        Severity::Warning | Severity::Error => tracing::warn!(lun, "{message}"),
    }
    events.note(Event {
        number: 0,
        at_ms: 0,
        severity,
        kind: kind.to_owned(),
        message: format!("lun {lun}: {message}"),
        lun: Some(lun.to_owned()),
        target: None,
        initiator: None,
        user: None,
        author: None,
        command: None,
    });
}
