//! A disk in memory, shared by all cores, that takes only the memory that was written.
//!
//! The medium is one mapping of its full size, with huge pages where it is written in full. Reads
//! are answered in place. A bitmap, one bit for
//! each page of 4 KiB, says which pages were written, so that reading a page that never was does
//! not make the kernel allocate it: such reads are answered from a common field of zeros.
//!
//! # A write and an unmap of one page at the same time
//!
//! They may run on two cores. Either order is a legal outcome, and so is a mixture of the data
//! with zeros; what must never be is a page that holds data while its bit says that it does not,
//! because those data would show up again with the next write to that page.
//!
//! * A write sets the bits, copies, and sets the bits again that were cleared meanwhile.
//! * An unmap clears the bits first and lets the kernel take the pages then. When the kernel
//!   refuses, the bits are set again.
//!
//! So when a write ends with the bit clear, the unmap cleared it after the write's last look and
//! takes the page after that: the page ends up empty. A bit that is set for an empty page is
//! harmless, it reads as zeros all the same.

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memory::{CoreMapping, HUGE_PAGE_BYTES, MappedRange, Mapping, Payload};
use rustix::io::Errno;

use crate::file::taken_bytes;
use crate::next::Next;
use crate::request::admit;
use crate::zeros::{self, ZEROS_BYTES};
use crate::{
    AllocateMode, Backstore, Bottom, Capabilities, DiskFile, Durability, Extent, FileHandle,
    HelperAnswer, HelperOperation, HelperResult, IoAnswer, IoFailure, IoRequest, IoResult, IoTag,
    Outlet, PartTag, Place, RingOperation, SharedStore, StoreFile, Submitted,
};

const PAGE_BYTES: usize = 4096;
/// Data that has no address of its own is copied in steps of this size.
const COPY_BYTES: usize = 4096;

/// A memory disk, for all cores.
#[derive(Debug)]
pub struct MemoryDisk {
    shared: Arc<Shared>,
    capabilities: Capabilities,
}

#[derive(Debug)]
struct Shared {
    medium: Arc<Mapping>,
    /// That of `medium`.
    file: Arc<DiskFile>,
    written: Bitmap,
    /// Cleared when the kernel turns out not to have them for this.
    has_huge_pages: AtomicBool,
}

impl MemoryDisk {
    /// A disk of `size_bytes`, which must be a multiple of `block_bytes` and not zero. It takes
    /// address space at once, memory only as it is written.
    pub fn new(size_bytes: u64, block_bytes: u32, read_only: bool, thin: bool) -> io::Result<Self> {
        let size = usize::try_from(size_bytes)
            .ok()
            .and_then(|size| size.checked_next_multiple_of(PAGE_BYTES))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let medium = Arc::new(Mapping::sparse(size)?);
        let file = medium.file().ok_or(io::ErrorKind::Unsupported)?;
        let file = Arc::new(DiskFile::memory(file.try_clone_to_owned()?));
        let written = Bitmap::new(size / PAGE_BYTES);
        Ok(Self {
            shared: Arc::new(Shared {
                medium,
                file,
                written,
                has_huge_pages: AtomicBool::new(true),
            }),
            capabilities: Capabilities {
                read_only,
                thin,
                unmap_granularity_bytes: 4096.max(block_bytes),
                reads_in_place: true,
                // Memory is written in pieces of any size.
                ..Capabilities::plain(size_bytes, block_bytes)
            },
        })
    }
}

impl SharedStore for MemoryDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(MemoryHandle::new(self)?))
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn used_bytes(&self) -> io::Result<Option<u64>> {
        taken_bytes(&*self.shared.file).map(Some)
    }
}

#[derive(Debug)]
struct MemoryHandle {
    shared: Arc<Shared>,
    medium: Rc<CoreMapping>,
    zeros: Rc<CoreMapping>,
    file: FileHandle,
    capabilities: Capabilities,
}

