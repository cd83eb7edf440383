//! What each block may hold, as far as it follows from commands and answers.
//!
//! A write may take effect any time between its sending and its answer. So a read may give any
//! value that was not certainly overwritten when the read was sent, and any that was being
//! written before the read was answered. A crash brings back whatever was not certainly made
//! durable. Each write has an id of its own and fills its blocks with it, so a read shows whose
//! data it is.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::disk::BLOCK_BYTES;

/// Names the content of a write. Zero is the content of blocks that were never written or given
/// back.
pub type WriteId = u64;

/// Names a command of the onlooker's, to find it again.
pub type Handle = u64;

/// A value a block may have. Two writes of zeros are two versions with one id.
#[derive(Clone, Copy, Debug)]
struct Version {
    id: WriteId,
    /// Of the write that made it.
    by: Handle,
    /// The write is not over.
    is_open: bool,
}

#[derive(Clone, Debug)]
struct Block {
    /// What a read may give.
    possible: Vec<Version>,
    /// What may be there after a crash.
    after_crash: Vec<Version>,
}

#[derive(Debug)]
struct Write {
    blocks: Range<usize>,
    /// For each block: what is gone for good once this write is over.
    supersedes: Vec<Vec<Handle>>,
    /// The cache went while it was under way, perhaps with it.
    may_be_lost: bool,
}

#[derive(Debug)]
struct Read {
    blocks: Range<usize>,
    candidates: Vec<Vec<WriteId>>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// With GOOD.
    Good {
        /// And it is on stable storage.
        durable: bool,
    },
    /// It failed or was aborted: some blocks may have changed, and none will any more.
    Uncertain,
    /// It was refused before it began: nothing has changed.
    Refused,
}

/// A block that holds what it cannot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrongData {
    /// Which block.
    pub lba: usize,
    /// What it holds, in words.
    pub got: String,
    /// Ids of writes that it may hold.
    pub possible: Vec<WriteId>,
}

/// The book of all blocks.
#[derive(Debug)]
pub struct Ledger {
    blocks: Vec<Block>,
    writes: BTreeMap<Handle, Write>,
    reads: BTreeMap<Handle, Read>,
    /// For each flush under way: what cannot come back any more once it is over.
    flushes: BTreeMap<Handle, Vec<(usize, Handle)>>,
}

impl Block {
    fn zero() -> Self {
        let zero = Version {
            id: 0,
            by: 0,
            is_open: false,
        };
        Self {
            possible: vec![zero],
            after_crash: vec![zero],
        }
    }
}

impl Ledger {
    /// A medium of zeros.
    pub fn new(blocks: usize) -> Self {
        Self {
            blocks: vec![Block::zero(); blocks],
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            flushes: BTreeMap::new(),
        }
    }

    /// How many blocks there are.
    pub const fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The medium has so many blocks from now on, the new ones of zeros.
    pub fn grow(&mut self, blocks: usize) {
        self.blocks.resize_with(blocks, Block::zero);
    }

    /// A write of `id` to these blocks is about to be sent. No two writes share a handle, and
    /// none has zero.
    pub fn begin_write(&mut self, handle: Handle, id: WriteId, blocks: Range<usize>) {
        let mut supersedes = Vec::with_capacity(blocks.len());
        let version = Version {
            id,
            by: handle,
            is_open: true,
        };
        for block in &mut self.blocks[blocks.clone()] {
            let settled = block.possible.iter().filter(|version| !version.is_open);
            supersedes.push(settled.map(|version| version.by).collect());
            block.possible.push(version);
            block.after_crash.push(version);
        }
        for read in self.reads.values_mut() {
            for (lba, candidates) in read.blocks.clone().zip(&mut read.candidates) {
                if blocks.contains(&lba) {
                    candidates.push(id);
                }
            }
        }
        let write = Write {
            blocks,
            supersedes,
            may_be_lost: false,
        };
        self.writes.insert(handle, write);
    }

