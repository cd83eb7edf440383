//! The contract between a device server and a store.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use memory::{Buffer, Payload};

use crate::StoreFile;

/// Names a request among all that are in flight on one core. The store only carries it.
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
    /// Data of a [`IoRequest::Write`] must lie in a pool buffer of its own (direct I/O asks for
    /// aligned addresses).
    pub needs_own_buffer: bool,
    /// A write without `durable` may be lost when the machine stops, until a
    /// [`IoRequest::Flush`]. The WCE bit reports this to initiators.
    pub volatile_cache: bool,
    /// The medium does not rotate, or it is not known.
    pub solid_state: bool,
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
    /// Find which parts of the range hold data ([`IoAnswer::Extents`]), at most `count_max` of
    /// them; fewer is fine as long as they start at the start of the range.
    Extents {
        /// In bytes.
        range: Range<u64>,
        /// How many extents the caller has room for; at least one.
        count_max: usize,
    },
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
}

/// Why a request failed. One table in crate `scsi` decides what the initiator gets.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
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
    /// The request was cancelled before it had an effect.
    #[error("the request was cancelled")]
    Cancelled,
    /// The store was opened read-only.
    #[error("the store is read-only")]
    ReadOnly,
}

/// The outcome of one request.
pub type IoResult = Result<IoAnswer, IoFailure>;

/// The file of a store, kept open by every operation in flight on it. One descriptor serves all
/// cores, as descriptors are few; each core counts its own operations, so that cores do not meet
/// at the counter.
pub type FileHandle = Rc<StoreFile>;

/// What the reactor does for a store, on the core's ring or on the lane of the file
/// ([`Place::route`](crate::Place::route)). It gives the operation back to
/// [`Backstore::handle_ring_result`], with everything it owns, when the kernel is done with it.
#[derive(Debug)]
pub enum RingOperation {
    /// `pread` into the buffer from byte `done` of it on; the file offset is `offset + done`.
    Read {
        /// The file.
        file: FileHandle,
        /// File offset of the first byte of the buffer.
        offset: u64,
        /// Where the data goes.
        buffer: Buffer,
        /// How much of the buffer earlier attempts have filled, in bytes.
        done: usize,
    },
    /// `pwrite` of the payload from byte `done` of it on; the file offset is `offset + done`.
    Write {
        /// The file.
        file: FileHandle,
        /// File offset of the first byte of the payload.
        offset: u64,
        /// The data.
        data: Payload,
        /// How much earlier attempts have written, in bytes.
        done: usize,
        /// With `RWF_DSYNC`.
        durable: bool,
    },
    /// `fdatasync` of the whole file.
    Sync {
        /// The file.
        file: FileHandle,
    },
    /// `fallocate`.
    Allocate {
        /// The file.
        file: FileHandle,
        /// What to do with the range.
        mode: AllocateMode,
        /// In bytes.
        range: Range<u64>,
    },
    /// Finds out which parts of the range hold data; the result counts the entries of `found` that
    /// were written.
    Extents {
        /// The file.
        file: FileHandle,
        /// In bytes.
        range: Range<u64>,
        /// A block that is partly mapped counts as mapped.
        block_bytes: u32,
        /// Room for the answer.
        found: Vec<Extent>,
    },
    /// Looks how large the file is.
    Size {
        /// The file.
        file: FileHandle,
        /// It is a block device.
        is_block_device: bool,
        /// The answer.
        bytes: u64,
    },
}

impl RingOperation {
    /// The file it is for.
    pub const fn file(&self) -> &FileHandle {
        match self {
            Self::Read { file, .. }
            | Self::Write { file, .. }
            | Self::Sync { file }
            | Self::Allocate { file, .. }
            | Self::Extents { file, .. }
            | Self::Size { file, .. } => file,
        }
    }
}

/// The modes of `fallocate` that stores use; all keep the file size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AllocateMode {
    /// `FALLOC_FL_PUNCH_HOLE`.
    PunchHole,
    /// `FALLOC_FL_ZERO_RANGE`.
    ZeroRange,
}

/// Work that the ring cannot do or that may block: runs on the helper thread and comes back to
/// [`Backstore::handle_helper_result`].
pub struct HelperOperation {
    /// For logs.
    pub name: &'static str,
    /// Must end in bounded time as far as the kernel allows.
    pub work: Box<dyn FnOnce() -> HelperResult + Send>,
}

