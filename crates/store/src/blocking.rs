//! A store whose requests are carried out on the thread that asks. Only for opening and closing.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsFd;

use memory::{Payload, Pool};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};

use crate::disk_file::sync;
use crate::{
    AllocateMode, Backstore, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Order, Outlet,
    PAST_THE_END, RingOperation, SharedStore, Submitted, ends_before, find_extents, find_size,
};

/// What buffers may take, in bytes.
const POOL_BYTES: usize = 8 << 20;

/// The most bytes of a transfer.
const TRANSFER_BYTES_MAX: usize = 1 << 20;

/// A file or block device, which answers before it returns.
#[derive(Debug)]
pub(crate) struct Blocking {
    pool: Pool,
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Box<dyn Backstore>,
    outlet: Outlet,
    next: u64,
}

impl Blocking {
    /// A handle of a store that orders operations of files only.
    pub(crate) fn new(store: &dyn SharedStore) -> io::Result<Self> {
        Ok(Self {
            pool: Pool::new(POOL_BYTES)?,
            inner: RefCell::new(Inner {
                store: store.handle()?,
                outlet: Outlet::default(),
                next: 0,
            }),
        })
    }

    /// Fills the buffer from this byte on.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (piece, at) in bytes
            .chunks_mut(TRANSFER_BYTES_MAX)
            .zip((offset..).step_by(TRANSFER_BYTES_MAX))
        {
            let len = piece.len();
            let buffer = Some(self.pool.allocate(len).map_err(no_memory)?);
            let request = IoRequest::Read {
                offset: at,
                len,
                buffer,
            };
            match self.run(request)? {
                IoAnswer::Data(data) => data.copy_to(0, piece),
                IoAnswer::Done | IoAnswer::Extents(_) | IoAnswer::Device(_) => {
                    return Err(io::ErrorKind::Unsupported.into());
                }
            }
        }
        Ok(())
    }

    /// Writes bytes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (piece, at) in bytes
            .chunks(TRANSFER_BYTES_MAX)
            .zip((offset..).step_by(TRANSFER_BYTES_MAX))
        {
            let mut buffer = self.pool.allocate(piece.len()).map_err(no_memory)?;
            buffer.copy_from_slice(piece);
            let data = Payload::Pool(buffer);
            self.run(IoRequest::Write {
                offset: at,
                data,
                durable: false,
            })?;
        }
        Ok(())
    }

    /// Has the range read zeros, and gives its space back where `unmap` says so.
    pub(crate) fn clear(&self, range: Range<u64>, unmap: bool) -> io::Result<()> {
        let request = match unmap {
            true => IoRequest::Unmap { range },
            false => IoRequest::WriteZeros {
                range,
                durable: false,
            },
        };
        self.run(request).map(drop)
    }

    /// Makes what was written durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.run(IoRequest::Flush).map(drop)
    }

    fn run(&self, request: IoRequest) -> io::Result<IoAnswer> {
        self.inner
            .borrow_mut()
            .run(request)
            .map_err(|failure| match failure {
                IoFailure::Hardware { errno } if errno != 0 => io::Error::from_raw_os_error(errno),
                other @ (IoFailure::Hardware { .. }
                | IoFailure::Medium { .. }
                | IoFailure::NoSpace { .. }
                | IoFailure::Truncated { .. }
                | IoFailure::FlushLatched
                | IoFailure::CacheLost
                | IoFailure::Cancelled
                | IoFailure::ReadOnly
                | IoFailure::Miscompare { .. }
                | IoFailure::NotReady
                | IoFailure::HeldElsewhere) => io::Error::other(other),
            })
    }
}

