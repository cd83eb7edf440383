//! How much space a unit may take, and what a task knows of the blocks that it is about to write.

use store::IoRequest;

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

/// What a task knows of the blocks that it is about to write, while its unit is full.
#[derive(Debug, Default)]
pub(crate) enum Look {
    /// Nothing.
    #[default]
    None,
    /// The store is being asked for this request; its blocks before this byte have space.
    Asked { request: Box<IoRequest>, from: u64 },
    /// All have space.
    Passed,
}
