//! What the handles of all cores and the attendant have in common.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use store::{Capabilities, Sender, Writes};

use super::command::Facts;
use super::job::{Brought, Letter, Mail};
use super::link::{Link, NoDisk, Whose};
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

/// What shows that a device may have lost its cache.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Losses {
    /// The end of a session: its server may have ended, and says nothing of it in the next one.
    WithSession,
    /// What the device says in the next session: its unit attention that its power was off or it was reset inside.
    /// A connection that breaks takes no cache with it.
    AsTold,
}

/// Starts the attendant, as soon as somebody uses the store.
pub(crate) type Begin = Box<dyn FnOnce(&Arc<Common>) + Send>;

/// What all share.
pub(crate) struct Common {
    pub(crate) terms: Terms,
    link: Link<Brought>,
    pub(crate) losses: Losses,
    /// As it was when the store was opened.
    pub(crate) facts: Facts,
    /// As it was when it was last looked at.
    now: Mutex<Arc<Facts>>,
    pub(crate) size_bytes: AtomicU64,
    pub(crate) writes: Writes,
    /// Each handle has a bounded number of jobs, and cancels each once.
    queue: Mutex<VecDeque<Letter>>,
    /// Until the attendant runs.
    begin: Mutex<Option<Begin>>,
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

impl Deref for Common {
    type Target = Link<Brought>;

    fn deref(&self) -> &Self::Target {
        &self.link
    }
}

impl Common {
    /// What was found, and what begins its attendant. A device that says which one it is has one store at a time.
    pub(crate) fn new(
        terms: Terms,
        whose: Whose,
        losses: Losses,
        facts: Facts,
        begin: Begin,
    ) -> Result<Self, NoDisk> {
        Ok(Self {
            terms,
            link: Link::new(whose, facts.identity.clone())?,
            losses,
            size_bytes: AtomicU64::new(facts.size_bytes),
            now: Mutex::new(Arc::new(facts.clone())),
            facts,
            writes: Writes::default(),
            queue: Mutex::default(),
            begin: Mutex::new(Some(begin)),
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
            self.wake();
        }
    }

    /// What has been left for the attendant.
    pub(crate) fn take_letters(&self) -> VecDeque<Letter> {
        std::mem::take(&mut *lock(&self.queue))
    }

    /// What the device is now, as far as is known.
    pub(crate) fn now(&self) -> Arc<Facts> {
        Arc::clone(&lock(&self.now))
    }

    /// Takes over what a look at the device has found, in its session or before it; `None`: it has no size. An error:
    /// why it must not be used.
    pub(crate) fn renew(&self, found: Option<Facts>) -> Result<(), String> {
        let known = &self.facts;
        let now = found.ok_or_else(|| self.of_device("does not say its size any more"))?;
        if !now.is_disk {
            return Err(self.of_device("is no disk any more"));
        }
        self.check_identity(now.identity.as_ref())?;
        if now.block_bytes != known.block_bytes {
            return Err(self.of_device("has other blocks than before"));
        }
        let before = self.size_bytes.load(Ordering::SeqCst);
        if now.size_bytes < before {
            let size_bytes = now.size_bytes;
            let change = format!("had {before} bytes and has {size_bytes}");
            return Err(self.of_device(&change));
        }
        if now.is_read_only && !known.is_read_only && !self.terms.read_only {
            return Err(self.of_device("is read-only now"));
        }
        self.note_size(now.size_bytes);
        *lock(&self.now) = Arc::new(now);
        Ok(())
    }

    /// The device has this size.
    fn note_size(&self, size_bytes: u64) {
        // One that is smaller keeps requests from what is gone by its own answers.
        if self.size_bytes.fetch_max(size_bytes, Ordering::SeqCst) < size_bytes {
            self.announce(|| Mail::Size);
        }
    }

    /// From now on a handle gets mail. The first one begins the attendant: a confined process has all its rights
    /// already then.
    pub(crate) fn begin(self: &Arc<Self>, core: usize, mailbox: Sender<Mail>) {
        self.add_mailbox(core, mailbox);
        if let Some(begin) = lock(&self.begin).take() {
            begin(self);
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
