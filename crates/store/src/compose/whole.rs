//! A request of a composition, and what it asks of its members.

use std::ops::Range;

use memory::{Buffer, CutBuffer, Payload};

use super::layout::{Layout, Piece};
use super::slots::Key;
use crate::{Extent, IoAnswer, IoFailure, IoRequest, IoTag};

/// A request of the composition that is not over.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) tag: IoTag,
    /// What is not begun.
    pub(super) rest: Rest,
    /// How many parts are not over.
    pub(super) parts: usize,
    pub(super) failure: Option<IoFailure>,
    pub(super) answer: Answer,
}

/// What of a read or a write is not begun yet.
#[derive(Debug)]
pub(super) enum Rest {
    Nothing,
    Read(Range<u64>),
    Write {
        range: Range<u64>,
        /// Of which the last bytes are those of the range.
        data: Payload,
        durable: bool,
    },
}

/// What a whole is answered with.
#[derive(Debug)]
pub(super) enum Answer {
    /// The one part's own.
    Alone(Option<IoAnswer>),
    Done,
    Data(CutBuffer),
    Extents {
        range: Range<u64>,
        count_max: usize,
        /// Of members.
        lists: Vec<(usize, Vec<Extent>)>,
    },
}

/// What a whole asks of one member.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) whole: Key,
    pub(super) member: usize,
    /// Where it begins, on the member and in the composition.
    pub(super) begins: (u64, u64),
    /// Where data goes that the member has in memory of its own.
    pub(super) space: Option<Buffer>,
}

impl Answer {
    /// Of a request without data.
    pub(super) fn of_shares(request: &IoRequest) -> Self {
        match request {
            IoRequest::Extents { range, count_max } => Self::Extents {
                range: range.clone(),
                count_max: *count_max,
                lists: Vec::new(),
            },
            IoRequest::Read { .. }
            | IoRequest::Write { .. }
            | IoRequest::CompareAndWrite { .. }
            | IoRequest::Flush
            | IoRequest::Unmap { .. }
            | IoRequest::WriteZeros { .. }
            | IoRequest::Device(_) => Self::Done,
        }
    }
}

impl Whole {
    /// The next piece of a read or a write.
    pub(super) fn next_part(
        &mut self,
        key: Key,
        layout: &Layout,
        is_in_place: impl Fn(&Piece) -> bool,
    ) -> Option<(Part, IoRequest)> {
        let range = match &mut self.rest {
            Rest::Nothing => return None,
            Rest::Read(range) | Rest::Write { range, .. } => range,
        };
        if range.is_empty() {
            self.rest = Rest::Nothing;
            return None;
        }
        let start = range.start;
        let piece = layout.piece(start, range.end - start);
        let Some(piece) = piece.filter(|piece| piece.len > 0) else {
            // The store has shrunk since.
            self.rest = Rest::Nothing;
            self.fail(IoFailure::Truncated { offset: start });
            return None;
        };
        range.start += piece.len;
        let left = usize::try_from(range.end - range.start).unwrap_or_default();
        let len = usize::try_from(piece.len).unwrap_or_default();
        let offset = piece.offset;
        let mut space = None;
        let request = match (&self.rest, &mut self.answer) {
            (Rest::Write { data, durable, .. }, _) => IoRequest::Write {
                offset,
                data: data.part(data.len() - left - len, len),
                durable: *durable,
            },
            (_, Answer::Data(cut)) => {
                let buffer = cut.cut(len);
                let (kept, buffer) = if is_in_place(&piece) {
                    (Some(buffer), None)
                } else {
                    (None, Some(buffer))
                };
                space = kept;
                IoRequest::Read {
                    offset,
                    len,
                    buffer,
                }
            }
            (_, Answer::Alone(_) | Answer::Done | Answer::Extents { .. }) => return None,
        };
        let part = Part {
            whole: key,
            member: piece.member,
            begins: (offset, start),
            space,
        };
        Some((part, request))
    }

