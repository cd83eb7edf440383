//! The bytes of a log device. docs/internals/log-format.md describes them for readers of other programs.
//!
//! Whatever a log holds can be read from any bytes at all without a panic: numbers are taken as they are and checked.

use std::io;
use std::ops::Range;

use crc_fast::CrcAlgorithm;

/// The unit of the layout, in bytes: all places and lengths are multiples of it.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Where the ring begins, in bytes: behind the two headers.
pub(super) const RING_OFFSET: u64 = 2 * BLOCK_BYTES as u64;

/// The longest record of any log, in bytes, and that of a new one.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 20;

/// The smallest log device, in bytes: room for some of the longest records.
pub const LOG_BYTES_MIN: u64 = 16 << 20;

/// Where the record of the medium of the store begins in a header, behind its length, in bytes.
const MEDIUM_OFFSET: usize = 96;

/// The longest such record, in bytes.
pub const MEDIUM_BYTES_MAX: usize = 2048;

const _: () = assert!(
    MEDIUM_OFFSET + MEDIUM_BYTES_MAX <= BLOCK_BYTES,
    "a header has room for it"
);

const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"TARNLOG1");
const RECORD_MAGIC: u64 = u64::from_le_bytes(*b"TARNREC1");

/// How long the head of a record is, and each entry after it, in bytes.
const RECORD_HEAD_BYTES: usize = 64;
const ENTRY_HEAD_BYTES: usize = 24;

/// Made once for each log, at random.
pub type LogId = [u8; 16];

/// The designator of a unit, with zeros behind a short one.
pub type UnitName = [u8; 16];

/// What the two headers say. The one that is whole and has the higher turn counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// Counts the writes of headers. Its lowest bit is the number of the block.
    pub turn: u64,
    /// The log.
    pub id: LogId,
    /// The unit whose data it has.
    pub unit: UnitName,
    /// Counts the openings of the log. Records of another generation are not of this log's present content.
    pub generation: u64,
    /// The length of the ring in bytes.
    pub ring_bytes: u64,
    /// The longest record in bytes. None begins where less than this is left of the ring.
    pub record_bytes: usize,
    /// The position of the first record that may be missing in the store.
    pub tail: u64,
    /// Its sequence number.
    pub sequence: u64,
    /// The unit was closed: the store has everything.
    pub is_clean: bool,
    /// What the medium of the store is recognised by, as the user of the log writes it; at most [`MEDIUM_BYTES_MAX`]
    /// bytes. Empty where nothing is recorded.
    pub medium: Vec<u8>,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotAHeader {
    /// No log was ever here.
    #[error("it does not begin as a log does")]
    Foreign,
    /// It was one.
    #[error("its header is damaged")]
    Damaged,
}

/// What an entry does to the store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Deed {
    /// Writes its data.
    Write,
    /// Writes zeros and keeps the space.
    Zeros,
    /// Gives the space back; reads as zeros.
    Unmap,
}

impl Deed {
    const fn number(self) -> u32 {
        match self {
            Self::Write => 1,
            Self::Zeros => 2,
            Self::Unmap => 3,
        }
    }

    const fn of_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Write),
            2 => Some(Self::Zeros),
            3 => Some(Self::Unmap),
            _ => None,
        }
    }
}

/// One change of the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// What is done.
    pub deed: Deed,
    /// To these bytes of the store.
    pub range: Range<u64>,
    /// With this data, as long as the range; only for [`Deed::Write`].
    pub data: Vec<u8>,
}

impl Entry {
    /// How many bytes of a record it takes.
    pub(super) const fn record_bytes(&self) -> usize {
        ENTRY_HEAD_BYTES + self.data.len()
    }
}

/// What a record is found by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Address {
    /// The log.
    pub id: LogId,
    /// Its generation.
    pub generation: u64,
    /// Counts the records of a log.
    pub sequence: u64,
    /// Where it begins, counted on over the laps of the ring.
    pub position: u64,
}

/// Puts bytes at a place of a block.
fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = block.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    let bytes = block.get(at..at + 8).and_then(|it| it.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    let bytes = block.get(at..at + 4).and_then(|it| it.try_into().ok());
    u32::from_le_bytes(bytes.unwrap_or_default())
}

fn name_at(block: &[u8], at: usize) -> [u8; 16] {
    let bytes = block.get(at..at + 16).and_then(|it| it.try_into().ok());
    bytes.unwrap_or_default()
}

/// CRC-32C of all behind the checksum.
#[expect(clippy::cast_possible_truncation, reason = "it has 32 bits")]
fn checksum(block: &[u8]) -> u32 {
    crc_fast::checksum(
        CrcAlgorithm::Crc32Iscsi,
        block.get(12..).unwrap_or_default(),
    ) as u32
}

fn seal(block: &mut [u8]) {
    let sum = checksum(block);
    put(block, 8, &sum.to_le_bytes());
}

