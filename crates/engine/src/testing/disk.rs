//! A store that does what the test says, and counts what it is asked to do.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use memory::{Buffer, CoreMapping, MappedRange, Mapping, Payload};
use store::{
    AllocateMode, Backstore, Capabilities, FileHandle, HelperAnswer, HelperOperation, HelperResult,
    IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Place, RingOperation, StoreFile, Submitted,
};

/// The size of every store, in bytes.
pub const SIZE: u64 = 64 << 20;

pub const fn capabilities() -> Capabilities {
    Capabilities {
        size_bytes: SIZE,
        block_bytes: 512,
        physical_block_bytes: 512,
        read_only: false,
        thin: true,
        unmap_granularity_bytes: 512,
        reads_in_place: false,
        needs_own_buffer: false,
        volatile_cache: true,
        solid_state: true,
    }
}

/// How the store takes a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Take {
    Now,
    Fail(IoFailure),
    Ring,
    Helper,
    Pending,
    Full,
}

#[derive(Debug)]
struct State {
    capabilities: Capabilities,
    /// The size that is found when somebody looks.
    found_bytes: u64,
    take: Take,
    /// For the next requests, before `take`.
    next: VecDeque<Take>,
    log: Vec<String>,
    held: BTreeMap<u64, IoRequest>,
    pending: VecDeque<IoTag>,
    abandoned: Vec<IoTag>,
    /// It looks at its size on the ring, and not at once.
    probes_on_ring: bool,
    probes: usize,
    file: FileHandle,
    mapping: Option<Rc<CoreMapping>>,
}

/// The medium of all cores: blocks that are not zeros.
type Content = Rc<RefCell<BTreeMap<u64, Vec<u8>>>>;

/// The store, for the test.
#[derive(Clone, Debug)]
pub struct Disk {
    state: Rc<RefCell<State>>,
    content: Content,
}

/// The store, for one core.
#[derive(Debug)]
struct Handle {
    capabilities: Capabilities,
    disk: Disk,
}

impl Disk {
    pub fn new(capabilities: &Capabilities) -> Self {
        Self::of(capabilities.clone(), Content::default())
    }

    fn of(capabilities: Capabilities, content: Content) -> Self {
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let file = StoreFile::new(Arc::new(null.into()), Place::unknown());
        let mapping = capabilities.reads_in_place.then(|| {
            let len = usize::try_from(capabilities.size_bytes).unwrap();
            CoreMapping::new(&Arc::new(Mapping::sparse(len).unwrap()))
        });
        let state = State {
            found_bytes: capabilities.size_bytes,
            capabilities,
            take: Take::Now,
            next: VecDeque::new(),
            log: Vec::new(),
            held: BTreeMap::new(),
            pending: VecDeque::new(),
            abandoned: Vec::new(),
            probes_on_ring: false,
            probes: 0,
            file: Rc::new(file),
            mapping,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
            content,
        }
    }

    /// The same medium for another core.
    pub fn other_handle(&self) -> Self {
        let capabilities = self.state.borrow().capabilities.clone();
        Self::of(capabilities, Rc::clone(&self.content))
    }

    pub fn store(&self) -> Box<dyn Backstore> {
        Box::new(Handle {
            capabilities: self.state.borrow().capabilities.clone(),
            disk: self.clone(),
        })
    }

    /// How it takes requests from now on.
    pub fn take(&self, take: Take) {
        self.state.borrow_mut().take = take;
    }

    /// How it takes the next requests.
    pub fn take_next(&self, next: impl IntoIterator<Item = Take>) {
        self.state.borrow_mut().next.extend(next);
    }

