//! The thread of a store: it connects, opens the image and closes it, and makes the calls that block.
//!
//! It ends when the last user of the store is gone. Where a call of the library does not return, it goes on waiting and
//! keeps the image, and nobody else waits for it.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rbd::{CallError, Image, Lock, Watch};
use store::{Extent, IoFailure};

use super::connections::Connection;
use super::errno::{BUSY, NOT_FOUND, NOT_PERMITTED, READ_ONLY};
use super::options::{RbdFailure, RbdOptions};
use super::shared::{Common, Mail, Named, Standing, Work};
use super::snapshots;
use super::texts::GATEWAY;
use crate::attendants::spawn;

/// Between two attempts to open.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks whether another client has given the image up. They are two requests each.
const LOCKED_PAUSE: Duration = Duration::from_secs(3);
/// After this client was blocklisted: who has done that to take an image over has its lock by then.
const FENCED_PAUSE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

/// Starts the thread.
pub(super) fn begin(common: &Arc<Common>, queue: Receiver<Work>, work: mpsc::Sender<Work>) {
    let attendant = Attendant {
        common: Arc::clone(common),
        open: None,
        waiting: None,
        connection: None,
        returns: None,
        queue,
        work,
        is_unlocked: Cell::new(false),
    };
    if let Err(error) = spawn("tarn-rbd", move || attendant.run()) {
        common.note_reason(format!("there is no thread for it: {error}"));
        common.set_standing(Standing::Gone);
    }
}

struct Attendant {
    common: Arc<Common>,
    open: Option<(Arc<Image>, Watch)>,
    /// The image while another client has it.
    waiting: Option<Image>,
    connection: Option<Arc<Connection>>,
    /// When it sees whether the image may be opened again, as this client was blocklisted.
    returns: Option<Instant>,
    queue: Receiver<Work>,
    work: mpsc::Sender<Work>,
    /// That nothing keeps others from writing was logged.
    is_unlocked: Cell<bool>,
}