/// Where a position is on the log device, in bytes.
pub(super) const fn place(position: u64, ring_bytes: u64) -> u64 {
    RING_OFFSET + position % ring_bytes
}

/// The length of the ring on a device of this size, if that is large enough.
pub(super) fn ring_bytes(log_bytes: u64) -> Option<u64> {
    let bytes = log_bytes - log_bytes % BLOCK_BYTES as u64;
    (bytes >= LOG_BYTES_MIN).then(|| bytes - RING_OFFSET)
}

impl Header {
    /// Where the next record begins after one that ends there.
    pub const fn after(&self, end: u64) -> u64 {
        let left = self.ring_bytes - end % self.ring_bytes;
        if left < self.record_bytes as u64 {
            end + left
        } else {
            end
        }
    }

    /// The most data that an entry has, in bytes: it fits in a record by itself.
    pub const fn entry_bytes(&self) -> usize {
        self.record_bytes - BLOCK_BYTES
    }

    /// How many bytes entries may take of one record in all.
    pub const fn room(&self) -> usize {
        self.record_bytes - RECORD_HEAD_BYTES
    }

    /// Where it is on the log device, in bytes.
    pub const fn place(&self) -> u64 {
        (self.turn & 1) * BLOCK_BYTES as u64
    }

    /// Its block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        put(&mut block, 0, &HEADER_MAGIC.to_le_bytes());
        put(&mut block, 12, &u32::from(self.is_clean).to_le_bytes());
        put(&mut block, 16, &self.turn.to_le_bytes());
        put(&mut block, 24, &self.id);
        put(&mut block, 40, &self.unit);
        put(&mut block, 56, &self.generation.to_le_bytes());
        put(&mut block, 64, &self.ring_bytes.to_le_bytes());
        put(&mut block, 72, &self.tail.to_le_bytes());
        put(&mut block, 80, &self.sequence.to_le_bytes());
        let record_bytes = u32::try_from(self.record_bytes).unwrap_or(u32::MAX);
        put(&mut block, 88, &record_bytes.to_le_bytes());
        debug_assert!(self.medium.len() <= MEDIUM_BYTES_MAX, "checked before");
        let medium_bytes = u32::try_from(self.medium.len()).unwrap_or(u32::MAX);
        put(&mut block, 92, &medium_bytes.to_le_bytes());
        put(&mut block, MEDIUM_OFFSET, &self.medium);
        seal(&mut block);
        block
    }

    /// Reads a block.
    ///
    /// # Errors
    ///
    /// It is no header, or not whole.
    pub fn decode(block: &[u8]) -> Result<Self, NotAHeader> {
        if u64_at(block, 0) != HEADER_MAGIC {
            return Err(NotAHeader::Foreign);
        }
        let medium_bytes = usize::try_from(u32_at(block, 92)).unwrap_or(usize::MAX);
        let header = Self {
            turn: u64_at(block, 16),
            id: name_at(block, 24),
            unit: name_at(block, 40),
            generation: u64_at(block, 56),
            ring_bytes: u64_at(block, 64),
            tail: u64_at(block, 72),
            sequence: u64_at(block, 80),
            record_bytes: usize::try_from(u32_at(block, 88)).unwrap_or(usize::MAX),
            is_clean: u32_at(block, 12) & 1 != 0,
            medium: block
                .get(MEDIUM_OFFSET..)
                .and_then(|it| it.get(..medium_bytes))
                .unwrap_or_default()
                .to_vec(),
        };
        let is_whole = block.len() == BLOCK_BYTES && checksum(block) == u32_at(block, 8);
        let block_bytes = BLOCK_BYTES as u64;
        let is_possible = (2 * BLOCK_BYTES..=RECORD_BYTES_MAX).contains(&header.record_bytes)
            && header.record_bytes.is_multiple_of(BLOCK_BYTES)
            && header.ring_bytes >= 4 * header.record_bytes as u64
            && header.ring_bytes < 1 << 62
            && header.ring_bytes.is_multiple_of(block_bytes)
            && header.tail.is_multiple_of(block_bytes)
            && header.tail < 1 << 62
            && medium_bytes <= MEDIUM_BYTES_MAX;
        match is_whole && is_possible {
            true => Ok(header),
            false => Err(NotAHeader::Damaged),
        }
    }

    /// The header of a log device that begins with these two blocks.
    ///
    /// # Errors
    ///
    /// None of them is one.
    pub fn of_log(blocks: &[u8]) -> Result<Self, NotAHeader> {
        let mut found: Result<Self, NotAHeader> = Err(NotAHeader::Foreign);
        for (block, number) in blocks.chunks(BLOCK_BYTES).take(2).zip(0..) {
            // One that is at the place of the other was not put there by a log.
            let header = Self::decode(block).and_then(|it| {
                (it.turn & 1 == number)
                    .then_some(it)
                    .ok_or(NotAHeader::Damaged)
            });
            found = match (found, header) {
                (Ok(one), Ok(other)) if one.turn > other.turn => Ok(one),
                (_, Ok(other)) => Ok(other),
                (Err(NotAHeader::Foreign), Err(error)) => Err(error),
                (found, Err(_)) => found,
            };
        }
        found
    }
}

