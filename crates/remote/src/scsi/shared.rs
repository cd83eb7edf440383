//! What the handles of all cores and the attendant have in common.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use store::{Capabilities, Connections, Sender, Writes};

use super::command::Facts;
use super::job::{Letter, Mail};
use super::medium::{Claim, InUse};
use crate::lock;

/// What the administrator has said of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How long requests wait for a server that does not answer before they fail.
    pub(crate) retry: Duration,
    pub(crate) read_only: bool,
    pub(crate) thin: bool,
    pub(crate) block_bytes: u32,
}

/// Who has the data.
#[derive(Clone, Debug)]
pub(crate) struct Whose {
    /// What people call such a server, with its article.
    pub(crate) kind: &'static str,
    /// What they call such a device, and its place.
    pub(crate) what: &'static str,
    /// The server.
    pub(crate) server: String,
    /// The device that it has.
    pub(crate) device: String,
    /// The store, where another one has the same device.
    pub(crate) store: String,
    /// How a loss of its cache shows.
    pub(crate) losses: Losses,
}

/// What shows that a device may have lost its cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Losses {
    /// The end of a session: its server may have ended, and says nothing of it in the next one.
    WithSession,
    /// What the device says in the next session: its unit attention that its power was off or it was reset inside.
    /// A connection that breaks takes no cache with it.
    AsTold,
}

/// Why there is no store.
#[derive(Debug)]
pub(crate) enum NoDisk {
    /// Another store has the device.
    Twice(InUse),
    /// The system does not give what it takes.
    Host(io::Error),
}

/// Starts the attendant, as soon as somebody uses the store.
pub(crate) type Begin = Box<dyn FnOnce(&Arc<Common>) + Send>;

/// What all share.
pub(crate) struct Common {
    pub(crate) terms: Terms,
    pub(crate) kind: &'static str,
    what: &'static str,
    pub(crate) server: String,
    pub(crate) device: String,
    pub(crate) losses: Losses,
    /// As it was when the store was opened.
    pub(crate) facts: Facts,
    /// As it was when it was last looked at.
    now: Mutex<Arc<Facts>>,
    pub(crate) size_bytes: AtomicU64,
    pub(crate) writes: Writes,
    /// Each handle has a bounded number of jobs, and cancels each once.
    queue: Mutex<VecDeque<Letter>>,
    /// Wakes the attendant.
    pub(crate) event: OwnedFd,
    /// Until the attendant runs.
    begin: Mutex<Option<Begin>>,
    mailboxes: Mutex<BTreeMap<usize, Sender<Mail>>>,
    outage: Mutex<Option<String>>,
    /// There is no attendant, so nothing is carried out.
    pub(crate) is_gone: AtomicBool,
    is_up: AtomicBool,
    /// Sessions that were begun.
    sessions: AtomicU64,
    held: AtomicU64,
    /// As long as there is a session, or may be one: the attendant has this, too.
    _claim: Option<Claim>,
}

impl std::fmt::Debug for Common {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Common")
            .field("server", &self.server)
            .field("device", &self.device)
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

impl Common {
    /// What was found, and what begins its attendant. A device that says which one it is has one store at a time.
    pub(crate) fn new(
        terms: Terms,
        whose: Whose,
        facts: Facts,
        begin: Begin,
    ) -> Result<Self, NoDisk> {
        let identity = facts.identity.as_ref();
        let claim = identity.map(|identity| Claim::new(identity, &whose.store));
        let claim = claim.transpose().map_err(NoDisk::Twice)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = event.map_err(|error| NoDisk::Host(error.into()))?;
        Ok(Self {
            terms,
            kind: whose.kind,
            what: whose.what,
            server: whose.server,
            device: whose.device,
            losses: whose.losses,
            size_bytes: AtomicU64::new(facts.size_bytes),
            now: Mutex::new(Arc::new(facts.clone())),
            facts,
            writes: Writes::default(),
            queue: Mutex::default(),
            event,
            begin: Mutex::new(Some(begin)),
            mailboxes: Mutex::default(),
            outage: Mutex::default(),
            is_gone: AtomicBool::new(false),
            is_up: AtomicBool::new(false),
            sessions: AtomicU64::new(0),
            held: AtomicU64::new(0),
            _claim: claim,
        })
    }

