//! Reading a log after a crash.

use std::io;
use std::ops::Range;

use super::format::{
    Address, BLOCK_BYTES, Entry, Header, LogId, NotAHeader, RING_OFFSET, UnitName, decode_record,
    place, record_address, record_bytes,
};

/// Where a log, and a store that it is replayed into, are read and written. All of it may block.
pub trait Medium {
    /// Fills the buffer from this byte on.
    ///
    /// # Errors
    ///
    /// Some of it cannot be read.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes bytes; they are durable after the next sync.
    ///
    /// # Errors
    ///
    /// Some of them may be missing.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Has a range read zeros, and gives its space back where `unmap` says so.
    ///
    /// # Errors
    ///
    /// Some of it may not.
    fn clear(&self, range: Range<u64>, unmap: bool) -> io::Result<()>;

    /// Makes what was written durable.
    ///
    /// # Errors
    ///
    /// Any of it may be missing.
    fn sync(&self) -> io::Result<()>;
}

/// What is known of the log of a unit besides what is in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Binding {
    /// The log that the unit has.
    pub id: LogId,
    /// Its generation when the unit was last served with it.
    pub generation: u64,
}

/// Why a log is not the one that a unit needs.
#[derive(Debug, thiserror::Error)]
pub enum Misfit {
    /// No log, though the unit had one.
    #[error("the log that the unit was served with is not there: {0}")]
    Missing(NotAHeader),
    /// It holds something else.
    #[error("it holds something that is no log, or a damaged one")]
    NotEmpty,
    /// Of another unit.
    #[error("it is the log of another unit, {}", in_hex(unit))]
    OtherUnit {
        /// Whose it is.
        unit: UnitName,
    },
    /// Of the unit, and not the last one.
    #[error("it is not the log that the unit was last served with")]
    OtherLog,
    /// It has changes that were written later than all that is known of the unit.
    #[error(
        "it has changes of generation {found}, and as far as the state directory knows, the unit was last served with \
         generation {known}"
    )]
    Newer {
        /// What it has.
        found: u64,
        /// What is known.
        known: u64,
    },
    /// A record is not whole, and later ones are.
    #[error(
        "it is damaged: behind byte {0} of the device are records that were written later than one that is not whole \
         there"
    )]
    Damaged(u64),
    /// It was put back.
    #[error("it has generation {found}, and the unit was last served with generation {known}")]
    OtherGeneration {
        /// What it has.
        found: u64,
        /// What is known.
        known: u64,
    },
    /// It is smaller than its ring.
    #[error("it was cut: it has {log_bytes} bytes, and its ring ends at byte {ring_end}")]
    Cut {
        /// Its size.
        log_bytes: u64,
        /// What it had.
        ring_end: u64,
    },
    /// The store has no such place.
    #[error("it has data for byte {byte}, and the store ends before that")]
    StoreEnds {
        /// The end of the data.
        byte: u64,
    },
    /// Changes that it has were refused by the store. All others are there, durably.
    #[error(
        "the store does not take {failed} of the {entries} changes that it has, and has all others; the first one: \
         {first}"
    )]
    NotReplayed {
        /// Changes that the store refused.
        failed: u64,
        /// All changes.
        entries: u64,
        /// Why it refused the first of them.
        first: Box<Self>,
    },
    /// It cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The store cannot be written or synced.
    #[error("{0}")]
    Store(io::Error),
}

fn in_hex(name: &UnitName) -> String {
    let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.trim_end_matches('0').to_owned()
}

/// The log of a unit, if it is that.
///
/// `known` is what the unit was last served with, if it has to be this log. Without it a log of the unit's own name is
/// taken, and one that was never written is `None`.
///
/// # Errors
///
/// It is another one.
pub(super) fn find(
    log: &impl Medium,
    log_bytes: u64,
    unit: &UnitName,
    known: Option<Binding>,
) -> Result<Option<Header>, Misfit> {
    let mut blocks = vec![0; 2 * BLOCK_BYTES];
    log.read(0, &mut blocks)?;
    let header = match (Header::of_log(&blocks), known) {
        (Ok(header), _) => header,
        (Err(error), Some(_)) => return Err(Misfit::Missing(error)),
        (Err(_), None) if is_blank(log, log_bytes)? => return Ok(None),
        (Err(_), None) => return Err(Misfit::NotEmpty),
    };
    if header.unit != *unit {
        return Err(Misfit::OtherUnit { unit: header.unit });
    }
    let ring_end = RING_OFFSET + header.ring_bytes;
    if ring_end > log_bytes {
        return Err(Misfit::Cut {
            log_bytes,
            ring_end,
        });
    }
    let Some(known) = known else {
        return Ok(Some(header));
    };
    if header.id != known.id {
        return Err(Misfit::OtherLog);
    }
    if header.generation < known.generation {
        return Err(Misfit::OtherGeneration {
            found: header.generation,
            known: known.generation,
        });
    }
    refuse_unknown(log, log_bytes, &header, known)?;
    Ok(Some(header))
}

