//! What a store is asked, and what it answers.

use std::ops::Range;

use memory::{Buffer, Payload};

use crate::device::{DeviceAnswer, DeviceRequest};

/// Names a request among all of one core. No two requests get the same one. The store only carries it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct IoTag(pub u64);

/// What a store is and can do. Fixed while the store is open, except its size.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// In bytes; a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block length, 512 or 4096.
    pub block_bytes: u32,
    /// Physical block length: writes of whole aligned ones need no read first. A power of two, a
    /// multiple of `block_bytes`.
    pub physical_block_bytes: u32,
    /// No write of any kind is possible.
    pub read_only: bool,
    /// Ranges can be given back ([`IoRequest::Unmap`]) and read zeros afterwards.
    pub thin: bool,
    /// Unmapping is possible in units of this many bytes; smaller rests are written with zeros.
    pub unmap_granularity_bytes: u32,
    /// [`IoRequest::Read`] needs no buffer: the answer refers to memory of the store.
    pub reads_in_place: bool,
    /// With `reads_in_place`: a read that crosses a multiple of this many bytes gets a buffer nevertheless. A power of
    /// two; 0 where none does.
    pub in_place_unit_bytes: u64,
    /// Data of a [`IoRequest::Write`] must lie in a pool buffer of its own, or in a part of one that starts at a whole
    /// block (direct I/O asks for aligned addresses).
    pub needs_own_buffer: bool,
    /// A write without `durable`, and an unmap, may be lost when the machine stops, until a [`IoRequest::Flush`].
    pub volatile_cache: bool,
    /// Nothing is to be answered before it is durable. The store does not see to that: whoever hands requests over asks
    /// for it with each of them, and can begin or stop to do so.
    pub writes_through: bool,
    /// The medium does not rotate, or it is not known.
    pub solid_state: bool,
    /// The store carries out [`IoRequest::CompareAndWrite`] by itself, for ranges that do not cross a multiple of
    /// this many bytes. 0: not at all; the engine then raises a fence, reads, compares and writes.
    pub compare_and_write_bytes: u32,
}

impl Capabilities {
    /// Those of a store of this size that can be written, durably at once, and nothing more.
    pub const fn plain(size_bytes: u64, block_bytes: u32) -> Self {
        Self {
            size_bytes,
            block_bytes,
            physical_block_bytes: block_bytes,
            read_only: false,
            thin: false,
            unmap_granularity_bytes: block_bytes,
            reads_in_place: false,
            in_place_unit_bytes: 0,
            needs_own_buffer: false,
            volatile_cache: false,
            writes_through: false,
            solid_state: true,
            compare_and_write_bytes: 0,
        }
    }

    /// Whether writes are answered before they are durable.
    pub const fn has_cache(&self) -> bool {
        self.volatile_cache && !self.writes_through
    }

    /// Whether a read needs no buffer.
    #[inline]
    pub const fn answers_in_place(&self, offset: u64, len: usize) -> bool {
        self.reads_in_place && !crosses(self.in_place_unit_bytes, offset, len)
    }
}

/// Whether a range crosses a multiple of a power of two; never with a unit of 0.
#[inline]
pub const fn crosses(unit_bytes: u64, offset: u64, len: usize) -> bool {
    let last = offset.saturating_add((len as u64).saturating_sub(1));
    unit_bytes != 0 && (offset ^ last) >= unit_bytes
}

/// A request, in bytes. Ranges are aligned to the block size and inside the store.
#[derive(Debug)]
pub enum IoRequest {
    /// Read `len` bytes. `buffer` is `Some` unless the store reads in place, and `len` long.
    Read {
        /// Where the data starts, in bytes.
        offset: u64,
        /// In bytes.
        len: usize,
        /// Where to put the data.
        buffer: Option<Buffer>,
    },
    /// Write the payload.
    Write {
        /// Where the data goes, in bytes.
        offset: u64,
        /// The data.
        data: Payload,
        /// The answer must not come before the data is on stable storage (FUA).
        durable: bool,
    },
    /// Make every write answered before this request durable.
    Flush,
    /// Give the range back; it reads zeros from now on.
    Unmap {
        /// In bytes.
        range: Range<u64>,
    },
    /// Make the range read zeros and keep its space allocated.
    WriteZeros {
        /// In bytes.
        range: Range<u64>,
        /// As for [`IoRequest::Write`].
        durable: bool,
    },
    /// Write the second half of `data` if the range holds the first half, as one atomic operation on the medium,
    /// whatever others write to it. Else fail with [`IoFailure::Miscompare`] and change nothing. Only for stores with
    /// [`Capabilities::compare_and_write_bytes`].
    CompareAndWrite {
        /// Where the range starts, in bytes.
        offset: u64,
        /// What is compared, then as many bytes to write.
        data: Payload,
        /// As for [`IoRequest::Write`].
        durable: bool,
    },
    /// Find which parts of the range hold data ([`IoAnswer::Extents`]), at most `count_max` of
    /// them; fewer is fine as long as they start at the start of the range.
    Extents {
        /// In bytes.
        range: Range<u64>,
        /// How many extents the caller has room for; at least one.
        count_max: usize,
    },
    /// A command, for a store that is a device ([`SharedStore::device`](crate::SharedStore::device)) and takes nothing
    /// else.
    Device(Box<DeviceRequest>),
}

