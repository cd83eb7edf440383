//! The books by hand: each bound from both sides, and what is to be done after each event.

use std::ops::Range;

use crate::journal::books::{Bias, Books, Condition, Limits, Wait, Work};
use crate::journal::format::{
    Address, BLOCK_BYTES, Deed, Entry, Header, RING_OFFSET, decode_record, encode_record,
};

const RECORD_BYTES: usize = 4 * BLOCK_BYTES;
const RING_BYTES: u64 = 8 * RECORD_BYTES as u64;

fn header() -> Header {
    Header {
        turn: 3,
        id: *b"0123456789abcdef",
        unit: *b"unit of the test",
        generation: 5,
        ring_bytes: RING_BYTES,
        record_bytes: RECORD_BYTES,
        tail: 0,
        sequence: 7,
        is_clean: false,
        medium: Vec::new(),
    }
}

fn books_with(bias: Bias, limits: Limits) -> Books {
    Books::new(header(), bias, limits)
}

fn books() -> Books {
    books_with(Bias::Latency, Limits::default())
}

fn entry(range: &Range<u64>) -> Entry {
    Entry {
        deed: Deed::Write,
        range: range.clone(),
        data: vec![1; usize::try_from(range.end - range.start).unwrap()],
    }
}

const fn address(sequence: u64, position: u64) -> Address {
    Address {
        id: *b"0123456789abcdef",
        generation: 5,
        sequence,
        position,
    }
}

/// A durable write that the store has: its place, and what it waits for.
fn force(books: &mut Books, range: Range<u64>) -> (u64, Wait) {
    let place = books.begin(range.clone());
    assert!(books.may_go(place));
    let number = books.carried_out(place);
    (place, books.force(number, vec![entry(&range)]))
}

/// One that need not be durable, and is over.
fn keep(books: &mut Books, range: Range<u64>) {
    let place = books.begin(range.clone());
    let number = books.carried_out(place);
    books.keep(number, &range, vec![entry(&range)]);
    books.end(place);
}

fn record(books: &mut Books) -> (u64, Vec<u8>) {
    match books.next_work() {
        Some(Work::Record { at, bytes }) => (at - RING_OFFSET, bytes),
        other => panic!("{other:?}"),
    }
}

/// A durable write that is in the log.
fn commit(books: &mut Books, range: Range<u64>) {
    let (place, wait) = force(books, range);
    record(books);
    books.record_written(true);
    assert_eq!(books.is_over(wait), Wait::Nothing);
    books.end(place);
}

/// Books with a checkpoint of one write that syncs the store.
fn syncing() -> Books {
    let mut books = books();
    commit(&mut books, 0..512);
    books.age();
    assert_eq!(books.next_work(), Some(Work::Sync));
    books
}

#[test]
fn what_is_kept_for_a_flush_has_bounds() {
    let limits = Limits {
        loose_bytes: 1024,
        loose_changes: 3,
        ..Limits::default()
    };
    let mut books = books_with(Bias::Latency, limits);
    assert!(books.keeps(&(0..512), 1024) && !books.keeps(&(0..512), 1025));
    keep(&mut books, 0..512);
    for (range, expected) in [
        (0..512, true),
        (0..513, true),
        (512..1024, true),
        (1..512, false),
        (0..511, false),
        (511..1024, false),
    ] {
        assert_eq!(books.keeps(&range, 512), expected, "{range:?}");
    }
    assert!(!books.keeps(&(512..1024), 513));
    // One takes the place of those that it covers.
    keep(&mut books, 0..600);
    assert!(books.keeps(&(700..800), 424) && !books.keeps(&(700..800), 425));
    keep(&mut books, 600..601);
    assert!(books.keeps(&(700..701), 1));
    keep(&mut books, 601..602);
    assert!(!books.keeps(&(700..701), 1));
    assert_eq!(books.flush(), Wait::Committed(3));
    assert!(books.keeps(&(700..701), 1024));
    // One that is lost takes all with it, until the store is synced.
    keep(&mut books, 700..701);
    books.lose(5);
    assert!(!books.keeps(&(800..801), 1));
    assert_eq!(books.flush(), Wait::Synced(6));
    assert_eq!(books.next_work(), Some(Work::Sync));
    assert_eq!(books.store_synced(true), None);
    assert_eq!(books.is_over(Wait::Synced(6)), Wait::Nothing);
    assert!(books.keeps(&(800..801), 1024));
}

