//! A request of the engine: the jobs that it is cut into, and what has come of them.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use memory::{Buffer, Payload};
use nbd::{Export, ReadBuffer, ServerError, StatusExtent, Work};
use store::{Extent, IoAnswer, IoFailure, IoRequest, IoResult, OwnFlush, Writes};

use super::job::{Data, JobWork, Space};

/// Zeros are given back or written in pieces of this size, so that a server that writes them slowly serves others in
/// between.
const ZEROS_BYTES_MAX: u64 = 64 << 20;
/// Zeros that are sent, because the server cannot write them by itself.
const FIELD_BYTES: u64 = 64 << 10;

/// Jobs of one request that are under way at a time.
const JOBS_MAX: usize = 4;

/// What the request wants at its end.
#[derive(Debug)]
enum Kind {
    Read {
        buffer: Option<Buffer>,
    },
    /// A flush follows the write, because the server cannot write durably.
    Write {
        needs_flush: bool,
    },
    Flush,
    Extents {
        range: Range<u64>,
        count_max: usize,
        found: Vec<StatusExtent>,
    },
}

/// What the rest of a request is cut into.
#[derive(Debug)]
enum Cut {
    /// Reads into memory of their own.
    Reads,
    /// Writes of this data, whose first byte goes to that offset.
    Writes { data: Data, from: u64, fua: bool },
    /// Zeros that the server writes by itself.
    Zeroes { no_hole: bool, fua: bool },
    /// Zeros that are sent.
    Field { zeros: Arc<[u8]>, fua: bool },
}

/// The jobs of a request that are not handed out yet.
#[derive(Debug)]
enum Rest {
    Whole(u64, JobWork),
    Pieces {
        range: Range<u64>,
        longest: u64,
        cut: Cut,
    },
    Nothing,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Open {
    kind: Kind,
    offset: u64,
    rest: Rest,
    jobs: usize,
    failure: Option<IoFailure>,
    is_cancelled: bool,
    flushing: OwnFlush,
}

impl Open {
    /// Prepares to cut a request into jobs that the server takes.
    pub(super) fn new(request: IoRequest, export: &Export, flushing: OwnFlush) -> Self {
        let can_fua = export.flags.can_fua();
        let durably = |durable: bool| {
            let needs_flush = durable && !can_fua && export.flags.can_flush();
            (Kind::Write { needs_flush }, durable && can_fua)
        };
        let (kind, offset, rest) = match request {
            IoRequest::Read {
                offset,
                len,
                buffer,
            } => {
                let (kind, rest) = read(offset, len, buffer, export);
                (kind, offset, rest)
            }
            IoRequest::Write {
                offset,
                data,
                durable,
            } => {
                let (kind, fua) = durably(durable);
                (kind, offset, write(offset, data, fua, export))
            }
            IoRequest::Flush => (Kind::Flush, 0, Rest::Whole(0, Work::Flush)),
            IoRequest::Unmap { range } => {
                let (kind, fua) = durably(false);
                (kind, range.start, zeros(range, false, fua, export))
            }
            IoRequest::WriteZeros { range, durable } => {
                let (kind, fua) = durably(durable);
                (kind, range.start, zeros(range, true, fua, export))
            }
            IoRequest::Extents { range, count_max } => extents(range, count_max, export),
            // No capability promises it.
            IoRequest::CompareAndWrite { .. } | IoRequest::Device(_) => {
                let (kind, _) = durably(false);
                let failure = Some(IoFailure::Hardware {
                    errno: NOT_SUPPORTED,
                });
                return Self {
                    failure,
                    ..Self::with(kind, 0, Rest::Nothing, flushing)
                };
            }
        };
        Self::with(kind, offset, rest, flushing)
    }

    const fn with(kind: Kind, offset: u64, rest: Rest, flushing: OwnFlush) -> Self {
        Self {
            kind,
            offset,
            rest,
            jobs: 0,
            failure: None,
            is_cancelled: false,
            flushing,
        }
    }

    /// Nobody needs its result: no more of it is begun.
    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
        self.rest = Rest::Nothing;
    }

