//! Which answers have a reason that the reference does not know.

use super::book::{Book, is_saved};
use super::books::{Books, Open};
use super::outcomes::{Kind, NO_SPACE};
use super::seat::Answer;
use crate::initiator::Operation;
use crate::ledger::Handle;

impl Books {
    /// Whether a device server may answer a command so.
    pub(super) fn is_explained(
        &self,
        handle: Handle,
        open: &Open,
        (status, sense): Answer,
    ) -> bool {
        let any = |is: &dyn Fn(&Book) -> bool| open.units.iter().any(|unit| is(&self.units[*unit]));
        match (status, sense) {
            (0x00 | 0x08 | 0x18 | 0x28, _) | (0x02, None) => true,
            (0x02, Some((6, asc, ascq))) => Kind::of(asc, ascq).is_some(),
            (0x02, Some((5, 0x25, _))) => open.may_miss,
            (0x02, Some(NO_SPACE)) => {
                let may_be = any(&|book| book.may_be_full(handle));
                open.operation.writes() && (may_be || open.units.len() > 1)
            }
            // The reference judges these.
            (0x02, Some((5 | 7 | 0x0e, ..))) => true,
            // What it was to save could not be saved.
            (0x02, Some((4, 0x44, 0))) if is_saved(&open.operation) => true,
            (0x02, Some((3 | 4, ..))) => any(&|book| book.may_fail(&open.operation)),
            // Whatever else is becoming ready, too.
            (0x02, Some((2, 4, 1))) => {
                let is_of_blocks = matches!(open.operation, Operation::Read { .. });
                !is_of_blocks || any(&|book| book.may_fail(&open.operation))
            }
            (0x02, Some((0x0b, 0x0c | 0x47, _))) => false,
            (0x02, Some((2 | 0x0b, ..))) => true,
            (_, _) => false,
        }
    }
}