    /// What it was asked to do since the last call.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state.borrow_mut().log)
    }

    /// The first byte of a block.
    pub fn byte(&self, block: u64) -> u8 {
        self.content
            .borrow()
            .get(&block)
            .map_or(0, |block| block[0])
    }

    pub fn abandoned(&self) -> Vec<IoTag> {
        self.state.borrow().abandoned.clone()
    }

    /// The size that the store is found to have from now on.
    pub fn resize(&self, bytes: u64) {
        self.state.borrow_mut().found_bytes = bytes;
    }

    pub fn probe_on_ring(&self) {
        self.state.borrow_mut().probes_on_ring = true;
    }

    pub fn probes(&self) -> usize {
        self.state.borrow().probes
    }

    pub fn has_pending(&self) -> bool {
        !self.state.borrow().pending.is_empty()
    }

    /// The oldest request that it has kept to itself ends.
    pub fn finish_pending(&self) -> (IoTag, IoResult) {
        let tag = self.state.borrow_mut().pending.pop_front().unwrap();
        let request = self.state.borrow_mut().held.remove(&tag.0).unwrap();
        (tag, self.execute(request))
    }

    fn execute(&self, request: IoRequest) -> IoResult {
        match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => {
                let mapping = self.state.borrow().mapping.clone();
                if let Some(mapping) = mapping {
                    let offset = usize::try_from(offset).unwrap();
                    let range = MappedRange::new(&mapping, offset, len);
                    return Ok(IoAnswer::Data(Payload::Mapped(range)));
                }
                let mut buffer = buffer.expect("a buffer to read into");
                assert_eq!(buffer.len(), len);
                self.fill(offset, &mut buffer);
                Ok(IoAnswer::Data(Payload::Pool(buffer)))
            }
            IoRequest::Write { offset, data, .. } => {
                self.write(offset, &data.to_vec());
                Ok(IoAnswer::Done)
            }
            IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => {
                let mut content = self.content.borrow_mut();
                content.retain(|block, _| !range.contains(&(block * 512)));
                Ok(IoAnswer::Done)
            }
            IoRequest::Flush => Ok(IoAnswer::Done),
            IoRequest::Extents { range, .. } => Ok(IoAnswer::Extents(vec![store::Extent {
                range,
                mapped: true,
            }])),
        }
    }

    fn fill(&self, offset: u64, buffer: &mut Buffer) {
        buffer.fill(0);
        let first = offset / 512;
        let last = first + (buffer.len() / 512) as u64;
        for (block, bytes) in self.content.borrow().range(first..last) {
            let at = usize::try_from(block - first).unwrap() * 512;
            buffer[at..at + 512].copy_from_slice(bytes);
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let blocks = (offset / 512..).zip(bytes.chunks(512));
        let blocks = blocks.map(|(block, bytes)| (block, bytes.to_vec()));
        self.content.borrow_mut().extend(blocks);
    }

    fn ring(&self, request: IoRequest) -> RingOperation {
        let file = Rc::clone(&self.state.borrow().file);
        match request {
            IoRequest::Read { offset, buffer, .. } => RingOperation::Read {
                file,
                offset,
                buffer: buffer.expect("a buffer to read into"),
                done: 0,
            },
            IoRequest::Write {
                offset,
                data,
                durable,
            } => RingOperation::Write {
                file,
                offset,
                data,
                done: 0,
                durable,
            },
            IoRequest::Flush => RingOperation::Sync { file },
            IoRequest::Unmap { range } => RingOperation::Allocate {
                file,
                mode: AllocateMode::PunchHole,
                range,
            },
            IoRequest::WriteZeros { range, .. } => RingOperation::Allocate {
                file,
                mode: AllocateMode::ZeroRange,
                range,
            },
            IoRequest::Extents { range, .. } => RingOperation::Extents {
                file,
                range,
                block_bytes: 512,
                found: Vec::new(),
            },
        }
    }
}

/// The result of an operation that does all that is left.
pub fn whole(operation: &RingOperation) -> i32 {
    let bytes = match operation {
        RingOperation::Read { buffer, done, .. } => buffer.len() - done,
        RingOperation::Write { data, done, .. } => data.len() - done,
        RingOperation::Sync { .. }
        | RingOperation::Allocate { .. }
        | RingOperation::Extents { .. }
        | RingOperation::Size { .. } => 0,
    };
    i32::try_from(bytes).unwrap()
}

