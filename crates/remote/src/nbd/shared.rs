//! What the handles of all cores have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use nbd::Export;
use store::{Capabilities, Connections, IoFailure, Sender, Writes};

use super::job::Brought;
use super::options::NbdOptions;
use super::tls::Tls;
use crate::lock;

/// From one core to another.
#[derive(Debug)]
pub(super) enum Mail {
    /// A core without a connection asks one that has some.
    Job {
        /// The core that asks.
        from: usize,
        /// Its name for the job.
        number: u64,
        /// In bytes.
        offset: u64,
        /// What is to be done.
        work: nbd::Work,
    },
    /// The job of that number is over.
    Done {
        /// As the core that asked called it.
        number: u64,
        /// How it went.
        result: Result<(), IoFailure>,
        /// What it brought.
        brought: Brought,
    },
    /// The job of that number was not carried out: the core that was asked is gone, or has no connection for it.
    Back {
        /// As the core that asked called it.
        number: u64,
        /// Its connection was lost.
        is_lost: bool,
    },
    /// A core can be asked now.
    Hello,
    /// The export is larger than before.
    Size,
}

/// Whether a core can be asked.
#[derive(Debug, Default)]
pub(super) enum Mailbox {
    /// Not yet.
    #[default]
    Absent,
    /// It can.
    Here(Sender<Mail>),
    /// No longer.
    Gone,
}

/// Which handles have no connection, and why.
#[derive(Debug, Default)]
struct Outages {
    handles: BTreeSet<usize>,
    /// Of the last attempt of any handle.
    reason: String,
}

/// The connections that are up, and what a flush on each does not cover.
#[derive(Debug, Default)]
struct Ups {
    /// How many have come up so far.
    count: u64,
    up: BTreeMap<(usize, usize), Up>,
}

#[derive(Debug)]
struct Up {
    /// It was the one of this number, from 1 on.
    number: u64,
    /// So many writes may have been answered by a server that is no more, while their own connection does not know it
    /// yet: those that were answered before this connection came up, or had begun then. A flush on it covers those that
    /// began later, on any connection.
    older: u64,
}

/// What became of a letter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Posted {
    Sent,
    /// The core cannot be asked yet.
    NotYet,
    /// The core cannot be asked any more.
    Gone,
}

/// What all handles share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: NbdOptions,
    pub(super) tls: Option<Tls>,
    /// As it was when the store was opened, except its size.
    pub(super) export: Export,
    pub(super) size_bytes: AtomicU64,
    pub(super) writes: Writes,
    /// How many connections there are for all cores.
    pub(super) connections: usize,
    outages: Mutex<Outages>,
    /// Connections, by handle and slot, that have been up.
    known: Mutex<BTreeSet<(usize, usize)>>,
    /// The connections that are up, by handle and slot.
    ups: Mutex<Ups>,
    again: AtomicU64,
    held: AtomicU64,
    /// How large the export is for each connection that is up, by handle and slot: a connection knows the size of its
    /// beginning.
    sizes: Mutex<BTreeMap<(usize, usize), u64>>,
    /// By the number of the handle.
    mailboxes: Mutex<Vec<Mailbox>>,
    handles: AtomicUsize,
}

impl Shared {
    pub(super) fn new(options: NbdOptions, export: Export, tls: Option<Tls>) -> Self {
        let connections = match export.flags.can_multi_conn() {
            true => options.connections.max(1),
            false => 1,
        };
        Self {
            options,
            tls,
            size_bytes: AtomicU64::new(export.size_bytes),
            export,
            writes: Writes::default(),
            connections,
            outages: Mutex::default(),
            known: Mutex::default(),
            ups: Mutex::default(),
            again: AtomicU64::new(0),
            held: AtomicU64::new(0),
            sizes: Mutex::default(),
            mailboxes: Mutex::default(),
            handles: AtomicUsize::new(0),
        }
    }

