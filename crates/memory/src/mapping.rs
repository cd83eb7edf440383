//! Memory that all cores see at one address: the medium of a memory disk, and a field of zeros.
//!
//! Two commands may write and read the same bytes at the same time (the initiators asked for it),
//! so no slice of a mapping ever exists: bytes go in and out by copies of raw memory, and a copy
//! that overlaps another in time may see a mixture, as on any disk.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::mm::ProtFlags;

use crate::region::Region;

/// Shared memory of a fixed size. Its addresses stay valid for as long as it lives.
#[derive(Debug)]
pub struct Mapping {
    region: Region,
    file: Option<File>,
}

impl Mapping {
    /// Sparse memory of `len` bytes backed by a memory file, so that ranges of it can be given
    /// back to the kernel (`fallocate` on [`Mapping::file`] punches holes; addresses stay valid
    /// and read zeros).
    pub fn sparse(len: usize) -> io::Result<Self> {
        let file = File::from(memfd_create("tarn-memory-disk", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, len as u64)?;
        let region = Region::shared(file.as_fd(), len)?;
        Ok(Self {
            region,
            file: Some(file),
        })
    }

    /// Memory of `len` bytes, zeros at first, for another process, too, which gets [`Mapping::file`].
    /// The file is sealed: its length stays, so no access here ever meets the end of it.
    ///
    /// # Errors
    ///
    /// The kernel has no memory or descriptor for it.
    pub fn sealed(len: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("tarn-ring", flags)?);
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let region = Region::shared(file.as_fd(), len)?;
        Ok(Self {
            region,
            file: Some(file),
        })
    }

    /// Gives the memory of all its processes back: who keeps it mapped keeps an empty file.
    pub fn give_back(&self) {
        if let Some(file) = &self.file {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // It goes with its last mapping otherwise.
            let _kept = fallocate(file, flags, 0, self.len() as u64);
        }
    }

    /// `len` bytes that read zero and take no memory. They cannot be written.
    pub fn zeros(len: usize) -> io::Result<Self> {
        let region = Region::anonymous(len, ProtFlags::READ)?;
        Ok(Self { region, file: None })
    }

