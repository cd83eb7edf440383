//! A disk that takes requests of any core, carries them out when and as the test says, and loses what is not durable.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::rc::Rc;

use memory::{Buffer, Payload};

use crate::journal::replay::Medium;
use crate::{
    Backstore, Capabilities, Durability, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Outlet,
    Submitted,
};

pub(super) const SECTOR: usize = 512;

/// Random numbers of a seed.
#[derive(Debug)]
pub(super) struct Chance(pub(super) u64);

impl Chance {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33).unwrap() % end
    }

    /// So often in a thousand times.
    pub(super) fn hits(&mut self, per_mille: usize) -> bool {
        self.below(1000) < per_mille
    }
}

type Sector = [u8; SECTOR];

#[derive(Debug)]
struct Waiting {
    core: usize,
    tag: IoTag,
    request: IoRequest,
}

#[derive(Debug, Default)]
pub(super) struct State {
    content: HashMap<u64, Sector>,
    durable: HashMap<u64, Sector>,
    dirty: BTreeSet<u64>,
    waiting: Vec<Waiting>,
    answers: Vec<(usize, IoTag, IoResult)>,
    is_latched: bool,
    /// What each sector became, in order.
    pub(super) past: HashMap<u64, Vec<Sector>>,
}

#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) state: Rc<RefCell<State>>,
    bytes: u64,
}

/// How a crash comes about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Power,
    /// The kernel goes on, with what it has in its memory.
    Process,
}

impl Disk {
    pub(super) fn new(bytes: u64) -> Self {
        let state = Rc::default();
        Self { state, bytes }
    }

    pub(super) fn handle(&self, core: usize) -> Box<dyn Backstore> {
        let capabilities = Capabilities {
            thin: true,
            volatile_cache: true,
            ..Capabilities::plain(self.bytes, 512)
        };
        let disk = self.clone();
        Box::new(Handle {
            disk,
            core,
            capabilities,
        })
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.borrow().waiting.len()
    }

    /// One of those that wait takes effect and ends, or fails. The core to wake.
    pub(super) fn complete(&self, at: usize, fails: bool) -> usize {
        let mut state = self.state.borrow_mut();
        let Waiting { core, tag, request } = state.waiting.swap_remove(at);
        let result = state.execute(request, fails);
        state.answers.push((core, tag, result));
        core
    }

    /// Whether any sector ever had this mark.
    pub(super) fn has_had(&self, mark: u64) -> bool {
        let state = self.state.borrow();
        let mut past = state.past.values().flatten();
        past.any(|sector| sector[..8] == mark.to_le_bytes())
    }

    /// What waits takes part of its effect; what is not durable may be lost where the power fails; nobody gets an
    /// answer.
    pub(super) fn crash(&self, chance: &mut Chance, end: End) {
        let mut state = self.state.borrow_mut();
        state.answers.clear();
        for Waiting { request, .. } in std::mem::take(&mut state.waiting) {
            if let IoRequest::Write { offset, data, .. } = request {
                let bytes = data.to_vec();
                for (piece, at) in bytes.chunks(SECTOR).zip(offset / SECTOR as u64..) {
                    if chance.hits(500) {
                        state.put(at, piece.try_into().unwrap());
                    }
                }
            }
        }
        for at in std::mem::take(&mut state.dirty) {
            let kept = if end == End::Process || chance.hits(500) {
                &state.content
            } else {
                &state.durable
            };
            let kept = kept.get(&at).copied().unwrap_or([0; SECTOR]);
            state.content.insert(at, kept);
            state.durable.insert(at, kept);
        }
        state.is_latched = false;
    }

    pub(super) fn sector(&self, at: u64) -> Sector {
        let state = self.state.borrow();
        state.content.get(&at).copied().unwrap_or([0; SECTOR])
    }
}

impl State {
    fn put(&mut self, at: u64, bytes: Sector) {
        self.content.insert(at, bytes);
        self.dirty.insert(at);
        self.past.entry(at).or_default().push(bytes);
    }

