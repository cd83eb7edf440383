//! The memory of one core for data in flight.
//!
//! A buddy allocator over one region: buffers are contiguous, sized in powers of two from
//! [`PIECE_BYTES`] to [`BUFFER_BYTES_MAX`], and merge again when they come back. A small stack of
//! recently freed buffers per size keeps the common sizes from being split and merged for every
//! I/O; it is given up as soon as a larger buffer would otherwise be refused.
//!
//! Contiguous buffers rather than scatter lists: one address and one length for the ring, for
//! digests, for comparison and for direct I/O. A request that does not fit now waits in a queue
//! of its owner; as everything in flight comes back, everything merges, so it is served in the end.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use crate::region::Region;
use crate::shares::{Held, Need, NoRoom, Shares};

/// The smallest buffer and the unit of accounting, in bytes; also the alignment of every buffer.
pub const PIECE_BYTES: usize = 4 * 1024;

/// The largest buffer, in bytes. Larger transfers must be split by the caller.
pub const BUFFER_BYTES_MAX: usize = PIECE_BYTES << ORDER_MAX;

const ORDER_MAX: u8 = 12;
const ORDERS: usize = ORDER_MAX as usize + 1;
/// Buffers up to this order (64 KiB) go through the stacks of recently freed ones.
const RECENT_ORDER_MAX: u8 = 4;
/// How many recently freed buffers of one order are kept unmerged.
const RECENT_MAX: usize = 256;
/// A crowd has one part in this many of the supply.
const CROWD: usize = 2;
const NONE: u32 = u32::MAX;
/// In `order_of_free`: this piece does not start a free buffer.
const NOT_FREE: u8 = u8::MAX;

const _: () = assert!(BUFFER_BYTES_MAX == 16 * 1024 * 1024);

/// The pool has no buffer of that size now; one may come back any time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolFull;

/// A bounded supply of buffers that belongs to one core. Clones share the supply and the account;
/// [`Pool::account`] opens another account.
#[derive(Clone)]
pub struct Pool(Rc<Account>);

/// Of whom the buffers are. Every buffer counts in its account from its making to its drop,
/// wherever it is meanwhile.
struct Account {
    supply: Rc<Shared>,
    held_bytes: Cell<usize>,
    /// What is held here counts there, too.
    within: Option<Rc<Self>>,
    /// In the account of the pieces of a buffer: that buffer, which ends with the last of them.
    whole: Option<Buffer>,
}

struct Shared {
    region: Region,
    free_bytes: Cell<usize>,
    shares: Cell<Shares>,
    is_crowded: Cell<bool>,
    table: RefCell<Table>,
}

/// Which buffers are free. Indices count pieces.
struct Table {
    heads: [u32; ORDERS],
    links: Vec<Link>,
    recent: [Vec<u32>; RECENT_ORDER_MAX as usize + 1],
}

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    order_of_free: u8,
}

impl Pool {
    /// Reserves address space for `limit_bytes` of buffers, rounded down to whole
    /// [`BUFFER_BYTES_MAX`] but at least one. Memory is taken when it is first used.
    pub fn new(limit_bytes: usize) -> io::Result<Self> {
        let count = (limit_bytes / BUFFER_BYTES_MAX).clamp(1, (NONE as usize - 1) >> ORDER_MAX);
        let region = Region::to_work_in(count * BUFFER_BYTES_MAX)?;
        let unused = Link {
            previous: NONE,
            next: NONE,
            order_of_free: NOT_FREE,
        };
        let mut table = Table {
            heads: [NONE; ORDERS],
            links: vec![unused; count << ORDER_MAX],
            recent: Default::default(),
        };
        for index in (0..table.links.len()).step_by(1 << ORDER_MAX).rev() {
            table.insert(u32::try_from(index).map_err(io::Error::other)?, ORDER_MAX);
        }
        let free_bytes = Cell::new(region.len());
        let shares = Cell::new(Shares {
            capacity: region.len(),
        });
        let supply = Rc::new(Shared {
            region,
            free_bytes,
            shares,
            is_crowded: Cell::new(false),
            table: RefCell::new(table),
        });
        Ok(Self(Account::new(supply, None)))
    }

    /// The same supply for another holder, whose buffers are counted by themselves.
    #[must_use]
    pub fn account(&self) -> Self {
        Self(Account::new(Rc::clone(&self.0.supply), None))
    }

