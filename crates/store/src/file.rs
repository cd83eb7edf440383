//! Regular files and block devices.
//!
//! All cores share one open description, so that the lock taken on it is the lock of the I/O, and
//! each core has a descriptor of its own. Data goes through the page cache or past it
//! ([`CacheMode`]); the ring does the transfers.
//!
//! # Durable writes
//!
//! Where the file system is known to honour `RWF_DSYNC`, a write that promises stable storage is
//! one operation. Elsewhere the kernel may take the flag and ignore it (FUSE with direct I/O does),
//! so that write is followed by a sync before it is answered ([`Plan::Sync`]).
//!
//! # Failed flushes
//!
//! The kernel reports a failed write-back once, to the next sync, and takes the lost pages for
//! clean afterwards. So the first failure sets a latch that all cores share ([`FlushLatch`]), and
//! from then on every flush and every write that promises stable storage fails with
//! [`IoFailure::FlushLatched`] until the store is opened again: after somebody has looked at it.
//!
//! A write with `RWF_DSYNC` has two halves, and its error does not say which one failed. The latch
//! is set when the error is seen, before anything else is tried, and lifted only by
//! [`is_failed_write`]. Whatever else becomes of the request, the latch stays.
//!
//! The kernel reports to one open description once. Of two cores that flush at the same moment,
//! the one whose completion is handled first may miss the failure that the other one got; every
//! later one sees the latch.

use std::collections::{HashMap, HashSet};
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use marks::sometimes;
use memory::{Buffer, CoreMapping, MappedRange, Payload};
use rustix::fs::{FallocateFlags, FileType, Stat, fallocate, fstat, ftruncate, stat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::geometry::honours_dsync;
use crate::latch::FlushLatch;
use crate::next::Next;
use crate::request::refuse;
use crate::size::{PAST_THE_END, find_size, size_of_disk};
use crate::zeros::{self, ZEROS_BYTES};
use crate::{
    AllocateMode, Backstore, Bottom, CacheMode, Capabilities, DiskFile, Durability, Extent,
    FileHandle, IoAnswer, IoFailure, IoRequest, IoTag, Outlet, PartTag, Place, RingOperation,
    SharedStore, StoreFile, Submitted,
};

/// A file or block device, for all cores.
#[derive(Debug)]
pub(crate) struct FileDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: Arc<DiskFile>,
    capabilities: Capabilities,
    cache: CacheMode,
    is_block_device: bool,
    honours_dsync: bool,
    place: Arc<Place>,
    /// As last probed, in bytes, cut to whole blocks.
    size_bytes: AtomicU64,
    /// The shortest that a file was seen that was longer: what was behind it is lost, however long it is now.
    short_bytes: AtomicU64,
    latch: FlushLatch,
    /// The file of the loop device that this is on, which is locked.
    _backing: Option<DiskFile>,
}

