//! Snapshots of an image: the cluster makes them, over the connection that serves the image.
//!
//! The calls here block for as long as the cluster hangs, so threads of the administration make them, and each is
//! counted as one that keeps the image open. A rollback writes over the image, object after object: so requests are
//! refused meanwhile, and the metadata of the image says which one was begun. Who opens the image after a crash ends it
//! first.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rbd::{CallError, Image, words};
use store::{
    ClonePlace, Ended, NativeError, NativeSnapshot, NativeSnapshots, Progress, SNAPSHOTS_MAX,
    SnapshotName,
};

use super::errno::{
    BUSY, CANCELED, DENIED, EXISTS, INVALID, NOT_FOUND, NOT_PERMITTED, QUOTA, READ_ONLY,
};
use super::job::Job;
use super::options::Claim;
use super::shared::{Common, Named, Standing};
use super::texts::ROLLBACK;
use crate::attendants::Counted;

/// How long the first attempt to open the image is waited for.
const OPENING_MAX: Duration = Duration::from_secs(3);
/// What the name of a snapshot that is being taken ends with; it begins with a dot.
const UNFINISHED: &str = ".new";
/// Clones that an error names.
const CLONES_NAMED: usize = 4;
/// A clone that is removed may have been looked at just now.
const CLOSING_MAX: u32 = 40;
const CLOSING_PAUSE: Duration = Duration::from_millis(100);

/// Those of one image.
#[derive(Debug)]
pub(super) struct ImageSnapshots {
    pub(super) common: Arc<Common>,
}

fn unfinished(name: &SnapshotName) -> String {
    format!(".{name}{UNFINISHED}")
}

fn is_unfinished(name: &str) -> bool {
    let name = name.strip_prefix('.');
    let name = name.and_then(|name| name.strip_suffix(UNFINISHED));
    name.and_then(SnapshotName::parse).is_some()
}

fn rollback_of(common: &Common) -> &Job {
    &common.rollback
}

fn flatten_of(common: &Common) -> &Job {
    &common.flatten
}

/// What an error of the library means that has no meaning of its own.
fn failed(action: &'static str, error: CallError) -> NativeError {
    let said = words(error.errno);
    let reason = match error.errno {
        NOT_PERMITTED | DENIED => {
            format!("{said}; give the user the capabilities \"profile rbd\" for this pool")
        }
        _ => format!(
            "{}: {said}; see the state of the cluster (ceph status)",
            error.call
        ),
    };
    NativeError::Call { action, reason }
}

impl ImageSnapshots {
    /// The image, and what keeps the process from ending as if nobody had it.
    fn image(&self) -> Result<(Arc<Image>, Counted), NativeError> {
        let counted = Counted::new();
        // It may have been added just now.
        match self.common.standing_when_tried(OPENING_MAX) {
            Standing::Up(image) => Ok((image, counted)),
            Standing::Opening | Standing::Gone => {
                let why = self.common.outage().unwrap_or_default();
                Err(NativeError::Unreached(why))
            }
        }
    }

    /// The same, to change something.
    fn image_to_change(&self) -> Result<(Arc<Image>, Counted), NativeError> {
        if self.common.options.is_read_only() {
            return Err(NativeError::ReadOnly);
        }
        if self.common.is_closed() {
            return Err(NativeError::Busy { what: "a rollback" });
        }
        self.image_at_its_name()
    }

    /// The image, if its name leads to it: users of a snapshot or a clone find it by that name.
    fn image_at_its_name(&self) -> Result<(Arc<Image>, Counted), NativeError> {
        let action = "find the image by its name";
        let (image, counted) = self.image()?;
        let found = image.id_named(&self.common.options.image);
        let found = found.map_err(|error| failed(action, error))?;
        match self.common.note_named(Ok(found)) {
            Named::Own => Ok((image, counted)),
            named @ (Named::Other(_) | Named::Nothing | Named::NoPool) => Err(NativeError::Call {
                action,
                reason: named.in_words(image.id()),
            }),
        }
    }

