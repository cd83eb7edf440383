//! A client of NBD: handshake and state machine that ship, and the commands that it gives.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nbd::{Client as Machine, Handshake, Piece, Progress, ReadBuffer, Request, ServerError, Work};

use super::books::Books;
use super::client::{Client, FAIR};
use super::outcomes::NO_SPACE;
use super::seat::Answer;
use crate::disk::BLOCK_BYTES;
use crate::initiator::{Breach, Operation};
use crate::ledger::{Handle, content};
use crate::prng::Prng;

/// Requests of one client under way.
const REQUESTS_MAX: usize = 8;

#[derive(Debug)]
enum Stage {
    Away,
    Greeting(Box<Handshake>),
    Serving(Box<Machine>),
}

/// One client, and its connection.
#[derive(Debug)]
pub(super) struct Exporter {
    player: usize,
    export: String,
    link: Option<usize>,
    stage: Stage,
    /// Has said that it goes.
    is_leaving: bool,
    outbound: VecDeque<u8>,
    /// The tag of a request is the books' name of it.
    asked: BTreeMap<Handle, Operation>,
    prng: Prng,
}

impl Exporter {
    pub(super) const fn new(player: usize, export: String, prng: Prng) -> Self {
        Self {
            player,
            export,
            link: None,
            stage: Stage::Away,
            is_leaving: false,
            outbound: VecDeque::new(),
            asked: BTreeMap::new(),
            prng,
        }
    }

    /// What is to be sent now.
    fn say(&mut self) {
        let out = &mut self.outbound;
        match &mut self.stage {
            Stage::Away => {}
            Stage::Greeting(handshake) => out.extend(handshake.take_output()),
            Stage::Serving(machine) => machine.transmit(usize::MAX, |piece| match piece {
                Piece::Header(bytes) => out.extend(bytes),
                Piece::Data(bytes) => out.extend(bytes.iter()),
            }),
        }
    }

    /// What a command is on this transport, and where it begins.
    fn work(&mut self, operation: &Operation) -> Option<(u64, Work)> {
        let of = |blocks: &std::ops::Range<usize>| {
            let length = u32::try_from(blocks.len() * BLOCK_BYTES).unwrap_or(u32::MAX);
            ((blocks.start * BLOCK_BYTES) as u64, length)
        };
        if let Operation::Read { blocks, room } = operation {
            let seen = blocks.start..blocks.start + (*room).min(blocks.len());
            let (offset, length) = of(&seen);
            let buffer = ReadBuffer::Into(vec![0xee; length as usize]);
            return Some((offset, Work::Read { length, buffer }));
        }
        if let Operation::Write { blocks, id, fua } = operation {
            let ((offset, length), fua) = (of(blocks), *fua);
            let data = content(*id, blocks.clone()).into();
            return Some((offset, Work::Write { length, data, fua }));
        }
        if let Operation::Zero { blocks, unmap } = operation {
            let ((offset, length), fua) = (of(blocks), self.prng.chance(300));
            let (no_hole, fast) = (self.prng.chance(300), self.prng.chance(50));
            let work = match unmap {
                true => Work::Trim { length, fua },
                false => Work::WriteZeroes {
                    length,
                    fua,
                    no_hole,
                    fast,
                },
            };
            return Some((offset, work));
        }
        if *operation == Operation::Flush {
            return Some((0, Work::Flush));
        }
        // There is nothing like any other.
        let asks = *operation == Operation::TestUnitReady;
        let (length, count_max) = (u32::try_from(8 * BLOCK_BYTES).unwrap_or_default(), 8);
        let extents = Vec::new();
        let work = Work::BlockStatus {
            length,
            count_max,
            extents,
        };
        asks.then_some((0, work))
    }