#[test]
fn only_a_large_write_of_bytes_that_the_log_does_not_have_passes_it() {
    let limits = Limits {
        pass_bytes: 4096,
        ..Limits::default()
    };
    assert!(!books_with(Bias::Latency, limits).passes(&(0..4096)));
    let mut books = books_with(Bias::Throughput, limits);
    assert!(books.passes(&(0..4096)) && !books.passes(&(0..4095)));
    assert!(books.fits(32_768) && !books.fits(32_769));
    force(&mut books, 0..512);
    keep(&mut books, 8192..8193);
    for (start, expected) in [
        (511, false),
        (512, true),
        (4096, true),
        (4097, false),
        (8193, true),
    ] {
        assert_eq!(books.passes(&(start..start + 4096)), expected, "{start}");
    }
}

#[test]
fn a_record_takes_what_has_room_and_the_next_one_the_rest() {
    // Of 16 KiB 64 bytes are its head, and 24 that of each entry.
    for (len, is_one) in [(4272, true), (4273, false)] {
        let mut books = books();
        let entries = [entry(&(0..12_000)), entry(&(12_000..12_000 + len))];
        let place = books.begin(0..12_000 + len);
        assert_eq!(books.carried_out(place), 1);
        assert!(!books.has_changes_of(&(0..1)));
        let wait = books.force(1, entries.to_vec());
        assert_eq!(wait, Wait::Committed(2));
        assert!(books.has_changes_of(&(0..1)) && books.take_news());
        let first = if is_one { &entries[..] } else { &entries[..1] };
        let written = (0, encode_record(&address(7, 0), first));
        assert_eq!(record(&mut books), written);
        assert_eq!(books.next_work(), None, "one at a time");
        assert!(!books.take_news());
        books.record_written(true);
        assert!(books.take_news() && !books.take_news());
        if is_one {
            assert_eq!(books.is_over(wait), Wait::Nothing);
        } else {
            assert_eq!(books.is_over(wait), wait);
            let written = encode_record(&address(8, 12_288), &entries[1..]);
            assert_eq!(record(&mut books), (12_288, written));
            books.record_written(true);
            assert_eq!(books.is_over(wait), Wait::Nothing);
        }
        assert_eq!(books.next_work(), None);
    }
}

#[test]
fn a_durable_write_forces_what_was_kept_of_its_bytes() {
    for (range, count) in [(511..512, 2), (512..1024, 1)] {
        let mut books = books();
        keep(&mut books, 0..512);
        assert_eq!(force(&mut books, range).1, Wait::Committed(count));
    }
}

#[test]
fn a_change_waits_for_those_before_it_with_bytes_in_common() {
    let mut books = books();
    let [first, second, third] = [0..512, 256..768, 512..1024].map(|range| books.begin(range));
    let go = |books: &Books| [first, second, third].map(|place| books.may_go(place));
    assert_eq!(go(&books), [true, false, false]);
    books.end(first);
    assert_eq!(go(&books), [false, true, false]);
    assert!(books.take_news());
    books.end_after(second, Wait::Nothing);
    assert_eq!(go(&books), [false, false, true]);
    // One that is answered early ends when its entries are in the log.
    let (place, wait) = force(&mut books, 0..512);
    books.end_after(place, wait);
    let next = books.begin(511..512);
    assert!(!books.may_go(next));
    record(&mut books);
    assert!(!books.may_go(next));
    books.record_written(true);
    assert!(books.may_go(next));
}

