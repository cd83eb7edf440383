//! What the tests of the stores share: a place for files, and a bench that does the ring's work
//! with ordinary system calls.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use memory::{Payload, Pool};
use rustix::io::Errno;

use crate::blocking::perform;
use crate::next::Next;
use crate::{
    Backstore, Extent, IoAnswer, IoFailure, IoRequest, IoTag, Order, Outlet, PartTag,
    RingOperation, SharedStore, Submitted,
};

/// The only request of a bench.
const TAG: IoTag = IoTag(7);

/// A directory that goes away with this value.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "tarn-store-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new file of this size, full of holes.
    pub(crate) fn file(&self, size: u64) -> PathBuf {
        let path = self.path("disk");
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// What the kernel shall seem to answer.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// This result, and nothing happens.
    Answer(i32),
    /// At most this many bytes are moved.
    Short(usize),
    /// Nothing special: for counting up to the operation meant.
    None,
}

/// A store with a core of its own.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) store: Box<dyn Backstore>,
    pub(crate) pool: Pool,
    outlet: Outlet,
    faults: VecDeque<Fault>,
    /// Bytes of the file that cannot be transferred.
    bad: Option<Range<u64>>,
    /// One line per ring operation.
    pub(crate) trace: Vec<String>,
}

impl Bench {
    pub(crate) fn new(shared: &dyn SharedStore) -> Self {
        let mut store = shared.handle().unwrap();
        store.use_ring_only(true);
        Self {
            store,
            pool: Pool::new(64 << 20).unwrap(),
            outlet: Outlet::default(),
            faults: VecDeque::new(),
            bad: None,
            trace: Vec::new(),
        }
    }

    pub(crate) fn fail_next(&mut self, result: i32) {
        self.faults.push_back(Fault::Answer(result));
    }

    pub(crate) fn plan(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.extend(faults);
    }

    /// From now on transfers that touch these bytes fail with `EIO`, or end before them.
    pub(crate) fn make_bad(&mut self, bad: Range<u64>) {
        self.bad = Some(bad);
    }

    pub(crate) fn run(&mut self, request: IoRequest) -> Result<IoAnswer, IoFailure> {
        self.trace.clear();
        if let Submitted::Done(result) = self.store.submit(TAG, request, &mut self.outlet) {
            assert!(self.outlet.is_empty());
            return result;
        }
        while let Some(order) = self.outlet.next_order() {
            match order {
                Order::Answer { tag: TAG, result } => {
                    assert!(self.outlet.is_empty());
                    return result;
                }
                Order::Ring {
                    part,
                    mut operation,
                } if part.request == Some(TAG) => {
                    let result = self.execute(&mut operation);
                    let outlet = &mut self.outlet;
                    self.store
                        .handle_ring_result(part, operation, result, outlet);
                }
                Order::Helper { part, operation } if part.request == Some(TAG) => {
                    let result = (operation.work)();
                    let outlet = &mut self.outlet;
                    self.store.handle_helper_result(part, result, outlet);
                }
                other @ (Order::Answer { .. }
                | Order::Ring { .. }
                | Order::Helper { .. }
                | Order::CancelParts(_)
                | Order::CancelPart(_)
                | Order::Timer { .. }
                | Order::Size
                | Order::Reach { .. }
                | Order::HeldElsewhere { .. }
                | Order::OpenSocket { .. }
                | Order::Socket { .. }
                | Order::CloseSocket(_)) => panic!("{other:?}"),
            }
        }
        panic!("the request does not come to an end");
    }

    /// Submits a request, and gives what the store says of it.
    pub(crate) fn submit(&mut self, request: IoRequest) -> Next {
        match self.store.submit(TAG, request, &mut self.outlet) {
            Submitted::Done(result) => {
                assert!(self.outlet.is_empty());
                Next::Done(result)
            }
            Submitted::Taken => self.next(),
        }
    }

    /// An operation of the request ends, and the store says what comes next.
    pub(crate) fn end(&mut self, operation: RingOperation, result: i32) -> Next {
        let part = PartTag::of(TAG);
        self.store
            .handle_ring_result(part, operation, result, &mut self.outlet);
        self.next()
    }

    /// The request is cancelled.
    pub(crate) fn cancel(&mut self) {
        self.store.cancel(TAG, &mut self.outlet);
        let order = self.outlet.next_order();
        assert!(matches!(order, Some(Order::CancelParts(TAG))), "{order:?}");
    }