    fn taking(&self) -> MutexGuard<'_, BTreeSet<String>> {
        let taking = self.common.taking.lock();
        taking.unwrap_or_else(PoisonError::into_inner)
    }

    fn named(&self, found: rbd::ImageSnapshot) -> Option<NativeSnapshot> {
        let name = SnapshotName::parse(&found.name)?;
        Some(NativeSnapshot {
            place: format!("rbd:{}@{name}", self.common.options),
            name,
            taken: found.taken,
            size_bytes: found.size_bytes,
        })
    }

    fn find(&self, image: &Image, name: &SnapshotName) -> Result<NativeSnapshot, NativeError> {
        let all = image.snapshots();
        let all = all.map_err(|error| failed("list the snapshots", error))?;
        let found = all.into_iter().find(|one| one.name == name.as_str());
        let missing = || NativeError::Missing { name: name.clone() };
        found.and_then(|one| self.named(one)).ok_or_else(missing)
    }

    /// Has something done on a thread of its own that takes long. One that is under way goes on. Where an
    /// outcome is kept that nobody has been given, it is the one of this call.
    fn begin_job(
        &self,
        image: Arc<Image>,
        counted: Counted,
        (job, name, drops_outcome): (fn(&Common) -> &Job, &str, bool),
        ended: Ended,
        run: impl FnOnce(&Common, &Image) -> Result<(), NativeError> + Send + 'static,
    ) {
        if !job(&self.common).begin(drops_outcome) {
            return;
        }
        let common = Arc::clone(&self.common);
        let what = name.to_owned();
        let run = move || {
            let outcome = run(&common, &image);
            let name = &common.options;
            match &outcome {
                Ok(()) => tracing::info!(image = %name, "{what} has ended"),
                Err(error) => tracing::warn!(image = %name, %error, "{what} has not ended well"),
            }
            if !job(&common).is_given_up() {
                ended(&outcome);
            }
            job(&common).end(outcome);
            drop((image, counted));
        };
        let thread = thread::Builder::new().name("tarn-rbd".to_owned());
        if let Err(error) = thread.spawn(run) {
            job(&self.common).end(Err(NativeError::Call {
                action: "start a thread for it",
                reason: error.to_string(),
            }));
        }
    }
}

impl NativeSnapshots for ImageSnapshots {
    fn list(&self) -> Result<Vec<NativeSnapshot>, NativeError> {
        let (image, _counted) = self.image()?;
        let all = image.snapshots();
        let all = all.map_err(|error| failed("list the snapshots", error))?;
        let mut all: Vec<_> = all.into_iter().filter_map(|one| self.named(one)).collect();
        all.sort_by(|one, other| (one.taken, &one.name).cmp(&(other.taken, &other.name)));
        Ok(all)
    }

    fn begin(&self, name: &SnapshotName) -> Result<(), NativeError> {
        let (image, _counted) = self.image_to_change()?;
        let all = image.snapshots();
        let all = all.map_err(|error| failed("list the snapshots", error))?;
        if all.iter().any(|one| one.name == name.as_str()) {
            return Err(NativeError::Exists { name: name.clone() });
        }
        if all.len() >= SNAPSHOTS_MAX {
            return Err(NativeError::TooMany);
        }
        for left in all.iter().filter(|one| is_unfinished(&one.name)) {
            let is_left = !self.taking().contains(&left.name);
            if is_left && let Err(error) = image.remove_snapshot(&left.name) {
                return Err(failed("remove a snapshot that a crash has left", error));
            }
        }
        Ok(())
    }

    fn take(&self, name: &SnapshotName) -> Result<(), NativeError> {
        let (image, _counted) = self.image_to_change()?;
        let place = unfinished(name);
        let exists = || NativeError::Exists { name: name.clone() };
        if !self.taking().insert(place.clone()) {
            return Err(exists());
        }
        let taken = image.take_snapshot(&place);
        taken.map_err(|error| match error.errno {
            EXISTS => exists(),
            QUOTA => NativeError::TooMany,
            READ_ONLY => NativeError::ReadOnly,
            _ => failed("take the snapshot", error),
        })
    }

    fn keep(&self, name: &SnapshotName) -> Result<NativeSnapshot, NativeError> {
        let (image, _counted) = self.image_to_change()?;
        let place = unfinished(name);
        let named = image.rename_snapshot(&place, name.as_str());
        named.map_err(|error| match error.errno {
            EXISTS => NativeError::Exists { name: name.clone() },
            _ => failed("name the snapshot", error),
        })?;
        self.taking().remove(&place);
        self.find(&image, name)
    }

