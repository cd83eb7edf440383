//! Follows the stream of replies.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::ops::Range;

use crate::handshake::Export;
use crate::reader::Reader;
use crate::request::{ReadBuffer, StatusExtent, Task, Tasks, Work};
use crate::wire::{SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, ServerError, chunk};

const MAGIC_BYTES: usize = 4;
const SIMPLE_BYTES: usize = 16;
const STRUCTURED_BYTES: usize = 20;
/// In front of the data of a chunk: its offset.
const OFFSET_BYTES: u32 = 8;
/// A hole: its offset and length.
const HOLE_BYTES: u32 = 12;
/// In front of the extents of a block status: the context.
const CONTEXT_BYTES: u32 = 4;
/// One extent of a block status: its length and flags.
const EXTENT_BYTES: u32 = 8;
/// Flags of an extent in the context `base:allocation`.
const STATE_HOLE: u32 = 1 << 0;
const STATE_ZERO: u32 = 1 << 1;
/// In an error chunk in front of the message: error number and length of the message.
const ERROR_BYTES: u32 = 6;
/// Longest error chunk that is taken; messages have 4096 bytes at most.
const ERROR_MAX_BYTES: u32 = 8 * 1024;

/// A rule that the server broke.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// Neither kind of reply.
    #[error("a reply begins with {magic:#010x}")]
    Magic {
        /// What came.
        magic: u32,
    },
    /// Chunks were not agreed on.
    #[error("a structured reply came, which was not agreed on")]
    NotAgreed,
    /// No request of this cookie is under way.
    #[error("a reply to cookie {cookie:#x}, which is not under way")]
    UnknownCookie {
        /// What came.
        cookie: u64,
    },
    /// A chunk of a type that does not belong to its request.
    #[error("a chunk of type {kind:#06x}, which does not fit its request")]
    ChunkType {
        /// What came.
        kind: u16,
    },
    /// A chunk is too short or too long for its type.
    #[error("a chunk of type {kind:#06x} has {length} bytes")]
    ChunkLength {
        /// Its type.
        kind: u16,
        /// Its length.
        length: u32,
    },
    /// Data outside of what was asked for, or more of it.
    #[error("data at {offset}, {length} bytes, is outside of what was asked for")]
    DataOutside {
        /// Where it would go.
        offset: u64,
        /// How much it is.
        length: u32,
    },
    /// Data that came before, or with too many gaps before it.
    #[error("data at {offset}, {length} bytes, came before, or leaves too many gaps")]
    DataTwice {
        /// Where it would go.
        offset: u64,
        /// How much it is.
        length: u32,
    },
    /// A read is said to be done and data is missing.
    #[error("a read brought {received} bytes of {expected}")]
    DataMissing {
        /// What came.
        received: u32,
        /// What was asked for.
        expected: u32,
    },
    /// A block status is in no context or one that was not asked for, has an empty extent, comes twice or is missing.
    #[error("a block status that does not fit its request")]
    BlockStatus,
}

/// A chunk of a structured reply, or a simple reply as one chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    cookie: u64,
    kind: u16,
    is_last: bool,
    length: u32,
}

/// What the next bytes mean.
#[derive(Clone, Copy, Debug, Default)]
enum Part {
    #[default]
    Header,
    /// The fixed part of a chunk, so many bytes of it.
    Fixed { chunk: Chunk, length: u32 },
    /// Data of a read, to go to this place of its buffer.
    Data {
        cookie: u64,
        place: usize,
        left: u32,
        is_last: bool,
    },
    /// Extents of a block status.
    Extents {
        cookie: u64,
        left: u32,
        is_last: bool,
    },
}

/// The state of one stream.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    part: Part,
    gathered: Vec<u8>,
}

