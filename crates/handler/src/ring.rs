//! Commands and their ends, in memory that a handler has, too.
//!
//! Neither side says how far it has read. A command keeps its slot until its end was taken, and there are as many
//! entries as slots: so an entry is written again only when the other side has read it, or never reads in order.

use std::sync::atomic::{Ordering, fence};

use crate::arena::Arena;

/// Commands under way at a time, and entries of each kind.
pub const SLOTS: usize = 64;
/// The longest CDB.
pub const CDB_BYTES_MAX: usize = 260;
/// The longest sense data.
///
/// Spec: SPC-5 section 4.5.1.
pub const SENSE_BYTES_MAX: usize = 252;
/// Data of all commands under way, each rounded up to whole pages.
pub const DATA_BYTES: usize = 16 << 20;
/// The memory of a ring.
pub const MEMORY_BYTES: usize = DATA + DATA_BYTES;

/// Each index and flag has a cache line of its own.
const SUBMITTED: usize = 0;
const HANDLER_SLEEPS: usize = 64;
const COMPLETED: usize = 128;
const TARN_SLEEPS: usize = 192;
pub(crate) const SUBMISSIONS: usize = 4096;
pub(crate) const COMPLETIONS: usize = SUBMISSIONS + SLOTS * ENTRY_BYTES;
pub(crate) const DATA: usize = 64 << 10;
pub(crate) const ENTRY_BYTES: usize = 320;
/// Where the CDB is in an entry.
const CDB: usize = 60;
/// Where the sense data are in an entry, behind its other fields.
const SENSE: usize = 32;

const _: () = assert!(COMPLETIONS + SLOTS * ENTRY_BYTES <= DATA);
const _: () = assert!(CDB + CDB_BYTES_MAX == ENTRY_BYTES && SENSE + SENSE_BYTES_MAX <= ENTRY_BYTES);

/// The side is awake and looks at the ring by itself.
const AWAKE: u32 = 0;
/// It waits for a byte. Who sends that, writes [`AWAKE`].
const ASLEEP: u32 = 1;

/// A constant of this module, or an index of a slot.
#[expect(clippy::cast_possible_truncation, reason = "all are below 2^32")]
pub(crate) const fn as_u32(value: usize) -> u32 {
    value as u32
}

const fn as_usize(value: u32) -> usize {
    value as usize
}

/// Memory that both sides have. Offsets are in bytes, and below [`MEMORY_BYTES`]; those of numbers are multiples of 4.
pub trait Memory {
    /// A number, which orders what is read after it (acquire).
    fn load(&self, offset: usize) -> u32;
    /// Writes a number, after all that was written before (release).
    fn store(&self, offset: usize, value: u32);
    /// Writes a number and gives the one before, as one operation.
    fn swap(&self, offset: usize, value: u32) -> u32;
    /// Writes bytes.
    fn copy_in(&self, offset: usize, bytes: &[u8]);
    /// Reads bytes.
    fn copy_out(&self, offset: usize, bytes: &mut [u8]);
}

/// A command for the handler.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// At most [`CDB_BYTES_MAX`] bytes.
    pub cdb: &'a [u8],
    /// Who gives it.
    pub nexus: u64,
    /// Not empty only where there is no room for Data-In.
    pub data_out: &'a [u8],
    /// Room for Data-In.
    pub data_in_bytes: u32,
}

/// The end of a command. [`Ring::end`] follows.
#[derive(Debug, Eq, PartialEq)]
pub struct Completion {
    /// The slot of the command.
    pub slot: usize,
    /// STATUS, as SAM has it.
    pub status: u8,
    /// At most [`SENSE_BYTES_MAX`] bytes.
    pub sense: Vec<u8>,
    /// What the command transfers in its direction; more than there is room or data where the handler had or wanted
    /// more.
    pub transfer_bytes: u32,
}