    pub(super) const fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// The next job, with its offset, if one is to begin now.
    pub(super) fn take_job(&mut self) -> Option<(u64, JobWork)> {
        if self.jobs >= JOBS_MAX || self.failure.is_some() {
            return None;
        }
        let job = match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Whole(offset, work) => (offset, work),
            Rest::Pieces {
                mut range,
                longest,
                cut,
            } => {
                let end = range.start.saturating_add(longest).min(range.end);
                let job = (range.start, cut.piece(range.start..end));
                range.start = end;
                if !range.is_empty() {
                    self.rest = Rest::Pieces {
                        range,
                        longest,
                        cut,
                    };
                }
                job
            }
            Rest::Nothing => match &mut self.kind {
                Kind::Write {
                    needs_flush: needs_flush @ true,
                } if self.jobs == 0 && !self.is_cancelled => {
                    *needs_flush = false;
                    self.flushing.begin();
                    (0, Work::Flush)
                }
                Kind::Write { .. } | Kind::Read { .. } | Kind::Flush | Kind::Extents { .. } => {
                    return None;
                }
            },
        };
        self.jobs += 1;
        Some(job)
    }

    /// A job of it is over.
    pub(super) fn end_job(&mut self, offset: u64, work: JobWork, result: Result<(), IoFailure>) {
        self.jobs -= 1;
        if let Err(failure) = result {
            self.failure.get_or_insert(failure);
        }
        match (&mut self.kind, work) {
            (
                Kind::Read { buffer },
                Work::Read {
                    buffer: ReadBuffer::Into(space),
                    ..
                },
            ) => match space {
                Space::Pool(whole) => *buffer = Some(whole),
                Space::Own(bytes) => {
                    let start = usize::try_from(offset - self.offset).unwrap_or(usize::MAX);
                    let end = start.saturating_add(bytes.len());
                    let place = buffer.as_mut().and_then(|all| all.get_mut(start..end));
                    if let Some(place) = place {
                        place.copy_from_slice(&bytes);
                    }
                }
            },
            (Kind::Extents { found, .. }, Work::BlockStatus { extents, .. }) => *found = extents,
            (Kind::Read { .. } | Kind::Write { .. } | Kind::Flush | Kind::Extents { .. }, _) => {}
        }
    }

    /// The result, when nothing of it is under way or left.
    pub(super) fn result(&mut self, writes: &Writes) -> Option<IoResult> {
        let result = self.own_result()?;
        Some(self.flushing.settle(result, writes))
    }

    fn own_result(&mut self) -> Option<IoResult> {
        if self.jobs > 0 {
            return None;
        }
        if self.is_cancelled {
            return Some(Err(IoFailure::Cancelled));
        }
        if let Some(failure) = self.failure.take() {
            return Some(Err(failure));
        }
        debug_assert!(matches!(self.rest, Rest::Nothing), "jobs are left");
        Some(Ok(match &mut self.kind {
            Kind::Write { .. } | Kind::Flush => IoAnswer::Done,
            Kind::Read { buffer } => {
                IoAnswer::Data(buffer.take().map_or(Payload::Empty, Payload::Pool))
            }
            Kind::Extents {
                range,
                count_max,
                found,
            } => IoAnswer::Extents(merged(range.clone(), *count_max, found)),
        }))
    }
}

impl Cut {
    /// The job for a part of the range.
    fn piece(&self, range: Range<u64>) -> JobWork {
        let length = u32::try_from(range.end - range.start).unwrap_or(LENGTH_MAX);
        let len = usize::try_from(length).unwrap_or_default();
        match self {
            Self::Reads => Work::Read {
                length,
                buffer: ReadBuffer::Into(Space::Own(vec![0; len])),
            },
            Self::Writes { data, from, fua } => {
                let start = usize::try_from(range.start - from).unwrap_or(usize::MAX);
                Work::Write {
                    length,
                    data: data.part(start..start.saturating_add(len)),
                    fua: *fua,
                }
            }
            Self::Zeroes { no_hole, fua } => Work::WriteZeroes {
                length,
                fua: *fua,
                no_hole: *no_hole,
                fast: false,
            },
            Self::Field { zeros, fua } => Work::Write {
                length,
                data: Data::Shared(Arc::clone(zeros), 0..len),
                fua: *fua,
            },
        }
    }
}

/// As many extents of an answer are kept, for those that are alike to become one.
const STATUS_EXTENTS_MAX: usize = 1024;
/// `EOPNOTSUPP`.
const NOT_SUPPORTED: i32 = 95;
/// The longest range of one request of the protocol that is asked for, in bytes: whole blocks of any size.
const LENGTH_MAX: u32 = 1 << 30;