impl Shared {
    fn size(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// The size that was found, in whole blocks. It was `known` before the search began: growth may have come since.
    fn set_size(&self, known: u64, bytes: u64) {
        if bytes < known {
            self.note_short(bytes);
        }
        let bytes = bytes.min(self.short_bytes.load(Ordering::Acquire));
        let size = bytes - bytes % u64::from(self.capabilities.block_bytes);
        self.size_bytes.store(size, Ordering::Release);
    }

    /// A file ends here or before, and was longer. It stays as short until it is opened again: what has become longer
    /// since has lost data, which reads as zeros.
    fn note_short(&self, bytes: u64) {
        if !self.is_block_device {
            self.short_bytes.fetch_min(bytes, Ordering::AcqRel);
        }
    }

    fn is_short(&self) -> bool {
        self.short_bytes.load(Ordering::Acquire) != u64::MAX
    }
}

impl FileDisk {
    pub(crate) fn new(
        file: OwnedFd,
        capabilities: Capabilities,
        cache: CacheMode,
        is_block_device: bool,
        backing: Option<OwnedFd>,
    ) -> Self {
        Self(Arc::new(Shared {
            honours_dsync: is_block_device || honours_dsync(&file),
            place: Arc::new(Place::of(&file, is_block_device, cache)),
            file: Arc::new(file.into()),
            size_bytes: AtomicU64::new(capabilities.size_bytes),
            short_bytes: AtomicU64::new(u64::MAX),
            capabilities,
            cache,
            is_block_device,
            latch: FlushLatch::default(),
            _backing: backing.map(DiskFile::from),
        }))
    }
}

impl SharedStore for FileDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let mut store = FileStore {
            file: Rc::new(StoreFile::new(
                Arc::clone(&self.0.file),
                Arc::clone(&self.0.place),
            )),
            zeros: zeros::for_this_core()?,
            capabilities: self.0.capabilities.clone(),
            plans: HashMap::new(),
            cancelled: HashSet::new(),
            probing: None,
            cached: CachedReads::new(self.0.cache != CacheMode::Direct),
            honours_dsync: self.0.honours_dsync,
            shared: Arc::clone(&self.0),
        };
        // It may have changed since the store was opened.
        store.refresh_size();
        Ok(Box::new(store))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            size_bytes: self.0.size(),
            ..self.0.capabilities.clone()
        }
    }

    fn probe_size(&self) -> io::Result<()> {
        let known = self.0.size();
        let found = size_of_disk(&*self.0.file, self.0.is_block_device)?;
        self.0.set_size(known, found);
        Ok(())
    }

    fn grow(&self, size_bytes: u64) -> io::Result<()> {
        if self.0.is_block_device || self.0.capabilities.read_only {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.probe_size()?;
        if self.0.is_short() {
            return Err(io::Error::other(
                "the file was cut while it was served, and what was behind its end is lost: put the data back from a \
                 backup, then remove the lun and add it again",
            ));
        }
        let now = size_of_disk(&*self.0.file, false)?;
        if size_bytes > now {
            if !self.0.capabilities.thin {
                // All the space before the size: a file that found none is as it was.
                fallocate(
                    &self.0.file,
                    FallocateFlags::KEEP_SIZE,
                    now,
                    size_bytes - now,
                )?;
            }
            ftruncate(&self.0.file, size_bytes)?;
        }
        self.probe_size()
    }

    fn used_bytes(&self) -> io::Result<Option<u64>> {
        // A device takes what it has.
        let is_file = !self.0.is_block_device;
        is_file.then(|| taken_bytes(&*self.0.file)).transpose()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.file.as_fd())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let (open, there) = (fstat(&*self.0.file)?, stat(path)?);
        // A device may have any number of nodes.
        let is_device = |found: &Stat| FileType::from_raw_mode(found.st_mode).is_block_device();
        Ok(if self.0.is_block_device {
            is_device(&there) && open.st_rdev == there.st_rdev
        } else {
            (open.st_dev, open.st_ino) == (there.st_dev, there.st_ino)
        })
    }

    fn is_flush_latched(&self) -> bool {
        self.0.latch.is_set()
    }
}

/// What a file takes of its file system.
pub(crate) fn taken_bytes(file: impl AsFd) -> io::Result<u64> {
    // In units of 512 bytes, whatever the file system has.
    let blocks = u64::try_from(fstat(file)?.st_blocks).unwrap_or_default();
    Ok(blocks.saturating_mul(512))
}

/// One core's view.
#[derive(Debug)]
struct FileStore {
    shared: Arc<Shared>,
    file: FileHandle,
    zeros: Rc<CoreMapping>,
    capabilities: Capabilities,
    /// What is left to do for the few requests that take more than one kind of step.
    plans: HashMap<IoTag, Plan>,
    /// Requests that are not carried any further.
    cancelled: HashSet<IoTag>,
    cached: CachedReads,
    honours_dsync: bool,
    /// A question for the size is under way, and what was known when it began.
    probing: Option<u64>,
}

/// Reads of this size at most are tried at once, in bytes: what a core copies in a few
/// microseconds.
const CACHED_BYTES_MAX: usize = 64 * 1024;

