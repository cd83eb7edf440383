//! Bytes that peers make the target hold: one budget for many sessions, one account a session.
//!
//! A [`Budget`] is shared by all cores. A session draws on it through its account, which has a limit
//! of its own, so that no session takes the part of another. A [`Charge`] goes with what it pays
//! for and gives the bytes back when that is dropped.

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

/// A number of bytes that sessions on any thread share.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    refused: AtomicU64,
}

impl Budget {
    /// A budget of which nothing is used.
    #[must_use]
    pub const fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// How much there is in all, in bytes.
    #[must_use]
    pub const fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// How much is in use, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// How often it had too little left.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Takes bytes out of the budget; false when there are not so many left.
    #[must_use]
    pub fn take(&self, bytes: usize) -> bool {
        let taken = self
            .used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes)
                    .filter(|sum| *sum <= self.limit_bytes)
            });
        if taken.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Gives back what was taken.
    pub fn give_back(&self, bytes: usize) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes given back of {before}");
    }
}

/// What may wait in a session: requests that are not whole or came before their turn, and texts.
#[derive(Clone, Debug)]
pub struct HoldLimits {
    /// What the session shares with others.
    pub budget: Arc<Budget>,
    /// The most that this session takes of it, in bytes.
    pub session_max_bytes: usize,
    /// How long a number may be missing that others wait for. Then the session ends.
    pub gap_timeout: Duration,
}

impl Default for HoldLimits {
    /// A budget of its own.
    fn default() -> Self {
        Self {
            budget: Arc::new(Budget::new(limits::SESSION_HOLD_MAX_BYTES)),
            session_max_bytes: limits::SESSION_HOLD_MAX_BYTES,
            gap_timeout: limits::GAP_TIMEOUT_DEFAULT,
        }
    }
}

/// One session's part of a budget.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    limit_bytes: usize,
    used_bytes: Cell<usize>,
}

impl Account {
    pub(super) fn new(hold: &HoldLimits) -> Rc<Self> {
        Rc::new(Self {
            budget: Arc::clone(&hold.budget),
            limit_bytes: hold.session_max_bytes,
            used_bytes: Cell::new(0),
        })
    }

    /// Pays for `bytes`, if the session and the budget have them.
    pub(super) fn charge(self: &Rc<Self>, bytes: usize) -> Result<Charge, Violation> {
        let mut charge = Charge {
            account: Rc::clone(self),
            bytes: 0,
        };
        charge.resize(bytes)?;
        Ok(charge)
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
            if wanted > account.limit_bytes || !account.budget.take(more) {
                return Err(Violation::HoldBudget {
                    got_bytes: wanted,
                    limit_bytes: account.limit_bytes,
                });
            }
        } else if bytes < self.bytes {
            account.budget.give_back(self.bytes.saturating_sub(bytes));
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
            budget: Arc::clone(budget),
            session_max_bytes,
            gap_timeout: Duration::ZERO,
        })
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
        assert_eq!((budget.used_bytes(), budget.refused()), (100, 0));
        drop(first);
        assert_eq!(budget.used_bytes(), 40);
        drop(account.charge(60).unwrap());
        drop(second);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn sessions_share_the_budget_to_its_last_byte() {
        let budget = Arc::new(Budget::new(150));
        let (one, other) = (account(&budget, 100), account(&budget, 100));
        let first = one.charge(100).unwrap();
        let second = other.charge(50).unwrap();
        assert!(other.charge(1).is_err());
        assert_eq!((budget.used_bytes(), budget.refused()), (150, 1));
        drop(first);
        let third = other.charge(50).unwrap();
        assert_eq!(budget.used_bytes(), 100);
        drop((second, third));
        assert_eq!(budget.used_bytes(), 0);
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
            assert_eq!(budget.used_bytes(), used, "{bytes}");
        }
        assert!(budget.take(90));
        assert!(charge.resize(11).is_err());
        assert!(charge.resize(10).is_ok());
        drop(charge);
        assert_eq!(budget.used_bytes(), 90);
    }
}