/// A run of bytes that are all mapped or all not.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Extent {
    /// In bytes.
    pub range: Range<u64>,
    /// False when the range takes no space and reads zeros.
    pub mapped: bool,
}

/// What a request that went well brings.
#[derive(Debug)]
pub enum IoAnswer {
    /// Success, without data.
    Done,
    /// The data of a [`IoRequest::Read`].
    Data(Payload),
    /// Adjacent, in order, from the start of the range asked for.
    Extents(Vec<Extent>),
    /// That to a [`IoRequest::Device`].
    Device(Box<DeviceAnswer>),
}

/// Why a request failed. What the initiator is answered is decided in one table of crate `scsi`
/// (`scsi::sam::failure`), which has a row for every kind.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IoFailure {
    /// The medium does not give or take these bytes.
    #[error("the medium failed at byte {offset}")]
    Medium {
        /// The first byte that failed, as far as is known.
        offset: u64,
    },
    /// The store as a whole fails.
    #[error("the store failed (errno {errno})")]
    Hardware {
        /// The error number of the system, 0 when there is none.
        errno: i32,
    },
    /// No space left for a thin range.
    #[error("no space left for a write at byte {offset}")]
    NoSpace {
        /// The first byte that found no space.
        offset: u64,
    },
    /// The store ends before this byte although it was larger when it was opened.
    #[error("the store ends before byte {offset}")]
    Truncated {
        /// The first byte that is missing.
        offset: u64,
    },
    /// An earlier flush failed; the kernel reports that once, so it stays known here until the
    /// store is opened again.
    #[error("an earlier flush failed, data answered as written may be lost")]
    FlushLatched,
    /// The store lost what it had answered, and goes on ([`Backstore::lost`](crate::Backstore::lost)). It is reported
    /// once to each that it concerns, so it must not be taken for a failure that passes.
    #[error("the store has lost its cache, data answered as written may be lost")]
    CacheLost,
    /// The request was cancelled before it had an effect, or is answered after
    /// [`Backstore::cancel`](crate::Backstore::cancel), when nobody reads its result.
    #[error("the request was cancelled")]
    Cancelled,
    /// The store was opened read-only.
    #[error("the store is read-only")]
    ReadOnly,
    /// The medium does not hold the data that [`IoRequest::CompareAndWrite`] compares.
    #[error("the data differs at byte {offset}")]
    Miscompare {
        /// The first byte that differs, counted from the start of the range.
        offset: u64,
    },
    /// Not now: the store cannot be reached (a lost connection, a cluster without quorum, blocks whose owner is
    /// away). The failure passes. The request may have had any part of its
    /// effect. It may concern some blocks only; the store fails the requests for these. A store
    /// that only has too much to do returns requests instead ([`Outlet::give_back`](crate::Outlet::give_back)).
    #[error("the store cannot be reached now")]
    NotReady,
    /// Another client has the medium, or an administrator has to decide about it; that may take long. It comes only
    /// between an [`Order::HeldElsewhere`](crate::Order::HeldElsewhere) that says so and the one that takes it back.
    #[error("another client has the medium, or an administrator has to decide about it")]
    HeldElsewhere,
}

/// The outcome of one request.
pub type IoResult = Result<IoAnswer, IoFailure>;

/// The answer to a request that no store of these capabilities can take: a write to one that is read-only, a range
/// behind its end.
pub fn refuse(capabilities: &Capabilities, request: &IoRequest) -> Option<IoFailure> {
    admit(capabilities, request).err()
}

/// The answer to a command for a device, of a store that is none.
pub(crate) const NO_DEVICE: IoFailure = IoFailure::Hardware { errno: 95 };

/// The bytes that a request is about, where [`refuse`] has no answer to it.
#[inline]
pub(crate) fn admit(
    capabilities: &Capabilities,
    request: &IoRequest,
) -> Result<Range<u64>, IoFailure> {
    let (range, changes) = match request {
        IoRequest::Read { offset, len, .. } => (span(*offset, *len), false),
        IoRequest::Write { offset, data, .. } => (span(*offset, data.len()), true),
        IoRequest::CompareAndWrite { offset, data, .. } => (span(*offset, data.len() / 2), true),
        IoRequest::Flush => (0..0, false),
        IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => (range.clone(), true),
        IoRequest::Extents { range, .. } => (range.clone(), false),
        IoRequest::Device(_) => return Err(NO_DEVICE),
    };
    if changes && capabilities.read_only {
        return Err(IoFailure::ReadOnly);
    }
    // The caller checks against the size it knows; the store may have shrunk since.
    if range.end > capabilities.size_bytes {
        let offset = capabilities.size_bytes;
        return Err(IoFailure::Truncated { offset });
    }
    Ok(range)
}

fn span(offset: u64, len: usize) -> Range<u64> {
    offset..offset.saturating_add(len as u64)
}
