//! What becomes of a change: what the store gets of it, and what the books get when the store has it.
//!
//! Nothing of a change is in the books before the store has carried it out. So what is aborted on its way to the store,
//! or fails there, is never replayed; and the log has changes in the order in which the store had them.

use std::ops::Range;

use memory::Payload;

use super::books::{Books, Condition, Wait};
use super::format::{Deed, Entry};
use crate::{IoFailure, IoRequest};

/// `EIO`.
const INPUT_OUTPUT: i32 = 5;

/// What the books get of a change that the store has.
#[derive(Debug)]
pub(super) enum Logging {
    /// Nothing: the store has made it durable, or nothing is logged any more.
    Nothing,
    /// Nothing. It is durable after a flush of the store.
    Flush,
    /// It is waited for in the log.
    Force(Vec<Entry>),
    /// It is kept for the next flush.
    Keep(Vec<Entry>),
    /// It is not kept: the next flush syncs the store.
    Lose,
    /// It is too large for the log, and is waited for as by a flush.
    TooLarge,
}

/// What the store gets, and what the books get then.
///
/// A change that need not be durable is logged all the same if the log has older data for some of its bytes: without it
/// a replay would bring that back over what was read since, also where only this process ends and no power fails.
///
/// # Errors
///
/// It cannot become durable, or not be logged where it has to be.
pub(super) fn plan(
    books: &Books,
    request: IoRequest,
    range: &Range<u64>,
    durable: bool,
) -> Result<(IoRequest, Logging), IoFailure> {
    match books.condition() {
        Condition::Left => return Ok(alone(request, durable)),
        // A replay would take back what the log has no newer data for.
        Condition::Stuck if durable || books.has_changes_of(range) => return Err(stuck()),
        Condition::Frozen if durable || books.has_changes_of(range) => {
            return Err(IoFailure::FlushLatched);
        }
        Condition::Stuck
        | Condition::Frozen
        | Condition::Working
        | Condition::Broken
        | Condition::Leaving => {}
    }
    let is_logged = durable || books.has_changes_of(range);
    let entry_bytes = books.entry_bytes();
    let entries = |request: &IoRequest| entries(request, entry_bytes);
    let bytes = data_bytes(&request);
    if durable && bytes > 0 && books.passes(range) {
        return Ok((with_durability(request, true), Logging::Nothing));
    }
    let logging = match is_logged {
        true if books.fits(bytes) => Logging::Force(entries(&request)),
        true => Logging::TooLarge,
        false if books.keeps(range, bytes) => Logging::Keep(entries(&request)),
        false => Logging::Lose,
    };
    Ok((with_durability(request, false), logging))
}

/// The store serves alone.
fn alone(request: IoRequest, durable: bool) -> (IoRequest, Logging) {
    let is_unmap = matches!(request, IoRequest::Unmap { .. });
    let logging = match durable && is_unmap {
        true => Logging::Flush,
        false => Logging::Nothing,
    };
    (with_durability(request, durable), logging)
}

/// Why a change in a log that is stuck cannot become durable.
pub(super) const fn stuck() -> IoFailure {
    IoFailure::Hardware {
        errno: INPUT_OUTPUT,
    }
}

/// The store has carried a change out. What it waits for now; `durable` says whether it waits at all.
pub(super) fn enter(
    books: &mut Books,
    (place, range): (u64, &Range<u64>),
    logging: Logging,
    durable: bool,
) -> Wait {
    let number = books.carried_out(place);
    let is_logged = books.has_changes_of(range);
    // A flush may have forced older changes of its bytes meanwhile.
    let logging = match (logging, is_logged) {
        (Logging::Keep(entries), true) if books.fits(bytes_of(&entries)) => Logging::Force(entries),
        (Logging::Keep(_) | Logging::Lose, true) => Logging::TooLarge,
        (logging, _) => logging,
    };
    let not_logged = |wait| match durable || is_logged {
        true => wait,
        false => Wait::Nothing,
    };
    match (logging, books.condition()) {
        (Logging::Nothing, _) => Wait::Nothing,
        (Logging::Flush, _) => Wait::Flush,
        (_, Condition::Left) => not_logged(Wait::Flush),
        (_, Condition::Stuck) => not_logged(Wait::Stuck),
        (_, Condition::Frozen) => not_logged(Wait::Frozen),
        (Logging::Force(entries), Condition::Working | Condition::Broken | Condition::Leaving) => {
            books.force(number, entries)
        }
        (Logging::Keep(entries), Condition::Working | Condition::Broken | Condition::Leaving) => {
            match books.keeps(range, bytes_of(&entries)) {
                true => books.keep(number, range, entries),
                false => books.lose(number),
            }
            Wait::Nothing
        }
        (Logging::Lose, Condition::Working | Condition::Broken | Condition::Leaving) => {
            books.lose(number);
            Wait::Nothing
        }
        (Logging::TooLarge, Condition::Working | Condition::Broken | Condition::Leaving) => {
            books.lose(number);
            books.end(place);
            books.flush()
        }
    }
}

