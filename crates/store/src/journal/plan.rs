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
        // The store serves alone.
        Condition::Left => return Ok((with_durability(request, durable), Logging::Nothing)),
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

    fn header() -> Header {
        Header {
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
        }
    }

    fn books() -> Books {
        Books::new(header(), Bias::Latency, Limits::default())
    }

    /// A request, and whether it has to be durable.
    type Asked = (IoRequest, Range<u64>, bool);

    fn write(bytes: u32, durable: bool) -> Asked {
        let data = Payload::Heap(vec![1; bytes as usize]);
        let offset = 0;
        (
            IoRequest::Write {
                offset,
                data,
                durable,
            },
            0..bytes.into(),
            durable,
        )
    }

    fn zeros(range: Range<u64>, durable: bool) -> Asked {
        let asked = range.clone();
        (IoRequest::WriteZeros { range, durable }, asked, durable)
    }

    fn unmap() -> Asked {
        (IoRequest::Unmap { range: 0..512 }, 0..512, false)
    }

    /// Whether it is durable in the store, and what the books get: how many entries.
    fn planned(books: &Books, asked: Asked) -> Result<(bool, &'static str, usize), IoFailure> {
        let (request, range, durable) = asked;
        let (request, logging) = plan(books, request, &range, durable)?;
        let in_store = matches!(
            request,
            IoRequest::Write { durable: true, .. } | IoRequest::WriteZeros { durable: true, .. }
        );
        let (kind, entries) = match &logging {
            Logging::Nothing => ("nothing", 0),
            Logging::Force(entries) => ("force", entries.len()),
            Logging::Keep(entries) => ("keep", entries.len()),
            Logging::Lose => ("lose", 0),
            Logging::TooLarge => ("too large", 0),
        };
        Ok((in_store, kind, entries))
    }

    /// A durable write that the store has.
    fn forced(books: &mut Books) -> Wait {
        let place = books.begin(0..512);
        let entries = entries(&write(512, true).0, 512);
        enter(books, (place, &(0..512)), Logging::Force(entries), true)
    }

    #[test]
    fn what_is_logged_is_durable_in_the_log_and_what_is_not_in_the_store() {
        let (most, piece) = (32_768, 12_288);
        let mut books = books();
        for (request, expected) in [
            (write(piece, true), (false, "force", 1)),
            (write(piece + 1, true), (false, "force", 2)),
            (write(most, true), (false, "force", 3)),
            (write(most + 1, true), (false, "too large", 0)),
            (write(piece + 1, false), (false, "keep", 2)),
            (write((8 << 20) + 1, false), (false, "lose", 0)),
            (zeros(0..512, true), (false, "force", 1)),
            (zeros(0..512, false), (false, "keep", 1)),
            (unmap(), (false, "keep", 1)),
        ] {
            assert_eq!(planned(&books, request).unwrap(), expected);
        }
        // What the log has older data for is logged in any case.
        assert_eq!(forced(&mut books), Wait::Committed(1));
        assert_eq!(planned(&books, unmap()).unwrap(), (false, "force", 1));
        assert_eq!(
            planned(&books, write(512, false)).unwrap(),
            (false, "force", 1)
        );
        // Large writes pass it where throughput counts.
        let passes = Books::new(header(), Bias::Throughput, Limits::default());
        for (request, expected) in [
            (write(65_536, true), (true, "nothing", 0)),
            (write(65_536, false), (false, "keep", 6)),
            (write(512, true), (false, "force", 1)),
            (zeros(0..65_536, true), (false, "force", 1)),
        ] {
            assert_eq!(planned(&passes, request).unwrap(), expected);
        }
    }

    #[test]
    fn without_a_log_that_works_the_store_is_durable_or_nothing_is() {
        let [mut left, mut stuck, mut frozen] = [(); 3].map(|()| books());
        let outcome = |books: &mut Books, logging, durable| {
            let place = books.begin(4096..4608);
            enter(books, (place, &(4096..4608)), logging, durable)
        };
        left.left(true);
        for (request, expected) in [
            (write(512, true), (true, "nothing", 0)),
            (write(512, false), (false, "nothing", 0)),
            (zeros(0..512, true), (true, "nothing", 0)),
            (unmap(), (false, "nothing", 0)),
        ] {
            assert_eq!(planned(&left, request).unwrap(), expected);
        }
        assert_eq!(outcome(&mut left, Logging::Nothing, true), Wait::Nothing);
        assert_eq!(outcome(&mut left, Logging::Lose, true), Wait::Flush);
        assert_eq!(outcome(&mut left, Logging::Lose, false), Wait::Nothing);
        for books in [&mut stuck, &mut frozen] {
            forced(books);
        }
        stuck.left(false);
        frozen.last_synced(false);
        for (books, failure, wait) in [
            (&mut stuck, super::stuck(), Wait::Stuck),
            (&mut frozen, IoFailure::FlushLatched, Wait::Frozen),
        ] {
            for request in [write(512, true), write(512, false), zeros(0..512, true)] {
                assert_eq!(planned(books, request), Err(failure.clone()));
            }
            let elsewhere = planned(books, zeros(512..1024, false));
            assert_eq!(elsewhere.unwrap(), (false, "lose", 0));
            assert_eq!(outcome(books, Logging::Lose, true), wait);
            assert_eq!(outcome(books, Logging::Lose, false), Wait::Nothing);
        }
        assert_eq!(super::stuck(), IoFailure::Hardware { errno: 5 });
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
