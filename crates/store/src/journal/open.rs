//! Opening a store with its log device, which replays what the store may not have.

use std::io;
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use super::Journal;
use super::format::{Header, ring_bytes};
use super::replay::{Binding, LogHead, Medium, Misfit, Replayed, read_head};
use super::shared::{Noted, OnClose, Use};
use super::start::{LogOptions, Shape};
use crate::blocking::Blocking;
#[cfg(target_os = "linux")]
use crate::native::NativeSnapshots;
use crate::{Backstore, Capabilities, SharedStore};

/// Why a store is not served with a log.
#[derive(Debug, thiserror::Error)]
pub enum NotLogged {
    /// An administrator has to decide what becomes of what the unit's own log may have.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// There is no room for a log.
    #[error(
        "the log has {bytes} bytes, less than the {} that a log needs; make it larger (size=)",
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
            Blocking::new(&*store).map_err(Misfit::Store)?,
        );
        let size = store.capabilities().size_bytes;
        let shape = Shape::of_device(ring_bytes);
        let (journal, replayed) =
            Journal::start(&device, log_bytes, &medium, size, options, shape)?;
        let close = {
            let (store, log, noted) = (
                Arc::clone(&store),
                Arc::clone(&log),
                Arc::clone(&options.noted),
            );
            move |header| {
                // The next start replays a log that was not closed.
                let _closed = close(&*store, &*log, &*noted, &header);
            }
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

    /// Notes that a log which was made just now, and by which nothing was written, is needed by nobody. It is not
    /// closed any more.
    ///
    /// # Errors
    ///
    /// That cannot be saved; without the log the unit is not served.
    pub fn abandon(&self) -> io::Result<()> {
        let Some((_closing, header)) = self.journal.0.take_closing() else {
            return Ok(());
        };
        let binding = Binding {
            id: header.id,
            generation: header.generation,
        };
        self.journal.0.noted.note(binding, Use::Closed)
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

/// What the head of the log on a log device says. Nothing is changed. `None` where there is no log, or a damaged one.
/// Blocks for as long as the log device takes.
///
/// # Errors
///
/// The device cannot be read.
pub fn read_log_head(device: &dyn SharedStore) -> io::Result<Option<LogHead>> {
    read_head(&Blocking::new(device)?, device.capabilities().size_bytes)
}

impl SharedStore for Logged {
    fn inner(&self) -> &dyn SharedStore {
        &*self.store
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(self
            .journal
            .handle(self.store.handle()?, self.log.handle()?))
    }

    fn capabilities(&self) -> Capabilities {
        self.journal.0.capabilities(&self.store.capabilities())
    }

    /// None: those of the store lack what only the log has.
    #[cfg(target_os = "linux")]
    fn native_snapshots(&self) -> Option<Arc<dyn NativeSnapshots>> {
        None
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
    // One that hangs does so here, where that does not keep the process from ending.
    device.sync()?;
    device.write(header.place(), &header.encode())?;
    device.sync()?;
    let binding = Binding {
        id: header.id,
        generation: header.generation,
    };
    noted.note(binding, Use::Closed)
}