impl Receiver {
    /// Takes bytes up to the end of a reply and gives its cookie; `None` when all are taken.
    pub(crate) fn step<R: AsMut<[u8]>, W>(
        &mut self,
        bytes: &mut &[u8],
        tasks: &mut Tasks<R, W>,
        export: &Export,
    ) -> Result<Option<u64>, Violation> {
        loop {
            let ended = match self.part {
                Part::Header => {
                    let Some(chunk) = self.take_header(bytes, export.has_structured_replies)?
                    else {
                        return Ok(None);
                    };
                    self.begin(chunk, tasks)?
                }
                Part::Fixed { chunk, length } => {
                    if !self.gather(bytes, to_usize(length)) {
                        return Ok(None);
                    }
                    self.finish_fixed(chunk, tasks, export)?
                }
                Part::Data {
                    cookie,
                    place,
                    left,
                    ..
                } => {
                    if left > 0 && bytes.is_empty() {
                        return Ok(None);
                    }
                    let (piece, rest) = bytes.split_at(to_usize(left).min(bytes.len()));
                    *bytes = rest;
                    keep(tasks, cookie, place, piece);
                    self.skip(piece.len(), tasks)?
                }
                Part::Extents {
                    cookie,
                    left,
                    is_last,
                } => {
                    if left == 0 {
                        self.part = Part::Header;
                        end_of(tasks, cookie, is_last)?
                    } else if self.gather(bytes, to_usize(EXTENT_BYTES)) {
                        keep_extent(tasks, cookie, &self.gathered)?;
                        self.gathered.clear();
                        self.part = Part::Extents {
                            cookie,
                            left: left.saturating_sub(EXTENT_BYTES),
                            is_last,
                        };
                        None
                    } else {
                        return Ok(None);
                    }
                }
            };
            if ended.is_some() {
                return Ok(ended);
            }
        }
    }

    /// The read whose data comes next, and the range of its buffer that is missing.
    pub(crate) fn awaited(&self) -> Option<(u64, Range<usize>)> {
        match self.part {
            Part::Data {
                cookie,
                place,
                left,
                ..
            } => Some((cookie, place..place.saturating_add(to_usize(left)))),
            Part::Header | Part::Fixed { .. } | Part::Extents { .. } => None,
        }
    }

    /// So many bytes of data are where they belong. Gives the cookie of a reply that is complete.
    pub(crate) fn skip<R, W>(
        &mut self,
        count: usize,
        tasks: &mut Tasks<R, W>,
    ) -> Result<Option<u64>, Violation> {
        let Part::Data {
            cookie,
            place,
            left,
            is_last,
        } = self.part
        else {
            return Ok(None);
        };
        let left = left.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        if left == 0 {
            self.part = Part::Header;
            return end_of(tasks, cookie, is_last);
        }
        self.part = Part::Data {
            cookie,
            place: place.saturating_add(count),
            left,
            is_last,
        };
        Ok(None)
    }

    /// Gathers up to `wanted` bytes in all; false while some are missing.
    fn gather(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let missing = wanted.saturating_sub(self.gathered.len());
        let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
        self.gathered.extend_from_slice(taken);
        *bytes = rest;
        self.gathered.len() >= wanted
    }

    fn take_header(
        &mut self,
        bytes: &mut &[u8],
        has_structured: bool,
    ) -> Result<Option<Chunk>, Violation> {
        if !self.gather(bytes, MAGIC_BYTES) {
            return Ok(None);
        }
        let magic = Reader(&self.gathered).u32().unwrap_or_default();
        let wanted = match magic {
            SIMPLE_REPLY_MAGIC => SIMPLE_BYTES,
            STRUCTURED_REPLY_MAGIC if has_structured => STRUCTURED_BYTES,
            STRUCTURED_REPLY_MAGIC => return Err(Violation::NotAgreed),
            magic => return Err(Violation::Magic { magic }),
        };
        if !self.gather(bytes, wanted) {
            return Ok(None);
        }
        let mut reader = Reader(self.gathered.get(MAGIC_BYTES..).unwrap_or_default());
        let chunk = if magic == SIMPLE_REPLY_MAGIC {
            simple_chunk(&mut reader)
        } else {
            structured_chunk(&mut reader)
        };
        self.gathered.clear();
        Ok(chunk)
    }

