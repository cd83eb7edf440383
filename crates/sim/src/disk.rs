//! A disk that is slow, full, torn, forgetful or silent.
//!
//! One medium, and a [`Backstore`] handle on it for each core. A request waits here until the
//! world says how it ends ([`Fate`]); only then does it take effect, so requests overtake each
//! other. With a volatile cache, what was not flushed may be gone after a crash, block by block. A forgetful one is
//! somewhere else: its cache goes alone, and it goes on, as a server does that was started again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use memory::Payload;
use store::{
    Backstore, Capabilities, Durability, Extent, IoAnswer, IoFailure, IoRequest, IoResult, IoTag,
    Outlet, Submitted,
};

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

#[derive(Debug)]
struct Waiting {
    core: usize,
    tag: IoTag,
    request: IoRequest,
}

#[derive(Debug)]
struct State {
    capabilities: Capabilities,
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
    answers: Vec<(usize, IoTag, IoResult)>,
    /// Requests that have no fate yet.
    arrivals: Vec<RequestId>,
    next_id: u64,
    /// How many requests of any core were no flushes.
    touched: u64,
    /// Requests for blocks that cores have begun.
    begun: Vec<Begun>,
    queue_max: usize,
    is_latched: bool,
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

/// The disk, for one core.
#[derive(Debug)]
struct Handle {
    disk: Disk,
    core: usize,
    capabilities: Capabilities,
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
            is_latched: false,
            lost: None,
            lost_before: 0,
            prng,
            sabotage: None,
        })))
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

    /// No other block is to get space from now on than those that have some, or that a request writes that waits.
    pub fn limit(&self) {
        let mut state = self.0.borrow_mut();
        let mut may_have = state.mapped.clone();
        let writes = state.waiting.values().map(|one| &one.request);
        for blocks in writes.filter(|one| is_write(one)).filter_map(touched) {
            may_have[blocks].fill(true);
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
        self.0.borrow().capabilities.clone()
    }

    /// A handle for a core.
    pub fn handle(&self, core: usize) -> Box<dyn Backstore> {
        Box::new(Handle {
            disk: self.clone(),
            core,
            capabilities: self.capabilities(),
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
        let is_it = |one: &&Waiting| one.core == core && one.tag == IoTag(tag);
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
        let Waiting { core, tag, request } = state.waiting.remove(&id)?;
        let is_cancelled = state.cancelled.remove(&id) && state.prng.chance(500);
        let result = match fate {
            _ if is_cancelled => {
                if is_write(&request) && state.prng.chance(300) {
                    // A part of it has taken effect, which nobody is told.
                    drop(state.execute(request, Fate::Torn));
                }
                Err(IoFailure::Cancelled)
            }
            Fate::Away => {
                if is_write(&request) && state.prng.chance(500) {
                    drop(state.execute(request, Fate::Torn));
                }
                Err(IoFailure::NotReady)
            }
            Fate::Twice => state.execute(request, Fate::Good),
            Fate::Good | Fate::Failed | Fate::Torn | Fate::Hangs => state.execute(request, fate),
        };
        state.answers.push((core, tag, result));
        if fate == Fate::Twice {
            let failure = Err(IoFailure::Medium { offset: 0 });
            state.answers.push((core, tag, failure));
        }
        Some(core)
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
                drop(state.execute(waiting.request, Fate::Torn));
            }
        }
        state.revert();
        state.is_latched = false;
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

    fn execute(&mut self, request: IoRequest, fate: Fate) -> IoResult {
        match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => self.read(offset, len, buffer, fate),
            IoRequest::Write {
                offset,
                data,
                durable,
            } => {
                let range = offset..offset + data.len() as u64;
                let bytes = data.to_vec();
                self.change(&range, durable, fate, |at, block| {
                    block.copy_from_slice(&bytes[at..at + BLOCK_BYTES]);
                    true
                })
            }
            IoRequest::WriteZeros { range, durable } => {
                self.change(&range, durable, fate, |_, block| {
                    block.fill(0);
                    true
                })
            }
            IoRequest::Unmap { range } => self.change(&range, false, fate, |_, block| {
                block.fill(0);
                false
            }),
            // It does not offer that.
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                Err(IoFailure::Hardware { errno: 0 })
            }
            IoRequest::Flush => self.flush(fate),
            IoRequest::Extents { range, count_max } => Ok(self.extents(&range, count_max)),
        }
    }

    fn read(
        &mut self,
        offset: u64,
        len: usize,
        buffer: Option<memory::Buffer>,
        fate: Fate,
    ) -> IoResult {
        if fate != Fate::Good {
            return Err(IoFailure::Medium { offset });
        }
        let mut start = usize::try_from(offset).unwrap_or(usize::MAX);
        if self.is_time_for(Sabotage::MisplaceReads) {
            start = start.saturating_sub(BLOCK_BYTES);
        }
        let bytes = &self.content[start..start + len];
        let Some(mut buffer) = buffer else {
            return Err(IoFailure::Hardware { errno: 0 });
        };
        buffer.copy_from_slice(bytes);
        Ok(IoAnswer::Data(Payload::Pool(buffer)))
    }

    /// Changes block after block. `new` gives a block its content and says whether it is mapped.
    fn change(
        &mut self,
        range: &Range<u64>,
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
        if durable && self.is_latched {
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
        for (index, block) in blocks.take(effective).enumerate() {
            let at = block * BLOCK_BYTES;
            let content = &mut self.content[at..at + BLOCK_BYTES];
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

    fn flush(&mut self, fate: Fate) -> IoResult {
        if self.is_latched {
            return Err(IoFailure::FlushLatched);
        }
        if fate != Fate::Good {
            self.is_latched = true;
            return Err(IoFailure::Hardware { errno: 5 });
        }
        if self.sabotage == Some(Sabotage::FlushInVain) {
            return Ok(IoAnswer::Done);
        }
        for block in std::mem::take(&mut self.dirty) {
            self.persist(block);
        }
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

    fn extents(&self, range: &Range<u64>, count_max: usize) -> IoAnswer {
        let mut extents: Vec<Extent> = Vec::new();
        for block in blocks_of(range) {
            let mapped = self.mapped[block];
            let end = ((block + 1) * BLOCK_BYTES) as u64;
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

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let mut state = self.disk.0.borrow_mut();
        let own = |waiting: &&Waiting| waiting.core == self.core;
        if state.waiting.values().filter(own).count() >= state.queue_max {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        state.touched += u64::from(!matches!(request, IoRequest::Flush));
        let core = self.core;
        let begun = touched(&request).map(|blocks| Begun { core, blocks });
        state.begun.extend(begun);
        // As a page cache does: some requests are over before they wait.
        if !matches!(request, IoRequest::Flush) && state.prng.chance(100) {
            return Submitted::Done(state.execute(request, Fate::Good));
        }
        let id = RequestId(state.next_id);
        state.next_id += 1;
        state.waiting.insert(id, Waiting { core, tag, request });
        state.arrivals.push(id);
        Submitted::Taken
    }

    fn cancel(&mut self, tag: IoTag, _: &mut Outlet) {
        let mut state = self.disk.0.borrow_mut();
        let is_it = |(_, one): &(&RequestId, &Waiting)| one.core == self.core && one.tag == tag;
        let id = state.waiting.iter().find(is_it).map(|(id, _)| *id);
        state.cancelled.extend(id);
    }

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mut state = self.disk.0.borrow_mut();
        for (core, tag, result) in std::mem::take(&mut state.answers) {
            if core == self.core {
                outlet.answer(tag, result);
            } else {
                state.answers.push((core, tag, result));
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
        let size = self.disk.0.borrow().capabilities.size_bytes;
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

#[cfg(test)]
mod tests {
    use store::Order;

    use super::*;

    /// Writes `byte` to one block and waits for nothing.
    fn write(disk: &Disk, block: usize, byte: u8, durable: bool) -> RequestId {
        let mut handle = disk.handle(0);
        loop {
            let request = IoRequest::Write {
                offset: (block * BLOCK_BYTES) as u64,
                data: Payload::Heap(vec![byte; BLOCK_BYTES]),
                durable,
            };
            if let Submitted::Taken = handle.submit(IoTag(0), request, &mut Outlet::default()) {
                return *disk.take_arrivals().last().unwrap();
            }
        }
    }

    fn flush(disk: &Disk) -> RequestId {
        let outlet = &mut Outlet::default();
        let submitted = disk.handle(0).submit(IoTag(1), IoRequest::Flush, outlet);
        assert!(matches!(submitted, Submitted::Taken));
        *disk.take_arrivals().last().unwrap()
    }

    /// The request ends, and these are its answers.
    fn end(disk: &Disk, id: RequestId, fate: Fate) -> Vec<IoResult> {
        let core = disk.complete(id, fate).unwrap();
        let mut outlet = Outlet::default();
        disk.handle(core).handle_wake(&mut outlet);
        let orders = std::iter::from_fn(|| outlet.next_order());
        let answer = |order| {
            let Order::Answer { result, .. } = order else {
                panic!("{order:?}")
            };
            result
        };
        orders.map(answer).collect()
    }

    fn disk(volatile_cache: bool) -> Disk {
        Disk::new(8, volatile_cache, 64, Prng::new(5))
    }

    #[test]
    fn a_request_takes_effect_when_it_ends_and_not_before() {
        let disk = disk(true);
        let first = write(&disk, 0, 1, false);
        let second = write(&disk, 0, 2, false);
        assert!(disk.complete(second, Fate::Hangs).is_none());
        assert!(matches!(end(&disk, second, Fate::Good)[..], [Ok(_)]));
        assert_eq!(disk.content()[0], 2);
        assert!(disk.complete(first, Fate::Good).is_some());
        assert_eq!(disk.content()[0], 1);
        assert!(disk.complete(first, Fate::Good).is_none());
        assert_eq!(disk.waiting(), 0);
    }

    #[test]
    fn a_crash_spares_what_was_durable_and_nothing_else_for_certain() {
        let mut survived = [0, 0];
        for seed in 0..50 {
            let disk = Disk::new(8, true, 64, Prng::new(seed));
            for (block, durable) in [(0, true), (1, false)] {
                let id = write(&disk, block, 7, durable);
                disk.complete(id, Fate::Good);
            }
            disk.crash();
            for (block, count) in survived.iter_mut().enumerate() {
                *count += usize::from(disk.content()[block * BLOCK_BYTES] == 7);
            }
        }
        assert_eq!(survived[0], 50);
        assert!((1..50).contains(&survived[1]), "{survived:?}");
    }

    #[test]
    fn a_flush_makes_durable_what_ended_before_it() {
        let disk = disk(true);
        let id = write(&disk, 3, 9, false);
        assert!(matches!(end(&disk, id, Fate::Good)[..], [Ok(_)]));
        let id = flush(&disk);
        assert!(matches!(end(&disk, id, Fate::Good)[..], [Ok(_)]));
        disk.crash();
        assert_eq!(disk.content()[3 * BLOCK_BYTES], 9);
    }

    #[test]
    fn a_forgetful_disk_counts_what_goes_with_its_cache() {
        let mut survived = 0;
        for seed in 0..50 {
            let disk = Disk::new(8, true, 64, Prng::new(seed));
            disk.be_forgetful();
            let handle = disk.handle(0);
            disk.lose_cache();
            let found = || handle.durability();
            assert_eq!(found().lost, Some(0), "there was nothing to lose");
            let id = write(&disk, 1, 7, false);
            disk.complete(id, Fate::Good);
            let waits = write(&disk, 2, 8, false);
            disk.lose_cache();
            assert!(found().lost == Some(1) && !found().may_have_unflushed);
            survived += usize::from(disk.content()[BLOCK_BYTES] == 7);
            assert!(disk.complete(waits, Fate::Good).is_some());
            assert_eq!(disk.content()[2 * BLOCK_BYTES], 8);
        }
        assert!((1..50).contains(&survived), "{survived}");
    }

    #[test]
    fn a_failed_flush_is_remembered() {
        let disk = disk(true);
        let id = flush(&disk);
        assert!(matches!(end(&disk, id, Fate::Failed)[..], [Err(_)]));
        let id = flush(&disk);
        let ended = end(&disk, id, Fate::Good);
        assert!(matches!(ended[..], [Err(IoFailure::FlushLatched)]));
        let id = write(&disk, 0, 1, true);
        assert!(matches!(end(&disk, id, Fate::Good)[..], [Err(_)]));
    }

    #[test]
    fn an_answer_that_comes_twice_says_something_else_the_second_time() {
        let disk = disk(true);
        let id = write(&disk, 0, 1, false);
        assert!(matches!(end(&disk, id, Fate::Twice)[..], [Ok(_), Err(_)]));
        let id = write(&disk, 0, 2, false);
        let ended = end(&disk, id, Fate::Away);
        assert!(matches!(ended[..], [Err(IoFailure::NotReady)]));
    }

    #[test]
    fn a_cancelled_request_is_answered_either_way() {
        let mut counts = [0, 0];
        for seed in 0..50 {
            let disk = Disk::new(8, true, 64, Prng::new(seed));
            let id = write(&disk, 0, 1, false);
            disk.handle(0).cancel(IoTag(0), &mut Outlet::default());
            let ended = end(&disk, id, Fate::Good);
            counts[usize::from(matches!(ended[..], [Ok(_)]))] += 1;
        }
        assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
    }

    #[test]
    fn without_a_cache_every_write_is_durable() {
        let disk = disk(false);
        let id = write(&disk, 2, 4, false);
        disk.complete(id, Fate::Good);
        disk.crash();
        assert_eq!(disk.content()[2 * BLOCK_BYTES], 4);
    }

    #[test]
    fn a_full_queue_gives_the_request_back() {
        let disk = Disk::new(8, true, 1, Prng::new(5));
        write(&disk, 0, 1, false);
        for (core, is_full) in [(0, true), (1, false)] {
            let mut outlet = Outlet::default();
            let mut handle = disk.handle(core);
            let submitted = handle.submit(IoTag(2), IoRequest::Flush, &mut outlet);
            assert!(matches!(submitted, Submitted::Taken));
            assert_eq!(outlet.take_returned().is_some(), is_full);
        }
    }
}