/// What no handler may do. The connection is of no more use then.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Violation {
    /// More ends than commands.
    #[error("it ends {ended} commands at once, of {under_way} that it has")]
    Jump {
        /// By the index.
        ended: u32,
        /// That it has.
        under_way: usize,
    },
    /// The end of a command that it does not have, or has ended already.
    #[error("it ends the command in slot {slot}, which it does not have")]
    NotUnderWay {
        /// As it calls it.
        slot: u32,
    },
    /// No status has that number.
    #[error("it ends a command with status {status:#x}")]
    Status {
        /// As it calls it.
        status: u32,
    },
    /// More sense data than SPC allows.
    #[error("it sends {bytes} bytes of sense data, and {SENSE_BYTES_MAX} are the most")]
    Sense {
        /// Their length.
        bytes: u32,
    },
}

/// A command in a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    is_under_way: bool,
    /// Its data: the offset in the area, and the length of Data-In.
    place: u32,
    data_in_bytes: u32,
}

/// Tarn's side of a ring.
#[derive(Debug)]
pub struct Ring<M> {
    memory: M,
    /// How many commands were handed over, and how many ends were taken; both wrap.
    submitted: u32,
    completed: u32,
    slots: [Slot; SLOTS],
    free: Vec<usize>,
    arena: Arena,
}

/// The entry of that number. What comes out is small, and no sum of it overflows.
#[expect(clippy::arithmetic_side_effects, reason = "of numbers below 64")]
const fn entry(of: usize, number: u32) -> usize {
    of + as_usize(number) % SLOTS * ENTRY_BYTES
}

impl<M: Memory> Ring<M> {
    /// A ring in memory of [`MEMORY_BYTES`] that reads zero.
    pub fn new(memory: M) -> Self {
        memory.store(TARN_SLEEPS, ASLEEP);
        Self {
            memory,
            submitted: 0,
            completed: 0,
            slots: [Slot::default(); SLOTS],
            free: (0..SLOTS).rev().collect(),
            arena: Arena::new(as_u32(DATA_BYTES)),
        }
    }

    /// How many commands the handler has.
    pub fn under_way(&self) -> usize {
        SLOTS.saturating_sub(self.free.len())
    }

    /// Hands a command over and gives its slot; `None`: there is no room for it now. [`Ring::must_wake`] follows.
    pub fn put(&mut self, command: &Command<'_>) -> Option<usize> {
        let Command {
            cdb,
            nexus,
            data_out,
            data_in_bytes,
        } = *command;
        let out_bytes = u32::try_from(data_out.len()).ok()?;
        if cdb.len() > CDB_BYTES_MAX {
            return None;
        }
        let slot = *self.free.last()?;
        let place = self.arena.take(out_bytes.max(data_in_bytes))?;
        self.free.pop();
        *self.slots.get_mut(slot)? = Slot {
            is_under_way: true,
            place,
            data_in_bytes,
        };
        self.memory.copy_in(data_at(place), data_out);
        let at = entry(SUBMISSIONS, self.submitted);
        let fields = [as_u32(slot), as_u32(cdb.len()), out_bytes, data_in_bytes];
        self.memory.copy_in(at, &bytes_of(fields));
        let nexus = [nexus, nexus.wrapping_shr(32)];
        #[expect(clippy::cast_possible_truncation, reason = "the halves of it")]
        let [low, high] = nexus.map(|half| half as u32);
        let fields = [place, 0, low, high];
        self.memory
            .copy_in(at.saturating_add(16), &bytes_of(fields));
        self.memory.copy_in(at.saturating_add(CDB), cdb);
        self.submitted = self.submitted.wrapping_add(1);
        self.memory.store(SUBMITTED, self.submitted);
        Some(slot)
    }