/// How many reads in a row are not tried, at most, after some that the cache did not have.
const CACHED_SKIP_MAX: u32 = 64;

/// How many extents one question brings, at most: what an initiator has room for may be more, and it asks again.
const EXTENTS_MAX: usize = 1024;

/// Whether a read is tried from the page cache at once (`RWF_NOWAIT`), which spares it the ring and
/// the wait for its turn. Where the cache seldom has the data it is tried seldom.
#[derive(Debug)]
struct CachedReads {
    is_possible: bool,
    misses: u32,
    skip: u32,
}

impl CachedReads {
    const fn new(is_possible: bool) -> Self {
        Self {
            is_possible,
            misses: 0,
            skip: 0,
        }
    }

    /// Fills the buffer from the cache; false leaves it unspecified and changes nothing else.
    fn read(&mut self, file: &StoreFile, offset: u64, buffer: &mut Buffer) -> bool {
        if !self.is_possible || buffer.len() > CACHED_BYTES_MAX || !file.place().is_tried() {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let len = buffer.len();
        match file.is_cached(offset, len) {
            Some(true) => {}
            Some(false) => {
                self.note_miss();
                return false;
            }
            None if file.place().may_try_blindly() => {}
            None => return false,
        }
        let mut parts = [IoSliceMut::new(buffer)];
        match preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Ok(count) if count == len => {
                self.misses = 0;
                return true;
            }
            Err(Errno::OPNOTSUPP) => self.is_possible = false,
            // Whatever is wrong, the ring will meet it again and report it.
            Ok(_) | Err(_) => self.note_miss(),
        }
        false
    }

    fn note_miss(&mut self) {
        self.misses = self.misses.saturating_add(1).min(CACHED_SKIP_MAX.ilog2());
        self.skip = (1 << self.misses) - 1;
    }
}

#[derive(Clone, Debug)]
enum Plan {
    /// A read failed; smaller ones look for the first block that does.
    Search {
        /// How long the read was.
        len: usize,
        /// The first bad block ends at or before this byte of the buffer.
        bad_end: usize,
    },
    /// A durable write failed; it goes once more without being durable, so that a failing write
    /// is not taken for a failing flush. The latch is set.
    Recheck {
        /// How it failed.
        errno: Errno,
        /// How much of it had been written before, in bytes.
        done: usize,
    },
    /// A durable write is under way where `RWF_DSYNC` may be ignored; a sync follows.
    Sync,
    /// Zeros are put into the rest of a range.
    Zero {
        /// What is not zero yet.
        rest: Range<u64>,
        /// The zeros must be durable.
        sync: bool,
    },
}

/// The number of the operation that looks for the size.
const PROBE: u64 = 1;

impl Backstore for FileStore {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        self.begin(tag, request).begin(tag, outlet)
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        self.cancelled.insert(tag);
        outlet.cancel_parts(tag);
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        let Some(tag) = part.request else {
            self.handle_probed(&operation, result);
            outlet.look_at_size();
            return;
        };
        let next = self.advance(tag, operation, result);
        let is_cancelled = !self.cancelled.is_empty() && self.cancelled.remove(&tag);
        match next {
            Next::Ring(_) | Next::Helper(_) if is_cancelled => {
                // The latch stays as it is: if a flush may have failed, that will never be known better.
                self.fail(tag, IoFailure::Cancelled).go_on(tag, outlet);
            }
            next @ (Next::Done(_) | Next::Ring(_) | Next::Helper(_)) => next.go_on(tag, outlet),
        }
    }

    #[cfg(test)]
    fn use_ring_only(&mut self, honours_dsync: bool) {
        self.cached.is_possible = false;
        self.honours_dsync = honours_dsync;
    }

    fn probe(&mut self, outlet: &mut Outlet) {
        let is_block_device = self.shared.is_block_device;
        if !self.file.place().may_wait() && !is_block_device {
            let known = self.shared.size();
            if let Ok(size) = find_size(self.file.as_fd(), is_block_device) {
                self.shared.set_size(known, size);
            }
            outlet.look_at_size();
        } else if self.probing.is_none() {
            self.probing = Some(self.shared.size());
            let operation = RingOperation::Size {
                file: Rc::clone(&self.file),
                is_block_device,
                bytes: 0,
            };
            outlet.ring(PartTag::own(PROBE), operation);
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let size = self.shared.size();
        let changed = size != self.capabilities.size_bytes;
        self.capabilities.size_bytes = size;
        changed.then_some(size)
    }
}