    fn discard(&self, name: &SnapshotName) {
        let place = unfinished(name);
        // One that cannot be removed is found by its name.
        if let Ok((image, _counted)) = self.image() {
            let _left = image.remove_snapshot(&place);
        }
        self.taking().remove(&place);
    }

    fn remove(&self, name: &SnapshotName) -> Result<(), NativeError> {
        let (image, _counted) = self.image_to_change()?;
        let action = "remove the snapshot";
        let error = |error: CallError| match error.errno {
            NOT_FOUND => NativeError::Missing { name: name.clone() },
            BUSY => NativeError::Protected { name: name.clone() },
            _ => failed(action, error),
        };
        // No unit of this process has it, and none gets it meanwhile.
        let medium = format!("{}@{name}", self.common.found.medium);
        let claimed = Claim::new(medium);
        let _claim = claimed.map_err(|_| NativeError::InUse { name: name.clone() })?;
        let mut clones = image.clones(name.as_str()).map_err(error)?;
        if !clones.is_empty() {
            clones.truncate(CLONES_NAMED);
            return Err(NativeError::HasClones {
                name: name.clone(),
                clones,
            });
        }
        if image.is_snapshot_protected(name.as_str()).map_err(error)? {
            return Err(NativeError::Protected { name: name.clone() });
        }
        image.remove_snapshot(name.as_str()).map_err(error)
    }

    fn close_for_rollback(&self, name: &SnapshotName) -> Result<(), NativeError> {
        if self.common.options.is_read_only() {
            return Err(NativeError::ReadOnly);
        }
        if self.common.rollback.is_under_way() {
            return Err(NativeError::Busy { what: "a rollback" });
        }
        if self.common.flatten.is_under_way() {
            return Err(NativeError::Busy { what: "a flatten" });
        }
        let (image, _counted) = self.image_at_its_name()?;
        self.find(&image, name)?;
        self.common.close_for(Some(name.to_string()));
        Ok(())
    }

    fn open_again(&self) {
        let is_mixed = self.common.is_mixed.load(Ordering::SeqCst);
        if !is_mixed && !self.common.rollback.is_under_way() {
            self.common.close_for(None);
        }
    }

    fn roll_back(&self, limit: Duration, ended: Ended) -> Result<Progress, NativeError> {
        let (image, counted) = self.image()?;
        let (Some(name), Some(_)) = (self.common.closed_for(), &self.common.found.texts) else {
            return self.common.rollback.wait(limit);
        };
        let run = move |common: &Common, image: &Image| {
            let restored = restore(common, image, &name);
            if restored.is_ok() {
                common.close_for(None);
            }
            restored
        };
        self.begin_job(
            image,
            counted,
            (rollback_of, "a rollback", true),
            ended,
            run,
        );
        self.common.rollback.wait(limit)
    }

    fn take_resumed(&self) -> Option<(String, Result<(), NativeError>)> {
        self.common.resumed().outcome.take()
    }

    fn clone_to(&self, name: &SnapshotName, place: &ClonePlace) -> Result<(), NativeError> {
        if self.common.is_closed() {
            return Err(NativeError::Busy { what: "a rollback" });
        }
        let (image, _counted) = self.image_at_its_name()?;
        self.find(&image, name)?;
        let action = "make the clone";
        let pool = image.other_pool(&place.pool, &place.namespace);
        let pool = pool.map_err(|error| match error.errno {
            NOT_FOUND => NativeError::Call {
                action,
                reason: format!(
                    "there is no pool {:?}; create it, or name another one",
                    place.pool
                ),
            },
            _ => failed(action, error),
        })?;
        let cloned = image.clone_to(
            (&self.common.options.image, name.as_str()),
            &pool,
            &place.name,
        );
        cloned.map_err(|error| match error.errno {
            EXISTS => NativeError::CloneExists {
                place: format!("an image {} in pool {}", place.name, place.pool),
            },
            NOT_FOUND => NativeError::Missing { name: name.clone() },
            _ => failed(action, error),
        })
    }

