//! The next step of a request of which one operation is under way at a time.

use crate::{HelperOperation, IoResult, IoTag, Outlet, PartTag, RingOperation, Submitted};

/// What becomes of a request now.
#[derive(Debug)]
#[must_use = "a request that is not carried on is a lost command"]
pub(crate) enum Next {
    /// It is over.
    Done(IoResult),
    /// The reactor does this for it.
    Ring(RingOperation),
    /// A helper thread does this for it.
    Helper(HelperOperation),
}

impl Next {
    /// Of a request that was submitted.
    #[inline]
    pub(crate) fn begin(self, tag: IoTag, outlet: &mut Outlet) -> Submitted {
        match self {
            Self::Done(result) => return Submitted::Done(result),
            Self::Ring(operation) => outlet.ring(PartTag::of(tag), operation),
            Self::Helper(operation) => outlet.help(PartTag::of(tag), operation),
        }
        Submitted::Taken
    }

    /// Of a request that was taken before.
    pub(crate) fn go_on(self, tag: IoTag, outlet: &mut Outlet) {
        match self {
            Self::Done(result) => outlet.answer(tag, result),
            Self::Ring(operation) => outlet.ring(PartTag::of(tag), operation),
            Self::Helper(operation) => outlet.help(PartTag::of(tag), operation),
        }
    }
}
