//! Starting with a log: the store is brought to where the log ends, and a new generation of the log begins.

use std::io;
use std::sync::Arc;

use super::Journal;
use super::books::{Bias, Limits};
use super::format::{
    BLOCK_BYTES, Deed, Entry, Header, LogId, RECORD_BYTES_MAX, UnitName, check_medium,
};
use super::replay::{
    Binding, Medium, Misfit, Replayed, check_end, find, refuse_undecided, refuse_unknown, replay,
};
use super::shared::{Alone, Noted, Shared, Use};

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
    /// What the medium of the store is recognised by: recorded in the header of the log ([`LogHead`]). At most
    /// [`MEDIUM_BYTES_MAX`] bytes; empty where nothing is recorded.
    ///
    /// [`LogHead`]: super::LogHead
    pub medium: Vec<u8>,
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
        check_medium(&options.medium)?;
        let begun =
            recover(log, log_bytes, store, store_bytes, options).and_then(|(last, replayed)| {
                let header = begin(log, last, shape, options)?;
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
            // The store has everything. Where the store itself cannot be synced, it is not served at all.
            Err(Misfit::Io(_)) if options.known.is_some_and(|known| is_apart(known.how)) => {
                let header = first_header(options, shape);
                (header, Replayed::default(), Some(Alone::Unreadable))
            }
            Err(misfit) => return Err(misfit),
        };
        let shared = Shared::new(
            header,
            options.bias,
            shape.limits,
            Arc::clone(&options.noted),
            alone,
        );
        Ok((Self(Arc::new(shared)), replayed))
    }
}

/// Brings the store to where the log ends. The last header of the log, if it has one, and what was done.
///
/// The store is synced in any case: an earlier process may have been killed with changes in the cache of the kernel,
/// which no flush of this one would make durable.
pub(super) fn recover(
    log: &impl Medium,
    log_bytes: u64,
    store: &impl Medium,
    store_bytes: u64,
    options: &LogOptions,
) -> Result<(Option<Header>, Replayed), Misfit> {
    let found = read_back(log, log_bytes, store, store_bytes, options);
    store.sync().map_err(Misfit::Store)?;
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
    let discarded = options.known.filter(|known| known.how == Use::Discarded);
    if let Some(Known { log: decided, .. }) = discarded {
        // To do without a log of one's own is no right to that of another unit.
        refuse_undecided(log, log_bytes, &options.unit, decided)?;
        return Ok((None, Replayed::default()));
    }
    let Some(header) = find(log, log_bytes, &options.unit, served)? else {
        return Ok((None, Replayed::default()));
    };
    if options.known.is_none() {
        let unknown = Binding {
            id: [0; 16],
            generation: 0,
        };
        refuse_unknown(log, log_bytes, &header, unknown)?;
    }
    if let Some(known) = options.known.filter(|known| !is_served(known)) {
        // The store has everything that was in this log then, and may have had more since.
        refuse_unknown(log, log_bytes, &header, known.log)?;
        return Ok((Some(header), Replayed::default()));
    }
    let mut refused: Option<(u64, Misfit)> = None;
    // What the store refuses is left out, and stays in the log: an administrator who decides to do without it loses no
    // more.
    let done = replay(log, &header, |entry| {
        if let Err(misfit) = apply(store, store_bytes, &entry) {
            refused.get_or_insert((0, misfit)).0 += 1;
        }
    })?;
    check_end(log, &header, &done)?;
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
        Deed::Write => store.write(range.start, data),
        Deed::Zeros => store.clear(range.clone(), false),
        Deed::Unmap => store.clear(range.clone(), true),
    }
    .map_err(Misfit::Store)
}

/// Whether the store has everything, so that its log is not to be replayed.
const fn is_apart(how: Use) -> bool {
    match how {
        Use::Left | Use::Closed => true,
        Use::Serving | Use::Discarded => false,
    }
}

/// Of a log that was not there before.
const fn first_header(options: &LogOptions, shape: Shape) -> Header {
    Header {
        turn: 0,
        id: options.new_id,
        unit: options.unit,
        generation: 0,
        ring_bytes: shape.ring_bytes,
        record_bytes: shape.record_bytes,
        tail: 0,
        sequence: 0,
        is_clean: true,
        medium: Vec::new(),
    }
}

/// Begins a new generation of a log, or a new log: with no records.
pub(super) fn begin(
    log: &impl Medium,
    header: Option<Header>,
    shape: Shape,
    options: &LogOptions,
) -> io::Result<Header> {
    let is_new = header.is_none();
    let before = header.unwrap_or_else(|| first_header(options, shape));
    let known = options.known.filter(|known| known.log.id == before.id);
    // One that no record has, also where what is known is older than the log, or the log is older.
    let generation = known.map_or(0, |known| known.log.generation);
    let header = Header {
        turn: before.turn + 1,
        generation: before.generation.max(generation) + 1,
        ring_bytes: shape.ring_bytes,
        record_bytes: before.record_bytes,
        tail: 0,
        sequence: 1,
        is_clean: false,
        id: before.id,
        unit: before.unit,
        medium: options.medium.clone(),
    };
    if is_new {
        // What was in the other place is no header of this log.
        log.write(0, &vec![0; 2 * BLOCK_BYTES])?;
    }
    log.write(header.place(), &header.encode())?;
    log.sync()?;
    Ok(header)
}
