//! What the handles of all cores and the attendant have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rbd::{CallError, Completion, Image, Library};
use store::{Capabilities, Connections, Extent, IoFailure, IoTag, NativeError, Sender};

use super::errno::NOT_FOUND;
use super::job::Job;
use super::meter::Meter;
use super::options::{Claim, RbdOptions};
use super::texts::{Question, Texts};

/// What the first look found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) size_bytes: u64,
    pub(super) compare_and_write_bytes: u32,
    /// How many bytes are walked through at a time to see which hold data.
    pub(super) walk_bytes: u64,
    /// Its identity in its pool.
    pub(super) id: String,
    /// Names the image among all: the cluster, the pool, the namespace, its identity.
    pub(super) medium: String,
    /// `None` where this store must not write them.
    pub(super) texts: Option<Arc<Texts>>,
    /// Kept until the store is gone, or has to be opened again.
    pub(super) claim: Option<Claim>,
}

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
    /// The connection was blocklisted, which it knows.
    Blocklisted,
    /// Take the image from the client that has it.
    TakeOver {
        /// Nobody waits for it any more then, and it is not begun.
        until: Instant,
        /// Where the answer goes, in words if it is not taken.
        to: SyncSender<Result<(), String>>,
    },
    /// Requests end as those of a client without the exclusive lock.
    LockLost,
    /// The last user is gone.
    End,
}

/// To the core of a handle.
#[derive(Debug)]
pub(super) enum Mail {
    /// The image is open, or is lost for good, or has another size.
    Changed,
    /// The library has ended a request.
    Ended {
        /// Which.
        tag: IoTag,
        /// How.
        completion: Completion,
    },
    /// The attendant knows which parts hold data.
    Mapped {
        /// The request.
        tag: IoTag,
        /// As it asks.
        extents: Result<Vec<Extent>, IoFailure>,
    },
}

/// What there is of the image.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// It is being opened.
    Opening,
    /// It is open.
    Up(Arc<Image>),
    /// Another client has taken it over; it is not opened again.
    Gone,
}

/// Which image has the name of this one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Named {
    /// This one.
    Own,
    /// The one with this identity.
    Other(String),
    /// None: it was renamed, or removed.
    Nothing,
    /// There is no such pool any more.
    NoPool,
}

impl Named {
    /// What is wrong, for the image with this identity.
    pub(super) fn in_words(&self, id: &str) -> String {
        let what = match self {
            Self::Own => return format!("the image with the id {id} has its name"),
            Self::Other(other) => format!("another image (id {other}) has the name"),
            Self::Nothing => "no image has the name any more".to_owned(),
            Self::NoPool => return "its pool is gone; see ceph osd pool ls".to_owned(),
        };
        format!(
            "{what}, and the lun is that with the id {id}; rename it back (rbd rename), or remove the lun and add it \
             with the image that is meant"
        )
    }
}

/// A rollback that was begun before the image was opened, and was ended here.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// The snapshot, and how it ended, as long as nobody was given that.
    pub(super) outcome: Option<(String, Result<(), NativeError>)>,
    /// It has failed already. It is tried again every second.
    has_failed: bool,
}

impl Resumed {
    pub(super) fn note(&mut self, name: String, ended: Result<(), NativeError>) {
        let is_new = ended.is_ok() || !self.has_failed;
        self.has_failed = ended.is_err();
        if is_new {
            self.outcome = Some((name, ended));
        }
    }
}

/// What may change.
#[derive(Debug)]
struct State {
    standing: Standing,
    /// As was seen last.
    named: Named,
    /// Why it is not open, or was not the last time.
    reason: String,
    /// What was found of the image does not hold any more.
    is_outdated: bool,
    /// Another client has it, as far as is known.
    is_held_elsewhere: bool,
    claim: Option<Claim>,
    /// Handles whose requests are not answered.
    silent: BTreeSet<usize>,
    /// The snapshot whose data it is to get, while requests are refused for that.
    closed_for: Option<String>,
    mailboxes: BTreeMap<usize, Sender<Mail>>,
    /// Until the attendant begins.
    queue: Option<Receiver<Work>>,
}

