//! What each block may hold, as far as it follows from commands and answers.
//!
//! A write may take effect any time between its sending and its answer. So a read may give what was not certainly
//! overwritten when the read was sent, and what was being written before it was answered. A crash brings back whatever
//! was not certainly made durable. Blocks are whole: a block holds what one write put there, never parts of two.
//!
//! It knows blocks and tags, no commands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::types::Tag;

/// What a write puts into its blocks.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Unknown.
    Any,
    /// These bytes from block `base` on, over and over.
    Bytes { data: Arc<[u8]>, base: u64 },
}

impl Content {
    /// Whether block `lba` of this content is `bytes`.
    fn may_be(&self, lba: u64, bytes: &[u8]) -> bool {
        self.block(lba, bytes.len())
            .is_none_or(|block| block == bytes)
    }

    /// Whether block `lba` of this content may differ from `bytes`.
    fn may_differ(&self, lba: u64, bytes: &[u8]) -> bool {
        self.block(lba, bytes.len())
            .is_none_or(|block| block != bytes)
    }

    /// Whether both are known, and the same in every block.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Bytes { data, base },
                Self::Bytes {
                    data: other,
                    base: other_base,
                },
            ) => data == other && base == other_base,
            (Self::Any, _) | (_, Self::Any) => false,
        }
    }

    /// Block `lba`; `None` if it is unknown.
    pub(crate) fn block(&self, lba: u64, block_bytes: usize) -> Option<&[u8]> {
        let Self::Bytes { data, base } = self else {
            return None;
        };
        let index = usize::try_from(lba - base).unwrap_or(usize::MAX) % (data.len() / block_bytes);
        data.get(index * block_bytes..(index + 1) * block_bytes)
    }
}

#[derive(Clone, Debug)]
struct Version {
    by: Tag,
    content: Content,
    /// Its write is not over.
    is_open: bool,
    /// Its content depends on what was there before.
    is_derived: bool,
    /// Versions that are gone for good once this write is over.
    supersedes: Vec<Tag>,
}

/// Neighbouring blocks with the same versions.
#[derive(Clone, Debug)]
struct Extent {
    end: u64,
    /// What a read may give.
    possible: Vec<Version>,
    /// What may be there after a crash.
    after_crash: Vec<Version>,
}

#[derive(Clone, Debug)]
struct Read {
    blocks: Range<u64>,
    candidates: Vec<(Range<u64>, Content)>,
    /// Nothing was being written to these blocks.
    is_steady: bool,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// With GOOD, perhaps on stable storage.
    Good { durable: bool },
    /// Some blocks may have changed, and none will any more.
    Uncertain,
    /// Nothing has changed.
    Refused,
}

/// All blocks of one medium.
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    block_bytes: usize,
    extents: BTreeMap<u64, Extent>,
    /// Blocks of each write under way, and whether the cache went with it perhaps.
    writes: BTreeMap<Tag, (Vec<Range<u64>>, bool)>,
    reads: BTreeMap<Tag, Read>,
    /// For each flush under way: what cannot come back any more once it is over.
    flushes: BTreeMap<Tag, Vec<(Range<u64>, Tag)>>,
}

impl Medium {
    /// A medium of zeros. No command has the tag `zeros`.
    pub(crate) fn new(block_bytes: usize, zeros: Tag) -> Self {
        let data = vec![0; block_bytes].into();
        let content = Content::Bytes { data, base: 0 };
        let zero = Version {
            by: zeros,
            content,
            is_open: false,
            is_derived: false,
            supersedes: Vec::new(),
        };
        let extent = Extent {
            end: u64::MAX,
            possible: vec![zero.clone()],
            after_crash: vec![zero],
        };
        Self {
            block_bytes,
            extents: BTreeMap::from([(0, extent)]),
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            flushes: BTreeMap::new(),
        }
    }