impl Backstore for MemoryHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    #[inline]
    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let range = match admit(&self.capabilities, &request) {
            Ok(range) => range,
            Err(failure) => return Submitted::Done(Err(failure)),
        };
        let next = match request {
            // By its field: to drop the whole request would be a call.
            IoRequest::Read { buffer, .. } => {
                drop(buffer);
                return Submitted::Done(self.read(range));
            }
            IoRequest::Write { data, .. } => self.write(range, &data),
            IoRequest::Flush => return Submitted::Done(Ok(IoAnswer::Done)),
            IoRequest::Unmap { .. } => self.zero(range, !self.capabilities.thin),
            IoRequest::WriteZeros { .. } => self.zero(range, true),
            // Only a store that offers it is asked for it.
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                let errno = Errno::OPNOTSUPP.raw_os_error();
                return Submitted::Done(Err(IoFailure::Hardware { errno }));
            }
            IoRequest::Extents { count_max, .. } => {
                return Submitted::Done(Ok(IoAnswer::Extents(self.extents(range, count_max))));
            }
        };
        next.begin(tag, outlet)
    }

    fn handle_ring_result(
        &mut self,
        part: PartTag,
        operation: RingOperation,
        result: i32,
        outlet: &mut Outlet,
    ) {
        let (Some(tag), RingOperation::Allocate { range, .. }) = (part.request, &operation) else {
            unreachable!("a memory disk punches holes only, and got back {operation:?}");
        };
        if result >= 0 {
            outlet.answer(tag, Ok(IoAnswer::Done));
            return;
        }
        // The data are still there, so the bits must say so.
        self.shared.written.set(pages(range));
        let errno = result.wrapping_neg();
        let failure = if errno == Errno::CANCELED.raw_os_error() {
            IoFailure::Cancelled
        } else {
            IoFailure::Hardware { errno }
        };
        outlet.answer(tag, Err(failure));
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        let Some(tag) = part.request else {
            unreachable!("a memory disk collapses pages for writes only: {result:?}");
        };
        let result = match result {
            Err(IoFailure::Cancelled) => Err(IoFailure::Cancelled),
            // The data are there, huge pages or not.
            Ok(_) | Err(_) => Ok(IoAnswer::Done),
        };
        outlet.answer(tag, result);
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

impl MemoryHandle {
    fn new(disk: &MemoryDisk) -> io::Result<Self> {
        let place = Place::memory();
        Ok(Self {
            shared: Arc::clone(&disk.shared),
            medium: CoreMapping::new(&disk.shared.medium),
            zeros: zeros::for_this_core()?,
            file: Rc::new(StoreFile::new(Arc::clone(&disk.shared.file), place)),
            capabilities: disk.capabilities.clone(),
        })
    }

    /// In place. A read that touches both kinds of pages makes the kernel allocate its unwritten
    /// ones, which is less than copying it all would cost.
    fn read(&self, range: Range<u64>) -> IoResult {
        if range.is_empty() {
            return Ok(IoAnswer::Data(Payload::Empty));
        }
        let len = to_usize(range.end - range.start);
        let untouched = !self.shared.written.any(pages(&range));
        let data = if untouched && len <= ZEROS_BYTES {
            MappedRange::new(&self.zeros, 0, len)
        } else {
            MappedRange::new(&self.medium, to_usize(range.start), len)
        };
        Ok(IoAnswer::Data(Payload::Mapped(data)))
    }

    #[inline]
    fn write(&self, range: Range<u64>, data: &Payload) -> Next {
        if range.is_empty() {
            return Next::Done(Ok(IoAnswer::Done));
        }
        let pages = pages(&range);
        let is_new = self.shared.written.set(pages.clone());
        self.copy_in(to_usize(range.start), data);
        // Once more: an unmap may have cleared them. See the head of this file.
        self.shared.written.set(pages.clone());
        match is_new.then(|| self.full_huge_pages(&pages)).flatten() {
            Some(full) => self.collapse(full),
            None => Next::Done(Ok(IoAnswer::Done)),
        }
    }

    /// The huge pages that `pages` touch and that are written in full, from the first to the last
    /// of them in a row; in bytes of the medium.
    fn full_huge_pages(&self, pages: &Range<usize>) -> Option<Range<usize>> {
        const PAGES: usize = HUGE_PAGE_BYTES / PAGE_BYTES;
        let is_full = |huge: &usize| {
            let all = huge * PAGES..(huge + 1) * PAGES;
            self.shared.written.run_end(all.clone(), true) == all.end
        };
        let last = self.medium.len() / HUGE_PAGE_BYTES;
        let touched = pages.start / PAGES..pages.end.div_ceil(PAGES).min(last);
        let mut full = touched
            .skip_while(|huge| !is_full(huge))
            .take_while(is_full);
        let first = full.next()?;
        let end = full.last().unwrap_or(first) + 1;
        Some(first * HUGE_PAGE_BYTES..end * HUGE_PAGE_BYTES)
    }

    /// Huge pages take no more memory once every ordinary page of theirs is there. The write that
    /// fills one is answered when it is done.
    fn collapse(&self, range: Range<usize>) -> Next {
        if !self.shared.has_huge_pages.load(Ordering::Relaxed) {
            return Next::Done(Ok(IoAnswer::Done));
        }
        let shared = Arc::clone(&self.shared);
        Next::Helper(HelperOperation {
            name: "huge pages for a memory disk",
            work: Box::new(move || {
                let result = shared.medium.collapse(range);
                if result
                    .is_err_and(|error| error.raw_os_error() == Some(Errno::INVAL.raw_os_error()))
                {
                    // A kernel that does not know how.
                    shared.has_huge_pages.store(false, Ordering::Relaxed);
                }
                Ok(HelperAnswer::Done)
            }),
        })
    }

    #[inline]
    fn copy_in(&self, offset: usize, data: &Payload) {
        if let Some(bytes) = data.as_slice() {
            self.medium.copy_in(offset, bytes);
            return;
        }
        let mut piece = [0; COPY_BYTES];
        for start in (0..data.len()).step_by(COPY_BYTES) {
            let piece = &mut piece[..COPY_BYTES.min(data.len() - start)];
            data.copy_to(start, piece);
            self.medium.copy_in(offset + start, piece);
        }
    }

    /// Gives whole pages back and writes zeros to the rests at both ends. With `keep_mapped` the
    /// range counts as written afterwards.
    fn zero(&self, range: Range<u64>, keep_mapped: bool) -> Next {
        let page = PAGE_BYTES as u64;
        let inner_start = range.start.next_multiple_of(page);
        let inner_end = range.end / page * page;
        if inner_start >= inner_end {
            self.zero_part(&range, keep_mapped);
            return Next::Done(Ok(IoAnswer::Done));
        }
        self.zero_part(&(range.start..inner_start), keep_mapped);
        self.zero_part(&(inner_end..range.end), keep_mapped);
        let inner = inner_start..inner_end;
        if keep_mapped {
            self.shared.written.set(pages(&inner));
        } else if self.shared.written.any(pages(&inner)) {
            self.shared.written.clear(pages(&inner));
        }
        // Also when no bit was set: a mixed read may have made the kernel allocate pages.
        Next::Ring(RingOperation::Allocate {
            file: Rc::clone(&self.file),
            mode: AllocateMode::PunchHole,
            range: inner,
        })
    }

    /// Zeros within one page or two.
    fn zero_part(&self, range: &Range<u64>, keep_mapped: bool) {
        if range.is_empty() {
            return;
        }
        let pages = pages(range);
        if keep_mapped || self.shared.written.any(pages.clone()) {
            let zeros = [0; 2 * PAGE_BYTES];
            let len = to_usize(range.end - range.start);
            self.shared.written.set(pages.clone());
            self.medium.copy_in(to_usize(range.start), &zeros[..len]);
            self.shared.written.set(pages);
        }
    }

    fn extents(&self, range: Range<u64>, count_max: usize) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < range.end && extents.len() < count_max {
            let first = to_usize(at) / PAGE_BYTES;
            let last = to_usize(range.end).div_ceil(PAGE_BYTES);
            let mapped = self.shared.written.is_set(first);
            let end = self.shared.written.run_end(first..last, mapped);
            let end = range.end.min((end * PAGE_BYTES) as u64);
            extents.push(Extent {
                range: at..end,
                mapped,
            });
            at = end;
        }
        extents
    }
}

