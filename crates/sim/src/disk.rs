//! A disk that is slow, full, torn, forgetful or silent.
//!
//! One medium, and a [`Backstore`] handle on it for each core. A request waits here until the
//! world says how it ends ([`Fate`]); only then does it take effect, so requests overtake each
//! other. With a volatile cache, what was not flushed may be gone after a crash, block by block. A forgetful one is
//! somewhere else: its cache goes alone, and it goes on, as a server does that was started again.
//!
//! A disk may lie on two parts, which the composition that ships puts together ([`Layout`]). Its blocks are counted as
//! initiators see them; where they are on the parts is reckoned here, by nothing that ships.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use memory::Payload;
use store::{
    Backstore, Bottom, Capabilities, Composed, Durability, Extent, Form, IoAnswer, IoFailure,
    IoRequest, IoResult, IoTag, Journal, Member, Outlet, SharedStore, Submitted,
};

use crate::log::medium::Medium as Log;
use crate::prng::Prng;
use crate::sabotage::Sabotage;

/// Logical block length, in bytes.
pub const BLOCK_BYTES: usize = 512;

/// Names a request that waits in the disk.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RequestId(u64);

/// How a request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// As it should.
    Good,
    /// With an error and without an effect.
    Failed,
    /// With an error after a part of it has taken effect.
    Torn,
    /// As it should, and then once more, with an error.
    Twice,
    /// With a failure that passes, and with a part of its effect or none.
    Away,
    /// Not until the world says otherwise.
    Hangs,
}

/// A request for blocks that a core has given to the disk.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Begun {
    /// Which core.
    pub core: usize,
    /// What it reads or writes.
    pub blocks: Range<usize>,
}

/// How a disk lies on its parts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Layout {
    /// On one.
    #[default]
    Whole,
    /// So many blocks on the first part, all others on the second.
    Concat(usize),
    /// On both in turn, so many blocks at a time.
    Stripe(usize),
}

impl Layout {
    fn parts(self) -> Range<usize> {
        match self {
            Self::Whole => 0..1,
            Self::Concat(_) | Self::Stripe(_) => 0..2,
        }
    }

    /// The part that has a block.
    pub const fn part_of(self, block: usize) -> usize {
        match self {
            Self::Whole => 0,
            Self::Concat(first) => (block >= first) as usize,
            Self::Stripe(chunk) => block / chunk % 2,
        }
    }

    /// The block of the disk that is this one of a part.
    const fn block(self, part: usize, at: usize) -> usize {
        match self {
            Self::Whole => at,
            Self::Concat(first) => part * first + at,
            Self::Stripe(chunk) => (at / chunk * 2 + part) * chunk + at % chunk,
        }
    }

    /// How many blocks a part has, of a disk of so many.
    const fn blocks_of(self, part: usize, blocks: usize) -> usize {
        match (self, part) {
            (Self::Whole, _) => blocks,
            (Self::Concat(first), 0) => first,
            (Self::Concat(first), _) => blocks - first,
            (Self::Stripe(_), _) => blocks / 2,
        }
    }
}

/// Who has given a request to the disk: a core, for one of its parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Place {
    core: usize,
    part: usize,
}

#[derive(Debug)]
struct Waiting {
    place: Place,
    tag: IoTag,
    request: IoRequest,
}

#[derive(Debug)]
struct State {
    capabilities: Capabilities,
    layout: Layout,
    /// Its log, and the device of that.
    log: Option<(Journal, Log)>,
    /// What a read gives.
    content: Vec<u8>,
    /// What is left after a crash.
    durable: Vec<u8>,
    /// Blocks of which the two may differ.
    dirty: BTreeSet<usize>,
    mapped: Vec<bool>,
    /// The blocks that may have space. `None`: all.
    may_have: Option<Vec<bool>>,
    /// A block that got space all the same.
    beyond: Option<usize>,
    waiting: BTreeMap<RequestId, Waiting>,
    /// Of those that wait, the ones that nobody needs any more.
    cancelled: BTreeSet<RequestId>,
    /// Answers that each core takes when it is woken.
    answers: Vec<(Place, IoTag, IoResult)>,
    /// Requests that have no fate yet.
    arrivals: Vec<RequestId>,
    next_id: u64,
    /// How many requests of any core were no flushes.
    touched: u64,
    /// Requests for blocks that cores have begun.
    begun: Vec<Begun>,
    queue_max: usize,
    /// Of each part.
    is_latched: [bool; 2],
    /// How often its cache went with something that no flush had covered. `None`: that cannot happen.
    lost: Option<u64>,
    /// How many of those times were before the target began.
    lost_before: u64,
    prng: Prng,
    sabotage: Option<Sabotage>,
}