/// Of one store.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) options: RbdOptions,
    pub(super) library: Library,
    pub(super) found: Found,
    size_bytes: AtomicU64,
    state: Mutex<State>,
    /// As `closed_for`, for the cores.
    is_closed: AtomicBool,
    /// Somebody has taken all blocks away.
    is_cut: AtomicBool,
    /// A rollback was begun and has not ended: nobody knows which data there is.
    pub(super) is_mixed: AtomicBool,
    /// What takes long.
    pub(super) rollback: Job,
    pub(super) flatten: Job,
    resumed: Mutex<Resumed>,
    /// What it takes.
    pub(super) meter: Meter,
    /// Snapshots that are being taken and not kept yet.
    pub(super) taking: Mutex<BTreeSet<String>>,
    /// The first attempt to open the image is over.
    tried: Condvar,
    /// How often it was opened.
    opened: AtomicU64,
    /// Requests of all handles that nobody answers.
    held: AtomicU64,
}

impl Common {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn standing(&self) -> Standing {
        self.state().standing.clone()
    }

    /// As [`Common::standing`], after the first attempt to open the image, which is waited for so long.
    pub(super) fn standing_when_tried(&self, limit: Duration) -> Standing {
        let is_first = |state: &mut State| {
            matches!(state.standing, Standing::Opening) && state.reason.is_empty()
        };
        let waited = self.tried.wait_timeout_while(self.state(), limit, is_first);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.standing.clone()
    }

