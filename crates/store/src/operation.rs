//! What is done for a store outside: on the ring, on the lane of a file, on a helper thread.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use memory::{Buffer, Payload};

use crate::StoreFile;
#[cfg(target_os = "linux")]
use crate::place::{Class, Route, UnderWay};
use crate::request::{Extent, IoFailure};

/// A descriptor of the system that this value owns.
#[cfg(target_os = "linux")]
pub type Descriptor = std::os::fd::OwnedFd;
/// A descriptor of the system. There is no such value here.
#[cfg(not(target_os = "linux"))]
pub type Descriptor = StoreFile;

/// The file of a store, kept open by every operation in flight on it. One descriptor serves all
/// cores, as descriptors are few; each core counts its own operations, so that cores do not meet
/// at the counter.
pub type FileHandle = Rc<StoreFile>;

/// What the reactor does for a store, on the core's ring or on the lane of the file
/// (`RingOperation::route`), after [`Outlet::ring`](crate::Outlet::ring). It gives the operation back to
/// [`handle_ring_result`](crate::Backstore::handle_ring_result), with everything it owns, when the kernel is done with
/// it.
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

#[cfg(target_os = "linux")]
impl RingOperation {
    /// Its way to the kernel, now.
    pub fn route(&self) -> Route {
        self.file().place().route(self.class())
    }

    const fn class(&self) -> Class {
        match self {
            Self::Read { .. } => Class::Read,
            Self::Write { durable: false, .. } => Class::Write,
            Self::Write { durable: true, .. } | Self::Sync { .. } | Self::Allocate { .. } => {
                Class::Flush
            }
            Self::Extents { .. } | Self::Size { .. } => Class::Query,
        }
    }

    /// It begins, on the ring or on the lane: reads and what may fill the queue of the device count
    /// for it.
    pub fn begin(&self) -> Option<UnderWay> {
        let place = self.file().place();
        match self {
            Self::Read { buffer, .. } => Some(place.begin_read(buffer.len())),
            Self::Sync { .. } | Self::Write { durable: true, .. } => Some(place.begin_flush()),
            Self::Write { durable: false, .. }
            | Self::Allocate { .. }
            | Self::Extents { .. }
            | Self::Size { .. } => None,
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

/// Work that the ring cannot do or that may block: runs on a helper thread after [`help`](crate::Outlet::help) and
/// comes back to [`handle_helper_result`](crate::Backstore::handle_helper_result).
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
    /// A connected socket, for [`Outlet::open_socket`](crate::Outlet::open_socket).
    Socket(Descriptor),
}

impl fmt::Debug for HelperOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HelperOperation")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
