//! Which writes a server answered and no flush has covered, for all cores of a remote store.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Durability;
use crate::{IoFailure, IoResult};

/// What is known of writes that a flush has to cover.
#[derive(Debug, Default)]
pub struct Writes {
    /// How many the server answered without being durable.
    answered: AtomicU64,
    /// How many of those a flush has covered.
    covered: AtomicU64,
    /// How often a connection was lost after writes that no flush had covered: the server may have dropped them.
    lost: AtomicU64,
    /// How many of these losses were of nothing that was answered here.
    lost_before: AtomicU64,
    /// One connection is lost at a time.
    losing: Mutex<()>,
    /// The server could not make writes durable, and may report the next flush as good, as the kernel does with its
    /// cache.
    has_failed: AtomicBool,
}

impl Writes {
    /// The server has answered a write that need not be durable.
    pub fn note_answered(&self) {
        self.answered.fetch_add(1, Ordering::SeqCst);
    }

    /// What a flush that begins now covers.
    pub fn mark(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// How many of the writes that the server answered need no flush any more.
    pub fn covered(&self) -> u64 {
        self.covered.load(Ordering::SeqCst)
    }

    /// A flush that began at this mark was good.
    pub fn note_flushed(&self, mark: u64) {
        self.covered.fetch_max(mark, Ordering::SeqCst);
    }

    /// A connection is lost.
    pub fn note_lost(&self) {
        let _alone = self.losing.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = self.mark();
        // In this order: who finds nothing to cover and then asks for losses knows of this one.
        if self.covered.load(Ordering::SeqCst) < answered {
            self.lost.fetch_add(1, Ordering::SeqCst);
        }
        self.covered.fetch_max(answered, Ordering::SeqCst);
    }

    /// The server says itself that it has lost something. Where it is nothing that was written here, it is something
    /// that was written before, by a program that is no more.
    pub fn note_reported(&self) {
        let _alone = self.losing.lock().unwrap_or_else(PoisonError::into_inner);
        let answered = self.mark();
        if self.covered() >= answered {
            self.lost_before.fetch_add(1, Ordering::SeqCst);
        }
        self.lost.fetch_add(1, Ordering::SeqCst);
        self.covered.fetch_max(answered, Ordering::SeqCst);
    }

    /// The server failed a flush, or a write that was to be durable.
    pub fn note_failed(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
    }

    /// Whether nothing can be made durable any more, until the store is opened again.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::SeqCst)
    }

    /// How often something may have been lost: [`Durability::lost`].
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// What the engine has to know of it, for [`Backstore::durability`](crate::Backstore::durability).
    pub fn durability(&self) -> Durability {
        // In this order: a store that has lost what it had answered has nothing left to cover, and whoever finds that
        // has to know of the loss.
        let may_have_unflushed = self.has_uncovered();
        let lost_before = self.lost_before.load(Ordering::SeqCst);
        Durability {
            may_have_unflushed,
            lost: Some(self.lost()),
            lost_before,
        }
    }

    /// Whether a write may be lost if nothing is flushed any more.
    pub fn has_uncovered(&self) -> bool {
        self.has_failed() || self.covered.load(Ordering::SeqCst) < self.mark()
    }
}

/// A flush that makes a write durable which is not durable by itself. Its server may lose the write in between, and
/// then do the flush.
#[derive(Debug)]
pub struct OwnFlush {
    /// How often something was lost when the write began.
    since: u64,
    is_begun: bool,
}

impl OwnFlush {
    /// The write begins.
    pub fn new(writes: &Writes) -> Self {
        Self {
            since: writes.lost(),
            is_begun: false,
        }
    }

    /// The flush begins.
    pub const fn begin(&mut self) {
        self.is_begun = true;
    }

    /// What the request ends with.
    pub fn settle(&self, result: IoResult, writes: &Writes) -> IoResult {
        match result {
            Ok(_) if self.is_begun && self.since < writes.lost() => Err(IoFailure::CacheLost),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_uncovered_until_a_flush_that_began_after_it_or_until_it_is_lost() {
        let writes = Writes::default();
        assert!(!writes.has_uncovered());
        writes.note_answered();
        let mark = writes.mark();
        writes.note_answered();
        writes.note_flushed(mark);
        assert!(writes.has_uncovered());
        writes.note_flushed(writes.mark());
        assert!(!writes.has_uncovered());
        // Nothing was written since.
        writes.note_lost();
        assert!(!writes.has_uncovered());
        writes.note_answered();
        writes.note_lost();
        // What is lost is lost: that is counted, and no flush can cover it.
        assert!(writes.lost() == 1 && !writes.has_uncovered());
        writes.note_lost();
        assert_eq!(writes.lost(), 1, "nothing was written since");
        writes.note_failed();
        assert!(writes.has_uncovered());
        writes.note_lost();
        assert_eq!(writes.lost(), 1, "there was nothing to lose");
        writes.note_reported();
        assert_eq!(
            (writes.lost(), writes.durability().lost_before),
            (2, 1),
            "it says so"
        );
        writes.note_answered();
        writes.note_reported();
        assert_eq!((writes.lost(), writes.durability().lost_before), (3, 1));
    }

    #[test]
    fn a_flush_does_not_cover_what_was_lost_before_it() {
        let writes = Writes::default();
        let mut flushing = OwnFlush::new(&writes);
        writes.note_answered();
        writes.note_lost();
        let good = || Ok(crate::IoAnswer::Done);
        assert!(flushing.settle(good(), &writes).is_ok(), "no flush");
        flushing.begin();
        let settled = flushing.settle(good(), &writes);
        assert!(matches!(settled, Err(IoFailure::CacheLost)));
        let mut later = OwnFlush::new(&writes);
        later.begin();
        assert!(later.settle(good(), &writes).is_ok());
    }
}