/// Refuses a log with changes that are not those of what is known: that is older than the log, as from a backup, and
/// says nothing about them. A header is written before what is known of it, so a start that was cut off leaves a newer
/// one, without changes.
///
/// # Errors
///
/// It has such changes, or cannot be read.
pub(super) fn refuse_unknown(
    log: &impl Medium,
    log_bytes: u64,
    header: &Header,
    known: Binding,
) -> Result<(), Misfit> {
    let is_known = header.id == known.id && header.generation <= known.generation;
    if is_known || !may_have_records(log, log_bytes, header)? {
        return Ok(());
    }
    Err(match header.id == known.id {
        true => Misfit::Newer {
            found: header.generation,
            known: known.generation,
        },
        false => Misfit::OtherLog,
    })
}

/// Refuses what is the log of another unit, and one of the unit with changes that nobody has decided about, to begin a
/// log on anything else.
///
/// # Errors
///
/// It is that, or cannot be read.
pub(super) fn refuse_undecided(
    log: &impl Medium,
    log_bytes: u64,
    unit: &UnitName,
    decided: Binding,
) -> Result<(), Misfit> {
    let mut blocks = vec![0; 2 * BLOCK_BYTES];
    log.read(0, &mut blocks)?;
    match Header::of_log(&blocks) {
        Ok(header) if header.unit != *unit => Err(Misfit::OtherUnit { unit: header.unit }),
        Ok(header) => refuse_unknown(log, log_bytes, &header, decided),
        Err(_) => Ok(()),
    }
}

/// How far behind its end a log is looked through.
const LATER_BYTES: u64 = 64 << 20;
/// At a time.
const LATER_STEP_BYTES: usize = 1 << 20;

/// Finds records that are later than the end of a log. One record is written at a time, and the next when it is
/// durable: so a later one says that the one at the end is not cut by a crash, but was whole.
///
/// # Errors
///
/// There is one, or the log cannot be read.
pub(super) fn check_end(log: &impl Medium, header: &Header, done: &Replayed) -> Result<(), Misfit> {
    let end = (header.tail + header.ring_bytes).min(done.end.saturating_add(LATER_BYTES));
    let mut bytes = vec![0; LATER_STEP_BYTES];
    let mut position = done.end;
    while position < end {
        let at = place(position, header.ring_bytes);
        let left = (end - position).min(RING_OFFSET + header.ring_bytes - at);
        let left = usize::try_from(left).unwrap_or(LATER_STEP_BYTES);
        let piece = bytes
            .get_mut(..left.min(LATER_STEP_BYTES))
            .unwrap_or_default();
        log.read(at, piece)?;
        for (block, at) in piece.chunks(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
            if is_later(log, header, done, block, at)? {
                return Err(Misfit::Damaged(place(done.end, header.ring_bytes)));
            }
        }
        position += piece.len() as u64;
    }
    Ok(())
}

/// Whether a whole record of this log that is later than its end begins with this block.
fn is_later(
    log: &impl Medium,
    header: &Header,
    done: &Replayed,
    block: &[u8],
    at: u64,
) -> io::Result<bool> {
    let address = record_address(block).filter(|one| {
        one.id == header.id
            && one.generation == header.generation
            && one.sequence > done.sequence
            && place(one.position, header.ring_bytes) == at
    });
    let len = address.and_then(|address| Some((record_bytes(block, &address)?, address)));
    let ring_end = RING_OFFSET + header.ring_bytes;
    let Some((len, address)) = len.filter(|(len, _)| at + *len as u64 <= ring_end) else {
        return Ok(false);
    };
    let mut record = vec![0; len];
    log.read(at, &mut record)?;
    Ok(decode_record(&record, &address).is_some())
}

/// How much of a device is looked at before it is taken for a log: a file system may leave its beginning free.
const BLANK_BYTES: u64 = 1 << 20;

