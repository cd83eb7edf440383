//! What becomes of what a store has answered: one pure machine for each unit.
//!
//! [`Durability`] is what a store says of it. [`Losses`] knows whose writes no flush has covered, and who is still to
//! get a report that some of them may be lost. The idea is that of Linux's `errseq_t`: a loss is an epoch of the unit,
//! an initiator is concerned by it if a write of it was uncovered then, and each of its sessions has a cursor. A flush
//! fails once while the cursor of its session is behind a loss that concerns its initiator.

mod cache;
mod losses;

pub use self::cache::WriteCache;
pub use self::losses::{Departure, Losses, Mark, Party};

/// What has become of what a store has answered, on any core, since it was opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Durability {
    /// Something was answered as written that no flush has covered, or a flush could not cover. A store that does not
    /// know says so, too.
    pub may_have_unflushed: bool,
    /// How often something that no flush had covered may have been lost: the cache of a server went with it, and the
    /// store goes on. A flush after that is good, so the one who hands requests over has to report it to those whom it
    /// concerns. `None`: that cannot happen, or a flush fails for good after it.
    pub lost: Option<u64>,
    /// How many of those losses are of what was written before the store was opened, as by a process that was killed:
    /// who has the medium says that something is lost, and it is nothing that was answered here.
    pub lost_before: u64,
}

impl Durability {
    /// Of a store that was asked for nothing.
    pub const NOTHING: Self = Self {
        may_have_unflushed: false,
        lost: None,
        lost_before: 0,
    };

    /// Of a store that does not count what it answers, and remembers a flush that failed.
    pub const UNCOUNTED: Self = Self {
        may_have_unflushed: true,
        ..Self::NOTHING
    };

    /// That of two stores together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let lost = self.lost.into_iter().chain(other.lost);
        Self {
            may_have_unflushed: self.may_have_unflushed || other.may_have_unflushed,
            lost: lost.reduce(u64::saturating_add),
            lost_before: self.lost_before.saturating_add(other.lost_before),
        }
    }
}
