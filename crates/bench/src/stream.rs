//! Where the next I/O goes. Equal seeds give equal addresses.

use std::ops::Range;

use crate::workload::{Access, Point};

/// A generator of pseudo-random numbers: xorshift64*, two multiplications and three shifts.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// The stream of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // A state of zero would stay zero.
        Self(mix(seed) | 1)
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, 0 when that is 0; even up to `limit / 2^64`.
    pub fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next_u64()) * u128::from(limit);
        u64::try_from(product >> 64).unwrap_or(0)
    }
}

/// Spreads the bits of a number: the finalizer of SplitMix64, a bijection.
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The blocks of one of `sessions` equal parts of `blocks`; the last takes the rest.
#[must_use]
pub const fn partition(blocks: u64, sessions: u32, session: u32) -> Range<u64> {
    let share = blocks / sessions as u64;
    let start = share * session as u64;
    let is_last = session + 1 == sessions;
    start..if is_last { blocks } else { start + share }
}

/// The addresses of one session.
#[derive(Clone, Debug)]
pub struct AddressStream {
    prng: Prng,
    blocks: Range<u64>,
    next: u64,
    block_bytes: u64,
    is_random: bool,
    /// Reads of 100 I/Os.
    read_percent: u64,
}

impl AddressStream {
    /// The stream of `session` over the first `span_bytes`. Sequential sessions have a part of
    /// the span each; random ones share all of it.
    ///
    /// The span holds at least one block for each session.
    #[must_use]
    pub fn new(point: &Point, span_bytes: u64, session: u32, seed: u64) -> Self {
        let block_bytes = u64::from(point.block_bytes.max(1));
        let all = span_bytes / block_bytes;
        let is_random = point.access.is_random();
        let blocks = if is_random {
            0..all
        } else {
            partition(all, point.sessions.max(1), session)
        };
        let read_percent = match point.access {
            Access::Read | Access::RandRead => 100,
            Access::Write | Access::RandWrite => 0,
            Access::Mixed => u64::from(point.read_percent),
        };
        Self {
            prng: Prng::new(seed ^ mix(u64::from(session))),
            next: blocks.start,
            blocks,
            block_bytes,
            is_random,
            read_percent,
        }
    }

    /// The byte offset of the next I/O, and whether it is a read.
    pub fn next_io(&mut self) -> (u64, bool) {
        let block = if self.is_random {
            let count = self.blocks.end - self.blocks.start;
            self.blocks.start + self.prng.below(count)
        } else {
            let block = self.next;
            self.next = if block + 1 < self.blocks.end {
                block + 1
            } else {
                self.blocks.start
            };
            block
        };
        let is_read = match self.read_percent {
            0 => false,
            100 => true,
            percent => self.prng.below(100) < percent,
        };
        (block * self.block_bytes, is_read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(access: Access, sessions: u32) -> Point {
        Point {
            access,
            block_bytes: 4096,
            depth: 1,
            sessions,
            read_percent: 70,
        }
    }

    #[test]
    fn sequential_sessions_cover_the_span_once_a_round_and_never_meet() {
        let span = 10 * 4096 + 100;
        let mut seen = Vec::new();
        for session in 0..3 {
            let mut stream = AddressStream::new(&point(Access::Read, 3), span, session, 1);
            let first = stream.next_io().0;
            seen.push(first);
            loop {
                let (offset, is_read) = stream.next_io();
                assert!(is_read);
                if offset == first {
                    break;
                }
                seen.push(offset);
            }
        }
        assert_eq!(seen, (0..10).map(|n| n * 4096).collect::<Vec<_>>());
    }

    #[test]
    fn random_addresses_are_aligned_inside_and_reach_every_block() {
        let mut stream = AddressStream::new(&point(Access::RandWrite, 2), 16 * 4096 + 4095, 1, 7);
        let mut hits = [0; 16];
        for _ in 0..16_000 {
            let (offset, is_read) = stream.next_io();
            assert!(!is_read);
            assert_eq!(offset % 4096, 0);
            hits[usize::try_from(offset / 4096).unwrap()] += 1;
        }
        assert!(hits.iter().all(|n| (700..1300).contains(n)), "{hits:?}");
    }

    #[test]
    fn mixed_reads_come_in_their_share() {
        let mut stream = AddressStream::new(&point(Access::Mixed, 1), 1 << 20, 0, 3);
        let reads = (0..10_000).filter(|_| stream.next_io().1).count();
        assert!((6_700..7_300).contains(&reads), "{reads}");
    }

    #[test]
    fn equal_seeds_give_equal_addresses_and_sessions_differ() {
        let stream = |session, seed| {
            let mut stream =
                AddressStream::new(&point(Access::RandRead, 2), 1 << 30, session, seed);
            (0..8).map(|_| stream.next_io().0).collect::<Vec<_>>()
        };
        assert_eq!(stream(0, 5), stream(0, 5));
        assert_ne!(stream(0, 5), stream(1, 5));
        assert_ne!(stream(0, 5), stream(0, 6));
    }
}
