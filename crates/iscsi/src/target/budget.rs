//! What many sessions share, on any thread: a budget for all of them, a share for each holder. Of the bytes that
//! peers make the target hold, each session has an account, too.
//!
//! A [`Budget`] is a number of bytes, connections or sessions. A [`Share`] is what one holder has of it, which
//! leaves something to others. An account draws on the share of its holder and has a limit of its own. A
//! [`Charge`] goes with what it pays for and gives the bytes back when that is dropped.

#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::Violation;
use crate::limits;

/// No holder gets more of a budget who has so many times as much as is free. So one alone gets eight ninths of all,
/// and a newcomer finds something.
const HELD_PER_FREE_MAX: usize = 8;

/// So many bytes, connections or sessions, which are shared on any thread.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    used: AtomicUsize,
    refused: AtomicU64,
}

impl Budget {
    /// A budget of which nothing is used.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            limit: AtomicUsize::new(limit),
            used: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// How much there is in all.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// There is so much in all from now on. What is in use stays so, also where that is more: then nothing is left
    /// until enough was given back.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// How much is in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How often it had too little left.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes so much out of the budget; false when there is not so much left.
    #[must_use]
    pub fn take(&self, amount: usize) -> bool {
        self.take_if(amount, |_| true)
    }

    /// The same, if the rule allows it with so much free before.
    fn take_if(&self, amount: usize, is_allowed: impl Fn(usize) -> bool) -> bool {
        let limit = self.limit();
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                let sum = used.checked_add(amount)?;
                let is_there = sum <= limit && is_allowed(limit.saturating_sub(used));
                is_there.then_some(sum)
            });
        if taken.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Gives back what was taken.
    pub fn give_back(&self, amount: usize) {
        let before = self.used.fetch_sub(amount, Ordering::Relaxed);
        debug_assert!(before >= amount, "{amount} given back of {before}");
    }
}

/// What one holder has of a budget.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    held: AtomicUsize,
    per_free_max: usize,
}

impl Share {
    /// The share of one among others: nothing yet.
    #[must_use]
    pub const fn new(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            held: AtomicUsize::new(0),
            per_free_max: HELD_PER_FREE_MAX,
        }
    }

    /// The share of the only holder, who may have all.
    #[must_use]
    pub const fn whole(budget: Arc<Budget>) -> Self {
        Self {
            budget,
            held: AtomicUsize::new(0),
            per_free_max: usize::MAX,
        }
    }

    /// How much the holder has.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    const fn allows(&self, held: usize, free: usize) -> bool {
        held <= free.saturating_mul(self.per_free_max)
    }

    /// Whether the holder may have one more.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let free = self.budget.limit().saturating_sub(self.budget.used());
        self.allows(self.held().saturating_add(1), free)
    }

    /// Takes so much; false when the holder may not have so much more.
    #[must_use]
    pub fn take(&self, amount: usize) -> bool {
        // Counted first, so that what two cores take at once counts for both.
        let before = self.held.fetch_add(amount, Ordering::Relaxed);
        let held = before.saturating_add(amount);
        let is_taken = self.budget.take_if(amount, |free| self.allows(held, free));
        if !is_taken {
            self.held.fetch_sub(amount, Ordering::Relaxed);
        }
        is_taken
    }

    /// Counts one that is there, whether the holder may have it or not.
    pub fn count(&self) {
        self.count_more(1);
    }

    /// The same of so much.
    pub fn count_more(&self, amount: usize) {
        self.held.fetch_add(amount, Ordering::Relaxed);
        self.budget.used.fetch_add(amount, Ordering::Relaxed);
    }

    /// Gives back what was taken or counted.
    pub fn give_back(&self, amount: usize) {
        let before = self.held.fetch_sub(amount, Ordering::Relaxed);
        debug_assert!(before >= amount, "{amount} given back of {before}");
        self.budget.give_back(amount);
    }
}