    /// The one order of the store.
    fn next(&mut self) -> Next {
        let order = self.outlet.next_order();
        assert!(self.outlet.is_empty());
        match order {
            Some(Order::Answer { tag: TAG, result }) => Next::Done(result),
            Some(Order::Ring { part, operation }) if part == PartTag::of(TAG) => {
                Next::Ring(operation)
            }
            Some(Order::Helper { part, operation }) if part == PartTag::of(TAG) => {
                Next::Helper(operation)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Does what the kernel would, or what the plan says instead.
    fn execute(&mut self, operation: &mut RingOperation) -> i32 {
        self.trace.push(name(operation));
        let mut limit = match self.faults.pop_front().unwrap_or(Fault::None) {
            Fault::Answer(result) => return result,
            Fault::Short(len) => len,
            Fault::None => usize::MAX,
        };
        let start = match operation {
            RingOperation::Read { offset, done, .. }
            | RingOperation::Write { offset, done, .. } => Some(*offset + *done as u64),
            RingOperation::Sync { .. }
            | RingOperation::Allocate { .. }
            | RingOperation::Extents { .. }
            | RingOperation::Size { .. } => None,
        };
        if let (Some(start), Some(bad)) = (start, &self.bad)
            && start < bad.end
        {
            match usize::try_from(bad.start.saturating_sub(start)).unwrap() {
                0 => return -Errno::IO.raw_os_error(),
                good => {
                    // As the kernel does: all or nothing, when it notices in time.
                    let len = match &*operation {
                        RingOperation::Read { buffer, done, .. } => buffer.len() - done,
                        RingOperation::Write { data, done, .. } => {
                            limit = limit.min(good);
                            data.len() - done
                        }
                        RingOperation::Sync { .. }
                        | RingOperation::Allocate { .. }
                        | RingOperation::Extents { .. }
                        | RingOperation::Size { .. } => 0,
                    };
                    if len > good && matches!(operation, RingOperation::Read { .. }) {
                        return -Errno::IO.raw_os_error();
                    }
                }
            }
        }
        let result = perform(operation, limit);
        result.map_or_else(
            |errno| -errno.raw_os_error(),
            |count| i32::try_from(count).unwrap(),
        )
    }

    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Vec<u8>, IoFailure> {
        let in_place = self.store.capabilities().answers_in_place(offset, len);
        let buffer = (!in_place).then(|| self.pool.allocate(len).unwrap());
        match self.run(IoRequest::Read {
            offset,
            len,
            buffer,
        })? {
            IoAnswer::Data(data) => {
                assert_eq!(data.len(), len);
                Ok(data.to_vec())
            }
            other @ (IoAnswer::Done | IoAnswer::Extents(_) | IoAnswer::Device(_)) => {
                panic!("{other:?}")
            }
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoFailure> {
        self.write_with(offset, bytes, false)
    }

    pub(crate) fn write_durably(&mut self, offset: u64, bytes: &[u8]) -> Result<(), IoFailure> {
        self.write_with(offset, bytes, true)
    }

    fn write_with(&mut self, offset: u64, bytes: &[u8], durable: bool) -> Result<(), IoFailure> {
        let mut buffer = self.pool.allocate(bytes.len()).unwrap();
        buffer.copy_from_slice(bytes);
        self.expect_done(IoRequest::Write {
            offset,
            data: Payload::Pool(buffer),
            durable,
        })
    }

    pub(crate) fn flush(&mut self) -> Result<(), IoFailure> {
        self.expect_done(IoRequest::Flush)
    }

    pub(crate) fn unmap(&mut self, range: Range<u64>) -> Result<(), IoFailure> {
        self.expect_done(IoRequest::Unmap { range })
    }

    pub(crate) fn write_zeros(&mut self, range: Range<u64>) -> Result<(), IoFailure> {
        let durable = false;
        self.expect_done(IoRequest::WriteZeros { range, durable })
    }

    pub(crate) fn extents(
        &mut self,
        range: Range<u64>,
        count_max: usize,
    ) -> Result<Vec<Extent>, IoFailure> {
        match self.run(IoRequest::Extents { range, count_max })? {
            IoAnswer::Extents(extents) => Ok(extents),
            other @ (IoAnswer::Done | IoAnswer::Data(_) | IoAnswer::Device(_)) => {
                panic!("{other:?}")
            }
        }
    }

    fn expect_done(&mut self, request: IoRequest) -> Result<(), IoFailure> {
        let answer = self.run(request)?;
        assert!(matches!(answer, IoAnswer::Done), "{answer:?}");
        Ok(())
    }
}

fn name(operation: &RingOperation) -> String {
    match operation {
        RingOperation::Read {
            offset,
            buffer,
            done,
            ..
        } => format!(
            "read {}..{}",
            offset + *done as u64,
            offset + buffer.len() as u64
        ),
        RingOperation::Write {
            offset,
            data,
            done,
            durable,
            ..
        } => format!(
            "write{} {}..{}",
            if *durable { " durably" } else { "" },
            offset + *done as u64,
            offset + data.len() as u64
        ),
        RingOperation::Sync { .. } => "sync".to_owned(),
        RingOperation::Allocate { mode, range, .. } => format!("{mode:?} {range:?}"),
        RingOperation::Extents { range, .. } => format!("extents {range:?}"),
        RingOperation::Size { .. } => "size".to_owned(),
    }
}

pub(crate) fn data(range: Range<u64>) -> Extent {
    Extent {
        range,
        mapped: true,
    }
}

pub(crate) fn hole(range: Range<u64>) -> Extent {
    Extent {
        range,
        mapped: false,
    }
}

/// Bytes without a zero among them, different from block to block.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|n| u8::try_from((n / 512 * 31 + n) % 255 + 1).unwrap())
        .collect()
}