    /// Whether the handler waits for a byte, after something was put. It is owed one if so.
    pub fn must_wake(&self) -> bool {
        // What was put is seen by a handler that goes to sleep now, or its flag is seen here.
        fence(Ordering::SeqCst);
        match self.memory.load(HANDLER_SLEEPS) {
            AWAKE => false,
            ASLEEP => match self.memory.swap(HANDLER_SLEEPS, AWAKE) {
                AWAKE => false,
                ASLEEP => true,
                always => {
                    self.memory.store(HANDLER_SLEEPS, always);
                    true
                }
            },
            // It wants one for all that comes, always.
            _ => true,
        }
    }

    /// The next end of a command. `None`: there is none; [`Ring::sleep`] follows.
    ///
    /// # Errors
    ///
    /// The handler lies. Nothing of the ring is of use then.
    pub fn take(&mut self) -> Result<Option<Completion>, Violation> {
        let ended = self.memory.load(COMPLETED).wrapping_sub(self.completed);
        if ended == 0 {
            return Ok(None);
        }
        let under_way = self.under_way();
        if as_usize(ended) > under_way {
            return Err(Violation::Jump { ended, under_way });
        }
        let at = entry(COMPLETIONS, self.completed);
        let mut fields = [0; 16];
        self.memory.copy_out(at, &mut fields);
        let [slot, status, transfer_bytes, bytes] = numbers(fields);
        if !self.is_under_way(slot) {
            return Err(Violation::NotUnderWay { slot });
        }
        let status = u8::try_from(status).map_err(|_| Violation::Status { status })?;
        if as_usize(bytes) > SENSE_BYTES_MAX {
            return Err(Violation::Sense { bytes });
        }
        let mut sense = vec![0; as_usize(bytes)];
        if bytes > 0 {
            self.memory.copy_out(at.saturating_add(SENSE), &mut sense);
        }
        self.completed = self.completed.wrapping_add(1);
        Ok(Some(Completion {
            slot: as_usize(slot),
            status,
            sense,
            transfer_bytes,
        }))
    }

    fn is_under_way(&self, slot: u32) -> bool {
        let slot = self.slots.get(as_usize(slot));
        slot.is_some_and(|slot| slot.is_under_way)
    }

    /// Ends a command whose completion was taken: its Data-In goes to the beginning of `data`, and its slot is free.
    /// Gives the length of Data-In, in bytes.
    pub fn end(&mut self, completion: &Completion, data: &mut [u8]) -> usize {
        let Some(place) = self.slots.get_mut(completion.slot) else {
            return 0;
        };
        let slot = std::mem::take(place);
        let length = completion.transfer_bytes.min(slot.data_in_bytes);
        let length = as_usize(length).min(data.len());
        if let Some(data) = data.get_mut(..length).filter(|data| !data.is_empty()) {
            self.memory.copy_out(data_at(slot.place), data);
        }
        if slot.is_under_way {
            self.arena.give_back(slot.place);
            self.free.push(completion.slot);
        }
        length
    }

    /// From now on the handler sends a byte when it ends a command. False: it has ended one already.
    pub fn sleep(&self) -> bool {
        self.memory.store(TARN_SLEEPS, ASLEEP);
        // The flag is seen by a handler that ends a command now, or its index is seen here.
        fence(Ordering::SeqCst);
        self.memory.load(COMPLETED) == self.completed
    }
}

/// Where data are in the memory, by their place in the area.
const fn data_at(place: u32) -> usize {
    as_usize(place).saturating_add(DATA)
}

/// Four fields of an entry.
fn numbers(bytes: [u8; 16]) -> [u32; 4] {
    let number = u128::from_le_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "32 bits of it")]
    [0, 32, 64, 96].map(|shift: u32| number.wrapping_shr(shift) as u32)
}

/// The same, as they are written.
fn bytes_of([a, b, c, d]: [u32; 4]) -> [u8; 16] {
    let number = [d, c, b, a].into_iter().fold(0_u128, |sum, field| {
        sum.wrapping_shl(32) | u128::from(field)
    });
    number.to_le_bytes()
}

#[cfg(test)]
mod tests;