    /// A write is over.
    pub fn end_write(&mut self, handle: Handle, ended: Ended) {
        let Some(write) = self.writes.remove(&handle) else {
            return;
        };
        for (block, gone) in self.blocks[write.blocks].iter_mut().zip(write.supersedes) {
            let own = block
                .possible
                .iter_mut()
                .find(|version| version.by == handle);
            if let Some(version) = own {
                version.is_open = false;
            }
            let stays = |version: &Version| !gone.contains(&version.by);
            let is_another = |version: &Version| version.by != handle;
            match ended {
                Ended::Good { durable: false } if write.may_be_lost => {}
                Ended::Good { durable } => {
                    block.possible.retain(stays);
                    if durable {
                        block.after_crash.retain(stays);
                    }
                }
                Ended::Uncertain => {}
                Ended::Refused => {
                    block.possible.retain(is_another);
                    block.after_crash.retain(is_another);
                }
            }
        }
    }

    /// A read of these blocks is about to be sent.
    pub fn begin_read(&mut self, handle: Handle, blocks: Range<usize>) {
        let of_block = |block: &Block| block.possible.iter().map(|version| version.id).collect();
        let candidates = self.blocks[blocks.clone()].iter().map(of_block).collect();
        self.reads.insert(handle, Read { blocks, candidates });
    }

    /// A read is over and gave this; `None` if it failed.
    pub fn end_read(&mut self, handle: Handle, data: Option<&[u8]>) -> Result<(), WrongData> {
        let (Some(read), Some(data)) = (self.reads.remove(&handle), data) else {
            return Ok(());
        };
        let blocks = read.blocks.zip(read.candidates);
        for ((lba, possible), bytes) in blocks.zip(data.chunks(BLOCK_BYTES)) {
            let got = id_of(lba, bytes);
            if !got.is_some_and(|id| possible.contains(&id)) {
                let got = got.map_or_else(|| odd_block(bytes), |id| format!("write {id}"));
                return Err(WrongData { lba, got, possible });
            }
        }
        Ok(())
    }

    /// A flush is about to be sent.
    pub fn begin_flush(&mut self, handle: Handle) {
        let mut gone = Vec::new();
        for (lba, block) in self.blocks.iter().enumerate() {
            let is_over = |by| block.possible.iter().all(|version| version.by != by);
            let over = block
                .after_crash
                .iter()
                .filter(|version| is_over(version.by));
            gone.extend(over.map(|version| (lba, version.by)));
        }
        self.flushes.insert(handle, gone);
    }

    /// A flush is over.
    pub fn end_flush(&mut self, handle: Handle, is_good: bool) {
        let gone = self.flushes.remove(&handle).unwrap_or_default();
        for (lba, gone) in gone.into_iter().filter(|_| is_good) {
            self.blocks[lba]
                .after_crash
                .retain(|version| version.by != gone);
        }
    }

    /// The machine of the target stopped, and everything that was under way with it.
    pub fn crash(&mut self) {
        self.writes.clear();
        self.reads.clear();
        self.flushes.clear();
        for block in &mut self.blocks {
            for version in &mut block.after_crash {
                version.is_open = false;
            }
            block.possible.clone_from(&block.after_crash);
        }
    }

