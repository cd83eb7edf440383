//! Buffers that the kernel picks from when data arrives ("provided buffers").
//!
//! A connection that waits for data takes no memory this way; a chunk is bound only when there is
//! something to put into it. Each chunk has a number in the ring that the kernel reads; while it
//! is with the kernel nobody here touches its bytes.
//!
//! The kernel takes chunks in the order in which they were provided, so it is given only about as
//! many as one turn needs, and those that came back last: then the few in use stay in the cache of
//! the core, where data is copied to and from them at several times the speed of memory.

use std::io;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use memory::{Buffer, Pool};

/// The group number of the chunks that streams are received into.
pub(crate) const GROUP: u16 = 0;

/// The group number of the frames that datagrams are received into.
pub(crate) const FRAME_GROUP: u16 = 1;

/// The largest ring of provided buffers that the kernel takes.
pub(crate) const CHUNKS_MAX: usize = 1 << 15;

/// How many chunks the kernel has at least, as far as there are so many.
const STOCK_MIN: usize = 4;

/// Operations in stores may keep one part in this many of the chunks; all others are for receiving.
const PINNED_SHARE: usize = 2;

/// How many of the pinned chunks are looked at in one turn.
const LOOKS: usize = 8;

/// After this many turns the stock is fitted to what they needed.
const STOCK_TURNS: u32 = 1024;

/// The chunks of one core and where each of them is.
#[derive(Debug)]
pub(crate) struct Chunks {
    pool: Pool,
    /// The ring shared with the kernel: `entries` of 16 bytes. A pool buffer is aligned to pages,
    /// as the kernel asks, and stays where it is.
    ring: Buffer,
    entries: u16,
    tail: u16,
    chunk_bytes: usize,
    places: Vec<Place>,
    /// The numbers of the chunks that can be given to the kernel, the last used at the end.
    free: Vec<u16>,
    /// Those that came from the kernel since the last restocking.
    used: Vec<u16>,
    /// Those that somebody still held when the turn that brought them was over.
    pinned: Vec<u16>,
    /// Where in `pinned` the next look begins.
    next_look: usize,
    /// Chunks lent to operations in this turn, and the last of them.
    lent: usize,
    last_lent: usize,
    stock: Stock,
    /// For a receive that needed no chunk.
    empty: Rc<Buffer>,
}

#[derive(Debug)]
struct Place {
    chunk: Rc<Buffer>,
    with_kernel: bool,
}

/// How many chunks the kernel should have.
#[derive(Debug)]
struct Stock {
    target: usize,
    /// Chunks used since the last restocking.
    used: usize,
    /// The most used between two restockings.
    peak: usize,
    turns: u32,
}

impl Stock {
    /// A turn begins; there are `count` chunks in all.
    fn turn(&mut self, count: usize) {
        self.peak = self.peak.max(std::mem::take(&mut self.used));
        self.turns += 1;
        if self.turns == STOCK_TURNS {
            self.turns = 0;
            self.target = Self::fitting(std::mem::take(&mut self.peak) * 2, count);
        } else if self.peak >= self.target {
            // Somebody may have found none.
            self.target = Self::fitting(self.target * 2, count);
        }
    }

    fn fitting(wanted: usize, count: usize) -> usize {
        wanted.clamp(STOCK_MIN.min(count), count)
    }
}

