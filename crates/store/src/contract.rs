//! The contract between a device server and a store. [`Backstore`] has its rules.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use memory::{Buffer, Payload};

use crate::{Outlet, PartTag, SocketResult, SocketTag, StoreFile, Waker};

/// A descriptor of the system that this value owns.
#[cfg(target_os = "linux")]
pub type Descriptor = std::os::fd::OwnedFd;
/// A descriptor of the system. There is no such value here.
#[cfg(not(target_os = "linux"))]
pub type Descriptor = StoreFile;

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
    /// Data of a [`IoRequest::Write`] must lie in a pool buffer of its own (direct I/O asks for
    /// aligned addresses).
    pub needs_own_buffer: bool,
    /// A write without `durable` may be lost when the machine stops, until a
    /// [`IoRequest::Flush`]. The WCE bit reports this to initiators.
    pub volatile_cache: bool,
    /// The medium does not rotate, or it is not known.
    pub solid_state: bool,
    /// The store carries out [`IoRequest::CompareAndWrite`] by itself, for ranges that do not cross a multiple of
    /// this many bytes. 0: not at all; the engine then raises a fence, reads, compares and writes.
    pub compare_and_write_bytes: u32,
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
    /// whoever else writes to it. Else fail with [`IoFailure::Miscompare`] and change nothing. Only for stores with
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

/// Why a request failed. What the initiator is told is decided in one table of crate `scsi`
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
    /// The request was cancelled before it had an effect, or is answered after [`Backstore::cancel`], when nobody
    /// reads its result.
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
    /// that only has too much to do returns requests instead ([`Outlet::give_back`]).
    #[error("the store cannot be reached now")]
    NotReady,
}

/// The outcome of one request.
pub type IoResult = Result<IoAnswer, IoFailure>;

/// The file of a store, kept open by every operation in flight on it. One descriptor serves all
/// cores, as descriptors are few; each core counts its own operations, so that cores do not meet
/// at the counter.
pub type FileHandle = Rc<StoreFile>;

/// What the reactor does for a store, on the core's ring or on the lane of the file
/// ([`Place::route`](crate::Place::route)), after [`Outlet::ring`]. It gives the operation back to
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

/// Work that the ring cannot do or that may block: runs on a helper thread after [`Outlet::help`] and comes back to
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
    /// A connected socket, for [`Outlet::open_socket`].
    Socket(Descriptor),
}

impl fmt::Debug for HelperOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperOperation")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// How a store takes a request.
#[derive(Debug)]
#[must_use = "a request that is not carried on is a lost command"]
pub enum Submitted {
    /// It is done, in this very turn.
    Done(IoResult),
    /// The store has it, and completes it with [`Outlet::answer`]; or it returned it with [`Outlet::give_back`].
    Taken,
}

/// A store as one core sees it. Each core has a handle of its own, so nothing here is shared by reference between
/// cores; what must be common (the latch of a failed flush, the map of a memory disk) is inside the store.
///
/// # States of a request
///
/// ```text
/// submit -> Done(result)                                     over
///        -> Taken, given back                                not taken; comes again with another tag
///        -> Taken -> any number of parts -> answer           over
///                 -> cancel -> parts end -> answer           over, the result goes nowhere
/// ```
///
/// * **Once.** Every request that was taken is answered exactly once, in any order, also after
///   [`Backstore::cancel`]. The engine never gives a tag twice, so an answer that comes twice, or after `Done`, finds
///   no request: it is refused and reported as a fault of the store.
/// * **Never blocking.** No function here waits: not for a lock that is held for long, a peer, a thread or a file.
///   `submit` says `Done` only if it took no longer than copying the data of the request.
/// * **Parts.** A store may have any number of operations under way for a request, on the ring, on helper threads and
///   on sockets ([`PartTag`]). Each comes back exactly once. The engine holds the answer of a request until its parts
///   are back: an answered request has nothing under way that could still reach the medium. What a store does by
///   itself (a peer, a library) it must bring to its end before it answers.
/// * **Buffers.** A request owns its buffers. They go with `submit` to the store, with a part to the reactor and back
///   with its result, with [`IoAnswer::Data`] to the engine. Memory that is lent to a library outside is wrapped in a
///   [`memory::Loan`]: if the store is dropped before the library returns it, it is leaked and counted, never freed.
/// * **Slow.** A store that takes long may hold as many requests as it has room for; the engine counts their data,
///   keeps a share free for other units, and does not submit more. It returns the rest with [`Outlet::give_back`].
/// * **Hung.** Nothing here ends a request by itself but the store. An initiator's abort calls `cancel` and is answered
///   at its deadline; from then on the unit refuses access on all cores until the answer comes. The store may set
///   deadlines of its own ([`Outlet::set_timer`]) and answer with [`IoFailure::NotReady`], if it can prove that nothing
///   of the request reaches the medium later.
/// * **Gone.** A handle may be dropped at any time after its unit is removed, or with its core. Operations under way
///   keep what they own, and end unseen. Other threads may use their [`Waker`] and [`Sender`](crate::Sender) as before.
/// * **Threads.** A handle is used on one core only. A library's threads push completions into a
///   [`channel`](crate::channel), which wakes the core; [`Backstore::handle_wake`] takes them there.
pub trait Backstore: fmt::Debug {
    /// What the store is; the size is that of the last [`Backstore::refresh_size`].
    fn capabilities(&self) -> &Capabilities;

    /// Called once, before the first request, on the core of the handle. A store that has threads or connections makes
    /// its [`Waker`] and begins to connect here. The requests that come before it is connected it holds or answers with
    /// [`IoFailure::NotReady`].
    fn start(&mut self, make_waker: &dyn Fn() -> Waker, outlet: &mut Outlet) {
        // Most stores are ready when they are opened.
        let _unused = (make_waker, outlet);
    }

    /// Takes a request over. No other request has or had this tag.
    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted;

    /// Nobody needs the result of this request, which is not answered yet. The store ends it as soon as it can, and
    /// still answers it; after [`IoFailure::Cancelled`] the request may have had any part of its effect.
    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        outlet.cancel_parts(tag);
    }

    /// An operation of [`Outlet::ring`] is over. `result` is the kernel's: a count of bytes or zero, or a negative
    /// error number.
    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        let _unused = outlet;
        debug_assert!(false, "{result} for {part:?}, {operation:?}");
    }

    /// Work of [`Outlet::help`] is over.
    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        let _unused = outlet;
        debug_assert!(false, "{result:?} for {part:?}");
    }

    /// An operation of [`Outlet::on_socket`] is over.
    fn handle_socket(
        &mut self,
        socket: SocketTag,
        number: u64,
        result: SocketResult,
        outlet: &mut Outlet,
    ) {
        let _unused = outlet;
        debug_assert!(false, "{result:?} for {number} on {socket:?}");
    }

    /// The [`Waker`] was used. May be called more often than that.
    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let _unused = outlet;
    }

    /// The time of a timer of [`Outlet::set_timer`] has come.
    fn handle_timer(&mut self, number: u64, outlet: &mut Outlet) {
        let _unused = outlet;
        debug_assert!(false, "timer {number}");
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

    /// Looks how large the store is now, as [`SharedStore::probe_size`] does, without waiting. A store that needs an
    /// operation for that orders one, and calls [`Outlet::look_at_size`] when it is over.
    fn probe(&mut self, outlet: &mut Outlet) {
        let _unused = outlet;
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