    /// The image is open, or lost for good; the handles are notified.
    pub(super) fn set_standing(&self, standing: Standing) {
        let mut state = self.state();
        if let Standing::Up(_) = standing {
            state.is_held_elsewhere = false;
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        state.standing = standing;
        drop(state);
        self.tried.notify_all();
        self.notify();
    }

    /// Another client has the image, until it is open here; the handles are notified. An outage of the cluster shows
    /// nothing else.
    pub(super) fn note_holder(&self) {
        if !std::mem::replace(&mut self.state().is_held_elsewhere, true) {
            self.notify();
        }
    }

    /// Names the medium: the cluster, the number of the pool, the namespace, the identity of the image, the snapshot.
    pub(super) fn medium_text(&self) -> String {
        let snapshot = self.options.snapshot.iter();
        let snapshot: String = snapshot.map(|name| format!("@{name}")).collect();
        format!("rbd {}{snapshot}", self.found.medium)
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.state().is_outdated
    }

    /// Notes which image has the name of this one, unless that is not known.
    pub(super) fn note_named(&self, found: Result<Option<String>, CallError>) -> Named {
        let named = match found {
            Ok(Some(id)) if id == self.found.id => Named::Own,
            Ok(Some(id)) => Named::Other(id),
            Ok(None) => Named::Nothing,
            Err(error) if error.call == "rados_ioctx_create" && error.errno == NOT_FOUND => {
                Named::NoPool
            }
            Err(_) => return self.state().named.clone(),
        };
        let before = std::mem::replace(&mut self.state().named, named.clone());
        if named != before {
            let (image, what) = (&self.options, named.in_words(&self.found.id));
            match named {
                Named::Own => tracing::info!(%image, what, "an RBD image has its name again"),
                Named::Other(_) | Named::Nothing | Named::NoPool => {
                    tracing::error!(%image, what, "an RBD image does not have its name any more");
                }
            }
        }
        named
    }

    /// Which image had the name of this one when that was seen last.
    pub(super) fn named(&self) -> Named {
        self.state().named.clone()
    }

    pub(super) fn is_held_elsewhere(&self) -> bool {
        self.state().is_held_elsewhere
    }

    /// Whether requests are refused because the image gets the data of a snapshot.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(super) fn resumed(&self) -> MutexGuard<'_, Resumed> {
        self.resumed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses requests from now on, or with `None` takes them again; the handles are notified.
    pub(super) fn close_for(&self, snapshot: Option<String>) {
        self.is_closed.store(snapshot.is_some(), Ordering::SeqCst);
        self.state().closed_for = snapshot;
        self.notify();
    }

    pub(super) fn closed_for(&self) -> Option<String> {
        self.state().closed_for.clone()
    }

    /// What was found of the image does not hold any more: the store has no part in it from now on.
    pub(super) fn set_outdated(&self) {
        let mut state = self.state();
        state.is_outdated = true;
        // It is opened again with its unit, which sees who has it then.
        state.is_held_elsewhere = false;
        state.claim = None;
        drop(state);
        self.set_standing(Standing::Gone);
    }

    /// Takes the image out of here, to close it.
    pub(super) fn end(&self) -> Standing {
        std::mem::replace(&mut self.state().standing, Standing::Gone)
    }

    /// Whether it is another reason than before.
    pub(super) fn note_reason(&self, reason: String) -> bool {
        let mut state = self.state();
        let is_new = state.reason != reason;
        state.reason = reason;
        self.tried.notify_all();
        is_new
    }

    /// A size that was found. An image without a block is not shown: the disk keeps the size that it had.
    pub(super) fn note_size(&self, size_bytes: u64) {
        let is_cut = size_bytes < u64::from(self.options.block_bytes);
        self.is_cut.store(is_cut, Ordering::SeqCst);
        if is_cut {
            return;
        }
        if self.size_bytes.swap(size_bytes, Ordering::SeqCst) != size_bytes {
            self.notify();
        }
    }

    fn notify(&self) {
        for mailbox in self.state().mailboxes.values() {
            mailbox.push(Mail::Changed);
        }
    }

    /// A handle has so many requests that nobody answers, and had so many before.
    pub(super) fn note_held(&self, before: u64, now: u64) {
        self.held.fetch_add(now, Ordering::Relaxed);
        let held = self.held.fetch_sub(before, Ordering::Relaxed);
        debug_assert!(held >= before, "{before} of {held} were held");
    }

    /// The requests of a handle are not answered, or are again.
    pub(super) fn note_silence(&self, number: usize, is_silent: bool) {
        let mut state = self.state();
        match is_silent {
            true => state.silent.insert(number),
            false => state.silent.remove(&number),
        };
    }

    pub(super) fn outage(&self) -> Option<String> {
        let state = self.state();
        if let (Standing::Up(_), Some(name)) = (&state.standing, &state.closed_for) {
            let how_far = self.rollback.words();
            return Some(format!(
                "image {}: it gets the data of snapshot {name} back ({how_far})",
                self.options
            ));
        }
        let is_cut = self.is_cut.load(Ordering::SeqCst);
        let reason = match &state.standing {
            Standing::Up(_) if state.named == Named::NoPool => "its pool is gone",
            Standing::Up(_) if is_cut => {
                "somebody has cut it to less than a block; give it its size back (rbd resize)"
            }
            Standing::Up(_) if state.silent.is_empty() => return None,
            Standing::Up(_) => "the cluster does not answer",
            Standing::Opening if state.reason.is_empty() => "it is not open yet",
            Standing::Opening | Standing::Gone => &state.reason,
        };
        Some(format!("image {}: {reason}", self.options))
    }

    pub(super) fn connections(&self) -> Connections {
        Connections {
            up: matches!(self.standing(), Standing::Up(_)).into(),
            again: self.opened.load(Ordering::Relaxed).saturating_sub(1),
            held: self.held.load(Ordering::Relaxed),
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let (options, block_bytes) = (&self.options, self.options.block_bytes);
        let size_bytes = self.size_bytes.load(Ordering::SeqCst);
        let read_only = options.is_read_only();
        Capabilities {
            size_bytes: size_bytes - size_bytes % u64::from(block_bytes),
            block_bytes,
            physical_block_bytes: PHYSICAL_BYTES.max(block_bytes),
            read_only,
            thin: options.thin && !read_only,
            unmap_granularity_bytes: block_bytes,
            reads_in_place: false,
            in_place_unit_bytes: 0,
            // The library has the data until it is answered; a receive chunk must not wait so long.
            needs_own_buffer: true,
            // The cache of the library is off.
            volatile_cache: false,
            writes_through: false,
            solid_state: true,
            compare_and_write_bytes: self.found.compare_and_write_bytes,
        }
    }
}

/// What object stores write at a time without reading before.
const PHYSICAL_BYTES: u32 = 4096;

/// The users of an image: when the last one is dropped, the attendant closes it.
#[derive(Debug)]
pub(super) struct Users {
    pub(super) common: Arc<Common>,
    pub(super) work: mpsc::Sender<Work>,
}

impl Users {
    /// Those of an image that was found like this.
    pub(super) fn new(options: RbdOptions, library: Library, mut found: Found) -> Arc<Self> {
        let (work, queue) = mpsc::channel();
        let claim = found.claim.take();
        let common = Arc::new(Common {
            options,
            library,
            size_bytes: AtomicU64::new(found.size_bytes),
            found,
            state: Mutex::new(State {
                standing: Standing::Opening,
                named: Named::Own,
                reason: String::new(),
                is_outdated: false,
                is_held_elsewhere: false,
                claim,
                silent: BTreeSet::new(),
                closed_for: None,
                mailboxes: BTreeMap::new(),
                queue: Some(queue),
            }),
            is_closed: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_mixed: AtomicBool::new(false),
            rollback: Job::default(),
            flatten: Job::default(),
            resumed: Mutex::default(),
            meter: Meter::default(),
            taking: Mutex::default(),
            tried: Condvar::new(),
            opened: AtomicU64::new(0),
            held: AtomicU64::new(0),
        });
        let users = Arc::new(Self { common, work });
        let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
        served.push(Arc::downgrade(&users));
        drop(served);
        users
    }

    /// Leaves work for the attendant.
    pub(super) fn ask(&self, work: Work) {
        // It has ended only if it could not begin, and then nothing is answered but that.
        drop(self.work.send(work));
    }

    /// Whether some handle has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.common.state().queue.is_none()
    }

    /// A handle begins. The first one has to begin the attendant, with this queue.
    pub(super) fn join(&self, number: usize, mailbox: Sender<Mail>) -> Option<Receiver<Work>> {
        let mut state = self.common.state();
        state.mailboxes.insert(number, mailbox);
        state.queue.take()
    }

    pub(super) fn leave(&self, number: usize) {
        let mut state = self.common.state();
        state.silent.remove(&number);
        let mailbox = state.mailboxes.remove(&number);
        drop((state, mailbox));
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        // What takes long would keep the image open.
        self.common.rollback.give_up();
        self.common.flatten.give_up();
        self.common.meter.give_up();
        self.ask(Work::End);
    }
}

/// The users of all images.
static SERVED: Mutex<Vec<Weak<Users>>> = Mutex::new(Vec::new());

/// The identity of the image that a unit has had and is to have again, where these options lead to another one. The
/// unit knows it then.
pub(super) fn had_before(
    options: &RbdOptions,
    (cluster, medium, id): (&str, &str, &str),
) -> Option<String> {
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    served.retain(|users| users.strong_count() > 0);
    let all: Vec<_> = served.iter().filter_map(Weak::upgrade).collect();
    drop(served);
    let users = all.iter().find(|users| {
        let before = &users.common;
        before.is_outdated()
            && before.options.to_string() == options.to_string()
            && before.found.medium.starts_with(cluster)
            && before.found.medium != medium
    })?;
    users.common.note_named(Ok(Some(id.to_owned())));
    Some(users.common.found.id.clone())
}