#[test]
fn a_checkpoint_begins_when_it_is_due_and_what_it_covers_is_over() {
    let write = |books: &mut Books, at: u64| commit(books, at * 512..(at + 1) * 512);
    // More than half of the ring is in use.
    let mut half = books();
    for at in 0..16 {
        write(&mut half, at);
        assert_eq!(half.next_work(), None, "{at}");
    }
    write(&mut half, 16);
    assert_eq!(half.next_work(), Some(Work::Sync));
    // There are many records.
    let limits = Limits {
        live_records: 2,
        ..Limits::default()
    };
    let mut many = books_with(Bias::Latency, limits);
    write(&mut many, 0);
    write(&mut many, 1);
    assert_eq!(many.next_work(), None);
    write(&mut many, 2);
    assert_eq!(many.next_work(), Some(Work::Sync));
    // Some time has passed, and all changes are over.
    let mut aged = books();
    aged.age();
    assert_eq!(aged.next_work(), None);
    let (place, _) = force(&mut aged, 0..512);
    record(&mut aged);
    aged.record_written(true);
    aged.age();
    assert_eq!(aged.next_work(), None);
    aged.end(place);
    assert_eq!(aged.next_work(), Some(Work::Sync));
    assert_eq!(aged.next_work(), None, "one at a time");
    assert_eq!(aged.last_header(), None);
    let tail = Header {
        turn: 4,
        tail: 4096,
        sequence: 8,
        ..header()
    };
    let bytes = tail.encode();
    assert_eq!(aged.store_synced(true), Some(Work::Header { at: 0, bytes }));
    assert!(aged.has_changes_of(&(0..1)) && aged.take_news());
    aged.header_written(true);
    assert!(!aged.has_changes_of(&(0..1)) && aged.take_news());
    assert_eq!(aged.next_work(), None);
    let last = Header {
        turn: 5,
        is_clean: true,
        ..tail
    };
    assert_eq!(aged.last_header(), Some(last));
    // Nothing is closed of which something is to be done.
    let place = aged.begin(0..512);
    assert_eq!(aged.last_header(), None);
    aged.end(place);
    let (place, _) = force(&mut aged, 0..512);
    aged.end(place);
    assert_eq!(aged.last_header(), None);
    record(&mut aged);
    assert_eq!(aged.last_header(), None);
    aged.record_written(true);
    assert!(aged.last_header().is_some());
}

#[test]
fn during_a_checkpoint_no_record_gets_what_it_covers() {
    let mut books = books();
    commit(&mut books, 0..512);
    keep(&mut books, 512..1024);
    books.age();
    assert_eq!(books.next_work(), Some(Work::Sync));
    // One that it covers, and one that it does not.
    let flush = books.flush();
    assert_eq!(flush, Wait::Committed(2));
    let (_, wait) = force(&mut books, 1024..1536);
    assert_eq!(books.next_work(), None);
    assert!(books.store_synced(true).is_some());
    assert_eq!(books.next_work(), None);
    books.header_written(true);
    assert!(!books.has_changes_of(&(0..1024)));
    let (at, bytes) = record(&mut books);
    let entries = decode_record(&bytes, &address(8, 4096)).unwrap();
    assert_eq!((at, entries), (4096, vec![entry(&(1024..1536))]));
    assert_eq!(books.is_over(flush), Wait::Nothing);
    assert_eq!(books.is_over(wait), wait);
    books.record_written(true);
    assert_eq!(books.is_over(wait), Wait::Nothing);
}