/// The disk, for the world.
#[derive(Clone, Debug)]
pub struct Disk(Rc<RefCell<State>>);

/// A part of the disk, for one core.
#[derive(Debug)]
struct Handle {
    disk: Disk,
    place: Place,
    capabilities: Capabilities,
}

thread_local! {
    /// The disk of which a composition asks for handles of its parts, and the core that it is for. A composition may be
    /// known to many threads, and no disk is.
    static ASKED: RefCell<Option<(Disk, usize)>> = const { RefCell::new(None) };
}

/// A part of a disk as compositions take it.
#[derive(Debug)]
struct Part {
    number: usize,
    capabilities: Capabilities,
}

impl SharedStore for Part {
    fn inner(&self) -> &dyn SharedStore {
        &Bottom
    }

    fn handle(&self) -> io::Result<Box<dyn Backstore>> {
        let asked = ASKED.with_borrow(Option::clone);
        let (disk, core) = asked.ok_or(io::ErrorKind::NotFound)?;
        Ok(disk.part(core, self.number))
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }
}

impl Disk {
    /// A disk of zeros. It takes `queue_max` requests of each core at a time.
    pub fn new(blocks: usize, volatile_cache: bool, queue_max: usize, prng: Prng) -> Self {
        let size = blocks * BLOCK_BYTES;
        let block_bytes = u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX);
        let capabilities = Capabilities {
            thin: true,
            volatile_cache,
            ..Capabilities::plain(size as u64, block_bytes)
        };
        Self(Rc::new(RefCell::new(State {
            capabilities,
            layout: Layout::Whole,
            log: None,
            content: vec![0; size],
            durable: vec![0; size],
            dirty: BTreeSet::new(),
            mapped: vec![false; blocks],
            may_have: None,
            beyond: None,
            waiting: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            answers: Vec::new(),
            arrivals: Vec::new(),
            next_id: 0,
            touched: 0,
            begun: Vec::new(),
            queue_max,
            is_latched: [false; 2],
            lost: None,
            lost_before: 0,
            prng,
            sabotage: None,
        })))
    }

    /// It lies so on its parts. Nobody has a handle yet.
    pub fn lay(&self, layout: Layout) {
        self.0.borrow_mut().layout = layout;
    }

    /// What has to be durable goes to this log. Nobody has a handle yet.
    pub(crate) fn log_to(&self, journal: Journal, device: Log) {
        self.0.borrow_mut().log = Some((journal, device));
    }

    /// How it lies on its parts.
    pub fn layout(&self) -> Layout {
        self.0.borrow().layout
    }

    /// The part that a request is for that waits.
    pub fn part_of(&self, id: RequestId) -> Option<usize> {
        let state = self.0.borrow();
        state.waiting.get(&id).map(|one| one.place.part)
    }

    /// Its cache may go alone from now on.
    pub fn be_forgetful(&self) {
        self.0.borrow_mut().lost = Some(0);
    }

    /// From now on something is wrong with it.
    pub fn sabotage(&self, sabotage: Sabotage) {
        self.0.borrow_mut().sabotage = Some(sabotage);
    }

    /// How many blocks it has.
    pub fn blocks(&self) -> usize {
        self.0.borrow().mapped.len()
    }

    /// It has so many blocks from now on, the new ones of zeros. Handles learn it when they are asked.
    pub fn grow(&self, blocks: usize) {
        let mut state = self.0.borrow_mut();
        let size = blocks * BLOCK_BYTES;
        state.capabilities.size_bytes = size as u64;
        state.content.resize(size, 0);
        state.durable.resize(size, 0);
        state.mapped.resize(blocks, false);
        if let Some(may_have) = &mut state.may_have {
            may_have.resize(blocks, false);
        }
    }

    /// How many blocks have space.
    pub fn taken(&self) -> usize {
        let state = self.0.borrow();
        state.mapped.iter().filter(|mapped| **mapped).count()
    }

    /// No other block is to get space from now on than those that have some, that a request writes that waits, and
    /// these.
    pub fn limit(&self, these: &[Range<usize>]) {
        let mut state = self.0.borrow_mut();
        let mut may_have = state.mapped.clone();
        let writes = state.waiting.values().filter(|one| is_write(&one.request));
        let blocks = writes.filter_map(|one| Some((one.place.part, touched(&one.request)?)));
        for (part, blocks) in blocks {
            blocks.for_each(|at| may_have[state.layout.block(part, at)] = true);
        }
        for block in these.iter().cloned().flatten() {
            may_have
                .get_mut(block)
                .into_iter()
                .for_each(|may| *may = true);
        }
        state.may_have = Some(may_have);
    }

    /// All blocks may get space again.
    pub fn end_limit(&self) {
        self.0.borrow_mut().may_have = None;
    }

    /// A block that got space in spite of a limit.
    pub fn beyond(&self) -> Option<usize> {
        self.0.borrow().beyond
    }

    /// What it is.
    pub fn capabilities(&self) -> Capabilities {
        self.handle(0).capabilities().clone()
    }

    /// A handle for a core.
    pub fn handle(&self, core: usize) -> Box<dyn Backstore> {
        let store = self.without_log(core);
        match &self.0.borrow().log {
            Some((journal, device)) => journal.handle(store, device.handle(core)),
            None => store,
        }
    }

    fn without_log(&self, core: usize) -> Box<dyn Backstore> {
        let form = match self.layout() {
            Layout::Whole => return self.part(core, 0),
            Layout::Concat(_) => Form::Concat,
            Layout::Stripe(chunk) => Form::Stripe {
                chunk_bytes: (chunk * BLOCK_BYTES) as u64,
            },
        };
        ASKED.set(Some((self.clone(), core)));
        let composed = self.compose(form);
        ASKED.set(None);
        composed
    }

    #[expect(
        clippy::expect_used,
        reason = "its parts are alike, and whole chunks long"
    )]
    fn compose(&self, form: Form) -> Box<dyn Backstore> {
        let member = |number| Member {
            name: format!("part {number}"),
            store: Arc::new(Part {
                number,
                capabilities: self.0.borrow().capabilities_of(number),
            }),
            bytes: None,
        };
        let members = self.layout().parts().map(member).collect();
        let composed = Composed::new(form, members, false).expect("parts that fit together");
        composed.handle().expect("a disk that was named")
    }

    /// A handle of a part for a core.
    fn part(&self, core: usize, part: usize) -> Box<dyn Backstore> {
        Box::new(Handle {
            disk: self.clone(),
            place: Place { core, part },
            capabilities: self.0.borrow().capabilities_of(part),
        })
    }

    /// Requests that came since the last call and wait for their fate.
    pub fn take_arrivals(&self) -> Vec<RequestId> {
        std::mem::take(&mut self.0.borrow_mut().arrivals)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.0.borrow().waiting.len()
    }

    /// Requests for blocks that cores have begun since the last call, also those that were over at once.
    pub fn take_begun(&self) -> Vec<Begun> {
        std::mem::take(&mut self.0.borrow_mut().begun)
    }

    /// The blocks that a request of a core may still write. `None` when it is over, or writes nothing.
    pub fn writing(&self, core: usize, tag: u64) -> Option<Range<usize>> {
        let state = self.0.borrow();
        let is_it = |one: &&Waiting| one.place.core == core && one.tag == IoTag(tag);
        let waiting = state.waiting.values().find(is_it)?;
        touched(&waiting.request).filter(|_| is_write(&waiting.request))
    }

    /// Whether a request waits that writes what this write is to write.
    pub fn is_writing(&self, id: u64) -> bool {
        let state = self.0.borrow();
        state.waiting.values().any(|one| match &one.request {
            IoRequest::Write { data, .. } => data.to_vec().starts_with(&id.to_be_bytes()),
            IoRequest::Read { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::CompareAndWrite { .. }
            | IoRequest::Unmap { .. }
            | IoRequest::Flush
            | IoRequest::Extents { .. }
            | IoRequest::Device(_) => false,
        })
    }

    /// How many requests for blocks cores have begun since [`Disk::take_begun`].
    pub fn begun_count(&self) -> usize {
        self.0.borrow().begun.len()
    }

    /// How many requests there were that were no flushes: a medium that is out gets none.
    pub fn touched(&self) -> u64 {
        self.0.borrow().touched
    }

    /// A request takes effect and ends. Gives the core that has to be woken for its answer; `None` if a crash
    /// has ended it before, or it hangs.
    pub fn complete(&self, id: RequestId, fate: Fate) -> Option<usize> {
        let mut state = self.0.borrow_mut();
        if fate == Fate::Hangs {
            return None;
        }
        let Waiting {
            place,
            tag,
            request,
        } = state.waiting.remove(&id)?;
        let part = place.part;
        let is_cancelled = state.cancelled.remove(&id) && state.prng.chance(500);
        let result = match fate {
            _ if is_cancelled => {
                if is_write(&request) && state.prng.chance(300) {
                    // Some of it has taken effect, which nobody is told.
                    drop(state.execute(part, request, Fate::Torn));
                }
                Err(IoFailure::Cancelled)
            }
            Fate::Away => {
                if is_write(&request) && state.prng.chance(500) {
                    drop(state.execute(part, request, Fate::Torn));
                }
                Err(IoFailure::NotReady)
            }
            Fate::Twice => state.execute(part, request, Fate::Good),
            Fate::Good | Fate::Failed | Fate::Torn | Fate::Hangs => {
                state.execute(part, request, fate)
            }
        };
        state.answers.push((place, tag, result));
        if fate == Fate::Twice {
            let failure = Err(IoFailure::Medium { offset: 0 });
            state.answers.push((place, tag, failure));
        }
        Some(place.core)
    }

    /// In words, for the trace.
    pub fn describe(&self, id: RequestId) -> String {
        let state = self.0.borrow();
        let Some(waiting) = state.waiting.get(&id) else {
            return "gone".to_owned();
        };
        let blocks = |range: &Range<u64>| blocks_of(range);
        match &waiting.request {
            IoRequest::Read { offset, len, .. } => {
                format!("read {:?}", blocks(&(*offset..*offset + *len as u64)))
            }
            IoRequest::Write {
                offset,
                data,
                durable,
            } => {
                let range = blocks(&(*offset..*offset + data.len() as u64));
                format!("write {range:?}{}", if *durable { " durable" } else { "" })
            }
            IoRequest::CompareAndWrite { offset, .. } => format!("compare and write {offset}"),
            IoRequest::Flush => "flush".to_owned(),
            IoRequest::Unmap { range } => format!("unmap {:?}", blocks(range)),
            IoRequest::WriteZeros { range, .. } => format!("write zeros {:?}", blocks(range)),
            IoRequest::Extents { range, .. } => format!("extents {:?}", blocks(range)),
            IoRequest::Device(_) => "a command for a device".to_owned(),
        }
    }

    /// The machine stops: requests that wait take part of their effect or none and never end,
    /// and each block that was not durable may be lost.
    pub fn crash(&self) {
        let mut state = self.0.borrow_mut();
        state.arrivals.clear();
        state.answers.clear();
        state.cancelled.clear();
        for (_, waiting) in std::mem::take(&mut state.waiting) {
            let is_write = is_write(&waiting.request);
            if is_write && state.prng.chance(500) {
                // Whether it failed is nobody's to know any more.
                drop(state.execute(waiting.place.part, waiting.request, Fate::Torn));
            }
        }
        state.revert();
        state.is_latched = [false; 2];
        state.lost = state.lost.map(|_| 0);
        state.lost_before = 0;
    }

    /// After a crash of the target: the cache of a forgetful disk has gone, too, and it says so.
    pub fn lose_cache_before(&self) {
        let mut state = self.0.borrow_mut();
        state.lost = state.lost.map(|_| 1);
        state.lost_before = 1;
    }

    /// The cache of a forgetful disk goes: each block that was not durable may be lost. Requests that wait are done
    /// later, by what is there then.
    pub fn lose_cache(&self) {
        let mut state = self.0.borrow_mut();
        if !state.dirty.is_empty() {
            state.lost = state.lost.map(|lost| lost + 1);
        }
        state.revert();
    }

    /// What a read of everything would give.
    pub fn content(&self) -> Vec<u8> {
        self.0.borrow().content.clone()
    }
}