/// What may wait in a session: requests that are not whole or came before their turn, and texts.
#[derive(Clone, Debug)]
pub struct HoldLimits {
    /// What the holder of the session shares with others, in bytes.
    pub share: Arc<Share>,
    /// The most that a session with one connection takes of it, in bytes.
    pub session_max_bytes: usize,
    /// So much more may it be for each further connection, in bytes: their commands overtake each other.
    pub per_connection_bytes: usize,
    /// How long a number may be missing that others wait for. Then the session ends.
    pub gap_timeout: Duration,
}

impl HoldLimits {
    /// A session with this limit, and a budget of its own.
    #[must_use]
    pub fn alone(session_max_bytes: usize, gap_timeout: Duration) -> Self {
        let budget = Arc::new(Budget::new(session_max_bytes));
        Self {
            share: Arc::new(Share::whole(budget)),
            session_max_bytes,
            per_connection_bytes: 0,
            gap_timeout,
        }
    }
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self::alone(limits::SESSION_HOLD_MAX_BYTES, limits::GAP_TIMEOUT_DEFAULT)
    }
}

/// One session's part of a share.
#[derive(Debug)]
pub(super) struct Account {
    share: Arc<Share>,
    session_max_bytes: usize,
    per_connection_bytes: usize,
    limit_bytes: Cell<usize>,
    used_bytes: Cell<usize>,
}

impl Account {
    pub(super) fn new(hold: &HoldLimits) -> Rc<Self> {
        Rc::new(Self {
            share: Arc::clone(&hold.share),
            session_max_bytes: hold.session_max_bytes,
            per_connection_bytes: hold.per_connection_bytes,
            limit_bytes: Cell::new(hold.session_max_bytes),
            used_bytes: Cell::new(0),
        })
    }

    /// The session has so many connections from now on.
    pub(super) fn set_connections(&self, count: usize) {
        let further = count.saturating_sub(1);
        let more = self.per_connection_bytes.saturating_mul(further);
        self.limit_bytes
            .set(self.session_max_bytes.saturating_add(more));
    }

    /// Pays for `bytes`, if the session and its holder have them.
    pub(super) fn charge(self: &Rc<Self>, bytes: usize) -> Result<Charge, Violation> {
        let mut charge = self.charge_nothing();
        charge.resize(bytes)?;
        Ok(charge)
    }

    /// For what is not paid for yet.
    pub(super) fn charge_nothing(self: &Rc<Self>) -> Charge {
        Charge {
            account: Rc::clone(self),
            bytes: 0,
        }
    }
}

/// Bytes that are paid for, until it is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Rc<Account>,
    bytes: usize,
}

impl Charge {
    /// Pays for `bytes` from now on. Nothing changes when there are not so many.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Violation> {
        let account = &*self.account;
        let used = account.used_bytes.get();
        let wanted = used.saturating_sub(self.bytes).saturating_add(bytes);
        if bytes > self.bytes {
            let more = bytes.saturating_sub(self.bytes);
            let limit_bytes = account.limit_bytes.get();
            if wanted > limit_bytes || !account.share.take(more) {
                return Err(Violation::HoldBudget {
                    got_bytes: wanted,
                    limit_bytes,
                });
            }
        } else if bytes < self.bytes {
            account.share.give_back(self.bytes.saturating_sub(bytes));
        }
        account.used_bytes.set(wanted);
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let less = self.resize(0);
        debug_assert!(less.is_ok(), "{less:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(budget: &Arc<Budget>, session_max_bytes: usize) -> Rc<Account> {
        Account::new(&HoldLimits {
            share: Arc::new(Share::whole(Arc::clone(budget))),
            session_max_bytes,
            per_connection_bytes: 0,
            gap_timeout: Duration::ZERO,
        })
    }

    #[test]
    fn a_holder_leaves_others_a_ninth_and_has_it_again_when_they_give_back() {
        let budget = Arc::new(Budget::new(900));
        let [one, other] = [(); 2].map(|()| Share::new(Arc::clone(&budget)));
        assert!(one.take(800));
        assert!(!one.take(1), "eight times 100 are free");
        assert!(other.take(80));
        assert!(!one.take(1));
        other.give_back(80);
        one.give_back(1);
        assert!(one.take(1));
        assert_eq!((one.held(), other.held(), budget.used()), (800, 0, 800));
    }

