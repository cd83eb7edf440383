//! Units that are to get no more space: their quota is used up.
//!
//! What blocks hold already may be written again; a request for blocks without space ends as it would on a full
//! medium. So before a request that could take space the store is asked which of its blocks have some. That costs a
//! second request, but only while the unit is full ([`Space::Full`]): the plain path sees one flag more closed, as
//! with a fence.
//!
//! Between the look and the write nothing is held. An UNMAP in between takes space away, and the write gets it back:
//! no more than what the unit had at the look.

use std::ops::Range;

use scsi::{Change, ChangeKind};
use store::{Extent, IoAnswer, IoFailure, IoRequest, IoResult};

use crate::carrier::Carrier;
use crate::engine::Engine;
use crate::keys::TaskKey;
use crate::space::{Look, Space};
use crate::{Ticket, UnitIndex};

/// How many runs of blocks are asked for at a time.
const EXTENTS_MAX: usize = 64;

/// The bytes that a request may need new space for.
fn takes_space(request: &IoRequest) -> Option<Range<u64>> {
    let long = |offset: u64, len: usize| offset..offset.saturating_add(len as u64);
    match request {
        IoRequest::Write { offset, data, .. } => Some(long(*offset, data.len())),
        IoRequest::CompareAndWrite { offset, data, .. } => Some(long(*offset, data.len() / 2)),
        IoRequest::WriteZeros { range, .. } => Some(range.clone()),
        IoRequest::Read { .. }
        | IoRequest::Flush
        | IoRequest::Unmap { .. }
        | IoRequest::Extents { .. }
        | IoRequest::Device(_) => None,
    }
}

/// From which byte on more has to be asked, if all before it has space; the first byte without.
fn with_space(extents: &[Extent], asked: &Range<u64>) -> Result<u64, u64> {
    let mut at = asked.start;
    for extent in extents {
        if extent.range.start > at || at >= asked.end {
            break;
        }
        if !extent.mapped && extent.range.end > at {
            return Err(at);
        }
        at = at.max(extent.range.end);
    }
    Ok(at)
}

impl<C: Carrier> Engine<C> {
    /// How much space a unit may take from now on. All cores have to be asked; the owner notifies initiators.
    pub fn set_space(&mut self, index: UnitIndex, space: Space) {
        let unit = &mut self.units[index];
        let before = std::mem::replace(&mut unit.space, space);
        unit.side.set_full(space == Space::Full);
        if unit.owner.is_some() && before == Space::Free && space != Space::Free {
            let kind = ChangeKind::SpaceLow;
            self.ask_change(index, Ticket::NOBODY, Change { from: None, kind });
        }
    }

    /// The blocks of a request that has to be looked at before it may go to the store of a full unit.
    pub(crate) fn has_to_look(&mut self, key: TaskKey, request: &IoRequest) -> Option<Range<u64>> {
        let running = &mut self.tasks[key];
        if self.units[running.unit].space != Space::Full {
            return None;
        }
        let range = takes_space(request)?;
        match std::mem::take(&mut running.look) {
            Look::Passed => None,
            Look::None | Look::Writes(_) => Some(range),
            other @ (Look::Asked { .. } | Look::Covers(_) | Look::CoversOwn(_)) => {
                debug_assert!(false, "{key:?} asks for two things at once");
                running.look = other;
                None
            }
        }
    }

    /// Asks the store which blocks have space, before a request goes there.
    pub(crate) fn look_first(
        &mut self,
        key: TaskKey,
        request: IoRequest,
        range: Range<u64>,
    ) -> Option<IoResult> {
        let request = self.settle_request(key, request)?;
        self.tasks[key].look = Look::Asked {
            request: Box::new(request),
            from: range.start,
        };
        self.submit(key, ask(range))
    }

    /// The store has answered. The result of the task's own request, if it is there or will not be.
    #[inline]
    pub(crate) fn looked(&mut self, key: TaskKey, result: IoResult) -> Option<IoResult> {
        match self.tasks[key].look {
            Look::None => Some(result),
            Look::Asked { .. }
            | Look::Passed
            | Look::Covers(_)
            | Look::CoversOwn(_)
            | Look::Writes(_) => self.go_on_looking(key, result),
        }
    }

    #[inline(never)]
    fn go_on_looking(&mut self, key: TaskKey, result: IoResult) -> Option<IoResult> {
        let running = &mut self.tasks[key];
        let (request, from) = match std::mem::take(&mut running.look) {
            Look::Asked { request, from } => (request, from),
            Look::Covers(mark) => return Some(self.settle_losses(key, mark, result)),
            Look::CoversOwn(mark) => return Some(self.settle_own(key, mark, result)),
            Look::Writes(since) => {
                self.note_written(key, since, &result);
                return Some(result);
            }
            Look::None | Look::Passed => return Some(result),
        };
        let whole = takes_space(&request).unwrap_or(from..from);
        let extents = match result {
            Ok(IoAnswer::Extents(extents)) => extents,
            // A store that does not answer the question.
            Ok(IoAnswer::Done | IoAnswer::Data(_) | IoAnswer::Device(_)) => Vec::new(),
            Err(failure) => return Some(Err(failure)),
        };
        match with_space(&extents, &(from..whole.end)) {
            Err(offset) => Some(Err(IoFailure::NoSpace { offset })),
            Ok(at) if at >= whole.end => {
                running.look = Look::Passed;
                self.submit(key, *request)
            }
            Ok(at) if at > from => {
                running.look = Look::Asked { request, from: at };
                self.submit(key, ask(at..whole.end))
            }
            // It says nothing about this byte.
            Ok(offset) => Some(Err(IoFailure::NoSpace { offset })),
        }
    }
}

const fn ask(range: Range<u64>) -> IoRequest {
    IoRequest::Extents {
        range,
        count_max: EXTENTS_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(parts: &[(u64, u64, bool)]) -> Vec<Extent> {
        let one = |&(start, end, mapped)| Extent {
            range: start..end,
            mapped,
        };
        parts.iter().map(one).collect()
    }

    #[test]
    fn the_first_byte_without_space_is_found() {
        let asked = 10..30;
        let cases: [(&[_], _); 7] = [
            (&[(10, 30, true)], Ok(30)),
            (&[(0, 64, true)], Ok(64)),
            (&[(10, 20, true)], Ok(20)),
            (&[(10, 20, true), (20, 40, false)], Err(20)),
            (&[(10, 30, true), (30, 40, false)], Ok(30)),
            (&[(10, 40, false)], Err(10)),
            (&[], Ok(10)),
        ];
        for (parts, found) in cases {
            assert_eq!(with_space(&extents(parts), &asked), found, "{parts:?}");
        }
    }
}
