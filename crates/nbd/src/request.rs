//! Requests, and those that are under way.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::sync::Arc;

use crate::arrived::Arrived;
use crate::handshake::Export;
use crate::wire::{ServerError, command, command_flags};

/// Where the data of a read goes.
#[derive(Debug)]
pub enum ReadBuffer<R = Vec<u8>> {
    /// Into this buffer, from its start; it is as long as the request.
    Into(R),
    /// Nowhere: counted, not kept.
    Discard,
}

/// A run of bytes of one kind, in the answer to [`Work::BlockStatus`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatusExtent {
    /// In bytes; not zero. The last one may reach behind the end of the request.
    pub length: u32,
    /// It takes no space on the medium.
    pub is_hole: bool,
    /// It reads zeros.
    pub is_zero: bool,
}

/// What a request is about. `R` is the memory that reads fill, `W` what the data of writes lies in.
#[derive(Debug)]
pub enum Work<R = Vec<u8>, W = Arc<[u8]>> {
    /// Read so many bytes.
    Read {
        /// In bytes.
        length: u32,
        /// Where they go.
        buffer: ReadBuffer<R>,
    },
    /// Write these bytes.
    Write {
        /// In bytes.
        length: u32,
        /// The data, so long.
        data: W,
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Put everything that was answered on stable storage.
    Flush,
    /// Give the space of so many bytes back; what they read then is not known.
    Trim {
        /// In bytes.
        length: u32,
        /// On stable storage before it is answered.
        fua: bool,
    },
    /// Make so many bytes read zeros.
    WriteZeroes {
        /// In bytes.
        length: u32,
        /// On stable storage before it is answered.
        fua: bool,
        /// Keep their space.
        no_hole: bool,
        /// Fail with [`ServerError::NOT_SUPPORTED`] instead of writing zeros slowly.
        fast: bool,
    },
    /// Find which parts of so many bytes take space and which read zeros. Needs [`Export::allocation_context`].
    BlockStatus {
        /// In bytes.
        length: u32,
        /// How many extents are kept of the answer; the server may send more.
        count_max: usize,
        /// The answer, from the offset of the request on.
        extents: Vec<StatusExtent>,
    },
}

impl<R, W> Work<R, W> {
    pub(crate) const fn length(&self) -> u32 {
        match self {
            Self::Read { length, .. }
            | Self::Write { length, .. }
            | Self::Trim { length, .. }
            | Self::WriteZeroes { length, .. }
            | Self::BlockStatus { length, .. } => *length,
            Self::Flush => 0,
        }
    }

    pub(crate) const fn command(&self) -> u16 {
        match self {
            Self::Read { .. } => command::READ,
            Self::Write { .. } => command::WRITE,
            Self::Flush => command::FLUSH,
            Self::Trim { .. } => command::TRIM,
            Self::WriteZeroes { .. } => command::WRITE_ZEROES,
            Self::BlockStatus { .. } => command::BLOCK_STATUS,
        }
    }

    pub(crate) const fn flags(&self) -> u16 {
        let (fua, no_hole, fast) = match self {
            Self::Read { .. } | Self::Flush | Self::BlockStatus { .. } => (false, false, false),
            Self::Write { fua, .. } | Self::Trim { fua, .. } => (*fua, false, false),
            Self::WriteZeroes {
                fua, no_hole, fast, ..
            } => (*fua, *no_hole, *fast),
        };
        (if fua { command_flags::FUA } else { 0 })
            | (if no_hole { command_flags::NO_HOLE } else { 0 })
            | (if fast { command_flags::FAST_ZERO } else { 0 })
    }

    /// True when the export has said that it can do this.
    pub(crate) const fn is_allowed(&self, export: &Export) -> bool {
        let flags = export.flags;
        let is_known = match self {
            Self::Read { .. } => return true,
            Self::Flush => return flags.can_flush(),
            Self::BlockStatus { .. } => return export.allocation_context.is_some(),
            Self::Write { .. } => true,
            Self::Trim { .. } => flags.can_trim(),
            Self::WriteZeroes { fast, .. } => {
                flags.can_write_zeroes() && (!*fast || flags.can_fast_zero())
            }
        };
        let asks_fua = self.flags() & command_flags::FUA != 0;
        is_known && !flags.is_read_only() && (!asks_fua || flags.can_fua())
    }

