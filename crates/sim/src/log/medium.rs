//! A medium with a cache that may keep or lose, sector by sector, what was not synced.
//!
//! A request waits here until the world has it carried out; only then do reads show it. What may be on the medium
//! after a crash is more than one thing: [`Medium::after_crash`] makes one of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;

use store::{
    Backstore, Capabilities, Durability, IoAnswer, IoFailure, IoRequest, IoResult, IoTag, Outlet,
    Submitted,
};

use crate::prng::Prng;

/// What a medium keeps or loses as a whole, in bytes.
pub(crate) const SECTOR: usize = 512;

/// How many sectors some media write at once.
const LARGE: u64 = 8;

/// How many requests it takes at a time.
const QUEUE_MAX: usize = 4;

type Sector = [u8; SECTOR];

/// Something a medium does wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wrong {
    /// What it says is synced may be lost.
    SyncsInVain,
    /// Now and then it says that a write is done and has not done it.
    LosesWrites,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// As it should.
    Good,
    /// With an error, and with any part of its effect.
    Failed,
    /// As it should, but nobody gets the answer.
    Lost,
}

/// What a cache has written out by itself when the machine stops.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kept {
    /// Nothing that was not synced.
    Nothing,
    /// All that was carried out.
    Done,
    /// All that was asked for.
    Asked,
    /// Of each sector some version since the last sync.
    Sectors,
    /// The same for eight sectors at a time.
    Blocks,
}

/// A sector that was written and is not durable.
#[derive(Clone, Debug)]
struct Stroke {
    /// Of the request, in the order in which they were carried out.
    number: u64,
    sector: u64,
    bytes: Sector,
}

#[derive(Debug)]
struct Waiting {
    core: usize,
    tag: IoTag,
    request: IoRequest,
    /// How many requests were carried out when it came.
    after: u64,
}

#[derive(Debug, Default)]
struct State {
    content: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Stroke>,
    done: u64,
    waiting: Vec<Waiting>,
    answers: Vec<(usize, IoTag, IoResult)>,
    is_latched: bool,
    wrong: Option<Wrong>,
    /// When each sector was written, and how it began.
    past: HashMap<u64, Vec<(u64, u64)>>,
    /// How many more changes it takes; then it fails. `None`: any number.
    fuel: Option<u64>,
    /// Counts what happens to it.
    events: u64,
}

/// One medium, for all who use it.
#[derive(Clone, Debug)]
pub(crate) struct Medium(Rc<RefCell<State>>);

impl Medium {
    /// Of these bytes, all durable.
    pub(crate) fn new(content: Vec<u8>) -> Self {
        Self(Rc::new(RefCell::new(State {
            durable: content.clone(),
            content,
            ..State::default()
        })))
    }

    pub(crate) fn set_wrong(&self, wrong: Option<Wrong>) {
        self.0.borrow_mut().wrong = wrong;
    }

    /// From now on it carries out so many changes, then it fails.
    pub(crate) fn set_fuel(&self, fuel: Option<u64>) {
        self.0.borrow_mut().fuel = fuel;
    }

