//! The bytes of a log, and what is made of any other bytes.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::disk::Chance;
use crate::journal::Journal;
use crate::journal::format::{
    Address, BLOCK_BYTES, Deed, Entry, Header, MEDIUM_BYTES_MAX, NotAHeader, RECORD_BYTES_MAX,
    RING_OFFSET, decode_record, encode_record, place, record_bytes,
};
use crate::journal::replay::{
    Binding, LogHead, Medium, Misfit, check_end, find, read_head, replay,
};
use crate::journal::shared::{Alone, Noted, Use};
use crate::journal::start::{LogOptions, Shape};
use crate::journal::{Bias, Known};

const RECORD_BYTES: usize = 4 * BLOCK_BYTES;

fn header() -> Header {
    Header {
        turn: 3,
        id: *b"0123456789abcdef",
        unit: *b"unit of the test",
        generation: 5,
        ring_bytes: 8 * RECORD_BYTES as u64,
        record_bytes: RECORD_BYTES,
        tail: 0,
        sequence: 1,
        is_clean: false,
        medium: b"where it is".to_vec(),
    }
}

fn entries(seed: u64) -> Vec<Entry> {
    let mut chance = Chance(seed | 1);
    let deeds = [Deed::Write, Deed::Write, Deed::Zeros, Deed::Unmap];
    let entry = |_| {
        let deed = deeds[chance.below(deeds.len())];
        let len = 1 + chance.below(3000);
        let start = chance.below(1 << 20) as u64;
        let byte = u8::try_from(chance.below(256)).unwrap();
        let data = if deed == Deed::Write {
            vec![byte; len]
        } else {
            Vec::new()
        };
        let range = start..start + len as u64;
        Entry { deed, range, data }
    };
    (0..1 + seed % 4).map(entry).collect()
}

/// A device that cannot be read or synced.
struct Broken;

