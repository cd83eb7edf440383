//! Blocks that say where they belong, and a map of what was written last.
//!
//! Each session has blocks of its own. A block that is under way is left alone until it is done,
//! so what a read has to bring is known to the byte.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::stream::{Prng, mix};
use crate::transport::{Data, Operation};

/// Most blocks that all sessions of a point verify; what lies behind is left alone.
pub const VERIFIED_BLOCKS_MAX: u64 = 16 << 20;
/// Blocks that a session needs for each I/O under way, so that a free one is found soon.
pub const BLOCKS_PER_IO_MIN: u64 = 2;

const MAGIC: u64 = u64::from_le_bytes(*b"TARNtest");
/// Magic, offset, generation and seed, each eight bytes, little endian.
const HEADER_BYTES: usize = 32;
const WORD_BYTES: usize = 8;
/// Draws until a block is looked for in order.
const DRAWS_MAX: u32 = 8;

/// What a block was filled with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp {
    /// Where the block lies, in bytes.
    pub offset: u64,
    /// Which write of its session it was, from 1.
    pub generation: u32,
    /// That of the run.
    pub seed: u64,
}

impl Stamp {
    const fn header(&self) -> [u64; HEADER_BYTES / WORD_BYTES] {
        [MAGIC, self.offset, self.generation as u64, self.seed]
    }

    /// The words of a block of this stamp, without end.
    fn words(self) -> impl Iterator<Item = u64> {
        let key = mix(self.seed ^ mix(self.offset ^ mix(self.generation.into())));
        let fill = (0_u64..).map(move |n| mix(key.wrapping_add(n)));
        self.header().into_iter().chain(fill)
    }

    /// Writes a whole block of this stamp.
    pub fn fill(self, block: &mut [u8]) {
        for (place, word) in block.chunks_exact_mut(WORD_BYTES).zip(self.words()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Holds every byte of a block against this stamp.
    #[must_use]
    pub fn check(self, block: &[u8]) -> Option<Miscompare> {
        let first_byte = self.first_difference(block)?;
        Some(Miscompare {
            expected: self,
            first_byte,
            found: Found::of(block, first_byte),
        })
    }

    /// The first byte of the first word that is not of this stamp.
    fn first_difference(self, block: &[u8]) -> Option<usize> {
        let words = block.chunks_exact(WORD_BYTES);
        let word = words
            .zip(self.words())
            .position(|(got, expected)| got != expected.to_le_bytes())?;
        Some(word * WORD_BYTES)
    }
}

/// A block that is not what was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Miscompare {
    /// What was expected.
    pub expected: Stamp,
    /// First byte of the first word of eight bytes that differs.
    pub first_byte: usize,
    /// What came.
    pub found: Found,
}

/// What a block with wrong contents holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// Zeros only.
    Zeros,
    /// A whole block of another write.
    Other(Stamp),
    /// Neither; the eight bytes where it differs first.
    Bytes([u8; WORD_BYTES]),
}

impl Found {
    fn of(block: &[u8], at: usize) -> Self {
        if block.iter().all(|&byte| byte == 0) {
            return Self::Zeros;
        }
        let word = |n: usize| {
            let start = n * WORD_BYTES;
            let bytes = block.get(start..start + WORD_BYTES)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let stamp = || {
            let stamp = Stamp {
                offset: word(1)?,
                generation: u32::try_from(word(2)?).ok()?,
                seed: word(3)?,
            };
            stamp.first_difference(block).is_none().then_some(stamp)
        };
        let bytes = || {
            let bytes = block.get(at..at + WORD_BYTES)?;
            bytes.try_into().ok()
        };
        stamp().map_or_else(|| Self::Bytes(bytes().unwrap_or_default()), Self::Other)
    }
}

impl fmt::Display for Miscompare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp {
            offset, generation, ..
        } = self.expected;
        write!(f, "block at byte {offset}: expected write {generation}, ")?;
        match &self.found {
            Found::Zeros => f.write_str("zeros came"),
            Found::Other(stamp) if stamp.seed != self.expected.seed => {
                write!(
                    f,
                    "a block of an earlier run came, at byte {}",
                    stamp.offset
                )
            }
            Found::Other(stamp) => write!(
                f,
                "write {} of the block at byte {} came",
                stamp.generation, stamp.offset
            ),
            Found::Bytes(bytes) => {
                write!(f, "other bytes came, from byte {} on:", self.first_byte)?;
                bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
            }
        }
    }
}