impl Chunks {
    /// Takes `count` chunks from the pool and provides the first. The caller registers
    /// [`Chunks::ring_address`] with [`Chunks::ring_entries`] under a group of its own.
    pub(crate) fn new(pool: &Pool, count: usize, chunk_bytes: usize) -> io::Result<Self> {
        let out_of_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let count = count.clamp(1, CHUNKS_MAX);
        let entries = count.next_power_of_two();
        let mut ring = pool
            .allocate(entries * size_of::<BufRingEntry>())
            .map_err(out_of_memory)?;
        ring.fill(0);
        let places = (0..count)
            .map(|_| {
                let chunk = pool.allocate(chunk_bytes)?;
                Ok(Place {
                    chunk: Rc::new(chunk),
                    with_kernel: false,
                })
            })
            .collect::<Result<_, _>>()
            .map_err(out_of_memory)?;
        let number = |n: usize| u16::try_from(n).map_err(io::Error::other);
        let mut chunks = Self {
            pool: pool.clone(),
            ring,
            entries: number(entries)?,
            tail: 0,
            chunk_bytes,
            places,
            free: (0..number(count)?).rev().collect(),
            used: Vec::with_capacity(count),
            pinned: Vec::with_capacity(count),
            next_look: 0,
            lent: 0,
            last_lent: 0,
            stock: Stock {
                target: STOCK_MIN.min(count),
                used: 0,
                peak: 0,
                turns: 0,
            },
            empty: Rc::new(pool.allocate(0).map_err(out_of_memory)?),
        };
        chunks.restock();
        Ok(chunks)
    }

    pub(crate) fn ring_address(&self) -> u64 {
        self.ring.address().as_ptr().expose_provenance() as u64
    }

    pub(crate) const fn ring_entries(&self) -> u16 {
        self.entries
    }

    /// How many chunks the kernel could fill now.
    pub(crate) const fn ready(&self) -> usize {
        self.places.len() - self.free.len() - self.used.len() - self.pinned.len()
    }

    /// The kernel used the chunk `number` and put `len` bytes into it.
    pub(crate) fn take(&mut self, number: u16, len: usize) -> Option<Rc<Buffer>> {
        let place = self.places.get_mut(usize::from(number))?;
        debug_assert!(place.with_kernel, "chunk {number} was not with the kernel");
        place.with_kernel = false;
        self.used.push(number);
        self.stock.used += 1;
        // Unique: a chunk goes to the kernel only while nobody else holds it.
        let chunk = Rc::get_mut(&mut place.chunk)?;
        chunk.set_len(len.min(chunk.capacity()));
        Some(Rc::clone(&place.chunk))
    }

    /// The size of every chunk.
    pub(crate) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// A chunk of no bytes.
    pub(crate) fn empty(&self) -> Rc<Buffer> {
        Rc::clone(&self.empty)
    }

    /// Keeps the memory of all chunks from ever being used again.
    pub(crate) fn leak(&self) {
        for place in &self.places {
            let _leaked = ManuallyDrop::new(Rc::clone(&place.chunk));
        }
    }

    /// Whether an operation that takes its time may keep this chunk, of which the caller has a part.
    /// If not, what lies in it is to be copied: however small it is, it would keep the whole chunk.
    pub(crate) fn lend(&mut self, chunk: &Rc<Buffer>) -> bool {
        let address = chunk.address().as_ptr().addr();
        if address == self.last_lent {
            return true;
        }
        if self.pinned.len() + self.lent >= self.places.len() / PINNED_SHARE {
            return false;
        }
        self.last_lent = address;
        self.lent += 1;
        true
    }

    /// Provides chunks that came back, the last used first, until the kernel has enough; and
    /// replaces chunks that are still held by fresh ones from the pool while it has next to none.
    pub(crate) fn restock(&mut self) {
        self.stock.turn(self.places.len());
        self.lent = 0;
        self.last_lent = 0;
        if !self.pinned.is_empty() {
            self.look_at_pinned();
        }
        for at in 0..self.used.len() {
            let number = self.used[at];
            if self.is_free(number) {
                self.free.push(number);
            } else {
                self.pinned.push(number);
            }
        }
        self.used.clear();
        let ready = self.ready();
        let provided = self.stock.target.saturating_sub(ready).min(self.free.len());
        for _ in 0..provided {
            if let Some(number) = self.free.pop() {
                self.provide(number);
            }
        }
        if !self.pinned.is_empty() {
            self.replace_pinned();
        }
    }