    /// The size in bytes.
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// True for a mapping of no bytes, which the kernel refuses to make.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory file behind [`Mapping::sparse`].
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Puts huge pages under the whole ones of `range`, whose contents stay. Blocks for about a
    /// millisecond for each; the memory file takes up whole huge pages afterwards.
    ///
    /// # Errors
    ///
    /// The kernel cannot (before Linux 6.1), or has no huge page now.
    ///
    /// # Panics
    ///
    /// When the range is outside the mapping.
    pub fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        self.region.collapse(range)
    }

    /// The number at `offset`, in bytes. Others may write it at any time, so it is reached by atomic operations only.
    ///
    /// # Panics
    ///
    /// When it is outside the mapping, `offset` is no multiple of 4, or the mapping is one of zeros.
    fn number(&self, offset: usize) -> &AtomicU32 {
        assert!(self.file.is_some(), "zeros are not written");
        assert!(offset.is_multiple_of(4), "a number at {offset}");
        let at = self.region.address(offset, size_of::<AtomicU32>());
        // SAFETY: `address` checked the range, which is mapped, readable and writable for as long as `self` lives; it
        // is aligned, as the region begins at a page; every bit pattern is a number.
        unsafe { at.cast::<AtomicU32>().as_ref() }
    }

    /// The number at `offset`, in bytes, as this machine has it; what is read later is read after it.
    ///
    /// # Panics
    ///
    /// When it is outside the mapping, `offset` is no multiple of 4, or the mapping is one of zeros.
    pub fn load(&self, offset: usize) -> u32 {
        self.number(offset).load(Ordering::Acquire)
    }

    /// Writes a number to `offset`, after all that was written before.
    ///
    /// # Panics
    ///
    /// As for [`Mapping::load`].
    pub fn store(&self, offset: usize, value: u32) {
        self.number(offset).store(value, Ordering::Release);
    }

    /// Writes a number to `offset` and gives the one before, as one operation.
    ///
    /// # Panics
    ///
    /// As for [`Mapping::load`].
    pub fn swap(&self, offset: usize, value: u32) -> u32 {
        self.number(offset).swap(value, Ordering::SeqCst)
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    ///
    /// When the range is outside the mapping, or the mapping is one of zeros.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) {
        assert!(self.file.is_some(), "zeros are not written");
        let to = self.region.address(offset, bytes.len());
        // SAFETY: `address` checked the range; the mapping is writable; nothing else in this
        // process holds a reference into it, so the source cannot overlap it.
        unsafe { copy_to_medium(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Copies the bytes at `offset` to `bytes`.
    ///
    /// # Panics
    ///
    /// When the range is outside the mapping.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.region.address(offset, bytes.len());
        // SAFETY: as for `copy_in`, the other way round.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// From this size on, in bytes, copies go past the caches: what is written in such pieces is
/// seldom read again soon, and memory need not be read in order to be overwritten.
#[cfg(target_arch = "x86_64")]
const STREAM_BYTES: usize = 32 * 1024;

/// # Safety
///
/// As for [`ptr::copy_nonoverlapping`].
unsafe fn copy_to_medium(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAM_BYTES {
        // SAFETY: as the caller promised.
        unsafe { stream(from, to, len) };
        return;
    }
    // SAFETY: as the caller promised.
    unsafe { ptr::copy_nonoverlapping(from, to, len) };
}

/// Copies with stores that do not fetch what they overwrite.
///
/// # Safety
///
/// As for [`ptr::copy_nonoverlapping`].
#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one step of the loop is a load and a store at the same offset"
)]
unsafe fn stream(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const STEP: usize = size_of::<__m128i>();
    let head = to.align_offset(STEP).min(len);
    let end = head + (len - head) / STEP * STEP;
    // SAFETY: the first `head` bytes are inside both ranges.
    unsafe { ptr::copy_nonoverlapping(from, to, head) };
    for at in (head..end).step_by(STEP) {
        // SAFETY: `at + STEP` is at most `len`; `to + at` is aligned because `to + head` is.
        unsafe {
            let value = _mm_loadu_si128(from.add(at).cast());
            _mm_stream_si128(to.add(at).cast(), value);
        }
    }
    // SAFETY: the instruction is part of every x86-64. Without it, what follows on this core could
    // be seen by others before these stores.
    unsafe { _mm_sfence() };
    let rest = len - end;
    // SAFETY: the last bytes are inside both ranges.
    unsafe { ptr::copy_nonoverlapping(from.add(end), to.add(end), rest) };
}

/// One core's hold on a [`Mapping`]. Ranges count their references to this, on their own core,
/// so that making one costs no locked instruction.
#[derive(Debug)]
pub struct CoreMapping(Arc<Mapping>);

impl CoreMapping {
    /// A hold for the core that calls.
    pub fn new(mapping: &Arc<Mapping>) -> Rc<Self> {
        Rc::new(Self(Arc::clone(mapping)))
    }
}

impl Deref for CoreMapping {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.0
    }
}

/// Bytes of a [`Mapping`] that a command reads from, kept mapped by this value.
///
/// Other cores may write them meanwhile, so there is no slice of them.
#[derive(Clone)]
pub struct MappedRange {
    mapping: Rc<CoreMapping>,
    offset: usize,
    len: usize,
}

impl MappedRange {
    /// The `len` bytes at `offset`.
    ///
    /// # Panics
    ///
    /// When the range is outside the mapping.
    pub fn new(mapping: &Rc<CoreMapping>, offset: usize, len: usize) -> Self {
        mapping.region.address(offset, len);
        Self {
            mapping: Rc::clone(mapping),
            offset,
            len,
        }
    }