/// Starting requests.
impl FileStore {
    #[inline]
    fn begin(&mut self, tag: IoTag, request: IoRequest) -> Next {
        match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => self.read(offset, len, buffer),
            IoRequest::Write {
                offset,
                data,
                durable,
            } => self.write(tag, offset, data, durable),
            IoRequest::Flush => self.flush(),
            IoRequest::Unmap { range } => {
                let mode = if self.capabilities.thin {
                    AllocateMode::PunchHole
                } else {
                    AllocateMode::ZeroRange
                };
                self.zero(tag, range, mode, false)
            }
            IoRequest::WriteZeros { range, durable } => {
                self.zero(tag, range, AllocateMode::ZeroRange, durable)
            }
            // Only a store that offers it is asked for it.
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                Next::Done(Err(hardware(Errno::OPNOTSUPP)))
            }
            IoRequest::Extents { range, count_max } => self.extents(range, count_max),
        }
    }

    fn read(&mut self, offset: u64, len: usize, buffer: Option<Buffer>) -> Next {
        match buffer {
            _ if len == 0 => Next::Done(Ok(IoAnswer::Data(Payload::Empty))),
            Some(mut buffer) if buffer.len() == len => {
                if self.cached.read(&self.file, offset, &mut buffer) {
                    return Next::Done(Ok(IoAnswer::Data(Payload::Pool(buffer))));
                }
                self.read_from(offset, buffer, 0)
            }
            Some(_) | None => Next::Done(Err(hardware(Errno::INVAL))),
        }
    }

    fn write(&mut self, tag: IoTag, offset: u64, data: Payload, durable: bool) -> Next {
        if durable && self.is_latched() {
            return Next::Done(Err(IoFailure::FlushLatched));
        }
        if data.is_empty() {
            return Next::Done(Ok(IoAnswer::Done));
        }
        if durable && !self.honours_dsync {
            self.plans.insert(tag, Plan::Sync);
            return self.write_from(offset, data, 0, false);
        }
        self.write_from(offset, data, 0, durable)
    }

    fn flush(&self) -> Next {
        if self.is_latched() {
            return Next::Done(Err(IoFailure::FlushLatched));
        }
        if self.capabilities.read_only {
            return Next::Done(Ok(IoAnswer::Done));
        }
        self.sync()
    }

    /// The kernel zeros partial blocks at both ends of a punched range by itself.
    fn zero(&mut self, tag: IoTag, range: Range<u64>, mode: AllocateMode, sync: bool) -> Next {
        if sync && self.is_latched() {
            return Next::Done(Err(IoFailure::FlushLatched));
        }
        if range.is_empty() {
            return Next::Done(Ok(IoAnswer::Done));
        }
        let rest = range.clone();
        self.plans.insert(tag, Plan::Zero { rest, sync });
        Next::Ring(RingOperation::Allocate {
            file: Rc::clone(&self.file),
            mode,
            range,
        })
    }

    fn extents(&self, range: Range<u64>, count_max: usize) -> Next {
        Next::Ring(RingOperation::Extents {
            file: Rc::clone(&self.file),
            range,
            block_bytes: self.capabilities.block_bytes,
            found: vec![Extent::default(); count_max.min(EXTENTS_MAX)],
        })
    }
}