/// The pages that a range of bytes touches. The range is inside the disk, so it fits.
fn pages(range: &Range<u64>) -> Range<usize> {
    to_usize(range.start) / PAGE_BYTES..to_usize(range.end).div_ceil(PAGE_BYTES)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "offsets inside a mapping fit in a usize"
)]
const fn to_usize(offset: u64) -> usize {
    offset as usize
}

/// One bit per page, changed by all cores.
#[derive(Debug)]
struct Bitmap(Vec<AtomicU64>);

impl Bitmap {
    fn new(bits: usize) -> Self {
        Self(
            std::iter::repeat_with(AtomicU64::default)
                .take(bits.div_ceil(64))
                .collect(),
        )
    }

    /// The words that hold the bits, each with a mask of those meant.
    fn words(&self, bits: Range<usize>) -> impl Iterator<Item = (&AtomicU64, u64)> {
        (bits.start / 64..bits.end.div_ceil(64)).filter_map(move |word| {
            let first = bits.start.saturating_sub(word * 64);
            let end = (bits.end - word * 64).min(64);
            let mask = (u64::MAX << first) & (u64::MAX >> (64 - end));
            Some((self.0.get(word)?, mask))
        })
    }

    /// Looks first: in steady use all bits are set, and a locked instruction would make the word
    /// travel between cores.
    /// Answers whether any was clear.
    fn set(&self, bits: Range<usize>) -> bool {
        let mut is_new = false;
        for (word, mask) in self.words(bits) {
            if word.load(Ordering::SeqCst) & mask != mask {
                word.fetch_or(mask, Ordering::SeqCst);
                is_new = true;
            }
        }
        is_new
    }