    /// The cache of the disk goes, which `content` is after that, and everything goes on. Gives the writes that were
    /// over and whose blocks have something else now, by what they wrote; zeros are not among them.
    pub fn lose_cache(&mut self, before: &[u8], content: &[u8]) -> Vec<WriteId> {
        for write in self.writes.values_mut() {
            write.may_be_lost = true;
        }
        for gone in self.flushes.values_mut() {
            gone.clear();
        }
        let mut lost = Vec::new();
        let writes = &self.writes;
        for (lba, block) in self.blocks.iter_mut().enumerate() {
            let bytes = lba * BLOCK_BYTES..(lba + 1) * BLOCK_BYTES;
            let (before, after) = (&before[bytes.clone()], &content[bytes]);
            if before != after {
                lost.extend(id_of(lba, before).filter(|&id| id != 0));
            }
            for version in &mut block.after_crash {
                version.is_open = writes.contains_key(&version.by);
            }
            block.possible.clone_from(&block.after_crash);
        }
        for read in self.reads.values_mut() {
            for (lba, candidates) in read.blocks.clone().zip(&mut read.candidates) {
                let possible = self.blocks[lba].possible.iter();
                candidates.extend(possible.map(|version| version.id));
            }
        }
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// Holds the medium itself against the book, when nothing is under way any more.
    pub fn check_all(&mut self, content: &[u8]) -> Result<(), WrongData> {
        self.begin_read(0, 0..self.blocks.len());
        self.end_read(0, Some(content))
    }

    /// Some value that the block may hold, as a guess.
    pub fn guess(&self, lba: usize) -> WriteId {
        let block = self.blocks.get(lba);
        let mut newest_first = block
            .into_iter()
            .flat_map(|block| block.possible.iter().rev());
        let settled = newest_first.find(|version| !version.is_open);
        settled.map_or(0, |version| version.id)
    }
}

/// What a write of `id` puts into these blocks.
pub fn content(id: WriteId, blocks: Range<usize>) -> Vec<u8> {
    let cell = |lba: usize| [id, if id == 0 { 0 } else { lba as u64 }];
    let bytes = |lba| cell(lba).map(u64::to_be_bytes).concat();
    blocks
        .flat_map(|lba| bytes(lba).repeat(BLOCK_BYTES / 16))
        .collect()
}

/// Whose data a block holds; `None` if it is nobody's, or another block's.
fn id_of(lba: usize, bytes: &[u8]) -> Option<WriteId> {
    let id = u64::from_be_bytes(*bytes.first_chunk()?);
    (content(id, lba..lba + 1) == bytes).then_some(id)
}

fn odd_block(bytes: &[u8]) -> String {
    let cells = bytes.chunks(16).map(|cell| {
        let half = |at| {
            let bytes = cell.get(at..).and_then(|half| half.first_chunk());
            bytes.map_or(0, |&half| u64::from_be_bytes(half))
        };
        format!("write {} for block {}", half(0), half(8))
    });
    let mut cells: Vec<String> = cells.collect();
    cells.dedup();
    cells.truncate(4);
    format!("a mixture: {}", cells.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Ended = Ended::Good { durable: false };

    /// Which writes a read sent and answered now may give for block 0.
    fn readable(ledger: &mut Ledger) -> Vec<WriteId> {
        (0..10)
            .filter(|&id| {
                ledger.begin_read(99, 0..1);
                ledger.end_read(99, Some(&content(id, 0..1))).is_ok()
            })
            .collect()
    }

    #[test]
    fn a_finished_write_is_all_a_later_read_gives() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 5, 0..2);
        assert_eq!(readable(&mut ledger), [0, 5]);
        ledger.end_write(1, GOOD);
        assert_eq!(readable(&mut ledger), [5]);
    }