    /// Of several failures the worst counts, of two that are alike the first on the medium.
    pub(super) fn fail(&mut self, failure: IoFailure) {
        let rank = |failure: &IoFailure| match failure {
            IoFailure::Cancelled => (0, 0),
            IoFailure::NotReady => (1, 0),
            IoFailure::HeldElsewhere => (2, 0),
            IoFailure::Miscompare { offset } => (3, u64::MAX - offset),
            IoFailure::ReadOnly => (4, 0),
            IoFailure::NoSpace { offset } => (5, u64::MAX - offset),
            IoFailure::Truncated { offset } => (6, u64::MAX - offset),
            IoFailure::Medium { offset } => (7, u64::MAX - offset),
            IoFailure::Hardware { .. } => (8, 0),
            IoFailure::CacheLost => (9, 0),
            IoFailure::FlushLatched => (10, 0),
        };
        let is_worse = self
            .failure
            .as_ref()
            .is_none_or(|known| rank(known) < rank(&failure));
        if is_worse {
            self.failure = Some(failure);
        }
    }
}

/// The same request for another range; `None` for one that has data, or is for all of the store.
pub(super) fn shared(request: &IoRequest, range: Range<u64>) -> Option<IoRequest> {
    match *request {
        IoRequest::Unmap { .. } => Some(IoRequest::Unmap { range }),
        IoRequest::WriteZeros { durable, .. } => Some(IoRequest::WriteZeros { range, durable }),
        IoRequest::Extents { count_max, .. } => Some(IoRequest::Extents { range, count_max }),
        IoRequest::Read { .. }
        | IoRequest::Write { .. }
        | IoRequest::CompareAndWrite { .. }
        | IoRequest::Flush
        | IoRequest::Device(_) => None,
    }
}

/// The same request at another offset.
#[inline]
pub(super) fn moved(request: IoRequest, start: u64) -> IoRequest {
    let at = |range: Range<u64>| start..start + (range.end - range.start);
    match request {
        IoRequest::Read { len, buffer, .. } => IoRequest::Read {
            offset: start,
            len,
            buffer,
        },
        IoRequest::Write { data, durable, .. } => IoRequest::Write {
            offset: start,
            data,
            durable,
        },
        IoRequest::CompareAndWrite { data, durable, .. } => IoRequest::CompareAndWrite {
            offset: start,
            data,
            durable,
        },
        request @ (IoRequest::Flush | IoRequest::Device(_)) => request,
        IoRequest::Unmap { range } => IoRequest::Unmap { range: at(range) },
        IoRequest::WriteZeros { range, durable } => IoRequest::WriteZeros {
            range: at(range),
            durable,
        },
        IoRequest::Extents { range, count_max } => IoRequest::Extents {
            range: at(range),
            count_max,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_several_failures_counts_and_the_first_of_those_that_are_alike() {
        let (first, second) = (512, 4096);
        let mildest_first = [
            IoFailure::Cancelled,
            IoFailure::NotReady,
            IoFailure::HeldElsewhere,
            IoFailure::Miscompare { offset: second },
            IoFailure::Miscompare { offset: first },
            IoFailure::ReadOnly,
            IoFailure::NoSpace { offset: second },
            IoFailure::NoSpace { offset: first },
            IoFailure::Truncated { offset: second },
            IoFailure::Truncated { offset: first },
            IoFailure::Medium { offset: second },
            IoFailure::Medium { offset: first },
            IoFailure::Hardware { errno: 5 },
            IoFailure::CacheLost,
            IoFailure::FlushLatched,
        ];
        for (at, one) in mildest_first.iter().enumerate() {
            for (other_at, other) in mildest_first.iter().enumerate() {
                let mut whole = Whole {
                    tag: IoTag(1),
                    rest: Rest::Nothing,
                    parts: 0,
                    failure: None,
                    answer: Answer::Done,
                };
                whole.fail(one.clone());
                whole.fail(other.clone());
                let worse = &mildest_first[at.max(other_at)];
                assert_eq!(whole.failure.as_ref(), Some(worse), "{one}, then {other}");
            }
        }
    }
}