    fn take_completions(&mut self, books: &mut Books) -> Result<(), Breach> {
        while let Stage::Serving(machine) = &mut self.stage
            && let Some(completion) = machine.poll_completion()
        {
            let data = match completion.work {
                Work::Read {
                    buffer: ReadBuffer::Into(data),
                    ..
                } => data,
                Work::Read {
                    buffer: ReadBuffer::Discard,
                    ..
                }
                | Work::Write { .. }
                | Work::Flush
                | Work::Trim { .. }
                | Work::WriteZeroes { .. }
                | Work::BlockStatus { .. } => Vec::new(),
            };
            let handle = completion.tag;
            let Some(operation) = self.asked.remove(&handle) else {
                return Err(Breach::new("one-outcome", format!("{handle} ends twice")));
            };
            // A flush may follow zeros, and be kept out alone.
            let is_whole = !matches!(operation, Operation::Zero { .. });
            let answer: Answer = match completion.result {
                Ok(()) => (0, None),
                Err(ServerError::NOT_PERMITTED) if is_whole => (0x18, None),
                Err(ServerError::NO_SPACE) => (0x02, Some(NO_SPACE)),
                Err(_) => (0x02, None),
            };
            books.answer(handle, answer, &data)?;
        }
        Ok(())
    }
}

impl Client for Exporter {
    fn is_away(&self) -> bool {
        matches!(self.stage, Stage::Away)
    }

    fn is_waiting(&self) -> bool {
        !self.is_leaving && !self.asked.is_empty()
    }

    fn has_open(&self) -> bool {
        !self.asked.is_empty() || matches!(self.stage, Stage::Greeting(_))
    }

    fn state(&self) -> String {
        let (player, asked) = (self.player, &self.asked);
        format!("player {player} waits for {asked:?}")
    }

    fn connect(&mut self, _: Duration, link: usize) -> Result<(), Breach> {
        let handshake = Handshake::new(&self.export);
        let handshake = handshake.map_err(|error| Breach::new(FAIR, error.to_string()))?;
        self.link = Some(link);
        self.is_leaving = false;
        self.stage = Stage::Greeting(Box::new(handshake.with_block_status()));
        self.say();
        Ok(())
    }

    fn can_ask(&self) -> bool {
        let is_serving = matches!(self.stage, Stage::Serving(_));
        is_serving && !self.is_leaving && self.asked.len() < REQUESTS_MAX
    }

    fn ask(&mut self, _: Duration, books: &mut Books, number: u16, operation: Operation) {
        let Some((offset, work)) = self.work(&operation) else {
            return;
        };
        let Stage::Serving(machine) = &mut self.stage else {
            return;
        };
        let tag = books.begin((self.player, number), operation.clone());
        match machine.submit(Request { tag, offset, work }) {
            Ok(()) => drop(self.asked.insert(tag, operation)),
            Err(_) => books.refuse(tag),
        }
        self.say();
    }

    fn manage(&mut self, _: Duration, _: &mut Books, _: u16) -> Option<String> {
        None
    }

    fn leave(&mut self, _: Duration, _: &mut Books) -> Result<(), Breach> {
        if let Stage::Serving(machine) = &mut self.stage {
            machine.disconnect();
            self.is_leaving = true;
            self.say();
        }
        Ok(())
    }

    fn vanish(&mut self, books: &mut Books) {
        self.link = None;
        self.stage = Stage::Away;
        self.outbound.clear();
        books.leave(self.player);
        for handle in std::mem::take(&mut self.asked).into_keys() {
            books.lose(handle);
        }
    }

    fn link(&self) -> Option<usize> {
        self.link
    }

    fn take_output(&mut self) -> Vec<u8> {
        self.outbound.drain(..).collect()
    }

    fn hear(&mut self, bytes: &[u8], books: &mut Books) -> Result<bool, Breach> {
        match &mut self.stage {
            Stage::Away => {}
            Stage::Greeting(handshake) => match handshake.handle_bytes(bytes) {
                Ok(Progress::Done(export)) => {
                    self.stage = Stage::Serving(Box::new(Machine::new(export, 64)));
                }
                Ok(_) => {}
                Err(_) if books.may_end(self.player) => return Ok(true),
                Err(error) => return Err(Breach::new(FAIR, error.to_string())),
            },
            Stage::Serving(machine) => {
                let received = machine.handle_bytes(bytes);
                received.map_err(|violation| Breach::new(FAIR, violation.to_string()))?;
                self.take_completions(books)?;
            }
        }
        self.say();
        Ok(false)
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving || !matches!(self.stage, Stage::Serving(_))
    }

    fn is_nbd(&self) -> bool {
        true
    }
}
