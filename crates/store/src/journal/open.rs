//! Opening a store with its log device, which replays what the store may not have.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::Journal;
use super::books::Bias;
use super::format::{
    BLOCK_BYTES, Deed, Entry, Header, LogId, RECORD_BYTES_MAX, UnitName, ring_bytes,
};
use super::replay::{Binding, Medium, Misfit, Replayed, find, replay};
use super::shared::{Alone, Noted, OnClose, Use};
use crate::blocking::Blocking;
use crate::{Backstore, Capabilities, SharedStore};

/// What is known of the log of a unit, outside of the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Known {
    /// The log that it was served with last.
    pub log: Binding,
    /// How it stood to that.
    pub how: Use,
}

/// How a store is opened with a log.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// The designator of the unit.
    pub unit: UnitName,
    /// What is known of its log, if it ever had one.
    pub known: Option<Known>,
    /// The name of the log, if it has to be made.
    pub new_id: LogId,
    /// What the log is for.
    pub bias: Bias,
    /// Every change is durable before it is answered.
    pub writes_through: bool,
    /// Where it is kept how the unit stands to its log.
    pub noted: Arc<dyn Noted>,
}

/// Why a store is not served with a log.
#[derive(Debug, thiserror::Error)]
pub enum NotLogged {
    /// An administrator has to decide what becomes of what the unit's own log may have.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// There is no room for a log.
    #[error(
        "it has {bytes} bytes, less than the {} that a log needs; make it larger (size=)",
        super::LOG_BYTES_MIN
    )]
    Small {
        /// The size of the log device.
        bytes: u64,
    },
}

/// A store and its log device, for all cores.
#[derive(Debug)]
pub struct Logged {
    store: Arc<dyn SharedStore>,
    log: Arc<dyn SharedStore>,
    journal: Journal,
    replayed: Replayed,
}

impl Medium for Blocking {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        Self::read(self, offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        Self::write(self, offset, bytes)
    }

    fn clear(&self, range: Range<u64>, unmap: bool) -> io::Result<()> {
        Self::clear(self, range, unmap)
    }

    fn sync(&self) -> io::Result<()> {
        Self::sync(self)
    }
}

impl Logged {
    /// Finds the log of the unit on the log device, writes to the store what it has, and begins a new generation. Both
    /// must be files or block devices, and the store must write lazily. May take as long as that takes.
    ///
    /// # Errors
    ///
    /// The log is not that of the unit, or cannot be used.
    pub fn open(
        store: Arc<dyn SharedStore>,
        log: Arc<dyn SharedStore>,
        options: &LogOptions,
    ) -> Result<Self, NotLogged> {
        let log_bytes = log.capabilities().size_bytes;
        let ring_bytes = ring_bytes(log_bytes).ok_or(NotLogged::Small { bytes: log_bytes })?;
        let (device, medium) = (
            Blocking::new(&*log).map_err(Misfit::from)?,
            Blocking::new(&*store).map_err(Misfit::from)?,
        );
        let size = store.capabilities().size_bytes;
        let begun =
            recover(&device, log_bytes, &medium, size, options).and_then(|(last, replayed)| {
                let header = begin(&device, last, ring_bytes, options)?;
                Ok((header, replayed))
            });
        let (header, replayed, alone) = match begun {
            Ok((header, replayed)) => {
                let binding = Binding {
                    id: header.id,
                    generation: header.generation,
                };
                let noted = options.noted.note(binding, Use::Serving);
                // The log has no records: the next start replays nothing of it, whatever of this was saved.
                let alone = noted.err().map(|_| Alone::NotNoted);
                (header, replayed, alone)
            }
            // The store has everything.
            Err(Misfit::Io(_)) if options.known.is_some_and(|known| is_apart(known.how)) => {
                let header = first_header(options, ring_bytes);
                (header, Replayed::default(), Some(Alone::Unreadable))
            }
            Err(misfit) => return Err(misfit.into()),
        };
        let (bias, writes_through) = (options.bias, options.writes_through);
        let journal = Journal::new(
            header,
            bias,
            writes_through,
            Arc::clone(&options.noted),
            alone,
        );
        let close = {
            let (store, log, noted) = (
                Arc::clone(&store),
                Arc::clone(&log),
                Arc::clone(&options.noted),
            );
            move |header| drop(close(&*store, &*log, &*noted, &header))
        };
        let closing = Some(OnClose(Box::new(close)));
        *journal
            .0
            .closing
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = closing;
        Ok(Self {
            store,
            log,
            journal,
            replayed,
        })
    }

    /// How many changes of the store were found in the log and written to the store.
    pub const fn replayed(&self) -> u64 {
        self.replayed.entries
    }

    /// Closes the log, if no core has a handle any more. Blocks for as long as a sync of the store takes. Where it is
    /// not called, the last one who drops the store begins the same in the background.
    pub fn close(&self) {
        if Arc::strong_count(&self.journal.0) == 1
            && let Some((closing, header)) = self.journal.0.take_closing()
        {
            (closing.0)(header);
        }
    }

    /// The log device.
    pub fn device(&self) -> Arc<dyn SharedStore> {
        Arc::clone(&self.log)
    }

    /// Why the log is not in use any more, in words.
    pub fn trouble(&self) -> Option<&'static str> {
        self.journal.trouble()
    }
}