    /// A header is there: find out what follows.
    fn begin<R, W>(
        &mut self,
        chunk: Chunk,
        tasks: &mut Tasks<R, W>,
    ) -> Result<Option<u64>, Violation> {
        let Chunk {
            cookie,
            kind,
            is_last,
            length,
        } = chunk;
        let task = tasks
            .find(cookie)
            .ok_or(Violation::UnknownCookie { cookie })?;
        let is_read = matches!(task.work, Work::Read { .. });
        let is_status = matches!(task.work, Work::BlockStatus { .. });
        let wrong_length = Violation::ChunkLength { kind, length };
        let fixed = match kind {
            SIMPLE_GOOD => {
                let left = if is_read { task.length } else { 0 };
                if is_read && task.received > 0 {
                    return Err(Violation::ChunkType { kind });
                }
                task.received = left;
                self.part = Part::Data {
                    cookie,
                    place: 0,
                    left,
                    is_last,
                };
                return Ok(None);
            }
            SIMPLE_BAD => {
                let error = ServerError::of_chunk(Some(length), None);
                task.error.get_or_insert(error);
                return end_of(tasks, cookie, is_last);
            }
            chunk::NONE if length == 0 && is_last => return end_of(tasks, cookie, is_last),
            chunk::NONE => return Err(wrong_length),
            chunk::OFFSET_DATA if is_read && length > OFFSET_BYTES => OFFSET_BYTES,
            chunk::OFFSET_HOLE if is_read && length == HOLE_BYTES => HOLE_BYTES,
            chunk::OFFSET_DATA | chunk::OFFSET_HOLE if is_read => return Err(wrong_length),
            chunk::BLOCK_STATUS if is_status => {
                let extents = length.checked_sub(CONTEXT_BYTES);
                match extents {
                    Some(bytes) if bytes > 0 && bytes.is_multiple_of(EXTENT_BYTES) => CONTEXT_BYTES,
                    Some(_) | None => return Err(wrong_length),
                }
            }
            kind if kind & chunk::ERROR_BIT == 0 => return Err(Violation::ChunkType { kind }),
            _ if (ERROR_BYTES..=ERROR_MAX_BYTES).contains(&length) => length,
            _ => return Err(wrong_length),
        };
        self.part = Part::Fixed {
            chunk,
            length: fixed,
        };
        Ok(None)
    }

    /// The fixed part of a chunk is there.
    fn finish_fixed<R: AsMut<[u8]>, W>(
        &mut self,
        chunk: Chunk,
        tasks: &mut Tasks<R, W>,
        export: &Export,
    ) -> Result<Option<u64>, Violation> {
        let Chunk {
            cookie,
            kind,
            is_last,
            length,
        } = chunk;
        let task = tasks
            .find(cookie)
            .ok_or(Violation::UnknownCookie { cookie })?;
        let mut reader = Reader(&self.gathered);
        let mut next = Part::Header;
        match kind {
            kind if kind & chunk::ERROR_BIT != 0 => {
                let number = reader.u32();
                let message = self.gathered.get(ERROR_BYTES as usize..);
                let error = ServerError::of_chunk(number, message);
                task.error.get_or_insert(error);
            }
            chunk::OFFSET_DATA => {
                let left = length.saturating_sub(OFFSET_BYTES);
                let place = claim(task, reader.u64().unwrap_or_default(), left)?;
                next = Part::Data {
                    cookie,
                    place,
                    left,
                    is_last,
                };
            }
            chunk::BLOCK_STATUS => {
                if reader.u32() != export.allocation_context || task.received > 0 {
                    return Err(Violation::BlockStatus);
                }
                task.received = 1;
                next = Part::Extents {
                    cookie,
                    left: length.saturating_sub(CONTEXT_BYTES),
                    is_last,
                };
            }
            _ => {
                let offset = reader.u64().unwrap_or_default();
                let hole = reader.u32().unwrap_or_default();
                let place = claim(task, offset, hole)?;
                clear(task, place, hole);
            }
        }
        self.gathered.clear();
        self.part = next;
        if matches!(next, Part::Header) {
            end_of(tasks, cookie, is_last)
        } else {
            Ok(None)
        }
    }
}

/// Types that simple replies are given here; no chunk on the wire has them.
const SIMPLE_GOOD: u16 = 0x7ffe;
const SIMPLE_BAD: u16 = 0x7fff;

fn simple_chunk(reader: &mut Reader<'_>) -> Option<Chunk> {
    let (error, cookie) = (reader.u32()?, reader.u64()?);
    Some(Chunk {
        cookie,
        kind: if error == 0 { SIMPLE_GOOD } else { SIMPLE_BAD },
        is_last: true,
        length: error,
    })
}