    /// The length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for a range of no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes lie, for lending them to the kernel while this value is kept.
    pub fn address(&self) -> NonNull<u8> {
        self.mapping.region.address(self.offset, self.len)
    }

    /// The `len` bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// When they are not all inside the range.
    #[must_use]
    pub fn part(&self, offset: usize, len: usize) -> Self {
        assert!(
            offset + len <= self.len,
            "a part past the end of a mapped range"
        );
        Self {
            mapping: Rc::clone(&self.mapping),
            offset: self.offset + offset,
            len,
        }
    }

    /// Copies the bytes from `offset` on to `bytes`.
    ///
    /// # Panics
    ///
    /// When they are not all inside the range.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset + bytes.len() <= self.len,
            "copy past the end of a mapped range"
        );
        self.mapping.copy_out(self.offset + offset, bytes);
    }
}

impl fmt::Debug for MappedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedRange({}+{})", self.offset, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_comes_out_and_the_rest_reads_zero() {
        let mapping = Mapping::sparse(1 << 20).unwrap();
        mapping.copy_in(4096, b"tarn");
        let mut bytes = [0xff; 8];
        mapping.copy_out(4094, &mut bytes);
        assert_eq!(&bytes, b"\0\0tarn\0\0");
    }

    #[test]
    fn a_sealed_mapping_keeps_its_length_and_is_shared_by_its_file() {
        let mapping = Mapping::sealed(8192).unwrap();
        mapping.store(64, 7);
        let file = mapping.file().unwrap();
        for length in [0, 4096, 16_384] {
            assert!(ftruncate(file, length).is_err());
        }
        assert!(fcntl_add_seals(file, SealFlags::WRITE).is_err());
        let other = Region::shared(file, 8192).unwrap();
        let other = Mapping {
            region: other,
            file: Some(file.try_clone_to_owned().unwrap().into()),
        };
        assert_eq!((other.load(64), other.swap(64, 8)), (7, 7));
        assert_eq!((mapping.load(64), mapping.load(68)), (8, 0));
        mapping.give_back();
        assert_eq!((mapping.load(64), other.load(64)), (0, 0));
    }

    #[test]
    #[should_panic(expected = "a number at 2")]
    fn a_number_at_an_odd_place_is_refused() {
        Mapping::sealed(4096).unwrap().load(2);
    }

    #[test]
    fn large_copies_are_exact_at_any_alignment() {
        let mapping = Mapping::sparse(1 << 20).unwrap();
        let bytes: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        for (offset, start, len) in [
            (0, 0, 32_768),
            (1, 3, 32_769),
            (15, 0, 199_999),
            (4096, 1, 65_551),
        ] {
            mapping.copy_in(0, &vec![0xee; 1 << 20]);
            mapping.copy_in(offset, &bytes[start..start + len]);
            let mut all = vec![0; 1 << 20];
            mapping.copy_out(0, &mut all);
            assert_eq!(all[offset..offset + len], bytes[start..start + len]);
            assert!(all[..offset].iter().all(|&byte| byte == 0xee));
            assert!(all[offset + len..].iter().all(|&byte| byte == 0xee));
        }
    }

    #[test]
    fn a_range_keeps_the_mapping_alive() {
        let mapping = CoreMapping::new(&Arc::new(Mapping::sparse(8192).unwrap()));
        mapping.copy_in(100, b"abc");
        let range = MappedRange::new(&mapping, 100, 3);
        drop(mapping);
        let mut bytes = [0; 2];
        range.copy_to(1, &mut bytes);
        assert_eq!(&bytes, b"bc");
    }

    #[test]
    #[should_panic(expected = "in a region of")]
    fn a_range_past_the_end_is_refused() {
        let mapping = CoreMapping::new(&Arc::new(Mapping::zeros(4096).unwrap()));
        MappedRange::new(&mapping, 4095, 2);
    }
}