    /// Replaces chunks that are held by fresh ones while the kernel has next to none.
    #[inline(never)]
    fn replace_pinned(&mut self) {
        let least = self.places.len().div_ceil(PINNED_SHARE * 2);
        while self.ready() < least.min(self.stock.target)
            && let Some(&number) = self.pinned.last()
            && let Ok(fresh) = self.pool.allocate(self.chunk_bytes)
        {
            self.pinned.pop();
            if let Some(place) = self.places.get_mut(usize::from(number)) {
                place.chunk = Rc::new(fresh);
            }
            self.provide(number);
        }
    }

    #[inline]
    fn is_free(&self, number: u16) -> bool {
        let place = self.places.get(usize::from(number));
        place.is_some_and(|place| Rc::strong_count(&place.chunk) == 1)
    }

    /// Takes back pinned chunks that nobody holds any more: a few in each turn, all when they are
    /// missed.
    #[inline(never)]
    fn look_at_pinned(&mut self) {
        let count = self.pinned.len();
        let is_needed = self.ready() + self.free.len() < self.stock.target;
        let looks = if is_needed { count } else { LOOKS.min(count) };
        for _ in 0..looks {
            if self.next_look >= self.pinned.len() {
                self.next_look = 0;
            }
            let Some(&number) = self.pinned.get(self.next_look) else {
                return;
            };
            if self.is_free(number) {
                self.pinned.swap_remove(self.next_look);
                self.free.push(number);
            } else {
                self.next_look += 1;
            }
        }
    }

    #[inline]
    fn provide(&mut self, number: u16) {
        let Some(place) = self.places.get_mut(usize::from(number)) else {
            return;
        };
        place.with_kernel = true;
        let chunk = place.chunk.address().as_ptr().expose_provenance() as u64;
        let index = self.tail & (self.entries - 1);
        let base = self.ring.address().as_ptr().cast::<BufRingEntry>();
        let slot = base.wrapping_add(usize::from(index));
        // SAFETY: the index is below `entries`, for which the ring buffer was made; it is aligned
        // to a page and was filled with zeros, which is a valid entry. The kernel reads entries
        // only up to the tail, so this one is ours until the store below.
        let entry = unsafe { &mut *slot };
        entry.set_addr(chunk);
        entry.set_len(u32::try_from(self.chunk_bytes).unwrap_or(u32::MAX));
        entry.set_bid(number);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: `base` is the address of the first entry, which is initialised.
        let tail = unsafe { BufRingEntry::tail(base) };
        // SAFETY: the tail lies inside the first entry, in bytes that no entry uses, aligned to
        // two; from here on only this store and the kernel's loads touch it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_back_when_dropped_and_are_replaced_while_held() {
        let pool = Pool::new(0).unwrap();
        let mut chunks = Chunks::new(&pool, 4, 8192).unwrap();
        assert_eq!(chunks.ready(), 4);
        let used = pool.free_bytes();

        let held: Vec<_> = (0..4).map(|n| chunks.take(n, 10).unwrap()).collect();
        assert_eq!(held[0].len(), 10);
        assert_eq!(chunks.ready(), 0);
        chunks.restock();
        assert_eq!(
            (chunks.ready(), chunks.pinned.len()),
            (1, 3),
            "one was replaced"
        );
        assert_eq!(pool.free_bytes(), used - 8192);

        drop(held);
        chunks.restock();
        assert_eq!((chunks.ready(), chunks.pinned.len()), (4, 0));
        assert_eq!(pool.free_bytes(), used);
    }

