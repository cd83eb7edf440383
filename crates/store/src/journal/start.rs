//! Starting with a log: the store is brought to where the log ends, and a new generation of the log begins.

use std::io;
use std::sync::Arc;

use super::Journal;
use super::books::{Bias, Limits};
use super::format::{BLOCK_BYTES, Deed, Entry, Header, LogId, RECORD_BYTES_MAX, UnitName};
use super::replay::{Binding, Medium, Misfit, Replayed, find, replay};
use super::shared::{Noted, Shared, Use};

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

/// The sizes of a log.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The length of the ring in bytes: a multiple of 4096, and of at least four of the longest records.
    pub ring_bytes: u64,
    /// The longest record of a new log in bytes: a multiple of 4096, of at least two.
    pub record_bytes: usize,
    /// How much is kept in memory.
    pub limits: Limits,
}

impl Shape {
    /// That of a log with a ring of this length.
    pub fn of_device(ring_bytes: u64) -> Self {
        Self {
            ring_bytes,
            record_bytes: RECORD_BYTES_MAX,
            limits: Limits::default(),
        }
    }
}

impl Journal {
    /// Finds the log of a unit, brings the store to where the log ends, and begins a new generation of the log. May
    /// take as long as that takes. The journal, and what was done.
    ///
    /// # Errors
    ///
    /// The log is not that of the unit, or something cannot be read, written or noted.
    pub fn start(
        log: &impl Medium,
        log_bytes: u64,
        store: &impl Medium,
        store_bytes: u64,
        options: &LogOptions,
        shape: Shape,
    ) -> Result<(Self, Replayed), Misfit> {
        let (header, replayed) = recover(log, log_bytes, store, store_bytes, options)?;
        let header = begin(log, header, shape, options)?;
        let binding = Binding {
            id: header.id,
            generation: header.generation,
        };
        options.noted.note(binding, Use::Serving)?;
        let noted = Arc::clone(&options.noted);
        let shared = Shared::new(
            header,
            options.bias,
            shape.limits,
            options.writes_through,
            noted,
        );
        Ok((Self(Arc::new(shared)), replayed))
    }
}

/// Brings the store to where the log ends. The last header of the log, if it has one, and what was done.
pub(super) fn recover(
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
    let done = replay(log, &header, |entry| apply(store, store_bytes, &entry))?;
    if done.records > 0 {
        store.sync()?;
    }
    Ok((Some(header), done))
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

/// Begins a new generation of a log, or a new log: with no records.
pub(super) fn begin(
    log: &impl Medium,
    header: Option<Header>,
    shape: Shape,
    options: &LogOptions,
) -> io::Result<Header> {
    let ring_bytes = shape.ring_bytes;
    let is_new = header.is_none();
    let before = header.unwrap_or(Header {
        turn: 0,
        id: options.new_id,
        unit: options.unit,
        generation: 0,
        ring_bytes,
        record_bytes: shape.record_bytes,
        tail: 0,
        sequence: 0,
        is_clean: true,
    });
    let known = options.known.map(|known| known.log);
    let last = known
        .filter(|known| known.id == before.id)
        .map_or(0, |known| known.generation);
    let header = Header {
        turn: before.turn + 1,
        generation: before.generation.max(last) + 1,
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