    /// The same supply for holders that have one share together, however many they are.
    #[must_use]
    pub fn party(&self) -> Party {
        Party(Account::new(Rc::clone(&self.0.supply), None))
    }

    /// The same supply for holders that have half of it together, however many they are.
    #[must_use]
    pub fn crowd(&self) -> Crowd {
        Crowd(Account::new(Rc::clone(&self.0.supply), None))
    }

    /// How many bytes of this account are handed out.
    pub fn held_bytes(&self) -> usize {
        self.0.held_bytes.get()
    }

    /// What is out now stays out: shares are reckoned without it from now on.
    pub fn set_base(&self) {
        let capacity = self.free_bytes();
        self.0.supply.shares.set(Shares { capacity });
    }

    /// The rule by which this supply is shared.
    pub fn shares(&self) -> Shares {
        self.0.supply.shares.get()
    }

    /// The size of the whole supply in bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.0.supply.region.len()
    }

    /// How many bytes are not handed out. Fragmentation may keep a large buffer from being made
    /// of them until others come back.
    pub fn free_bytes(&self) -> usize {
        self.0.supply.free_bytes.get()
    }

    /// As [`Pool::allocate`], if the account may have it: see [`Shares`].
    ///
    /// # Errors
    ///
    /// What must come back first.
    pub fn allocate_for(&self, need: Need, len: usize) -> Result<Buffer, NoRoom> {
        self.permit(need, len)?;
        // Also where what is free lies in pieces: who holds something does not stand before those who hold nothing.
        self.allocate(len)
            .map_err(|PoolFull| self.0.held().why(need))
    }

    /// Somebody waits for the supply, or nobody does any more: while it is crowded, new work queues
    /// up behind those.
    pub fn set_crowded(&self, is_crowded: bool) {
        self.0.supply.is_crowded.set(is_crowded);
    }

    /// Whether somebody waits for the supply.
    pub fn is_crowded(&self) -> bool {
        self.0.supply.is_crowded.get()
    }

    /// Whether the account may have a buffer of `len` bytes now.
    ///
    /// # Errors
    ///
    /// What must come back first.
    pub fn permit(&self, need: Need, len: usize) -> Result<(), NoRoom> {
        let size = PIECE_BYTES << order_of(len);
        if let Some(party) = &self.0.within {
            party.permit(need, size)?;
        }
        // A pool without any room, for new work that is not small: what is small passes.
        let is_small = self.shares().is_small(size);
        let is_behind = need == Need::Begin && self.is_crowded() && !is_small;
        let free = if is_behind { 0 } else { self.free_bytes() };
        self.shares().permit(need, size, free, self.0.held())
    }

    /// A buffer of `len` bytes whose contents are unspecified, but never another process's.
    ///
    /// # Panics
    ///
    /// When `len` exceeds [`BUFFER_BYTES_MAX`]: limits announced to peers keep it below.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no buffer has more bytes than BUFFER_BYTES_MAX"
    )]
    pub fn allocate(&self, len: usize) -> Result<Buffer, PoolFull> {
        assert!(
            len <= BUFFER_BYTES_MAX,
            "a buffer of {len} bytes, the largest is {BUFFER_BYTES_MAX}"
        );
        let order = order_of(len);
        let supply = &self.0.supply;
        let index = supply.table.borrow_mut().take(order).ok_or(PoolFull)?;
        let bytes = PIECE_BYTES << order;
        supply.free_bytes.set(supply.free_bytes.get() - bytes);
        self.0.count(bytes);
        let start = supply.region.address(index as usize * PIECE_BYTES, bytes);
        Ok(Buffer {
            start,
            len,
            index,
            capacity: bytes as u32,
            account: Rc::clone(&self.0),
        })
    }
}

impl Account {
    fn new(supply: Rc<Shared>, within: Option<Rc<Self>>) -> Rc<Self> {
        Rc::new(Self {
            supply,
            held_bytes: Cell::new(0),
            within,
            whole: None,
        })
    }

    /// What is held here, and in the party if there is one.
    #[inline]
    fn held(&self) -> Held {
        let own = self.held_bytes.get();
        let party = self.within.as_ref();
        Held {
            own,
            party: party.map_or(own, |party| party.held_bytes.get()),
        }
    }