    #[test]
    fn operations_keep_one_half_of_the_chunks_at_most() {
        let pool = Pool::new(0).unwrap();
        let mut chunks = Chunks::new(&pool, 8, 4096).unwrap();
        let mut held = Vec::new();
        for number in [0, 1, 2, 3] {
            let chunk = chunks.take(number, 100).unwrap();
            assert!(chunks.lend(&chunk));
            assert!(chunks.lend(&chunk), "again the same");
            held.push(chunk);
        }
        chunks.restock();
        let fifth = chunks.take(4, 100).unwrap();
        assert!(!chunks.lend(&fifth));
        drop(fifth);
        drop(held.pop());
        chunks.restock();
        let next = chunks.take(4, 100).unwrap();
        assert!(chunks.lend(&next));
    }

    #[test]
    fn few_chunks_are_in_use_and_the_last_used_comes_first() {
        let pool = Pool::new(0).unwrap();
        let mut chunks = Chunks::new(&pool, 64, 4096).unwrap();
        assert_eq!(chunks.ready(), STOCK_MIN);
        let mut seen = std::collections::BTreeSet::new();
        let mut with_kernel: std::collections::VecDeque<u16> = (0..4).collect();
        for _ in 0..10_000 {
            let number = with_kernel.pop_front().unwrap();
            seen.insert(number);
            drop(chunks.take(number, 1).unwrap());
            chunks.restock();
            with_kernel.push_back(number);
        }
        assert_eq!(seen.len(), STOCK_MIN);
    }

    #[test]
    fn the_stock_grows_with_what_turns_need_and_shrinks_again() {
        let mut stock = Stock {
            target: STOCK_MIN,
            used: 0,
            peak: 0,
            turns: 0,
        };
        let mut turn = |used, count| {
            stock.used = used;
            stock.turn(count);
            stock.target
        };
        assert_eq!(
            [turn(3, 64), turn(4, 64), turn(7, 64), turn(8, 64)],
            [4, 8, 8, 16]
        );
        assert_eq!([turn(16, 64), turn(32, 64), turn(64, 64)], [32, 64, 64]);
        for _ in 7..STOCK_TURNS - 1 {
            assert_eq!(turn(3, 64), 64);
        }
        // What the most turns needed, twice.
        assert_eq!(turn(3, 64), 64);
        for _ in 1..STOCK_TURNS {
            assert_eq!(turn(3, 64), 64);
        }
        assert_eq!(turn(3, 64), 6);
        for _ in 1..STOCK_TURNS {
            assert_eq!(turn(1, 64), 6);
        }
        assert_eq!(turn(1, 64), STOCK_MIN);
        assert_eq!(turn(4, 6), 6);
        assert_eq!(Stock::fitting(1, 2), 2);
    }

    #[test]
    fn a_few_of_the_pinned_chunks_are_looked_at_in_a_turn_and_all_where_chunks_are_missed() {
        for (count, left) in [(64, 20 - LOOKS), (32, 0)] {
            let pool = Pool::new(0).unwrap();
            let mut chunks = Chunks::new(&pool, count, 4096).unwrap();
            let mut held = Vec::new();
            while held.len() < 20 {
                let with_kernel = (0..count).filter(|at| chunks.places[*at].with_kernel);
                let numbers: Vec<_> = with_kernel.take(20 - held.len()).collect();
                for number in numbers {
                    let number = u16::try_from(number).unwrap();
                    held.push(chunks.take(number, 1).unwrap());
                }
                chunks.restock();
            }
            assert_eq!(chunks.pinned.len(), 20);
            held.clear();
            chunks.restock();
            assert_eq!(chunks.pinned.len(), left, "{count}");
        }
    }

    #[test]
    fn without_room_in_the_pool_held_chunks_are_waited_for() {
        let pool = Pool::new(0).unwrap();
        let mut chunks = Chunks::new(&pool, 1, 4096).unwrap();
        let mut all = Vec::new();
        while let Ok(buffer) = pool.allocate(4096) {
            all.push(buffer);
        }
        let held = chunks.take(0, 1).unwrap();
        chunks.restock();
        assert_eq!(chunks.ready(), 0);
        drop(held);
        chunks.restock();
        assert_eq!(chunks.ready(), 1);
    }
}