    fn clear(&self, bits: Range<usize>) {
        for (word, mask) in self.words(bits) {
            word.fetch_and(!mask, Ordering::SeqCst);
        }
    }

    fn any(&self, bits: Range<usize>) -> bool {
        self.words(bits)
            .any(|(word, mask)| word.load(Ordering::Acquire) & mask != 0)
    }

    fn is_set(&self, bit: usize) -> bool {
        self.any(bit..bit + 1)
    }

    /// The end of the run of bits like the first one, within `bits`.
    fn run_end(&self, bits: Range<usize>, set: bool) -> usize {
        let mut at = bits.start;
        for (word, mask) in self.words(bits.clone()) {
            let word = word.load(Ordering::Acquire);
            let other = if set { !word } else { word } & mask;
            if other != 0 {
                return at / 64 * 64 + other.trailing_zeros() as usize;
            }
            at = (at / 64 + 1) * 64;
        }
        bits.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, data, hole};

    fn disk() -> MemoryDisk {
        MemoryDisk::new(1 << 20, 512, false, true).unwrap()
    }

    #[test]
    fn bitmap_words_cover_exactly_the_bits_asked_for() {
        for (start, end) in [(0, 1), (63, 64), (63, 65), (5, 200), (64, 128), (0, 256)] {
            let bitmap = Bitmap::new(256);
            bitmap.set(start..end);
            for bit in 0..256 {
                let inside = (start..end).contains(&bit);
                assert_eq!(bitmap.is_set(bit), inside, "{bit} of {start}..{end}");
            }
            assert_eq!(bitmap.run_end(start..256, true), end);
            assert_eq!(
                bitmap.run_end(0..256, start == 0),
                if start == 0 { end } else { start }
            );
            bitmap.clear(start..end);
            assert!(!bitmap.any(0..256));
            assert_eq!(bitmap.run_end(start..end, false), end);
        }
    }