    fn split(&mut self, at: u64) {
        if let Some((&start, extent)) = self.extents.range_mut(..at).next_back()
            && extent.end > at
        {
            let right = extent.clone();
            extent.end = at;
            debug_assert!(start < at, "an extent begins before its end");
            self.extents.insert(at, right);
        }
    }

    fn within(&mut self, blocks: &Range<u64>) -> impl Iterator<Item = (&u64, &mut Extent)> {
        self.split(blocks.start);
        self.split(blocks.end);
        self.extents.range_mut(blocks.clone())
    }

    /// A write is about to be sent. `is_derived`: what it writes depends on what is there.
    pub(crate) fn begin_write(
        &mut self,
        tag: Tag,
        mut ranges: Vec<Range<u64>>,
        content: &Content,
        is_derived: bool,
    ) {
        ranges.retain(|blocks| !blocks.is_empty());
        for blocks in &ranges {
            self.begin_range(tag, blocks, content, is_derived);
        }
        self.writes.insert(tag, (ranges, false));
    }

    fn begin_range(&mut self, tag: Tag, blocks: &Range<u64>, content: &Content, is_derived: bool) {
        for (_, extent) in self
            .within(blocks)
            .filter(|(_, extent)| extent.possible.iter().all(|old| old.by != tag))
        {
            let derived = |version: &Version| version.is_open && version.is_derived;
            if extent.possible.iter().any(derived) {
                let versions = extent.possible.iter_mut().chain(&mut extent.after_crash);
                for version in versions.filter(|version| derived(version)) {
                    version.content = Content::Any;
                }
            }
            let settled = extent.possible.iter().filter(|version| !version.is_open);
            let supersedes = settled.map(|version| version.by).collect();
            let content = content.clone();
            let version = Version {
                by: tag,
                content,
                is_open: true,
                is_derived,
                supersedes,
            };
            extent.possible.push(version.clone());
            extent.after_crash.push(version);
        }
        for (_, read) in self.reads.iter_mut().filter(|(reader, _)| **reader != tag) {
            let both = blocks.start.max(read.blocks.start)..blocks.end.min(read.blocks.end);
            if !both.is_empty() {
                read.candidates.push((both, content.clone()));
                read.is_steady = false;
            }
        }
    }

    /// What an OR of `data` leaves in these blocks, if that is certain.
    pub(crate) fn or(&self, blocks: &Range<u64>, data: &[u8]) -> Content {
        let mut result = data.to_vec();
        for (lba, bytes) in blocks.clone().zip(result.chunks_mut(self.block_bytes)) {
            let extent = self
                .extents
                .range(..=lba)
                .next_back()
                .map(|(_, extent)| extent);
            let only = extent
                .filter(|extent| extent.possible.len() == 1)
                .and_then(|extent| extent.possible.first());
            let Some(old) = only.and_then(|version| version.content.block(lba, self.block_bytes))
            else {
                return Content::Any;
            };
            bytes
                .iter_mut()
                .zip(old)
                .for_each(|(byte, old)| *byte |= old);
        }
        Content::Bytes {
            data: result.into(),
            base: blocks.start,
        }
    }

    /// A write is over.
    pub(crate) fn end_write(&mut self, tag: Tag, ended: Ended) {
        let Some((ranges, may_be_lost)) = self.writes.remove(&tag) else {
            return;
        };
        for blocks in &ranges {
            self.end_range(tag, blocks, ended, may_be_lost);
        }
    }