/// What one I/O under way is about.
#[derive(Clone, Debug)]
struct Pending {
    block: u64,
    /// What the read expects, or the write carries.
    generation: u32,
    /// Buffers, here while they are not under way.
    read: Vec<u8>,
    write: Arc<[u8]>,
}

/// The blocks of one session: what was written last, and which are under way.
#[derive(Debug)]
pub struct Verifier {
    prng: Prng,
    seed: u64,
    blocks: Range<u64>,
    block_bytes: u32,
    read_percent: u64,
    /// Of the last write that was answered as good; 0 where the contents are not known.
    generations: Vec<u32>,
    is_busy: Vec<bool>,
    pending: Vec<Pending>,
    last_generation: u32,
}

impl Verifier {
    /// A session that has `blocks`, of `block_bytes` each, to itself, with up to `depth` I/Os
    /// under way.
    #[must_use]
    pub fn new(
        blocks: Range<u64>,
        block_bytes: u32,
        depth: u32,
        read_percent: u8,
        seed: u64,
    ) -> Self {
        let count = index(blocks.end - blocks.start);
        let block = vec![0; index(block_bytes.into())];
        let pending = Pending {
            block: 0,
            generation: 0,
            write: Arc::from(block.as_slice()),
            read: block,
        };
        let fresh = || Pending {
            write: Arc::from(pending.write.as_ref()),
            ..pending.clone()
        };
        Self {
            prng: Prng::new(seed ^ mix(blocks.start)),
            seed,
            blocks,
            block_bytes,
            read_percent: read_percent.into(),
            generations: vec![0; count],
            is_busy: vec![false; count],
            pending: (0..depth).map(|_| fresh()).collect(),
            last_generation: 0,
        }
    }

    /// The next I/O for a slot that is free, and whether it is a read.
    pub fn next_io(&mut self, slot: u32) -> (Operation, bool) {
        let block = self.draw();
        let generation = self.generations.get(index(block)).copied().unwrap_or(0);
        let is_read = generation != 0 && self.prng.below(100) < self.read_percent;
        let stamp = self.stamp(block, generation);
        let offset = stamp.offset;
        if let Some(busy) = self.is_busy.get_mut(index(block)) {
            *busy = true;
        }
        let data = match self.pending.get_mut(index(slot.into())) {
            Some(pending) if is_read => {
                (pending.block, pending.generation) = (block, generation);
                Data::Keep(std::mem::take(&mut pending.read))
            }
            Some(pending) => {
                self.last_generation = self.last_generation.wrapping_add(1).max(1);
                (pending.block, pending.generation) = (block, self.last_generation);
                let stamp = Stamp {
                    generation: self.last_generation,
                    ..stamp
                };
                Data::Write(filled(&mut pending.write, stamp))
            }
            None => Data::Discard,
        };
        let operation = Operation {
            offset,
            length: self.block_bytes,
            data,
        };
        (operation, is_read)
    }

    /// The I/O of a slot is over. `None` when all is as it should be, or when it failed.
    pub fn finish(&mut self, slot: u32, is_good: bool, data: Data) -> Option<Miscompare> {
        let (seed, start) = (self.seed, self.blocks.start);
        let pending = self.pending.get_mut(index(slot.into()))?;
        let block = index(pending.block);
        *self.is_busy.get_mut(block)? = false;
        let (generation, number) = (pending.generation, pending.block);
        match data {
            Data::Keep(buffer) => {
                let offset = (start + number) * u64::from(self.block_bytes);
                let stamp = Stamp {
                    offset,
                    generation,
                    seed,
                };
                let wrong = is_good.then(|| stamp.check(&buffer)).flatten();
                pending.read = buffer;
                wrong
            }
            Data::Write(_) | Data::Discard => {
                // After a failed write either contents may be there.
                *self.generations.get_mut(block)? = if is_good { generation } else { 0 };
                None
            }
        }
    }

    fn stamp(&self, block: u64, generation: u32) -> Stamp {
        Stamp {
            offset: (self.blocks.start + block) * u64::from(self.block_bytes),
            generation,
            seed: self.seed,
        }
    }

    /// A block of the session that is not under way, counted from its first one.
    fn draw(&mut self) -> u64 {
        let count = self.blocks.end - self.blocks.start;
        let is_busy = |busy: &[bool], block| busy.get(index(block)).copied().unwrap_or(false);
        let mut block = 0;
        for _ in 0..DRAWS_MAX {
            block = self.prng.below(count);
            if !is_busy(&self.is_busy, block) {
                return block;
            }
        }
        // There are more blocks than slots, so this ends.
        while is_busy(&self.is_busy, block) {
            block = (block + 1) % count;
        }
        block
    }
}