impl State {
    /// Some of what was not durable is durable after all, and the rest is gone.
    fn revert(&mut self) {
        for block in std::mem::take(&mut self.dirty) {
            if self.prng.chance(500) {
                self.persist(block);
            }
        }
        self.content.clone_from(&self.durable);
    }

    fn capabilities_of(&self, part: usize) -> Capabilities {
        let blocks = self.layout.blocks_of(part, self.mapped.len());
        Capabilities {
            size_bytes: (blocks * BLOCK_BYTES) as u64,
            ..self.capabilities.clone()
        }
    }

    /// Where a block of a part is in the bytes of the disk.
    const fn bytes_of(&self, part: usize, at: usize) -> Range<usize> {
        let start = self.layout.block(part, at) * BLOCK_BYTES;
        start..start + BLOCK_BYTES
    }

    /// A part carries a request out. Its blocks are those of the part.
    fn execute(&mut self, part: usize, request: IoRequest, fate: Fate) -> IoResult {
        match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => self.read((part, offset, len), buffer, fate),
            IoRequest::Write {
                offset,
                data,
                durable,
            } => {
                let range = offset..offset + data.len() as u64;
                let bytes = data.to_vec();
                self.change((part, &range), durable, fate, |at, block| {
                    block.copy_from_slice(&bytes[at..at + BLOCK_BYTES]);
                    true
                })
            }
            IoRequest::WriteZeros { range, durable } => {
                self.change((part, &range), durable, fate, |_, block| {
                    block.fill(0);
                    true
                })
            }
            IoRequest::Unmap { range } => self.change((part, &range), false, fate, |_, block| {
                block.fill(0);
                false
            }),
            // It does not offer that.
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                Err(IoFailure::Hardware { errno: 0 })
            }
            IoRequest::Flush => self.flush(part, fate),
            IoRequest::Extents { range, count_max } => Ok(self.extents((part, &range), count_max)),
        }
    }

    fn read(
        &mut self,
        (part, offset, len): (usize, u64, usize),
        buffer: Option<memory::Buffer>,
        fate: Fate,
    ) -> IoResult {
        if fate != Fate::Good {
            return Err(IoFailure::Medium { offset });
        }
        let mut blocks = blocks_of(&(offset..offset + len as u64));
        if self.is_time_for(Sabotage::MisplaceReads) {
            let back = blocks.start.min(1);
            blocks = blocks.start - back..blocks.end - back;
        }
        let Some(mut buffer) = buffer else {
            return Err(IoFailure::Hardware { errno: 0 });
        };
        for (at, space) in blocks.zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            space.copy_from_slice(&self.content[self.bytes_of(part, at)]);
        }
        Ok(IoAnswer::Data(Payload::Pool(buffer)))
    }

    /// Changes block after block. `new` gives a block its content and says whether it is mapped.
    fn change(
        &mut self,
        (part, range): (usize, &Range<u64>),
        durable: bool,
        fate: Fate,
        new: impl Fn(usize, &mut [u8]) -> bool,
    ) -> IoResult {
        let failure = Err(IoFailure::Medium {
            offset: range.start,
        });
        if fate == Fate::Failed {
            return failure;
        }
        if durable && self.is_latched[part] {
            return Err(IoFailure::FlushLatched);
        }
        let blocks = blocks_of(range);
        let effective = match fate {
            Fate::Torn => self.prng.size(0, blocks.len().saturating_sub(1)),
            Fate::Good | Fate::Failed | Fate::Twice | Fate::Away | Fate::Hangs => blocks.len(),
        };
        if self.is_time_for(Sabotage::LoseWrites) {
            return Ok(IoAnswer::Done);
        }
        for (index, at) in blocks.take(effective).enumerate() {
            let (block, bytes) = (self.layout.block(part, at), self.bytes_of(part, at));
            let content = &mut self.content[bytes];
            self.mapped[block] = new(index * BLOCK_BYTES, content);
            let mut may_have = self.may_have.iter();
            if self.mapped[block] && may_have.any(|may_have| !may_have[block]) {
                self.beyond = Some(block);
            }
            if durable || !self.capabilities.volatile_cache {
                self.dirty.remove(&block);
                self.persist(block);
            } else {
                self.dirty.insert(block);
            }
        }
        if fate == Fate::Torn {
            failure
        } else {
            Ok(IoAnswer::Done)
        }
    }

    fn flush(&mut self, part: usize, fate: Fate) -> IoResult {
        if self.is_latched[part] {
            return Err(IoFailure::FlushLatched);
        }
        if fate != Fate::Good {
            self.is_latched[part] = true;
            return Err(IoFailure::Hardware { errno: 5 });
        }
        if self.sabotage == Some(Sabotage::FlushInVain) {
            return Ok(IoAnswer::Done);
        }
        let (layout, dirty) = (self.layout, std::mem::take(&mut self.dirty));
        let is_here = |block: &usize| layout.part_of(*block) == part;
        let (here, elsewhere) = dirty.into_iter().partition(is_here);
        self.dirty = elsewhere;
        BTreeSet::into_iter(here).for_each(|block| self.persist(block));
        Ok(IoAnswer::Done)
    }

    fn is_time_for(&mut self, sabotage: Sabotage) -> bool {
        self.sabotage == Some(sabotage) && self.prng.chance(100)
    }

    fn persist(&mut self, block: usize) {
        let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        let (durable, content) = (&mut self.durable[range.clone()], &self.content[range]);
        durable.copy_from_slice(content);
    }

    fn extents(&self, (part, range): (usize, &Range<u64>), count_max: usize) -> IoAnswer {
        let mut extents: Vec<Extent> = Vec::new();
        for at in blocks_of(range) {
            let mapped = self.mapped[self.layout.block(part, at)];
            let end = ((at + 1) * BLOCK_BYTES) as u64;
            if let Some(last) = extents.last_mut()
                && last.mapped == mapped
            {
                last.range.end = end;
            } else if extents.len() < count_max {
                let range = end - BLOCK_BYTES as u64..end;
                extents.push(Extent { range, mapped });
            } else {
                break;
            }
        }
        IoAnswer::Extents(extents)
    }
}

