//! What the handles of all cores and the attendant have in common.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyperscsi::Device;
use rustix::event::{EventfdFlags, eventfd};
use store::{Backstore, Capabilities, Sender, SharedStore};

use super::attendant;
use super::handle::HyperscsiHandle;
use super::job::{Letter, Mail};
use super::open::{HyperscsiOptions, Look};
use super::scsi::Facts;
use super::station::Station;
use crate::writes::Writes;

/// What all share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) options: HyperscsiOptions,
    /// The server that has the device, whatever its address is.
    pub(super) server: [u8; 16],
    pub(super) server_name: String,
    /// As it was when the store was opened.
    pub(super) device: Device,
    /// The same, except the size.
    pub(super) facts: Facts,
    pub(super) size_bytes: AtomicU64,
    pub(super) writes: Writes,
    /// Each handle has a bounded number of jobs, and cancels each once.
    queue: Mutex<VecDeque<Letter>>,
    /// Wakes the attendant.
    pub(super) event: OwnedFd,
    /// Until the attendant has it.
    station: Mutex<Option<Station>>,
    mailboxes: Mutex<BTreeMap<usize, Sender<Mail>>>,
    outage: Mutex<Option<String>>,
    /// There is no attendant, so nothing is carried out.
    pub(super) is_gone: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Common {
    /// Leaves a letter for the attendant.
    pub(super) fn post(&self, letter: Letter) {
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
    pub(super) fn take_letters(&self) -> VecDeque<Letter> {
        std::mem::take(&mut *lock(&self.queue))
    }

    /// The attendant was woken. It takes the letters after this: those that come then wake it again.
    pub(super) fn note_woken(&self) {
        let mut count = [0; 8];
        let _read = rustix::io::read(&self.event, &mut count);
    }

    /// Leaves mail for a handle. One that is gone needs none.
    pub(super) fn answer(&self, core: usize, mail: Mail) {
        if let Some(mailbox) = lock(&self.mailboxes).get(&core) {
            mailbox.push(mail);
        }
    }

    /// The first handle reports to administrators, so that it comes once.
    pub(super) fn report_reach(&self, is_reached: bool) {
        let first = lock(&self.mailboxes).keys().next().copied();
        if let Some(core) = first {
            self.answer(core, Mail::Reach { is_reached });
        }
    }

    /// Requests wait or fail for this reason, or they do not. True where it is another reason than before.
    pub(super) fn set_outage(&self, outage: Option<String>) -> bool {
        let mut known = lock(&self.outage);
        let differs = *known != outage;
        *known = outage;
        differs
    }

    /// The device has this size.
    pub(super) fn note_size(&self, size_bytes: u64) {
        // One that is smaller keeps requests from what is gone by its own answers.
        if self.size_bytes.fetch_max(size_bytes, Ordering::SeqCst) < size_bytes {
            for mailbox in lock(&self.mailboxes).values() {
                mailbox.push(Mail::Size);
            }
        }
    }

    /// From now on a handle gets mail. The first one begins the attendant: a confined process has all its rights
    /// already then.
    pub(super) fn begin(self: &Arc<Self>, core: usize, mailbox: Sender<Mail>) {
        lock(&self.mailboxes).insert(core, mailbox);
        if let Some(station) = lock(&self.station).take() {
            attendant::begin(self, station);
        }
    }

    pub(super) fn end(&self, core: usize) {
        lock(&self.mailboxes).remove(&core);
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let (facts, options) = (&self.facts, &self.options);
        let block_bytes = options.block_bytes;
        let size_bytes = self.size_bytes.load(Ordering::SeqCst);
        let physical = facts.physical_bytes.max(block_bytes);
        let read_only = options.read_only || facts.is_read_only || self.device.is_read_only;
        let granularity = facts.granularity_bytes.max(block_bytes);
        Capabilities {
            size_bytes: size_bytes - size_bytes % u64::from(block_bytes),
            block_bytes,
            physical_block_bytes: match physical.is_power_of_two() {
                true => physical,
                false => block_bytes,
            },
            read_only,
            thin: options.thin && facts.can_unmap && !read_only,
            unmap_granularity_bytes: match granularity.is_multiple_of(block_bytes) {
                true => granularity,
                false => block_bytes,
            },
            reads_in_place: false,
            in_place_unit_bytes: 0,
            // What waits for its turn must not keep a chunk from receiving.
            needs_own_buffer: true,
            volatile_cache: facts.has_cache,
            solid_state: !facts.is_rotating,
            compare_and_write_bytes: self.compare_bytes(),
        }
    }

    /// The largest power of two that one COMPARE AND WRITE compares.
    fn compare_bytes(&self) -> u32 {
        let bytes = u32::from(self.facts.compare_blocks) * self.facts.block_bytes;
        match bytes.checked_ilog2() {
            Some(exponent) if 1 << exponent >= self.options.block_bytes => 1 << exponent,
            Some(_) | None => 0,
        }
    }
}

/// Handles and stores have it; when the last is gone, the attendant ends.
#[derive(Debug)]
pub(super) struct Users(pub(super) Arc<Common>);

impl Drop for Users {
    fn drop(&mut self) {
        self.0.post(Letter::End);
    }
}

/// A device as a store.
#[derive(Debug)]
pub(super) struct HyperscsiDisk {
    users: Arc<Users>,
    handles: AtomicUsize,
}

impl HyperscsiDisk {
    pub(super) fn new(options: HyperscsiOptions, station: Station, look: Look) -> io::Result<Self> {
        let common = Common {
            options,
            server: look.server,
            server_name: look.server_name,
            device: look.device,
            size_bytes: AtomicU64::new(look.facts.size_bytes),
            facts: look.facts,
            writes: Writes::default(),
            queue: Mutex::default(),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            station: Mutex::new(Some(station)),
            mailboxes: Mutex::default(),
            outage: Mutex::default(),
            is_gone: AtomicBool::new(false),
        };
        Ok(Self {
            users: Arc::new(Users(Arc::new(common))),
            handles: AtomicUsize::new(0),
        })
    }
}

impl SharedStore for HyperscsiDisk {
    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let number = self.handles.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(HyperscsiHandle::new(
            Arc::clone(&self.users),
            number,
        )))
    }

    fn capabilities(&self) -> Capabilities {
        self.users.0.capabilities()
    }

    fn probe_size(&self) -> io::Result<()> {
        // The device reports a change to the attendant.
        Ok(())
    }

    fn is_flush_latched(&self) -> bool {
        self.users.0.writes.is_latched()
    }

    fn outage(&self) -> Option<String> {
        let common = &self.users.0;
        let reason = lock(&common.outage).clone()?;
        Some(format!("server {:?}: {reason}", common.server_name))
    }
}