/// Going on with them.
impl FileStore {
    fn advance(&mut self, tag: IoTag, operation: RingOperation, result: i32) -> Next {
        let result =
            usize::try_from(result).map_err(|_| Errno::from_raw_os_error(result.wrapping_neg()));
        if result == Err(Errno::CANCELED) {
            return self.fail(tag, IoFailure::Cancelled);
        }
        match operation {
            RingOperation::Read {
                offset,
                buffer,
                done,
                ..
            } => self.handle_read(tag, offset, buffer, done, result),
            RingOperation::Write {
                offset,
                data,
                done,
                durable,
                ..
            } => match result {
                Ok(count) => self.handle_written(tag, offset, data, done, durable, count),
                Err(errno) => self.handle_write_error(tag, offset, data, done, durable, errno),
            },
            RingOperation::Sync { .. } => self.handle_synced(tag, result),
            RingOperation::Allocate { range, .. } => self.handle_allocated(tag, range, result),
            RingOperation::Extents { mut found, .. } => {
                Next::Done(result.map_err(hardware).map(|count| {
                    found.truncate(count);
                    IoAnswer::Extents(found)
                }))
            }
            RingOperation::Size { .. } => Next::Done(Ok(IoAnswer::Done)),
        }
    }

    fn handle_probed(&mut self, operation: &RingOperation, result: i32) {
        let known = self.probing.take();
        if let (RingOperation::Size { bytes, .. }, Some(known)) = (operation, known)
            && result >= 0
        {
            self.shared.set_size(known, *bytes);
        }
    }

    fn handle_read(
        &mut self,
        tag: IoTag,
        offset: u64,
        mut buffer: Buffer,
        done: usize,
        result: Result<usize, Errno>,
    ) -> Next {
        match result {
            Ok(count) => {
                let done = done + count;
                if done >= buffer.len() {
                    self.handle_read_whole(tag, offset, buffer)
                } else if count == 0 || self.is_cut_short(done) {
                    sometimes!("a file is shorter than it was");
                    self.shared.note_short(offset + done as u64);
                    let offset = offset + self.whole_blocks(done) as u64;
                    self.fail(tag, IoFailure::Truncated { offset })
                } else {
                    self.read_from(offset, buffer, done)
                }
            }
            Err(errno) if is_medium_error(errno) => {
                sometimes!("a medium error is searched for");
                let tried = buffer.len() - done;
                if tried <= self.block() {
                    let offset = offset + done as u64;
                    return self.fail(tag, IoFailure::Medium { offset });
                }
                let len = match self.plans.get(&tag) {
                    Some(Plan::Search { len, .. }) => *len,
                    Some(Plan::Recheck { .. } | Plan::Sync | Plan::Zero { .. }) | None => {
                        buffer.len()
                    }
                };
                let bad_end = buffer.len();
                self.plans.insert(tag, Plan::Search { len, bad_end });
                buffer.set_len(done + self.half(tried));
                self.read_from(offset, buffer, done)
            }
            Err(errno) => self.fail(tag, hardware(errno)),
        }
    }

    /// All that was asked for came; in a search that is only a part.
    fn handle_read_whole(&mut self, tag: IoTag, offset: u64, mut buffer: Buffer) -> Next {
        let plan = if self.plans.is_empty() {
            None
        } else {
            self.plans.get(&tag)
        };
        let done = buffer.len();
        match plan {
            Some(&Plan::Search { len, bad_end }) if done < len => {
                let next = if done < bad_end {
                    done + self.half(bad_end - done)
                } else {
                    // What failed before went well in pieces; the rest goes as one again.
                    sometimes!("what could not be read goes well in pieces");
                    len
                };
                buffer.set_len(next);
                self.read_from(offset, buffer, done)
            }
            Some(Plan::Search { .. } | Plan::Recheck { .. } | Plan::Sync | Plan::Zero { .. })
            | None => self.finish(tag, IoAnswer::Data(Payload::Pool(buffer))),
        }
    }