/// What helper work brings back.
pub type HelperResult = Result<HelperAnswer, IoFailure>;

/// The good outcome of helper work.
#[derive(Debug)]
pub enum HelperAnswer {
    /// Success, without data.
    Done,
}

impl fmt::Debug for HelperOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperOperation")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How a store takes a request, or goes on with one.
#[derive(Debug)]
#[must_use = "a request that is not carried on is a lost command"]
pub enum Submitted {
    /// It is done, in this very turn.
    Done(IoResult),
    /// The reactor must do this for it.
    Ring(RingOperation),
    /// The helper thread must do this for it.
    Helper(HelperOperation),
    /// It completes later by other means (a library's own thread, a peer); the answer comes as
    /// mail with the tag.
    Pending,
    /// No room now; the request comes back unchanged and is tried again when another completed.
    Full(IoRequest),
}

/// A store as one core sees it. Each core has a handle of its own, so nothing here is shared by
/// reference between cores; what must be common (the latch of a failed flush, the map of a
/// memory disk) is inside the store.
///
/// Contract: every accepted request completes exactly once, in any order. `submit` and the
/// `handle_` functions never block. A request answers `Done` at once only if it took no longer
/// than copying its data.
pub trait Backstore: fmt::Debug {
    /// What the store is; the size is that of the last [`Backstore::refresh_size`].
    fn capabilities(&self) -> &Capabilities;

    /// Takes a request over.
    fn submit(&mut self, tag: IoTag, request: IoRequest) -> Submitted;

    /// An operation of [`Submitted::Ring`] is over. `result` is the kernel's: a count of bytes or
    /// zero, or a negative error number. May ask for another operation (the rest of a short one).
    fn handle_ring_result(
        &mut self,
        tag: IoTag,
        operation: RingOperation,
        result: i32,
    ) -> Submitted;

    /// Work of [`Submitted::Helper`] is over.
    fn handle_helper_result(&mut self, tag: IoTag, result: HelperResult) -> Submitted;

    /// The step that the store asked for last, for the request with this tag, will not be done:
    /// the task was aborted, and its tag will name another request.
    fn abandon(&mut self, tag: IoTag) {
        // Most stores take one step and remember nothing.
        let _forgotten = tag;
    }

    /// Has every read and write done by the ring, where a test can look at it and let it fail.
    #[cfg(test)]
    fn use_ring_only(&mut self) {}

    /// Has durable writes done as on a file system that honours `RWF_DSYNC`, or as elsewhere,
    /// whatever the tests run on.
    #[cfg(test)]
    fn set_honours_dsync(&mut self, honours: bool) {
        let _fixed = honours;
    }

    /// Looks how large the store is now, as [`SharedStore::probe_size`] does, without waiting. An
    /// operation that it takes for that comes back to [`Backstore::handle_probed`].
    fn probe(&mut self) -> Option<RingOperation> {
        None
    }

    /// The operation of [`Backstore::probe`] is over.
    fn handle_probed(&mut self, operation: RingOperation, result: i32) {
        // Only a store that asked for one gets one.
        debug_assert!(false, "{result} for {operation:?}");
    }

    /// Takes over the size that was found last. Answers it in bytes when it
    /// differs from the one before.
    fn refresh_size(&mut self) -> Option<u64>;
}

/// A store that was opened once, and of which every core takes its handle.
pub trait SharedStore: Send + Sync + fmt::Debug {
    /// A handle for the calling core.
    fn handle(&self) -> std::io::Result<Box<dyn Backstore>>;

    /// What the store is, with the size it was found to have last.
    fn capabilities(&self) -> Capabilities;

    /// Looks how large the store is now; the handles learn of it by [`Backstore::refresh_size`].
    /// May block for as long as a file system is stuck, so no core calls it.
    fn probe_size(&self) -> std::io::Result<()>;

    /// Makes the store larger, to this many bytes, which are a whole number of blocks; the new part
    /// reads zeros. Never makes one smaller. Looks at the size, too, as [`Self::probe_size`] does.
    ///
    /// # Errors
    ///
    /// It cannot grow at all (`Unsupported`), or not that far; it has the size it had.
    fn grow(&self, size_bytes: u64) -> std::io::Result<()> {
        let _wanted = size_bytes;
        Err(std::io::ErrorKind::Unsupported.into())
    }

    /// Whether a flush failed ([`IoFailure::FlushLatched`]).
    fn is_flush_latched(&self) -> bool;
}