impl Attendant {
    fn run(mut self) {
        loop {
            let is_opening = matches!(self.common.standing(), Standing::Opening);
            if is_opening && let Err(reason) = self.open() {
                let image = &self.common.options;
                // Once for each reason: what is waited for may take days.
                if self.common.note_reason(reason.clone()) {
                    tracing::warn!(%image, reason, "an RBD image cannot be opened, it is tried again");
                }
            }
            if self.returns.is_some_and(|at| at <= Instant::now()) {
                self.come_back();
            }
            let work = match self.pause() {
                Some(pause) => self.queue.recv_timeout(pause),
                None => self
                    .queue
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
            };
            match work {
                Ok(Work::End) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(work) => self.carry_out(work),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        // No handle has the image any more, so it is closed here.
        let standing = self.common.end();
        if let Some((image, watch)) = self.open.take() {
            image.end_watch(watch);
        }
        drop(standing);
    }

    /// How long it waits for work before it does something by itself.
    fn pause(&self) -> Option<Duration> {
        match self.common.standing() {
            Standing::Opening if self.waiting.is_some() => Some(LOCKED_PAUSE),
            Standing::Opening => Some(PAUSE),
            Standing::Gone => self
                .returns
                .map(|at| at.saturating_duration_since(Instant::now())),
            Standing::Up(_) => None,
        }
    }

    /// The image, by its identity, over a connection that is of use; `waiting` has it no more.
    fn reach(&mut self) -> Result<Image, NotOpened> {
        let options = &self.common.options;
        let waiting = self.waiting.take();
        if let Some(image) = waiting.filter(|image| !image.cluster().is_fenced()) {
            return Ok(image);
        }
        let connection = Connection::of(&self.common, &self.work)?;
        let pool = connection.pool(options);
        self.connection = Some(connection);
        let pool = pool?;
        self.compare(pool.image_id(&options.image)?)?;
        let image = Image::open_by_id(pool, &self.common.found.id, &options.mode())?;
        Ok(image)
    }

    /// Another image at its name is not taken for it, nor is it where the name does not lead to.
    fn compare(&self, found: Option<String>) -> Result<(), NotOpened> {
        match self.common.note_named(Ok(found)) {
            Named::Own => Ok(()),
            named @ (Named::Other(_) | Named::Nothing | Named::NoPool) => {
                Err(NotOpened::Elsewhere(named))
            }
        }
    }

    /// Reaches the image and takes its lock. While another client has it, it is left in `waiting`.
    fn open_image(&mut self) -> Result<Image, NotOpened> {
        let image = self.reach()?;
        let options = &self.common.options;
        // It may have been turned on since the first look.
        if image.has_cache()? {
            return Err(NotOpened::Cache);
        }
        if options.is_read_only() {
            return Ok(image);
        }
        if !image.has_exclusive_lock()? {
            return match options.waits_for_lock {
                true => Err(NotOpened::Unlocked),
                false => Ok(image),
            };
        }
        if options.waits_for_lock
            && let Some(address) = living_user(&image)?
        {
            self.waiting = Some(image);
            return Err(NotOpened::Locked { address });
        }
        // It may have waited for days.
        self.compare(image.id_named(&options.image)?)?;
        image.acquire_lock()?;
        Ok(image)
    }

    /// Why the image is not open, in words. Notes that another client has it.
    fn explain(&self, error: NotOpened) -> String {
        match error {
            NotOpened::Call(error) => {
                if is_held(error) {
                    self.common.note_holder();
                }
                reason(&self.common.options, error)
            }
            NotOpened::Cache => RbdFailure::Cache.to_string(),
            NotOpened::Unlocked => RbdFailure::Unlocked.to_string(),
            NotOpened::Elsewhere(named) => named.in_words(&self.common.found.id),
            NotOpened::Locked { address } => {
                self.common.note_holder();
                format!("it waits for the client at {address}, which has its exclusive lock")
            }
        }
    }

    fn open(&mut self) -> Result<(), String> {
        let image = self.open_image().map_err(|error| self.explain(error))?;
        if let Some(texts) = &self.common.found.texts
            && !texts.settle(&image).map_err(|error| self.reason(error))?
        {
            // Closed first: somebody else of this process opens it.
            drop(image);
            self.note_stranger();
            return Ok(());
        }
        if self.common.found.texts.is_some() {
            snapshots::end_rollback(&self.common, &image)?;
        }
        let image = Arc::new(image);
        let work = self.work.clone();
        // The queue may have ended, and then nobody wants to know.
        let watch = image.watch(move || drop(work.send(Work::Look)));
        let watch = watch.map_err(|error| self.reason(error))?;
        self.open = Some((Arc::clone(&image), watch));
        self.look(&image);
        let medium = self.common.medium_text();
        tracing::debug!(image = %self.common.options, medium, "an RBD image is open");
        self.common.set_standing(Standing::Up(image));
        Ok(())
    }

    fn reason(&self, error: CallError) -> String {
        reason(&self.common.options, error)
    }

    fn look(&self, image: &Image) {
        self.look_at_lock(image);
        // A rollback makes it smaller for a moment.
        if self.common.is_closed() {
            return;
        }
        match image.size_bytes() {
            Ok(size_bytes) => self.common.note_size(size_bytes),
            Err(error) => {
                let image = &self.common.options;
                tracing::warn!(%image, %error, "the size of an RBD image is not known");
            }
        }
    }

    /// An image may have no exclusive lock, from the start or since somebody took the feature away.
    fn look_at_lock(&self, image: &Image) {
        let Ok(is_locked) = image.has_exclusive_lock() else {
            return;
        };
        let is_unlocked = !is_locked && !self.common.options.is_read_only();
        if is_unlocked && !self.is_unlocked.get() {
            let image = &self.common.options;
            tracing::warn!(%image, "an RBD image has no exclusive lock: nothing keeps others from writing to it");
        }
        self.is_unlocked.set(is_unlocked);
    }

    fn carry_out(&mut self, work: Work) {
        match work {
            Work::Look => {
                if let Some((image, _)) = &self.open {
                    self.look(image);
                }
            }
            Work::Extents {
                tag,
                range,
                count_max,
                to,
            } => {
                let extents = match &self.open {
                    Some((image, _)) => extents(image, range, count_max),
                    None => Err(IoFailure::NotReady),
                };
                to.push(Mail::Mapped { tag, extents });
            }
            Work::Text(question) => {
                // Without an answer who has asked sees that there is none.
                if let (Some((image, _)), Some(texts)) = (&self.open, &self.common.found.texts) {
                    texts.answer(image, question);
                }
            }
            Work::Blocklisted => self.give_up(),
            Work::TakeOver { until, to } => {
                // Who has asked was answered that nothing is known.
                if Instant::now() < until {
                    drop(to.send(self.take_over()));
                }
            }
            Work::LockLost => self.take_lock_again(),
            Work::End => {}
        }
    }

    /// Another Tarn has served the image since this one has looked at it, and has changed what is kept of it.
    fn note_stranger(&self) {
        let image = &self.common.options;
        tracing::info!(%image, "another Tarn has served an RBD image meanwhile; its unit starts again");
        let reason = "another Tarn has served it meanwhile, and the unit starts again with what that has left";
        self.common.note_reason(reason.to_owned());
        self.common.set_outdated();
    }

    /// Somebody has taken the exclusive lock away, or the feature with it. Where it cannot be had again, another client
    /// may write.
    fn take_lock_again(&mut self) {
        let (Some((image, _)), Standing::Up(_)) = (&self.open, self.common.standing()) else {
            return;
        };
        let Err(error) = image.acquire_lock() else {
            return;
        };
        if image.cluster().is_fenced() {
            self.give_up();
            return;
        }
        let image = &self.common.options;
        tracing::error!(%image, %error, "the exclusive lock is lost: an RBD image is not served any more");
        self.common.note_reason(
            "it has lost its exclusive lock to another client; to serve it again, take it back (tarn lun takeover), or \
             restart Tarn"
                .to_owned(),
        );
        self.common.note_holder();
        self.common.set_standing(Standing::Gone);
    }

    /// Another client has had this one blocklisted, as a rule to take an image over. What it has written since is not
    /// to be written over, so what is known of the image does not hold any more.
    fn give_up(&mut self) {
        let Some(connection) = self.connection.as_ref().filter(|one| one.is_fenced()) else {
            // It has another one by now.
            return;
        };
        // The images that it shares the connection with are lost, too.
        connection.spread();
        match self.common.standing() {
            Standing::Up(_) => {}
            Standing::Opening => {
                self.waiting = None;
                return;
            }
            Standing::Gone => return,
        }
        let options = &self.common.options;
        tracing::error!(image = %options, "this client was blocklisted: an RBD image is not served any more");
        self.common.note_reason(
            "this client was blocklisted, as another one has taken over one of its images; to serve it again, take \
             it back (tarn lun takeover), or restart Tarn"
                .to_owned(),
        );
        self.common.note_holder();
        // The image stays open, as handles may have it.
        self.common.set_standing(Standing::Gone);
        // Without a lock nobody knows whether another client writes.
        let may_return = options.is_read_only() || !self.is_unlocked.get();
        self.returns = may_return.then(|| Instant::now() + FENCED_PAUSE);
    }

    /// This client was blocklisted: sees over another connection who has the image. Where no other client has it, its
    /// unit starts again; also where it waits for one.
    fn come_back(&mut self) {
        self.returns = None;
        if self.common.is_outdated() {
            return;
        }
        let found = self.reach().and_then(|image| {
            let is_read_only = self.common.options.is_read_only();
            let user = if is_read_only {
                None
            } else {
                living_user(&image)?
            };
            Ok(user)
        });
        let image = &self.common.options;
        match found {
            Ok(Some(address)) if !image.waits_for_lock => {
                self.common.note_reason(format!(
                    "this client was blocklisted, and the client at {address} has taken the image over; to serve it \
                     again, take it back (tarn lun takeover), or restart Tarn"
                ));
            }
            Ok(_) => {
                tracing::info!(%image, "an RBD image is opened again over another connection; its unit starts again");
                self.common.set_outdated();
            }
            Err(error) => {
                let reason = self.explain(error);
                self.common
                    .note_reason(format!("this client was blocklisted; {reason}"));
                self.returns = Some(Instant::now() + LOCKED_PAUSE);
            }
        }
    }

    /// Takes the image from the client that has it, so that it is served here, or its unit is to start again. Only the
    /// thread of the image does that: what it knows of the lock cannot change meanwhile by its own doing.
    fn take_over(&mut self) -> Result<(), String> {
        if let Standing::Up(image) = self.common.standing() {
            let proved = self.prove(&image);
            if image.cluster().is_fenced() {
                self.give_up();
            }
            // Where the lock is lost it is not up any more.
            if let Standing::Up(_) = self.common.standing() {
                return proved.map_err(|error| self.reason(error));
            }
        }
        if self.common.is_outdated() {
            return Ok(());
        }
        let image = self
            .free()
            .map_err(|error| self.explain(error))
            .map_err(|reason| format!("image {}: {reason}", self.common.options))?;
        if let Standing::Gone = self.common.standing() {
            self.returns = None;
            // What this one had open is of no use any more.
            self.common.set_outdated();
            return Ok(());
        }
        self.waiting = Some(image);
        self.open().inspect_err(|reason| {
            self.common.note_reason(reason.clone());
        })?;
        match self.common.standing() {
            Standing::Up(image) => self.prove(&image).map_err(|error| self.reason(error)),
            Standing::Opening | Standing::Gone => Ok(()),
        }
    }

    /// Breaks the lock of another client, if one has it.
    fn free(&mut self) -> Result<Image, NotOpened> {
        let image = match self.reach() {
            // That is noticed at the first request over a connection.
            Err(_) if self.connection.as_ref().is_some_and(|one| one.is_fenced()) => {
                self.reach()?
            }
            reached => reached?,
        };
        self.compare(image.id_named(&self.common.options.image)?)?;
        match image.lock()? {
            Lock::Held { holder, .. } => match image.break_lock(&holder) {
                // It has ended meanwhile.
                Err(error) if error.errno == NOT_FOUND => {}
                broken => broken?,
            },
            Lock::Own { .. } | Lock::Free => {}
        }
        Ok(image)
    }

    /// Shows that the image is served here: its lock is this client's, and the cluster takes what it writes.
    fn prove(&mut self, image: &Image) -> Result<(), CallError> {
        if image.has_exclusive_lock()? && !matches!(image.lock()?, Lock::Own { is_this: true, .. })
        {
            self.take_lock_again();
            if !matches!(self.common.standing(), Standing::Up(_)) {
                return Ok(());
            }
        }
        let text = format!("{} {}", image.id(), image.cluster().address());
        image.set_metadata(GATEWAY, &text)
    }
}

/// The address of another client that has the exclusive lock and is there.
fn living_user(image: &Image) -> Result<Option<String>, CallError> {
    match image.lock()? {
        Lock::Held {
            holder,
            is_alive: true,
        } => Ok(Some(holder.to_string())),
        Lock::Held { .. } | Lock::Own { .. } | Lock::Free => Ok(None),
    }
}

/// Whether the call failed because another client has the image.
fn is_held(error: CallError) -> bool {
    let is_refused = matches!(error.errno, READ_ONLY | BUSY | NOT_PERMITTED);
    error.call == "rbd_lock_acquire" && is_refused
}

fn reason(options: &RbdOptions, error: CallError) -> String {
    match (error.call, error.errno) {
        ("rbd_lock_acquire", READ_ONLY) => {
            "another client has its exclusive lock; end that client".to_owned()
        }
        _ => options.failed(error).to_string(),
    }
}

/// Why an image is not open.
enum NotOpened {
    Call(CallError),
    /// A cache would hold answered writes.
    Cache,
    /// It is to wait for others that have its exclusive lock, and has none.
    Unlocked,
    /// Its name does not lead to it.
    Elsewhere(Named),
    /// Another client has it and is waited for.
    Locked {
        address: String,
    },
}

impl From<CallError> for NotOpened {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// What holds data, and what is between, from the start of the range on.
fn extents(image: &Image, range: Range<u64>, count_max: usize) -> Result<Vec<Extent>, IoFailure> {
    let mapped = image.mapped(range.clone(), count_max);
    let mapped = mapped.map_err(|_| IoFailure::NotReady)?;
    let is_whole = mapped.len() < count_max;
    let mut found = Vec::new();
    let mut at = range.start;
    let mut push = |range: Range<u64>, mapped| {
        if !range.is_empty() {
            found.push(Extent { range, mapped });
        }
    };
    for part in mapped {
        let part = part.start.max(range.start)..part.end.min(range.end);
        push(at..part.start, false);
        at = part.end;
        push(part, true);
    }
    if is_whole {
        push(at..range.end, false);
    }
    found.truncate(count_max);
    Ok(found)
}