    #[inline]
    fn count(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() + bytes);
        if let Some(outer) = &self.within {
            outer.count(bytes);
        }
    }

    #[inline]
    fn give_back(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() - bytes);
        if let Some(outer) = &self.within {
            outer.give_back(bytes);
        }
    }

    /// Whether holders of a party may take so much more of what its crowd has. Only new work has to ask: the rest ends
    /// by itself, and gives back what it has.
    fn permit(&self, need: Need, size: usize) -> Result<(), NoRoom> {
        let (Need::Begin, Some(crowd)) = (need, &self.within) else {
            return Ok(());
        };
        let capacity = self.supply.shares.get().capacity / CROWD;
        let free = capacity.saturating_sub(crowd.held_bytes.get());
        let held = Held::alone(self.held_bytes.get());
        let permit = Shares { capacity }.permit(need, size, free, held);
        // Something of theirs must come back, not anybody's.
        permit.map_err(|_| NoRoom::Share)
    }
}

/// Holders that have a part of a supply together, by the rule of [`Shares`]. It is divided among parties.
#[derive(Clone)]
pub struct Crowd(Rc<Account>);

impl Crowd {
    /// Holders who have one share in what the crowd has.
    #[must_use]
    pub fn party(&self) -> Party {
        let crowd = Rc::clone(&self.0);
        Party(Account::new(Rc::clone(&crowd.supply), Some(crowd)))
    }
}

/// Holders that have one share together: of the whole supply, or in a [`Crowd`].
#[derive(Clone)]
pub struct Party(Rc<Account>);

impl Party {
    /// Whether one of them is there, or a buffer of one that was.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.0) > 1
    }

    /// An account for one of them.
    #[must_use]
    pub fn account(&self) -> Pool {
        let party = Rc::clone(&self.0);
        Pool(Account::new(Rc::clone(&party.supply), Some(party)))
    }
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held_bytes = self.0.held_bytes.get();
        f.debug_struct("Crowd")
            .field("held_bytes", &held_bytes)
            .finish()
    }
}

impl fmt::Debug for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held_bytes = self.0.held_bytes.get();
        f.debug_struct("Party")
            .field("held_bytes", &held_bytes)
            .finish()
    }
}

/// The smallest order whose buffers hold `len` bytes.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the logarithm of a usize fits"
)]
const fn order_of(len: usize) -> u8 {
    len.div_ceil(PIECE_BYTES)
        .next_power_of_two()
        .trailing_zeros() as u8
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("capacity_bytes", &self.capacity_bytes())
            .field("free_bytes", &self.free_bytes())
            .finish()
    }
}

impl Table {
    fn take(&mut self, order: u8) -> Option<u32> {
        if let Some(index) = self.recent.get_mut(order as usize).and_then(Vec::pop) {
            return Some(index);
        }
        self.split(order).or_else(|| {
            self.merge_recent();
            self.split(order)
        })
    }

    fn give(&mut self, index: u32, order: u8) {
        match self.recent.get_mut(order as usize) {
            Some(recent) if recent.len() < RECENT_MAX => recent.push(index),
            Some(_) | None => self.merge(index, order),
        }
    }

    /// Takes the smallest free buffer that is large enough and puts the rest back in halves.
    fn split(&mut self, order: u8) -> Option<u32> {
        let mut found = (order..=ORDER_MAX).find(|&o| self.heads[o as usize] != NONE)?;
        let index = self.heads[found as usize];
        self.remove(index, found);
        while found > order {
            found -= 1;
            self.insert(index + (1 << found), found);
        }
        Some(index)
    }

    /// Puts a buffer back, joined with its other half for as long as that is free too.
    fn merge(&mut self, mut index: u32, mut order: u8) {
        while order < ORDER_MAX {
            let other = index ^ (1 << order);
            if self.links[other as usize].order_of_free != order {
                break;
            }
            self.remove(other, order);
            index &= !(1 << order);
            order += 1;
        }
        self.insert(index, order);
    }

    fn merge_recent(&mut self) {
        for order in 0..=RECENT_ORDER_MAX {
            for index in std::mem::take(&mut self.recent[order as usize]) {
                self.merge(index, order);
            }
        }
    }