#[test]
fn a_full_log_waits_for_a_checkpoint() {
    let mut books = books();
    let mut places = Vec::new();
    for lap in 0..8 {
        let start = lap * 12_288;
        places.push(force(&mut books, start..start + 12_288).0);
        assert_eq!(record(&mut books).0, lap * RECORD_BYTES as u64);
        books.record_written(true);
    }
    let (place, _) = force(&mut books, 200_000..200_001);
    assert_eq!(books.next_work(), None, "it is full");
    books.end(place);
    assert_eq!(books.next_work(), None);
    places.into_iter().for_each(|place| books.end(place));
    assert_eq!(books.next_work(), Some(Work::Sync));
    assert!(books.store_synced(true).is_some());
    assert_eq!(books.next_work(), None);
    books.header_written(true);
    // The store has that one, too.
    assert_eq!(books.next_work(), None);
    force(&mut books, 0..1);
    assert_eq!(record(&mut books).0, 0, "the next lap");
}

#[test]
fn after_a_failed_change_a_flush_syncs_the_store() {
    for is_logged in [true, false] {
        let mut books = books();
        if is_logged {
            commit(&mut books, 0..512);
        }
        let place = books.begin(511..512);
        books.failed(place);
        assert!(!books.may_go(place));
        // What the log has of its bytes goes to the store soon.
        let work = books.next_work();
        assert_eq!(work, is_logged.then_some(Work::Sync));
        let next = if is_logged { 3 } else { 2 };
        assert_eq!(books.flush(), Wait::Synced(next));
        if !is_logged {
            assert_eq!(books.next_work(), Some(Work::Sync));
        }
        let header = books.store_synced(true);
        assert_eq!(header.is_some(), is_logged, "else it covers nothing new");
        books.header_written(true);
        assert_eq!(books.is_over(Wait::Synced(next)), Wait::Nothing);
        assert_eq!(
            books.is_over(Wait::Synced(next + 1)),
            Wait::Synced(next + 1)
        );
        assert_eq!(books.condition(), Condition::Working);
        assert!(books.keeps(&(0..1), 1));
        assert_eq!(books.next_work(), None);
    }
}

#[test]
fn a_flush_of_what_is_lost_waits_for_all_records_before_it() {
    let mut books = books();
    commit(&mut books, 0..512);
    let (place, _) = force(&mut books, 512..1024);
    record(&mut books);
    books.record_written(true);
    books.lose(2);
    assert_eq!(books.flush(), Wait::Synced(3));
    assert_eq!(books.next_work(), None, "the second one is not over");
    books.end(place);
    assert_eq!(books.next_work(), Some(Work::Sync));
    // A later one waits for the next checkpoint.
    let place = books.begin(0..1);
    let number = books.carried_out(place);
    books.lose(number);
    books.end(place);
    assert_eq!(books.flush(), Wait::Synced(4));
    assert!(books.store_synced(true).is_some());
    books.header_written(true);
    assert_eq!(books.is_over(Wait::Synced(3)), Wait::Nothing);
    assert_eq!(books.is_over(Wait::Synced(4)), Wait::Synced(4));
    assert_eq!(books.next_work(), Some(Work::Sync));
    assert_eq!(books.store_synced(true), None);
    assert_eq!(books.is_over(Wait::Synced(4)), Wait::Nothing);
}

/// A replay of it would undo what the store has from later changes.
#[test]
fn what_is_in_a_record_that_stays_does_not_count_as_synced() {
    let mut books = books();
    commit(&mut books, 0..512);
    let (ended, _) = force(&mut books, 512..1024);
    let (place, _) = force(&mut books, 1024..1536);
    books.end(ended);
    record(&mut books);
    books.record_written(true);
    books.age();
    assert_eq!(books.next_work(), Some(Work::Sync));
    assert!(books.store_synced(true).is_some());
    books.header_written(true);
    assert!(!books.has_changes_of(&(0..512)) && books.has_changes_of(&(512..1024)));
    assert_eq!(books.is_over(Wait::Synced(2)), Wait::Nothing);
    assert_eq!(books.is_over(Wait::Synced(3)), Wait::Synced(3));
    books.end(place);
    books.age();
    assert_eq!(books.next_work(), Some(Work::Sync));
    assert!(books.store_synced(true).is_some());
    books.header_written(true);
    assert_eq!(books.is_over(Wait::Synced(4)), Wait::Nothing);
}