    fn mailboxes(&self) -> MutexGuard<'_, Vec<Mailbox>> {
        lock(&self.mailboxes)
    }

    fn outages(&self) -> MutexGuard<'_, Outages> {
        lock(&self.outages)
    }

    /// A handle has no connection, or has one again.
    pub(super) fn note_outage(&self, number: usize, is_out: bool) {
        let mut outages = self.outages();
        match is_out {
            true => outages.handles.insert(number),
            false => outages.handles.remove(&number),
        };
    }

    /// A connection is up with this size, or down. When all that are up know a larger size than before, that is the
    /// size of the store from now on. All cores get mail, as the one that owns the unit need not have the connection.
    pub(super) fn note_size(&self, place: (usize, usize), bytes: Option<u64>) {
        let mut sizes = lock(&self.sizes);
        match bytes {
            Some(bytes) => sizes.insert(place, bytes),
            None => sizes.remove(&place),
        };
        let least = sizes.values().min().copied().unwrap_or(0);
        drop(sizes);
        if self.size_bytes.fetch_max(least, Ordering::SeqCst) < least {
            for core in self.mailboxes().iter() {
                if let Mailbox::Here(sender) = core {
                    sender.push(Mail::Size);
                }
            }
        }
    }

    fn ups(&self) -> MutexGuard<'_, Ups> {
        lock(&self.ups)
    }

    /// How many connections have come up so far.
    pub(super) fn count_ups(&self) -> u64 {
        self.ups().count
    }

    /// The server has answered a write that is not durable. So many connections had come up when it began.
    pub(super) fn note_answered(&self, begun: u64) {
        // Who has a mark behind this write looks for connections after this.
        let mut ups = self.ups();
        self.writes.note_answered();
        if ups.count > begun {
            let answered = self.writes.mark();
            for up in ups.up.values_mut().filter(|up| up.number > begun) {
                up.older = answered;
            }
        }
    }

    /// A connection is not up any more.
    pub(super) fn note_down(&self, place: (usize, usize)) {
        self.ups().up.remove(&place);
        self.note_size(place, None);
    }

    /// The connections on which a flush covers all that is not covered, by handle and slot.
    pub(super) fn flushers(&self) -> Vec<(usize, usize)> {
        let ups = self.ups();
        let covered = self.writes.covered();
        let fit = ups.up.iter().filter(|(_, up)| up.older <= covered);
        fit.map(|(place, _)| *place).collect()
    }

    /// A connection is up.
    pub(super) fn note_up(&self, place: (usize, usize)) {
        let mut ups = self.ups();
        ups.count += 1;
        let up = Up {
            number: ups.count,
            older: self.writes.mark(),
        };
        ups.up.insert(place, up);
        drop(ups);
        let mut known = lock(&self.known);
        if !known.insert(place) {
            self.again.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A handle has so many jobs waiting, and had so many before.
    pub(super) fn note_held(&self, before: u64, now: u64) {
        self.held.fetch_add(now, Ordering::Relaxed);
        let held = self.held.fetch_sub(before, Ordering::Relaxed);
        debug_assert!(held >= before, "{before} of {held} were held");
    }

    /// Why an attempt to connect failed, or a connection ended.
    pub(super) fn note_reason(&self, reason: String) {
        self.outages().reason = reason;
    }

    /// From now on a core can be asked, or no longer; all others get to know the first.
    pub(super) fn set_mailbox(&self, number: usize, mailbox: Mailbox) {
        let mut all = self.mailboxes();
        if all.len() <= number {
            all.resize_with(number + 1, Mailbox::default);
        }
        let is_here = matches!(mailbox, Mailbox::Here(_));
        if let Some(place) = all.get_mut(number) {
            *place = mailbox;
        }
        for other in all.iter().filter(|_| is_here) {
            if let Mailbox::Here(sender) = other {
                sender.push(Mail::Hello);
            }
        }
    }

    /// Leaves a letter for another core.
    pub(super) fn post(&self, to: usize, mail: Mail) -> Posted {
        match self.mailboxes().get(to) {
            Some(Mailbox::Here(sender)) => {
                sender.push(mail);
                Posted::Sent
            }
            Some(Mailbox::Gone) => Posted::Gone,
            Some(Mailbox::Absent) | None => Posted::NotYet,
        }
    }

    /// Whether the export that a new connection found is the one that was opened.
    pub(super) fn check(&self, export: &Export) -> Result<(), String> {
        let known = &self.export;
        let size_bytes = self.size_bytes.load(Ordering::SeqCst);
        if export.size_bytes < size_bytes {
            return Err(format!(
                "the export had {size_bytes} bytes and has {}",
                export.size_bytes
            ));
        }
        let before = known.flags.0;
        if export.flags.0 & before != before
            || export.flags.is_read_only() != known.flags.is_read_only()
        {
            return Err("the export can do less than before".to_owned());
        }
        // What was answered counts as durable, and is not flushed.
        if export.flags.can_flush() && !known.flags.can_flush() {
            return Err("the export has a cache and had none before".to_owned());
        }
        if export.block_min_bytes > known.block_min_bytes
            || export.payload_max_bytes < known.payload_max_bytes
        {
            return Err("the export has other block sizes than before".to_owned());
        }
        Ok(())
    }

    /// The next handle.
    pub(super) fn next_number(&self) -> usize {
        self.handles.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn connections_now(&self) -> Connections {
        let sizes = lock(&self.sizes);
        Connections {
            up: sizes.len() as u64,
            again: self.again.load(Ordering::Relaxed),
            held: self.held.load(Ordering::Relaxed),
        }
    }

    pub(super) fn outage(&self) -> Option<String> {
        let outages = self.outages();
        let reason = match outages.reason.as_str() {
            "" => "no connection was made yet",
            reason => reason,
        };
        let server = &self.options.server;
        (!outages.handles.is_empty()).then(|| format!("{server}: {reason}"))
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let (flags, block_bytes) = (self.export.flags, self.options.block_bytes);
        let read_only = self.options.read_only || flags.is_read_only();
        let preferred = self.export.block_preferred_bytes;
        let physical = match preferred.is_power_of_two() {
            true => preferred.clamp(block_bytes, PHYSICAL_BYTES_MAX),
            false => block_bytes,
        };
        let size_bytes = self.size_bytes.load(Ordering::SeqCst);
        Capabilities {
            size_bytes: size_bytes - size_bytes % u64::from(block_bytes),
            block_bytes,
            physical_block_bytes: physical,
            read_only,
            thin: self.options.thin && flags.can_write_zeroes() && !read_only,
            unmap_granularity_bytes: block_bytes,
            reads_in_place: false,
            in_place_unit_bytes: 0,
            // Data stays until it is answered, in case it has to be sent again; a receive chunk must not.
            needs_own_buffer: true,
            volatile_cache: flags.can_flush(),
            writes_through: false,
            solid_state: !flags.is_rotational(),
            compare_and_write_bytes: 0,
        }
    }
}

/// Larger preferred blocks are a matter of speed, not of a medium.
const PHYSICAL_BYTES_MAX: u32 = 64 << 10;