fn bytes_of(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.data.len()).sum()
}

fn with_durability(request: IoRequest, durable: bool) -> IoRequest {
    match request {
        IoRequest::Write { offset, data, .. } => IoRequest::Write {
            offset,
            data,
            durable,
        },
        IoRequest::WriteZeros { range, .. } => IoRequest::WriteZeros { range, durable },
        other @ (IoRequest::Unmap { .. }
        | IoRequest::Read { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Flush
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Device(_)) => other,
    }
}

fn data_bytes(request: &IoRequest) -> usize {
    match request {
        IoRequest::Write { data, .. } => data.len(),
        IoRequest::WriteZeros { .. }
        | IoRequest::Unmap { .. }
        | IoRequest::Read { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Flush
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Device(_) => 0,
    }
}

/// What the log has of a change.
fn entries(request: &IoRequest, bytes_max: usize) -> Vec<Entry> {
    let cleared = |deed, range: &Range<u64>| {
        vec![Entry {
            deed,
            range: range.clone(),
            data: Vec::new(),
        }]
    };
    match request {
        IoRequest::Write { offset, data, .. } => pieces(*offset, data, bytes_max),
        IoRequest::WriteZeros { range, .. } => cleared(Deed::Zeros, range),
        IoRequest::Unmap { range } => cleared(Deed::Unmap, range),
        IoRequest::Read { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Flush
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Device(_) => Vec::new(),
    }
}

/// The data of a write, in pieces that fit into records.
fn pieces(offset: u64, data: &Payload, bytes_max: usize) -> Vec<Entry> {
    let starts = (0..data.len()).step_by(bytes_max);
    let piece = |start: usize| {
        let mut bytes = vec![0; bytes_max.min(data.len() - start)];
        data.copy_to(start, &mut bytes);
        let from = offset + start as u64;
        Entry {
            deed: Deed::Write,
            range: from..from + bytes.len() as u64,
            data: bytes,
        }
    };
    starts.map(piece).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::books::{Bias, Limits};
    use crate::journal::format::{BLOCK_BYTES, Header};

    const RING_BYTES: u64 = 32 * BLOCK_BYTES as u64;

    fn books() -> Books {
        let header = Header {
            turn: 3,
            id: *b"0123456789abcdef",
            unit: *b"unit of the test",
            generation: 5,
            ring_bytes: RING_BYTES,
            record_bytes: 4 * BLOCK_BYTES,
            tail: 0,
            sequence: 1,
            is_clean: false,
            medium: Vec::new(),
        };
        Books::new(header, Bias::Latency, Limits::default())
    }

    /// Kept, as `plan` has decided before a flush.
    fn kept(range: &Range<u64>) -> Logging {
        let data = vec![1; usize::try_from(range.end - range.start).unwrap()];
        let range = range.clone();
        let deed = Deed::Write;
        Logging::Keep(vec![Entry { deed, range, data }])
    }

    /// What a change waits for if a flush has logged its first bytes while the store carried it out.
    fn after_a_flush_of_its_first_bytes(range: &Range<u64>) -> Wait {
        let mut books = books();
        let (first, place) = (books.begin(0..512), books.begin(range.clone()));
        let wait = enter(&mut books, (first, &(0..512)), kept(&(0..512)), false);
        assert_eq!(wait, Wait::Nothing, "it is kept");
        books.flush();
        enter(&mut books, (place, range), kept(range), false)
    }

    #[test]
    fn a_change_that_was_to_be_kept_is_forced_if_it_fits_and_else_waits_for_a_checkpoint() {
        let most = RING_BYTES / 4;
        let wait = after_a_flush_of_its_first_bytes(&(0..most));
        assert_eq!(wait, Wait::Committed(2));
        let wait = after_a_flush_of_its_first_bytes(&(0..most + 1));
        assert_eq!(wait, Wait::Synced(3));
        let apart = after_a_flush_of_its_first_bytes(&(512..most));
        assert_eq!(apart, Wait::Nothing, "nothing of it is in the log");
    }
}
