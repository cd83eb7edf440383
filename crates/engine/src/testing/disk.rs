//! A store that does what the test says, and counts what it is asked to do.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use memory::{CoreMapping, MappedRange, Mapping, Payload};
use store::{
    AllocateMode, Backstore, Capabilities, DeviceAnswer, DeviceRequest, Durability, Extent,
    FileHandle, HelperAnswer, HelperOperation, HelperResult, IoAnswer, IoFailure, IoRequest,
    IoResult, IoTag, Outlet, PartTag, Place, RingOperation, StoreFile, Submitted,
};

/// The size of every store, in bytes.
pub const SIZE: u64 = 64 << 20;

pub const fn capabilities() -> Capabilities {
    Capabilities {
        thin: true,
        volatile_cache: true,
        ..Capabilities::plain(SIZE, 512)
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
    is_all_flushed: bool,
    /// How often it has lost what it had answered, if it ever does.
    lost: Option<u64>,
    take: Take,
    /// For the next requests, before `take`.
    next: VecDeque<Take>,
    log: Vec<String>,
    held: BTreeMap<u64, IoRequest>,
    pending: VecDeque<IoTag>,
    /// Answers that wait for a wake.
    answers: Vec<(IoTag, IoResult)>,
    /// What it reports of another client when it is woken.
    held_elsewhere: Option<bool>,
    cancelled: Vec<IoTag>,
    last_tag: Option<IoTag>,
    /// It looks at its size on the ring, and not at once.
    probes_on_ring: bool,
    probes: usize,
    is_probing: bool,
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
            is_all_flushed: false,
            lost: None,
            capabilities,
            take: Take::Now,
            next: VecDeque::new(),
            log: Vec::new(),
            held: BTreeMap::new(),
            pending: VecDeque::new(),
            answers: Vec::new(),
            held_elsewhere: None,
            cancelled: Vec::new(),
            last_tag: None,
            probes_on_ring: false,
            probes: 0,
            is_probing: false,
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

    /// The tag of the last request.
    pub fn last_tag(&self) -> IoTag {
        self.state.borrow().last_tag.expect("a request")
    }

    pub fn cancelled(&self) -> Vec<IoTag> {
        self.state.borrow().cancelled.clone()
    }

    /// The store knows that nothing was written since its last flush.
    pub fn know_all_flushed(&self) {
        self.state.borrow_mut().is_all_flushed = true;
    }

    /// How often the store has lost what it had answered: it is one that may.
    pub fn set_lost(&self, lost: u64) {
        self.state.borrow_mut().lost = Some(lost);
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

    /// The oldest request that it has kept to itself ends: the store answers when it is woken.
    pub fn finish_pending(&self) -> IoTag {
        let tag = self.state.borrow_mut().pending.pop_front().unwrap();
        let request = self.state.borrow_mut().held.remove(&tag.0).unwrap();
        let result = self.execute(request);
        self.answer(tag, result);
        tag
    }

    /// The store answers this when it is woken, whether it was asked or not.
    pub fn answer(&self, tag: IoTag, result: IoResult) {
        self.state.borrow_mut().answers.push((tag, result));
    }

    /// The store reports when it is woken that another client has the medium, or has it no more.
    pub fn hold_elsewhere(&self, is_held: bool) {
        self.state.borrow_mut().held_elsewhere = Some(is_held);
    }

    fn execute(&self, request: IoRequest) -> IoResult {
        match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => {
                let mapping = self.state.borrow().mapping.clone();
                if let Some(mapping) = mapping.filter(|_| buffer.is_none()) {
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
            IoRequest::CompareAndWrite { offset, data, .. } => {
                let (bytes, half) = (data.to_vec(), data.len() / 2);
                let old = self.bytes(offset, half);
                if let Some(at) = (0..half).find(|&at| bytes[at] != old[at]) {
                    return Err(IoFailure::Miscompare { offset: at as u64 });
                }
                self.write(offset, &bytes[half..]);
                Ok(IoAnswer::Done)
            }
            IoRequest::Flush => Ok(IoAnswer::Done),
            IoRequest::Extents { range, count_max } => {
                Ok(IoAnswer::Extents(self.extents(range, count_max)))
            }
            IoRequest::Device(asked) => Ok(IoAnswer::Device(Box::new(answer_of(*asked)))),
        }
    }

    /// Blocks have space from when they are written until they are unmapped or zeroed.
    fn extents(&self, range: Range<u64>, count_max: usize) -> Vec<Extent> {
        let content = self.content.borrow();
        let mut extents: Vec<Extent> = Vec::new();
        for at in range.step_by(512) {
            let mapped = content.contains_key(&(at / 512));
            let is_full = extents.len() == count_max;
            let range = at..at + 512;
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.range.end = range.end,
                Some(_) if is_full => break,
                Some(_) | None => extents.push(Extent { range, mapped }),
            }
        }
        extents
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(offset, &mut bytes);
        bytes
    }

    fn fill(&self, offset: u64, buffer: &mut [u8]) {
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
            IoRequest::Flush | IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                RingOperation::Sync { file }
            }
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

/// A device that gives half of what there is room for, and says that this is less than was asked for.
fn answer_of(asked: DeviceRequest) -> DeviceAnswer {
    let Some(mut buffer) = asked.buffer else {
        return DeviceAnswer {
            status: 0,
            sense: Vec::new(),
            data: Payload::Empty,
            transfer_bytes: asked.data_out.len() as u64,
        };
    };
    buffer.fill(asked.cdb[0]);
    let given = buffer.len() / 2;
    buffer.set_len(given);
    let mut sense = vec![0; 252];
    (sense[0], sense[2], sense[251]) = (0xf0, 0x20, 0x99);
    DeviceAnswer {
        status: 2,
        sense,
        data: Payload::Pool(buffer),
        transfer_bytes: given as u64,
    }
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
        IoRequest::CompareAndWrite { offset, data, .. } => {
            format!("compare and write {}+{}", offset / 512, data.len() / 1024)
        }
        IoRequest::Flush => "flush".to_owned(),
        IoRequest::Unmap { range } => format!("unmap {}..{}", range.start / 512, range.end / 512),
        IoRequest::WriteZeros { range, .. } => {
            format!("zero {}..{}", range.start / 512, range.end / 512)
        }
        IoRequest::Extents { .. } => "extents".to_owned(),
        IoRequest::Device(asked) => format!("device {:02x}", asked.cdb[0]),
    }
}

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        let state = self.disk.state.borrow();
        Durability {
            may_have_unflushed: !state.is_all_flushed,
            lost: state.lost,
            lost_before: 0,
        }
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let take = {
            let mut state = self.disk.state.borrow_mut();
            let take = state.next.pop_front();
            let take = take.unwrap_or_else(|| state.take.clone());
            assert_ne!(state.last_tag, Some(tag), "two requests with one tag");
            state.last_tag = Some(tag);
            if take != Take::Full {
                state.log.push(describe(&request));
            }
            take
        };
        match take {
            Take::Now => return Submitted::Done(self.disk.execute(request)),
            Take::Fail(failure) => return Submitted::Done(Err(failure)),
            Take::Ring => outlet.ring(PartTag::of(tag), self.disk.ring(request)),
            Take::Full => outlet.give_back(request),
            Take::Pending => {
                let mut state = self.disk.state.borrow_mut();
                let before = state.held.insert(tag.0, request);
                assert!(before.is_none(), "two requests with one tag");
                state.pending.push_back(tag);
            }
            Take::Helper => {
                let mut state = self.disk.state.borrow_mut();
                let before = state.held.insert(tag.0, request);
                assert!(before.is_none(), "two requests with one tag");
                let operation = HelperOperation {
                    name: "test",
                    work: Box::new(|| Ok(HelperAnswer::Done)),
                };
                outlet.help(PartTag::of(tag), operation);
            }
        }
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, outlet: &mut Outlet) {
        self.disk.state.borrow_mut().cancelled.push(tag);
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
            self.disk.state.borrow_mut().is_probing = false;
            outlet.look_at_size();
            return;
        };
        let is_cancelled = self.disk.state.borrow().cancelled.contains(&tag);
        match self.disk.advance(operation, result) {
            Ok(answer) => outlet.answer(tag, answer),
            Err(_) if is_cancelled => outlet.answer(tag, Err(IoFailure::Cancelled)),
            Err(rest) => outlet.ring(part, rest),
        }
    }

    fn handle_helper_result(&mut self, part: PartTag, result: HelperResult, outlet: &mut Outlet) {
        let tag = part.request.expect("helpers work for requests");
        let request = self.disk.state.borrow_mut().held.remove(&tag.0);
        let result = match result {
            Ok(_) => self.disk.execute(request.expect("a request")),
            Err(failure) => Err(failure),
        };
        outlet.answer(tag, result);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let answers = std::mem::take(&mut self.disk.state.borrow_mut().answers);
        for (tag, result) in answers {
            outlet.answer(tag, result);
        }
        let held = self.disk.state.borrow_mut().held_elsewhere.take();
        if let Some(is_held) = held {
            outlet.report_held_elsewhere(is_held);
        }
    }

    fn probe(&mut self, outlet: &mut Outlet) {
        let mut state = self.disk.state.borrow_mut();
        if state.probes_on_ring && std::mem::replace(&mut state.is_probing, true) {
            return;
        }
        state.probes += 1;
        if state.probes_on_ring {
            let operation = RingOperation::Size {
                file: Rc::clone(&state.file),
                is_block_device: false,
                bytes: 0,
            };
            outlet.ring(PartTag::own(0), operation);
        } else {
            outlet.look_at_size();
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let state = self.disk.state.borrow();
        let found = state.found_bytes;
        let before = std::mem::replace(&mut self.capabilities.size_bytes, found);
        (before != found).then_some(found)
    }
}

