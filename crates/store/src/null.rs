//! A disk without data: reads return zeros, writes are dropped. To measure everything else.

use std::io;
use std::rc::Rc;

use memory::{CoreMapping, MappedRange, Payload};

use crate::request::refuse;
use crate::zeros::{self, ZEROS_BYTES};
use crate::{
    Backstore, Bottom, Capabilities, Durability, Extent, IoAnswer, IoFailure, IoRequest, IoTag,
    Outlet, SharedStore, Submitted,
};

/// A null disk, for all cores.
#[derive(Debug)]
pub struct NullDisk {
    capabilities: Capabilities,
}

impl NullDisk {
    /// A disk of `size_bytes`, which must be a multiple of `block_bytes`.
    pub const fn new(size_bytes: u64, block_bytes: u32, read_only: bool) -> Self {
        Self {
            capabilities: Capabilities {
                read_only,
                thin: true,
                reads_in_place: true,
                ..Capabilities::plain(size_bytes, block_bytes)
            },
        }
    }
}

impl NullDisk {
    /// What stands for a disk with these capabilities that is yet to be made.
    pub(crate) const fn like(capabilities: Capabilities) -> Self {
        Self { capabilities }
    }
}

impl SharedStore for NullDisk {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        Ok(Box::new(NullHandle {
            capabilities: self.capabilities.clone(),
            zeros: zeros::for_this_core()?,
        }))
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    fn used_bytes(&self) -> io::Result<Option<u64>> {
        Ok(Some(0))
    }
}

#[derive(Debug)]
struct NullHandle {
    capabilities: Capabilities,
    zeros: Rc<CoreMapping>,
}

impl Backstore for NullHandle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    #[inline]
    fn submit(&mut self, _: IoTag, request: IoRequest, _: &mut Outlet) -> Submitted {
        if let Some(failure) = refuse(&self.capabilities, &request) {
            return Submitted::Done(Err(failure));
        }
        Submitted::Done(match request {
            IoRequest::Read { len, .. } if len <= ZEROS_BYTES => Ok(IoAnswer::Data(
                Payload::Mapped(MappedRange::new(&self.zeros, 0, len)),
            )),
            // No transfer is that long; see the limit of the buffers.
            IoRequest::Read { .. } => Err(IoFailure::Hardware {
                errno: rustix::io::Errno::INVAL.raw_os_error(),
            }),
            IoRequest::Write { .. }
            | IoRequest::Flush
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. } => Ok(IoAnswer::Done),
            // Only a store that offers it is asked for it.
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => Err(IoFailure::Hardware {
                errno: rustix::io::Errno::OPNOTSUPP.raw_os_error(),
            }),
            IoRequest::Extents { range, .. } => Ok(IoAnswer::Extents(vec![Extent {
                range,
                mapped: false,
            }])),
        })
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Bench};

    #[test]
    fn reads_give_zeros_and_writes_are_dropped() {
        let mut bench = Bench::new(&NullDisk::new(1 << 40, 512, false));
        bench.write((1 << 40) - 512, &[0xab; 512]).unwrap();
        assert_eq!(bench.read((1 << 40) - 512, 512).unwrap(), [0; 512]);
        assert_eq!(bench.read(0, ZEROS_BYTES).unwrap().len(), ZEROS_BYTES);
        let invalid = IoFailure::Hardware { errno: 22 };
        assert_eq!(bench.read(0, ZEROS_BYTES + 1), Err(invalid));
        bench.unmap(0..1 << 40).unwrap();
        bench.flush().unwrap();
        assert_eq!(
            bench.extents(0..1 << 40, 1).unwrap(),
            [testing::hole(0..1 << 40)]
        );
    }

    #[test]
    fn the_end_is_the_end() {
        let mut bench = Bench::new(&NullDisk::new(4096, 512, false));
        let past_the_end = IoFailure::Truncated { offset: 4096 };
        assert_eq!(bench.read(4096, 512), Err(past_the_end.clone()));
        assert_eq!(bench.write(3584, &[1; 1024]), Err(past_the_end));
    }

    #[test]
    fn a_read_only_disk_refuses_every_change() {
        let mut bench = Bench::new(&NullDisk::new(4096, 512, true));
        assert_eq!(bench.write(0, &[1; 512]), Err(IoFailure::ReadOnly));
        assert_eq!(bench.unmap(0..512), Err(IoFailure::ReadOnly));
        assert_eq!(bench.write_zeros(0..512), Err(IoFailure::ReadOnly));
        bench.flush().unwrap();
    }
}