    /// A handle for a core.
    pub(crate) fn handle(&self, core: usize) -> Box<dyn Backstore> {
        let capabilities = Capabilities {
            thin: true,
            volatile_cache: true,
            ..Capabilities::plain(self.len(), 512)
        };
        Box::new(Handle {
            medium: self.clone(),
            core,
            capabilities,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.borrow().content.len() as u64
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.0.borrow().waiting.len()
    }

    /// How often something happened to it.
    pub(crate) fn events(&self) -> u64 {
        self.0.borrow().events
    }

    /// What a read of a sector gives.
    pub(crate) fn sector(&self, at: u64) -> Sector {
        self.0.borrow().sector(at)
    }

    /// When a sector was written here, in order: the moment and the first eight bytes.
    pub(crate) fn past(&self, at: u64) -> Vec<(u64, u64)> {
        self.0.borrow().past.get(&at).cloned().unwrap_or_default()
    }

    /// What is known of a request that waits.
    pub(crate) fn describe(&self, at: usize) -> String {
        let state = self.0.borrow();
        let sectors = |range: &Range<u64>| range.start / 512..range.end.div_ceil(512);
        match state.waiting.get(at).map(|one| &one.request) {
            Some(IoRequest::Write {
                offset,
                data,
                durable,
            }) => {
                let range = sectors(&(*offset..*offset + data.len() as u64));
                format!("write {range:?}{}", if *durable { " durable" } else { "" })
            }
            Some(IoRequest::WriteZeros { range, durable }) => {
                format!(
                    "zeros {:?}{}",
                    sectors(range),
                    if *durable { " durable" } else { "" }
                )
            }
            Some(IoRequest::Unmap { range }) => format!("unmap {:?}", sectors(range)),
            Some(IoRequest::Flush) => "flush".to_owned(),
            Some(
                IoRequest::Read { .. }
                | IoRequest::CompareAndWrite { .. }
                | IoRequest::Extents { .. }
                | IoRequest::Device(_),
            )
            | None => "read".to_owned(),
        }
    }

    /// One of those that wait ends. The core to wake, if it gets the answer.
    pub(crate) fn complete(
        &self,
        at: usize,
        fate: Fate,
        now: u64,
        prng: &mut Prng,
    ) -> Option<usize> {
        let mut state = self.0.borrow_mut();
        state.events += 1;
        let Waiting {
            core,
            tag,
            request,
            after,
        } = state.waiting.swap_remove(at);
        let result = state.carry_out(request, after, fate, now, prng);
        if fate == Fate::Lost {
            return None;
        }
        state.answers.push((core, tag, result));
        Some(core)
    }

    /// Whether it ever had this mark.
    pub(crate) fn has_had(&self, mark: u64) -> bool {
        let state = self.0.borrow();
        let mut past = state.past.values().flatten();
        past.any(|(_, own)| *own == mark)
    }

    /// What it is for the next process when the one that uses it is killed now, while the machine goes on: of what is
    /// asked for any part may be carried out, and nothing is lost. What is not durable is still not.
    pub(crate) fn after_kill(&self, prng: &mut Prng) -> Self {
        let state = self.0.borrow();
        let mut next = State {
            content: state.content.clone(),
            durable: state.durable.clone(),
            pending: state.pending.clone(),
            done: state.done,
            ..State::default()
        };
        for waiting in &state.waiting {
            next.done += 1;
            let share = prng.pick(&[0, 500, 1000]).unwrap_or(0);
            let mut strokes = strokes_of(&waiting.request, next.done);
            strokes.retain(|_| prng.chance(share));
            next.write(strokes, 0);
        }
        Self(Rc::new(RefCell::new(next)))
    }

    /// What may be on it after a crash now.
    pub(crate) fn after_crash(&self, kept: Kept, prng: &mut Prng) -> Vec<u8> {
        let state = self.0.borrow();
        let mut bytes = state.durable.clone();
        if kept == Kept::Nothing {
            return bytes;
        }
        let mut strokes = state.pending.clone();
        let mut number = state.done;
        if kept != Kept::Done {
            for waiting in &state.waiting {
                number += 1;
                strokes.extend(strokes_of(&waiting.request, number));
            }
        }
        let grain = if kept == Kept::Blocks { LARGE } else { 1 };
        let mut cuts: HashMap<u64, u64> = HashMap::new();
        let first = strokes.first().map_or(0, |one| one.number);
        for stroke in strokes {
            let cut = match kept {
                Kept::Sectors | Kept::Blocks => {
                    *cuts.entry(stroke.sector / grain).or_insert_with(|| {
                        let some = prng.within(first.saturating_sub(1), number);
                        prng.pick(&[0, some, some, number]).unwrap_or(0)
                    })
                }
                Kept::Nothing | Kept::Done | Kept::Asked => number,
            };
            if stroke.number <= cut {
                put(&mut bytes, stroke.sector, &stroke.bytes);
            }
        }
        bytes
    }
}

fn put(content: &mut [u8], sector: u64, bytes: &Sector) {
    let at = usize::try_from(sector).unwrap_or(usize::MAX / SECTOR) * SECTOR;
    if let Some(place) = content.get_mut(at..at + SECTOR) {
        place.copy_from_slice(bytes);
    }
}

/// The sectors that a request writes.
fn strokes_of(request: &IoRequest, number: u64) -> Vec<Stroke> {
    let zeros = |range: &Range<u64>| {
        let sectors = range.start / SECTOR as u64..range.end / SECTOR as u64;
        let stroke = |sector| Stroke {
            number,
            sector,
            bytes: [0; SECTOR],
        };
        sectors.map(stroke).collect()
    };
    match request {
        IoRequest::Write { offset, data, .. } => strokes_of_bytes(*offset, &data.to_vec(), number),
        IoRequest::Unmap { range } | IoRequest::WriteZeros { range, .. } => zeros(range),
        IoRequest::Read { .. }
        | IoRequest::Flush
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Device(_) => Vec::new(),
    }
}

fn strokes_of_bytes(offset: u64, bytes: &[u8], number: u64) -> Vec<Stroke> {
    let pieces = bytes.chunks(SECTOR).zip(offset / SECTOR as u64..);
    let stroke = |(piece, sector): (&[u8], u64)| {
        let mut bytes = [0; SECTOR];
        bytes
            .iter_mut()
            .zip(piece)
            .for_each(|(to, from)| *to = *from);
        Stroke {
            number,
            sector,
            bytes,
        }
    };
    pieces.map(stroke).collect()
}

impl State {
    fn sector(&self, at: u64) -> Sector {
        let at = usize::try_from(at).unwrap_or(usize::MAX / SECTOR) * SECTOR;
        let bytes = self.content.get(at..at + SECTOR);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .unwrap_or([0; SECTOR])
    }

    fn write(&mut self, strokes: Vec<Stroke>, now: u64) {
        for stroke in strokes {
            put(&mut self.content, stroke.sector, &stroke.bytes);
            let head = stroke.bytes.first_chunk().copied().unwrap_or_default();
            let past = self.past.entry(stroke.sector).or_default();
            past.push((now, u64::from_le_bytes(head)));
            self.pending.push(stroke);
        }
    }

    /// What was written by the first so many requests is durable, of these sectors.
    fn sync(&mut self, last: u64, sectors: Option<Range<u64>>) {
        if self.wrong == Some(Wrong::SyncsInVain) {
            return;
        }
        let durable = &mut self.durable;
        self.pending.retain(|one| {
            let is_meant = sectors
                .as_ref()
                .is_none_or(|range| range.contains(&one.sector));
            let is_synced = one.number <= last && is_meant;
            if is_synced {
                put(durable, one.sector, &one.bytes);
            }
            !is_synced
        });
    }

    fn carry_out(
        &mut self,
        request: IoRequest,
        after: u64,
        fate: Fate,
        now: u64,
        prng: &mut Prng,
    ) -> IoResult {
        let failure = Err(IoFailure::Medium { offset: 0 });
        match request {
            IoRequest::Read { .. } if fate == Fate::Failed => return failure,
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let bytes = self.content.get(start..start + len).unwrap_or_default();
                drop(buffer);
                return Ok(IoAnswer::Data(memory::Payload::Heap(bytes.to_vec())));
            }
            IoRequest::Flush => {
                self.is_latched |= fate == Fate::Failed;
                if self.is_latched {
                    return Err(IoFailure::FlushLatched);
                }
                self.sync(after, None);
                return Ok(IoAnswer::Done);
            }
            IoRequest::Write { .. } | IoRequest::WriteZeros { .. } | IoRequest::Unmap { .. } => {}
            IoRequest::CompareAndWrite { .. }
            | IoRequest::Extents { .. }
            | IoRequest::Device(_) => return failure,
        }
        let durable = matches!(
            request,
            IoRequest::Write { durable: true, .. } | IoRequest::WriteZeros { durable: true, .. }
        );
        if durable && self.is_latched {
            return Err(IoFailure::FlushLatched);
        }
        self.done += 1;
        let number = self.done;
        let mut strokes = strokes_of(&request, number);
        let sectors = strokes.first().zip(strokes.last());
        let sectors = sectors.map(|(first, last)| first.sector..last.sector + 1);
        if fate == Fate::Failed {
            let share = prng.pick(&[0, 500, 1000]).unwrap_or(0);
            strokes.retain(|_| prng.chance(share));
            self.write(strokes, now);
            return failure;
        }
        if self.wrong == Some(Wrong::LosesWrites) && prng.chance(100) {
            return Ok(IoAnswer::Done);
        }
        self.write(strokes, now);
        if durable {
            self.sync(number, sectors);
        }
        Ok(IoAnswer::Done)
    }

    /// Something is done to it by a program that is alone with it.
    fn burn(&mut self) -> io::Result<()> {
        match &mut self.fuel {
            Some(0) => return Err(io::Error::other("the machine has stopped")),
            Some(fuel) => *fuel -= 1,
            None => {}
        }
        self.done += 1;
        Ok(())
    }
}

/// As a start has it.
impl store::Medium for Medium {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = self.0.borrow();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = state.content.get(start..start + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.burn()?;
        let strokes = strokes_of_bytes(offset, bytes, state.done);
        state.write(strokes, 0);
        Ok(())
    }