/// Brings the store to where the log ends. The last header of the log, if it has one, and what was done.
///
/// The store is synced in any case: an earlier process may have been killed with changes in the cache of the kernel, which no
/// flush of this one would make durable.
pub(super) fn recover(
    log: &impl Medium,
    log_bytes: u64,
    store: &impl Medium,
    store_bytes: u64,
    options: &LogOptions,
) -> Result<(Option<Header>, Replayed), Misfit> {
    let found = read_back(log, log_bytes, store, store_bytes, options);
    store.sync()?;
    found
}

fn read_back(
    log: &impl Medium,
    log_bytes: u64,
    store: &impl Medium,
    store_bytes: u64,
    options: &LogOptions,
) -> Result<(Option<Header>, Replayed), Misfit> {
    let is_served = |known: &Known| known.how == Use::Serving;
    let served = options.known.filter(is_served).map(|known| known.log);
    if options
        .known
        .is_some_and(|known| known.how == Use::Discarded)
    {
        return Ok((None, Replayed::default()));
    }
    let Some(header) = find(log, log_bytes, &options.unit, served)? else {
        return Ok((None, Replayed::default()));
    };
    if let Some(known) = options.known.filter(|known| !is_served(known)) {
        // The store has everything, and may have had more since; another log of the unit is an older one.
        if header.id != known.log.id && !header.is_clean {
            return Err(Misfit::OtherLog);
        }
        return Ok((Some(header), Replayed::default()));
    }
    let mut refused: Option<(u64, Misfit)> = None;
    // What the store refuses is left out, and stays in the log: an administrator who decides to do without it loses no more.
    let done = replay(log, &header, |entry| {
        if let Err(misfit) = apply(store, store_bytes, &entry) {
            refused.get_or_insert((0, misfit)).0 += 1;
        }
        Ok(())
    })?;
    match refused {
        None => Ok((Some(header), done)),
        Some((failed, first)) => Err(Misfit::NotReplayed {
            failed,
            entries: done.entries,
            first: Box::new(first),
        }),
    }
}

fn apply(store: &impl Medium, store_bytes: u64, entry: &Entry) -> Result<(), Misfit> {
    let Entry { deed, range, data } = entry;
    if range.end > store_bytes {
        return Err(Misfit::StoreEnds { byte: range.end });
    }
    match deed {
        Deed::Write => store.write(range.start, data)?,
        Deed::Zeros => store.clear(range.clone(), false)?,
        Deed::Unmap => store.clear(range.clone(), true)?,
    }
    Ok(())
}

/// Whether the store has everything, so that its log is not to be replayed.
const fn is_apart(how: Use) -> bool {
    match how {
        Use::Left | Use::Closed => true,
        Use::Serving | Use::Discarded => false,
    }
}

/// Of a log that was not there before.
const fn first_header(options: &LogOptions, ring_bytes: u64) -> Header {
    Header {
        turn: 0,
        id: options.new_id,
        unit: options.unit,
        generation: 0,
        ring_bytes,
        record_bytes: RECORD_BYTES_MAX,
        tail: 0,
        sequence: 0,
        is_clean: true,
    }
}

/// Begins a new generation of a log, or a new log: with no records.
pub(super) fn begin(
    log: &impl Medium,
    header: Option<Header>,
    ring_bytes: u64,
    options: &LogOptions,
) -> io::Result<Header> {
    let is_new = header.is_none();
    let before = header.unwrap_or_else(|| first_header(options, ring_bytes));
    let known = options.known.filter(|known| known.log.id == before.id);
    let generation = match known {
        // One more than is known also where an earlier start got no further than its header: it has no records.
        Some(known) if known.how == Use::Serving => known.log.generation + 1,
        Some(known) => before.generation.max(known.log.generation) + 1,
        None => before.generation + 1,
    };
    let header = Header {
        turn: before.turn + 1,
        generation,
        ring_bytes,
        record_bytes: before.record_bytes,
        tail: 0,
        sequence: 1,
        is_clean: false,
        id: before.id,
        unit: before.unit,
    };
    if is_new {
        // What was in the other place is no header of this log.
        log.write(0, &vec![0; 2 * BLOCK_BYTES])?;
    }
    log.write(header.place(), &header.encode())?;
    log.sync()?;
    Ok(header)
}

impl SharedStore for Logged {
    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(self
            .journal
            .handle(self.store.handle()?, self.log.handle()?))
    }

    fn capabilities(&self) -> Capabilities {
        self.journal.0.capabilities(&self.store.capabilities())
    }

    fn probe_size(&self) -> io::Result<()> {
        self.store.probe_size()
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        self.store.grow(size_bytes)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.store.is_at(path)
    }

    fn is_flush_latched(&self) -> bool {
        self.store.is_flush_latched()
    }

    fn outage(&self) -> Option<String> {
        self.store.outage()
    }
}

/// Notes that a log is closed in order, so that no later start needs it. Where that fails, the next start replays what
/// it has.
fn close(
    store: &dyn SharedStore,
    log: &dyn SharedStore,
    noted: &dyn Noted,
    header: &Header,
) -> io::Result<()> {
    Blocking::new(store)?.sync()?;
    let device = Blocking::new(log)?;
    device.write(header.place(), &header.encode())?;
    device.sync()?;
    let binding = Binding {
        id: header.id,
        generation: header.generation,
    };
    noted.note(binding, Use::Closed)
}
