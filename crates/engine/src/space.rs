//! How much space a unit may take, and what is looked at when the store has answered a task.

use store::{IoRequest, Mark};

/// How much space a unit may still take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Space {
    /// As much as there is.
    #[default]
    Free,
    /// Little is left; initiators are notified.
    Low,
    /// None.
    Full,
}

/// What is looked at when the store has answered a task: what it knows of the blocks that it is about to write, while
/// its unit is full; what its flush covers and what it writes, where the store may lose what it has answered.
#[derive(Debug, Default)]
pub(crate) enum Look {
    /// Nothing.
    #[default]
    None,
    /// The store is being asked for this request; its blocks before this byte have space.
    Asked { request: Box<IoRequest>, from: u64 },
    /// All have space.
    Passed,
    /// It flushes, and this is what that covers.
    Covers(Mark),
    /// It flushes what it has written itself, and this is what that covers.
    CoversOwn(Mark),
    /// It writes, and the store had lost something so many times when that began.
    Writes(u64),
}