    fn clear(&self, range: Range<u64>, _: bool) -> io::Result<()> {
        let len = usize::try_from(range.end - range.start).unwrap_or(0);
        self.write(range.start, &vec![0; len])
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.burn()?;
        let all = state.done;
        state.sync(all, None);
        Ok(())
    }
}

#[derive(Debug)]
struct Handle {
    medium: Medium,
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
        let mut state = self.medium.0.borrow_mut();
        if state.waiting.len() >= QUEUE_MAX {
            outlet.give_back(request);
            return Submitted::Taken;
        }
        let waiting = Waiting {
            core: self.core,
            tag,
            request,
            after: state.done,
        };
        state.waiting.push(waiting);
        state.events += 1;
        Submitted::Taken
    }

    /// What is under way cannot be taken back.
    fn cancel(&mut self, _: IoTag, _: &mut Outlet) {}

    fn handle_wake(&mut self, outlet: &mut Outlet) {
        let mut state = self.medium.0.borrow_mut();
        let all = std::mem::take(&mut state.answers);
        let (own, others) = all.into_iter().partition(|(core, ..)| *core == self.core);
        state.answers = others;
        for (_, tag, result) in Vec::from_iter::<Vec<_>>(own) {
            outlet.answer(tag, result);
        }
    }

    fn refresh_size(&mut self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_keeps_what_was_done_before_it_came_and_a_crash_any_part_of_the_rest() {
        let mut found = [0, 0, 0];
        for seed in 0..60 {
            let mut prng = Prng::new(seed);
            let medium = Medium::new(vec![0; 4 * SECTOR]);
            let mut handle = medium.handle(0);
            let mut outlet = Outlet::default();
            let mut ask = |tag: u64, request| {
                drop(handle.submit(IoTag(tag), request, &mut outlet));
            };
            let write = |sector: u64, byte| IoRequest::Write {
                offset: sector * SECTOR as u64,
                data: memory::Payload::Heap(vec![byte; SECTOR]),
                durable: false,
            };
            ask(1, write(0, 1));
            assert_eq!(medium.complete(0, Fate::Good, 1, &mut prng), Some(0));
            ask(2, IoRequest::Flush);
            ask(3, write(1, 2));
            ask(4, write(2, 3));
            assert_eq!(medium.complete(1, Fate::Good, 2, &mut prng), Some(0));
            assert_eq!(medium.complete(0, Fate::Good, 3, &mut prng), Some(0));
            let kept = medium.after_crash(Kept::Sectors, &mut prng);
            for (sector, count) in found.iter_mut().enumerate() {
                *count += usize::from(kept[sector * SECTOR] != 0);
            }
        }
        assert_eq!(found[0], 60, "it was flushed");
        assert!((1..60).contains(&found[1]), "it was done: {found:?}");
        assert!((1..60).contains(&found[2]), "it was asked for: {found:?}");
    }
}
