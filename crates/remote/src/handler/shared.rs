//! What the handles of all cores have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};

use store::{HelperAnswer, HelperResult, IoFailure, Waker};

use super::meet::{Area, Met};
use super::options::{HandlerFailure, HandlerOptions};
use crate::device::shared::Known;
use crate::device::telling::Telling;
use crate::lock;
use crate::scsi::link::{Link, Whose};

/// DEVICE INTERNAL RESET.
pub(super) const RESET: (u8, u8) = (0x29, 0x04);

/// What a helper has made for a handle.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) ring: handler::Ring<Area>,
    /// The life in which it began.
    pub(super) life: u64,
}

/// The handles, by number.
#[derive(Debug, Default)]
struct Handles {
    wakers: BTreeMap<usize, Waker>,
    /// Requests that wait there for a connection.
    held: BTreeMap<usize, u64>,
    /// Those that have had none for too long.
    lost: BTreeSet<usize>,
    /// A connection of this life was up.
    begun: Option<u64>,
}

/// What all handles share.
pub(super) struct Shared {
    pub(super) options: HandlerOptions,
    pub(super) link: Link<()>,
    pub(super) known: Known,
    /// Ends with the loss of any connection; all connections of it are of no use then.
    life: AtomicU64,
    /// The code of a unit attention that no command has reported yet; 0: there is none.
    owed: AtomicU16,
    pub(super) telling: Telling,
    handles: Mutex<Handles>,
    count: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(options: HandlerOptions) -> Result<Self, HandlerFailure> {
        let found = Met::new(&options.path)?.look()?;
        let found = found.ok_or(HandlerFailure::NoInquiry)?;
        // By whatever link it was named.
        let path = std::fs::canonicalize(&options.path).unwrap_or_else(|_| options.path.clone());
        let device = path.display().to_string();
        let whose = Whose {
            kind: "a handler",
            what: "device of this handler",
            server: device.clone(),
            store: format!("handler:{device}"),
            device,
        };
        Ok(Self {
            options,
            link: Link::at_place(whose, found.identity, false)?,
            known: Known::new(found.facts),
            life: AtomicU64::new(0),
            owed: AtomicU16::new(0),
            telling: Telling::default(),
            handles: Mutex::default(),
            count: AtomicUsize::new(0),
        })
    }

    /// The number of a new handle.
    pub(super) fn next_number(&self) -> usize {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    pub(super) fn life(&self) -> u64 {
        self.life.load(Ordering::SeqCst)
    }

    /// Makes a connection, on a helper thread: its socket is the result, the rest goes into `place`.
    pub(super) fn connect(&self, place: &Mutex<Option<Made>>) -> HelperResult {
        let life = self.life();
        let met = self.meet().map_err(|reason| {
            self.link.note_reason(reason);
            IoFailure::NotReady
        })?;
        let Met { stream, ring, .. } = met;
        *lock(place) = Some(Made { ring, life });
        Ok(HelperAnswer::Socket(stream.into()))
    }

    /// Connects, and looks whether it is the same device. An error: why it cannot be used.
    fn meet(&self) -> Result<Met, String> {
        let mut met = Met::new(&self.options.path).map_err(|error| error.to_string())?;
        let found = met.look().map_err(|error| error.to_string())?;
        self.known.renew(&self.link, found)?;
        if met.had_attention && lock(&self.handles).begun.is_some() {
            self.owe(RESET);
        }
        Ok(met)
    }

    pub(super) fn add(&self, number: usize, waker: Waker) {
        lock(&self.handles).wakers.insert(number, waker);
    }

    pub(super) fn remove(&self, number: usize) {
        let mut handles = lock(&self.handles);
        handles.wakers.remove(&number);
        handles.held.remove(&number);
        handles.lost.remove(&number);
    }

    /// A connection of a life is up.
    pub(super) fn begin(&self, life: u64) {
        let mut handles = lock(&self.handles);
        match handles.begun.replace(life) == Some(life) {
            true => drop(self.link.set_outage(None)),
            false => self.link.begin_session(),
        }
    }

    /// A connection of a life is lost, and with it all others.
    pub(super) fn end(&self, life: u64, reason: &str) {
        let handles = lock(&self.handles);
        if self.life() != life {
            return;
        }
        self.life.store(life + 1, Ordering::SeqCst);
        self.owe(RESET);
        self.link.lose_session(reason);
        for waker in handles.wakers.values() {
            waker.wake();
        }
    }

    /// The next command reports this. Of two that differ it reports that the device was reset, which says it all.
    pub(super) fn owe(&self, (code, qualifier): (u8, u8)) {
        let attention = u16::from_be_bytes([code, qualifier]);
        let reset = u16::from_be_bytes(RESET.into());
        let before = self.owed.swap(attention, Ordering::SeqCst);
        if before != 0 && before != attention {
            self.owed.store(reset, Ordering::SeqCst);
        }
    }

    /// What a command of this nexus has to report. It is asked once for each that can.
    pub(super) fn take_owed(&self, nexus: u64) -> Option<(u8, u8)> {
        if self.owed.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let [code, qualifier] = self.owed.swap(0, Ordering::SeqCst).to_be_bytes();
        (code != 0).then(|| {
            self.telling.begin(nexus);
            (code, qualifier)
        })
    }

    /// How many requests wait at a handle.
    pub(super) fn note_held(&self, number: usize, held: u64) {
        let mut handles = lock(&self.handles);
        handles.held.insert(number, held);
        self.link.note_held(handles.held.values().sum());
    }

    /// A handle has had no connection for too long, or has one again. True where that is news to administrators.
    pub(super) fn note_lost(&self, number: usize, is_lost: bool) -> bool {
        let lost = &mut lock(&self.handles).lost;
        let changes = match is_lost {
            true => lost.insert(number),
            false => lost.remove(&number),
        };
        changes && lost.len() == usize::from(is_lost)
    }
}