    fn end_range(&mut self, tag: Tag, blocks: &Range<u64>, ended: Ended, may_be_lost: bool) {
        for (_, extent) in self.within(blocks) {
            let mut gone = Vec::new();
            // Without flushes there are many that may come back, the newest last.
            for versions in [&mut extent.possible, &mut extent.after_crash] {
                if let Some(own) = versions.iter_mut().rev().find(|own| own.by == tag) {
                    own.is_open = false;
                    gone.clone_from(&own.supersedes);
                }
            }
            match ended {
                Ended::Good { durable } if !may_be_lost => {
                    extent
                        .possible
                        .retain(|version| !gone.contains(&version.by));
                    if durable {
                        extent
                            .after_crash
                            .retain(|version| !gone.contains(&version.by));
                    }
                }
                Ended::Good { .. } => {}
                Ended::Uncertain if extent.possible.iter().any(|version| version.is_open) => {}
                Ended::Uncertain => {
                    drop_twin(&mut extent.possible, tag);
                    // What is possible now may be there after a crash.
                    if extent.possible.iter().all(|version| version.by != tag) {
                        drop_twin(&mut extent.after_crash, tag);
                    }
                }
                Ended::Refused => {
                    extent.possible.retain(|version| version.by != tag);
                    extent.after_crash.retain(|version| version.by != tag);
                }
            }
        }
    }

    /// A read or comparison of these blocks is about to be sent.
    pub(crate) fn begin_read(&mut self, tag: Tag, blocks: Range<u64>) {
        let mut candidates = Vec::new();
        let mut is_steady = true;
        let first = self
            .extents
            .range(..=blocks.start)
            .next_back()
            .map_or(0, |(&start, _)| start);
        for (&start, extent) in self.extents.range(first..blocks.end.max(first)) {
            for version in &extent.possible {
                candidates.push((start..extent.end, version.content.clone()));
                is_steady &= !version.is_open;
            }
        }
        self.reads.insert(
            tag,
            Read {
                blocks,
                candidates,
                is_steady,
            },
        );
    }

    /// A read is over without data.
    pub(crate) fn forget_read(&mut self, tag: Tag) {
        self.reads.remove(&tag);
    }

    /// A read gave `data`. Fails with the first block that cannot hold what it gave.
    pub(crate) fn end_read(&mut self, tag: Tag, data: &[u8]) -> Result<(), u64> {
        let Some(read) = self.reads.remove(&tag) else {
            return Ok(());
        };
        for (lba, bytes) in read.blocks.clone().zip(data.chunks_exact(self.block_bytes)) {
            let mut here = read
                .candidates
                .iter()
                .filter(|(blocks, _)| blocks.contains(&lba));
            if !here.any(|(_, content)| content.may_be(lba, bytes)) {
                return Err(lba);
            }
        }
        let given = u64::try_from(data.len() / self.block_bytes).unwrap_or(u64::MAX);
        let given = read.blocks.start..read.blocks.end.min(read.blocks.start.saturating_add(given));
        if read.is_steady && !given.is_empty() {
            self.narrow(&given, data);
        }
        Ok(())
    }

    /// Nobody was writing: what a read gave is what later reads give.
    fn narrow(&mut self, blocks: &Range<u64>, data: &[u8]) {
        let block_bytes = self.block_bytes;
        for (&start, extent) in self
            .within(blocks)
            .filter(|(_, extent)| extent.possible.len() > 1)
        {
            let skip = usize::try_from(start - blocks.start).unwrap_or(usize::MAX);
            let given = data.chunks_exact(block_bytes).skip(skip);
            let whole = |version: &Version| {
                let mut pairs = (start..extent.end).zip(given.clone());
                pairs.all(|(lba, bytes)| version.content.may_be(lba, bytes))
            };
            // Those that fit hold the same; one is enough.
            let known = |version: &&Version| !matches!(version.content, Content::Any);
            let mut fits = extent
                .possible
                .iter()
                .filter(known)
                .filter(|version| whole(version));
            if let Some(fits) = fits.next().cloned() {
                extent.possible = vec![fits];
            }
        }
    }