    fn handle_written(
        &mut self,
        tag: IoTag,
        offset: u64,
        data: Payload,
        done: usize,
        durable: bool,
        count: usize,
    ) -> Next {
        let written = done + count;
        if written < data.len() {
            // Direct I/O must go on at a whole block.
            sometimes!("a write comes in part");
            let whole = self.whole_blocks(written);
            return if whole > done {
                self.write_from(offset, data, whole, durable)
            } else {
                self.fail(tag, hardware(Errno::IO))
            };
        }
        let plan = if self.plans.is_empty() {
            None
        } else {
            self.plans.remove(&tag)
        };
        match plan {
            Some(Plan::Zero { rest, sync }) => {
                let rest = offset + data.len() as u64..rest.end;
                self.write_zeros(tag, rest, sync)
            }
            Some(Plan::Sync) => self.sync(),
            // The write itself goes well: what failed, and may have lost more, was the flush.
            Some(Plan::Recheck { .. }) => Next::Done(Err(IoFailure::FlushLatched)),
            // Another write may have been given the failure of what this one wrote.
            Some(Plan::Search { .. }) | None if durable && self.is_latched() => {
                Next::Done(Err(IoFailure::FlushLatched))
            }
            Some(Plan::Search { .. }) | None => Next::Done(Ok(IoAnswer::Done)),
        }
    }

    fn handle_write_error(
        &mut self,
        tag: IoTag,
        offset: u64,
        data: Payload,
        done: usize,
        durable: bool,
        errno: Errno,
    ) -> Next {
        if errno == PAST_THE_END {
            let end = offset + data.len() as u64;
            return self.fail_past_the_end(tag, offset + done as u64..end);
        }
        if durable {
            sometimes!("a durable write fails, and its data is looked at");
            self.shared.latch.suspect();
            self.plans.insert(tag, Plan::Recheck { errno, done });
            return self.write_from(offset, data, done, false);
        }
        if let Some(&Plan::Recheck {
            errno: first,
            done: before,
        }) = self.plans.get(&tag)
            && done == before
            && is_failed_write(self.shared.cache, first, errno)
        {
            sometimes!("a failed write was no failed flush");
            self.shared.latch.lift();
        }
        self.fail(tag, failure(errno, offset + done as u64))
    }

    fn handle_synced(&mut self, tag: IoTag, result: Result<usize, Errno>) -> Next {
        match result {
            // Another request may have been given the failure of what this sync was to cover.
            Ok(_) if self.is_latched() => self.fail(tag, IoFailure::FlushLatched),
            Ok(_) => self.finish(tag, IoAnswer::Done),
            Err(errno) => {
                sometimes!("a flush of a file fails");
                self.shared.latch.set();
                self.fail(tag, hardware(errno))
            }
        }
    }

    fn handle_allocated(
        &mut self,
        tag: IoTag,
        range: Range<u64>,
        result: Result<usize, Errno>,
    ) -> Next {
        let sync = matches!(self.plans.get(&tag), Some(Plan::Zero { sync: true, .. }));
        match result {
            Ok(_) => self.write_zeros(tag, range.end..range.end, sync),
            // This file system or device cannot do it in one go.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                sometimes!("zeros are written because they cannot be allocated");
                self.write_zeros(tag, range, sync)
            }
            Err(PAST_THE_END) => self.fail_past_the_end(tag, range),
            Err(errno) => self.fail(tag, failure(errno, range.start)),
        }
    }

    /// Puts zeros into what is left of a range, one piece after the other.
    fn write_zeros(&mut self, tag: IoTag, rest: Range<u64>, sync: bool) -> Next {
        if rest.is_empty() && sync {
            return self.sync();
        }
        if rest.is_empty() {
            return self.finish(tag, IoAnswer::Done);
        }
        let len =
            usize::try_from(rest.end - rest.start).map_or(ZEROS_BYTES, |len| len.min(ZEROS_BYTES));
        let zeros = Payload::Mapped(MappedRange::new(&self.zeros, 0, len));
        let offset = rest.start;
        self.plans.insert(tag, Plan::Zero { rest, sync });
        self.write_from(offset, zeros, 0, false)
    }
}