    #[test]
    fn of_two_writes_at_once_either_stays() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 5, 0..1);
        ledger.begin_write(2, 6, 0..1);
        ledger.end_write(1, GOOD);
        ledger.end_write(2, GOOD);
        assert_eq!(readable(&mut ledger), [5, 6]);
        ledger.begin_write(3, 7, 0..1);
        ledger.end_write(3, GOOD);
        assert_eq!(readable(&mut ledger), [7]);
    }

    #[test]
    fn a_read_may_give_what_was_written_while_it_was_under_way() {
        let mut ledger = Ledger::new(4);
        ledger.begin_read(9, 0..1);
        ledger.begin_write(1, 5, 0..1);
        ledger.end_write(1, GOOD);
        assert_eq!(ledger.end_read(9, Some(&content(5, 0..1))), Ok(()));
    }

    #[test]
    fn a_write_of_unknown_outcome_stays_possible_until_another_ends_after_it() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 5, 0..1);
        ledger.end_write(1, Ended::Uncertain);
        assert_eq!(readable(&mut ledger), [0, 5]);
        ledger.begin_write(2, 6, 0..1);
        ledger.end_write(2, GOOD);
        assert_eq!(readable(&mut ledger), [6]);
    }

    #[test]
    fn a_refused_write_is_never_seen() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 5, 0..1);
        ledger.end_write(1, Ended::Refused);
        assert_eq!(readable(&mut ledger), [0]);
        ledger.crash();
        assert_eq!(readable(&mut ledger), [0]);
    }

    #[test]
    fn data_of_another_block_or_of_two_writes_is_wrong() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 5, 0..2);
        ledger.end_write(1, GOOD);
        ledger.begin_read(9, 0..1);
        let misplaced = ledger.end_read(9, Some(&content(5, 1..2))).unwrap_err();
        assert_eq!(misplaced.got, "a mixture: write 5 for block 1");
        ledger.begin_read(9, 0..1);
        let mut torn = content(5, 0..1);
        torn[100..].fill(0);
        assert!(ledger.end_read(9, Some(&torn)).is_err());
    }

    #[test]
    fn a_crash_brings_back_what_was_not_durable_and_nothing_older() {
        let mut ledger = Ledger::new(4);
        for (handle, id) in [(1, 5), (2, 6)] {
            ledger.begin_write(handle, id, 0..1);
            ledger.end_write(handle, GOOD);
        }
        ledger.begin_flush(8);
        ledger.end_flush(8, true);
        ledger.begin_write(3, 7, 0..1);
        ledger.end_write(3, GOOD);
        assert_eq!(readable(&mut ledger), [7]);
        ledger.crash();
        assert_eq!(readable(&mut ledger), [6, 7]);
        ledger.begin_write(4, 8, 0..1);
        ledger.end_write(4, Ended::Good { durable: true });
        ledger.crash();
        assert_eq!(readable(&mut ledger), [8]);
    }

    #[test]
    fn what_goes_with_the_cache_may_come_back_until_it_is_written_again() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 5, 0..1);
        ledger.end_write(1, GOOD);
        ledger.begin_write(2, 6, 0..1);
        ledger.begin_flush(8);
        ledger.begin_read(9, 0..1);
        let (before, after) = (content(5, 0..4), content(0, 0..4));
        assert_eq!(ledger.lose_cache(&before, &after), [5]);
        assert_eq!(ledger.end_read(9, Some(&content(0, 0..1))), Ok(()));
        ledger.end_flush(8, true);
        // It may have been done before the cache went.
        ledger.end_write(2, GOOD);
        assert_eq!(readable(&mut ledger), [0, 5, 6]);
        ledger.begin_write(3, 7, 0..1);
        ledger.end_write(3, GOOD);
        assert_eq!(readable(&mut ledger), [7]);
    }

    #[test]
    fn a_flush_does_not_cover_what_ended_after_it_was_sent_or_when_it_fails() {
        for (is_good, ends_first) in [(true, false), (false, true)] {
            let mut ledger = Ledger::new(4);
            ledger.begin_write(1, 5, 0..1);
            if ends_first {
                ledger.end_write(1, GOOD);
            }
            ledger.begin_flush(8);
            ledger.end_write(1, GOOD);
            ledger.end_flush(8, is_good);
            ledger.crash();
            assert_eq!(readable(&mut ledger), [0, 5]);
        }
    }

    #[test]
    fn zeros_written_at_the_same_time_as_data_stay_possible() {
        let mut ledger = Ledger::new(4);
        ledger.begin_write(1, 0, 0..1);
        ledger.begin_write(2, 5, 0..1);
        ledger.end_write(1, GOOD);
        ledger.end_write(2, GOOD);
        assert_eq!(readable(&mut ledger), [0, 5]);
        ledger.begin_write(3, 6, 0..1);
        ledger.end_write(3, GOOD);
        assert_eq!(readable(&mut ledger), [6]);
    }
}