impl Disk {
    /// What comes of an operation: the answer, or the operation for the rest.
    fn advance(&self, operation: RingOperation, result: i32) -> Result<IoResult, RingOperation> {
        let Ok(moved) = usize::try_from(result) else {
            return Ok(Err(match result {
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
                return Err(RingOperation::Read {
                    file,
                    offset,
                    buffer,
                    done: done + moved,
                });
            }
            RingOperation::Read {
                offset, mut buffer, ..
            } => {
                self.fill(offset, &mut buffer);
                return Ok(Ok(IoAnswer::Data(Payload::Pool(buffer))));
            }
            RingOperation::Write {
                file,
                offset,
                data,
                done,
                durable,
            } if done + moved < data.len() => {
                return Err(RingOperation::Write {
                    file,
                    offset,
                    data,
                    done: done + moved,
                    durable,
                });
            }
            RingOperation::Write { offset, data, .. } => self.write(offset, &data.to_vec()),
            RingOperation::Allocate { range, .. } => {
                return Ok(self.execute(IoRequest::Unmap { range }));
            }
            RingOperation::Extents { range, .. } => {
                let count_max = 1;
                return Ok(self.execute(IoRequest::Extents { range, count_max }));
            }
            RingOperation::Sync { .. } | RingOperation::Size { .. } => {}
        }
        Ok(Ok(IoAnswer::Done))
    }
}
