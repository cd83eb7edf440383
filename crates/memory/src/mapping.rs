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

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
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
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
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