    fn insert(&mut self, index: u32, order: u8) {
        let next = self.heads[order as usize];
        self.links[index as usize] = Link {
            previous: NONE,
            next,
            order_of_free: order,
        };
        if next != NONE {
            self.links[next as usize].previous = index;
        }
        self.heads[order as usize] = index;
    }

    fn remove(&mut self, index: u32, order: u8) {
        let Link { previous, next, .. } = self.links[index as usize];
        if previous == NONE {
            self.heads[order as usize] = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.links[index as usize].order_of_free = NOT_FREE;
    }
}

/// Exclusively owned bytes of a [`Pool`]; they go back on drop.
///
/// The address is aligned to [`PIECE_BYTES`] and does not change while the buffer lives, also
/// when the `Buffer` value itself moves.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    /// Its first piece in the pool, or `NONE`: it is a part of a larger buffer.
    index: u32,
    /// In bytes.
    capacity: u32,
    account: Rc<Account>,
}

impl Buffer {
    /// How many bytes the buffer could hold.
    pub const fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Sets the length, growing or shrinking within the capacity. Bytes gained are unspecified.
    ///
    /// # Panics
    ///
    /// When `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity(),
            "length {len}, capacity {}",
            self.capacity()
        );
        self.len = len;
    }

    /// Where the bytes lie, for lending them to the kernel. The borrow rules end here: the code that
    /// uses the address keeps this value, and uses no slice of it, until the kernel is done.
    pub const fn address(&self) -> NonNull<u8> {
        self.start
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pool, or the cut, gave this range to this buffer alone; it was zeroed at
        // first, so every byte is initialised, and a shared borrow of `self` keeps writers out.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the borrow of `self` is unique.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("capacity", &self.capacity())
            .finish()
    }
}

impl Drop for Buffer {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "an order is at most ORDER_MAX"
    )]
    fn drop(&mut self) {
        if self.index == NONE {
            return;
        }
        self.account.give_back(self.capacity());
        let supply = &self.account.supply;
        supply
            .free_bytes
            .set(supply.free_bytes.get() + self.capacity());
        let order = self.capacity.trailing_zeros() - PIECE_BYTES.trailing_zeros();
        supply.table.borrow_mut().give(self.index, order as u8);
    }
}

impl fmt::Debug for CutBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CutBuffer")
            .field("len", &self.len)
            .field("cut", &self.cut)
            .finish_non_exhaustive()
    }
}

/// A buffer that is cut into pieces from its start on. Each piece is a buffer by itself, so that several operations
/// can fill one buffer at the same time. The memory goes back when the pieces and this value are gone.
pub struct CutBuffer {
    pieces: Rc<Account>,
    start: NonNull<u8>,
    len: usize,
    /// So many bytes are in pieces.
    cut: usize,
}

impl CutBuffer {
    /// Nothing of it is cut yet.
    pub fn new(buffer: Buffer) -> Self {
        Self {
            start: buffer.start,
            len: buffer.len,
            cut: 0,
            pieces: Rc::new(Account {
                supply: Rc::clone(&buffer.account.supply),
                held_bytes: Cell::new(0),
                within: None,
                whole: Some(buffer),
            }),
        }
    }

