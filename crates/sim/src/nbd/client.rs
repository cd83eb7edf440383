//! A client: the state machine that ships, and the commands that it gives.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use nbd::{Client, Handshake, Piece, Progress, ReadBuffer, Request, ServerError, Work};

use crate::disk::BLOCK_BYTES;
use crate::ledger::{self, WriteId};
use crate::plan::{UNIT, export_name};
use crate::prng::Prng;

/// Requests of one client under way.
const REQUESTS_MAX: usize = 8;

/// What a client has asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    Read(Range<usize>),
    /// Blocks get this content; with zero: zeros.
    Write {
        blocks: Range<usize>,
        id: WriteId,
        durable: bool,
    },
    Flush,
    Status,
}

impl Asked {
    pub(super) const fn writes(&self) -> bool {
        match self {
            Self::Write { .. } => true,
            Self::Read(_) | Self::Flush | Self::Status => false,
        }
    }
}

/// The end of a request.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) tag: u64,
    pub(super) result: Result<(), ServerError>,
    pub(super) data: Option<Vec<u8>>,
}

#[derive(Debug)]
enum Stage {
    Greeting(Handshake),
    Serving(Box<Client>),
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) link: usize,
    stage: Stage,
    /// Has said that it goes.
    pub(super) is_leaving: bool,
    pub(super) asked: BTreeMap<u64, Asked>,
}

impl Talk {
    pub(super) fn new(link: usize) -> Result<Self, String> {
        let handshake = Handshake::new(&export_name(UNIT)).map_err(|error| error.to_string())?;
        Ok(Self {
            link,
            stage: Stage::Greeting(handshake.with_block_status()),
            is_leaving: false,
            asked: BTreeMap::new(),
        })
    }

    pub(super) fn can_ask(&self) -> bool {
        let is_serving = matches!(self.stage, Stage::Serving(_));
        is_serving && !self.is_leaving && self.asked.len() < REQUESTS_MAX
    }

    /// Bytes from the server; what they end.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Ended>, String> {
        match &mut self.stage {
            Stage::Greeting(handshake) => {
                let progress = handshake.handle_bytes(bytes);
                if let Progress::Done(export) = progress.map_err(|error| error.to_string())? {
                    let client = Client::new(export, 64);
                    self.stage = Stage::Serving(Box::new(client));
                }
                Ok(Vec::new())
            }
            Stage::Serving(client) => {
                let received = client.handle_bytes(bytes);
                received.map_err(|violation| violation.to_string())?;
                let ended = std::iter::from_fn(|| client.poll_completion());
                let ended = ended.map(|completion| Ended {
                    tag: completion.tag,
                    result: completion.result,
                    data: match completion.work {
                        Work::Read {
                            buffer: ReadBuffer::Into(data),
                            ..
                        } => Some(data),
                        Work::Read {
                            buffer: ReadBuffer::Discard,
                            ..
                        }
                        | Work::Write { .. }
                        | Work::Flush
                        | Work::Trim { .. }
                        | Work::WriteZeroes { .. }
                        | Work::BlockStatus { .. } => None,
                    },
                });
                Ok(ended.collect())
            }
        }
    }

    /// What it has to say now.
    pub(super) fn say(&mut self, out: &mut VecDeque<u8>) {
        match &mut self.stage {
            Stage::Greeting(handshake) => out.extend(handshake.take_output()),
            Stage::Serving(client) => client.transmit(usize::MAX, |piece| match piece {
                Piece::Header(bytes) => out.extend(bytes),
                Piece::Data(bytes) => out.extend(bytes.iter()),
            }),
        }
    }

    /// Asks for this, under a tag that no other request has.
    pub(super) fn ask(&mut self, tag: u64, asked: Asked, manner: &mut Prng) -> Result<(), String> {
        let Stage::Serving(client) = &mut self.stage else {
            return Err("it has no export yet".to_owned());
        };
        let of = |blocks: &Range<usize>| {
            let length = u32::try_from(blocks.len() * BLOCK_BYTES).unwrap_or(u32::MAX);
            ((blocks.start * BLOCK_BYTES) as u64, length)
        };
        let (offset, work) = match &asked {
            Asked::Read(blocks) => {
                let (offset, length) = of(blocks);
                let buffer = ReadBuffer::Into(vec![0xee; length as usize]);
                (offset, Work::Read { length, buffer })
            }
            Asked::Write {
                blocks,
                id: 0,
                durable: fua,
            } => {
                let ((offset, length), fua) = (of(blocks), *fua);
                let (no_hole, fast) = (manner.chance(300), false);
                let work = match manner.chance(500) {
                    true => Work::Trim { length, fua },
                    false => Work::WriteZeroes {
                        length,
                        fua,
                        no_hole,
                        fast,
                    },
                };
                (offset, work)
            }
            Asked::Write {
                blocks,
                id,
                durable: fua,
            } => {
                let ((offset, length), fua) = (of(blocks), *fua);
                let data = ledger::content(*id, blocks.clone()).into();
                (offset, Work::Write { length, data, fua })
            }
            Asked::Flush => (0, Work::Flush),
            Asked::Status => {
                let (length, count_max) = (u32::try_from(8 * BLOCK_BYTES).unwrap_or_default(), 8);
                let extents = Vec::new();
                (
                    0,
                    Work::BlockStatus {
                        length,
                        count_max,
                        extents,
                    },
                )
            }
        };
        self.asked.insert(tag, asked);
        let submitted = client.submit(Request { tag, offset, work });
        submitted.map_err(|error| format!("{error:?}"))
    }

    pub(super) fn leave(&mut self) {
        if let Stage::Serving(client) = &mut self.stage {
            client.disconnect();
            self.is_leaving = true;
        }
    }
}