impl Inner {
    fn run(&mut self, request: IoRequest) -> IoResult {
        self.next += 1;
        let tag = IoTag(self.next);
        if let Submitted::Done(result) = self.store.submit(tag, request, &mut self.outlet) {
            return result;
        }
        while let Some(order) = self.outlet.next_order() {
            match order {
                Order::Answer { tag: own, result } if own == tag => return result,
                Order::Ring {
                    part,
                    mut operation,
                } => {
                    let result = perform(&mut operation, usize::MAX);
                    let result = result.map_or_else(
                        |errno| -errno.raw_os_error(),
                        |count| i32::try_from(count).unwrap_or(i32::MAX),
                    );
                    self.store
                        .handle_ring_result(part, operation, result, &mut self.outlet);
                }
                Order::Helper { part, operation } => {
                    let result = (operation.work)();
                    self.store
                        .handle_helper_result(part, result, &mut self.outlet);
                }
                // A store of a file has no other orders, and nobody cancels.
                Order::Answer { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Timer { .. }
                | Order::Size
                | Order::Reach { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_) => {}
            }
        }
        Err(IoFailure::NotReady)
    }
}

fn no_memory(_: memory::PoolFull) -> io::Error {
    io::Error::from_raw_os_error(Errno::NOMEM.raw_os_error())
}

/// Does what the kernel does for a ring, with at most so many bytes.
pub(crate) fn perform(operation: &mut RingOperation, limit: usize) -> Result<usize, Errno> {
    match operation {
        RingOperation::Read {
            file,
            offset,
            buffer,
            done,
        } => {
            let end = buffer.len().min(done.saturating_add(limit));
            pread(&**file, &mut buffer[*done..end], *offset + *done as u64)
        }
        RingOperation::Write {
            file,
            offset,
            data,
            done,
            durable,
        } => {
            let flags = if *durable {
                ReadWriteFlags::DSYNC
            } else {
                ReadWriteFlags::empty()
            };
            let copy;
            let bytes = match data.as_slice() {
                Some(bytes) => bytes,
                None => {
                    copy = data.to_vec();
                    &copy
                }
            };
            if ends_before(file.as_fd(), *offset + bytes.len() as u64) {
                return Err(PAST_THE_END);
            }
            let end = bytes.len().min(done.saturating_add(limit));
            let parts = [IoSlice::new(&bytes[*done..end])];
            pwritev2(&**file, &parts, *offset + *done as u64, flags)
        }
        RingOperation::Sync { file } => sync(file.as_fd()).map(|()| 0),
        RingOperation::Allocate { file, range, .. } if ends_before(file.as_fd(), range.end) => {
            Err(PAST_THE_END)
        }
        RingOperation::Allocate { file, mode, range } => {
            let mode = match mode {
                AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE,
                AllocateMode::ZeroRange => FallocateFlags::ZERO_RANGE,
            } | FallocateFlags::KEEP_SIZE;
            fallocate(&**file, mode, range.start, range.end - range.start).map(|()| 0)
        }
        RingOperation::Extents {
            file,
            range,
            block_bytes,
            found,
        } => find_extents(file.as_fd(), range.clone(), *block_bytes, found),
        RingOperation::Size {
            file,
            is_block_device,
            bytes,
        } => {
            *bytes = find_size(file.as_fd(), *is_block_device)?;
            Ok(0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDisk;
    use crate::testing::{Fate, Faulty};

    #[test]
    fn a_request_of_any_length_is_carried_out_and_its_failure_is_an_error_of_the_system() {
        let (disk, _hung) =
            Faulty::new(MemoryDisk::new(4 << 20, 512, false, true).unwrap(), |_| {
                Fate::Pass
            });
        let store = Blocking::new(&disk).unwrap();
        let data: Vec<u8> = (0..(TRANSFER_BYTES_MAX as u64 + 1024) / 8)
            .flat_map(u64::to_le_bytes)
            .collect();
        store.write(512, &data).unwrap();
        let read = || {
            let mut bytes = vec![9; data.len() + 1024];
            store.read(0, &mut bytes).unwrap();
            bytes
        };
        let expected = [&[0; 512][..], &data, &[0; 512]].concat();
        assert!(read() == expected);
        let end = 512 + data.len() as u64;
        for (range, unmap) in [(1024..2048, false), (end - 512..end, true)] {
            store.clear(range, unmap).unwrap();
        }
        let mut expected = expected;
        expected[1024..2048].fill(0);
        let end = 512 + data.len();
        expected[end - 512..end].fill(0);
        assert!(read() == expected);
        store.sync().unwrap();
        let raw = |failure: IoFailure| {
            disk.set_rule(move |_| Fate::Fail(failure.clone()));
            store.sync().unwrap_err().raw_os_error()
        };
        assert_eq!(raw(IoFailure::Hardware { errno: 28 }), Some(28));
        assert_eq!(raw(IoFailure::Hardware { errno: 0 }), None);
        assert_eq!(raw(IoFailure::NotReady), None);
        // Nothing is waited for where nothing is ordered.
        disk.set_rule(|_| Fate::Full);
        let full = || Blocking::new(&disk).unwrap();
        assert_eq!(full().sync().unwrap_err().kind(), io::ErrorKind::Other);
        assert!(full().read(0, &mut [0; 512]).is_err());
        assert!(full().write(0, &[0; 512]).is_err());
        assert!(full().clear(0..512, true).is_err());
    }
}