    pub(crate) const fn carries_data(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. })
    }
}

/// One request.
#[derive(Debug)]
pub struct Request<R = Vec<u8>, W = Arc<[u8]>> {
    /// Comes back with the completion; means nothing here.
    pub tag: u64,
    /// In bytes; 0 for a flush.
    pub offset: u64,
    /// What is to be done.
    pub work: Work<R, W>,
}

/// A request that is done.
#[derive(Debug)]
pub struct Completion<R = Vec<u8>, W = Arc<[u8]>> {
    /// As submitted.
    pub tag: u64,
    /// As submitted.
    pub offset: u64,
    /// Good, or what the server said.
    pub result: Result<(), ServerError>,
    /// As submitted; filled, if it was a read and it is good.
    pub work: Work<R, W>,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many are under way; try again after a completion.
    #[error("{limit} requests are under way")]
    Full {
        /// The limit.
        limit: usize,
    },
    /// Not inside the export, empty, or longer than the server takes at once.
    #[error("the server takes no such range")]
    Range,
    /// Not a multiple of the smallest block.
    #[error("offset and length have to be multiples of {block_min_bytes} bytes")]
    Alignment {
        /// The smallest block.
        block_min_bytes: u32,
    },
    /// The export cannot do this.
    #[error("the export does not take this request")]
    NotSupported,
    /// The buffer of a read has another length than the read.
    #[error("buffer of another length than the read")]
    BufferLength,
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Task<R, W> {
    pub(crate) tag: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    pub(crate) work: Work<R, W>,
    /// Bytes of data so far, holes included; of a block status how many answers came.
    pub(crate) received: u32,
    /// Which of them.
    pub(crate) arrived: Arrived,
    /// The first error of a structured reply.
    pub(crate) error: Option<ServerError>,
}

#[derive(Debug)]
struct Slot<R, W> {
    /// Changes with each use, so that a cookie of the past names nothing.
    generation: u32,
    task: Option<Task<R, W>>,
}

/// Everything under way, by cookie.
#[derive(Debug)]
pub(crate) struct Tasks<R, W> {
    slots: Vec<Slot<R, W>>,
    free: Vec<u32>,
}

impl<R, W> Tasks<R, W> {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            slots: (0..limit)
                .map(|_| Slot {
                    generation: 0,
                    task: None,
                })
                .collect(),
            free: (0..limit).rev().collect(),
        }
    }

    pub(crate) fn insert(&mut self, task: Task<R, W>) -> Option<u64> {
        let index = self.free.pop()?;
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        slot.task = Some(task);
        Some(u64::from(slot.generation) << 32 | u64::from(index))
    }

    fn slot(&mut self, cookie: u64) -> Option<(u32, &mut Slot<R, W>)> {
        let [a, b, c, d, e, f, g, h] = cookie.to_be_bytes();
        let index = u32::from_be_bytes([e, f, g, h]);
        let slot = self.slots.get_mut(usize::try_from(index).ok()?)?;
        (slot.generation == u32::from_be_bytes([a, b, c, d])).then_some((index, slot))
    }

    pub(crate) fn find(&mut self, cookie: u64) -> Option<&mut Task<R, W>> {
        self.slot(cookie)?.1.task.as_mut()
    }

    pub(crate) fn remove(&mut self, cookie: u64) -> Option<Task<R, W>> {
        let (index, slot) = self.slot(cookie)?;
        let task = slot.task.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(task)
    }

    /// How many there may be, when there are so many.
    pub(crate) fn limit_reached(&self) -> Option<usize> {
        self.free.is_empty().then_some(self.slots.len())
    }

    /// All that are under way.
    pub(crate) fn into_tasks(self) -> impl Iterator<Item = Task<R, W>> {
        self.slots.into_iter().filter_map(|slot| slot.task)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }
}