fn describe(request: &IoRequest) -> String {
    match request {
        IoRequest::Read { offset, len, .. } => format!("read {}+{}", offset / 512, len / 512),
        IoRequest::Write {
            offset,
            data,
            durable,
        } => {
            let durable = if *durable { " durably" } else { "" };
            format!("write {}+{}{durable}", offset / 512, data.len() / 512)
        }
        IoRequest::Flush => "flush".to_owned(),
        IoRequest::Unmap { range } => format!("unmap {}..{}", range.start / 512, range.end / 512),
        IoRequest::WriteZeros { range, .. } => {
            format!("zero {}..{}", range.start / 512, range.end / 512)
        }
        IoRequest::Extents { .. } => "extents".to_owned(),
    }
}

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest) -> Submitted {
        let take = {
            let mut state = self.disk.state.borrow_mut();
            let take = state.next.pop_front();
            let take = take.unwrap_or_else(|| state.take.clone());
            if take != Take::Full {
                state.log.push(describe(&request));
            }
            take
        };
        match take {
            Take::Now => Submitted::Done(self.disk.execute(request)),
            Take::Fail(failure) => Submitted::Done(Err(failure)),
            Take::Ring => Submitted::Ring(self.disk.ring(request)),
            Take::Full => Submitted::Full(request),
            Take::Pending => {
                let mut state = self.disk.state.borrow_mut();
                let before = state.held.insert(tag.0, request);
                assert!(before.is_none(), "two requests with one tag");
                state.pending.push_back(tag);
                Submitted::Pending
            }
            Take::Helper => {
                let mut state = self.disk.state.borrow_mut();
                let before = state.held.insert(tag.0, request);
                assert!(before.is_none(), "two requests with one tag");
                Submitted::Helper(HelperOperation {
                    name: "test",
                    work: Box::new(|| Ok(HelperAnswer::Done)),
                })
            }
        }
    }

    fn handle_ring_result(&mut self, _: IoTag, operation: RingOperation, result: i32) -> Submitted {
        let Ok(moved) = usize::try_from(result) else {
            return Submitted::Done(Err(match result {
                -125 => IoFailure::Cancelled,
                other => IoFailure::Hardware { errno: -other },
            }));
        };
        match operation {
            RingOperation::Read {
                file,
                offset,
                mut buffer,
                done,
            } if done + moved < buffer.len() => {
                buffer[done..].fill(0);
                Submitted::Ring(RingOperation::Read {
                    file,
                    offset,
                    buffer,
                    done: done + moved,
                })
            }
            RingOperation::Read {
                offset, mut buffer, ..
            } => {
                self.disk.fill(offset, &mut buffer);
                Submitted::Done(Ok(IoAnswer::Data(Payload::Pool(buffer))))
            }
            RingOperation::Write {
                file,
                offset,
                data,
                done,
                durable,
            } if done + moved < data.len() => Submitted::Ring(RingOperation::Write {
                file,
                offset,
                data,
                done: done + moved,
                durable,
            }),
            RingOperation::Write { offset, data, .. } => {
                self.disk.write(offset, &data.to_vec());
                Submitted::Done(Ok(IoAnswer::Done))
            }
            RingOperation::Allocate { range, .. } => {
                Submitted::Done(self.disk.execute(IoRequest::Unmap { range }))
            }
            RingOperation::Extents { range, .. } => {
                let count_max = 1;
                Submitted::Done(self.disk.execute(IoRequest::Extents { range, count_max }))
            }
            RingOperation::Sync { .. } | RingOperation::Size { .. } => {
                Submitted::Done(Ok(IoAnswer::Done))
            }
        }
    }

    fn handle_helper_result(&mut self, tag: IoTag, result: HelperResult) -> Submitted {
        let request = self.disk.state.borrow_mut().held.remove(&tag.0);
        Submitted::Done(match result {
            Ok(HelperAnswer::Done) => self.disk.execute(request.expect("a request")),
            Err(failure) => Err(failure),
        })
    }

    fn abandon(&mut self, tag: IoTag) {
        self.disk.state.borrow_mut().abandoned.push(tag);
    }

    fn probe(&mut self) -> Option<RingOperation> {
        let mut state = self.disk.state.borrow_mut();
        state.probes += 1;
        state.probes_on_ring.then(|| RingOperation::Size {
            file: Rc::clone(&state.file),
            is_block_device: false,
            bytes: 0,
        })
    }

    fn handle_probed(&mut self, _: RingOperation, _: i32) {}

    fn refresh_size(&mut self) -> Option<u64> {
        let found = self.disk.state.borrow().found_bytes;
        let before = std::mem::replace(&mut self.capabilities.size_bytes, found);
        (before != found).then_some(found)
    }
}