    #[test]
    fn reading_what_was_never_written_takes_no_memory() {
        let disk = disk();
        let mut bench = Bench::new(&disk);
        assert!(
            bench
                .read(0, 1 << 20)
                .unwrap()
                .iter()
                .all(|&byte| byte == 0)
        );
        let file = File::from(
            disk.shared
                .medium
                .file()
                .unwrap()
                .try_clone_to_owned()
                .unwrap(),
        );
        assert_eq!(file.metadata().unwrap().blocks(), 0);
        bench.write(8192, &[1; 4096]).unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), 8);
        bench.unmap(0..1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().blocks(), 0);
    }

    #[test]
    fn unmapping_part_of_a_page_zeros_it_and_leaves_the_rest() {
        let mut bench = Bench::new(&disk());
        bench.write(0, &[0xab; 16_384]).unwrap();
        bench.unmap(512..9_216).unwrap();
        let bytes = bench.read(0, 16_384).unwrap();
        let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
        assert_eq!(zeros, 8_704);
        assert!(bytes[512..9_216].iter().all(|&byte| byte == 0));
        assert_eq!(
            bench.extents(0..16_384, 9).unwrap(),
            [data(0..4_096), hole(4_096..8_192), data(8_192..16_384)]
        );
    }

    #[test]
    fn extents_end_where_the_range_does_and_space_is_counted_in_bytes() {
        let disk = disk();
        let mut bench = Bench::new(&disk);
        bench.write(4096, &[1; 4096]).unwrap();
        assert_eq!(disk.used_bytes().unwrap(), Some(4096));
        assert_eq!(bench.extents(4608..5120, 9).unwrap(), [data(4608..5120)]);
        let all = [hole(512..4096), data(4096..8192), hole(8192..8704)];
        assert_eq!(bench.extents(512..8704, 9).unwrap(), all);
        assert_eq!(bench.extents(512..8704, 2).unwrap(), all[..2]);
    }

    #[test]
    fn only_whole_huge_pages_of_the_disk_that_are_full_are_made_one() {
        const MIB: usize = 1 << 20;
        let disk = MemoryDisk::new(5 << 20, 512, false, true).unwrap();
        let handle = MemoryHandle::new(&disk).unwrap();
        let full = |pages: Range<usize>| handle.full_huge_pages(&pages);
        let written = &disk.shared.written;
        written.set(0..512);
        written.set(513..1280);
        for (pages, expected) in [
            (0..1, Some(0..2 * MIB)),
            (511..513, Some(0..2 * MIB)),
            (512..513, None),
            (1279..1280, None),
        ] {
            assert_eq!(full(pages.clone()), expected, "{pages:?}");
        }
        written.set(512..513);
        for (pages, expected) in [
            (0..1280, Some(0..4 * MIB)),
            (512..1024, Some(2 * MIB..4 * MIB)),
            (1023..1025, Some(2 * MIB..4 * MIB)),
            (1024..1280, None),
        ] {
            assert_eq!(full(pages.clone()), expected, "{pages:?}");
        }
        written.clear(0..1);
        assert_eq!(full(0..1280), Some(2 * MIB..4 * MIB));
    }

    #[test]
    fn zeros_that_were_written_stay_mapped() {
        let mut bench = Bench::new(&disk());
        bench.write(4096, &[1; 8192]).unwrap();
        bench.write_zeros(0..65_536).unwrap();
        assert_eq!(bench.extents(0..1 << 20, 1).unwrap(), [data(0..65_536)]);
        assert_eq!(bench.read(0, 65_536).unwrap(), vec![0; 65_536]);
    }

    #[test]
    fn a_disk_that_is_not_thin_keeps_what_is_unmapped() {
        let mut bench = Bench::new(&MemoryDisk::new(1 << 20, 512, false, false).unwrap());
        bench.write(0, &[1; 16_384]).unwrap();
        bench.unmap(4_096..8_192).unwrap();
        assert_eq!(bench.read(4_096, 4_096).unwrap(), [0; 4_096]);
        assert_eq!(bench.extents(0..16_384, 9).unwrap(), [data(0..16_384)]);
    }

    #[test]
    fn a_refused_unmap_leaves_the_data_readable() {
        let mut bench = Bench::new(&disk());
        bench.write(0, &[7; 8192]).unwrap();
        let errno = Errno::PERM.raw_os_error();
        bench.fail_next(-errno);
        assert_eq!(bench.unmap(0..8192), Err(IoFailure::Hardware { errno }));
        bench.fail_next(-Errno::CANCELED.raw_os_error());
        assert_eq!(bench.unmap(0..8192), Err(IoFailure::Cancelled));
        assert_eq!(bench.read(0, 8192).unwrap(), [7; 8192]);
    }

    #[test]
    fn memory_that_is_written_in_full_keeps_its_contents_as_huge_pages() {
        let pattern: Vec<u8> = (0..4u32 << 20).map(|n| (n / 4096 % 251) as u8).collect();
        // The kernel may have no huge page to give just then. When it has one for this test right
        // after the write, it should have had one for the write, too, at least now and then.
        let is_explained = (0..10).any(|_round| {
            let disk = MemoryDisk::new(6 << 20, 512, false, true).unwrap();
            let mut bench = Bench::new(&disk);
            // The second of three huge pages stays one ordinary page short.
            for (offset, len) in [(0, 2 << 20), (2 << 20, (2 << 20) - 4096)] {
                bench
                    .write(offset as u64, &pattern[offset..offset + len])
                    .unwrap();
            }
            let is_collapsed = huge_pages_of_this_process();
            let kernel_has_none = disk.shared.medium.collapse(0..HUGE_PAGE_BYTES).is_err();
            assert_eq!(
                bench.read(0, (4 << 20) - 4096).unwrap(),
                pattern[..(4 << 20) - 4096]
            );
            assert_eq!(bench.read((4 << 20) - 4096, 4096).unwrap(), [0; 4096]);
            bench.unmap(4096..8192).unwrap();
            assert_eq!(bench.read(0, 12_288).unwrap()[4096..8192], [0; 4096]);
            is_collapsed || kernel_has_none
        });
        assert!(is_explained, "no huge page in /proc/self/smaps");
    }

    fn huge_pages_of_this_process() -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        smaps
            .lines()
            .any(|line| line.starts_with("ShmemPmdMapped:") && !line.contains(" 0 kB"))
    }

    /// Two threads write and unmap the same pages; afterwards no page may hold data that its
    /// bit hides.
    #[test]
    fn no_data_is_left_under_a_clear_bit() {
        let disk = disk();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut bench = Bench::new(&disk);
                for n in 0..3_000u32 {
                    let byte = u8::try_from(n % 255 + 1).unwrap();
                    bench.write(u64::from(n % 4) * 4096, &[byte; 4096]).unwrap();
                }
            });
            scope.spawn(|| {
                let mut bench = Bench::new(&disk);
                for n in 0..3_000u64 {
                    bench.unmap(n % 4 * 4096..(n % 4 + 1) * 4096).unwrap();
                }
            });
        });
        let mut page = [0; PAGE_BYTES];
        for n in 0..4 {
            disk.shared.medium.copy_out(n * PAGE_BYTES, &mut page);
            let empty = page.iter().all(|&byte| byte == 0);
            assert!(empty || disk.shared.written.is_set(n), "page {n}");
        }
    }

    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
}