/// The longest data of one request, in whole blocks.
fn payload_max(export: &Export) -> u64 {
    let max = u64::from(export.payload_max_bytes);
    let block = u64::from(export.block_preferred_bytes.max(4096));
    // A server that takes less than a block at a time has blocks that small.
    match max - max % block {
        0 => max,
        whole => whole,
    }
}

fn read(offset: u64, len: usize, buffer: Option<Buffer>, export: &Export) -> (Kind, Rest) {
    let longest = payload_max(export);
    match buffer {
        Some(buffer) if len as u64 <= longest => {
            let length = u32::try_from(len).unwrap_or(LENGTH_MAX);
            let buffer = ReadBuffer::Into(Space::Pool(buffer));
            let work = Work::Read { length, buffer };
            (Kind::Read { buffer: None }, Rest::Whole(offset, work))
        }
        buffer => {
            let rest = Rest::Pieces {
                range: offset..offset + len as u64,
                longest,
                cut: Cut::Reads,
            };
            (Kind::Read { buffer }, rest)
        }
    }
}

fn write(offset: u64, data: Payload, fua: bool, export: &Export) -> Rest {
    let range = offset..offset + data.len() as u64;
    let len = data.len();
    let data = match data {
        Payload::Pool(buffer) => Data::Pool(Rc::new(buffer), 0..len),
        // A part of a pool buffer: what came in a chunk was copied for a store that needs its own buffers.
        Payload::Received { chunk, offset, .. } => Data::Pool(chunk, offset..offset + len),
        other @ (Payload::Empty | Payload::Mapped(_) | Payload::Heap(_)) => {
            Data::Shared(other.to_vec().into(), 0..len)
        }
    };
    let from = offset;
    Rest::Pieces {
        range,
        longest: payload_max(export),
        cut: Cut::Writes { data, from, fua },
    }
}

fn zeros(range: Range<u64>, no_hole: bool, fua: bool, export: &Export) -> Rest {
    if export.flags.can_write_zeroes() {
        return Rest::Pieces {
            range,
            longest: ZEROS_BYTES_MAX,
            cut: Cut::Zeroes { no_hole, fua },
        };
    }
    let longest = FIELD_BYTES.min(payload_max(export));
    let zeros = vec![0; usize::try_from(longest).unwrap_or_default()].into();
    Rest::Pieces {
        range,
        longest,
        cut: Cut::Field { zeros, fua },
    }
}

fn extents(range: Range<u64>, count_max: usize, export: &Export) -> (Kind, u64, Rest) {
    let offset = range.start;
    let length = u32::try_from(range.end - range.start).unwrap_or(LENGTH_MAX);
    let length = length.min(LENGTH_MAX);
    let mut found = Vec::new();
    let rest = if export.allocation_context.is_some() {
        let extents = Vec::new();
        let work = Work::BlockStatus {
            length,
            count_max: STATUS_EXTENTS_MAX,
            extents,
        };
        Rest::Whole(offset, work)
    } else {
        // What the server does not say is taken for data.
        found.push(StatusExtent {
            length,
            is_hole: false,
            is_zero: false,
        });
        Rest::Nothing
    };
    let kind = Kind::Extents {
        range,
        count_max,
        found,
    };
    (kind, offset, rest)
}

/// Adjacent extents, from the start of the range on, not behind its end.
fn merged(range: Range<u64>, count_max: usize, found: &[StatusExtent]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut start = range.start;
    for extent in found {
        let end = start.saturating_add(extent.length.into()).min(range.end);
        if start >= end {
            break;
        }
        // A hole that may read something else is no hole for an initiator.
        let mapped = !(extent.is_hole && extent.is_zero);
        if let Some(last) = extents.last_mut().filter(|last| last.mapped == mapped) {
            last.range.end = end;
        } else if extents.len() < count_max {
            let range = start..end;
            extents.push(Extent { range, mapped });
        } else {
            break;
        }
        start = end;
    }
    extents
}

/// What an error of the server's means. The offset is that of the job.
pub(super) fn failure_of(error: ServerError, offset: u64) -> IoFailure {
    match error {
        ServerError::NO_SPACE => IoFailure::NoSpace { offset },
        ServerError::NOT_PERMITTED => IoFailure::ReadOnly,
        ServerError::IO => IoFailure::Medium { offset },
        // A write that was to be durable.
        ServerError::CACHE_LOST => IoFailure::CacheLost,
        ServerError(errno) => IoFailure::Hardware {
            errno: i32::try_from(errno).unwrap_or_default(),
        },
    }
}