/// As a start has it, which replays a log.
impl store::Medium for Disk {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = self.0.borrow();
        let found = state.content.get(at(offset)..at(offset) + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let blocks = blocks_of(&(offset..offset + bytes.len() as u64));
        state.mapped[blocks.clone()].fill(true);
        state.dirty.extend(blocks);
        state.content[at(offset)..at(offset) + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn clear(&self, range: Range<u64>, unmap: bool) -> io::Result<()> {
        self.write(range.start, &vec![0; at(range.end) - at(range.start)])?;
        if unmap {
            self.0.borrow_mut().mapped[blocks_of(&range)].fill(false);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        for block in std::mem::take(&mut state.dirty) {
            state.persist(block);
        }
        Ok(())
    }
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let mut state = self.disk.0.borrow_mut();
        let own = |waiting: &&Waiting| waiting.place == self.place;
        if state.waiting.values().filter(own).count() >= state.queue_max {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        state.touched += u64::from(!matches!(request, IoRequest::Flush));
        let Place { core, part } = self.place;
        let begun = touched(&request).map(|blocks| Begun { core, blocks });
        state.begun.extend(begun);
        // As a page cache does: some requests are over before they wait.
        if !matches!(request, IoRequest::Flush) && state.prng.chance(100) {
            return Submitted::Done(state.execute(part, request, Fate::Good));
        }
        let id = RequestId(state.next_id);
        state.next_id += 1;
        let place = self.place;
        let waiting = Waiting {
            place,
            tag,
            request,
        };
        state.waiting.insert(id, waiting);
        state.arrivals.push(id);
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, _: &mut Outlet) {
        let mut state = self.disk.0.borrow_mut();
        let is_it = |(_, one): &(&RequestId, &Waiting)| one.place == self.place && one.tag == tag;
        let id = state.waiting.iter().find(is_it).map(|(id, _)| *id);
        state.cancelled.extend(id);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mut state = self.disk.0.borrow_mut();
        for (place, tag, result) in std::mem::take(&mut state.answers) {
            if place == self.place {
                outlet.answer(tag, result);
            } else {
                state.answers.push((place, tag, result));
            }
        }
    }

    fn durability(&self) -> Durability {
        let state = self.disk.0.borrow();
        Durability {
            may_have_unflushed: !state.dirty.is_empty(),
            lost: state.lost,
            lost_before: state.lost_before,
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        let size = self
            .disk
            .0
            .borrow()
            .capabilities_of(self.place.part)
            .size_bytes;
        let before = std::mem::replace(&mut self.capabilities.size_bytes, size);
        (size != before).then_some(size)
    }
}

/// The blocks of a range of bytes.
pub(crate) fn blocks_of(range: &Range<u64>) -> Range<usize> {
    let block = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX) / BLOCK_BYTES;
    block(range.start)..block(range.end)
}

/// The blocks that a request reads or writes; `None` of one that does neither.
fn touched(request: &IoRequest) -> Option<Range<usize>> {
    let from = |offset: u64, len: usize| blocks_of(&(offset..offset + len as u64));
    match request {
        IoRequest::Read { offset, len, .. } => Some(from(*offset, *len)),
        IoRequest::Write { offset, data, .. } => Some(from(*offset, data.len())),
        IoRequest::CompareAndWrite { offset, data, .. } => Some(from(*offset, data.len() / 2)),
        IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => Some(blocks_of(range)),
        IoRequest::Flush | IoRequest::Extents { .. } | IoRequest::Device(_) => None,
    }
}

const fn is_write(request: &IoRequest) -> bool {
    matches!(
        request,
        IoRequest::Write { .. }
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::CompareAndWrite { .. }
    )
}