fn structured_chunk(reader: &mut Reader<'_>) -> Option<Chunk> {
    let (flags, kind, cookie, length) =
        (reader.u16()?, reader.u16()?, reader.u64()?, reader.u32()?);
    let kind = match kind {
        // Not to be taken for a simple reply.
        SIMPLE_GOOD | SIMPLE_BAD => 0x7ffd,
        kind => kind,
    };
    Some(Chunk {
        cookie,
        kind,
        is_last: flags & chunk::DONE != 0,
        length,
    })
}

/// The cookie of a reply that is complete; refuses one that hides that data is missing.
fn end_of<R, W>(
    tasks: &mut Tasks<R, W>,
    cookie: u64,
    is_last: bool,
) -> Result<Option<u64>, Violation> {
    if !is_last {
        return Ok(None);
    }
    match tasks.find(cookie) {
        Some(task) if task.error.is_none() => {
            let is_read = matches!(task.work, Work::Read { .. });
            if matches!(task.work, Work::BlockStatus { .. }) && task.received == 0 {
                return Err(Violation::BlockStatus);
            }
            if is_read && task.received != task.length {
                return Err(Violation::DataMissing {
                    received: task.received,
                    expected: task.length,
                });
            }
            Ok(Some(cookie))
        }
        Some(_) | None => Ok(Some(cookie)),
    }
}

/// Takes note of data that comes, and gives its place in the buffer.
fn claim<R, W>(task: &mut Task<R, W>, offset: u64, length: u32) -> Result<usize, Violation> {
    let outside = Violation::DataOutside { offset, length };
    let place = offset.checked_sub(task.offset).ok_or(outside)?;
    let end = place.checked_add(length.into()).ok_or(outside)?;
    let received = task.received.checked_add(length).ok_or(outside)?;
    if length == 0 || end > u64::from(task.length) || received > task.length {
        return Err(outside);
    }
    let part = u32::try_from(place).ok().zip(u32::try_from(end).ok());
    let (start, end) = part.ok_or(outside)?;
    // A part that comes twice would make up for one that is missing.
    if !task.arrived.add(start..end) {
        return Err(Violation::DataTwice { offset, length });
    }
    task.received = received;
    Ok(to_usize(start))
}

fn place_of<R: AsMut<[u8]>, W>(
    task: &mut Task<R, W>,
    place: usize,
    length: usize,
) -> Option<&mut [u8]> {
    match &mut task.work {
        Work::Read {
            buffer: ReadBuffer::Into(buffer),
            ..
        } => buffer.as_mut().get_mut(place..place.checked_add(length)?),
        Work::Read { .. }
        | Work::Write { .. }
        | Work::Flush
        | Work::Trim { .. }
        | Work::WriteZeroes { .. }
        | Work::BlockStatus { .. } => None,
    }
}

fn clear<R: AsMut<[u8]>, W>(task: &mut Task<R, W>, place: usize, length: u32) {
    if let Some(hole) = place_of(task, place, to_usize(length)) {
        hole.fill(0);
    }
}

fn keep<R: AsMut<[u8]>, W>(tasks: &mut Tasks<R, W>, cookie: u64, place: usize, piece: &[u8]) {
    if let Some(task) = tasks.find(cookie)
        && let Some(room) = place_of(task, place, piece.len())
    {
        room.copy_from_slice(piece);
    }
}

/// Keeps an extent of a block status, if there is room for it.
fn keep_extent<R, W>(tasks: &mut Tasks<R, W>, cookie: u64, bytes: &[u8]) -> Result<(), Violation> {
    let mut reader = Reader(bytes);
    let length = reader.u32().unwrap_or_default();
    let state = reader.u32().unwrap_or_default();
    if length == 0 {
        return Err(Violation::BlockStatus);
    }
    if let Some(task) = tasks.find(cookie)
        && let Work::BlockStatus {
            count_max, extents, ..
        } = &mut task.work
        && extents.len() < *count_max
    {
        extents.push(StatusExtent {
            length,
            is_hole: state & STATE_HOLE != 0,
            is_zero: state & STATE_ZERO != 0,
        });
    }
    Ok(())
}

/// A length as an index.
pub(crate) fn to_usize(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}
