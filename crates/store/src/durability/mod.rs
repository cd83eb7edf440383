//! What becomes of what a store has answered. None of this knows a clock, a thread or a store.
//!
//! * [`Durability`] is what a store says of it; [`Writes`] counts that for a remote store.
//! * [`WriteCache`] knows whether the cache of a unit is on, and what of it a flush has still to cover.
//! * [`Losses`] knows whose writes no flush has covered, and who is still to get a report that they may be lost. The
//!   idea is that of Linux's `errseq_t`: a loss is an epoch of the unit, an initiator is concerned by it if a write of
//!   it was uncovered then, and each of its sessions has a cursor. A flush fails once while the cursor of its session
//!   is behind a loss that concerns its initiator.
//! * [`Flushes`] has the flushes that no command asked for, each with its deadline.
//!
//! | who asks | the store gets | what it means here |
//! | --- | --- | --- |
//! | a write with the cache on | a write | `Losses::note_write` when it is answered |
//! | FUA, or the cache off | a durable write | nothing to cover; `OwnFlush` where it is a write and a flush |
//! | an unmap with the cache off | an unmap, then a flush | the flush covers its own (`Losses::cover`) |
//! | COMPARE AND WRITE | one request, or a fence, a read, a write | as for a write |
//! | SYNCHRONIZE CACHE, NBD FLUSH | a flush | `Losses::end_flush`: it covers, or reports a loss |
//! | a READ with FUA, VERIFY | a flush first | nothing: it reports no loss and covers none |
//! | MODE SELECT, cache off | a flush, all cores having it off | `WriteCache::note_flushed` shows it as off |
//! | `cache=` | the same, for an order (`Flushes`) | all units of a change or none: `WriteCache::take_back` |
//! | an initiator's eject | a flush behind a fence | as SYNCHRONIZE CACHE |
//! | an administrator's eject | the same, for an order (`Flushes`) | `Losses::is_owed`; reported when delivered |
//! | removal, the end | the last flush (`Flushes`) | `WriteCache::may_hold`: whether a failed one is named |
//! | a session that ends | nothing | `Losses::depart`: later sessions get what it has not had |
//! | a log (`journal`) | a flush before it frees space | after a loss it frees none, and is replayed |
//! | a composition | a flush of each member | `Durability::with`: that of all members |
//! | a snapshot | a sync of its file, the medium held | nothing: a remote store has none |
//! | a remote store | a flush by an old connection | `Writes`: one that ends before that is a loss |

mod cache;
mod flushes;
mod losses;
mod writes;

pub use self::cache::WriteCache;
pub use self::flushes::{Flush, FlushFailure, FlushStep, FlushTaken, Flushes};
pub use self::losses::{Departure, Losses, Mark, Party};
pub use self::writes::{OwnFlush, Writes};

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