    /// A comparison with `data`, repeated over the blocks, ended as equal or not. Fails with a block that speaks
    /// against it; a comparison that must have been equal is refuted by its first block.
    pub(crate) fn end_compare(&mut self, tag: Tag, data: &[u8], is_equal: bool) -> Result<(), u64> {
        let Some(read) = self.reads.remove(&tag) else {
            return Ok(());
        };
        let block = |lba: u64| {
            let index = usize::try_from(lba - read.blocks.start).unwrap_or(usize::MAX);
            data.chunks_exact(self.block_bytes)
                .cycle()
                .nth(index % (data.len() / self.block_bytes))
        };
        let here = |lba: u64| {
            read.candidates
                .iter()
                .filter(move |(blocks, _)| blocks.contains(&lba))
        };
        for (lba, bytes) in read
            .blocks
            .clone()
            .filter_map(|lba| block(lba).map(|bytes| (lba, bytes)))
        {
            if is_equal && !here(lba).any(|(_, content)| content.may_be(lba, bytes)) {
                return Err(lba);
            }
            if !is_equal && here(lba).any(|(_, content)| content.may_differ(lba, bytes)) {
                return Ok(());
            }
        }
        if is_equal {
            Ok(())
        } else {
            Err(read.blocks.start)
        }
    }

    /// A flush of these blocks is about to be sent.
    pub(crate) fn begin_flush(&mut self, tag: Tag, blocks: Range<u64>) {
        let mut gone = Vec::new();
        for (&start, extent) in self.within(&blocks) {
            let is_over = |by| extent.possible.iter().all(|version| version.by != by);
            let over = extent
                .after_crash
                .iter()
                .filter(|version| is_over(version.by));
            gone.extend(over.map(|version| (start..extent.end, version.by)));
        }
        self.flushes.insert(tag, gone);
    }

    /// A flush is over.
    pub(crate) fn end_flush(&mut self, tag: Tag, is_good: bool) {
        for (blocks, gone) in self
            .flushes
            .remove(&tag)
            .unwrap_or_default()
            .into_iter()
            .filter(|_| is_good)
        {
            for (_, extent) in self.within(&blocks) {
                extent.after_crash.retain(|version| version.by != gone);
            }
        }
    }

    /// The machine stopped, and everything that was under way with it.
    pub(crate) fn crash(&mut self) {
        self.writes.clear();
        self.reads.clear();
        self.flushes.clear();
        for extent in self.extents.values_mut() {
            extent
                .after_crash
                .iter_mut()
                .for_each(|version| version.is_open = false);
            extent.possible.clone_from(&extent.after_crash);
        }
    }

    /// The write cache is lost, and everything goes on.
    pub(crate) fn lose_cache(&mut self) {
        self.flushes.clear();
        self.writes
            .values_mut()
            .for_each(|(_, may_be_lost)| *may_be_lost = true);
        for (&start, extent) in &mut self.extents {
            for version in &mut extent.after_crash {
                version.is_open = self.writes.contains_key(&version.by);
            }
            extent.possible.clone_from(&extent.after_crash);
            for read in self.reads.values_mut() {
                read.is_steady = false;
                let possible = extent.possible.iter();
                read.candidates
                    .extend(possible.map(|version| (start..extent.end, version.content.clone())));
            }
        }
    }

    /// Compares the medium itself with what it may hold. Fails with the first wrong block.
    pub(crate) fn check(&mut self, content: &[u8]) -> Result<(), u64> {
        let blocks = u64::try_from(content.len() / self.block_bytes).unwrap_or(u64::MAX);
        self.begin_read(Tag(u64::MAX), 0..blocks);
        self.end_read(Tag(u64::MAX), content)
    }

    /// What a block holds, as a guess.
    pub(crate) fn guess(&self, lba: u64) -> Option<&[u8]> {
        let (_, extent) = self.extents.range(..=lba).next_back()?;
        let settled = extent
            .possible
            .iter()
            .rev()
            .find(|version| !version.is_open)?;
        settled.content.block(lba, self.block_bytes)
    }
}

/// Removes the version of this write if another has the same content, as after many UNMAPs.
fn drop_twin(versions: &mut Vec<Version>, tag: Tag) {
    let own = versions
        .iter()
        .find(|version| version.by == tag)
        .map(|own| own.content.clone());
    let mut others = versions.iter().filter(|version| version.by != tag);
    if own.is_some_and(|own| others.any(|other| other.content.is_same(&own))) {
        versions.retain(|version| version.by != tag);
    }
}