    /// Leaves a letter for the attendant.
    pub(crate) fn post(&self, letter: Letter) {
        let was_empty = {
            let mut queue = lock(&self.queue);
            queue.push_back(letter);
            queue.len() == 1
        };
        if was_empty {
            // A full counter has woken it already.
            let _written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// What has been left for the attendant.
    pub(crate) fn take_letters(&self) -> VecDeque<Letter> {
        std::mem::take(&mut *lock(&self.queue))
    }

    /// The attendant was woken. It takes the letters after this: those that come then wake it again.
    pub(crate) fn note_woken(&self) {
        let mut count = [0; 8];
        let _read = rustix::io::read(&self.event, &mut count);
    }

    /// Leaves mail for a handle. One that is gone needs none.
    pub(crate) fn answer(&self, core: usize, mail: Mail) {
        if let Some(mailbox) = lock(&self.mailboxes).get(&core) {
            mailbox.push(mail);
        }
    }

    /// The first handle reports to administrators, so that it comes once.
    pub(crate) fn report_reach(&self, is_reached: bool) {
        let first = lock(&self.mailboxes).keys().next().copied();
        if let Some(core) = first {
            self.answer(core, Mail::Reach { is_reached });
        }
    }

    /// Requests wait or fail for this reason, or they do not. True where it is another reason than before.
    pub(crate) fn set_outage(&self, outage: Option<String>) -> bool {
        let mut known = lock(&self.outage);
        let differs = *known != outage;
        *known = outage;
        differs
    }

    /// There is no thread for an attendant, so nothing is carried out.
    pub(crate) fn note_gone(&self, error: &io::Error) {
        self.set_outage(Some(format!("there is no thread for it: {error}")));
        self.is_gone.store(true, Ordering::SeqCst);
    }

    /// A session has begun or ended.
    pub(crate) fn note_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::SeqCst);
        if is_up {
            self.sessions.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many jobs wait for a session.
    pub(crate) fn note_held(&self, held: u64) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// What the device is now, as far as is known.
    pub(crate) fn now(&self) -> Arc<Facts> {
        Arc::clone(&lock(&self.now))
    }

    /// Takes over what a look at the device has found, in its session or before it; `None`: it has no size. An error:
    /// why it must not be used.
    pub(crate) fn renew(&self, found: Option<Facts>) -> Result<(), String> {
        let (what, known) = (self.what, &self.facts);
        let now = found.ok_or_else(|| format!("the {what} does not say its size any more"))?;
        if !now.is_disk {
            return Err(format!("the {what} is no disk any more"));
        }
        let is_same = match (&now.identity, &known.identity) {
            (Some(now), Some(known)) => now.is_same(known),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_same {
            return Err(format!("the {what} is another one now"));
        }
        if now.block_bytes != known.block_bytes {
            return Err(format!("the {what} has other blocks than before"));
        }
        let before = self.size_bytes.load(Ordering::SeqCst);
        if now.size_bytes < before {
            let size_bytes = now.size_bytes;
            return Err(format!(
                "the {what} had {before} bytes and has {size_bytes}"
            ));
        }
        if now.is_read_only && !known.is_read_only && !self.terms.read_only {
            return Err(format!("the {what} is read-only now"));
        }
        self.note_size(now.size_bytes);
        *lock(&self.now) = Arc::new(now);
        Ok(())
    }

    /// The device has this size.
    fn note_size(&self, size_bytes: u64) {
        // One that is smaller keeps requests from what is gone by its own answers.
        if self.size_bytes.fetch_max(size_bytes, Ordering::SeqCst) < size_bytes {
            for mailbox in lock(&self.mailboxes).values() {
                mailbox.push(Mail::Size);
            }
        }
    }

    /// From now on a handle gets mail. The first one begins the attendant: a confined process has all its rights
    /// already then.
    pub(crate) fn begin(self: &Arc<Self>, core: usize, mailbox: Sender<Mail>) {
        lock(&self.mailboxes).insert(core, mailbox);
        if let Some(begin) = lock(&self.begin).take() {
            begin(self);
        }
    }

    pub(crate) fn end(&self, core: usize) {
        lock(&self.mailboxes).remove(&core);
    }

    pub(crate) fn outage(&self) -> Option<String> {
        let reason = lock(&self.outage).clone()?;
        Some(format!("{}: {reason}", self.server))
    }

    pub(crate) fn connections(&self) -> Connections {
        Connections {
            up: self.is_up.load(Ordering::SeqCst).into(),
            again: self.sessions.load(Ordering::SeqCst).saturating_sub(1),
            held: self.held.load(Ordering::SeqCst),
        }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let (facts, terms) = (&self.facts, &self.terms);
        let block_bytes = terms.block_bytes;
        let size_bytes = self.size_bytes.load(Ordering::SeqCst);
        let physical = facts.physical_bytes.max(block_bytes);
        let read_only = terms.read_only || facts.is_read_only;
        let granularity = facts.granularity_bytes.max(block_bytes);
        Capabilities {
            size_bytes: size_bytes - size_bytes % u64::from(block_bytes),
            block_bytes,
            physical_block_bytes: match physical.is_power_of_two() {
                true => physical,
                false => block_bytes,
            },
            read_only,
            thin: terms.thin && facts.can_unmap && !read_only,
            unmap_granularity_bytes: match granularity.is_multiple_of(block_bytes) {
                true => granularity,
                false => block_bytes,
            },
            reads_in_place: false,
            in_place_unit_bytes: 0,
            // What waits for its turn must not keep a chunk from receiving.
            needs_own_buffer: true,
            // One that has none may get one, and flushes are passed on anyway.
            volatile_cache: true,
            writes_through: false,
            solid_state: !facts.is_rotating,
            compare_and_write_bytes: self.compare_bytes(),
        }
    }

    /// The largest power of two that one COMPARE AND WRITE compares.
    fn compare_bytes(&self) -> u32 {
        let bytes = u32::from(self.facts.compare_blocks) * self.facts.block_bytes;
        match bytes.checked_ilog2() {
            Some(exponent) if 1 << exponent >= self.terms.block_bytes => 1 << exponent,
            Some(_) | None => 0,
        }
    }
}

/// Handles and stores have it; when the last is gone, the attendant ends.
#[derive(Debug)]
pub(crate) struct Users(pub(crate) Arc<Common>);

impl Drop for Users {
    fn drop(&mut self) {
        self.0.post(Letter::End);
    }
}