    fn sync(&mut self, sectors: impl IntoIterator<Item = u64>) {
        for at in sectors {
            if self.dirty.remove(&at) {
                self.durable.insert(at, self.content[&at]);
            }
        }
    }

    fn execute(&mut self, request: IoRequest, fails: bool) -> IoResult {
        let failure = Err(IoFailure::Medium { offset: 0 });
        let fill = |state: &mut Self, range: &Range<u64>, durable: bool| {
            let sectors = range.start / SECTOR as u64..range.end / SECTOR as u64;
            sectors.clone().for_each(|at| state.put(at, [0; SECTOR]));
            if durable {
                state.sync(sectors);
            }
        };
        match request {
            IoRequest::Read { .. } if fails => return failure,
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => {
                let mut buffer: Buffer = buffer.unwrap();
                assert_eq!(buffer.len(), len);
                for (piece, at) in buffer.chunks_mut(SECTOR).zip(offset / SECTOR as u64..) {
                    piece.copy_from_slice(self.content.get(&at).unwrap_or(&[0; SECTOR]));
                }
                return Ok(IoAnswer::Data(Payload::Pool(buffer)));
            }
            IoRequest::Write {
                offset,
                data,
                durable,
            } => {
                if durable && self.is_latched {
                    return Err(IoFailure::FlushLatched);
                }
                let bytes = data.to_vec();
                let start = offset / SECTOR as u64;
                for (piece, at) in bytes.chunks(SECTOR).zip(start..) {
                    self.put(at, piece.try_into().unwrap());
                }
                // One that fails may have had any part of its effect.
                if fails {
                    return failure;
                }
                if durable {
                    self.sync(start..start + (bytes.len() / SECTOR) as u64);
                }
            }
            IoRequest::Flush => {
                self.is_latched |= fails;
                if self.is_latched {
                    return Err(IoFailure::FlushLatched);
                }
                let dirty = self.dirty.clone();
                self.sync(dirty);
            }
            IoRequest::Unmap { range } => fill(self, &range, false),
            IoRequest::WriteZeros { range, durable } => fill(self, &range, durable),
            IoRequest::CompareAndWrite { .. }
            | IoRequest::Extents { .. }
            | IoRequest::Device(_) => {
                panic!("not asked for")
            }
        }
        Ok(IoAnswer::Done)
    }
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    core: usize,
    capabilities: Capabilities,
}

impl Backstore for Handle {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn durability(&self) -> Durability {
        Durability::UNCOUNTED
    }

    fn submit(&mut self, tag: IoTag, request: IoRequest, outlet: &mut Outlet) -> Submitted {
        let mut state = self.disk.state.borrow_mut();
        if state.waiting.len() >= 12 {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        let core = self.core;
        state.waiting.push(Waiting { core, tag, request });
        Submitted::Taken
    }

    fn cancel(&mut self, _: IoTag, _: &mut Outlet) {}

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mut state = self.disk.state.borrow_mut();
        for (core, tag, result) in std::mem::take(&mut state.answers) {
            if core == self.core {
                outlet.answer(tag, result);
            } else {
                state.answers.push((core, tag, result));
            }
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

/// As a program has it that is alone with it.
impl Medium for Disk {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        for (piece, at) in bytes.chunks_mut(SECTOR).zip(offset / SECTOR as u64..) {
            piece.copy_from_slice(&self.sector(at)[..piece.len()]);
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        for (piece, at) in bytes.chunks(SECTOR).zip(offset / SECTOR as u64..) {
            state.put(at, piece.try_into().unwrap());
        }
        Ok(())
    }

    fn clear(&self, range: Range<u64>, _: bool) -> io::Result<()> {
        let len = usize::try_from(range.end - range.start).unwrap();
        self.write(range.start, &vec![0; len])
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let dirty = state.dirty.clone();
        state.sync(dirty);
        Ok(())
    }
}
