//! Names of rare states, so that it can be seen which of them a simulated world has reached.
//!
//! ```text
//! marks::sometimes!("a write waits for an older write");
//! ```
//!
//! A mark is a name in the source, once. With the feature `count`, which only `sim` has, each mark counts how
//! often it was passed; without it nothing is left of it in the program.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "count")]
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "count")]
use std::sync::{Mutex, PoisonError};

/// The marks that were passed at least once.
#[cfg(feature = "count")]
static PASSED: Mutex<Vec<&'static Mark>> = Mutex::new(Vec::new());

/// A rare state, with how often it was there.
#[derive(Debug)]
pub struct Mark {
    #[cfg(feature = "count")]
    name: &'static str,
    #[cfg(feature = "count")]
    count: AtomicU64,
}

#[cfg(feature = "count")]
impl Mark {
    /// For [`sometimes!`](crate::sometimes).
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            count: AtomicU64::new(0),
        }
    }

    /// The state is there.
    pub fn pass(&'static self) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            let mut passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
            passed.push(self);
        }
    }
}

#[cfg(not(feature = "count"))]
impl Mark {
    /// For [`sometimes!`](crate::sometimes).
    pub const fn new(_: &'static str) -> Self {
        Self {}
    }

    /// The state is there.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "nothing may be left of it")]
    pub const fn pass(&'static self) {}
}

/// The names of the marks that were passed, with how often.
#[cfg(feature = "count")]
pub fn passed() -> Vec<(&'static str, u64)> {
    let passed = PASSED.lock().unwrap_or_else(PoisonError::into_inner);
    let counted = passed
        .iter()
        .map(|mark| (mark.name, mark.count.load(Ordering::Relaxed)));
    counted.collect()
}

/// Marks a rare state by its name, a literal that stands nowhere else.
#[macro_export]
macro_rules! sometimes {
    ($name:literal) => {{
        static MARK: $crate::Mark = $crate::Mark::new($name);
        MARK.pass();
    }};
}

#[cfg(all(test, feature = "count"))]
mod tests {
    #[test]
    fn a_mark_counts_how_often_it_was_passed_and_is_not_there_before() {
        let pass = |is_there: bool| {
            if is_there {
                crate::sometimes!("a test has passed a mark");
            }
        };
        pass(false);
        assert_eq!(crate::passed(), []);
        pass(true);
        pass(true);
        assert_eq!(crate::passed(), [("a test has passed a mark", 2)]);
    }
}