    fn remove_clone(&self, place: &ClonePlace) -> Result<(), NativeError> {
        let (image, _counted) = self.image()?;
        let action = "remove the clone";
        let pool = image.other_pool(&place.pool, &place.namespace);
        let pool = pool.map_err(|error| failed(action, error))?;
        let mut tries = 0;
        loop {
            match pool.remove_image(&place.name) {
                Err(error) if error.errno == BUSY && tries < CLOSING_MAX => {
                    tries += 1;
                    thread::park_timeout(CLOSING_PAUSE);
                }
                removed => return removed.map_err(|error| failed(action, error)),
            }
        }
    }

    fn flatten(&self, limit: Duration, ended: Ended) -> Result<Progress, NativeError> {
        let (image, counted) = self.image_to_change()?;
        let run = |common: &Common, image: &Image| {
            // Who asks again when it is done finds no clone.
            let was_done = common.flatten.has_done_before();
            let flat = image.flatten(&|done, all| common.flatten.note(done, all));
            let is_flat = |error: &CallError| was_done && error.errno == INVALID;
            if flat.as_ref().is_err_and(is_flat) {
                return Ok(());
            }
            flat.map_err(|error| match error.errno {
                INVALID => NativeError::NoClone,
                CANCELED => NativeError::Unreached("the lun is not served any more".to_owned()),
                _ => failed("flatten it", error),
            })
        };
        self.begin_job(image, counted, (flatten_of, "a flatten", false), ended, run);
        self.common.flatten.wait(limit)
    }
}

/// Gives an image the data of a snapshot, and keeps its size. It is noted in the metadata while that is not done.
fn restore(common: &Common, image: &Image, name: &str) -> Result<(), NativeError> {
    let Some(texts) = &common.found.texts else {
        return Err(NativeError::ReadOnly);
    };
    let noted = |error| failed("note that the rollback begins", error);
    let size_bytes = match texts.unfinished_rollback(image).map_err(noted)? {
        Some((_, size_bytes)) => size_bytes,
        None => image.size_bytes().map_err(noted)?,
    };
    let began = texts.note_rollback(image, Some((name, size_bytes)));
    began.map_err(noted)?;
    common.is_mixed.store(true, Ordering::SeqCst);
    finish(common, image, name, size_bytes)?;
    common.is_mixed.store(false, Ordering::SeqCst);
    Ok(())
}

/// The part of a rollback that a crash may have cut.
fn finish(common: &Common, image: &Image, name: &str, size: u64) -> Result<(), NativeError> {
    let restored = image.roll_back(name, &|done, all| common.rollback.note(done, all));
    restored.map_err(|error| match error.errno {
        NOT_FOUND => NativeError::Call {
            action: "roll it back",
            reason: format!(
                "snapshot {name} is gone, so that the image may be a mixture; roll it back to another one, or serve it \
                 as it is (rbd image-meta rm {} {ROLLBACK})",
                common.options
            ),
        },
        CANCELED => NativeError::Unreached(
            "it was ended, and is done before the image is served the next time".to_owned(),
        ),
        _ => failed("roll it back", error),
    })?;
    let ended = |error| failed("end the rollback", error);
    if image.size_bytes().map_err(ended)? < size {
        image.grow(size).map_err(ended)?;
    }
    common.note_size(image.size_bytes().map_err(ended)?);
    let texts = common.found.texts.iter();
    let mut texts = texts.map(|texts| texts.note_rollback(image, None));
    texts.try_for_each(|noted| noted.map_err(ended))
}

/// Ends the rollback that somebody has begun and has not ended, if there is one. The image is not served yet.
pub(super) fn end_rollback(common: &Common, image: &Image) -> Result<(), String> {
    let Some(texts) = &common.found.texts else {
        return Ok(());
    };
    let unfinished = texts.unfinished_rollback(image);
    let Some((name, size_bytes)) = unfinished.map_err(|error| error.to_string())? else {
        return Ok(());
    };
    tracing::warn!(image = %common.options, name, "a rollback that has not ended goes on before the image is served");
    common.note_reason(format!(
        "it gets the data of snapshot {name} back, as a rollback has not ended"
    ));
    let ended = finish(common, image, &name, size_bytes);
    let reason = ended.as_ref().err().map(ToString::to_string);
    if !common.rollback.is_given_up() {
        common.resumed().note(name, ended);
    }
    reason.map_or(Ok(()), Err)
}
