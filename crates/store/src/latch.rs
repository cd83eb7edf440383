//! Whether a flush of a disk failed. One latch for all cores.

use std::sync::atomic::{AtomicU64, Ordering};

/// Set when a flush failed; the other bits count suspicions.
const FAILED: u64 = 1 << 63;

/// Remembers a failed flush until the disk is opened again.
///
/// A failure that may have been one of a flush is a *suspicion*: it sets the latch at once. Only
/// [`FlushLatch::lift`] takes a suspicion back. A suspicion that nobody decides (its request was
/// aborted or cancelled, or its second try never ends) therefore stays for good.
#[derive(Debug, Default)]
pub(crate) struct FlushLatch(AtomicU64);

impl FlushLatch {
    /// A flush failed, or may have.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// A flush failed.
    pub(crate) fn set(&self) {
        self.0.fetch_or(FAILED, Ordering::AcqRel);
    }

    /// A flush may have failed.
    pub(crate) fn suspect(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// One suspicion was wrong: no flush took part in that failure.
    pub(crate) fn lift(&self) {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !FAILED > 0, "a suspicion is lifted once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspicion_sets_it_until_it_is_lifted_and_others_stay() {
        let latch = FlushLatch::default();
        assert!(!latch.is_set());
        latch.suspect();
        latch.suspect();
        latch.lift();
        assert!(latch.is_set(), "the other suspicion stays");
        latch.lift();
        assert!(!latch.is_set());
    }

    #[test]
    fn a_failure_stays_whatever_is_lifted_beside_it() {
        let latch = FlushLatch::default();
        latch.suspect();
        latch.set();
        latch.set();
        latch.lift();
        assert!(latch.is_set());
    }
}