/// Whether nothing was written to a device, as far as its beginning shows.
fn is_blank(log: &impl Medium, log_bytes: u64) -> io::Result<bool> {
    let mut bytes = vec![0; 16 * BLOCK_BYTES];
    let step = bytes.len() as u64;
    for at in (0..BLANK_BYTES.min(log_bytes)).step_by(bytes.len()) {
        let left = usize::try_from(step.min(log_bytes - at)).unwrap_or(0);
        let piece = bytes.get_mut(..left).unwrap_or_default();
        log.read(at, piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a replay has done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Replayed {
    /// Records that were found whole.
    pub records: u64,
    /// Changes of the store that they had.
    pub entries: u64,
    /// Where the next record of the log would have begun.
    pub end: u64,
    /// And its sequence number.
    pub sequence: u64,
}

impl Replayed {
    /// Nothing yet of a log with this header.
    const fn none_of(header: &Header) -> Self {
        Self {
            records: 0,
            entries: 0,
            end: header.after(header.tail),
            sequence: header.sequence,
        }
    }
}

/// Reads the records of a log in order, up to the first that is not there as a whole.
///
/// # Errors
///
/// The log cannot be read.
pub(super) fn replay(
    log: &impl Medium,
    header: &Header,
    mut take: impl FnMut(Entry),
) -> io::Result<Replayed> {
    let mut done = Replayed::none_of(header);
    let mut record = vec![0; BLOCK_BYTES];
    while let Some(entries) = next_record(log, header, &done, &mut record)? {
        for entry in entries {
            take(entry);
            done.entries += 1;
        }
        done.records += 1;
        done.sequence += 1;
        done.end = header.after(done.end + record.len() as u64);
    }
    Ok(done)
}

/// The entries of the record behind what was read, if it is there as a whole: its bytes are in `record` then.
fn next_record(
    log: &impl Medium,
    header: &Header,
    done: &Replayed,
    record: &mut Vec<u8>,
) -> io::Result<Option<Vec<Entry>>> {
    // More than the ring holds is not read: what was written over its own beginning is no record of this lap.
    if done.end - header.tail >= header.ring_bytes {
        return Ok(None);
    }
    let address = Address {
        id: header.id,
        generation: header.generation,
        sequence: done.sequence,
        position: done.end,
    };
    let at = place(done.end, header.ring_bytes);
    record.resize(BLOCK_BYTES, 0);
    log.read(at, record)?;
    let Some(len) = record_bytes(record, &address) else {
        return Ok(None);
    };
    record.resize(len, 0);
    log.read(at, record)?;
    Ok(decode_record(record, &address))
}

/// What the head of a log says, read without a change of anything.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogHead {
    /// The unit whose log it is.
    pub unit: UnitName,
    /// The log.
    pub id: LogId,
    /// Its generation.
    pub generation: u64,
    /// It was closed in order: the store had everything then.
    pub is_closed: bool,
    /// It has records that a replay would read, or is damaged or cut so that this cannot be known.
    pub has_records: bool,
    /// What the medium of the store is recognised by, as it was recorded last. Empty where nothing is recorded.
    pub medium: Vec<u8>,
}

/// The head of the log on a device of this size. `None` where no header is whole: it is no log, or a damaged one.
///
/// # Errors
///
/// The device cannot be read.
pub(super) fn read_head(log: &impl Medium, log_bytes: u64) -> io::Result<Option<LogHead>> {
    let mut blocks = vec![0; 2 * BLOCK_BYTES];
    if log_bytes < blocks.len() as u64 {
        return Ok(None);
    }
    log.read(0, &mut blocks)?;
    let Ok(header) = Header::of_log(&blocks) else {
        return Ok(None);
    };
    Ok(Some(LogHead {
        unit: header.unit,
        id: header.id,
        generation: header.generation,
        is_closed: header.is_clean,
        has_records: may_have_records(log, log_bytes, &header)?,
        medium: header.medium,
    }))
}

/// Whether a log has records that a replay would read, or is damaged or cut so that this cannot be known.
///
/// # Errors
///
/// It cannot be read.
pub(super) fn may_have_records(
    log: &impl Medium,
    log_bytes: u64,
    header: &Header,
) -> io::Result<bool> {
    if header.is_clean || RING_OFFSET + header.ring_bytes > log_bytes {
        return Ok(!header.is_clean);
    }
    let none = Replayed::none_of(header);
    if next_record(log, header, &none, &mut Vec::new())?.is_some() {
        return Ok(true);
    }
    match check_end(log, header, &none) {
        Ok(()) => Ok(false),
        Err(Misfit::Io(error)) => Err(error),
        Err(_) => Ok(true),
    }
}
