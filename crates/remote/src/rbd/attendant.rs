//! The thread of a store: it connects, opens the image and closes it, and makes the calls that block.
//!
//! It ends when the last user of the store is gone. Where a call of the library does not return, it goes on waiting and
//! keeps the image, and nobody else waits for it.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rbd::{CallError, Cluster, ClusterOptions, Image, Library, Patience, Watch, words};
use store::{Extent, IoFailure, IoTag, Sender};

use super::notes::Question;
use super::open::{NOT_PERMITTED, RbdFailure, RbdOptions, living_user};
use super::shared::{Common, Mail, Standing};
use super::snapshots;
use crate::attendants::Counted;

/// Between two attempts to open.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks whether another client has given the image up. They are two requests each.
const LOCKED_PAUSE: Duration = Duration::from_secs(3);
/// For a monitor to answer; another attempt follows.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// What a thread needs that calls the library.
const STACK_BYTES: usize = 2 << 20;

/// `ESHUTDOWN`: this client was blocklisted.
pub(super) const BLOCKLISTED: i32 = 108;
/// `EROFS`, `EBUSY`: another client has the lock and keeps it.
pub(super) const READ_ONLY: i32 = 30;
const BUSY: i32 = 16;

/// What the attendant is asked.
#[derive(Debug)]
pub(super) enum Work {
    /// The image has changed.
    Look,
    /// Which parts of it hold data.
    Extents {
        /// The request.
        tag: IoTag,
        /// In bytes.
        range: Range<u64>,
        /// At most so many extents.
        count_max: usize,
        /// Where the answer goes.
        to: Sender<Mail>,
    },
    /// For a text of its metadata.
    Text(Question),
    /// Requests end as those of a client that was blocklisted.
    Blocklisted,
    /// Requests end as those of a client without the exclusive lock.
    LockLost,
    /// The last user is gone.
    End,
}

/// Starts the thread.
pub(super) fn begin(common: &Arc<Common>, queue: Receiver<Work>, work: mpsc::Sender<Work>) {
    let counted = Counted::new();
    let attendant = Attendant {
        common: Arc::clone(common),
        open: None,
        waiting: None,
        queue,
        work,
        is_unlocked: Cell::new(false),
    };
    let run = move || {
        attendant.run();
        drop(counted);
    };
    let thread = thread::Builder::new().name("tarn-rbd".to_owned());
    if let Err(error) = thread.stack_size(STACK_BYTES).spawn(run) {
        common.note_reason(format!("there is no thread for it: {error}"));
        common.set_standing(Standing::Gone);
    }
}

struct Attendant {
    common: Arc<Common>,
    open: Option<(Arc<Image>, Watch)>,
    /// The image while another client has it.
    waiting: Option<Image>,
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
            let work = match matches!(self.common.standing(), Standing::Opening) {
                true if self.waiting.is_some() => self.queue.recv_timeout(LOCKED_PAUSE),
                true => self.queue.recv_timeout(PAUSE),
                false => self
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

    fn open(&mut self) -> Result<(), String> {
        let options = &self.common.options;
        let image = open_image(self.common.library, options, &mut self.waiting);
        let image = image.map_err(|error| match error {
            NotOpened::Call(error) if is_held(error) => {
                self.common.note_holder();
                reason(error)
            }
            NotOpened::Call(error) => {
                if error.errno == BLOCKLISTED {
                    Clusters::forget(&options.cluster);
                }
                reason(error)
            }
            NotOpened::Cache => RbdFailure::Cache.to_string(),
            NotOpened::Locked { address } => {
                self.common.note_holder();
                format!("it waits for the client at {address}, which has its exclusive lock")
            }
        })?;
        if let Some(texts) = &self.common.found.texts
            && !texts.settle(&image).map_err(reason)?
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
        let watch = watch.map_err(reason)?;
        self.open = Some((Arc::clone(&image), watch));
        self.look(&image);
        self.common.set_standing(Standing::Up(image));
        Ok(())
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

    fn carry_out(&self, work: Work) {
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
    fn take_lock_again(&self) {
        let (Some((image, _)), Standing::Up(_)) = (&self.open, self.common.standing()) else {
            return;
        };
        let Err(error) = image.acquire_lock() else {
            return;
        };
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

    /// Another client has made this one harmless, to take the image over. What it has written since is not to be
    /// written over, so the image is not opened again.
    fn give_up(&self) {
        if matches!(self.common.standing(), Standing::Gone) {
            return;
        }
        let options = &self.common.options;
        tracing::error!(image = %options, "this client was blocklisted: an RBD image is not served any more");
        Clusters::forget(&options.cluster);
        self.common.note_reason(
            "this client was blocklisted, as another one has taken the image over; to serve it again, take it back \
             (tarn lun takeover), or restart Tarn"
                .to_owned(),
        );
        self.common.note_holder();
        // The image stays open, as handles may have it.
        self.common.set_standing(Standing::Gone);
    }
}

/// Whether the call failed because another client has the image.
fn is_held(error: CallError) -> bool {
    let is_refused = matches!(error.errno, READ_ONLY | BUSY | NOT_PERMITTED);
    error.call == "rbd_lock_acquire" && is_refused
}

fn reason(error: CallError) -> String {
    match (error.call, error.errno) {
        _ if is_held(error) => "another client has its exclusive lock; end that client".to_owned(),
        ("rados_connect", errno) => format!("cannot connect: {}", words(errno)),
        _ => error.to_string(),
    }
}

/// Why an image is not open.
enum NotOpened {
    Call(CallError),
    /// A cache would hold answered writes.
    Cache,
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

/// Opens the image and takes its lock. While another client has it, it is left in `waiting`.
fn open_image(
    library: Library,
    options: &RbdOptions,
    waiting: &mut Option<Image>,
) -> Result<Image, NotOpened> {
    let image = match waiting.take() {
        Some(image) => image,
        None => {
            let cluster = Clusters::get(library, &options.cluster)?;
            let pool = cluster.pool(&options.pool, &options.namespace)?;
            Image::open(pool, &options.image, &options.mode())?
        }
    };
    // It may have been turned on since the first look.
    if image.has_cache()? {
        return Err(NotOpened::Cache);
    }
    if !options.is_read_only() && image.has_exclusive_lock()? {
        if options.waits_for_lock
            && let Some(address) = living_user(&image)?
        {
            *waiting = Some(image);
            return Err(NotOpened::Locked { address });
        }
        image.acquire_lock()?;
    }
    Ok(image)
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

/// The connections of the process: one for each cluster and user, while somebody has it.
struct Clusters;

type Connection = Arc<Mutex<Weak<Cluster>>>;

fn connections() -> MutexGuard<'static, HashMap<ClusterOptions, Connection>> {
    static CONNECTIONS: OnceLock<Mutex<HashMap<ClusterOptions, Connection>>> = OnceLock::new();
    let connections = CONNECTIONS.get_or_init(Mutex::default);
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clusters {
    /// Connects, or gives the connection that there is. Others that want the same wait meanwhile.
    fn get(library: Library, options: &ClusterOptions) -> Result<Arc<Cluster>, CallError> {
        let connection = Arc::clone(connections().entry(options.clone()).or_default());
        let mut held = connection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = held.upgrade() {
            return Ok(cluster);
        }
        let patience = Patience::Endless {
            connect: CONNECT_MAX,
        };
        let cluster = Arc::new(Cluster::connect(library, options, patience)?);
        *held = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    /// The connection is of no more use: who connects from now on gets another one.
    fn forget(options: &ClusterOptions) {
        connections().remove(options);
    }
}