/// Refuses a record of a medium that has no room in a header.
///
/// # Errors
///
/// It is too long to be recorded.
pub(super) fn check_medium(medium: &[u8]) -> io::Result<()> {
    let bytes = medium.len();
    match bytes <= MEDIUM_BYTES_MAX {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "the record of the medium has {bytes} bytes, and a log takes {MEDIUM_BYTES_MAX}"
            ),
        )),
    }
}

/// The bytes of a record. The entries must fit ([`Header::room`]).
pub(super) fn encode_record(address: &Address, entries: &[Entry]) -> Vec<u8> {
    let data_at = RECORD_HEAD_BYTES + entries.len() * ENTRY_HEAD_BYTES;
    let used = RECORD_HEAD_BYTES + entries.iter().map(Entry::record_bytes).sum::<usize>();
    let len = used.next_multiple_of(BLOCK_BYTES);
    let mut record = Vec::with_capacity(len);
    record.resize(data_at, 0);
    put(&mut record, 0, &RECORD_MAGIC.to_le_bytes());
    put(
        &mut record,
        12,
        &(u32::try_from(len).unwrap_or(u32::MAX)).to_le_bytes(),
    );
    put(&mut record, 16, &address.id);
    put(&mut record, 32, &address.generation.to_le_bytes());
    put(&mut record, 40, &address.sequence.to_le_bytes());
    put(&mut record, 48, &address.position.to_le_bytes());
    let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
    put(&mut record, 56, &count.to_le_bytes());
    for (number, entry) in entries.iter().enumerate() {
        let at = RECORD_HEAD_BYTES + number * ENTRY_HEAD_BYTES;
        put(&mut record, at, &entry.deed.number().to_le_bytes());
        put(&mut record, at + 8, &entry.range.start.to_le_bytes());
        let bytes = entry.range.end - entry.range.start;
        put(&mut record, at + 16, &bytes.to_le_bytes());
    }
    for entry in entries {
        record.extend_from_slice(&entry.data);
    }
    record.resize(len, 0);
    seal(&mut record);
    record
}

/// How long the record is that begins with this block, if it is the one with this address: its bytes up to there are
/// for [`decode_record`].
pub(super) fn record_bytes(block: &[u8], address: &Address) -> Option<usize> {
    let len = usize::try_from(u32_at(block, 12)).ok()?;
    let is_it = u64_at(block, 0) == RECORD_MAGIC
        && name_at(block, 16) == address.id
        && u64_at(block, 32) == address.generation
        && u64_at(block, 40) == address.sequence
        && u64_at(block, 48) == address.position;
    let is_possible =
        (BLOCK_BYTES..=RECORD_BYTES_MAX).contains(&len) && len.is_multiple_of(BLOCK_BYTES);
    (is_it && is_possible).then_some(len)
}

/// What a block says of the record that begins with it, if one does.
pub(super) fn record_address(block: &[u8]) -> Option<Address> {
    let is_record = block.len() >= RECORD_HEAD_BYTES && u64_at(block, 0) == RECORD_MAGIC;
    is_record.then(|| Address {
        id: name_at(block, 16),
        generation: u64_at(block, 32),
        sequence: u64_at(block, 40),
        position: u64_at(block, 48),
    })
}

/// The entries of a record, if these bytes are the whole one with this address.
pub(super) fn decode_record(record: &[u8], address: &Address) -> Option<Vec<Entry>> {
    if record_bytes(record, address)? != record.len() || checksum(record) != u32_at(record, 8) {
        return None;
    }
    let count = usize::try_from(u32_at(record, 56)).ok()?;
    if count > RECORD_BYTES_MAX / ENTRY_HEAD_BYTES {
        return None;
    }
    let mut data_at = RECORD_HEAD_BYTES + count * ENTRY_HEAD_BYTES;
    let entry = |number: usize| {
        let at = RECORD_HEAD_BYTES + number * ENTRY_HEAD_BYTES;
        let deed = Deed::of_number(u32_at(record, at))?;
        let (start, bytes) = (u64_at(record, at + 8), u64_at(record, at + 16));
        let range = start..start.checked_add(bytes)?;
        let len = match deed {
            Deed::Write => usize::try_from(bytes).ok()?,
            Deed::Zeros | Deed::Unmap => 0,
        };
        let data = record.get(data_at..data_at.checked_add(len)?)?.to_vec();
        data_at += len;
        Some(Entry { deed, range, data })
    };
    (0..count).map(entry).collect()
}