#[test]
fn a_store_that_cannot_be_synced_freezes_its_log() {
    let mut books = syncing();
    let (place, wait) = force(&mut books, 512..1024);
    record(&mut books);
    books.end_after(place, wait);
    assert_eq!(books.store_synced(false), None);
    assert_eq!(books.condition(), Condition::Frozen);
    assert_eq!(books.flush(), Wait::Frozen);
    // A record that is being written counts if it gets there.
    assert_eq!(books.is_over(wait), wait);
    books.record_written(true);
    assert_eq!(books.is_over(wait), Wait::Nothing);
    assert_eq!(books.is_over(Wait::Committed(3)), Wait::Frozen);
    assert!(books.has_changes_of(&(0..1)) && !books.keeps(&(9000..9001), 1));
    assert_eq!((books.next_work(), books.last_header()), (None, None));

    let mut books = syncing();
    let (place, wait) = force(&mut books, 512..1024);
    record(&mut books);
    books.end_after(place, wait);
    books.store_synced(false);
    books.record_written(false);
    assert_eq!(books.condition(), Condition::Frozen);
    assert_eq!(books.is_over(wait), Wait::Frozen);
    let next = books.begin(512..513);
    assert!(books.may_go(next), "that one is over");
}

/// A log whose header is not written, and the number of the next change.
fn of_header() -> (Books, u64) {
    let mut books = syncing();
    assert!(books.store_synced(true).is_some());
    books.header_written(false);
    (books, 2)
}

/// A log of which a record is not written, and the number of the next change.
fn of_record() -> (Books, u64) {
    let mut books = syncing();
    let (place, wait) = force(&mut books, 512..1024);
    books.end_after(place, wait);
    record(&mut books);
    books.record_written(false);
    assert_eq!(books.next_work(), None, "a checkpoint is under way");
    assert_eq!(books.store_synced(true), None);
    (books, 3)
}

#[test]
fn a_broken_log_is_left_when_the_store_has_everything() {
    for (mut books, next) in [of_header(), of_record()] {
        assert_eq!(books.condition(), Condition::Broken);
        assert_eq!(books.flush(), Wait::Synced(next));
        assert_eq!(books.is_over(Wait::Committed(9)), Wait::Committed(9));
        assert_eq!(books.next_work(), Some(Work::LastSync));
        assert_eq!((books.next_work(), books.last_header()), (None, None));
        books.take_news();
        books.last_synced(true);
        assert_eq!(books.condition(), Condition::Leaving);
        assert!(books.take_news());
        assert_eq!(books.next_work(), Some(Work::Leave));
        assert_eq!(books.next_work(), None);
        books.left(true);
        assert_eq!(books.condition(), Condition::Left);
        assert!(books.take_news() && !books.has_changes_of(&(0..1)));
        assert_eq!(books.flush(), Wait::Flush);
        assert_eq!(books.is_over(Wait::Committed(9)), Wait::Flush);
        assert_eq!(books.next_work(), None);
        let change = books.begin(512..513);
        assert!(books.may_go(change), "those before are over");
    }
    let (mut books, _) = of_header();
    books.next_work();
    books.last_synced(false);
    assert_eq!(books.condition(), Condition::Frozen);
    let (mut books, _) = of_header();
    books.next_work();
    books.last_synced(true);
    books.next_work();
    books.left(false);
    assert_eq!(books.condition(), Condition::Stuck);
    assert_eq!(books.flush(), Wait::Stuck);
    assert_eq!(books.is_over(Wait::Synced(9)), Wait::Stuck);
    assert!(books.has_changes_of(&(0..1)));
}
