//! Which bytes of the store the log has changes of.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Ranges are looked for in pieces of the store of this size.
const CHUNK_BYTES: u64 = 64 << 10;

/// A range of more pieces stands by itself.
const CHUNKS_MAX: u64 = 256;

/// The start and the end of a range, and how often it is there.
type Counts = BTreeMap<(u64, u64), u32>;

/// Ranges, each as often as it was added.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    chunks: HashMap<u64, Counts>,
    /// Those of many pieces.
    wide: Counts,
}

fn chunks_of(range: &Range<u64>) -> Range<u64> {
    range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)
}

const fn is_wide(chunks: &Range<u64>) -> bool {
    chunks.end - chunks.start > CHUNKS_MAX
}

fn add(counts: &mut Counts, range: &Range<u64>) {
    *counts.entry((range.start, range.end)).or_default() += 1;
}

fn remove(counts: &mut Counts, range: &Range<u64>) {
    let name = (range.start, range.end);
    if let Some(count) = counts.get_mut(&name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&name);
        }
    }
}

/// Whether any of them has a byte in common with a range.
fn meets(counts: &Counts, range: &Range<u64>) -> bool {
    let mut before_its_end = counts.range(..(range.end, 0));
    before_its_end.any(|((_, end), _)| *end > range.start)
}

impl Ranges {
    pub(super) fn add(&mut self, range: &Range<u64>) {
        let chunks = chunks_of(range);
        if is_wide(&chunks) {
            add(&mut self.wide, range);
            return;
        }
        for chunk in chunks {
            add(self.chunks.entry(chunk).or_default(), range);
        }
    }

    /// Takes a range out that was added.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let chunks = chunks_of(range);
        if is_wide(&chunks) {
            remove(&mut self.wide, range);
            return;
        }
        for chunk in chunks {
            if let Some(counts) = self.chunks.get_mut(&chunk) {
                remove(counts, range);
                if counts.is_empty() {
                    self.chunks.remove(&chunk);
                }
            }
        }
    }

    /// Whether any has a byte in common with a range.
    pub(super) fn meet(&self, range: &Range<u64>) -> bool {
        if meets(&self.wide, range) {
            return true;
        }
        let chunks = chunks_of(range);
        if is_wide(&chunks) {
            return self.chunks.values().any(|counts| meets(counts, range));
        }
        let mut counts = chunks.filter_map(|chunk| self.chunks.get(&chunk));
        counts.any(|counts| meets(counts, range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_meets_those_that_it_has_a_byte_in_common_with() {
        const WIDE: u64 = CHUNK_BYTES * (CHUNKS_MAX + 2);
        let all = [
            0..512,
            512..4096,
            CHUNK_BYTES - 512..CHUNK_BYTES + 512,
            10 * CHUNK_BYTES..20 * CHUNK_BYTES,
            WIDE..3 * WIDE,
        ];
        let probes: Vec<Range<u64>> = (0..80)
            .map(|at| at * CHUNK_BYTES / 2)
            .chain([WIDE - 512, WIDE, 3 * WIDE - 512, 3 * WIDE])
            .flat_map(|at| {
                [
                    at..at + 512,
                    at + 512..at + 3 * CHUNK_BYTES,
                    at..at + 2 * WIDE,
                ]
            })
            .collect();
        let mut ranges = Ranges::default();
        for (count, range) in all.iter().enumerate() {
            ranges.add(range);
            ranges.add(range);
            for probe in &probes {
                let there = all.iter().take(count + 1);
                let has = there
                    .clone()
                    .any(|one| one.start < probe.end && probe.start < one.end);
                assert_eq!(ranges.meet(probe), has, "{probe:?} of {there:?}");
            }
        }
        for range in &all {
            ranges.remove(range);
            assert!(ranges.meet(range), "it was there twice");
            ranges.remove(range);
        }
        assert!(probes.iter().all(|probe| !ranges.meet(probe)));
        assert!(ranges.chunks.is_empty() && ranges.wide.is_empty());
    }
}
