//! Who comes in, by which number, and what is answered.

use engine::TargetIndex;

/// A player and one of its numbers: a LUN, the handle of a device, 0 for the unit of an export.
pub(super) type Door = (usize, u16);

/// A status and its sense key, ASC and ASCQ. An error of NBD has no sense.
pub(super) type Answer = (u8, Option<(u8, u8, u8)>);

/// How a player comes in.
#[derive(Clone, Debug)]
pub(super) enum Seat {
    Iscsi { host: usize, target: TargetIndex },
    Hyperscsi,
    Nbd { export: String },
}