    #[test]
    fn a_lower_limit_takes_nothing_away_and_lets_nothing_more_in_until_enough_is_given_back() {
        let budget = Arc::new(Budget::new(900));
        let one = Share::whole(Arc::clone(&budget));
        assert!(one.take(100));
        budget.set_limit(60);
        assert_eq!((one.held(), budget.used(), budget.limit()), (100, 100, 60));
        assert!(!one.take(1) && !one.has_room());
        one.give_back(41);
        assert!(one.take(1));
        assert!(!one.take(1));
        budget.set_limit(61);
        assert!(one.take(1));
    }

    #[test]
    fn places_below_nine_are_not_shared_and_one_that_is_counted_needs_no_room() {
        let budget = Arc::new(Budget::new(8));
        let [one, other] = [(); 2].map(|()| Share::new(Arc::clone(&budget)));
        for _ in 0..8 {
            assert!(one.has_room());
            one.count();
        }
        assert!(!one.has_room() && !other.has_room());
        other.count();
        one.give_back(1);
        assert!(!one.has_room() && !other.has_room(), "nine less one");
        one.give_back(1);
        assert!(one.has_room() && other.has_room());
    }

    #[test]
    fn each_connection_beside_the_first_adds_to_the_limit_while_it_is_there() {
        let hold = HoldLimits {
            per_connection_bytes: 30,
            session_max_bytes: 100,
            ..HoldLimits::default()
        };
        let account = Account::new(&hold);
        for (connections, limit_bytes) in [(0, 100_usize), (1, 100), (2, 130), (8, 310), (1, 100)] {
            account.set_connections(connections);
            assert!(
                account.charge(limit_bytes.saturating_add(1)).is_err(),
                "{connections}"
            );
            assert!(account.charge(limit_bytes).is_ok(), "{connections}");
        }
    }

    #[test]
    fn a_session_takes_its_limit_and_not_a_byte_more() {
        let budget = Arc::new(Budget::new(1000));
        let account = account(&budget, 100);
        let first = account.charge(60).unwrap();
        let second = account.charge(40).unwrap();
        let refused = account.charge(1).unwrap_err();
        assert_eq!(
            refused,
            Violation::HoldBudget {
                got_bytes: 101,
                limit_bytes: 100
            }
        );
        assert_eq!((budget.used(), budget.refused()), (100, 0));
        drop(first);
        assert_eq!(budget.used(), 40);
        drop(account.charge(60).unwrap());
        drop(second);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn sessions_share_the_budget_to_its_last_byte() {
        let budget = Arc::new(Budget::new(150));
        let (one, other) = (account(&budget, 100), account(&budget, 100));
        let first = one.charge(100).unwrap();
        let second = other.charge(50).unwrap();
        assert!(other.charge(1).is_err());
        assert_eq!((budget.used(), budget.refused()), (150, 1));
        drop(first);
        let third = other.charge(50).unwrap();
        assert_eq!(budget.used(), 100);
        drop((second, third));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_grows_and_shrinks_and_stays_when_it_cannot_grow() {
        let budget = Arc::new(Budget::new(100));
        let account = account(&budget, 80);
        let mut charge = account.charge(0).unwrap();
        for (bytes, is_taken, used) in [
            (80, true, 80),
            (81, false, 80),
            (10, true, 10),
            (10, true, 10),
            (0, true, 0),
        ] {
            assert_eq!(charge.resize(bytes).is_ok(), is_taken, "{bytes}");
            assert_eq!(budget.used(), used, "{bytes}");
        }
        assert!(budget.take(90));
        assert!(charge.resize(11).is_err());
        assert!(charge.resize(10).is_ok());
        drop(charge);
        assert_eq!(budget.used(), 90);
    }
}