/// The buffer, filled; a new one while an earlier write still refers to it.
fn filled(buffer: &mut Arc<[u8]>, stamp: Stamp) -> Arc<[u8]> {
    match Arc::get_mut(buffer) {
        Some(bytes) => stamp.fill(bytes),
        None => {
            let mut bytes = vec![0; buffer.len()];
            stamp.fill(&mut bytes);
            *buffer = bytes.into();
        }
    }
    Arc::clone(buffer)
}

/// Block numbers of one session stay below [`VERIFIED_BLOCKS_MAX`].
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    const BLOCK: usize = 512;

    /// A disk that keeps what is written.
    #[derive(Default)]
    struct Disk(BTreeMap<u64, Vec<u8>>);

    impl Disk {
        fn execute(&mut self, operation: Operation) -> Data {
            match operation.data {
                Data::Write(data) => {
                    self.0.insert(operation.offset, data.to_vec());
                    Data::Write(data)
                }
                Data::Keep(mut buffer) => {
                    buffer.copy_from_slice(&self.0[&operation.offset]);
                    Data::Keep(buffer)
                }
                Data::Discard => Data::Discard,
            }
        }
    }

    fn verifier() -> Verifier {
        Verifier::new(10..30, 512, 4, 50, 99)
    }

    #[test]
    fn an_honest_disk_passes_and_reads_are_among_the_io() {
        let (mut disk, mut verifier) = (Disk::default(), verifier());
        let mut reads = 0;
        for n in 0..2000 {
            let slot = n % 4;
            let (operation, is_read) = verifier.next_io(slot);
            reads += u32::from(is_read);
            let data = disk.execute(operation);
            assert_eq!(verifier.finish(slot, true, data), None);
        }
        assert!((900..1100).contains(&reads), "{reads}");
        let offsets: Vec<_> = disk.0.keys().copied().collect();
        assert_eq!(offsets, (10..30).map(|n| n * 512).collect::<Vec<_>>());
    }

    #[test]
    fn blocks_under_way_are_left_alone() {
        let mut verifier = Verifier::new(0..4, 512, 4, 50, 1);
        let offsets: BTreeSet<_> = (0..4).map(|slot| verifier.next_io(slot).0.offset).collect();
        assert_eq!(offsets.len(), 4);
    }

    #[test]
    fn after_a_failed_write_a_block_is_not_read_until_it_is_written_again() {
        let mut verifier = Verifier::new(0..1, 512, 1, 100, 1);
        for is_good in [false, false, true] {
            let (operation, is_read) = verifier.next_io(0);
            assert!(!is_read);
            assert_eq!(verifier.finish(0, is_good, operation.data), None);
        }
        assert!(verifier.next_io(0).1);
    }

    #[test]
    fn every_planted_corruption_is_caught_and_named() {
        let stamp = Stamp {
            offset: 5120,
            generation: 7,
            seed: 99,
        };
        let block_of = |stamp: Stamp| {
            let mut block = vec![0; BLOCK];
            stamp.fill(&mut block);
            block
        };
        let good = block_of(stamp);
        assert_eq!(stamp.check(&good), None);
        for byte in 0..BLOCK {
            let mut bad = good.clone();
            bad[byte] ^= 1;
            let wrong = stamp.check(&bad).unwrap();
            assert_eq!(wrong.first_byte, byte / 8 * 8);
        }
        let stale = Stamp {
            generation: 6,
            ..stamp
        };
        let elsewhere = Stamp {
            offset: 512,
            ..stamp
        };
        let foreign = Stamp { seed: 1, ..stamp };
        let mut torn = good.clone();
        torn[256..].copy_from_slice(&block_of(stale)[256..]);
        for (block, text) in [
            (vec![0; BLOCK], "zeros came"),
            (block_of(stale), "write 6 of the block at byte 5120 came"),
            (block_of(elsewhere), "write 7 of the block at byte 512 came"),
            (block_of(foreign), "a block of an earlier run came"),
            (torn, "other bytes came, from byte 256 on: "),
        ] {
            let wrong = stamp.check(&block).unwrap().to_string();
            assert!(wrong.contains(text), "{wrong}");
            assert!(wrong.starts_with("block at byte 5120: expected write 7, "));
        }
    }
}