    /// The next piece. Its address has no alignment but what the lengths before it leave.
    ///
    /// # Panics
    ///
    /// When fewer bytes than `len` are left.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "no buffer has more bytes than BUFFER_BYTES_MAX"
    )]
    pub fn cut(&mut self, len: usize) -> Buffer {
        let left = self.len - self.cut;
        assert!(len <= left, "a piece of {len} bytes, {left} are left");
        // SAFETY: the offset is at most the length of the buffer, as was just checked.
        let start = unsafe { self.start.add(self.cut) };
        self.cut += len;
        Buffer {
            start,
            len,
            index: NONE,
            capacity: len as u32,
            account: Rc::clone(&self.pieces),
        }
    }

    /// The buffer again, with what was written to its pieces.
    ///
    /// # Errors
    ///
    /// There still are pieces.
    #[expect(
        clippy::expect_used,
        reason = "only `CutBuffer::new` makes the account, with a buffer"
    )]
    pub fn join(self) -> Result<Buffer, Self> {
        let Self {
            start, len, cut, ..
        } = self;
        match Rc::try_unwrap(self.pieces) {
            Ok(Account { whole, .. }) => Ok(whole.expect("the pieces of a buffer have it")),
            Err(pieces) => Err(Self {
                pieces,
                start,
                len,
                cut,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_pool_can_be_handed_out_in_any_mix_and_merges_again() {
        let pool = Pool::new(2 * BUFFER_BYTES_MAX).unwrap();
        for size in [
            PIECE_BYTES,
            3 * PIECE_BYTES,
            64 * 1024,
            1 << 20,
            BUFFER_BYTES_MAX,
        ] {
            let mut held = Vec::new();
            while let Ok(buffer) = pool.allocate(size) {
                held.push(buffer);
            }
            let rounded = size.next_power_of_two();
            assert_eq!(
                held.len(),
                pool.capacity_bytes() / rounded,
                "buffers of {size}"
            );
            assert_eq!(pool.free_bytes(), 0);
            drop(held);
            assert_eq!(pool.free_bytes(), pool.capacity_bytes());
        }
    }

    #[test]
    fn small_new_work_passes_large_that_waits() {
        let pool = Pool::new(8 * BUFFER_BYTES_MAX).unwrap();
        let permit = |len| pool.permit(Need::Begin, len).is_ok();
        let large = pool.capacity_bytes() / 8;
        // One that holds nothing may always have its first.
        let _first = pool.allocate(512).unwrap();
        assert!(permit(512) && permit(large));
        pool.set_crowded(true);
        assert!(permit(512), "small");
        assert!(!permit(large), "large, behind what waits already");
        pool.set_crowded(false);
        assert!(permit(large));
    }

    #[test]
    fn a_large_buffer_is_found_when_all_small_ones_came_back() {
        let pool = Pool::new(BUFFER_BYTES_MAX).unwrap();
        let small: Vec<_> = (0..100).map(|_| pool.allocate(512).unwrap()).collect();
        assert_eq!(pool.allocate(BUFFER_BYTES_MAX).unwrap_err(), PoolFull);
        drop(small);
        assert_eq!(
            pool.allocate(BUFFER_BYTES_MAX).unwrap().len(),
            BUFFER_BYTES_MAX
        );
    }

    #[test]
    fn buffers_do_not_overlap_and_are_aligned() {
        let pool = Pool::new(BUFFER_BYTES_MAX).unwrap();
        let mut held: Vec<_> = (1..60usize)
            .map(|n| pool.allocate(n * 1500).unwrap())
            .collect();
        for (n, buffer) in held.iter_mut().enumerate() {
            assert_eq!(buffer.address().as_ptr().addr() % PIECE_BYTES, 0);
            buffer.fill(u8::try_from(n).unwrap());
        }
        for (n, buffer) in held.iter().enumerate() {
            assert!(
                buffer.iter().all(|&byte| usize::from(byte) == n),
                "buffer {n} was overwritten"
            );
        }
    }

    #[test]
    fn each_account_counts_its_own_until_the_buffers_are_back() {
        let pool = Pool::new(BUFFER_BYTES_MAX).unwrap();
        let (one, two) = (pool.account(), pool.account());
        let first = one.allocate(5000).unwrap();
        let second = two.allocate_for(Need::Begin, 100).unwrap();
        assert_eq!((one.held_bytes(), two.held_bytes()), (8192, 4096));
        assert_eq!(pool.held_bytes(), 0);
        assert_eq!(pool.free_bytes(), BUFFER_BYTES_MAX - 3 * PIECE_BYTES);
        drop((one.clone(), two));
        drop(first);
        assert_eq!(one.held_bytes(), 0);
        drop(second);
        assert_eq!(pool.free_bytes(), BUFFER_BYTES_MAX);
    }

    /// Takes buffers of one account each until there is no more; who had one is not refused for want of supply.
    fn take_all(party: &Party, len: usize, held: &mut Vec<Buffer>) -> usize {
        let before = held.len();
        loop {
            match party.account().allocate_for(Need::Begin, len) {
                Ok(buffer) => held.push(buffer),
                Err(why) => {
                    assert_eq!(why, NoRoom::Share);
                    return held.len() - before;
                }
            }
        }
    }

    #[test]
    fn a_crowd_leaves_half_of_the_supply_and_each_party_leaves_room_for_the_next() {
        let pool = Pool::new(8 * BUFFER_BYTES_MAX).unwrap();
        let (crowd, len) = (pool.crowd(), BUFFER_BYTES_MAX / 8);
        let mut held = Vec::new();
        let parties: Vec<Party> = (0..100).map(|_| crowd.party()).collect();
        let first = take_all(&parties[0], len, &mut held);
        assert!((2..=8).contains(&first), "{first}");
        // What has come has no other place, and what has begun goes on.
        let guest = parties[0].account();
        held.push(guest.allocate_for(Need::Arrived, len).unwrap());
        held.push(guest.allocate_for(Need::GoOn, len).unwrap());
        assert!(take_all(&parties[1], len, &mut held) > 0);
        for party in &parties[2..] {
            take_all(party, len, &mut held);
        }
        assert!(pool.free_bytes() >= 4 * BUFFER_BYTES_MAX);
        assert!(pool.account().allocate_for(Need::Begin, len).is_ok());
        let last = crowd.party();
        assert_eq!(take_all(&last, len, &mut held), 0);
        held.truncate(held.len() / 2);
        assert!(take_all(&last, len, &mut held) > 0, "it came back");
        drop(held);
        assert_eq!(crowd.0.held_bytes.get(), 0);
        assert_eq!(pool.free_bytes(), pool.capacity_bytes());
    }

    #[test]
    fn shares_are_reckoned_without_what_is_always_out() {
        let pool = Pool::new(BUFFER_BYTES_MAX).unwrap();
        let _always = pool.allocate(BUFFER_BYTES_MAX / 2).unwrap();
        pool.set_base();
        assert_eq!(pool.shares().capacity, BUFFER_BYTES_MAX / 2);
        let holder = pool.account();
        let all = holder.allocate_for(Need::Begin, BUFFER_BYTES_MAX / 2);
        assert!(all.is_ok(), "nobody else has anything");
    }

    #[test]
    fn pieces_are_filled_by_themselves_and_join_to_what_was_cut() {
        let pool = Pool::new(0).unwrap();
        let mut buffer = pool.allocate(10_000).unwrap();
        buffer.fill(9);
        let (address, free) = (buffer.address(), pool.free_bytes());
        let mut cut = CutBuffer::new(buffer);
        let mut pieces: Vec<Buffer> = [512, 8_000, 488].map(|len| cut.cut(len)).into();
        for (byte, piece) in (1..).zip(&mut pieces) {
            piece.fill(byte);
            assert_eq!(piece.capacity(), piece.len());
        }
        drop(pieces.pop());
        let mut cut = cut.join().unwrap_err();
        let last = cut.cut(1_000);
        assert_eq!(*last, [9; 1_000]);
        drop((pieces, last));
        let buffer = cut.join().unwrap();
        assert_eq!((buffer.address(), buffer.len()), (address, 10_000));
        let runs: Vec<(u8, usize)> = buffer
            .chunk_by(|a, b| a == b)
            .map(|run| (run[0], run.len()))
            .collect();
        assert_eq!(runs, [(1, 512), (2, 8_000), (3, 488), (9, 1_000)]);
        assert_eq!(pool.free_bytes(), free);
        drop(buffer);
        assert_eq!(pool.free_bytes(), pool.capacity_bytes());
    }

    #[test]
    fn memory_goes_back_with_the_last_piece_and_not_before() {
        let pool = Pool::new(0).unwrap();
        let mut cut = CutBuffer::new(pool.allocate(8_192).unwrap());
        let (first, second) = (cut.cut(4_096), cut.cut(4_096));
        drop((cut, first));
        assert_eq!(pool.held_bytes(), 8_192);
        drop(second);
        assert_eq!(pool.held_bytes(), 0);
    }

    #[test]
    #[should_panic(expected = "a piece of 513 bytes, 512 are left")]
    fn no_piece_goes_past_the_end() {
        let pool = Pool::new(0).unwrap();
        let mut cut = CutBuffer::new(pool.allocate(1_024).unwrap());
        drop(cut.cut(512));
        drop(cut.cut(513));
    }

    #[test]
    fn length_changes_stay_within_the_capacity() {
        let pool = Pool::new(0).unwrap();
        let mut buffer = pool.allocate(5000).unwrap();
        assert_eq!(buffer.capacity(), 8192);
        buffer.set_len(8192);
        assert_eq!(buffer.len(), 8192);
    }
}