/// Steps and facts.
impl FileStore {
    fn read_from(&self, offset: u64, buffer: Buffer, done: usize) -> Next {
        Next::Ring(RingOperation::Read {
            file: Rc::clone(&self.file),
            offset,
            buffer,
            done,
        })
    }

    fn write_from(&self, offset: u64, data: Payload, done: usize, durable: bool) -> Next {
        Next::Ring(RingOperation::Write {
            file: Rc::clone(&self.file),
            offset,
            data,
            done,
            durable,
        })
    }

    fn sync(&self) -> Next {
        Next::Ring(RingOperation::Sync {
            file: Rc::clone(&self.file),
        })
    }

    fn finish(&mut self, tag: IoTag, answer: IoAnswer) -> Next {
        self.plans.remove(&tag);
        Next::Done(Ok(answer))
    }

    fn fail(&mut self, tag: IoTag, failure: IoFailure) -> Next {
        self.plans.remove(&tag);
        Next::Done(Err(failure))
    }

    /// The file ends before the end of this range, of which nothing was written.
    fn fail_past_the_end(&mut self, tag: IoTag, range: Range<u64>) -> Next {
        self.shared.note_short(range.end.saturating_sub(1));
        let offset = range.start;
        self.fail(tag, IoFailure::Truncated { offset })
    }

    fn is_latched(&self) -> bool {
        self.shared.latch.is_set()
    }

    const fn block(&self) -> usize {
        self.capabilities.block_bytes as usize
    }

    /// Half of `len`, in whole blocks and at least one.
    fn half(&self, len: usize) -> usize {
        let block = self.block();
        (len / 2).next_multiple_of(block).min(len)
    }

    /// Direct I/O ends inside a block only at the end of the file.
    fn is_cut_short(&self, done: usize) -> bool {
        self.shared.cache == CacheMode::Direct && !done.is_multiple_of(self.block())
    }

    /// Where to go on after `done` bytes, or where the missing bytes begin.
    fn whole_blocks(&self, done: usize) -> usize {
        if self.is_cut_short(done) {
            done - done % self.block()
        } else {
            done
        }
    }
}

/// What the kernel's block layer and file systems report when the medium does not give or take
/// certain bytes (unreadable, wrong checksum), as opposed to a device that fails as a whole.
fn is_medium_error(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::BADMSG
    )
}

fn is_out_of_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

/// Whether a durable write that failed with `first`, and without being durable failed with `second`
/// at the same byte, got no farther than its write half both times, so that no flush failed.
///
/// A flush half that fails leaves the data in the page cache, with its space, so that the plain
/// write goes well. A file system that was shut down in between answers something else, or goes on
/// to fail every flush by itself. Past the page cache a device that is gone for a moment fails a
/// flush and then the write in the same way, so only a lack of space is a proof there. In doubt a
/// flush has failed.
fn is_failed_write(cache: CacheMode, first: Errno, second: Errno) -> bool {
    let is_proof = match cache {
        CacheMode::WriteBack | CacheMode::WriteThrough => {
            is_out_of_space(second) || is_medium_error(second)
        }
        CacheMode::Direct => is_out_of_space(second),
    };
    first == second && is_proof
}

fn hardware(errno: Errno) -> IoFailure {
    IoFailure::Hardware {
        errno: errno.raw_os_error(),
    }
}

/// The failure of a write at this byte.
fn failure(errno: Errno, offset: u64) -> IoFailure {
    match errno {
        errno if is_out_of_space(errno) => IoFailure::NoSpace { offset },
        errno if is_medium_error(errno) => IoFailure::Medium { offset },
        errno => hardware(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_each_miss_in_a_row_the_cache_is_left_alone_for_longer() {
        let mut cached = CachedReads::new(true);
        let skips = std::iter::repeat_with(|| {
            cached.note_miss();
            cached.skip
        });
        let skips: Vec<_> = skips.take(8).collect();
        assert_eq!(skips, [1, 3, 7, 15, 31, 63, 63, 63]);
    }
}