impl Medium for Broken {
    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn clear(&self, _: Range<u64>, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[derive(Debug)]
struct Unnoted;

impl Noted for Unnoted {
    fn note(&self, _: Binding, _: Use) -> io::Result<()> {
        Ok(())
    }
}

struct Bytes(RefCell<Vec<u8>>);

impl Medium for Bytes {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        bytes.copy_from_slice(&self.0.borrow()[at..at + bytes.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        self.0.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn clear(&self, _: Range<u64>, _: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A log of so many records over a lap of others, where the first begins, and the end of each.
fn log(records: u64, tail: u64) -> (Bytes, Header, Vec<u64>) {
    let header = Header {
        tail: header().after(tail),
        sequence: 40,
        ..header()
    };
    let log = Bytes(RefCell::new(vec![
        0xA5;
        usize::try_from(
            RING_OFFSET + header.ring_bytes
        )
        .unwrap()
    ]));
    log.write(header.place(), &header.encode()).unwrap();
    let (mut position, mut ends) = (header.tail, Vec::new());
    for number in 0..records {
        let record = encode_record(&address(&header, number, position), &entries(number));
        log.write(place(position, header.ring_bytes), &record)
            .unwrap();
        ends.push(position + record.len() as u64);
        position = header.after(position + record.len() as u64);
    }
    (log, header, ends)
}

fn shape(header: &Header) -> Shape {
    Shape {
        record_bytes: RECORD_BYTES,
        ..Shape::of_device(header.ring_bytes)
    }
}

/// Of a start with such a log.
fn options(header: &Header, known: Option<Known>) -> LogOptions {
    LogOptions {
        unit: header.unit,
        known,
        new_id: [1; 16],
        bias: Bias::Latency,
        medium: Vec::new(),
        noted: Arc::new(Unnoted),
    }
}

fn address(header: &Header, number: u64, position: u64) -> Address {
    Address {
        id: header.id,
        generation: header.generation,
        sequence: header.sequence + number,
        position,
    }
}

fn replayed(log: &Bytes, header: &Header) -> Vec<Entry> {
    let mut found = Vec::new();
    let done = replay(log, header, |entry| found.push(entry));
    assert_eq!(done.unwrap().entries, found.len() as u64);
    found
}

fn all(records: u64) -> Vec<Entry> {
    (0..records).flat_map(entries).collect()
}

#[test]
fn the_bytes_are_those_of_the_documentation() {
    let block = header().encode();
    assert_eq!(&block[..8], b"TARNLOG1");
    assert_eq!(block[12..16], [0; 4]);
    assert_eq!(block[16..24], 3u64.to_le_bytes());
    assert_eq!(&block[24..40], b"0123456789abcdef");
    assert_eq!(&block[40..56], b"unit of the test");
    assert_eq!(block[56..64], 5u64.to_le_bytes());
    assert_eq!(block[64..72], (8 * 16384u64).to_le_bytes());
    let at_tail = Header {
        tail: 4096,
        is_clean: true,
        ..header()
    };
    assert_eq!(at_tail.encode()[72..80], 4096u64.to_le_bytes());
    assert_eq!(at_tail.encode()[12..16], 1u32.to_le_bytes());
    assert_eq!(block[80..88], 1u64.to_le_bytes());
    assert_eq!(block[88..92], 16384u32.to_le_bytes());
    assert_eq!(block[92..96], 11u32.to_le_bytes());
    assert_eq!(&block[96..107], b"where it is");
    assert!(block[107..].iter().all(|byte| *byte == 0));
    assert_eq!(block.len(), 4096);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[12..]);
    assert_eq!(
        u64::from(u32::from_le_bytes(block[8..12].try_into().unwrap())),
        sum
    );
    let entry = |deed, data: &[u8]| Entry {
        deed,
        range: 512..515,
        data: data.to_vec(),
    };
    let others = [entry(Deed::Zeros, &[]), entry(Deed::Unmap, &[])];
    let record = encode_record(&address(&header(), 6, 8192), &others);
    assert_eq!(record[64..68], 2u32.to_le_bytes());
    assert_eq!(record[88..92], 3u32.to_le_bytes());
    let record = encode_record(&address(&header(), 6, 8192), &[entry(Deed::Write, b"abc")]);
    assert_eq!(&record[..8], b"TARNREC1");
    assert_eq!(record[12..16], 4096u32.to_le_bytes());
    assert_eq!(&record[16..32], b"0123456789abcdef");
    assert_eq!(record[32..40], 5u64.to_le_bytes());
    assert_eq!(record[40..48], 7u64.to_le_bytes());
    assert_eq!(record[48..56], 8192u64.to_le_bytes());
    assert_eq!(record[56..60], 1u32.to_le_bytes());
    assert_eq!(record[64..68], 1u32.to_le_bytes());
    assert_eq!(record[72..80], 512u64.to_le_bytes());
    assert_eq!(record[80..88], 3u64.to_le_bytes());
    assert_eq!(&record[88..91], b"abc");
    assert!(record[91..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_header_comes_back_and_no_flipped_bit_passes() {
    let block = header().encode();
    assert_eq!(Header::decode(&block), Ok(header()));
    for bit in 0..108 * 8 {
        let mut block = block.clone();
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::decode(&block).is_err(), "bit {bit}");
    }
    assert_eq!(
        Header::of_log(&[0; 2 * BLOCK_BYTES]),
        Err(NotAHeader::Foreign)
    );
}

/// Gives a block the checksum that fits.
fn sealed(mut block: Vec<u8>) -> Vec<u8> {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &block[12..]);
    block[8..12].copy_from_slice(&u32::try_from(sum).unwrap().to_le_bytes());
    block
}

#[test]
fn a_header_with_sizes_that_cannot_be_is_damaged() {
    let block = BLOCK_BYTES as u64;
    let header = |record_bytes: usize, ring_bytes: u64, tail: u64| Header {
        record_bytes,
        ring_bytes,
        tail,
        ..header()
    };
    let (record, ring) = (RECORD_BYTES, 4 * RECORD_BYTES as u64);
    let most = (RECORD_BYTES_MAX, 4 * RECORD_BYTES_MAX as u64);
    for good in [
        header(record, ring, 0),
        header(2 * BLOCK_BYTES, ring, 0),
        header(most.0, most.1, 0),
        header(record, (1 << 62) - block, (1 << 62) - block),
    ] {
        assert_eq!(Header::decode(&good.encode()), Ok(good));
    }
    for bad in [
        header(BLOCK_BYTES, ring, 0),
        header(record - 512, ring, 0),
        header(most.0 + BLOCK_BYTES, 2 * most.1, 0),
        header(record, ring - block, 0),
        header(record, ring + 512, 0),
        header(record, 1 << 62, 0),
        header(record, ring, 512),
        header(record, ring, 1 << 62),
    ] {
        let decoded = Header::decode(&bad.encode());
        assert_eq!(decoded, Err(NotAHeader::Damaged), "{bad:?}");
    }
}

#[test]
fn a_medium_of_2048_bytes_is_recorded_and_a_header_that_says_more_is_damaged() {
    let longest = Header {
        medium: vec![7; MEDIUM_BYTES_MAX],
        ..header()
    };
    assert_eq!(Header::decode(&longest.encode()), Ok(longest.clone()));
    for bytes in [2049, 4001, u32::MAX] {
        let mut block = longest.encode();
        block[92..96].copy_from_slice(&bytes.to_le_bytes());
        let decoded = Header::decode(&sealed(block));
        assert_eq!(decoded, Err(NotAHeader::Damaged), "{bytes}");
    }
}

#[test]
fn the_head_of_a_log_is_read_and_says_whether_a_replay_would_find_something() {
    let head = |log: &Bytes, bytes| read_head(log, bytes).unwrap();
    for (records, is_clean) in [(0, false), (1, false), (5, false), (0, true)] {
        let (log, header, _) = log(records, 0);
        let header = Header { is_clean, ..header };
        log.write(header.place(), &header.encode()).unwrap();
        let before = log.0.borrow().clone();
        let found = head(&log, before.len() as u64).unwrap();
        let expected = LogHead {
            unit: header.unit,
            id: header.id,
            generation: header.generation,
            is_closed: is_clean,
            has_records: records > 0,
            medium: header.medium.clone(),
        };
        assert_eq!(found, expected, "{records}");
        assert_eq!(*log.0.borrow(), before, "it is read alone");
    }
    let (log, header, ends) = log(3, 0);
    let bytes = RING_OFFSET + header.ring_bytes;
    assert!(head(&log, bytes - 1).unwrap().has_records, "it is cut");
    log.write(place(ends[0] - 4096, header.ring_bytes), &[0; 4096])
        .unwrap();
    assert!(head(&log, bytes).unwrap().has_records, "it is damaged");
    log.write(0, &[0; 2 * BLOCK_BYTES]).unwrap();
    assert_eq!(head(&log, bytes), None);
    assert_eq!(head(&log, 100), None);
    assert!(read_head(&Broken, bytes).is_err());
}

#[test]
fn a_medium_is_recorded_at_the_start() {
    let (log, header, _) = log(1, 0);
    let bytes = RING_OFFSET + header.ring_bytes;
    let store = Bytes(RefCell::new(vec![0; 1 << 21]));
    let known = Known {
        log: Binding {
            id: header.id,
            generation: header.generation,
        },
        how: Use::Serving,
    };
    let mut options = options(&header, Some(known));
    options.medium = vec![1; MEDIUM_BYTES_MAX + 1];
    let shape = shape(&header);
    let begun = Journal::start(&log, bytes, &store, 1 << 21, &options, shape).map(drop);
    assert!(begun.is_err(), "it is too long");
    let medium = || read_head(&log, bytes).unwrap().unwrap().medium;
    assert_eq!(medium(), header.medium, "nothing was begun");
    for recorded in [vec![1; MEDIUM_BYTES_MAX], b"one".to_vec()] {
        options.medium.clone_from(&recorded);
        let begun = Journal::start(&log, bytes, &store, 1 << 21, &options, shape);
        begun.unwrap();
        assert_eq!(medium(), recorded);
    }
}

#[test]
fn a_log_with_changes_that_nobody_knows_is_left_as_it_is() {
    let (log, header, _) = log(1, 0);
    let bytes = RING_OFFSET + header.ring_bytes;
    let store = Bytes(RefCell::new(vec![0; 1 << 21]));
    let before = log.0.borrow().clone();
    let options = options(&header, None);
    let begun = Journal::start(&log, bytes, &store, 1 << 21, &options, shape(&header)).map(drop);
    assert!(matches!(begun, Err(Misfit::OtherLog)), "{begun:?}");
    assert!(*log.0.borrow() == before, "the log is written");
    assert!(store.0.borrow().iter().all(|&byte| byte == 0), "replayed");
}

#[test]
fn the_newer_of_two_headers_counts_and_the_older_where_that_is_torn() {
    let (old, new) = (
        header(),
        Header {
            turn: 4,
            tail: 4096,
            ..header()
        },
    );
    let mut blocks = new.encode();
    blocks.extend(old.encode());
    assert_eq!(Header::of_log(&blocks), Ok(new));
    blocks[100] ^= 1;
    assert_eq!(Header::of_log(&blocks), Ok(old));
    blocks[BLOCK_BYTES + 100] ^= 1;
    assert_eq!(Header::of_log(&blocks), Err(NotAHeader::Damaged));
}

#[test]
fn every_record_is_replayed_in_order_over_the_end_of_the_ring() {
    for tail in (0..40).map(|block| block * BLOCK_BYTES as u64) {
        let (log, header, _) = log(7, tail);
        assert_eq!(replayed(&log, &header), all(7), "tail {tail}");
    }
}

#[test]
fn what_is_torn_ends_the_replay_and_no_part_of_it_is_taken() {
    let (log, header, ends) = log(6, 3 * BLOCK_BYTES as u64);
    let whole = log.0.borrow().clone();
    let mut chance = Chance(99);
    for lost in 0..6u64 {
        let at = usize::try_from(place(
            ends[usize::try_from(lost).unwrap()] - 4096,
            header.ring_bytes,
        ))
        .unwrap();
        for _ in 0..64 {
            // Some sectors of its last block are still what was there before, or a bit of it has changed.
            let mut bytes = whole.clone();
            if chance.hits(500) {
                let sector = at + 512 * chance.below(8);
                bytes[sector..sector + 512].fill(0xA5);
            } else {
                bytes[at + chance.below(4096)] ^= 1 << chance.below(8);
            }
            *log.0.borrow_mut() = bytes;
            assert_eq!(replayed(&log, &header), all(lost), "record {lost}");
            // What a crash has cut is the last one. Behind any other are records that were written when it was durable.
            let done = replay(&log, &header, drop).unwrap();
            let end = check_end(&log, &header, &done);
            match lost {
                5 => assert!(end.is_ok(), "{end:?}"),
                _ => assert!(
                    matches!(end, Err(Misfit::Damaged(_))),
                    "record {lost}: {end:?}"
                ),
            }
        }
    }
}

#[test]
fn records_of_another_generation_log_or_lap_are_none() {
    let (log, header, _) = log(4, 0);
    for other in [
        Header {
            generation: 6,
            ..header.clone()
        },
        Header {
            id: [1; 16],
            ..header.clone()
        },
        Header {
            tail: header.ring_bytes,
            ..header.clone()
        },
        Header {
            sequence: 41,
            ..header.clone()
        },
    ] {
        assert_eq!(replayed(&log, &other), [], "{other:?}");
    }
}

#[test]
fn any_bytes_are_read_without_harm() {
    let mut chance = Chance(5);
    let address = address(&header(), 0, 0);
    let record = encode_record(&address, &entries(3));
    for _ in 0..20_000 {
        let mut bytes = record.clone();
        for _ in 0..1 + chance.below(4) {
            let at = chance.below(200);
            bytes[at] = u8::try_from(chance.below(256)).unwrap();
        }
        // With a checksum that fits, too: as somebody would write it who means harm.
        let mut bytes = sealed(bytes);
        if let Some(found) = decode_record(&bytes, &address) {
            assert!(found.iter().map(|it| it.data.len()).sum::<usize>() < record.len());
        }
        bytes.truncate(chance.below(bytes.len()));
        assert_eq!(decode_record(&bytes, &address), None);
        assert!(
            record_bytes(&bytes, &address)
                .is_none_or(|len| len <= record.len() || len <= RECORD_BYTES_MAX)
        );
        drop(Header::decode(&bytes));
    }
}

#[test]
fn a_log_is_found_by_its_unit_and_by_what_is_known_of_it() {
    let (log, header, _) = log(1, 0);
    let bytes = RING_OFFSET + header.ring_bytes;
    let known = |generation| {
        Some(Binding {
            id: header.id,
            generation,
        })
    };
    let find = |unit, bytes, known| find(&log, bytes, unit, known);
    for good in [None, known(5)] {
        assert_eq!(
            find(&header.unit, bytes, good).unwrap(),
            Some(header.clone())
        );
    }
    assert!(matches!(
        find(&header.unit, bytes, known(4)),
        Err(Misfit::Newer { found: 5, known: 4 })
    ));
    assert!(matches!(
        find(&[9; 16], bytes, None),
        Err(Misfit::OtherUnit { .. })
    ));
    assert!(matches!(
        find(&header.unit, bytes - 1, None),
        Err(Misfit::Cut { .. })
    ));
    assert!(matches!(
        find(&header.unit, bytes, known(6)),
        Err(Misfit::OtherGeneration { found: 5, known: 6 })
    ));
    let other = Some(Binding {
        id: [0; 16],
        generation: 5,
    });
    assert!(matches!(
        find(&header.unit, bytes, other),
        Err(Misfit::OtherLog)
    ));
    log.write(0, &[0; 2 * BLOCK_BYTES]).unwrap();
    // It has records still.
    assert!(matches!(
        self::find(&log, bytes, &header.unit, None),
        Err(Misfit::NotEmpty)
    ));
    let begin = usize::try_from(bytes.min(1 << 20)).unwrap();
    log.write(0, &vec![0; begin]).unwrap();
    assert_eq!(self::find(&log, bytes, &header.unit, None).unwrap(), None);
    let missing = self::find(&log, bytes, &header.unit, known(5));
    assert!(matches!(missing, Err(Misfit::Missing(NotAHeader::Foreign))));
    log.write(600, b"a file system").unwrap();
    assert!(matches!(
        self::find(&log, bytes, &header.unit, None),
        Err(Misfit::NotEmpty)
    ));
    // Another file system leaves its first blocks free.
    log.write(600, &[0; 13]).unwrap();
    log.write(64 << 10, b"a file system").unwrap();
    assert!(matches!(
        self::find(&log, bytes, &header.unit, None),
        Err(Misfit::NotEmpty)
    ));
}

/// What is known may be older than the log, as from a backup, and says nothing then about what the log has. A start
/// that was cut off leaves a newer head without records.
#[test]
fn a_log_with_changes_that_nobody_knows_of_is_never_begun_anew() {
    for how in [Use::Serving, Use::Left, Use::Closed, Use::Discarded] {
        for records in [0, 1, 2] {
            // Of the head: its generation beside what is known, and whether it is another log.
            for (generation, is_other) in [(0, false), (1, false), (7, false), (1, true)] {
                let (log, header, _) = log(records, 0);
                let bytes = log.0.borrow().len() as u64;
                let before = log.0.borrow().clone();
                let store = Bytes(RefCell::new(vec![0; 1 << 21]));
                let binding = Binding {
                    id: if is_other { [9; 16] } else { header.id },
                    generation: header.generation - generation.min(header.generation),
                };
                let options = options(&header, Some(Known { log: binding, how }));
                let shape = shape(&header);
                let begun = Journal::start(&log, bytes, &store, 1 << 21, &options, shape);
                let case = format!("{how:?}, {records} records, {generation}, other {is_other}");
                let is_unknown = records > 0 && (is_other || generation > 0);
                let is_lost = how == Use::Serving && is_other;
                let why = begun.as_ref().err().map(ToString::to_string);
                assert_eq!(begun.is_err(), is_unknown || is_lost, "{case}: {why:?}");
                if let Err(misfit) = begun {
                    let is_newer = matches!(misfit, Misfit::Newer { .. });
                    assert_eq!(is_newer, !is_other, "{case}: {misfit}");
                    assert_eq!(*log.0.borrow(), before, "{case}");
                    assert!(store.0.borrow().iter().all(|byte| *byte == 0), "{case}");
                    continue;
                }
                let found = read_head(&log, bytes).unwrap().unwrap();
                assert!(!found.has_records, "{case}");
                let is_later = found.generation > header.generation;
                assert!(is_later || found.id != header.id, "{case}: {found:?}");
            }
        }
    }
}

#[test]
fn what_a_store_refuses_is_counted_and_all_else_replayed() {
    let (log, header, _) = log(6, 0);
    let before = log.0.borrow().clone();
    let bytes = before.len() as u64;
    let binding = Binding {
        id: header.id,
        generation: header.generation,
    };
    let options = options(
        &header,
        Some(Known {
            log: binding,
            how: Use::Serving,
        }),
    );
    let all = all(6);
    let (writes, others): (Vec<_>, Vec<_>) = all.iter().partition(|it| it.deed == Deed::Write);
    let last = writes.iter().map(|it| it.range.end).max().unwrap();
    for store_bytes in [last, last - 1] {
        let is_refused = |it: &&&Entry| it.range.end > store_bytes;
        let behind = writes.iter().filter(is_refused).count();
        assert_eq!(behind > 0, store_bytes < last);
        // It clears nothing.
        let store = Bytes(RefCell::new(vec![0; 1 << 21]));
        let begun = Journal::start(&log, bytes, &store, store_bytes, &options, shape(&header));
        let Err(Misfit::NotReplayed {
            failed, entries, ..
        }) = begun.map(drop)
        else {
            panic!("it is refused");
        };
        assert_eq!(
            (failed, entries),
            ((others.len() + behind) as u64, all.len() as u64)
        );
        let expected = Bytes(RefCell::new(vec![0; 1 << 21]));
        for entry in writes.iter().filter(|it| it.range.end <= store_bytes) {
            expected.write(entry.range.start, &entry.data).unwrap();
        }
        assert!(*store.0.borrow() == *expected.0.borrow());
        assert!(*log.0.borrow() == before, "an administrator decides");
    }
}

/// Keeps nothing.
#[derive(Debug)]
struct Full;

impl Noted for Full {
    fn note(&self, _: Binding, _: Use) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn what_is_wrong_with_a_log_is_said() {
    let (log, header, _) = log(0, 0);
    let bytes = log.0.borrow().len() as u64;
    let store = Bytes(RefCell::new(vec![0; 1 << 21]));
    let start = |how, noted: Arc<dyn Noted>| {
        let binding = Binding {
            id: header.id,
            generation: 0,
        };
        let options = LogOptions {
            noted,
            ..options(&header, Some(Known { log: binding, how }))
        };
        let shape = shape(&header);
        let begun = match how {
            Use::Left => Journal::start(&Broken, bytes, &store, 1 << 21, &options, shape),
            Use::Serving | Use::Closed | Use::Discarded => {
                Journal::start(&log, bytes, &store, 1 << 21, &options, shape)
            }
        };
        begun.unwrap().0
    };
    let good = || start(Use::Discarded, Arc::new(Unnoted));
    assert_eq!(good().trouble(), None);
    let (failed, stuck, frozen) = (good(), good(), good());
    failed.0.books().left(true);
    stuck.0.books().left(false);
    frozen.0.books().last_synced(false);
    for (journal, expected) in [
        (failed, "its log device failed and is not in use any more"),
        (stuck, "its log device failed, and that could not be saved"),
        (frozen, "a sync of its store failed"),
        (
            start(Use::Discarded, Arc::new(Full)),
            "that it is served with its log could not be saved",
        ),
        (
            start(Use::Left, Arc::new(Unnoted)),
            "its log device cannot be read or written",
        ),
    ] {
        let trouble = journal.trouble().unwrap();
        assert!(trouble.starts_with(expected), "{trouble}");
    }
}

/// The store has everything: without the log it can serve, and with the log alone it cannot.
#[test]
fn a_log_that_cannot_be_read_is_done_without_and_a_store_that_cannot_be_synced_is_not() {
    let (log, header, _) = log(1, 0);
    let log_bytes = RING_OFFSET + header.ring_bytes;
    let store = Bytes(RefCell::new(vec![0; 1 << 21]));
    let shape = shape(&header);
    for how in [Use::Closed, Use::Left] {
        let binding = Binding {
            id: header.id,
            generation: header.generation,
        };
        let options = options(&header, Some(Known { log: binding, how }));
        let begun = Journal::start(&Broken, log_bytes, &store, 1 << 21, &options, shape);
        let (journal, _) = begun.unwrap();
        assert_eq!(journal.0.alone, Some(Alone::Unreadable));
        let begun = Journal::start(&log, log_bytes, &Broken, 1 << 21, &options, shape);
        let misfit = begun.map(drop).unwrap_err();
        assert!(matches!(misfit, Misfit::Store(_)), "{misfit}");
        let begun = Journal::start(&Broken, log_bytes, &Broken, 1 << 21, &options, shape);
        let misfit = begun.map(drop).unwrap_err();
        assert!(matches!(misfit, Misfit::Store(_)), "both: {misfit}");
    }
}
